//! What would make a program go past the software EFA: another libibverbs in front, variables of MPI stacks and
//! libfabric that choose something else.

use super::finding::Finding;
use crate::libraries;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A variable of another program, the values with which it passes SRD by, and what to do.
struct Trap {
    name: &'static str,
    /// Whether this value is harmful.
    harms: fn(&str) -> bool,
    what: &'static str,
    mend: &'static str,
}

const TRAPS: [Trap; 8] = [
    Trap {
        name: "FI_EFA_ENABLE_SHM_TRANSFER",
        harms: |value| !matches!(value, "0" | "false" | "no"),
        what: "messages between processes of one host go through shared memory, past EFA",
        mend: "export FI_EFA_ENABLE_SHM_TRANSFER=0 (srd run and srd env do)",
    },
    Trap {
        name: "FI_PROVIDER",
        harms: |value| !value.split([',', ';']).any(|provider| provider == "efa"),
        what: "libfabric does not use its efa provider",
        mend: "export FI_PROVIDER=efa (srd run and srd env do)",
    },
    Trap {
        name: "FI_PROVIDER_PATH",
        harms: |_| true,
        what: "libfabric takes its providers from there; an efa provider must be among them",
        mend: "unset FI_PROVIDER_PATH",
    },
    Trap {
        name: "UCX_TLS",
        harms: |value| {
            !value.split(',').any(|transport| matches!(transport, "srd" | "all" | "ib" | "rc" | "ud"))
        },
        what: "UCX does not use SRD",
        mend: "export UCX_TLS=srd,self",
    },
    Trap {
        name: "OMPI_MCA_pml",
        harms: |value| value == "ob1",
        what: "Open MPI uses its own TCP transport, not libfabric",
        mend: "export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi",
    },
    Trap {
        name: "MPIR_CVAR_CH4_NETMOD",
        harms: |value| value == "ucx",
        what: "MPICH uses UCX, not libfabric",
        mend: "export MPIR_CVAR_CH4_NETMOD=ofi",
    },
    Trap {
        name: "I_MPI_FABRICS",
        harms: |value| value == "shm",
        what: "Intel MPI uses shared memory only",
        mend: "export I_MPI_FABRICS=ofi",
    },
    Trap {
        name: "I_MPI_OFI_LIBRARY_INTERNAL",
        harms: |value| value != "0",
        what: "Intel MPI brings its own libfabric, whose efa provider may not be there",
        mend: "export I_MPI_OFI_LIBRARY_INTERNAL=0",
    },
];

/// An MPI stack that carries messages between ranks of one host through shared memory, unless a variable keeps it from
/// that.
struct Local {
    stack: &'static str,
    variable: &'static str,
    /// The value that turns it off.
    off: &'static str,
    /// Whether a value turns it off.
    turns_off: fn(&str) -> bool,
}

const LOCALS: [Local; 3] = [
    Local {
        stack: "MPICH",
        variable: "MPIR_CVAR_NOLOCAL",
        off: "1",
        turns_off: |value| matches!(value.to_lowercase().as_str(), "1" | "on" | "yes" | "true"),
    },
    Local {
        stack: "Intel MPI",
        variable: "I_MPI_FABRICS",
        off: "ofi",
        turns_off: |value| !value.contains("shm"),
    },
    Local {
        stack: "UCX",
        variable: "UCX_TLS",
        off: "srd,self",
        turns_off: |value| value.split(',').all(|transport| matches!(transport, "srd" | "self")),
    },
];

