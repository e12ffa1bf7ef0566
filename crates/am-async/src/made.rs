//! Calls that a future makes while its endpoint polls it: they wait here, on the thread that polls, and leave when
//! the poll ends. The table counts them as under way already, so that it is locked once for both.

use crate::doorbell::Doorbell;
use crate::shared::Shared;
use crate::wire::Header;
use am_core::Address;
use am_core::slab::Key;
use std::cell::RefCell;

/// A call that is to be sent.
#[derive(Debug)]
pub(crate) struct Made {
    /// Tells endpoints apart: a future may run another one, and a simulated rank may let others run meanwhile.
    bell: usize,
    pub(crate) key: Key,
    pub(crate) to: Address,
    pub(crate) header: Header,
    pub(crate) request: Vec<u8>,
}

thread_local! {
    static MADE: RefCell<Vec<Made>> = const { RefCell::new(Vec::new()) };
}

/// Adds a call to those that the endpoint of a bell, which is polling its future on this thread, sends next.
#[inline]
pub(crate) fn add(bell: &Doorbell, key: Key, to: Address, header: Header, request: Vec<u8>) {
    MADE.with_borrow_mut(|made| made.push(Made { bell: bell.name(), key, to, header, request }));
}

/// A call is not to be sent after all: its request, if it has not left.
pub(crate) fn withdraw(bell: &Doorbell, key: Key) -> Option<Vec<u8>> {
    MADE.with_borrow_mut(|made| {
        let place = made.iter().position(|made| made.key == key && made.bell == bell.name())?;
        Some(made.remove(place).request)
    })
}

/// Lets `send` have the calls of an endpoint, in the order in which they were made; those that it returns, and all
/// after them, are put back, to be sent by the layer. Whether there are such.
#[inline]
pub(crate) fn drain(shared: &Shared, send: impl FnMut(Made) -> Result<(), Made>) -> bool {
    let any = MADE.with_borrow(|made| !made.is_empty());
    any && drain_some(shared, send)
}

fn drain_some(shared: &Shared, mut send: impl FnMut(Made) -> Result<(), Made>) -> bool {
    let name = shared.bell.name();
    // Not borrowed while something is sent, for which a simulated rank may let others run.
    let mut all = MADE.take();
    let mut left = Vec::new();
    let (mut others, mut blocked) = (Vec::new(), false);
    for made in all.drain(..) {
        if made.bell != name {
            others.push(made);
        } else if blocked {
            left.push(made);
        } else if let Err(made) = send(made) {
            blocked = true;
            left.push(made);
        }
    }
    all.extend(others);
    MADE.with_borrow_mut(|made| {
        all.append(made);
        *made = all;
    });
    if blocked {
        let mut table = shared.table();
        left.into_iter().rev().for_each(|made| table.put_back(made.key, made.request));
    }
    blocked
}

/// Has the calls of an endpoint sent by its layer if a poll unwinds.
pub(crate) struct Unwinding<'a>(pub(crate) &'a Shared);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && drain(self.0, Err) {
            self.0.bell.ring();
        }
    }
}
