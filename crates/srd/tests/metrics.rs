//! `srd metrics` beside processes that use SRD.

mod processes;

use processes::{NO_PID, Place, Process, eventually, pair, text};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};

fn metrics(place: &Place, arguments: &[&str]) -> Output {
    place.srd(&["metrics"]).args(arguments).output().unwrap()
}

/// The samples of an exposition, by name with labels. Panics where it is not as OpenMetrics wants it.
fn parsed(text: &str) -> HashMap<String, f64> {
    let (mut samples, mut families) = (HashMap::new(), HashSet::new());
    let mut family = String::new();
    let body = text.strip_suffix("# EOF\n").expect("an end");
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            match what {
                "TYPE" => {
                    assert!(families.insert(name.to_owned()), "{name} comes twice");
                    assert!(matches!(words.next(), Some("counter" | "gauge" | "unknown")), "{line}");
                    family = name.to_owned();
                }
                "UNIT" => assert!(name == family && name.ends_with(words.next().unwrap()), "{line}"),
                "HELP" => assert_eq!(name, family),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').expect("a value");
        assert!(name.starts_with(&family), "{line} among those of {family}");
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{name} comes twice");
    }
    samples
}

/// The value of a metric of a process.
fn of(samples: &HashMap<String, f64>, metric: &str, process: &Process) -> Option<f64> {
    let begin = format!("{metric}{{pid=\"{}\"", process.pid());
    samples.iter().find(|(name, _)| name.starts_with(&begin)).map(|(_, &value)| value)
}

fn serve(place: &Place, arguments: &[&str]) -> (Process, String) {
    let mut command = place.srd(&["metrics", "--listen", "127.0.0.1:0"]);
    let mut server = Process(command.args(arguments).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    (server, address.unwrap_or_else(|| panic!("{line}")).to_owned())
}

/// Head and body of an answer.
fn asked(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn counters_of_every_process_grow_under_their_names() {
    let place = Place::new("metrics");
    let (server, client) = pair(&place);
    // There may be others of the same user on this host.
    let pids = [server.pid(), client.pid()].map(|pid| pid.to_string());
    let look = || parsed(&text(&metrics(&place, &["--pid", &pids[0], "--pid", &pids[1]]).stdout));
    let first = eventually("both send", || {
        let samples = look();
        let sends = |process| of(&samples, "srd_tx_packets_total", process) > Some(0.0);
        (sends(&server) && sends(&client)).then_some(samples)
    });
    assert_eq!(first["srd_processes"], 2.0);
    let second = eventually("they go on", || {
        let samples = look();
        let grown = |name| of(&samples, name, &client) > of(&first, name, &client);
        (grown("srd_tx_packets_total") && grown("srd_completions_total")).then_some(samples)
    });
    assert!(of(&second, "srd_peer_rtt_seconds", &client) > Some(0.0));
    let paths: Vec<_> = second.iter().filter(|(name, _)| name.starts_with("srd_peer_paths{")).collect();
    assert!(
        paths.iter().any(|(name, value)| name.contains("state=\"active\"") && **value == 64.0),
        "{paths:?}"
    );
    assert_eq!(paths.len() % 4, 0, "one for each state: {paths:?}");
    let losses = second.keys().filter(|name| name.starts_with("srd_lost_packets_total{"));
    assert_eq!(losses.count(), 12, "six causes, two processes");
}

#[test]
fn the_json_has_the_samples_of_the_text() {
    let place = Place::new("metrics-json");
    let (server, _client) = pair(&place);
    let pid = server.pid().to_string();
    let told = eventually("the server answers", || {
        let told: Value = serde_json::from_slice(&metrics(&place, &["--json", "--pid", &pid]).stdout).ok()?;
        told["metrics"].as_array()?.iter().any(|metric| metric["name"] == "srd_peer_silent").then_some(told)
    });
    let names = |told: &Value| -> HashSet<String> {
        let all = told["metrics"].as_array().unwrap();
        all.iter().map(|metric| metric["name"].as_str().unwrap().to_owned()).collect()
    };
    let text = parsed(&text(&metrics(&place, &["--pid", &pid]).stdout));
    let of_text: HashSet<String> =
        text.keys().map(|name| name.split('{').next().unwrap().to_owned()).collect();
    assert_eq!(names(&told), of_text);
    assert!(told["time_s"].as_f64() > Some(1.6e9));
}

#[test]
fn prometheus_finds_them_and_other_requests_are_refused() {
    let place = Place::new("metrics-http");
    let (server, client) = pair(&place);
    let pids = [server.pid(), client.pid()].map(|pid| pid.to_string());
    let (mut http, address) = serve(&place, &["--peers", "1", "--pid", &pids[0], "--pid", &pids[1]]);
    eventually("both are there", || {
        let (head, body) = asked(&address, "GET /metrics?x=1");
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
        let samples = parsed(&body);
        (of(&samples, "srd_tx_packets_total", &client).is_some() && samples["srd_processes"] == 2.0)
            .then_some(())
    });
    let (head, body) = asked(&address, "GET /json");
    assert!(head.contains("application/json"), "{head}");
    assert!(serde_json::from_str::<Value>(&body).unwrap()["metrics"].as_array().unwrap().len() > 20);
    assert!(asked(&address, "GET /").0.starts_with("HTTP/1.1 404"));
    assert!(asked(&address, "POST /metrics").0.starts_with("HTTP/1.1 405"));
    let (head, body) = asked(&address, "HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head} {body}");
    // Who stands there and says nothing, and who does not read, keep nobody from an answer.
    let _silent = TcpStream::connect(&address).unwrap();
    let mut deaf = TcpStream::connect(&address).unwrap();
    for _ in 0..50 {
        deaf.write_all(b"GET /json HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    assert!(asked(&address, "GET /metrics").0.starts_with("HTTP/1.1 200"));
    // A process that stands still is told of as silent, and one that has gone is no error.
    server.signal(nix::sys::signal::Signal::SIGSTOP);
    eventually("one is silent", || {
        (parsed(&asked(&address, "GET /metrics").1)["srd_processes_silent"] == 1.0).then_some(())
    });
    drop((server, client));
    eventually("nobody is left", || {
        let samples = parsed(&asked(&address, "GET /metrics").1);
        (samples["srd_processes"] == 0.0 && samples["srd_processes_silent"] == 0.0).then_some(())
    });
    http.signal(nix::sys::signal::Signal::SIGTERM);
    let status = eventually("it ends", || http.0.try_wait().unwrap());
    assert!(status.success(), "{status}");
}

#[test]
fn what_cannot_be_served_is_said_with_what_to_do() {
    let place = Place::new("metrics-errors");
    let (_http, address) = serve(&place, &[]);
    let says = |arguments: &[&str], code: i32, words: &[&str]| {
        let output = metrics(&place, arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        words.iter().for_each(|word| assert!(message.contains(word), "{word} in {message}"));
    };
    says(&["--listen", &address], 1, &[&address, "another program listens there", "ss -ltnp"]);
    says(&["--listen", "192.0.2.77:9417"], 1, &["192.0.2.77:9417", "no such address"]);
    says(&["--listen", "9417"], 2, &["127.0.0.1:9417"]);
    says(&["--listen", "nowhere"], 2, &["an IP address and a port"]);
    says(&["--peers", "300"], 2, &["300"]);
}

#[test]
fn where_nobody_is_there_is_still_a_number() {
    let place = Place::new("metrics-nobody");
    let output = metrics(&place, &["--pid", NO_PID]);
    assert!(output.status.success());
    assert_eq!(parsed(&text(&output.stdout))["srd_processes"], 0.0);
}
