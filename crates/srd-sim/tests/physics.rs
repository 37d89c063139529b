//! The physics of the simulated fabric, whatever the transport makes of it: nothing is faster than light and line rate,
//! nothing overtakes on its path, nothing gets lost without being counted.

use proptest::prelude::*;
use srd_proto::Payload;
use srd_sim::apps::Size;
use srd_sim::hosts::{Srd, SrdContent};
use srd_sim::input::Scenario;
use srd_sim::net::{Content, Event, EventQueue, Fabric, FrameHead, FramePool, Gone, PortId, Sight, Watcher};
use srd_sim::run::{self, Meter, Offer, Outcome, Simulation};
use srd_sim::units::Ps;
use srd_wire::{BitRate, Body, WINDOW_PACKETS};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::rc::Rc;

/// A frame on a port.
#[derive(Clone, Copy, Debug)]
struct Seen {
    port: PortId,
    /// What ECMP sees of it.
    tuple: u32,
    bytes: u32,
    /// Sender, number and transmission of a data packet, and its payload.
    data: Option<(u32, u16, u32, u8, usize)>,
    sight: Sight,
}

/// Writes down everything.
struct Log(Rc<RefCell<Vec<Seen>>>);

impl Watcher<SrdContent> for Log {
    fn see(&mut self, _: Ps, port: PortId, head: &FrameHead, content: &SrdContent, sight: Sight) {
        let data = match &content.packet.body {
            Body::Data(data) => {
                Some((content.from, content.packet.src_port, data.psn.0, data.tx_count, data.payload.len()))
            }
            _ => None,
        };
        self.0.borrow_mut().push(Seen { port, tuple: head.tuple_hash, bytes: head.bytes, data, sight });
    }
}

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "physics.toml", Path::new(""), &[])
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A simulation whose every port is watched, and what was seen.
fn watched<'a>(scenario: &'a Scenario, offer: &Offer) -> (Simulation<'a, Srd>, Rc<RefCell<Vec<Seen>>>) {
    let mut simulation = run::prepare(scenario, offer);
    let log = Rc::new(RefCell::new(Vec::new()));
    (0..simulation.fabric.ports()).for_each(|port| simulation.fabric.watch(PortId(port)));
    simulation.fabric.watcher = Some(Box::new(Log(log.clone())));
    (simulation, log)
}

/// Fabrics of every kind, small. The number of hosts comes with them.
fn fabrics() -> impl Strategy<Value = (String, u32)> {
    let shapes = prop_oneof![
        (2u32..8).prop_map(|hosts| (format!("kind = \"one-switch\"\nhosts = {hosts}\n"), hosts)),
        (2u32..4, 1u32..5, 2u32..5).prop_map(|(leaves, spines, hosts)| {
            let text = format!(
                "kind = \"leaf-spine\"\nleaves = {leaves}\nspines = {spines}\nhosts_per_leaf = {hosts}\n"
            );
            (text, leaves * hosts)
        }),
        Just(("kind = \"fat-tree\"\nk = 4\n".to_string(), 16)),
        (1u32..3, 2u32..4).prop_map(|(pods, hosts)| {
            let text = "leaves_per_pod = 2\naggs_per_pod = 2\ncores = 4\n";
            (format!("kind = \"clos\"\npods = {pods}\n{text}hosts_per_leaf = {hosts}\n"), pods * 2 * hosts)
        }),
    ];
    let rates = prop::sample::select(vec![10, 25, 100, 400, 800]);
    (shapes, rates, 1u32..50, 0u32..10, prop::sample::select(vec![0, 24])).prop_map(
        |((shape, hosts), gbps, cable, latency, overhead)| {
            let (cable, latency) = (cable as f64 / 10.0, latency as f64 / 10.0);
            let text = format!(
                "[fabric]\n{shape}host_gbps = {gbps}\ncable_us = {cable}\nswitch_latency_us = {latency}\n\
                 frame_overhead = {overhead}\n"
            );
            (text, hosts)
        },
    )
}

