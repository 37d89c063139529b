//! A directory for a while, for what must be nobody else's: programs that are compiled and then run, as root.

use crate::error::{Doing, Result};
use nix::unistd::mkdtemp;
use std::fs;
use std::path::{Path, PathBuf};

/// Made under a name that nobody can have taken before, and for this user alone. Removed when dropped, with all that is in it.
pub struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    /// One among the temporary files, its name beginning with `prefix`.
    pub fn new(prefix: &str) -> Result<PrivateDirectory> {
        let base = std::env::temp_dir();
        // Mode 0700, and never one that was there (mkdtemp(3)).
        let made = mkdtemp(&base.join(format!("{prefix}-XXXXXX")));
        Ok(PrivateDirectory(made.doing(|| format!("cannot make a directory in {}", base.display()))?))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_directory_that_somebody_has_prepared_is_not_used() {
        // What another user would prepare: the name of the process that he sees, and in it links to what is not his.
        let prefix = format!("srd-private-{}", std::process::id());
        let prepared = std::env::temp_dir().join(&prefix);
        fs::create_dir(&prepared).unwrap();
        let victim = prepared.join("victim");
        fs::write(&victim, "as it was").unwrap();
        symlink(&victim, prepared.join("collective.c")).unwrap();

        let made = [PrivateDirectory::new(&prefix).unwrap(), PrivateDirectory::new(&prefix).unwrap()];
        assert_ne!(made[0].path(), made[1].path());
        for directory in &made {
            let found = fs::symlink_metadata(directory.path()).unwrap();
            assert!(found.is_dir() && found.mode() & 0o777 == 0o700, "{found:?}");
            assert_eq!(found.uid(), nix::unistd::geteuid().as_raw());
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
            fs::write(directory.path().join("collective.c"), "ours").unwrap();
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        let paths = made.each_ref().map(|directory| directory.path().to_owned());
        drop(made);
        assert!(paths.iter().all(|path| !path.exists()));
        fs::remove_dir_all(&prepared).unwrap();
    }
}
