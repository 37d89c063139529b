//! Every citation resolves: links of documents, documents with their headings and sections, RFCs, papers and specifications
//! (docs/REFERENCES.md), and files of this repository that comments and documents name. docs/design/README.md, "How to cite",
//! says how citations are written. What is wrong is told as `file:line: what`, all of it at once.

mod checkout;

use checkout::{repository, walk};
use regex_lite::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// Endings of files that may cite.
const CITING: [&str; 8] = ["rs", "md", "toml", "py", "sh", "c", "h", "lua"];

/// Where the works of others are listed.
const REFERENCES: &str = "docs/REFERENCES.md";

/// This file, whose examples are wrong on purpose.
const OWN: &str = "crates/srd/tests/citations.rs";

/// Sections of the EFA driver's SRD.txt, which is short enough to know them all.
const SRD_TXT: [&str; 16] = [
    "1", "2", "3", "3.1", "3.1.1", "3.1.1.1", "3.2", "3.2.1", "3.2.1.1", "3.2.1.2", "3.2.2", "3.2.2.1",
    "3.3", "3.3.1", "3.3.2", "3.3.2.1",
];

/// What is named in a document right behind its name: `, section 13`, `, sections 6 and 7`, `, "Heading" and "Heading"`.
const PLACE: &str = concat!(
    r"^(?:#[\w-]+)?[`)]*(,?) (?:",
    r"sections? (\d+(?:\.\d+)*(?:(?:,| and|, and) \d+(?:\.\d+)*)*)",
    r#"|("[^"]+"(?: and "[^"]+")*))"#
);

/// Conferences, and with their year.
const VENUES: [&str; 8] = ["SIGCOMM", "NSDI", "OSDI", "CoNEXT", "HPDC", "ICPP", "OOPSLA", "SC"];
const VENUE: &str = r"\b(SIGCOMM|NSDI|OSDI|CoNEXT|HPDC|ICPP|OOPSLA|SC)(?:'| 19| 20)(\d\d)\b";

/// Surnames, or the first of several, and a year.
const AUTHORS: &str = concat!(
    r"\b([A-Z][a-z]+(?:-[A-Z][a-z]+)*)",
    r"(?:(?:, [A-Z][a-z-]+)*(?:,? and [A-Z][a-z-]+)?|( and others| et al\.)),? \(?((?:19|20)\d\d)\b"
);

/// What stands before a year and is nobody's name.
const NO_AUTHORS: [&str; 13] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
    "Workshop",
];

/// Paths of this repository, with what makes a pattern of them behind.
const OWN_PATH: &str = concat!(
    r"(?:^|[^\w./-])(",
    r"(?:crates|docs|tests|scripts|labs|scenarios|sweeps|demo|bench|tools|fuzz)/[\w./-]*\w",
    r"|srd(?:-[a-z]+)?/(?:src|tests|benches|examples|bench|bpf)/[\w./-]*\w",
    r")(/?[*{<$]|/)?"
);

#[test]
fn every_citation_in_the_repository_resolves() {
    let wrong = Tree::read(&repository()).wrong();
    assert!(wrong.is_empty(), "{} citations do not resolve:\n{}", wrong.len(), wrong.join("\n"));
}

/// Files of a repository.
struct Tree {
    /// All of them, and all directories.
    paths: BTreeSet<String>,
    /// Those that may cite.
    texts: BTreeMap<String, String>,
}

impl Tree {
    fn new(files: impl IntoIterator<Item = (String, Option<String>)>) -> Tree {
        let mut tree = Tree { paths: BTreeSet::new(), texts: BTreeMap::new() };
        for (path, text) in files {
            for (end, _) in path.match_indices('/') {
                tree.paths.insert(path[..end].to_string());
            }
            if let Some(text) = text {
                tree.texts.insert(path.clone(), text);
            }
            tree.paths.insert(path);
        }
        tree
    }