fn mtus() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![1500, 4226, 9000])
}

/// Flows between different hosts.
fn pairs(hosts: u32, most: usize) -> impl Strategy<Value = Vec<String>> {
    let pair =
        (0..hosts, 1..hosts).prop_map(move |(src, more)| format!("\"{src}->{}\"", (src + more) % hosts));
    prop::collection::vec(pair, 1..=most)
}

/// A fabric with some flows on it.
fn situations() -> impl Strategy<Value = String> {
    (fabrics(), mtus(), 1u32..200_000, 1u64..1000).prop_flat_map(|((fabric, hosts), mtu, size, seed)| {
        pairs(hosts, 6).prop_map(move |pairs| {
            format!(
                "seed = {seed}\n{fabric}[transport]\nmtu = {mtu}\n[[workload]]\nkind = \"flows\"\nsize = {size}\n\
                 spread_us = 20\npairs = [{}]\n",
                pairs.join(", ")
            )
        })
    })
}

fn fct(simulation: &Simulation<'_, Srd>, flow: usize) -> Ps {
    let state = &simulation.flows[flow];
    state.sent.expect("the flow is done") - state.started.expect("and has begun")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// All bytes through the narrowest link, one round trip: a lone flow takes no less, and with a window that never
    /// closes next to no more. (768 data packets may be outstanding, and the first ones are shorter.)
    #[test]
    fn a_lone_flow_takes_its_ideal_time(
        (fabric, hosts) in fabrics(), mtu in mtus(), packets in 2u64..690, dst in 1u32..16, seed in 1u64..1000,
    ) {
        let dst = 1 + dst % (hosts - 1);
        let text = |size| format!(
            "seed = {seed}\n{fabric}[queues]\ncapacity = \"100bdp\"\n[transport]\nmtu = {mtu}\nselector = \"oblivious\"\n\
             controller = \"fixed\"\nwindow = \"4bdp\"\n[[workload]]\nkind = \"flows\"\npairs = [\"0->{dst}\"]\nsize = {size}\n"
        );
        let cost = Offer::of(&scenario(&text(1))).cost;
        // Whole packets, those that introduce the sender and are therefore shorter aside.
        let scenario = scenario(&text(packets * cost.payload));
        let offer = Offer::of(&scenario);
        let mut simulation = run::prepare(&scenario, &offer);
        simulation.run(Ps::NEVER);
        let (took, least) = (fct(&simulation, 0), least_time(&scenario, packets * (cost.payload + cost.headers)));
        let ideal = offer.ideal.unwrap();
        prop_assert!(took >= least, "{took:?} is faster than light: {least:?}");
        // The last acknowledgement may wait for more to acknowledge: a quarter of a round trip.
        let most = 1.1 * ideal.0 as f64 + offer.base_rtt.0 as f64 / 4.0;
        prop_assert!(took.0 as f64 <= most, "{took:?} of {ideal:?}");
    }

    /// Whether events come node by node or all in order makes no difference.
    #[test]
    fn the_order_of_nodes_makes_no_difference(text in situations(), ecn in any::<bool>(), jitter in any::<bool>()) {
        let ecn = if ecn { "ecn_min = \"10KB\"\necn_max = \"40KB\"\necn_probability = 0.5\n" } else { "" };
        let jitter = if jitter { "[host]\njitter_us = 5\n" } else { "" };
        let scenario = scenario(&format!("{text}[queues]\ncapacity = \"60KB\"\n{ecn}{jitter}"));
        let offer = Offer::of(&scenario);
        let outcome = |in_order| {
            let mut simulation = run::prepare(&scenario, &offer);
            if in_order {
                simulation.keep_order();
            }
            while simulation.run(simulation.now + Ps::from_micros(7)) {}
            let outcome = Outcome::of(&mut simulation, offer.ideal, &Meter::start());
            let flows: Vec<_> = simulation.flows.iter().map(|flow| (flow.sent, flow.received)).collect();
            (Outcome { cost: Default::default(), ..outcome }, flows)
        };
        prop_assert_eq!(outcome(false), outcome(true));
    }

    /// With its own congestion control, flows long enough for it to open up come close.
    #[test]
    fn a_long_lone_flow_fills_its_link((fabric, hosts) in fabrics(), mtu in mtus(), dst in 1u32..16, seed in 1u64..100) {
        let dst = 1 + dst % (hosts - 1);
        let scenario = scenario(&format!(
            "seed = {seed}\n{fabric}[transport]\nmtu = {mtu}\n[[workload]]\nkind = \"flows\"\npairs = [\"0->{dst}\"]\n\
             size = \"40bdp\"\n"
        ));
        let offer = Offer::of(&scenario);
        // A connection has so many packets outstanding, however long and fast the way is.
        let bdp = scenario.settings.queues.capacity / mtu as u64;
        prop_assume!(bdp * 2 < WINDOW_PACKETS as u64);
        let mut simulation = run::prepare(&scenario, &offer);
        simulation.run(Ps::NEVER);
        let (took, ideal) = (fct(&simulation, 0), offer.ideal.unwrap());
        prop_assert!(took.0 as f64 <= 1.1 * ideal.0 as f64, "{took:?} of {ideal:?}");
    }

    /// Every byte arrives once, however many packets cables lose and damage.
    #[test]
    fn what_is_sent_arrives(
        situation in situations(), lost in 0u32..5, damaged in 0u32..5, room in 1u32..20,
    ) {
        let scenario = scenario(&format!(
            "{situation}[queues]\ncapacity = {room}0_000\n\
             [[fault]]\nkind = \"loss\"\nlink = \"*\"\nat_us = 0\nprobability = 0.0{lost}\n\
             [[fault]]\nkind = \"corruption\"\nlink = \"*\"\nat_us = 0\nprobability = 0.0{damaged}\n"
        ));
        let mut simulation = run::prepare(&scenario, &Offer::of(&scenario));
        simulation.run(Ps::NEVER);
        for (index, flow) in scenario.traffic.flows.iter().enumerate() {
            let Size::Bytes(bytes) = flow.size else { unreachable!("all have one") };
            let state = simulation.flows[index];
            prop_assert_eq!(simulation.delivered(index as u32), bytes, "flow {}", index);
            prop_assert!(state.started < state.received && state.received < state.sent, "{state:?}");
        }
    }

    /// No port sends a frame before it has sent the one before in full, so none is faster than its rate over any time;
    /// and frames of one 5-tuple, which take one path, stay in order all the way.
    #[test]
    fn ports_keep_their_rate_and_paths_their_order(
        situation in situations(), room in 1u32..20, queues in prop::sample::select(vec![
            "", "classes = \"strict\"\n", "shared = 100_000\n", "ecn_min = 5_000\n",
        ]),
    ) {
        let scenario = scenario(&format!("{situation}[queues]\ncapacity = {room}0_000\n{queues}"));
        let (mut simulation, log) = watched(&scenario, &Offer::of(&scenario));
        simulation.run(Ps::NEVER);
        let mut busy_until: HashMap<PortId, Ps> = HashMap::new();
        #[allow(clippy::type_complexity)]
        let mut order: HashMap<(PortId, u32), Vec<(u32, u16, u32, u8, usize)>> = HashMap::new();
        for seen in log.borrow().iter() {
            let Sight::Leaves(at) = seen.sight else { continue };
            let rate = scenario.topology.cables[seen.port.cable() as usize].rate;
            let until = busy_until.entry(seen.port).or_default();
            prop_assert!(at >= *until, "port {:?} sends at {at:?} and is busy until {until:?}", seen.port);
            *until = at + Ps(Ps::to_send(seen.bytes as u64, rate).0 - 1); // times are rounded
            if let Some(data) = seen.data {
                order.entry((seen.port, seen.tuple)).or_default().push(data);
            }
        }
        let firsts: Vec<_> = order.iter().filter(|((port, _), _)| is_of_host(&scenario, *port)).collect();
        prop_assert!(!firsts.is_empty());
        for ((first, tuple), sent) in firsts {
            let place: HashMap<_, usize> = sent.iter().enumerate().map(|(n, data)| (*data, n)).collect();
            for ((port, _), later) in order.iter().filter(|((port, other), _)| other == tuple && port != first) {
                let places: Vec<usize> = later.iter().map(|data| place[data]).collect();
                prop_assert!(places.is_sorted(), "overtaking at port {port:?}");
            }
        }
    }

    /// Frames that hosts send come to hosts, or are counted: as dropped, lost, damaged or without a way.
    #[test]
    fn no_frame_is_unaccounted_for(
        situation in situations(), room in 1u32..20, lost in 0u32..5, dead in any::<bool>(),
    ) {
        // One more flow, when all others are long done: before it nothing is on its way.
        let later = 9_000_000;
        let fault = if dead { "[[fault]]\nkind = \"down\"\nlink = \"h0-*\"\nat_us = 15\nfor_us = 100\n" } else { "" };
        let scenario = scenario(&format!(
            "{situation}[[workload]]\nkind = \"flows\"\nname = \"last\"\npairs = [\"0->1\"]\nsize = 1\nstart_us = {later}\n\
             [queues]\ncapacity = {room}0_000\n[[fault]]\nkind = \"loss\"\nlink = \"*\"\nat_us = 0\nprobability = 0.0{lost}\n{fault}"
        ));
        let (mut simulation, log) = watched(&scenario, &Offer::of(&scenario));
        simulation.run(Ps::from_micros(later - 10)); // a little longer, where events come node by node
        let log = log.borrow();
        let count = |of: &dyn Fn(&Seen) -> bool| log.iter().filter(|seen| of(seen)).count() as u64;
        let leaves = |seen: &Seen| matches!(seen.sight, Sight::Leaves(_));
        let to_host = |seen: &Seen| !is_of_host(&scenario, seen.port) && ends_at_host(&scenario, seen.port);
        let gone = |why: Gone| count(&|seen| seen.sight == Sight::Gone(why));
        // A frame that a faulty cable does not take is seen as gone alone, at its first port too.
        let never_left = count(&|seen| is_of_host(&scenario, seen.port) && seen.sight == Sight::Gone(Gone::Fault));
        let sent = count(&|seen| leaves(seen) && is_of_host(&scenario, seen.port));
        let counts = simulation.counts();
        let put_out = counts.data_new + counts.data_again + counts.bare;
        prop_assert!(sent <= put_out && put_out <= sent + never_left, "{sent} of {put_out}, {never_left}");
        let ports: Vec<_> = (0..simulation.fabric.ports()).map(|port| simulation.fabric.counters(PortId(port))).collect();
        let total = |of: fn(&srd_sim::net::PortCounters) -> u64| ports.iter().map(of).sum::<u64>();
        prop_assert_eq!(total(|port| port.dropped), gone(Gone::NoRoom));
        prop_assert_eq!(total(|port| port.lost), gone(Gone::Fault));
        prop_assert_eq!(simulation.fabric.unroutable, gone(Gone::NoRoute));
        // What is lost on the last cable has left its port before, or has not: both are seen as gone.
        let delivered = put_out - gone(Gone::NoRoom) - gone(Gone::Fault) - gone(Gone::NoRoute);
        let last = count(&|seen| leaves(seen) && to_host(seen));
        let lost_last = count(&|seen| seen.sight == Sight::Gone(Gone::Fault) && to_host(seen));
        prop_assert!(delivered <= last && last <= delivered + lost_last, "{delivered} delivered, {last} sent to hosts");
    }

    /// A port with classes or shared memory does with one class, and room for all, exactly what a plain one does, to the
    /// picosecond.
    #[test]
    fn queued_ports_with_room_are_plain_ports(
        frames in prop::collection::vec((0u64..3_000_000, 60u32..9300), 1..200), gbps in 1u64..800,
    ) {
        let leaves = |queues: &str| {
            let text = format!(
                "[fabric]\nkind = \"one-switch\"\nhosts = 2\nhost_gbps = {gbps}\n[queues]\ncapacity = \"1GB\"\n{queues}\
                 [[workload]]\nkind = \"flows\"\npairs = [\"0->1\"]\nsize = 1\n"
            );
            departures(&scenario(&text), &frames)
        };
        let plain = leaves("");
        prop_assert_eq!(plain.len(), frames.len());
        for queues in [
            "classes = \"strict\"\n",
            "shared = \"10GB\"\n",
            "classes = \"weighted\"\nclass_weights = [1, 1, 1, 1, 1, 1, 1, 1]\n",
        ] {
            prop_assert_eq!(&leaves(queues), &plain, "{}", queues);
        }
    }
}

