//! Handles of registered handlers: what requests are sent to, and what tokens reply to.

use crate::arguments::Words;
use crate::transport::ReplyBound;
use std::fmt;
use std::marker::PhantomData;

/// A reply bound that is left to the handler's declaration. No transport carries a reply of so many bytes.
const DECLARED: u32 = u32::MAX;

/// A registered request handler that takes arguments `A`: what requests are sent to.
pub struct Request<A> {
    index: u8,
    table: u32,
    /// The bound of replies that this handle's requests allow, or [`DECLARED`].
    bound: u32,
    arguments: PhantomData<fn(A)>,
}

/// A registered reply handler that takes arguments `A`: what tokens reply to.
pub struct Reply<A> {
    index: u8,
    table: u32,
    arguments: PhantomData<fn(A)>,
}

impl<A> Clone for Request<A> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Request<A> {}

impl<A> Clone for Reply<A> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Reply<A> {}

impl<A> fmt::Debug for Request<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({})", self.index)
    }
}

impl<A> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.index)
    }
}

impl<A> Request<A> {
    pub(super) fn new(index: u8, table: u32) -> Self {
        Self { index, table, bound: DECLARED, arguments: PhantomData }
    }

    /// The handler's index among the request handlers, the same on every rank.
    #[inline]
    pub fn index(&self) -> u8 {
        self.index
    }

    /// The same handler, for requests whose replies have at most `bytes` payload bytes. Less is set aside for them
    /// than the handler's declaration asks for, so that more of them can be under way at once.
    ///
    /// At least `bytes` bytes can be replied; a transport that counts in larger units may allow some more, up to
    /// the declared bound. A handler that cannot reply is unchanged. Sending fails with
    /// [`SendError::ReplyBound`](crate::SendError::ReplyBound) if the handler declares a smaller bound.
    #[inline]
    pub fn reply_up_to(self, bytes: u32) -> Self {
        Self { bound: bytes.min(DECLARED - 1), ..self }
    }

    #[inline]
    pub(crate) fn table(&self) -> u32 {
        self.table
    }

    /// The bound that this handle's requests ask for instead of the declared one.
    #[inline]
    pub(crate) fn own_bound(&self) -> Option<u32> {
        (self.bound != DECLARED).then_some(self.bound)
    }
}

impl<A> Reply<A> {
    pub(super) fn new(index: u8, table: u32) -> Self {
        Self { index, table, arguments: PhantomData }
    }

    /// The handler's index among the reply handlers, the same on every rank.
    #[inline]
    pub fn index(&self) -> u8 {
        self.index
    }

    #[inline]
    pub(crate) fn table(&self) -> u32 {
        self.table
    }
}

/// A range of request handlers that share one function, as a runtime needs that numbers its own handlers.
#[derive(Clone, Copy, Debug)]
pub struct RequestRange {
    first: u8,
    count: u16,
    table: u32,
}

/// A range of reply handlers that share one function.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRange {
    first: u8,
    count: u16,
    table: u32,
}

/// Number `number` of a range.
fn nth(first: u8, count: u16, number: u8) -> Option<u8> {
    (u16::from(number) < count).then(|| first + number)
}

impl RequestRange {
    pub(super) fn new(first: u8, count: u16, table: u32) -> Self {
        Self { first, count, table }
    }

    /// The handler with this number, counted from 0, or `None` past the end. Any number of argument words can be
    /// sent to it.
    #[inline]
    pub fn at(&self, number: u8) -> Option<Request<Words>> {
        nth(self.first, self.count, number).map(|index| Request::new(index, self.table))
    }
}

impl ReplyRange {
    pub(super) fn new(first: u8, count: u16, table: u32) -> Self {
        Self { first, count, table }
    }

    /// The handler with this number, counted from 0, or `None` past the end. Any number of argument words can be
    /// sent to it.
    #[inline]
    pub fn at(&self, number: u8) -> Option<Reply<Words>> {
        nth(self.first, self.count, number).map(|index| Reply::new(index, self.table))
    }
}

/// The smaller of a declared bound and what a request asks for.
pub(crate) fn bound_of(declared: ReplyBound, asked: u32) -> ReplyBound {
    match declared {
        ReplyBound::None => ReplyBound::None,
        ReplyBound::UpTo(bytes) => ReplyBound::UpTo(bytes.min(asked)),
    }
}
