//! The contract's calls.

use super::receive::{Delivery, departure};
use super::reply_path::ConduitReplyPath;
use super::send::{Admitted, Outgoing};
use super::shared::Conduit;
use super::waiting::{LONGEST_ON_WIRE, Next};
use super::{Machine, PeerState};
use crate::frame::{Header, Kind};
use crate::memory::OfiMemory;
use crate::wire::Wire;
use am_core::time::Clock;
use am_core::transport::{
    Arrival, Body, Buffer, CreditSnapshot, Departure, Membership, NativeOneSided, Notify, PayloadWriter,
    PendingKey, Refused, ReplyBound, ReplyPath, RequestHeader, Sink, Slot, Transport, WaitReason, Waiting,
};
use am_core::{
    Category, Instant, Limits, LossCause, Memory, Payload, Peer, PeerStatus, Rank, Segment, Shape, Span, Words,
};
use std::sync::atomic::Ordering::Acquire;
use std::task::Waker;
use std::time::Duration;

/// Polls after which credits are sent even though nobody seems to need them.
const CREDIT_FLUSH_POLLS: u32 = 16;
/// How long a departure waits for peers that leave, too, to take over its last word.
const PARTING: Span = Span::from_millis(200);

/// What every peer is in a fork.
const FORKED: PeerStatus = PeerStatus::Lost(LossCause::Forked);

fn kind(category: Category, reply: ReplyBound) -> Kind {
    match reply {
        ReplyBound::None => Kind::OneWay(category),
        ReplyBound::UpTo(_) => Kind::Request(category),
    }
}

impl<W: Wire> Machine<W> {
    /// Tells peers that this endpoint leaves, and waits until they know, and all that was sent has been taken
    /// over; no longer than the settings say for those who do not answer. Where all leave together it tells those
    /// that it has had to do with: others have nothing to wait for, and to tell all would connect all pairs.
    fn announce_departure(&mut self, how: Departure, clock: &Clock) {
        self.pay_all();
        self.departing = true;
        self.spare.extend(self.ready.drain(..));
        let handler = match how {
            Departure::Finished => departure::FINISHED,
            Departure::Left => departure::LEFT,
            Departure::Panicked => departure::PANICKED,
        };
        let (me, peers) = (self.me(), self.peers.len());
        let met = |to: u32| !self.all_depart || self.peers.known(to).is_some();
        let mut untold: Vec<u32> = (0..peers).filter(|to| *to != me && met(*to)).collect();
        let began = clock.now();
        let mut tries = 0u32;
        loop {
            self.set_time(|| clock.now());
            self.progress();
            // The last word follows when nothing else is under way; who has left meanwhile gets an answer in its
            // place.
            untold.retain(|&to| {
                let active = self.known_status(to) == PeerStatus::Active;
                if active && self.peers.known(to).is_some_and(PeerState::is_busy) {
                    return true;
                }
                if active {
                    self.peers.of(to).told = true;
                    self.transmit(to, &Outgoing { handler, ..Outgoing::bare(Kind::Departure) });
                }
                false
            });
            let spent = clock.now() - began;
            let waits = |peer: u32, state: &PeerState| match self.known_status(peer) {
                _ if peer == me => false,
                PeerStatus::Active => !state.heard || state.is_busy(),
                // It waits for our word as we for its own; once it has that, nothing else will be taken there.
                PeerStatus::Finished | PeerStatus::Lost(_) => {
                    state.left.is_some() && state.is_busy() && spent < PARTING
                }
            };
            let waits = !self.answers.is_empty() || self.peers.iter().any(|(peer, state)| waits(peer, state));
            let done = self.broken || untold.is_empty() && !waits;
            if done || spent > self.settings.linger {
                let lost = self.notices.losses.load(Acquire) > self.left;
                if done && !lost && !self.broken {
                    self.wire.has_left();
                }
                break;
            }
            tries += 1;
            match tries {
                0..200 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

/// A reserved Medium request.
#[derive(Debug)]
pub struct ConduitSlot<'t, W: Wire, M: Memory = OfiMemory> {
    conduit: &'t mut Conduit<W, M>,
    to: Peer,
    header: RequestHeader,
    args: Words,
    payload: Vec<u8>,
    /// What it took; gone once it is sent.
    admitted: Option<Admitted>,
}

impl<W: Wire, M: Memory> PayloadWriter for ConduitSlot<'_, W, M> {
    fn len(&self) -> usize {
        self.payload.len()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        Buffer(&mut self.payload).write(at, bytes);
    }
}

impl<W: Wire, M: Memory> Slot for ConduitSlot<'_, W, M> {
    fn commit(mut self) {
        if self.conduit.is_elsewhere() || self.admitted.take().is_none() {
            return;
        }
        let (kind, handler) = (kind(Category::Medium, self.header.reply), self.header.handler);
        let frame = Outgoing { kind, handler, args: &self.args, payload: &self.payload, placed: (0, 0) };
        self.conduit.lock().transmit(self.to.0, &frame);
    }
}

impl<W: Wire, M: Memory> Drop for ConduitSlot<'_, W, M> {
    fn drop(&mut self) {
        if self.conduit.is_elsewhere() {
            return;
        }
        if let Some(admitted) = self.admitted.take() {
            self.conduit.lock().withdraw(self.to.0, admitted);
        }
        let payload = std::mem::take(&mut self.payload);
        self.conduit.lock().spare.push(payload);
    }
}

