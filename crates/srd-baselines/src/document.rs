//! A scenario file as a tree in which everything knows where it was written: a line, or an override.

use crate::input::{InputError, shown};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Line of the file, from 1.
    Line(u32),
    /// The text of an override, `transport.paths=32`.
    Set(String),
}

/// A value and where it was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Where it was written.
    pub origin: Origin,
    /// What was.
    pub content: Content,
}

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number with a point.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A list.
    List(Vec<Node>),
    /// A section.
    Table(Table),
    /// What no key here takes: its name, and what was written.
    Other(&'static str, String),
}

/// Most names in the path of an override: `fabric.tier.0.down_gbps` and the like have fewer.
const DEEPEST: usize = 8;

/// Keys and values, in the order in which they were written.
pub type Table = Vec<(String, Node)>;

/// A scenario file.
#[derive(Clone, PartialEq, Debug)]
pub struct Document {
    /// Its name in errors.
    pub file: String,
    /// What it says.
    pub root: Table,
}

/// The value of `key`.
pub fn entry<'a>(table: &'a Table, key: &str) -> Option<&'a Node> {
    table.iter().find(|(name, _)| name == key).map(|(_, node)| node)
}

impl Document {
    /// Reads `text`, called `file` in errors.
    pub fn parse(text: &str, file: &str) -> Result<Document, InputError> {
        let lines = Lines::of(text);
        let root = DeTable::parse(text).map_err(|error| {
            let line = error.span().map(|span| lines.line(span.start));
            let message = format!("this is not TOML: {}", error.message());
            InputError { place: file.to_string(), line, message }
        })?;
        let origin = |at: usize| Origin::Line(lines.line(at));
        Ok(Document { file: file.to_string(), root: table_of(root.get_ref(), &origin) })
    }

    /// Applies an override: `section.key=value`. A number in the path picks one of several sections (`workload.0.size`);
    /// without it all are meant. The value is TOML, or a bare word.
    pub fn set(&mut self, text: &str) -> Result<(), InputError> {
        let error = |message: String| match text.chars().nth(200) {
            None => InputError::of(&format!("--set {text}"), message),
            Some(_) => InputError::of(&format!("--set {}", shown(text)), message),
        };
        let form = "write `section.key=value`, such as `transport.paths=32`";
        let (path, value) = text.split_once('=').ok_or_else(|| error(form.to_string()))?;
        let path: Vec<&str> = path.trim().split('.').map(str::trim).collect();
        if path.len() > DEEPEST || path.iter().any(|key| key.is_empty()) {
            return Err(error(form.to_string()));
        }
        let node = Node { origin: Origin::Set(text.to_string()), content: value_of(value.trim(), text) };
        put(&mut self.root, &path, &node).map_err(error)
    }

    /// An error about something written at `origin`.
    pub fn error(&self, origin: &Origin, message: impl Into<String>) -> InputError {
        match origin {
            Origin::Line(line) => InputError::at(&self.file, *line, message),
            Origin::Set(text) => InputError::of(&format!("--set {text}"), message),
        }
    }
}

fn put(table: &mut Table, path: &[&str], node: &Node) -> Result<(), String> {
    let Some((key, rest)) = path.split_first() else { return Err("an empty name".to_string()) };
    let at = match table.iter().position(|(name, _)| name == key) {
        Some(at) => at,
        None => {
            let content = Content::Table(Table::new());
            table.push((key.to_string(), Node { origin: node.origin.clone(), content }));
            table.len() - 1
        }
    };
    put_in(&mut table[at].1, key, rest, node)
}

fn put_in(place: &mut Node, key: &str, rest: &[&str], node: &Node) -> Result<(), String> {
    if rest.is_empty() {
        *place = node.clone();
        return Ok(());
    }
    match &mut place.content {
        Content::Table(table) => put(table, rest, node),
        Content::List(items) => match rest[0].parse::<usize>() {
            Ok(number) => match items.get_mut(number) {
                Some(item) => put_in(item, rest[0], &rest[1..], node),
                None => Err(format!(
                    "there is no {key}.{number}: this file has {} of them, from 0 on",
                    items.len()
                )),
            },
            Err(_) => items.iter_mut().try_for_each(|item| put_in(item, key, rest, node)),
        },
        _ => Err(format!("{} is a value and has nothing inside", shown(key))),
    }
}

