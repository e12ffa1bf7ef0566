//! The words of a segment are atomics, not numbers.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &Endpoint<Loopback, ()>) {
    let _words: &[u64] = endpoint.segment().words(); //~ E0308
}