impl<W: Wire, M: Memory> Membership for Conduit<W, M> {
    fn local_peer(&self) -> Peer {
        self.me
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn losses(&self) -> u32 {
        // Asked at every poll. Acquire: pairs with the Release in `note_losses`; the status is asked for under the
        // lock.
        if self.is_elsewhere() { self.shape.peers() } else { self.notices.losses.load(Acquire) }
    }

    fn status(&self, peer: Peer) -> PeerStatus {
        if self.is_elsewhere() { FORKED } else { self.lock().known_status(peer.0) }
    }

    fn is_fork(&self) -> bool {
        self.is_elsewhere()
    }

    fn all_depart(&mut self) {
        if !self.is_elsewhere() {
            self.lock().all_depart = true;
        }
    }

    fn depart(&mut self, how: Departure) {
        if self.is_elsewhere() || std::mem::replace(&mut self.departed, true) {
            return;
        }
        self.lock().announce_departure(how, &self.clock);
        if let Some(call) = self.when_departed.take() {
            call();
        }
    }
}

impl<W: Wire, M: Memory> Waiting for Conduit<W, M> {
    fn idle(&mut self, until: Option<Instant>, _: WaitReason) {
        if self.is_elsewhere() {
            return;
        }
        let next = self.backoff.next();
        let mut machine = self.lock();
        if machine.look() {
            drop(machine);
            self.backoff.reset_where_alone();
            return;
        }
        // Under the lock of that look: whatever comes from now on shows at the descriptor.
        let on_wire = matches!(next, Next::Sleep(_)) && machine.may_sleep();
        machine.asleep = on_wire;
        drop(machine);
        let left = |longest: Duration| until.map_or(longest, |until| (until - self.now()).into()).min(longest);
        match next {
            // The look has taken longer than a pause.
            Next::Spin => {}
            Next::Yield => std::thread::yield_now(),
            Next::Sleep(_) if on_wire => {
                self.notices.sleep_on_wire(left(LONGEST_ON_WIRE));
                // The sleep is over, also for a program that calls nothing else.
                drop(self.lock());
            }
            Next::Sleep(longest) => self.notices.sleep(left(longest)),
        }
    }

    fn spins(&self) -> bool {
        self.backoff.spins()
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.notices.waker())
    }

