//! The structures of `src/layout.rs` against the installed headers: size of each, offset and size of every field that those
//! headers have.

mod built;

use srd_ffi::StructLayout;
use srd_libfabric::layout::LAYOUT;
use std::collections::BTreeMap;
use std::process::Command;

/// Fields that headers of 1.17 lack. A structure with one of them has another size there.
const NEWER: &[&str] = &[
    "fi_ep_attr.xpu_ctx",
    "fi_domain_attr.max_ep_auth_key",
    "fi_domain_attr.max_group_id",
    "fi_domain_attr.max_cntr_value",
    "fi_domain_attr.max_err_cntr_value",
    "fi_domain_attr.max_xpu_ctx_cnt",
    "fi_ops_domain.xpu_ctx",
    "fi_ops_av.insert_auth_key",
    "fi_ops_av.lookup_auth_key",
    "fi_ops_av.set_user_id",
    "fi_ops_av.lookup2",
    "fi_mr_attr.hmem_data",
    "fi_mr_attr.page_size",
    "fi_mr_attr.base_mr",
    "fi_mr_attr.sub_mr_cnt",
    "fi_cq_err_entry.src_addr",
    "fi_cq_attr.xpu_ctx",
    "fi_ops_cq.export_xpu",
    "fi_cntr_attr.xpu_ctx",
    "fi_ops_cntr.export_xpu",
    "fi_ops_ep.export_xpu",
];

fn key(structure: &StructLayout, field: &str) -> String {
    format!("{}.{field}", structure.name)
}

/// Whether headers older than ours lack a field of it.
fn has_grown(structure: &StructLayout) -> bool {
    structure.fields.iter().any(|(field, ..)| NEWER.contains(&key(structure, field).as_str()))
}

/// `name -> [offset, size]` as C says; none if it does not compile.
fn in_c(name: &str, lines: &[(String, String)]) -> Option<BTreeMap<String, [usize; 2]>> {
    let mut text = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n\
         #include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_rma.h>\n\
         #include <rdma/fi_tagged.h>\n#include <rdma/fi_atomic.h>\n#include <rdma/fi_collective.h>\n\
         #include <rdma/providers/fi_prov.h>\nint main(void) {\n",
    );
    for (name, values) in lines {
        text += &format!("printf(\"%s %zu %zu\\n\", \"{name}\", {values});\n");
    }
    text += "return 0; }\n";
    let program = built::compile_text(name, &text, &[]).ok()?;
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap().to_owned();
        let mut number = || words.next().unwrap().parse().unwrap();
        (name, [number(), number()])
    };
    Some(text.lines().map(parse).collect())
}

#[test]
fn structures_are_those_of_the_installed_headers() {
    if !built::headers() {
        return;
    }
    let mut ours = BTreeMap::new();
    let (mut old, mut newer) = (Vec::new(), Vec::new());
    for structure in LAYOUT {
        let c = format!("struct {}", structure.name);
        if !has_grown(structure) {
            old.push((structure.name.to_owned(), format!("(size_t)0, sizeof({c})")));
            ours.insert(structure.name.to_owned(), [0, structure.size]);
        }
        for (field, offset, size) in structure.fields {
            let name = key(structure, field);
            let field = field.trim_start_matches("r#");
            let line = format!("offsetof({c}, {field}), sizeof((({c} *)0)->{field})");
            let lines = if NEWER.contains(&name.as_str()) { &mut newer } else { &mut old };
            lines.push((name.clone(), line));
            ours.insert(name, [*offset, *size]);
        }
    }
    let mut theirs = in_c("structures", &old).expect("every older field is in the headers");
    for item in newer {
        theirs.extend(in_c("structures", std::slice::from_ref(&item)).unwrap_or_default());
    }
    let wrong: Vec<String> = theirs
        .iter()
        .filter(|(name, layout)| ours[*name] != **layout)
        .map(|(name, layout)| format!("{name}: offset and size {layout:?} in C, {:?} here", ours[name]))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(theirs.len() > 300, "only {} compared", theirs.len());
}
