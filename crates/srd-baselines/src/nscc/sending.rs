//! The sender's side of a connection (UET: packet delivery context): what is in flight, what is lost, and what may be sent.
//! Messages are cut into packets one behind the other; which of them comes first does not matter to the receiver.

use super::config::Control;
use super::credit::Purse;
use super::law::{Constants, Sample, Window};
use super::packet::{Ack, Data, HEADERS, Label, Nack};
use super::paths::{News, Paths};
use super::sleek::Sleek;
use srd_wire::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Most packets from the first that is missing to the last that was sent: what the receiver must be able to remember.
const MOST_AHEAD: u32 = 1 << 14;
/// A receiver that says nothing: from this much silence on the timeout doubles, so often until the connection is given up (UE
/// Specification 1.0, packet delivery sublayer: RTO_Init_Time x 2^retry_count, and Max_RTO_Retx_Cnt, 5 in xdp2, uet/config.h).
/// Before that it stays what it is in uet-htsim, where it never grows. RTO_Init_Time is the operator's to choose, from 0 to 8 s:
/// where switches drop, connections of an all-to-all hear nothing for 4 ms and longer (docs/BASELINES.md).
const SILENCE: Nanos = Nanos::from_millis(16);
const DOUBLINGS: u32 = 5;

/// Number of a probe that asks for nothing but whether its path works.
const NO_ROUND_TRIP: u32 = u32::MAX;

/// What has become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    Lost,
    Acknowledged,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Time,
    path: u16,
    /// Bytes of payload.
    payload: u16,
    /// How often it has been sent before.
    copies: u8,
    state: State,
    /// Number of its message among the connection's.
    message: u32,
}

impl Sent {
    /// Bytes on the wire.
    fn bytes(&self) -> i64 {
        self.payload as i64 + HEADERS as i64
    }

    /// An answer to a copy that was sent `again`, or to the first, can only be to the one in flight.
    fn is_copy(&self, again: bool) -> bool {
        self.copies == again as u8
    }
}

/// A message that is being sent.
#[derive(Clone, Debug)]
struct Message {
    /// How the host calls it.
    flow: u32,
    inbox: u32,
    /// It is to end when it is told to.
    endless: bool,
    /// A packet of it has been sent. A message of no bytes has one.
    begun: bool,
    /// Bytes that have not been sent yet.
    left: u64,
    /// Packets that have been sent and not been acknowledged.
    open: u32,
}

impl Message {
    fn has_new(&self) -> bool {
        self.left > 0 || !self.begun
    }
}

/// What a connection's sender must know of its process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) constants: Constants,
    /// Bytes of a full packet's payload.
    pub(super) payload: u16,
    /// Switches cut packets.
    pub(super) trimming: bool,
    /// A packet is lost if nothing has been heard of it for so long.
    pub(super) rto: Nanos,
    /// Losses are looked for before that.
    pub(super) sleek: bool,
    /// Who says how much may be sent.
    pub(super) control: Control,
}

impl Rules {
    /// Silence of a receiver that is out of the ordinary.
    fn silence(&self) -> Nanos {
        SILENCE.max(self.rto)
    }
}

/// A connection's sending side.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    /// The receiving host and process.
    pub(super) to: (u32, u16),
    pub(super) label: Label,
    /// Orders of this channel go through it.
    pub(super) channel: u32,
    /// What its paths' ports begin with.
    pub(super) first_port: u16,
    /// It waits for its turn.
    pub(super) ready: bool,
    /// When the process wakes for it, as far as it knows.
    pub(super) alarm: Time,
    /// Messages that are not complete, and those behind them; the number of the first.
    messages: VecDeque<Message>,
    first_message: u32,
    /// How many of them, from the first on, have been sent in full for the first time.
    cut: usize,
    window: Window,
    pub(super) paths: Paths,
    /// The first packet that has not been acknowledged, and all from it on that have been sent.
    first: u32,
    sent: VecDeque<Sent>,
    /// Packets in the order in which they were sent, and when: the first that is still in flight times out first.
    order: VecDeque<(Time, u32)>,
    /// Packets to be retransmitted, the lowest first; some have been acknowledged since.
    lost: BinaryHeap<Reverse<u32>>,
    /// Bytes of them that have not.
    lost_bytes: i64,
    /// Bytes on the wire. Below 0 while packets that count as lost have come after all.
    in_flight: i64,
    /// Bytes that the receiver has.
    received: u64,
    /// When something was last heard of the receiver, or there was nothing for it to say.
    silent_since: Time,
    sleek: Sleek,
    /// Credit, where the receiver grants it.
    purse: Option<Purse>,
}

