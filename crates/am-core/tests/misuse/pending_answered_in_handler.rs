//! A pending reply is answered through the endpoint, so not from a handler.

use am_core::*;

pub fn misuse(pending: PendingReply, reply: Reply<()>) {
    let _ = pending.reply(reply, ()); //~ E0599
}
