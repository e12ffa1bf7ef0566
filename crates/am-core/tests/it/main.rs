//! The integration tests of am-core, one program: each module is a subject.

mod allocation;
mod attach;
mod handler_errors;
mod handlers;
mod layers;
mod losses;
mod model;
mod native;
mod one_sided;
mod paced;
mod shared;
mod stall;
mod timers;
mod wording;

// Counts per thread, so that tests beside each other do not disturb each other's counts.
#[global_allocator]
static ALLOCATOR: am_conformance::CountingAllocator = am_conformance::CountingAllocator;
