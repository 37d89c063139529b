//! The device with its sockets: what one thread at a time does while it holds the lock.

use crate::beside::Locked;
use crate::clock;
use crate::copies::Copies;
use crate::hints;
use crate::host;
use crate::link_senders::LinkSenders;
use crate::log;
use crate::neighbours::Neighbours;
use crate::notify::Fired;
use crate::options::LogLevel;
use crate::receive::{OnBegun, Receiver, Upwards};
use crate::sys::process::monotonic_ns;
use crate::transmit::Transmitter;
use serde::Serialize;
use srd_device::{AsyncEvent, Completion, CqId, Device, HostMemory};
use srd_wire::seal::Keyring;
use srd_wire::{InstanceAddr, Nanos, Time};

/// Most bytes that one round transmits, so that a round ends.
const ROUND_BYTES: u64 = 4 << 20;

/// Most calls that are left untransmitted for the next poll. At 64 bytes and more each, that is enough to fill a
/// good part of a send.
const MOST_DEFERRED: u32 = 32;

/// Calls that were left longer ago are transmitted by the next call, be it a poll or not.
const LONGEST_DEFERRAL: Nanos = Nanos::from_micros(20);

/// A program polls "soon" after it has posted if it does so within this time...
const SOON: Nanos = Nanos::from_micros(50);
/// ...or this one, where a crowd of threads must take turns on its cores.
const SOON_IN_A_CROWD: Nanos = Nanos::from_millis(1);

/// So many times in a row must a program have polled soon after its posts before its posts are left for its polls.
const TRUST: u32 = 8;

/// A call that moves more packets than this takes some tens of microseconds: its end is noted, too.
const MANY: u64 = 16;

/// Packet sockets are looked after this often while packets move, and at least...
const LOOK_AT_WIRE_EVERY: Nanos = Nanos::from_millis(200);
/// ...this often, for which a sleeper is woken.
const LOOK_AT_WIRE_WITHIN: Nanos = Nanos::from_secs(1);

/// So many polls in a row may hand out completions that are there without a look at the sockets.
const POLLS_WITHOUT_LOOK: u32 = 16;

/// What happened here.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CoreCounters {
    /// Rounds: looks at sockets and clock.
    pub rounds: u64,
    /// Rounds that found nothing to do.
    pub idle_rounds: u64,
    /// Calls whose packets were left for the next poll, to be joined with others.
    pub deferred: u64,
    /// Times that the program did not poll after such calls, so that the thread had to send.
    pub deferred_in_vain: u64,
}

