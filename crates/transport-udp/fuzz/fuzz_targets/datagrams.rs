//! Datagrams of a valid session, changed by somebody whom nothing keeps from it.
//!
//! `cargo +nightly fuzz run datagrams` in the crate's folder.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/entries/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = entries::datagrams(data);
});
