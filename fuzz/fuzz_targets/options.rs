//! Lines `NAME=VALUE` as environment variables, read as a library reads them when a program starts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_net::Options;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

fuzz_target!(|bytes: &[u8]| {
    let pairs = bytes.split(|&byte| byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|&byte| byte == b'=')?;
        let text = |bytes| OsStr::from_bytes(bytes).to_owned();
        Some((text(&line[..at]), text(&line[at + 1..])))
    });
    match Options::from_vars(pairs) {
        Ok((options, warnings)) => {
            assert!(options.port_base >= 1024 && (1..=256).contains(&options.paths));
            assert!(warnings.iter().all(|warning| !warning.to_string().is_empty()));
        }
        Err(error) => assert!(error.to_string().contains("SRD_"), "{error}"),
    }
});
