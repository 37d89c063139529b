//! What happens at a moment, in the fabric and at its hosts: one queue holds both, in one order.

use crate::net::event_queue::Scheduled;
use crate::net::frame::FrameId;
use crate::net::rng::mix;
use crate::net::topology::PortId;
use srd_baselines::units::Ps;

/// What happens at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A frame comes to the other end of a port's cable.
    Arrive {
        /// The port that sent it.
        port: PortId,
        /// The frame.
        frame: FrameId,
    },
    /// A port with several queues has sent a frame.
    PortFree {
        /// The port.
        port: PortId,
    },
    /// A port has been told not to send.
    Pause {
        /// The port.
        port: PortId,
        /// What it may not send from now on, a bit for each class.
        classes: u8,
    },
    /// A port may have been paused for too long.
    Watchdog(PortId),
    /// The last switch of a flow has held frames for as long as it does.
    GiveUp {
        /// The switch.
        switch: u32,
        /// Its number for the flow.
        flow: u32,
    },
    /// A host has worked through a received frame.
    Deliver {
        /// The host.
        host: u32,
        /// The frame.
        frame: FrameId,
    },
    /// A host may send its next frame.
    Transmit(u32),
    /// A process has something to do by the clock.
    Wake(u32),
    /// A flow starts.
    Start(u32),
    /// A flow without end ends.
    Stop(u32),
    /// A rank of a program looks what it can do.
    Advance(u32),
    /// Something goes wrong, or right again.
    Fault(u32),
    /// Switches learn of it.
    Reroute,
}

impl Scheduled for Event {
    fn rank(self, at: Ps) -> u64 {
        let (kind, whose) = match self {
            Event::Fault(fault) => (0, fault),
            Event::Reroute => (1, 0),
            Event::Start(flow) => (2, flow),
            Event::Stop(flow) => (3, flow),
            Event::PortFree { port } => (4, port.0),
            Event::Pause { port, .. } => (10, port.0),
            Event::Watchdog(port) => (11, port.0),
            Event::GiveUp { flow, .. } => (12, flow),
            Event::Arrive { port, .. } => (5, port.0),
            Event::Deliver { host, .. } => (6, host),
            Event::Wake(process) => (7, process),
            Event::Advance(rank) => (8, rank),
            Event::Transmit(host) => (9, host),
        };
        // Ports that are in step meet again and again: another one is first each time.
        kind << 32 | mix(whose ^ at.0 as u32) as u64
    }
}
