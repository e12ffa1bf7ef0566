//! The integration tests of extoll-sim, one program: each module is a subject.

mod allocation;
mod bounds;
mod commands;
mod conformance;
mod degenerate;
mod fuzz;
mod gasnet;
mod gasnet_allocation;
mod gasnet_order;
mod invariants;
mod native;
mod pscom_allocation;
mod pscom_long;
mod pscom_messages;
mod pscom_plugins;
mod pscom_timing;
mod pscom_tokens;
mod pscom_two_sided;
mod timing;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
