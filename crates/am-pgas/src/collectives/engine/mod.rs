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

mod context;
mod dropped;
mod faults;
mod instance;
mod progress;
mod strays;

pub(crate) use context::{Key, Members};
pub(crate) use dropped::Dropped;
pub(crate) use instance::Vector;

use super::error::{Call, CollectiveError, Failure};
use super::operator::Fold;
use super::schedule::Schedule;
use super::tuning::Tuning;
use am_core::layer::Outbox;
use am_core::{
    Address, Arguments, Category, HandlerError, HandlerResult, Lane, LossCause, Payload, Request, SendError,
};
use context::{ANNOUNCEMENTS, Context, Early, Stage};
use faults::{Combines, disagree};
use instance::{Bytes, Data, Instance, Owner};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strays::{StrayKind, Strays};

/// Set in the tag of a message that its receiver has asked for.
const ASKED: u32 = 1 << 31;

/// Team, operation, tag, and what the sender has taken of the receiver's messages.
pub(super) type Head = [u32; 4];

/// The handlers of the layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    /// A message.
    pub(super) message: Request<Head>,
    /// A piece of a message: where it begins, and the message's size.
    pub(super) piece: Request<(Head, (u64, u64))>,
    /// A piece of a message, with what its sender called.
    pub(super) checked: Request<(Head, (u64, u64), [u32; 5])>,
    /// An announcement.
    pub(super) ready: Request<Head>,
    /// Team, and how many messages the sender has taken.
    pub(super) taken: Request<[u32; 2]>,
    /// Team, and why it fails.
    pub(super) failed: Request<(u32, [u32; 13])>,
    /// Team, operation, and what the sender called, or that it called nothing.
    pub(super) notice: Request<[u32; 7]>,
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
    contexts: Vec<Context>,
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
            instances: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            strays: Strays::default(),
            spare: Vec::new(),
            dropped: Arc::default(),
            losses_seen: 0,
            went: 0,
            combines: Combines::default(),
        }
    }

    fn context_index(&self, context: u32) -> Option<usize> {
        self.contexts.iter().position(|other| other.members.context == context)
    }

    /// Makes a team whose members have agreed on it; what came for it before is taken in. Until it is
    /// [confirmed](Self::confirm), it fails with its parent.
    pub(crate) fn open(&mut self, members: &Arc<Members>, parent: Option<u32>) {
        self.collect();
        let number = members.context;
        self.contexts.push(Context::new(Arc::clone(members), parent));
        // Losses that were looked for before may be among its members.
        self.losses_seen = 0;
        for (from, kind) in self.strays.take(number) {
            // What a member sent that makes no sense was refused when it came, or is now.
            let _ = match kind {
                StrayKind::Message { head, extent, call, bytes } => {
                    self.message(from, head, extent, call, Bytes::Own(&bytes))
                }
                StrayKind::Ready(head) => self.ready(from, head),
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
        };
        self.contexts.retain(|context| !gone(context));
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
        key: &Key,
        make: impl FnOnce(&Tuning) -> Schedule,
    ) -> Arc<Schedule> {
        let Some(index) = self.context_index(context) else { return Arc::new(make(&self.tuning)) };
        let context = &mut self.contexts[index];
        if let Some(schedule) = context.kept(key) {
            return schedule;
        }
        let schedule = Arc::new(make(&self.tuning));
        context.keep(*key, &schedule);
        schedule
    }

    /// Begins an operation; progress carries it on. Without data given, `fill` sets the instance's own up, which
    /// has the size that the schedule needs and holds anything.
    pub(crate) fn begin(
        &mut self,
        members: &Members,
        call: Call,
        schedule: Arc<Schedule>,
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
        match given {
            Some(vector) => instance.data = Data::Given(vector),
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
        context.live.push_back(Some(place));
        let sequence = context.number(Some(call), self.tuning.check);
        let id = u64::from(instance.generation) << 32 | u64::from(place);
        self.enqueue(place as usize);
        self.look_back(index, sequence);
        Ok(id)
    }

    fn enqueue(&mut self, place: usize) {
        let instance = &mut self.instances[place];
        if !std::mem::replace(&mut instance.queued, true) {
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

    /// A message, or a piece of one, has arrived.
    pub(super) fn arrive(
        &mut self,
        from: Address,
        head: Head,
        extent: Option<(u64, u64)>,
        call: Option<[u32; 5]>,
        payload: &Payload<'_>,
    ) -> HandlerResult {
        let call = match call {
            Some(words) => Some(Call::decode(words).ok_or(out_of_bounds("a message names no operation"))?),
            None => None,
        };
        let extent = extent.unwrap_or((0, payload.len() as u64));
        self.message(from, head, extent, call, Bytes::Payload(payload))
    }

    /// Keeps what came for a team that is not there yet; nothing for one that is gone.
    fn stray(&mut self, from: Address, kind: StrayKind) -> HandlerResult {
        if kind.context() < self.next_context {
            return Ok(());
        }
        self.strays.keep(from, kind, &self.tuning)
    }

    fn message(
        &mut self,
        from: Address,
        head: Head,
        extent: (u64, u64),
        call: Option<Call>,
        bytes: Bytes<'_>,
    ) -> HandlerResult {
        self.recover();
        let Some(index) = self.context_index(head[0]) else {
            let mut own = vec![0; bytes.len()];
            bytes.copy_to(&mut own);
            return self.stray(from, StrayKind::Message { head, extent, call, bytes: own });
        };
        let window = self.tuning.window;
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        if context.failure.is_some() {
            return Ok(());
        }
        let [_, sequence, tag, taken] = head;
        let (asked, tag) = (tag & ASKED != 0, tag & !ASKED);
        let too_large = |_| out_of_bounds("a message exceeds this rank's memory");
        let (offset, total) =
            (usize::try_from(extent.0).map_err(too_large)?, usize::try_from(extent.1).map_err(too_large)?);
        let end = offset.checked_add(bytes.len()).filter(|end| *end <= total);
        let end = end.ok_or(out_of_bounds("a piece is outside its message"))?;
        let pair = context.pair(member);
        let opened = context.pairs[pair].hear(taken);
        let stage = context.stage(sequence);
        let mut complete = false;
        match stage {
            Stage::Gone => {
                if let Some(failure) = context.unawaited(member, sequence) {
                    self.fail(index, failure);
                    return Ok(());
                }
                complete = end == total;
            }
            Stage::Live(place) => {
                let instance = &mut self.instances[place as usize];
                if let Some(failure) = disagree(&context.members, member, instance.call, call) {
                    self.fail(index, failure);
                    return Ok(());
                }
                let kept = context.early > 0
                    && context.pairs[pair]
                        .early
                        .iter()
                        .any(|early| (early.sequence, early.tag) == (sequence, tag));
                let awaited = instance.awaited(member, tag).filter(|_| !kept);
                let (combines, members) = (&mut self.combines, &context.members);
                let taken = awaited.map(|at| {
                    combines.set(Some(head[0]));
                    let taken = instance.take(at, offset, total, bytes, members);
                    combines.set(None);
                    (at, taken)
                });
                match taken {
                    Some((at, taken)) => match taken {
                        Ok(done) => {
                            if done {
                                complete = true;
                                if instance.receives[at].announced {
                                    context.pairs[pair].announced -= 1;
                                    self.announce_next(index, pair);
                                }
                                if self.instances[place as usize].receives_left == 0 {
                                    self.enqueue(place as usize);
                                }
                            }
                        }
                        Err(failure) => {
                            self.fail(index, failure);
                            return Ok(());
                        }
                    },
                    None => self.keep(index, pair, (sequence, tag), [offset, total], call, bytes)?,
                }
            }
            Stage::Later => self.keep(index, pair, (sequence, tag), [offset, total], call, bytes)?,
        }
        if complete && !asked {
            let state = &mut self.contexts[index].pairs[pair];
            state.received = state.received.wrapping_add(1);
            state.consumed = state.consumed.wrapping_add(1);
        }
        self.contexts[index].consider(pair, window);
        if opened {
            self.make_room(index, pair);
        }
        Ok(())
    }

    /// Keeps a message, or a piece of one, until its round begins.
    fn keep(
        &mut self,
        index: usize,
        pair: usize,
        (sequence, tag): (u32, u32),
        [offset, total]: [usize; 2],
        call: Option<Call>,
        bytes: Bytes<'_>,
    ) -> HandlerResult {
        let (context, window) = (&mut self.contexts[index], self.tuning.window);
        let state = &mut context.pairs[pair];
        let found = state.early.iter().position(|early| (early.sequence, early.tag) == (sequence, tag));
        let at = match found {
            Some(at) => at,
            None => {
                if total > self.tuning.eager || state.early.len() >= window as usize {
                    return Err(out_of_bounds("a member sends more than its window, or a large message unasked"));
                }
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.clear();
                buffer.resize(total, 0);
                state.early.push(Early { sequence, tag, arrived: 0, call, bytes: buffer });
                context.early += 1;
                state.early.len() - 1
            }
        };
        let early = &mut state.early[at];
        let room = early.bytes.get_mut(offset..offset + bytes.len()).filter(|_| early.arrived < total.max(1));
        bytes.copy_to(room.ok_or(out_of_bounds("a piece is outside its message"))?);
        early.arrived += bytes.len();
        if early.arrived < early.bytes.len() {
            return Ok(());
        }
        state.received = state.received.wrapping_add(1);
        // Its round may have begun meanwhile, or the member may be out of room for what other rounds wait for.
        if let Stage::Live(place) = context.stage(sequence)
            && self.instances[place as usize].awaited(context.pairs[pair].member, tag).is_some()
        {
            self.take_kept(index, place as usize);
        }
        let context = &mut self.contexts[index];
        context.consider(pair, window);
        if context.pairs[pair].stuck(window) {
            self.enqueue_oldest(index, ANNOUNCEMENTS as usize + 1);
        }
        Ok(())
    }

    /// Takes what came before the round of an instance began.
    fn take_kept(&mut self, index: usize, place: usize) {
        let window = self.tuning.window;
        let context = &self.contexts[index];
        if context.early == 0 {
            return;
        }
        for at in 0..self.instances[place].receives.len() {
            let (context, instance) = (&mut self.contexts[index], &mut self.instances[place]);
            let receive = instance.schedule.round(instance.round).receives[at];
            let pair = context.pair(receive.from);
            let state = &mut context.pairs[pair];
            let whole = |early: &Early| {
                (early.sequence, early.tag) == (instance.sequence, receive.tag)
                    && early.arrived >= early.bytes.len()
            };
            let Some(early) = state.early.iter().position(whole).filter(|_| !instance.receives[at].done) else {
                continue;
            };
            let early = state.early.swap_remove(early);
            context.early -= 1;
            state.consumed = state.consumed.wrapping_add(1);
            let announced = std::mem::take(&mut instance.receives[at].announced);
            state.announced -= u32::from(announced);
            context.consider(pair, window);
            self.combines.set(Some(instance.context));
            let outcome = match disagree(&context.members, receive.from, instance.call, early.call) {
                Some(failure) => Err(failure),
                None => instance.take(at, 0, early.bytes.len(), Bytes::Own(&early.bytes), &context.members),
            };
            self.combines.set(None);
            self.spare.push(early.bytes);
            if let Err(failure) = outcome {
                return self.fail(index, failure);
            }
            if announced {
                self.announce_next(index, pair);
            }
        }
        self.enqueue(place);
    }

    /// A member awaits a message.
    pub(super) fn ready(&mut self, from: Address, head: Head) -> HandlerResult {
        let [number, sequence, tag, taken] = head;
        let Some(index) = self.context_index(number) else { return self.stray(from, StrayKind::Ready(head)) };
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        if context.failure.is_some() {
            return Ok(());
        }
        let pair = context.pair(member);
        let opened = context.pairs[pair].hear(taken);
        let wanted = match context.stage(sequence) {
            Stage::Gone => {
                if let Some(failure) = context.refused(sequence) {
                    self.fail(index, failure);
                    return Ok(());
                }
                false
            }
            Stage::Later => true,
            Stage::Live(place) => {
                let instance = &self.instances[place as usize];
                // What has gone already needs no announcement; the two have crossed.
                let now = |round: usize| {
                    let mut sends = instance.schedule.round(round).sends.iter().enumerate();
                    let found = sends.find(|(_, send)| (send.to, send.tag) == (member, tag));
                    found.is_some_and(|(at, _)| {
                        round > instance.round || !instance.begun || instance.sends[at].granted.is_none()
                    })
                };
                let wanted = (instance.round..instance.schedule.rounds()).any(now);
                if !wanted && !faults::sends(&instance.schedule, member, tag) {
                    let failure = context.unmatched(member, false);
                    self.fail(index, failure);
                    return Ok(());
                }
                self.enqueue(place as usize);
                wanted
            }
        };
        let context = &mut self.contexts[index];
        if wanted {
            let ready = &mut context.pairs[pair].ready;
            if ready.len() > ANNOUNCEMENTS as usize {
                return Err(out_of_bounds("a member announces more than it may"));
            }
            if !ready.contains(&(sequence, tag)) {
                ready.push((sequence, tag));
                context.readies += 1;
            }
        }
        if opened {
            self.make_room(index, pair);
        }
        Ok(())
    }

    /// A member tells what it has taken.
    pub(super) fn taken(&mut self, from: Address, [number, taken]: [u32; 2]) -> HandlerResult {
        let Some(index) = self.context_index(number) else { return Ok(()) };
        let context = &mut self.contexts[index];
        let member = context.member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        let pair = context.pair(member);
        if context.pairs[pair].hear(taken) {
            self.make_room(index, pair);
        }
        Ok(())
    }

    /// A member tells that the team fails.
    pub(super) fn failed(&mut self, from: Address, number: u32, words: [u32; 13]) -> HandlerResult {
        let Some(index) = self.context_index(number) else {
            return self.stray(from, StrayKind::Failed(number, words));
        };
        self.contexts[index].member(from).ok_or(out_of_bounds("a rank outside the team sends to it"))?;
        let failure = Failure::decode(words).ok_or(out_of_bounds("a team fails for no known reason"))?;
        self.fail(index, failure);
        Ok(())
    }

    /// Lets a team fail: its operations end, and its members are told.
    fn fail(&mut self, index: usize, failure: Failure) {
        for place in self.contexts[index].fail(failure) {
            let instance = &mut self.instances[place as usize];
            instance.outcome = Some(Err(failure.into()));
            if instance.owner == Owner::Nobody {
                self.release(place as usize);
            }
        }
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
        let instance = &self.instances[self.place(id)?];
        if !instance.begun || instance.outcome.is_some() {
            return None;
        }
        let members = &*self.contexts[self.context_index(instance.context)?].members;
        let round = instance.schedule.round(instance.round);
        let receives = round.receives.iter().zip(&instance.receives).filter(|(_, incoming)| !incoming.done);
        let sends = move |blocked: bool| {
            let sends = round.sends.iter().zip(&instance.sends);
            let open = sends.filter(move |(_, out)| !out.done && out.granted.is_some() == blocked);
            open.map(|(send, _)| send.to)
        };
        let waited = sends(true).chain(receives.map(|(receive, _)| receive.from)).chain(sends(false));
        Some((instance.context, waited.map(|member| members.address(member))))
    }

    /// Whether progress has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() || self.contexts.iter().any(Context::has_something_to_tell)
    }
}
