//! What carries schedules on: handlers take in what arrives, and progress sends what may go.
//!
//! # Messages
//!
//! A message belongs to a member's operation by the team's number, the operation's sequence number in the team,
//! and a tag; at most one message from each member is awaited in a round. What a round awaits goes straight to its
//! place. A message of more than one Medium travels in pieces.
//!
//! # Bounded memory
//!
//! A message of at most [`Tuning::eager`](super::Tuning::eager) bytes may be sent before its receiver has come to
//! it, and then waits there; in each team a member has at most [`Tuning::window`](super::Tuning::window) such
//! messages with another. The receiver says how many it has taken in all with every message that it sends back,
//! and otherwise when half a window has been taken. Anything else is sent when the receiver has announced that it
//! awaits it. So what waits at a member of a team of `n` takes at most `(n - 1) * window * eager` bytes, and `n -
//! 1` times 17 announcements: a member has at most 16 with another in one team, and those of the oldest operation
//! that it has there. No credit of the transport is held meanwhile.
//!
//! # Why it goes on
//!
//! Consider the oldest operation of a team that has not ended everywhere, and a member that awaits a message of
//! it. The sender is there already, or will be, since it has nothing older to wait for. If the message is large,
//! the receiver announces it, since announcements of its oldest operation are not limited. If it is small and the
//! window is full, everything in the window arrives; then the receiver has either taken some of it, which it tells
//! at once since the window is full, or none, and then it announces what it awaits. What is announced goes outside
//! the window. So some message of the oldest operation always goes on, whatever younger operations and other teams
//! wait for.

mod arrivals;
mod context;
mod direct;
mod dropped;
mod faults;
mod instance;
mod lines;
#[cfg(all(test, am_loom))]
mod loom_lines;
mod passing;
mod patience;
mod progress;
mod quick;
mod strays;

pub(crate) use context::Members;
pub(crate) use direct::Way;
pub(crate) use dropped::Dropped;
pub(crate) use instance::{Buffers, Vector};
pub(crate) use lines::Offer;
pub(crate) use quick::{Looks, Quick};

use super::error::{Call, CallWords, CollectiveError, Failure, FailureWords};
use super::lent_cost::LentCost;
use super::operator::Fold;
use super::schedule::Schedule;
use super::tuning::{Seat, Tuning};
use am_core::layer::Outbox;
use am_core::transport::{Lender, Lent, LentFault};
use am_core::{
    Address, Arguments, Category, HandlerError, HandlerResult, Lane, LossCause, PeerStatus, Request, SendError,
};
use context::{Context, Early};
use faults::Combines;
use instance::{Bytes, Data, Instance, Owner};
use lines::Auxiliary;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strays::{StrayKind, Strays};

/// Set in the tag of a message that its receiver has asked for.
const ASKED: u32 = 1 << 31;

/// Team, operation, tag, and what the sender has taken of the receiver's messages.
pub(super) type Head = [u32; 4];

/// The words of a small message.
pub(super) type Words = (u64, u64, u64, u64);

/// The handlers of the layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    /// A message.
    pub(super) message: Request<Head>,
    /// A message of 8 bytes, and one of up to 32 with how many they are, without a payload.
    pub(super) tiny: Request<(Head, u64)>,
    pub(super) small: Request<(Head, u32, Words)>,
    /// A piece of a message: where it begins, and the message's size.
    pub(super) piece: Request<(Head, (u64, u64))>,
    /// A piece of a message, with what its sender called.
    pub(super) checked: Request<(Head, (u64, u64), CallWords)>,
    /// An announcement.
    pub(super) ready: Request<Head>,
    /// An announcement, with what its sender called.
    pub(super) checked_ready: Request<(Head, CallWords)>,
    /// Team, and how many messages the sender has taken.
    pub(super) taken: Request<[u32; 2]>,
    /// Team, and why it fails.
    pub(super) failed: Request<(u32, FailureWords)>,
    /// Team, operation, and what the sender called, or that it called nothing.
    pub(super) notice: Request<[u32; 8]>,
    /// Team and operation, what the sender called, and between which ranks a message went that is no part of that.
    pub(super) suspicion: Request<([u32; 2], CallWords, [u32; 2])>,
}

