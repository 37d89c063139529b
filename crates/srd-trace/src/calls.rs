//! Calls of MPI that took longer than is usual: for which messages, and for which their senders had
//! waited before, and what befell the slowest of these.

use crate::flow_report::{self, FlowReport, rounded};
use crate::reading::{Call, Copy, Flow, Packet, TraceFile};
use serde::Serialize;
use std::collections::HashMap;

/// Processes see the time in whole nanoseconds, those that are over, and packets come when they come: by so much, in microseconds, a call seems to have
/// ended before what it waited for had come.
const MOMENT: f64 = 0.001;

/// Most messages of a chain.
const MOST: usize = 16;

/// A call of MPI, and what it waited for.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CallReport {
    /// Its job, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// The rank.
    pub rank: u32,
    /// The function.
    pub call: String,
    /// Bytes of the buffer that it names.
    pub bytes: u64,
    /// When it began.
    pub began_us: f64,
    /// How long it took.
    pub took_us: f64,
    /// The median of all calls of its job of this function with so many bytes; 0 if there was no other.
    pub usual_us: f64,
    /// The last message that came in it; before that the last that came to the sender of that one, and so on, as far as they began after the call: the
    /// last comes first. If none came, the last that the rank then knew to have come.
    pub chain: Vec<Link>,
    /// That one of these messages that took the longest.
    pub slowest: Option<FlowReport>,
}

/// A message on which a call has waited.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Link {
    /// Its flow.
    pub flow: u32,
    /// The ranks of its ends, where they are known, or their processes.
    pub from: String,
    /// See above.
    pub to: String,
    /// Its size.
    pub bytes: Option<u64>,
    /// When it began.
    pub began_us: f64,
    /// From then until it had come.
    pub took_us: f64,
    /// What its packet that came last waited in queues.
    pub queued_us: f64,
    /// The call that its sender was in; `None` if it was in none.
    pub sender_in: Option<String>,
}

impl TraceFile {
    /// Those calls that took the longest beyond what is usual for them.
    pub(crate) fn slowest_calls(&self, count: usize) -> Vec<CallReport> {
        let mut times: HashMap<(Option<u32>, &str, u64), Vec<f64>> = HashMap::new();
        for call in &self.calls {
            times.entry((call.job, &call.name, call.bytes)).or_default().push(call.ended - call.began);
        }
        let usual: HashMap<(Option<u32>, &str, u64), f64> =
            times.into_iter().map(|(of, times)| (of, median(times))).collect();
        let usual = |call: &Call| usual[&(call.job, call.name.as_str(), call.bytes)];
        let beyond = |call: &Call| call.ended - call.began - usual(call);
        let mut calls: Vec<&Call> = self.calls.iter().collect();
        calls.sort_by(|a, b| {
            beyond(b)
                .total_cmp(&beyond(a))
                .then(a.began.total_cmp(&b.began))
                .then((a.job, a.rank).cmp(&(b.job, b.rank)))
        });
        calls.into_iter().take(count).map(|call| self.tell_call(call, usual(call))).collect()
    }

    fn tell_call(&self, call: &Call, usual: f64) -> CallReport {
        let chain = self.chain(call);
        let slowest = chain.iter().max_by(|a, b| took(a).total_cmp(&took(b)));
        CallReport {
            job: call.job,
            rank: call.rank,
            call: call.name.clone(),
            bytes: call.bytes,
            began_us: rounded(call.began),
            took_us: rounded(call.ended - call.began),
            usual_us: rounded(usual),
            chain: chain.iter().map(|flow| self.link(flow)).collect(),
            slowest: slowest.map(|flow| flow_report::tell(self, flow)),
        }
    }

    /// The messages for which a call has waited, the last first.
    fn chain(&self, call: &Call) -> Vec<&Flow> {
        let flows = || self.numbers().filter_map(|number| self.flow(number));
        let came = |to: &str, until: f64| {
            let within = |flow: &&Flow| {
                flow.dst == to
                    && flow.received.is_some_and(|at| at - MOMENT >= call.began && at - MOMENT <= until)
            };
            flows()
                .filter(within)
                .max_by(|a, b| a.received.unwrap_or(0.0).total_cmp(&b.received.unwrap_or(0.0)))
        };
        let mut chain: Vec<&Flow> = came(&call.process, call.ended).into_iter().collect();
        while let Some(last) = chain.last()
            && last.started > call.began
            && chain.len() < MOST
            && let Some(before) = came(&last.src, last.started)
        {
            chain.push(before);
        }
        if chain.is_empty() {
            let known = flows().filter(|flow| {
                flow.src == call.process
                    && flow.sent.is_some_and(|at| (call.began..=call.ended).contains(&at))
            });
            chain.extend(known.max_by(|a, b| a.sent.unwrap_or(0.0).total_cmp(&b.sent.unwrap_or(0.0))));
        }
        chain
    }

