//! A token cannot leave its handler through a channel.

use am_core::*;
use std::sync::mpsc::Sender;

pub fn misuse(handlers: &mut Handlers<Sender<Token<'static>>>) {
    let _ = handlers.request("ask", |out: &mut Sender<Token<'static>>, token: Token<'_>, (): (), _: Payload<'_>| {
        let _ = out.send(token); //~ E0521
    });
}
