//! One program on every backend: each rank writes its square into rank 0's segment and adds one to a counter
//! there.
//!
//! `cargo run --release --features sim --example everywhere -- --backend extoll --ranks 16`, or AM_BACKEND=extoll;
//! on a machine of one's own with `--backend sim --machine my.toml`.

use active_messages::anywhere::{self, Options, Part, Program};
use active_messages::one_sided::{AtomicOp, OneSided};
use active_messages::prelude::*;

struct Squares;

impl Program for Squares {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<OneSided>::new();
        let one_sided = OneSided::register(&mut handlers)?;
        let mut endpoint = rank.attach(handlers, one_sided)?;
        let me = u64::from(endpoint.rank().0);
        endpoint.put(Rank(0), 8 + 8 * me, &(me * me).to_le_bytes())?;
        endpoint.atomic(Rank(0), 0, AtomicOp::<u64>::Inc)?;
        endpoint.barrier()?;
        if me == 0 {
            let ranks = endpoint.atomic(Rank(0), 0, AtomicOp::<u64>::Get)?;
            let squares = endpoint.segment().view(8, 8 * ranks as usize)?;
            let sum: u64 = (0..ranks as usize).filter_map(|index| squares.u64(index)).sum();
            println!("{ranks} ranks, sum of squares {sum}, after {}", endpoint.now() - Instant(0));
        }
        endpoint.finish()?;
        Ok(())
    }
}

fn main() -> std::process::ExitCode {
    anywhere::main_with(Options::new().default_ranks(4).segment_bytes(1 << 16), Squares)
}
