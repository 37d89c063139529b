//! tshark with the dissector: what it has seen of each frame.

use crate::fields::{Fields, NAMES, TEXTS};
use crate::pcap::Pcap;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/srd.lua");

/// A directory of a test's own.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn scratch(name: &str) -> Scratch {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("srd-wireshark-{}-{name}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    Scratch(path)
}

/// What tshark has seen of a frame.
pub struct Seen {
    pub fields: Fields,
    pub texts: BTreeMap<&'static str, String>,
    pub refused: Option<String>,
    pub experts: String,
}

impl Seen {
    /// The dissector has done its work without an error of its own.
    pub fn must_be_sound(&self) {
        assert!(!self.experts.contains("Lua"), "{}", self.experts);
        assert!(!self.experts.contains("bug"), "{}", self.experts);
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name).and_then(|values| values.first().copied())
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.texts.get(name).cloned()
    }
}

/// All frames of a capture.
pub fn dissect(capture: &Pcap) -> Vec<Seen> {
    let dir = scratch("capture");
    let file = dir.0.join("frames.pcap");
    std::fs::write(&file, &capture.0).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{DISSECTOR}")).arg("-r").arg(&file).arg("-n");
    command.args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=;"]);
    let all = ["srd.refused", "_ws.expert.message"].into_iter().chain(NAMES).chain(TEXTS);
    all.for_each(|name| {
        command.args(["-e", name]);
    });
    // Nobody's own configuration.
    let output = command.env("HOME", &dir.0).env("XDG_CONFIG_HOME", &dir.0).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}; scripts/setup.sh installs it"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    String::from_utf8_lossy(&output.stdout).lines().map(seen).collect()
}

fn seen(line: &str) -> Seen {
    let mut cells = line.split('\t');
    let mut cell = || cells.next().unwrap_or_else(|| panic!("too few fields in {line:?}"));
    let (refused, experts) = (cell().to_owned(), cell().to_owned());
    let mut fields = Fields::new();
    for name in NAMES {
        let values: Vec<u64> = cell().split(';').filter(|value| !value.is_empty()).map(number).collect();
        if !values.is_empty() {
            fields.insert(name, values);
        }
    }
    let texts = TEXTS.iter().map(|&name| (name, cell().replace(':', ""))).collect::<Vec<_>>();
    let texts = texts.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    Seen { fields, texts, refused: Some(refused).filter(|cause| !cause.is_empty()), experts }
}

fn number(text: &str) -> u64 {
    match (text.strip_prefix("0x"), text) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).unwrap(),
        (None, "True") => 1,
        (None, "False") => 0,
        (None, digits) => digits.parse().unwrap_or_else(|_| panic!("{digits:?} is no number")),
    }
}
