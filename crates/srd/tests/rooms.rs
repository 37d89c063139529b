//! Who uses whom inside each crate. Files and folders of one folder are neighbours; a file may use its folder's own
//! `mod.rs`, and whatever lies below it, but among neighbours those who use each other in a circle are a knot, which
//! nobody can read one by one.

mod checkout;

use checkout::{repository, texts};
use regex_lite::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

/// How many neighbours may be in a knot, in any crate.
const MOST: usize = 3;

/// The simulator's rooms: each uses only those before it.
const SIMULATOR: [&str; 8] = ["net", "apps", "hosts", "input", "run", "record", "sweep", "figures"];

/// A module by the names on the way to it; the crate itself has none.
type Module = Vec<String>;

/// A path of a `use` line, and whether it is handed on to others.
type Path = (bool, Vec<String>);

/// The modules of a crate, each with the paths that its file uses.
struct Sources(BTreeMap<Module, Vec<Path>>);

impl Sources {
    fn of(name: &str) -> Sources {
        let root = format!("crates/{name}/src");
        let mut modules = BTreeMap::new();
        for (path, text) in texts(&root, ".rs") {
            let file = &path[root.len() + 1..path.len() - ".rs".len()];
            let mut module: Module = file.split('/').map(String::from).collect();
            if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                module.pop();
            }
            modules.insert(module, paths(without_tests(&text)));
        }
        Sources(modules)
    }

    /// The module that a path within the crate leads to, through what doors hand on.
    fn resolve(&self, path: &[String], depth: usize) -> Module {
        let known = (0..=path.len()).rev().find(|&n| self.0.contains_key(&path[..n])).unwrap_or(0);
        let module = path[..known].to_vec();
        let Some(item) = path.get(known).filter(|_| depth < 8) else { return module };
        let handed_on = self.0[&module].iter().find_map(|(is_public, path)| {
            let (from, last) = path.split_at(path.len() - 1);
            (*is_public && last[0] == *item).then(|| self.absolute(&module, from, item)).flatten()
        });
        match handed_on {
            Some(further) if further[..] != *path => self.resolve(&further, depth + 1),
            _ => module,
        }
    }

    /// `from::item`, as written in `module`, from the crate on; `None` if it is another crate's.
    fn absolute(&self, module: &[String], from: &[String], item: &str) -> Option<Module> {
        let mut at: Module = module.to_vec();
        let mut rest = from;
        match from.first().map(String::as_str) {
            Some("crate") => {
                at.clear();
                rest = &from[1..];
            }
            Some("self") => rest = &from[1..],
            Some("super") => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            Some(name) => {
                let child: Module = at.iter().cloned().chain([name.to_string()]).collect();
                if !self.0.contains_key(&child) {
                    return None;
                }
            }
            None => {}
        }
        at.extend(rest.iter().cloned());
        at.push(item.to_string());
        Some(at)
    }

    /// Which neighbours use which, by folder.
    fn uses(&self) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
        let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (module, paths) in &self.0 {
            for (_, path) in paths {
                let (from, item) = path.split_at(path.len() - 1);
                let Some(to) = self.absolute(module, from, &item[0]) else { continue };
                let to = self.resolve(&to, 0);
                let together = module.iter().zip(&to).take_while(|(a, b)| a == b).count();
                let (Some(user), Some(used)) = (module.get(together), to.get(together)) else { continue };
                let folder = folders.entry(module[..together].to_vec()).or_default();
                folder.entry(user.clone()).or_default().insert(used.clone());
            }
        }
        folders
    }

    /// The largest knot.
    fn knot(&self) -> BTreeSet<String> {
        let knots = self.uses().into_iter().flat_map(|(folder, uses)| {
            let reach: BTreeMap<String, BTreeSet<String>> =
                uses.keys().map(|name| (name.clone(), reachable(&uses, name))).collect();
            let knot = |name: &String| {
                let both =
                    reach[name].iter().filter(|other| reach.get(*other).is_some_and(|of| of.contains(name)));
                both.map(|name| [&folder[..], std::slice::from_ref(name)].concat().join("::")).collect()
            };
            uses.keys().map(knot).collect::<Vec<BTreeSet<String>>>()
        });
        knots.max_by_key(BTreeSet::len).unwrap_or_default()
    }
}

/// Those to whom `uses` leads from `name`, by one arrow or more.
fn reachable(uses: &BTreeMap<String, BTreeSet<String>>, name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut ahead: Vec<&String> = uses.get(name).into_iter().flatten().collect();
    while let Some(next) = ahead.pop() {
        if found.insert(next.clone()) {
            ahead.extend(uses.get(next).into_iter().flatten());
        }
    }
    found
}

/// A file before its unit tests, which may look at whom they like.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// Every path of every `use` line, and whether it is handed on to others.
fn paths(text: &str) -> Vec<Path> {
    static USE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^\s*(pub(?:\([a-z ]+\))? )?use ([^;]+);").unwrap());
    let mut all = Vec::new();
    for found in USE.captures_iter(text) {
        let tree: String = found[2].split_whitespace().collect::<Vec<_>>().join(" ");
        for path in leaves(&tree) {
            let path = path.split(" as ").next().unwrap_or_default().trim();
            let mut names: Vec<String> = path.split("::").map(|name| name.trim().to_string()).collect();
            if names.len() > 1 && names.last().is_some_and(|last| last == "self") {
                names.pop();
            }
            all.push((found.get(1).is_some(), names));
        }
    }
    all
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.to_string()] };
    let inner = rest.trim().strip_suffix('}').unwrap_or(rest);
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match c {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts
        .flat_map(|part| leaves(part).into_iter().map(|leaf| format!("{head}{leaf}")).collect::<Vec<_>>())
        .collect()
}

#[test]
fn no_crate_has_a_knot_that_is_larger_than_it_may_be() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(repository().join("crates")).expect("there are crates") {
        let name = entry.expect("a folder can be read").file_name().into_string().expect("names are text");
        let knot: Vec<String> = Sources::of(&name).knot().into_iter().collect();
        if knot.len() > MOST {
            wrong.push(format!("{name}: {}: {}", knot.len(), knot.join(", ")));
        }
    }
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "neighbours that use each other in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn the_simulators_rooms_use_only_those_before_them() {
    let sources = Sources::of("srd-sim");
    let rooms: BTreeSet<&str> =
        sources.0.keys().filter_map(|module| Some(module.first()?.as_str())).collect();
    assert_eq!(rooms, BTreeSet::from(SIMULATOR), "each file is in a room");
    let place = |room: &str| SIMULATOR.iter().position(|other| *other == room);
    for (room, used) in sources.uses().remove(&Vec::new()).unwrap_or_default() {
        let up: Vec<String> = used.into_iter().filter(|other| place(other) > place(&room)).collect();
        assert!(up.is_empty(), "{room} uses {up:?}, which come after it");
    }
}

#[test]
fn paths_are_read_whatever_their_form() {
    let text = "use crate::a::{self, b::{C, D as E}};\npub(crate) use f::G;\nuse std::fmt;\n";
    let read: Vec<String> =
        paths(text).into_iter().map(|(public, path)| format!("{public} {}", path.join("::"))).collect();
    assert_eq!(
        read,
        ["false crate::a", "false crate::a::b::C", "false crate::a::b::D", "true f::G", "false std::fmt"]
    );
}
