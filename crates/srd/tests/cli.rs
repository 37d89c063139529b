//! The command as programs and people use it: what it prints, with which code it ends.

#[path = "../../srd-net/tests/support/skip.rs"]
mod skip;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn srd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let prefixes = ["SRD_", "FI_", "OMPI_MCA_", "MPIR_", "I_MPI_"];
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "LD_LIBRARY_PATH" {
            command.env_remove(name);
        }
    }
    command.env("SRD_ADDR", "127.0.0.1").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A directory that looks as if it held the software EFA.
fn library_directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    for library in ["libibverbs.so.1", "libefa.so.1"] {
        std::fs::write(directory.join(library), "").unwrap();
    }
    directory
}

/// A directory that looks like an installed `lib/srd`, with the provider under both names.
fn provider_directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    for library in ["fi/libsrd-fi.so", "fi-efa/libefa-fi.so"] {
        let file = directory.join(library);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "").unwrap();
    }
    directory
}

/// A server on a port of its own; killed when dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Server {
        Server::spawn(srd(arguments))
    }

    fn spawn(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { child, port: line.rsplit(' ').next().unwrap().trim().to_owned() }
    }

    fn perf() -> Server {
        Server::start(&["perf", "server", "--port", "0"])
    }

    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = srd(&["perf", "client", "127.0.0.1", "--port", &self.port]);
        command.args(arguments);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [
        &["info"][..],
        &["doctor"],
        &["env"],
        &["run"],
        &["top"],
        &["perf", "server"],
        &["perf", "client"],
        &["perf"],
    ] {
        let output = srd(command).arg("--help").output().unwrap();
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Examples:"), "{command:?}");
    }
}

