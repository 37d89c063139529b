//! GOAL files: what they say, in which order it is done, and what is wrong with them.

use super::net::{Net, run};
use crate::apps::goal::parse;
use crate::apps::measure::spans;
use proptest::prelude::*;
use srd_wire::Nanos;

const EXAMPLE: &str = "
num_ranks 2 // two
rank 0 {
  l1: calc 100 cpu 0; l2: send 10b to 1 tag 5 cpu 0 nic 0
  l2 requires l1 /* over
  lines */
}
rank 1 { l1: recv 10b from 0 tag 5; calc 7 cpu 1
}
";

/// Runs a file; how long each rank takes.
fn times(text: &str) -> Vec<u64> {
    let goal = parse(text, "test.goal").unwrap_or_else(|error| panic!("{error}"));
    let (ranks, _) = run(goal.scripts, Net::of(1000, 1));
    ranks.iter().map(|rank| spans(rank.marks()).next().unwrap_or(Nanos(0)).0).collect()
}

fn error(text: &str) -> String {
    parse(text, "test.goal").unwrap_err().to_string()
}

/// One rank's operations, as a file.
fn one(body: &str) -> String {
    format!("num_ranks 1\nrank 0 {{\n{body}\n}}\n")
}

#[test]
fn operations_begin_when_those_are_done_that_they_require() {
    assert_eq!(times(EXAMPLE), [100, 1110]);
    // One behind the other on a processor; at once on two.
    assert_eq!(times(&one("calc 100\ncalc 50")), [150]);
    assert_eq!(times(&one("calc 100 cpu 0\ncalc 50 cpu 1")), [100]);
    assert_eq!(times(&one("a: calc 100 cpu 0\nb: calc 50 cpu 1\nb requires a")), [150]);
    // When the other begins is soon enough for irequires.
    assert_eq!(times(&one("a: calc 100 cpu 0\nb: calc 50 cpu 1\nb irequires a")), [100]);
    assert_eq!(times(&one("b: calc 50 cpu 1\nb irequires a\nx: calc 30\na: calc 100\na requires x")), [130]);
    assert_eq!(times("num_ranks 3\nrank 1 { calc 5; }"), [0, 5, 0]);
}

#[test]
fn a_processor_that_computes_sends_later() {
    let text = |cpu| {
        format!(
            "num_ranks 2\nrank 0 {{\na: calc 10\nc: calc 500\nc requires a\ns: send 1b to 1 cpu {cpu}\ns requires c0\nc0: calc 20 cpu 2\n}}\nrank 1 {{ recv 1b from 0; }}"
        )
    };
    assert_eq!(times(&text(0))[1], 510 + 1001);
    assert_eq!(times(&text(1))[1], 20 + 1001);
}

#[test]
fn a_binary_tree_takes_its_depth() {
    // A broadcast as LogGOPSim's schedule generator writes it, here without the cost of sending.
    let mut text = "num_ranks 32\n".to_string();
    for rank in 0..32u32 {
        text += &format!("rank {rank} {{\n");
        if rank > 0 {
            text += &format!("r: recv 1b from {} tag 0\n", rank & !(1 << rank.ilog2()));
        }
        let first = if rank == 0 { 0 } else { rank.ilog2() + 1 };
        for bit in first..5 {
            text += &format!("s{bit}: send 1b to {} tag 0\n", rank | 1 << bit);
            if rank > 0 {
                text += &format!("s{bit} requires r\n");
            }
        }
        text += "}\n";
    }
    let times = times(&text);
    assert!((0..32u32).all(|rank| times[rank as usize] == 1001 * u64::from(rank.count_ones())), "{times:?}");
}

