//! A segment is never a slice: peers may write it.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &Endpoint<Loopback, ()>) {
    let _bytes: &[u8] = endpoint.segment(); //~ E0308
}
