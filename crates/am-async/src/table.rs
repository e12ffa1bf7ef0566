//! The calls of this rank: what is queued, under way and answered. A state machine without a network: callers put
//! calls in, the layer's progress takes out what is to be sent and puts in what comes.

use crate::answers::{Announced, Answers, Impossible};
use crate::buffers;
use crate::config::CallConfig;
use crate::coverage::Coverage;
use crate::error::Busy;
use crate::meter::{End, Meter, Party, Seen};
use crate::outcome::{Alarm, Denied, Due, Ended, Entry, Note, Outcome, Polled, Sent, Waiter, Wakers, outcome_of};
use crate::room::{Room, Side};
use crate::timers::Timers;
use crate::wire::{Header, Status, Verdict};
use am_core::address::{Peer, Shape};
use am_core::slab::{Key, Slab};
use am_core::transport::PeerStatus;
use am_core::{Address, Instant, SendError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

#[cfg(feature = "tower")]
mod permits;
mod sending;
mod streams;
mod time;
#[cfg(feature = "tower")]
pub(crate) use permits::Closed;

#[derive(Debug)]
enum State {
    /// In its peer's queue.
    Queued,
    /// Sent, or announced if it is long.
    Sent,
    /// It is announced while its request is still being written. Once the callee has room: the number that parts
    /// go to.
    Writing {
        remote: Option<u64>,
    },
    /// Its request is being sent in parts.
    Sending,
    /// Its answer waits until there is room for it.
    Announced {
        verdict: Verdict,
        bytes: u64,
        task: u64,
    },
    /// Its answer comes in parts.
    Receiving {
        verdict: Verdict,
        received: Coverage,
    },
    Done(Outcome),
}

#[derive(Debug)]
struct Slot {
    to: Address,
    peer: u32,
    header: Header,
    state: State,
    /// The request, later the answer.
    bytes: Vec<u8>,
    waiter: Waiter,
    due: Due,
    timer: Option<Key>,
    /// Several answers, for streams.
    stream: Option<Box<Answers>>,
    seen: Seen,
    /// Whether it counts as one of those that may be under way.
    counted: bool,
    /// Whether a place was set aside for it.
    permitted: bool,
}

impl Slot {
    /// It has ended: so, with an answer of so many bytes.
    #[inline]
    fn count(&self, meter: &Meter, end: impl FnOnce() -> End, bytes: usize) {
        meter.ended(Party::Caller, self.header.method, end, bytes, self.seen);
    }
}

/// Calls of which the next has been told to its callee. Dropped amid that, as in a panic of a transport, its key
/// is let go, so that a late answer ends no other call.
struct Told<'a>(&'a mut Slab<Slot>);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.skip_key();
    }
}

/// What waits for its turn at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queued {
    Call(Key),
    /// A permit that is not given yet.
    #[cfg(feature = "tower")]
    Permit(Key),
}

#[derive(Debug, Default)]
struct PeerCalls {
    queue: VecDeque<Queued>,
    /// Keys in the queue of calls that were dropped.
    stale: u32,
    under_way: u32,
    /// Those under way for which there are no limits.
    uncounted: u32,
    /// Those at the front of the queue for which places are set aside.
    permitted: u32,
    /// Whether it is among those that have something to send.
    listed: bool,
}

#[derive(Debug)]
struct Sleeper {
    waiter: Waiter,
    due: Due,
    timer: Option<Key>,
    over: bool,
}

/// A long request on its way: the call, the number that its parts go to, and how much has been sent.
#[derive(Clone, Copy, Debug)]
struct Shipment {
    call: Key,
    remote: u64,
    sent: usize,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) config: CallConfig,
    /// Bytes before each request that are not the caller's.
    pub(crate) envelope: usize,
    meter: Meter,
    shape: Option<Shape>,
    slots: Slab<Slot>,
    peers: Vec<PeerCalls>,
    /// Peers with calls in their queues, those whose turn is next first.
    turns: VecDeque<u32>,
    /// Calls to be sent that wait for no limit.
    uncounted: VecDeque<Key>,
    under_way: u32,
    notes: VecDeque<Note>,
    /// Whether a place has come free for who waits for one, since calls were last sent.
    pub(crate) freed: bool,
    shipments: VecDeque<Shipment>,
    room: Arc<Room>,
    /// Of streams that have ended, for others.
    #[expect(clippy::vec_box, reason = "boxes go from call to call as they are")]
    spare: Vec<Box<Answers>>,
    timers: Timers<Alarm>,
    /// Deadlines that the endpoint has not seen.
    fresh: Vec<Alarm>,
    sleepers: Slab<Sleeper>,
    pub(crate) now: Instant,
    /// Wakes the future that the endpoint runs, if it does.
    pub(crate) root: Option<Waker>,
    closed: bool,
    #[cfg(feature = "tower")]
    permits: permits::Permits,
}

