//! Makes a library of `libcuda.c`.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Puts it into `directory`, once in a process.
pub fn make(directory: &Path) {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        std::fs::create_dir_all(directory).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/accelerator/libcuda.c");
        let output = Command::new("cc")
            .args([
                "-Wall",
                "-Werror",
                "-shared",
                "-fPIC",
                "-O1",
                "-Wl,-soname,libcuda.so.1",
                "-pthread",
                "-o",
            ])
            .args([&directory.join("libcuda.so.1"), &source])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}
