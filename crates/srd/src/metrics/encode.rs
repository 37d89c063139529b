//! Metrics as OpenMetrics text (openmetrics.io, version 1.0.0) and as JSON.

use super::gather::{Labels, Number, Snapshot};
use super::table::Kind;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::SystemTime;

/// The text's media type.
pub const TEXT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The JSON's.
pub const JSON_TYPE: &str = "application/json";

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Unknown => "unknown",
    }
}

/// As text.
pub fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    for family in &snapshot.families {
        let metric = family.metric;
        let _ = writeln!(out, "# TYPE {} {}", metric.name, kind_name(metric.kind));
        if !metric.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {} {}", metric.name, metric.unit);
        }
        let _ = writeln!(out, "# HELP {} {}", metric.name, escaped(metric.help));
        let name = metric.sample_name();
        for (labels, value) in &family.samples {
            out += &name;
            put_labels(&mut out, labels);
            let _ = match value {
                Number::Whole(n) => writeln!(out, " {n}"),
                Number::Real(x) => writeln!(out, " {x}"),
            };
        }
    }
    out += "# EOF\n";
    out
}

fn put_labels(out: &mut String, labels: &Labels) {
    for (i, (name, value)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{name}=\"{}\"", if i == 0 { "{" } else { "," }, escaped(value));
    }
    if !labels.is_empty() {
        out.push('}');
    }
}

/// Backslash, quote and the end of a line have a meaning there.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// As JSON.
pub fn json(snapshot: &Snapshot) -> Value {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let sample = |(labels, value): &(Labels, Number)| {
        let labels: Map<String, Value> =
            labels.iter().map(|(name, value)| (name.to_string(), Value::from(value.as_str()))).collect();
        json!({ "labels": labels, "value": value })
    };
    let metrics: Vec<Value> = snapshot
        .families
        .iter()
        .map(|family| {
            let metric = family.metric;
            json!({
                "name": metric.sample_name(),
                "type": kind_name(metric.kind),
                "unit": metric.unit,
                "help": metric.help,
                "samples": family.samples.iter().map(sample).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "time_s": now.as_secs_f64(), "metrics": metrics, "silent": snapshot.silent })
}

#[cfg(test)]
mod tests {
    use super::super::gather::tests::sample;
    use super::*;

    #[test]
    fn labels_are_escaped_and_the_text_has_an_end() {
        let answer = json!({"pid": 7, "program": "a\"b\\c\nd", "address": "10.0.0.1:1", "mtu": 1500,
            "transport": {"tx_pkts": 18_446_744_073_709_551_615u64}});
        let text = text(&Snapshot::of(&sample(&[answer]), 8, &[]));
        // A control character of a program's name becomes a question mark before it comes here.
        let labels = r#"{pid="7",program="a\"b\\c?d",address="10.0.0.1:1"}"#;
        assert!(text.contains(&format!("\nsrd_tx_packets_total{labels} 18446744073709551615\n")), "{text}");
        assert!(
            text.contains("# TYPE srd_path_mtu_bytes gauge\n# UNIT srd_path_mtu_bytes bytes\n# HELP "),
            "{text}"
        );
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(escaped("a\nb"), "a\\nb");
    }

    #[test]
    fn nobody_there_is_still_an_answer() {
        let text = text(&Snapshot::of(&sample(&[]), 8, &[]));
        assert!(text.contains("\nsrd_processes 0\n"), "{text}");
    }
}
