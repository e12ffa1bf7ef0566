//! A detached token is gone.

use am_core::*;

pub fn misuse(token: Token<'_>, reply: Reply<()>) {
    let _pending = token.detach();
    let _ = token.reply(reply, ()); //~ E0382
}
