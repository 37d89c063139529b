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
    /// The other rank, or the root, in the call's communicator, plus one; 0 if it names none.
    pub peer: u32,
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
    /// It may be over without anything having happened.
    pub glances: bool,
    /// The same, and how often a program calls it depends on when something does.
    pub polls: bool,
}

const fn form(name: &'static str) -> Form {
    Form { name, data: None, received: None, peer: None, glances: false, polls: false }
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
    peer("MPI_Send", 1, 2, 3),
    peer("MPI_Bsend", 1, 2, 3),
    peer("MPI_Ssend", 1, 2, 3),
    peer("MPI_Rsend", 1, 2, 3),
    peer("MPI_Isend", 1, 2, 3),
    peer("MPI_Ibsend", 1, 2, 3),
    peer("MPI_Issend", 1, 2, 3),
    peer("MPI_Irsend", 1, 2, 3),
    peer("MPI_Recv", 1, 2, 3),
    peer("MPI_Irecv", 1, 2, 3),
    peer("MPI_Sendrecv", 1, 2, 3),
    peer("MPI_Sendrecv_replace", 1, 2, 3),
    data("MPI_Mrecv", 1, 2),
    data("MPI_Imrecv", 1, 2),
    form("MPI_Probe"),
    form("MPI_Mprobe"),
    poll("MPI_Iprobe"),
    poll("MPI_Improbe"),
    form("MPI_Start"),
    form("MPI_Startall"),
    form("MPI_Wait"),
    form("MPI_Waitall"),
    form("MPI_Waitany"),
    form("MPI_Waitsome"),
    poll("MPI_Test"),
    poll("MPI_Testall"),
    poll("MPI_Testany"),
    poll("MPI_Testsome"),
    form("MPI_Barrier"),
    peer("MPI_Bcast", 1, 2, 3),
    both("MPI_Gather", Some(6)),
    peer("MPI_Gatherv", 1, 2, 7),
    both("MPI_Scatter", Some(6)),
    form("MPI_Scatterv"),
    both("MPI_Allgather", None),
    data("MPI_Allgatherv", 1, 2),
    both("MPI_Alltoall", None),
    form("MPI_Alltoallv"),
    form("MPI_Alltoallw"),
    peer("MPI_Reduce", 2, 3, 5),
    data("MPI_Allreduce", 2, 3),
    data("MPI_Reduce_scatter_block", 2, 3),
    form("MPI_Reduce_scatter"),
    data("MPI_Scan", 2, 3),
    data("MPI_Exscan", 2, 3),
    data("MPI_Neighbor_allgather", 1, 2),
    data("MPI_Neighbor_alltoall", 1, 2),
    form("MPI_Neighbor_alltoallv"),
    form("MPI_Ibarrier"),
    peer("MPI_Ibcast", 1, 2, 3),
    both("MPI_Igather", Some(6)),
    both("MPI_Iscatter", Some(6)),
    both("MPI_Iallgather", None),
    data("MPI_Iallgatherv", 1, 2),
    both("MPI_Ialltoall", None),
    form("MPI_Ialltoallv"),
    peer("MPI_Ireduce", 2, 3, 5),
    data("MPI_Iallreduce", 2, 3),
    data("MPI_Ireduce_scatter_block", 2, 3),
    data("MPI_Iscan", 2, 3),
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
    form("MPI_Comm_dup"),
    form("MPI_Comm_split"),
    form("MPI_Comm_split_type"),
    form("MPI_Comm_create"),
    form("MPI_Comm_free"),
    form("MPI_Cart_create"),
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
    form("MPI_Comm_dup_with_info"),
    form("MPI_Win_create_dynamic"),
    form("MPI_Comm_create_group"),
    form("MPI_Win_allocate_shared"),
    form("MPI_Intercomm_create"),
    data("MPI_Iexscan", 2, 3),
    form("MPI_Ireduce_scatter"),
    data("MPI_Neighbor_allgatherv", 1, 2),
    data("MPI_Ineighbor_allgather", 1, 2),
    data("MPI_Ineighbor_alltoall", 1, 2),
    form("MPI_Neighbor_alltoallw"),
    data("MPI_Ineighbor_allgatherv", 1, 2),
    peer("MPI_Raccumulate", 1, 2, 3),
    peer("MPI_Igatherv", 1, 2, 7),
    form("MPI_Iscatterv"),
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