#[test]
fn a_senseless_command_line_ends_with_2() {
    for arguments in [
        &["fly"][..],
        &["env", "--efa", "--provider"],
        &["env", "--as-efa"],
        &["run", "--provider", "--preload", "--", "true"],
        &["run"],
        &["top", "--interval", "0"],
        &["top", "--program", "name", "1"],
        &["perf", "client"],
        &["doctor", "h", "--port", "0"],
        &["perf", "client", "h", "--port", "0"],
        &["perf", "client", "h", "--size", "0"],
        &["perf", "client", "h", "--seconds", "soon"],
        &["perf", "client", "h", "--test", "latency", "--window", "7"],
        &["perf", "client", "h", "--blocking", "--peers", "2"],
    ] {
        assert_eq!(srd(arguments).output().unwrap().status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_missing_provider_is_said_to_be_missing() {
    let efa = library_directory("efa alone");
    for (arguments, library) in [
        (&["env", "--provider"][..], "libsrd-fi.so"),
        (&["run", "--provider", "--", "true"], "libsrd-fi.so"),
        (&["run", "--provider", "--as-efa", "--", "true"], "libefa-fi.so"),
    ] {
        let output = srd(arguments).env("SRD_LIB_DIR", &efa).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = text(&output.stderr);
        assert!(message.contains(&format!("{library} not found in {}", efa.display())), "{message}");
        let message = text(&srd(arguments).output().unwrap().stderr);
        assert!(message.contains(library) && message.contains("make build"), "{message}");
    }
}

#[test]
fn libfabric_and_every_mpi_are_led_to_the_provider() {
    let directory = provider_directory("provider");
    let env = |lib_dir: PathBuf| {
        json(&srd(&["env", "--provider", "--json"]).env("SRD_LIB_DIR", lib_dir).output().unwrap())
    };
    let variables = env(directory.clone());
    assert_eq!(variables["FI_PROVIDER_PATH"], directory.join("fi").to_str().unwrap());
    for (name, value) in [
        ("FI_PROVIDER", "srd"),
        ("OMPI_MCA_pml", "cm"),
        ("OMPI_MCA_mtl_ofi_provider_include", "srd"),
        ("MPIR_CVAR_CH4_NETMOD", "ofi"),
        ("I_MPI_OFI_PROVIDER", "srd"),
    ] {
        assert_eq!(variables[name], value, "{name}");
    }
    assert!(variables.get("LD_LIBRARY_PATH").is_none());
    assert_eq!(env(directory.join("fi")), variables, "the directory of the library itself");
}

#[test]
fn what_would_use_another_provider_is_replaced_and_named() {
    let directory = provider_directory("replaced");
    let output =
        srd(&["run", "--provider", "--", "sh", "-c", "echo $FI_PROVIDER $OMPI_MCA_pml $I_MPI_FABRICS"])
            .env("SRD_LIB_DIR", &directory)
            .env("FI_PROVIDER", "tcp")
            .env("OMPI_MCA_pml", "ob1")
            .env("I_MPI_FABRICS", "ofi")
            .output()
            .unwrap();
    assert_eq!(text(&output.stdout).trim(), "srd cm ofi");
    let said = text(&output.stderr);
    assert!(said.contains("FI_PROVIDER=tcp") && said.contains("OMPI_MCA_pml=ob1"), "{said}");
    assert!(!said.contains("I_MPI_FABRICS"), "{said}");
}

#[test]
fn the_provider_named_efa_goes_before_libfabrics_own() {
    let directory = provider_directory("as-efa");
    let arguments = ["env", "--provider", "--as-efa", "--json"];
    let variables = json(&srd(&arguments).env("SRD_LIB_DIR", &directory).output().unwrap());
    let own = directory.join("fi-efa");
    let expected = format!("+{}:{}", own.join("libefa-fi.so").display(), own.display());
    assert_eq!(variables["FI_PROVIDER_PATH"], expected);
    assert_eq!(variables["FI_PROVIDER"], "efa");
    assert_eq!(variables.as_object().unwrap().len(), 2);
}

#[test]
fn a_shell_that_evaluates_env_gets_the_variables() {
    let directory = library_directory("it's here");
    let script = format!(
        "eval \"$('{}' env --shell sh)\"; echo \"$LD_LIBRARY_PATH|$FI_PROVIDER|$FI_EFA_ENABLE_SHM_TRANSFER\"",
        env!("CARGO_BIN_EXE_srd")
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .env("SRD_LIB_DIR", &directory)
        .env("LD_LIBRARY_PATH", "/opt/mpi/lib")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout).trim(), format!("{}:/opt/mpi/lib|efa|0", directory.display()));
}

#[test]
fn the_list_names_every_variable() {
    let output = srd(&["env", "--list", "--json"]).output().unwrap();
    let list = json(&output);
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"SRD_PATHS") && names.contains(&"SRD_LIB_DIR"), "{names:?}");
    let plain = text(&srd(&["env", "--list"]).output().unwrap().stdout);
    assert!(names.iter().all(|name| plain.contains(name)));
    let allowed = list.as_array().unwrap().iter().map(|variable| variable["allowed"].as_str().unwrap());
    for values in allowed {
        assert!(plain.contains(&format!("    allowed: {values}\n")), "{values}");
    }
}

#[test]
fn a_full_standard_output_is_named() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = srd(&["info"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("standard output: No space left"), "{output:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let script = format!(
        "'{}' env --list | true; '{}' env --list | head -n 1",
        env!("CARGO_BIN_EXE_srd"),
        env!("CARGO_BIN_EXE_srd")
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn run_becomes_the_program() {
    let directory = library_directory("run");
    let output = srd(&[
        "run",
        "--efa",
        "--",
        "sh",
        "-c",
        "echo $FI_PROVIDER $LD_LIBRARY_PATH \"$1\"; exit 7",
        "sh",
        "a  b",
    ])
    .env("SRD_LIB_DIR", &directory)
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout).trim(), format!("efa {} a  b", directory.display()));
}

