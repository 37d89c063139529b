//! What somebody can do who can send datagrams from any address, but sees nothing of what others send: nothing. The rows
//! are those of RFC 9000, section 21, as far as they concern a transport without streams.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use srd_proto::*;
use srd_wire::*;

const SECOND: Nanos = Nanos::from_secs(1);
const KEY: Qkey = Qkey(5);

/// An incarnation that says hello.
fn hello(incarnation: Incarnation) -> Hello {
    Hello {
        incarnation,
        echo: 0,
        version_min: VERSION,
        version_max: VERSION,
        features: 0,
        context: 0,
        max_datagram: 1400,
        rcvbuf_kib: 1000,
    }
}

fn hello_packet(src_port: u16, incarnation: Incarnation, body: Body<Bytes>) -> Packet<Bytes> {
    let (src_tag, hello) = (incarnation.tag(), Some(hello(incarnation)));
    Packet { src_port, dst_tag: Tag::UNKNOWN, src_tag, hello, ack: None, body }
}

fn data(psn: Psn, op: Op, payload: Vec<u8>) -> Body<Bytes> {
    let payload = Bytes::new(payload);
    Body::Data(Data {
        psn,
        stamp: Stamp(0),
        path: PathId(0),
        tx_count: 0,
        ack_request: true,
        more: false,
        msg: MsgId(7),
        len: payload.len() as u32,
        offset: 0,
        op,
        payload,
    })
}

fn send_op(qkey: Qkey) -> Op {
    let route = Route { dst_qpn: Qpn(2), src_qpn: Qpn(3), qkey };
    Op::Send { route, imm: None, datagram: false }
}

/// Hosts whose queue pairs have a key.
fn world(hosts: usize, config: &Config) -> World {
    let mut world = World::new(hosts, config);
    world.hosts.iter_mut().for_each(|host| host.log.qkey = Some(KEY));
    world
}

/// Somebody sends a packet to host `to` from the address of host `from`, or of one that is not of this world.
fn forge(world: &mut World, to: usize, from: usize, packet: &Packet<Bytes>) {
    let (now, host) = (world.now, &mut world.hosts[to]);
    host.endpoint.handle_packet(now, 0, Received::new(now, gid(from), packet, bytes(packet)), &mut host.log);
}

/// What host `at` sends within `span` without hearing anything.
fn answers(world: &mut World, at: usize, span: Nanos) -> Vec<Transmit<Bytes>> {
    let end = world.now + span;
    let host = &mut world.hosts[at];
    let mut sent = Vec::new();
    loop {
        while let Some(transmit) = host.endpoint.poll_transmit(world.now) {
            sent.push(transmit);
        }
        let next = host.endpoint.next_timeout();
        if next > end {
            return sent;
        }
        world.now = world.now.max(next);
        host.endpoint.handle_timeout(world.now, &mut host.log);
    }
}

fn all_bytes(sent: &[Transmit<Bytes>]) -> usize {
    sent.iter().map(|transmit| bytes(&transmit.packet) + transmit.pad_to as usize).sum()
}

#[test]
fn a_forged_packet_is_answered_by_no_more_than_three_times_its_bytes_and_leaves_nothing() {
    let who = Incarnation(0x7777_0000_1234);
    let probe = Probe { path: PathId(0), number: 3, stamp: Stamp(0) };
    let read = Op::ReadResponse { read: 1 };
    let bodies = [
        Body::None,
        Body::Probe(probe),
        data(Psn(1), send_op(Qkey(6)), vec![1; 30]),
        data(Psn(1), Op::Skip, Vec::new()),
        data(Psn(1), Op::Refuse { refused: Psn(9), status: Status::RemoteRnr }, Vec::new()),
        data(Psn(1), read, vec![1]),
    ];
    for body in bodies {
        let mut world = world(2, &Config::default());
        let packet = hello_packet(4000, who, body);
        forge(&mut world, 0, 7, &packet);
        let sent = answers(&mut world, 0, Nanos::from_secs(60));
        assert!(all_bytes(&sent) <= 3 * bytes(&packet), "{} B for {} B", all_bytes(&sent), bytes(&packet));
        assert_eq!(world.hosts[0].endpoint.peers().count(), 0, "nothing is kept of a stranger");
        assert!(world.hosts[0].log.received.is_empty() && world.hosts[0].log.open.is_empty());
    }
    // A tag that is not ours.
    let mut world = world(2, &Config::default());
    let packet = Packet { dst_tag: Tag(5), hello: None, ..hello_packet(4000, who, Body::None) };
    forge(&mut world, 0, 7, &packet);
    assert!(all_bytes(&answers(&mut world, 0, Nanos::from_secs(60))) <= 3 * bytes(&packet));
}

