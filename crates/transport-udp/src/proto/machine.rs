//! The machine: all peers of one endpoint, and the surface that drivers and applications see.

use super::OwnSegment;
use super::batch::Batch;
use super::config::{Config, ConfigError, Protection};
use super::context::{Context, Dropped};
use super::peer::{Slot, Transition};
use super::seal::Keyring;
use super::session::{Fault, Session};
use super::timer::Timers;
use super::transmit::Loan;
use super::wire::{DEPARTURES, HELLO, Header, Hello, KIND_HELLO, Leave, MAX_ROW, first_datagram};
use super::{Event, replay::Stale};
use am_core::transport::{Departure, LossCause, PeerStatus};
use am_core::{Instant, Peer, Span};
use std::collections::VecDeque;
use std::ops::Range;
use zeroize::Zeroize;

/// The protocol's state at one endpoint. See the [module](super).
#[derive(Debug)]
pub struct Machine {
    pub(super) shared: Context,
    pub(super) keyring: Keyring,
    pub(super) slots: Vec<Slot>,
    timers: Timers,
    /// Peers that may have something to send, and peers that may have something to deliver.
    ready: VecDeque<u32>,
    pub(super) arrived: VecDeque<u32>,
    pub(super) events: VecDeque<Event>,
    /// What `poll` and `answer` deliver in; made when first needed.
    pub(super) batch: Option<Box<Batch>>,
    pub(super) losses: u32,
    pub(super) departing: Option<Departure>,
    /// Farewells that wait for those that their senders knew of, since when at the latest.
    held: Vec<(Peer, Instant)>,
    /// When the next of these has waited long enough; the program is woken then.
    held_until: Option<Instant>,
}

/// The payload of a Long request that is under way, sent from where it is. See [`Machine::buffer_tail`].
#[derive(Clone, Copy, Debug)]
pub struct BorrowedPayload<'a> {
    /// Where the request goes.
    pub to: Peer,
    /// The whole payload.
    pub payload: &'a [u8],
}

impl<'a> BorrowedPayload<'a> {
    /// The payload, if it is for this peer.
    fn to(lent: Option<Self>, peer: u32, stays: bool) -> Option<Loan<'a>> {
        lent.filter(|lent| lent.to.0 == peer).map(|lent| Loan { payload: lent.payload, stays, tail: 0..0 })
    }
}

/// A datagram of [`Machine::transmit_parts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Whom it is for.
    pub to: Peer,
    /// Its length in bytes.
    pub len: usize,
    /// Which part of the lent payload is its end.
    pub tail: Range<usize>,
}

/// How long a farewell waits for the one that it came after: beyond that, the word of its sender is taken.
const HOLD: Span = Span::from_millis(300);

impl Machine {
    /// A machine without sessions; they are opened when first needed. `segment` is this rank's memory for Long
    /// messages.
    ///
    /// # Errors
    /// [`ConfigError`] if the settings contradict each other.
    pub fn new(mut config: Config, segment: OwnSegment) -> Result<Self, ConfigError> {
        config.validate()?;
        let keyring = Keyring::new(&config.secrets.job, &config.secrets.incarnation);
        config.secrets.zeroize();
        let peers = config.shape.peers();
        Ok(Self {
            slots: (0..peers).map(|peer| Slot::new(Peer(peer), &keyring)).collect(),
            timers: Timers::new(peers as usize),
            ready: VecDeque::with_capacity(peers as usize),
            arrived: VecDeque::with_capacity(peers as usize),
            events: VecDeque::new(),
            batch: None,
            losses: 0,
            departing: None,
            held: Vec::new(),
            held_until: None,
            shared: Context::new(config, segment),
            keyring,
        })
    }

    /// What the machine holds is no longer to be trusted: every peer is lost for [`LossCause::Broken`], all memory
    /// is given back, and nothing is sent or delivered from now on.
    pub(crate) fn break_down(&mut self) {
        self.shared = Context::new(self.shared.config.clone(), self.shared.segment.clone());
        let peers = self.slots.len() as u32;
        self.slots = (0..peers).map(|peer| Slot::new(Peer(peer), &self.keyring)).collect();
        self.slots.iter_mut().for_each(|slot| slot.ended = Some(PeerStatus::Lost(LossCause::Broken)));
        self.timers = Timers::new(peers as usize);
        (self.losses, self.batch, self.held_until) = (peers, None, None);
        self.ready.clear();
        self.arrived.clear();
        self.events.clear();
        self.held.clear();
    }

