//! Programs are linked with the library under the name that it is installed by.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsrd-sim.so");
    println!("cargo:rerun-if-changed=build.rs");
}
