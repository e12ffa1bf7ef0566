//! A reply handler is no target of requests.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, reply: Reply<()>) {
    let _ = endpoint.request(Rank(0), reply, ()); //~ E0308
}
