//! Bytes as traces: lines of JSON, refused with a number or told as stories.
#![no_main]

use libfuzzer_sys::fuzz_target;
use srd_trace::{Question, TraceFile};

fuzz_target!(|bytes: &[u8]| {
    match TraceFile::parse(bytes) {
        Ok(trace) => {
            if let Some(report) = trace.host_report(3) {
                let _ = report.text();
            }
            if let Ok(report) = trace.report(&Question::Slowest(3)) {
                let _ = report.text();
            }
        }
        Err(error) => assert!(error.to_string().starts_with(':'), "{error}"),
    }
});
