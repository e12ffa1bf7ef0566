//! A handler cannot send a request: it cannot borrow an endpoint.

use am_core::loopback::Loopback;
use am_core::*;

pub fn misuse(endpoint: &mut Endpoint<Loopback, ()>, handlers: &mut Handlers<()>, note: Request<()>) {
    let _ = handlers.one_way("forward", move |_: &mut (), _: Address, (): (), _: Payload<'_>| { //~ E0521
        let _ = endpoint.request(Rank(0), note, ()); //-
    });
}
