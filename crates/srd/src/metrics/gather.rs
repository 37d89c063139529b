//! A sample of all processes as metrics.

use super::table::{METRICS, Merge, Metric, Scope, Source};
use crate::top::answer::printable;
use crate::top::sample::{Sample, Silent, Told};
use serde::Serialize;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// Instances that are told of at most.
const MOST_INSTANCES: usize = 512;
/// Keys of an object that are told of at most: numbers of errors, and causes.
const MOST_KEYS: usize = 32;

/// Names and values of labels.
pub type Labels = Vec<(&'static str, String)>;

/// A number: counters are whole, and larger than a float knows to the last digit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A quantity.
    Real(f64),
}

/// A metric with its values.
pub struct Family {
    /// Which.
    pub metric: &'static Metric,
    /// Its values.
    pub samples: Vec<(Labels, Number)>,
}

/// All metrics at one moment.
pub struct Snapshot {
    /// Those that have values, in the order of the table.
    pub families: Vec<Family>,
    /// Processes that have not answered.
    pub silent: Vec<Silent>,
}

/// A metric that is being filled.
#[derive(Default)]
struct Filling {
    samples: Vec<(Labels, Number)>,
    places: HashMap<Labels, usize>,
}

impl Filling {
    fn add(&mut self, merge: Merge, labels: Labels, value: Number) {
        match self.places.get(&labels) {
            None => {
                self.places.insert(labels.clone(), self.samples.len());
                self.samples.push((labels, value));
            }
            Some(&place) if merge == Merge::Sum => {
                let sum = &mut self.samples[place].1;
                *sum = match (*sum, value) {
                    (Number::Whole(a), Number::Whole(b)) => Number::Whole(a.saturating_add(b)),
                    (Number::Real(a), Number::Real(b)) => Number::Real(a + b),
                    (kept, _) => kept,
                };
            }
            Some(_) => {}
        }
    }

    fn add_all(&mut self, metric: &Metric, labels: &Labels, document: &Value) {
        for source in metric.sources {
            for (label, value) in values(source, document) {
                let labels = labels.iter().cloned().chain(label).collect();
                self.add(metric.merge, labels, value);
            }
        }
    }
}

impl Snapshot {
    /// The metrics of a sample, with so many peers of each kind for each process, and of the devices whose directories these are.
    pub fn of(sample: &Sample, peers: usize, devices: &[PathBuf]) -> Snapshot {
        let mut seen = HashSet::new();
        let fits = |told: &&Told| {
            seen.insert((told.pid, told.stats.address.clone())) && seen.len() <= MOST_INSTANCES
        };
        let told = sample.instances.iter().filter(fits);
        // An answer that was read once can be read again.
        let told = told.map(|told| (told, serde_json::from_str(told.answer.get()).unwrap_or_default()));
        let told: Vec<(&Told, Value)> = told.collect();
        let left_out = sample.instances.len() - told.len();
        let family = |metric: &'static Metric| {
            let mut filling = Filling::default();
            match metric.name {
                "srd_processes" => filling.add(metric.merge, Labels::new(), whole(told.len())),
                "srd_processes_silent" => {
                    filling.add(metric.merge, Labels::new(), whole(sample.silent.len()))
                }
                "srd_processes_left_out" => filling.add(metric.merge, Labels::new(), whole(left_out)),
                _ if metric.scope == Scope::Port => fill_ports(&mut filling, metric, devices),
                _ => told.iter().for_each(|(told, answer)| fill(&mut filling, metric, told, answer, peers)),
            }
            Family { metric, samples: filling.samples }
        };
        let families = METRICS.iter().map(family).filter(|family| !family.samples.is_empty()).collect();
        Snapshot { families, silent: sample.silent.clone() }
    }
}

fn whole(n: usize) -> Number {
    Number::Whole(n as u64)
}

