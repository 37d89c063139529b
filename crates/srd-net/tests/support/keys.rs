//! A key for the instances of a test, in a file that goes when the test ends.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct KeyFile {
    path: PathBuf,
    variable: String,
}

impl KeyFile {
    #[allow(clippy::new_without_default)]
    pub fn new() -> KeyFile {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("srd-test-key-{}-{number}", std::process::id()));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        file.write_all(&[0x5E; 32]).expect("written");
        let variable = format!("SRD_KEY_FILE={}", path.display());
        KeyFile { path, variable }
    }

    /// The variable that names it.
    pub fn variable(&self) -> &str {
        &self.variable
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
