//! A run by several threads: each keeps some of the nodes, in a simulation of its own of the whole fabric, and gives frames that leave
//! them to whoever keeps the next. What happens at one node touches no other before a frame has crossed a cable, so it is enough
//! that the threads meet at the end of each span no longer than that (`run::threads`), and nothing of a run's outcome tells how many
//! they were.

use super::{FlowState, HostLosses, Kind, Process, Simulation};
use crate::apps::Size;
use crate::net::{Event, FabricPart, Parcel, PortId, SHARED, Topology};
use srd_baselines::units::Ps;
use std::sync::Arc;

/// What a flow without end and a program count as, in bytes, where work is divided.
const WORK_OF_UNKNOWN: u64 = 1 << 20;
/// What a host counts as of which nobody says anything.
const WORK_OF_IDLE: u64 = 1;

/// A frame on its way to a node that another thread keeps.
pub struct Crossing<C> {
    at: Ps,
    port: PortId,
    parcel: Parcel<C>,
}

/// What one thread's part has come to.
pub struct Remains<T> {
    keeper: u16,
    processes: Vec<(usize, Process<T>)>,
    flows: Vec<FlowState>,
    fabric: FabricPart,
    host_losses: HostLosses,
    events: u64,
    mistake: Option<String>,
}

/// How far all threads are.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The first span in which anything will happen.
    pub next: Option<u64>,
    /// Flows and programs that have not come to their end.
    pub unfinished: u32,
    /// When the last of the others did.
    pub ended: Ps,
}

