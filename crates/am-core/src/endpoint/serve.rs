//! Polling and waiting: how an [`Endpoint`] serves what arrives and passes the time until something does.

use super::Endpoint;
use super::collective::Control;
use super::dispatch::Dispatcher;
use crate::address::{Address, Destination, Peer, Rank};
use crate::error::{PollError, WaitError};
use crate::segment::{AnyMemory, Segment};
use crate::stall::{self, StallReport};
use crate::time::{Instant, Span};
use crate::transport::{LossCause, PeerStatus, Transport, WaitReason};
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Messages that one `poll` serves at most.
pub(super) const DEFAULT_BUDGET: usize = 1024;

/// Polls without a message, after which an endpoint looks for a request for its stall report.
const POLLS: u64 = 16;

/// Steps of a wait that served something, after which it looks at its deadline all the same.
const LOOKS: u32 = 64;

/// Fruitless steps of a wait, on a transport that spins, after which asking for the time no longer delays what is
/// waited for.
const SPINS: u32 = 64;

/// Rounds of polls in which what a lost peer had sent is looked for.
const LAST_WORDS: u32 = 64;

/// What a loss that nobody has acknowledged does to a wait.
#[derive(Clone, Copy, PartialEq)]
enum Losses {
    /// It ends the wait.
    End,
    /// Whoever waits looks at losses itself.
    Pass,
}

/// How a thread's wait on a shared endpoint goes.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// When it began, for the endpoint's time-out.
    began: Option<Instant>,
    /// Fruitless steps in a row.
    pub(crate) fruitless: u32,
    /// Steps so far.
    pub(crate) steps: u32,
}

impl<T: Transport, S> Endpoint<T, S> {
    /// Serves what has arrived, at most `budget` messages; returns how many.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    #[inline]
    pub fn poll_budget(&mut self, budget: usize) -> Result<usize, PollError> {
        let mut handled = 0;
        if self.transport.may_deliver() {
            handled = self.deliver(budget);
        }
        if handled == 0 {
            self.sender.stats.empty_polls += 1;
            // Rarely, since an empty poll takes hardly longer than this question.
            if self.sender.stats.empty_polls.is_multiple_of(POLLS) {
                self.look_for_requests();
            }
        }
        if self.schedule.is_on() {
            self.advance_touched(handled != 0);
        }
        if !self.sender.abandoned.is_empty() {
            self.return_abandoned();
        }
        if !(self.trouble.is_empty() && self.layer_errors.is_empty())
            || self.transport.losses() != self.losses_seen
        {
            self.tell_trouble()?;
        }
        Ok(handled)
    }

    /// Hands what has arrived to its handlers, at most `budget` messages; returns how many.
    #[inline(always)]
    fn deliver(&mut self, budget: usize) -> usize {
        let mut dispatcher = Dispatcher {
            table: &mut self.table,
            state: &mut self.state,
            sender: &mut self.sender,
            segment: self.segment.borrow(),
            control: &mut self.control,
            schedule: &mut self.schedule,
            trouble: &mut self.trouble,
        };
        self.transport.poll(budget, &mut dispatcher)
    }

    /// Prints the report that was requested of all endpoints, if one was since the last look.
    #[cold]
    fn look_for_requests(&mut self) {
        if self.reports_seen != stall::requests() {
            self.reports_seen = stall::requests();
            stall::print(&self.stall_report());
        }
    }

    /// Gives back the credits of pending replies that were dropped unanswered.
    #[cold]
    fn return_abandoned(&mut self) {
        while let Some((key, handler)) = self.sender.abandoned.pop() {
            let tally = &mut self.sender.directory.tallies[usize::from(handler)];
            tally.detached = tally.detached.saturating_sub(1);
            tally.forgotten += 1;
            self.transport.reply_detached(key, |_| ());
        }
    }