    pub(super) fn session(&self, peer: Peer) -> Option<&Session> {
        self.slots.get(peer.index())?.session.as_deref()
    }

    pub(super) fn make_ready(&mut self, peer: Peer) {
        let slot = &mut self.slots[peer.index()];
        if !std::mem::replace(&mut slot.ready, true) {
            self.ready.push_back(peer.0);
        }
    }

    fn make_arrived(&mut self, peer: Peer) {
        let slot = &mut self.slots[peer.index()];
        if !std::mem::replace(&mut slot.arrived, true) {
            self.arrived.push_back(peer.0);
        }
    }

    fn note(&mut self, event: Event) {
        self.losses += u32::from(matches!(event, Event::Lost(..) | Event::Incompatible { .. }));
        if self.events.len() >= 4 * self.slots.len() {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn note_outcome(&mut self, peer: Peer, outcome: Transition) {
        match outcome {
            Transition::Nothing => {}
            Transition::Event(event) => self.note(event),
            Transition::Replaced(cause) => {
                self.note(Event::Lost(peer, cause));
                if self.is_connected(peer) {
                    self.note(Event::Connected(peer));
                }
            }
        }
    }

    pub(super) fn lose_faulty(&mut self, peer: Peer, now: Instant) {
        match self.slots[peer.index()].ended {
            // How it ended stands.
            Some(status) => self.end_session(peer, status, now),
            None => self.end_peer(peer, PeerStatus::Lost(LossCause::Faulty), now),
        }
    }

    /// Ends a peer for good.
    pub(super) fn end_peer(&mut self, peer: Peer, status: PeerStatus, now: Instant) {
        self.end_session(peer, status, now);
        match status {
            PeerStatus::Lost(cause) => self.note(Event::Lost(peer, cause)),
            _ => self.note(Event::Departed(peer, Departure::Finished)),
        }
    }

    /// Ends a peer's session for good; what it held serves others at once.
    fn end_session(&mut self, peer: Peer, status: PeerStatus, now: Instant) {
        let slot = &mut self.slots[peer.index()];
        slot.end(&mut self.shared, status);
        slot.ended = Some(status);
        self.timers.set(peer.0, None);
        self.lend(now);
    }

    /// Notes that a peer has left, if it has and all that it sent has been delivered.
    ///
    /// Who leaves because another has left tells so; if that other's own farewell is still on its way here, this
    /// one waits for it. So nobody takes a consequence for the cause.
    pub(super) fn note_departure(&mut self, peer: Peer, now: Instant) {
        let slot = &self.slots[peer.index()];
        let leave = slot.session.as_ref().and_then(|session| session.has_left());
        let Some(leave) = leave.filter(|_| slot.ended.is_none()) else { return };
        let Some(how) = DEPARTURES.get(usize::from(leave.how)).copied() else { return };
        if self.left_after(peer, &leave).is_some() {
            if !self.held.iter().any(|(held, _)| *held == peer) {
                self.held.push((peer, now + HOLD));
                self.held_until.get_or_insert(now + HOLD);
            }
            return;
        }
        self.note_left(peer, how, now);
    }

    /// Another peer that has not ended here, and of which this peer's farewell says how it ended.
    fn left_after(&self, peer: Peer, leave: &Leave) -> Option<(Peer, u8)> {
        let (first, how) = leave.after?;
        let other = first != peer.0 && first != self.shared.config.me.0;
        let lives = self.slots.get(first as usize).is_some_and(|slot| slot.ended.is_none());
        (other && lives).then_some((Peer(first), how))
    }

    fn note_left(&mut self, peer: Peer, how: Departure, now: Instant) {
        let status = how.status();
        let slot = &mut self.slots[peer.index()];
        slot.ended = Some(status);
        if let Some(session) = &mut slot.session {
            session.retire(&mut self.shared);
            self.lend(now);
        }
        if status != PeerStatus::Finished {
            self.losses += 1;
            self.shared.after.get_or_insert((peer.0, how as u8));
        }
        self.note(Event::Departed(peer, how));
    }

    /// Looks after farewells that were held back. Called before a poll delivers anything, so that the program sees
    /// cause and consequence in different polls.
    pub(crate) fn release_held(&mut self, now: Instant) {
        let mut index = 0;
        while let Some((peer, limit)) = self.held.get(index).copied() {
            let slot = &self.slots[peer.index()];
            let leave = slot.session.as_ref().and_then(|session| session.has_left());
            // The peer may have come back since, and have left once more with another word, which is not checked
            // yet.
            let waits = leave.filter(|_| slot.ended.is_none()).and_then(|leave| self.left_after(peer, &leave));
            if waits.is_some() && now < limit {
                index += 1;
                continue;
            }
            self.held.swap_remove(index);
            if let Some((first, how)) = waits
                && let Some(how) = DEPARTURES.get(usize::from(how)).copied()
            {
                self.end_session(first, how.status(), now);
                self.note_left(first, how, now);
            } else {
                self.note_departure(peer, now);
            }
        }
    }

    /// Lends to peers in the line, first come, first served.
    pub(super) fn lend(&mut self, now: Instant) {
        while let Some(peer) = self.shared.waiting.front().copied() {
            let done = match &mut self.slots[peer as usize].session {
                Some(session) => session.lend(&mut self.shared, now),
                None => true,
            };
            if !done {
                return;
            }
            self.shared.waiting.pop_front();
            if let Some(session) = &mut self.slots[peer as usize].session {
                session.waiting = false;
            }
            self.make_ready(Peer(peer));
        }
    }

    /// Takes a datagram in, as it came from the socket; it is decrypted in place. Returns its sender.
    ///
    /// Nothing is believed of a datagram that does not bear a valid authenticator. Allocates only for messages
    /// that the sender had a right to send.
    ///
    /// # Errors
    /// [`Dropped`] says why it was dropped; this is counted too.
    pub fn handle(&mut self, now: Instant, datagram: &mut [u8]) -> Result<Peer, Dropped> {
        let len = datagram.len() as u64;
        let result = if len > u64::from(self.shared.config.datagram_limit) {
            Err(Dropped::Oversized)
        } else {
            match datagram.first() {
                Some(&KIND_HELLO) => self.handle_hello(now, datagram),
                _ => self.handle_data(now, datagram),
            }
        };
        let counters = &mut self.shared.counters;
        match result {
            Ok(_) => {
                (counters.received, counters.received_bytes) =
                    (counters.received + 1, counters.received_bytes + len)
            }
            Err(reason) => counters.dropped[reason as usize] += 1,
        }
        result
    }

    fn handle_hello(&mut self, now: Instant, datagram: &[u8]) -> Result<Peer, Dropped> {
        let hello = Hello::parse(datagram).ok_or(Dropped::Stranger)?;
        if datagram.len() != HELLO || hello.receiver != self.shared.config.me.0 {
            return Err(Dropped::Stranger);
        }
        let slot = self.slots.get_mut(hello.sender as usize).ok_or(Dropped::Stranger)?;
        if !self.keyring.verify_hello(datagram) {
            return Err(Dropped::Forged);
        }
        let had = slot.session.is_some();
        let outcome = slot.on_hello(&mut self.shared, &self.keyring, &hello, now);
        let peer = slot.peer;
        if had && outcome != Transition::Nothing {
            // The old session is over.
            self.lend(now);
        }
        if let (Some(how), Some(session)) = (self.departing, &mut self.slots[peer.index()].session)
            && (!had || outcome != Transition::Nothing)
        {
            (session.traffic.leave, session.traffic.leave_due) = (Some(how as u8), true);
        }
        self.note_outcome(peer, outcome);
        self.make_ready(peer);
        Ok(peer)
    }

    fn handle_data(&mut self, now: Instant, datagram: &mut [u8]) -> Result<Peer, Dropped> {
        let header = Header::parse(datagram).ok_or(Dropped::Stranger)?;
        let protection = self.shared.config.protection;
        let slot = self.slots.get_mut(header.sender as usize).ok_or(Dropped::Stranger)?;
        if header.mode != protection as u8 {
            return Err(Dropped::WrongMode);
        }
        let session = slot.session.as_deref_mut().ok_or(Dropped::NoSession)?;
        if header.epoch != session.open.epoch {
            return Err(Dropped::WrongEpoch);
        }
        session.replay.check(header.number).map_err(|stale| match stale {
            Stale::Seen | Stale::Old => Dropped::Replayed,
        })?;
        let frames = session.open.open(protection, header.number, datagram).ok_or(Dropped::Forged)?;
        let peer = slot.peer;
        match session.receive(&mut self.shared, now, header.number, frames) {
            Ok(news) => {
                let wants = session.wanted > session.granted.limit && !session.waiting;
                if wants {
                    session.waiting = true;
                    self.shared.waiting.push_back(peer.0);
                    self.lend(now);
                }
                if news {
                    self.make_arrived(peer);
                }
                self.make_ready(peer);
                Ok(peer)
            }
            Err(Fault) if protection == Protection::Unauthenticated => Err(Dropped::Malformed),
            Err(Fault) => {
                self.lose_faulty(peer, now);
                Ok(peer)
            }
        }
    }

    /// Takes in what may be several datagrams in a row, as an interface that coalesces hands them over. Returns
    /// how many were accepted; the others are counted as dropped.
    ///
    /// Of a row, at most one Hello and 64 datagrams are looked at: no peer sends more of the first in a row, and
    /// no interface hands over more of the second. What follows is dropped unseen as [`Dropped::Surplus`], so that
    /// bytes that were made up to look like many datagrams cost no more than others.
    pub fn handle_row(&mut self, now: Instant, mut bytes: &mut [u8]) -> usize {
        let (mut accepted, mut hellos) = (0, 0);
        for _ in 0..MAX_ROW {
            if bytes.is_empty() {
                return accepted;
            }
            let end = first_datagram(bytes);
            let (datagram, rest) = std::mem::take(&mut bytes).split_at_mut(end);
            hellos += u32::from(datagram.first() == Some(&KIND_HELLO));
            if hellos > 1 {
                self.shared.counters.dropped[Dropped::Surplus as usize] += 1;
                return accepted;
            }
            accepted += usize::from(self.handle(now, datagram).is_ok());
            bytes = rest;
        }
        self.shared.counters.dropped[Dropped::Surplus as usize] += u64::from(!bytes.is_empty());
        accepted
    }

    /// Writes the next datagram to send at this moment, and returns whom it is for and its length. Peers take
    /// turns.
    ///
    /// # Panics
    /// If `out` is shorter than [`ProtocolConfig::datagram_limit`](super::ProtocolConfig::datagram_limit).
    pub fn transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(Peer, usize)> {
        self.transmit_lent(now, None, out)
    }

    /// [`Machine::transmit`] while the payload of a Long request is [lent](Machine::buffer_tail).
    ///
    /// # Panics
    /// As [`Machine::transmit`].
    pub fn transmit_lent(
        &mut self,
        now: Instant,
        lent: Option<BorrowedPayload<'_>>,
        out: &mut [u8],
    ) -> Option<(Peer, usize)> {
        self.transmit_next(now, lent, false, out).map(|parts| (parts.to, parts.len))
    }

    /// [`Machine::transmit_lent`], but the end of a large datagram that is neither encrypted nor authenticated may
    /// stay in the payload, for drivers that can hand two pieces of memory to the system: all but `tail` is in
    /// `out`.
    ///
    /// # Panics
    /// As [`Machine::transmit`].
    pub fn transmit_parts(
        &mut self,
        now: Instant,
        lent: Option<BorrowedPayload<'_>>,
        out: &mut [u8],
    ) -> Option<Parts> {
        self.transmit_next(now, lent, true, out)
    }

    fn transmit_next(
        &mut self,
        now: Instant,
        lent: Option<BorrowedPayload<'_>>,
        stays: bool,
        out: &mut [u8],
    ) -> Option<Parts> {
        assert!(
            out.len() >= usize::from(self.shared.config.datagram_limit),
            "a buffer holds the largest datagram"
        );
        while let Some(peer) = self.ready.pop_front() {
            let slot = &mut self.slots[peer as usize];
            let hello = match slot.owes_hello() {
                true => slot.next_hello(&self.shared, &self.keyring, now),
                false => None,
            };
            let mut loan = BorrowedPayload::to(lent, peer, stays);
            let len = match (hello, &mut slot.session) {
                (Some(hello), _) => {
                    let datagram = self.keyring.sign_hello(&hello.encode());
                    out[..HELLO].copy_from_slice(&datagram);
                    self.shared.counters.sent += 1;
                    self.shared.counters.sent_bytes += HELLO as u64;
                    Some(HELLO)
                }
                (None, Some(session)) => session.build(&mut self.shared, now, out, loan.as_mut()),
                (None, None) => None,
            };
            if let Some(len) = len {
                // A single datagram is often all there is.
                match &slot.session {
                    Some(session) if !slot.owes_hello() && session.is_done(&self.shared, now, lent.is_some()) => {
                        slot.ready = false;
                        self.timers.set(peer, slot.deadline(now, self.shared.config.silence));
                    }
                    _ => self.ready.push_back(peer),
                }
                return Some(Parts { to: Peer(peer), len, tail: loan.map_or(0..0, |loan| loan.tail) });
            }
            slot.ready = false;
            self.timers.set(peer, slot.deadline(now, self.shared.config.silence));
        }
        None
    }

    /// Writes one more datagram for the peer of the last [`Machine::transmit`], if there is one: drivers that can
    /// hand several datagrams of one peer to the system at once use it. It takes the peer's turn away from nobody
    /// for long, since windows and pacing bound what a peer may send at a time.
    ///
    /// # Panics
    /// As [`Machine::transmit`].
    pub fn transmit_more(
        &mut self,
        now: Instant,
        to: Peer,
        lent: Option<BorrowedPayload<'_>>,
        out: &mut [u8],
    ) -> Option<usize> {
        assert!(
            out.len() >= usize::from(self.shared.config.datagram_limit),
            "a buffer holds the largest datagram"
        );
        let slot = self.slots.get_mut(to.index())?;
        if slot.owes_hello() {
            return None;
        }
        slot.session.as_deref_mut()?.build(
            &mut self.shared,
            now,
            out,
            BorrowedPayload::to(lent, to.0, false).as_mut(),
        )
    }

    /// Whether [`Machine::transmit`] may have something to send.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether [`Machine::poll`] may have something to deliver.
    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty() || !self.held.is_empty()
    }

    /// When [`Machine::tick`] is to be called next, if nothing arrives before; the program may find something in
    /// its next poll then. Valid once [`Machine::transmit`] has returned `None`.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().into_iter().chain(self.held_until).min()
    }

