//! A payload cannot stay behind in the state.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<Option<Payload<'static>>>) {
    let _ = handlers.one_way("note", |kept: &mut Option<Payload<'static>>, _: Address, (): (), payload: Payload<'_>| {
        *kept = Some(payload); //~ E0521
    });
}