    /// What git tracks, or all files where there is no git.
    fn read(root: &Path) -> Tree {
        let listed = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output();
        let listed = listed.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let mut paths = match listed {
            Some(listed) => {
                String::from_utf8(listed).unwrap().split_terminator('\0').map(str::to_string).collect()
            }
            None => walk(""),
        };
        // A file that has just been removed is listed until that is staged.
        paths.retain(|path| root.join(path).exists());
        Tree::new(paths.into_iter().map(|path| {
            let cites =
                path != OWN && CITING.iter().any(|end| path.rsplit_once('.').is_some_and(|it| it.1 == *end));
            let text = cites.then(|| fs::read(root.join(&path)).unwrap());
            (path, text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        }))
    }

    /// Every citation that does not resolve.
    fn wrong(&self) -> Vec<String> {
        let references = References::of(self.texts.get(REFERENCES).map_or("", String::as_str));
        let mut wrong = Vec::new();
        for (path, text) in &self.texts {
            let prose = Prose::of(path, text);
            let mut check =
                Check { tree: self, references: &references, path, prose: &prose, wrong: &mut wrong };
            check.links();
            check.documents();
            check.rfcs();
            check.works();
            check.foreign_files();
            check.own_files();
        }
        let mut seen = BTreeSet::new();
        wrong.retain(|what| seen.insert(what.clone())); // two rules may find the same
        wrong
    }

    fn headings(&self, document: &str) -> Vec<String> {
        self.texts.get(document).map(|text| headings(text)).unwrap_or_default()
    }

    /// Whether a path of the repository ends so.
    fn has_ending(&self, ending: &str) -> bool {
        self.paths.iter().any(|path| {
            path.strip_suffix(ending).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        })
    }
}

/// A file's text with its lines joined, so that citations may go on in the next line.
struct Prose {
    text: String,
    /// Where each line begins in `text`, and whether it is one of a comment or of a document.
    lines: Vec<(usize, bool)>,
}

impl Prose {
    fn of(path: &str, text: &str) -> Prose {
        let document = path.ends_with(".md");
        let comments: &[&str] = match path.rsplit_once('.').map_or("", |(_, end)| end) {
            "rs" | "c" | "h" => &["//!", "///", "//", "/*", "* ", "*/"],
            "lua" => &["--"],
            _ => &["#"],
        };
        let mut prose = Prose { text: String::with_capacity(text.len()), lines: Vec::new() };
        for line in text.lines() {
            let line = line.trim();
            let comment =
                if document { None } else { comments.iter().find_map(|mark| line.strip_prefix(mark)) };
            let told = comment.is_some() || document || line.contains(" // ");
            prose.lines.push((prose.text.len(), told));
            prose.text += comment.unwrap_or(line).trim();
            prose.text.push(' ');
        }
        prose
    }

    /// The line, from 1 on, of a place in `text`.
    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|&(start, _)| start <= at)
    }

    /// Stretches of lines of which one is `wanted`, or a neighbour of one that is. `told`: only lines of comments and documents.
    fn around(&self, told: bool, wanted: impl Fn(&str) -> bool) -> Vec<(usize, usize)> {
        let start = |line: usize| self.lines.get(line).map_or(self.text.len(), |line| line.0);
        let mut stretches: Vec<(usize, usize)> = Vec::new();
        let wanted =
            |line: usize| (!told || self.lines[line].1) && wanted(&self.text[start(line)..start(line + 1)]);
        for line in (0..self.lines.len()).filter(|&line| wanted(line)) {
            let (from, to) = (start(line.saturating_sub(1)), start(line + 2));
            match stretches.last_mut() {
                Some(last) if last.1 >= from => last.1 = to,
                _ => stretches.push((from, to)),
            }
        }
        stretches
    }

    /// The text from a place on, as far as a citation may reach.
    fn behind(&self, at: usize) -> &str {
        let mut end = (at + 200).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        &self.text[at..end]
    }

    fn is_told(&self, at: usize) -> bool {
        self.lines[self.line(at) - 1].1
    }
}

/// What may be cited in a document: headings, and words in bold with which a paragraph begins.
fn titles(text: &str) -> Vec<String> {
    let mut found = headings(text);
    let bold =
        text.lines().filter_map(|line| line.trim_start_matches("- ").strip_prefix("**")?.split_once("**"));
    found.extend(bold.map(|(title, _)| plain(title.trim_end_matches(['.', ':']))));
    found
}

/// The headings of a document, without marks.
fn headings(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        let heading = line.trim_start_matches('#');
        if !code && heading.len() < line.len() && heading.starts_with(' ') {
            found.push(plain(heading.trim()));
        }
    }
    found
}

/// A heading without code, emphasis and links.
fn plain(heading: &str) -> String {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap());
    LINK.replace_all(heading, "$1").replace(['`', '*'], "")
}

/// Anchors of a document's headings, as GitHub makes them.
fn anchors(headings: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in headings {
        let letters = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String =
            letters.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !found.contains(anchor));
        found.extend(free);
    }
    found
}

