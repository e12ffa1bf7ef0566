//! Typed calls between the ranks of a job, as a [layer](am_core::layer) on [`am_core`] that any transport carries:
//! a request goes to a method on another rank, and its answer comes back as a future.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Methods`], [`Method`], [`SliceMethod`], [`StreamMethod`] | what ranks register, and the handles that carry names and types |
//! | [`Calls`], [`CallConfig`] | the layer: the state that methods work on, and its limits |
//! | [`CallEndpoint`] | calls of an [`Endpoint`](am_core::Endpoint): blocking waits, and futures that it runs |
//! | [`Caller`], [`Call`], [`Answers`] | calls under way, deadlines, retries, streams; from any thread |
//! | [`CallEach`], [`join`] | one request to many ranks; a bounded number of futures under way |
//! | [`DistObject`], [`Objects`], [`Update`] | objects of which every rank has a value, fetched and changed by calls |
//! | [`Driver`], [`drive`] | a task of tokio, or of any executor, that serves an endpoint |
//! | `metrics` | counters and latencies by method, as a table, JSON and in Prometheus' format; feature `metrics` |
//! | `TraceContext`, `Caller::traced` | spans of the crate `tracing` that cross ranks ([`CallConfig`]); feature `tracing` |
//! | `MethodService`, `Caller::service` | a method as a service of `tower`; feature `tower` |
//! | [`Context`] | what an `async` method works with: state between awaits, calls, time |
//! | [`CallError`] | what calls fail with |
//! | `table`, `server` (private) | both sides as state machines without a network |
//!
//! # Example
//!
//! ```
//! use am_async::{CallEndpoint, CallError, Calls, Failure, Methods};
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//! use std::collections::HashMap;
//!
//! let ranks = loopback::network(2, loopback::LoopbackConfig::default()).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut methods = Methods::<HashMap<String, u64>>::new();
//!         let insert = methods.function("insert", |map: &mut HashMap<_, _>, _, (key, value): (String, u64)| {
//!             Ok::<_, Failure>(map.insert(key, value))
//!         })?;
//!         let get = methods.function("get", |map: &mut HashMap<_, _>, _, key: String| {
//!             map.get(&key).copied().ok_or(Failure::new("there is no such key"))
//!         })?;
//!         let mut handlers = Handlers::new();
//!         let calls = Calls::register(&mut handlers, methods, HashMap::new())?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, calls)?;
//!         if endpoint.rank() == Rank(0) {
//!             // A call that blocks.
//!             endpoint.call(Rank(1), insert, &("one".into(), 1)).wait(&mut endpoint)?;
//!             // Calls as futures.
//!             let found = endpoint.run(|context| async move {
//!                 let one = context.call(Rank(1), get, &"one".into());
//!                 let two = context.call(Rank(1), get, &"two".into());
//!                 (one.await, two.await)
//!             })?;
//!             assert_eq!(found, (Ok(1), Err(CallError::Failed(Failure::new("there is no such key")))));
//!         }
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```
//!
//! # How calls travel
//!
//! A request that fits one message is an active message, whose handler runs a function at once and replies; an
//! `async` method is begun when the poll has ended, and answers when it is done. A longer request or answer is
//! announced, and sent in parts when its receiver has memory for it ([`CallConfig::receive_bytes`]). Answers of a
//! stream that are ready together travel in one message; long ones go like other long answers, one after the
//! other. No call allocates once buffers and futures of its size have been used, except for what its values hold.
//!
//! # What is bounded
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | calls under way to a rank, and in all | [`CallConfig::calls_per_peer`], [`CallConfig::calls`] | they wait in order; [`Caller::try_call`] says why it would |
//! | requests that a rank works on | [`CallConfig::tasks`], [`Methods::limit`] | [`CallError::Refused`] |
//! | bytes of a request or answer | [`CallConfig::max_bytes`] | [`CallError::RequestTooLarge`], [`CallError::AnswerTooLarge`] |
//! | bytes of long ones on their way to a rank, requests and answers together | [`CallConfig::receive_bytes`] | they wait at their sender, in order |
//! | answers of a stream that nobody has taken, of up to `max_bytes` each | [`CallConfig::stream_window`] | the method waits |
//! | answers of a stream longer than a message that wait for the network | 1, and one announced | the method waits |
//!
//! Functions are not among the requests that a rank works on: they have ended when their message has been handled.
//! The exception are answers longer than a reply, which are kept until they have been sent: a function that has
//! had one is refused while the rank works on as many requests as it may. A function that takes long keeps its
//! rank from everything else; an `async` method that waits keeps nobody.
//!
//! # How calls end
//!
//! Each call ends once: with its answer, or with one [`CallError`]. A dropped [`Call`] is cancelled, and its
//! callee drops the method's future where it waits. A deadline does the same at both sides. The loss of the callee
//! ends its calls as soon as the transport tells, and what it had answered before counts; the loss of a caller
//! ends what is worked on for it. A method that panics answers with the text of the panic, and leaves the state as
//! it was then.
//!
//! # Limits of this version
//!
//! - A rank that [leaves](am_core::Endpoint::leave) with calls unanswered is noticed by ranks that wait, but on a
//!   simulated machine only when something else happens there.

#![forbid(unsafe_code)]

mod answers;
mod buffers;
mod caller;
mod code;
mod config;
mod context;
mod coverage;
mod doorbell;
mod driver;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing {
    //! What fuzzers and ordinary tests call alike.

    pub use crate::layer::fuzzing::hostile;
}
mod groups;
mod layer;
mod lent;
mod meter;
mod method;
mod methods;
#[cfg(feature = "metrics")]
pub mod metrics;
mod objects;
mod outcome;
mod room;
mod run;
mod server;
mod shared;
mod stream;
mod table;
mod task;
mod timers;
#[cfg(feature = "tower")]
mod tower;
mod trace;
mod tree;
mod wake_up;
mod wire;

pub use caller::{Answers, Call, Caller, Retries, Sleep};
pub use config::CallConfig;
pub use context::{Context, Origin};
pub use driver::{Driver, DriverEnd, StopHandle, drive};
pub use error::{Busy, CallError, Failure, Refusal};
pub use groups::{CallEach, Join, join};
pub use layer::Calls;
pub use method::{Callable, Idempotent, Malformed, Method, MethodId, PlainValue, SliceMethod, StreamMethod};
pub use methods::{Limited, Methods, SliceAnswer};
pub use objects::{DistObject, Objects, Update};
pub use run::CallEndpoint;
pub use stream::{Sink, SinkError};
#[cfg(feature = "tower")]
pub use tower::MethodService;
#[cfg(feature = "tracing")]
pub use trace::{BadTraceContext, TraceContext};
