//! Programs that run over OpenSRD now, or should, and what they have loaded: a library twice of which there should be one, or
//! another in the place of ours. A wheel, or a path in the program, has brought its own.

use super::finding::Finding;
use crate::host;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Those programs that this user may look at.
pub fn examine() -> Vec<Finding> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter_map(|number| {
            let maps = fs::read_to_string(format!("/proc/{number}/maps")).ok()?;
            let environment = fs::read(format!("/proc/{number}/environ")).ok()?;
            let (what, mend) = amiss(&maps, is_led_to_efa(&environment))?;
            let name = host::read_trimmed(&format!("/proc/{number}/comm")).unwrap_or_default();
            Some(Finding::warn("loaded", format!("process {number} ({name}) {what}")).mend(mend))
        })
        .collect()
}

/// Whether a process was started for the software EFA, as `srd run` and `srd env` do it.
fn is_led_to_efa(environment: &[u8]) -> bool {
    environment.split(|&byte| byte == 0).any(|variable| {
        variable.strip_prefix(b"LD_LIBRARY_PATH=").is_some_and(|path| {
            path.split(|&byte| byte == b':').any(|directory| directory.ends_with(b"srd/efa"))
        })
    })
}

/// What is amiss with the libraries of a process, and what to do, by its mappings (proc(5), `/proc/PID/maps`: the path is the sixth
/// column).
fn amiss(maps: &str, is_led_to_efa: bool) -> Option<(String, &'static str)> {
    let files: BTreeSet<&Path> =
        maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..]))).collect();
    let named = |prefix: &str| -> Vec<&Path> {
        let begins = |name: &str| name.starts_with(prefix) && name.contains(".so");
        let fits = |file: &&&Path| file.file_name().and_then(|name| name.to_str()).is_some_and(begins);
        files.iter().filter(fits).copied().collect()
    };
    let is_ours = |file: &Path| {
        file.parent().is_some_and(|directory| {
            ["srd/efa", "srd/fi", "srd/fi-efa"].iter().any(|ours| directory.ends_with(ours))
        })
    };
    let (ours, others): (Vec<&Path>, Vec<&Path>) =
        named("libibverbs").into_iter().partition(|file| is_ours(file));
    if let [other, ..] = others[..]
        && (is_led_to_efa || !ours.is_empty())
    {
        let other = other.display();
        let what = match ours.is_empty() {
            true => format!("has a libibverbs of its own, {other}, and goes past the software EFA"),
            false => format!("has a second libibverbs, {other}: what calls that one finds no software EFA"),
        };
        return Some((what, "start it with srd run --efa --preload"));
    }
    match named("libfabric")[..] {
        [first, second, ..] if files.iter().any(|file| is_ours(file)) => {
            let what = format!(
                "has two libfabrics, {} and {}: endpoints of one are unknown to the other",
                first.display(),
                second.display()
            );
            Some((what, "have all of it use one: LD_PRELOAD=THAT_LIBFABRIC, or a build without its own"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings(files: &[&str]) -> String {
        let line = |file: &&str| format!("7f00-7f01 r-xp 00000000 08:01 42    {file}\n");
        "7ffd-7ffe rw-p 00000000 00:00 0    [stack]\n".to_owned()
            + &files.iter().map(line).collect::<String>()
    }

    #[test]
    fn a_library_that_is_there_twice_is_named() {
        let ours = "/usr/lib/srd/efa/libibverbs.so.1";
        let found = |files: &[&str]| amiss(&mappings(files), false).map(|(what, _)| what);
        assert_eq!(found(&[ours, "/usr/lib/srd/efa/libefa.so.1", "/usr/lib/libfabric.so.1"]), None);
        let wheel = "/opt/site-packages/nixl.libs/libibverbs-ff3a.so.1.14";
        assert!(found(&[ours, wheel]).unwrap().contains(wheel));
        let fabrics = ["/usr/lib/libfabric.so.1", "/opt/mpich.libs/libfabric-2b.so.1"];
        assert!(found(&[ours, fabrics[0], fabrics[1]]).unwrap().contains(fabrics[1]));
        assert_eq!(found(&fabrics), None, "it does not run over OpenSRD");
        assert_eq!(found(&["/usr/lib/libibverbs.so.1", wheel]), None);
    }

    #[test]
    fn who_was_started_for_the_software_efa_and_goes_past_it_is_named() {
        assert!(is_led_to_efa(b"HOME=/\0LD_LIBRARY_PATH=/usr/lib/srd/efa:/opt/lib\0"));
        assert!(!is_led_to_efa(b"PATH=/usr/lib/srd/efa\0LD_LIBRARY_PATH=/opt/lib\0"));
        let found = |files: &[&str]| amiss(&mappings(files), true).map(|(what, _)| what);
        assert!(found(&["/opt/own/libibverbs.so.1.14"]).unwrap().contains("/opt/own/libibverbs.so.1.14"));
        assert_eq!(found(&["/usr/lib/srd/efa/libibverbs.so.1"]), None);
        assert_eq!(found(&["/usr/lib/libc.so.6"]), None);
    }
}
