//! Collective operations: what the members of a [`Team`] do together.
//!
//! | operation | each member gives | each member gets |
//! |---|---|---|
//! | [`barrier`](Team::barrier) | | the knowledge that all have come |
//! | [`broadcast`](Team::broadcast) | the root: elements | the root's elements |
//! | [`reduce`](Team::reduce) | elements | the root: those of all, combined |
//! | [`allreduce`](Team::allreduce) | elements | those of all, combined |
//! | [`reduce_scatter`](Team::reduce_scatter) | a part for each | its part, combined |
//! | [`scan`](Team::scan), [`exscan`](Team::exscan) | elements | those of all up to it, or before it, combined |
//! | [`scatter`](Team::scatter) | the root: a part for each | its part |
//! | [`gather`](Team::gather) | a part | the root: all parts |
//! | [`allgather`](Team::allgather) | a part | all parts |
//! | [`alltoall`](Team::alltoall) | a part for each | its part of each |
//!
//! The forms that end in `v` have parts of different lengths. The blocking forms work on slices, which are copied
//! in and out of memory that the layer keeps; a team that calls the same again allocates nothing. The forms that
//! end in `_nb` own a vector, without a copy, and return a [`Collective`]: it goes on inside any wait and any poll
//! of the endpoint. Operations under way may overlap, of one team and of several; all members of a team start its
//! operations in the same order.
//!
//! Algorithms are chosen by [`Tuning`] and are [`schedule`]s. Reductions are combined in an order that the
//! schedule alone gives, so the same call on the same team gives the same bits in every run, and allreduce the
//! same on every rank. [`Ordered`] makes the order that of positions, whatever the counts and hosts.
//!
//! # Shared memory
//!
//! Where all members of a team share memory, small operations need no messages: each member writes what it gives
//! into a line of its own, and reads the lines of the others. Large broadcasts and allgathers pass through blocks
//! of memory, which their givers fill and the others copy out meanwhile. What a blocking allgather gives, and a
//! blocking broadcast whose root has no processor to itself, the others read where it is, by one copy, if the
//! system lets them and takes not much longer than a copy within a process. [`Tuning::direct`],
//! [`Tuning::direct_bytes`], [`Tuning::lent_bytes`] and [`Tuning::lent_cost`] say when. Such an operation may end
//! only after all members have come to it, and does not begin before all are done with the eighth before it. The
//! members of such a team compare all their calls, those of operations by messages too, whatever
//! [`Tuning::check`] says.
//!
//! # Losses
//!
//! When a member of a team is lost, all operations of the team under way end with an error that names it, and so
//! do later ones; the members tell each other. Other teams go on, and [`Team::shrink`] makes a team of the
//! survivors.
//!
//! # Limits
//!
//! - With [`Tuning::check`], every message says what its sender called, and a call is compared with those of the
//!   two neighbours, unless a neighbour is more than 32 calls ahead or behind. Without it, members compare their
//!   calls when a message goes with the call of one of them only, or when the oldest operation of a team has stood
//!   still for 20 ms at a member that waits or idles: that costs a message or two to each member that it waits
//!   for. One that only polls and tests handles, and never idles, tells nothing. Calls that differ in what no
//!   message shows, as in the operator, are not found then. A message of another size than is expected gives
//!   [`CollectiveError::Size`] with both sizes.
//! - [`CollectiveError::Unmatched`] names no calls: the two members called the same, as far as calls tell, one of
//!   them is more than 32 calls ahead, or it did not answer within a second.
//! - The lengths of parts that differ are no part of a call: those who expect others get
//!   [`CollectiveError::Size`].
//! - Calls are compared by the names of element types and operators, which programs of one job that were built by
//!   different compilers may give differently; functions are not told apart. Members that do not compare their
//!   calls combine whatever the others send, if it has the right size.
//! - A call that is refused at one member for its arguments fails the team as soon as another member hears of it,
//!   which may be while it is in an earlier operation.
//! - A blocking call whose operator panics keeps its memory until the endpoint ends.
//! - Memory that the layer keeps for blocking calls and early messages is used again and never given back.
//! - Each message looks for its team among all teams of the endpoint, by binary search.
//! - The schedules of the 16 calls that were used last are kept for each team; a program that turns round more of
//!   them allocates at each call.
//! - Receivers announce a large message when its round begins, so the pieces of [`Broadcast::Chain`] cost a round
//!   trip each, which predicted costs leave out.
//! - An endpoint has room in shared memory for the lines of 186 teams and the blocks of 3, and those of a team are
//!   used again once all its members are done with it; those of a team that failed are not. Other teams use
//!   messages.
//! - Large reductions, scatters, gathers and alltoalls use messages everywhere.
//!
//! # Example
//!
//! ```
//! use am_core::{Endpoint, Handlers, loopback};
//! use am_pgas::Team;
//! use am_pgas::collectives::{Collectives, Max, Sum};
//!
//! let ranks = loopback::network(3, loopback::LoopbackConfig::default()).into_iter().map(|transport| {
//!     std::thread::spawn(move || {
//!         let mut handlers = Handlers::<Collectives>::new();
//!         let collectives = Collectives::register(&mut handlers)?;
//!         let mut endpoint = Endpoint::attach(transport, handlers, collectives)?;
//!         let world = Team::world(&mut endpoint)?;
//!         let me = f64::from(world.me());
//!         assert_eq!(world.allreduce_one(&mut endpoint, me, Sum)?, 3.0);
//!         let largest = world.allreduce_nb(&mut endpoint, vec![me, -me], Max)?;
//!         let mut text = *b"hello";
//!         world.broadcast(&mut endpoint, 2, &mut text)?;
//!         assert_eq!(largest.wait(&mut endpoint)?, [2.0, 0.0]);
//!         let odd = world.split(&mut endpoint, Some(world.me() % 2), 0)?.expect("a colour was given");
//!         odd.barrier(&mut endpoint)?;
//!         endpoint.finish()?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     })
//! });
//! for rank in ranks.collect::<Vec<_>>() {
//!     rank.join().unwrap().unwrap();
//! }
//! ```
//!
//! [`Team`]: crate::Team
//! [`Team::barrier`]: crate::Team::barrier

