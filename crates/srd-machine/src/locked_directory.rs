//! Directories that belong to whoever has their lock: this is how others tell a live one from one left behind, also across PID
//! namespaces that share the directory above.

use nix::fcntl::{Flock, FlockArg};
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the name of one that nobody has locked yet ends with.
const UNLOCKED: &str = ".new";

/// One younger than this, without a lock that is held, may be in the making.
const YOUNG: Duration = Duration::from_secs(60);

/// A directory that only this user can enter, as long as this lives.
#[derive(Debug)]
pub struct LockedDirectory {
    path: PathBuf,
    lock: Flock<File>,
}

impl LockedDirectory {
    /// A new one below `base`, whose name begins with `prefix` and nobody could have taken before. It gets that name once it is locked:
    /// another process's sweep would take the lock of one that nobody holds yet.
    pub fn make(base: &Path, prefix: &str) -> io::Result<LockedDirectory> {
        for attempt in 0u32.. {
            let number = OsRng.try_next_u32().unwrap_or(attempt);
            let name = format!("{prefix}{}-{number:08x}", std::process::id());
            match LockedDirectory::named(base, &name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {}
                result => return result,
            }
        }
        unreachable!("the loop returns")
    }

    /// A new one of this name.
    pub fn named(base: &Path, name: &str) -> io::Result<LockedDirectory> {
        let path = base.join(name);
        if path.exists() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let unlocked = base.join(format!("{name}{UNLOCKED}"));
        DirBuilder::new().mode(0o700).create(&unlocked)?;
        let made = File::create(unlocked.join("lock"))
            .and_then(|file| try_lock(file).ok_or_else(|| io::ErrorKind::WouldBlock.into()))
            .and_then(|lock| fs::rename(&unlocked, &path).map(|()| lock));
        if made.is_err() {
            let _ = fs::remove_dir_all(&unlocked);
        }
        Ok(LockedDirectory { path, lock: made? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its lock, for processes that are to inherit it.
    pub fn lock(&self) -> &File {
        &self.lock
    }

    /// Removes it, the lock last: if the process is killed meanwhile, the next one still sees that nobody holds it.
    pub fn remove(&self) {
        remove(&self.path);
    }

    /// Those of this user below `base` that somebody holds, by name.
    pub fn live(base: &Path, prefix: &str) -> Vec<PathBuf> {
        let held = |path: &PathBuf| File::open(path.join("lock")).is_ok_and(|file| try_lock(file).is_none());
        own(base, prefix).map(|(path, _)| path).filter(held).collect()
    }

    /// Removes those of this user that nobody holds any more. Returns them.
    pub fn sweep(base: &Path, prefix: &str) -> Vec<PathBuf> {
        let mut removed = Vec::new();
        for (path, meta) in own(base, prefix) {
            let is_unlocked = path.extension().is_some_and(|extension| extension == &UNLOCKED[1..]);
            let is_old = || meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG));
            let abandoned = match File::open(path.join("lock")) {
                Ok(lock) if !is_unlocked || is_old() => try_lock(lock).is_some(),
                Ok(_) => false,
                // It is being made, which takes a moment, or was being removed.
                Err(_) => is_old(),
            };
            if abandoned {
                remove(&path);
                removed.push(path);
            }
        }
        removed
    }
}

fn own(base: &Path, prefix: &str) -> impl Iterator<Item = (PathBuf, fs::Metadata)> {
    let user = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let meta = entry.metadata().ok()?;
        let fits = entry.file_name().to_string_lossy().starts_with(prefix);
        (fits && meta.is_dir() && meta.uid() == user).then(|| (entry.path(), meta))
    })
}

fn try_lock(file: File) -> Option<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

fn remove(root: &Path) {
    for entry in
        fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "lock")
    {
        let path = entry.path();
        let _ = if entry.file_type().is_ok_and(|is| is.is_dir()) {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
    }
    let _ = fs::remove_dir_all(root);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const PREFIX: &str = "some-";

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("srd-locked-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_the_owner_may_enter() {
        let base = scratch("mode");
        let directory = LockedDirectory::make(&base, PREFIX).unwrap();
        assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn processes_that_start_together_do_not_sweep_each_other_away() {
        let base = scratch("together");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        LockedDirectory::sweep(&base, PREFIX);
                        let directory = LockedDirectory::make(&base, PREFIX).unwrap();
                        fs::write(directory.path().join("file"), "").unwrap();
                        directory.remove();
                    }
                });
            }
        });
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn those_of_the_dead_are_swept_and_those_of_the_living_stay() {
        let base = scratch("sweep");
        let dead = LockedDirectory::make(&base, PREFIX).unwrap().path().to_owned();
        let live = LockedDirectory::make(&base, PREFIX).unwrap();
        assert_eq!(LockedDirectory::live(&base, PREFIX), [live.path()]);
        assert_eq!(LockedDirectory::sweep(&base, PREFIX), std::slice::from_ref(&dead));
        assert!(!dead.exists() && live.path().exists());
        let name = live.path().file_name().unwrap().to_str().unwrap();
        let again = LockedDirectory::named(&base, name);
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn one_that_was_never_locked_stays_for_a_minute() {
        let base = scratch("never-locked");
        let path = base.join(format!("{PREFIX}1-0{UNLOCKED}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        LockedDirectory::sweep(&base, PREFIX);
        assert!(path.exists(), "its process may be about to lock it");
        let old = std::time::SystemTime::now() - Duration::from_secs(70);
        File::open(&path).unwrap().set_modified(old).unwrap();
        LockedDirectory::sweep(&base, PREFIX);
        assert!(!path.exists());
        fs::remove_dir_all(base).unwrap();
    }
}
