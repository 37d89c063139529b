//! FI_RMA_EVENT: counters of what peers do, as a C program sees them (`counted.c`).

mod built;

use std::process::Command;

/// Runs `counted` with every kind of binding and of keys.
fn counts(variables: &[(&str, &str)]) {
    if !built::headers() {
        return;
    }
    let text = include_str!("counted.c");
    let program =
        built::compile_text(&format!("counted-{}", variables.len()), text, &["-lfabric", "-lpthread"]);
    let program = program.unwrap_or_else(|errors| panic!("counted.c: {errors}"));
    for bound_to in ["mr", "endpoint", "late"] {
        for keys in ["own", "provider"] {
            let mut command: Command = built::command(program.to_str().unwrap());
            command.args([bound_to, keys]).envs(variables.iter().copied());
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success(), "{variables:?} {program:?} {bound_to} {keys}: {said}");
        }
    }
}

#[test]
fn what_peers_do_is_counted_once_and_when_it_is_there() {
    counts(&[]);
}

#[test]
fn also_over_the_network() {
    counts(&[("SRD_SHM", "off")]);
}

#[test]
fn also_where_packets_are_lost() {
    counts(&[("SRD_SHM", "off"), ("SRD_FAULT", "loss=0.02,seed=1")]);
}

#[test]
fn also_with_several_engines() {
    counts(&[("SRD_SHM", "off"), ("SRD_ENGINES", "2"), ("SRD_FAULT", "reorder=0.1,seed=2")]);
}