pub mod algorithms;
#[cfg(test)]
mod direct_tests;
mod engine;
mod error;
mod exchanges;
mod handle;
#[cfg(test)]
mod lending_tests;
mod lent_cost;
#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod model;
mod operations;
mod operator;
mod pricing;
pub mod schedule;
#[cfg(test)]
pub(crate) mod tests;
mod tuning;

pub use error::{Call, CollectiveError, Name, Operation};
pub use handle::{Collective, Notified};
pub use operator::{And, Max, Min, Operator, Or, Ordered, Product, Sum, Xor};
pub use tuning::{Allgather, Allreduce, Alltoall, Broadcast, Gather, Reduce, ReduceScatter, Row, Scan, Tuning};

pub(crate) use engine::{Members, Offer};
pub(crate) use error::Failure;
use error::{CallWords, FailureWords};
pub(crate) use operations::call;

#[cfg(doc)]
use crate::Team;
use crate::team::Shrinking;
use am_core::{Address, Endpoint, Handlers, HasLayer, Payload, RegisterError, Transport};
use engine::{Engine, Head, Requests, Words};

/// Where a member runs and what memory it offers.
pub(crate) type Place = [u32; 3];

/// A team whose members tell each other of their hosts, after a time-out.
#[derive(Debug)]
pub(crate) struct Learning {
    /// The team that it was made from.
    pub(crate) from: Option<u32>,
    pub(crate) team: crate::Team,
    /// What this member offers.
    pub(crate) offer: Offer,
    pub(crate) hosts: Collective<Vec<Place>>,
}

/// The layer of teams and collective operations; see the [module](self).
#[derive(Debug)]
pub struct Collectives {
    /// Absent while the endpoint itself sends for it, which calls no handler.
    engine: Option<Box<Engine>>,
    pub(crate) shrinking: Shrinking,
    pub(crate) world: Option<crate::Team>,
    pub(crate) learning: Vec<Learning>,
}

