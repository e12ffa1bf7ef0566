//! The integration tests of sci-sim, one program: each module is a subject.

mod bounds;
mod conduit_allocation;
mod conduit_order;
mod conduit_rules;
mod conduit_support;
mod conformance_mapped;
mod conformance_virtual;
mod degenerate;
mod fuzz;
mod invariants;
mod nic;
mod nic_allocation;
mod nic_support;
mod timing;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
