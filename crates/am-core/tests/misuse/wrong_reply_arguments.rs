//! A reply takes the arguments of its handler.

use am_core::*;

pub fn misuse(token: Token<'_>, sum: Reply<u64>) {
    let _ = token.reply(sum, 1u32); //~ E0308
}