    #[cold]
    pub(super) fn tell_trouble(&mut self) -> Result<(), PollError> {
        if let Some(trouble) = self.trouble.pop_front() {
            return Err(trouble);
        }
        if let Some((_, error)) = self.layer_errors.pop_front() {
            return Err(PollError::Progress(error));
        }
        self.losses_seen = self.transport.losses();
        self.schedule.touch(u64::MAX);
        let Some((rank, cause)) = self.unacknowledged_loss() else { return Ok(()) };
        self.told = Some(std::mem::replace(&mut self.transport.loss_told, true));
        crate::trace::lost(rank, cause);
        self.sender.tell_loss(rank);
        Err(PollError::PeerLost { rank, cause })
    }

    /// A lost rank that [`Endpoint::acknowledge_loss`] has not been called for, and why it is lost; of several
    /// rather one that broke down than one that merely left. A poll tells each loss once, while waits fail as long
    /// as there is such a rank: for who waits by other means than the waits of this type. Does not allocate; looks
    /// at every peer.
    pub fn unacknowledged_loss(&self) -> Option<(Rank, LossCause)> {
        self.root_loss(|rank| !self.acknowledged.contains(&rank))
    }

    /// The loss to tell among those of some ranks: rather a rank that broke down than one that merely left, which
    /// often does so because of the other.
    pub(super) fn root_loss(&self, of: impl Fn(Rank) -> bool) -> Option<(Rank, LossCause)> {
        let lost = (0..self.sender.shape.peers()).map(Peer).filter_map(|peer| match self.transport.status(peer) {
            PeerStatus::Lost(cause) => Some((self.sender.shape.address(peer).rank, cause)),
            _ => None,
        });
        lost.filter(|(rank, _)| of(*rank)).min_by_key(|(_, cause)| *cause == LossCause::Left)
    }

