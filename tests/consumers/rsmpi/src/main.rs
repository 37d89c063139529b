//! Checks rsmpi by content: a ring of messages of all lengths, sent while others are received, and collectives.

use mpi::collective::SystemOperation;
use mpi::traits::*;

const LENGTHS: [usize; 6] = [1, 7, 1000, 8192, 70_000, 1 << 20];
const ROUNDS: usize = 5;

/// Bytes of a message, a function of all of this.
fn content(from: i32, len: usize, round: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + round * 17 + from as usize * 101) as u8).collect()
}

fn main() {
    let universe = mpi::initialize().expect("MPI_Init");
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0..ROUNDS {
        for len in LENGTHS {
            let sent = content(rank, len, round);
            let mut received = vec![0u8; len];
            mpi::request::scope(|scope| {
                let receive = world.process_at_rank(previous).immediate_receive_into(scope, &mut received[..]);
                let send = world.process_at_rank(next).immediate_send(scope, &sent[..]);
                send.wait();
                receive.wait();
            });
            assert!(received == content(previous, len, round), "{len} bytes, round {round}");
        }
        let (mut sum, mut all) = (0u64, vec![0u64; size as usize]);
        world.all_reduce_into(&(rank as u64 + round as u64), &mut sum, SystemOperation::sum());
        let wanted: u64 = (0..size as u64).map(|rank| rank + round as u64).sum();
        assert_eq!(sum, wanted, "all_reduce, round {round}");
        let row: Vec<u64> = (0..size as u64).map(|to| rank as u64 * 1000 + to).collect();
        world.all_to_all_into(&row[..], &mut all[..]);
        assert!(all.iter().enumerate().all(|(from, &word)| word == from as u64 * 1000 + rank as u64), "all_to_all");
    }
    world.barrier();
    if rank == 0 {
        println!("rsmpi_check: ok, {size} ranks");
    }
}
