//! What a run is made of: flat structures of plain numbers, drawn from the seed.
//!
//! Every field has a calm value, at which it does nothing out of the ordinary. That makes a plan printable (what
//! differs from calm), settable from the command line, and reducible: [`crate::shrink`] puts fields back to calm one
//! by one for as long as the run still fails.

use crate::rng::Rng;
use std::fmt;

macro_rules! fields {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident = $calm:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// The names of the fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Every field at the value at which it disturbs nothing.
            pub const fn calm() -> $name { $name { $($field: $calm),* } }

            /// The field called `name`.
            pub fn field(&mut self, name: &str) -> Option<&mut u64> {
                match name { $(stringify!($field) => Some(&mut self.$field),)* _ => None }
            }
        }

        impl fmt::Debug for $name {
            /// The fields that are not calm, as `--set` takes them.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let calm = $name::calm();
                let mut comma = "";
                $(if self.$field != calm.$field {
                    write!(f, "{comma}{}={}", stringify!($field), self.$field)?;
                    comma = ",";
                })*
                let _ = comma;
                Ok(())
            }
        }
    };
}

/// UDP payload that every network carries: IPv6's smallest MTU, 1280, less the IPv6 and UDP headers.
pub const MIN_MTU: u64 = 1_232;

fields! {
    /// Topology, configuration and workload.
    Shape {
        /// Processes.
        processes = 2,
        /// Processes that share a host, on ports of their own.
        per_host = 1,
        /// Reliable queue pairs per process.
        qps = 1,
        /// Unreliable queue pairs per process.
        ud_qps = 0,
        /// Receive ports per process beyond the first; with them, queue pairs beyond the first 128 numbers.
        extra_ports = 0,
        /// Messages that the processes send in all.
        messages = 20,
        /// Messages that a process posts at one go.
        post_burst = 1,
        /// Length of the safety phase, in ns. The messages are spread over it.
        span_ns = 5_000_000,
        /// Longest RDMA operation drawn.
        rdma_len = 20_000,
        /// Of a hundred messages, how many are RDMA.
        rdma_percent = 50,
        /// Of a hundred messages, how many have a length at an edge.
        edge_percent = 50,
        /// Of a hundred messages, how many are invalid in some way.
        invalid_percent = 0,
        /// Of a hundred messages, how many a process sends to itself.
        self_percent = 0,
        /// Of a hundred receives, how many are shorter than the longest message.
        short_recv_percent = 0,
        /// Receives that a queue pair keeps posted; more than there are messages if 1000 or more.
        receives = 1000,
        /// How long a consumed receive takes to be posted again, on average.
        repost_ns = 0,
        /// Retries of a send that finds no receive: 7 for ever, 8 drawn per queue pair.
        rnr_retry = 7,
        /// Of a hundred pairs of processes, how many lack an address handle in one direction.
        no_ah_percent = 0,
        /// Send queue entries.
        sq_depth = 256,
        /// A process leaves completions in their queues for this long.
        cq_lag_ns = 0,
        /// Processes wait for notifications instead of looking at their queues.
        notified = 0,
        /// First wait after a refusal for want of a receive.
        rnr_wait_ns = 50_000,
        /// Longest such wait.
        rnr_wait_max_ns = 2_000_000,

        /// Path slots.
        paths = 8,
        /// Source ports.
        entropy = 16,
        /// Largest datagram.
        max_datagram = 1472,
        /// Longest message in one piece.
        chunk_bytes = 8928,
        /// Longest burst.
        burst_bytes = 65_000,
        /// Path selection: 0 REPS, 1 oblivious, 2 pinned.
        selector = 0,
        /// Congestion control: 0 the default, otherwise a fixed window of so many bytes.
        window_bytes = 0,
        /// Configured line rate in Mb/s.
        line_mbps = 100_000,
        /// Round trip of the unloaded network.
        rtt_ns = 14_000,
        /// Configured round trip in percent of the true one.
        base_rtt_percent = 100,
        /// Learn the base round trip.
        learn_base = 0,
        /// Smallest window of the default congestion control in thousandths of a packet.
        min_window_milli = 20,
        /// Lower bound of the retransmission timer.
        min_rto_ns = 100_000,
        /// Lower bound of the probe timer.
        min_pto_ns = 50_000,
        /// Upper bound of the retransmission timer.
        max_rto_ns = 5_000_000,
        /// Longest that an ACK waits.
        ack_delay_ns = 5_000,
        /// Of an ACK where more is known to come; nothing if less.
        stream_ack_delay_ns = 0,
        /// Of an ACK that waits for the program's answer; where there is such a wait, ACKs ride on the last packet of an answer.
        answer_delay_ns = 0,
        /// Data packets that force an ACK.
        ack_every = 4,
        /// After this long without an answer a peer is dead.
        peer_timeout_ns = 200_000_000,
        /// Data counts only after a round trip.
        confirm_first = 0,
        /// Messages queued towards one peer.
        messages_per_peer = 1 << 20,
        /// Incomplete messages from one peer.
        partial_per_peer = 4096,
        /// A context idle for this long gives its buffers back.
        idle_release_ns = 2_000_000_000,
        /// Receive buffer of the socket.
        rcvbuf_bytes = 8 << 20,
        /// Follow the receiver's hint.
        receiver_hint = 1,
        /// Each process draws its own variation of the above.
        mixed = 0,

        /// What the network carries is found out, not trusted.
        probe_mtu = 0,
        /// Packets cross as bytes: 0 no, 1 encoded and decoded, 2 sealed as well.
        codec = 0,
        /// The engine of a process wakes at most this long after a packet has come.
        batch_ns = 0,
        /// Timers run at most this long late.
        late_ns = 0,
        /// Timers run before packets when both are due.
        timers_first = 0,
        /// Packets that the socket takes before the engine has to wait; 0 for no limit.
        socket_room = 0,
        /// Of a hundred wake-ups, how many come for nothing.
        spurious_percent = 0,
    }
}