impl Collectives {
    /// Registers the layer `collectives` with the default [`Tuning`] and makes its state. Allocates.
    ///
    /// # Errors
    /// [`RegisterError`] if the layer is there already, or the table is full.
    pub fn register<S: HasLayer<Self>>(handlers: &mut Handlers<S>) -> Result<Self, RegisterError> {
        Self::register_tuned(handlers, Tuning::default())
    }

    /// As [`register`](Self::register), with a tuning, which has to be the same on all ranks: handler tables
    /// differ otherwise.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    ///
    /// # Panics
    /// If the window is less than 2, the radix of a tree less than 2, or a segment of a chain has no bytes.
    pub fn register_tuned<S: HasLayer<Self>>(
        handlers: &mut Handlers<S>,
        tuning: Tuning,
    ) -> Result<Self, RegisterError> {
        tuning.validate();
        let mut layer = handlers.layer::<Self>("collectives")?;
        let name = format!("message-{:016x}", tuning.fingerprint());
        let message =
            layer.one_way(&name, |layer: &mut Self, from: Address, head: Head, bytes: Payload<'_>| {
                layer.engine_mut().arrive(from, head, None, None, &bytes)
            })?;
        let tiny = layer.one_way(
            "tiny",
            |layer: &mut Self, from: Address, (head, word): (Head, u64), _: Payload<'_>| {
                layer.engine_mut().arrive_in_words(from, head, 8, &[word])
            },
        )?;
        let small = layer.one_way(
            "small",
            |layer: &mut Self, from: Address, (head, len, (a, b, c, d)): (Head, u32, Words), _: Payload<'_>| {
                layer.engine_mut().arrive_in_words(from, head, len as usize, &[a, b, c, d])
            },
        )?;
        let piece = layer.one_way(
            "piece",
            |layer: &mut Self, from: Address, (head, extent): (Head, (u64, u64)), bytes: Payload<'_>| {
                layer.engine_mut().arrive(from, head, Some(extent), None, &bytes)
            },
        )?;
        let checked = layer.one_way(
            "checked",
            |layer: &mut Self,
             from: Address,
             (head, extent, call): (Head, (u64, u64), CallWords),
             bytes: Payload<'_>| {
                layer.engine_mut().arrive(from, head, Some(extent), Some(call), &bytes)
            },
        )?;
        let ready = layer.one_way("ready", |layer: &mut Self, from: Address, head: Head, _: Payload<'_>| {
            layer.engine_mut().ready(from, head, None)
        })?;
        let checked_ready = layer.one_way(
            "checked-ready",
            |layer: &mut Self, from: Address, (head, call): (Head, CallWords), _: Payload<'_>| {
                layer.engine_mut().ready(from, head, Some(call))
            },
        )?;
        let taken =
            layer.one_way("taken", |layer: &mut Self, from: Address, words: [u32; 2], _: Payload<'_>| {
                layer.engine_mut().taken(from, words)
            })?;
        let failed = layer.one_way(
            "failed",
            |layer: &mut Self, from: Address, (team, words): (u32, FailureWords), _: Payload<'_>| {
                layer.engine_mut().failed(from, team, words)
            },
        )?;
        let notice =
            layer.one_way("notice", |layer: &mut Self, from: Address, words: [u32; 8], _: Payload<'_>| {
                layer.engine_mut().noticed(from, words)
            })?;
        let suspicion = layer.one_way(
            "suspicion",
            |layer: &mut Self,
             from: Address,
             (operation, call, ranks): ([u32; 2], CallWords, [u32; 2]),
             _: Payload<'_>| layer.engine_mut().suspected(from, operation, call, ranks),
        )?;
        let shrinking = Shrinking::register(&mut layer)?;
        layer.progress(|layer: &mut Self, outbox| {
            let shrinking = layer.shrinking.progress(outbox)?;
            let engine = layer.engine_mut();
            let progress = engine.progress(outbox)?.max(shrinking);
            Ok(if engine.be_patient(outbox) { engine.progress(outbox)?.max(progress) } else { progress })
        });
        layer.changed(|layer: &Self| layer.engine.as_ref().is_some_and(|engine| engine.has_changed()));
        let requests = Requests {
            message,
            tiny,
            small,
            piece,
            checked,
            ready,
            checked_ready,
            taken,
            failed,
            notice,
            suspicion,
        };
        Ok(Self {
            engine: Some(Box::new(Engine::new(requests, tuning))),
            shrinking,
            world: None,
            learning: Vec::new(),
        })
    }

    /// Messages that wait here for their operation to come to them, and their bytes; bounded by [`Tuning::window`]
    /// and [`Tuning::eager`].
    pub fn waiting(&self) -> (usize, usize) {
        self.engine().waiting()
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is here whenever handlers run")
    }

    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("the engine is here whenever handlers run")
    }
}

