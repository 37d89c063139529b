//! `.cm` files: connection matrices, with triggers and failures.

use super::cm_line::{self, Begin, Connection, TriggerLine};
use super::tokens::Line;
use crate::apps::{Flow, MAX_FLOWS, Place, Size, Start, Traffic, TrafficFault, TriggerKind};
use crate::net::{Direction, Fault, FaultKind, Topology};
use srd_baselines::input::{InputError, counted, shown};
use srd_baselines::units::Ps;
use std::collections::HashMap;

pub use super::cm_line::FailedLink;

/// What a `.cm` file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix {
    /// Name of the file.
    pub file: String,
    /// Number of hosts.
    pub hosts: u32,
    /// Flows and triggers.
    pub traffic: Traffic,
    /// Links that are gone from the beginning on: see [`Matrix::faults`].
    pub failures: Vec<FailedLink>,
    /// Words that were passed over.
    pub notes: Vec<String>,
}

/// Reads the `.cm` file `text`, called `file` in errors. If `hosts` is given, `Nodes` must say the same.
pub fn parse(text: &str, file: &str, hosts: Option<u32>) -> Result<Matrix, InputError> {
    let mut reader = Reader { file, header: Header::default(), body: None, notes: Vec::new() };
    for (index, line) in text.lines().enumerate() {
        reader.line(Line::of(file, index as u32 + 1, line)?, hosts)?;
    }
    if reader.body.is_none() {
        reader.begin_body(hosts)?;
    }
    reader.finish()
}

/// A count of the header, and the line that gave it.
#[derive(Clone, Copy)]
struct Count {
    value: u32,
    line: u32,
}

#[derive(Default)]
struct Header {
    nodes: Option<Count>,
    connections: Option<Count>,
    triggers: Option<Count>,
    failures: Option<Count>,
}

/// What comes behind the header.
struct Body {
    hosts: u32,
    connections: Vec<Connection>,
    triggers: Vec<TriggerLine>,
    failures: Vec<FailedLink>,
}

struct Reader<'a> {
    file: &'a str,
    header: Header,
    body: Option<Body>,
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    fn line(&mut self, mut line: Line<'a>, hosts: Option<u32>) -> Result<(), InputError> {
        if line.is_comment() && self.body.is_none() {
            return Ok(());
        }
        let Some(word) = line.word() else { return Ok(()) };
        let of_body = word.contains("->") || word == "trigger" || word == "failure";
        if of_body && self.body.is_none() {
            self.begin_body(hosts)?;
        }
        match &mut self.body {
            None => self.header_line(word, line),
            Some(body) => body.line(word, line),
        }
    }

    fn header_line(&mut self, word: &str, mut line: Line<'a>) -> Result<(), InputError> {
        let (slot, least) = match word {
            "Nodes" => (&mut self.header.nodes, 1),
            "Connections" => (&mut self.header.connections, 0),
            "Triggers" => (&mut self.header.triggers, 0),
            "Failures" => (&mut self.header.failures, 0),
            _ => {
                let known = "the header has Nodes, Connections, Triggers and Failures";
                self.notes.push(format!(
                    "{}:{}: {} is passed over: {known}",
                    self.file,
                    line.number,
                    shown(word)
                ));
                return Ok(());
            }
        };
        if let Some(first) = slot {
            return Err(line.error(format!("{word} has been given already, in line {}", first.line)));
        }
        *slot = Some(Count { value: line.number(word, least)?, line: line.number });
        line.end()
    }

    fn begin_body(&mut self, hosts: Option<u32>) -> Result<(), InputError> {
        let lacking = |word: &str| InputError::of(self.file, format!("the header lacks a line `{word} N`"));
        let nodes = self.header.nodes.ok_or_else(|| lacking("Nodes"))?;
        self.header.connections.ok_or_else(|| lacking("Connections"))?;
        if let Some(hosts) = hosts.filter(|&hosts| hosts != nodes.value) {
            let what = format!("Nodes says {}, but the topology has {hosts} hosts", nodes.value);
            return Err(InputError::at(self.file, nodes.line, format!("{what}: they must be the same")));
        }
        self.body = Some(Body {
            hosts: nodes.value,
            connections: Vec::new(),
            triggers: Vec::new(),
            failures: Vec::new(),
        });
        Ok(())
    }

    fn finish(mut self) -> Result<Matrix, InputError> {
        let lost = || InputError::of(self.file, "the file is empty");
        let body = self.body.take().ok_or_else(lost)?;
        for (count, found, word) in [
            (self.header.connections, body.connections.len(), "connection"),
            (self.header.triggers, body.triggers.len(), "trigger"),
            (self.header.failures, body.failures.len(), "failure"),
        ] {
            self.check_count(count, found, word)?;
        }
        let priorities: Vec<u32> = body.connections.iter().filter(|c| c.priority).map(|c| c.line).collect();
        if let Some(line) = priorities.first() {
            let lines = counted(priorities.len() as u64, "line");
            let why = "`prio` is passed over, as htsim_uec does";
            self.notes.push(format!("{}:{line}: {why} ({lines})", self.file));
        }
        let traffic = body.traffic(self.file)?;
        let (file, notes) = (self.file.to_string(), self.notes);
        Ok(Matrix { file, hosts: body.hosts, traffic, failures: body.failures, notes })
    }

    fn check_count(&self, count: Option<Count>, found: usize, word: &str) -> Result<(), InputError> {
        let said = count.map_or(0, |count| count.value);
        if said as usize == found {
            return Ok(());
        }
        let header = format!("{}{}s", word[..1].to_ascii_uppercase(), &word[1..]);
        let found_them = counted(found as u64, word);
        let message = match (count, found < said as usize) {
            (Some(_), true) => {
                format!(
                    "{header} says {said}, but the file has {found_them}: is it cut off? Otherwise write {found}"
                )
            }
            (Some(_), false) => format!("{header} says {said}, but the file has {found_them}: write {found}"),
            (None, _) => {
                format!("the file has {found_them}, but no line `{header} {found}` in its header: put one in")
            }
        };
        Err(match count {
            Some(count) => InputError::at(self.file, count.line, message),
            None => InputError::of(self.file, message),
        })
    }
}

