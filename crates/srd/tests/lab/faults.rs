//! Every fault does what it says, counts what it has met, and ends.

use crate::{Fabric, PATIENCE, PORT, SILENCE, crossing, eventually, exchange, receive, send};
use srd_lab::Fault;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const COUNT: u32 = 100;

fn numbers(packets: &[(u32, Vec<u8>)]) -> Vec<u32> {
    packets.iter().map(|(number, _)| *number).collect()
}

fn in_order(count: u32) -> Vec<u32> {
    (0..count).collect()
}

#[test]
fn a_blackhole_swallows_everything_without_a_word_until_it_is_healed() {
    let Some(fabric) = Fabric::small() else { return };
    for at in ["spine*", "host2", "leaf0-*", "*>host2"] {
        let fault = fabric.0.fault(Fault::Blackhole { at: at.into() }).unwrap();
        let (from, to) = (fabric.socket(0, 0), fabric.socket(2, PORT));
        // A socket that is connected would be told of an ICMP error.
        from.connect(fabric.address(2)).unwrap();
        for _ in 0..COUNT {
            from.send(&[0; 100]).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        assert_eq!(receive(&to, SILENCE).len(), 0, "{at}");
        assert_eq!(fabric.met(), u64::from(COUNT), "{at}");
        drop(to);
        fabric.0.heal(fault).unwrap();
        assert_eq!(crossing(&fabric, COUNT).len(), COUNT as usize, "{at}");
    }
}

#[test]
fn a_one_way_blackhole_lets_the_other_way_pass() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Blackhole { at: "leaf1>host2".into() }).unwrap();
    let (host0, host2) = (fabric.socket(0, PORT), fabric.socket(2, PORT));
    send(&host0, fabric.address(2), COUNT, 100);
    send(&host2, fabric.address(0), COUNT, 100);
    assert_eq!(receive(&host2, SILENCE).len(), 0);
    assert_eq!(receive(&host0, SILENCE).len(), COUNT as usize);
}

#[test]
fn of_a_link_that_goes_down_the_lower_router_takes_other_links_and_comes_back() {
    let Some(fabric) = Fabric::small() else { return };
    let across = || {
        let to = fabric.socket(2, PORT);
        let sent = (5000..5032).map(|port| send(&fabric.socket(0, port), fabric.address(2), 1, 100)).count();
        (sent, receive(&to, SILENCE).len())
    };
    let has_route = |spine: &str| {
        let mut ip = fabric.0.command_in("leaf0", "ip").unwrap();
        let routes =
            String::from_utf8(ip.args(["route", "show", "default"]).output().unwrap().stdout).unwrap();
        !routes.lines().any(|line| line.contains(spine) && line.contains("linkdown"))
    };
    let first = fabric.0.fault(Fault::Down { at: "leaf0-spine0".into() }).unwrap();
    let second = fabric.0.fault(Fault::Down { at: "spine0".into() }).unwrap();
    eventually("leaf0 notices", || !has_route("spine0"));
    let before = fabric.packets("leaf0>spine0");
    assert_eq!(across(), (32, 32));
    assert_eq!(fabric.packets("leaf0>spine0"), before);
    fabric.0.heal(second).unwrap();
    assert!(!has_route("spine0"), "the other fault holds it down");
    fabric.0.heal(first).unwrap();
    eventually("leaf0 notices", || has_route("spine0"));
    assert_eq!(across(), (32, 32));
    assert!(fabric.packets("leaf0>spine0") > before);
    assert!(fabric.packets("spine0>leaf1") > 0, "the spine has its routes again");
}

#[test]
fn a_host_whose_link_is_down_is_out_of_reach_and_nothing_circles() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Down { at: "host2".into() }).unwrap();
    send(&fabric.socket(0, 0), fabric.address(2), COUNT, 100);
    eventually("packets reach leaf 1", || {
        fabric.packets("spine0>leaf1") + fabric.packets("spine1>leaf1") == u64::from(COUNT)
    });
    std::thread::sleep(SILENCE);
    let back = fabric.packets("leaf1>spine0") + fabric.packets("leaf1>spine1");
    assert_eq!(back, 0, "leaf 1 must not send them up again");
}

