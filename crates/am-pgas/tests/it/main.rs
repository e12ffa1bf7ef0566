//! The layers of this crate on the loopback transport.

mod aggregate;
mod aggregate_failures;
mod fuzz;

/// Counts for the tests of what allocates.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
