//! A report in words.

use crate::calls::CallReport;
use crate::cause::HeldBack;
use crate::flow_report::{Compared, FlowReport, Part, PathUse, PortWaits, Resent, Verdict};
use crate::report::Report;
use crate::words::counted;
use std::fmt::Write;

/// Length of a bar for all of a flow's time.
const BAR: f64 = 30.0;

pub(crate) fn of(report: &Report) -> String {
    let mut out = format!(
        "{}, seed {}: {} of {} traced, base RTT {} us\n",
        report.scenario,
        report.seed,
        report.traced,
        counted(report.flows as u64, "flow"),
        us(report.base_rtt_us)
    );
    if report.missing_lines > 0 {
        let _ = writeln!(
            out,
            "The trace is cut short: {} are missing. What follows tells only part of it.",
            counted(report.missing_lines, "line")
        );
    }
    for call in &report.calls {
        out.push('\n');
        tell_call(&mut out, call);
    }
    if report.stories.is_empty() && report.calls.is_empty() {
        out.push_str("It has no packets: the run traced no flow.\n");
    }
    for story in &report.stories {
        out.push('\n');
        tell(&mut out, story, report.fastest.as_ref());
    }
    out
}

/// Microseconds with three digits of a fraction.
fn us(value: f64) -> String {
    format!("{value:.3}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn tell_call(out: &mut String, call: &CallReport) {
    let job = call.job.map_or_else(String::new, |job| format!(" of job {job}"));
    let bytes = if call.bytes > 0 { format!(" of {}", counted(call.bytes, "byte")) } else { String::new() };
    let _ = writeln!(
        out,
        "Rank {}{job}, {}{bytes}, from {} to {} us: {} us (usual: {})",
        call.rank,
        call.call,
        us(call.began_us),
        us(call.began_us + call.took_us),
        us(call.took_us),
        us(call.usual_us)
    );
    if call.chain.is_empty() {
        out.push_str("  No message came or went in it: it waited for another thread, or for a time.\n");
        return;
    }
    out.push_str("  It waited for these messages, each sent when the one below it had come:\n");
    out.push_str("        began us     took us  in queues  flow\n");
    for link in &call.chain {
        let bytes = link.bytes.map_or_else(String::new, |bytes| format!(", {}", counted(bytes, "byte")));
        let doing = link.sender_in.as_ref().map_or_else(|| "no call".into(), Clone::clone);
        let _ = writeln!(
            out,
            "  {:>14}{:>12}{:>11}  {}: {} to {}{bytes}; the sender was in {doing}",
            us(link.began_us),
            us(link.took_us),
            us(link.queued_us),
            link.flow,
            link.from,
            link.to
        );
    }
    let Some(slowest) = &call.slowest else { return };
    let mut story = String::new();
    tell(&mut story, slowest, None);
    let head = if call.chain.len() > 1 { "  The slowest of them:\n" } else { "" };
    out.push_str(head);
    story.lines().for_each(|line| {
        let _ = writeln!(out, "  {line}");
    });
}

fn tell(out: &mut String, story: &FlowReport, fastest: Option<&Compared>) {
    let bytes = story.bytes.map_or_else(|| "no end".to_string(), |bytes| format!("{bytes} bytes"));
    let _ = write!(
        out,
        "Flow {}, {} to {}, {bytes}, begun at {} us: ",
        story.flow,
        story.src,
        story.dst,
        us(story.started_us)
    );
    match (&story.failed, story.total_us) {
        (Some(why), _) => {
            let _ = writeln!(out, "failed, {why}");
        }
        (None, Some(total)) => {
            let compared = match fastest {
                Some(fastest) if fastest.flow == story.flow => " (the fastest of the trace)".to_string(),
                Some(fastest) => {
                    let ratio = total / fastest.total_us;
                    format!(" ({ratio:.2} times flow {}, the fastest of the trace)", fastest.flow)
                }
                None => String::new(),
            };
            let _ = writeln!(out, "{} us{compared}", us(total));
        }
        (None, None) if story.bytes.is_none() => out.push_str("it goes on until it is told to stop\n"),
        (None, None) => out.push_str("not at its end when the trace ends\n"),
    }
    if let Some(verdict) = story.verdict {
        let share = story.parts.iter().find(|part| part.what == verdict).map_or(0.0, |part| part.share);
        let _ = writeln!(out, "  {} ({}).", sentence(verdict, story.held_back), percent(share));
    }
    story.parts.iter().filter(|part| part.us > 0.0).for_each(|part| tell_part(out, part));
    tell_sending(out, story);
    tell_queues(out, &story.queues);
    tell_resent(out, &story.resent);
    tell_paths(out, story.paths_used, &story.slowest_paths);
    if let Some(last) = &story.last_packet {
        let _ = writeln!(out, "  Its last packet, PSN {}:", last.psn);
        for moment in &last.moments {
            let _ = writeln!(out, "  {:>14} us  {}", us(moment.t_us), moment.what);
        }
    }
}

fn sentence(verdict: Verdict, held: Option<HeldBack>) -> &'static str {
    match verdict {
        Verdict::HeldBack if held.is_some_and(|held| held.window_us > held.pace_us + held.other_us) => {
            "Its window was full: mostly its host's link stood idle"
        }
        Verdict::HeldBack if held.is_some_and(|held| held.pace_us > held.window_us + held.other_us) => {
            "Its pace was slow: mostly its host's link stood idle"
        }
        Verdict::LateStart => "Most of its time went by before its first packet left",
        Verdict::OwnPackets => "Nothing was in its way: mostly its own packets were on its host's link",
        Verdict::SharedLink => "It shared its host's link: mostly other packets were on it",
        Verdict::HeldBack => {
            "Its transport held back, by its window or pace: mostly its host's link stood idle"
        }
        Verdict::SentAgain => "A packet was lost: most of its time went by until the copy left that arrived",
        Verdict::Queues => "Most of its time its last packet waited in queues",
        Verdict::Distance => "A short flow on a long way: mostly its last packet was on cables",
        Verdict::Receiver => "Mostly its last packet waited for the receiving host to look at it",
        Verdict::Acknowledgement => "Mostly the acknowledgement of its last packet was on its way",
    }
}

