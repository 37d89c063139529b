//! Compiles the BPF programs of `bpf/` with clang.

use std::path::Path;
use std::process::Command;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // linux/types.h includes asm/types.h, which Debian keeps in the architecture's directory. That of the machine that
    // builds, whatever it builds for: the types are the same, and the programs are BPF.
    let asm = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    println!("cargo:rerun-if-changed=bpf/packet.h");
    for name in ["wire", "queue"] {
        let source = format!("bpf/{name}.c");
        println!("cargo:rerun-if-changed={source}");
        let object = Path::new(&out).join(format!("{name}.o"));
        let status = Command::new("clang")
            .args([
                "-O2",
                "-g",
                "-Wall",
                "-Werror",
                "-Wno-unused-variable",
                "-target",
                "bpf",
                "-mcpu=v3",
                &asm,
                "-c",
                &source,
                "-o",
            ])
            .arg(&object)
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => {
                panic!("clang could not compile {source} for BPF ({status}); Debian's clang 14 can")
            }
            Err(error) => panic!(
                "cannot run clang, which compiles the lab's BPF programs: {error}; apt-get install clang"
            ),
        }
    }
}
