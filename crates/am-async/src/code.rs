//! The code of methods behind one interface: bytes in, bytes out, now or later. A panic of a method becomes its
//! answer.

use crate::context::{Context, Environment, Origin};
use crate::method::{Aligned, PlainValue, decode, encode};
use crate::methods::SliceAnswer;
use crate::stream::{AnswerQueue, Sink};
use crate::wire::Status;
use am_core::Instant;
use am_core::zerocopy::FromBytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

/// What the start of a method came to.
pub(crate) enum Begun {
    /// The answer is there.
    Now(Status),
    /// A future has been put at this place.
    Later(u32),
}

/// A request as a method gets it.
pub(crate) struct Asked<'a, W> {
    pub(crate) origin: Origin,
    pub(crate) request: &'a [u8],
    pub(crate) environment: &'a Arc<Environment<W>>,
    /// Where the answers of a stream go.
    pub(crate) answer_queue: Option<&'a Arc<AnswerQueue>>,
    /// When its caller no longer waits, for what begins when the time is known.
    pub(crate) deadline: Option<Instant>,
}

/// A method's code.
pub(crate) trait Code<W>: Send {
    /// Runs a function, which needs the state, or makes the future of an `async` method.
    fn begin(&mut self, world: Option<&mut W>, asked: Asked<'_, W>, answer: &mut Vec<u8>) -> Begun;

    /// Polls the future at a place, which is free once it is ready.
    fn poll(&mut self, place: u32, context: &mut task::Context<'_>, answer: &mut Vec<u8>) -> Poll<Status> {
        let _ = (place, context, answer);
        unreachable!("a function is never polled")
    }

    /// Drops the future at a place.
    fn end(&mut self, place: u32) {
        let _ = place;
    }
}

/// Appends what a method returned.
fn conclude<R: Serialize, E: Serialize>(outcome: Result<R, E>, answer: &mut Vec<u8>) -> Status {
    let (status, written) = match outcome {
        Ok(value) => (Status::Answer, encode(&value, answer)),
        Err(error) => (Status::Failed, encode(&error, answer)),
    };
    written.map_or_else(|text| panicked(&format!("its answer can not be serialised: {text}"), answer), |()| status)
}

fn panicked(text: &str, answer: &mut Vec<u8>) -> Status {
    answer.clear();
    answer.extend_from_slice(text.as_bytes());
    Status::Panicked
}

/// Runs code of the program's.
fn guarded<R>(answer: &mut Vec<u8>, run: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, Status> {
    // The state may be half changed, as after any error of a method: that is for the program to judge.
    catch_unwind(AssertUnwindSafe(|| run(answer))).map_err(|payload| panicked(text_of(&*payload), answer))
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "with something that is no text",
    }
}

/// A function of values that serde knows.
pub(crate) struct FunctionCode<F, Q> {
    function: F,
    request: PhantomData<fn(Q)>,
}

impl<F, Q> FunctionCode<F, Q> {
    pub(crate) fn new(function: F) -> Self {
        Self { function, request: PhantomData }
    }
}

impl<W, F, Q, R, E> Code<W> for FunctionCode<F, Q>
where
    Q: DeserializeOwned,
    R: Serialize,
    E: Serialize,
    F: FnMut(&mut W, &Origin, Q) -> Result<R, E> + Send,
{
    #[inline]
    fn begin(&mut self, world: Option<&mut W>, asked: Asked<'_, W>, answer: &mut Vec<u8>) -> Begun {
        let Some(world) = world else { return Begun::Now(Status::BadRequest) };
        let run = |answer: &mut Vec<u8>| match decode(asked.request) {
            Ok(request) => conclude((self.function)(world, &asked.origin, request), answer),
            Err(_) => Status::BadRequest,
        };
        Begun::Now(guarded(answer, run).unwrap_or_else(|status| status))
    }
}

/// A function of slices.
pub(crate) struct SliceCode<F, A, B> {
    function: F,
    /// For requests that lie askew.
    aligned: Aligned,
    types: PhantomData<fn(A) -> B>,
}

impl<F, A, B> SliceCode<F, A, B> {
    pub(crate) fn new(function: F) -> Self {
        Self { function, aligned: Aligned::default(), types: PhantomData }
    }
}

/// Bytes that a slice method keeps for requests that lie askew.
const ASKEW: usize = 1 << 16;

impl<W, F, A, B, E> Code<W> for SliceCode<F, A, B>
where
    A: PlainValue,
    B: PlainValue,
    E: Serialize,
    F: FnMut(&mut W, &Origin, &[A], &mut SliceAnswer<'_, B>) -> Result<(), E> + Send,
{
    fn begin(&mut self, world: Option<&mut W>, asked: Asked<'_, W>, answer: &mut Vec<u8>) -> Begun {
        let Some(world) = world else { return Begun::Now(Status::BadRequest) };
        let Self { function, aligned, .. } = self;
        let run = |answer: &mut Vec<u8>| {
            let bytes = asked.request;
            if !bytes.len().is_multiple_of(size_of::<A>()) {
                return Status::BadRequest;
            }
            let bytes = match <[A]>::ref_from_bytes(bytes) {
                Ok(_) => bytes,
                Err(_) => aligned.fill(bytes.len(), |copy| copy.copy_from_slice(bytes)),
            };
            let Ok(values) = <[A]>::ref_from_bytes(bytes) else { return Status::BadRequest };
            match function(world, &asked.origin, values, &mut SliceAnswer::new(answer)) {
                Ok(()) => Status::Answer,
                Err(error) => {
                    answer.clear();
                    conclude(Err::<(), E>(error), answer)
                }
            }
        };
        let status = guarded(answer, run).unwrap_or_else(|status| status);
        self.aligned.shrink(ASKEW);
        Begun::Now(status)
    }
}

/// Futures of one method, in memory that is used again.
struct Places<T> {
    all: Vec<Pin<Box<Option<T>>>>,
    free: Vec<u32>,
}

impl<T> Places<T> {
    const fn new() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }

    fn put(&mut self, future: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.all[place as usize].as_mut().set(Some(future));
                place
            }
            None => {
                self.all.push(Box::pin(Some(future)));
                (self.all.len() - 1) as u32
            }
        }
    }

    /// Drops a future, whose destructors may panic.
    fn clear(&mut self, place: u32, answer: &mut Vec<u8>) -> Result<(), Status> {
        let future = &mut self.all[place as usize];
        let cleared = guarded(answer, |_| future.as_mut().set(None));
        self.free.push(place);
        cleared
    }
}

