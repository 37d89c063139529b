//! What the libraries export, against the rdma-core that is installed: nothing may be missing, and every name must
//! carry the version that programs bind to.

mod built;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `name@version` or `name@@version` of everything that a library defines, and its version nodes.
fn exports(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", "--with-symbol-versions", "--defined-only"])
        .arg(library)
        .output()
        .unwrap();
    assert!(output.status.success(), "nm {}: {}", library.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned))
        .collect()
}

fn installed(name: &str) -> Option<PathBuf> {
    let found = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        built::skip(format_args!("no {name} installed to compare with; apt-get install ibverbs-providers"));
    }
    found
}

fn nothing_of_the_installed_library_is_missing(name: &str) {
    let Some(theirs) = installed(name) else { return };
    let (ours, theirs) = (exports(&built::libraries().join(name)), exports(&theirs));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "{name} lacks {missing:?}");
    assert!(theirs.len() > 6);
}

#[test]
fn nothing_of_the_installed_libibverbs_is_missing() {
    nothing_of_the_installed_library_is_missing("libibverbs.so.1");
}

#[test]
fn nothing_of_the_installed_libefa_is_missing() {
    nothing_of_the_installed_library_is_missing("libefa.so.1");
}

/// docs/design/efa-verbs.md, "Symbols": what newer builds of libfabric and UCX bind to.
#[test]
fn newer_names_are_there_too() {
    let efa = exports(&built::libraries().join("libefa.so.1"));
    for name in [
        "efadv_create_driver_qp@@EFA_1.0",
        "efadv_query_mr@@EFA_1.3",
        "efadv_query_qp_wqs@@EFA_1.4",
        "efadv_query_cq@@EFA_1.4",
        "efadv_get_max_sq_depth@@EFA_1.5",
        "efadv_get_max_rq_depth@@EFA_1.5",
        "efadv_qp_from_ibv_qp_ex@@EFA_1.6",
        "efadv_create_comp_cntr@@EFA_1.7",
    ] {
        assert!(efa.contains(name), "{name}");
    }
    let verbs = exports(&built::libraries().join("libibverbs.so.1"));
    for name in [
        "ibv_reg_mr_ex@@IBVERBS_1.15",
        "ibv_query_port_speed@@IBVERBS_1.16",
        "ibv_query_gid_type@IBVERBS_PRIVATE_64",
        "verbs_register_driver_59@@IBVERBS_PRIVATE_59",
    ] {
        assert!(verbs.contains(name), "{name}");
    }
}

/// docs/design/efa-verbs.md, "Trap 10": without a version every program that asks for one would refuse to load.
#[test]
fn every_export_has_a_version() {
    for library in ["libibverbs.so.1", "libefa.so.1"] {
        let nodes = ["IBVERBS_", "EFA_", "OPENSRD_"];
        for name in exports(&built::libraries().join(library)) {
            let is_node = nodes.iter().any(|node| name.starts_with(node));
            assert!(is_node || name.contains('@'), "{library}: {name}");
        }
    }
}

fn dynamic(library: &str, tag: &str) -> Vec<String> {
    let output = Command::new("readelf").arg("-dW").arg(built::libraries().join(library)).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|line| line.contains(&format!("({tag})")))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_libraries_are_one_program() {
    assert!(dynamic("libefa.so.1", "NEEDED").iter().any(|line| line.contains("[libibverbs.so.1]")));
    for library in ["libibverbs.so.1", "libefa.so.1"] {
        assert!(dynamic(library, "SONAME")[0].contains(&format!("[{library}]")));
        // Threads run in it, and functions of it are called at exit.
        assert!(dynamic(library, "FLAGS_1")[0].contains("NODELETE"));
    }
}

/// docs/design/efa-verbs.md, "Trap 11".
#[test]
fn unversioned_names_lead_to_the_libraries() {
    for name in ["libibverbs.so", "libefa.so"] {
        let link = built::libraries().join(name);
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(&format!("{name}.1")));
        assert!(link.exists());
    }
}
