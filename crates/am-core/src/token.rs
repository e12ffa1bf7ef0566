//! The permission to reply: a [`Token`] inside a request handler, a [`PendingReply`] beyond it.
//!
//! Both are consumed by the one reply they permit. Neither can be copied, and a token cannot leave its handler
//! except through [`Token::detach`]. Letting one go unused is allowed: the requester then gets its credit back
//! bare.

use crate::address::Address;
use crate::arguments::{Arguments, Words, encode};
use crate::error::{Rejected, ReplyError};
use crate::handlers::Reply;
use crate::segment::{MemoryRef, Segment, SegmentError};
use crate::transport::{Body, PayloadWriter, PendingKey, ReplyPath, ReplyPathGone};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What became of a token, for the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Unused,
    Replied,
    Detached,
    /// A reply was refused because nobody takes it any more.
    Gone,
}

/// The ways back of pending replies that were dropped unanswered, with the handlers that detached them, until
/// their endpoint returns the credits. It keeps its room, so that it allocates no more once it has held as many as
/// are ever dropped between two polls.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    keys: Mutex<Vec<(PendingKey, u8)>>,
    any: AtomicBool,
}

impl Abandoned {
    fn keys(&self) -> MutexGuard<'_, Vec<(PendingKey, u8)>> {
        // A panic elsewhere cannot leave the list half changed.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, key: (PendingKey, u8)) {
        let mut keys = self.keys();
        keys.push(key);
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pop(&self) -> Option<(PendingKey, u8)> {
        let mut keys = self.keys();
        let key = keys.pop();
        self.any.store(!keys.is_empty(), Ordering::Relaxed);
        key
    }

    /// Whether there are none; a push of another thread may show a moment later.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: the lock orders what matters, and the next poll looks again.
        !self.any.load(Ordering::Relaxed)
    }
}

/// What tokens of one endpoint share.
#[derive(Debug)]
pub(crate) struct TokenContext<'a> {
    pub(crate) from: Address,
    pub(crate) handler: u8,
    pub(crate) table: u32,
    /// The bytes that the request's handler declared for Medium replies.
    pub(crate) bound: usize,
    pub(crate) abandoned: &'a Arc<Abandoned>,
    pub(crate) segment: Segment<MemoryRef<'a>>,
    pub(crate) outcome: Cell<Outcome>,
}

/// The permission to send one reply to the request that is being handled.
///
/// A handler has no endpoint: it cannot send requests, poll or wait, and a token does not outlive it. What is to
/// happen later goes into the state: push the data (or the [`PendingReply`] that [`Token::detach`] makes of the
/// token) there, and let the program send, or [answer](crate::Endpoint::answer), after the poll or wait that ran
/// the handler:
///
/// ```
/// use am_core::{Endpoint, HandlerResult, Handlers, PendingReply, Rank, loopback};
///
/// #[derive(Default)]
/// struct State { asked: Vec<(PendingReply, u64)>, answer: u64 }
///
/// let mut handlers = Handlers::<State>::new();
/// let answer = handlers.reply("answer", |state, _, value: u64, _| state.answer = value)?;
/// let ask = handlers.request("ask", |state, token, value: u64, _| state.asked.push((token.detach(), value)))?;
/// let mut endpoint = Endpoint::attach(loopback::single(), handlers, State::default())?;
/// endpoint.request(Rank(0), ask, 41)?;
/// endpoint.wait_until(|state| !state.asked.is_empty())?;
/// for (pending, value) in std::mem::take(&mut endpoint.state_mut().asked) {
///     endpoint.answer(pending, answer, value + 1)?; // or a request, now that the endpoint is free
/// }
/// endpoint.wait_until(|state| state.answer == 42)?;
/// # endpoint.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail
/// # use am_core::*;
/// // A token is used up by its reply.
/// fn twice(token: Token<'_>, done: Reply<()>) {
///     let _ = token.reply(done, ());
///     let _ = token.reply(done, ());
/// }
/// ```
pub struct Token<'a> {
    path: &'a mut dyn ReplyPath,
    context: &'a TokenContext<'a>,
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("source", &self.context.from).finish_non_exhaustive()
    }
}

