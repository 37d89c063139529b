//! What would make a program go past OpenSRD: another libibverbs in front, variables of MPI stacks and libfabric that
//! choose something else.

use super::device;
use super::finding::Finding;
use crate::consumer;
use crate::libraries::Libraries;
use std::path::{Path, PathBuf};
use std::process::Command;

/// By which interface a program reaches OpenSRD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Efa,
    Provider,
    ProviderAsEfa,
}

/// A variable of another program, the values with which it passes the software EFA by, and what to do.
struct Trap {
    name: &'static str,
    /// Whether this value is harmful.
    harms: fn(&str) -> bool,
    what: &'static str,
    mend: &'static str,
}

const TRAPS: [Trap; 10] = [
    Trap {
        name: "LD_PRELOAD",
        harms: consumer::preloads_another,
        what: "programs take that libibverbs, and find no software EFA",
        mend: "unset LD_PRELOAD, or let srd run --efa --preload put its own in front",
    },
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
        mend: "export FI_PROVIDER=efa (srd run and srd env do), or use srd run --provider",
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
        name: "OMPI_MCA_mtl",
        harms: |value| match value.strip_prefix('^') {
            Some(but) => but.split(',').any(|mtl| mtl == "ofi"),
            None => !value.split(',').any(|mtl| mtl == "ofi"),
        },
        what: "Open MPI does not use libfabric",
        mend: "export OMPI_MCA_mtl=ofi",
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

/// Looks at the software EFA and at the variables.
pub fn examine() -> Vec<Finding> {
    let variable = |name: &str| std::env::var(name).ok();
    let mut findings = vec![match Libraries::Efa.locate() {
        Ok(directory) => loaded(&directory),
        Err(error) => missing("software EFA", &error),
    }];
    let way = way(&variable);
    let before = findings.len();
    findings.extend(traps(way, &variable));
    if findings.len() == before {
        findings.push(Finding::ok(
            "bypass",
            format!("no variable makes programs go another way between hosts than {}", way.name()),
        ));
    }
    findings.extend(shared_memory(&variable));
    findings
}

/// Libraries that are not there, as a warning.
pub fn missing(check: &'static str, error: &anyhow::Error) -> Finding {
    let text = format!("{error:#}");
    let (what, mend) = text.split_once('\n').unwrap_or((&text, "make build"));
    Finding::warn(check, what).mend(mend.trim().replace("\n  ", "; "))
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Efa => "the software EFA",
            Way::Provider => "the libfabric provider srd",
            Way::ProviderAsEfa => "the libfabric provider srd under the name efa",
        }
    }
}

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The way that the environment is made for: libfabric is told where one of our providers is, or asked for it by name.
fn way(variable: Environment) -> Way {
    let path = variable("FI_PROVIDER_PATH").unwrap_or_default();
    if variable("FI_PROVIDER").as_deref() == Some("srd") || leads_to(&path, Libraries::Provider) {
        Way::Provider
    } else if leads_to(&path, Libraries::ProviderAsEfa) {
        Way::ProviderAsEfa
    } else {
        Way::Efa
    }
}

/// Whether a library is in a directory of `FI_PROVIDER_PATH`, or named there behind a plus sign.
pub fn leads_to(path: &str, libraries: Libraries) -> bool {
    let name = libraries.names()[0];
    path.split(':').any(|entry| match entry.strip_prefix('+') {
        Some(file) => Path::new(file).ends_with(name) && Path::new(file).is_file(),
        None => Path::new(entry).join(name).is_file(),
    })
}

/// What is set against a way.
fn traps(way: Way, variable: Environment) -> Vec<Finding> {
    let against =
        |name: &str, value: &str, what: &str| Finding::warn("bypass", format!("{name}={value}: {what}"));
    match way {
        Way::Efa => TRAPS
            .iter()
            .filter_map(|trap| {
                let value = variable(trap.name).filter(|value| (trap.harms)(value))?;
                Some(against(trap.name, &value, trap.what).mend(trap.mend))
            })
            .collect(),
        Way::Provider => consumer::SETTINGS
            .iter()
            .filter_map(|setting| {
                let value = variable(setting.name).filter(|value| setting.is_against(value))?;
                let mend = format!("export {}={} (srd run --provider does)", setting.name, setting.value);
                Some(against(setting.name, &value, setting.otherwise).mend(mend))
            })
            .collect(),
        Way::ProviderAsEfa => {
            let value = variable("FI_PROVIDER").filter(|value| value != "efa");
            let what = "libfabric does not use the provider";
            value
                .map(|value| against("FI_PROVIDER", &value, what).mend("export FI_PROVIDER=efa"))
                .into_iter()
                .collect()
        }
    }
}

/// Which MPI stacks would not send over SRD between ranks of one host. That is usually what one wants, and surprises
/// only who tries SRD on one host.
fn shared_memory(variable: Environment) -> Option<Finding> {
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
    let library = Libraries::Efa.names()[0];
    let ours = directory.join(library);
    match device::count(&ours) {
        Ok(0) => {
            return Finding::fail(
                check,
                format!("{} finds no device here; its line on standard error says why", ours.display()),
            );
        }
        Ok(_) => {}
        Err(why) => {
            return Finding::fail(check, format!("{} cannot be loaded: {why}", ours.display()))
                .mend("make build, or install the package for this machine");
        }
    }
    match resolved(library) {
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
    fn the_way_is_told_by_the_environment_and_has_traps_of_its_own() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            }
        };
        assert_eq!(way(&with(&[])), Way::Efa);
        let provider = with(&[("FI_PROVIDER", "srd"), ("OMPI_MCA_pml", "ucx"), ("I_MPI_FABRICS", "ofi")]);
        assert_eq!(way(&provider), Way::Provider);
        let found = traps(Way::Provider, &provider);
        assert!(matches!(&found[..], [one] if one.what.contains("OMPI_MCA_pml=ucx")), "{found:?}");
        assert!(traps(Way::Efa, &provider).iter().any(|one| one.what.contains("FI_PROVIDER=srd")));
        assert_eq!(traps(Way::ProviderAsEfa, &provider).len(), 1);
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