#[test]
fn data_of_who_knows_the_queue_key_is_taken_at_once_and_other_data_only_from_where_it_claims_to_come() {
    let mut world = world(2, &Config::default());
    world.send(0, 1, pattern(100, 0));
    let start = world.now;
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received_at[0], start + Nanos::from_micros(7), "no round trip before it");
    // With the wrong key it is refused, as it must be, once its sender has been heard where he says he is.
    world.hosts[0].log.qkey = Some(KEY);
    world.restart(1, &Config::default(), 0x9999);
    world.hosts[1].log.qkey = Some(Qkey(77));
    world.send(0, 1, pattern(100, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[0].log.outcomes[1], (1, Err(Status::RemoteAbort)), "meant for the last process");
    world.send(0, 1, pattern(100, 2));
    world.run_for(SECOND);
    // The test's upper layer takes all that reaches it.
    assert_eq!(world.hosts[0].log.outcomes[2], (2, Ok(())));
    assert!(world.hosts[1].endpoint.stats().unconfirmed > 0, "but not before its sender was confirmed");
}

#[test]
fn what_two_peers_tell_an_attacker_is_of_no_use_against_either() {
    let mut world = world(2, &Config::default());
    for round in 0..3 {
        world.send(0, 1, pattern(3000, round));
        world.send(1, 0, pattern(3000, round));
    }
    world.settle(SECOND);
    // The attacker introduces himself to both from his own address, and learns who they say they are.
    let told: Vec<Incarnation> = [0, 1]
        .map(|at| {
            let packet = hello_packet(PORT, Incarnation(0x6666_0000_4321), Body::None);
            forge(&mut world, at, 7, &packet);
            answers(&mut world, at, Nanos::from_millis(1))[0].packet.hello.unwrap().incarnation
        })
        .to_vec();
    // Four messages are under way.
    let hold = std::rc::Rc::new(std::cell::Cell::new(true));
    let held = hold.clone();
    world.network = Box::new(move |_, _, _| if held.get() { vec![] } else { vec![Nanos::from_micros(7)] });
    for round in 0..2 {
        world.send(0, 1, pattern(30_000, round));
        world.send(1, 0, pattern(30_000, round));
    }
    world.run_for(Nanos::from_micros(20));
    for (to, from) in [(0, 1), (1, 0)] {
        for (dst, src) in [(told[to], told[from]), (told[from], told[to])] {
            let tags = |body| Packet {
                src_port: PORT,
                dst_tag: dst.tag(),
                src_tag: src.tag(),
                hello: None,
                ack: None,
                body,
            };
            forge(&mut world, to, from, &tags(Body::Reset { stale: src.tag() }));
            forge(&mut world, to, from, &tags(Body::Reset { stale: dst.tag() }));
            let mut ack = tags(Body::None);
            let cum = first_psn(dst, 0).plus(10);
            ack.ack = Some(Ack { cum, ..Ack::default() }.into());
            forge(&mut world, to, from, &ack);
            for op in
                [send_op(KEY), Op::Skip, Op::Refuse { refused: first_psn(dst, 0), status: Status::RemoteRnr }]
            {
                let payload = if matches!(op, Op::Send { .. }) { vec![1; 8] } else { Vec::new() };
                forge(&mut world, to, from, &tags(data(first_psn(src, 0), op, payload)));
            }
            forge(&mut world, to, from, &hello_packet(PORT, src, Body::None));
        }
        // Hellos of somebody who is not there.
        for number in 0..100 {
            forge(
                &mut world,
                to,
                from,
                &hello_packet(PORT, Incarnation(0x5555_0000_0000 + number), Body::None),
            );
        }
    }
    hold.set(false);
    world.settle(Nanos::from_secs(5));
    for host in &world.hosts {
        assert!(host.log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "{:?}", host.log.outcomes);
        assert_eq!(host.log.received.len(), 5);
        assert!(host.log.lost_peers.is_empty());
    }
}

