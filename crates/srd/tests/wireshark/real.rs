//! A capture of the datapath: `srd perf` between two network namespaces, with tcpdump on the link.

use crate::fields::expected;
use crate::pcap::Pcap;
use crate::tshark::{dissect, scratch};
use srd_wire::codec::{DecodeError, decode};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Two namespaces with a link between them; they go when this does.
struct Pair(String);

impl Pair {
    /// None where this may not be made: the test is skipped.
    fn new(test: &str) -> Option<Pair> {
        let pair = Pair(format!("srdws-{test}-{}", std::process::id()));
        let made = ip(&format!("netns add {}", pair.side(0)));
        if let Err(why) = made {
            crate::skip::skip(format_args!("needs to make network namespaces (root): {why}"));
            return None;
        }
        let (a, b) = (pair.side(0), pair.side(1));
        ip(&format!("netns add {b}")).unwrap();
        ip(&format!("link add e0 netns {a} mtu 1500 type veth peer name e0 netns {b} mtu 1500")).unwrap();
        for side in [0, 1] {
            let name = pair.side(side);
            ip(&format!("-n {name} address add 10.67.0.{}/24 dev e0", side + 1)).unwrap();
            ip(&format!("-n {name} link set lo up")).unwrap();
            ip(&format!("-n {name} link set e0 up")).unwrap();
        }
        Some(pair)
    }

    fn side(&self, side: usize) -> String {
        format!("{}-{side}", self.0)
    }

    /// A program in a namespace, without anybody's own settings.
    fn command(&self, side: usize, program: &str, arguments: &str, dir: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.side(side), program]).args(arguments.split_whitespace());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SRD_")) {
            command.env_remove(name);
        }
        command.env("PATH", path()).env("XDG_RUNTIME_DIR", dir);
        command
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = ip(&format!("netns delete {}", self.side(0)));
        let _ = ip(&format!("netns delete {}", self.side(1)));
    }
}

fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).env("PATH", path()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("ip: {error}")),
    }
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is on the link while two processes measure with these arguments.
fn captured(pair: &Pair, arguments: &str) -> Pcap {
    let dir = scratch("real");
    let file = dir.0.join("link.pcap");
    // Its own user may not write there.
    let tcpdump = format!("-i e0 -n -Z root -B 65536 -w {} udp", file.display());
    let mut dump =
        Running(pair.command(1, "tcpdump", &tcpdump, &dir.0).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(dump.0.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "tcpdump: {line}; scripts/setup.sh installs it");

    let srd = env!("CARGO_BIN_EXE_srd");
    let mut server = pair.command(0, srd, "perf server --port 18515", &dir.0);
    let mut server = Running(server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let client = format!("perf client 10.67.0.1 --port 18515 --seconds 0.5 {arguments}");
    let output = pair.command(1, srd, &client, &dir.0).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(dump.0.id() as i32), nix::sys::signal::Signal::SIGINT)
        .unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    dump.0.wait().unwrap();
    Pcap::read(&file)
}

#[test]
fn the_datapath_is_read_packet_by_packet() {
    let Some(pair) = Pair::new("packets") else { return };
    for side in [0, 1] {
        // The kernel cuts buffers into datagrams before the capture sees them.
        let arguments = "-K e0 tx-udp-segmentation off gso off gro off";
        let output = pair.command(side, "ethtool", arguments, Path::new("/tmp")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let capture = captured(&pair, "--test latency --size 20000");
    let frames = capture.frames();
    assert!(frames.len() > 100, "{}", frames.len());
    let mut data = 0;
    for (frame, seen) in frames.iter().zip(dissect(&capture)) {
        let Some(bytes) = frame.datagram() else { continue };
        seen.must_be_sound();
        assert_eq!(seen.refused, None, "{bytes:02x?}");
        let packet = decode(bytes).unwrap_or_else(|error: DecodeError| panic!("{error}: {bytes:02x?}"));
        assert_eq!(seen.fields, expected(&packet, bytes), "{bytes:02x?}");
        data += seen.number("srd.psn").is_some() as usize;
    }
    assert!(data > 50, "{data}");
}

#[test]
fn buffers_that_the_capture_sees_whole_are_taken_apart() {
    let Some(pair) = Pair::new("buffers") else { return };
    let capture = captured(&pair, "--test bandwidth --size 100000");
    let seen = dissect(&capture);
    let mut packets = 0;
    for seen in &seen {
        seen.must_be_sound();
        assert_eq!(seen.refused, None);
        packets += seen.fields.get("srd.src_tag").map_or(0, Vec::len);
    }
    assert!(packets > 2 * seen.len(), "{packets} packets in {} frames", seen.len());
}
