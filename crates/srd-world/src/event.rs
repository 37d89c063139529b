//! What happens in a world, and what goes wrong there.

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A datagram reaches the destination's own link.
    Fabric(usize),
    /// A datagram reaches the destination's socket.
    Arrive(usize),
    /// The engine of a process runs.
    Wake(usize),
    /// A process posts messages.
    Post(usize),
    /// A queue pair gets receives.
    Stock(usize),
    /// A process looks at its completion queues.
    Poll(usize),
    /// Something goes wrong.
    Fault(Fault),
    /// A dead process starts again.
    Restart(usize),
    /// A stopped process goes on.
    Resume(usize),
    /// A process makes address handles of a host again.
    Handle(usize, usize),
}

/// Something that goes wrong; the number decides to whom and how badly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// Some paths between two hosts swallow everything.
    Blackhole(u64),
    /// A path comes and goes.
    Flap(u64),
    /// A path gets another delay.
    DelayStep(u64),
    /// Two hosts are cut off from each other.
    Cut(u64),
    /// Large datagrams disappear between two hosts.
    MtuDrop(u64),
    /// A process stops posting receives.
    SlowReceiver(u64),
    /// A queue pair is destroyed.
    QpDestroy(u64),
    /// A queue pair goes to the error state.
    QpError(u64),
    /// An address handle is destroyed.
    AhDestroy(u64),
    /// A memory region is taken away.
    MrDereg(u64),
    /// A process is killed and comes back.
    Restart(u64),
    /// A process stops for a while.
    Pause(u64),
    /// A clock jumps forward.
    JumpForward(u64),
    /// A clock jumps backward.
    JumpBack(u64),
    /// A process dies for good.
    Death(u64),
}