#[test]
fn who_forges_the_address_of_a_peer_that_has_not_begun_does_not_keep_it_out() {
    let mut world = world(2, &Config::default());
    for number in 0..1000 {
        forge(&mut world, 0, 1, &hello_packet(PORT, Incarnation(0x5555_0000_0000 + number), Body::None));
    }
    answers(&mut world, 0, Nanos::from_millis(1)); // to an address where nobody is yet
    let start = world.now;
    world.send(1, 0, pattern(100, 0));
    world.send(0, 1, pattern(100, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[0].log.received_at[0], start + Nanos::from_micros(7));
    assert!(world.hosts.iter().all(|host| host.log.outcomes.iter().all(|(_, outcome)| outcome.is_ok())));
}

/// Whoever says that he is the peer to which something is sent, before or while it is, has to make way for who is there.
#[test]
fn who_pretends_to_be_a_peer_that_has_not_answered_ends_nothing_of_what_goes_to_it() {
    let pretended = Incarnation(0x5555_0000_0001);
    for (well_known, before, away) in (0..8).map(|i| (i & 1 == 1, i & 2 == 2, i & 4 == 4)) {
        let what = format!("well known {well_known}, before {before}, peer away {away}");
        let mut world = world(2, &Config::default());
        world.hosts[0].log.well_known = well_known;
        let gone = std::rc::Rc::new(std::cell::Cell::new(away));
        let is_gone = gone.clone();
        world.network =
            Box::new(move |_, _, _| if is_gone.get() { vec![] } else { vec![Nanos::from_micros(7)] });
        let pretend = |world: &mut World| {
            let psn = first_psn(pretended, 0);
            forge(world, 0, 1, &hello_packet(PORT, pretended, data(psn, send_op(KEY), vec![1; 30])));
            forge(world, 0, 1, &hello_packet(PORT, pretended, segment(pretended, KEY, 1, false)));
            let mut given_up = hello_packet(PORT, pretended, Body::None);
            given_up.hello.as_mut().unwrap().context = 1;
            forge(world, 0, 1, &given_up);
        };
        if before {
            pretend(&mut world);
            world.run_for(Nanos::from_micros(3));
        }
        world.send(0, 1, pattern(30_000, 1));
        world.run_for(Nanos::from_micros(3));
        if !before {
            pretend(&mut world);
        }
        world.send(0, 1, pattern(100, 2));
        world.run_for(Nanos::from_millis(if away { 20 } else { 0 }));
        gone.set(false);
        world.send(1, 0, pattern(30_000, 3));
        world.settle(Nanos::from_secs(5));
        let forged = usize::from(before || !well_known);
        assert_eq!(world.hosts[0].log.received.len(), 1 + forged, "{what}");
        assert_eq!(world.hosts[1].log.received.len(), 2, "{what}");
        for host in &world.hosts {
            assert!(
                host.log.outcomes.iter().all(|(_, outcome)| outcome.is_ok()),
                "{what}: {:?}",
                host.log.outcomes
            );
            assert!(host.log.lost_peers.is_empty() && host.log.open.is_empty(), "{what}");
        }
    }
}

/// Two who begin at the same time at well-known addresses ask each other first.
#[test]
fn two_who_expect_each_other_and_trust_nobody_find_each_other_soon() {
    let mut world = world(2, &Config::default());
    world.hosts.iter_mut().for_each(|host| host.log.well_known = true);
    let start = world.now;
    world.send(0, 1, pattern(100, 1));
    world.send(1, 0, pattern(100, 2));
    world.settle(SECOND);
    for host in &world.hosts {
        assert_eq!((host.log.received.len(), host.log.outcomes.len()), (1, 1));
        assert!(
            host.log.received_at[0].since(start) < Nanos::from_millis(2),
            "{:?}",
            host.log.received_at[0].since(start)
        );
    }
}

/// Ten times as many as there may be contexts are at their addresses, name us, and want nothing.
/// Strangers who are at their addresses come to host 1, and know no key.
fn visit(world: &mut World, strangers: std::ops::RangeInclusive<u16>) {
    for stranger in strangers {
        let who = Incarnation(0x7777_0000_0000 + stranger as u64);
        let first = hello_packet(stranger, who, Body::None);
        forge(world, 1, 7, &first);
        let told = answers(world, 1, Nanos::from_micros(100))[0].packet.clone();
        let wrong = data(first_psn(who, 0), send_op(Qkey(6)), vec![0; 8]);
        let mut second = hello_packet(stranger, who, wrong);
        second.dst_tag = told.src_tag;
        forge(world, 1, 7, &second);
        while world.hosts[1].endpoint.poll_transmit(world.now).is_some() {}
    }
}

#[test]
fn who_has_been_told_our_incarnation_may_name_it_though_strangers_have_made_way_meanwhile() {
    let mut world = world(2, &Config::default());
    visit(&mut world, 1..=1100);
    let who = Incarnation(0x1234_5678);
    forge(&mut world, 1, 8, &hello_packet(4000, who, Body::None));
    let told = answers(&mut world, 1, Nanos::from_micros(100))[0].packet.clone();
    visit(&mut world, 1101..=1200);
    world.hosts[1].log.received.clear();
    let message = data(first_psn(who, 0), send_op(KEY), vec![0; 8]);
    let first = Packet { dst_tag: told.src_tag, ..hello_packet(4000, who, message) };
    forge(&mut world, 1, 8, &first);
    assert_eq!(world.hosts[1].log.received.len(), 1);
    let answer = &answers(&mut world, 1, Nanos::from_millis(1))[0].packet;
    assert_eq!(answer.src_tag, told.src_tag, "he is told the same as before");
    assert_eq!(world.hosts[1].endpoint.stats().resets_sent, 0);
}

#[test]
fn strangers_who_are_where_they_say_hold_few_contexts_and_keep_nobody_out() {
    let mut world = world(3, &Config::default());
    world.send(0, 1, pattern(100, 0));
    world.settle(SECOND);
    visit(&mut world, 1..=10_000);
    let contexts = world.hosts[1].endpoint.peers().count();
    assert!((1024..1030).contains(&contexts), "{contexts}");
    world.hosts[1].log.received.clear();
    let start = world.now;
    world.send(2, 1, pattern(100, 1)); // a new peer
    world.send(0, 1, pattern(100, 2)); // and an old one
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 2);
    assert!(world.hosts[1].log.received_at.last().unwrap().since(start) < Nanos::from_millis(100));
    assert_eq!(world.hosts[1].endpoint.stats().peer_limit_drops, 0);
}