/// Whether a layer above has heard of a peer from the program. `None`: the layer has gone.
pub type Names = Box<dyn Fn(&mut Locked<'_>, InstanceAddr) -> Option<bool> + Send>;

/// Where a panic on purpose may be.
const IN_CALL: usize = 0;
const IN_THREAD: usize = 1;

/// Everything that the lock protects.
pub struct Core {
    pub device: Device<HostMemory>,
    pub transmitter: Transmitter,
    pub receiver: Receiver,
    pub keyring: Option<Keyring>,
    copies: Copies,
    pub counters: CoreCounters,
    /// After so many packets there is a panic on purpose, in a call of the program and in the progress thread.
    pub panic_after: [Option<u64>; 2],
    /// When a packet last arrived.
    pub last_arrival: Time,
    /// When there is something to do even if nothing arrives.
    next_timeout: Time,
    /// Until when a poll finds nothing if no packet has come: the last one has found nothing, and nobody has had the lock since.
    quiet_until: Time,
    /// Packets have moved, or timers have run, since [`Core::take_moved`].
    moved: bool,
    /// So many packets have moved in a call that it has taken long.
    moved_many: bool,
    /// The device had more to send than was taken.
    held_back: bool,
    /// Packets have left since the program last polled.
    sent_since_poll: bool,
    /// Whether calls may be left for the next poll: not where only polls move packets, lest a program that posts and
    /// then computes for long has posted in vain.
    may_defer: bool,
    /// When the newest call since the last poll was left, or would have been if the program were trusted.
    deferred_at: Option<Time>,
    /// When the oldest call that has been left was made.
    untransmitted_since: Time,
    /// Calls that have been left and not transmitted since.
    untransmitted: u32,
    /// How often in a row the program polled soon after such calls.
    trust: u32,
    polls_without_look: u32,
    neighbours: Neighbours,
    /// When there is something to see to beside packets, if any move, and when even if none do.
    look_at: Time,
    look_within: Time,
    /// When it was last seen to that packet sockets may be used, and work; [`Time::NEVER`] if there are none.
    wire_looked_at: Time,
    /// What instances behind the same link tell each other.
    link_senders: Option<LinkSenders>,
    /// What layers above know of peers.
    pub names: Vec<Names>,
    /// Who takes messages up that begin.
    pub on_begun: Vec<OnBegun>,
    /// When the counters may be written next.
    pub stats_due: Time,
    /// Which rounds the last file of counters covers.
    pub stats_written_at_rounds: u64,
}

impl Core {
    pub fn new(
        device: Device<HostMemory>,
        transmitter: Transmitter,
        receiver: Receiver,
        keyring: Option<Keyring>,
        link_senders: Option<LinkSenders>,
        may_defer: bool,
    ) -> Core {
        let wire_looked_at = if receiver.ring().is_some() { Time(0) } else { Time::NEVER };
        Core {
            device,
            transmitter,
            receiver,
            keyring,
            copies: Copies::default(),
            counters: CoreCounters::default(),
            panic_after: [None; 2],
            last_arrival: Time(0),
            next_timeout: Time(0),
            quiet_until: Time(0),
            moved: false,
            moved_many: false,
            held_back: false,
            sent_since_poll: false,
            may_defer,
            deferred_at: None,
            untransmitted_since: Time(0),
            untransmitted: 0,
            trust: 0,
            polls_without_look: 0,
            neighbours: Neighbours::default(),
            look_at: Time(0),
            look_within: Time(0),
            wire_looked_at,
            link_senders,
            names: Vec::new(),
            on_begun: Vec::new(),
            stats_due: Time(0),
            stats_written_at_rounds: 0,
        }
    }

    /// When there is something to do even if nothing arrives.
    #[inline]
    pub fn next_timeout(&self) -> Time {
        self.next_timeout
    }

    /// Receives what is there, runs what is due, transmits. Returns whether anything happened. `polls`: for a program that will do so
    /// again.
    #[inline]
    pub fn round(&mut self, now: Time, polls: bool) -> bool {
        self.disturb();
        self.counters.rounds += 1;
        self.polls_without_look = 0;
        self.device.memory().forget_checks();
        if now >= self.look_at {
            self.look_around(now);
        }
        let upwards = Upwards { device: &mut self.device, on_begun: &mut self.on_begun };
        let received = self.receiver.receive(now, upwards, self.keyring.as_mut());
        if received > 0 {
            self.last_arrival = now;
            self.moved_many |= received > MANY;
        } else if now < self.next_timeout && self.untransmitted == 0 && !self.takes_again() {
            self.counters.idle_rounds += 1;
            return false;
        }
        self.moved = true;
        self.run_timers(now);
        if received > 0 && polls && self.untransmitted == 0 && self.leaves_to_next_poll(now) {
            self.next_timeout = now;
        } else {
            self.transmit(now);
        }
        true
    }

    /// Whether the device wants to be asked what it has to send for no other reason than to say when it wants attention next. Where
    /// packets have come that mostly changes at once, with what the program answers. A simulated network is told the true time.
    #[inline]
    fn leaves_to_next_poll(&self, now: Time) -> bool {
        !self.held_back && !self.receiver.is_simulated() && !self.device.has_to_send(now)
    }

    /// The device had more to send than was taken, and now there is room.
    #[inline]
    fn takes_again(&self) -> bool {
        self.held_back && self.transmitter.has_room()
    }

    /// Whether the device has more to send than was taken.
    pub fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Whether a call ends with more than it has begun itself: calls before it were left for a poll, or packets have moved.
    #[inline]
    pub fn is_owed_a_look(&self) -> bool {
        self.untransmitted > 0 || self.moved || self.moved_many
    }

    /// Whether packets have moved, or timers have run, since the last call of [`Core::take_moved`].
    #[inline]
    pub fn has_moved(&self) -> bool {
        self.moved
    }

    /// Whether packets have moved, or timers have run, since the last call.
    #[inline]
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether a call has taken long since the last call of this.
    #[inline]
    pub fn take_moved_many(&mut self) -> bool {
        std::mem::take(&mut self.moved_many)
    }

    /// Somebody else than a poll has the lock, or a poll does more than look.
    #[inline]
    pub fn disturb(&mut self) {
        self.quiet_until = Time(0);
    }

    /// Whether a poll finds nothing, which is told by one look at the socket while nothing else can have happened.
    #[inline]
    pub fn finds_nothing(&mut self, now: Time) -> bool {
        let nothing = now < self.quiet_until && self.receiver.finds_nothing();
        if nothing {
            self.polls_without_look = 0;
            self.counters.rounds += 1;
            self.counters.idle_rounds += 1;
        }
        nothing
    }

    /// From then on a poll is to do more than look.
    #[inline]
    pub fn ends_quiet(&mut self, at: Time) {
        self.quiet_until = self.quiet_until.min(at);
    }

    /// A round on behalf of a program that polls.
    #[inline]
    pub fn poll_round(&mut self, now: Time, crowded: bool) {
        self.panic_if_asked(IN_CALL);
        if let Some(at) = self.deferred_at.take() {
            let soon = if crowded { SOON_IN_A_CROWD } else { SOON };
            self.trust = if now.since(at) <= soon { (self.trust + 1).min(TRUST) } else { 0 };
        }
        let found = self.round(now, true);
        self.sent_since_poll = false;
        if !found && !self.held_back && self.receiver.is_quiet() {
            self.quiet_until = self.next_timeout.min(self.look_at);
        }
    }

    /// A round on behalf of a program that does not poll.
    pub fn thread_round(&mut self, now: Time) {
        self.panic_if_asked(IN_THREAD);
        if self.untransmitted > 0 {
            self.trust = 0;
            self.counters.deferred_in_vain += 1;
        }
        self.receiver.expect_many();
        self.round(now, false);
    }

    #[cold]
    fn look_around(&mut self, now: Time) {
        if now.since(self.wire_looked_at) >= LOOK_AT_WIRE_EVERY {
            self.look_at_wire(now);
        }
        self.look_at = self.wire_looked_at + LOOK_AT_WIRE_EVERY;
        self.look_within = self.wire_looked_at + LOOK_AT_WIRE_WITHIN;
        if let Some(link_senders) = &mut self.link_senders {
            let others = link_senders.exchange(monotonic_ns(), self.device.endpoint().awaited_senders(now));
            self.device.set_neighbours(others);
            self.look_at = self.look_at.min(now + link_senders.period());
            if link_senders.says_something() {
                self.look_within = self.look_at;
            }
        }
    }

    /// Whatever ends packet sockets in one direction ends them in both.
    fn look_at_wire(&mut self, now: Time) {
        self.wire_looked_at = now;
        let works = self.receiver.ring_works();
        if self.receiver.ring_is_closed() {
            return;
        }
        if self.transmitter.must_give_way() {
            log::say(
                LogLevel::Info,
                format_args!("short packets travel by UDP: this host looks at packets now"),
            );
        } else if works {
            return;
        } else {
            log::warn_once(format_args!(
                "short packets travel by UDP sockets from now on: the interface that they took has gone"
            ));
        }
        self.transmitter.close_short_way();
        self.receiver.close_ring();
    }

    #[inline]
    fn run_timers(&mut self, now: Time) {
        if now >= self.device.next_timer() {
            self.receiver.note_time(now);
            self.device.handle_timeout(now);
            if let Some((peer, answered_before)) = self.device.poll_silent_peer()
                && self.is_named(peer)
            {
                let here = peer.gid == self.device.gid();
                hints::silent(peer, here, answered_before, self.device.config().transport.peer_timeout);
            }
            if let Some(peer) = self.device.take_unsendable() {
                hints::unsendable(peer);
            }
            self.neighbours.look(now, &mut self.device, self.transmitter.local());
        }
    }

    /// After the program has called the device. `busy`: it has also done so a moment ago.
    ///
    /// The first posts after a poll leave at once. While a program keeps polling soon after it has posted, further
    /// posts wait for that poll: many small messages then leave in one send. A program that has ever not come back
    /// in time loses that trust, and must earn it again. Where a crowd of threads posts, the first ones wait, too: each
    /// thread has posted one or two before another polls.
    #[inline]
    pub fn after_call(&mut self, now: Time, busy: bool, crowded: bool) {
        self.disturb();
        self.panic_if_asked(IN_CALL);
        self.receiver.note_time(now);
        let due = self.device.next_timeout();
        if due > now || self.leaves_to_next_poll(now) {
            // Nothing to send: a receive was posted, or the transport waits for its time.
            self.next_timeout = self.next_timeout.min(due);
            return;
        }
        if self.may_defer && (self.sent_since_poll || crowded) && busy {
            self.deferred_at = Some(now);
            if self.untransmitted == 0 {
                self.untransmitted_since = now;
            }
            let too_old = now.since(self.untransmitted_since) > LONGEST_DEFERRAL;
            if self.trust >= TRUST && self.untransmitted < MOST_DEFERRED && !too_old {
                self.counters.deferred += 1;
                self.untransmitted += 1;
                self.next_timeout = self.next_timeout.min(due);
                return;
            }
        }
        self.transmit(now);
    }

    #[inline]
    fn panic_if_asked(&self, place: usize) {
        if let Some(packets) = self.panic_after[place]
            && self.transmitter.packets_pushed() >= packets
        {
            panic!("on purpose, as SRD_FAULT says");
        }
    }

    /// Sends all that the transport has for now.
    #[inline]
    pub fn transmit(&mut self, now: Time) {
        let Core { device, transmitter, receiver, keyring, copies, .. } = self;
        receiver.note_time(now);
        transmitter.due(now);
        let before = transmitter.packets_pushed();
        let limit = transmitter.bytes_pushed() + ROUND_BYTES;
        let (mut now, mut sends) = (now, transmitter.sends());
        while transmitter.has_room()
            && transmitter.bytes_pushed() < limit
            && device
                .poll_transmit_with(now, |transmit| {
                    if let Some(keyring) = keyring {
                        copies.before_sealing(now, keyring);
                    }
                    transmitter.push(now, &transmit, keyring.as_mut())
                })
                .is_some()
        {
            let most = transmitter.room_for_followers(limit);
            if most > 0 {
                device.poll_followers(now, most, |followers, payload| {
                    transmitter.push_followers(&followers, payload, keyring.as_mut());
                });
            }
            // A packet's stamp must not be older than the sends before it.
            if transmitter.sends() != sends {
                (now, sends) = (clock::now(), transmitter.sends());
            }
        }
        transmitter.flush(now);
        while let Some((peer, message)) = transmitter.take_unreadable() {
            device.unreadable(now, peer, message);
        }
        let pushed = transmitter.packets_pushed() - before;
        self.sent_since_poll |= pushed > 0;
        self.moved_many |= pushed > MANY;
        self.untransmitted = 0;
        self.next_timeout = self.transmitter.next_timeout(now).min(self.look_within);
        let due = self.device.next_timeout();
        self.held_back = due <= now && !self.transmitter.has_room();
        if !self.held_back {
            self.next_timeout = self.next_timeout.min(due);
        } // else the device would ask to be polled at once, again and again
        while let Some((gid, mtu)) = self.transmitter.take_path_mtu() {
            let bytes = host::max_datagram(mtu, gid.ip().is_ipv6(), self.keyring.is_some());
            self.device.limit_datagram(gid, bytes);
        }
    }

    /// Whether a poll that finds completions may hand them out without a look at the sockets.
    #[inline]
    pub fn may_skip_look(&mut self) -> bool {
        self.polls_without_look = self.polls_without_look.saturating_add(1);
        self.polls_without_look <= POLLS_WITHOUT_LOOK && self.untransmitted == 0
    }

    /// Takes completions, as many as there are and fit.
    #[inline]
    pub fn take(&mut self, cq: CqId, out: &mut [Completion]) -> usize {
        let mut n = 0;
        while n < out.len()
            && let Some(completion) = self.device.poll_cq(cq)
        {
            out[n] = completion;
            n += 1;
        }
        n
    }

    /// What has fired since the last call.
    #[inline(never)]
    pub fn fired(&mut self) -> Fired {
        let mut fired = Fired { ended: self.device.ended().is_some(), ..Fired::default() };
        while let Some(cq) = self.device.poll_notification() {
            fired.cqs.push(cq);
        }
        while let Some(event) = self.device.poll_async_event() {
            if let AsyncEvent::RemoteUnresponsive { peer, answered_before } = event
                && self.is_named(peer)
            {
                hints::unresponsive(peer, answered_before);
            }
            fired.events.push(event);
        }
        fired
    }

    /// Whether the program has named the peer, or may have: who uses the device itself is not asked. The silence of others, who
    /// have come and gone by themselves, is nobody's concern.
    #[cold]
    fn is_named(&mut self, peer: InstanceAddr) -> bool {
        let (mut anybody, mut named) = (false, false);
        self.names.retain(|names| {
            let answer = names(&mut Locked::new(&mut self.device), peer);
            anybody |= answer.is_some();
            named |= answer == Some(true);
            answer.is_some()
        });
        named || !anybody
    }
}
