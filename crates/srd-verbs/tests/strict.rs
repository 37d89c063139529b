//! `SRD_EFA_STRICT` and `SRD_EFA_LOOPBACK`: each rule refuses when it is set, and does not when it is not. A program that keeps the rules
//! runs as before.

mod built;

/// Runs a test of the C program with the variable and without.
fn both(test: &str) {
    built::run("strict", test, &[("SRD_EFA_STRICT", "0")]);
    built::run("strict", test, &[("SRD_EFA_STRICT", "1")]);
}

#[test]
fn a_region_begins_where_its_iova_does_and_has_two_keys() {
    both("regions");
}

#[test]
fn an_address_handle_is_global_and_of_the_first_gid() {
    both("handles");
}

#[test]
fn queue_keys_are_not_privileged_and_inline_writes_halve_a_queue() {
    both("queue_pairs");
}

#[test]
fn neither_key_of_a_region_stands_for_the_other() {
    both("keys");
}

#[test]
fn rights_of_regions_are_always_looked_at() {
    both("rights");
}

#[test]
fn a_slot_is_free_when_its_own_completion_has_been_polled() {
    both("slots");
}

#[test]
fn each_refusal_counts_as_a_retry() {
    let retries = |strict: &str| {
        let file = built::scratch().join(format!("retries-{}-{strict}.json", std::process::id()));
        let variables = [("SRD_EFA_STRICT", strict), ("SRD_STATS", file.to_str().unwrap())];
        built::run("strict", "retries", &variables)?;
        let text = std::fs::read_to_string(&file).unwrap();
        let (_, after) = text.split_once("\"rnr_retries\":").expect("a counter");
        let number: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
        Some(number.parse::<u64>().unwrap())
    };
    let (Some(strict), Some(lenient)) = (retries("1"), retries("0")) else { return };
    assert_eq!(strict, 2);
    assert!(lenient > 60, "{lenient}");
}

#[test]
fn without_loopback_what_goes_to_the_own_address_never_completes() {
    built::run("strict", "no_loopback", &[("SRD_EFA_LOOPBACK", "off")]);
}

#[test]
fn programs_that_keep_the_rules_run_as_before() {
    for (program, test) in [
        ("transfer", "floods"),
        ("transfer", "rdma"),
        ("transfer", "datagrams"),
        ("direct", "operations"),
        ("direct", "flows"),
        ("errors", "statuses"),
        ("errors", "refusals"),
    ] {
        let variables = [("SRD_EFA_STRICT", "1"), ("MESSAGES", "5000")];
        built::run(program, test, &variables);
    }
}

#[test]
fn queues_in_memory_are_not_filled_without_ringing_and_all_is_signalled() {
    for (strict, ends) in [("0", false), ("1", true)] {
        let Some(text) = built::run("direct", "strict", &[("SRD_EFA_STRICT", strict)]) else { return };
        assert_eq!(text.contains("more sends are written than may be"), ends, "{text}");
    }
}

#[test]
fn an_impossible_setting_is_named() {
    for name in ["SRD_EFA_STRICT", "SRD_EFA_LOOPBACK"] {
        let Some(said) = built::run("errors", "no_device", &[(name, "maybe")]) else { return };
        let expected = format!("no device: {name}=\"maybe\" is not possible; allowed: on, off, 1, 0");
        assert!(said.contains(&expected), "{said}");
    }
}