impl Sending {
    pub(super) fn new(
        rules: &Rules,
        now: Time,
        to: (u32, u16),
        label: Label,
        channel: u32,
        paths: Paths,
    ) -> Sending {
        let window = Window::new(&rules.constants, now);
        let purse = (rules.control != Control::Window).then(|| Purse::new(now, window.most()));
        Sending {
            to,
            label,
            channel,
            first_port: 0,
            ready: false,
            alarm: Time::NEVER,
            messages: VecDeque::new(),
            first_message: 0,
            cut: 0,
            window,
            paths,
            first: 0,
            sent: VecDeque::new(),
            order: VecDeque::new(),
            lost: BinaryHeap::new(),
            lost_bytes: 0,
            in_flight: 0,
            received: 0,
            silent_since: now,
            sleek: Sleek::default(),
            purse,
        }
    }

    /// Another message, behind those that there are.
    pub(super) fn push(&mut self, now: Time, flow: u32, inbox: u32, bytes: u64) {
        if self.idle() {
            self.silent_since = now;
        }
        let endless = bytes == u64::MAX;
        self.messages.push_back(Message { flow, inbox, endless, begun: false, left: bytes, open: 0 });
    }

    /// Nothing more of a message is to be sent for the first time. Returns whether there is such a message.
    pub(super) fn stop(&mut self, flow: u32) -> bool {
        let Some(at) = self.messages.iter().position(|it| it.flow == flow) else { return false };
        let message = &mut self.messages[at];
        (message.begun, message.left) = (true, 0);
        self.go_on();
        true
    }

    /// Goes on with the first message of which there is something to be sent for the first time.
    fn go_on(&mut self) {
        while self.messages.get(self.cut).is_some_and(|message| !message.has_new()) {
            self.cut += 1;
        }
    }

    /// The next message, from the first on, of which the receiver has everything: its flow, if that was to end by itself.
    pub(super) fn poll_complete(&mut self) -> Option<Option<u32>> {
        let message = self.messages.front().filter(|it| !it.has_new() && it.open == 0)?;
        let flow = (!message.endless).then_some(message.flow);
        self.messages.pop_front();
        self.first_message = self.first_message.wrapping_add(1);
        self.cut -= 1;
        Some(flow)
    }

    /// The flows of messages that have not come to their end.
    pub(super) fn flows(&self) -> impl Iterator<Item = u32> {
        self.messages.iter().map(|message| message.flow)
    }

    /// There are no messages.
    pub(super) fn idle(&self) -> bool {
        self.messages.is_empty()
    }

    /// Number of the next packet that has not been sent yet.
    fn next(&self) -> u32 {
        self.first + self.sent.len() as u32
    }

    fn get(&mut self, psn: u32) -> Option<&mut Sent> {
        let at = psn.checked_sub(self.first)?;
        self.sent.get_mut(at as usize)
    }

    /// The next packet to be sent: one that was lost (its number), or a new one of so many bytes of payload.
    fn candidate(&mut self, rules: &Rules) -> Option<(Option<u32>, u16)> {
        while let Some(&Reverse(psn)) = self.lost.peek() {
            if let Some(sent) = self.get(psn).filter(|sent| sent.state == State::Lost) {
                let payload = sent.payload;
                return Some((Some(psn), payload));
            }
            self.lost.pop();
        }
        let message = self.messages.get(self.cut)?;
        let fits = (self.sent.len() as u32) < MOST_AHEAD;
        fits.then(|| (None, message.left.min(rules.payload as u64) as u16))
    }

