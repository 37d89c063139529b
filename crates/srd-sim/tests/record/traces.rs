//! Traces tell the whole way of every packet, and the stories that are made of them are right.

use crate::{FAULTS, INCAST, directory, record, rows, scenario, text};
use serde_json::Value;
use srd_proto::EVENTS;
use srd_sim::input::Scenario;
use srd_sim::record::{Recorded, Recording, TRACE, Traced};
use srd_sim::run;
use srd_trace::{Event, Form, Question, Report, TraceFile, Verdict, Wanted, list};
use std::collections::BTreeSet;
use std::path::Path;

fn traced(name: &str, of: &str, sets: &[&str]) -> (Recording, Recorded) {
    let recording = Recording { traced: Traced::All, ..Recording::to(directory(name)) };
    let recorded = record(&scenario(of, sets), &recording);
    (recording, recorded)
}

/// All lines.
fn lines(recording: &Recording) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text(recording, TRACE).lines().map(parse).collect()
}

/// What befell flows and packets.
fn events(recording: &Recording) -> Vec<Event> {
    let decided = |line: &Value| EVENTS.iter().any(|schema| line["event"] == schema.name);
    let parse = |line: Value| serde_json::from_value(line).unwrap_or_else(|error| panic!("{error}"));
    lines(recording).into_iter().filter(|line| !decided(line)).map(parse).collect()
}

/// Lines of this event.
fn named<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == name).collect()
}

