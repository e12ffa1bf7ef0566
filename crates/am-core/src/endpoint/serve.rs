//! Polling and waiting: how an [`Endpoint`] serves what arrives and passes the time until something does.

use super::Endpoint;
use super::collective::Control;
use crate::address::{Address, Peer, Rank, Shape};
use crate::arguments::Words;
use crate::error::{BadMessage, PollError, WaitError};
use crate::handlers::{Code, Fault, Handled, Table};
use crate::outcome::HandlerFailure;
use crate::payload::Payload;
use crate::stall;
use crate::stats::Statistics;
use crate::supervision;
use crate::time::{Instant, Span};
use crate::token::{Abandoned, Outcome, Token, TokenContext};
use crate::transport::{Arrival, LossCause, PeerStatus, Port, ReplyBound, Sink, Transport, WaitReason};
use std::cell::Cell;
use std::sync::Arc;

/// Messages that one `poll` serves at most.
pub(super) const DEFAULT_BUDGET: usize = 1024;

/// Polls without a message, after which an endpoint looks for a request for its stall report.
const POLLS: u64 = 16;

/// Fruitless steps of a wait, on a transport that spins, after which asking for the time no longer delays what is waited for.
const SPINS: u32 = 64;

/// Runs handlers for what a transport delivers.
struct Dispatcher<'a, S> {
    table: &'a mut Table<S>,
    state: &'a mut S,
    stats: &'a mut Statistics,
    control: &'a mut Control,
    abandoned: &'a Arc<Abandoned>,
    shape: Shape,
    trouble: &'a mut Option<PollError>,
}

impl<S> Dispatcher<'_, S> {
    #[cold]
    fn drop_message(&mut self, arrival: &Arrival<'_>, reason: BadMessage) {
        self.stats.bad_messages += 1;
        let (from, handler) = (self.shape.address(arrival.from), arrival.handler);
        crate::trace::dropped(from, handler, reason);
        self.trouble.get_or_insert(PollError::BadMessage { from, handler, reason });
    }

    /// A message that did not fit its handler, or whose handler failed.
    #[cold]
    fn unwell(&mut self, arrival: &Arrival<'_>, fault: Fault) {
        let Fault::Failed(error) = fault else {
            return self.drop_message(arrival, BadMessage::WrongArguments { words: arrival.args.len() });
        };
        self.stats.failed += 1;
        let (handler, from) = (self.table.name(arrival.handler), self.shape.address(arrival.from));
        let failure = HandlerFailure { handler, from, error };
        crate::trace::failed(&failure);
        self.trouble.get_or_insert_with(|| PollError::Handler(Box::new(failure)));
    }

    /// Counts a request whose handler has run.
    #[inline(always)]
    fn count_request(&mut self, arrival: &Arrival<'_>, handled: Handled) {
        if let Some(fault) = handled {
            self.unwell(arrival, *fault);
        }
        self.stats.requests_received[arrival.category as usize].count(arrival.payload.len());
    }

    /// Counts a request whose handler has not replied.
    #[inline(never)]
    fn not_replied(&mut self, handler: u8, outcome: Outcome, handled: &Handled) {
        let tally = &mut self.table.tallies[usize::from(handler)];
        match outcome {
            Outcome::Detached => {
                self.stats.detached += 1;
                tally.detached += 1;
            }
            Outcome::Unused if !matches!(handled.as_deref(), Some(Fault::Misfit)) => tally.forgotten += 1,
            Outcome::Unused | Outcome::Gone | Outcome::Replied => {}
        }
    }

    #[cold]
    fn misfit(&mut self, arrival: &Arrival<'_>) {
        let known = usize::from(arrival.handler) < self.table.codes.len();
        let reason = if known { BadMessage::WrongDirection } else { BadMessage::UnknownHandler };
        self.drop_message(arrival, reason);
    }
}

