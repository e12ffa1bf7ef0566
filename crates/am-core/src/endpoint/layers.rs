//! When the progress functions of layers are called, and what an endpoint makes of what they return.

use super::Endpoint;
use crate::error::{PollError, SendError};
use crate::handlers::Advance;
use crate::layer::{HasLayer, Outbox, Progress};
use crate::stall::LayerWork;
use crate::time::Instant;
use crate::transport::{Notify, Transport, WaitReason};
use std::os::fd::OwnedFd;
use std::task::Waker;

/// Polls without a message after which all progress functions are called, whatever was touched.
const EMPTY_POLLS: u32 = 16;

/// Polls that served something after which all progress functions are called, whatever was touched.
const BUSY_POLLS: u32 = 64;

/// Fruitless steps of a wait, on a transport that spins, before layers that were not touched are called and the
/// clock is looked at: until then, both are left to every sixteenth empty poll.
const SPINS: u32 = 64;

/// Which progress functions are to be called.
#[derive(Debug, Default)]
pub(super) struct LayerSchedule {
    /// Whether there are any, and tables have been compared.
    on: bool,
    /// The layers whose handlers ran, or whose states were entered, since their functions were called.
    touched: u64,
    /// Whether messages were handled since all functions were called: a handler of the program may have left work
    /// in any layer's state.
    served: bool,
    /// Whether a function is to be called at every poll.
    again: bool,
    /// Whether a function has work left.
    work_left: bool,
    /// Whether a function was not told yet that the endpoint is about to idle.
    unsettled: bool,
    /// Whether a function has done something since a wait last looked.
    advanced: bool,
    /// Polls without a message, and such that served something, since all functions were called.
    polls: [u32; 2],
    /// When a function wants to be called next.
    wake: Option<Instant>,
}

impl LayerSchedule {
    /// Lets progress functions be called from now on, if there are any, all of them first.
    pub(super) fn start(&mut self, any: bool) {
        self.on = any;
        self.touched = u64::MAX;
    }

    /// Whether there are progress functions that may be called.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Remembers that handlers of some layers have run, or that their states were entered.
    #[inline(always)]
    pub(super) fn touch(&mut self, layers: u64) {
        self.touched |= layers;
    }

    /// Whether a layer has work left, or may have.
    #[inline]
    pub(super) fn work_left(&self) -> bool {
        self.on && (self.work_left || self.touched != 0)
    }

    /// Whether a function has done something since this was last asked.
    #[inline]
    pub(super) fn has_advanced(&mut self) -> bool {
        std::mem::take(&mut self.advanced)
    }

    /// The nearer of a time to wait for and the time that a function asked for.
    #[inline]
    pub(super) fn nearest(&self, until: Option<Instant>) -> Option<Instant> {
        match (until, self.wake) {
            (Some(until), Some(wake)) => Some(until.min(wake)),
            (until, wake) => until.or(wake),
        }
    }

    /// Counts a poll; whether all functions are to be called after it.
    #[inline]
    fn count(&mut self, served: bool) -> bool {
        self.served |= served;
        let polls = &mut self.polls[usize::from(served)];
        *polls += 1;
        *polls >= if served { BUSY_POLLS } else { EMPTY_POLLS }
    }
}

/// Whether memory has changed that a layer watches.
fn have_changed<S>(layers: &[Advance<S>], state: &S) -> bool {
    let watching = layers.iter().filter(|layer| layer.last >= Progress::Watching);
    watching.filter_map(|layer| layer.changed.as_ref()).any(|changed| changed(state))
}

impl<T: Transport, S> Endpoint<T, S> {
    /// Lets the layers carry on that a poll has touched, or that have reason to.
    #[inline]
    pub(super) fn advance_touched(&mut self, served: bool) {
        let all = self.schedule.count(served);
        let LayerSchedule { again, touched, wake, .. } = self.schedule;
        if all || again || wake.is_some() && self.is_time(false) {
            self.advance_layers(all, false);
        } else if touched != 0 {
            // What most messages are for leaves nothing to do, which takes a look for each layer.
            let mut layers = self.table.layers.iter();
            if layers.any(|layer| touched & layer.after != 0 && layer.is_pending(&self.state)) {
                self.advance_layers(false, false);
            } else {
                self.schedule.touched = 0;
            }
        }
    }

