//! docs/design/efa-verbs.md, "Traps", each held by a test. (8: also `boundary.rs`; 10 and 11: `abi.rs`.)

mod built;

fn run(test: &str) {
    built::run("traps", test, &[]);
}

#[test]
fn trap_1_posting_between_start_poll_and_end_poll_does_not_deadlock() {
    run("posting_while_polling");
}

#[test]
fn trap_2_nothing_completes_after_destroy_qp() {
    run("silence_after_destroy");
}

#[test]
fn trap_3_queue_pair_numbers_are_unique_in_a_masked_table() {
    run("queue_pair_numbers");
}

#[test]
fn trap_4_completion_queues_are_as_deep_as_libfabric_wants() {
    run("deep_queues");
}

#[test]
fn trap_5_the_pci_address_is_none_unless_set() {
    run("pci_address");
    built::run("traps", "pci_address", &[("SRD_EFA_PCI", "0000:9a:1f.0")]);
}

#[test]
fn trap_6_names_are_those_that_programs_look_for() {
    run("names");
}

#[test]
fn trap_7_queue_pairs_that_efa_has_not_are_not_supported() {
    run("other_queue_pairs");
}

#[test]
fn trap_8_structures_of_other_releases_are_understood() {
    run("other_structures");
}

#[test]
fn trap_9_contexts_are_independent() {
    run("contexts");
}

#[test]
fn trap_9_a_forked_child_harms_nobody_and_may_open_its_own() {
    run("forked_children");
}

#[test]
fn the_direct_data_path_can_be_switched_off() {
    built::run("traps", "direct_path_is_off", &[("SRD_EFA_DIRECT", "off")]);
}

#[test]
fn thread_and_parent_domains_are_counted() {
    run("domains");
}

#[test]
fn profiles_offer_what_their_generation_has() {
    for profile in ["gen1", "gen2", "gen3"] {
        built::run("traps", "profile", &[("SRD_EFA_PROFILE", profile)]);
    }
}

/// Nothing may stay behind in the directory for temporary files but the empty one that all processes of the user share.
#[test]
fn the_private_files_go_with_the_process() {
    if !built::headers() {
        return;
    }
    let runtime = built::scratch().join(format!("runtime-{}", std::process::id()));
    std::fs::create_dir_all(&runtime).unwrap();
    built::run("traps", "names", &[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())]);
    built::run("traps", "forked_children", &[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())]);
    let left = |directory: &std::path::Path| -> Vec<_> {
        std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()).collect()
    };
    let shared = runtime.join("srd");
    assert_eq!(left(&runtime), std::slice::from_ref(&shared));
    assert!(left(&shared).is_empty(), "sockets for `srd top`: {:?}", left(&shared));
}