#[test]
fn faults_are_told_with_their_line() {
    for (text, message) in [
        ("", "there is no `num_ranks N`"),
        ("rank 0 {\n}", "test.goal:1: write `num_ranks N` before the first rank"),
        ("num_ranks 0", "test.goal:1: 0 ranks"),
        ("num_ranks 70000", "test.goal:1: 70000 cannot be: the number of ranks is at most 65536"),
        ("num_ranks 2\nnum_ranks 2", "test.goal:2: `num_ranks` has been given already"),
        ("num_ranks 2\n\nrank 2 {\n}", "test.goal:3: 2 cannot be: the rank is at most 1"),
        ("num_ranks 1\nrank 0 {\ncalc 1\n", "test.goal:2: rank 0 has no end"),
        ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", "test.goal:4: rank 0 has been given already"),
        ("num_ranks 1\n/* no end\n", "test.goal:2: the comment that begins here"),
        ("num_ranks 1\nrank 0 {\ncalc ?\n}", "test.goal:3: `?` cannot be here"),
        ("num_ranks 1\nrank 0 {\ncalc\n}", "test.goal:3: the line ends where a number, the nanoseconds,"),
        ("num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}", "is too large"),
        ("num_ranks 2\nrank 0 {\nsend 10 to 1\n}", "test.goal:3: there is `to` where `b` must be"),
        ("num_ranks 2\nrank 0 {\nsend 10b from 1\n}", "test.goal:3: there is `from` where `to` must be"),
        ("num_ranks 2\nrank 0 {\nrecv 10b from -1\n}", "test.goal:3: any (`-1`) cannot be"),
        ("num_ranks 2\nrank 0 {\nsend 1b to 0\n}", "test.goal:3: rank 0 has a message for itself"),
        (
            "num_ranks 2\nrank 0 {\nsend 1b to 1 tag 3\n}",
            "rank 0 sends 1 message with tag 3 to rank 1, which has 0 receives",
        ),
        (
            "num_ranks 2\nrank 0 {\nsend 20b to 1\n}\nrank 1 {\nrecv 10b from 0\n}",
            "rank 0 sends 20 bytes with tag 0 to rank 1, which receives 10",
        ),
        ("num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}", "test.goal:4: label `a` is there already"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}", "test.goal:4: there is no label `b`"),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb irequires a\n}",
            "test.goal:3: this never begins",
        ),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\na wants a\n}",
            "test.goal:4: there is `wants` where `:`, `requires` or",
        ),
        ("num_ranks 1\nrank 0 {\ncalc 1 tag 2\n}", "test.goal:3: there is `tag` where `cpu`"),
    ] {
        let told = error(text);
        assert!(told.contains(message), "{text:?}: {told}, not {message}");
    }
    let notes = parse("num_ranks 1\nrank 0 {\ncalc 1 nic 2\n}", "a.goal").unwrap().notes;
    assert_eq!(notes, ["a.goal:3: `nic` is passed over: a host has one network card"]);
}

/// Words of the format, in any order.
fn scrambled() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "num_ranks",
        "2",
        "rank",
        "0",
        "1",
        "{",
        "}",
        "\n",
        ";",
        "l1",
        ":",
        "send",
        "recv",
        "calc",
        "10b",
        "b",
        "to",
        "from",
        "tag",
        "cpu",
        "nic",
        "requires",
        "irequires",
        "-1",
        "//",
        "/*",
        "*/",
        "\u{e9}",
        "999999999999999999999",
        "l2",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_input_is_too_strange(text in any::<String>(), words in scrambled()) {
        let _ = parse(&text, "a");
        let _ = parse(&words, "a");
    }

    #[test]
    fn a_file_with_a_fault_is_read_or_refused(at: prop::sample::Index, byte: u8, cut: bool) {
        let mut text = EXAMPLE.as_bytes().to_vec();
        let at = at.index(text.len());
        match cut {
            true => text.truncate(at),
            false => text[at] = byte,
        }
        if let Ok(goal) = parse(&String::from_utf8_lossy(&text), "a") {
            run(goal.scripts, Net::of(1000, 1));
        }
    }

    /// Each operation may wait for some before it; so all ends, whatever waits for what.
    #[test]
    fn graphs_without_circles_end(
        ops in prop::collection::vec((0u64..200, 0u8..3, prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..4)), 1..40),
    ) {
        let mut body = String::new();
        let (mut done, mut work) = (vec![0u64; ops.len()], [0u64; 3]);
        for (n, (span, cpu, after)) in ops.iter().enumerate() {
            body += &format!("l{n}: calc {span} cpu {cpu}\n");
            let mut earliest = 0;
            for (on, begun) in after.iter().filter(|_| n > 0) {
                let on = on.index(n);
                body += &format!("l{n} {} l{on}\n", if *begun { "irequires" } else { "requires" });
                if !begun {
                    earliest = earliest.max(done[on]);
                }
            }
            done[n] = earliest + span;
            work[*cpu as usize] += span;
        }
        let took = times(&one(&body))[0];
        // Not before the longest chain, nor the busiest processor, and never idle all at once.
        prop_assert!(took >= done.iter().copied().max().unwrap().max(work.into_iter().max().unwrap()));
        prop_assert!(took <= work.iter().sum());
    }
}
