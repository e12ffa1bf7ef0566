//! Methods as ranks register them: names, types and code.

use crate::code::{AsyncCode, Code, FunctionCode, SliceCode, StreamCode};
use crate::context::{Context, Origin};
use crate::method::{Idempotent, Method, MethodId, PlainValue, SliceMethod, StreamMethod};
use crate::stream::Sink;
use am_core::RegisterError;
use am_core::zerocopy::IntoBytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;
use std::fmt;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Function,
    Async,
    Stream,
}

/// A method, registered.
pub(crate) struct Registered<W> {
    pub(crate) name: String,
    /// What ranks compare besides the name.
    pub(crate) what: String,
    pub(crate) digest: u32,
    /// Whether it answers any number of times.
    pub(crate) stream: bool,
    /// Whether it answers later.
    pub(crate) later: bool,
    pub(crate) code: Box<dyn Code<W>>,
    /// Requests that it works on at a time.
    pub(crate) limit: u32,
    /// Requests that it works on.
    pub(crate) running: u32,
    /// Whether it is a function that has had an answer longer than a reply.
    pub(crate) long_answers: bool,
    /// Bytes that an answer is expected to have that is kept until it is sent.
    pub(crate) expected: usize,
}

/// The methods of a rank, being registered: the same on every rank, in the same order. Ranks compare names and
/// types when they attach. `W` is the state that methods work on.
///
/// Methods return a `Result`; what its error is, is up to each. [`Failure`](crate::Failure) is the text of any
/// error.
///
/// ```
/// use am_async::{Failure, Methods};
///
/// let mut methods = Methods::<u64>::new();
/// // A function runs when its request comes. It sees the state, and can not wait.
/// let add = methods.function("add", |total, _, number: u64| {
///     *total = total.checked_add(number).ok_or(Failure::new("the sum is too large"))?;
///     Ok::<_, Failure>(*total)
/// })?;
/// // An `async` method can call, and wait; the state is there in between.
/// let later = methods.asynchronous("later", |context, number: u64| async move {
///     context.sleep(am_core::Span::from_micros(10)).await;
///     Ok::<u64, Failure>(context.with(|total| *total + number))
/// })?;
/// // Slices of plain values travel as they lie in memory.
/// let scale = methods.slices("scale", |factor, _, values: &[f64], out| {
///     out.extend(values.iter().map(|value| value * *factor as f64));
///     Ok::<(), Failure>(())
/// })?;
/// # Ok::<(), am_core::RegisterError>(())
/// ```
pub struct Methods<W> {
    pub(crate) all: Vec<Registered<W>>,
}

impl<W> fmt::Debug for Methods<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.all.iter().map(|method| (&method.name, &method.what))).finish()
    }
}

impl<W: Send + 'static> Default for Methods<W> {
    fn default() -> Self {
        Self::new()
    }
}

/// FNV-1a, folded to 32 bits.
fn digest(text: &str) -> u32 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash ^ (hash >> 32)) as u32
}