impl<T: Kind> Simulation<'_, T> {
    /// Whether several threads may run it: nothing but frames goes from node to node.
    pub fn comes_apart(&self) -> bool {
        self.events.is_by_node() && self.fabric.comes_apart()
    }

    /// How many spans a time is, at the end of each of which threads meet.
    pub fn spans_of(&self, time: Ps) -> u64 {
        self.spans.number(time)
    }

    /// Which of so many threads keeps each node: hosts in a row, so that each has about as much to do, and switches with most of
    /// their neighbours, or, between several, by their ports ([`SHARED`]).
    pub fn keepers(&self, topology: &Topology, threads: u16) -> Arc<[u16]> {
        let mut work = vec![WORK_OF_IDLE; topology.hosts as usize];
        for flow in &self.traffic.flows {
            let bytes = match flow.size {
                Size::Bytes(bytes) => bytes,
                Size::Until(_) => WORK_OF_UNKNOWN,
            };
            [flow.src, flow.dst].iter().for_each(|end| work[end.host as usize] += bytes);
        }
        for program in &self.traffic.programs {
            work[program.at.host as usize] += WORK_OF_UNKNOWN;
        }
        let whole: u64 = work.iter().sum();
        let nodes = topology.hosts as usize + topology.switches.len();
        let mut done = 0;
        let mut keepers: Vec<Option<u16>> = Vec::with_capacity(nodes);
        for of_host in work {
            keepers.push(Some(
                (u128::from(done + of_host / 2) * u128::from(threads) / u128::from(whole)) as u16,
            ));
            done += of_host;
        }
        keepers.resize(nodes, None);
        let mut neighbours = vec![Vec::new(); nodes];
        for cable in &topology.cables {
            neighbours[cable.a.0 as usize].push(cable.b.0 as usize);
            neighbours[cable.b.0 as usize].push(cable.a.0 as usize);
        }
        // From the hosts upwards, a tier at a time.
        while keepers.contains(&None) {
            let chosen: Vec<Option<u16>> =
                (0..nodes).map(|node| self.keeper(threads, node, &neighbours[node], &keepers)).collect();
            let nobody = chosen.iter().all(Option::is_none);
            for (keeper, chosen) in keepers.iter_mut().zip(chosen) {
                *keeper = keeper.or(chosen).or(nobody.then_some(0)); // where no cable leads
            }
        }
        keepers.into_iter().flatten().collect()
    }

    /// Who keeps a node that nobody keeps yet, if any of its neighbours is kept. Those that lie between several are shared among them,
    /// if they can be.
    fn keeper(
        &self,
        threads: u16,
        node: usize,
        neighbours: &[usize],
        keepers: &[Option<u16>],
    ) -> Option<u16> {
        if keepers[node].is_some() {
            return None;
        }
        let mut votes = vec![0u32; threads as usize];
        for keeper in neighbours.iter().filter_map(|&neighbour| keepers[neighbour]) {
            votes.get_mut(keeper as usize).into_iter().for_each(|votes| *votes += 1);
        }
        let most = votes.iter().copied().max().filter(|&most| most > 0)?;
        let all = votes.iter().sum::<u32>() as usize == neighbours.len();
        if all && most as usize != neighbours.len() && self.fabric.ports_are_apart() {
            return Some(SHARED);
        }
        let best: Vec<u16> = (0..threads).filter(|&it| votes[it as usize] == most).collect();
        Some(best[node % best.len()])
    }

    /// From now on only what happens at the nodes of `own` happens here.
    pub fn keep(&mut self, keepers: &Arc<[u16]>, own: u16) {
        let is_own = |host: u32| keepers[host as usize] == own;
        let flows = self.traffic.flows.iter().filter(|flow| matches!(flow.size, Size::Bytes(_)));
        let programs = self.traffic.programs.iter().filter(|program| !program.forever);
        self.unfinished = flows.filter(|flow| is_own(flow.src.host)).count() as u32
            + programs.filter(|program| is_own(program.at.host)).count() as u32;
        self.fabric.keep(keepers, own);
        self.events.keep(Arc::clone(keepers), own);
    }

    /// How far this part is.
    pub fn progress(&self) -> Progress {
        Progress { next: self.events.next_span(), unfinished: self.unfinished, ended: self.ended }
    }

    /// Gives away frames on their way to nodes that others keep, and tells who. The span in which the first of them arrives.
    pub fn take_crossings(&mut self, mut give: impl FnMut(u16, Crossing<T::Content>)) -> Option<u64> {
        let mut first = Ps::NEVER;
        for (keeper, at, event) in self.events.take_abroad() {
            let Event::Arrive { port, frame } = event else {
                unreachable!("frames alone go from node to node")
            };
            first = first.min(at);
            give(keeper, Crossing { at, port, parcel: self.frames.take(frame) });
        }
        (first < Ps::NEVER).then(|| self.spans.number(first))
    }

    /// Takes in what others have sent.
    pub fn take_in(&mut self, crossings: impl IntoIterator<Item = Crossing<T::Content>>) {
        for Crossing { at, port, parcel } in crossings {
            let frame = self.frames.put_parcel(parcel);
            self.events.push(at, Event::Arrive { port, frame });
        }
    }

    /// Where a run ends of which all parts together are so far: behind its last flow's span, or where the scenario says so. And whether
    /// it is over then.
    pub fn last_span(&self, progress: &Progress) -> (u64, bool) {
        let end = self.settings.end;
        let over = self.over(progress.unfinished, progress.ended);
        (self.spans.number(over.min(end)), over <= end)
    }

    /// All that happens here until the end of a span.
    pub fn run_span(&mut self, number: u64) {
        self.run_on(self.spans.end_of(number));
    }

    /// The run has ended, over or not, as all parts together were.
    pub fn conclude(&mut self, progress: &Progress, over: bool) {
        (self.unfinished, self.ended) = (progress.unfinished, progress.ended);
        self.now = if over { self.ended.max(self.endless_until) } else { self.settings.end };
    }

    /// What is left of a part.
    pub fn remains(self, keepers: &Arc<[u16]>, keeper: u16) -> Remains<T> {
        let processes = self.processes.into_iter().enumerate();
        let own = processes.filter(|(_, process)| keepers[process.host as usize] == keeper);
        Remains {
            keeper,
            processes: own.collect(),
            flows: self.flows,
            fabric: self.fabric.part(),
            host_losses: self.host_losses,
            events: self.events.taken,
            mistake: self.mistake,
        }
    }

    /// Takes over what another part has come to.
    pub fn join(&mut self, part: Remains<T>, keepers: &Arc<[u16]>) {
        for (number, process) in part.processes {
            self.processes[number] = process;
        }
        let keeper_of = |process: u32| keepers[self.processes[process as usize].host as usize];
        for (here, there) in self.flows.iter_mut().zip(&part.flows) {
            if keeper_of(here.from) == part.keeper {
                (here.started, here.sent, here.failed) = (there.started, there.sent, there.failed);
            }
            if keeper_of(here.to) == part.keeper {
                here.received = there.received;
            }
        }
        self.fabric.join(part.fabric);
        self.host_losses.ring += part.host_losses.ring;
        self.host_losses.corrupt += part.host_losses.corrupt;
        self.events.taken += part.events;
        self.mistake = self.mistake.take().or(part.mistake);
    }
}