fn tell_part(out: &mut String, part: &Part) {
    let what = match part.what {
        Verdict::LateStart => "before its first packet",
        Verdict::OwnPackets => "its packets on its host's link",
        Verdict::SharedLink => "other packets on that link",
        Verdict::HeldBack => "that link idle: window or pace",
        Verdict::SentAgain => "last packet: sent again",
        Verdict::Queues => "last packet: in queues",
        Verdict::Distance => "last packet: on cables",
        Verdict::Receiver => "last packet: at the receiver",
        Verdict::Acknowledgement => "last packet: acknowledgement",
    };
    let bar = "#".repeat((part.share * BAR).round() as usize);
    let _ = writeln!(out, "  {what:<31}{:>12} us {:>7}  {bar}", us(part.us), percent(part.share));
}

fn tell_sending(out: &mut String, story: &FlowReport) {
    let sending = &story.sending;
    if sending.packets == 0 {
        return;
    }
    let _ = write!(out, "  It sent {} in {} us", counted(sending.packets, "packet"), us(sending.us));
    if sending.longest_gap_us > 0.0 {
        let (gap, at) = (us(sending.longest_gap_us), us(sending.longest_gap_at_us));
        let _ = write!(out, "; the longest pause with the link idle was {gap} us, until {at} us");
    }
    out.push_str(".\n");
    if let Some(held) = story.held_back.filter(|_| sending.idle_us > 0.0) {
        let (window, pace, other) = (us(held.window_us), us(held.pace_us), us(held.other_us));
        let _ = writeln!(
            out,
            "  While the link stood idle, its window was full for {window} us, its pace kept it back for {pace} us, \
             neither for {other} us."
        );
    }
    tell_decisions(out, story);
}

fn tell_decisions(out: &mut String, story: &FlowReport) {
    if story.decisions.is_empty() {
        return;
    }
    let lesser = match story.lesser_decisions {
        0 => String::new(),
        n => format!(" ({n} more that weigh less are left out)"),
    };
    let _ = writeln!(out, "  What its transport decided{lesser}:");
    for moment in &story.decisions {
        let _ = writeln!(out, "  {:>14} us  {}", us(moment.t_us), moment.what);
    }
}

fn tell_queues(out: &mut String, queues: &[PortWaits]) {
    let waited: Vec<&PortWaits> = queues.iter().filter(|port| port.sum_us > 0.0).collect();
    if waited.is_empty() {
        out.push_str("  Its packets waited in no queue.\n");
        return;
    }
    let _ = writeln!(out, "  Its packets waited at           packets   mean us    max us  marked");
    for port in waited {
        let _ = writeln!(
            out,
            "    {:<28}{:>9}{:>10}{:>10}{:>8}",
            port.port,
            port.packets,
            us(port.mean_us),
            us(port.max_us),
            port.marked
        );
    }
}

fn tell_resent(out: &mut String, resent: &Resent) {
    if resent.packets == 0 && resent.lost.is_empty() {
        out.push_str("  Nothing was retransmitted.\n");
        return;
    }
    let _ = write!(
        out,
        "  {} sent again, {}; {} for nothing",
        counted(resent.packets, "packet"),
        counted(resent.copies, "copy").replace("copys", "copies"),
        resent.for_nothing
    );
    if resent.max_delay_us > 0.0 {
        let (mean, most) = (us(resent.mean_delay_us), us(resent.max_delay_us));
        let _ = write!(out, "; losses delayed packets by {mean} us on average, {most} us at most");
    }
    out.push_str(".\n");
    for loss in &resent.lost {
        let why = match loss.why.as_str() {
            "queue_full" => "the queue was full",
            "trimmed" => "a switch cut them, having no room",
            "cable" => "the cable lost them",
            "no_route" => "no way led on",
            _ => "not seen again behind it: lost by the receiving host, or still on their way at the end",
        };
        let _ = writeln!(out, "    {} lost at {}: {why}", loss.packets, loss.port);
    }
    for (reason, count) in &resent.reasons {
        let _ = writeln!(out, "    {count} taken for lost by rule {reason}");
    }
}

fn tell_paths(out: &mut String, used: u64, slowest: &[PathUse]) {
    let _ = writeln!(out, "  It used {}. The slowest:", counted(used, "path"));
    let _ = writeln!(out, "    path  source port   share   mean us    max us  lost");
    for path in slowest.iter().take(4) {
        let time = |time: Option<f64>| time.map_or_else(|| "-".to_string(), us);
        let _ = writeln!(
            out,
            "    {:>4}  {:>11}{:>8}{:>10}{:>10}{:>6}",
            path.path,
            path.source_port,
            percent(path.share),
            time(path.mean_us),
            time(path.max_us),
            path.lost
        );
    }
}
