//! A host's report in words.

use crate::host::{ContextReport, HostReport, MessageStory, Spent};
use crate::words::counted;
use std::fmt::Write;

/// Length of a bar for all of a message's time.
const BAR: f64 = 30.0;

pub(crate) fn of(report: &HostReport) -> String {
    let host = &report.host;
    let mut out = format!(
        "{}, process {} at {} on {}: {:.3} ms of what its transport decided\n",
        host.program,
        host.pid,
        host.address,
        host.name,
        report.recorded_us / 1e3
    );
    if report.missing_lines > 0 {
        let _ = writeln!(
            out,
            "{} events are missing, which the process could not keep up with; what follows tells only part of it.",
            report.missing_lines
        );
    }
    if !report.ended {
        out.push_str(
            "The recording did not end in order: the process has ended, or the file is cut short.\n",
        );
    }
    if report.peers.is_empty() {
        out.push_str("Nothing was decided: it has neither sent nor been sent anything.\n");
    }
    for peer in &report.peers {
        out.push('\n');
        tell_peer(&mut out, peer);
    }
    if report.peers_left_out > 0 {
        let _ =
            writeln!(out, "\nand {} with fewer packets", counted(report.peers_left_out as u64, "more peer"));
    }
    if !report.slowest.is_empty() {
        let _ = writeln!(out, "\nThe slowest messages:");
    }
    for story in &report.slowest {
        out.push('\n');
        tell(&mut out, story);
    }
    let _ = writeln!(out, "\nNote: {}.", report.not_known);
    out
}

fn tell_peer(out: &mut String, peer: &ContextReport) {
    let _ = write!(out, "To {}: {}", peer.peer, counted(peer.messages, "message"));
    if peer.messages > 0 {
        let _ = write!(
            out,
            " in {:.3} us at the median, {:.3} at the 99th percentile, {:.3} at most",
            peer.p50_us, peer.p99_us, peer.max_us
        );
    }
    if peer.failed > 0 {
        let by = peer.failed_with.iter().map(|(status, count)| format!("{count} (status {status})"));
        let _ = write!(out, "; failed or refused: {}", by.collect::<Vec<_>>().join(", "));
    }
    if peer.open > 0 {
        let _ = write!(out, "; {} not at their end when the trace was", peer.open);
    }
    if peer.out_of_sight > 0 {
        let _ = write!(out, "; {} under way where events are missing", peer.out_of_sight);
    }
    out.push_str(".\n");
    let _ = writeln!(
        out,
        "  {}, {} sent again ({} for nothing), {} of silence; {} with congestion marks.",
        counted(peer.packets, "packet"),
        peer.resent,
        peer.for_nothing,
        counted(peer.tail_probes, "probe"),
        counted(peer.marked_acks, "ACK")
    );
    for (rule, count) in &peer.lost {
        let _ = writeln!(out, "    {count} taken for lost by rule {rule}");
    }
    if !peer.path_changes.is_empty() || peer.paths_rerolled > 0 {
        let changes = peer.path_changes.iter().map(|(to, count)| format!("{to} {}", counted(*count, "time")));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "  Paths became {changes}; {} new source ports.", peer.paths_rerolled);
    }
    if let (Some(least), Some(last)) = (peer.least_window, peer.last_window) {
        let pace = peer
            .least_rate
            .map_or_else(String::new, |rate| format!(", pace at least {:.3} Gb/s", rate * 8.0));
        let _ = writeln!(out, "  Window at least {least} bytes, {last} at the end{pace}.");
    }
    let _ = writeln!(
        out,
        "  While there was something to send, the window was full for {:.3} us, and the pace kept it back for {:.3} us.",
        peer.window_us, peer.pace_us
    );
}

fn tell(out: &mut String, story: &MessageStory) {
    let number = story.message.map_or_else(|| "that never left".to_string(), |number| number.to_string());
    let end = match story.status {
        Some(0) => String::new(),
        Some(status) => format!(", failed with status {status}"),
        None => ", not at its end when the trace was".to_string(),
    };
    let _ = writeln!(
        out,
        "Message {number} to {}, {} bytes, handed over at {:.3} us: {:.3} us{end}",
        story.peer, story.bytes, story.queued_us, story.total_us
    );
    if let Some(verdict) = story.verdict {
        let share = story.parts.iter().find(|part| part.what == verdict).map_or(0.0, |part| part.share);
        let _ = writeln!(out, "  {} ({:.1} %).", sentence(verdict), share * 100.0);
    }
    for part in story.parts.iter().filter(|part| part.us > 0.0) {
        let what = match part.what {
            Spent::Window => "not all sent: window full",
            Spent::Pace => "not all sent: pace",
            Spent::Host => "not all sent: neither",
            Spent::SentAgain => "packets retransmitted",
            Spent::Answer => "until the answer",
        };
        let bar = "#".repeat((part.share * BAR).round() as usize);
        let _ = writeln!(out, "  {what:<28}{:>14.3} us {:>6.1} %  {bar}", part.us, part.share * 100.0);
    }
    let _ = writeln!(out, "  {}, {} sent again.", counted(story.packets, "packet"), story.resent);
    for moment in &story.decisions {
        let _ = writeln!(out, "  {:>14.3} us  {}", moment.t_us, moment.what);
    }
}

fn sentence(verdict: Spent) -> &'static str {
    match verdict {
        Spent::Window => "Its peer's window was full: as much was in flight as the controller allows",
        Spent::Pace => "The pace was slow: the controller spreads packets over time",
        Spent::Host => "Neither window nor pace: other messages had their turn, or the host was busy",
        Spent::SentAgain => "Mostly because a packet was lost and had to be retransmitted",
        Spent::Answer => "Everything had left: mostly the answer was awaited, from the network and the peer",
    }
}