fields! {
    /// What goes wrong. Counts are events at random times of the safety phase, `_ppm` are packets in a million.
    Faults {
        /// Packets lost, evenly.
        loss_ppm = 0,
        /// Packets after which a burst of losses begins (per path, Gilbert-Elliott).
        burst_enter_ppm = 0,
        /// Packets of a burst after which it ends.
        burst_exit_ppm = 200_000,
        /// Packets that are held back.
        reorder_ppm = 0,
        /// For at most so long.
        reorder_ns = 0,
        /// Packets that come twice.
        dup_ppm = 0,
        /// The second at most so much later.
        dup_ns = 0,
        /// Packets that are damaged.
        corrupt_ppm = 0,
        /// Delay of the slowest path in percent of the fastest.
        skew_percent = 100,
        /// Paths of one direction have delays of their own.
        asymmetric = 0,
        /// Each packet's delay varies by so much, in order.
        jitter_ns = 0,
        /// Rate of a host's link from the fabric in Mb/s; 0 for no limit.
        downlink_mbps = 0,
        /// Packets that its queue holds.
        downlink_packets = 1000,
        /// Slow links: directions between two hosts of this many Mb/s...
        slow_mbps = 0,
        /// ...this many of them...
        slow_links = 0,
        /// ...with a queue of so many packets.
        slow_packets = 100,
        /// Queue length in packets at which packets are marked; 0 for no marks.
        mark_packets = 0,
        /// Packets that are cut to their headers.
        trim_ppm = 0,
        /// Full queues cut packets instead of dropping them.
        trim_full = 0,
        /// Times that some paths between two hosts swallow everything.
        blackholes = 0,
        /// Of a hundred paths, how many are hit.
        blackhole_percent = 25,
        /// In both directions.
        blackhole_both = 0,
        /// For so long at most; until the end of the phase if 0.
        blackhole_ns = 0,
        /// Times that one path begins to come and go.
        flaps = 0,
        /// With this period.
        flap_ns = 100_000,
        /// Times that a path's delay changes.
        delay_steps = 0,
        /// To at most so much more.
        delay_step_ns = 100_000,
        /// Datagrams above this size disappear; 0 for no limit.
        mtu_bytes = 0,
        /// Times that the limit between two hosts sinks...
        mtu_drops = 0,
        /// ...to this.
        mtu_to = 1_232,
        /// Times that two hosts are cut off from each other altogether.
        cuts = 0,
        /// For so long at most.
        cut_ns = 1_000_000,
        /// Times that a process stops posting receives.
        slow_receivers = 0,
        /// For so long at most.
        slow_receiver_ns = 1_000_000,
        /// Queue pairs destroyed with work in flight.
        qp_destroys = 0,
        /// Queue pairs sent to the error state with work in flight.
        qp_errors = 0,
        /// Address handles destroyed with work in flight.
        ah_destroys = 0,
        /// Memory regions taken away with work in flight.
        mr_deregs = 0,
        /// Processes killed and started again on the same address.
        restarts = 0,
        /// After at most so long.
        restart_ns = 1_000_000,
        /// Processes stopped for a while.
        pauses = 0,
        /// For so long at most.
        pause_ns = 10_000_000,
        /// Clocks that jump forward.
        jumps_forward = 0,
        /// Clocks that jump backward.
        jumps_back = 0,
        /// By so much at most.
        jump_ns = 10_000_000,
        /// Processes that die for good.
        deaths = 0,
        /// Damage done by the harness itself between device and oracle, to see that the oracle notices. See
        /// [`crate::world::Sabotage`].
        sabotage = 0,
    }
}