impl<T: Future<Output = Result<R, E>>, R: Serialize, E: Serialize> Places<T> {
    fn poll(&mut self, place: u32, context: &mut task::Context<'_>, answer: &mut Vec<u8>) -> Poll<Status> {
        let future = self.all[place as usize].as_mut();
        let polled = guarded(answer, |answer| match future.as_pin_mut() {
            Some(future) => future.poll(context).map(|outcome| conclude(outcome, answer)),
            None => Poll::Ready(Status::BadRequest),
        });
        let status = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(status)) | Err(status) => status,
        };
        let mut ignored = Vec::new();
        let _ = self.clear(place, &mut ignored);
        Poll::Ready(status)
    }
}

/// An `async` method of values that serde knows.
pub(crate) struct AsyncCode<F, Q, T> {
    method: F,
    places: Places<T>,
    request: PhantomData<fn(Q)>,
}

impl<F, Q, T> AsyncCode<F, Q, T> {
    pub(crate) fn new(method: F) -> Self {
        Self { method, places: Places::new(), request: PhantomData }
    }
}

impl<W, F, Q, T, R, E> Code<W> for AsyncCode<F, Q, T>
where
    Q: DeserializeOwned,
    R: Serialize,
    E: Serialize,
    F: FnMut(Context<W>, Q) -> T + Send,
    T: Future<Output = Result<R, E>> + Send,
{
    fn begin(&mut self, _: Option<&mut W>, asked: Asked<'_, W>, answer: &mut Vec<u8>) -> Begun {
        let method = &mut self.method;
        let made = guarded(answer, |_| {
            let request = decode(asked.request).map_err(|_| Status::BadRequest)?;
            Ok(method(Context::new(asked.environment, asked.origin, asked.deadline), request))
        });
        match made {
            Ok(Ok(future)) => Begun::Later(self.places.put(future)),
            Ok(Err(status)) | Err(status) => Begun::Now(status),
        }
    }

    fn poll(&mut self, place: u32, context: &mut task::Context<'_>, answer: &mut Vec<u8>) -> Poll<Status> {
        self.places.poll(place, context, answer)
    }

    fn end(&mut self, place: u32) {
        let _ = self.places.clear(place, &mut Vec::new());
    }
}

/// A method that answers any number of times.
pub(crate) struct StreamCode<F, Q, R, T> {
    method: F,
    places: Places<T>,
    types: PhantomData<fn(Q) -> R>,
}

impl<F, Q, R, T> StreamCode<F, Q, R, T> {
    pub(crate) fn new(method: F) -> Self {
        Self { method, places: Places::new(), types: PhantomData }
    }
}

impl<W, F, Q, R, T, E> Code<W> for StreamCode<F, Q, R, T>
where
    Q: DeserializeOwned,
    R: Serialize,
    E: Serialize,
    F: FnMut(Context<W>, Q, Sink<R>) -> T + Send,
    T: Future<Output = Result<(), E>> + Send,
{
    fn begin(&mut self, _: Option<&mut W>, asked: Asked<'_, W>, answer: &mut Vec<u8>) -> Begun {
        let Some(answer_queue) = asked.answer_queue else { return Begun::Now(Status::BadRequest) };
        let method = &mut self.method;
        let made = guarded(answer, |_| {
            let request = decode(asked.request).map_err(|_| Status::BadRequest)?;
            Ok(method(
                Context::new(asked.environment, asked.origin, asked.deadline),
                request,
                Sink::new(answer_queue),
            ))
        });
        match made {
            Ok(Ok(future)) => Begun::Later(self.places.put(future)),
            Ok(Err(status)) | Err(status) => Begun::Now(status),
        }
    }

    fn poll(&mut self, place: u32, context: &mut task::Context<'_>, answer: &mut Vec<u8>) -> Poll<Status> {
        self.places.poll(place, context, answer)
    }

    fn end(&mut self, place: u32) {
        let _ = self.places.clear(place, &mut Vec::new());
    }
}