    /// Whether the time has come that a layer waits for. While a transport spins, the clock is not looked at for
    /// that: every sixteenth empty poll calls the layer.
    fn is_time(&self, sleeps: bool) -> bool {
        let looks = sleeps || !self.transport.spins();
        looks && self.schedule.wake.is_some_and(|at| self.transport.now() >= at)
    }

    /// Calls the progress functions of the layers that were touched and do not say that this has left nothing to
    /// do, that have work left or watch memory, and those whose time has come; `all` others, too. With `idle`,
    /// those that do not know yet that the endpoint is about to.
    #[inline(never)]
    pub(super) fn advance_layers(&mut self, all: bool, idle: bool) {
        let anyone_touched = self.schedule.served;
        if all {
            (self.schedule.served, self.schedule.polls) = (false, [0; 2]);
        }
        let touched = std::mem::take(&mut self.schedule.touched);
        let now = self.schedule.wake.map(|_| self.transport.now());
        let mut next = LayerSchedule { on: true, served: self.schedule.served, ..LayerSchedule::default() };
        for (index, layer) in self.table.layers.iter_mut().enumerate() {
            let time = layer.wake.is_some_and(|at| now.is_some_and(|now| now >= at));
            let busy = matches!(layer.last, Progress::Watching | Progress::Blocked);
            let asked = layer.last == Progress::Advanced || touched & layer.after != 0;
            let due = busy || time || asked && layer.is_pending(&self.state);
            if !due && layer.last == Progress::Advanced {
                layer.last = Progress::Idle;
            }
            let unsettled = idle && !layer.settled;
            if !(all || due || unsettled) {
                next.unsettled |= !layer.settled;
                next.wake = next.nearest(layer.wake);
                continue;
            }
            if self.layer_errors.iter().any(|(of, _)| *of == index) {
                // What it fails with next would be lost.
                (next.work_left, next.again, layer.last) = (true, true, Progress::Blocked);
                continue;
            }
            let mut outbox = Outbox::new(&mut self.transport.transport, &mut self.sender, idle);
            let outcome = (layer.progress)(&mut self.state, &mut outbox);
            (layer.lacks, layer.wake) = (outbox.refused(), outbox.wake());
            layer.last = outcome.unwrap_or_else(|error| {
                // The program learns of a loss as of any other.
                if error.lost_rank().is_none() && !matches!(error, SendError::Finished { .. }) {
                    self.layer_errors.push_back((index, Box::new(error)));
                }
                Progress::Blocked
            });
            // A look that finds nothing leaves a function as settled as it was.
            let settled = idle || layer.settled && !due && !anyone_touched;
            layer.settled = settled && layer.last == Progress::Idle;
            next.work_left |= layer.last >= Progress::Blocked;
            next.again |= layer.last >= Progress::Watching;
            next.advanced |= layer.last == Progress::Advanced;
            next.unsettled |= !layer.settled;
            next.wake = next.nearest(layer.wake);
        }
        next.advanced |= self.schedule.advanced;
        self.schedule = LayerSchedule { polls: self.schedule.polls, touched: self.schedule.touched, ..next };
    }

    /// Gives the layers the last chance before the endpoint idles: none if one of them advances, or what to idle
    /// for. In the first `steps` of a wait, on a transport that spins, these are the layers that were touched;
    /// before a sleep they are all.
    #[inline]
    pub(super) fn reason_to_idle(
        &mut self,
        reason: WaitReason,
        steps: u32,
    ) -> Result<Option<WaitReason>, PollError> {
        if !self.schedule.on {
            return Ok(Some(reason));
        }
        let LayerSchedule { again, unsettled, touched, .. } = self.schedule;
        let sleeps = steps >= SPINS || !self.transport.spins();
        // Nobody may be forgotten during a sleep: work comes from other layers, too, and by looks that touch
        // nothing.
        if again || unsettled || touched != 0 || sleeps {
            self.advance_layers(sleeps, true);
        }
        if !(self.trouble.is_empty() && self.layer_errors.is_empty()) {
            self.tell_trouble()?;
        }
        if self.schedule.has_advanced() {
            return Ok(None);
        }
        if !self.schedule.work_left || reason != WaitReason::Message {
            return Ok(Some(reason));
        }
        let lacks = self.table.layers.iter().rev().find_map(|layer| layer.lacks);
        Ok(Some(lacks.map_or(reason, |(peer, resource)| WaitReason::Room(peer, resource))))
    }