#[test]
fn whom_our_program_names_gets_a_context_though_strangers_with_a_well_known_key_have_them_all() {
    let mut world = world(2, &Config { max_peers: 100, ..Config::default() });
    for stranger in 1..=200 {
        let who = Incarnation(0x7777_0000_0000 + stranger as u64);
        forge(&mut world, 1, 7, &hello_packet(stranger, who, Body::None));
        let told = answers(&mut world, 1, Nanos::from_micros(100))[0].packet.clone();
        let message = data(first_psn(who, 0), send_op(KEY), vec![0; 8]);
        let first = Packet { dst_tag: told.src_tag, ..hello_packet(stranger, who, message) };
        forge(&mut world, 1, 7, &first);
        answers(&mut world, 1, Nanos::from_micros(100));
    }
    assert_eq!(world.hosts[1].endpoint.peers().count(), 100);
    assert_eq!(world.hosts[1].endpoint.stats().peer_limit_drops, 100);
    world.send(1, 0, pattern(100, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.outcomes, [(0, Ok(()))]);
}

/// The queue keys of well-known endpoints are known to all. Who shows one from an address that may be forged gets a context at
/// once, as long as there are few of them.
#[test]
fn who_knows_a_queue_key_holds_few_contexts_until_his_address_is_proven() {
    let mut world = world(3, &Config::default());
    for round in 0..10 {
        for stranger in 1..=1000u16 {
            let who = Incarnation(0x7777_0000_0000 + stranger as u64);
            let message = data(first_psn(who, 0), send_op(KEY), vec![0; 8]);
            forge(&mut world, 1, 7 + round, &hello_packet(stranger, who, message));
        }
        answers(&mut world, 1, Nanos::from_millis(1));
    }
    let contexts = world.hosts[1].endpoint.peers().count();
    assert_eq!(contexts, 512);
    world.hosts[1].log.received.clear();
    let start = world.now;
    world.send(2, 1, pattern(100, 1)); // a new peer is asked first who it is
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 1);
    assert!(world.hosts[1].log.received_at.last().unwrap().since(start) < Nanos::from_millis(100));
    assert_eq!(world.hosts[1].endpoint.peers().count(), contexts + 1);
}

