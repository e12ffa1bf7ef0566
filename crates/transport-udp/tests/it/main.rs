//! The integration tests of transport-udp, one program: each module is a subject.

mod allocation;
mod common;
mod conformance;
mod entries;
mod faults;
mod fork;
mod fuzz;
mod fuzz_flood;
mod liveness;
mod obituary;
mod security;
mod simulated;
mod simulated_conformance;
mod simulated_network;
mod sockets;
mod tokio;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
