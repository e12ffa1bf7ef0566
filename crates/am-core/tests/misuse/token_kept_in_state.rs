//! A token cannot stay behind in the state that handlers work on.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<Option<Token<'static>>>) {
    let _ = handlers.request("ask", |kept: &mut Option<Token<'static>>, token: Token<'_>, (): (), _: Payload<'_>| {
        *kept = Some(token); //~ E0521
    });
}
