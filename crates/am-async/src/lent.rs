//! The states of ranks while futures of their endpoints are polled: each is lent to the thread that polls them.
//!
//! No lock is taken for that. Several states may be lent on a thread at once: a future may run another endpoint,
//! and one of a simulated rank may let others run in the midst of a poll, so that they end in any order.

use crate::context::Environment;
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

/// A state, unless a closure has it.
struct Lent {
    of: usize,
    world: Option<Box<dyn Any + Send>>,
}

thread_local! {
    static LENT: RefCell<Vec<Lent>> = const { RefCell::new(Vec::new()) };
}

/// What tells environments apart while they are there.
fn name<W>(environment: &Arc<Environment<W>>) -> usize {
    Arc::as_ptr(environment).addr()
}

/// The state of an environment, if it is lent on this thread.
fn find<R>(of: usize, look: impl FnOnce(&mut Vec<Lent>, usize) -> R) -> Option<R> {
    LENT.with_borrow_mut(|all| all.iter().rposition(|lent| lent.of == of).map(|place| look(all, place)))
}

/// Polls futures of an endpoint while its state is lent to them.
pub(crate) fn to<W: Send + 'static, R>(
    environment: &Arc<Environment<W>>,
    world: &mut Option<Box<W>>,
    poll: impl FnOnce() -> R,
) -> R {
    let of = name(environment);
    let lent = world.take().map(|world| world as Box<dyn Any + Send>);
    LENT.with_borrow_mut(|all| all.push(Lent { of, world: lent }));
    let _back = Back { of, world };
    poll()
}

/// Gives the state back, also when a future unwinds.
struct Back<'a, W: 'static> {
    of: usize,
    world: &'a mut Option<Box<W>>,
}

impl<W: 'static> Drop for Back<'_, W> {
    fn drop(&mut self) {
        let lent = find(self.of, |all, place| all.remove(place).world).flatten();
        *self.world = lent.and_then(|world| world.downcast().ok());
    }
}

/// Lends the state on to a closure.
pub(crate) fn with<W: Send + 'static, R>(environment: &Arc<Environment<W>>, look: impl FnOnce(&mut W) -> R) -> R {
    let of = name(environment);
    let found = find(of, |all, place| all[place].world.take());
    let world = found.expect("the rank's state is lent to the futures that its endpoint polls, and to no others");
    let mut taken = Taken { of, world };
    let world =
        taken.world.as_mut().expect("the rank's state is lent already: Context::with inside Context::with");
    look(world.downcast_mut().expect("an environment has one type of state"))
}

/// Puts the state back where it was, also when a closure unwinds: how it was then left is for the program to
/// judge.
struct Taken {
    of: usize,
    world: Option<Box<dyn Any + Send>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(world) = self.world.take() {
            find(self.of, |all, place| all[place].world = Some(world));
        }
    }
}
