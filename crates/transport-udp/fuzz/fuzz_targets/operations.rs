//! Every operation of a machine in any order, with restarts, cuts and departures.
//!
//! `cargo +nightly fuzz run operations` in the crate's folder.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/entries/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = entries::operations(data);
});
