//! A GPU's memory in the software EFA, over a driver that stands in for one (`tests/accelerator/libcuda.c`).

mod built;
#[path = "../../../tests/accelerator/stub.rs"]
mod stub;

/// Runs a test of `tests/c/accelerator.c` with that driver, which lies beside the two libraries, where the loader looks.
fn run(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    if !built::headers() {
        return None;
    }
    stub::make(built::libraries());
    built::run("accelerator", test, variables)
}

#[test]
fn a_gpus_memory_is_sent_received_written_and_read() {
    run("data", &[]);
}

#[test]
fn so_it_is_with_two_percent_of_loss() {
    run("data", &[("SRD_FAULT", "loss=0.02,seed=7")]);
}

#[test]
fn memory_that_is_freed_fails_its_own_requests_only() {
    run("freed", &[]);
}

#[test]
fn what_cannot_be_registered_is_refused_and_named() {
    let Some(said) = run("registrations", &[]) else { return };
    assert!(said.contains("is no memory that the GPU's driver knows"), "{said}");
    assert!(said.contains("its exporter does not let the CPU map it"), "{said}");
}
