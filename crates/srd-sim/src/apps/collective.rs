//! Collective operations of MPI as its libraries make them of messages. Which algorithm libraries choose for which size, the
//! programs say.

use crate::apps::writer::Writer;

/// Tags, so that what follows another operation is not taken for a part of it.
const BARRIER: u64 = 1 << 32;
const ALL_REDUCE: u64 = 2 << 32;
const ALL_TO_ALL: u64 = 3 << 32;
const ALL_GATHER: u64 = 4 << 32;
const SCAN: u64 = 7 << 32;

/// Bytes of all from which on MPICH's all-gather goes round (MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE).
const LONG_GATHER: u64 = 512 << 10;

/// Ranks that do something together, and the place of one among them.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    /// Who, by place.
    pub ranks: &'a [u32],
    /// The place of whom is written for.
    pub own: u32,
}

impl Group<'_> {
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    pub fn at(&self, place: u32) -> u32 {
        self.ranks[place as usize]
    }

    /// Who is so many places further on, in the circle.
    pub fn after(&self, places: u32) -> u32 {
        self.at(((self.own as u64 + places as u64) % self.size() as u64) as u32)
    }

    /// Who is so many places back, in the circle.
    pub fn before(&self, places: u32) -> u32 {
        self.after(self.size() - places % self.size())
    }
}

impl Writer {
    /// Nobody leaves before all have come: dissemination, in ceil(log2 n) rounds (Hensgen, Finkel and Manber, 1988; MPICH's
    /// choice).
    pub fn barrier(&mut self, group: Group<'_>) {
        let mut step = 1;
        while step < group.size() {
            self.exchange(group.after(step), group.before(step), BARRIER, 0);
            step *= 2;
        }
    }

    /// All have the sum of what each had: recursive doubling, as MPICH and Open MPI choose for a few bytes.
    pub fn all_reduce(&mut self, group: Group<'_>, bytes: u64) {
        self.among_power_of_two(group, bytes, |writer, peers| {
            peers.iter().for_each(|&peer| writer.exchange(peer, peer, ALL_REDUCE, bytes));
        });
    }

    /// The same for more bytes: halves of what is left are summed up, and then put together again (Rabenseifner's algorithm; MPICH's
    /// choice).
    pub fn all_reduce_by_halving(&mut self, group: Group<'_>, bytes: u64) {
        self.among_power_of_two(group, bytes, |writer, peers| {
            let parts: Vec<(u32, u64)> =
                peers.iter().zip(1..).map(|(&peer, round)| (peer, bytes >> round)).collect();
            for (peer, part) in parts.iter().chain(parts.iter().rev()) {
                writer.exchange(*peer, *peer, ALL_REDUCE, *part);
            }
        });
    }

    /// What `core` does with each rank whose place differs in a bit. Those beyond the greatest power of two give theirs to a neighbour
    /// first and get the sum in the end (Thakur, Rabenseifner and Gropp, 2005, section 4.5).
    fn among_power_of_two(&mut self, group: Group<'_>, bytes: u64, core: impl FnOnce(&mut Writer, &[u32])) {
        let size = group.size();
        if size < 2 {
            return;
        }
        let most = 1 << size.ilog2();
        let beyond = size - most;
        let own = group.own;
        let odd_of_pairs = own < 2 * beyond && own % 2 == 1;
        if own < 2 * beyond && !odd_of_pairs {
            self.send(group.at(own + 1), ALL_REDUCE, bytes);
            self.wait();
            self.recv(group.at(own + 1), ALL_REDUCE, bytes);
            self.wait();
            return;
        }
        if odd_of_pairs {
            self.recv(group.at(own - 1), ALL_REDUCE, bytes);
            self.wait();
        }
        let place = if own < 2 * beyond { own / 2 } else { own - beyond };
        let at = |place: u32| group.at(if place < beyond { 2 * place + 1 } else { place + beyond });
        let peers: Vec<u32> = (0..size.ilog2()).map(|round| at(place ^ 1 << round)).collect();
        core(self, &peers);
        if odd_of_pairs {
            self.send(group.at(own - 1), ALL_REDUCE, bytes);
            self.wait();
        }
    }

    /// The same for many bytes: parts of the vector go round, first to be summed up, then to be known to all (Patarasuk and Yuan,
    /// 2009).
    pub fn all_reduce_in_ring(&mut self, group: Group<'_>, bytes: u64) {
        let size = group.size() as u64;
        // The first parts are a byte longer where there is a rest.
        let part = |number: u64| bytes / size + (number % size < bytes % size) as u64;
        let own = group.own as u64;
        for round in 0..2 * size.saturating_sub(1) {
            let sent = own + 2 * size - round;
            self.recv(group.before(1), ALL_REDUCE, part(sent + size - 1));
            self.send(group.after(1), ALL_REDUCE, part(sent));
            self.wait();
        }
    }

    /// All have what each had: in ceil(log2 n) rounds (Bruck and others, 1997), or, of much, in a ring.
    pub fn all_gather(&mut self, group: Group<'_>, bytes: u64) {
        let size = group.size();
        if u64::from(size) * bytes >= LONG_GATHER {
            return (1..size).for_each(|_| self.exchange(group.after(1), group.before(1), ALL_GATHER, bytes));
        }
        let mut step = 1;
        while step < size {
            let blocks = u64::from(step.min(size - step));
            self.exchange(group.before(step), group.after(step), ALL_GATHER, blocks * bytes);
            step *= 2;
        }
    }

    /// Each has the sum of those before it and its own: recursive doubling, as MPICH does.
    pub fn scan(&mut self, group: Group<'_>, bytes: u64) {
        let mut step = 1;
        while step < group.size() {
            let peer = group.own ^ step;
            if peer < group.size() {
                self.exchange(group.at(peer), group.at(peer), SCAN, bytes);
            }
            step *= 2;
        }
    }

    /// Everyone has something for everyone: in round i with those i places away, or whose place differs in the bits of i if
    /// their number is a power of two.
    pub fn all_to_all_by_pairs(&mut self, group: Group<'_>, bytes: u64) {
        let size = group.size();
        for round in 1..size {
            let (to, from) = match size.is_power_of_two() {
                true => (group.at(group.own ^ round), group.at(group.own ^ round)),
                false => (group.after(round), group.before(round)),
            };
            self.exchange(to, from, ALL_TO_ALL, bytes);
        }
    }

    /// The same in ceil(log2 n) rounds, in which data goes through others' hands (Bruck and others, 1997).
    pub fn all_to_all_by_bruck(&mut self, group: Group<'_>, bytes: u64) {
        let size = group.size();
        let mut step = 1;
        while step < size {
            let blocks = (0..size).filter(|block| block & step != 0).count() as u64;
            self.exchange(group.after(step), group.before(step), ALL_TO_ALL, blocks * bytes);
            step *= 2;
        }
    }

    /// The same, `at_once` messages of each direction begun before their end is waited for; everyone begins with the next.
    pub fn all_to_all_at_once(&mut self, group: Group<'_>, bytes: u64, at_once: u32) {
        let rounds: Vec<u32> = (1..group.size()).collect();
        for rounds in rounds.chunks(at_once.max(1) as usize) {
            rounds.iter().for_each(|&round| self.recv(group.before(round), ALL_TO_ALL, bytes));
            rounds.iter().for_each(|&round| self.send(group.after(round), ALL_TO_ALL, bytes));
            self.wait();
        }
    }
}
