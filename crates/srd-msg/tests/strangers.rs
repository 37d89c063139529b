//! Who can send packets but was not given an endpoint's address puts nothing into it.

mod support;

use srd_device::{AhNumber, SendData, SendOp, SendWr, Sge};
use srd_msg::*;
use srd_wire::{MrKey, Nanos, Qkey, Status};
use support::harness::{QKEY, Rng, Side, srd};
use support::*;

/// Somebody at host 2, beside its endpoint, with nothing but a device.
struct Stranger {
    side: Side,
    to: AhNumber,
}

/// The key of queue pairs whose place is known: those of well-known endpoints.
const WELL_KNOWN: Qkey = Qkey(0x5352_446D);

/// A message with a tag, as the protocol has it.
fn letter(from: u32, toward: u32, kind: u8, session: u32) -> Vec<u8> {
    let mut bytes = vec![kind | 2 << 4, 1, 0xFF, 0xFF];
    for field in [from, toward, session, 0, 0, 0, 0] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(7u64.to_le_bytes());
    bytes.extend([0xEE; 100]);
    bytes
}

impl Stranger {
    fn new(cluster: &mut Cluster) -> Stranger {
        let addr = cluster.net.devices[2].memory().allocate(4096);
        let side = cluster.net.side(2, addr, 4096, srd);
        let to = side.ahs[1];
        Stranger { side, to }
    }

    /// Sends that, and answers what became of it.
    fn tries(&self, cluster: &mut Cluster, qkey: Qkey, op: SendOp, bytes: &[u8]) -> Status {
        cluster.net.devices[2].memory().at_mut(self.side.addr, bytes.len()).copy_from_slice(bytes);
        let sges = [Sge { addr: self.side.addr, len: bytes.len() as u32, lkey: self.side.key }];
        let wr =
            SendWr { wr_id: 1, op, ah: self.to, dst_qpn: cluster.qpns[1], qkey, data: SendData::Sges(&sges) };
        let now = cluster.net.now;
        cluster.net.devices[2].post_send(now, self.side.qpn, &wr).unwrap();
        let mut status = None;
        cluster.net.run_until(Nanos::from_secs(10), |net| {
            status = net.devices[2].poll_cq(self.side.cq).map(|completion| completion.status);
            status.is_some()
        });
        cluster.progress();
        status.unwrap()
    }
}

/// All that a program or its operator can see of an endpoint: its peers, what is counted, what has completed.
fn seen(cluster: &mut Cluster) -> (usize, Counters, Option<Done>) {
    let peers = cluster.domains[1].peers(cluster.endpoints[1]).count();
    (peers, cluster.counters(1), cluster.domains[1].poll_done())
}

#[test]
fn without_the_key_nothing_of_a_stranger_shows() {
    let mut cluster = Cluster::new(3, Config::default());
    // A friend is there, a receive waits for anybody, and memory is open to those who have its key.
    let (word, room) = (cluster.bytes(0, &[1; 10]), cluster.room(1, 1000));
    cluster.recv(1, None, 0, u64::MAX, room, 1);
    cluster.send(0, 1, 5, word, 1);
    assert_eq!((cluster.next(0).error, cluster.next(1).error), (None, None));
    cluster.recv(1, None, 0, u64::MAX, room, 2);
    let open = cluster.bytes(1, &[3; 1000]);
    cluster.register(1, open, None, ALL_RIGHTS);
    cluster.settle(Nanos::from_millis(10));
    let before = seen(&mut cluster);
    let stranger = Stranger::new(&mut cluster);
    let friend = cluster.identities[0].key();
    let mut rng = Rng(16);
    let mut qkeys = vec![WELL_KNOWN, Qkey(0), Qkey(1), Qkey(u32::MAX), Qkey(friend)];
    qkeys.extend((0..200).map(|_| Qkey(rng.next() as u32)));
    for (at, &qkey) in qkeys.iter().enumerate() {
        for toward in [0, friend, rng.next() as u32] {
            let kind = 1 + (at as u8 + 10) % 12;
            let status = stranger.tries(&mut cluster, qkey, SEND, &letter(friend, toward, kind, 1));
            assert_eq!(status, Status::RemoteBadDestQpn, "queue key {qkey:?}");
        }
        let rkey = MrKey(if at < 100 { at as u32 } else { rng.next() as u32 });
        let write = SendOp::Write { rkey, addr: open.addr, imm: None };
        assert_ne!(stranger.tries(&mut cluster, qkey, write, &[0xEE; 100]), Status::Ok);
        let read = SendOp::Read { rkey, addr: open.addr };
        assert_ne!(stranger.tries(&mut cluster, qkey, read, &[0; 100]), Status::Ok);
    }
    cluster.settle(Nanos::from_secs(10));
    assert_eq!(seen(&mut cluster), before);
    assert_eq!(cluster.read(1, open), [3; 1000]);
    // The same letter with the key is let in.
    let key = cluster.identities[1].key();
    assert_eq!(stranger.tries(&mut cluster, Qkey(key), SEND, &letter(9, key, 1, 1)), Status::Ok);
    assert_eq!((cluster.next(1).context, cluster.read(1, room)[..100].to_vec()), (2, vec![0xEE; 100]));
}