impl<W: Send + 'static> Methods<W> {
    /// No methods.
    pub fn new() -> Self {
        Self { all: Vec::new() }
    }

    fn add(
        &mut self,
        name: &str,
        what: String,
        kind: Kind,
        code: Box<dyn Code<W>>,
    ) -> Result<MethodId, RegisterError> {
        // The layer's name stands before it.
        if name.is_empty() || name.len() > 48 || name.chars().any(char::is_control) {
            return Err(RegisterError::BadName { name: name.into() });
        }
        if self.all.iter().any(|taken| taken.name == name) {
            return Err(RegisterError::NameTaken { name: name.into() });
        }
        let index = u16::try_from(self.all.len()).map_err(|_| RegisterError::TableFull { name: name.into() })?;
        let digest = digest(&format!("{name}: {what}"));
        let (stream, later, limit) = (kind == Kind::Stream, kind != Kind::Function, u32::MAX);
        let name = name.into();
        let (running, long_answers, expected) = (0, false, 0);
        self.all.push(Registered {
            name,
            what,
            digest,
            stream,
            later,
            code,
            limit,
            running,
            long_answers,
            expected,
        });
        Ok(MethodId { index, digest })
    }

    /// Registers a function: it runs as soon as its request has come, inside the poll that brings it, and answers
    /// at once. It gets the state, where the request comes from, and the request.
    ///
    /// # Errors
    /// [`RegisterError`] for a name that is taken, or not 1 to 48 bytes of printable text.
    pub fn function<Q, R, E, F>(&mut self, name: &str, function: F) -> Result<Method<Q, R, E>, RegisterError>
    where
        Q: DeserializeOwned + 'static,
        R: Serialize + 'static,
        E: Serialize + 'static,
        F: FnMut(&mut W, &Origin, Q) -> Result<R, E> + Send + 'static,
    {
        let what = signature::<Q, R, E>("function");
        Ok(Method::new(self.add(name, what, Kind::Function, Box::new(FunctionCode::new(function)))?))
    }

    /// Registers an `async` method: its future is polled by the endpoint, whenever it polls. It may call, also the
    /// rank that called it, wait for time, and use the state through its [`Context`]. It is dropped where it waits
    /// when its caller has cancelled the call, is lost, or no longer waits.
    ///
    /// Allocates only when more of them run at a time than ever before.
    ///
    /// # Errors
    /// As [`Methods::function`].
    pub fn asynchronous<Q, R, E, F, T>(&mut self, name: &str, method: F) -> Result<Method<Q, R, E>, RegisterError>
    where
        Q: DeserializeOwned + 'static,
        R: Serialize + 'static,
        E: Serialize + 'static,
        F: FnMut(Context<W>, Q) -> T + Send + 'static,
        T: Future<Output = Result<R, E>> + Send + 'static,
    {
        let what = signature::<Q, R, E>("async");
        Ok(Method::new(self.add(name, what, Kind::Async, Box::new(AsyncCode::new(method)))?))
    }

    /// Registers a function from a slice of plain values to another one, which it appends to what it is given.
    /// They travel as they lie in memory, without being serialised. The ranks of a job have the same byte order.
    ///
    /// # Errors
    /// As [`Methods::function`].
    pub fn slices<A, B, E, F>(&mut self, name: &str, function: F) -> Result<SliceMethod<A, B, E>, RegisterError>
    where
        A: PlainValue,
        B: PlainValue,
        E: Serialize + 'static,
        F: FnMut(&mut W, &Origin, &[A], &mut SliceAnswer<'_, B>) -> Result<(), E> + Send + 'static,
    {
        const { assert!(size_of::<A>() != 0, "values of no bytes do not travel as slices") };
        const { assert!(align_of::<A>() <= 16, "values of an alignment above 16 do not travel as slices") };
        let sizes = format!("slices of {} and {} bytes", size_of::<A>(), size_of::<B>());
        let what = signature::<A, B, E>(&sizes);
        Ok(SliceMethod::new(self.add(name, what, Kind::Function, Box::new(SliceCode::new(function)))?))
    }

    /// Registers an `async` method that answers any number of times, through a [`Sink`], before it ends.
    ///
    /// # Errors
    /// As [`Methods::function`].
    pub fn stream<Q, R, E, F, T>(&mut self, name: &str, method: F) -> Result<StreamMethod<Q, R, E>, RegisterError>
    where
        Q: DeserializeOwned + 'static,
        R: Serialize + 'static,
        E: Serialize + 'static,
        F: FnMut(Context<W>, Q, Sink<R>) -> T + Send + 'static,
        T: Future<Output = Result<(), E>> + Send + 'static,
    {
        let what = signature::<Q, R, E>("stream");
        Ok(StreamMethod::new(self.add(name, what, Kind::Stream, Box::new(StreamCode::new(method)))?))
    }

    /// Declares that repeated requests to a method do no harm, so that calls of it may be retried. Part of what
    /// ranks compare.
    ///
    /// # Panics
    /// If the method is of another table.
    pub fn idempotent<M: crate::Callable>(&mut self, method: M) -> Idempotent<M> {
        self.of(method.id()).what.push_str(", idempotent");
        Idempotent(method)
    }

    /// Limits the requests that an `async` method or stream works on at a time, on this rank. More are
    /// [refused](crate::CallError::Refused). Without this, [`CallConfig::tasks`](crate::CallConfig::tasks) limits
    /// all of them together.
    ///
    /// # Panics
    /// If the method is of another table.
    pub fn limit<M: Limited>(&mut self, method: &M, requests: u32) -> &mut Self {
        self.of(method.method_id()).limit = requests;
        self
    }

    fn of(&mut self, id: MethodId) -> &mut Registered<W> {
        let method = self.all.get_mut(usize::from(id.index)).filter(|method| method.digest == id.digest);
        method.expect("the method was registered in another table")
    }
}

/// Methods of any kind, for [`Methods::limit`].
pub trait Limited: crate::method::Sealed {
    /// Which method it is.
    fn method_id(&self) -> MethodId;
}

impl<Q, R, E> Limited for Method<Q, R, E> {
    fn method_id(&self) -> MethodId {
        self.id
    }
}

impl<Q, R, E> Limited for SliceMethod<Q, R, E> {
    fn method_id(&self) -> MethodId {
        self.id
    }
}

impl<Q, R, E> Limited for StreamMethod<Q, R, E> {
    fn method_id(&self) -> MethodId {
        self.id
    }
}

impl<M: Limited> Limited for Idempotent<M> {
    fn method_id(&self) -> MethodId {
        self.0.method_id()
    }
}

/// What ranks compare of a method besides its name.
fn signature<Q, R, E>(kind: &str) -> String {
    format!("{kind} {} -> {}, {}", type_name::<Q>(), type_name::<R>(), type_name::<E>())
}

/// The answer of a [slice method](Methods::slices), being written.
#[derive(Debug)]
pub struct SliceAnswer<'a, B> {
    bytes: &'a mut Vec<u8>,
    values: std::marker::PhantomData<B>,
}

impl<'a, B: PlainValue> SliceAnswer<'a, B> {
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, values: std::marker::PhantomData }
    }

    /// Appends a value.
    pub fn push(&mut self, value: B) {
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// Appends values.
    pub fn extend_from_slice(&mut self, values: &[B]) {
        self.bytes.extend_from_slice(values.as_bytes());
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<B>().max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<B: PlainValue> Extend<B> for SliceAnswer<'_, B> {
    fn extend<I: IntoIterator<Item = B>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}
