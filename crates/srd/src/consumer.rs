//! What an existing program needs in its environment to run over OpenSRD.

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

/// Variables that put the software EFA of `directory` under a program. With `preload` the libraries are also loaded
/// by force: for programs that bundle a libibverbs of their own under another name (the NIXL and some UCX wheels).
pub fn efa(directory: &Path, preload: bool) -> Vec<Variable> {
    efa_after(directory, preload, &|name| std::env::var_os(name))
}

fn efa_after(directory: &Path, preload: bool, old: &dyn Fn(&str) -> Option<OsString>) -> Vec<Variable> {
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
        let value = crate::libraries::NAMES.iter().fold(old("LD_PRELOAD"), |value, name| {
            Some(in_front(directory.join(name).as_os_str(), value.as_deref(), is_preload_separator))
        });
        variables.extend(value.map(|value| Variable { name: "LD_PRELOAD", value }));
    }
    variables
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

    fn with(old: &'static [(&'static str, &'static str)], preload: bool) -> Vec<Variable> {
        efa_after(Path::new("/opt/srd/efa"), preload, &|name| {
            old.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn our_directory_comes_first_and_the_old_ones_stay() {
        let variables = with(&[("LD_LIBRARY_PATH", "/opt/mpi/lib:/usr/local/lib")], false);
        assert_eq!(
            value_of(&variables, "LD_LIBRARY_PATH").unwrap(),
            "/opt/srd/efa:/opt/mpi/lib:/usr/local/lib"
        );
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
}
