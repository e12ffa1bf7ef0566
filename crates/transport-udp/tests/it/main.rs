//! The integration tests of transport-udp, one program: each module is a subject.

mod allocation;
mod conformance;
mod crowd;
mod failures;
mod faults;
mod fork;
mod fuzz;
mod fuzz_flood;
mod fuzz_seeds;
mod liveness;
mod patience;
mod picture;
mod recovery;
mod security;
mod simulated;
mod simulated_conformance;
mod simulated_network;
mod sockets;
mod stalls;
mod tokio;

use transport_udp::fuzzing::{self as entries, world as common};

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