impl Body {
    fn line(&mut self, word: &str, line: Line<'_>) -> Result<(), InputError> {
        match word {
            _ if word.contains("->") => {
                if self.connections.len() as u64 >= MAX_FLOWS {
                    return Err(line.error(format!("too many connections: at most {MAX_FLOWS}")));
                }
                self.connections.push(cm_line::connection(word, line, self.hosts)?);
            }
            "trigger" => self.triggers.push(cm_line::trigger(line)?),
            "failure" => self.failures.push(cm_line::failure(line)?),
            _ if word.starts_with('#') => {
                return Err(
                    line.error("a comment behind the first connection: comments stand in the header only")
                );
            }
            "Nodes" | "Connections" | "Triggers" | "Failures" => {
                return Err(
                    line.error(format!("{word} behind the first connection: it belongs in the header"))
                );
            }
            _ => {
                let known = "a line begins with `SRC->DST`, `trigger` or `failure`";
                return Err(line.error(format!("{} is not known: {known}", shown(word))));
            }
        }
        Ok(())
    }

    fn traffic(&self, file: &str) -> Result<Traffic, InputError> {
        let mut traffic = Traffic::default();
        traffic.add_workload(file);
        let numbers = self.add_triggers(&mut traffic, file)?;
        let mut numbering = Numbering::of(&self.connections);
        for connection in &self.connections {
            let error = |message: String| InputError::at(file, connection.line, message);
            let (id, process) = numbering.take(connection).map_err(error)?;
            let trigger = |number: u32| {
                let undeclared =
                    || format!("trigger {number} is not declared: add a line `trigger id {number} oneshot`");
                numbers.get(&number).copied().ok_or_else(|| error(undeclared()))
            };
            let all = |number: Option<u32>| number.map(trigger).transpose().map(Vec::from_iter);
            let flow = Flow {
                id,
                workload: 0,
                transport: 0,
                src: Place { host: connection.src, process },
                dst: Place { host: connection.dst, process: 0 },
                size: Size::Bytes(connection.bytes),
                start: match connection.begin {
                    Begin::At(at) => Start::At(at),
                    Begin::Trigger(number) => Start::Trigger(trigger(number)?),
                },
                on_sent: all(connection.on_sent)?,
                on_received: all(connection.on_received)?,
            };
            traffic.add_flow(flow);
        }
        traffic.check(self.hosts).map_err(|fault| self.explain(fault, file))?;
        Ok(traffic)
    }

    /// Takes the triggers in. Returns their indices by number.
    fn add_triggers(&self, traffic: &mut Traffic, file: &str) -> Result<HashMap<u32, u32>, InputError> {
        let mut numbers = HashMap::new();
        for trigger in &self.triggers {
            let index = traffic.add_trigger(trigger.kind);
            if let Some(first) = numbers.insert(trigger.id, index) {
                let line = self.triggers[first as usize].line;
                let what = format!("trigger {} has been declared already, in line {line}", trigger.id);
                return Err(InputError::at(file, trigger.line, what));
            }
        }
        Ok(numbers)
    }