#[test]
fn run_says_where_it_looked_for_missing_libraries() {
    let output = srd(&["run", "--", "true"]).env("SRD_LIB_DIR", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere"), "{output:?}");
    let output = srd(&["run", "--", "true"]).output().unwrap();
    assert!(text(&output.stderr).contains("make build"), "{output:?}");
}

#[test]
fn run_reports_a_missing_program_as_shells_do() {
    let directory = library_directory("missing");
    let code =
        |program: &str| srd(&["run", program]).env("SRD_LIB_DIR", &directory).output().unwrap().status.code();
    assert_eq!(code("no-such-program-anywhere"), Some(127));
    assert_eq!(code("/"), Some(126));
}

#[test]
fn info_tells_what_a_program_would_get() {
    let info = json(&srd(&["info", "--json"]).output().unwrap());
    assert_eq!(info["transport"]["address"], "127.0.0.1");
    assert_eq!(info["transport"]["interface"], "lo");
    assert!(info["transport"]["port"].as_u64().unwrap() >= 17408);
    assert_eq!(info["transport"]["paths"], 64);
    assert!(info["provider"]["directory"].as_str().unwrap().ends_with("lib/srd/fi"), "{info}");
    assert!(info["interfaces"].as_array().unwrap().iter().any(|interface| interface["name"] == "lo"));
    assert!(srd(&["info"]).output().unwrap().status.success());
}

#[test]
fn an_impossible_option_is_named() {
    let output = srd(&["info"]).env("SRD_PATHS", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("SRD_PATHS"), "{output:?}");
    let doctor = json(&srd(&["doctor", "--json"]).env("SRD_PATHS", "0").output().unwrap());
    let finding = &doctor["findings"][0];
    assert_eq!((&finding["level"], &finding["mend"]), (&"fail".into(), &"unset SRD_PATHS".into()));
}

#[test]
fn the_doctor_says_nothing_good_of_a_wire_that_was_refused() {
    let diagnosis = json(&srd(&["doctor", "--json"]).env("SRD_WIRE", "bad").output().unwrap());
    let findings = diagnosis["findings"].as_array().unwrap();
    let level = |check: &str| findings.iter().find(|f| f["check"] == check).map(|f| f["level"].clone());
    assert_eq!((level("options"), level("wire")), (Some("fail".into()), Some("skip".into())), "{diagnosis}");
}

#[test]
fn the_doctor_finds_and_its_code_says_whether_anything_failed() {
    let output = srd(&["doctor", "--json"]).output().unwrap();
    let diagnosis = json(&output);
    let findings = diagnosis["findings"].as_array().unwrap();
    let failed = findings.iter().any(|finding| finding["level"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)));
    for check in [
        "address",
        "receive buffer",
        "open files",
        "memlock",
        "UDP offload",
        "firewall",
        "bypass",
        "provider",
        "lanes",
    ] {
        assert!(findings.iter().any(|finding| finding["check"] == check), "{check} missing: {findings:?}");
    }
    // What is wrong comes with its remedy.
    for finding in findings.iter().filter(|finding| finding["level"] == "warn" || finding["level"] == "fail")
    {
        assert!(finding["mend"].is_string(), "{finding}");
    }
}

/// The doctor's finding on packet filters where `nft` is a script.
fn firewall_by_nft(name: &str, script: &str) -> serde_json::Value {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let nft = directory.join("nft");
    std::fs::write(&nft, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&nft, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let diagnosis = json(&srd(&["doctor", "--json"]).env("PATH", path).output().unwrap());
    let findings = diagnosis["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == "firewall").cloned().unwrap_or_default()
}

#[test]
fn the_doctor_finds_the_rule_that_drops_srds_ports() {
    let rules = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy accept;\n\
                 \t\tudp dport 17408-17919 drop\n\t}\n}";
    let found = firewall_by_nft("nft drops", &format!("cat <<END\n{rules}\nEND"));
    assert_eq!(found["level"], "warn", "{found}");
    assert!(found["what"].as_str().unwrap().contains("`udp dport 17408-17919 drop`"), "{found}");
    assert_eq!(found["mend"], "nft insert rule inet filter input udp dport 17408-17919 accept");
}

#[test]
fn the_doctor_does_not_praise_rules_that_it_could_not_read() {
    let found =
        firewall_by_nft("nft forbids", "echo 'Operation not permitted (you must be root)' >&2; exit 1");
    assert_eq!(found["level"], "skip", "{found}");
    assert!(found["what"].as_str().unwrap().contains("only root"), "{found}");
}

