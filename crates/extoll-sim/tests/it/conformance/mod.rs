//! The conformance suite over both conduits: without faults, with them, over several machines, and over machines
//! drawn from seeds.
//!
//! `AM_CONFORMANCE_FIRST=7 AM_CONFORMANCE_SEEDS=1` chooses the seeds of the `many_seeds` tests (`-- --ignored`).

mod gasnet;
mod machines;
mod pscom;
