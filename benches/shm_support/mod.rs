//! Everything behind the shared-memory bench: the processes, the raw baselines and the active-message tasks.

pub(crate) mod crew;
// The example's rules of RandomAccess, so that the baseline follows the very same stream; it needs only the stream itself.
#[allow(dead_code)]
#[path = "../../examples/random_access/hpcc.rs"]
mod hpcc;
pub(crate) mod mapping;
pub(crate) mod measure;
pub(crate) mod picture;
pub(crate) mod raw;
pub(crate) mod table;
pub(crate) mod world;
