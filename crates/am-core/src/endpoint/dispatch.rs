//! Dispatch: what arrives goes to its handler.

use super::collective::Control;
use super::layers::LayerSchedule;
use super::sender::Sender;
use crate::address::Peer;
use crate::arguments::Words;
use crate::error::{BadMessage, PollError};
use crate::handlers::{Fault, Handled, ReplyCode, RequestCode, Table};
use crate::outcome::HandlerFailure;
use crate::payload::Payload;
use crate::segment::{MemoryRef, Segment};
use crate::token::{Outcome, Token, TokenContext};
use crate::transport::{Arrival, Completion, Lane, ReplyPath, Sink};
use std::cell::Cell;
use std::collections::VecDeque;

/// Runs handlers for what a transport delivers.
pub(super) struct Dispatcher<'a, S> {
    pub(super) table: &'a mut Table<S>,
    pub(super) state: &'a mut S,
    pub(super) sender: &'a mut Sender,
    pub(super) segment: Segment<MemoryRef<'a>>,
    pub(super) control: &'a mut Control,
    pub(super) schedule: &'a mut LayerSchedule,
    pub(super) trouble: &'a mut VecDeque<PollError>,
}

impl<S> Dispatcher<'_, S> {
    #[cold]
    fn drop_message(&mut self, from: Peer, handler: u8, reason: BadMessage) {
        self.sender.stats.bad_messages += 1;
        let from = self.sender.shape.address(from);
        crate::trace::dropped(from, handler, reason);
        PollError::BadMessage { from, handler, reason }.keep(self.trouble);
    }

    /// A message that did not fit its handler, or whose handler failed.
    #[cold]
    #[inline(never)]
    fn unwell(&mut self, from: Peer, handler: u8, args: &Words, lane: Lane, fault: Fault) {
        let Fault::Failed(error) = fault else {
            return self.drop_message(from, handler, BadMessage::WrongArguments { words: args.len() });
        };
        self.sender.stats.failed += 1;
        let (handler, from) = (self.sender.directory.name(lane, handler), self.sender.shape.address(from));
        let failure = HandlerFailure { handler, from, error };
        crate::trace::failed(&failure);
        PollError::Handler(Box::new(failure)).keep(self.trouble);
    }

    /// Counts a request whose handler has run.
    #[inline(always)]
    fn count_request(&mut self, arrival: &Arrival<'_>, handled: Handled) {
        if let Some(fault) = handled {
            self.unwell(arrival.from, arrival.handler, arrival.args, Lane::Request, *fault);
        }
        self.sender.stats.requests_received[arrival.category as usize].count(arrival.payload.len());
    }

    /// Counts a request whose handler has not replied.
    #[inline(never)]
    fn not_replied(&mut self, handler: u8, outcome: Outcome, handled: &Handled) {
        let tally = &mut self.sender.directory.tallies[usize::from(handler)];
        match outcome {
            Outcome::Detached => {
                self.sender.stats.detached += 1;
                tally.detached += 1;
            }
            Outcome::Unused if !matches!(handled.as_deref(), Some(Fault::Misfit)) => tally.forgotten += 1,
            Outcome::Unused | Outcome::Gone | Outcome::Replied => {}
        }
    }

    #[cold]
    fn unknown(&mut self, from: Peer, handler: u8) {
        self.drop_message(from, handler, BadMessage::UnknownHandler);
    }

    /// Counts a request whose handler had the permission to reply.
    #[inline(always)]
    fn ended(&mut self, arrival: &Arrival<'_>, handled: Handled, outcome: Outcome) {
        match outcome {
            Outcome::Replied => self.sender.stats.replies_sent += 1,
            outcome => self.not_replied(arrival.handler, outcome, &handled),
        }
        self.count_request(arrival, handled);
    }
}

/// Runs a request's handler with the permission to reply of at most `bound` bytes; what it came to, and what
/// became of the permission.
#[inline(always)]
fn with_token(
    sender: &Sender,
    segment: Segment<MemoryRef<'_>>,
    arrival: &Arrival<'_>,
    bound: u32,
    path: &mut dyn ReplyPath,
    run: impl FnOnce(Token<'_>) -> Handled,
) -> (Handled, Outcome) {
    let (handler, bound) = (arrival.handler, bound as usize);
    let (from, outcome) = (sender.shape.address(arrival.from), Cell::new(Outcome::Unused));
    let (table, abandoned) = (sender.directory.serial, &sender.abandoned);
    let context = TokenContext { from, handler, table, bound, abandoned, segment, outcome };
    let handled = run(Token::new(path, &context));
    (handled, context.outcome.into_inner())
}

impl<S> Sink for Dispatcher<'_, S> {
    #[inline(always)]
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        let payload = arrival.payload.of(arrival.category);
        match self.table.requests.get_mut(usize::from(arrival.handler)) {
            Some(RequestCode::OneWay { code, layer }) => {
                self.schedule.touch(layer.set());
                let from = self.sender.shape.address(arrival.from);
                let handled = code(self.state, from, arrival.args, payload);
                self.count_request(&arrival, handled);
            }
            Some(RequestCode::Request { code, layer, bound }) => {
                self.schedule.touch(layer.set());
                let run = |token: Token<'_>| code(self.state, token, arrival.args, payload);
                let (handled, outcome) = with_token(self.sender, self.segment, &arrival, *bound, path, run);
                self.ended(&arrival, handled, outcome);
            }
            Some(&mut RequestCode::Range { range, number, layer, bound }) => {
                self.schedule.touch(layer.set());
                let code = &mut self.table.request_ranges[usize::from(range)];
                let run = |token: Token<'_>| code(self.state, token, number, arrival.args, payload);
                let (handled, outcome) = with_token(self.sender, self.segment, &arrival, bound, path, run);
                self.ended(&arrival, handled, outcome);
            }
            Some(RequestCode::Withdrawn) | None => self.unknown(arrival.from, arrival.handler),
        }
    }

    #[inline]
    fn reply(&mut self, arrival: Arrival<'_>) {
        let (from, payload) = (self.sender.shape.address(arrival.from), arrival.payload.of(arrival.category));
        // Before the handler runs, since it may unwind.
        self.sender.stats.replies_received[arrival.category as usize].count(arrival.payload.len());
        let handled = match self.table.replies.get_mut(usize::from(arrival.handler)) {
            Some(ReplyCode::Reply { code, layer }) => {
                self.schedule.touch(layer.set());
                code(self.state, from, arrival.args, payload)
            }
            Some(&mut ReplyCode::Range { range, number, layer }) => {
                self.schedule.touch(layer.set());
                self.table.reply_ranges[usize::from(range)](self.state, from, number, arrival.args, payload)
            }
            Some(ReplyCode::Withdrawn) | None => return self.unknown(arrival.from, arrival.handler),
        };
        if let Some(fault) = handled {
            self.unwell(arrival.from, arrival.handler, arrival.args, Lane::Reply, *fault);
        }
    }

    #[cold]
    fn control(&mut self, _: Peer, args: &Words, payload: Payload<'_>) {
        self.control.receive(args, payload);
    }

    #[inline]
    fn completed(&mut self, completion: Completion<'_>) {
        if let Some((completed, layer)) = self.table.completed {
            self.schedule.touch(layer.set());
            completed(self.state, completion);
        }
    }
}
