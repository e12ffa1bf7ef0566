//! A token cannot go to another thread, not even for a while.

use am_core::*;

pub fn misuse(token: Token<'_>, reply: Reply<()>) {
    std::thread::scope(|scope| {
        scope.spawn(move || token.reply(reply, ()).is_ok()); //~ E0277
    });
}
