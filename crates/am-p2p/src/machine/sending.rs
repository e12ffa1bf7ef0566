//! Messages on their way out.

use super::advance::Item;
use super::control::{Control, Credit, Envelope, Offer, SHORT, Source};
use super::peers::{Advert, Logged, Pair, Peer};
use super::receive::Keep;
use super::{Failure, Machine};
use crate::config::Protocol;
use am_core::slab::Key;
use am_core::transport::Loan;
use std::any::Any;
use std::fmt;
use std::ops::Deref;

/// What the sender of a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Done once the buffer can be used again.
    Standard,
    /// Done once the message has met its receive.
    Synchronous,
}

/// Memory that a program has given to a message, until that is over.
pub(crate) trait Given: Any + std::marker::Send {
    /// Its bytes, the same ones and in the same place at every call.
    fn bytes(&self) -> &[u8];
}

/// Bytes that a message owns.
pub(super) enum Owned {
    Copied(Vec<u8>),
    Given(Box<dyn Given>),
}

impl Deref for Owned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Given(given) => given.bytes(),
        }
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned").field("bytes", &self.len()).finish()
    }
}

/// Where the bytes of a message are.
#[derive(Debug)]
pub(super) enum Body {
    Owned(Owned),
    /// With the caller, who waits and writes them.
    Lent,
    /// In the segment, from this offset on.
    Placed(u64),
}

/// Bytes of a message that are read by messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    Here(&'a [u8]),
    /// In the segment, from this offset on.
    Placed(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is no room for it at the receiver.
    Backlogged,
    /// In one message, which is to be sent.
    Queued,
    /// Announced.
    Offered,
    /// Being written.
    Granted,
    /// Written.
    Ending,
    /// Over.
    Done,
}

/// Where a message is written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) receive: Key,
    /// In the receiver's segment, or in pieces.
    pub(super) offset: Option<u64>,
    /// Whether it stays there, so that there is no use in short parts.
    pub(super) stays: bool,
    /// Whether the receiver does not know the envelope.
    pub(super) unknown: bool,
}

/// A message that is being sent.
#[derive(Debug)]
pub(crate) struct Send {
    pub(super) to: u32,
    pub(super) envelope: Envelope,
    pub(super) len: u64,
    pub(super) mode: Mode,
    /// Where its bytes lie for the receiver to read, until nobody may.
    pub(super) lent: Option<Source>,
    /// Of bytes that it owns; before them, so that it ends first.
    loan: Option<Loan>,
    pub(super) body: Body,
    /// Who owns the memory of the segment that the bytes are in, where nobody waits for the message.
    keep: Option<Keep>,
    pub(super) stage: Stage,
    pub(super) grant: Option<Grant>,
    /// Bytes that have been written, and whether any part has.
    pub(super) at: u64,
    pub(super) begun: bool,
    /// Bytes up to which the message has been copied to a receiver's segment, told of or not.
    pub(super) copied: u64,
    /// Whether somebody waits for it.
    pub(super) wanted: bool,
    pub(super) failure: Option<Failure>,
}

impl Send {
    /// A message that waits for its turn.
    fn new(to: u32, envelope: Envelope, mode: Mode, len: u64, lent: Option<Source>, body: Body) -> Self {
        let (stage, loan, keep, grant, failure) = (Stage::Backlogged, None, None, None, None);
        Self {
            to,
            envelope,
            len,
            mode,
            lent,
            loan,
            body,
            keep,
            stage,
            grant,
            at: 0,
            begun: false,
            copied: 0,
            wanted: true,
            failure,
        }
    }

    #[cfg(test)]
    pub(super) fn owned(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Owned(bytes) => Some(bytes),
            Body::Lent | Body::Placed(_) => None,
        }
    }
}

/// Units that a message takes of the memory for unexpected ones.
#[inline(always)]
pub(super) fn units(len: u64) -> u32 {
    (len.div_ceil(64) + 1) as u32
}