fn report(recording: &Recording, question: &Question) -> Report {
    let trace = TraceFile::read(&recording.dir.join(TRACE)).unwrap_or_else(|error| panic!("{error}"));
    trace.report(question).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_trace_counts_what_the_outcome_counts() {
    let (recording, recorded) = traced("counts", &format!("{INCAST}{FAULTS}"), &[]);
    let outcome = &recorded.ran.outcome;
    let (mut new, mut again, mut full, mut cable, mut done) = (0, 0, 0, 0, 0);
    for event in events(&recording) {
        match event {
            Event::FrameSent { tx: 0, .. } => new += 1,
            Event::FrameSent { .. } => again += 1,
            Event::FrameLost { why, .. } if why == "queue_full" => full += 1,
            Event::FrameLost { .. } => cable += 1,
            Event::FlowSent { .. } => done += 1,
            _ => {}
        }
    }
    assert_eq!((new, again, done), (outcome.packets_new, outcome.packets_rtx, outcome.finished));
    assert_eq!(full, outcome.packets_dropped, "only data packets are too large for the queue");
    assert!(cable > 0 && cable <= outcome.packets_lost);
}

#[test]
fn the_parts_of_a_flows_time_add_up_to_it() {
    let slow_hosts = ["host.per_packet_us=0.3", "host.latency_us=1", "host.jitter_us=3"];
    let several_queues = ["queues.shared=120KB", "queues.classes=strict"];
    let many = ["workload.processes=3"];
    for (n, sets) in [&[][..], &slow_hosts, &several_queues, &many].into_iter().enumerate() {
        let (recording, recorded) = traced(&format!("parts{n}"), &format!("{INCAST}{FAULTS}"), sets);
        let flows = rows(&recording, "flows.csv");
        let report = report(&recording, &Question::Slowest(usize::MAX));
        assert_eq!(report.stories.len(), flows.len());
        for story in &report.stories {
            let total = story.total_us.expect("every flow has an end");
            let sum: f64 = story.parts.iter().map(|part| part.us).sum();
            assert!((sum - total).abs() < 0.05, "flow {}: parts make {sum}, not {total}", story.flow);
            let row = flows.iter().find(|row| row["id"] == story.flow.to_string()).unwrap();
            let fct: f64 = row["fct_us"].parse().unwrap();
            assert!((fct - total).abs() < 0.01, "flow {}: {total}, not {fct}", story.flow);
            assert!(!story.last_packet.as_ref().unwrap().moments.is_empty());
        }
        let slowest = recorded.ran.outcome.fct_us.unwrap().max;
        assert!((report.stories[0].total_us.unwrap() - slowest).abs() < 0.01, "the slowest comes first");
    }
}

/// The first of these flows when they share a host's link or a queue, or nothing.
fn verdict(name: &str, pairs: &str, sets: &[&str]) -> Verdict {
    let start = INCAST.find("[[workload]]").unwrap();
    let text =
        format!("{}[[workload]]\nkind = \"flows\"\nsize = \"300KB\"\npairs = {pairs}\n", &INCAST[..start]);
    let (recording, _) = traced(name, &text, sets);
    let report = report(&recording, &Question::Flows(vec![1]));
    report.stories[0].verdict.expect("the flow has an end")
}

#[test]
fn the_verdict_is_where_the_time_went() {
    let large = "queues.capacity=1MB";
    assert_eq!(verdict("alone", r#"["4->0"]"#, &[large]), Verdict::OwnPackets);
    assert_eq!(verdict("short", r#"["4->0"]"#, &[large, "workload.size=64B"]), Verdict::Distance);
    let shared = r#"["4.0->0", "4.1->8", "4.2->9", "4.3->10", "4.4->1"]"#;
    assert_eq!(verdict("shared", shared, &[large]), Verdict::SharedLink);
    let incast = r#"["4->0", "5->0", "6->0", "7->0", "8->0", "9->0"]"#;
    assert_eq!(verdict("held", incast, &[large]), Verdict::HeldBack);
    let slow = ["host.latency_us=50", "workload.size=64B"];
    assert!([Verdict::Receiver, Verdict::Distance].contains(&verdict("receiver", r#"["4->0"]"#, &slow)));
}

#[test]
fn a_lost_packet_is_told_from_beginning_to_end() {
    // The last packet of the flow is lost with all others of its time; what is late is that it is retransmitted.
    let text =
        INCAST.replace("senders = 8", "sender_hosts = [4]").replace("size = \"300KB\"", "size = \"9KB\"");
    let fault = "[[fault]]\nkind = \"black-hole\"\nlink = \"leaf1-*\"\nat_us = 0\nfor_us = 30\n";
    let (recording, recorded) = traced("lost", &format!("{text}{fault}"), &["workload.start_us=1"]);
    assert!(recorded.ran.outcome.packets_rtx > 0);
    let report = report(&recording, &Question::Slowest(1));
    let story = &report.stories[0];
    assert_eq!(story.verdict, Some(Verdict::SentAgain), "{}", report.text());
    assert!(story.resent.packets > 0 && story.resent.max_delay_us > 20.0);
    assert!(
        story.resent.lost.iter().all(|loss| loss.why == "cable" || loss.why == "unknown"),
        "{:?}",
        story.resent
    );
    let words = report.text();
    for word in ["A packet was lost", "sent again on path", "lost at", "acknowledgement reaches the sender"] {
        assert!(words.contains(word), "{word:?} is not in\n{words}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["stories"][0]["verdict"], "sent_again");
}

#[test]
fn full_queues_are_named() {
    let (recording, _) = traced("full", INCAST, &[]);
    let report = report(&recording, &Question::Slowest(8));
    let lost: Vec<_> = report.stories.iter().flat_map(|story| &story.resent.lost).collect();
    assert!(lost.iter().all(|loss| loss.why == "queue_full"), "{lost:?}");
    let at_receiver = |port: &str| port == "leaf0->h0";
    let most = lost.iter().max_by_key(|loss| loss.packets);
    assert!(most.is_some_and(|loss| at_receiver(&loss.port)), "{lost:?}");
    for story in &report.stories {
        assert!(story.queues.iter().any(|queue| at_receiver(&queue.port)));
        assert!(story.queues.iter().all(|queue| queue.max_us < 3.3), "a queue of 40 KB empties in 3.2 us");
    }
}

#[test]
fn waiting_is_the_same_whatever_the_port_is_made_of() {
    let waits = |name: &str, sets: &[&str]| -> (f64, f64) {
        let (recording, _) = traced(name, INCAST, sets);
        let stories = report(&recording, &Question::Slowest(8)).stories;
        let queues = stories.iter().flat_map(|story| &story.queues);
        queues.fold((0.0, 0.0), |(sum, most), queue| (sum + queue.sum_us, queue.max_us.max(most)))
    };
    let large = "queues.capacity=2MB";
    let (plain, several) = (waits("plain", &[large]), waits("classes", &[large, "queues.classes=strict"]));
    // Events of one moment may come in another order.
    assert!(plain.0 > 3000.0 && (several.0 / plain.0 - 1.0).abs() < 0.05, "{plain:?}, {several:?}");
    assert!((several.1 / plain.1 - 1.0).abs() < 0.05, "{plain:?}, {several:?}");
}

#[test]
fn decisions_of_both_ends_stand_between_what_befalls_packets() {
    let (recording, recorded) = traced("decisions", &format!("{INCAST}{FAULTS}"), &[]);
    let (all, outcome) = (lines(&recording), &recorded.ran.outcome);
    assert_eq!(all[0]["format"], 2);
    for line in &all {
        let name = line["event"].as_str().expect("every line has a name");
        let Some(schema) = EVENTS.iter().find(|schema| schema.name == name) else { continue };
        let fields: BTreeSet<&str> = schema.fields.iter().map(|field| field.name).collect();
        let has: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let expected: BTreeSet<&str> = fields.into_iter().chain(["event", "t_us", "src", "dst"]).collect();
        assert_eq!(has, expected, "{line}");
    }
    let again = named(&all, "packet_resent").len() as u64;
    assert_eq!(named(&all, "packet_sent").len() as u64, outcome.packets_new);
    assert_eq!(again, outcome.packets_rtx);
    assert!(named(&all, "packet_lost").len() as u64 >= again);
    assert_eq!(named(&all, "message_queued").len(), 8);
    assert!(named(&all, "message_completed").iter().all(|line| line["status"] == 0));
    let receivers = all.iter().any(|line| line["src"] == "h0.0" && line["dst"] != "h0.0");
    let from_receiver =
        EVENTS.iter().any(|schema| named(&all, schema.name).iter().any(|line| line["src"] == "h0.0"));
    assert!(receivers == from_receiver, "what a receiver decides is told as well");

    // One time line: a packet is decided on before it leaves, and its way comes after.
    let place = |name: &str, psn: &Value, src: &str| {
        all.iter().position(|line| {
            let of_flow = line["flow"].is_u64() || line["src"] == src;
            line["event"] == name && &line["psn"] == psn && of_flow
        })
    };
    let first = named(&all, "flow_started")[0];
    let src = first["src"].as_str().unwrap();
    let sent = named(&all, "packet_sent").into_iter().find(|line| line["src"] == src).unwrap();
    assert!(place("packet_sent", &sent["psn"], src) < place("frame_sent", &sent["psn"], src));
    let times: Vec<f64> =
        named(&all, "packet_sent").iter().filter_map(|line| line["t_us"].as_f64()).collect();
    assert!(times.is_sorted(), "decisions stand in the order in which they are taken");
}

#[test]
fn decisions_of_flows_that_are_not_traced_are_left_out() {
    let recording = Recording { traced: Traced::Flows(vec![3]), ..Recording::to(directory("contexts")) };
    record(&scenario(INCAST, &[]), &recording);
    let all = lines(&recording);
    let first = named(&all, "flow_started")[0];
    for line in all.iter().filter(|line| line["src"].is_string()) {
        let ends = [&line["src"], &line["dst"]];
        assert!(ends == [&first["src"], &first["dst"]] || ends == [&first["dst"], &first["src"]], "{line}");
    }
    assert!(named(&all, "packet_sent").len() > 30);
}

#[test]
fn a_trace_changes_no_byte_of_the_outcome() {
    let scenario = scenario(&format!("{INCAST}{FAULTS}"), &["workload.processes=2"]);
    let plain = run::run(&scenario);
    let json = |outcome: &srd_sim::run::Outcome| {
        let mut value = serde_json::to_value(outcome).unwrap();
        value.as_object_mut().unwrap().remove("cost");
        value.to_string()
    };
    for (name, traced) in [("none", Traced::No), ("one", Traced::Slowest(1)), ("all", Traced::All)] {
        let recording = Recording { traced, ..Recording::to(directory(&format!("bytes-{name}"))) };
        let recorded = record(&scenario, &recording);
        assert_eq!(json(&recorded.ran.outcome), json(&plain), "{name}");
    }
}

#[test]
fn a_trace_that_nobody_has_chosen_flows_for_stays_near_its_bound() {
    // 40 messages one after another on each of 8 connections: a flow's share of its connection is small.
    let text = INCAST.replace("size = \"300KB\"", "size = \"1MB\"\nrepeats = 40");
    let recording = Recording { traced: Traced::AsManyAsFit, ..Recording::to(directory("bound")) };
    let recorded = record(&scenario(&text, &["queues.capacity=1MB"]), &recording);
    let bytes = std::fs::metadata(recording.dir.join(TRACE)).unwrap().len();
    assert!((5_000_000..35_000_000).contains(&bytes), "{bytes} bytes");
    assert!(recorded.notes.iter().any(|note| note.contains("trace.jsonl has")), "{:?}", recorded.notes);
}

#[test]
fn a_story_tells_what_the_transport_decided() {
    let (recording, _) = traced("why", INCAST, &["queues.capacity=2MB"]);
    let report = report(&recording, &Question::Slowest(1));
    let (story, words) = (&report.stories[0], report.text());
    let held = story.held_back.expect("the trace has decisions");
    let sum = held.window_us + held.pace_us + held.other_us;
    assert!((sum - story.sending.idle_us).abs() < 1e-3, "{held:?} is not {}", story.sending.idle_us);
    assert!(held.other_us < 0.3 * sum, "almost all waiting has a reason: {held:?}");
    assert!(words.contains("window reduced from") && words.contains("queueing delay was"), "{words}");
    assert!(story.decisions.is_sorted_by(|a, b| a.t_us <= b.t_us));

    let (recording, _) = traced("why-lost", &format!("{INCAST}{FAULTS}"), &[]);
    let words = self::report(&recording, &Question::Slowest(99)).text();
    for word in ["counts as lost", "after it left on path", "(rule ", "declared suspect", "sent again"] {
        assert!(words.contains(word), "{word:?} is not in\n{words}");
    }
}

/// What is listed.
fn listed(recording: &Recording, wanted: &Wanted, form: Form) -> Vec<String> {
    let mut lines = Vec::new();
    let mut sink = |line: &str| {
        lines.push(line.to_string());
        Ok(())
    };
    list(&recording.dir.join(TRACE), wanted, form, &mut sink).unwrap_or_else(|error| panic!("{error}"));
    lines
}

#[test]
fn lines_are_listed_by_flow_event_and_time() {
    let (recording, _) = traced("listing", &format!("{INCAST}{FAULTS}"), &[]);
    let all = lines(&recording);
    let everything = Wanted { from_us: Some(0.0), ..Wanted::default() };
    assert_eq!(
        listed(&recording, &everything, Form::Json).len(),
        all.len() - 1,
        "all but the run have a time"
    );
    let lost = Wanted { events: vec!["packet_lost".into(), "frame_lost".into()], ..Wanted::default() };
    let count = named(&all, "packet_lost").len() + named(&all, "frame_lost").len();
    assert_eq!(listed(&recording, &lost, Form::Text).len(), count);
    let span = Wanted { flows: vec![2], from_us: Some(0.0), to_us: Some(40.0), ..Wanted::default() };
    let first = named(&all, "flow_started").into_iter().find(|line| line["flow"] == 2).unwrap();
    let own = listed(&recording, &span, Form::Json);
    assert!(
        own.iter().any(|line| line.contains("frame_sent"))
            && own.iter().any(|line| line.contains("packet_sent"))
    );
    for line in own {
        let line: Value = serde_json::from_str(&line).unwrap();
        assert!((0.0..=40.0).contains(&line["t_us"].as_f64().unwrap()));
        assert!(line["flow"] == 2 || line["src"] == first["src"] || line["dst"] == first["src"], "{line}");
    }
    let text = listed(&recording, &span, Form::Text).concat();
    assert!(text.contains(" us  packet_sent") && text.contains("psn=") && text.contains("flow 2"), "{text}");

    let path = recording.dir.join(TRACE);
    let refused = |wanted: Wanted| {
        list(&path, &wanted, Form::Text, &mut |_| Ok(())).expect_err("it is refused").to_string()
    };
    let unknown = refused(Wanted { events: vec!["packet_lots".into()], ..Wanted::default() });
    assert!(unknown.contains("`packet_lots`") && unknown.contains("packet_lost, "), "{unknown}");
    let nobody = refused(Wanted { flows: vec![77], ..Wanted::default() });
    assert!(nobody.contains("flow 77 is not in this trace, which has 1, 2, 3"), "{nobody}");
}

#[test]
fn flows_with_the_same_number_are_told_apart() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/htsim-triggers.toml");
    let scenario = Scenario::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
    let ids: BTreeSet<u32> = scenario.traffic.flows.iter().map(|flow| flow.id).collect();
    assert!(
        ids.len() < scenario.traffic.flows.len(),
        "a connection of several messages is what is to be told"
    );
    let recording = Recording { traced: Traced::All, ..Recording::to(directory("numbers")) };
    record(&scenario, &recording);
    let numbers: BTreeSet<String> =
        rows(&recording, "flows.csv").into_iter().map(|row| row["id"].clone()).collect();
    assert_eq!(numbers.len(), scenario.traffic.flows.len());
    let stories = report(&recording, &Question::Slowest(99)).stories;
    assert!(stories.len() == numbers.len() && stories.iter().all(|story| story.verdict.is_some()));
}

#[test]
fn chosen_flows_only_are_traced() {
    for (traced, expected) in [(Traced::Flows(vec![3, 5]), 2), (Traced::Slowest(1), 1)] {
        let recording = Recording { traced, ..Recording::to(directory("chosen")) };
        record(&scenario(INCAST, &[]), &recording);
        let trace = TraceFile::read(&recording.dir.join(TRACE)).unwrap();
        assert_eq!(trace.report(&Question::Slowest(9)).unwrap().stories.len(), expected);
        let missing = trace.report(&Question::Flows(vec![77])).expect_err("it is not there").to_string();
        assert!(missing.contains("flow 77 is not in this trace"), "{missing}");
    }
}

#[test]
fn spoilt_traces_are_refused_or_told_but_never_end_the_program() {
    let text = INCAST.replace("size = \"300KB\"", "size = \"40KB\"");
    let (recording, _) = traced("spoilt", &format!("{text}{FAULTS}"), &[]);
    let whole = crate::text(&recording, TRACE);
    let path = recording.dir.join("spoilt.jsonl");
    let tell = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let words = TraceFile::read(&path).and_then(|trace| trace.report(&Question::Slowest(9)));
        let _ = list(&path, &Wanted { flows: vec![2], ..Wanted::default() }, Form::Text, &mut |_| Ok(()));
        words.map(|report| report.text())
    };
    assert!(tell(&whole).is_ok());
    for name in [
        "t_us",
        "idle_us",
        "others_us",
        "leaves_us",
        "arrived_us",
        "bytes",
        "window",
        "inflight",
        "rate",
        "age",
    ] {
        for value in ["-1", "0", "1e300", "-1e300", "null", "18446744073709551615", "\"x\""] {
            let spoilt: Vec<String> = whole.lines().map(|line| with(line, name, value)).collect();
            let _ = tell(&spoilt.join("\n"));
        }
    }
    for event in ["flow_started", "flow_sent", "frame_sent", "frame_arrived", "packet_acked", "packet_lost"] {
        let less: Vec<&str> = whole.lines().filter(|line| !line.contains(&format!("\"{event}\""))).collect();
        let _ = tell(&less.join("\n"));
    }
    for part in 1..40 {
        let cut = whole.len() * part / 40;
        let error = tell(&whole[..cut]);
        assert!(error.is_err() || whole.as_bytes()[cut - 1] == b'\n' || whole.as_bytes()[cut] == b'\n');
    }
    let (first, rest) = whole.split_once('\n').unwrap();
    let backwards: Vec<&str> = std::iter::once(first).chain(rest.lines().rev()).collect();
    assert!(tell(&backwards.join("\n")).is_err_and(|error| error.to_string().contains("was never sent")));
}

/// A line with another value of a field.
fn with(line: &str, name: &str, value: &str) -> String {
    let key = format!("\"{name}\":");
    let Some(at) = line.find(&key).map(|at| at + key.len()) else { return line.to_string() };
    let end = line[at..].find([',', '}']).map_or(line.len(), |end| at + end);
    format!("{}{value}{}", &line[..at], &line[end..])
}

#[test]
fn a_trace_that_is_not_there_says_how_to_make_one() {
    let error = TraceFile::read(&directory("nothing").join(TRACE)).expect_err("it is not there").to_string();
    assert!(error.contains("trace.jsonl") && error.contains("--out"), "{error}");
}
