//! The directory that a run is left in, and what a person is told when it cannot be written to.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 18;

/// See the module.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the directory if it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        std::fs::create_dir_all(path)
            .map_err(|error| explained(error, format!("cannot make the directory {}", path.display())))?;
        Ok(Folder { path: path.to_path_buf() })
    }

    /// Removes files of these names that an earlier run may have left: they would not be of this one.
    pub(super) fn clear(&self, names: &[&str]) -> io::Result<()> {
        names.iter().try_for_each(|name| match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(explained(error, format!("cannot replace {}", self.path.join(name).display())))
            }
            _ => Ok(()),
        })
    }

    /// A new, empty file.
    pub(super) fn create(&self, name: &str) -> io::Result<BufWriter<File>> {
        let path = self.path.join(name);
        let file = File::create(&path)
            .map_err(|error| explained(error, format!("cannot write {}", path.display())))?;
        Ok(BufWriter::with_capacity(BUFFER, file))
    }

    /// A file with this text.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut file = self.create(name)?;
        file.write_all(text.as_bytes())?;
        file.flush()
    }
}

/// Writes a file that is there whole or not at all, even if the machine fails: what is written first is `part`, in the same
/// directory, which nobody else may use meanwhile.
pub fn write_whole(path: &Path, part: &Path, text: &str) -> io::Result<()> {
    let write = || {
        let mut file = File::create(part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(part, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(part);
        explained(error, format!("cannot write {}", path.display()))
    })?;
    // The name is to last as well. Not every file system can do it.
    let _ = path.parent().map(File::open).map(|directory| directory?.sync_all());
    Ok(())
}

/// An error of the system with what was tried and what to do about it.
pub(crate) fn explained(error: io::Error, what: String) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a directory that you may write to"
        }
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "; a file is in the way: choose another name"
        }
        io::ErrorKind::IsADirectory => "; a directory of this name is in the way: remove it",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room, or choose a directory elsewhere"
        }
        _ => "",
    };
    io::Error::new(error.kind(), format!("{what}: {error}{advice}"))
}