/// Of devices, by their directories.
fn fill_ports(filling: &mut Filling, metric: &Metric, devices: &[PathBuf]) {
    for directory in devices {
        let port = directory.join("ports/1");
        let device =
            directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for source in metric.sources {
            let value = match source.at {
                "" => Some(1),
                file => fs::read_to_string(port.join(file)).ok().and_then(|text| text.trim().parse().ok()),
            };
            let labels = vec![("device", printable(&device)), ("port", "1".to_owned())];
            value
                .into_iter()
                .for_each(|value| filling.add(metric.merge, labels.clone(), Number::Whole(value)));
        }
    }
}

fn fill(filling: &mut Filling, metric: &Metric, told: &Told, answer: &Value, most: usize) {
    let stats = &told.stats;
    let labels = vec![
        ("pid", told.pid.to_string()),
        ("program", stats.program.clone()),
        ("address", stats.address.clone()),
    ];
    let listed = |at: &str| answer[at].as_array().map_or(&[][..], Vec::as_slice);
    let named = |peer: &Value| printable(peer["address"].as_str().unwrap_or_default());
    match metric.scope {
        Scope::Host | Scope::Port => {}
        Scope::Process if metric.name == "srd_peers_left_out" => {
            let told_of = listed("peers").len().min(most);
            filling.add(metric.merge, labels, whole(stats.peer_count.saturating_sub(told_of)));
        }
        Scope::Process => filling.add_all(metric, &labels, answer),
        Scope::Layers => listed("layers").iter().for_each(|layer| filling.add_all(metric, &labels, layer)),
        Scope::Peer => {
            for peer in listed("peers").iter().take(most) {
                let labels = labels.iter().cloned().chain([("peer", named(peer))]).collect();
                filling.add_all(metric, &labels, peer);
            }
        }
        Scope::LocalPeer => {
            let all = listed("layers").iter().filter_map(|layer| layer["local_peers"].as_array()).flatten();
            let shared = all.filter(|peer| peer["shared_memory"] == Value::Bool(true));
            for peer in shared.take(most) {
                let endpoint = peer["endpoint"].as_u64().unwrap_or(0).to_string();
                let more = [("peer", named(peer)), ("endpoint", endpoint)];
                filling.add_all(metric, &labels.iter().cloned().chain(more).collect(), peer);
            }
        }
    }
}