/// A reply as the reply path needs it.
pub(crate) enum Message<'a> {
    Send(Body<'a>),
    Fill(usize, &'a mut dyn FnMut(&mut dyn PayloadWriter)),
}

/// Checks a reply against its bound, segment and table, then sends it.
pub(crate) fn send(
    path: &mut dyn ReplyPath,
    to: Address,
    same_table: bool,
    bound: usize,
    handler: u8,
    args: &Words,
    message: Message<'_>,
) -> Result<(), ReplyError> {
    if !same_table {
        return Err(ReplyError::ForeignHandler { handler });
    }
    let bound = path.bound().min(bound);
    let fits = |len: usize| {
        if len > bound { Err(ReplyError::PayloadTooLarge { len, bound }) } else { Ok(()) }
    };
    let sent = match message {
        Message::Send(body) => {
            match body {
                Body::None => {}
                Body::Copy(payload) => fits(payload.len())?,
                Body::Place(payload, at) => {
                    let (len, segment) = (payload.len() as u64, path.segment_len());
                    let limit = path.long_limit();
                    if len > limit {
                        return Err(ReplyError::LongTooLarge { len, limit, to });
                    }
                    if at.checked_add(len).is_none_or(|end| end > segment) {
                        let source = SegmentError::OutOfRange { offset: at, len, segment };
                        return Err(ReplyError::OutsideSegment { to, source });
                    }
                }
            }
            path.send(handler, args, body)
        }
        Message::Fill(len, fill) => {
            fits(len)?;
            path.send_filled(handler, args, len, fill)
        }
    };
    sent.map_err(|ReplyPathGone| ReplyError::Gone { to })
}

impl<'a> Token<'a> {
    pub(crate) fn new(path: &'a mut dyn ReplyPath, context: &'a TokenContext<'a>) -> Self {
        Self { path, context }
    }

    /// Who sent the request.
    #[inline]
    pub fn source(&self) -> Address {
        self.context.from
    }

    /// This rank's own segment, for handlers that answer from it.
    #[inline]
    pub fn segment(&self) -> Segment<MemoryRef<'a>> {
        self.context.segment
    }

    /// The largest Medium payload, in bytes, that this token can reply with.
    pub fn max_reply(&self) -> usize {
        self.path.bound().min(self.context.bound)
    }

    #[inline]
    fn finish(self, handler: u8, table: u32, args: &Words, message: Message<'_>) -> Result<(), Rejected<Self>> {
        let same_table = table == self.context.table;
        match send(self.path, self.context.from, same_table, self.context.bound, handler, args, message) {
            Ok(()) => {
                self.context.outcome.set(Outcome::Replied);
                Ok(())
            }
            Err(error) => {
                if matches!(error, ReplyError::Gone { .. }) {
                    self.context.outcome.set(Outcome::Gone);
                }
                Err(Rejected { error, token: self })
            }
        }
    }

    /// Replies with arguments only. Never blocks, never allocates.
    ///
    /// # Errors
    /// [`Rejected`] with the token to try again with.
    #[inline]
    pub fn reply<A: Arguments>(self, handler: Reply<A>, args: A) -> Result<(), Rejected<Self>> {
        self.finish(handler.index(), handler.table(), &encode(&args), Message::Send(Body::None))
    }

    /// Replies with arguments and a payload that is copied once. Never blocks, never allocates.
    ///
    /// # Errors
    /// [`Rejected`] with the token; in particular if the payload exceeds [`Token::max_reply`].
    #[inline]
    pub fn reply_medium<A: Arguments>(
        self,
        handler: Reply<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), Rejected<Self>> {
        self.finish(handler.index(), handler.table(), &encode(&args), Message::Send(Body::Copy(payload)))
    }

    /// Replies with a payload of `len` bytes that `fill` writes directly into the transport's buffer.
    ///
    /// # Errors
    /// [`Rejected`] with the token; `fill` was not called then.
    pub fn reply_medium_with<A: Arguments>(
        self,
        handler: Reply<A>,
        args: A,
        len: usize,
        mut fill: impl FnMut(&mut dyn PayloadWriter),
    ) -> Result<(), Rejected<Self>> {
        self.finish(handler.index(), handler.table(), &encode(&args), Message::Fill(len, &mut fill))
    }

    /// Places a payload at byte `at` of the requester's segment, then replies. Never blocks on the requester.
    ///
    /// # Errors
    /// [`Rejected`] with the token; in particular outside the requester's segment.
    #[inline]
    pub fn reply_long<A: Arguments>(
        self,
        handler: Reply<A>,
        args: A,
        payload: &[u8],
        at: u64,
    ) -> Result<(), Rejected<Self>> {
        self.finish(handler.index(), handler.table(), &encode(&args), Message::Send(Body::Place(payload, at)))
    }

    /// Keeps the permission to reply beyond the handler. The requester's credit stays taken until the
    /// [`PendingReply`] is answered or dropped. Does not allocate.
    pub fn detach(self) -> PendingReply {
        self.context.outcome.set(Outcome::Detached);
        PendingReply {
            key: Some(self.path.detach()),
            from: self.context.from,
            handler: self.context.handler,
            table: self.context.table,
            bound: self.context.bound,
            abandoned: Arc::clone(self.context.abandoned),
        }
    }
}

