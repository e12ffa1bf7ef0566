//! The integration tests of machine-sim, one program: each module is a subject.

mod bounds;
mod conduit;
mod conformance;
mod degenerate;
mod documentation;
mod fuzz;
mod goal;
mod interface;
mod loggopsim;
mod presets;
mod scale;
mod schedules;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
