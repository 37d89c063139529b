//! Hosts of one fabric that run different transports: SRD, which this crate does not know, and the rivals.

/// Makes modules of a list of rivals, and three types: what a scenario chooses (`Choice`), a process that runs what was chosen
/// (`Mixed`), and what its frames carry (`MixedContent`).
macro_rules! rivals {
    ($($module:ident::$Rival:ident),* $(,)?) => {
        $(#[doc(inline)] pub use $module::$Rival; pub mod $module;)*

        use crate::frame::{Content, FrameHead};
        use crate::input::InputError;
        use crate::section::Section;
        use crate::transport::{Counts, Near, Order, Outgoing, Report, Role, Transport, WireCost};
        use srd_wire::Time;

        /// A transport and what its section says. `S`: what SRD's says.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Choice<S> {
            /// Scalable Reliable Datagram.
            Srd(S),
            $(#[doc = concat!("See [`", stringify!($module), "`].")]
            $Rival(<$Rival as Rival>::Config),)*
        }

        /// Rivals by name, with the keys of their sections.
        pub const RIVALS: &[(&str, &[&str])] = &[$((<$Rival as Rival>::NAME, <$Rival as Rival>::KEYS)),*];

        impl<S> Choice<S> {
            /// Reads the section of the rival called `kind`.
            pub fn read(
                kind: &str,
                section: &Section<'_>,
                around: &Surroundings,
            ) -> Result<Choice<S>, InputError> {
                match kind {
                    $(<$Rival as Rival>::NAME => Ok(Choice::$Rival(<$Rival as Rival>::read(section, around)?)),)*
                    _ => unreachable!("the section names one of the rivals"),
                }
            }

            /// The name of the transport.
            pub fn name(&self) -> &'static str {
                match self {
                    Choice::Srd(_) => "srd",
                    $(Choice::$Rival(_) => <$Rival as Rival>::NAME,)*
                }
            }

            /// What the chosen rival's flows cost on the wire; `None` for SRD.
            pub fn cost(&self, mtu: u16, overhead: u32) -> Option<WireCost> {
                match self {
                    Choice::Srd(_) => None,
                    $(Choice::$Rival(config) => Some(<$Rival as Rival>::cost(config, mtu, overhead)),)*
                }
            }
        }

        /// A process that runs one transport or another. `S`: SRD.
        #[allow(clippy::large_enum_variant)]
        pub enum Mixed<S> {
            /// Scalable Reliable Datagram.
            Srd(S),
            $(#[doc = concat!("See [`", stringify!($module), "`].")]
            $Rival($Rival),)*
        }

        impl<S: Transport> Mixed<S> {
            /// A process of the rival that was chosen; `None` for SRD.
            pub fn open<K>(role: &Role, choice: &Choice<K>) -> Option<Mixed<S>> {
                match choice {
                    Choice::Srd(_) => None,
                    $(Choice::$Rival(config) => Some(Mixed::$Rival(<$Rival as Rival>::open(role, config))),)*
                }
            }
        }

        /// What a frame of a mixed fabric carries.
        #[derive(Clone, Debug)]
        pub enum MixedContent<C> {
            /// Of SRD.
            Srd(C),
            $(#[doc = concat!("Of [`", stringify!($module), "`].")]
            $Rival(<$Rival as Transport>::Content),)*
        }

        impl<C: Content> Content for MixedContent<C> {
            fn trim(&mut self) -> Option<u32> {
                match self {
                    MixedContent::Srd(content) => content.trim(),
                    $(MixedContent::$Rival(content) => content.trim(),)*
                }
            }

            fn connection(&self) -> Option<u32> {
                match self {
                    MixedContent::Srd(content) => content.connection(),
                    $(MixedContent::$Rival(content) => content.connection(),)*
                }
            }
        }

        /// How processes of a mixed fabric name each other.
        #[derive(Clone, Debug)]
        pub enum MixedAddress<A> {
            /// Of SRD.
            Srd(A),
            $(#[doc = concat!("Of [`", stringify!($module), "`].")]
            $Rival(<$Rival as Transport>::Address),)*
        }

        /// Does the same with whatever it is.
        macro_rules! each {
            ($mixed:expr, $it:ident => $what:expr) => {
                match $mixed {
                    Mixed::Srd($it) => $what,
                    $(Mixed::$Rival($it) => $what,)*
                }
            };
        }

        impl<S: Transport> Transport for Mixed<S> {
            type Content = MixedContent<S::Content>;
            type Address = MixedAddress<S::Address>;

            fn address(&self) -> Self::Address {
                match self {
                    Mixed::Srd(srd) => MixedAddress::Srd(srd.address()),
                    $(Mixed::$Rival(rival) => MixedAddress::$Rival(rival.address()),)*
                }
            }

            fn expect(&mut self, from: &Self::Address, inbox: u32, bytes: u64) {
                match (self, from) {
                    (Mixed::Srd(srd), MixedAddress::Srd(from)) => srd.expect(from, inbox, bytes),
                    $((Mixed::$Rival(rival), MixedAddress::$Rival(from)) => rival.expect(from, inbox, bytes),)*
                    _ => unreachable!("a flow's ends speak the same"),
                }
            }

            fn start(&mut self, now: Time, order: Order, to: &Self::Address) {
                match (self, to) {
                    (Mixed::Srd(srd), MixedAddress::Srd(to)) => srd.start(now, order, to),
                    $((Mixed::$Rival(rival), MixedAddress::$Rival(to)) => rival.start(now, order, to),)*
                    _ => unreachable!("a flow's ends speak the same"),
                }
            }

            fn stop(&mut self, now: Time, flow: u32) {
                each!(self, it => it.stop(now, flow))
            }

            fn poll_near(&mut self) -> Option<Near> {
                each!(self, it => it.poll_near())
            }

            fn receive_near(&mut self, near: Near) {
                each!(self, it => it.receive_near(near))
            }

            fn program_timeout(&self) -> Time {
                each!(self, it => it.program_timeout())
            }

            fn receive(&mut self, now: Time, arrived: Time, head: &FrameHead, content: &Self::Content) {
                match (self, content) {
                    (Mixed::Srd(srd), MixedContent::Srd(content)) => srd.receive(now, arrived, head, content),
                    $((Mixed::$Rival(rival), MixedContent::$Rival(content)) => {
                        rival.receive(now, arrived, head, content)
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
                    $(Mixed::$Rival(rival) => {
                        rival.poll_transmit(now, |it| sink(it.map(MixedContent::$Rival)))
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

pub(crate) use rivals;