impl<S> Sink for Dispatcher<'_, S> {
    #[inline(always)]
    fn request(&mut self, arrival: Arrival<'_>, port: &mut dyn Port) {
        let from = self.shape.address(arrival.from);
        match self.table.codes.get_mut(usize::from(arrival.handler)) {
            Some(Code::OneWay(code)) => {
                let handled = code(self.state, from, arrival.args, arrival.payload);
                self.count_request(&arrival, handled);
            }
            Some(Code::Request(code)) => {
                let bound = match self.table.bounds[usize::from(arrival.handler)] {
                    ReplyBound::None => 0,
                    ReplyBound::UpTo(bytes) => bytes as usize,
                };
                let outcome = Cell::new(Outcome::Unused);
                let (handler, table) = (arrival.handler, self.table.serial);
                let context = TokenContext { from, handler, table, bound, abandoned: self.abandoned, outcome };
                let token = Token::new(port, &context);
                let handled = code(self.state, token, arrival.args, arrival.payload);
                match context.outcome.get() {
                    Outcome::Replied => self.stats.replies_sent += 1,
                    outcome => self.not_replied(handler, outcome, &handled),
                }
                self.count_request(&arrival, handled);
            }
            _ => self.misfit(&arrival),
        }
    }

    #[inline]
    fn reply(&mut self, arrival: Arrival<'_>) {
        let from = self.shape.address(arrival.from);
        let Some(Code::Reply(code)) = self.table.codes.get_mut(usize::from(arrival.handler)) else {
            return self.misfit(&arrival);
        };
        let handled = code(self.state, from, arrival.args, arrival.payload);
        if let Some(fault) = handled {
            self.unwell(&arrival, *fault);
        }
        self.stats.replies_received[arrival.category as usize].count(arrival.payload.len());
    }

    #[cold]
    fn control(&mut self, _: Peer, args: &Words, payload: Payload<'_>) {
        self.control.receive(args, payload);
    }
}

impl<T: Transport, S> Endpoint<T, S> {
    /// Serves what has arrived, at most `budget` messages; returns how many.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    #[inline]
    pub fn poll_budget(&mut self, budget: usize) -> Result<usize, PollError> {
        let mut dispatcher = Dispatcher {
            table: &mut self.table,
            state: &mut self.state,
            stats: &mut self.stats,
            control: &mut self.control,
            abandoned: &self.abandoned,
            shape: self.shape,
            trouble: &mut self.trouble,
        };
        let handled = self.transport.poll(budget, &mut dispatcher);
        if handled == 0 {
            self.stats.empty_polls += 1;
            // Rarely, since an empty poll takes hardly longer than this question.
            if self.stats.empty_polls.is_multiple_of(POLLS) {
                self.look_for_requests();
            }
        }
        if !self.abandoned.is_empty() {
            self.return_abandoned();
        }
        if self.trouble.is_some() || self.transport.losses() != self.losses_seen {
            self.tell_trouble()?;
        }
        Ok(handled)
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
        while let Some((key, handler)) = self.abandoned.pop() {
            let tally = &mut self.table.tallies[usize::from(handler)];
            tally.detached = tally.detached.saturating_sub(1);
            tally.forgotten += 1;
            self.transport.answer(key, |_| ());
        }
    }