/// Numbers a message and takes room for it.
#[inline(always)]
fn number(
    (window, logs): (Credit, bool),
    (state, peer): (&mut Pair, &mut Peer),
    envelope: &mut Envelope,
    units: u32,
    send: Option<Key>,
) {
    let outstanding = peer.sent.since(peer.returned).messages;
    envelope.sequence = state.next;
    state.next = state.next.wrapping_add(1);
    peer.sent.add(units);
    if outstanding >= window.messages / 4 * 3 {
        envelope.kind |= SHORT;
    }
    if logs {
        // What the peer has taken, it has seen: no advertisement or revocation that is still to come was made
        // before.
        let sent = Logged { sequence: envelope.sequence, tag: envelope.tag, send };
        state.log.push(sent, outstanding);
    }
}

impl Machine {
    /// What is free of a peer's memory for unexpected messages.
    fn room(&self, peer: usize) -> Credit {
        let used = self.peers[peer].sent.since(self.peers[peer].returned);
        // Announcements take their units whether there are any or not.
        let units = self.window.units.saturating_sub(used.units);
        Credit { messages: self.window.messages.saturating_sub(used.messages), units }
    }

    /// Numbers a message and takes room for it.
    fn number(&mut self, pair: usize, envelope: &mut Envelope, units: u32, send: Option<Key>) {
        let (window, logs) = (self.window, self.advertises());
        let state = &mut self.pairs[pair];
        let peer = &mut self.peers[state.peer as usize];
        number((window, logs), (state, peer), envelope, units, send);
    }

    /// Takes up a message that can be sent at once in one active message, which the caller sends: its envelope,
    /// and the credit that goes along. `None` if it has to be sent by [`Machine::begin`], or its communicator was
    /// freed.
    #[inline(always)]
    pub(crate) fn begin_eager(
        &mut self,
        to: u32,
        mut envelope: Envelope,
        len: usize,
    ) -> Option<(Envelope, Credit)> {
        if len as u64 > self.eager || self.is_closed(envelope.context) {
            return None;
        }
        let (pair, logs, window) = (self.pair(envelope.context, to), self.advertises(), self.window);
        let state = &mut self.pairs[pair];
        let (peer, needed) = (&mut self.peers[state.peer as usize], units(len as u64));
        let used = peer.sent.since(peer.returned);
        let room = used.messages < window.messages
            && u64::from(used.units) + u64::from(needed) <= u64::from(window.units);
        if !(room && peer.queue.is_empty() && peer.backlog.is_empty() && peer.gone.is_none()) {
            return None;
        }
        self.counts.eager += 1;
        number((window, logs), (state, peer), &mut envelope, needed, None);
        let (advertised, credit) = (!state.adverts.is_empty(), peer.attach_credit(window));
        if advertised {
            self.take_advert(pair, envelope.tag);
        }
        Some((envelope, credit))
    }

    /// Sends a message later that [`Machine::begin_eager`] has taken up and the network had no room for.
    pub(crate) fn postpone(&mut self, to: u32, envelope: Envelope, bytes: &[u8]) -> Key {
        let mut body = self.buffer();
        body.extend_from_slice(bytes);
        let send = Send {
            to,
            envelope,
            len: bytes.len() as u64,
            mode: Mode::Standard,
            lent: None,
            loan: None,
            body: Body::Owned(Owned::Copied(body)),
            keep: None,
            stage: Stage::Queued,
            grant: None,
            at: 0,
            begun: false,
            copied: 0,
            wanted: true,
            failure: None,
        };
        let (key, peer) = (self.sends.insert(send), self.peer(to));
        self.peers[peer].queue.push_front(Item::Eager(key));
        self.mark_ready(peer);
        key
    }

    /// Takes up a message.
    pub(crate) fn begin(&mut self, to: u32, envelope: Envelope, mode: Mode, bytes: Vec<u8>) -> Key {
        self.begin_owned(to, envelope, mode, Owned::Copied(bytes))
    }