    /// A fault of the whole, with the line to blame.
    fn explain(&self, fault: TrafficFault, file: &str) -> InputError {
        let (line, message) = match fault {
            TrafficFault::NeverStarts { flow, trigger } => {
                let number = self.triggers[trigger as usize].id;
                let why = match self.triggers[trigger as usize].kind {
                    TriggerKind::Barrier(count) => format!("it is not fired {count} times"),
                    TriggerKind::Oneshot => "no flow that starts fires it".to_string(),
                    TriggerKind::Multishot => "it is fired less often than it has flows to start".to_string(),
                };
                let remedy = format!("give another flow `send_done_trigger {number}`, or this one a `start`");
                (
                    self.connections[flow as usize].line,
                    format!("this flow waits for trigger {number} for ever: {why}; {remedy}"),
                )
            }
            TrafficFault::FiredTooOften { trigger, fired } => {
                let trigger = &self.triggers[trigger as usize];
                let may = match trigger.kind {
                    TriggerKind::Barrier(count) => format!("a barrier of count {count} may be {count} times"),
                    _ => "a oneshot may be once".to_string(),
                };
                let remedy = "make it a `multishot`, or a `barrier` with that count";
                (trigger.line, format!("trigger {} is fired {fired} times, and {may}: {remedy}", trigger.id))
            }
            TrafficFault::StartsNothing { trigger } => {
                let trigger = &self.triggers[trigger as usize];
                let remedy = format!("give a flow `trigger {}`, or take it out", trigger.id);
                (trigger.line, format!("trigger {} is fired but starts nothing: {remedy}", trigger.id))
            }
            TrafficFault::NoSuchHost { flow, .. }
            | TrafficFault::ToItself { flow }
            | TrafficFault::Empty { flow }
            | TrafficFault::NoSuchTrigger { flow } => {
                (self.connections[flow as usize].line, fault.to_string())
            }
        };
        InputError::at(file, line, message)
    }
}

/// Gives flows their numbers and processes. Connections between the same two hosts are as independent in htsim as any
/// others, so each gets a process of its own at the sender; messages of one connection share it.
struct Numbering {
    next_id: u32,
    connections: HashMap<u32, (u32, u32, u16, u32)>,
    processes: HashMap<(u32, u32), u16>,
}

impl Numbering {
    fn of(connections: &[Connection]) -> Numbering {
        let highest = connections.iter().filter_map(|connection| connection.id).max().unwrap_or(0);
        Numbering { next_id: highest + 1, connections: HashMap::new(), processes: HashMap::new() }
    }

    fn take(&mut self, connection: &Connection) -> Result<(u32, u16), String> {
        let Some(id) = connection.id else {
            self.next_id += 1;
            return Ok((self.next_id - 1, self.process(connection)?));
        };
        if let Some(&(src, dst, process, line)) = self.connections.get(&id) {
            return match connection.message {
                false => Err(format!(
                    "id {id} is taken by line {line}: write another, or `msg` for one more message of it"
                )),
                true if (src, dst) != (connection.src, connection.dst) => Err(format!(
                    "id {id} is the connection {src}->{dst} of line {line}: its messages go the same way"
                )),
                true => Ok((id, process)),
            };
        }
        let process = self.process(connection)?;
        self.connections.insert(id, (connection.src, connection.dst, process, connection.line));
        Ok((id, process))
    }

    fn process(&mut self, connection: &Connection) -> Result<u16, String> {
        let next = self.processes.entry((connection.src, connection.dst)).or_default();
        let process = *next;
        *next = next.checked_add(1).ok_or("more than 65535 connections between the same two hosts")?;
        Ok(process)
    }
}

impl Matrix {
    /// The failures as faults of `topology` from the beginning on. Of a bundle the first cable fails, as in htsim.
    pub fn faults(&self, topology: &Topology) -> Result<Vec<Fault>, InputError> {
        let named = |prefix: &str| {
            let numbered = topology.switches.iter().enumerate();
            let found = numbered.filter(|(_, switch)| switch.name.starts_with(prefix));
            found.map(|(number, _)| topology.switch(number as u32)).collect::<Vec<_>>()
        };
        let (aggs, cores) = (named("agg"), named("core"));
        self.failures
            .iter()
            .map(|failure| {
                let error = |message: String| InputError::at(&self.file, failure.line, message);
                let agg = aggs.get(failure.switch as usize).ok_or_else(|| {
                    error(match aggs.len() {
                        0 => "the topology has no links between AGG and core switches: it needs 3 tiers"
                            .to_string(),
                        n => format!("there is no AGG switch {}: they are 0 to {}", failure.switch, n - 1),
                    })
                })?;
                let links: Vec<u32> = first_cables(topology, *agg, &cores);
                let cable = links.get(failure.link as usize).ok_or_else(|| {
                    let last = links.len().saturating_sub(1);
                    error(format!(
                        "AGG switch {} has no link {}: they are 0 to {last}",
                        failure.switch, failure.link
                    ))
                })?;
                let kind = FaultKind::Down { noticed_after: Ps::ZERO };
                Ok(Fault { at: Ps::ZERO, cables: vec![*cable], direction: Direction::Both, kind })
            })
            .collect()
    }
}

/// The first cable of each bundle from `agg` to one of `cores`, in the order of wiring.
fn first_cables(topology: &Topology, agg: crate::net::NodeId, cores: &[crate::net::NodeId]) -> Vec<u32> {
    let mut last = None;
    let upwards =
        topology.cables.iter().enumerate().filter(|(_, cable)| cable.a == agg && cores.contains(&cable.b));
    upwards
        .filter(|(_, cable)| last.replace(cable.b) != Some(cable.b))
        .map(|(index, _)| index as u32)
        .collect()
}