    #[cold]
    fn tell_trouble(&mut self) -> Result<(), PollError> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        self.losses_seen = self.transport.losses();
        self.transport.loss_told = true;
        let loss = self.unacknowledged_loss();
        if let Some(PollError::PeerLost { rank, cause }) = loss {
            crate::trace::lost(rank, cause);
            supervision::tell(self.address(), supervision::Event::LossTold(rank));
        }
        loss.map_or(Ok(()), Err)
    }

    /// A lost rank that the program has not acknowledged.
    fn unacknowledged_loss(&self) -> Option<PollError> {
        self.root_loss(|rank| !self.acknowledged.contains(&rank))
    }

    /// The loss to tell among those of some ranks: rather a rank that broke down than one that merely left, which often
    /// does so because of the other.
    pub(super) fn root_loss(&self, of: impl Fn(Rank) -> bool) -> Option<PollError> {
        let lost = (0..self.shape.peers()).map(Peer).filter_map(|peer| match self.transport.status(peer) {
            PeerStatus::Lost(cause) => Some((self.shape.address(peer).rank, cause)),
            _ => None,
        });
        let (rank, cause) =
            lost.filter(|(rank, _)| of(*rank)).min_by_key(|(_, cause)| *cause == LossCause::Left)?;
        Some(PollError::PeerLost { rank, cause })
    }

    /// Serves all that is there, when nothing more comes.
    pub(super) fn serve_rest(&mut self) -> Result<(), PollError> {
        let mut fruitless = 0;
        while fruitless < self.transport.round() {
            fruitless = if self.poll()? == 0 { fruitless + 1 } else { 0 };
        }
        Ok(())
    }

    /// One step of a wait: serves what is there, else looks for reasons to give up, else idles.
    pub(super) fn wait_step(&mut self, deadline: Option<Instant>, reason: WaitReason) -> Result<(), WaitError> {
        self.reason = Some(reason);
        if self.poll()? != 0 {
            return Ok(());
        }
        if self.losses_seen != 0
            && let Some(loss) = self.unacknowledged_loss()
        {
            return Err(loss.into());
        }
        self.wait_steps = self.wait_steps.wrapping_add(1);
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
        self.stats.idles += 1;
        self.transport.idle(until, reason);
        Ok(())
    }

    /// One step of a wait that other threads take part in: serves what is there, else idles for at most `span`. `began`
    /// is when this thread's wait first found nothing, for the endpoint's time-out.
    pub(crate) fn serve_step(&mut self, span: Span, began: &mut Option<Instant>) -> Result<(), WaitError> {
        if self.poll()? != 0 {
            return Ok(());
        }
        if self.losses_seen != 0
            && let Some(loss) = self.unacknowledged_loss()
        {
            return Err(loss.into());
        }
        let now = self.transport.now();
        let began = *began.get_or_insert(now);
        let late = self.timeout.is_some_and(|timeout| now >= began + timeout);
        if late || self.reports_seen != stall::requests() {
            (self.reason, self.wait_began) = (Some(WaitReason::Message), Some(began));
            let mut report = self.stall_report();
            self.end_wait();
            // Other threads may have sent since this one waits.
            report.unanswered.iter_mut().for_each(|unanswered| unanswered.age = None);
            if late {
                return Err(WaitError::TimedOut(Box::new(report)));
            }
            self.reports_seen = stall::requests();
            stall::print(&report);
        }
        self.transport.idle(Some(now + span), WaitReason::Message);
        Ok(())
    }

    /// Serves incoming messages until `done` holds. Blocks; does not allocate.
    ///
    /// # Errors
    /// A lost peer that has not been acknowledged (the condition might depend on it), a bad message, or a time-out. Waiting
    /// again is allowed.
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

    /// Waits until every request that this endpoint sent has been handled at its destination, serving incoming messages
    /// meanwhile. Replies may still be on their way. Blocks; does not allocate. A following [`Endpoint::barrier`] tells
    /// that the same holds for everyone.
    ///
    /// # Errors
    /// As [`Endpoint::wait_until`].
    pub fn drain(&mut self) -> Result<(), WaitError> {
        self.transport.flush();
        while !self.transport.quiet() {
            if let Err(error) = self.wait_step(None, WaitReason::Handling) {
                self.end_wait();
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
                break Err(error);
            }
        };
        self.end_wait();
        outcome
    }

    /// The addresses of all endpoints but this one.
    pub fn others(&self) -> impl Iterator<Item = Address> + use<T, S> {
        let (shape, me) = (self.shape, self.transport.me());
        (0..shape.peers()).map(Peer).filter(move |peer| *peer != me).map(move |peer| shape.address(peer))
    }
}