/// A frame that carries nothing.
struct Nothing;

impl Content for Nothing {
    fn trim(&mut self) -> Option<u32> {
        None
    }
}

/// Puts frames, each so long after the one before and so many bytes long, into the switch's port to host 1. Returns when
/// each comes out at the other end, with its bytes.
fn departures(scenario: &Scenario, frames: &[(u64, u32)]) -> Vec<(Ps, u32)> {
    let mut fabric: Fabric<Nothing> = {
        let settings = &scenario.settings;
        Fabric::new(
            &scenario.topology,
            settings.queues,
            &settings.routing,
            settings.frame_overhead,
            settings.seed,
        )
    };
    let (mut pool, mut events) = (FramePool::default(), EventQueue::in_order());
    let port = PortId::at_b(1);
    let mut coming: VecDeque<(Ps, u32)> = VecDeque::new();
    let mut now = Ps::ZERO;
    for &(after, bytes) in frames {
        now += Ps(after);
        coming.push_back((now, bytes));
    }
    let mut out = Vec::new();
    loop {
        let next = coming.front().map_or(Ps::NEVER, |&(at, _)| at);
        match (events.pop(next), coming.front()) {
            (Some((at, Event::PortFree { port })), _) => {
                fabric.port_free(at, port, &mut pool, &mut events);
            }
            (Some((at, Event::Arrive { frame, .. })), _) => out.push((at, pool.head(frame).bytes)),
            (Some((_, event)), _) => panic!("{event:?}"),
            (None, Some(&(at, bytes))) => {
                coming.pop_front();
                let frame = pool.put(head(bytes), Nothing);
                fabric.send(at, port, frame, &mut pool, &mut events);
            }
            (None, None) => return out,
        }
    }
}

fn head(bytes: u32) -> FrameHead {
    FrameHead {
        tuple_hash: 0,
        dst: 1,
        bytes,
        class: 0,
        ecn_capable: false,
        marked: false,
        trimmed: false,
        corrupt: false,
        epoch: 0,
        process: 0,
    }
}

/// So many bytes on the narrowest cable between the two hosts of the only flow, and light there and back.
fn least_time(scenario: &Scenario, bytes: u64) -> Ps {
    let topology = &scenario.topology;
    let flow = &scenario.traffic.flows[0];
    let nothing = srd_sim::net::PacketSizes { data: 0, ack: 0 };
    let light = topology.base_rtt(nothing, flow.src.host, flow.dst.host);
    let BitRate(rate) = topology.narrowest_rate(flow.src.host, flow.dst.host);
    light + Ps::to_send(bytes, BitRate(rate))
}

fn is_of_host(scenario: &Scenario, port: PortId) -> bool {
    scenario.topology.cables[port.cable() as usize].a.0 < scenario.topology.hosts && port.0.is_multiple_of(2)
}

fn ends_at_host(scenario: &Scenario, port: PortId) -> bool {
    scenario.topology.cables[port.cable() as usize].a.0 < scenario.topology.hosts && port.0 % 2 == 1
}
