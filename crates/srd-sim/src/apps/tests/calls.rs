//! Programs as their recorded calls: when what is done, on how many copies, and what is wrong with a table.

use super::net::{Net, run};
use crate::apps::calls::parse;
use crate::apps::measure::spans;
use srd_virtual::calls::COLUMNS;
use srd_wire::Nanos;

/// A table of rows `rank call peer source bytes comm before_us done_in`, a dash for nothing.
fn table(rows: &str) -> String {
    let row = |row: &str| {
        let cells: Vec<&str> =
            row.split_whitespace().map(|cell| if cell == "-" { "" } else { cell }).collect();
        let [rank, call, peer, source, bytes, comm, before, done_in] = cells[..] else { panic!("{row}") };
        format!("0,{rank},0,MPI_{call},{peer},{source},{bytes},{comm},0,0,{before},0,{done_in}\n")
    };
    COLUMNS.join(",") + "\n" + &rows.trim().lines().map(row).collect::<String>()
}

/// How long each rank takes, and how many messages there are.
fn times(rows: &str, copies: u32) -> (Vec<u64>, u64) {
    let recorded = parse(&table(rows), "calls.csv").unwrap_or_else(|error| panic!("{error}"));
    let (ranks, net) = run(recorded.scripts(copies).unwrap(), Net::of(1000, 1));
    assert!(ranks.iter().all(|rank| rank.is_done()), "{ranks:?}");
    (ranks.iter().map(|rank| spans(rank.marks()).next().unwrap_or(Nanos(0)).0).collect(), net.messages)
}

