//! Datagrams of an encrypted session, played again and changed by somebody without the key.
//!
//! `cargo +nightly fuzz run stranger` in the crate's folder.

#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/entries/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = entries::stranger(data);
});
