//! Keys as people use them: made, checked, made for a job and gone with it; and where they are seen meanwhile.

#[path = "../../srd-net/tests/support/skip.rs"]
mod skip;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

const SRD: &str = env!("CARGO_BIN_EXE_srd");

/// A directory for one test, entered by nobody else, and gone with it.
struct Room(PathBuf);

impl Room {
    fn new(name: &str) -> Room {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("keys-{name}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        for library in ["libibverbs.so.1", "libefa.so.1"] {
            fs::write(path.join(library), "").unwrap();
        }
        Room(path)
    }

    /// A program that finds nothing of the caller's that bears on keys.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["SRD_", "OMPI_", "PMI", "MPI_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env("SRD_ADDR", "127.0.0.1").env("SRD_LIB_DIR", &self.0).env("XDG_RUNTIME_DIR", &self.0);
        command
    }

    /// Our command.
    fn srd(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(SRD);
        command.args(arguments);
        command
    }

    /// Runs a shell script as a sealed job, which ignores no signals that these tests may have to ignore.
    fn job(&self, script: &str) -> Command {
        let mut command = self.command("env");
        command.args(["--default-signal", SRD, "run", "--sealed", "--", "sh", "-c", script]);
        command
    }

    /// Keys of jobs that are there.
    fn keys(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("srd")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| !path.to_string_lossy().ends_with(".sock")).collect()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    output
}

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

