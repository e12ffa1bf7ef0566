//! The integration tests of portals-sim, one program: each module is a subject.

mod allocation;
mod bounds;
mod conduit;
mod conformance;
mod credit_network;
mod credits;
mod degenerate;
mod fuzz;
mod invariants;
mod lookahead;
mod model_support;
mod native;
mod p3;
mod p3_allocation;
mod p3_faults;
mod p3_model;
mod p3_scale;
mod p4;
mod p4_model;
mod scale;
mod timing;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
