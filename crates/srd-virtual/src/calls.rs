//! Calls of MPI, as a process notes them: a list for each rank in the shared memory, which stays when the process is killed. The same form holds
//! what a rank is to compute before each call, where that is not measured but repeated.

/// Most calls of a rank that are noted.
pub const MOST: usize = 4 << 20;

/// A call that has returned. Times in nanoseconds of the simulation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Index in [`FORMS`].
    pub kind: u16,
    /// The thread, by its slot.
    pub thread: u16,
    /// The other rank, or the root, in `MPI_COMM_WORLD`, plus one; 0 if it names none, [`ANYONE`] if it receives from any.
    pub peer: u32,
    /// The same of whom it receives from, where that may be another (`MPI_Sendrecv`).
    pub source: u32,
    /// Which ranks are in its communicator: 0 for all, otherwise the same number for the same ranks; [`OTHER`] if it is none of ranks of one job.
    pub comm: u32,
    /// Where it has begun something: the place of the call among this process's in which that was seen to be over, plus one.
    pub done_in: u64,
    /// Bytes of the buffer that it names.
    pub bytes: u64,
    /// When it began, and when it returned.
    pub began: u64,
    /// See above.
    pub ended: u64,
    /// What the thread computed between its last call, other than polls, and this one; and in this one.
    pub before: u64,
    /// See above.
    pub within: u64,
}

/// Names of the columns of a table of calls, in the order of a row's cells (docs/OUTPUTS.md).
pub const COLUMNS: [&str; 13] = [
    "job",
    "rank",
    "thread",
    "call",
    "peer",
    "source",
    "bytes",
    "comm",
    "begin_us",
    "end_us",
    "before_us",
    "within_us",
    "done_in",
];

/// See [`Call::peer`].
pub const ANYONE: u32 = u32::MAX;
/// See [`Call::comm`].
pub const OTHER: u32 = u32::MAX;

impl Call {
    /// The other rank, or the root, if it names one.
    pub fn named(&self) -> Option<u32> {
        self.peer.checked_sub(1).filter(|_| self.peer != ANYONE)
    }
}

/// What is to be known of a function of MPI.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// As C has it.
    pub name: &'static str,
    /// Which argument is a count, and of what type another says so.
    pub data: Option<(u8, u8)>,
    /// The same of what it receives, where the sender says nothing of what it sends (in place, or it is not the root).
    pub received: Option<(u8, u8)>,
    /// Which is the other rank, or the root.
    pub peer: Option<u8>,
    /// Which is the rank that it receives from, beside that.
    pub source: Option<u8>,
    /// Which are counts for each rank of the communicator, and of what type another says so.
    pub counts: Option<(u8, u8)>,
    /// Which is the communicator.
    pub comm: Option<u8>,
    /// Which is where it puts a request of what it begins.
    pub begins: Option<u8>,
    /// Which are the requests that it may see the end of, and how many there are if that is not one.
    pub ends: Option<(Option<u8>, u8)>,
    /// It may be over without anything having happened.
    pub glances: bool,
    /// The same, and how often a program calls it depends on when something does.
    pub polls: bool,
}

const fn form(name: &'static str) -> Form {
    Form {
        name,
        data: None,
        received: None,
        peer: None,
        source: None,
        counts: None,
        comm: None,
        begins: None,
        ends: None,
        glances: false,
        polls: false,
    }
}

impl Form {
    const fn on(self, comm: u8) -> Form {
        Form { comm: Some(comm), ..self }
    }

    const fn begins(self, request: u8) -> Form {
        Form { begins: Some(request), ..self }
    }

    const fn from(self, source: u8) -> Form {
        Form { source: Some(source), ..self }
    }

    const fn counts(self, counts: u8, of: u8) -> Form {
        Form { counts: Some((counts, of)), ..self }
    }

    const fn ends_one(self) -> Form {
        Form { ends: Some((None, 0)), ..self }
    }