    /// Whether a farewell has been held back for long enough, so that the program's next poll tells of it; to be
    /// asked before [`Machine::tick`].
    pub(crate) fn wakes(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| until <= now)
    }

    /// Acts on the passing of time: retransmission, acknowledgements, keep-alive, loss of silent peers.
    ///
    /// Feed what the socket holds first: otherwise a driver that was held up would take its peers for dead.
    ///
    /// A call that comes late by an eighth of the permitted silence or more tells that this side was held up,
    /// stopped for instance: that time is no peer's silence.
    pub fn tick(&mut self, now: Instant) {
        let late = self.timers.first().map_or(Span::ZERO, |at| now.since(at));
        if late >= Span(self.shared.config.silence.0 / 8) {
            self.slots.iter_mut().for_each(|slot| slot.excuse(late));
        }
        if self.wakes(now) {
            self.held_until = self.held.iter().map(|(_, until)| *until).filter(|until| *until > now).min();
        }
        // Every expired peer leaves the heap, and only `transmit` puts it back: the loop is bounded by their
        // number.
        while let Some(peer) = self.timers.expired(now) {
            let outcome = self.slots[peer as usize].on_timer(&mut self.shared, now);
            self.note_outcome(Peer(peer), outcome);
            self.make_ready(Peer(peer));
            self.lend(now);
        }
    }
}