/// An owned permission to send one reply later, through [`Endpoint::answer`](crate::Endpoint::answer).
///
/// Dropping it unanswered gives the requester its credit back at the endpoint's next poll.
#[must_use = "a dropped pending reply answers the requester with nothing"]
pub struct PendingReply {
    key: Option<PendingKey>,
    from: Address,
    handler: u8,
    table: u32,
    bound: usize,
    abandoned: Arc<Abandoned>,
}

impl fmt::Debug for PendingReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingReply").field("source", &self.from).finish_non_exhaustive()
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.abandoned.push((key, self.handler));
        }
    }
}

impl PendingReply {
    /// Who sent the request.
    pub fn source(&self) -> Address {
        self.from
    }

    pub(crate) fn belongs_to(&self, queue: &Arc<Abandoned>) -> bool {
        Arc::ptr_eq(&self.abandoned, queue)
    }

    pub(crate) fn key(&self) -> PendingKey {
        self.key.expect("a pending reply holds its key until it is answered or dropped")
    }

    pub(crate) fn set_key(&mut self, key: Option<PendingKey>) {
        self.key = key;
    }

    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// The handler that detached it.
    pub(crate) fn handler(&self) -> u8 {
        self.handler
    }

    pub(crate) fn table(&self) -> u32 {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use crate::loopback::{LoopbackConfig, network, single};
    use crate::{Address, Endpoint, Handlers, Payload, Rank, ReplyError, Token};

    #[test]
    fn a_long_reply_keeps_to_the_limit() {
        let config = LoopbackConfig::default().long(16);
        let mut handlers = Handlers::<Vec<usize>>::new();
        let reply = handlers.reply("reply", |lens, _, (), payload| lens.push(payload.len())).unwrap();
        let ask = handlers.request("ask", move |_, token, (), _| {
            let rejected = token.reply_long(reply, (), &[0; 17], 0).unwrap_err();
            let to = Rank(0).into();
            assert_eq!(rejected.error, ReplyError::LongTooLarge { len: 17, limit: 16, to });
            rejected.token.reply_long(reply, (), &[0; 16], 0).unwrap();
        });
        let ask = ask.unwrap();
        let transport = network(1, config).pop().unwrap();
        let mut endpoint = Endpoint::attach(transport, handlers, Vec::new()).unwrap();
        endpoint.request(Rank(0), ask, ()).unwrap();
        endpoint.wait_until(|lens| !lens.is_empty()).unwrap();
        assert_eq!(endpoint.finish().unwrap(), [16]);
    }

    #[test]
    fn a_declared_bound_holds_to_the_byte() {
        let mut handlers = Handlers::<Vec<usize>>::new();
        let lens = |lens: &mut Vec<usize>, _: Address, (): (), payload: Payload<'_>| lens.push(payload.len());
        let reply = handlers.reply("reply", lens).unwrap();
        let ask = handlers.request_bounded("ask", 10, move |_, token: Token<'_>, (): (), _: Payload<'_>| {
            assert_eq!(token.max_reply(), 10);
            let rejected = token.reply_medium(reply, (), &[0; 11]).unwrap_err();
            assert_eq!(rejected.error, ReplyError::PayloadTooLarge { len: 11, bound: 10 });
            rejected.token.reply_medium(reply, (), &[0; 10]).unwrap();
        });
        let ask = ask.unwrap();
        assert!(LoopbackConfig::default().medium > 10);
        let mut endpoint = Endpoint::attach(single(), handlers, Vec::new()).unwrap();
        endpoint.request(Rank(0), ask, ()).unwrap();
        endpoint.wait_until(|lens| !lens.is_empty()).unwrap();
        assert_eq!(endpoint.finish().unwrap(), [10]);
    }
}
