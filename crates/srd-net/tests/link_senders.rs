//! Receivers of one host, in two processes, tell their senders how many there are to all of them. The second process is this
//! program again ([`other_process`]).

mod namespace;
mod support;

use namespace::Namespaces;
use srd_proto::Event;
use srd_wire::{Gid, Qpn};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use support::{Host, PATIENCE};

const PART: &str = "SRD_NET_TEST_RECEIVER";
/// Of several packets each.
const LENGTH: usize = 8000;
/// Far more than is on its way at once.
const OUTSTANDING: u64 = 64;
/// What so many ACKs do not say is not so.
const SURE: u32 = 200;

/// Receives for ever.
struct Receiver(Host);

impl Receiver {
    fn open() -> Receiver {
        let host = Host::open("e0", &[]);
        (0..2 * OUTSTANDING).for_each(|i| host.recv(i, 0, LENGTH));
        Receiver(host)
    }

    fn receive(&self) {
        while let Some(got) = self.0.poll() {
            self.0.recv(got.wr_id, 0, LENGTH);
        }
    }
}

/// How many ACKs have come, and how many senders there are by the one that says most.
#[derive(Default, Debug)]
struct Heard {
    acks: AtomicU32,
    most: AtomicU32,
}

/// Sends for ever.
struct Sender {
    host: Host,
    to: (Gid, Qpn),
    outstanding: u64,
    heard: Arc<Heard>,
}

impl Sender {
    fn open(to: (Gid, Qpn)) -> Sender {
        let host = Host::open("e0", &[]);
        let heard = Arc::new(Heard::default());
        let hears = heard.clone();
        let tracer = move |_, _, event: &Event| {
            if let Event::AckReceived { senders, .. } = event {
                hears.most.fetch_max((*senders).into(), Ordering::Relaxed);
                hears.acks.fetch_add(1, Ordering::Relaxed);
            }
        };
        host.instance.with(|device, _| device.set_tracer(Some(Box::new(tracer)))).unwrap();
        Sender { host, to, outstanding: 0, heard }
    }

    fn send(&mut self) {
        while self.host.poll().is_some() {
            self.outstanding -= 1;
        }
        while self.outstanding < OUTSTANDING {
            self.host.send(0, self.to, 0, LENGTH);
            self.outstanding += 1;
        }
    }
}

/// A process that receives. Killed when dropped.
struct Other(Child);

impl Other {
    /// Starts it in the network namespace of the calling thread. Returns where it receives, too.
    fn start() -> (Other, (Gid, Qpn)) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["other_process", "--exact", "--nocapture"]).env(PART, "").stdout(Stdio::piped());
        let mut other = Other(command.spawn().unwrap());
        let lines = BufReader::new(other.0.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("receives at ")?;
            let (ip, qpn) = address.split_once(' ').unwrap();
            Some((Gid::from(ip.parse::<std::net::IpAddr>().unwrap()), Qpn(qpn.parse().unwrap())))
        });
        (other, said.expect("it says where it receives"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: the part that the second process plays.
#[test]
fn other_process() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    let receiver = Receiver::open();
    let (gid, qpn) = receiver.0.address();
    println!("receives at {} {}", gid.ip(), qpn.0);
    loop {
        receiver.receive();
    }
}

/// Moves packets until every sender hears that there are so many, and not more any longer.
fn until_all_hear(count: u32, senders: &mut [Sender], receivers: &[Receiver]) {
    let start = Instant::now();
    loop {
        for Heard { acks, most } in senders.iter().map(|sender| &*sender.heard) {
            acks.store(0, Ordering::Relaxed);
            most.store(0, Ordering::Relaxed);
        }
        while senders.iter().any(|sender| sender.heard.acks.load(Ordering::Relaxed) < SURE) {
            senders.iter_mut().for_each(Sender::send);
            receivers.iter().for_each(Receiver::receive);
            assert!(start.elapsed() < PATIENCE, "no ACKs");
        }
        let heard: Vec<u32> = senders.iter().map(|it| it.heard.most.load(Ordering::Relaxed)).collect();
        if heard.iter().all(|&most| most == count) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{count} wanted: {heard:?}");
    }
}

#[test]
fn receivers_of_a_host_add_up_their_senders_until_one_is_killed() {
    let Some(pair) = Namespaces::new("senders", 1500) else { return };
    // So slow that senders always have more.
    pair.tc_in(1, "qdisc add dev e0 root tbf rate 200mbit burst 10kb limit 100kb");
    // Two in this process, as with SRD_ENGINES, and one in another.
    let receivers = pair.run(0, || [Receiver::open(), Receiver::open()]);
    let (other, elsewhere) = pair.run(0, Other::start);
    let to = [receivers[0].0.address(), receivers[1].0.address(), elsewhere];
    let mut senders = pair.run(1, || to.map(Sender::open));
    until_all_hear(3, &mut senders, &receivers);
    drop(other);
    until_all_hear(2, &mut senders[..2], &receivers);
}
