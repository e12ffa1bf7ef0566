//! A reply handler cannot ask for a token.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<()>) {
    fn code(_: &mut (), _: Token<'_>, (): (), _: Payload<'_>) {}
    let _ = handlers.request("request", code);
    let _ = handlers.reply("reply", code); //~ E0631
}
