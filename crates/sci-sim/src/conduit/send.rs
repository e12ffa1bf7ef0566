//! Sending: a slot is taken, data is stored and checked, then announced by the ready flag and the exist flag.

use super::config::{FlagStores, MediumMethod, Mutation};
use super::header::{Header, Kind, MAX_HEADER, Number, Ready};
use super::layout::{LINE, cut};
use super::net::{Channel, Gone};
use super::transport::Conduit;
use crate::nic::{SequenceStatus, Sisci};
use am_core::transport::Refused;
use am_core::{Category, Lane, Peer, PeerStatus, Resource, Words};

/// How often a transfer is tried as a whole.
const WHOLE: u32 = 4;

/// Bytes of the pieces in which it is tried then.
const PIECE: usize = 256;

/// How many values the number in a flag has: 1 to 15.
const NUMBERS: u8 = 15;

/// Where the number is in a flag.
pub(super) const NUMBER_SHIFT: u32 = 4;

/// The number that follows another.
#[inline]
pub(super) fn next_number(number: u8) -> u8 {
    number % NUMBERS + 1
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'f> {
    pub(super) header: Header,
    pub(super) args: &'f Words,
    pub(super) payload: &'f [u8],
}

impl Outgoing<'_> {
    fn is_long(&self) -> bool {
        matches!(
            self.header.kind,
            Kind::Request(Category::Long) | Kind::OneWay(Category::Long) | Kind::Reply(Category::Long)
        )
    }
}

impl<N: Sisci> Conduit<N> {
    /// Takes a request slot at a peer.
    pub(super) fn admit(&mut self, to: Peer) -> Result<u32, Refused> {
        self.known_status(to.0).active().map_err(Refused::Gone)?;
        // Rule 3 of the sheet: a request needs a free slot of its pair, and its reply has the slot beside it.
        if let Some(slot) = self.locations.take(to.0) {
            return Ok(slot);
        }
        if self.mutation(Mutation::ForgetLocations) {
            return Ok(0);
        }
        // A program may try again at once; its time has to pass even so.
        self.net.nic.charge_empty_poll();
        Err(Refused::Busy(Resource::RequestFrames))
    }

    /// Gives a slot back in which nothing was announced.
    pub(super) fn withdraw(&mut self, to: u32, slot: u32) {
        self.locations.free(to, slot).expect("a slot that was admitted is taken");
    }

    /// Sends a request in a slot that was admitted for it.
    pub(super) fn request(&mut self, to: Peer, slot: u32, frame: &Outgoing<'_>) -> Result<(), Refused> {
        let header = Header { number: self.number(to.0, Lane::Request), ..frame.header };
        self.transmit(to.0, slot, &Outgoing { header, ..*frame }).map_err(|Gone| {
            self.withdraw(to.0, slot);
            Refused::Gone(self.known_status(to.0))
        })?;
        // What was not sent has no number: nobody has to wait for it.
        self.numbered(to.0, Lane::Request);
        Ok(())
    }

    /// The number of the next message to a peer.
    pub(super) fn number(&self, to: u32, lane: Lane) -> Number {
        if self.config.ordered { self.turns.next_number(to, lane) } else { Number::default() }
    }

    /// Notes that a message has that number.
    pub(super) fn numbered(&mut self, to: u32, lane: Lane) {
        self.turns.sent(to, lane);
    }

    /// Sends a frame in a slot that is free for it.
    pub(super) fn transmit(&mut self, to: u32, slot: u32, frame: &Outgoing<'_>) -> Result<(), Gone> {
        let costs = self.costs;
        self.net.charge(costs.construct);
        if self.config.through_mpi {
            self.net.charge(costs.mpi(frame.payload.len()));
        }
        if self.mutation(Mutation::ReadyBeforeData) {
            self.announce(to, slot, frame.header.ready())?;
        }
        let in_slot = if frame.is_long() {
            self.place(to, frame.header.place, frame.payload)?;
            &[]
        } else {
            frame.payload
        };
        let mut head = [0; MAX_HEADER];
        let size = frame.header.write(frame.args, &mut head);
        let at = self.layout.at(slot);
        match self.config.medium {
            _ if in_slot.is_empty() => self.store(to, Channel::Command, &[(at, &head[..size])])?,
            MediumMethod::TwoTransfers => {
                self.store(to, Channel::Command, &[(at, &head[..size]), (at + MAX_HEADER, in_slot)])?;
            }
            MediumMethod::OneCopy => {
                self.net.charge(costs.copying(in_slot.len()));
                let mut whole = std::mem::take(&mut self.whole);
                whole[..MAX_HEADER].copy_from_slice(&head);
                whole[MAX_HEADER..MAX_HEADER + in_slot.len()].copy_from_slice(in_slot);
                let sent = self.store(to, Channel::Command, &[(at, &whole[..MAX_HEADER + in_slot.len()])]);
                self.whole = whole;
                sent?;
            }
        }
        if self.mutation(Mutation::ReadyBeforeData) {
            return Ok(());
        }
        self.announce(to, slot, frame.header.ready())
    }

    /// Tells a requester that its request has been handled and has no reply: nothing but the flags.
    pub(super) fn control_flag(&mut self, to: u32, slot: u32) -> Result<(), Gone> {
        self.announce(to, slot, Ready::Control)
    }

