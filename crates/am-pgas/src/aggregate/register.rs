//! Registration of aggregators, and the calls of their functions.

use super::channel::{Channel, Plan, Work};
use super::config::{AggregatorConfig, AggregatorError};
use super::item_buffer::{Layout, buffer};
use super::{Aggregation, Items, Requests};
use crate::pointer::Element;
use am_core::layer::{Outbox, Progress, ProgressResult};
use am_core::transport::{Category, Lane};
use am_core::zerocopy::{FromBytes, IntoBytes};
use am_core::{Address, HandlerResult, Handlers, HasLayer, Joining, Payload, Rank, Transport};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// Rounds of sending and handling in one call of a progress function.
const ROUNDS: u32 = 4;

/// Names an aggregator of items `T`, of the endpoint for which it was registered. [`Aggregate`](super::Aggregate)
/// has what it does.
pub struct Aggregator<T> {
    pub(super) layer: u32,
    pub(super) index: u32,
    item: PhantomData<fn(T)>,
}

impl<T> Clone for Aggregator<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Aggregator<T> {}

impl<T> fmt::Debug for Aggregator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aggregator({})", self.index)
    }
}

/// An [`Emitter`] has taken all that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitterError {
    /// The function pushes more than its aggregator was registered for.
    #[error("the function pushes more than {most} answers, which it was called with room for")]
    Full {
        /// Answers that there was room for.
        most: usize,
    },
    /// The job has no such rank.
    #[error("no rank {rank} in a job of {ranks} ranks (from 0)")]
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// Ranks in the job.
        ranks: u32,
    },
}

/// Where an answering function pushes.
#[derive(Debug)]
pub struct Emitter<'a, U> {
    staged: &'a mut Vec<(u32, U)>,
    most: usize,
    ranks: u32,
}

impl<U: Element> Emitter<'_, U> {
    /// Pushes an item for a rank. Never blocks or allocates.
    ///
    /// # Errors
    /// More items than [`AggregatorConfig::answers`] for each that was handled; no such rank. The item is not
    /// pushed then.
    #[inline]
    pub fn push(&mut self, to: Rank, item: U) -> Result<(), EmitterError> {
        if to.0 >= self.ranks {
            return Err(EmitterError::NoSuchRank { rank: to, ranks: self.ranks });
        }
        if self.staged.len() == self.most {
            return Err(EmitterError::Full { most: self.most });
        }
        self.staged.push((to.0, item));
        Ok(())
    }
}

fn channel<S: HasLayer<Aggregation>>(state: &mut S, index: u32) -> &mut Channel {
    let layer: &mut Aggregation = state.as_layer_mut();
    layer
        .channels
        .get_mut(index as usize)
        .expect("the state's layer is the one that aggregators were registered with")
}

/// Calls a function with some of a message's items, those of one source at a time.
fn each_source<T: Element>(
    layout: Layout,
    message: &[u8],
    sender: u32,
    records: std::ops::Range<usize>,
    mut call: impl FnMut(Rank, &[T]),
) {
    let all = message.len() / layout.record();
    let items =
        <[T]>::ref_from_bytes(&message[..all * layout.item]).expect("items are aligned where they have arrived");
    if !layout.from {
        if !records.is_empty() {
            call(Rank(sender), &items[records]);
        }
        return;
    }
    let mut first = records.start;
    while first < records.end {
        let from = layout.from(message, first);
        let same = |index: &usize| layout.from(message, *index) == from;
        let end = (first + 1..records.end).take_while(same).last().map_or(first + 1, |last| last + 1);
        call(Rank(from), &items[first..end]);
        first = end;
    }
}

impl Work {
    fn call<T: Element>(&self, layout: Layout, call: impl FnMut(Rank, &[T])) {
        let message = &self.words.as_bytes()[..self.len];
        each_source(layout, message, self.sender, self.first..self.first + self.count, call);
    }
}

/// A message as it has arrived, with its items aligned.
fn in_place<'a, T>(payload: &'a Payload<'_>, scratch: &'a mut [u64]) -> &'a [u8] {
    let aligned = |bytes: &&[u8]| bytes.as_ptr().addr().is_multiple_of(align_of::<T>());
    match payload.as_bytes().filter(aligned) {
        Some(bytes) => bytes,
        None => {
            let copied = payload.copy_to(scratch.as_mut_bytes());
            &scratch.as_bytes()[..copied]
        }
    }
}

/// Copies items out of a message that cannot be read in place, some at a time, and calls a function with those: so
/// they stay in the processor's first cache, and the lines of the rest come meanwhile.
#[inline(always)]
fn by_pieces<T: Element>(payload: &Payload<'_>, scratch: &mut [u64], mut call: impl FnMut(&[T])) {
    /// Bytes of items at a time, of a cache line, and by how many lines are fetched ahead.
    const PIECE: usize = 512;
    const LINE: usize = 64;
    const AHEAD: usize = 1024;
    let item = size_of::<T>();
    let scratch = scratch.as_mut_bytes();
    let piece = ((PIECE / item).max(1) * item).min(scratch.len() / item * item);
    for start in (0..payload.len()).step_by(piece) {
        (start..start + piece).step_by(LINE).for_each(|at| payload.prefetch(at + AHEAD));
        let count = payload.copy_from(start, &mut scratch[..piece]);
        let items = <[T]>::ref_from_bytes(&scratch[..count]);
        apart(&mut call, items.expect("a message has whole items, and words are aligned"));
    }
}