/// Nor do they become more when those before them have been given up: who may never have been there makes way.
#[test]
fn contexts_of_forged_addresses_do_not_add_up_over_time() {
    let mut world = world(2, &Config { peer_timeout: SECOND, ..Config::default() });
    for round in 0..20 {
        // Each is to hear of a refusal, and is given up.
        world.hosts[1].log.refuse = vec![Status::RemoteRnr; 2000];
        for stranger in 1..=2000u16 {
            let who = Incarnation(0x7777_0000_0000 + stranger as u64);
            let message = data(first_psn(who, 0), send_op(KEY), vec![0; 8]);
            forge(&mut world, 1, 7 + round, &hello_packet(stranger, who, message));
        }
        answers(&mut world, 1, Nanos::from_secs(20));
    }
    let host = &world.hosts[1];
    let contexts = host.endpoint.peers().count();
    assert!((1024..=2 * 1024).contains(&contexts), "{contexts}");
    assert_eq!(host.log.silent_peers, 0, "nobody is told of who was never there");
    assert_eq!(host.endpoint.stats().unresponsive_remote_events, 0);
    // A peer finds its place.
    world.hosts[1].log.refuse.clear();
    world.hosts[1].log.received.clear();
    world.send(0, 1, pattern(100, 1));
    world.settle(SECOND);
    assert_eq!(world.hosts[1].log.received.len(), 1);
}

/// With a key, whoever takes the place of the process that is known at an address has to answer a question. An answer that was on
/// its way while another took it comes too late.
#[test]
fn a_late_answer_of_a_dead_process_takes_no_context_from_the_living() {
    let mut world = world(1, &Config { confirm_first: true, ..Config::default() });
    let [first, second, third] = [1, 2, 3].map(|i| Incarnation(0x7777_0000_1000 + i));
    forge(&mut world, 0, 7, &hello_packet(4000, first, Body::None));
    let us = answers(&mut world, 0, Nanos::from_millis(1))[0].packet.hello.unwrap().incarnation;
    let says = |who, body, ack| Packet { dst_tag: us.tag(), ack, ..hello_packet(4000, who, body) };
    forge(&mut world, 0, 7, &says(first, Body::None, None));
    // It has ended: its successor knows nothing of what is between us and it.
    forge(
        &mut world,
        0,
        7,
        &Packet { hello: None, ..says(second, Body::Reset { stale: first.tag() }, None) },
    );
    let mut answer_of = |who: Incarnation| {
        forge(&mut world, 0, 7, &says(who, Body::None, None));
        let asked = answers(&mut world, 0, Nanos::from_millis(1));
        let question = asked.iter().find_map(|transmit| match &transmit.packet.body {
            Body::Probe(probe) if transmit.packet.dst_tag == who.tag() => Some(*probe),
            _ => None,
        });
        let Probe { path, number, stamp } = question.expect("a question");
        let hold = Hold::from_nanos(Nanos::ZERO);
        let mut echoes = arrayvec::ArrayVec::new();
        echoes.push(Echo { path, tx_count: Echo::PROBE, hold, psn: Psn(number), stamp });
        let cum = first_psn(us, 0);
        let (rx_time, sack) = (Stamp(0), arrayvec::ArrayVec::new());
        let ack = Ack {
            cum,
            rcvd_bytes: 0,
            rx_time,
            senders: 1,
            ce_count: 0,
            buffer_level: 0,
            echoes,
            cuts: 0,
            sack,
        };
        says(who, Body::None, Some(ack.into()))
    };
    let answers = [answer_of(second), answer_of(third)];
    let restarts = |world: &World| world.hosts[0].endpoint.stats().peer_restarts;
    let before = restarts(&world);
    forge(&mut world, 0, 7, &answers[1]);
    forge(&mut world, 0, 7, &says(third, data(first_psn(third, 0), send_op(KEY), vec![3]), None));
    assert_eq!(world.hosts[0].log.received.len(), 1, "the third is there");
    forge(&mut world, 0, 7, &answers[0]);
    assert_eq!(restarts(&world), before, "the second was there before it, and is no more");
}