/// What the engine sends through: an outbox, or the endpoint itself.
pub(crate) trait Post {
    fn send<A: Arguments>(
        &mut self,
        to: Address,
        request: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError>;

    /// Bytes of the largest Medium payload with so many argument words.
    fn largest(&self, to: Address, words: usize) -> u64;

    /// Ends a member's idling after a change of memory that it sees.
    fn wake_peer(&mut self, member: Address);

    /// Lets others use this processor once.
    fn give_way(&mut self);

    /// Whether this process is a fork of the one that the endpoint belongs to, for which all others are lost.
    fn is_fork(&self, other: Address) -> bool;

    /// Reads what a member lends, from byte `at` on.
    fn read_lent(&mut self, of: Address, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault>;
}

impl Post for Outbox<'_> {
    fn send<A: Arguments>(
        &mut self,
        to: Address,
        request: Request<A>,
        args: A,
        payload: &[u8],
    ) -> Result<(), SendError> {
        if payload.is_empty() {
            return self.try_request(to, request, args);
        }
        self.try_request_medium(to, request, args, payload)
    }

    fn largest(&self, to: Address, words: usize) -> u64 {
        self.max_payload(to, Category::Medium, Lane::Request, words).unwrap_or(0)
    }

    fn wake_peer(&mut self, member: Address) {
        self.wake_peer(member);
    }

    /// Between polls nothing is waited for.
    fn give_way(&mut self) {}

    fn is_fork(&self, other: Address) -> bool {
        self.status(other) == Some(PeerStatus::Lost(LossCause::Forked))
    }

    fn read_lent(&mut self, of: Address, lent: &Lent, at: u64, out: &mut [u8]) -> Result<(), LentFault> {
        self.read_lent(of, lent, at, out)
    }
}

/// Whether an instance has to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// When something has arrived.
    Waits,
    /// When there is room to send.
    Blocked,
}

/// All teams of an endpoint and their operations.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) id: u64,
    requests: Requests,
    pub(super) tuning: Tuning,
    /// The least number that a new team may have.
    pub(crate) next_context: u32,
    /// By number.
    contexts: Vec<Context>,
    /// The numbers of teams that have something to tell, and of those with operations through shared memory.
    telling: VecDeque<u32>,
    sharing: Vec<u32>,
    auxiliary: Auxiliary,
    instances: Vec<Instance>,
    free: Vec<u32>,
    queue: VecDeque<u32>,
    strays: Strays,
    spare: Vec<Vec<u8>>,
    pub(crate) dropped: Arc<Dropped>,
    /// Losses that teams were looked through for.
    pub(crate) losses_seen: u32,
    /// Messages sent and rounds ended so far, modulo 2^64.
    went: u64,
    combines: Combines,
    /// Lends what the caller of a blocking operation gives, of which there is one at a time.
    lender: Lender,
    /// What copies by the system cost, as far as that is known.
    pub(super) lent_cost: LentCost,
    /// Small operations that ended at once, since a poll.
    at_once: u32,
    /// Whether it waits for a time: since when an operation has stood still.
    counts_time: bool,
    /// The team with whose last operations this member may be done without having told.
    untold: Option<u32>,
}

/// What a member does in an operation through shared memory.
pub(crate) fn directly(call: Call, seat: Seat<'_>) -> Schedule {
    direct::schedule(call, seat.me, seat.size)
}

fn out_of_bounds(what: &'static str) -> HandlerError {
    HandlerError::new(what)
}

