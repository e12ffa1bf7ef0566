//! Two-sided messages in the shape that users of rsmpi know: [`am_p2p::mpi`], and how a rank joins its job.
//!
//! ```no_run
//! use active_messages::mpi::{self, traits::*};
//!
//! let universe = mpi::initialize().unwrap();
//! let world = universe.world();
//! if world.rank() == 0 {
//!     world.process_at_rank(1).send(&[1.0, 2.5][..]);
//! } else if world.rank() == 1 {
//!     println!("{:?}", world.any_process().receive_vec::<f64>());
//! }
//! ```

pub use am_p2p::mpi::*;

use crate::job::{JobTransport, RankJob};
use crate::shm::JoinOptions;
use am_core::{Endpoint, Handlers};
use am_p2p::P2p;
use std::error::Error;

/// What [`initialize`] makes.
pub type JobUniverse = Universe<JobTransport, P2p>;

/// Bytes of segments, which long messages are written to.
const SEGMENT: usize = 32 << 20;

/// Joins the job that this process was started for, by `amrun`, `mpirun` or `srun`. `None` if nothing can be
/// joined, which it prints: outside a job, or where another rank is lost. Collective; blocks.
pub fn initialize() -> Option<JobUniverse> {
    join().inspect_err(|error| eprintln!("the job cannot be joined: {error}")).ok()
}

fn join() -> Result<JobUniverse, Box<dyn Error>> {
    let job = RankJob::from_environment()?;
    let job = job.ok_or("the process was not started as a rank; `amrun -n 4 PROGRAM` does so")?;
    let options = JoinOptions::default().segment_bytes(SEGMENT);
    let mut handlers = Handlers::<P2p>::new();
    let p2p = P2p::register(&mut handlers)?;
    let endpoint = Endpoint::attach(job.attach(options)?, handlers, p2p)?;
    Ok(Universe::new(endpoint)?)
}