/// Who speaks no version of ours gets nothing, and whoever sends to him is told so each time.
#[test]
fn what_is_sent_to_a_peer_of_another_version_fails_and_never_waits() {
    let mut world = world(1, &Config::default());
    world.send(0, 1, pattern(100_000, 0));
    let us = answers(&mut world, 0, Nanos::from_micros(10))[0].packet.src_tag;
    let mut other = hello_packet(PORT, Incarnation(0x7777_0000_1234), Body::None);
    other.dst_tag = us;
    let hello = other.hello.as_mut().unwrap();
    (hello.version_min, hello.version_max) = (VERSION + 1, VERSION + 1);
    forge(&mut world, 0, 1, &other);
    for round in 1..3 {
        world.send(0, 1, pattern(100, round));
        assert!(answers(&mut world, 0, SECOND).is_empty());
    }
    let outcomes = &world.hosts[0].log.outcomes;
    assert_eq!(*outcomes, [0, 1, 2].map(|token| (token, Err(Status::FeatureMismatch))));
    assert_eq!(world.hosts[0].endpoint.next_timeout(), Time::NEVER);
}

/// A segment of a message that never goes on, or gives one up.
fn segment(who: Incarnation, key: Qkey, number: u32, skip: bool) -> Body<Bytes> {
    let op = if skip { Op::Skip } else { send_op(key) };
    match data(first_psn(who, 0).plus(number), op, vec![0; !skip as usize]) {
        Body::Data(data) => Body::Data(Data { msg: MsgId(number), len: if skip { 0 } else { 100 }, ..data }),
        other => other,
    }
}

/// First segments of messages that never go on, and messages given up: each would be remembered until the window has passed.
#[test]
fn of_a_strangers_messages_few_are_remembered() {
    for (key, most) in [(Qkey(6), 4), (KEY, 64)] {
        let mut world = world(1, &Config::default());
        let who = Incarnation(0x7777_0000_1234);
        // Who has no key shows where it is.
        forge(&mut world, 0, 7, &hello_packet(4000, who, Body::None));
        let told = answers(&mut world, 0, Nanos::from_millis(1))[0].packet.clone();
        let dst_tag = if key == KEY { Tag::UNKNOWN } else { told.src_tag };
        for number in 0..900 {
            let body = segment(who, key, number, number % 2 == 1);
            forge(&mut world, 0, 7, &Packet { dst_tag, ..hello_packet(4000, who, body) });
        }
        let stats = world.hosts[0].endpoint.stats();
        assert_eq!(stats.partial_limit_drops, 450 - most, "{key:?}");
    }
}

/// Who knows a well-known key and has addresses of his own is a peer like any other, but all that the program has not named share.
#[test]
fn of_all_messages_of_whom_nobody_has_named_only_so_many_are_remembered() {
    let mut world = world(1, &Config::default());
    for peer in 0..40u16 {
        let who = Incarnation(0x7777_0000_1234 + peer as u64);
        forge(&mut world, 0, 7, &hello_packet(4000 + peer, who, Body::None));
        let told = answers(&mut world, 0, Nanos::from_millis(1))[0].packet.clone();
        for number in 0..900 {
            let body = segment(who, KEY, number, false);
            forge(
                &mut world,
                0,
                7,
                &Packet { dst_tag: told.src_tag, ..hello_packet(4000 + peer, who, body) },
            );
        }
        answers(&mut world, 0, Nanos::from_millis(1));
    }
    // The first 18 have all that they ask for, the next one what is left, each of the others four.
    let remembered = 40 * 900 - world.hosts[0].endpoint.stats().partial_limit_drops;
    assert_eq!(remembered, 16_384 + 21 * 4);
}