    fn link(&self, flow: &Flow) -> Link {
        let name = |process: &str| match self.calls.iter().find(|call| call.process == process) {
            Some(Call { job: Some(job), rank, .. }) => format!("rank {rank} of job {job}"),
            Some(Call { rank, .. }) => format!("rank {rank}"),
            None => process.into(),
        };
        let during = self
            .calls
            .iter()
            .find(|call| call.process == flow.src && (call.began..=call.ended).contains(&flow.started));
        let copies = flow.packets.iter().filter_map(Packet::arrived_first);
        let last = copies.max_by(|a, b| a.arrived().unwrap_or(0.0).total_cmp(&b.arrived().unwrap_or(0.0)));
        Link {
            flow: flow.number,
            from: name(&flow.src),
            to: name(&flow.dst),
            bytes: flow.bytes,
            began_us: rounded(flow.started),
            took_us: rounded(took(flow)),
            queued_us: rounded(last.map_or(0.0, Copy::queued)),
            sender_in: during.map(|call| call.name.clone()),
        }
    }
}

fn took(flow: &Flow) -> f64 {
    flow.received.map_or(0.0, |at| at - flow.started)
}

/// 0 of one alone.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    if times.len() > 1 { times[times.len() / 2] } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use crate::lines::tests::read;

    fn call(rank: u32, began: f64, ended: f64) -> String {
        format!(
            r#"{{"event":"call_returned","t_us":{ended},"rank":{rank},"process":"h{rank}.0","thread":0,"call":"MPI_Recv","began_us":{began},"peer":null,"bytes":8}}"#
        )
    }

    #[test]
    fn calls_of_two_jobs_are_told_apart() {
        let of_job = |job: u32, call: String| call.replace("\"rank\"", &format!("\"job\":{job},\"rank\""));
        let lines = [
            r#"{"event":"run","format":2,"scenario":"a","seed":1,"flows":0,"traced":0,"base_rtt_us":8}"#
                .into(),
            r#"{"event":"flow_started","t_us":50,"flow":0,"src":"h1.0","dst":"h0.0","bytes":8}"#.to_string(),
            r#"{"event":"flow_received","t_us":52,"flow":0}"#.into(),
            of_job(1, call(0, 10.0, 53.0)),
            of_job(1, call(0, 60.0, 62.0)),
            of_job(1, call(1, 10.0, 20.0)),
            of_job(0, call(2, 10.0, 20.0)),
            of_job(0, call(2, 20.0, 21.0)),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let slowest = read(&lines).unwrap().slowest_calls(1);
        assert_eq!((slowest[0].job, slowest[0].rank, slowest[0].usual_us), (Some(1), 0, 10.0));
        assert_eq!(slowest[0].chain[0].from, "rank 1 of job 1");
    }

    #[test]
    fn a_slow_call_is_put_down_to_the_messages_that_it_waited_for_one_behind_the_other() {
        let lines = [
            r#"{"event":"run","format":2,"scenario":"a","seed":1,"flows":0,"traced":0,"base_rtt_us":8}"#
                .into(),
            r#"{"event":"flow_started","t_us":50,"flow":0,"src":"h1.0","dst":"h0.0","bytes":8}"#.to_string(),
            r#"{"event":"flow_received","t_us":52,"flow":0}"#.into(),
            r#"{"event":"flow_started","t_us":60,"flow":1,"src":"h0.0","dst":"h1.0","bytes":8}"#.into(),
            r#"{"event":"flow_received","t_us":61,"flow":1}"#.into(),
            r#"{"event":"flow_started","t_us":16,"flow":2,"src":"h2.0","dst":"h1.0","bytes":8}"#.into(),
            r#"{"event":"flow_received","t_us":49,"flow":2}"#.into(),
            r#"{"event":"flow_started","t_us":51.5,"flow":3,"src":"h3.0","dst":"h0.0","bytes":8}"#.into(),
            r#"{"event":"flow_received","t_us":53.0004,"flow":3}"#.into(),
            call(0, 10.0, 53.0),
            call(0, 60.0, 62.0),
            call(0, 63.0, 65.0),
            call(1, 20.0, 51.0),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let slowest = read(&lines).unwrap().slowest_calls(1);
        let [slow] = &slowest[..] else { panic!("{slowest:?}") };
        assert_eq!((slow.rank, slow.took_us, slow.usual_us), (0, 43.0, 31.0));
        let flows: Vec<u32> = slow.chain.iter().map(|link| link.flow).collect();
        assert_eq!(flows, [3], "it came within the nanosecond in which the call was over");
        let without: Vec<&str> = lines.iter().copied().filter(|line| !line.contains("\"flow\":3")).collect();
        let slowest = read(&without).unwrap().slowest_calls(1);
        let slow = &slowest[0];
        let flows: Vec<u32> = slow.chain.iter().map(|link| link.flow).collect();
        assert_eq!(flows, [0, 2], "the sender had waited for another message");
        let (last, before) = (&slow.chain[0], &slow.chain[1]);
        assert_eq!((last.from.as_str(), last.sender_in.as_deref()), ("rank 1", Some("MPI_Recv")));
        assert_eq!((before.from.as_str(), before.took_us), ("h2.0", 33.0));
        assert_eq!(slow.slowest.as_ref().map(|slowest| slowest.flow), Some(2));
    }
}