    /// The same, if the window has room for it.
    fn permitted(&mut self, rules: &Rules) -> Option<(Option<u32>, u16)> {
        let (lost, payload) = self.candidate(rules)?;
        let bytes = payload as i64 + HEADERS as i64;
        let room = rules.control == Control::Credit || self.window.bytes >= (self.in_flight + bytes) as f64;
        let paid = self.purse.as_ref().is_none_or(Purse::is_open);
        (paid && (room || (lost.is_some() && self.sleek.recovering()))).then_some((lost, payload))
    }

    /// Whether a packet may be sent now.
    pub(super) fn may_send(&mut self, rules: &Rules) -> bool {
        self.permitted(rules).is_some()
    }

    /// Sends a packet, if one may be sent. `sharing`: so many connections would now.
    pub(super) fn send(&mut self, rules: &Rules, now: Time, sharing: usize) -> Option<Data> {
        let (lost, payload) = self.permitted(rules)?;
        let path = self.paths.next();
        let bytes = payload as i64 + HEADERS as i64;
        self.in_flight += bytes;
        let psn = lost.unwrap_or(self.next());
        self.order.push_back((now, psn));
        let (number, ends) = match lost {
            Some(_) => {
                self.lost.pop();
                self.lost_bytes -= bytes;
                let sent = self.get(psn).expect("what is lost was sent");
                (sent.at, sent.path, sent.state) = (now, path, State::InFlight);
                sent.copies = sent.copies.saturating_add(1);
                (sent.message, true)
            }
            None => {
                let number = self.first_message.wrapping_add(self.cut as u32);
                let message = &mut self.messages[self.cut];
                message.begun = true;
                message.left -= payload as u64;
                message.open += 1;
                let ends = !message.has_new();
                self.go_on();
                if self.sent.is_empty() {
                    self.silent_since = now;
                }
                let state = State::InFlight;
                self.sent.push_back(Sent { at: now, path, payload, copies: 0, state, message: number });
                (number, ends)
            }
        };
        if let Some(purse) = &mut self.purse {
            purse.spend(bytes);
        }
        // After a message's last packet, or when no more may be sent, nothing more comes that would bring an ACK about.
        let full = rules.control != Control::Credit && (self.in_flight + bytes) as f64 >= self.window.bytes
            || self.purse.as_ref().is_some_and(|purse| !purse.is_open());
        let target = self.target(rules, sharing);
        let message = &self.messages[number.wrapping_sub(self.first_message) as usize];
        Some(Data {
            label: self.label,
            inbox: message.inbox,
            psn,
            path,
            payload,
            again: lost.is_some(),
            ack_request: ends || full,
            may_be_trimmed: rules.trimming,
            target,
        })
    }

    /// Up to where credit is wanted.
    fn target(&self, rules: &Rules, sharing: usize) -> u64 {
        let Some(purse) = &self.purse else { return 0 };
        let packet = rules.constants.packet as u64;
        let most = match rules.control {
            Control::Both => purse.most().min(self.window.bytes as u64 + packet),
            _ => purse.most(),
        };
        purse.target(self.waiting(rules, most), packet, sharing)
    }

    /// Bytes on the wire that wait to be sent, up to so many.
    fn waiting(&self, rules: &Rules, most: u64) -> u64 {
        let mut waiting = self.lost_bytes as u64;
        for message in self.messages.iter().skip(self.cut) {
            if waiting >= most {
                break;
            }
            let packets = message.left.div_ceil(rules.payload as u64).max(!message.begun as u64);
            waiting = waiting.saturating_add(message.left).saturating_add(packets.saturating_mul(HEADERS as u64));
        }
        waiting.min(most)
    }

    /// The receiver has granted so much since the beginning.
    pub(super) fn on_credit(&mut self, now: Time, granted: u64) {
        self.silent_since = now;
        if let Some(purse) = &mut self.purse {
            purse.take(now, granted);
        }
    }

