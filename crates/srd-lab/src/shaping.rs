//! Rate and queue of a device, in commands for tc.

use crate::plan::{Direction, Plan, Role};

/// Gives a direction its rate and queue, or another rate: what is queued and counted stays.
///
/// A token bucket whose queue holds a buffer of bytes. Routers that cut packets have two queues, of which headers are served
/// first: HTB, whose classes of lower `prio` take all that the link has.
pub(crate) fn shaping(plan: &Plan, direction: Direction, mbps: f64) -> String {
    let end = plan.sender(direction);
    let (device, buffer) = (&end.device, end.buffer_bytes);
    let bps = (mbps * 1e6).round();
    // Two full frames of burst: less cannot send at line rate, more would let bursts through a wire.
    let burst = 2 * plan.shape.frame_bytes();
    if !cuts(plan, direction) {
        return format!("qdisc replace dev {device} root tbf rate {bps} burst {burst} limit {buffer}\n");
    }
    // HTB takes no class without a share of its own: 1 % each, the rest goes by priority.
    let share = (bps / 100.0).round().max(8.0);
    let class = |parent: &str, name: &str, rate: f64, rest: &str| {
        format!(
            "class replace dev {device} parent {parent} classid {name} htb rate {rate} ceil {bps} \
             burst {burst} cburst {burst} quantum {burst}{rest}\n"
        )
    };
    class("1:", "1:1", bps, "")
        + &class("1:1", "1:10", share, " prio 0")
        + &class("1:1", "1:20", share, " prio 1")
}

/// What must be there before a rate can be given.
pub(crate) fn queues(plan: &Plan, direction: Direction) -> String {
    let device = &plan.sender(direction).device;
    if cuts(plan, direction) {
        format!("qdisc replace dev {device} root handle 1: htb default 20\n")
    } else {
        String::new()
    }
}

/// What can only be there afterwards: the classes' queues.
pub(crate) fn class_queues(plan: &Plan, direction: Direction) -> String {
    let end = plan.sender(direction);
    if !cuts(plan, direction) {
        return String::new();
    }
    let (device, buffer) = (&end.device, end.buffer_bytes);
    ["1:10", "1:20"]
        .map(|class| format!("qdisc replace dev {device} parent {class} bfifo limit {buffer}\n"))
        .concat()
}

/// Whether packets are cut on their way into the queue: a router's.
fn cuts(plan: &Plan, direction: Direction) -> bool {
    plan.shape.trim && plan.nodes[plan.sender(direction).node].role != Role::Host
}
