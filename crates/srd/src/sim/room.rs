//! A run's directory: what stands for ssh to a launcher, and what launchers keep in files. Its lock says that the run's process lives: the next run
//! removes one whose lock nobody has.

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{geteuid, mkdtemp};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What their names begin with. One that has no lock yet has a dot before it.
const NAME: &str = "srd-sim-";

/// See the module.
pub struct Room {
    path: PathBuf,
    _lock: Flock<File>,
}

fn lock(directory: &Path) -> io::Result<Flock<File>> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

impl Room {
    /// Makes it, and removes what others have left.
    pub fn make() -> io::Result<Room> {
        let all = std::env::temp_dir();
        remove_left(&all);
        let made = mkdtemp(&all.join(format!(".{NAME}XXXXXX")))?;
        let lock = lock(&made)?;
        let path = all.join(made.file_name().unwrap_or_default().to_string_lossy().trim_start_matches('.'));
        fs::rename(&made, &path)?;
        let room = Room { path, _lock: lock };
        // Options, the host's name, the command.
        fs::write(
            room.agent(),
            "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\nexec sh -c \"$*\"\n",
        )?;
        fs::set_permissions(room.agent(), fs::Permissions::from_mode(0o700))?;
        Ok(room)
    }

    /// What the launcher of a job keeps: the first one's is all of it, so that it goes with that.
    pub fn of_job(&self, job: usize) -> io::Result<PathBuf> {
        let path = if job == 0 { self.path.clone() } else { self.path.join(format!("job-{job}")) };
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// What stands for ssh.
    pub fn agent(&self) -> PathBuf {
        self.path.join("ssh")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes directories of this user's runs that live no more.
fn remove_left(all: &Path) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME)) {
        let own = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == geteuid().as_raw());
        if own && lock(&entry.path()).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_has_left_goes_with_the_next_and_what_one_has_stays() {
        let left = std::env::temp_dir().join(format!("{NAME}left-{}", std::process::id()));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("file"), "").unwrap();
        let first = Room::make().unwrap();
        assert!(!left.exists());
        let second = Room::make().unwrap();
        assert!(first.agent().exists() && second.agent().exists());
        let path = first.path.clone();
        assert!(first.of_job(1).unwrap().starts_with(&path));
        drop(first);
        assert!(!path.exists());
    }
}
