//! Completion counters, driven by a C program that looks at nothing else.

mod built;

fn run(test: &str) {
    built::run("comp_cntr", test, &[]);
}

#[test]
fn each_kind_of_operation_is_counted_though_nobody_polls() {
    run("work_requests");
}

#[test]
fn so_are_its_bytes() {
    run("bytes");
}

#[test]
fn they_are_when_packets_are_lost() {
    for test in ["bytes", "memory"] {
        built::run("comp_cntr", test, &[("SRD_FAULT", "loss=0.02,dup=0.01,reorder=0.05,seed=7")]);
    }
}

#[test]
fn what_fails_is_counted_apart() {
    run("errors");
}

#[test]
fn programs_need_look_at_their_own_memory_only() {
    run("memory");
}

/// They have a thread of their own, with queues in memory or without.
#[test]
fn counters_need_nobody_else_to_move_packets() {
    let alone = ("SRD_PROGRESS", "inline");
    built::run("comp_cntr", "bytes", &[alone]);
    built::run("comp_cntr", "memory", &[alone, ("SRD_EFA_DIRECT", "off")]);
}

#[test]
fn what_efa_refuses_is_refused() {
    run("refusals");
    built::run("comp_cntr", "refusals", &[("SRD_EFA_STRICT", "1")]);
    built::run("comp_cntr", "refusals", &[("SRD_EFA_PROFILE", "gen1")]);
}
