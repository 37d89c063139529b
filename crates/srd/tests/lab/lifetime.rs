//! What is left behind (nothing), and what is refused.

use crate::{Fabric, PORT, eventually, name, said, send, small, srd};
use srd_lab::{Error, Fault, Found, Lab};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn namespaces_of(lab: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("{lab}-"))).collect()
}

fn is_gone(lab: &str) -> bool {
    namespaces_of(lab).is_empty() && !Path::new("/run/srd-lab").join(lab).exists()
}

/// Names of the devices in this machine's own namespace.
fn own_devices() -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn down_removes_everything_with_all_that_runs_there_and_the_machine_is_as_it_was() {
    let before = own_devices();
    let Some(fabric) = Fabric::small() else { return };
    assert_eq!(own_devices(), before);
    let mut program = fabric.0.command(0, "sleep").arg("1000").spawn().unwrap();
    fabric.0.fault(Fault::Delay { at: "spine0".into(), delay_us: 1000, jitter_us: 0 }).unwrap();
    fabric.0.fault(Fault::Pause { host: "host0".into() }).unwrap();
    fabric.0.clone().down().unwrap();
    assert!(is_gone(fabric.0.name()));
    assert!(!program.wait().unwrap().success());
    assert_eq!(own_devices(), before);
    let error = Lab::open(fabric.0.name()).unwrap_err();
    assert!(matches!(error, Error::NoSuchLab { .. }), "{error}");
}

#[test]
fn an_up_that_was_killed_leaves_nothing_once_it_is_taken_down() {
    if Fabric::small().is_none() {
        return;
    }
    for wait_ms in [3, 10, 20, 40, 60] {
        let name = name();
        let mut up = srd(&["up", "--lab", &name]).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        up.kill().unwrap();
        up.wait().unwrap();
        if !is_gone(&name) {
            let refused = srd(&["up", "--lab", &name]).output().unwrap();
            assert!(
                !refused.status.success() && said(&refused).contains("srd lab down"),
                "{}",
                said(&refused)
            );
            let down = srd(&["down", "--lab", &name]).output().unwrap();
            assert!(down.status.success(), "after {wait_ms} ms: {}", said(&down));
        }
        assert!(is_gone(&name), "after {wait_ms} ms: {:?}", namespaces_of(&name));
    }
}

