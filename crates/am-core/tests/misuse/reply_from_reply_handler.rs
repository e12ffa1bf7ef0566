//! A reply handler cannot reply: it learns an address and nothing more.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<()>, reply: Reply<()>) {
    let _ = handlers.reply("reply", move |_: &mut (), from: Address, (): (), _: Payload<'_>| {
        let _ = from.reply(reply, ()); //~ E0599
    });
}
