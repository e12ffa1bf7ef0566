//! The integration tests of exanet-sim, one program: each module is a subject.

mod bounds;
mod conduit;
mod conformance;
mod degenerate;
mod fuzz;
mod invariants;
mod mpi;
mod nic_model;
mod timing;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