/// Rows of docs/REFERENCES.md.
struct References {
    keys: BTreeSet<String>,
    rows: Vec<String>,
}

impl References {
    fn of(text: &str) -> References {
        let rows: Vec<String> =
            text.lines().filter(|line| line.starts_with("| ")).map(str::to_string).collect();
        let keys = rows
            .iter()
            .filter_map(|row| row[2..].split_once(" |"))
            .map(|(key, _)| key.replace('`', ""))
            .collect();
        References { keys, rows }
    }

    fn has_key(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Whether a row names this file of others.
    fn lists(&self, base: &str) -> bool {
        self.has_row(&[&format!("`{base}`")]) || self.has_row(&[&format!("/{base}`")])
    }

    /// Whether one row has all these words.
    fn has_row(&self, words: &[&str]) -> bool {
        self.rows.iter().any(|row| words.iter().all(|word| row.contains(word)))
    }
}

/// Puts `..` and `.` out of a path; nothing if it leads out of the repository.
fn normal(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// One file, checked.
struct Check<'a> {
    tree: &'a Tree,
    references: &'a References,
    path: &'a str,
    prose: &'a Prose,
    wrong: &'a mut Vec<String>,
}

macro_rules! regex {
    ($text:expr) => {{
        static REGEX: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).unwrap());
        &*REGEX
    }};
}

/// What a regex has found in a file's prose.
struct Found<'a> {
    base: usize,
    captures: Captures<'a>,
}

impl<'a> Found<'a> {
    fn start(&self) -> usize {
        self.base + self.captures.get(0).unwrap().start()
    }

    fn end(&self) -> usize {
        self.base + self.captures.get(0).unwrap().end()
    }

    /// A group, empty if it took no part.
    fn group(&self, number: usize) -> &'a str {
        self.captures.get(number).map_or("", |group| group.as_str())
    }

    fn start_of(&self, number: usize) -> usize {
        self.base + self.captures.get(number).unwrap().start()
    }
}

impl<'a> Check<'a> {
    fn tell(&mut self, at: usize, what: &str) {
        self.wrong.push(format!("{}:{}: {what}", self.path, self.prose.line(at)));
    }

    fn is_document(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// What `regex` finds where lines have one of these words. (To look everywhere takes minutes.)
    fn find(&self, regex: &Regex, words: &[&str]) -> Vec<Found<'a>> {
        self.find_around(regex, false, words)
    }

