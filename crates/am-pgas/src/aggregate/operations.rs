//! What an endpoint does with aggregators.

use super::Aggregation;
use super::agreement::Broken;
use super::channel::Channel;
use super::config::AggregateError;
use super::register::Aggregator;
use crate::pointer::Element;
use am_core::transport::{LossCause, PeerStatus};
use am_core::{Address, Endpoint, HasLayer, PollError, Rank, Transport, WaitError};

/// Steps of a wait between two looks at the status of the ranks that it needs.
const LOOKS: u32 = 64;

/// What an aggregator holds at a rank, and what it may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AggregatorUsage {
    /// Items of this rank that wait to be sent, or to be handled where they are for this rank.
    pub held: usize,
    /// How many of these there may be: the look-ahead. Items that functions push may wait beyond it, as many as
    /// [`overflow`](Self::overflow).
    pub look_ahead: usize,
    /// Room for items that functions have pushed beyond the look-ahead.
    pub overflow: usize,
    /// Items of other ranks that wait for their next hop, or to be handled here.
    pub passing: usize,
    /// Bytes of all buffers, as [`AggregatorConfig::memory`](super::AggregatorConfig::memory) bounds them.
    pub memory: usize,
    /// Items pushed by this rank so far, the program and functions together.
    pub pushed: u64,
    /// Items handled at this rank so far.
    pub handled: u64,
    /// Messages of items that this rank has sent so far.
    pub messages: u64,
    /// Items that went nowhere, because a rank on their way is gone.
    pub discarded: u64,
}

mod sealed {
    pub trait Sealed {}
    impl<T: am_core::Transport, S> Sealed for am_core::Endpoint<T, S> {}
}

/// What an [`Endpoint`] does with aggregators; see the [module](super).
pub trait Aggregate: sealed::Sealed {
    /// Pushes an item for a rank, this one included. If there is no room, serves incoming messages until there is.
    /// Does not allocate.
    ///
    /// # Errors
    /// No such rank; a rank on the way that is gone; a `done` that has not returned; what [`Endpoint::wait_until`]
    /// fails with, also for handlers that ran meanwhile. The item was not pushed then.
    fn push<T: Element>(&mut self, aggregator: Aggregator<T>, to: Rank, item: T) -> Result<(), AggregateError>;

    /// Pushes many items; returns how many. Faster than one by one.
    ///
    /// # Errors
    /// As [`Aggregate::push`]. The items before that which failed were pushed, the others were not taken from
    /// `items`.
    fn push_all<T: Element>(
        &mut self,
        aggregator: Aggregator<T>,
        items: impl IntoIterator<Item = (Rank, T)>,
    ) -> Result<u64, AggregateError>;

    /// Sends what is held back here, as soon as there is room. Serves incoming messages; does not wait.
    ///
    /// # Errors
    /// As [`Endpoint::poll`].
    fn send_held<T: Element>(&mut self, aggregator: Aggregator<T>) -> Result<(), AggregateError>;

    /// Says that this rank pushes no more, and waits until all ranks have said so and everything that any of them
    /// has pushed has been handled. Then the aggregator can be used again. Collective over the aggregator, but not
    /// with other operations between; blocks, serving incoming messages; does not allocate.
    ///
    /// # Errors
    /// A rank that is lost, even an acknowledged one, or has left, since it cannot say done; a message that was
    /// refused; what [`Endpoint::wait_until`] fails with. The rank has said done all the same, and calling this
    /// again waits on.
    fn done<T: Element>(&mut self, aggregator: Aggregator<T>) -> Result<(), AggregateError>;

