//! Requests at the callee: what has come, how far it is, and what is to be sent for it.

use crate::context::Spawned;
use crate::coverage::Coverage;
use crate::meter::Seen;
use crate::stream::AnswerQueue;
use crate::trace;
use crate::wire::{Header, Verdict};
use am_core::slab::Key;
use am_core::{Address, Instant, PendingReply, Span};
use std::sync::Arc;

/// How far the work on a request is.
pub(crate) enum Phase {
    /// The request is there, and its method begins when the time is known.
    Arrived,
    /// A long request waits until there is room for it.
    Announced { bytes: u64 },
    /// A long request comes in parts.
    Receiving { received: Coverage },
    /// The method works on it, at this place.
    Running { place: u32 },
    /// The answer is to be sent.
    Answering { verdict: Verdict },
    /// The caller has been told of a long answer.
    Waiting,
    /// The long answer is being sent, to the call it belongs to.
    Shipping { sent: usize },
    /// A task of the program's own.
    Own { future: Spawned },
}

/// An answer of a stream that goes in parts.
pub(crate) struct LongItem {
    pub(crate) bytes: Vec<u8>,
    /// Bytes that were sent, once its caller has room.
    pub(crate) sent: Option<usize>,
}

/// A request that is worked on, or a future of the program's own.
pub(crate) struct Task {
    pub(crate) from: Address,
    pub(crate) peer: u64,
    pub(crate) call: u64,
    pub(crate) header: Header,
    pub(crate) phase: Phase,
    pub(crate) pending: Option<PendingReply>,
    /// Whether the way back was kept.
    pub(crate) kept: bool,
    /// Whether it is among those that have something to send.
    pub(crate) listed: bool,
    /// The request's parts, later the answer.
    pub(crate) bytes: Vec<u8>,
    /// The time left when the request came.
    pub(crate) left: Option<Span>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) timer: Option<Key>,
    /// Answers of a stream that its caller lets be under way.
    pub(crate) window: u32,
    pub(crate) answer_queue: Option<Arc<AnswerQueue>>,
    /// Answers of a stream that were sent, and their bytes.
    pub(crate) items: u64,
    pub(crate) item_bytes: u64,
    /// The next answer of a stream, if it is long and was announced.
    pub(crate) long_item: Option<LongItem>,
    /// Whether its end is still to be counted.
    pub(crate) counted: bool,
    pub(crate) seen: Seen,
    pub(crate) span: trace::Span,
}

impl Task {
    pub(crate) fn new(arrived: Arrived, phase: Phase) -> Self {
        let Arrived { from, peer, call, header, left, window, .. } = arrived;
        Self {
            from,
            peer,
            call,
            header,
            phase,
            pending: None,
            kept: false,
            listed: false,
            bytes: Vec::new(),
            left,
            deadline: None,
            timer: None,
            window,
            answer_queue: None,
            items: 0,
            item_bytes: 0,
            long_item: None,
            counted: false,
            seen: Seen::default(),
            span: trace::Span::default(),
        }
    }
}

/// A request as it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) from: Address,
    pub(crate) peer: u64,
    pub(crate) call: u64,
    pub(crate) header: Header,
    /// The time left.
    pub(crate) left: Option<Span>,
    /// Bytes of a request that comes later.
    pub(crate) long: u32,
    /// Answers of a stream that may be under way.
    pub(crate) window: u32,
}

/// What becomes of a request that has arrived.
pub(crate) enum Taken {
    /// The answer is there.
    Answered(Verdict),
    /// It will be answered. The way back may be kept for that: [`Server::keep`].
    Later(Key),
    /// Nobody waits for an answer.
    Forgotten,
}

/// What the server sends.
pub(crate) enum Dispatch<'a> {
    /// An answer, by the way back if it was kept. Long ones are announced, with the task's number.
    Answer {
        to: Address,
        call: u64,
        verdict: Verdict,
        pending: &'a mut Option<PendingReply>,
        body: &'a [u8],
        task: Key,
        /// How many there were of a stream.
        items: Option<u64>,
    },
    /// Word by the way back that the answer comes later.
    Accepted { call: u64, verdict: Verdict, pending: PendingReply },
    /// Answers of a stream, the first of which has this number. One that is long is announced.
    Items { to: Address, call: u64, verdict: Verdict, body: &'a [u8], number: u64 },
    /// There is room for a long request.
    Grant { to: Address, call: u64, task: Key },
    /// Part of a long answer.
    Part { to: Address, call: u64, at: usize, rest: &'a [u8] },
}

/// What has become of a dispatch.
pub(crate) enum Dispatched {
    /// Sent as a whole.
    Sent,
    /// Too long for one message: it was announced.
    Announced,
    /// So many bytes of a part were sent.
    Partly(usize),
    NotNow,
    /// The peer is gone.
    Gone,
}
