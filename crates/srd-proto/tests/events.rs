//! The event trace: what it says, and that its documentation says the same.

#[allow(dead_code)] // each test file uses a part of it
mod harness;
use harness::*;
use srd_proto::*;
use srd_wire::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const SECOND: Nanos = Nanos::from_secs(1);
const HALF: Nanos = Nanos::from_micros(7);

fn names(events: &Events) -> Vec<&'static str> {
    events.lock().unwrap().iter().map(|(_, event)| event.schema().name).collect()
}

#[test]
fn the_documentation_is_that_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/EVENTS.md");
    let written = std::fs::read_to_string(path).expect("docs/EVENTS.md");
    assert!(
        written == events_markdown(),
        "docs/EVENTS.md is not what the table says:\n  cargo run -p srd-proto --example events > docs/EVENTS.md"
    );
}

#[test]
fn names_are_unique_and_every_field_has_a_meaning() {
    let events: BTreeSet<&str> = EVENTS.iter().map(|event| event.name).collect();
    assert_eq!(events.len(), EVENTS.len());
    for event in EVENTS {
        let fields: BTreeSet<&str> = event.fields.iter().map(|field| field.name).collect();
        assert_eq!(fields.len(), event.fields.len(), "{}", event.name);
        assert!(event.fields.iter().all(|field| field.doc.ends_with('.')), "{}", event.name);
    }
}

#[test]
fn an_event_gives_its_fields_in_the_order_of_its_schema() {
    let lost = Event::PacketLost {
        psn: Psn(7),
        path: PathId(3),
        tx_count: 1,
        cause: LossCause::Timer,
        age: Nanos(50),
    };
    let mut fields = Vec::new();
    lost.each_field(|field, value| fields.push((field.name, field.unit, value)));
    assert_eq!(
        fields,
        [
            ("psn", "", Value::Count(7)),
            ("path", "", Value::Count(3)),
            ("tx_count", "", Value::Count(1)),
            ("cause", "", Value::Word("timer")),
            ("age", "ns", Value::Count(50)),
        ]
    );
}

#[test]
fn a_message_is_told_from_its_queueing_to_its_completion() {
    let mut world = World::new(2, &Config::default());
    let events = trace(&mut world, 0);
    world.send(0, 1, pattern(100, 0));
    world.settle(SECOND);
    let told = names(&events);
    assert_eq!(
        told,
        [
            "message_queued",
            "path_chosen",
            "message_started",
            "packet_sent",
            "message_completed",
            "ack_received",
            "path_acked",
            "controller_updated",
        ]
    );
    let events = events.lock().unwrap();
    assert!(events.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in order of time");
    let bytes = events.iter().find_map(|(_, event)| match event {
        Event::MessageStarted { bytes, token, .. } => Some((*bytes, *token)),
        _ => None,
    });
    assert_eq!(bytes, Some((100, Some(0))));
}

#[test]
fn a_loss_is_told_with_its_cause_and_its_retransmission() {
    // One path: what is sent later overtakes what is lost.
    let mut world = World::new(2, &Config { paths: 1, ..Config::default() });
    world.send(0, 1, pattern(100, 0));
    world.settle(SECOND);
    let events = trace(&mut world, 0);
    let mut sent = 0;
    world.network = Box::new(move |_, from, t| {
        sent += (from == 0 && matches!(t.packet.body, Body::Data(_))) as u32;
        if from == 0 && sent == 1 { vec![] } else { vec![HALF] }
    });
    world.send(0, 1, pattern(10_000, 0));
    world.settle(SECOND);
    let events = events.lock().unwrap();
    let lost = events.iter().find_map(|(_, event)| match event {
        Event::PacketLost { psn, cause, .. } => Some((*psn, *cause)),
        _ => None,
    });
    let again = events.iter().find_map(|(_, event)| match event {
        Event::PacketResent { psn, tx_count, .. } => Some((*psn, *tx_count)),
        _ => None,
    });
    let (psn, cause) = lost.expect("a loss");
    assert_eq!(cause, LossCause::PathOrder);
    assert_eq!(again, Some((psn, 1)));
}

#[test]
fn a_path_that_dies_is_told_through_all_its_states() {
    let mut world = World::new(2, &Config { selector: SelectorKind::Oblivious, ..Config::default() });
    let dead_from = world.now + Nanos::from_micros(500);
    world.network =
        Box::new(
            move |now, from, t| {
                if from == 0 && now >= dead_from && t.entropy % 16 == 1 { vec![] } else { vec![HALF] }
            },
        );
    let events = trace(&mut world, 0);
    let start = world.now;
    while world.now < start + Nanos::from_millis(20) {
        world.send(0, 1, pattern(8192, 1));
        world.run_for(Nanos::from_micros(5));
    }
    world.settle(SECOND);
    let told: BTreeSet<&str> = names(&events).into_iter().collect();
    for name in ["packet_lost", "path_changed", "path_probed", "timer_fired", "path_rerolled"] {
        assert!(told.contains(name), "no {name} in {told:?}");
    }
    let states: BTreeSet<(String, String)> = events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|(_, event)| match event {
            Event::PathChanged { from, to, .. } => Some((format!("{from:?}"), format!("{to:?}"))),
            _ => None,
        })
        .collect();
    for (from, to) in [("Active", "Suspect"), ("Suspect", "Down"), ("Down", "Probing"), ("Probing", "Down")] {
        assert!(states.contains(&(from.into(), to.into())), "no change from {from} to {to} in {states:?}");
    }
}

#[test]
fn a_trace_changes_nothing_and_can_be_ended() {
    let run = |traced: bool| {
        let mut world = World::new(2, &Config::default());
        let events = traced.then(|| trace(&mut world, 0));
        for i in 0..20 {
            world.send(0, 1, pattern(5000, i));
        }
        world.settle(SECOND);
        world.hosts[0].endpoint.set_tracer(None);
        let told = events.map_or(0, |events| {
            assert!(Arc::strong_count(&events) == 1, "the tracer is gone");
            names(&events).len()
        });
        world.send(0, 1, pattern(5000, 0));
        world.settle(SECOND);
        (world.now, *world.hosts[0].endpoint.stats(), told > 0)
    };
    let (with, without) = (run(true), run(false));
    assert_eq!((with.0, with.1), (without.0, without.1));
    assert!(with.2 && !without.2);
}