    /// Announces what is in a slot: the ready flag, then the exist flag.
    fn announce(&mut self, to: u32, slot: u32, ready: Ready) -> Result<(), Gone> {
        let (ready_at, exist_at) = (self.layout.ready_at(self.me, slot), self.layout.exist_at());
        let flag = match self.config.flags {
            FlagStores::Unchecked => ready as u8,
            FlagStores::Numbered => {
                let number = &mut self.sent[(to * self.layout.slots() + slot) as usize];
                *number = next_number(*number);
                ready as u8 | *number << NUMBER_SHIFT
            }
        };
        let (ready, exist) = ((ready_at, &[flag][..]), (exist_at, &[1][..]));
        // Rule 1 of the sheet: the ready flag goes before the exist flag.
        let both = if self.mutation(Mutation::ExistBeforeReady) { [exist, ready] } else { [ready, exist] };
        match self.config.flags {
            FlagStores::Numbered => self.store(to, Channel::Flags, &both)?,
            FlagStores::Unchecked => {
                self.start(to, Channel::Flags)?;
                for (at, bytes) in both {
                    self.net.store(to, Channel::Flags, at, bytes)?;
                }
                self.net.nic.store_barrier();
            }
        }
        self.net.alert(to);
        Ok(())
    }

    /// Starts a sequence of stores, as soon as the way to the peer allows.
    fn start(&mut self, to: u32, channel: Channel) -> Result<(), Gone> {
        while self.net.start(to, channel)? != SequenceStatus::Ok {
            self.hold_on(to)?;
        }
        Ok(())
    }

    /// Stores bytes at a peer, in order, until all of them have arrived; repeats what the interface wants
    /// repeated. What keeps failing as a whole is sent again piece by piece.
    fn store(&mut self, to: u32, channel: Channel, stores: &[(usize, &[u8])]) -> Result<(), Gone> {
        self.start(to, channel)?;
        // Rules 4 and 5 of the sheet: after a failure everything is stored again, not the rest alone.
        for attempt in 0..WHOLE {
            let some = if attempt > 0 && self.mutation(Mutation::PartialResend) { stores.len() - 1 } else { 0 };
            if self.attempt(to, channel, &stores[some..])? {
                return Ok(());
            }
        }
        for (at, bytes) in stores {
            for (index, piece) in bytes.chunks(PIECE).enumerate() {
                while !self.attempt(to, channel, &[(at + index * PIECE, piece)])? {}
            }
        }
        Ok(())
    }

    /// Stores bytes in a sequence that has been started; returns whether they have arrived. If not, the sequence
    /// is ready for the next attempt.
    fn attempt(&mut self, to: u32, channel: Channel, stores: &[(usize, &[u8])]) -> Result<bool, Gone> {
        for (at, bytes) in stores {
            self.net.store(to, channel, *at, bytes)?;
        }
        // Rule 1 of the sheet: the data are checked before the flags are stored.
        if self.mutation(Mutation::ReadyBeforeCheck) && channel == Channel::Command {
            return Ok(true);
        }
        let again = match self.net.check(to, channel) {
            Ok(SequenceStatus::Ok) => return Ok(true),
            Ok(SequenceStatus::Retriable) => {
                self.counts.retries += 1;
                self.hold_on(to)
            }
            Ok(SequenceStatus::Pending | SequenceStatus::NotRetriable) => {
                self.counts.restarts += 1;
                self.start(to, channel)
            }
            Err(Gone) => Err(Gone),
        };
        if again.is_err() && channel == Channel::Flags {
            // The message was announced, and perhaps nothing but the answer was lost; who has gone meanwhile may
            // have had it.
            return Ok(true);
        }
        again.map(|()| false)
    }

    /// Fails if a peer has gone; otherwise lets a little time pass.
    pub(super) fn hold_on(&mut self, to: u32) -> Result<(), Gone> {
        self.net.nic.charge_empty_poll();
        if self.net.status(to) == PeerStatus::Active { Ok(()) } else { Err(Gone) }
    }

    /// Places a payload in a peer's payload segment: large ones by DMA, except for what does not fill a line at
    /// either end.
    pub(super) fn place(&mut self, to: u32, place: u64, payload: &[u8]) -> Result<(), Gone> {
        if payload.is_empty() {
            return Ok(());
        }
        self.net.open_payload(to)?;
        let at = place as usize;
        if (payload.len() as u64) < self.config.dma_from {
            return self.store(to, Channel::Payload, &[(at, payload)]);
        }
        let parts = cut(place, payload.len());
        let (head, rest) = payload.split_at(parts.head);
        let (middle, tail) = rest.split_at(parts.middle);
        let (mut done, mut left) = (at + parts.head, middle);
        let mut most = self.config.dma_queue as usize;
        while !left.is_empty() {
            let part = &left[..left.len().min(most)];
            // The engine reads from its own segment, so that the processor copies once.
            self.net.charge(self.costs.moving(part.len()));
            if self.net.dma(to, done, part)? {
                (done, left) = (done + part.len(), &left[part.len()..]);
            } else {
                self.counts.restarts += 1;
                self.hold_on(to)?;
                // What is long fails more easily.
                most = (most / 2 / LINE * LINE).max(LINE);
            }
        }
        match (head.is_empty(), tail.is_empty()) {
            (true, true) => Ok(()),
            (false, true) => self.store(to, Channel::Payload, &[(at, head)]),
            (true, false) => self.store(to, Channel::Payload, &[(done, tail)]),
            (false, false) => self.store(to, Channel::Payload, &[(at, head), (done, tail)]),
        }
    }
}