fields! {
    /// Worlds of the messaging layer, see [`crate::messages`]: what its endpoints do, and what goes wrong with them.
    Talk {
        /// The messaging layer runs on the devices.
        layer = 0,
        /// Endpoints of a process.
        endpoints = 1,
        /// Longest message of the device.
        max_msg = 8_832,
        /// The messaging layer's configuration; see [`srd_msg::Config`].
        receive_buffers = 32,
        /// As above.
        max_outstanding = 4_096,
        /// As above.
        medium_limit = 65_536,
        /// As above.
        eager_ahead = 16_384,
        /// As above.
        read_bytes = 1 << 20,
        /// As above.
        reads_in_flight = 4,
        /// As above.
        grant_bytes = 256 << 10,
        /// As above.
        by_read = 1,
        /// As above.
        shm_limit = 8_192,
        /// As above.
        ask_every_ns = 500_000_000,
        /// As above.
        most_left = 1_572_864,
        /// Longest message and RMA operation.
        longest = 30_000,
        /// Of a hundred operations, how many are RMA.
        rma_percent = 0,
        /// Of a hundred operations, how many are atomic.
        atomic_percent = 0,
        /// Of a hundred receives, how many are for messages of one peer.
        directed_percent = 30,
        /// Of a hundred receives, how many are cancelled.
        cancel_percent = 0,
        /// Receives for a hundred messages.
        receives_percent = 100,
        /// Of a hundred operations that fail, how many are followed by another one to the same peer at once.
        again_percent = 0,
        /// Of a hundred pairs of endpoints on one host, how many have lanes.
        lanes_percent = 0,
        /// Bytes of a lane's ring.
        ring_bytes = 32_768,
        /// Long messages are copied out of the other process.
        copies = 1,
        /// Of a hundred pauses, how many hit a second process at the same time.
        twins_percent = 0,
        /// Endpoints that are closed, and opened again under the same number.
        reopens = 0,
        /// Of a hundred of them, how many do not wait for what they have sent.
        abrupt_percent = 50,
        /// Damage done by the harness itself between messaging layer and oracle. See [`crate::messages::Sabotage`].
        spoil = 0,
    }
}

/// Everything about a run. The same plan gives the same run.
#[derive(Clone, PartialEq, Eq)]
pub struct Plan {
    /// Seed of every stream of random numbers.
    pub seed: u64,
    /// Topology, configuration and workload.
    pub shape: Shape,
    /// What goes wrong.
    pub faults: Faults,
    /// What the messaging layer does, in its worlds.
    pub talk: Talk,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}\n  shape  {:?}\n  faults {:?}", self.seed, self.shape, self.faults)?;
        if self.talk.layer != 0 { write!(f, "\n  talk   {:?}", self.talk) } else { Ok(()) }
    }
}