    /// The same in comments and documents only.
    fn find_told(&self, regex: &Regex, words: &[&str]) -> Vec<Found<'a>> {
        let found = self.find_around(regex, true, words);
        found.into_iter().filter(|found| self.prose.is_told(found.start())).collect()
    }

    fn find_around(&self, regex: &Regex, told: bool, words: &[&str]) -> Vec<Found<'a>> {
        let mut found = Vec::new();
        for (start, end) in self.prose.around(told, |line| words.iter().any(|word| line.contains(word))) {
            let captures = regex.captures_iter(&self.prose.text[start..end]);
            found.extend(captures.map(|captures| Found { base: start, captures }));
        }
        found
    }

    /// The file, or its directory, that a relative path means from here.
    fn beside(&self, path: &str) -> Option<String> {
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        normal(&format!("{dir}/{path}")).filter(|path| path.is_empty() || self.tree.paths.contains(path))
    }

    /// The same from the directory of the crate that this file belongs to: what `env!("CARGO_MANIFEST_DIR")` is.
    fn in_crate(&self, path: &str) -> Option<String> {
        let name = self.path.strip_prefix("crates/")?.split('/').next()?;
        normal(&format!("crates/{name}/{path}")).filter(|path| self.tree.paths.contains(path))
    }

    fn in_repository(&self, path: &str) -> Option<String> {
        normal(path).filter(|path| self.tree.paths.contains(path))
    }

    /// (a) Links of documents.
    fn links(&mut self) {
        if !self.is_document() {
            return;
        }
        for found in self.find(regex!(r"\[[^\[\]]*\]\(([^()\s]+)\)"), &["]("]) {
            let (at, target) = (found.start_of(1), found.group(1));
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let document = if file.is_empty() { Some(self.path.to_string()) } else { self.beside(file) };
            match document {
                None => self.tell(at, &format!("the link leads to {file}, which does not exist")),
                Some(document)
                    if !anchor.is_empty() && !anchors(&self.tree.headings(&document)).contains(anchor) =>
                {
                    self.tell(at, &format!("{document} has no heading for the anchor #{anchor}"));
                }
                Some(_) => {}
            }
        }
    }

    /// (b) Documents, with the sections and headings that are named behind them.
    fn documents(&mut self) {
        for found in self.find(regex!(r"[A-Za-z0-9_./-]+\.md\b"), &[".md"]) {
            let (at, name) = (found.start(), found.group(0));
            let text_of_link = self.prose.behind(found.end()).trim_start_matches('`').starts_with("](");
            if name.contains("//") || text_of_link {
                continue; // on the web, or the link itself says it
            }
            let bare = !name.contains('/');
            let beside = if bare && !self.is_document() { None } else { self.beside(name) };
            let document = self.in_repository(name).or(beside).or_else(|| self.in_crate(name));
            let elsewhere = bare && self.tree.has_ending(name);
            match document {
                Some(document) => self.places(found.end(), &document),
                None if elsewhere && !self.prose.is_told(at) => {} // code may put paths together
                None if elsewhere => {
                    self.tell(at, &format!("there is no document {name}; name its directory, too"))
                }
                None => self.tell(at, &format!("there is no document {name}")),
            }
        }
        // A name of this kind without an ending was a document once.
        for found in
            self.find_told(regex!(r#"\b[A-Z]+(?:_[A-Z]+)*,? (?:sections? \d|")"#), &["_", "section", "\""])
        {
            let name = found.group(0).split([',', ' ']).next().unwrap();
            if name.contains('_') && found.group(0).contains("section")
                || self.tree.has_ending(&format!("{name}.md"))
            {
                self.tell(found.start(), &format!("{name} is no document; write its path"));
            }
        }
    }

    /// What is named in `document` right behind its name.
    fn places(&mut self, end: usize, document: &str) {
        let Some(found) = regex!(PLACE).captures(self.prose.behind(end)) else { return };
        let group = |number: usize| found.get(number).map_or("", |group| group.as_str());
        let (numbers, quoted) = (group(2), group(3));
        if group(1).is_empty() {
            if !numbers.is_empty() {
                self.tell(end, &format!("write `{document}, section {numbers}`, with a comma"));
            }
            return;
        }
        let titles = self.tree.texts.get(document).map(|text| titles(text)).unwrap_or_default();
        for number in numbers.split([',', ' ']).filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        {
            let is = |heading: &String| heading.split(' ').next().unwrap().trim_end_matches('.') == number;
            if !titles.iter().any(is) {
                self.tell(end, &format!("{document} has no section {number}"));
            }
        }
        for heading in quoted.split('"').skip(1).step_by(2) {
            let heading = plain(heading.trim_end_matches(['.', ',']));
            // "Test world" is enough for "Test world (`make campaign`)".
            let is = |have: &String| {
                have.strip_prefix(heading.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
            };
            if !titles.iter().any(is) {
                self.tell(end, &format!("{document} has no heading \"{heading}\""));
            }
        }
    }

    /// (c) RFCs, and the form of their sections.
    fn rfcs(&mut self) {
        for found in self.find(regex!(r"\bRFCs?( ?)(\d+)((?:,? (?:and |or )?\d{4}\b)*)"), &["RFC"]) {
            let (at, first) = (found.start(), found.group(2));
            if found.group(1).is_empty() {
                self.tell(at, &format!("write `RFC {first}`, with a space"));
            }
            let more = found.group(3).split([',', ' ']).filter(|part| part.parse::<u32>().is_ok());
            for number in std::iter::once(first).chain(more) {
                if !self.references.has_key(&format!("RFC {number}")) {
                    self.tell(at, &format!("RFC {number} is no row of {REFERENCES}"));
                }
            }
            let place = regex!(r"^(,?) (?:sections?|appendix|appendices) (\S+)")
                .captures(self.prose.behind(found.end()));
            let Some(place) = place else { continue };
            let number = place[2].trim_end_matches(|c: char| !c.is_alphanumeric());
            if place[1].is_empty() {
                self.tell(at, &format!("write `RFC {first}, section {number}`, with a comma"));
            } else if !regex!(r"^(?:\d+|[A-Z])(?:\.\d+)*$").is_match(number) {
                self.tell(at, &format!("`{number}` is no section of RFC {first}"));
            }
        }
    }

    /// (c) Papers, drafts and standards.
    fn works(&mut self) {
        if self.path == REFERENCES {
            return;
        }
        for found in self.find(regex!(r"\barXiv[: ]?(\d{4}\.\d{4,5})"), &["arXiv"]) {
            self.keyed(&found, format!("arXiv {}", found.group(1)));
        }
        for found in self.find(regex!(r"\bdraft-[a-z]+-[a-z]+(?:-[a-z]+)+"), &["draft-"]) {
            self.keyed(&found, found.group(0).to_string());
        }
        for found in self.find(regex!(r"\bIEEE (802\.\d+[A-Za-z]*)"), &["IEEE"]) {
            self.keyed(&found, format!("IEEE {}", found.group(1)));
        }
        for found in self.find(regex!(VENUE), &VENUES) {
            self.keyed(&found, format!("{}'{}", found.group(1), found.group(2)));
        }
        for found in self.find(regex!(r"\bSRD\.txt(,?)(?: (sections?))? (\d+(?:\.\d+)*)"), &["SRD.txt"]) {
            if found.group(1).is_empty() || found.group(2).is_empty() {
                self.tell(found.start(), &format!("write `SRD.txt, section {}`", found.group(3)));
            } else if !SRD_TXT.contains(&found.group(3)) {
                self.tell(found.start(), &format!("SRD.txt has no section {}", found.group(3)));
            }
        }
        for found in self.find_told(regex!(AUTHORS), &["19", "20"]) {
            let (at, author, year) = (found.start(), found.group(1), found.group(3));
            if !NO_AUTHORS.contains(&author) && !self.references.has_row(&[author, year]) {
                self.tell(at, &format!("{author} {year} is no row of {REFERENCES}"));
            }
        }
        for found in self.find(regex!(r"\b([A-Z][a-z]+(?:-[A-Z][a-z]+)*) et al\."), &["et al."]) {
            if !self.references.has_row(&[found.group(1)]) {
                self.tell(found.start(), &format!("{} is no author in {REFERENCES}", found.group(1)));
            }
        }
    }

    fn keyed(&mut self, found: &Found<'_>, key: String) {
        if !self.references.has_key(&key) {
            self.tell(found.start(), &format!("{key} is no row of {REFERENCES}"));
        } else if found.group(0) != key {
            self.tell(found.start(), &format!("write `{key}`"));
        }
    }

    /// (c) Headers and sources in C that are not ours.
    fn foreign_files(&mut self) {
        let source = regex!(r"(?:^|[^\w.-])((?:[\w-]+/)*[A-Za-z][\w-]*\.(?:h|c|cc|cpp))\b");
        for found in self.find_told(source, &[".h", ".c"]) {
            let (at, name) = (found.start_of(1), found.group(1));
            let base = name.rsplit('/').next().unwrap();
            let code = self.path.ends_with(".c") || self.path.ends_with(".h"); // there they are included
            if code || self.tree.has_ending(base) {
                continue;
            }
            if !self.references.lists(base) {
                self.tell(at, &format!("{base} is neither ours nor named in {REFERENCES}"));
            }
        }
    }

    /// (d) Files of ours.
    fn own_files(&mut self) {
        for found in self.find_told(regex!(OWN_PATH), &["/"]) {
            let pattern = !matches!(found.group(2), "" | "/");
            self.file(found.start_of(1), found.group(1), pattern);
        }
        let source = regex!(r"(?:^|[^\w./-])((?:[\w-]+/)*[\w-]+\.(?:rs|py|lua))\b");
        for found in self.find_told(source, &[".rs", ".py", ".lua"]) {
            self.file(found.start_of(1), found.group(1), false);
        }
    }

    fn file(&mut self, at: usize, path: &str, pattern: bool) {
        // NAME and the like stand for any.
        let stands_for_any = |part: &str| {
            let stem = part.split('.').next().unwrap();
            stem.len() > 1 && stem.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        };
        if pattern || path.ends_with(".md") || path.split('/').any(stands_for_any) {
            return;
        }
        let exact = path.starts_with("crates/") || path.starts_with("docs/");
        let there = self.in_repository(path).is_some()
            || self.beside(path).is_some()
            || !exact
                && (self.in_crate(path).is_some()
                    || self.tree.has_ending(path)
                    || self.references.lists(path));
        if !there {
            self.tell(at, &format!("there is no {path} here"));
        }
    }
}

/// What is wrong in a repository of these files, to which a list of references is added unless they have one.
fn wrong_in(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![(
        REFERENCES,
        "| key | title |\n|---|---|\n| RFC 8985 | RACK |\n| SRD.txt | `SRD.txt`, `uec.cpp` |\n",
    )];
    if files.iter().any(|file| file.0 == REFERENCES) {
        all.clear();
    }
    all.extend(files);
    Tree::new(all.iter().map(|&(path, text)| (path.to_string(), Some(text.to_string())))).wrong()
}

#[test]
fn a_link_needs_a_file_and_its_anchor_a_heading() {
    let guide = ("docs/GUIDE.md", "# Guide\n\n## First `run`, then more\n\n## Twice\n\n## Twice\n");
    let good = "[a](docs/GUIDE.md) [b](docs/GUIDE.md#first-run-then-more) [c](docs/GUIDE.md#twice-1) [d](docs) \
                [e](https://example.com/x.md) [f](#start)\n# Start\n";
    assert_eq!(wrong_in(&[guide, ("README.md", good)]), [""; 0]);
    let bad = "text\n[a](GUIDE.md)\n\n\n[b](docs/GUIDE.md#second-run)\n[c](docs/GUIDE.md#twice-2)\n";
    let expected = [
        "README.md:2: the link leads to GUIDE.md, which does not exist",
        "README.md:5: docs/GUIDE.md has no heading for the anchor #second-run",
        "README.md:6: docs/GUIDE.md has no heading for the anchor #twice-2",
        "README.md:2: there is no document GUIDE.md; name its directory, too",
    ];
    assert_eq!(wrong_in(&[guide, ("README.md", bad)]), expected);
}

#[test]
fn a_heading_within_code_is_none() {
    let guide = ("docs/GUIDE.md", "# Guide\n```\n# not a heading\n```\n");
    let wrong = wrong_in(&[guide, ("README.md", "[a](docs/GUIDE.md#not-a-heading)")]);
    assert_eq!(wrong, ["README.md:1: docs/GUIDE.md has no heading for the anchor #not-a-heading"]);
}

#[test]
fn a_document_must_exist_and_have_the_section_and_the_heading_that_are_named() {
    let spec = (
        "docs/SPEC.md",
        "# Spec\n## 1. Words\n## 2. Packets (`layout.rs`)\n### 2.1 Data\n**Loss.** Lost is...\n",
    );
    let code = ("crates/one/src/layout.rs", "");
    let good = "//! See docs/SPEC.md, section 2.1, and `docs/SPEC.md`, sections 1 and 2; docs/SPEC.md, \"2. Packets\" and\n\
                //! \"Loss\".\nconst OWN: &str = include_str!(\"../../../docs/SPEC.md\");\n// \"SPEC.md\"\nlet path = \"SPEC.md\";\n";
    let wrong = wrong_in(&[spec, code, ("crates/one/src/lib.rs", good)]);
    assert_eq!(wrong, ["crates/one/src/lib.rs:4: there is no document SPEC.md; name its directory, too"]);
    let bad = "// docs/SPEC.md, section 3; docs/SPEC.md,\n// sections 1 and\n// 2.2, docs/SPEC.md, \"Bytes\", docs/SPEC.md section 1\n\
               // NOTES.md and docs/NOTES.md\n// OLD_NOTES, section 7\n";
    let expected = [
        "crates/one/src/lib.rs:1: docs/SPEC.md has no section 3",
        "crates/one/src/lib.rs:1: docs/SPEC.md has no section 2.2",
        "crates/one/src/lib.rs:3: docs/SPEC.md has no heading \"Bytes\"",
        "crates/one/src/lib.rs:3: write `docs/SPEC.md, section 1`, with a comma",
        "crates/one/src/lib.rs:4: there is no document NOTES.md",
        "crates/one/src/lib.rs:4: there is no document docs/NOTES.md",
        "crates/one/src/lib.rs:5: OLD_NOTES is no document; write its path",
    ];
    assert_eq!(wrong_in(&[spec, code, ("crates/one/src/lib.rs", bad)]), expected);
}

#[test]
fn an_rfc_must_be_listed_and_its_sections_be_numbers() {
    let good = "// RFC 8985; RFC 8985, section 7.2; RFC 8985, appendix B.1; RFC 8985, sections 6 and 7.\n";
    assert_eq!(wrong_in(&[("a.rs", good)]), [""; 0]);
    let bad =
        "// RFC 1; RFC 8985, 2018 and 2883\n// RFC8985, RFC 8985 section 2, RFC\n// 8985, section two\n";
    let expected = [
        "a.rs:1: RFC 1 is no row of docs/REFERENCES.md",
        "a.rs:1: RFC 2018 is no row of docs/REFERENCES.md",
        "a.rs:1: RFC 2883 is no row of docs/REFERENCES.md",
        "a.rs:2: write `RFC 8985`, with a space",
        "a.rs:2: write `RFC 8985, section 2`, with a comma",
        "a.rs:2: `two` is no section of RFC 8985",
    ];
    assert_eq!(wrong_in(&[("a.rs", bad)]), expected);
}

#[test]
fn papers_drafts_standards_and_files_of_others_must_be_listed() {
    let listed = "| arXiv 2407.21625 | REPS | Bonato, Kabbani | 2024 |\n| draft-ietf-opsawg-pcap | PCAP |\n| IEEE 802.1Qbb | PFC |\n\
                  | SIGCOMM'15 | DCQCN | Zhu, Eran | 2015 |\n| Al-Fares 2008 | Fat trees | Al-Fares, Vahdat | 2008 |\n\
                  | SRD.txt | the driver's | `SRD.txt`, `linux/tcp.h` |\n";
    let text = "// arXiv 2407.21625, draft-ietf-opsawg-pcap, IEEE 802.1Qbb, SIGCOMM'15 (Zhu et al.), (Al-Fares and others, 2008)\n\
                // SRD.txt, section 3.3.1; tcp.h\n";
    assert_eq!(wrong_in(&[(REFERENCES, listed), ("a.rs", text)]), [""; 0]);
    let expected = [
        "a.rs:1: arXiv 2407.21625 is no row of docs/REFERENCES.md",
        "a.rs:1: draft-ietf-opsawg-pcap is no row of docs/REFERENCES.md",
        "a.rs:1: IEEE 802.1Qbb is no row of docs/REFERENCES.md",
        "a.rs:1: SIGCOMM'15 is no row of docs/REFERENCES.md",
        "a.rs:1: Al-Fares 2008 is no row of docs/REFERENCES.md",
        "a.rs:1: Zhu is no author in docs/REFERENCES.md",
        "a.rs:2: tcp.h is neither ours nor named in docs/REFERENCES.md",
    ];
    assert_eq!(wrong_in(&[("a.rs", text)]), expected);
    let forms = "// SIGCOMM 2015, SRD.txt 3.3.1, SRD.txt, section 3.4\n";
    let expected = [
        "a.rs:1: write `SIGCOMM'15`",
        "a.rs:1: write `SRD.txt, section 3.3.1`",
        "a.rs:1: SRD.txt has no section 3.4",
    ];
    assert_eq!(wrong_in(&[(REFERENCES, listed), ("a.rs", forms)]), expected);
}

#[test]
fn files_of_the_repository_that_are_named_must_exist() {
    let files =
        [("crates/srd-net/src/core.rs", ""), ("crates/srd-net/tests/udp.rs", ""), ("labs/three.toml", "")];
    let good = "`crates/srd-net/src/core.rs`, `srd-net/src/core.rs`, `core.rs`, `tests/udp.rs`, `srd-net/src/*.rs`, `labs/NAME.toml`\n";
    let all: Vec<_> = files.into_iter().chain([("docs/MAP.md", good)]).collect();
    assert_eq!(wrong_in(&all), [""; 0]);
    let bad = "`crates/srd-net/src/gone.rs`\n`srd-net/src/gone.rs`\n`gone.rs`, `labs/four.toml`\n`crates/src/core.rs`\n";
    let all: Vec<_> = files
        .into_iter()
        .chain([("docs/MAP.md", bad), ("crates/srd-net/src/lib.rs", "// `tests/gone.rs`\n")])
        .collect();
    let expected = [
        "crates/srd-net/src/lib.rs:1: there is no tests/gone.rs here",
        "docs/MAP.md:1: there is no crates/srd-net/src/gone.rs here",
        "docs/MAP.md:2: there is no srd-net/src/gone.rs here",
        "docs/MAP.md:3: there is no gone.rs here",
        "docs/MAP.md:3: there is no labs/four.toml here",
        "docs/MAP.md:4: there is no crates/src/core.rs here",
    ];
    let mut wrong = wrong_in(&all);
    wrong.sort();
    assert_eq!(wrong, expected);
}
