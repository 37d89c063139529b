//! What an existing program needs in its environment to run over OpenSRD.

use crate::libraries::Libraries;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A variable of the program's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: OsString,
}

/// A variable that makes a program use the libfabric provider `srd`.
pub struct Setting {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: &'static str,
    /// Whether another value leads to the provider, too. Then it stays.
    pub serves: fn(&str) -> bool,
    /// What comes of one that does not.
    pub otherwise: &'static str,
}

fn nothing_else(_: &str) -> bool {
    false
}

/// What libfabric and the MPI stacks read. Each stack has other transports beside libfabric, and some of them it prefers;
/// with these it ends with an error where it cannot have the provider.
pub const SETTINGS: [Setting; 10] = [
    // libfabric ranks providers that it does not know behind all others.
    Setting {
        name: "FI_PROVIDER",
        value: "srd",
        serves: nothing_else,
        otherwise: "libfabric offers other providers",
    },
    // On one host Open MPI would take ob1, its own protocols over shared memory and TCP.
    Setting {
        name: "OMPI_MCA_pml",
        value: "cm",
        serves: nothing_else,
        otherwise: "Open MPI does not use libfabric",
    },
    Setting {
        name: "OMPI_MCA_mtl",
        value: "ofi",
        serves: nothing_else,
        otherwise: "Open MPI does not use libfabric",
    },
    Setting {
        name: "OMPI_MCA_mtl_ofi_provider_include",
        value: "srd",
        serves: nothing_else,
        otherwise: "Open MPI uses another provider for messages",
    },
    // One-sided operations have transports of their own: windows over btl/ofi, for which Open MPI has a list of its own.
    Setting {
        name: "OMPI_MCA_opal_common_ofi_provider_include",
        value: "srd",
        serves: nothing_else,
        otherwise: "Open MPI uses another provider for one-sided operations",
    },
    Setting {
        name: "OMPI_MCA_btl",
        value: "self,ofi",
        // With `self` alone there are no windows between hosts; it spares the second for which btl/ofi sleeps in MPI_Finalize.
        serves: |value| value == "self" || value.split(',').any(|btl| btl == "ofi") && !value.contains("tcp"),
        otherwise: "Open MPI's one-sided operations do not use libfabric",
    },
    // osc/sm is the only one that has windows of shared memory (MPI_Win_allocate_shared).
    Setting {
        name: "OMPI_MCA_osc",
        value: "sm,rdma",
        serves: |value| value.split(',').all(|osc| matches!(osc, "sm" | "rdma")),
        otherwise: "Open MPI's one-sided operations do not use libfabric",
    },
    // The PyPI wheel and some distributions have UCX, and prefer it.
    Setting {
        name: "MPIR_CVAR_CH4_NETMOD",
        value: "ofi",
        serves: nothing_else,
        otherwise: "MPICH does not use libfabric",
    },
    // Between ranks of one host Intel MPI has shared memory of its own.
    Setting {
        name: "I_MPI_FABRICS",
        value: "shm:ofi",
        serves: |value| value == "ofi",
        otherwise: "Intel MPI does not use libfabric",
    },
    // As FI_PROVIDER, and Intel MPI's choice if it is set.
    Setting {
        name: "I_MPI_OFI_PROVIDER",
        value: "srd",
        serves: nothing_else,
        otherwise: "Intel MPI uses another provider",
    },
];

impl Setting {
    /// Whether a program that has this value goes another way.
    pub fn is_against(&self, value: &str) -> bool {
        value != self.value && !(self.serves)(value)
    }
}

/// Whether this value of LD_PRELOAD puts another libibverbs in front of the software EFA's.
pub fn preloads_another(value: &str) -> bool {
    value.split([':', ' ']).any(|file| file.contains("libibverbs") && !file.contains("/srd/efa/"))
}

/// Variables that put the software EFA of `directory` under a program. With `preload` the libraries are also loaded
/// by force: for programs that bundle a libibverbs of their own under another name (the NIXL and some UCX wheels).
pub fn efa(directory: &Path, preload: bool) -> Vec<Variable> {
    efa_after(directory, preload, &|name| std::env::var_os(name))
}

