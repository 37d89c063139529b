//! What a function of MPI does, as it is played.

use crate::apps::benchmarks::osu::{ExchangeBy, Operation, SHORT_REDUCE};
use crate::apps::collective::Group;
use crate::apps::writer::Writer;
use srd_virtual::calls::FORMS;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Send,
    Recv,
    /// Sends to one and receives from another.
    Exchange,
    Collective(Collective),
    /// Nothing that goes to others: it waits, or asks whether something is over.
    Nothing,
}

/// What all ranks of a communicator do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Collective {
    Barrier,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllGather,
    AllReduce,
    AllToAll,
    ReduceScatter,
    Scan,
    /// They make a communicator.
    Agree,
}

/// How many bytes of each rank an operation among so many is of, where ranks have noted different ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// All are to be the same; who takes part in place, or is not the root, has perhaps noted none.
    Same,
    /// Each has its own: their mean.
    Mean,
    /// The same, noted for all ranks together.
    MeanOfAll,
}

impl Function {
    /// Of a function by its name; if it cannot be played, why.
    pub fn of(name: &str) -> Result<Function, &'static str> {
        use Collective::*;
        Ok(Function::Collective(match name.strip_prefix("MPI_").unwrap_or(name) {
            "Send" | "Bsend" | "Ssend" | "Rsend" | "Isend" | "Ibsend" | "Issend" | "Irsend" => {
                return Ok(Function::Send);
            }
            "Recv" | "Irecv" | "Mrecv" | "Imrecv" => return Ok(Function::Recv),
            "Sendrecv" | "Sendrecv_replace" => return Ok(Function::Exchange),
            "Finalize" | "Probe" | "Iprobe" | "Mprobe" | "Improbe" | "Wait" | "Waitall" | "Waitany"
            | "Waitsome" | "Test" | "Testall" | "Testany" | "Testsome" | "Request_get_status"
            | "Request_free" | "Comm_free" | "Comm_disconnect" | "Buffer_detach" => {
                return Ok(Function::Nothing);
            }
            "Barrier" | "Ibarrier" => Barrier,
            "Bcast" | "Ibcast" => Broadcast,
            "Reduce" | "Ireduce" => Reduce,
            "Gather" | "Igather" | "Gatherv" | "Igatherv" => Gather,
            "Scatter" | "Iscatter" | "Scatterv" | "Iscatterv" => Scatter,
            "Allgather" | "Iallgather" | "Allgatherv" | "Iallgatherv" => AllGather,
            "Allreduce" | "Iallreduce" => AllReduce,
            "Alltoall" | "Ialltoall" | "Alltoallv" | "Ialltoallv" => AllToAll,
            "Reduce_scatter" | "Ireduce_scatter" | "Reduce_scatter_block" | "Ireduce_scatter_block" => {
                ReduceScatter
            }
            "Scan" | "Iscan" | "Exscan" | "Iexscan" => Scan,
            "Comm_dup" | "Comm_dup_with_info" | "Comm_split" | "Comm_split_type" | "Comm_create"
            | "Cart_create" => Agree,
            "Start" | "Startall" => return Err("what persistent requests send is not noted"),
            "Alltoallw" | "Ialltoallw" => return Err("how much it sends is not noted"),
            "Comm_idup" | "Comm_create_group" | "Intercomm_create" => {
                return Err("who takes part is not noted");
            }
            "Cancel" => return Err("a message that is cancelled is received by nobody"),
            neighbours if neighbours.contains("eighbor_") => {
                return Err("who its neighbours are is not noted");
            }
            _ => return Err("one-sided operations are not played"),
        }))
    }
}

/// How what ranks have noted of a function comes to one number.
pub(super) fn share(kind: u16) -> Share {
    let form = &FORMS[usize::from(kind)];
    match form.name {
        _ if form.counts.is_some() => Share::MeanOfAll,
        name if name.ends_with('v') => Share::Mean,
        _ => Share::Same,
    }
}

impl Collective {
    /// What a rank does in it. `bytes` are of each rank, and to each where there is something for each.
    pub fn write(self, writer: &mut Writer, group: Group<'_>, root: u32, bytes: u64) {
        match self {
            Collective::Barrier => writer.barrier(group),
            Collective::Broadcast => writer.down(group, root, |_| bytes),
            Collective::Reduce => writer.up(group, root, |_| bytes),
            Collective::Gather => writer.up(group, root, |ranks| ranks * bytes),
            Collective::Scatter => writer.down(group, root, |ranks| ranks * bytes),
            Collective::AllGather => writer.all_gather(group, bytes),
            Collective::AllReduce if bytes <= SHORT_REDUCE => writer.all_reduce(group, bytes),
            Collective::AllReduce => writer.all_reduce_by_halving(group, bytes),
            Collective::AllToAll => Operation::AllToAll { bytes, by: ExchangeBy::Auto }.write(writer, group),
            Collective::ReduceScatter => {
                writer.up(group, 0, |_| u64::from(group.size()) * bytes);
                writer.down(group, 0, |ranks| ranks * bytes);
            }
            Collective::Scan => writer.scan(group, bytes),
            Collective::Agree => writer.all_reduce(group, 8),
        }
    }
}
