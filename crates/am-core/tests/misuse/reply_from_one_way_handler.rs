//! A one-way handler cannot reply.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<()>, reply: Reply<()>) {
    let _ = handlers.one_way("note", move |_: &mut (), from: Address, (): (), _: Payload<'_>| {
        let _ = from.reply(reply, ()); //~ E0599
    });
}