/// Variables that make a program use the provider `srd` of `directory`, and what of the user's they replace, in words.
pub fn provider(directory: &Path) -> (Vec<Variable>, Vec<String>) {
    provider_after(directory, &|name| std::env::var_os(name))
}

/// The same for the provider under the name `efa`. Programs with a list of permitted names ask libfabric themselves: no
/// MPI stack is among them.
pub fn provider_as_efa(directory: &Path) -> (Vec<Variable>, Vec<String>) {
    provider_as_efa_after(directory, &|name| std::env::var_os(name))
}

type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn efa_after(directory: &Path, preload: bool, old: Environment) -> Vec<Variable> {
    let mut variables = vec![
        Variable {
            name: "LD_LIBRARY_PATH",
            value: in_front(directory.as_os_str(), old("LD_LIBRARY_PATH").as_deref(), is_colon),
        },
        // libfabric would otherwise prefer a provider that it ranks higher, such as tcp.
        Variable { name: "FI_PROVIDER", value: "efa".into() },
        // libfabric's efa provider carries messages between processes of one host through shared memory, past EFA.
        Variable { name: "FI_EFA_ENABLE_SHM_TRANSFER", value: "0".into() },
    ];
    if preload {
        let value = Libraries::Efa.names().iter().fold(old("LD_PRELOAD"), |value, name| {
            Some(in_front(directory.join(name).as_os_str(), value.as_deref(), is_preload_separator))
        });
        variables.extend(value.map(|value| Variable { name: "LD_PRELOAD", value }));
    }
    variables
}

fn provider_after(directory: &Path, old: Environment) -> (Vec<Variable>, Vec<String>) {
    // libfabric finds no provider by LD_LIBRARY_PATH whose name it does not know.
    let path = in_front(directory.as_os_str(), old("FI_PROVIDER_PATH").as_deref(), is_colon);
    let mut variables = vec![Variable { name: "FI_PROVIDER_PATH", value: path }];
    let mut replaced = Vec::new();
    for setting in &SETTINGS {
        let given = old(setting.name).map(|value| value.to_string_lossy().into_owned());
        match given.filter(|value| *value != setting.value) {
            Some(value) if (setting.serves)(&value) => continue,
            Some(value) => replaced.push(format!(
                "{}={value} replaced by {}: with it {}",
                setting.name, setting.value, setting.otherwise
            )),
            None => {}
        }
        variables.push(Variable { name: setting.name, value: setting.value.into() });
    }
    (variables, replaced)
}

fn provider_as_efa_after(directory: &Path, old: Environment) -> (Vec<Variable>, Vec<String>) {
    // Since 1.21 libfabric takes a file behind a plus sign rather than an efa provider that is compiled in; before, it knows
    // directories only, and passes over what is none.
    let mut file = OsString::from("+");
    file.push(directory.join(Libraries::ProviderAsEfa.names()[0]));
    let path = in_front(directory.as_os_str(), old("FI_PROVIDER_PATH").as_deref(), is_colon);
    let path = in_front(&file, Some(&path), is_colon);
    let replaced = old("FI_PROVIDER").filter(|value| value != "efa").map(|value| {
        format!("FI_PROVIDER={} replaced by efa: with it libfabric offers other providers", value.display())
    });
    let variables = vec![
        Variable { name: "FI_PROVIDER_PATH", value: path },
        Variable { name: "FI_PROVIDER", value: "efa".into() },
    ];
    (variables, replaced.into_iter().collect())
}

fn is_colon(byte: &u8) -> bool {
    *byte == b':'
}