    fn notify(&mut self, waker: &Waker) -> Notify {
        self.arm(waker)
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl<W: Wire, M: Memory + Clone> Transport for Conduit<W, M> {
    type Memory = M;
    type Room = Admitted;
    type Slot<'t>
        = ConduitSlot<'t, W, M>
    where
        Self: 't;

    fn limits(&self, _: Peer) -> &Limits {
        &self.limits
    }

    fn send(&mut self, to: Peer, header: RequestHeader, args: &Words, body: Body<'_>) -> Result<(), Refused> {
        self.usable()?;
        let (payload, at) = body.parts();
        let (kind, handler) = (kind(body.category(), header.reply), header.handler);
        let mut machine = self.lock();
        let Body::Place(..) = body else {
            machine.admit(to, kind, header.reply, payload.len())?;
            machine.transmit(to.0, &Outgoing { kind, handler, args, payload, placed: (0, 0) });
            return Ok(());
        };
        if !machine.fits_frame(to.0, payload.len()) {
            machine.check_parts(to.0, payload.len())?;
        }
        machine.admit(to, kind, header.reply, payload.len())?;
        let frame = Outgoing { kind, handler, args, payload: &[], placed: (at, payload.len() as u64) };
        machine.transmit_long(to.0, &frame, payload).map_err(Refused::Gone)
    }

    fn reserve(&mut self, to: Peer, header: RequestHeader, _: &Words, len: usize) -> Result<Admitted, Refused> {
        self.usable()?;
        self.lock().admit(to, kind(Category::Medium, header.reply), header.reply, len)
    }

    fn slot(
        &mut self,
        to: Peer,
        header: RequestHeader,
        args: &Words,
        len: usize,
        room: Admitted,
    ) -> ConduitSlot<'_, W, M> {
        let mut payload = if self.is_elsewhere() { Vec::new() } else { self.lock().memory() };
        payload.resize(len, 0);
        ConduitSlot { to, header, args: *args, payload, admitted: Some(room), conduit: self }
    }

    fn control(&mut self, to: Peer, args: &Words, payload: &[u8]) -> Result<(), Refused> {
        self.usable()?;
        let mut machine = self.lock();
        machine.admit(to, Kind::Control, ReplyBound::None, payload.len())?;
        machine.transmit(to.0, &Outgoing { kind: Kind::Control, handler: 0, args, payload, placed: (0, 0) });
        Ok(())
    }

    fn poll<S: Sink>(&mut self, budget: usize, sink: &mut S) -> usize {
        if self.is_elsewhere() {
            return 0;
        }
        let spent = self.spent.take();
        let mut machine = self.lock();
        machine.spare.extend(spent);
        let (mut next, ended) = machine.poll(budget);
        drop(machine);
        let mut done = 0;
        if ended {
            // What the network has done comes first: no flood of messages keeps it back.
            done = self.complete(budget, sink);
            if done < budget && !self.is_elsewhere() {
                next = self.lock().take();
            }
        }
        while let Some(delivery) = next.take() {
            self.deliver(&delivery, sink);
            done += 1;
            if self.is_elsewhere() {
                // The handler has forked: the rest is the parent's.
                return done;
            }
            if !delivery.more {
                // The state is not asked again for one message alone.
                self.spent = Some(delivery.bytes);
                break;
            }
            let mut machine = self.lock();
            machine.spare.push(delivery.bytes);
            if done < budget {
                next = machine.take();
            }
        }
        if done != 0 {
            self.backoff.reset();
        }
        done
    }

    fn reply_detached<R>(&mut self, key: PendingKey, reply: impl FnOnce(&mut dyn ReplyPath) -> R) -> R {
        reply(&mut ConduitReplyPath::of_key(self, key))
    }

    fn flush(&mut self) {
        if self.is_elsewhere() {
            return;
        }
        let mut machine = self.lock();
        machine.pay_all();
        machine.progress();
    }

    fn is_quiescent(&mut self) -> bool {
        self.is_elsewhere() || self.lock().is_quiescent()
    }

    fn segment(&self) -> &Segment<M> {
        &self.segment
    }

    fn segment_len(&self, rank: Rank) -> u64 {
        self.segments[rank.0 as usize]
    }

    fn native(&mut self, to: Peer) -> Option<(&mut dyn NativeOneSided, Peer)> {
        Some((self, to))
    }

    fn credits(&self, peer: Peer) -> CreditSnapshot {
        if self.is_elsewhere() {
            return CreditSnapshot::default();
        }
        let (window, medium) = (self.window, self.medium as u64);
        let machine = self.lock();
        let (unhandled, expected) =
            machine.peers.known(peer.0).map_or((0, 0), |state| (state.unhandled, state.expected));
        let (requests, replies) = (u64::from(window - unhandled), u64::from(window - expected));
        let snapshot = CreditSnapshot::default().requests(requests, requests * medium);
        snapshot.replies(replies, replies * medium)
    }

    fn bare_credits(&self) -> u64 {
        if self.is_elsewhere() { 0 } else { self.lock().bare_given }
    }
}

impl<W: Wire> Machine<W> {
    /// Carries the wire on and takes the first message for the sink, unless operations have ended; pays credits
    /// now and then. A message that the look of a wait has found needs no second look, unless something of this
    /// endpoint waits for one.
    fn poll(&mut self, budget: usize) -> (Option<Delivery>, bool) {
        self.turns += 1;
        self.asleep = false;
        let looked = std::mem::take(&mut self.looked);
        let found = looked && budget != 0 && !self.ready.is_empty() && self.ended.is_empty();
        let sending = !self.waiting.is_empty() || self.longs.len() != self.free_longs.len();
        if found && !sending {
            self.close_bundles();
        } else {
            self.progress();
        }
        if !self.pending_credit.is_empty() {
            self.polls_before_flush += 1;
            if self.polls_before_flush >= CREDIT_FLUSH_POLLS {
                self.pay_all();
            }
        }
        let ended = !self.ended.is_empty();
        if (ended || !self.ready.is_empty()) && std::mem::take(&mut self.helper_rests) {
            // The program may be about to compute.
            self.notices.wake_helper();
        }
        (if budget == 0 || ended { None } else { self.take() }, ended)
    }

