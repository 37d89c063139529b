//! Errors: completion statuses with EFA's numbers, asynchronous events, and calls that are refused.

mod built;

#[test]
fn every_error_has_its_status_and_fails_its_own_request_only() {
    built::run("errors", "statuses", &[]);
}

#[test]
fn rdma_from_a_requester_without_address_handle_is_refused() {
    built::run("errors", "unknown_requester", &[]);
}

#[test]
fn memory_that_is_unmapped_after_registering_fails_its_own_requests_only() {
    built::run("errors", "unmapped", &[]);
}

#[test]
fn memory_that_is_protected_is_not_registered_for_more_than_it_permits() {
    built::run("errors", "protected", &[]);
}

#[test]
fn a_peer_that_dies_is_reported() {
    built::run("errors", "death", &[("SRD_PEER_TIMEOUT_S", "1")]);
}

#[test]
fn wrong_calls_are_refused_with_the_errors_of_libefa_and_its_driver() {
    built::run("errors", "refusals", &[]);
}

#[test]
fn null_is_an_error_and_no_crash() {
    built::run("errors", "nulls", &[]);
}

#[test]
fn an_impossible_setting_gives_no_device_and_is_named() {
    for (name, value, allowed) in [
        ("SRD_MTU", "abc", "576 to 65535"),
        ("SRD_EFA_PROFILE", "gen9", "gen1, gen2, gen3"),
        ("SRD_EFA_PCI", "zzz", "domain:bus:device.function"),
        ("SRD_EFA_PCI", "0000:9a:1f.0,zzz", "domain:bus:device.function"),
    ] {
        let Some(said) = built::run("errors", "no_device", &[(name, value)]) else { return };
        assert!(said.contains(&format!("no device: {name}=\"{value}\" is not possible")), "{said}");
        assert!(said.contains(allowed), "{said}");
    }
}

#[test]
fn a_completion_queue_that_overflows_says_so() {
    built::run("errors", "overrun", &[]);
}