/// ld.so(8): "the items of the list can be separated by spaces or colons".
fn is_preload_separator(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// `first`, then the entries of `old` without `first` and without empty ones (an empty entry means the working
/// directory, which nobody wants who had the variable unset).
fn in_front(first: &OsStr, old: Option<&OsStr>, separator: fn(&u8) -> bool) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    let mut list = first.to_os_string();
    for entry in old.unwrap_or_default().as_bytes().split(separator) {
        if !entry.is_empty() && entry != first.as_bytes() {
            list.push(":");
            list.push(OsStr::from_bytes(entry));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(variables: &[Variable], name: &str) -> Option<String> {
        variables
            .iter()
            .find(|variable| variable.name == name)
            .map(|v| v.value.to_string_lossy().into_owned())
    }

    type Old = &'static [(&'static str, &'static str)];

    fn value_in(old: Old, name: &str) -> Option<OsString> {
        old.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
    }

    fn with(old: Old, preload: bool) -> Vec<Variable> {
        efa_after(Path::new("/opt/srd/efa"), preload, &|name| value_in(old, name))
    }

    fn provider_with(old: Old) -> (Vec<Variable>, Vec<String>) {
        provider_after(Path::new("/opt/srd/fi"), &|name| value_in(old, name))
    }

    #[test]
    fn our_directory_comes_first_and_the_old_ones_stay() {
        let variables = with(&[("LD_LIBRARY_PATH", "/opt/mpi/lib:/usr/local/lib")], false);
        assert_eq!(
            value_of(&variables, "LD_LIBRARY_PATH").unwrap(),
            "/opt/srd/efa:/opt/mpi/lib:/usr/local/lib"
        );
        let (variables, _) = provider_with(&[("FI_PROVIDER_PATH", "/opt/fi")]);
        assert_eq!(value_of(&variables, "FI_PROVIDER_PATH").unwrap(), "/opt/srd/fi:/opt/fi");
    }

    #[test]
    fn an_unset_or_empty_path_adds_no_empty_entry() {
        assert_eq!(value_of(&with(&[], false), "LD_LIBRARY_PATH").unwrap(), "/opt/srd/efa");
        let variables = with(&[("LD_LIBRARY_PATH", "")], false);
        assert_eq!(value_of(&variables, "LD_LIBRARY_PATH").unwrap(), "/opt/srd/efa");
    }

    #[test]
    fn a_second_wrapping_changes_nothing() {
        let variables = with(&[("LD_LIBRARY_PATH", "/opt/srd/efa:/opt/mpi/lib")], false);
        assert_eq!(value_of(&variables, "LD_LIBRARY_PATH").unwrap(), "/opt/srd/efa:/opt/mpi/lib");

        let (once, _) = provider_with(&[]);
        let set = |name: &str| once.iter().find(|variable| variable.name == name).map(|v| v.value.clone());
        assert_eq!(provider_after(Path::new("/opt/srd/fi"), &set), (once.clone(), Vec::new()));
        let (once, _) = provider_as_efa_after(Path::new("/opt/srd/fi-efa"), &|_| None);
        let set = |name: &str| once.iter().find(|variable| variable.name == name).map(|v| v.value.clone());
        let again = provider_as_efa_after(Path::new("/opt/srd/fi-efa"), &set);
        assert_eq!(again, (once.clone(), Vec::new()));
    }

    #[test]
    fn preload_is_only_set_when_asked_for_and_keeps_what_was_there() {
        assert_eq!(value_of(&with(&[], false), "LD_PRELOAD"), None);
        let variables = with(&[("LD_PRELOAD", "/lib/a.so /lib/b.so")], true);
        assert_eq!(
            value_of(&variables, "LD_PRELOAD").unwrap(),
            "/opt/srd/efa/libefa.so.1:/opt/srd/efa/libibverbs.so.1:/lib/a.so:/lib/b.so"
        );
    }

    #[test]
    fn what_leads_elsewhere_is_replaced_and_named() {
        let (variables, replaced) = provider_with(&[("OMPI_MCA_pml", "ob1"), ("FI_PROVIDER", "srd")]);
        assert_eq!(value_of(&variables, "OMPI_MCA_pml").unwrap(), "cm");
        assert!(matches!(&replaced[..], [one] if one.contains("OMPI_MCA_pml=ob1")), "{replaced:?}");
    }

    #[test]
    fn what_leads_to_the_provider_another_way_stays() {
        let (variables, replaced) =
            provider_with(&[("I_MPI_FABRICS", "ofi"), ("OMPI_MCA_osc", "rdma"), ("OMPI_MCA_btl", "self")]);
        assert_eq!(value_of(&variables, "I_MPI_FABRICS"), None);
        assert_eq!(value_of(&variables, "OMPI_MCA_osc"), None);
        assert!(replaced.is_empty(), "{replaced:?}");
    }
}