    /// Goes on with what is under way, and serves incoming messages once, as bale's `convey_advance` does. With
    /// `done`, says that this rank pushes no more, once; the program can do other work until all ranks have said
    /// so and everything is handled. Returns `false` then, once, after which the aggregator can be used again, and
    /// `true` before. [`Aggregate::done`] waits for what this has begun. Does not wait; does not allocate.
    ///
    /// ```
    /// # use am_core::{Endpoint, HasLayer, Rank, Transport};
    /// # use am_pgas::aggregate::{Aggregate, AggregateError, Aggregation, Aggregator};
    /// # fn run<T: Transport, S: HasLayer<Aggregation>>(
    /// #     endpoint: &mut Endpoint<T, S>, items: Aggregator<u64>, mut work: impl FnMut() -> Option<u64>,
    /// # ) -> Result<(), AggregateError> {
    /// let mut done = false;
    /// while endpoint.advance(items, done)? {
    ///     match work() {
    ///         Some(item) if !done => endpoint.push(items, Rank(0), item)?,
    ///         _ => done = true,
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Aggregate::done`] once this rank has said done, and as [`Endpoint::poll`].
    fn advance<T: Element>(&mut self, aggregator: Aggregator<T>, done: bool) -> Result<bool, AggregateError>;

    /// What the aggregator holds here, and what it may hold.
    ///
    /// # Errors
    /// [`AggregateError::Foreign`].
    fn usage<T: Element>(&self, aggregator: Aggregator<T>) -> Result<AggregatorUsage, AggregateError>;
}

impl Aggregation {
    #[inline(always)]
    fn channel<T>(&mut self, aggregator: Aggregator<T>) -> Option<&mut Channel> {
        if self.id != aggregator.layer {
            return None;
        }
        self.channels.get_mut(aggregator.index as usize)
    }
}

/// The channel of an aggregator, for looks that leave no work.
#[inline(always)]
fn quietly<C: Transport, S: HasLayer<Aggregation>, T>(
    endpoint: &mut Endpoint<C, S>,
    aggregator: Aggregator<T>,
) -> Result<&mut Channel, AggregateError> {
    endpoint.layer_unscheduled::<Aggregation>().channel(aggregator).ok_or(AggregateError::Foreign)
}

/// The channel of an aggregator, to leave work in.
fn work<C: Transport, S: HasLayer<Aggregation>, T>(
    endpoint: &mut Endpoint<C, S>,
    aggregator: Aggregator<T>,
) -> Result<&mut Channel, AggregateError> {
    endpoint.layer_mut::<Aggregation>().channel(aggregator).ok_or(AggregateError::Foreign)
}

/// Waits for room for an item.
#[cold]
fn make_room<C: Transport, S: HasLayer<Aggregation>, T>(
    endpoint: &mut Endpoint<C, S>,
    aggregator: Aggregator<T>,
    to: Rank,
) -> Result<(), AggregateError> {
    if work(endpoint, aggregator)?.press(to)? {
        return Ok(());
    }
    endpoint.poll()?;
    if work(endpoint, aggregator)?.press(to)? {
        return Ok(());
    }
    quietly(endpoint, aggregator)?.set_pushing(true);
    let waiting = Pushing { endpoint, aggregator };
    waiting.endpoint.wait_for(|endpoint| Ok(quietly(endpoint, aggregator)?.press(to)?.then_some(())))
}

/// What a rank that is gone makes an operation fail with.
fn gone<C: Transport, S>(endpoint: &Endpoint<C, S>, rank: Rank) -> AggregateError {
    let cause = match endpoint.status(rank) {
        Some(PeerStatus::Lost(cause)) => Some(cause),
        _ => None,
    };
    AggregateError::Gone { rank, cause }
}

/// A push that waits for room, until it ends or unwinds.
struct Pushing<'a, C: Transport, S: HasLayer<Aggregation>, T> {
    endpoint: &'a mut Endpoint<C, S>,
    aggregator: Aggregator<T>,
}

impl<C: Transport, S: HasLayer<Aggregation>, T> Drop for Pushing<'_, C, S, T> {
    fn drop(&mut self) {
        if let Ok(channel) = quietly(self.endpoint, self.aggregator) {
            channel.set_pushing(false);
        }
    }
}

#[cold]
fn push_slowly<C: Transport, S: HasLayer<Aggregation>, T: Element>(
    endpoint: &mut Endpoint<C, S>,
    aggregator: Aggregator<T>,
    to: Rank,
    item: T,
) -> Result<(), AggregateError> {
    loop {
        make_room(endpoint, aggregator, to).map_err(|error| match error {
            AggregateError::Gone { rank, .. } => gone(endpoint, rank),
            error => error,
        })?;
        if quietly(endpoint, aggregator)?.put(to.0, item.as_bytes()) {
            break;
        }
    }
    if quietly(endpoint, aggregator)?.timed {
        // The next poll looks at the clock.
        if work(endpoint, aggregator)?.is_steady() {
            let now = endpoint.now();
            if quietly(endpoint, aggregator)?.note_time(now) {
                endpoint.poll()?;
            }
        }
    }
    Ok(())
}

/// A rank without which an aggregator cannot get over, and how it ended.
fn missing<C: Transport, S: HasLayer<Aggregation>, T>(
    endpoint: &Endpoint<C, S>,
    aggregator: Aggregator<T>,
) -> Option<AggregateError> {
    if endpoint.losses() != 0 {
        // Rather one that broke down than one that left because of it.
        let lost = endpoint.lost().into_iter().min_by_key(|(_, cause)| *cause == LossCause::Left);
        if let Some((rank, cause)) = lost {
            return Some(WaitError::from(PollError::PeerLost { rank, cause }).into());
        }
    }
    let channel = endpoint.layer::<Aggregation>().channels.get(aggregator.index as usize)?;
    match channel.agreement.broken() {
        Some(Broken::Gone(rank)) => return Some(gone(endpoint, rank)),
        Some(Broken::Refused(rank)) => return Some(AggregateError::Refused { rank }),
        None => {}
    }
    let number = endpoint.address().endpoint;
    let left = |rank: &Rank| endpoint.status(Address::new(*rank, number)) != Some(PeerStatus::Active);
    channel.agreement.neighbours().find(left).map(|rank| gone(endpoint, rank))
}

/// Looks for a rank without which an aggregator cannot get over; whether it is over all the same.
///
/// # Errors
/// Such a rank.
fn look_for_missing<C: Transport, S: HasLayer<Aggregation>, T>(
    endpoint: &mut Endpoint<C, S>,
    aggregator: Aggregator<T>,
) -> Result<bool, AggregateError> {
    let Some(missing) = missing(endpoint, aggregator) else { return Ok(false) };
    // What the rank sent before it went has arrived.
    endpoint.poll_until_empty()?;
    let channel = quietly(endpoint, aggregator)?;
    if channel.take_end() {
        return Ok(true);
    }
    if let (AggregateError::Gone { rank, .. }, None) = (&missing, channel.agreement.broken()) {
        // Ranks that are no neighbours of that one learn it from here.
        work(endpoint, aggregator)?.agreement.break_off(Broken::Gone(*rank));
        endpoint.poll_until_empty()?;
    }
    Err(missing)
}

impl<C: Transport, S: HasLayer<Aggregation>> Aggregate for Endpoint<C, S> {
    #[inline]
    fn push<T: Element>(&mut self, aggregator: Aggregator<T>, to: Rank, item: T) -> Result<(), AggregateError> {
        if let Some(channel) = self.layer_unscheduled::<Aggregation>().channel(aggregator)
            && channel.is_plain()
            && channel.put(to.0, item.as_bytes())
        {
            return Ok(());
        }
        push_slowly(self, aggregator, to, item)
    }

    #[inline]
    fn push_all<T: Element>(
        &mut self,
        aggregator: Aggregator<T>,
        items: impl IntoIterator<Item = (Rank, T)>,
    ) -> Result<u64, AggregateError> {
        let (mut items, mut count) = (items.into_iter(), 0);
        loop {
            let channel = quietly(self, aggregator)?;
            let mut rest = None;
            if channel.is_plain() {
                let (pushed, stopped) = channel.put_all(&mut items);
                count += pushed;
                rest = stopped;
            }
            let Some((to, item)) = rest.or_else(|| items.next()) else { break };
            push_slowly(self, aggregator, to, item)?;
            count += 1;
        }
        // The next poll handles what is for this rank itself, if that is worth a call.
        if quietly(self, aggregator)?.has_own() {
            work(self, aggregator)?.handle_own();
        }
        Ok(count)
    }

    fn send_held<T: Element>(&mut self, aggregator: Aggregator<T>) -> Result<(), AggregateError> {
        work(self, aggregator)?.send_held();
        self.poll()?;
        Ok(())
    }

    fn advance<T: Element>(&mut self, aggregator: Aggregator<T>, done: bool) -> Result<bool, AggregateError> {
        if done {
            work(self, aggregator)?.say_done();
        }
        self.poll()?;
        let channel = quietly(self, aggregator)?;
        if !channel.ending {
            return Ok(true);
        }
        Ok(!channel.take_end() && !look_for_missing(self, aggregator)?)
    }

    fn done<T: Element>(&mut self, aggregator: Aggregator<T>) -> Result<(), AggregateError> {
        work(self, aggregator)?.say_done();
        let (mut steps, mut losses, mut idles) = (0u32, self.losses(), self.statistics().idles);
        self.wait_for(|endpoint| {
            let channel = quietly(endpoint, aggregator)?;
            if channel.take_end() {
                return Ok(Some(()));
            }
            steps = steps.wrapping_add(1);
            let broken = channel.agreement.broken().is_some();
            let (lost, idled) = (endpoint.losses(), endpoint.statistics().idles);
            if steps % LOOKS != 1 && lost == losses && idled == idles && !broken {
                return Ok(None);
            }
            (losses, idles) = (lost, idled);
            Ok(look_for_missing(endpoint, aggregator)?.then_some(()))
        })
    }

    fn usage<T: Element>(&self, aggregator: Aggregator<T>) -> Result<AggregatorUsage, AggregateError> {
        let layer = self.layer::<Aggregation>();
        let channel = layer.channels.get(aggregator.index as usize).filter(|_| layer.id == aggregator.layer);
        channel.map(Channel::usage).ok_or(AggregateError::Foreign)
    }
}
