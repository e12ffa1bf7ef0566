//! A request handler is no target of replies.

use am_core::*;

pub fn misuse(token: Token<'_>, request: Request<()>) {
    let _ = token.reply(request, ()); //~ E0308
}
