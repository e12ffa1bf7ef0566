//! A token permits a reply, not a request.

use am_core::*;

pub fn misuse(token: Token<'_>, note: Request<()>) {
    let _ = token.request(Rank(0), note, ()); //~ E0599
}
