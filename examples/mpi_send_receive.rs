//! Sends and receives as programs of rsmpi write them; but for the imports nothing is of this crate: ranks pass
//! their numbers round a ring, at once and in place, and rank 0 collects vectors of all.
//!
//! `cargo build --example mpi_send_receive && amrun -n 4 target/debug/examples/mpi_send_receive`.

use active_messages::mpi::point_to_point as p2p;
use active_messages::mpi::traits::*;
use active_messages::mpi::{self, Rank};

fn main() {
    let universe = mpi::initialize().expect("the program is started as a rank");
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let next = world.process_at_rank((rank + 1) % size);
    let previous = world.process_at_rank((rank + size - 1) % size);

    let (number, status): (Rank, _) = p2p::send_receive(&rank, &previous, &next);
    println!("rank {rank} got {number} from {}", status.source_rank());
    assert_eq!(number, next.rank());

    if rank > 0 {
        world.process_at_rank(0).send(&[rank, rank + 1, rank - 1][..]);
    } else {
        for _ in 1..size {
            let (numbers, status) = world.any_process().receive_vec::<Rank>();
            let from = status.source_rank();
            assert_eq!(numbers, [from, from + 1, from - 1]);
        }
        println!("rank 0 got vectors of all others");
    }
    world.barrier();

    let mut number = rank;
    p2p::send_receive_replace_into(&mut number, &next, &previous);
    assert_eq!(number, previous.rank());
}
