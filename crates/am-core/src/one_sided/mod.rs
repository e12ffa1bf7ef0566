//! One-sided access: a rank reads, writes and updates the segments of others without their program's help.
//!
//! [`OneSided`] is a [layer](crate::layer). Where the transport shows a peer's segment as memory
//! ([`Transport::remote_segment`](crate::Transport::remote_segment): ranks of one host), operations are loads,
//! stores and atomics of the processor, done when the call returns. Elsewhere the network does them by itself
//! where it can ([`NativeOneSided`](crate::transport::NativeOneSided)), or they travel as active messages, which
//! the peer answers whenever it polls or waits. Atomics are coherent with each other however they travel, since a
//! handler does them with the processor's atomics, too.
//!
//! | form | returns when |
//! |---|---|
//! | [`put`](Endpoint::put), [`get`](Endpoint::get), [`atomic`](Endpoint::atomic) | the operation is done at the target |
//! | [`put_nb`](Endpoint::put_nb), [`get_nb`](Endpoint::get_nb), [`atomic_nb`](Endpoint::atomic_nb) | it is under way; an [`Operation`] is waited for or tested |
//! | [`put_nbi`](Endpoint::put_nbi), [`get_nbi`](Endpoint::get_nbi), [`atomic_nbi`](Endpoint::atomic_nbi) | it is under way; [`quiet`](Endpoint::quiet) waits for all of these outside access regions |
//!
//! An operation whose handle is dropped, as a blocking form's is when its wait fails, goes on by itself, and so
//! does what an operation had sent when it could not send the rest. [`quiet`](Endpoint::quiet) waits for both:
//! when that returns, no operation is under way but those whose handles are held, even after a loss.
//! [`drain`](Endpoint::drain) tells less: all operations are done at their
//! targets, and their answers may still have to be served here.
//!
//! Between [`begin_region`](Endpoint::begin_region) and [`end_region`](Endpoint::end_region), which yields one
//! [`Operation`] for all of them, the last forms belong to an access region of their own (GASNet-EX API,
//! "Non-blocking Implicit Access Regions"), so that several groups can be under way.
//!
//! [`put_runs`](Endpoint::put_runs) and [`get_runs`](Endpoint::get_runs) move many [`Runs`] at once, listed,
//! indexed or strided, and [`atomics`](Endpoint::atomics) and [`updates_nb`](Endpoint::updates_nb) do an operation
//! on many values; where they travel as messages, many share one.
//!
//! The source of a put can be reused when the call returns. A non-blocking form blocks while there is no room to
//! send, and serves incoming messages meanwhile. Operations are not ordered among each other: wait for one before
//! the next if that matters. [`put_signal`](Endpoint::put_signal) tells the target that its bytes have arrived.
//!
//! # Example
//!
//! ```
//! use am_core::one_sided::{AtomicOp, OneSided};
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//!
//! let ranks = loopback::network(2, loopback::LoopbackConfig::default().segment(64)).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<OneSided>::new();
//!         let one_sided = OneSided::register(&mut handlers)?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, one_sided)?;
//!         let other = Rank(1 - endpoint.rank().0);
//!         endpoint.put(other, 8, b"greetings")?;
//!         endpoint.atomic(Rank(0), 0, AtomicOp::Add(1u64))?;
//!         endpoint.barrier()?;
//!         let mut greetings = [0; 9];
//!         endpoint.get(other, 8, &mut greetings)?;
//!         assert_eq!((&greetings, endpoint.atomic(Rank(0), 0, AtomicOp::<u64>::Get)?), (b"greetings", 2));
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```

mod access;
pub mod atomic;
mod batch;
mod failures;
mod operation;
mod runs;
mod vectored;
mod waiting;

pub use atomic::{Atomic, AtomicCode, AtomicKind, AtomicOp, AtomicValue};
pub use batch::AtomicBatch;
pub use failures::{Failure, Failures};
pub use operation::{Operation, Output, Unfinished};
pub use runs::{Dimension, Runs};

use crate::address::Rank;
use crate::error::{HandlerFault, RegisterError, SendError, WaitError};
use crate::handlers::{Handlers, Reply, Request};
use crate::layer::HasLayer;
use crate::outcome::HandlerResult;
use crate::payload::Payload;
use crate::segment::{MemoryRef, Segment, SegmentError};
use crate::token::Token;
use crate::transport::{LossCause, OperationFault, PayloadWriter};
use operation::Operations;

#[cfg(doc)]
use crate::Endpoint;

/// Bytes that a get into a segment asks for in one message: the answering handler copies as many at once.
const PIECE: usize = 16 << 10;

/// An operation could not be done. A place that is refused changes nothing; any other error may leave the
/// operation done in part, and parts that were sent before it may still be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OneSidedError {
    /// The job has no such rank.
    #[error("no rank {rank} in a job of {ranks} ranks (from 0)")]
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// Ranks in the job.
        ranks: u32,
    },
    /// The range is outside a segment, or an atomic's place is not aligned.
    #[error("segment of rank {rank}: {source}")]
    Segment {
        /// Whose segment.
        rank: Rank,
        /// What is wrong with the place.
        source: SegmentError,
    },
    /// Floating-point numbers have no bit operations.
    #[error("{code:?} is not an operation on {kind:?}")]
    Unsupported {
        /// The operation.
        code: AtomicCode,
        /// The type.
        kind: AtomicKind,
    },
    /// The target was lost, or finished, before it had done the operation.
    #[error("rank {rank} is gone before it has done the operation{}", .cause.map(|cause| format!(": {cause}")).unwrap_or_default())]
    Gone {
        /// The target.
        rank: Rank,
        /// How it was lost; `None` if it has finished.
        cause: Option<LossCause>,
    },
    /// The network did not do the operation, which may be done in part.
    #[error("an operation on the segment of rank {rank} failed: {fault}")]
    Failed {
        /// The target.
        rank: Rank,
        /// Why.
        fault: OperationFault,
    },
    /// Operations failed at several targets or of several causes.
    #[error("{0}")]
    Several(Failures),
    /// The buffer does not have as many bytes as the runs, or the operands are neither one nor as many as the
    /// places.
    #[error("{given} given where {needed} are needed: bytes of the runs, or operands of the places")]
    Lengths {
        /// Bytes of the buffer, or operands.
        given: u64,
        /// Bytes of the runs, or places.
        needed: u64,
    },
    /// Rows that repeat places have more bytes than an operation may have.
    #[error(
        "rows of {bytes} bytes in all exceed the {most} bytes that an operation may have here: they repeat places"
    )]
    TooLarge {
        /// Bytes of all rows.
        bytes: u64,
        /// What is allowed: the bytes of the segment, and 1 GiB where that has fewer.
        most: u64,
    },
    /// A strided operation has another number of strides than of counts.
    #[error("{strides} stride(s) for {counts} count(s): a dimension has one of each")]
    Dimensions {
        /// The strides of one side.
        strides: u64,
        /// The counts.
        counts: u64,
    },
    /// A row of an indexed operation lies outside its slice.
    #[error("a row of {row} value(s) at index {index} lies outside the slice of {len}")]
    Row {
        /// Where the row begins, in values.
        index: u64,
        /// Values of a row.
        row: u64,
        /// Values of the slice.
        len: u64,
    },
    /// A place lies in the segment of another rank than the one that it has to.
    #[error("a place in the segment of rank {given} is given where one of rank {needed} is needed")]
    Elsewhere {
        /// Whose segment the place is in.
        given: Rank,
        /// Whose segment it has to be in.
        needed: Rank,
    },
    /// The operation was started on another endpoint.
    #[error("the operation was started on another endpoint")]
    Foreign,
    /// An access region is open, and regions do not nest.
    #[error("an access region is open already, and regions do not nest")]
    RegionOpen,
    /// No access region is open.
    #[error("no access region is open")]
    NoRegion,
    /// A request could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A wait failed. What was waited for goes on; [`Unfinished`] has its handle, and without one what it brings
    /// is let go.
    #[error(transparent)]
    Wait(#[from] WaitError),
}

impl OneSidedError {
    /// The rank whose loss made the operation fail and how it was lost, if one did; of several the first.
    pub fn loss(&self) -> Option<(Rank, LossCause)> {
        match self {
            Self::Gone { rank, cause } => Some((*rank, (*cause)?)),
            Self::Several(failures) => failures.loss(),
            Self::Send(error) => error.loss(),
            Self::Wait(error) => error.loss(),
            _ => None,
        }
    }

    /// The rank whose loss made the operation fail, if one did.
    pub fn lost_rank(&self) -> Option<Rank> {
        self.loss().map(|(rank, _)| rank)
    }
}

/// The handlers that operations travel to.
#[derive(Clone, Copy, Debug)]
struct Requests {
    /// A Long message: the operation.
    put: Request<u64>,
    /// A Long message that adds one to a counter: the operation, the counter's offset.
    put_signal: Request<(u64, u64)>,
    /// The operation, the offset, the length, and where in the answer's buffer the bytes belong.
    get: Request<(u64, u64, u32, u64)>,
    /// The operation, the offset, the length, and where in the requester's segment the bytes belong.
    get_into: Request<(u64, u64, u32, u64)>,
    /// The operation, the offset, what to do, its operands.
    atomic: Request<(u64, u64, u32, u64, u64)>,
    runs: vectored::Requests,
    batch: batch::Requests,
}

/// Answers an operation: its number, and the value before an atomic.
type Done = Reply<(u64, u64)>;

/// Answers an operation with bytes: its number, and where in its buffer they belong.
type Got = Reply<(u64, u64)>;

/// The layer of one-sided access; see the [module](self).
#[derive(Debug)]
pub struct OneSided {
    requests: Requests,
    operations: Operations,
    /// A piece of this segment on its way to a requester's, or a message that has come.
    scratch: Vec<u8>,
    /// Whether operations that the network does by itself are left to it.
    native: bool,
    /// What a message that has come is answered with.
    answer: Vec<u8>,
    /// A message before it is sent.
    outgoing: Vec<u8>,
}

impl OneSided {
    /// Registers the layer `one-sided` and makes its state, which belongs into the endpoint's. Allocates.
    ///
    /// # Errors
    /// [`RegisterError`] if the layer is there already, or the table is full.
    pub fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
        let mut layer = handlers.layer::<Self>("one-sided")?;
        let done = layer.reply("done", |layer: &mut Self, from, (operation, value): (u64, u64), _| {
            layer.operations.part_done(from, operation, value);
        })?;
        let got =
            layer.reply("got", |layer: &mut Self, from, (operation, at): (u64, u64), bytes: Payload<'_>| {
                layer.operations.part_got(from, operation, at, &bytes);
            })?;
        let put = layer.request_bounded("put", 0, move |_: &mut Self, token, operation, _| -> HandlerResult {
            Ok(token.reply(done, (operation, 0))?)
        })?;
        let put_signal = layer.request_bounded(
            "put-signal",
            0,
            move |_: &mut Self, token: Token<'_>, (operation, counter): (u64, u64), _| -> HandlerResult {
                let add = Atomic::new(AtomicOp::Add(1u64));
                let value = token.segment().atomic(counter, &add)?;
                Ok(token.reply(done, (operation, value))?)
            },
        )?;
        let get = layer.request_largest(
            "get",
            move |_: &mut Self,
                  token: Token<'_>,
                  (operation, at, len, into): (u64, u64, u32, u64),
                  _|
                  -> HandlerResult {
                let bytes = token.segment();
                let len = bytes.range(at, len as usize).map(|_| len as usize)?;
                let fill = |buffer: &mut dyn PayloadWriter| copy(&bytes, at, buffer);
                Ok(token.reply_medium_with(got, (operation, into), len, fill)?)
            },
        )?;
        let get_into = layer.request_bounded(
            "get-into",
            0,
            move |layer: &mut Self,
                  token: Token<'_>,
                  (operation, at, len, into): (u64, u64, u32, u64),
                  _|
                  -> HandlerResult {
                let buffer = layer.scratch.get_mut(..len as usize);
                let buffer = buffer.ok_or(HandlerFault("a piece of a get is longer than the layer's buffer"))?;
                token.segment().read(at, buffer)?;
                Ok(token.reply_long(done, (operation, 0), buffer, into)?)
            },
        )?;
        let atomic = layer.request_bounded(
            "atomic",
            0,
            move |_: &mut Self,
                  token: Token<'_>,
                  (operation, at, number, operand, expected),
                  _|
                  -> HandlerResult {
                let atomic = Atomic::from_number(number, operand, expected);
                let atomic = atomic.ok_or(HandlerFault("no such atomic operation"))?;
                let old = token.segment().atomic(at, &atomic)?;
                Ok(token.reply(done, (operation, old))?)
            },
        )?;
        layer.completed(|state, completion| state.as_layer_mut().operations.part_completed(&completion));
        let runs = vectored::Requests::register(&mut layer, done, got)?;
        let batch = batch::Requests::register(&mut layer, done, got)?;
        let requests = Requests { put, put_signal, get, get_into, atomic, runs, batch };
        let buffer = || Vec::with_capacity(PIECE);
        let (answer, outgoing) = (buffer(), buffer());
        Ok(Self {
            requests,
            operations: Operations::default(),
            scratch: vec![0; PIECE],
            native: true,
            answer,
            outgoing,
        })
    }

    /// Whether operations that the network does by itself ([`NativeOneSided`](crate::transport::NativeOneSided))
    /// are left to it, as they are at first. Otherwise they travel as messages, which figures compare.
    #[must_use]
    pub fn with_native(mut self, native: bool) -> Self {
        self.native = native;
        self
    }

    /// Operations under way, those included whose handle was dropped.
    pub fn under_way(&self) -> usize {
        self.operations.under_way()
    }
}

/// Copies the payload of a message into a buffer of the layer.
fn take_in<'a>(payload: &Payload<'_>, scratch: &'a mut [u8]) -> Result<&'a [u8], HandlerFault> {
    let taken = scratch.get_mut(..payload.len());
    let taken = taken.ok_or(HandlerFault("a message is longer than the layer's buffer"))?;
    payload.copy_to(taken);
    Ok(taken)
}

/// Copies bytes of a segment into the buffer of a message.
fn copy(segment: &Segment<MemoryRef<'_>>, at: u64, buffer: &mut dyn PayloadWriter) {
    let mut piece = [0; 1024];
    for start in (0..buffer.len()).step_by(piece.len()) {
        let piece = &mut piece[..(buffer.len() - start).min(1024)];
        segment.read(at + start as u64, piece).expect("the range was checked");
        buffer.write(start, piece);
    }
}
