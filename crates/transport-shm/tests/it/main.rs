//! The integration tests of transport-shm, one program: each module is a subject.

mod allocation;
mod auxiliary;
mod conformance;
mod crowd;
mod forks;
mod fuzz;
mod job;
mod lent;
mod lent_collectives;
mod life;
mod notify;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