impl Plan {
    /// A run in which nothing goes wrong.
    pub fn calm(seed: u64) -> Plan {
        Plan { seed, shape: Shape::calm(), faults: Faults::calm(), talk: Talk::calm() }
    }

    /// The plan of `seed`.
    pub fn draw(seed: u64) -> Plan {
        let rng = &mut Rng::new(seed, purpose::PLAN);
        let mut plan = Plan::calm(seed);
        plan.draw_shape(rng);
        plan.draw_configuration(rng);
        // One run in ten has no faults at all: what breaks there is plain wrong.
        if !rng.percent(10) {
            // Either many faults or few, so that some runs can be understood.
            let share = rng.pick(&[8, 20, 40]);
            plan.draw_packet_faults(rng, share);
            plan.draw_path_faults(rng, share);
            plan.draw_object_faults(rng, share);
            plan.draw_process_faults(rng, share);
            plan.draw_trimming(rng, share);
        }
        plan.bound_cost();
        plan
    }

    /// A run of the messaging layer in which nothing goes wrong.
    pub fn calm_messages(seed: u64) -> Plan {
        let mut plan = Plan::calm(seed);
        (plan.talk.layer, plan.shape.span_ns) = (1, 50_000_000);
        plan
    }

    /// The plan of `seed` for a world of the messaging layer.
    pub fn draw_messages(seed: u64) -> Plan {
        let rng = &mut Rng::new(seed, purpose::TALK);
        let mut plan = Plan::calm_messages(seed);
        plan.draw_configuration(rng);
        plan.draw_talk(rng);
        // One run in ten has no faults at all: what breaks there is plain wrong.
        if !rng.percent(10) {
            let share = rng.pick(&[10, 25, 50]);
            if rng.percent(60) {
                plan.draw_packet_faults(rng, share);
                plan.faults.corrupt_ppm = 0;
            }
            plan.draw_interruptions(rng, share);
        }
        plan
    }

    /// All that is not calm, as `--set` takes it.
    pub fn changes(&self) -> String {
        let all = [format!("{:?}", self.shape), format!("{:?}", self.faults), format!("{:?}", self.talk)];
        all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
    }

    /// The field called `name` of whichever structure has it.
    pub fn field(&mut self, name: &str) -> Option<&mut u64> {
        let Plan { shape, faults, talk, .. } = self;
        shape.field(name).or_else(|| faults.field(name)).or_else(|| talk.field(name))
    }