    /// Takes up a message whose bytes are given to it. [`Machine::take_given`] has them back.
    pub(crate) fn begin_given(&mut self, to: u32, envelope: Envelope, mode: Mode, bytes: Box<dyn Given>) -> Key {
        self.begin_owned(to, envelope, mode, Owned::Given(bytes))
    }

    fn begin_owned(&mut self, to: u32, envelope: Envelope, mode: Mode, bytes: Owned) -> Key {
        let (len, loan) = (bytes.len() as u64, self.lend(to, &bytes));
        let lent = loan.as_ref().map(|loan| Source::Process(loan.lent()));
        self.take_up(Send { loan, ..Send::new(to, envelope, mode, len, lent, Body::Owned(bytes)) })
    }

    /// Takes up a message whose bytes are with the caller, who waits, and writes them once [`Machine::granted`]
    /// says so. The receiver may read them where `lent` says, for as long as the caller keeps that loan.
    pub(crate) fn begin_lent(
        &mut self,
        to: u32,
        envelope: Envelope,
        mode: Mode,
        len: u64,
        loan: Option<&Loan>,
    ) -> Key {
        let lent = loan.map(|loan| Source::Process(loan.lent()));
        self.take_up(Send::new(to, envelope, mode, len, lent, Body::Lent))
    }

    /// Takes up a message whose bytes are in the segment from `at` on, and stay as they are until it is over. The
    /// receiver may read them where `lent` says.
    pub(crate) fn begin_placed(
        &mut self,
        (to, envelope, mode): (u32, Envelope, Mode),
        (at, len): (u64, u64),
        lent: Option<Source>,
    ) -> Key {
        self.take_up(Send::new(to, envelope, mode, len, lent, Body::Placed(at)))
    }

    fn take_up(&mut self, send: Send) -> Key {
        let pair = self.pair(send.envelope.context, send.to);
        let peer = self.pairs[pair].peer as usize;
        let failure = self.peers[peer].gone;
        let key = self.sends.insert(Send { failure, ..send });
        if failure.is_some() {
            self.sends.get_mut(key).expect("it was just made").stage = Stage::Done;
        } else if !self.peers[peer].backlog.is_empty() || self.room(peer).messages == 0 {
            self.counts.stalled += 1;
            self.peers[peer].backlog.push_back(key);
        } else {
            self.launch(peer, key);
        }
        key
    }

    /// Begins messages that have waited for room.
    pub(super) fn launch_more(&mut self, peer: usize) {
        while self.room(peer).messages != 0 {
            let Some(key) = self.peers[peer].backlog.pop_front() else { return };
            self.launch(peer, key);
        }
    }

    /// Numbers a message and chooses its way.
    fn launch(&mut self, peer: usize, key: Key) {
        let Some(send) = self.sends.get(key) else { return };
        let (to, mut envelope, len, mode, owned) =
            (send.to, send.envelope, send.len, send.mode, matches!(send.body, Body::Owned(_)));
        let (pair, needed) = (self.pair(envelope.context, to), units(len));
        let fits = len <= self.eager && mode == Mode::Standard && self.room(peer).units >= needed && owned;
        self.number(pair, &mut envelope, if fits { needed } else { 1 }, (!fits).then_some(key));
        let advert = self.take_advert(pair, envelope.tag);
        let written = advert.filter(|advert| !fits && advert.capacity >= len);
        let send = self.sends.get_mut(key).expect("it was there");
        send.envelope = envelope;
        if fits {
            self.counts.eager += 1;
            send.stage = Stage::Queued;
            self.peers[peer].queue.push_back(Item::Eager(key));
            self.mark_ready(peer);
        } else if let Some(Advert { receive, offset, stays, .. }) = written {
            self.counts.receiver_initiated += 1;
            self.grant(key, Grant { receive, offset: Some(offset), stays, unknown: true });
        } else {
            send.stage = Stage::Offered;
            let offer = Offer { send: key, lent: send.lent };
            self.counts.rts += 1;
            self.queue_control(peer, Control::Rts { envelope, offer, len });
        }
    }