/// An endpoint with this layer, as the engine sends through it.
struct Direct<'e, T: Transport, S>(&'e mut Endpoint<T, S>);

impl<T: Transport, S> engine::Post for Direct<'_, T, S> {
    #[inline]
    fn send<A: am_core::Arguments>(
        &mut self,
        to: Address,
        request: am_core::Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), am_core::SendError> {
        if payload.is_empty() {
            return self.0.try_request(to, request, args);
        }
        self.0.try_request_medium(to, request, args, payload)
    }

    fn largest(&self, to: Address, words: usize) -> u64 {
        self.0.max_payload(to, am_core::Category::Medium, am_core::Lane::Request, words).unwrap_or(0)
    }

    fn wake_peer(&mut self, member: Address) {
        self.0.wake_peer(member);
    }

    fn give_way(&mut self) {
        self.0.give_way();
    }

    fn is_fork(&self, other: Address) -> bool {
        self.0.status(other) == Some(am_core::PeerStatus::Lost(am_core::LossCause::Forked))
    }

    fn read_lent(
        &mut self,
        of: Address,
        lent: &am_core::transport::Lent,
        at: u64,
        out: &mut [u8],
    ) -> Result<(), am_core::transport::LentFault> {
        self.0.read_lent(of, lent, at, out)
    }
}

/// The engine while the endpoint itself sends for it. It is put back even if an operator panics.
struct Lent<'e, T: Transport, S: HasLayer<Collectives>> {
    endpoint: &'e mut Endpoint<T, S>,
    engine: Option<Box<Engine>>,
}

impl<T: Transport, S: HasLayer<Collectives>> Drop for Lent<'_, T, S> {
    fn drop(&mut self) {
        self.endpoint.layer_unscheduled::<Collectives>().engine = self.engine.take();
    }
}

/// Lets the engine work, with what it sends through at hand.
fn with_post<T: Transport, S: HasLayer<Collectives>, R>(
    endpoint: &mut Endpoint<T, S>,
    work: impl FnOnce(&mut Engine, &mut Direct<'_, T, S>) -> R,
) -> R {
    let engine = endpoint.layer_unscheduled::<Collectives>().engine.take();
    let mut lent = Lent { endpoint, engine };
    let Lent { endpoint, engine } = &mut lent;
    let engine = engine.as_mut().expect("the engine is here between polls");
    work(engine, &mut Direct(endpoint))
}

/// Lets the engine work and then send at once, without a poll between.
pub(crate) fn with_engine<T: Transport, S: HasLayer<Collectives>, R>(
    endpoint: &mut Endpoint<T, S>,
    work: impl FnOnce(&mut Engine) -> R,
) -> R {
    let engine = endpoint.layer_unscheduled::<Collectives>().engine.take();
    let mut lent = Lent { endpoint, engine };
    let engine = lent.engine.as_mut().expect("the engine is here between polls");
    let worked = work(engine);
    // What cannot be sent for another reason than room ends its operation.
    let _ = engine.progress(&mut Direct(lent.endpoint));
    let more = engine.has_work();
    drop(lent);
    if more {
        // The next poll carries it on.
        let _ = endpoint.layer_mut::<Collectives>();
    }
    worked
}