/// The queue keys of well-known endpoints are known to all, so that data counts whose sender may have forged his address. He is told
/// that it is refused, and told again if he asks again, but not again and again.
#[test]
fn a_refusal_is_not_repeated_to_who_may_have_forged_his_address() {
    for len in [0, 8, 1000] {
        let mut world = world(1, &Config::default());
        world.hosts[0].log.refuse = vec![Status::RemoteRnr];
        let who = Incarnation(0x7777_0000_1234);
        let packet = hello_packet(4000, who, data(first_psn(who, 0), send_op(KEY), vec![0; len]));
        let (mut came, mut went) = (0, 0);
        for _ in 0..3 {
            forge(&mut world, 0, 7, &packet);
            came += bytes(&packet);
            went += all_bytes(&answers(&mut world, 0, Nanos::from_secs(20)));
            assert!(went <= 3 * came, "{went} B for {came} B");
        }
        assert!(went > 100, "{went}");
        // Nobody is there: his context does not stay busy for ever.
        answers(&mut world, 0, Nanos::from_secs(100));
        assert!(world.hosts[0].endpoint.is_quiet());
    }
}

/// He is told that his message is refused, and never hears it. A program would be told of a peer that has died, as often
/// as he likes.
#[test]
fn a_stranger_who_goes_away_is_not_reported_as_a_peer_that_died() {
    let mut world = world(1, &Config::default());
    let who = Incarnation(0x7777_0000_1234);
    forge(&mut world, 0, 7, &hello_packet(4000, who, Body::None));
    let told = answers(&mut world, 0, Nanos::from_millis(1))[0].packet.clone();
    let wrong = data(first_psn(who, 0), send_op(Qkey(6)), vec![0; 8]);
    world.hosts[0].log.refuse = vec![Status::RemoteBadDestQpn];
    forge(&mut world, 0, 7, &Packet { dst_tag: told.src_tag, ..hello_packet(4000, who, wrong) });
    let sent = answers(&mut world, 0, Nanos::from_secs(60));
    let refused = |it: &Transmit<Bytes>| match &it.packet.body {
        Body::Data(data) => matches!(data.op, Op::Refuse { .. }),
        _ => false,
    };
    assert!(sent.iter().any(refused));
    let host = &world.hosts[0];
    assert_eq!((host.log.silent_peers, host.log.lost_peers.len()), (0, 0));
    assert_eq!(host.endpoint.stats().unresponsive_remote_events, 0);
}

/// A hundred thousand hellos a second: each answer costs a call of the system.
#[test]
fn a_flood_of_strangers_gets_few_answers_and_takes_no_turn_of_who_is_known() {
    let mut world = world(2, &Config::default());
    world.send(0, 1, pattern(100, 0));
    world.settle(SECOND);
    let (start, mut answered) = (world.now, 0);
    let period = Nanos::from_micros(10);
    for number in 0..10_000u32 {
        let stranger = Incarnation(0x7777_0000_0000 + number as u64);
        forge(&mut world, 1, 7, &hello_packet(number as u16, stranger, Body::None));
        answered += answers(&mut world, 1, period).len();
        world.now = start + Nanos(period.0 * number as u64);
        if number % 1000 == 999 {
            // Somebody new at the address of the peer is asked whether he is there.
            forge(&mut world, 1, 0, &hello_packet(PORT, Incarnation(0x9999), Body::None));
            let asked = answers(&mut world, 1, Nanos(0));
            let to_it = |it: &&Transmit<Bytes>| it.to.gid == gid(0);
            assert_eq!(asked.iter().filter(to_it).count(), 1, "after {number}");
        }
    }
    assert!((100..=1000).contains(&answered), "{answered}");
}

/// With a key: what no key opens is answered, too, since its sender may have talked to the process before this one.
#[test]
fn a_flood_of_what_no_key_opens_does_not_keep_introductions_waiting() {
    let sealed = Config { confirm_first: true, ..Config::default() };
    let mut world = world(1, &sealed);
    for number in 1..=1000u32 {
        let (now, endpoint) = (world.now, &mut world.hosts[0].endpoint);
        let stranger = InstanceAddr { gid: gid(7), port: number as u16 };
        endpoint.refuse(now, 0, stranger, Tag(number), Tag(number));
    }
    forge(&mut world, 0, 1, &hello_packet(PORT, Incarnation(0x9999), Body::None));
    let first = answers(&mut world, 0, Nanos(0)).remove(0);
    assert_eq!((first.to.gid, first.peer_incarnation), (gid(1), Some(Incarnation(0x9999))));
}

