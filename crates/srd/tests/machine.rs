//! Machines with EFA devices: what is in them, who finds them, and that nothing is left. (What programs count in one is compared in
//! `tests/consumers`.)

#[path = "../../srd-net/tests/support/skip.rs"]
mod skip;

use skip::skip;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nobody, where the tests run as root: a user of his own where they do not.
const NOBODY: u32 = 65534;

const PLACES: &str = "srd-test-machine-";

/// Removes those of earlier runs.
fn sweep() {
    for entry in std::fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(PLACES)) else { continue };
        if !PathBuf::from("/proc").join(process).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A place that other users reach, with a copy of the command and something that looks like the libraries.
fn place() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = std::env::temp_dir().join(format!("{PLACES}{}", std::process::id()));
        sweep();
        let libraries = place.join("lib/srd/efa");
        std::fs::create_dir_all(&libraries).unwrap();
        std::fs::create_dir_all(place.join("bin")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_srd"), place.join("bin/srd")).unwrap();
        for library in ["libibverbs.so.1", "libefa.so.1"] {
            std::fs::write(libraries.join(library), "").unwrap();
        }
        for path in [&place, &place.join("bin"), &place.join("lib"), &place.join("lib/srd"), &libraries] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        place
    })
}

/// Who runs a test.
#[derive(Clone, Copy, PartialEq)]
enum User {
    This,
    Nobody,
}