#[test]
fn loss_takes_its_share_and_counts_it() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Loss { at: "leaf1>host2".into(), percent: 30.0 }).unwrap();
    let arrived = crossing(&fabric, 1000).len() as u64;
    assert_eq!(arrived + fabric.met(), 1000);
    // 300 expected, standard deviation 14.5: seven of those either way.
    assert!((200..400).contains(&fabric.met()), "{} lost of 1000", fabric.met());
}

#[test]
fn corrupted_packets_are_noticed_by_the_receiver() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Corruption { at: "leaf1>host2".into(), percent: 30.0 }).unwrap();
    let arrived = crossing(&fabric, 1000);
    assert!(arrived.iter().all(|(_, bytes)| bytes[4..].iter().all(|byte| *byte == 0xa5)));
    assert!((200..400).contains(&fabric.met()), "{} corrupted of 1000", fabric.met());
    // A bit of the ports would bring it to another socket, one of the checksum to none.
    assert_eq!(arrived.len() as u64 + fabric.met(), 1000);
}

#[test]
fn duplicated_packets_come_twice() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Duplication { at: "leaf1>host2".into(), percent: 30.0 }).unwrap();
    let arrived = crossing(&fabric, 1000);
    assert!((200..400).contains(&fabric.met()), "{} duplicated of 1000", fabric.met());
    assert_eq!(arrived.len() as u64, 1000 + fabric.met());
    let mut once = numbers(&arrived);
    once.sort_unstable();
    once.dedup();
    assert!(once == in_order(1000));
}

#[test]
fn a_flapping_link_swallows_a_part_of_each_period() {
    let Some(fabric) = Fabric::small() else { return };
    fabric
        .0
        .fault(Fault::Flap { at: "leaf1>host2".into(), period_ms: 20, down_ms: 10, carrier: false })
        .unwrap();
    let arrived = crossing(&fabric, 1000).len() as u64;
    assert_eq!(arrived + fabric.met(), 1000);
    assert!((100..900).contains(&arrived), "{arrived} of 1000");
}

#[test]
fn a_link_that_flaps_with_carrier_is_seen_going_down_and_coming_up_and_stays_up_once_healed() {
    let Some(fabric) = Fabric::small() else { return };
    let carrier = || {
        let mut ip = fabric.0.command_in("leaf0", "ip").unwrap();
        let output = ip.args(["-o", "link", "show", "spine0"]).output().unwrap().stdout;
        !String::from_utf8(output).unwrap().contains("NO-CARRIER")
    };
    let flap = Fault::Flap { at: "leaf0-spine0".into(), period_ms: 200, down_ms: 100, carrier: true };
    let fault = fabric.0.fault(flap).unwrap();
    for _ in 0..2 {
        eventually("it goes down", || !carrier());
        eventually("it comes up", carrier);
    }
    fabric.0.heal(fault).unwrap();
    eventually("it is up", carrier);
    std::thread::sleep(SILENCE);
    assert!(carrier());
    assert_eq!(crossing(&fabric, COUNT).len(), COUNT as usize);
}

#[test]
fn on_a_slow_link_packets_wait() {
    let Some(fabric) = Fabric::small() else { return };
    let slow = |mbps: f64| fabric.0.fault(Fault::Slow { at: "leaf1>host2".into(), mbps }).unwrap();
    let (first, second) = (slow(0.1), slow(0.5));
    let (from, to) = (fabric.socket(0, 0), fabric.socket(2, PORT));
    send(&from, fabric.address(2), 50, 1000);
    eventually("all are queued", || fabric.packets("host0>leaf0") == 50);
    let waiting = || fabric.link("leaf1>host2").counters.queue_packets;
    assert!(waiting() > 0);
    fabric.0.heal(second).unwrap();
    // At 0.1 Mbit/s a packet takes 80 ms.
    assert!(waiting() > 0, "the slower of two faults counts");
    fabric.0.heal(first).unwrap();
    assert_eq!(receive(&to, Duration::from_secs(2)).len(), 50);
}