#[test]
fn who_sends_in_a_session_that_is_over_is_told() {
    const STALE: u8 = 12;
    let mut cluster = Cluster::new(3, Config::default());
    let Stranger { side, to } = Stranger::new(&mut cluster);
    (0..8).for_each(|i| cluster.net.post_recv(&side, 100 + i, 1024 + 128 * i, 128));
    let key = cluster.identities[1].key();
    let mut said = Vec::new();
    // Of the second session, and what comes late of the first.
    for session in [2, 1] {
        let letter = letter(QKEY.0, key, 1, session);
        cluster.net.devices[2].memory().at_mut(side.addr, letter.len()).copy_from_slice(&letter);
        let sges = [Sge { addr: side.addr, len: letter.len() as u32, lkey: side.key }];
        let (dst_qpn, data) = (cluster.qpns[1], SendData::Sges(&sges));
        let wr = SendWr { wr_id: 1, op: SEND, ah: to, dst_qpn, qkey: Qkey(key), data };
        let now = cluster.net.now;
        cluster.net.devices[2].post_send(now, side.qpn, &wr).unwrap();
        cluster.settle(Nanos::from_millis(10));
        said.clear();
        while let Some(completion) = cluster.net.devices[2].poll_cq(side.cq) {
            let at = side.addr + 1024 + 128 * completion.wr_id.saturating_sub(100);
            said.extend((completion.wr_id >= 100).then(|| cluster.read(2, Iov { addr: at, len: 1 })[0] & 15));
        }
    }
    assert_eq!(said, [STALE]);
}

#[test]
fn where_nobody_may_write_nobody_is_told_of_a_write() {
    for refuses in [false, true] {
        let mut cluster = Cluster::well_known(3, Config::default());
        if refuses {
            cluster.domains[1].refuse_notices(cluster.endpoints[1]);
        }
        let stranger = Stranger::new(&mut cluster);
        let mut notice = vec![4 | 2 << 4, 0, 0xFF, 0xFF];
        for field in [9, 0, 1, 0, 0, 0, 0] {
            notice.extend(u32::to_le_bytes(field));
        }
        notice.extend([7u64.to_le_bytes(), (1u64 << 40).to_le_bytes()].concat());
        assert_eq!(stranger.tries(&mut cluster, WELL_KNOWN, SEND, &notice), Status::Ok);
        let told = cluster.domains[1].poll_done().map(|done| done.kind);
        assert_eq!(told, (!refuses).then_some(Kind::RemoteWrite));
        assert_eq!(cluster.counters(1).unasked, refuses as u64);
    }
}

#[test]
fn memory_of_a_well_known_endpoint_is_not_found_by_guessing() {
    let mut cluster = Cluster::well_known(3, Config::default());
    let open = cluster.bytes(1, &[3; 1000]);
    let (_, key) = cluster.register(1, open, None, ALL_RIGHTS);
    // The device over there writes for hosts that it knows.
    cluster.peer(1, 2);
    let stranger = Stranger::new(&mut cluster);
    let mut rng = Rng(17);
    for guess in (0..300).chain((0..300).map(|_| rng.next() as u32)) {
        let write = SendOp::Write { rkey: MrKey(guess), addr: 0, imm: None };
        let status = stranger.tries(&mut cluster, WELL_KNOWN, write, &[0xEE; 100]);
        assert_eq!(status, Status::RemoteBadAddress, "guess {guess}");
    }
    assert_eq!(cluster.read(1, open), [3; 1000]);
    let write = SendOp::Write { rkey: MrKey(key as u32), addr: 0, imm: None };
    assert_eq!(stranger.tries(&mut cluster, WELL_KNOWN, write, &[0xEE; 100]), Status::Ok);
}

/// It is named by neither, so it would be anybody's.
#[test]
fn who_names_nobody_reaches_a_well_known_endpoint_only() {
    for well_known in [false, true] {
        let mut cluster = Cluster::with(3, Config::default(), device_config(), well_known);
        let room = cluster.room(1, 1000);
        cluster.recv(1, None, 7, 0, room, 1);
        let stranger = Stranger::new(&mut cluster);
        let qkey = if well_known { WELL_KNOWN } else { Qkey(cluster.identities[1].key()) };
        assert_eq!(stranger.tries(&mut cluster, qkey, SEND, &letter(9, 0, 1, 1)), Status::Ok);
        cluster.settle(Nanos::from_millis(10));
        assert_eq!(cluster.domains[1].poll_done().is_some(), well_known);
        assert_eq!(cluster.counters(1).stale, u64::from(!well_known));
    }
}

const SEND: SendOp = SendOp::Send { imm: None };
