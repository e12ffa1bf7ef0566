//! Nor do several arguments that are more than sixteen words together.

use am_core::*;

pub fn misuse(token: Token<'_>, more: Reply<([u32; 15], u64)>) {
    let _ = token.reply(more, ([0; 15], 1)); //~~ E0080
}