/// Looks at the libraries and at the variables.
pub fn examine() -> Vec<Finding> {
    let mut findings = Vec::new();
    match libraries::locate() {
        Ok(directory) => findings.push(loaded(&directory)),
        Err(error) => {
            let text = format!("{error:#}");
            let (what, mend) = text.split_once('\n').unwrap_or((&text, "make build"));
            findings.push(Finding::warn("software EFA", what).mend(mend.trim().replace("\n  ", "; ")));
        }
    }
    let set = TRAPS.iter().filter_map(|trap| {
        let value = std::env::var(trap.name).ok().filter(|value| (trap.harms)(value))?;
        Some(Finding::warn("bypass", format!("{}={value}: {}", trap.name, trap.what)).mend(trap.mend))
    });
    let before = findings.len();
    findings.extend(set);
    if findings.len() == before {
        findings.push(Finding::ok(
            "bypass",
            "no variable makes libfabric, UCX or MPI go another way between hosts",
        ));
    }
    findings.extend(shared_memory(&|name| std::env::var(name).ok()));
    findings
}

/// Which MPI stacks would not send over SRD between ranks of one host. That is usually what one wants, and surprises
/// only who tries SRD on one host.
fn shared_memory(variable: &dyn Fn(&str) -> Option<String>) -> Option<Finding> {
    let stacks: Vec<String> = LOCALS
        .iter()
        .filter(|local| !variable(local.variable).is_some_and(|value| (local.turns_off)(&value)))
        .map(|local| format!("{} (unless {}={})", local.stack, local.variable, local.off))
        .collect();
    (!stacks.is_empty()).then(|| {
        let stacks = stacks.join(", ");
        Finding::ok(
            "shared memory",
            format!("ranks of one host may use it instead of SRD: {stacks}; SRD_STATS tells which it was"),
        )
    })
}

/// Which libibverbs a program started now would get.
fn loaded(directory: &Path) -> Finding {
    let check = "software EFA";
    let ours = directory.join(libraries::NAMES[0]);
    match resolved(libraries::NAMES[0]) {
        Some(found) if same_file(&found, &ours) => {
            Finding::ok(check, format!("programs load {}", found.display()))
        }
        Some(found) => Finding::ok(
            check,
            format!("in {}; programs started without srd run load {}", directory.display(), found.display()),
        ),
        None => {
            Finding::ok(check, format!("in {}; programs find it by srd run or srd env", directory.display()))
        }
    }
}

/// The file that the dynamic loader takes for a library name, as it says itself: it lists what it would load for
/// this very command with the library preloaded.
fn resolved(library: &str) -> Option<PathBuf> {
    let output = Command::new(std::env::current_exe().ok()?)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_PRELOAD", library)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| {
        let (name, file) = line.trim().split_once(" => ")?;
        (name == library).then(|| PathBuf::from(file.split(" (").next().unwrap_or(file)))
    })
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_tells_what_it_would_load() {
        // Not every name is preloaded in another form: this one every Rust program needs.
        let found = resolved("libc.so.6").expect("the loader lists what it loads");
        assert!(found.is_file(), "{found:?}");
        assert_eq!(resolved("libno-such-library.so.7"), None);
    }

    #[test]
    fn only_values_that_bypass_are_traps() {
        let harms =
            |name: &str, value: &str| (TRAPS.iter().find(|trap| trap.name == name).unwrap().harms)(value);
        assert!(harms("FI_EFA_ENABLE_SHM_TRANSFER", "1"));
        assert!(!harms("FI_EFA_ENABLE_SHM_TRANSFER", "0"));
        assert!(harms("FI_PROVIDER", "tcp;ofi_rxm"));
        assert!(!harms("FI_PROVIDER", "efa"));
    }

    #[test]
    fn stacks_that_may_use_shared_memory_are_named_until_they_may_not() {
        let with = |set: &[(&str, &str)]| {
            let value = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            shared_memory(&value).map(|finding| finding.what)
        };
        let all = with(&[]).unwrap();
        assert!(LOCALS.iter().all(|local| all.contains(local.stack)), "{all}");
        let off = LOCALS.map(|local| (local.variable, local.off));
        assert_eq!(with(&off), None);
        let rest = with(&[off[0], ("I_MPI_FABRICS", "shm:ofi"), ("UCX_TLS", "all")]).unwrap();
        assert!(!rest.contains("MPICH") && rest.contains("Intel MPI") && rest.contains("UCX"), "{rest}");
    }
}