#[test]
fn the_doctor_warns_of_a_way_around() {
    let output = srd(&["doctor", "--json"]).env("FI_EFA_ENABLE_SHM_TRANSFER", "1").output().unwrap();
    let diagnosis = json(&output);
    let bypass = diagnosis["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["check"] == "bypass")
        .unwrap();
    assert_eq!(bypass["level"], "warn");
    assert!(bypass["mend"].as_str().unwrap().contains("FI_EFA_ENABLE_SHM_TRANSFER=0"));
}

/// The doctor's finding on short packets in a network of its own, where nobody has CAP_NET_ADMIN, nor these capabilities.
fn wire_without(capabilities: &str, wire: Option<&str>) -> serde_json::Value {
    let script = "ip link add e0 type veth peer name e1 && ip addr add 10.9.9.1/24 dev e0 && ip link set e0 up && \
                  exec setpriv --bounding-set=\"$1\" --inh-caps=\"$1\" \"$0\" doctor --json";
    let command = srd(&[]);
    let srd = command.get_program().to_owned();
    let mut unshare = Command::new("unshare");
    unshare.args(["-n", "sh", "-c", script]).arg(srd).arg(format!("-net_admin{capabilities}"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    unshare.env("SRD_ADDR", "10.9.9.1").envs(wire.map(|wire| ("SRD_WIRE", wire)));
    let diagnosis = json(&unshare.output().unwrap());
    let findings = diagnosis["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == "wire").cloned().unwrap_or_default()
}

#[test]
fn the_doctor_advises_no_wire_that_cannot_be_had_and_says_how_to_get_one() {
    if !nix::unistd::geteuid().is_root() {
        return skip::skip("only root makes networks");
    }
    let found = wire_without(",-net_raw", None);
    let (what, mend) = (found["what"].as_str().unwrap(), found["mend"].as_str().unwrap_or_default());
    assert_eq!(found["level"], "ok", "{found}");
    assert!(what.contains("need CAP_NET_RAW") && !what.contains("SRD_WIRE="), "{found}");
    for how in ["--ambient-caps=+net_raw env SRD_WIRE=packet", "--cap-add=NET_RAW", "setcap cap_net_raw+ep"] {
        assert!(mend.contains(how), "{found}");
    }
    let found = wire_without(",-net_raw", Some("packet"));
    let mend = found["mend"].as_str().unwrap();
    assert_eq!(found["level"], "warn", "{found}");
    assert!(mend.contains("--cap-add=NET_RAW") && mend.contains("unset SRD_WIRE"), "{found}");
    // This one can be had.
    let found = wire_without("", None);
    assert!(found["what"].as_str().unwrap().contains("SRD_WIRE=packet does so"), "{found}");
}

#[test]
fn the_doctor_knows_the_provider() {
    let directory = provider_directory("doctor");
    let finding = |command: &mut Command, check: &str| {
        let diagnosis = json(&command.env("SRD_LIB_DIR", &directory).output().unwrap());
        let findings = diagnosis["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).cloned().unwrap_or_default()
    };
    // An empty file is no provider; without libfabric's tools nobody knows.
    let provider = finding(&mut srd(&["doctor", "--json"]), "provider");
    assert!(provider["level"] == "warn" || provider["level"] == "skip", "{provider}");
    let lost = finding(srd(&["doctor", "--json"]).env("FI_PROVIDER", "srd"), "provider path");
    assert_eq!(lost["level"], "warn");
    assert!(lost["mend"].as_str().unwrap().contains(directory.join("fi").to_str().unwrap()), "{lost}");
    let path = directory.join("fi");
    let led = [("FI_PROVIDER_PATH", path.to_str().unwrap()), ("FI_PROVIDER", "srd")];
    let bypass = finding(srd(&["doctor", "--json"]).envs(led), "bypass");
    assert_eq!(bypass["level"], "ok", "{bypass}");
    let bypass = finding(srd(&["doctor", "--json"]).envs(led).env("OMPI_MCA_pml", "ob1"), "bypass");
    assert!(bypass["what"].as_str().unwrap().contains("OMPI_MCA_pml=ob1"), "{bypass}");
    let lanes = finding(srd(&["doctor", "--json"]).env("SRD_SHM", "off"), "lanes");
    assert!(lanes["what"].as_str().unwrap().contains("SRD_SHM=off"), "{lanes}");
}

#[test]
fn the_doctor_looks_at_the_way_to_another_host() {
    let server = Server::start(&["doctor", "--serve", "--port", "0"]);
    // Ports of its own, as other tests use those of the default range.
    let mut doctor = srd(&["doctor", "127.0.0.1", "--json", "--port", &server.port]);
    let diagnosis = json(&doctor.env("SRD_PORT_BASE", "15000").output().unwrap());
    let level = |check: &str| {
        let findings = diagnosis["findings"].as_array().unwrap();
        findings.iter().find(|finding| finding["check"] == check).map(|finding| finding["level"].clone())
    };
    assert_eq!(level("remote ports"), Some("ok".into()), "{diagnosis}");
    assert_eq!(level("path MTU"), Some("ok".into()), "{diagnosis}");
    assert_eq!(level("hops"), Some("skip".into()), "{diagnosis}");
    assert!(level("paths").is_some(), "{diagnosis}");
}

#[test]
fn the_doctor_says_what_it_could_not_check() {
    let server = Server::start(&["doctor", "--serve", "--port", "0"]);
    let port = server.port.clone();
    drop(server);
    let diagnosis = json(&srd(&["doctor", "127.0.0.1", "--json", "--port", &port]).output().unwrap());
    let findings = diagnosis["findings"].as_array().unwrap();
    let probes = findings.iter().find(|finding| finding["check"] == "probes").unwrap();
    assert_eq!(probes["level"], "skip");
    assert!(probes["mend"].as_str().unwrap().contains("srd doctor --serve"));
}

#[test]
fn the_doctor_finds_srd_programs_and_asks_them() {
    let free = Server::start(&["doctor", "--serve", "--port", "0"]).port.clone();
    for key in [None, Some("key")] {
        let mut child = srd(&["perf", "server", "--port", "0"]);
        let mut doctor = srd(&["doctor", "127.0.0.1", "--json", "--port", &free]);
        for command in [&mut child, &mut doctor] {
            command.env("SRD_PORT_BASE", "14000");
            if let Some(name) = key {
                let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor.{name}"));
                std::fs::write(&file, "0123456789abcdef".repeat(4)).unwrap();
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
                command.env("SRD_KEY_FILE", file);
            }
        }
        let server = Server::spawn(child);
        let mut client = server.client(&["--seconds", "600"]);
        client.envs(doctor.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut client = client.stdout(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let diagnosis = json(&doctor.output().unwrap());
            let findings = diagnosis["findings"].as_array().unwrap();
            let level =
                |check: &str| findings.iter().find(|f| f["check"] == check).map(|f| f["level"].clone());
            if let Some(programs) = level("programs") {
                assert_eq!(programs, "ok", "{diagnosis}");
                assert_eq!(level("path MTU"), Some("ok".into()), "{diagnosis}");
                assert_eq!(level("probes"), Some("skip".into()), "{diagnosis}");
                break;
            }
            assert!(Instant::now() < deadline, "{diagnosis}");
        }
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

#[test]
fn every_test_and_operation_brings_its_content() {
    let server = Server::perf();
    for test in ["latency", "bandwidth", "msgrate"] {
        for op in ["send", "write", "read"] {
            for waiting in ["--polling", "--blocking"] {
                let arguments = ["--test", test, "--op", op, waiting, "--check", "--iters", "300", "--json"];
                let output = server.client(&arguments).output().unwrap();
                assert!(output.status.success(), "{arguments:?}: {output:?}");
                let measured = json(&output);
                assert_eq!((&measured["test"], &measured["transport"]), (&test.into(), &"srd".into()));
                assert!(measured["msgs_per_s"].as_f64().unwrap() > 0.0);
                assert_eq!(measured["half_rtt_us"].is_object(), test == "latency");
            }
        }
    }
}

#[test]
fn messages_of_several_packets_to_several_peers_arrive() {
    let server = Server::perf();
    for op in ["send", "write", "read"] {
        let size = if op == "send" { "8000" } else { "100001" };
        let arguments =
            ["--test", "bandwidth", "--op", op, "--peers", "5", "--size", size, "--check", "--iters", "500"];
        let output = server.client(&arguments).env("SRD_MTU", "1500").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn content_survives_loss_duplication_and_reordering() {
    let server = Server::perf();
    for test in ["latency", "msgrate"] {
        let arguments = ["--test", test, "--size", "3000", "--check", "--iters", "2000", "--json"];
        let output = server
            .client(&arguments)
            .env("SRD_MTU", "1500")
            .env("SRD_FAULT", "loss=0.02,dup=0.02,reorder=0.05,seed=1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{test}: {output:?}");
        assert!(json(&output)["retransmissions"].as_u64().unwrap() > 0, "{test}");
    }
}

#[test]
fn tcp_runs_beside_and_the_ratio_is_theirs() {
    let server = Server::perf();
    let output = server
        .client(&["--test", "msgrate", "--vs-tcp", "--iters", "2000", "--rounds", "1", "--json"])
        .output()
        .unwrap();
    let outcome = json(&output);
    let rate = |of: &serde_json::Value| of["msgs_per_s"].as_f64().unwrap();
    assert_eq!(outcome["tcp"]["transport"], "tcp");
    let expected = rate(&outcome) / rate(&outcome["tcp"]);
    assert!((rate(&outcome["ratio"]) / expected - 1.0).abs() < 1e-9, "{outcome}");
}

#[test]
fn a_message_too_long_to_send_is_refused_with_a_reason() {
    let server = Server::perf();
    let output = server.client(&["--op", "send", "--size", "1000000", "--iters", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--op write"), "{output:?}");
}

#[test]
fn without_a_server_the_client_says_what_to_start() {
    let server = Server::perf();
    let client = server.client(&[]);
    drop(server);
    let output = { client }.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("srd perf server"), "{output:?}");
}

#[test]
fn another_version_is_refused_by_name() {
    let server = Server::perf();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap();
    stream.write_all(b"{\"protocol\":99,\"version\":\"7.7\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    assert!(
        answer.contains("7.7") && answer.contains("99") && answer.contains("use the same srd"),
        "{answer}"
    );
}

#[test]
fn a_server_that_gives_up_before_the_beginning_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let client =
        srd(&["perf", "client", "127.0.0.1", "--port", &port]).stderr(Stdio::piped()).spawn().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.write_all(b"{\"failed\":{\"reason\":\"the client has not answered for 10 s\"}}\n").unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("srd: 127.0.0.1:{port}: the client has not answered for 10 s\n");
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn addresses_of_two_families_are_refused_at_once() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return skip::skip("no IPv6 on this host");
    }
    let server = Server::perf();
    let output = server.client(&["--iters", "1"]).env("SRD_ADDR", "::1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("127.0.0.1 and ::1 cannot reach each other"), "{message}");
    assert!(message.contains("SRD_ADDR"), "{message}");
}

#[test]
fn the_server_names_a_client_that_dies_once() {
    let mut command = srd(&["perf", "server", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Server { child, port: line.rsplit(' ').next().unwrap().trim().to_owned() };
    drop(TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap());
    line.clear();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("127.0.0.1: the client has closed the connection"), "{line}");
    assert_eq!(line.matches("127.0.0.1").count(), 1, "{line}");
}

/// A client that wants messages of such a size with so many outstanding, and what it is answered.
fn answer_to_plan(port: &str, op: &str, size: u32, window: u32) -> (TcpStream, String) {
    let hello = serde_json::json!({
        "protocol": 1,
        "version": "test",
        "plan": {
            "test": "latency", "op": op, "size": size, "window": window, "blocking": false, "check": true, "peers": 1,
            "timeout_ms": 10_000,
        },
        "endpoint": { "address": "127.0.0.1", "port": 17408, "qpn": 2, "qkey": 1, "rkey": 1, "memory": 0 },
    });
    let mut client = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    writeln!(client, "{hello}").unwrap();
    let mut answer = String::new();
    BufReader::new(&client).read_line(&mut answer).unwrap();
    (client, answer)
}

/// A client that the server has accepted, and that says nothing more.
fn accepted_client(port: &str) -> TcpStream {
    let (client, answer) = answer_to_plan(port, "send", 8, 1);
    assert!(answer.contains("accepted"), "{answer}");
    client
}

#[test]
fn long_messages_take_memory_for_as_many_as_are_outstanding() {
    let server = Server::perf();
    for op in ["write", "read"] {
        let command = format!(
            "ulimit -v 2500000; exec '{}' perf client 127.0.0.1 --port {} --size {} --op {op} --check --iters 1",
            env!("CARGO_BIN_EXE_srd"),
            server.port,
            64 << 20,
        );
        let output = Command::new("sh").args(["-c", &command]).env("SRD_ADDR", "127.0.0.1").output().unwrap();
        assert!(output.status.success(), "{op}: {output:?}");
    }
}

#[test]
fn messages_for_which_there_is_no_memory_are_refused_and_the_server_goes_on() {
    let server = Server::perf();
    let arguments =
        ["--test", "bandwidth", "--op", "write", "--size", "1073741824", "--window", "16384", "--check"];
    let output = server.client(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("are available: reduce --size or --window"), "{output:?}");

    let answer = answer_to_plan(&server.port, "write", 1 << 30, 16384).1;
    assert!(answer.contains("refused") && answer.contains("reduce --size or --window"), "{answer}");
    assert!(server.client(&["--iters", "1"]).output().unwrap().status.success());
}

#[test]
fn a_server_for_one_client_ends_with_it_whatever_becomes_of_it() {
    let mut command = srd(&["perf", "server", "--port", "0", "--once"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut server = Server { child, port: line.rsplit(' ').next().unwrap().trim().to_owned() };
    // Somebody who says nothing is no client.
    drop(TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap());
    drop(accepted_client(&server.port));
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
}

#[test]
fn where_only_polls_move_packets_a_measurement_comes_to_its_end() {
    let mut command = srd(&["perf", "server", "--port", "0"]);
    command.env("SRD_PROGRESS", "inline");
    let server = Server::spawn(command);
    for test in ["latency", "bandwidth"] {
        let mut client = server.client(&["--test", test, "--iters", "100", "--rounds", "2"]);
        let output = client.env("SRD_PROGRESS", "inline").output().unwrap();
        assert!(output.status.success(), "{test}: {}", text(&output.stderr));
    }
}

#[test]
fn a_second_client_is_told_to_wait() {
    let server = Server::perf();
    let _first = accepted_client(&server.port);
    let second = server.client(&["--iters", "1"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another client"), "{second:?}");
}

#[test]
fn a_server_that_dies_ends_its_client() {
    for carrier in [&[][..], &["--blocking"]] {
        let server = Server::perf();
        let mut client = server
            .client(&["--seconds", "600"])
            .args(carrier)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(client.try_wait().unwrap(), None);
        drop(server);
        let status = client.wait().unwrap();
        let mut message = String::new();
        client.stderr.take().unwrap().read_to_string(&mut message).unwrap();
        assert_eq!(status.code(), Some(1), "{message}");
        assert!(message.contains("has died"), "{message}");
    }
}

#[test]
fn a_client_that_dies_leaves_the_server_to_the_next() {
    let server = Server::perf();
    let mut first =
        server.client(&["--seconds", "600"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    first.kill().unwrap();
    first.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.client(&["--iters", "10"]).output().unwrap().status.success() {
        assert!(Instant::now() < deadline, "the server does not recover");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn perf_refuses_faults_of_work_requests() {
    let server = Server::perf();
    let output = server.client(&["--iters", "10"]).env("SRD_FAULT", "fail=13@7").output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("are faults of work requests"), "{output:?}");
}

#[test]
fn a_path_that_carries_nothing_ends_the_client_in_time() {
    let server = Server::perf();
    let output =
        server.client(&["--iters", "10", "--timeout", "1"]).env("SRD_FAULT", "loss=1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing has moved"), "{output:?}");
}

/// A job that was killed as a whole has nobody left who would do it.
#[test]
fn shared_memory_that_dead_processes_have_left_goes_when_srd_looks_or_starts_something() {
    let fabric = provider_directory("swept");
    let user = nix::unistd::geteuid();
    let left = PathBuf::from("/dev/shm").join(format!("opensrd-{user}-left-{}", std::process::id()));
    let mut run = srd(&["run", "--provider", "--", "true"]);
    run.env("SRD_LIB_DIR", &fabric);
    for mut command in [srd(&["top", "--once"]), srd(&["metrics"]), run] {
        std::fs::write(&left, [7; 100]).unwrap();
        let output = command.output().unwrap();
        assert!(!left.exists(), "{output:?}");
    }
}
