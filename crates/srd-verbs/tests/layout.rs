//! The structures of `src/layout.rs` against the installed headers: size of each, offset and size of every field.

mod built;

use srd_ffi::StructLayout;
use srd_verbs::layout::{LAYOUT, async_element, send_target, send_target_ud};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

/// Structures and fields that headers older than ours lack: compared where they are there.
const NEWER: &[&str] = &[
    "ibv_mr_init_attr",
    "verbs_context.free_buf",
    "verbs_context.alloc_buf",
    "verbs_context.dm_export_dmabuf_fd",
    "verbs_context.reg_mr_ex",
    "verbs_context.dealloc_dmah",
    "verbs_context.alloc_dmah",
    "ibv_port_attr.active_speed_ex",
    "ibv_qp_ex.wr_flush",
    "efadv_device_attr.inline_buf_size_ex",
    "efadv_qp_init_attr.flags",
    "efadv_qp_init_attr.sl",
    "efadv_qp_init_attr.reserved",
    "efadv_qp_init_attr.wr_flags",
    "efadv_qp",
    "efadv_cq.wc_is_unsolicited",
    "efadv_cq_init_attr.flags",
    "efadv_cq_init_attr.ext_mem_dmabuf",
    "efadv_wq_attr",
    "efadv_cq_attr",
    "efadv_sq_depth_attr",
    "efadv_rq_depth_attr",
    "efadv_mr_attr",
    "efadv_memory_location",
    "efadv_comp_cntr_init_attr",
    "ibv_comp_cntr",
    "ibv_comp_cntr_init_attr",
    "ibv_comp_cntr_caps",
    "ibv_qp_attach_comp_cntr_attr",
];

fn is_newer(name: &str) -> bool {
    NEWER.contains(&name) || name.split_once('.').is_some_and(|(structure, _)| NEWER.contains(&structure))
}

/// The C expression for a structure's type.
fn c_type(name: &str) -> String {
    if name == "ibv_gid" { "union ibv_gid".into() } else { format!("struct {name}") }
}

/// C's name for a field: leading underscores are dropped where C has none, and `priv` and `type` are words of Rust's.
fn c_field(name: &str) -> &str {
    match name {
        "private" => "priv",
        "kind" => "type",
        "dmabuf_offset" => "dmabuf.offset",
        "dmabuf_fd" => "dmabuf.fd",
        "dmabuf_reserved" => "dmabuf.reserved",
        "_abi_placeholder1" => "ABI_placeholder1",
        "_abi_placeholder2" => "ABI_placeholder2",
        "_abi_placeholder3" => "_ABI_placeholder3",
        name => name,
    }
}

/// `name -> [offset, size]` as C says; the offset of a structure is 0.
fn in_c(test: &str, items: &[(String, String, Option<String>)]) -> Option<BTreeMap<String, [usize; 2]>> {
    let mut text = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/efadv.h>\nint main(void) {\n",
    );
    for (name, c_type, field) in items {
        let (offset, size) = match field {
            None => ("(size_t)0".to_owned(), format!("sizeof({c_type})")),
            // It grows at its beginning: what counts is the distance to its last field.
            Some(field) if c_type == "struct verbs_context" => (
                format!("offsetof({c_type}, context) - offsetof({c_type}, {field})"),
                format!("sizeof((({c_type} *)0)->{field})"),
            ),
            Some(field) => {
                (format!("offsetof({c_type}, {field})"), format!("sizeof((({c_type} *)0)->{field})"))
            }
        };
        text += &format!("printf(\"%s %zu %zu\\n\", \"{name}\", {offset}, {size});\n");
    }
    text += "return 0; }\n";
    let program = built::scratch().join(format!("{test}-{}", std::process::id()));
    built::compile_text(test, &text, &program).ok()?;
    let output = Command::new(&program).output().unwrap();
    Some(
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| {
                let mut words = line.split(' ');
                let name = words.next().unwrap().to_owned();
                let mut number = || words.next().unwrap().parse().unwrap();
                (name, [number(), number()])
            })
            .collect(),
    )
}

fn items(structure: &StructLayout) -> Vec<(String, String, Option<String>)> {
    let kind = c_type(structure.name);
    let mut items = Vec::new();
    // A structure that has grown has another size in older headers.
    let grown = structure.fields.iter().any(|(field, ..)| is_newer(&format!("{}.{field}", structure.name)));
    if !grown || NEWER.contains(&structure.name) {
        items.push((structure.name.to_owned(), kind.clone(), None));
    }
    for (field, ..) in structure.fields {
        items.push((format!("{}.{field}", structure.name), kind.clone(), Some(c_field(field).to_owned())));
    }
    items
}

fn ours() -> BTreeMap<String, [usize; 2]> {
    let mut all = BTreeMap::new();
    for structure in LAYOUT {
        all.insert(structure.name.to_owned(), [0, structure.size]);
        for (field, offset, size) in structure.fields {
            let offset = if structure.name == "verbs_context" {
                offset_of!(srd_verbs::layout::verbs_context, context) - offset
            } else {
                *offset
            };
            all.insert(format!("{}.{field}", structure.name), [offset, *size]);
        }
    }
    all
}

#[test]
fn structures_are_those_of_the_installed_headers() {
    if !built::headers() {
        return;
    }
    let ours = ours();
    let all: Vec<_> = LAYOUT.iter().flat_map(items).collect();
    let (newer, old): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, ..)| is_newer(name));
    let mut theirs = in_c("structures", &old).expect("every older structure is in the headers");
    let mut absent = 0;
    for item in newer {
        // In headers without `flags`, `reserved` is another field: the one that `flags` was cut from.
        if item.0 == "efadv_qp_init_attr.reserved" && !theirs.contains_key("efadv_qp_init_attr.flags") {
            continue;
        }
        match in_c("structures", std::slice::from_ref(&item)) {
            Some(found) => theirs.extend(found),
            None => absent += 1,
        }
    }
    let wrong: Vec<String> = theirs
        .iter()
        .filter(|(name, layout)| ours[*name] != **layout)
        .map(|(name, layout)| format!("{name}: offset and size {layout:?} in C, {:?} here", ours[name]))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(theirs.len() > 350, "only {} compared", theirs.len());
    println!("{} compared, {absent} not in these headers", theirs.len());
}

#[test]
fn members_of_unions_are_where_the_headers_have_them() {
    if !built::headers() {
        return;
    }
    let wr = offset_of!(srd_verbs::layout::ibv_send_wr, wr);
    let field =
        |name: &str, kind: &str, field: &str| (name.to_owned(), kind.to_owned(), Some(field.to_owned()));
    let theirs = in_c(
        "unions",
        &[
            field("ah", "struct ibv_send_wr", "wr.ud.ah"),
            field("qpn", "struct ibv_send_wr", "wr.ud.remote_qpn"),
            field("qkey", "struct ibv_send_wr", "wr.ud.remote_qkey"),
            field("wr", "struct ibv_send_wr", "wr"),
            field("element", "struct ibv_async_event", "element"),
            field("port", "struct ibv_async_event", "element.port_num"),
        ],
    )
    .unwrap();
    assert_eq!(theirs["ah"], [wr + offset_of!(send_target_ud, ah), 8]);
    assert_eq!(theirs["qpn"], [wr + offset_of!(send_target_ud, remote_qpn), 4]);
    assert_eq!(theirs["qkey"], [wr + offset_of!(send_target_ud, remote_qkey), 4]);
    assert_eq!(theirs["wr"][1], size_of::<send_target>());
    assert_eq!(theirs["element"], [0, size_of::<async_element>()]);
    assert_eq!(theirs["port"], [0, 4]);
}
