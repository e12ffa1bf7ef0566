//! The integration tests of transport-ofi, one program: each module is a subject.

mod allocation;
mod conformance;
mod fake;
mod faults;
mod processes;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