/// Calls a function that is compiled by itself, so that its loop has the processor's registers for itself.
#[inline(never)]
fn apart<T>(call: &mut impl FnMut(&[T]), items: &[T]) {
    call(items);
}

/// Sends and handles in turn; `handle` handles some of what has arrived, and tells whether there was anything.
fn advance<S: HasLayer<Aggregation>>(
    state: &mut S,
    outbox: &mut Outbox<'_>,
    index: u32,
    mut handle: impl FnMut(&mut S) -> bool,
) -> ProgressResult {
    let mut progress = Progress::Idle;
    for _ in 0..ROUNDS {
        let step = channel(state, index).advance(outbox);
        let mut handled = false;
        while handle(state) {
            handled = true;
        }
        if step == Progress::Advanced || handled {
            progress = Progress::Advanced;
        } else if progress == Progress::Idle {
            let waits = channel(state, index).has_work();
            progress = if waits { Progress::Blocked } else { step };
        }
        if !handled {
            break;
        }
    }
    Ok(progress)
}

impl<T: Element> Aggregator<T> {
    /// Registers an aggregator whose items are handled by `function`: it gets the endpoint's state, the rank that
    /// pushed, and items of that rank, as many of a message at a time as suit the processor. An item is aligned to
    /// at most eight bytes, which the compiler checks. On all ranks alike; allocates all that the aggregator ever
    /// uses.
    ///
    /// `layers` is what `state` will own: a [`Pgas`](crate::Pgas), or an [`Aggregation`] alone.
    ///
    /// With several hops the items of several ranks arrive together, and the function is called for each rank's;
    /// where it does not matter who pushed, [`Aggregator::register_anonymous`] is faster.
    ///
    /// # Errors
    /// [`AggregatorError`] if it could not work: an item that does not fit a message, buffers that do not fit the
    /// memory, a name that is taken, or too long: with a prefix and its sizes it makes a handler's name of at most
    /// 64 bytes. With messages below 100 MB, 24 bytes always fit.
    pub fn register<C: Transport, S: HasLayer<Aggregation>>(
        job: &Joining<C>,
        layers: &mut impl HasLayer<Aggregation>,
        handlers: &mut Handlers<S>,
        name: &str,
        config: AggregatorConfig,
        function: impl FnMut(&mut S, Rank, &[T]) + Send + 'static,
    ) -> Result<Self, AggregatorError> {
        Self::handled(job, layers.as_layer_mut(), handlers, name, config, true, function)
    }

    /// As [`Aggregator::register`], for a function that need not know who pushed.
    ///
    /// # Errors
    /// As [`Aggregator::register`].
    pub fn register_anonymous<C: Transport, S: HasLayer<Aggregation>>(
        job: &Joining<C>,
        layers: &mut impl HasLayer<Aggregation>,
        handlers: &mut Handlers<S>,
        name: &str,
        config: AggregatorConfig,
        mut function: impl FnMut(&mut S, &[T]) + Send + 'static,
    ) -> Result<Self, AggregatorError> {
        let function = move |state: &mut S, _: Rank, items: &[T]| function(state, items);
        Self::handled(job, layers.as_layer_mut(), handlers, name, config, false, function)
    }

    fn plan<C: Transport>(
        job: &Joining<C>,
        layer: &Aggregation,
        config: AggregatorConfig,
        named: bool,
        answer: Option<usize>,
    ) -> Plan {
        const {
            assert!(size_of::<T>() > 0, "an item has bytes");
            assert!(align_of::<T>() <= 8, "an item is aligned to at most eight bytes");
        };
        Plan {
            index: layer.channels.len() as u32,
            me: job.address(),
            ranks: job.shape().ranks,
            item: size_of::<T>(),
            named,
            answering: answer.is_some(),
            answer: answer.unwrap_or(0),
            largest: job.max_payload(Category::Medium, Lane::Request, 1),
            config,
        }
    }

    /// Adds the channel once its handler is registered.
    fn add<S>(
        layer: &mut Aggregation,
        handlers: &mut Handlers<S>,
        name: &str,
        plan: Plan,
        mut handler: impl FnMut(&mut S, Address, u32, Payload<'_>) -> HandlerResult + Send + 'static,
    ) -> Result<Self, AggregatorError> {
        let (hops, window) = (plan.grid().hops(), plan.config.window);
        let (item, bytes) = (plan.item, plan.message_bytes()?);
        let (answering, named) = (if plan.answering { "a" } else { "" }, if plan.named { "n" } else { "" });
        // The comparison of tables at attach tells ranks whose aggregators differ: all that messages depend on is
        // here.
        let full = format!("aggregate.{name} {item}/{bytes} {hops}h {window}{answering}{named}");
        let items = match hops {
            1 => Items::Straight(
                handlers.one_way(&full, move |state: &mut S, from, (): (), payload: Payload<'_>| {
                    handler(state, from, 0, payload)
                })?,
            ),
            _ => Items::ByHops(handlers.one_way(&full, handler)?),
        };
        let requests =
            Requests { items, room: layer.room, report: layer.report, over: layer.over, broken: layer.broken };
        layer.channels.push(Channel::new(plan, requests)?);
        Ok(Self { layer: layer.id, index: plan.index, item: PhantomData })
    }

