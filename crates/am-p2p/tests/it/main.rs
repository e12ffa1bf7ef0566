//! Two-sided messages on the loopback transport.

mod allocation;

/// Counts for the tests of what allocates.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
