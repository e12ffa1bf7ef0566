//! A token is used up by its reply.

use am_core::*;

pub fn misuse(token: Token<'_>, reply: Reply<()>) {
    let _ = token.reply(reply, ());
    let _ = token.reply(reply, ()); //~ E0382
}