    /// When credit is asked for, unless it comes before.
    fn asks_at(&mut self, rules: &Rules) -> Time {
        let waits = self.purse.as_ref().is_some_and(|purse| !purse.is_open()) && self.candidate(rules).is_some();
        let asks = |purse: &Purse| purse.asks_at(self.window.base_rtt(), rules.rto);
        self.purse.as_ref().filter(|_| waits).map_or(Time::NEVER, asks)
    }

    /// Up to where credit is asked for, if it is time.
    pub(super) fn ask(&mut self, rules: &Rules, now: Time, sharing: usize) -> Option<u64> {
        if self.asks_at(rules) > now {
            return None;
        }
        let target = self.target(rules, sharing);
        self.purse.as_mut()?.ask(now);
        Some(target)
    }

    /// The packet has not come, as far as one knows: it is to be retransmitted.
    fn lose(&mut self, psn: u32) {
        if let Some(sent) = self.get(psn) {
            sent.state = State::Lost;
            let bytes = sent.bytes();
            self.in_flight -= bytes;
            self.lost.push(Reverse(psn));
            self.lost_bytes += bytes;
        }
    }

    fn acknowledge(&mut self, psn: u32) {
        let Some(sent) = self.get(psn) else { return };
        let Sent { state, message, .. } = *sent;
        sent.state = State::Acknowledged;
        let bytes = sent.bytes();
        match state {
            State::Acknowledged => return,
            State::InFlight => {}
            State::Lost => {
                // It was taken out of what is in flight twice: when it was lost, and when it came.
                self.in_flight += bytes;
                self.lost_bytes -= bytes;
            }
        }
        self.messages[message.wrapping_sub(self.first_message) as usize].open -= 1;
    }

    /// The receiver has said something.
    fn hear(&mut self, now: Time) {
        self.silent_since = now;
        if let Some(purse) = &mut self.purse {
            purse.heard();
        }
    }

    /// An ACK has come.
    pub(super) fn on_ack(&mut self, rules: &Rules, now: Time, ack: &Ack) {
        self.hear(now);
        let constants = &rules.constants;
        let newly = ack.received.saturating_sub(self.received);
        self.received += newly;
        self.in_flight -= newly as i64;
        let rtt = match ack.probe {
            true => self.sleek.round_trip(now, ack.of),
            // A packet that was sent twice is measured if it is clear which copy has come.
            false => {
                let clear = |sent: &&mut Sent| sent.state == State::InFlight && sent.is_copy(ack.again);
                self.get(ack.of).filter(clear).map(|sent| now.since(sent.at))
            }
        };
        let full = !ack.probe && self.get(ack.of).is_some_and(|sent| sent.payload == rules.payload);
        let delay = match rtt {
            Some(rtt) if full => self.window.measure(constants, rtt, ack.marked),
            // What is short says nothing of how long a full packet takes at least.
            Some(rtt) => self.window.measure(constants, rtt.max(self.window.base_rtt()), ack.marked),
            None => self.window.mean_delay(),
        };
        while self.first < ack.cumulative && !self.sent.is_empty() {
            self.acknowledge(self.first);
            self.sent.pop_front();
            self.first += 1;
        }
        let mut bits = ack.bitmap;
        while bits != 0 {
            self.acknowledge(ack.base + bits.trailing_zeros());
            bits &= bits - 1;
        }
        if ack.probe {
            self.paths.works(ack.path);
        }
        self.paths.hear(now, ack.path, if ack.marked { News::Marked } else { News::Good });
        let in_flight = self.in_flight.max(0) as f64;
        let sample = Sample { marked: ack.marked, delay, bytes: newly as f64, in_flight };
        self.window.on_ack(constants, now, sample);
        if rules.sleek {
            self.look_for_losses(rules, now, ack, delay);
        }
    }

