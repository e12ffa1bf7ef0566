//! Calls over the loopback transport.

mod allocation;
mod basics;
mod fork;
mod fuzz;
mod groups;
mod leaks;
mod limits;
mod losses;
mod made;
mod metrics;
mod objects;
mod on_tokio;
mod services;
mod spans;
mod streams;
mod support;
mod virtual_time;

/// Counts what tests allocate.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