    const fn ends_some(self) -> Form {
        Form { ends: Some((Some(0), 1)), ..self }
    }
}

const fn glance(name: &'static str) -> Form {
    Form { glances: true, ..form(name) }
}

const fn poll(name: &'static str) -> Form {
    Form { polls: true, ..glance(name) }
}

/// A function of a buffer of so many elements of a type.
const fn data(name: &'static str, count: u8, of: u8) -> Form {
    Form { data: Some((count, of)), ..form(name) }
}

/// The same, to or from a rank.
const fn peer(name: &'static str, count: u8, of: u8, peer: u8) -> Form {
    Form { peer: Some(peer), ..data(name, count, of) }
}

/// A collective function of a buffer to send and one to receive, in the usual order, and perhaps a root.
const fn both(name: &'static str, root: Option<u8>) -> Form {
    Form { received: Some((4, 5)), peer: root, ..data(name, 1, 2) }
}

/// The functions that are noted: those that may wait for others. All are of MPI 3, which all MPIs have: a program that finds the name of one believes
/// that its MPI has it.
pub const FORMS: &[Form] = &[
    form("MPI_Finalize"),
    peer("MPI_Send", 1, 2, 3).on(5),
    peer("MPI_Bsend", 1, 2, 3).on(5),
    peer("MPI_Ssend", 1, 2, 3).on(5),
    peer("MPI_Rsend", 1, 2, 3).on(5),
    peer("MPI_Isend", 1, 2, 3).on(5).begins(6),
    peer("MPI_Ibsend", 1, 2, 3).on(5).begins(6),
    peer("MPI_Issend", 1, 2, 3).on(5).begins(6),
    peer("MPI_Irsend", 1, 2, 3).on(5).begins(6),
    peer("MPI_Recv", 1, 2, 3).on(5),
    peer("MPI_Irecv", 1, 2, 3).on(5).begins(6),
    peer("MPI_Sendrecv", 1, 2, 3).on(10).from(8),
    peer("MPI_Sendrecv_replace", 1, 2, 3).on(7).from(5),
    data("MPI_Mrecv", 1, 2),
    data("MPI_Imrecv", 1, 2).begins(4),
    form("MPI_Probe"),
    form("MPI_Mprobe"),
    poll("MPI_Iprobe"),
    poll("MPI_Improbe"),
    form("MPI_Start"),
    form("MPI_Startall"),
    form("MPI_Wait").ends_one(),
    form("MPI_Waitall").ends_some(),
    form("MPI_Waitany").ends_some(),
    form("MPI_Waitsome").ends_some(),
    poll("MPI_Test").ends_one(),
    poll("MPI_Testall").ends_some(),
    poll("MPI_Testany").ends_some(),
    poll("MPI_Testsome").ends_some(),
    form("MPI_Barrier").on(0),
    peer("MPI_Bcast", 1, 2, 3).on(4),
    both("MPI_Gather", Some(6)).on(7),
    peer("MPI_Gatherv", 1, 2, 7).on(8),
    both("MPI_Scatter", Some(6)).on(7),
    peer("MPI_Scatterv", 5, 6, 7).on(8),
    both("MPI_Allgather", None).on(6),
    data("MPI_Allgatherv", 1, 2).on(7),
    both("MPI_Alltoall", None).on(6),
    form("MPI_Alltoallv").on(8).counts(1, 3),
    form("MPI_Alltoallw"),
    peer("MPI_Reduce", 2, 3, 5).on(6),
    data("MPI_Allreduce", 2, 3).on(5),
    data("MPI_Reduce_scatter_block", 2, 3).on(5),
    form("MPI_Reduce_scatter").on(5).counts(2, 3),
    data("MPI_Scan", 2, 3).on(5),
    data("MPI_Exscan", 2, 3).on(5),
    data("MPI_Neighbor_allgather", 1, 2),
    data("MPI_Neighbor_alltoall", 1, 2),
    form("MPI_Neighbor_alltoallv"),
    form("MPI_Ibarrier").on(0).begins(1),
    peer("MPI_Ibcast", 1, 2, 3).on(4).begins(5),
    both("MPI_Igather", Some(6)).on(7).begins(8),
    both("MPI_Iscatter", Some(6)).on(7).begins(8),
    both("MPI_Iallgather", None).on(6).begins(7),
    data("MPI_Iallgatherv", 1, 2).on(7).begins(8),
    both("MPI_Ialltoall", None).on(6).begins(7),
    form("MPI_Ialltoallv").on(8).begins(9).counts(1, 3),
    peer("MPI_Ireduce", 2, 3, 5).on(6).begins(7),
    data("MPI_Iallreduce", 2, 3).on(5).begins(6),
    data("MPI_Ireduce_scatter_block", 2, 3).on(5).begins(6),
    data("MPI_Iscan", 2, 3).on(5).begins(6),
    peer("MPI_Put", 1, 2, 3),
    peer("MPI_Get", 1, 2, 3),
    peer("MPI_Accumulate", 1, 2, 3),
    peer("MPI_Get_accumulate", 1, 2, 6),
    form("MPI_Fetch_and_op"),
    form("MPI_Compare_and_swap"),
    peer("MPI_Rput", 1, 2, 3),
    peer("MPI_Rget", 1, 2, 3),
    form("MPI_Win_create"),
    form("MPI_Win_allocate"),
    form("MPI_Win_free"),
    form("MPI_Win_fence"),
    form("MPI_Win_post"),
    form("MPI_Win_start"),
    form("MPI_Win_complete"),
    form("MPI_Win_wait"),
    glance("MPI_Win_lock"),
    glance("MPI_Win_unlock"),
    glance("MPI_Win_lock_all"),
    glance("MPI_Win_unlock_all"),
    glance("MPI_Win_flush"),
    glance("MPI_Win_flush_all"),
    form("MPI_Comm_dup").on(0),
    form("MPI_Comm_split").on(0),
    form("MPI_Comm_split_type").on(0),
    form("MPI_Comm_create").on(0),
    form("MPI_Comm_free"),
    form("MPI_Cart_create").on(0),
    glance("MPI_Win_sync"),
    glance("MPI_Win_flush_local_all"),
    glance("MPI_Win_flush_local"),
    poll("MPI_Win_test"),
    poll("MPI_Request_get_status"),
    form("MPI_Cancel"),
    form("MPI_Request_free"),
    form("MPI_Comm_disconnect"),
    form("MPI_Buffer_detach"),
    form("MPI_Comm_idup"),
    form("MPI_Comm_dup_with_info").on(0),
    form("MPI_Win_create_dynamic"),
    form("MPI_Comm_create_group"),
    form("MPI_Win_allocate_shared"),
    form("MPI_Intercomm_create"),
    data("MPI_Iexscan", 2, 3).on(5).begins(6),
    form("MPI_Ireduce_scatter").on(5).begins(6).counts(2, 3),
    data("MPI_Neighbor_allgatherv", 1, 2),
    data("MPI_Ineighbor_allgather", 1, 2),
    data("MPI_Ineighbor_alltoall", 1, 2),
    form("MPI_Neighbor_alltoallw"),
    data("MPI_Ineighbor_allgatherv", 1, 2),
    peer("MPI_Raccumulate", 1, 2, 3),
    peer("MPI_Igatherv", 1, 2, 7).on(8).begins(9),
    peer("MPI_Iscatterv", 5, 6, 7).on(8).begins(9),
    form("MPI_Ialltoallw"),
    form("MPI_Ineighbor_alltoallv"),
    form("MPI_Ineighbor_alltoallw"),
    peer("MPI_Rget_accumulate", 1, 2, 6),
];

/// The index of a function in [`FORMS`], which must be there.
pub const fn kind_of(name: &str) -> u16 {
    let mut kind = 0;
    while !is_same(FORMS[kind].name.as_bytes(), name.as_bytes()) {
        kind += 1;
    }
    kind as u16
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}
