//! A request takes the arguments of its handler.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, add: Request<(u64, u64)>) {
    let _ = endpoint.request(Rank(0), add, (1u64, 2u32)); //~ E0308
}