#[test]
fn delayed_packets_come_later_and_in_order() {
    let Some(fabric) = Fabric::small() else { return };
    let fault = Fault::Delay { at: "leaf1>host2".into(), delay_us: 20_000, jitter_us: 5_000 };
    let fault = fabric.0.fault(fault).unwrap();
    let (from, to) = (fabric.socket(0, 0), fabric.socket(2, PORT));
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..5 {
        let began = Instant::now();
        send(&from, fabric.address(2), 1, 100);
        to.recv(&mut [0; 2000]).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
    assert!(numbers(&exchange(&from, &to, fabric.address(2), 1000, 100)) == in_order(1000));
    assert_eq!(fabric.met(), 1005);
    fabric.0.heal(fault).unwrap();
    drop(to);
    assert_eq!(numbers(&crossing(&fabric, COUNT)), in_order(COUNT));
}

#[test]
fn reordered_packets_are_overtaken_and_none_is_lost() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Reordering { at: "leaf1>host2".into(), percent: 10.0, late_us: 3000 }).unwrap();
    let order = numbers(&crossing(&fabric, 1000));
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted == in_order(1000), "{} of 1000", sorted.len());
    let overtaken = order.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!((20..200).contains(&overtaken), "{overtaken} overtaken of 1000");
}

#[test]
fn faults_on_one_link_act_together_and_heal_one_by_one() {
    let Some(fabric) = Fabric::small() else { return };
    let at = || "leaf1>host2".to_owned();
    let twice = fabric.0.fault(Fault::Duplication { at: at(), percent: 100.0 }).unwrap();
    let late = fabric.0.fault(Fault::Delay { at: at(), delay_us: 2000, jitter_us: 0 }).unwrap();
    let again = fabric.0.fault(Fault::Duplication { at: at(), percent: 100.0 }).unwrap();
    assert_eq!(crossing(&fabric, COUNT).len(), 4 * COUNT as usize);
    fabric.0.heal(twice).unwrap();
    assert_eq!(crossing(&fabric, COUNT).len(), 2 * COUNT as usize);
    fabric.0.heal(again).unwrap();
    assert_eq!(crossing(&fabric, COUNT).len(), COUNT as usize);
    assert!(fabric.0.status().unwrap().faults.iter().all(|fault| fault.id == late));
    fabric.0.heal_all().unwrap();
    assert!(fabric.0.status().unwrap().faults.is_empty());
}

/// A program in a host, killed when dropped.
struct Running(Child);

impl Running {
    fn start(fabric: &Fabric, host: usize) -> Running {
        let child = fabric.0.command(host, "sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let running = Running(child);
        eventually("it runs", || running.line("cmdline").starts_with("sleep"));
        running
    }

    fn line(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap_or_default()
    }

    fn is_stopped(&self) -> bool {
        self.line("stat").contains(") T ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_paused_host_stands_still_and_others_do_not() {
    let Some(fabric) = Fabric::small() else { return };
    let (paused, other) = (Running::start(&fabric, 1), Running::start(&fabric, 2));
    let first = fabric.0.fault(Fault::Pause { host: "host1".into() }).unwrap();
    let second = fabric.0.fault(Fault::Pause { host: "h1".into() }).unwrap();
    eventually("it stands still", || paused.is_stopped());
    assert!(!other.is_stopped());
    fabric.0.heal(first).unwrap();
    assert!(paused.is_stopped(), "the other fault holds it");
    fabric.0.heal(second).unwrap();
    eventually("it goes on", || !paused.is_stopped());
}

#[test]
fn a_killed_program_is_started_again_where_it_was() {
    let Some(fabric) = Fabric::small() else { return };
    let mut running = Running::start(&fabric, 1);
    let fault = fabric.0.fault(Fault::Kill { host: "host1".into(), program: "sleep".into() }).unwrap();
    eventually("it ends", || running.0.try_wait().unwrap().is_some());
    let again = Fault::Kill { host: "host1".into(), program: "sleep".into() };
    let error = fabric.0.fault(again.clone()).unwrap_err().to_string();
    assert!(error.contains("nothing runs there"), "{error}");
    fabric.0.heal(fault).unwrap();
    fabric.0.fault(again).unwrap();
}

#[test]
fn a_fault_whose_process_has_died_says_so_and_can_be_healed() {
    let Some(fabric) = Fabric::small() else { return };
    fabric.0.fault(Fault::Delay { at: "leaf1>host2".into(), delay_us: 1000, jitter_us: 0 }).unwrap();
    let pids = std::process::Command::new("ip")
        .args(["netns", "pids", &format!("{}-mgmt", fabric.0.name())])
        .output()
        .unwrap();
    let pid = String::from_utf8(pids.stdout).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("status says so", || fabric.0.status().unwrap().faults[0].broken.is_some());
    fabric.0.heal_all().unwrap();
    assert_eq!(crossing(&fabric, COUNT).len(), COUNT as usize);
}
