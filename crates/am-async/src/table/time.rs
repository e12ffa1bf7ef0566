//! What the calls of this rank wait for in time: deadlines and sleeps.

use super::{Sleeper, State, Table};
use crate::meter::End;
use crate::outcome::{Alarm, Due, Note, Outcome, Polled, Waiter, Wakers};
use crate::wire::Header;
use am_core::Instant;
use am_core::slab::Key;
use std::task::Waker;

impl Table {
    /// Starts a sleep, unless nothing tells its end any more.
    pub(crate) fn sleep(&mut self, due: Due, waker: &Waker) -> Option<Key> {
        if self.closed {
            return None;
        }
        let waiter = Waiter::new(waker, self.root.as_ref());
        let key = self.sleepers.insert(Sleeper { waiter, due, timer: None, over: false });
        self.fresh.push(Alarm::Sleeper(key));
        Some(key)
    }

    /// Whether a sleep is over; it is gone then.
    pub(crate) fn slept(&mut self, key: Key, waker: &Waker) -> Polled<()> {
        let Some(sleeper) = self.sleepers.get_mut(key) else { return Polled::Ready(()) };
        if sleeper.over {
            self.sleepers.remove(key);
            return Polled::Ready(());
        }
        Polled::Pending(sleeper.waiter.keep(Some(waker), self.root.as_ref()))
    }

    /// Nobody sleeps any more. The waker is to be dropped once nothing is locked.
    pub(crate) fn end_sleep(&mut self, key: Key) -> Option<Waker> {
        let sleeper = self.sleepers.remove(key)?;
        self.forget_stale();
        if let Some(timer) = sleeper.timer {
            self.timers.remove(timer);
        }
        sleeper.waiter.waker()
    }

    /// Deadlines of calls and sleeps that are dropped before the endpoint has seen them leave no more than they
    /// were.
    pub(super) fn forget_stale(&mut self) {
        if self.fresh.len() <= 64.max(2 * (self.slots.len() + self.sleepers.len())) {
            return;
        }
        let (slots, sleepers) = (&self.slots, &self.sleepers);
        self.fresh.retain(|alarm| match alarm {
            Alarm::Call(key) => slots.contains(*key),
            Alarm::Sleeper(key) => sleepers.contains(*key),
            Alarm::Task(_) => false,
        });
    }

    pub(crate) fn add_timer(&mut self, at: Instant, what: Alarm) -> Key {
        self.timers.insert(at, what)
    }

    pub(crate) fn remove_timer(&mut self, key: Key) {
        self.timers.remove(key);
    }

    /// Whether the time is needed: there are deadlines.
    pub(crate) fn needs_time(&self) -> bool {
        !(self.fresh.is_empty() && self.timers.is_empty())
    }

    /// When something is due next.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Sets the time, ends what is due of calls and sleeps, and hands out what is due of tasks.
    pub(crate) fn advance(&mut self, now: Instant, wakers: &mut Wakers, mut task: impl FnMut(Key)) -> bool {
        self.now = now;
        let mut any = !self.fresh.is_empty();
        let mut fresh = std::mem::take(&mut self.fresh);
        for alarm in fresh.drain(..) {
            let (due, timer) = match alarm {
                Alarm::Call(key) => match self.slots.get_mut(key) {
                    Some(slot) if !matches!(slot.state, State::Done(_)) => {
                        slot.seen.at(now);
                        (&mut slot.due, &mut slot.timer)
                    }
                    _ => continue,
                },
                Alarm::Sleeper(key) => match self.sleepers.get_mut(key) {
                    Some(sleeper) => (&mut sleeper.due, &mut sleeper.timer),
                    None => continue,
                },
                Alarm::Task(_) => continue,
            };
            let at = match *due {
                Due::After(span) => now + span,
                Due::At(at) => at,
                Due::Within(at, span) => at.min(now + span),
                Due::Never => continue,
            };
            *due = Due::At(at);
            *timer = Some(self.timers.insert(at, alarm));
        }
        self.fresh = fresh;
        while let Some(alarm) = self.timers.pop(now) {
            any = true;
            match alarm {
                Alarm::Call(key) => {
                    let Some(slot) = self.slots.get_mut(key) else { continue };
                    slot.timer = None;
                    let to = slot.to;
                    if self.leave(key) {
                        self.notes.push_back(Note::Cancel { to, call: key });
                    }
                    self.expire(key, wakers);
                }
                Alarm::Sleeper(key) => {
                    if let Some(sleeper) = self.sleepers.get_mut(key) {
                        (sleeper.over, sleeper.timer) = (true, None);
                        wakers.add(&mut sleeper.waiter);
                    }
                }
                Alarm::Task(key) => task(key),
            }
        }
        any
    }

    /// Ends a call that has left where it was.
    fn expire(&mut self, key: Key, wakers: &mut Wakers) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.count(&self.meter, || End::TimedOut, 0);
        if slot.header.is(Header::ONE_WAY) {
            self.slots.remove(key);
            return;
        }
        wakers.add(&mut slot.waiter);
        slot.state = State::Done(Outcome::TimedOut);
    }
}