/// A name of this test run's own.
fn name(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

fn srd_as(user: User, arguments: &[&str]) -> Command {
    let mut command = Command::new(place().join("bin/srd"));
    command.args(arguments).stdin(Stdio::null()).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("SRD_ADDR", "127.0.0.1").current_dir("/");
    if user == User::Nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn srd(arguments: &[&str]) -> Command {
    srd_as(User::This, arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a shell says in a machine.
fn in_machine(user: User, options: &[&str], script: &str) -> Output {
    let arguments = [&["run", "--efa", "--machine"], options, &["--", "sh", "-c", script]].concat();
    srd_as(user, &arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout)
}

/// Whether this user may have machines here. For root there is no excuse.
fn allowed(user: User) -> bool {
    let output = in_machine(user, &["c5n"], "true");
    if output.status.success() {
        return true;
    }
    let why = text(&output.stderr);
    assert!(why.contains("is permitted here") || why.contains("may be mounted"), "{why}");
    if user == User::This {
        skip(format!("no machines here: {why}"));
    } else {
        println!("users may have no machines here: {why}");
    }
    false
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Both, where the tests run as root.
fn users() -> Vec<User> {
    let all = if is_root() { vec![User::This, User::Nobody] } else { vec![User::This] };
    all.into_iter().filter(|&user| allowed(user)).collect()
}

/// A machine in which a program waits; ends when dropped.
struct Waiting(Child);

impl Waiting {
    fn start(user: User, kind: &str, name: &str) -> Waiting {
        let script = "echo up; exec sleep 600";
        let arguments = ["run", "--machine", kind, "--machine-name", name, "--", "sh", "-c", script];
        let mut child = srd_as(user, &arguments).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
        Waiting(child)
    }

    fn end(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.0.wait();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.end();
    }
}

fn running(user: User) -> Vec<String> {
    let output = srd_as(user, &["machine", "list", "--json"]).output().unwrap();
    let list: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let names = list["running"].as_array().unwrap().iter();
    names.map(|machine| machine["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_devices_are_where_the_kernel_would_have_them() {
    for user in users() {
        let there = in_machine(
            user,
            &["p5"],
            "ls /sys/class/infiniband | wc -l; realpath /sys/class/infiniband/rdmap79s0/../..; cat /sys/bus/pci/devices/0000:c9:00.0/device; \
             realpath /sys/class/infiniband_verbs/uverbs31/device/driver; cat /sys/class/dmi/id/product_name /sys/class/dmi/id/sys_vendor; \
             test -c /dev/infiniband/uverbs31 -a -r /dev/infiniband/uverbs31 -a -w /dev/infiniband/uverbs31 && echo node; \
             cat /sys/class/infiniband/rdmap201s0/ports/1/hw_counters/tx_bytes",
        );
        assert_eq!(
            said(&there).lines().collect::<Vec<_>>(),
            [
                "32",
                "/sys/devices/pci0000:4f/0000:4f:00.0",
                "0xefa1",
                "/sys/bus/pci/drivers/efa",
                "p5.48xlarge",
                "Amazon EC2",
                "node",
                "0"
            ]
        );
    }
}

#[test]
fn the_rest_of_sys_and_dev_is_as_it_was() {
    for user in users() {
        let list = "ls /sys/class /sys/bus /sys/devices /sys/devices/system /sys/devices/virtual /dev; \
                    for link in /sys/class/net/* /sys/bus/pci/devices/*; do readlink -f $link; done; \
                    cat /sys/class/net/lo/mtu /sys/devices/system/cpu/online; echo x >/dev/null; head -c 1 /dev/zero | wc -c";
        let outside = Command::new("sh").args(["-c", list]).output().unwrap();
        let inside = said(&in_machine(user, &["c5n"], list));
        let missing: Vec<String> = text(&outside.stdout)
            .lines()
            .filter(|line| !inside.lines().any(|inside| inside == *line))
            .map(str::to_owned)
            .collect();
        assert!(missing.is_empty(), "{missing:?}\n{}", inside);
        let leads = said(&in_machine(user, &["c5n"], "find /sys/class -maxdepth 2 -xtype l"));
        assert_eq!(leads, "", "links that lead nowhere");
    }
}

#[test]
fn a_program_begins_in_the_machines_own_directory() {
    for user in users() {
        let arguments = ["run", "--machine", "c5n", "--", "sh", "-c", "pwd; ls infiniband"];
        let said = said(&srd_as(user, &arguments).current_dir("/sys/class").output().unwrap());
        assert_eq!(said, "/sys/class\nrdmap0s6\n");
    }
}

#[test]
fn each_loopback_device_has_an_address_of_its_own() {
    for user in users() {
        let script = "cat /sys/class/infiniband/*/ports/1/gids/0 | sort -u | wc -l";
        assert_eq!(said(&in_machine(user, &["p4d", "--machine-addr", "loopback"], script)), "4\n");
        let script = "cat /sys/class/infiniband/rdmap16s27/ports/1/gids/0 /sys/class/infiniband/rdmap32s27/ports/1/gids/0";
        let dealt = said(&in_machine(user, &["p4d", "--machine-addr", "127.0.0.1,127.0.0.2"], script));
        assert!(dealt.contains("ffff:7f00:0001") && dealt.contains("ffff:7f00:0002"), "{dealt}");
    }
}

#[test]
fn the_exit_code_is_the_programs_and_signals_reach_it() {
    for user in users() {
        assert_eq!(in_machine(user, &["c5n"], "exit 7").status.code(), Some(7));
        let missing = srd_as(user, &["run", "--machine", "c5n", "--", "/no/such/program"]).output().unwrap();
        assert_eq!(missing.status.code(), Some(127), "{missing:?}");
        let script = "sleep 600 & trap \"kill $!; exit 5\" TERM; echo up; wait";
        let arguments = ["run", "--machine", "c5n", "--", "sh", "-c", script];
        let mut child = srd_as(user, &arguments).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(5));
    }
}

#[test]
fn machines_are_found_by_name_and_do_not_see_each_other() {
    for user in users() {
        let (first, second) = (name("first"), name("second"));
        let _first = Waiting::start(user, "p4d", &first);
        let mut two = Waiting::start(user, "c5n", &second);
        let all = running(user);
        assert!(all.contains(&first) && all.contains(&second), "{all:?}");

        let enter =
            |arguments: &[&str]| srd_as(user, &[&["machine", "enter"], arguments].concat()).output().unwrap();
        let devices = "ls /sys/class/infiniband; srd machine list --json | grep -c '\"pid\"'; true";
        let path = format!("{}:/usr/bin:/bin", place().join("bin").display());
        let inside =
            |name: &str| said(&enter(&[name, "--", "env", &format!("PATH={path}"), "sh", "-c", devices]));
        assert_eq!(inside(&first), "rdmap144s27\nrdmap160s27\nrdmap16s27\nrdmap32s27\n0\n");
        assert_eq!(inside(&second), "rdmap0s6\n0\n");

        let taken = srd_as(user, &["run", "--machine", "c5n", "--machine-name", &first, "--", "true"])
            .output()
            .unwrap();
        assert!(text(&taken.stderr).contains("runs already"), "{taken:?}");
        let unknown = enter(&["nobody-has-this", "--", "true"]);
        assert!(text(&unknown.stderr).contains(&first), "{unknown:?}");

        two.end();
        assert!(!running(user).contains(&second));
    }
}

/// A private directory of one user is not another's.
#[test]
fn users_do_not_see_each_others_machines() {
    let users = users();
    let [one, other] = users[..] else { return };
    let name = name("private");
    let _machine = Waiting::start(one, "c5n", &name);
    assert!(running(one).contains(&name) && !running(other).contains(&name));
    let enter = srd_as(other, &["machine", "enter", &name, "--", "true"]).output().unwrap();
    assert!(!enter.status.success(), "{enter:?}");
}

#[test]
fn nothing_is_left_when_srd_is_killed() {
    for user in users() {
        let name = name("killed");
        let script = "echo up; sleep 3; ls /sys/class/infiniband; exit";
        let arguments = ["run", "--machine", "c5n", "--machine-name", &name, "--", "sh", "-c", script];
        let mut child = srd_as(user, &arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut out, &mut [0; 3]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let enter = ["machine", "enter", &name, "--", "ls", "/sys/class/infiniband"];
        assert_eq!(said(&srd_as(user, &enter).output().unwrap()), "rdmap0s6\n", "the machine goes on");
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
        assert_eq!(rest, "rdmap0s6\n", "its program goes on in it");
        let until = Instant::now() + Duration::from_secs(20);
        while running(user).contains(&name) {
            assert!(Instant::now() < until, "it is still there");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.lines().any(|line| line.starts_with("opensrd ")), "{mounts}");
}

#[test]
fn a_machine_is_found_as_long_as_one_of_its_processes_lives() {
    for user in users() {
        let name = name("daemon");
        let options = ["c5n", "--machine-name", &name];
        let output = in_machine(user, &options, "sleep 5 >/dev/null 2>&1 </dev/null & exit 0");
        assert!(output.status.success(), "{output:?}");
        assert!(running(user).contains(&name), "its program has ended, another process has not");
        let enter = ["machine", "enter", &name, "--", "ls", "/sys/class/infiniband"];
        assert_eq!(said(&srd_as(user, &enter).output().unwrap()), "rdmap0s6\n");
        let until = Instant::now() + Duration::from_secs(20);
        while running(user).contains(&name) {
            assert!(Instant::now() < until, "it is still there");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A container's root without capabilities may have neither a mount nor a user namespace.
#[test]
fn root_without_capabilities_is_told_what_to_do_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let name = name("bare");
    let srd = place().join("bin/srd");
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-sys_admin,-setfcap", "--inh-caps", "-all"])
        .arg(&srd)
        .args(["run", "--machine", "c5n", "--machine-name", &name, "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("uid_map") && told.contains("--cap-add SYS_ADMIN"), "{told}");
    let left = srd_net::stats_directory::private().unwrap().join(format!("machine-{name}"));
    assert!(!left.exists(), "{}", left.display());
}

#[test]
fn what_cannot_be_is_said_by_name() {
    for user in users() {
        let nested = in_machine(
            user,
            &["c5n"],
            &format!("{} run --machine p5 -- true", place().join("bin/srd").display()),
        );
        assert!(text(&nested.stderr).contains("machines are not nested"), "{nested:?}");
        let opened = in_machine(user, &["c5n"], "exec 3<>/dev/infiniband/uverbs0; sleep 0.3");
        let told = text(&opened.stderr);
        assert!(told.contains("has opened /dev/infiniband/uverbs*") && told.contains("statically"), "{told}");
        let made = in_machine(user, &["c5n"], "touch /sys/class/infiniband/x || touch /sys/bus/pci/x");
        assert!(!made.status.success(), "nobody makes files in /sys: {made:?}");
        let written = in_machine(user, &["c5n"], "echo command >/dev/infiniband/uverbs0");
        assert!(!written.status.success(), "a command to the kernel goes nowhere: {written:?}");
    }
    let unknown = srd(&["run", "--machine", "p9", "--", "true"]).output().unwrap();
    assert!(
        unknown.status.code() == Some(2) && text(&unknown.stderr).contains("p5, p5en, p4d"),
        "{unknown:?}"
    );
    let profile =
        srd(&["run", "--machine", "p5", "--", "true"]).env("SRD_EFA_PROFILE", "gen1").output().unwrap();
    assert!(text(&profile.stderr).contains("unset SRD_EFA_PROFILE"), "{profile:?}");
    let empty = srd(&["run", "--machine", "c5n", "--machine-addr", "", "--", "true"]).output().unwrap();
    assert!(text(&empty.stderr).contains("--machine-addr: an address is empty"), "{empty:?}");
    let many =
        srd(&["run", "--machine", "c5n", "--machine-addr", "127.0.0.1,127.0.0.2", "--", "true"]).output();
    assert!(text(&many.unwrap().stderr).contains("2 addresses, and the machine has 1 device"));
    let nowhere =
        srd(&["run", "--machine", "p5", "--machine-addr", "192.0.2.77", "--", "true"]).output().unwrap();
    assert!(!nowhere.status.success() && text(&nowhere.stderr).contains("192.0.2.77"), "{nowhere:?}");
}

#[test]
fn metrics_tell_of_the_devices() {
    for user in users() {
        let script = format!("{} metrics", place().join("bin/srd").display());
        let told = said(&in_machine(user, &["p4d"], &script));
        assert!(told.contains("\nnode_amazonefa_info{device=\"rdmap16s27\",port=\"1\"} 1\n"), "{told}");
        assert!(
            told.contains("\nnode_amazonefa_rdma_read_bytes{device=\"rdmap160s27\",port=\"1\"} 0\n"),
            "{told}"
        );
    }
    let outside = srd(&["metrics"]).output().unwrap();
    assert!(!text(&outside.stdout).contains("amazonefa"), "{outside:?}");
}
