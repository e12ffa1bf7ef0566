//! A one-way handler cannot ask for a token.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<()>) {
    fn code(_: &mut (), _: Token<'_>, (): (), _: Payload<'_>) {}
    let _ = handlers.request("request", code);
    let _ = handlers.one_way("note", code); //~ E0631
}