/// The values that a source has, with the labels that they alone have. A process of another release may not tell all.
fn values(source: &Source, document: &Value) -> Vec<(Option<(&'static str, String)>, Number)> {
    let own = source.label.map(|(name, value)| (name, value.to_string()));
    match (document.pointer(source.at), source.each) {
        (Some(Value::Object(keys)), Some(label)) => {
            let keys = keys.iter().take(MOST_KEYS);
            keys.filter_map(|(key, value)| Some((Some((label, printable(key))), number(value, 1.0)?)))
                .collect()
        }
        (Some(value), None) => {
            let less = source.less.and_then(|less| document.pointer(less)?.as_u64()).unwrap_or(0);
            let value = match number(value, source.scale) {
                Some(Number::Whole(n)) => Some(Number::Whole(n.saturating_sub(less))),
                other => other,
            };
            value.map(|value| (own, value)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn number(value: &Value, scale: f64) -> Option<Number> {
    match value {
        Value::Bool(flag) => Some(Number::Whole(*flag as u64)),
        Value::Number(number) if scale == 1.0 && number.is_u64() => number.as_u64().map(Number::Whole),
        Value::Number(number) => number.as_f64().map(|number| Number::Real(number * scale)),
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::top::answer;
    use serde_json::json;

    /// A sample of processes that tell this.
    pub fn sample(answers: &[Value]) -> Sample {
        let told = |answer: &Value| Told {
            socket: "/a".into(),
            pid: answer["pid"].as_u64().unwrap() as u32,
            stats: answer::read(&answer.to_string()).unwrap(),
            answer: serde_json::value::to_raw_value(answer).unwrap(),
        };
        Sample { instances: answers.iter().map(told).collect(), silent: Vec::new() }
    }

    fn samples<'a>(snapshot: &'a Snapshot, name: &str) -> &'a [(Labels, Number)] {
        let family = snapshot.families.iter().find(|family| family.metric.name == name);
        family.map_or(&[], |family| &family.samples)
    }

    #[test]
    fn losses_are_told_by_cause() {
        let answer = json!({"pid": 7, "program": "lmp", "address": "10.0.0.1:17408",
            "transport": {"lost_by_timer": 3, "retrans_timeout_events": 5, "lost_by_rack": u64::MAX}});
        let snapshot = Snapshot::of(&sample(&[answer]), 8, &[]);
        let told = samples(&snapshot, "srd_lost_packets");
        let labels = |cause: &str| -> Labels {
            vec![
                ("pid", "7".into()),
                ("program", "lmp".into()),
                ("address", "10.0.0.1:17408".into()),
                ("cause", cause.into()),
            ]
        };
        assert_eq!(
            told,
            [
                (labels("reordering"), Number::Whole(u64::MAX)),
                (labels("timer"), Number::Whole(3)),
                (labels("silence"), Number::Whole(2)),
            ]
        );
    }

    #[test]
    fn peers_are_bounded_and_those_left_out_are_counted() {
        let peers: Vec<Value> =
            (0..5).map(|i| json!({"address": format!("10.0.0.2:{i}"), "tx_pkts": i})).collect();
        let answer = json!({"pid": 7, "program": "a", "address": "b", "peer_count": 300, "peers": peers});
        let snapshot = Snapshot::of(&sample(&[answer]), 2, &[]);
        assert_eq!(samples(&snapshot, "srd_peer_tx_packets").len(), 2);
        assert_eq!(samples(&snapshot, "srd_peers_left_out")[0].1, Number::Whole(298));
    }

    #[test]
    fn contexts_of_one_peer_are_one_and_no_two_samples_have_the_same_labels() {
        let peer = |pkts: u64, rtt: f64| json!({"address": "10.0.0.2:1", "tx_pkts": pkts, "rtt_us": rtt});
        let answer =
            json!({"pid": 7, "program": "a", "address": "b", "peers": [peer(1, 10.0), peer(2, 20.0)]});
        let snapshot = Snapshot::of(&sample(&[answer.clone(), answer]), 8, &[]);
        assert_eq!(samples(&snapshot, "srd_peer_tx_packets")[0].1, Number::Whole(3));
        let Number::Real(rtt) = samples(&snapshot, "srd_peer_rtt_seconds")[0].1 else { panic!("a quantity") };
        assert!((rtt - 10e-6).abs() < 1e-12);
        assert_eq!(samples(&snapshot, "srd_processes_left_out")[0].1, Number::Whole(1));
        for family in &snapshot.families {
            let labels: HashSet<_> = family.samples.iter().map(|(labels, _)| labels).collect();
            assert_eq!(labels.len(), family.samples.len(), "{}", family.metric.name);
        }
    }

    #[test]
    fn devices_are_told_by_name_and_port() {
        let device = std::env::temp_dir().join(format!("srd-gather-{}/rdmap79s0", std::process::id()));
        fs::create_dir_all(device.join("ports/1/hw_counters")).unwrap();
        fs::write(device.join("ports/1/hw_counters/tx_bytes"), "18446744073709551615\n").unwrap();
        let snapshot = Snapshot::of(&sample(&[]), 8, std::slice::from_ref(&device));
        fs::remove_dir_all(device.parent().unwrap()).unwrap();
        let labels: Labels = vec![("device", "rdmap79s0".into()), ("port", "1".into())];
        assert_eq!(
            samples(&snapshot, "node_amazonefa_tx_bytes"),
            [(labels.clone(), Number::Whole(u64::MAX))]
        );
        assert_eq!(samples(&snapshot, "node_amazonefa_info"), [(labels, Number::Whole(1))]);
        assert_eq!(samples(&snapshot, "node_amazonefa_rx_bytes"), [], "no such file");
    }

    #[test]
    fn errors_are_told_by_number_and_bounded() {
        let errors: serde_json::Map<String, Value> = (0..100).map(|n| (n.to_string(), json!(1))).collect();
        let answer = json!({"pid": 7, "program": "a", "address": "b", "transmit": {"errors": errors}});
        let snapshot = Snapshot::of(&sample(&[answer]), 8, &[]);
        assert_eq!(samples(&snapshot, "srd_tx_errors").len(), MOST_KEYS);
    }
}