/// TOML if it is, otherwise the bare word: `reps`, `1bdp`, `64KB`.
fn value_of(value: &str, text: &str) -> Content {
    let bare = || Content::Text(value.to_string());
    match DeValue::parse(value) {
        Ok(parsed) => match content_of(parsed.get_ref(), &|_| Origin::Set(text.to_string())) {
            Content::Other(..) => bare(),
            content => content,
        },
        Err(_) => bare(),
    }
}

fn table_of(table: &DeTable<'_>, origin: &dyn Fn(usize) -> Origin) -> Table {
    let mut entries: Vec<(usize, String, Node)> = table
        .iter()
        .map(|(key, value)| {
            let at = key.span().start;
            (
                at,
                key.get_ref().to_string(),
                Node { origin: origin(at), content: content_of(value.get_ref(), origin) },
            )
        })
        .collect();
    entries.sort_by_key(|(at, ..)| *at);
    entries.into_iter().map(|(_, key, node)| (key, node)).collect()
}

fn content_of(value: &DeValue<'_>, origin: &dyn Fn(usize) -> Origin) -> Content {
    let node = |item: &Spanned<DeValue<'_>>| {
        let content = content_of(item.get_ref(), origin);
        Node { origin: origin(item.span().start), content }
    };
    match value {
        DeValue::String(text) => Content::Text(text.to_string()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Content::Whole(number),
            Err(_) => Content::Other("a number too large", number.to_string()),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Content::Number(number),
            _ => Content::Other("no finite number", number.to_string()),
        },
        DeValue::Boolean(flag) => Content::Flag(*flag),
        DeValue::Datetime(time) => Content::Other("a date or time", time.to_string()),
        DeValue::Array(items) => Content::List(items.iter().map(node).collect()),
        DeValue::Table(table) => Content::Table(table_of(table, origin)),
    }
}

/// Where each line begins.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    /// Number of the line in which byte `at` lies.
    fn line(&self, at: usize) -> u32 {
        self.0.partition_point(|&begin| begin <= at) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get<'a>(document: &'a Document, path: &[&str]) -> &'a Node {
        let mut node = entry(&document.root, path[0]).unwrap();
        for key in &path[1..] {
            node = match &node.content {
                Content::Table(table) => entry(table, key).unwrap(),
                Content::List(items) => &items[key.parse::<usize>().unwrap()],
                _ => panic!("no such node"),
            };
        }
        node
    }

    #[test]
    fn values_know_their_lines() {
        let text = "seed = 1_000\n\n[transport]\nmtu = 0x10\n[[workload]]\n[[workload]]\nsize = -5 # bytes\n";
        let document = Document::parse(text, "a.toml").unwrap();
        assert_eq!(
            *get(&document, &["seed"]),
            Node { origin: Origin::Line(1), content: Content::Whole(1000) }
        );
        assert_eq!(
            *get(&document, &["transport", "mtu"]),
            Node { origin: Origin::Line(4), content: Content::Whole(16) }
        );
        assert_eq!(
            *get(&document, &["workload", "1", "size"]),
            Node { origin: Origin::Line(7), content: Content::Whole(-5) }
        );
        assert_eq!(get(&document, &["workload", "1"]).origin, Origin::Line(6));
    }

    #[test]
    fn overrides_reach_one_section_or_all() {
        let mut document =
            Document::parse("[[workload]]\nsize = 1\n[[workload]]\nsize = 2\n", "a.toml").unwrap();
        document.set("workload.1.size=64KB").unwrap();
        document.set("transport.paths=32").unwrap();
        assert_eq!(get(&document, &["workload", "0", "size"]).content, Content::Whole(1));
        assert_eq!(get(&document, &["workload", "1", "size"]).content, Content::Text("64KB".to_string()));
        assert_eq!(get(&document, &["transport", "paths"]).content, Content::Whole(32));
        document.set("workload.size = 0.5").unwrap();
        assert_eq!(get(&document, &["workload", "0", "size"]).content, Content::Number(0.5));
        assert_eq!(get(&document, &["workload", "1", "size"]).content, Content::Number(0.5));
        let refused = |document: &mut Document, text: &str| document.set(text).unwrap_err().to_string();
        assert!(refused(&mut document, "workload.2.size=1").contains("this file has 2"));
        assert!(refused(&mut document, "transport.paths.x=1").contains("has nothing inside"));
        assert!(refused(&mut document, "transport").starts_with("--set transport: write"));
    }
}