fn error(text: &str) -> String {
    match parse(text, "calls.csv") {
        Ok(_) => panic!("it is read: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn messages_stay_within_a_copy_and_computing_comes_before_its_call() {
    let rows = "
        0 Send 1 - 10 0 2 -
        0 Recv 1 - 10 0 0 -
        0 Finalize - - - 0 3 -
        1 Recv 0 - 99 0 0 -
        1 Send 0 - 10 0 0.5 -
        1 Finalize - - - 0 0 -";
    let once = [2000 + 1010 + 500 + 1010 + 3000, 2000 + 1010 + 500];
    assert_eq!(times(rows, 1), (once.to_vec(), 2));
    assert_eq!(times(rows, 3), (once.repeat(3), 6));
}

#[test]
fn what_is_begun_goes_on_until_the_call_in_which_its_end_was_seen() {
    // The receive is over 1010 after the other has sent, at 5000; only the last call waits for it.
    let rows = |seen_in: &str| {
        format!(
            "
        0 Irecv 1 - 10 0 0 {seen_in}
        0 Isend 1 - 10 0 0 2
        0 Wait - - - 0 0 -
        0 Send 1 - 20 0 1 -
        0 Testall - - - 0 0 -
        0 Finalize - - - 0 1 -
        1 Recv 0 - 10 0 0 -
        1 Recv 0 - 20 0 0 -
        1 Send 0 - 10 0 5 -"
        )
    };
    assert_eq!(times(&rows("4"), 1).0[1], 1000 + 1020 + 5000);
    assert_eq!(times(&rows("4"), 1).0[0], 1000 + 1020 + 5000 + 1010 + 1000);
    // Nobody looks at it: the rank ends when it has.
    assert_eq!(times(&rows("-"), 1).0[0], 1000 + 1020 + 5000 + 1010);
}

#[test]
fn a_receive_from_anyone_takes_a_message_that_no_other_one_names() {
    let rows = "
        0 Recv any - 10 0 0 -
        0 Recv 2 - 10 0 0 -
        0 Mrecv - - 10 0 0 -
        1 Send 0 - 10 0 0 -
        2 Send 0 - 10 0 0 -
        2 Sendrecv 0 any 10 0 0 -
        3 Send 2 - 10 0 0 -";
    assert_eq!(times(rows, 2).1, 8);
    // To and from nobody, and to itself.
    assert_eq!(
        times("0 Sendrecv - - 10 0 1 -\n0 Isend 0 - 5 0 0 -\n0 Recv 0 - 5 0 0 -", 2),
        (vec![1000; 2], 0)
    );
}

#[test]
fn operations_of_all_ranks_are_of_all_copies_and_others_of_each() {
    let barrier = |comm: u32, ranks: u32| {
        (0..ranks).map(|rank| format!("{rank} Barrier - - - {comm} 0 -\n")).collect::<String>()
    };
    assert_eq!(times(&barrier(0, 4), 1), (vec![2000; 4], 8));
    assert_eq!(times(&barrier(0, 4), 4), (vec![4000; 16], 16 * 4));
    assert_eq!(times(&barrier(0, 3), 4).1, 12 * 4);
    assert_eq!(times(&barrier(77, 4), 4), (vec![2000; 16], 16 * 2));
    // The root of all is one rank, that of others one in each copy.
    let tree = |comm: u32| (0..4).map(|rank| format!("{rank} Bcast 1 - 8 {comm} 0 -\n")).collect::<String>();
    assert_eq!((times(&tree(0), 4).1, times(&tree(77), 4).1), (15, 4 * 3));
    // One that does not wait has begun when the next call comes; a rank that computes sends its second round later.
    let beside = |rank| format!("{rank} Ibarrier - - - 0 0 1\n{rank} Wait - - - 0 7 -\n");
    assert_eq!(times(&(beside(0) + &beside(1)), 2).0, [8000; 4]);
}

#[test]
fn every_collective_function_is_played() {
    for name in [
        "Bcast",
        "Reduce",
        "Gather",
        "Gatherv",
        "Scatter",
        "Scatterv",
        "Allgather",
        "Allgatherv",
        "Allreduce",
        "Alltoall",
        "Alltoallv",
        "Reduce_scatter",
        "Reduce_scatter_block",
        "Scan",
        "Exscan",
        "Comm_dup",
        "Cart_create",
    ] {
        let rows: String = (0..5).map(|rank| format!("{rank} {name} 2 - 400 0 0 -\n")).collect();
        let (times, messages) = times(&rows, 3);
        assert!(times.iter().all(|time| *time < 40_000) && messages >= 14, "{name}: {times:?}, {messages}");
    }
}

#[test]
fn tables_that_cannot_be_played_say_why() {
    let told = |rows: &str, what: &str| {
        let error = error(&table(rows));
        assert!(error.contains(what), "{error}");
    };
    assert!(
        error("a,b\n1,2\n").contains("calls.csv:1: `a,b` is not the table's first line: name a calls.csv of")
    );
    assert!(error(&COLUMNS.join(",")).contains("there are no calls"));
    assert!(
        error(&(table("0 Barrier - - - 0 0 -") + "0,1\n"))
            .contains("calls.csv:3: 2 cells, where there are 13")
    );
    let of_another_job = table("0 Barrier - - - 0 0 -").replace("\n0,0,", "\n1,0,");
    assert!(error(&of_another_job).contains("calls.csv:2: several jobs are not played: record one alone"));
    told("0 Frobnicate - - - 0 0 -", "calls.csv:2: `MPI_Frobnicate` is no call of MPI that is noted");
    told(
        "0 Put 1 - 8 0 0 -",
        "MPI_Put of rank 0 cannot be played: one-sided operations are not played. Record with",
    );
    told("0 Start - - - 0 0 -", "persistent requests");
    told("0 Bcast 0 - 8 any 0 -", "joins two groups");
    told("1 Barrier - - - 0 0 -", "rank 0 has no calls");
    told("0 Send 1 - 8 0 0 -\n1 Finalize - - - 0 0 -", "1 message of rank 0 to rank 1");
    told("0 Recv 1 - 8 0 0 -\n1 Finalize - - - 0 0 -", "receives from rank 1, and no message is left");
    told("0 Recv any - 8 0 0 -\n1 Finalize - - - 0 0 -", "receives from anyone, and no message is left");
    told("0 Barrier - - - 0 0 -\n1 Finalize - - - 0 0 -", "1 rank of 2 have made this operation");
    told(
        "0 Barrier - - - 0 0 -\n1 Bcast 0 - 8 0 0 -",
        "calls.csv:3: this MPI_Bcast of rank 1 is another operation",
    );
    told("0 Bcast 3 - 8 0 0 -", "rank 3 is its root, and takes no part");
    told("0 Irecv 0 - 8 0 0 0", "0 is no later call of rank 0");
}