    fn handled<C: Transport, S: HasLayer<Aggregation>>(
        job: &Joining<C>,
        layer: &mut Aggregation,
        handlers: &mut Handlers<S>,
        name: &str,
        config: AggregatorConfig,
        named: bool,
        function: impl FnMut(&mut S, Rank, &[T]) + Send + 'static,
    ) -> Result<Self, AggregatorError> {
        let plan = Self::plan(job, layer, config, named, None);
        let index = plan.index;
        let mut scratch = buffer(plan.message_bytes()?);
        let function = Arc::new(Mutex::new(function));
        let arrived = Arc::clone(&function);
        let handler = move |state: &mut S, from: Address, hop: u32, payload: Payload<'_>| -> HandlerResult {
            let channel = channel(state, index);
            if channel.arrive(from, hop, &payload)? {
                let layout = channel.layout();
                // A function that unwound is called again all the same.
                let mut function = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                if !layout.from && payload.as_bytes().is_none() {
                    channel.handled += (payload.len() / layout.record()) as u64;
                    by_pieces::<T>(&payload, &mut scratch, |items| function(state, from.rank, items));
                    return Ok(());
                }
                let message = in_place::<T>(&payload, &mut scratch);
                channel.handle_here(from.rank, message)?;
                let records = 0..message.len() / layout.record();
                each_source(layout, message, from.rank.0, records, |from, items| function(state, from, items));
            }
            Ok(())
        };
        let this = Self::add(layer, handlers, name, plan, handler)?;
        handlers.progress(move |state, outbox: &mut Outbox<'_>| {
            advance(state, outbox, index, |state| {
                let layout = channel(state, index).layout();
                let Some(work) = channel(state, index).next_work(usize::MAX) else { return false };
                let mut function = function.lock().unwrap_or_else(PoisonError::into_inner);
                work.call(layout, |from, items| function(state, from, items));
                channel(state, index).work_done(work);
                true
            })
        });
        Ok(this)
    }

    /// As [`Aggregator::register`], for a function that pushes into another aggregator: at most
    /// [`AggregatorConfig::answers`] items for each that it handles, to any ranks. The other one is registered
    /// before, so that answers never go in a circle.
    ///
    /// [`done`](super::Aggregate::done) of this aggregator comes before that of the answers': once it returns, all
    /// questions have been handled and their answers pushed.
    ///
    /// # Errors
    /// As [`Aggregator::register`]; [`AggregatorError::Foreign`] if the answers' aggregator belongs to other
    /// layers.
    pub fn register_answering<C: Transport, S: HasLayer<Aggregation>, U: Element>(
        job: &Joining<C>,
        layers: &mut impl HasLayer<Aggregation>,
        handlers: &mut Handlers<S>,
        name: &str,
        config: AggregatorConfig,
        answers: Aggregator<U>,
        mut function: impl FnMut(&mut S, Rank, &[T], &mut Emitter<'_, U>) + Send + 'static,
    ) -> Result<Self, AggregatorError> {
        let layer = layers.as_layer_mut();
        // What the function pushes is staged, and may wait for room in item buffers.
        let answer = size_of::<(u32, U)>() + size_of::<U>() + size_of::<u32>();
        let plan = Self::plan(job, layer, config, true, Some(answer));
        let (index, into, ranks) = (plan.index, answers.index, plan.ranks);
        if answers.layer != layer.id || into >= index {
            return Err(AggregatorError::Foreign);
        }
        let handler = move |state: &mut S, from: Address, hop: u32, payload: Payload<'_>| -> HandlerResult {
            channel(state, index).arrive(from, hop, &payload)?;
            Ok(())
        };
        let this = Self::add(layer, handlers, name, plan, handler)?;
        let each = usize::from(config.answers);
        let most = layer.channels[index as usize].records() * each;
        layer.channels[into as usize].overflow.grow(most);
        let mut staged: Vec<(u32, U)> = Vec::with_capacity(most);
        handlers.progress(move |state, outbox: &mut Outbox<'_>| {
            advance(state, outbox, index, |state| {
                let room = channel(state, into).overflow.free() / each;
                let layout = channel(state, index).layout();
                let Some(work) = channel(state, index).next_work(room) else { return false };
                // What a function that unwound has left is no answer.
                staged.clear();
                let mut emitter = Emitter { staged: &mut staged, most: work.count * each, ranks };
                work.call(layout, |from, items| function(state, from, items, &mut emitter));
                channel(state, index).work_done(work);
                let answers = channel(state, into);
                staged.drain(..).for_each(|(to, item)| answers.pour(to, item.as_bytes()));
                true
            })
        });
        Ok(this)
    }
}