    /// Looks around before a wait goes on: whether it may be over.
    fn look(&mut self) -> bool {
        self.turns += 1;
        self.asleep = false;
        self.pay_all();
        self.progress();
        self.looked = true;
        self.has_news()
    }

    /// Whether a sleep on the wire's descriptor may begin: nothing is there or left to do that it would not tell
    /// of.
    pub(super) fn may_sleep(&mut self) -> bool {
        let idle = self.unposted.is_empty() && self.waiting.is_empty() && self.answers.is_empty();
        let idle = idle && self.bundles.is_empty();
        idle && self.probing.is_empty() && self.asides.is_empty() && self.wire.may_sleep()
    }

    /// Whether something has come since this was last asked.
    pub(super) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.fresh) || !self.ready.is_empty() || !self.ended.is_empty()
    }

    fn is_quiescent(&mut self) -> bool {
        if self.unhandled == 0 && self.natives_out == 0 {
            return true;
        }
        // Whoever was waited for the last time is looked at first: with many peers all of them take long.
        let waits = |peer: u32, state: &PeerState| {
            state.unhandled + state.controls + state.natives != 0 && self.known_status(peer) == PeerStatus::Active
        };
        let last = self.last_busy_peer;
        if self.peers.known(last).is_some_and(|state| waits(last, state)) {
            return false;
        }
        match self.peers.iter().find(|(peer, state)| waits(*peer, state)) {
            Some((peer, _)) => self.last_busy_peer = peer,
            None => return true,
        }
        false
    }
}

impl<W: Wire, M: Memory + Clone> Conduit<W, M> {
    /// Nothing is sent in a fork.
    pub(super) fn usable(&self) -> Result<(), Refused> {
        if self.is_elsewhere() { Err(Refused::Gone(FORKED)) } else { Ok(()) }
    }

    /// Hands a message to the sink, without the lock.
    fn deliver<S: Sink>(&mut self, delivery: &Delivery, sink: &mut S) {
        let Delivery { header, bytes, rest, .. } = delivery;
        let Header { origin, kind, handler, placed: (at, len), .. } = *header;
        let from = Peer(origin.from);
        let words = &bytes[rest - 4 * usize::from(header.args)..*rest];
        let args = &Words::from_le_bytes(words).expect("`open` gives no more than there may be");
        let segment = kind.is_long().then(|| self.segment.clone());
        let payload = match &segment {
            Some(segment) => segment.view(at, len as usize).expect("the range was checked when it was taken"),
            None => Payload::own(&bytes[*rest..]),
        };
        let arrival = |category| Arrival::new(from, category, handler, args, payload);
        match kind {
            Kind::Request(category) | Kind::OneWay(category) => {
                let allowed = matches!(kind, Kind::Request(_));
                let mut path = ConduitReplyPath::of_request(self, from.0, allowed);
                sink.request(arrival(category), &mut path);
            }
            Kind::Reply(category) => sink.reply(arrival(category)),
            Kind::Control => sink.control(from, args, payload),
            // `open` gives nothing else.
            _ => {}
        }
    }
}