#[test]
fn the_first_psns_of_a_peer_follow_from_nothing_that_another_is_told() {
    let mut world = world(3, &Config::default());
    let seen = std::rc::Rc::new(std::cell::RefCell::new(std::collections::BTreeMap::new()));
    let tap = seen.clone();
    world.network = Box::new(move |_, from, t| {
        if let Body::Data(data) = &t.packet.body {
            tap.borrow_mut().entry((from, t.to.gid)).or_insert((t.packet.src_tag, data.psn));
        }
        vec![Nanos::from_micros(7)]
    });
    for to in [1, 2] {
        world.send(0, to, pattern(10, 0));
    }
    world.settle(SECOND);
    let seen: Vec<_> = seen.borrow().values().copied().collect();
    assert_ne!(seen[0].0, seen[1].0, "each is told another incarnation");
    assert_ne!(seen[0].1, seen[1].1, "and sees other packet numbers");
}

/// Who was paused for longer than its peer's patience: what it had sent and what was sent to it ends on both sides, and
/// nothing of that is accepted afterwards.
#[test]
fn giving_up_ends_both_directions() {
    let patient = Config { peer_timeout: Nanos::from_secs(2), ..Config::default() };
    for first in [0, 1] {
        let mut world = world(2, &patient);
        world.send(0, 1, pattern(10, 0));
        world.send(1, 0, pattern(11, 0));
        world.settle(SECOND);
        // Host 1 cannot be heard, nor hears: its peer gives it up. It does not notice: it had nothing to ask.
        let cut = std::rc::Rc::new(std::cell::Cell::new(true));
        let is_cut = cut.clone();
        world.network =
            Box::new(move |_, _, _| if is_cut.get() { vec![] } else { vec![Nanos::from_micros(7)] });
        world.send(0, 1, pattern(20, 0));
        world.settle(Nanos::from_secs(5));
        assert_eq!(world.hosts[0].log.outcomes[1].1, Err(Status::Unresponsive));
        cut.set(false);
        let (from, to) = (first, 1 - first);
        let told = world.send(from, to, pattern(30, 0));
        world.settle(Nanos::from_secs(5));
        let outcome = world.hosts[from].log.outcomes.iter().find(|(token, _)| *token == told).unwrap().1;
        let received = world.hosts[to].log.received.iter().any(|(_, bytes)| bytes.len() == 30);
        if from == 1 {
            // It speaks in a context that has ended.
            assert_eq!((outcome, received), (Err(Status::RemoteAbort), false));
        } else {
            assert_eq!((outcome, received), (Ok(()), true));
        }
        assert_eq!(world.hosts[1].log.lost_peers, [PeerLoss::GivenUp], "it is told that it was given up");
        // And then all is well.
        world.send(0, 1, pattern(40, 0));
        world.send(1, 0, pattern(41, 0));
        world.settle(SECOND);
        for (host, len) in [(1, 40), (0, 41)] {
            assert!(world.hosts[host].log.received.iter().any(|(_, bytes)| bytes.len() == len));
        }
    }
}

#[test]
fn both_may_give_each_other_up_at_once() {
    let patient = Config { peer_timeout: Nanos::from_secs(2), ..Config::default() };
    let mut world = world(2, &patient);
    world.send(0, 1, pattern(10, 0));
    world.settle(SECOND);
    let cut = std::rc::Rc::new(std::cell::Cell::new(true));
    let is_cut = cut.clone();
    world.network = Box::new(move |_, _, _| if is_cut.get() { vec![] } else { vec![Nanos::from_micros(7)] });
    world.send(0, 1, pattern(20, 0));
    world.send(1, 0, pattern(21, 0));
    world.settle(Nanos::from_secs(5));
    cut.set(false);
    world.send(0, 1, pattern(30, 0));
    world.send(1, 0, pattern(31, 0));
    world.settle(SECOND);
    for host in &world.hosts {
        assert_eq!(host.log.outcomes.last().unwrap().1, Ok(()), "{:?}", host.log.outcomes);
    }
}
