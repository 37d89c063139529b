//! Hosts of one fabric that run different transports: SRD, which this crate does not know, and the baselines.

/// Makes modules of a list of baselines, and three types: what a scenario chooses (`Choice`), a process that runs what was chosen
/// (`Mixed`), and what its frames carry (`MixedContent`).
macro_rules! baselines {
    ($($module:ident::$Baseline:ident),* $(,)?) => {
        $(#[doc(inline)] pub use $module::$Baseline; pub mod $module;)*

        use crate::frame::{Content, DataPacket, FrameHead};
        use crate::input::InputError;
        use crate::section::Section;
        use crate::transport::{Counts, Order, Outgoing, Report, Role, Transport, WireCost};
        use crate::wire::{Departure, Headers, Streams};
        use srd_wire::Time;

        /// A transport and what its section says. `S`: what SRD's says.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Choice<S> {
            /// Scalable Reliable Datagram.
            Srd(S),
            $(#[doc = concat!("See [`", stringify!($module), "`].")]
            $Baseline(<$Baseline as Baseline>::Config),)*
        }

        /// Baselines by name, with the keys of their sections.
        pub const BASELINES: &[(&str, &[&str])] = &[$((<$Baseline as Baseline>::NAME, <$Baseline as Baseline>::KEYS)),*];

        impl<S> Choice<S> {
            /// Reads the section of the baseline called `kind`.
            pub fn read(
                kind: &str,
                section: &Section<'_>,
                around: &Surroundings,
            ) -> Result<Choice<S>, InputError> {
                match kind {
                    $(<$Baseline as Baseline>::NAME => Ok(Choice::$Baseline(<$Baseline as Baseline>::read(section, around)?)),)*
                    _ => unreachable!("the section names one of the baselines"),
                }
            }

            /// The name of the transport.
            pub fn name(&self) -> &'static str {
                match self {
                    Choice::Srd(_) => "srd",
                    $(Choice::$Baseline(_) => <$Baseline as Baseline>::NAME,)*
                }
            }

            /// Whether it makes anything of packets that switches have cut.
            pub fn takes_cut_packets(&self) -> bool {
                match self {
                    Choice::Srd(_) => true,
                    $(Choice::$Baseline(config) => <$Baseline as Baseline>::takes_cut_packets(config),)*
                }
            }

            /// Whether captures can show its packets: SRD's have their wire format.
            pub fn has_headers(&self) -> bool {
                match self {
                    Choice::Srd(_) => true,
                    $(Choice::$Baseline(_) => <$Baseline as Baseline>::HAS_HEADERS,)*
                }
            }

            /// Whether its processes count who sends to them.
            pub fn counts_senders(&self) -> bool {
                match self {
                    Choice::Srd(_) => true,
                    $(Choice::$Baseline(_) => <$Baseline as Baseline>::COUNTS_SENDERS,)*
                }
            }

            /// What the chosen baseline's flows cost on the wire; `None` for SRD.
            pub fn cost(&self, mtu: u16, overhead: u32) -> Option<WireCost> {
                match self {
                    Choice::Srd(_) => None,
                    $(Choice::$Baseline(config) => Some(<$Baseline as Baseline>::cost(config, mtu, overhead)),)*
                }
            }
        }

        /// A process that runs one transport or another. `S`: SRD.
        #[allow(clippy::large_enum_variant)]
        pub enum Mixed<S> {
            /// Scalable Reliable Datagram.
            Srd(S),
            $(#[doc = concat!("See [`", stringify!($module), "`].")]
            $Baseline($Baseline),)*
        }

        impl<S: Transport> Mixed<S> {
            /// A process of the baseline that was chosen; `None` for SRD.
            pub fn open<K>(role: &Role, choice: &Choice<K>) -> Option<Mixed<S>> {
                match choice {
                    Choice::Srd(_) => None,
                    $(Choice::$Baseline(config) => Some(Mixed::$Baseline(<$Baseline as Baseline>::open(role, config))),)*
                }
            }
        }

        /// What a frame of a mixed fabric carries.
        #[derive(Clone, Debug)]
        pub enum MixedContent<C> {
            /// Of SRD.
            Srd(C),
            $(#[doc = concat!("Of [`", stringify!($module), "`].")]
            $Baseline(<$Baseline as Transport>::Content),)*
        }

        impl<C: Content> Content for MixedContent<C> {
            fn trim(&mut self) -> Option<u32> {
                match self {
                    MixedContent::Srd(content) => content.trim(),
                    $(MixedContent::$Baseline(content) => content.trim(),)*
                }
            }

            fn connection(&self) -> Option<u32> {
                match self {
                    MixedContent::Srd(content) => content.connection(),
                    $(MixedContent::$Baseline(content) => content.connection(),)*
                }
            }

            fn data(&self) -> Option<DataPacket> {
                match self {
                    MixedContent::Srd(content) => content.data(),
                    $(MixedContent::$Baseline(content) => content.data(),)*
                }
            }

            fn acknowledges(&self) -> Option<u32> {
                match self {
                    MixedContent::Srd(content) => content.acknowledges(),
                    $(MixedContent::$Baseline(content) => content.acknowledges(),)*
                }
            }

            fn covers(&self, psn: u32) -> bool {
                match self {
                    MixedContent::Srd(content) => content.covers(psn),
                    $(MixedContent::$Baseline(content) => content.covers(psn),)*
                }
            }

            fn headers(&self, leaves: &Departure, streams: &mut Streams) -> Option<Headers> {
                match self {
                    MixedContent::Srd(content) => content.headers(leaves, streams),
                    $(MixedContent::$Baseline(content) => content.headers(leaves, streams),)*
                }
            }
        }

        /// How processes of a mixed fabric name each other.
        #[derive(Clone, Debug)]
        pub enum MixedAddress<A> {
            /// Of SRD.
            Srd(A),
            $(#[doc = concat!("Of [`", stringify!($module), "`].")]
            $Baseline(<$Baseline as Transport>::Address),)*
        }

        /// Does the same with whatever it is.
        macro_rules! each {
            ($mixed:expr, $it:ident => $what:expr) => {
                match $mixed {
                    Mixed::Srd($it) => $what,
                    $(Mixed::$Baseline($it) => $what,)*
                }
            };
        }

        impl<S: Transport> Transport for Mixed<S> {
            type Content = MixedContent<S::Content>;
            type Address = MixedAddress<S::Address>;

            fn address(&self) -> Self::Address {
                match self {
                    Mixed::Srd(srd) => MixedAddress::Srd(srd.address()),
                    $(Mixed::$Baseline(baseline) => MixedAddress::$Baseline(baseline.address()),)*
                }
            }

            fn expect(&mut self, from: &Self::Address, inbox: u32, bytes: u64) {
                match (self, from) {
                    (Mixed::Srd(srd), MixedAddress::Srd(from)) => srd.expect(from, inbox, bytes),
                    $((Mixed::$Baseline(baseline), MixedAddress::$Baseline(from)) => baseline.expect(from, inbox, bytes),)*
                    _ => unreachable!("a flow's ends speak the same"),
                }
            }

            fn start(&mut self, now: Time, order: Order, to: &Self::Address) {
                match (self, to) {
                    (Mixed::Srd(srd), MixedAddress::Srd(to)) => srd.start(now, order, to),
                    $((Mixed::$Baseline(baseline), MixedAddress::$Baseline(to)) => baseline.start(now, order, to),)*
                    _ => unreachable!("a flow's ends speak the same"),
                }
            }

            fn stop(&mut self, now: Time, flow: u32) {
                each!(self, it => it.stop(now, flow))
            }

            fn program_timeout(&self) -> Time {
                each!(self, it => it.program_timeout())
            }

            fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Self::Content) {
                match (self, content) {
                    (Mixed::Srd(srd), MixedContent::Srd(content)) => srd.receive(now, arrived, head, content),
                    $((Mixed::$Baseline(baseline), MixedContent::$Baseline(content)) => {
                        baseline.receive(now, arrived, head, content)
                    })*
                    _ => unreachable!("a process gets what its peers send"),
                }
            }

            fn poll_transmit<R>(
                &mut self,
                now: Time,
                mut sink: impl FnMut(Outgoing<Self::Content>) -> R,
            ) -> Option<R> {
                match self {
                    Mixed::Srd(srd) => srd.poll_transmit(now, |it| sink(it.map(MixedContent::Srd))),
                    $(Mixed::$Baseline(baseline) => {
                        baseline.poll_transmit(now, |it| sink(it.map(MixedContent::$Baseline)))
                    })*
                }
            }

            fn set_paused(&mut self, classes: u8) {
                each!(self, it => it.set_paused(classes))
            }

            fn senders(&self, now: Time) -> u16 {
                each!(self, it => it.senders(now))
            }

            fn set_neighbours(&mut self, senders: u16) {
                each!(self, it => it.set_neighbours(senders))
            }

            fn handle_timeout(&mut self, now: Time) {
                each!(self, it => it.handle_timeout(now))
            }

            fn next_timeout(&self) -> Time {
                each!(self, it => it.next_timeout())
            }

            fn poll_report(&mut self) -> Option<Report> {
                each!(self, it => it.poll_report())
            }

            fn delivered(&mut self, inbox: u32) -> u64 {
                each!(self, it => it.delivered(inbox))
            }

            fn counts(&self) -> Counts {
                each!(self, it => it.counts())
            }
        }
    };
}

pub(crate) use baselines;