#[test]
fn a_new_key_is_the_owners_alone_and_overwrites_nothing() {
    let room = Room::new("new");
    let file = room.0.join("cluster.key");
    let name = file.to_str().unwrap();
    let said = text(&done(&mut room.srd(&["key", "new", name])).stdout);
    assert!(said.contains(&format!("export SRD_KEY_FILE={name}")), "{said}");
    let first = fs::read_to_string(&file).unwrap();
    assert!(first.len() == 65 && first.trim().bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert!(!said.contains(first.trim()));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);

    assert!(refused(&mut room.srd(&["key", "new", name])).contains("exists"));
    assert_eq!(fs::read_to_string(&file).unwrap(), first);
    let other = room.0.join("other.key");
    done(&mut room.srd(&["key", "new", other.to_str().unwrap()]));
    assert_ne!(fs::read_to_string(&other).unwrap(), first);

    // Without a name there is a place for it.
    done(room.srd(&["key", "new"]).env("XDG_CONFIG_HOME", room.0.join("config")));
    assert_eq!(fs::metadata(room.0.join("config/srd/key")).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_key_file_is_checked_and_the_way_out_named() {
    let room = Room::new("check");
    let file = room.0.join("cluster.key");
    let name = file.to_str().unwrap();
    done(&mut room.srd(&["key", "new", name]));
    done(&mut room.srd(&["key", "check", name]));
    done(room.srd(&["key", "check"]).env("SRD_KEY_FILE", name));
    assert!(refused(&mut room.srd(&["key", "check"])).contains("SRD_KEY_FILE is not set"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let said = refused(&mut room.srd(&["key", "check", name]));
    assert!(said.contains("its group") && said.contains(&format!("chmod 600 {name}")), "{said}");
    // Who takes no such file does not run without a key instead.
    assert!(refused(room.job("echo ran").env("SRD_KEY_FILE", name)).contains("its group"));
    fs::write(&file, "0123").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused(&mut room.srd(&["key", "check", name])).contains("4 hexadecimal digits"));
}

#[test]
fn a_job_has_a_key_and_takes_it_with_it() {
    let room = Room::new("job");
    let said =
        text(&done(&mut room.job("echo $SRD_KEY_FILE; stat -c %a $SRD_KEY_FILE; cat $SRD_KEY_FILE")).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(room.0.to_str().unwrap()) && lines[1] == "600", "{said}");
    assert_eq!(lines[2].len(), 64, "{said}");
    assert!(room.keys().is_empty(), "{:?}", room.keys());
    let again = text(&done(&mut room.job("cat $SRD_KEY_FILE")).stdout);
    assert_ne!(again.trim(), lines[2], "each job has a key of its own");

    let shared = room.0.join("shared");
    fs::create_dir(&shared).unwrap();
    let script = "echo $SRD_KEY_FILE";
    let mut command =
        room.srd(&["run", "--sealed", "--key-dir", shared.to_str().unwrap(), "--", "sh", "-c", script]);
    assert!(text(&done(&mut command).stdout).starts_with(shared.to_str().unwrap()));
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}

#[test]
fn what_a_job_answers_is_answered_and_its_key_goes_in_any_case() {
    let room = Room::new("answers");
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137)] {
        assert_eq!(room.job(script).output().unwrap().status.code(), Some(code), "{script}");
    }
    let missing = room.srd(&["run", "--sealed", "--", "no-such-program"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert!(room.keys().is_empty(), "{:?}", room.keys());
}

#[test]
fn open_mpi_is_told_to_hand_the_key_on_beside_what_it_has_been_told_in_a_list() {
    let room = Room::new("open-mpi");
    let launcher = room.0.join("mpirun");
    fs::write(&launcher, "#!/bin/sh\necho list=$OMPI_MCA_mca_base_env_list\n").unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    let launch = |arguments: &[&str], list: Option<&str>| {
        let mut command = room.srd(&["run", "--sealed", "--", launcher.to_str().unwrap()]);
        command.args(arguments).envs(list.map(|list| ("OMPI_MCA_mca_base_env_list", list)));
        text(&done(&mut command).stdout)
    };
    assert_eq!(launch(&["-np", "2", "prog"], None), "list=SRD_KEY_FILE\n");
    // Open MPI 4 ends with an error where it has both.
    assert_eq!(launch(&["-x", "HOME", "prog"], None), "list=\n");
    assert_eq!(launch(&["prog"], Some("HOME")), "list=HOME;SRD_KEY_FILE\n");
    assert_eq!(text(&done(&mut room.job("echo list=$OMPI_MCA_mca_base_env_list")).stdout), "list=\n");
}

/// A job under way: it has said its first line.
struct Running(Child, BufReader<std::process::ChildStdout>);

impl Running {
    fn start(command: &mut Command) -> (Running, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        (Running(child, output), line.trim().to_owned())
    }

    fn end(&mut self) -> (std::process::ExitStatus, String) {
        let mut rest = String::new();
        self.1.read_to_string(&mut rest).unwrap();
        (self.0.wait().unwrap(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn signals_reach_the_job_once() {
    let room = Room::new("signals");
    for name in ["TERM", "INT", "HUP", "USR1"] {
        let script = format!(
            "n=0; trap 'echo got; n=1' {name}; echo ready; until [ $n -ge 5 ]; do [ $n -gt 0 ] && n=$((n+1)); sleep 0.1; done; exit 3"
        );
        let (mut job, line) = Running::start(&mut room.job(&script));
        assert_eq!(line, "ready");
        signal(name, job.0.id());
        let (status, rest) = job.end();
        assert_eq!((status.code(), rest.as_str()), (Some(3), "got\n"), "{name}");
    }
    assert!(room.keys().is_empty(), "{:?}", room.keys());
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let room = Room::new("nohup");
    let line = "trap '' HUP; exec \"$0\" run --sealed -- sh -c 'grep SigIgn /proc/self/status'";
    let mut command = room.command("sh");
    command.args(["-c", line, SRD]);
    let said = text(&done(&mut command).stdout);
    let mask = u64::from_str_radix(said.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "{said}");
}

#[test]
fn the_key_of_a_job_that_was_killed_goes_with_the_next_and_that_of_a_living_one_stays() {
    let room = Room::new("killed");
    let (mut killed, left) = Running::start(&mut room.job("echo $SRD_KEY_FILE; exec sleep 600"));
    let (mut living, kept) = Running::start(&mut room.job("echo $SRD_KEY_FILE; read line; echo end"));
    let inner = fs::read_to_string(format!("/proc/{0}/task/{0}/children", killed.0.id())).unwrap();
    killed.0.kill().unwrap();
    assert_eq!(killed.0.wait().unwrap().signal(), Some(9));
    done(&mut room.job("true"));
    assert!(Path::new(&left).exists(), "the job itself goes on");
    signal("KILL", inner.trim().parse().unwrap());
    let start = Instant::now();
    while Path::new(&left).exists() {
        assert!(start.elapsed() < PATIENCE, "still there");
        done(&mut room.job("true"));
    }
    // It reads from nothing, and may have ended by itself.
    let (status, _) = living.end();
    assert!(status.success() && !Path::new(&kept).exists());
}

#[test]
fn what_was_begun_is_swept_and_what_is_no_file_keeps_nobody_waiting() {
    let room = Room::new("swept");
    let [pipe, link, begun, other] =
        ["job-1.key", "job-2.key", "job-3.new", "other.new"].map(|name| room.0.join(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink(&other, &link).unwrap();
    [&begun, &other].iter().for_each(|file| fs::write(file, "0123").unwrap());
    let mut command = room.command("timeout");
    let limit = PATIENCE.as_secs().to_string();
    command.args([&limit, SRD, "run", "--sealed", "--key-dir"]).arg(&room.0).args(["--", "true"]);
    done(&mut command);
    assert_eq!(
        [&pipe, &link, &begun, &other].map(|path| path.symlink_metadata().is_ok()),
        [true, true, false, true]
    );
}

#[test]
fn a_job_whose_terminal_goes_ends_with_all_its_processes_and_its_key() {
    let room = Room::new("terminal");
    // script(1) has the terminal, and `srd run` leads its session.
    let job = "sleep 600 & echo $SRD_KEY_FILE $!; wait";
    let line = format!("exec env --default-signal {SRD} run --sealed -- sh -c '{job}'");
    let (mut terminal, said) =
        Running::start(room.command("script").args(["-qc", &line, "/dev/null"]).env("SHELL", "/bin/sh"));
    let (key, sleeper) = said.split_once(' ').unwrap();
    let process = Path::new("/proc").join(sleeper);
    assert!(Path::new(key).exists() && process.exists(), "{said}");
    terminal.0.kill().unwrap();
    let start = Instant::now();
    while Path::new(key).exists() || process.exists() {
        assert!(start.elapsed() < PATIENCE, "{said}: still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_job_has_one_key() {
    let room = Room::new("nested");
    let inner =
        format!("cat $SRD_KEY_FILE; {} run --sealed -- sh -c 'cat $SRD_KEY_FILE'", env!("CARGO_BIN_EXE_srd"));
    let said = text(&done(&mut room.job(&inner)).stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "{said}");
    // As a rank each would make another.
    for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK"] {
        let said = refused(room.job("true").env(name, "0"));
        assert!(said.contains("before the launcher") && said.contains(name), "{said}");
    }
}

#[test]
fn no_process_shows_the_key_on_its_command_line_or_in_its_environment() {
    let room = Room::new("shown");
    let script = "trap 'kill $!; exit' TERM; sleep 600 & echo $SRD_KEY_FILE; wait";
    let (mut job, file) = Running::start(&mut room.job(script));
    let key = fs::read_to_string(&file).unwrap();
    let raw: Vec<u8> = bytes_of(&key);
    let mut seen = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        for part in ["cmdline", "environ"] {
            // Those of others, and of processes that end meanwhile, cannot be read.
            let Ok(shown) = fs::read(entry.path().join(part)) else { continue };
            seen += usize::from(find(&shown, file.as_bytes()).next().is_some());
            for secret in [key.trim().as_bytes(), &raw] {
                assert!(find(&shown, secret).next().is_none(), "in {}/{part}", entry.path().display());
            }
        }
    }
    assert!(seen >= 2, "the job's processes were looked at: they know the file");
    signal("TERM", job.0.id());
    job.end();
    assert!(!Path::new(&file).exists());
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..32).map(|at| digit(2 * at)).collect()
}

fn find<'a>(within: &'a [u8], what: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    within.windows(what.len()).enumerate().filter(move |(_, window)| *window == what).map(|(at, _)| at)
}

/// How often the key stands in the memory of a process: where core dumps leave it out, and elsewhere.
fn copies(pid: u32, key: &str) -> (usize, Vec<String>) {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let raw = bytes_of(key);
    let (mut hidden, mut elsewhere) = (0, Vec::new());
    let mut mapping = String::new();
    for line in maps.lines() {
        let first = line.split(' ').next().unwrap_or("");
        if first.contains('-') && !first.contains(':') {
            mapping = line.to_owned();
        }
        let Some(flags) = line.strip_prefix("VmFlags:") else { continue };
        let (range, rights) = (mapping.split(' ').next().unwrap(), mapping.split(' ').nth(1).unwrap());
        if !rights.starts_with('r') || mapping.contains("[v") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut buffer = vec![0; (1 << 20) + 64];
        let mut at = start;
        while at < end {
            let len = buffer.len().min((end - at) as usize);
            // What has gone meanwhile, or is no memory.
            let Ok(got) = memory.read_at(&mut buffer[..len], at) else { break };
            for secret in [key.as_bytes(), &raw] {
                for found in find_fast(&buffer[..got], secret) {
                    if found >= 1 << 20 {
                        continue; // the next piece has it, too
                    }
                    match flags.split_whitespace().any(|flag| flag == "dd") {
                        true => hidden += 1,
                        false => elsewhere.push(format!("{:x} in {mapping}", at + found as u64)),
                    }
                }
            }
            at += 1 << 20;
        }
    }
    (hidden, elsewhere)
}

/// As [`find`], for megabytes.
fn find_fast(within: &[u8], what: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = within[at..].iter().position(|&byte| byte == what[0]) {
        at += next;
        if within[at..].starts_with(what) {
            found.push(at);
        }
        at += 1;
    }
    found
}

#[test]
fn a_key_in_use_stands_in_one_place_which_core_dumps_leave_out() {
    let room = Room::new("memory");
    let file = room.0.join("cluster.key");
    done(&mut room.srd(&["key", "new", file.to_str().unwrap()]));
    let key = fs::read_to_string(&file).unwrap().trim().to_owned();
    let sealed = |arguments: &[&str]| {
        let mut command = room.srd(arguments);
        command.env("SRD_KEY_FILE", &file).env("SRD_PORT_BASE", "14600").stderr(Stdio::null());
        command
    };
    let (server, line) = Running::start(&mut sealed(&["perf", "server", "--port", "0"]));
    let port = line.rsplit(' ').next().unwrap();
    let mut client =
        sealed(&["perf", "client", "127.0.0.1", "--port", port, "--test", "latency", "--seconds", "600"]);
    let mut client = client.stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut talking = 0;
    // Some looks while both seal: where keys of contexts are derived, and before.
    while talking < 5 {
        let found: Vec<_> = [server.0.id(), client.id()].map(|pid| copies(pid, &key)).into();
        talking += usize::from(found.iter().all(|(hidden, _)| *hidden > 0));
        if talking > 1 {
            for (hidden, elsewhere) in &found {
                assert!(elsewhere.is_empty(), "{hidden} hidden, and {elsewhere:#?}");
                assert_eq!(*hidden, 1);
            }
        }
        assert!(Instant::now() < deadline, "they do not talk: {found:?}");
        std::thread::sleep(Duration::from_millis(300));
    }
    client.kill().unwrap();
    client.wait().unwrap();
}

/// In a network namespace of its own, where the host can have any address.
#[test]
fn a_public_address_without_a_key_is_warned_of_once() {
    let room = Room::new("public");
    let doctor = |address: &str, key: Option<&Path>| {
        let line =
            format!("ip link set lo up && ip address add {address} dev lo && exec \"$0\" doctor --json");
        let own = room.srd(&[]);
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", &line]).arg(own.get_program()).stdin(Stdio::null());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("SRD_ADDR", address.split('/').next().unwrap());
        command.envs(key.map(|key| ("SRD_KEY_FILE", key)));
        let output = command.output().unwrap();
        let diagnosis: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let findings = diagnosis["findings"].as_array().unwrap();
        let level = findings.iter().find(|finding| finding["check"] == "key").unwrap()["level"].clone();
        Some((level.as_str().unwrap().to_owned(), text(&output.stderr).matches("no private address").count()))
    };
    let file = room.0.join("cluster.key");
    done(&mut room.srd(&["key", "new", file.to_str().unwrap()]));
    let Some(public) = doctor("203.0.113.5/32", None) else {
        return skip::skip("no namespaces");
    };
    assert_eq!(public, ("warn".into(), 1));
    assert_eq!(doctor("203.0.113.5/32", Some(&file)).unwrap(), ("ok".into(), 0));
    assert_eq!(doctor("10.1.2.3/32", None).unwrap(), ("ok".into(), 0));
}
