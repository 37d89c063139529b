//! What cannot be emulated is said when it happens: a program that opens `/dev/infiniband/uverbsN` itself, past the libraries.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use srd_machine::Description;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const DIRECTORY: &str = "/dev/infiniband";

/// Watches, in a thread, until this process ends. Without inotify nobody watches.
pub fn start(machine: &Description) {
    let Ok(inotify) = Inotify::init(InitFlags::IN_CLOEXEC) else { return };
    for device in &machine.devices {
        let _ = inotify.add_watch(&Path::new(DIRECTORY).join(device.verbs_name()), AddWatchFlags::IN_OPEN);
    }
    std::thread::spawn(move || {
        let mut told = BTreeSet::new();
        while let Ok(events) = inotify.read_events() {
            if events.is_empty() {
                continue;
            }
            let who = openers().into_iter().next();
            if told.insert(who.clone()) && told.len() <= 16 {
                tell(who.as_deref());
            }
        }
    });
}

fn tell(who: Option<&str>) {
    eprintln!(
        "srd: {} has opened {DIRECTORY}/uverbs* itself, and there is nothing behind it. If that is its own rdma-core, linked statically \
         or under another name, link it with the system's libibverbs and libefa; one that bundles shared libraries may take --preload",
        who.unwrap_or("a program")
    );
}

/// Processes that have such a file open now, by program and number.
fn openers() -> Vec<String> {
    let is_one = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(DIRECTORY) && to != Path::new(DIRECTORY))
    };
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let mut files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        if pid != std::process::id() && files.any(is_one) {
            let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} ({pid})", program.trim()));
        }
    }
    found
}
