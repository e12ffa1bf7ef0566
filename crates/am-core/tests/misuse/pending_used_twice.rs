//! A pending reply is used up by its answer.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, pending: PendingReply, reply: Reply<()>) {
    let _ = endpoint.answer(pending, reply, ());
    let _ = endpoint.answer(pending, reply, ()); //~ E0382
}