    /// Sets the field called `name`.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        let field = self.field(name);
        *field.ok_or_else(|| format!("no field {name} in Shape, Faults or Talk"))? = value;
        Ok(())
    }

    fn draw_talk(&mut self, rng: &mut Rng) {
        let s = &mut self.shape;
        s.processes = rng.pick(&[2, 2, 2, 3, 3, 4, 5]);
        s.per_host = rng.pick(&[1, 1, 1, 2, 2, 5]);
        s.messages = rng.spread(16, 160);
        s.post_burst = rng.pick(&[1, 1, 1, 2, 8]);
        // Long enough for several silences that end a peer.
        s.peer_timeout_ns = rng.pick(&[60_000_000, 200_000_000, 1_000_000_000]);
        s.span_ns = rng.pick(&[s.peer_timeout_ns / 10, s.peer_timeout_ns * 3, s.peer_timeout_ns * 10]);
        (s.paths, s.entropy) = rng.pick(&[(1, 1), (2, 4), (8, 16)]);
        s.max_rto_ns = rng.pick(&[5_000_000, 20_000_000]);
        s.min_rto_ns = rng.pick(&[100_000, 1_000_000]);
        s.min_pto_ns = rng.pick(&[50_000, 500_000]);
        (s.probe_mtu, s.mixed, s.messages_per_peer) = (0, 0, rng.pick(&[1 << 20, 1 << 20, 8]));
        s.codec = rng.pick(&[0, 0, 1]);
        s.cq_lag_ns = rng.pick(&[0, 0, 0, 5_000, 500_000, s.peer_timeout_ns.min(200_000_000) / 3]);
        s.batch_ns = rng.pick(&[0, 0, 1_000, 100_000]);
        s.notified = rng.below(2);
        s.rcvbuf_bytes = rng.pick(&[8 << 20, 1 << 20, 40_000]);
        s.rnr_wait_ns = rng.pick(&[50_000, 200_000]);
        let t = &mut self.talk;
        t.endpoints = rng.pick(&[1, 1, 2]);
        t.max_msg = rng.pick(&[8_832, 4_096, 1_024]);
        t.receive_buffers = rng.pick(&[32, 32, 8, 2]);
        t.max_outstanding = rng.pick(&[4_096, 4_096, 8]);
        t.medium_limit = rng.pick(&[65_536, 10_000, 0]);
        t.eager_ahead = rng.pick(&[16_384, 1_000, 0]);
        t.read_bytes = rng.pick(&[1 << 20, 5_000]);
        t.reads_in_flight = rng.within(1, 4);
        t.grant_bytes = rng.pick(&[256 << 10, 4_000]);
        t.by_read = rng.pick(&[1, 1, 0]);
        t.shm_limit = rng.pick(&[8_192, 1_000]);
        t.ask_every_ns = rng.pick(&[s.peer_timeout_ns / 60, s.peer_timeout_ns / 5]);
        t.longest = rng.pick(&[500, 9_000, 30_000, 100_000]);
        t.rma_percent = rng.pick(&[0, 0, 20, 60]);
        t.atomic_percent = rng.pick(&[0, 0, 20]);
        t.directed_percent = rng.pick(&[0, 30, 100]);
        t.cancel_percent = rng.pick(&[0, 0, 20]);
        t.receives_percent = rng.pick(&[100, 100, 40, 150]);
        t.again_percent = rng.pick(&[0, 50, 100]);
        t.lanes_percent = rng.pick(&[0, 50, 100]);
        t.ring_bytes = rng.pick(&[32_768, 131_072]);
        t.copies = rng.pick(&[1, 1, 0]);
        t.most_left = rng.pick(&[1_572_864, 10_000, 0]);
        if s.base_rtt_percent < 100 && s.rtt_ns > 500_000 {
            // Every delay looks like a queue there: a packet leaves in each second round trip.
            t.longest = t.longest.min(9_000);
        }
        if s.cq_lag_ns > 1_000_000 {
            // A round of a long message takes as long as the program does.
            (t.receive_buffers, t.longest) = (32, t.longest.min(9_000));
        }
    }

    /// Silences of every kind, shorter and longer than each timer.
    fn draw_interruptions(&mut self, rng: &mut Rng, share: u64) {
        let (f, t, timeout) = (&mut self.faults, &mut self.talk, self.shape.peer_timeout_ns);
        let spans = [
            timeout / 100,
            t.ask_every_ns * 3 / 2,
            timeout / 2,
            timeout * 5 / 4,
            timeout * 3 / 2,
            timeout * 4,
        ];
        if rng.percent(share * 2) {
            f.pauses = rng.within(1, 4);
            f.pause_ns = rng.pick(&spans);
            t.twins_percent = rng.pick(&[0, 0, 50, 100]);
        }
        if rng.percent(share) {
            f.cuts = rng.within(1, 4);
            f.cut_ns = rng.pick(&spans);
        }
        if rng.percent(share) {
            f.restarts = rng.within(1, 4);
            f.restart_ns = rng.pick(&[0, 1_000_000, timeout / 2, timeout * 3 / 2]);
        }
        if rng.percent(share) {
            t.reopens = rng.within(1, 4);
            t.abrupt_percent = rng.pick(&[0, 50, 100]);
        }
        if rng.percent(share) {
            f.jumps_forward = rng.within(0, 3);
            f.jumps_back = rng.within(0, 3);
            f.jump_ns = rng.pick(&[10_000, 10_000_000, timeout / 2, timeout * 4]);
        }
        if rng.percent(share / 2) {
            f.deaths = 1;
        }
    }

    fn draw_shape(&mut self, rng: &mut Rng) {
        let s = &mut self.shape;
        s.processes = rng.pick(&[2, 2, 2, 3, 3, 4, 5, 6]);
        s.per_host = rng.pick(&[1, 1, 1, 2]);
        s.qps = rng.pick(&[1, 1, 2, 3]);
        s.ud_qps = rng.pick(&[0, 0, 0, 1]);
        s.extra_ports = rng.pick(&[0, 0, 0, 0, 1]);
        s.messages = rng.spread(8, 240);
        s.post_burst = rng.pick(&[1, 1, 2, 8, 32]);
        s.span_ns = rng.spread(100_000, 200_000_000);
        s.rdma_len = rng.pick(&[3_000, 20_000, 100_000, 1 << 20]);
        s.rdma_percent = rng.pick(&[0, 20, 50, 80, 100]);
        s.edge_percent = rng.pick(&[0, 30, 60, 100]);
        s.invalid_percent = rng.pick(&[0, 0, 5, 30]);
        s.self_percent = rng.pick(&[0, 0, 0, 5, 30]);
        s.short_recv_percent = rng.pick(&[0, 0, 0, 10, 50]);
        s.receives = rng.pick(&[1000, 1000, 1, 2, 8, 64]);
        s.repost_ns = rng.pick(&[0, 1_000, 50_000, 1_000_000]);
        s.rnr_retry = rng.pick(&[7, 7, 8, 0, 3]);
        s.no_ah_percent = rng.pick(&[0, 0, 0, 20]);
        s.sq_depth = rng.pick(&[256, 256, 64, 4, 1]);
        s.cq_lag_ns = rng.pick(&[0, 0, 5_000, 500_000]);
        s.notified = rng.below(2);
        s.rnr_wait_ns = rng.pick(&[50_000, 10_000, 200_000]);
        s.rnr_wait_max_ns = rng.pick(&[2_000_000, 100_000, 20_000_000]);
        s.codec = rng.pick(&[0, 0, 0, 1, 1, 2]);
        s.batch_ns = rng.pick(&[0, 0, 1_000, 10_000, 100_000]);
        s.late_ns = rng.pick(&[0, 0, 0, 2_000, 100_000, 2_000_000]);
        s.timers_first = rng.below(2);
        s.socket_room = rng.pick(&[0, 0, 0, 1, 4, 32]);
        s.spurious_percent = rng.pick(&[0, 0, 10, 50]);
    }

    fn draw_configuration(&mut self, rng: &mut Rng) {
        let s = &mut self.shape;
        s.paths = rng.pick(&[1, 2, 4, 8, 16, 64, 64, 256]);
        s.entropy = match rng.below(3) {
            0 => s.paths,
            1 => s.paths * 2,
            _ => s.paths + rng.below(100),
        };
        s.max_datagram = rng.pick(&[1472, 1472, 8972, 4096, 1200, 576]);
        s.chunk_bytes = rng.pick(&[8928, 8928, 4096, 1400, 65_000]);
        s.burst_bytes = rng.pick(&[65_000, 9_000, 1_500]);
        s.selector = rng.pick(&[0, 0, 0, 1, 2]);
        s.window_bytes = rng.pick(&[0, 0, 0, 3_000, 100_000, 4_000_000]);
        s.line_mbps = rng.pick(&[100_000, 400_000, 25_000, 1_000]);
        s.rtt_ns = rng.pick(&[14_000, 6_000, 50_000, 200_000, 2_000_000]);
        s.base_rtt_percent = rng.pick(&[100, 100, 100, 20, 50, 300]);
        s.learn_base = rng.pick(&[1, 1, 0]);
        s.min_window_milli = rng.pick(&[20, 500, 1_000]);
        s.min_rto_ns = rng.pick(&[100_000, 1_000_000, 20_000]);
        s.min_pto_ns = rng.pick(&[50_000, 500_000, 10_000]);
        s.max_rto_ns = rng.pick(&[5_000_000, 50_000_000]);
        s.ack_delay_ns = rng.pick(&[5_000, 0, 100_000]);
        s.answer_delay_ns = rng.pick(&[0, s.ack_delay_ns, s.ack_delay_ns / 2]);
        s.ack_every = rng.pick(&[4, 1, 2, 16, 64]);
        s.peer_timeout_ns = rng.pick(&[200_000_000, 1_000_000_000, 60_000_000, 5_000_000_000]);
        s.confirm_first = rng.pick(&[0, 0, 1]).max((s.codec == 2) as u64);
        s.messages_per_peer = rng.pick(&[1 << 20, 1 << 20, 64, 8]);
        s.partial_per_peer = rng.pick(&[4096, 4096, 64, 16, 8]);
        s.idle_release_ns = rng.pick(&[2_000_000_000, 1_000_000, 100_000]);
        s.rcvbuf_bytes = rng.pick(&[8 << 20, 8 << 20, 1 << 20, 200_000, 40_000]);
        s.receiver_hint = rng.below(2);
        s.mixed = rng.pick(&[0, 0, 1]);
        s.probe_mtu = rng.below(2);
        s.stream_ack_delay_ns = rng.pick(&[0, 0, 30_000, 300_000]);
    }

    fn draw_packet_faults(&mut self, rng: &mut Rng, share: u64) {
        let (f, rtt) = (&mut self.faults, self.shape.rtt_ns);
        if rng.percent(share * 2) {
            f.loss_ppm = rng.pick(&[100, 1_000, 10_000, 50_000, 150_000, 300_000]);
        }
        if rng.percent(share) {
            f.burst_enter_ppm = rng.pick(&[200, 2_000, 20_000]);
            f.burst_exit_ppm = rng.pick(&[20_000, 100_000, 500_000]);
        }
        if rng.percent(share) {
            f.reorder_ppm = rng.pick(&[1_000, 20_000, 300_000]);
            f.reorder_ns = rng.pick(&[rtt / 4, rtt, 10 * rtt, 200 * rtt]);
        }
        if rng.percent(share) {
            f.dup_ppm = rng.pick(&[1_000, 50_000, 500_000]);
            f.dup_ns = rng.pick(&[0, rtt, 100 * rtt, 50_000_000]);
        }
        if rng.percent(share) {
            f.corrupt_ppm = rng.pick(&[1_000, 20_000, 100_000]);
        }
    }

    fn draw_path_faults(&mut self, rng: &mut Rng, share: u64) {
        let (f, rtt, span) = (&mut self.faults, self.shape.rtt_ns, self.shape.span_ns);
        if rng.percent(share * 2) {
            f.skew_percent = rng.pick(&[110, 150, 400, 1_000]);
            f.asymmetric = rng.below(2);
        }
        if rng.percent(share) {
            f.jitter_ns = rng.pick(&[rtt / 10, rtt, 50_000]);
        }
        if rng.percent(share) {
            f.downlink_mbps = rng.pick(&[100_000, 25_000, 1_000]);
            f.downlink_packets = rng.pick(&[1000, 100, 10]);
        }
        if rng.percent(share) {
            f.slow_links = rng.within(1, 3);
            f.slow_mbps = rng.pick(&[10_000, 1_000, 200]);
            f.slow_packets = rng.pick(&[1000, 100, 10, 3]);
        }
        if rng.percent(share) {
            f.mark_packets = rng.pick(&[1, 10, 50]);
        }
        if rng.percent(share) {
            f.blackholes = rng.within(1, 4);
            f.blackhole_percent = rng.pick(&[10, 25, 50, 90]);
            f.blackhole_both = rng.below(2);
            f.blackhole_ns = rng.pick(&[0, span / 10, 1_000_000]);
        }
        if rng.percent(share) {
            f.flaps = rng.within(1, 4);
            f.flap_ns = rng.pick(&[rtt, 10 * rtt, 1_000_000]);
        }
        if rng.percent(share) {
            f.delay_steps = rng.within(1, 10);
            f.delay_step_ns = rng.pick(&[rtt, 10 * rtt, 1_000_000]);
        }
        if rng.percent(share) && self.shape.probe_mtu != 0 {
            f.mtu_bytes = rng.pick(&[0, MIN_MTU, 1_452, 4_000]);
            f.mtu_drops = rng.pick(&[0, 0, 1, 3]);
            f.mtu_to = rng.pick(&[MIN_MTU, 1_452]);
        }
        if rng.percent(share) {
            f.cuts = rng.within(1, 3);
            f.cut_ns = rng.pick(&[10 * rtt, span / 4, self.shape.peer_timeout_ns * 3 / 2]);
        }
    }

    fn draw_object_faults(&mut self, rng: &mut Rng, share: u64) {
        let f = &mut self.faults;
        if rng.percent(share) {
            f.slow_receivers = rng.within(1, 5);
            f.slow_receiver_ns = rng.pick(&[100_000, 5_000_000, self.shape.span_ns]);
        }
        if rng.percent(share) {
            f.qp_destroys = rng.within(1, 6);
        }
        if rng.percent(share) {
            f.qp_errors = rng.within(1, 3);
        }
        if rng.percent(share) {
            f.ah_destroys = rng.within(1, 4);
        }
        if rng.percent(share) {
            f.mr_deregs = rng.within(1, 4);
        }
    }

    fn draw_process_faults(&mut self, rng: &mut Rng, share: u64) {
        let (f, timeout) = (&mut self.faults, self.shape.peer_timeout_ns);
        if rng.percent(share) {
            f.restarts = rng.within(1, 4);
            f.restart_ns = rng.pick(&[0, 1_000_000, timeout / 2, timeout * 3 / 2]);
        }
        if rng.percent(share) {
            f.pauses = rng.within(1, 3);
            f.pause_ns = rng.pick(&[1_000_000, timeout / 2, timeout * 3 / 2, 3_000_000_000]);
        }
        if rng.percent(share) {
            f.jumps_forward = rng.within(0, 3);
            f.jumps_back = rng.within(0, 3);
            f.jump_ns = rng.pick(&[10_000, 10_000_000, timeout / 2, 80_000_000_000]);
        }
        if rng.percent(share / 2) {
            f.deaths = 1;
        }
    }

    fn draw_trimming(&mut self, rng: &mut Rng, share: u64) {
        let f = &mut self.faults;
        if rng.percent(share) {
            f.trim_ppm = rng.pick(&[0, 1_000, 50_000, 500_000]);
            f.trim_full = rng.below(2);
        }
    }

    /// Keeps the work of one run to some tens of thousands of packets.
    fn bound_cost(&mut self) {
        let s = &mut self.shape;
        let mean_len = 4_000 + s.rdma_len * s.rdma_percent / 100 * (s.edge_percent + 20) / 400;
        let budget = 3_000_000 * s.max_datagram.min(3_000) / 1_472;
        s.messages = s.messages.min((budget / mean_len).max(8));
        // A retransmission for ever and ever costs most where there are many paths and the peer is not there.
        if self.faults.deaths + self.faults.cuts + self.faults.restarts > 0 {
            s.messages = s.messages.min(60);
        }
    }
}