impl Table {
    pub(crate) fn new(config: CallConfig, room: Arc<Room>, meter: Meter) -> Self {
        Self {
            config,
            envelope: 0,
            meter,
            shape: None,
            slots: Slab::new(),
            peers: Vec::new(),
            turns: VecDeque::new(),
            uncounted: VecDeque::new(),
            under_way: 0,
            notes: VecDeque::new(),
            freed: false,
            shipments: VecDeque::new(),
            room,
            spare: Vec::new(),
            timers: Timers::new(),
            fresh: Vec::new(),
            sleepers: Slab::new(),
            now: Instant(0),
            root: None,
            closed: false,
            #[cfg(feature = "tower")]
            permits: permits::Permits::default(),
        }
    }

    /// Sets the job's shape, once.
    pub(crate) fn set_shape(&mut self, shape: Shape) {
        if self.shape.is_none() {
            self.shape = Some(shape);
            self.peers.resize_with(shape.peers() as usize, PeerCalls::default);
        }
    }

    /// Whether there is such an endpoint.
    pub(crate) fn has(&self, to: Address) -> bool {
        self.shape.is_some_and(|shape| shape.peer(to).is_some())
    }

    /// The job's shape, once it is known.
    pub(crate) fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Calls that have a slot: queued, under way, or answered and not yet taken.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// All of them, with the digests of their methods, and the lengths of answers that come in parts.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn known(&self) -> impl Iterator<Item = (Key, u32, Option<usize>)> {
        let parts = |slot: &Slot| match &slot.stream {
            Some(answers) => answers.in_parts(),
            None => matches!(slot.state, State::Receiving { .. }).then_some(slot.bytes.len()),
        };
        self.slots.iter().map(move |(key, slot)| (key, slot.header.digest, parts(slot)))
    }

    /// Answers of streams that nobody has taken, of the stream that has most.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn most_untaken(&self) -> usize {
        let streams = self.slots.iter().filter_map(|(_, slot)| slot.stream.as_ref());
        streams.map(|answers| answers.len()).max().unwrap_or(0)
    }

    /// Calls under way.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Makes a call.
    pub(crate) fn start(
        &mut self,
        to: Address,
        header: Header,
        request: Vec<u8>,
        due: Due,
        entry: Entry,
        waiter: Waiter,
    ) -> Result<Key, (Denied, Vec<u8>)> {
        if self.closed {
            return Err((Denied::Closed, request));
        }
        let shape = self.shape.unwrap_or(Shape { ranks: 0, endpoints: 0 });
        let Some(peer) = shape.peer(to) else {
            return Err((Denied::NoSuchRank { ranks: shape.ranks }, request));
        };
        let (bytes, limit) = ((request.len() - self.envelope) as u64, u64::from(self.config.max_bytes));
        if bytes > limit {
            self.meter.begun(Party::Caller, header.method, bytes as usize);
            self.meter.ended(Party::Caller, header.method, || End::TooLarge, 0, Seen::default());
            return Err((Denied::RequestTooLarge { bytes, limit }, request));
        }
        let (peer, CallConfig { calls_per_peer, calls, .. }) = (peer.0, self.config);
        let queue = &self.peers[peer as usize];
        if entry == Entry::Immediate {
            let (reserved, reserved_in_all) = self.reserved(peer);
            // Dropped calls in a queue are in nobody's way.
            let queued = |calls: &PeerCalls| calls.queue.len().saturating_sub(calls.stale as usize);
            let to_peer = queue.under_way as usize + queued(queue) + reserved as usize;
            if to_peer >= calls_per_peer.max(1) as usize {
                self.meter.busy(header.method);
                return Err((Denied::Busy(Busy::Peer { limit: calls_per_peer.max(1) }), request));
            }
            let all: usize = self.turns.iter().map(|peer| queued(&self.peers[*peer as usize])).sum();
            if self.under_way as usize + all + reserved_in_all as usize >= calls.max(1) as usize {
                self.meter.busy(header.method);
                return Err((Denied::Busy(Busy::All { limit: calls.max(1) }), request));
            }
        }
        let stream = header.is(Header::STREAM).then(|| {
            let mut answers = self.spare.pop().unwrap_or_default();
            answers.renew(self.config.stream_window);
            answers
        });
        self.meter.begun(Party::Caller, header.method, bytes as usize);
        let (state, bytes, seen, counted) = (State::Queued, request, Seen::default(), entry != Entry::Uncounted);
        #[cfg(feature = "tower")]
        let permitted = matches!(entry, Entry::Permitted(permit) if self.use_permit(permit));
        #[cfg(not(feature = "tower"))]
        let permitted = false;
        let timer = None;
        let slot = Slot { to, peer, header, state, bytes, waiter, due, timer, stream, seen, counted, permitted };
        let key = self.slots.insert(slot);
        if due != Due::Never || self.meter.is_on() {
            self.fresh.push(Alarm::Call(key));
        }
        if !counted {
            self.uncounted.push_back(key);
            return Ok(key);
        }
        let queue = &mut self.peers[peer as usize];
        if permitted {
            queue.queue.insert(queue.permitted as usize, Queued::Call(key));
            queue.permitted += 1;
        } else {
            queue.queue.push_back(Queued::Call(key));
        }
        self.list(peer);
        Ok(key)
    }

    /// Gives a peer that has something to send its turn, behind the others that have.
    fn list(&mut self, peer: u32) {
        let calling = &mut self.peers[peer as usize];
        if !calling.queue.is_empty() && !calling.listed {
            calling.listed = true;
            self.turns.push_back(peer);
        }
    }

    /// Makes a call and sends it, where no other waits before it and no limit is reached; what is wrong with it is
    /// for [`Table::start`] to say. What could not be sent is for [`Table::put_back`] or [`Table::refused`]. The
    /// books are done while the request travels. `endpoint` is asked for the time where the call is timed.
    #[inline]
    pub(crate) fn start_sent<E>(
        &mut self,
        shape: Shape,
        to: Address,
        (header, request): (Header, usize),
        endpoint: &mut E,
        now: impl FnOnce(&E) -> Instant,
        send: impl FnOnce(&mut E, Key) -> Sent,
    ) -> Option<(Key, Sent)> {
        self.set_shape(shape);
        let peer = shape.peer(to)?.0;
        let CallConfig { calls_per_peer, calls, max_bytes, .. } = self.config;
        let (reserved, reserved_in_all) = self.reserved(peer);
        let calling = &mut self.peers[peer as usize];
        let bytes = request - self.envelope;
        let free = calling.under_way + reserved < calls_per_peer.max(1)
            && self.under_way + reserved_in_all < calls.max(1);
        // Who waits for a limit on all calls waits in the turns.
        let waiting = !(calling.queue.is_empty() && self.turns.is_empty());
        if !free || waiting || self.closed || bytes as u64 > u64::from(max_bytes) {
            return None;
        }
        let mut seen = Seen::default();
        if self.meter.is_on() {
            self.meter.begun(Party::Caller, header.method, bytes);
            seen.at(now(endpoint));
        }
        let key = self.slots.next_key();
        let told = Told(&mut self.slots);
        let sent = send(endpoint, key);
        std::mem::forget(told);
        calling.under_way += 1;
        self.under_way += 1;
        let (state, bytes) = (State::Sent, Vec::new());
        let (waiter, due, timer, stream, counted, permitted) =
            (Waiter::Nobody, Due::Never, None, None, true, false);
        let slot = Slot { to, peer, header, state, bytes, waiter, due, timer, stream, seen, counted, permitted };
        let inserted = self.slots.insert(slot);
        debug_assert_eq!(inserted, key);
        Some((key, sent))
    }

    /// Places among the calls under way to a peer, and in all, that are set aside for calls which are not sent
    /// yet.
    #[inline]
    fn reserved(&self, peer: u32) -> (u32, u32) {
        #[cfg(feature = "tower")]
        return self.permits.reserved(peer);
        #[cfg(not(feature = "tower"))]
        {
            let _ = peer;
            (0, 0)
        }
    }

    /// The network has no room for a call that [`Table::start_sent`] made: it is sent later, before all others.
    #[cold]
    pub(crate) fn put_back(&mut self, key: Key, request: Vec<u8>) {
        self.leave(key);
        let Some(slot) = self.slots.get_mut(key) else { return };
        (slot.state, slot.bytes) = (State::Queued, request);
        let (peer, queue) = (slot.peer, &mut self.peers[slot.peer as usize]);
        queue.queue.insert(queue.permitted as usize, Queued::Call(key));
        self.list(peer);
    }

    /// A call could not be sent, and never can be.
    #[cold]
    pub(crate) fn refused(&mut self, key: Key, error: SendError, wakers: &mut Wakers) {
        let outcome = match error.loss() {
            Some((_, cause)) => Outcome::Lost(cause),
            None if matches!(error, SendError::Finished { .. }) => Outcome::Finished,
            None => Outcome::Send(Box::new(error)),
        };
        self.end(key, outcome, wakers);
    }

    /// Whether there is something to send, to look at the time for, or a place that somebody waits for.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        let idle = self.turns.is_empty() && self.notes.is_empty() && self.shipments.is_empty();
        let idle = idle && self.uncounted.is_empty();
        !idle || self.needs_time() || self.meter.waits()
    }

    /// The end of a call, with the answer's bytes, if there is one; else its waker is kept.
    #[inline]
    pub(crate) fn poll(&mut self, key: Key, waker: Option<&Waker>) -> Polled<Ended> {
        let Some(slot) = self.slots.get_mut(key) else { return Polled::Pending(None) };
        let State::Done(outcome) = &mut slot.state else {
            return Polled::Pending(slot.waiter.keep(waker, self.root.as_ref()));
        };
        let ended = (std::mem::replace(outcome, Outcome::Answer), std::mem::take(&mut slot.bytes));
        let stream = slot.stream.take();
        self.slots.discard(key);
        if stream.is_some() {
            self.keep_stream(stream);
        }
        Polled::Ready(ended)
    }

    /// Whether a call has ended.
    pub(crate) fn is_done(&self, key: Key) -> bool {
        self.slots.get(key).is_none_or(|slot| matches!(slot.state, State::Done(_)))
    }

    /// How a call has ended whose answers have not all been taken.
    pub(crate) fn end_of(&self, key: Key) -> Option<End> {
        match &self.slots.get(key)?.state {
            State::Done(outcome) => Some(End::of_outcome(outcome)),
            _ => None,
        }
    }

    /// Nobody waits for a call any more. Its waker is to be dropped once nothing is locked.
    pub(crate) fn cancel(&mut self, key: Key) -> Option<Waker> {
        let slot = self.slots.get(key)?;
        let (to, done) = (slot.to, matches!(slot.state, State::Done(_)));
        if !done && self.leave(key) {
            self.notes.push_back(Note::Cancel { to, call: key });
        }
        let slot = self.slots.remove(key)?;
        self.forget_stale();
        if !done {
            slot.count(&self.meter, || End::Cancelled, 0);
        }
        buffers::give(slot.bytes);
        self.keep_stream(slot.stream);
        slot.waiter.waker()
    }

    /// Takes a call from where it is; whether the callee may know of it.
    fn leave(&mut self, key: Key) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        if let Some(timer) = slot.timer.take() {
            self.timers.remove(timer);
        }
        let peer = &mut self.peers[slot.peer as usize];
        match slot.state {
            State::Done(_) => return false,
            State::Queued if !slot.counted => {
                self.uncounted.retain(|queued| *queued != key);
                return false;
            }
            State::Queued if slot.permitted => {
                peer.queue.retain(|queued| *queued != Queued::Call(key));
                peer.permitted -= 1;
                #[cfg(feature = "tower")]
                self.permits.is_sent(slot.peer);
                return false;
            }
            State::Queued => {
                peer.stale += 1;
                // Calls that are dropped while nothing can be sent leave no more than they were.
                if peer.stale as usize > 64.max(peer.queue.len() / 2) {
                    peer.stale = 0;
                    peer.queue.retain(|queued| match *queued {
                        Queued::Call(queued) => queued != key && self.slots.contains(queued),
                        #[cfg(feature = "tower")]
                        Queued::Permit(_) => true,
                    });
                }
                return false;
            }
            State::Receiving { .. } => {
                self.room.give(slot.to, slot.bytes.len() as u64);
            }
            State::Announced { .. } => self.room.remove(Side::Answers, slot.to, key),
            State::Sending => self.shipments.retain(|shipment| shipment.call != key),
            State::Sent | State::Writing { .. } => {}
        }
        if let Some(answers) = &mut slot.stream {
            streams::give_room(answers, &self.room, slot.to, key);
        }
        if !slot.counted {
            peer.uncounted -= 1;
            return true;
        }
        let peer = slot.peer;
        self.release(peer);
        true
    }

    /// A call has ended.
    fn end(&mut self, key: Key, outcome: Outcome, wakers: &mut Wakers) {
        self.leave(key);
        let Some(slot) = self.slots.get_mut(key) else { return };
        let one_way = slot.header.is(Header::ONE_WAY);
        let how =
            || if one_way && matches!(outcome, Outcome::Answer) { End::OneWay } else { End::of_outcome(&outcome) };
        slot.count(&self.meter, how, slot.bytes.len());
        if one_way {
            if let Some(slot) = self.slots.remove(key) {
                buffers::give(slot.bytes);
            }
            return;
        }
        wakers.add(&mut slot.waiter);
        slot.state = State::Done(outcome);
    }

    /// The whole answer of a call has come that the endpoint waits for, and nobody else: how the call has ended,
    /// which is in the table no longer. None where more than that is to be done, or something is wrong, which is
    /// for [`Table::answered`].
    #[inline]
    pub(crate) fn answered_awaited(
        &mut self,
        from: Address,
        call: Key,
        verdict: Option<Verdict>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Ended> {
        let slot = self.slots.get_mut(call)?;
        let verdict = verdict.filter(|verdict| verdict.digest == slot.header.digest && !verdict.long)?;
        let last = !matches!(verdict.status, Status::Accepted | Status::Item | Status::Items);
        let alone = slot.stream.is_none() && slot.timer.is_none() && slot.counted && slot.waiter.is_nobody();
        if !(last && alone && slot.to == from && matches!(slot.state, State::Sent)) {
            return None;
        }
        let mut bytes = std::mem::take(&mut slot.bytes);
        bytes.clear();
        body(&mut bytes);
        let outcome = outcome_of(verdict, &bytes);
        slot.count(&self.meter, || End::of_outcome(&outcome), bytes.len());
        let peer = slot.peer;
        self.slots.discard(call);
        self.release(peer);
        Some((outcome, bytes))
    }

    /// One call less is under way to a peer.
    #[inline]
    fn release(&mut self, peer: u32) {
        self.peers[peer as usize].under_way -= 1;
        self.under_way -= 1;
        self.list(peer);
        self.freed |= !self.turns.is_empty();
    }

    /// An answer has come: all of it, or word that it is long. `number` is its length then, and `task` where the
    /// callee wants to hear of it; of a stream `number` is the answer's, or of its end how many there were, and
    /// `task` the length of what is long.
    pub(crate) fn answered(
        &mut self,
        from: Address,
        call: Key,
        verdict: Option<Verdict>,
        (number, task): (u64, u64),
        body: impl FnOnce(&mut Vec<u8>),
        wakers: &mut Wakers,
    ) {
        // A call that was dropped, or somebody who was not asked.
        let Some(slot) = self.slots.get_mut(call).filter(|slot| slot.to == from) else { return };
        if !matches!(slot.state, State::Sent | State::Writing { .. } | State::Sending) {
            return;
        }
        let Some(verdict) = verdict.filter(|verdict| verdict.digest == slot.header.digest) else {
            return self.end(call, Outcome::BadAnswer, wakers);
        };
        match verdict.status {
            Status::Accepted => return,
            Status::Item if !verdict.long => return self.item(call, number, body, wakers),
            Status::Items if !verdict.long => return self.items(call, number, body, wakers),
            Status::Items => return self.end(call, Outcome::BadAnswer, wakers),
            _ => {}
        }
        // A request that is still being sent has been answered early: it is too long, or the callee is faulty.
        if let State::Sending = slot.state {
            self.shipments.retain(|shipment| shipment.call != call);
            slot.state = State::Sent;
            slot.bytes.clear();
        }
        if verdict.long && (slot.stream.is_some() || verdict.status == Status::Item) {
            return self.announced_item(call, Announced { verdict, number, bytes: task }, wakers);
        }
        if verdict.long {
            let limit = u64::from(self.config.max_bytes);
            if number > limit {
                self.notes.push_back(Note::Cancel { to: from, call });
                return self.end(call, Outcome::AnswerTooLarge { bytes: number, limit }, wakers);
            }
            slot.state = State::Announced { verdict, bytes: number, task };
            self.room.add(Side::Answers, from, number, call);
            self.make_room();
            return;
        }
        slot.bytes.clear();
        body(&mut slot.bytes);
        let outcome = outcome_of(verdict, &slot.bytes);
        let Some(answers) = &mut slot.stream else { return self.end(call, outcome, wakers) };
        // What was overtaken still comes.
        match answers.end(number, outcome).map(|()| answers.ended()) {
            Ok(None) => {}
            Ok(Some(outcome)) => self.end(call, outcome, wakers),
            Err(Impossible) => self.end(call, Outcome::BadAnswer, wakers),
        }
    }

    /// Lets long answers come for which there is room, in order; whether one may.
    pub(crate) fn make_room(&mut self) -> bool {
        let mut any = false;
        while let Some(call) = self.room.next(Side::Answers) {
            let slot = self.slots.get_mut(call).expect("an answer that waits for memory has its call");
            if let Some(answers) = &mut slot.stream {
                answers.receive();
                self.notes.push_back(Note::GrantItem { to: slot.to, call });
                any = true;
                continue;
            }
            let State::Announced { verdict, bytes, task } = slot.state else {
                unreachable!("an answer that waits is announced")
            };
            buffers::give(std::mem::replace(&mut slot.bytes, buffers::take_filled(bytes as usize)));
            slot.state = State::Receiving { verdict, received: Coverage::default() };
            self.notes.push_back(Note::GrantAnswer { to: slot.to, task, call });
            any = true;
        }
        any
    }

    /// Part of a long answer has come.
    pub(crate) fn part(
        &mut self,
        from: Address,
        call: Key,
        at: u64,
        len: usize,
        body: impl FnOnce(&mut [u8]),
        wakers: &mut Wakers,
    ) {
        let Some(slot) = self.slots.get_mut(call).filter(|slot| slot.to == from) else { return };
        if slot.stream.is_some() {
            return self.item_part(call, (at, len), body, wakers);
        }
        let State::Receiving { verdict, received } = &mut slot.state else { return };
        let place = usize::try_from(at).ok().and_then(|at| slot.bytes.get_mut(at..at.checked_add(len)?));
        let (Some(place), Ok(received)) = (place, received.note(at, len as u64)) else {
            return self.end(call, Outcome::BadAnswer, wakers);
        };
        body(place);
        if received == slot.bytes.len() as u64 {
            let outcome = outcome_of(*verdict, &slot.bytes);
            self.end(call, outcome, wakers);
        }
    }

    /// Whether a peer is gone that has not answered all calls.
    pub(crate) fn is_deserted(&self, status: &impl Fn(Address) -> PeerStatus) -> bool {
        let Some(shape) = self.shape else { return false };
        let waited_for = (0..).zip(&self.peers).filter(|(_, peer)| peer.under_way + peer.uncounted != 0);
        waited_for.map(|(peer, _)| shape.address(Peer(peer))).any(|peer| status(peer) != PeerStatus::Active)
    }

    /// Fails the calls to peers that are gone; whether there were any.
    pub(crate) fn desert(&mut self, status: &impl Fn(Address) -> PeerStatus, wakers: &mut Wakers) -> bool {
        let gone = |slot: &Slot| {
            !matches!(slot.state, State::Queued | State::Done(_)) && status(slot.to) != PeerStatus::Active
        };
        let calls: Vec<(Key, Address)> =
            self.slots.iter().filter(|(_, slot)| gone(slot)).map(|(key, slot)| (key, slot.to)).collect();
        for (call, to) in &calls {
            let outcome = match status(*to) {
                PeerStatus::Lost(cause) => Outcome::Lost(cause),
                PeerStatus::Finished | PeerStatus::Active => Outcome::Finished,
            };
            self.end(*call, outcome, wakers);
        }
        !calls.is_empty()
    }

    /// The endpoint is gone: everything ends.
    pub(crate) fn close(&mut self, wakers: &mut Wakers) {
        self.closed = true;
        let calls: Vec<Key> = self.slots.iter().map(|(key, _)| key).collect();
        for call in calls {
            if !self.is_done(call) {
                self.end(call, Outcome::Closed, wakers);
            }
        }
        let sleepers: Vec<Key> = self.sleepers.iter().map(|(key, _)| key).collect();
        for key in sleepers {
            if let Some(sleeper) = self.sleepers.get_mut(key) {
                sleeper.over = true;
                wakers.add(&mut sleeper.waiter);
            }
        }
        self.notes.clear();
        #[cfg(feature = "tower")]
        self.close_permits(wakers);
    }
}

#[cfg(test)]
mod tests;
