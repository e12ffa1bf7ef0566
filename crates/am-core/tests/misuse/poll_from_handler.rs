//! A handler cannot poll: an endpoint that is counted and checked at run time is not allowed in one.

use am_core::loopback::Loopback;
use am_core::*;
use std::cell::RefCell;
use std::rc::Rc;

pub fn misuse(endpoint: Rc<RefCell<Endpoint<Loopback, ()>>>, handlers: &mut Handlers<()>) {
    let _ = handlers.one_way("poll", move |_: &mut (), _: Address, (): (), _: Payload<'_>| { //~ E0277
        let _ = endpoint.borrow_mut().poll(); //-
    });
}