    /// SLEEK has heard an ACK: what it takes for lost is.
    fn look_for_losses(&mut self, rules: &Rules, now: Time, ack: &Ack, delay: Nanos) {
        let (next, more) = (self.next(), self.cut < self.messages.len());
        self.sleek.set_timer(now, &rules.constants, &self.window, more, self.first < next);
        let quick = ack.probe && delay < rules.constants.target;
        let range =
            self.sleek.hear(rules, &self.window, self.first, next, ack.out_of_order, quick, self.lost_bytes == 0);
        for psn in range {
            if self.get(psn).is_some_and(|sent| sent.state == State::InFlight) {
                self.sleek.went_through(psn);
                self.lose(psn);
            }
        }
    }

    /// A packet was cut.
    pub(super) fn on_nack(&mut self, rules: &Rules, now: Time, nack: &Nack) {
        self.hear(now);
        let Some(&mut sent) = self.get(nack.psn) else { return };
        // A NACK of an earlier copy says nothing of the one that is in flight.
        if sent.state != State::InFlight || nack.again != (sent.copies > 0) {
            return;
        }
        if sent.is_copy(nack.again) && sent.payload == rules.payload {
            self.window.shorten(&rules.constants, now.since(sent.at));
        }
        let in_flight = self.in_flight.max(0) as f64;
        self.window.on_nack(&rules.constants, now, sent.bytes() as f64, in_flight);
        self.lose(nack.psn);
        self.paths.hear(now, nack.path, News::Cut);
    }

    /// The first packet in flight in the order of sending.
    fn oldest(&mut self) -> Option<(Time, u32)> {
        while let Some(&(at, psn)) = self.order.front() {
            if self.get(psn).is_some_and(|sent| sent.state == State::InFlight && sent.at == at) {
                return Some((at, psn));
            }
            self.order.pop_front();
        }
        None
    }

    /// When the oldest packet in flight times out, and its number.
    fn first_due(&mut self, rules: &Rules) -> Option<(Time, u32)> {
        let (at, psn) = self.oldest()?;
        let (due, silence) = (at + rules.rto, rules.silence());
        if due <= self.silent_since + silence {
            return Some((due, psn));
        }
        // Timeouts of 1, 2, 4, ... of it end after 1, 3, 7, ... of it.
        let spans = due.since(self.silent_since).0.div_ceil(silence.0);
        Some((self.silent_since + Nanos(((spans + 1).next_power_of_two() - 1) * silence.0), psn))
    }

    /// Packets that have timed out are lost: adds how many there are. False: the receiver has been silent for too long, and the
    /// connection is to be given up.
    pub(super) fn time_out(&mut self, rules: &Rules, now: Time, count: &mut u64) -> bool {
        let longest = Nanos(((2 << DOUBLINGS) - 1) * rules.silence().0);
        while let Some((due, psn)) = self.first_due(rules)
            && due <= now
        {
            *count += 1;
            if due >= self.silent_since + longest {
                return false;
            }
            self.order.pop_front();
            let sent = self.sent[(psn - self.first) as usize];
            self.lose(psn);
            self.window.on_timeout(&rules.constants, sent.bytes() as f64);
            self.paths.hear(now, sent.path, News::TimedOut);
            if let Some(purse) = &mut self.purse {
                purse.hurry();
            }
        }
        self.asks_at(rules) == Time::NEVER || now < self.silent_since + longest
    }

    /// Number and path of a probe, if it is time for one.
    pub(super) fn probe(&mut self, now: Time) -> Option<(u32, u16)> {
        if let Some(number) = self.sleek.probe(now, self.window.base_rtt()) {
            return Some((number, self.paths.next()));
        }
        self.paths.profile.probe(now).map(|path| (NO_ROUND_TRIP, path))
    }

    /// When [`Sending::time_out`] or [`Sending::probe`] has something to do.
    pub(super) fn deadline(&mut self, rules: &Rules) -> Time {
        let times_out = self.first_due(rules).map_or(Time::NEVER, |(due, _)| due);
        times_out.min(self.sleek.timer()).min(self.paths.profile.timer()).min(self.asks_at(rules))
    }
}