#[test]
fn an_up_that_is_interrupted_leaves_nothing() {
    if Fabric::small().is_none() {
        return;
    }
    let name = name();
    let mut up = srd(&["up", "--lab", &name]).stderr(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let pid = nix::unistd::Pid::from_raw(up.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let interrupted = !up.wait().unwrap().success();
    // It may have been too early to be heeded, or too late.
    assert!(interrupted != Lab::open(&name).is_ok());
    let _ = Lab::remove(&name);
    assert!(is_gone(&name));
}

#[test]
fn labs_live_side_by_side_and_a_second_one_of_a_name_is_refused() {
    let (Some(first), Some(second)) = (Fabric::small(), Fabric::small()) else { return };
    let error = Lab::up(first.0.name(), &small()).unwrap_err();
    assert!(matches!(&error, Error::Exists { .. }), "{error}");
    assert!(error.to_string().contains(&format!("srd lab down --lab {}", first.0.name())), "{error}");
    assert_eq!(Lab::remove(second.0.name()).unwrap(), Found::Whole);
    assert_eq!(first.0.status().unwrap().hosts.len(), 4);
    assert!(!namespaces_of(first.0.name()).is_empty());
}

#[test]
fn a_status_every_so_often_goes_on_until_the_lab_is_removed() {
    let Some(fabric) = Fabric::small() else { return };
    let mut status = srd(&["status", "--lab", fabric.0.name(), "--json", "--every-ms", "5"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(status.stdout.take().unwrap()).lines();
    let mut arrived = || {
        let status: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let links = status["links"].as_array().unwrap();
        let last = links.iter().find(|link| link["name"] == "leaf1>host2").unwrap();
        last["packets"].as_u64().unwrap()
    };
    assert_eq!(arrived(), 0);
    let (from, _to) = (fabric.socket(0, 0), fabric.socket(2, PORT));
    for sent in [10, 20] {
        send(&from, fabric.address(2), 10, 100);
        eventually("packets are counted", || arrived() == sent);
    }
    Lab::remove(fabric.0.name()).unwrap();
    lines.for_each(drop);
    let mut said = String::new();
    status.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("has been removed"), "{said}");
}

#[test]
fn a_sampler_knows_its_lab_from_a_later_one_of_the_same_name() {
    let Some(fabric) = Fabric::small() else { return };
    let sampler = fabric.0.sampler().unwrap();
    fabric.0.status_by(&sampler).unwrap();
    Lab::remove(fabric.0.name()).unwrap();
    let again = Lab::up(fabric.0.name(), &small()).unwrap();
    let error = again.status_by(&sampler).unwrap_err();
    assert!(matches!(error, Error::Removed { .. }), "{error}");
    again.status().unwrap();
}

#[test]
fn a_namespace_that_is_not_ours_is_neither_used_nor_removed() {
    if Fabric::small().is_none() {
        return;
    }
    let lab = name();
    let foreign = format!("{lab}-leaf1");
    let ip = |action: &str| Command::new("ip").args(["netns", action, &foreign]).status().unwrap();
    assert!(ip("add").success());
    let error = Lab::up(&lab, &small()).unwrap_err();
    let kept = namespaces_of(&lab);
    assert!(ip("del").success());
    assert!(matches!(error, Error::ForeignNamespace { .. }), "{error}");
    assert_eq!(kept, [foreign]);
}

#[test]
fn without_rights_one_is_told_what_to_do() {
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("does not let you make network namespaces") && said.contains("sudo"), "{said}");
    };
    let lab = name();
    if nix::unistd::geteuid().is_root() {
        // Where anyone may run it.
        let copy = std::env::temp_dir().join(&lab);
        std::fs::copy(env!("CARGO_BIN_EXE_srd"), &copy).unwrap();
        refused(Command::new(&copy).args(["lab", "up", "--lab", &lab]).uid(65_534).gid(65_534));
        std::fs::remove_file(copy).unwrap();
        // Root of a container that allows nothing.
        let limited = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", env!("CARGO_BIN_EXE_srd")];
        refused(Command::new("setpriv").args(limited).args(["lab", "up", "--lab", &lab]));
    } else {
        refused(&mut srd(&["up", "--lab", &lab]));
    }
    assert!(is_gone(&lab));
}

#[test]
fn a_missing_tool_is_named_with_its_package_and_nothing_is_left() {
    if Fabric::small().is_none() {
        return;
    }
    // Not even /usr/sbin and /sbin may have it: in a mount namespace of its own with those empty.
    let lab = name();
    let script = "mount -t tmpfs none /usr/sbin && mount -t tmpfs none /sbin && \
                  PATH=/nowhere exec \"$0\" lab up --lab \"$1\"";
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_srd"), &lab]).output().unwrap();
    assert!(said(&output).contains("apt-get install iproute2"), "{}", said(&output));
    assert!(is_gone(&lab));
}

#[test]
fn what_does_not_exist_or_makes_no_sense_is_refused_and_leaves_no_fault() {
    let Some(fabric) = Fabric::small() else { return };
    let lab = fabric.0.name();
    let refused = |arguments: &[&str], words: &str| {
        let output = srd(&[&["--lab", lab], arguments].concat()).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
    };
    refused(&["fault", "blackhole", "leaf0-spine7"], "leaf0-spine0, leaf0-spine1, leaf1-spine0");
    refused(&["fault", "down", "leaf0>spine1"], "one way of a link");
    refused(&["fault", "loss", "leaf0-spine1", "101"], "at most 100");
    refused(&["fault", "loss", "leaf0-spine1", "-5"], "at most 100");
    refused(&["fault", "delay", "leaf0-spine1", "0"], "1 to 10000000");
    refused(&["fault", "reordering", "leaf0-spine1", "50", "0"], "1 to 10000000");
    refused(&["fault", "kill", "host0", ""], "name or the number");
    refused(&["fault", "slow", "leaf0-spine1", "100"], "less than its 100 Mbit/s");
    refused(&["fault", "flap", "spine0", "--period-ms", "10", "--down-ms", "10"], "part of the period");
    refused(&["fault", "pause", "host4"], "host0 to host3");
    refused(&["exec", "host9", "--", "true"], "host0 to host3");
    refused(&["heal", "3"], "no faults");
    refused(&["exec", "host0", "--", "no-such-program"], "no-such-program");
    refused(&["mpirun", "-n", "2", "--hosts", "h0,h9", "--mpi", "debian", "--", "true"], "host0 to host3");
    refused(&["up", "--spines", "0"], "at least one spine");
    refused(&["up", "--host-mbps", "-5"], "between 0.1");
    refused(&["up", "--lab", "a/b"], "cannot be a lab's name");
    assert!(fabric.0.status().unwrap().faults.is_empty());
}

#[test]
fn options_complete_a_file_that_alone_makes_no_fabric() {
    if Fabric::small().is_none() {
        return;
    }
    let lab = name();
    let file = std::env::temp_dir().join(format!("{lab}.toml"));
    std::fs::write(&file, "pods = 1\nleaves = 1\nhosts_per_leaf = 1\naggs_per_pod = 1\n").unwrap();
    let up = |options: &[&str]| {
        srd(&[&["up", file.to_str().unwrap(), "--lab", &lab], options].concat()).output().unwrap()
    };
    let alone = up(&[]);
    assert!(!alone.status.success() && said(&alone).contains("cores"), "{}", said(&alone));
    let completed = up(&["--cores", "1"]);
    assert!(completed.status.success(), "{}", said(&completed));
    Lab::remove(&lab).unwrap();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn an_interrupt_ends_a_fault_of_some_time_at_once() {
    let Some(fabric) = Fabric::small() else { return };
    let lab = fabric.0.name();
    let mut fault = srd(&["--lab", lab, "fault", "--for-ms", "600000", "blackhole", "spine0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    BufReader::new(fault.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
    assert_eq!(fabric.0.status().unwrap().faults.len(), 1, "{told}");
    let pid = nix::unistd::Pid::from_raw(fault.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(fault.wait().unwrap().code(), Some(130));
    assert!(fabric.0.status().unwrap().faults.is_empty());
}

#[test]
fn libraries_that_are_not_there_are_named_once_and_not_by_each_rank() {
    let Some(fabric) = Fabric::small() else { return };
    for (transport, library) in [("srd", "libsrd-fi.so"), ("efa", "libefa.so.1")] {
        let job = ["mpirun", "-n", "4", "--mpi", "debian", "--transport", transport, "--", "true"];
        let output = srd(&[&["--lab", fabric.0.name()], &job[..]].concat())
            .env("SRD_LIB_DIR", "/nowhere")
            .output()
            .unwrap();
        let said = said(&output);
        assert!(!output.status.success() && said.matches(library).count() > 0, "{said}");
        assert_eq!(said.matches("not found in /nowhere").count(), 1, "{said}");
    }
}

#[test]
fn ranks_of_a_sealed_job_find_one_key_wherever_they_run_and_none_stays() {
    let Some(fabric) = Fabric::small() else { return };
    let room = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fabric.0.name());
    std::fs::create_dir_all(room.join("fi")).unwrap();
    std::fs::write(room.join("fi/libsrd-fi.so"), "").unwrap();
    let job = |transport: &str| {
        let script = "sleep 0.2; echo $(hostname) $SRD_KEY_FILE $(cat $SRD_KEY_FILE)";
        let options =
            ["mpirun", "--sealed", "-n", "2", "--hosts", "h3,host1", "--mpi", "debian", "--transport"];
        let program = [transport, "--", "sh", "-c", script];
        let mut command = srd(&[&["--lab", fabric.0.name()], &options[..], &program[..]].concat());
        command.env("SRD_LIB_DIR", &room).env("XDG_RUNTIME_DIR", &room).env_remove("SRD_KEY_FILE");
        command.output().unwrap()
    };
    let output = job("srd");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<Vec<&str>> = told.lines().map(|line| line.split(' ').collect()).collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 2, "{}", said(&output));
    assert_eq!((lines[0][0], lines[1][0]), ("host1", "host3"), "{}", said(&output));
    assert!(lines[0][1..] == lines[1][1..] && lines[0][2].len() == 64, "{}", said(&output));
    assert!(!Path::new(lines[0][1]).exists());
    assert!(said(&job("tcp")).contains("cannot be --sealed"));
    std::fs::remove_dir_all(&room).unwrap();
}

#[test]
fn a_program_in_a_host_hands_on_what_became_of_it() {
    let Some(fabric) = Fabric::small() else { return };
    let exec = |script: &str| {
        srd(&["exec", "--lab", fabric.0.name(), "host1", "--", "sh", "-c", script]).output().unwrap()
    };
    assert_eq!(exec("exit 7").status.code(), Some(7));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&exec("kill -9 $$").status), Some(9));
    for (program, code) in [("no-such-program", 127), ("/etc/passwd", 126)] {
        let output = srd(&["exec", "--lab", fabric.0.name(), "host0", "--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        assert!(said(&output).contains(&format!("srd: cannot run {program}")), "{}", said(&output));
    }
    let devices = exec("ls /sys/class/net").stdout;
    let devices = String::from_utf8(devices).unwrap();
    assert!(["e0", "m0", "lo"].iter().all(|device| devices.contains(device)), "{devices}");
}

#[test]
fn ranks_of_an_mpi_job_run_in_the_hosts_they_were_given() {
    let Some(fabric) = Fabric::small() else { return };
    // Debian's Open MPI starts what is no MPI program, too.
    let run = |script: &str| {
        let options = ["mpirun", "-n", "4", "--hosts", "h3,host1", "--mpi", "debian", "--transport", "tcp"];
        let program = ["--", "sh", "-c", script];
        srd(&[&["--lab", fabric.0.name()], &options[..], &program[..]].concat()).output().unwrap()
    };
    // Its name, its address, and shared memory that no other host sees.
    let script = "touch /dev/shm/seen-by-$(hostname); sleep 0.2; \
                  echo $(hostname) $(ip -4 -br addr show e0 | tr -s ' ' | cut -d' ' -f3) $(ls /dev/shm | grep seen)";
    let output = run(script);
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    let host1 = "host1 10.128.0.3/31 seen-by-host1";
    let host3 = "host3 10.128.1.3/31 seen-by-host3";
    assert_eq!(lines, [host1, host1, host3, host3], "{}", said(&output));
    let failed = run("exit 3");
    assert!(!failed.status.success(), "a rank that dies must be told: {}", said(&failed));
}
