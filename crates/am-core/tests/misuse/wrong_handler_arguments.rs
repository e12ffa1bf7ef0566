//! Handlers take plain data alone.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<()>) {
    let _ = handlers.one_way("text", |_: &mut (), _: Address, _: String, _: Payload<'_>| {}); //~ E0277
}
