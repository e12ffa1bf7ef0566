//! Aggregation: many small items for other ranks travel in few large messages.
//!
//! An [`Aggregator`] is registered with the function that handles its items where they arrive.
//! [`push`](Aggregate::push) puts an item into the buffer of its destination, which costs a few instructions; a
//! buffer travels as one Medium message, and the function gets a slice. [`done`](Aggregate::done) returns when all
//! ranks have said so and every item has been handled everywhere; then the aggregator can be used again. Each item
//! is handled exactly once, and the items of one rank for another in the order in which they were pushed, where
//! the transport keeps the order of messages. When a rank is lost, `done` fails: items on their way to that rank,
//! or through it, may not have been handled.
//!
//! The design is that of bale's conveyors (Maley and DeVinney, 2019): buffers of fixed size for the next hop of
//! each item, direct, by rows and columns of a matrix, or through a grid of three dimensions ([`Route`]), and an
//! end that ranks agree on without a collective call. Unlike there, items are not pulled: the function handles
//! them inside any poll or wait of the endpoint.
//!
//! # What is held back
//!
//! Items wait until a push finds their message full, the endpoint is about to idle, or the [`SendPolicy`] says so:
//! a message that the latest push filled waits for the next push that needs its buffer, or for the endpoint to
//! idle. How many of a rank's own items wait at most is its look-ahead ([`AggregatorConfig::look_ahead`]);
//! [`Aggregate::usage`] tells that bound, how many wait now, and the memory that all buffers take. Nothing is
//! allocated after registration.
//!
//! # Functions that push
//!
//! A function cannot push, since it runs inside a poll, where nothing can wait for room. A function registered
//! with [`Aggregator::register_answering`] has an [`Emitter`] to another aggregator, registered before, and pushes
//! a bounded number of items for each that it handles. It is called when there is room for all of them, and
//! messages that come meanwhile wait in places that their senders' windows are limited to. For more than that, a
//! function leaves work in the program's state, which the program pushes.
//!
//! # Example
//!
//! Every rank counts in a histogram that is spread over all of them.
//!
//! ```
//! use am_core::{Endpoint, Handlers, Rank, loopback};
//! use am_pgas::aggregate::{Aggregate, Aggregation, Aggregator, AggregatorConfig};
//! use am_pgas::{Pgas, pgas_state};
//!
//! struct State { pgas: Pgas, counts: Vec<u64> }
//! pgas_state!(State, pgas);
//!
//! let ranks = loopback::network(2, Default::default()).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let joining = Endpoint::builder(transport);
//!         let mut handlers = Handlers::<State>::new();
//!         let mut pgas = Pgas::register(&mut handlers)?;
//!         let count = Aggregator::register(
//!             &joining, &mut pgas, &mut handlers, "count", AggregatorConfig::new(),
//!             |state: &mut State, _, bins: &[u32]| bins.iter().for_each(|bin| state.counts[*bin as usize] += 1),
//!         )?;
//!         let mut endpoint = joining.attach(handlers, State { pgas, counts: vec![0; 4] })?;
//!         for value in 0..800 {
//!             endpoint.push(count, Rank(value % 8 / 4), value % 4)?;
//!         }
//!         endpoint.done(count)?;
//!         assert_eq!(endpoint.state().counts, [200; 4]);
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```

mod agreement;
mod channel;
mod config;
mod item_buffer;
mod operations;
mod overflow;
mod parked_messages;
mod progress;
mod register;
mod routes;

pub use config::{AggregateError, AggregatorConfig, AggregatorError, Route, SendPolicy};
pub use operations::{Aggregate, AggregatorUsage};
pub use register::{Aggregator, Emitter, EmitterError};

use agreement::{Broken, Sums};
use am_core::{Handlers, HasLayer, Rank, RegisterError, Request};
use channel::Channel;
use config::Malformed;
use std::sync::atomic::{AtomicU32, Ordering};

/// The handler that items travel to.
#[derive(Clone, Copy, Debug)]
enum Items {
    /// Where there is but one hop, which needs no number.
    Straight(Request<()>),
    /// The hop.
    ByHops(Request<u32>),
}

/// The handlers that a channel's messages travel to.
#[derive(Clone, Copy, Debug)]
struct Requests {
    items: Items,
    /// Room for messages: the channel, the hop, how many.
    room: Request<(u32, u32, u32)>,
    /// Sums of a part of the tree: the channel, times done, pushed, handled.
    report: Request<(u32, u64, u64, u64)>,
    /// It is over: the channel, for which time.
    over: Request<(u32, u64)>,
    /// It cannot get over: the channel, the rank that is the reason, and whether a message of that was refused.
    broken: Request<(u32, u32, u32)>,
}

/// The layer of aggregation; see the [module](self).
#[derive(Debug)]
pub struct Aggregation {
    /// Tells the aggregators of one endpoint from another's.
    id: u32,
    channels: Vec<Channel>,
    room: Request<(u32, u32, u32)>,
    report: Request<(u32, u64, u64, u64)>,
    over: Request<(u32, u64)>,
    broken: Request<(u32, u32, u32)>,
}

/// Numbers for [`Aggregation::id`].
static LAYERS: AtomicU32 = AtomicU32::new(0);

impl Aggregation {
    /// Registers the layer `aggregate` and makes its state, which belongs into the endpoint's. It has no
    /// aggregators yet.
    ///
    /// # Errors
    /// [`RegisterError`] if the layer is there already, or the table is full.
    pub fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
        let mut layer = handlers.layer::<Self>("aggregate")?;
        let room = layer.one_way("room", |layer: &mut Self, from, (index, hop, messages), _| {
            layer.named(index)?.room_back(from.rank, hop, messages)
        })?;
        let report = layer.one_way("report", |layer: &mut Self, from, (index, done, pushed, handled), _| {
            let (index, sums): (u32, Sums) = (index, Sums { done, pushed, handled });
            let right = layer.named(index)?.agreement.reported(from.rank.0, sums);
            if right { Ok(()) } else { Err(Malformed::Agreement { from: from.rank }) }
        })?;
        let over = layer.one_way("over", |layer: &mut Self, from, (index, times): (u32, u64), _| {
            let right = layer.named(index)?.agreement.ended(from.rank.0, times);
            if right { Ok(()) } else { Err(Malformed::Agreement { from: from.rank }) }
        })?;
        let broken =
            layer.one_way("broken", |layer: &mut Self, from, (index, rank, refused): (u32, u32, u32), _| {
                let why = if refused == 0 { Broken::Gone(Rank(rank)) } else { Broken::Refused(Rank(rank)) };
                let right = layer.named(index)?.agreement.warned(from.rank.0, why);
                if right { Ok(()) } else { Err(Malformed::Agreement { from: from.rank }) }
            })?;
        // Relaxed: the number only has to be unique.
        let id = LAYERS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, channels: Vec::new(), room, report, over, broken })
    }

    fn named(&mut self, index: u32) -> Result<&mut Channel, Malformed> {
        self.channels.get_mut(index as usize).ok_or(Malformed::Aggregator { index })
    }
}