    /// Serves what has arrived until a look at every peer finds nothing more: what a rank sent before it was lost,
    /// for instance.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    pub fn poll_until_empty(&mut self) -> Result<(), PollError> {
        let mut fruitless = 0;
        while fruitless < self.transport.polls_per_sweep() {
            // No part of the network is left alone, not even one that the poll before left alone.
            self.transport.flush();
            fruitless = if self.poll()? == 0 { fruitless + 1 } else { 0 };
        }
        Ok(())
    }

    /// A loss ends a wait, unless what is waited for has come all the same: serves what has arrived from those
    /// that are gone, for a last look, 64 turns of the network at most. Whether there was a loss. Errors of
    /// handlers and layers, and further losses, are told by the next poll.
    #[cold]
    pub(crate) fn serve_last_words(&mut self, error: &WaitError) -> bool {
        if !matches!(error, WaitError::Poll(PollError::PeerLost { .. })) {
            return false;
        }
        self.look_for_last_words();
        true
    }

    /// [`Endpoint::serve_last_words`] where a loss is known.
    #[cold]
    pub(crate) fn look_for_last_words(&mut self) {
        let (seen, told) = (self.losses_seen, self.told);
        self.look_until_empty();
        (self.losses_seen, self.told) = (seen, told);
    }

    /// Serves what has arrived until a look at every peer finds nothing more, 64 turns of the network at most:
    /// others may go on sending. Errors of handlers and layers are told by the next poll.
    #[cold]
    fn look_until_empty(&mut self) {
        let mut deferred = VecDeque::new();
        let round = self.transport.polls_per_sweep();
        let mut fruitless = 0;
        for _ in 0..round.saturating_mul(LAST_WORDS) {
            // As in `poll_until_empty`.
            self.transport.flush();
            fruitless = match self.poll() {
                Ok(0) => fruitless + 1,
                Ok(_) | Err(PollError::PeerLost { .. }) => 0,
                Err(error) => {
                    error.keep(&mut deferred);
                    0
                }
            };
            if fruitless == round {
                break;
            }
        }
        deferred.into_iter().for_each(|error| error.keep(&mut self.trouble));
    }

    /// Has the next poll tell again of a loss that a poll or wait has told of: for who goes on because what it
    /// waited for is there.
    pub fn report_loss_again(&mut self) {
        if let Some(before) = self.told.take() {
            // No endpoint has so many peers.
            self.losses_seen = u32::MAX;
            self.transport.loss_told = before;
        }
    }

    /// Has a later poll or wait fail with what a poll has failed with: for a layer's call that does not end with
    /// this error.
    pub fn defer_error(&mut self, error: PollError) {
        error.keep(&mut self.trouble);
    }

    /// One step of a wait: serves what is there, else looks for reasons to give up, else idles.
    pub(super) fn wait_step(&mut self, deadline: Option<Instant>, reason: WaitReason) -> Result<(), WaitError> {
        self.wait_step_until(deadline, None, reason, Losses::End)
    }

    /// [`Endpoint::wait_step`] that idles until `glance` at most.
    fn wait_step_until(
        &mut self,
        deadline: Option<Instant>,
        glance: Option<Instant>,
        reason: WaitReason,
        losses: Losses,
    ) -> Result<(), WaitError> {
        (self.reason, self.told) = (Some(reason), None);
        let served = self.poll()? != 0;
        self.wait_steps = self.wait_steps.wrapping_add(1);
        // Steady traffic ends no wait early, but it does not keep one from ending either.
        if served && !self.wait_steps.is_multiple_of(LOOKS) {
            return Ok(());
        }
        let advanced = self.schedule.has_advanced();
        if losses == Losses::End
            && self.losses_seen != 0
            && let Some((rank, cause)) = self.unacknowledged_loss()
        {
            return Err(PollError::PeerLost { rank, cause }.into());
        }
        let mut until = deadline;
        if self.timeout.is_some() || deadline.is_some() {
            let now = self.transport.now();
            let began = *self.wait_began.get_or_insert(now);
            if let Some(timeout) = self.timeout {
                let limit = began + timeout;
                until = Some(until.map_or(limit, |deadline| deadline.min(limit)));
            }
            if until.is_some_and(|limit| now >= limit) {
                let report = self.stall_report();
                crate::trace::timed_out(&report);
                return Err(WaitError::TimedOut(Box::new(report)));
            }
        } else if self.wait_began.is_none() && (self.wait_steps >= SPINS || !self.transport.spins()) {
            self.wait_began = Some(self.transport.now());
        }
        if self.reports_seen != stall::requests() {
            self.look_for_requests();
        }
        if served || advanced {
            return Ok(());
        }
        let Some(reason) = self.reason_to_idle(reason, self.wait_steps)? else { return Ok(()) };
        self.sender.stats.idles += 1;
        if let Some(glance) = glance {
            until = Some(until.map_or(glance, |until| until.min(glance)));
        }
        self.idle(self.schedule.nearest(until), reason);
        Ok(())
    }

    /// [`Endpoint::poll`] for a layer that learns of losses by itself: they are left for the program's polls.
    ///
    /// # Errors
    /// What handlers and layers fail with.
    pub fn poll_through(&mut self) -> Result<usize, PollError> {
        let told = self.losses_seen;
        let polled = self.poll();
        self.losses_seen = told;
        match polled {
            Err(PollError::PeerLost { .. }) => Ok(0),
            polled => polled,
        }
    }

    /// Serves what has arrived, 64 turns of the network at most, for a layer that learns of losses by itself: they
    /// are left for the program's polls, and errors of handlers and layers, too.
    pub fn serve_through(&mut self) {
        let told = self.losses_seen;
        self.look_until_empty();
        self.losses_seen = told;
    }

    /// One step of a wait that other threads take part in: serves what is there, else looks for reasons to give
    /// up. Whether anything was served.
    pub(crate) fn serve_what_is_there(&mut self, rest: &mut Rest) -> Result<bool, WaitError> {
        if self.poll()? != 0 || self.schedule.has_advanced() {
            rest.fruitless = 0;
            return Ok(true);
        }
        rest.fruitless = rest.fruitless.saturating_add(1);
        if self.losses_seen != 0
            && let Some((rank, cause)) = self.unacknowledged_loss()
        {
            return Err(PollError::PeerLost { rank, cause }.into());
        }
        if self.reason_to_idle(WaitReason::Message, rest.fruitless)?.is_none() {
            return Ok(true);
        }
        Ok(false)
    }

    /// Fails if a thread's wait has lasted longer than the endpoint's time-out; prints a report that was
    /// requested.
    pub(crate) fn look_at_clock(&mut self, rest: &mut Rest) -> Result<(), WaitError> {
        let now = self.transport.now();
        self.look_after_wait(*rest.began.get_or_insert(now))
    }

    /// For who waits by other means than the waits of this type, as by `await`: what those do at every fruitless
    /// look. Prints a report as [`Endpoint::tell_if_asked`] does. To be called when a poll has found nothing, and
    /// at least every second. Does not block; allocates only for a report.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] if a wait that began then has lasted for longer than the endpoint's
    /// [time-out](Endpoint::timeout).
    pub fn look_after_wait(&mut self, began: Instant) -> Result<(), WaitError> {
        if self.timeout.is_some_and(|timeout| self.transport.now() >= began + timeout) {
            let report = self.report_of(began);
            crate::trace::timed_out(&report);
            return Err(WaitError::TimedOut(Box::new(report)));
        }
        self.tell_if_asked(Some(began));
        Ok(())
    }

    /// Prints the [report](stall::request) that was requested of all endpoints, if one was since the last look; of
    /// a wait, if one has begun. For who waits by other means than the waits of this type, before each poll, since
    /// a poll knows of no wait. Does not block, unless the report's printer does; allocates only for a report.
    #[inline]
    pub fn tell_if_asked(&mut self, began: Option<Instant>) {
        if self.reports_seen != stall::requests() {
            match began {
                None => self.look_for_requests(),
                Some(began) => {
                    self.reports_seen = stall::requests();
                    stall::print(&self.report_of(began));
                }
            }
        }
    }

    /// The report of a wait by other means, or of one that threads share.
    #[cold]
    pub(crate) fn report_of(&mut self, began: Instant) -> StallReport {
        (self.reason, self.wait_began) = (Some(WaitReason::Message), Some(began));
        let mut report = self.stall_report();
        self.end_wait();
        // Others may have sent since this wait began.
        report.unanswered.iter_mut().for_each(|unanswered| unanswered.age = None);
        report
    }

    /// Serves what has arrived, at most 1024 messages; if nothing has, idles until something may have, for at most
    /// `span`, and serves that. Returns how many. One step of a loop that waits for other things, too. Does not
    /// allocate.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    pub fn poll_or_idle(&mut self, span: Span) -> Result<usize, PollError> {
        let handled = self.poll()?;
        if handled != 0 || self.schedule.has_advanced() {
            return Ok(handled);
        }
        let Some(reason) = self.reason_to_idle(WaitReason::Message, u32::MAX)? else { return Ok(0) };
        self.sender.stats.idles += 1;
        let until = self.transport.now() + span;
        self.idle(self.schedule.nearest(Some(until)), reason);
        self.poll()
    }

    /// Serves incoming messages until `done` holds. Blocks; does not allocate.
    ///
    /// # Errors
    /// A lost peer that has not been acknowledged (the condition might depend on it) while the condition does not
    /// hold, a bad message, or a time-out. Waiting again is allowed.
    #[inline]
    pub fn wait_until(&mut self, mut done: impl FnMut(&S) -> bool) -> Result<(), WaitError> {
        self.wait_while(None, |state, _| !done(state))
    }

    /// [`Endpoint::wait_until`], for at most `span`.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until`], and [`WaitError::TimedOut`] when `span` has passed.
    pub fn wait_until_for(&mut self, span: Span, mut done: impl FnMut(&S) -> bool) -> Result<(), WaitError> {
        let now = self.transport.now();
        self.wait_began = Some(now);
        let deadline = now + span;
        self.wait_while(Some(deadline), |state, _| !done(state))
    }

    /// Waits until every request that this endpoint sent has been handled at its destination, or that is gone, and
    /// no layer has work left, serving incoming messages meanwhile. Replies have arrived then, but polls may still
    /// have to serve them: operations of [one-sided access](crate::one_sided) are done at their targets, and may
    /// count as under way until [`Endpoint::quiet`]. Blocks; does not allocate. A following [`Endpoint::barrier`]
    /// tells that the same holds for everyone.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until`].
    pub fn drain(&mut self) -> Result<(), WaitError> {
        if self.schedule.is_on() {
            self.advance_layers(true, true);
        }
        self.transport.flush();
        while !self.is_drained() {
            if let Err(error) = self.wait_step(None, WaitReason::Handling) {
                let quiet = self.serve_last_words(&error) && self.is_drained();
                self.end_wait();
                if quiet {
                    self.report_loss_again();
                    return Ok(());
                }
                return Err(error);
            }
        }
        self.end_wait();
        Ok(())
    }

    #[inline]
    pub(super) fn wait_while(
        &mut self,
        deadline: Option<Instant>,
        mut waiting: impl FnMut(&S, &Control) -> bool,
    ) -> Result<(), WaitError> {
        let outcome = loop {
            if !waiting(&self.state, &self.control) {
                break Ok(());
            }
            if let Err(error) = self.wait_step(deadline, WaitReason::Message) {
                if self.serve_last_words(&error) && !waiting(&self.state, &self.control) {
                    self.report_loss_again();
                    break Ok(());
                }
                break Err(error);
            }
        };
        self.end_wait();
        outcome
    }

    /// Serves incoming messages until `done` yields something: the wait that layers build theirs on. `done` sees
    /// the endpoint, and is called before each step, so that it is cheap; [`Endpoint::layer_unscheduled`] is its
    /// way to a layer's state. Blocks; does not allocate.
    ///
    /// # Errors
    /// What `done` fails with; as [`Endpoint::wait_until`].
    pub fn wait_for<R, E: From<WaitError>>(
        &mut self,
        mut done: impl FnMut(&mut Self) -> Result<Option<R>, E>,
    ) -> Result<R, E> {
        let outcome = loop {
            match done(self) {
                Ok(Some(result)) => break Ok(result),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if let Err(error) = self.wait_step(None, WaitReason::Message) {
                if self.serve_last_words(&error)
                    && let Some(outcome) = done(self).transpose()
                {
                    self.report_loss_again();
                    break outcome;
                }
                break Err(error.into());
            }
        };
        self.end_wait();
        outcome
    }

    /// [`Endpoint::wait_for`] that nothing but `done` and the endpoint's time-out end early: the wait of
    /// collective operations, which others would wait for in vain if they stopped halfway. `done` breaks with a
    /// result, or says what to idle for: a peer that is named there ends the idling when it leaves. Losses are for
    /// `done` to look at ([`Endpoint::losses`]). Errors of handlers and layers, and losses that `done` did not end
    /// the wait for, are told by the next poll or wait. Blocks; does not allocate.
    ///
    /// # Errors
    /// What `done` fails with, and [`WaitError::TimedOut`].
    pub fn wait_through<R, E: From<WaitError>>(
        &mut self,
        mut done: impl FnMut(&mut Self) -> Result<ControlFlow<R, WaitReason>, E>,
    ) -> Result<R, E> {
        let (mut deferred, told) = (None, self.losses_seen);
        let outcome = loop {
            let reason = match done(self) {
                Ok(ControlFlow::Break(result)) => break Ok(result),
                Ok(ControlFlow::Continue(reason)) => reason,
                Err(error) => break Err(error),
            };
            match self.wait_step_until(None, None, reason, Losses::Pass) {
                Ok(()) => {}
                Err(WaitError::Poll(PollError::PeerLost { .. })) => {}
                Err(WaitError::Poll(error)) => error.keep(deferred.get_or_insert_with(VecDeque::new)),
                Err(error) => break Err(error.into()),
            }
        };
        self.end_wait();
        deferred.into_iter().flatten().for_each(|error| error.keep(&mut self.trouble));
        // The next poll looks once more, and tells those that have not been acknowledged.
        self.losses_seen = told;
        outcome
    }

    /// [`Endpoint::wait_through`] that never idles, for what is about to come: polls in a loop until `done` yields
    /// something, for `span` at most, by a look at the clock every 16th time. `None` if it has not come. Where the
    /// transport does not [spin](crate::Waiting::spins), as with more endpoints than processors, whoever would
    /// bring it may need this processor: it polls once there. What polls fail with is told by the next poll or
    /// wait. Does not allocate.
    ///
    /// # Errors
    /// What `done` fails with.
    pub fn spin_through<R, E>(
        &mut self,
        span: Span,
        mut done: impl FnMut(&mut Self) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        let (mut deferred, mut until) = (VecDeque::new(), None);
        let outcome = 'spun: {
            for step in 1u32.. {
                match done(self) {
                    Ok(None) => {}
                    outcome => break 'spun outcome,
                }
                if let Err(error) = self.poll_through() {
                    error.keep(&mut deferred);
                }
                let looks = step.is_multiple_of(16);
                if !self.transport.spins()
                    || looks && {
                        let now = self.transport.now();
                        now >= *until.get_or_insert(now + span)
                    }
                {
                    break;
                }
            }
            done(self)
        };
        deferred.into_iter().for_each(|error| error.keep(&mut self.trouble));
        outcome
    }

    /// Serves incoming messages until `done` holds, looking at least every `glance`; not reported as a stall
    /// before the endpoint's time-out.
    pub(crate) fn wait_glancing(
        &mut self,
        glance: Span,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<(), WaitError> {
        let outcome = loop {
            if done(self) {
                break Ok(());
            }
            let until = self.transport.now() + glance;
            if let Err(error) = self.wait_step_until(None, Some(until), WaitReason::Message, Losses::End) {
                if self.serve_last_words(&error) && done(self) {
                    self.report_loss_again();
                    break Ok(());
                }
                break Err(error);
            }
        };
        self.end_wait();
        outcome
    }

    /// Lets others use this processor once, as a wait does between two looks, but neither polls nor sleeps: for
    /// layers that look at memory which a peer is about to change, where the transport does not
    /// [spin](crate::Waiting::spins).
    pub fn give_way(&mut self) {
        let now = self.transport.now();
        self.transport.idle(Some(now), WaitReason::Message);
    }

    /// The auxiliary segment of an endpoint, where this process sees it: memory for layers
    /// ([`Transport::auxiliary`]). Allocates.
    pub fn auxiliary(&self, of: impl Destination) -> Option<Segment<AnyMemory>> {
        self.transport.auxiliary(self.sender.shape.peer(of.address())?)
    }

    /// Ends the idling of a peer that waits for a change of memory which both see; to be called after the change.
    /// Does nothing outside the job. Cheap where the peer does not sleep.
    #[inline]
    pub fn wake_peer(&mut self, of: impl Destination) {
        if let Some(peer) = self.sender.shape.peer(of.address()) {
            self.transport.wake_peer(peer);
        }
    }

    /// How many endpoints have been lost so far: cheap, to see whether anything has changed since the last look at
    /// their [`status`](Endpoint::status).
    #[inline]
    pub fn losses(&self) -> u32 {
        self.transport.losses()
    }

    /// The addresses of all endpoints but this one.
    pub fn others(&self) -> impl Iterator<Item = Address> + use<T, S> {
        let (shape, me) = (self.sender.shape, self.transport.local_peer());
        (0..shape.peers()).map(Peer).filter(move |peer| *peer != me).map(move |peer| shape.address(peer))
    }
}