impl Engine {
    pub(super) fn new(requests: Requests, tuning: Tuning) -> Self {
        static ENGINES: AtomicU64 = AtomicU64::new(0);
        Self {
            // Relaxed: only its being unique counts.
            id: ENGINES.fetch_add(1, Ordering::Relaxed),
            requests,
            tuning,
            next_context: 0,
            contexts: Vec::new(),
            telling: VecDeque::new(),
            sharing: Vec::new(),
            auxiliary: Auxiliary::default(),
            instances: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            strays: Strays::default(),
            spare: Vec::new(),
            dropped: Arc::default(),
            losses_seen: 0,
            went: 0,
            combines: Combines::default(),
            lender: Lender::new(1),
            lent_cost: LentCost::default(),
            at_once: 0,
            counts_time: false,
            untold: None,
        }
    }

    fn context_index(&self, context: u32) -> Option<usize> {
        self.contexts.binary_search_by_key(&context, |other| other.members.context).ok()
    }

    /// Makes a team whose members have agreed on it; what came for it before is taken in. Until it is
    /// [confirmed](Self::confirm), it fails with its parent.
    pub(crate) fn open(&mut self, members: &Arc<Members>, parent: Option<u32>) {
        self.collect();
        let number = members.context;
        let at = self.contexts.partition_point(|other| other.members.context < number);
        self.contexts.insert(at, Context::new(Arc::clone(members), parent));
        // Losses that were looked for before may be among its members.
        self.losses_seen = 0;
        for (from, kind) in self.strays.take(number) {
            // What a member sent that makes no sense was refused when it came, or is now.
            let _ = match kind {
                StrayKind::Message { head, extent, call, bytes } => {
                    self.message(from, head, extent, call, Bytes::Own(&bytes))
                }
                StrayKind::Ready(head, call) => self.announced(from, head, call),
                StrayKind::Failed(context, words) => self.failed(from, context, words),
                StrayKind::Notice(words) => self.noticed(from, words),
            };
        }
        self.pass(number);
        if let Some(failure) = parent.and_then(|parent| self.failure(parent)) {
            self.fail_team(number, failure);
        }
    }

    /// All members are known to have made a team, so that each learns of its failures.
    pub(crate) fn confirm(&mut self, context: u32) {
        if let Some(index) = self.context_index(context) {
            self.contexts[index].parent = None;
        }
    }

    /// Lets those teams go that no program can use any more, and takes note of dropped handles.
    fn collect(&mut self) {
        self.take_note();
        let gone = |context: &Context| {
            Arc::strong_count(&context.members) == 1
                && context.live.is_empty()
                && context.tell.is_empty()
                && context.notices.is_empty()
                && context.direct.is_empty()
                && context.suspicion.is_none_or(|suspicion| suspicion.told)
        };
        let auxiliary = &mut self.auxiliary;
        self.contexts.retain_mut(|context| {
            let gone = gone(context);
            // Members of a team that fails may read for longer.
            if gone
                && context.failure.is_none()
                && let Some(lines) = context.lines.take()
            {
                lines.tell_done(context.next);
                auxiliary.retire(lines, context.next);
            }
            !gone
        });
    }

    fn take_note(&mut self) {
        while let Some(id) = self.dropped.pop() {
            self.abandon(id);
        }
    }

    /// Lets an operation go on that nobody waits for.
    pub(crate) fn abandon(&mut self, id: u64) {
        let Some(place) = self.place(id) else { return };
        self.instances[place].owner = Owner::Nobody;
        if self.instances[place].outcome.is_some() {
            self.release(place);
        }
    }

    fn release(&mut self, place: usize) {
        self.instances[place].release();
        self.free.push(place as u32);
    }

    fn place(&self, id: u64) -> Option<usize> {
        let place = id as u32 as usize;
        let instance = self.instances.get(place)?;
        (instance.used && instance.generation == (id >> 32) as u32).then_some(place)
    }

    /// Gives a number that a team has got which this member is not in to no other.
    pub(crate) fn pass(&mut self, context: u32) {
        // A team with the largest number is never made.
        self.next_context = self.next_context.max(context.saturating_add(1));
        self.strays.forget(self.next_context);
    }