/// Names of the streams of random numbers.
pub mod purpose {
    /// The plan.
    pub const PLAN: u64 = 1;
    /// The network.
    pub const NET: u64 = 2;
    /// What processes send.
    pub const WORKLOAD: u64 = 3;
    /// When faults happen and to whom.
    pub const FAULTS: u64 = 4;
    /// The engines of the processes: how late they wake, how much they send at a time.
    pub const ENGINE: u64 = 5;
    /// Configuration that differs from process to process.
    pub const CONFIG: u64 = 6;
    /// Incarnations and seeds of devices.
    pub const DEVICES: u64 = 7;
    /// The plan of a world of the messaging layer.
    pub const TALK: u64 = 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_one_plan_and_prints_as_it_is_set() {
        let of_both =
            (0..200).flat_map(|seed| [(Plan::draw as fn(u64) -> Plan, seed), (Plan::draw_messages, seed)]);
        for (draw, seed) in of_both {
            let plan = draw(seed);
            assert_eq!(plan, draw(seed));
            let mut again = Plan::calm(seed);
            for item in plan.changes().split(',').filter(|item| !item.is_empty()) {
                let (name, value) = item.split_once('=').unwrap();
                again.set(name, value.parse().unwrap()).unwrap();
            }
            assert_eq!(plan, again);
        }
    }

    #[test]
    fn an_unknown_field_is_refused() {
        assert!(Plan::calm(0).set("lost_ppm", 1).is_err());
    }
}