    /// Idles, unless memory that layers watch has changed.
    #[inline]
    pub(super) fn idle(&mut self, until: Option<Instant>, reason: WaitReason) {
        if !self.schedule.again {
            return self.transport.idle(until, reason);
        }
        let (layers, state) = (&self.table.layers, &self.state);
        self.transport.idle_unless(until, reason, &mut || have_changed(layers, state));
    }

    /// Calls the progress functions of the layers once more before a caller that waits by other means than the
    /// waits of this type sleeps: none may then be held back any longer. Whether one of them advanced, so that
    /// what is waited for may be there. Otherwise the sleep ends at [`Endpoint::wake_time`].
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    pub fn progress_layers(&mut self) -> Result<bool, PollError> {
        Ok(self.reason_to_idle(WaitReason::Message, u32::MAX)?.is_none())
    }

    /// The nearest time at which a layer wants to be called ([`Outbox::wake_at`]), as of its last call: for who
    /// waits by other means than the waits of this type, and polls then.
    #[inline]
    pub fn wake_time(&self) -> Option<Instant> {
        self.schedule.wake
    }

    /// The nearer of a time to wait for and [`Endpoint::wake_time`].
    pub(crate) fn wakes_by(&self, until: Option<Instant>) -> Option<Instant> {
        self.schedule.nearest(until)
    }

    /// Hands over everything sent so far, and has the transport call a waker when something may be there
    /// ([`Waiting::notify`](crate::Waiting::notify)): for who sleeps by other means than the waits of this type,
    /// after a poll has found nothing and [`progress_layers`](Self::progress_layers) neither.
    pub fn notify(&mut self, waker: &Waker) -> Notify {
        self.notified(|transport| transport.notify(waker))
    }

    /// As [`Endpoint::notify`], by the transport's descriptor
    /// ([`Waiting::notify_readable`](crate::Waiting::notify_readable)).
    pub fn notify_readable(&mut self, waker: &Waker) -> Notify {
        self.notified(|transport| transport.notify_readable(waker))
    }

    /// A descriptor that [`Endpoint::notify_readable`] makes readable
    /// ([`Waiting::descriptor`](crate::Waiting::descriptor)).
    pub fn descriptor(&mut self) -> Option<OwnedFd> {
        self.transport.descriptor()
    }

    /// Tells the transport that its waker need not be called, after a sleep that something else has ended
    /// ([`Waiting::end_notify`](crate::Waiting::end_notify)).
    pub fn end_notify(&mut self) {
        self.transport.end_notify();
    }

    fn notified(&mut self, notify: impl FnOnce(&mut T) -> Notify) -> Notify {
        self.sender.stats.idles += 1;
        match notify(&mut self.transport) {
            // Looked at only now, when peers that change something know that the waker is to be called.
            Notify::Armed if self.schedule.again && have_changed(&self.table.layers, &self.state) => Notify::Ready,
            notified => notified,
        }
    }

    /// Whether every request that this endpoint sent has been handled, and no layer has work left.
    pub(crate) fn is_drained(&mut self) -> bool {
        if self.schedule.on && self.transport.is_quiescent() {
            self.advance_layers(true, true);
        }
        !self.schedule.work_left() && self.transport.is_quiescent()
    }

    /// The state of a layer, without calling its progress function at the next poll: for looks that leave no work,
    /// or work that can wait until the endpoint sleeps or has polled some times.
    #[inline]
    pub fn layer_unscheduled<L>(&mut self) -> &mut L
    where
        S: HasLayer<L>,
    {
        self.state.as_layer_mut()
    }

    /// The layers that could not do all of their work, and what they lack.
    pub(super) fn layer_work(&self) -> Vec<LayerWork> {
        let blocked = self.table.layers.iter().filter(|layer| layer.last == Progress::Blocked);
        let lacks = |(peer, resource)| (self.sender.shape.address(peer), resource);
        blocked.map(|layer| LayerWork { layer: layer.name.clone(), lacks: layer.lacks.map(lacks) }).collect()
    }
}