    /// Messages that wait for their operation, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let early = self.contexts.iter().flat_map(|context| &context.pairs).flat_map(|pair| &pair.early);
        early.fold(self.strays.waiting(), |(messages, bytes), early| (messages + 1, bytes + early.bytes.len()))
    }

    /// Teams that are there.
    #[cfg(test)]
    pub(super) fn teams(&self) -> usize {
        self.contexts.len()
    }

    /// Who is in a team.
    pub(crate) fn members(&self, context: u32) -> Option<Arc<Members>> {
        self.context_index(context).map(|index| Arc::clone(&self.contexts[index].members))
    }

    /// Ends a team for this member; operations under way go on.
    pub(crate) fn close(&mut self, members: &Members) {
        members.destroyed.store(true, Ordering::Relaxed);
    }

    /// Why a team fails, if it does.
    pub(crate) fn failure(&self, context: u32) -> Option<Failure> {
        self.contexts[self.context_index(context)?].failure
    }

    /// The schedule of a call, made by `make` unless it is kept.
    pub(crate) fn schedule(
        &mut self,
        context: u32,
        call: Call,
        make: impl FnOnce(&Tuning) -> Schedule,
    ) -> Arc<Schedule> {
        let Some(index) = self.context_index(context) else { return Arc::new(make(&self.tuning)) };
        let context = &mut self.contexts[index];
        if let Some(schedule) = context.kept(call) {
            return schedule;
        }
        let schedule = Arc::new(make(&self.tuning));
        context.keep(call, &schedule);
        schedule
    }

    /// Begins an operation; progress carries it on. Without data given, `fill` sets the instance's own up, which
    /// has the size that the schedule needs and holds anything.
    pub(crate) fn begin(
        &mut self,
        members: &Members,
        call: Call,
        (schedule, way): (Arc<Schedule>, Option<Way>),
        fold: Option<Fold>,
        given: Option<Box<dyn Vector>>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u64, CollectiveError> {
        self.take_note();
        self.recover();
        let index = self.context_index(members.context).ok_or(CollectiveError::Destroyed)?;
        if let Some(failure) = self.contexts[index].failure {
            return Err(failure.into());
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.instances.push(Instance::new(&schedule, call));
            self.instances.len() as u32 - 1
        });
        let (context, instance) = (&mut self.contexts[index], &mut self.instances[place as usize]);
        let data = schedule.data() * call.element as usize;
        let lent = way == Some(Way::Blocks) && given.is_none();
        match given {
            Some(vector) => instance.data = Data::Given(vector),
            // Its caller has them at hand whenever it goes on.
            None if lent => {}
            None => {
                if let Data::Pooled(bytes) = &mut instance.data {
                    if bytes.len() < data {
                        bytes.resize(data, 0);
                    }
                    fill(&mut bytes[..data]);
                }
            }
        }
        (instance.context, instance.sequence) = (members.context, context.next);
        instance.begin(schedule, call, fold);
        (instance.direct, instance.lent, instance.position) = (way.is_some(), lent, members.me as usize);
        context.live.push_back(Some(place));
        let sequence = context.number(Some(call), self.tuning.check);
        let id = u64::from(instance.generation) << 32 | u64::from(place);
        match way {
            Some(way) => self.begin_directly(index, sequence, call, place, way),
            None => {
                self.enqueue(place as usize);
                self.compare_directly(index, sequence, call);
            }
        }
        self.list(index);
        self.look_back(index, sequence);
        Ok(id)
    }

    /// Lets progress look at a team that has something to tell.
    fn list(&mut self, index: usize) {
        let context = &mut self.contexts[index];
        if !context.listed && context.has_something_to_tell() {
            context.listed = true;
            self.telling.push_back(context.members.context);
        }
    }

    fn enqueue(&mut self, place: usize) {
        let instance = &mut self.instances[place];
        if !instance.direct && !std::mem::replace(&mut instance.queued, true) {
            self.queue.push_back(place as u32);
        }
    }

    /// Wakes the oldest operations of a team, as many as may have announcements.
    fn enqueue_oldest(&mut self, index: usize, most: usize) {
        for at in 0..self.contexts[index].live.len().min(most) {
            if let Some(place) = self.contexts[index].live[at] {
                self.enqueue(place as usize);
            }
        }
    }

    /// The instance of an entry of a pair's list, if it is still what it was.
    fn listed(&self, index: usize, (place, sequence): (u32, u32)) -> Option<&Instance> {
        let instance = &self.instances[place as usize];
        let same = instance.used && instance.begun && instance.outcome.is_none();
        let same = same && instance.context == self.contexts[index].members.context;
        (same && instance.sequence == sequence).then_some(instance)
    }

    /// Wakes instances with messages that now have room, as many as there is room for.
    fn make_room(&mut self, index: usize, pair: usize) {
        let state = &self.contexts[index].pairs[pair];
        let (mut room, member) =
            (self.tuning.window.saturating_sub(state.sent.wrapping_sub(state.taken)), state.member);
        while room > 0 {
            let Some(entry) = self.contexts[index].pairs[pair].held.pop_front() else { return };
            let Some(instance) = self.listed(index, entry) else { continue };
            let sends = instance.schedule.round(instance.round).sends.iter().zip(&instance.sends);
            let waits = |(send, outgoing): (&super::schedule::Send, &instance::Outgoing)| {
                send.to == member && outgoing.held && outgoing.granted.is_none()
            };
            let found = sends.clone().map(waits).position(|waits| waits);
            if let Some(at) = found {
                self.instances[entry.0 as usize].sends[at].held = false;
                self.enqueue(entry.0 as usize);
                room -= 1;
            }
        }
    }

    /// A message that was asked for has come: another may be asked for.
    fn announce_next(&mut self, index: usize, pair: usize) {
        let member = self.contexts[index].pairs[pair].member;
        while let Some(entry) = self.contexts[index].pairs[pair].unannounced.pop_front() {
            let Some(instance) = self.listed(index, entry) else { continue };
            let receives = instance.schedule.round(instance.round).receives;
            let Ok(at) = receives.binary_search_by_key(&member, |receive| receive.from) else { continue };
            let incoming = &mut self.instances[entry.0 as usize].receives[at];
            if std::mem::take(&mut incoming.listed) && !incoming.done && !incoming.announced {
                return self.enqueue(entry.0 as usize);
            }
        }
    }

    /// Whether an operation has ended.
    pub(crate) fn is_done(&self, id: u64) -> bool {
        self.place(id).is_none_or(|place| self.instances[place].outcome.is_some())
    }

    /// Whether an operation's caller has its elements.
    pub(crate) fn is_lent(&self, id: u64) -> bool {
        self.place(id).is_some_and(|place| self.instances[place].lent)
    }

    /// Ends an operation for its caller, who may look at its result.
    pub(crate) fn fetch<R>(&mut self, id: u64, look: impl FnOnce(&[u8]) -> R) -> Result<R, CollectiveError> {
        let place = self.place(id).expect("an operation is fetched once");
        let outcome = self.instances[place].outcome.take().expect("an operation is fetched once it has ended");
        let looked = outcome.map(|()| look(self.instances[place].result()));
        self.release(place);
        looked
    }

    /// Ends an operation for its caller, who gets the vector back that it gave, and what part of it is the result.
    pub(crate) fn fetch_vector(
        &mut self,
        id: u64,
    ) -> Result<(Box<dyn Vector>, std::ops::Range<usize>), CollectiveError> {
        let place = self.place(id).expect("an operation is fetched once");
        let instance = &mut self.instances[place];
        let outcome = instance.outcome.take().expect("an operation is fetched once it has ended");
        let result = instance.schedule.result();
        let data = std::mem::replace(&mut instance.data, Data::Pooled(Vec::new()));
        self.release(place);
        outcome?;
        let Data::Given(vector) = data else { unreachable!("the caller gave a vector") };
        Ok((vector, result.start..result.end()))
    }

    /// Lets a team fail: its operations end, and its members are told.
    fn fail(&mut self, index: usize, failure: Failure) {
        let failure = match &self.contexts[index].suspicion {
            Some(suspicion) => suspicion.instead_of(failure),
            None => failure,
        };
        for place in self.contexts[index].fail(failure) {
            let instance = &mut self.instances[place as usize];
            instance.outcome = Some(Err(failure.into()));
            if instance.owner == Owner::Nobody {
                self.release(place as usize);
            }
        }
        self.list(index);
        let number = self.contexts[index].members.context;
        for child in 0..self.contexts.len() {
            let context = &self.contexts[child];
            if context.parent == Some(number) && context.failure.is_none() {
                self.fail(child, failure);
            }
        }
    }

    /// Lets a team fail if it exists.
    pub(crate) fn fail_team(&mut self, context: u32, failure: Failure) {
        if let Some(index) = self.context_index(context) {
            self.fail(index, failure);
        }
    }

    /// Lets all teams fail that have a member for which `lost` gives a cause.
    pub(crate) fn look_for_losses(&mut self, lost: impl Fn(Address) -> Option<LossCause>) {
        for index in 0..self.contexts.len() {
            if self.contexts[index].failure.is_some() {
                continue;
            }
            let members = Arc::clone(&self.contexts[index].members);
            let found = members.ranks.iter().zip(0..).filter_map(|(rank, member)| {
                let cause = lost(members.address(member))?;
                Some((*rank, cause))
            });
            // Ranks leave since others are lost.
            if let Some((rank, cause)) = found.min_by_key(|(_, cause)| *cause == LossCause::Left) {
                self.fail(index, Failure::Lost { rank, cause });
            }
        }
    }

    /// The members that an operation waits for right now, those first to which it could not send all of a message,
    /// and its team.
    pub(crate) fn waits_for(&self, id: u64) -> Option<(u32, impl Iterator<Item = Address>)> {
        let (context, instance) = self.waiting_instance(id)?;
        let members = &*context.members;
        let directly = instance.direct.then(|| context.missing(id as u32));
        let by_messages = (!instance.direct).then(|| self.awaited_messages(instance));
        let waited = directly.into_iter().flatten().chain(by_messages.into_iter().flatten());
        Some((instance.context, waited.map(|member| members.address(member))))
    }

    /// The first of those that an operation [waits for](Self::waits_for): asked for before each time that a member
    /// goes idle.
    pub(crate) fn first_waited_for(&self, id: u64) -> Option<Address> {
        let (context, instance) = self.waiting_instance(id)?;
        let first = if instance.direct {
            context.missing(id as u32).next()
        } else {
            self.awaited_messages(instance).next()
        };
        Some(context.members.address(first?))
    }

    /// An operation that has begun and not ended, with its team.
    fn waiting_instance(&self, id: u64) -> Option<(&Context, &Instance)> {
        let instance = &self.instances[self.place(id)?];
        if !(instance.begun || instance.direct) || instance.outcome.is_some() {
            return None;
        }
        Some((&self.contexts[self.context_index(instance.context)?], instance))
    }

    fn awaited_messages<'i>(&self, instance: &'i Instance) -> impl Iterator<Item = u32> + use<'i> {
        let round = instance.schedule.round(instance.round);
        let receives = round.receives.iter().zip(&instance.receives).filter(|(_, incoming)| !incoming.done);
        // Mostly all has been sent, and what it was need not be looked at.
        let unsent = if instance.sends_left == 0 { &[] } else { round.sends };
        let sends = move |blocked: bool| {
            let sends = unsent.iter().zip(&instance.sends);
            let open = sends.filter(move |(_, out)| !out.done && out.granted.is_some() == blocked);
            open.map(|(send, _)| send.to)
        };
        sends(true).chain(receives.map(|(receive, _)| receive.from)).chain(sends(false))
    }

    /// Whether progress has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !(self.queue.is_empty() && self.telling.is_empty() && self.sharing.is_empty())
    }
}
