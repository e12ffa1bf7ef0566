//! A handler cannot send a request: its state is inside the endpoint, not the reverse.

use am_core::*;

pub fn misuse(handlers: &mut Handlers<u64>, note: Request<()>) {
    let _ = handlers.one_way("forward", move |state: &mut u64, _: Address, (): (), _: Payload<'_>| {
        let _ = state.request(Rank(0), note, ()); //~ E0599
    });
}
