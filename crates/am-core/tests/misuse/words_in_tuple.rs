//! A dynamic number of words cannot be part of a tuple.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, both: Request<(u32, Words)>) {
    let _ = endpoint.request(Rank(0), both, (1, Words::EMPTY)); //~~ E0080
}