    /// Lets a message be written.
    pub(super) fn grant(&mut self, key: Key, grant: Grant) {
        let Some(send) = self.sends.get_mut(key) else { return };
        if grant.offset.is_some_and(|offset| offset.checked_add(send.len).is_none()) {
            let rank = send.to;
            return self.fault(rank);
        }
        (send.stage, send.grant) = (Stage::Granted, Some(grant));
        let (to, lent) = (send.to, matches!(send.body, Body::Lent));
        if !lent {
            let peer = self.peer(to);
            self.peers[peer].queue.push_back(Item::Write(key));
            self.mark_ready(peer);
        }
    }

    /// Whether a message whose bytes are lent can be written: not before what is queued for its receiver, such as
    /// the answer to a revocation, which the message would overtake.
    pub(crate) fn granted(&self, key: Key) -> bool {
        let Some(send) = self.sends.get(key) else { return false };
        send.stage == Stage::Granted
            && matches!(send.body, Body::Lent)
            && self.peer_of.get(&send.to).is_none_or(|peer| self.peers[*peer as usize].queue.is_empty())
    }

    /// Whether messages of a length are not sent in one piece.
    #[inline]
    pub(crate) fn is_long(&self, len: u64) -> bool {
        len > self.eager
    }

    /// Whether the bytes of a message can be lent: not where it goes eagerly later, or is read.
    pub(crate) fn lends(&self, len: usize) -> bool {
        len as u64 > self.eager && self.config.protocol != Protocol::Read
    }

    /// Whom a message that can be written goes to, and whether it is placed in the segment there.
    pub(crate) fn is_placed(&self, key: Key) -> Option<(u32, bool)> {
        let send = self.sends.get(key).filter(|send| send.stage == Stage::Granted)?;
        send.grant.map(|grant| (send.to, grant.offset.is_some()))
    }

    /// Gives bytes to a message whose caller does not wait any more, and has ended their loan.
    pub(crate) fn adopt(&mut self, key: Key, bytes: &[u8]) {
        let Some(send) = self.sends.get_mut(key).filter(|send| !matches!(send.body, Body::Owned(_))) else {
            return;
        };
        if send.stage == Stage::Done {
            return;
        }
        // What is in the segment is being written by progress functions already.
        let (to, granted) = (send.to, send.stage == Stage::Granted && matches!(send.body, Body::Lent));
        (send.body, send.lent) = (Body::Owned(Owned::Copied(bytes.to_vec())), None);
        if granted {
            let peer = self.peer(to);
            self.peers[peer].queue.push_back(Item::Write(key));
            self.mark_ready(peer);
        }
    }

    /// The receiver says where a message goes.
    pub(super) fn on_cts(&mut self, from: u32, key: Key, receive: Key, (offset, stays): (Option<u64>, bool)) {
        let offered = |send: &&Send| send.to == from && send.stage == Stage::Offered;
        if self.sends.get(key).filter(offered).is_none() {
            self.ignore();
            return;
        }
        self.counts.sender_initiated += 1;
        self.grant(key, Grant { receive, offset, stays, unknown: false });
    }

    /// The receiver does not take a message.
    pub(super) fn on_refuse(&mut self, from: u32, key: Key, freed: bool) {
        let offered = |send: &&mut Send| send.to == from && send.stage == Stage::Offered;
        let Some(send) = self.sends.get_mut(key).filter(offered) else {
            self.ignore();
            return;
        };
        send.failure = freed.then_some(Failure::Freed);
        self.sent(key);
    }

    /// The receiver has read a message.
    pub(super) fn on_ack(&mut self, from: u32, key: Key) {
        let offered = |send: &&Send| send.to == from && send.stage == Stage::Offered;
        if self.sends.get(key).filter(offered).is_none() {
            self.ignore();
            return;
        }
        match self.config.protocol {
            Protocol::Elided => self.counts.lent += 1,
            _ => self.counts.read += 1,
        }
        self.sent(key);
    }

    /// A part of a message that its receiver reads.
    pub(crate) fn read(&self, from: u32, key: Key, at: u64, len: u32) -> Option<Stored<'_>> {
        let send = self.sends.get(key).filter(|send| send.to == from && send.stage == Stage::Offered)?;
        match &send.body {
            Body::Lent => None,
            Body::Owned(bytes) => {
                let at = usize::try_from(at).ok()?;
                bytes.get(at..at.checked_add(len as usize)?).map(Stored::Here)
            }
            Body::Placed(offset) => {
                let inside = at.checked_add(u64::from(len)).is_some_and(|end| end <= send.len);
                // Not before it is known to be inside: the numbers are the reader's.
                inside.then(|| Stored::Placed(offset + at))
            }
        }
    }

    /// A request to read cannot be answered: its message, if it is there, is not going to be read.
    #[cold]
    pub(crate) fn on_bad_read(&mut self, from: u32, key: Key) {
        let offered = |send: &&Send| send.to == from && send.stage == Stage::Offered;
        match self.sends.get(key).filter(offered) {
            Some(_) => self.fault(from),
            None => self.ignore(),
        }
    }

    /// Keeps the memory that a message is sent from, if it is under way, since nobody waits for it any more.
    pub(crate) fn keep_send(&mut self, key: Key, keep: Keep) {
        if let Some(send) = self.sends.get_mut(key).filter(|send| send.stage != Stage::Done) {
            send.keep = Some(keep);
        }
        self.drop_send(key);
    }

    /// A message is over.
    pub(super) fn sent(&mut self, key: Key) {
        let Some(send) = self.sends.get_mut(key) else { return };
        // The loan ends before the bytes go.
        (send.stage, send.lent, send.loan) = (Stage::Done, None, None);
        send.keep = None;
        // What was given goes back to who waits for it.
        let back = send.wanted && matches!(send.body, Body::Owned(Owned::Given(_)));
        let body = if back { Body::Lent } else { std::mem::replace(&mut send.body, Body::Lent) };
        if !send.wanted {
            self.sends.remove(key);
        }
        if let Body::Owned(Owned::Copied(bytes)) = body {
            self.recycle(bytes);
        }
    }

    /// The bytes that were given to a message that is over; before [`Machine::take_sent`].
    pub(crate) fn take_given(&mut self, key: Key) -> Option<Box<dyn Given>> {
        let send = self.sends.get_mut(key).filter(|send| send.stage == Stage::Done)?;
        match std::mem::replace(&mut send.body, Body::Lent) {
            Body::Owned(Owned::Given(given)) => Some(given),
            Body::Owned(Owned::Copied(_)) | Body::Lent | Body::Placed(_) => None,
        }
    }

    /// What a message that is over has come to; its entry goes.
    pub(crate) fn take_sent(&mut self, key: Key) -> Option<Result<(), Failure>> {
        let send = self.sends.get(key)?;
        if send.stage != Stage::Done {
            return None;
        }
        let failure = send.failure;
        self.sends.remove(key);
        Some(failure.map_or(Ok(()), Err))
    }

    /// Whether a message is over.
    pub(crate) fn is_sent(&self, key: Key) -> bool {
        self.sends.get(key).is_none_or(|send| send.stage == Stage::Done)
    }

    /// Nobody waits for a message any more; it goes on by itself.
    pub(crate) fn drop_send(&mut self, key: Key) {
        let Some(send) = self.sends.get_mut(key) else { return };
        send.wanted = false;
        if send.stage == Stage::Done {
            self.sends.remove(key);
        }
    }
}
