//! What is to be sent, and how it is.

use super::Machine;
use super::control::{Control, Credit, Envelope, Part, Read, Source};
use super::peers::Advert;
use super::receive::Transfer;
use super::sending::{Body, Grant, Stage};
use crate::config::Protocol;
use am_core::layer::Progress;
use am_core::slab::Key;
use am_core::transport::LentFault;
use std::ops::Range;

/// Something to be sent to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Control(Control),
    /// A message in one piece.
    Eager(Key),
    /// A message to where the receiver wants it.
    Write(Key),
    /// The end of a message that has been written.
    End(Key),
    /// Requests for a message that the sender keeps.
    Read(Key),
    /// The advertisement of a receive, which is made when it is sent.
    Advertise(Key),
    /// The revocation of a receive in a communicator, made when it is sent.
    Revoke(u32, Key),
}

/// Requests for parts of a message that are under way at once.
const READS: u32 = 8;

/// Why something was not sent.
#[derive(Debug)]
pub(crate) enum Unsent<E> {
    /// There is no room now.
    Busy,
    /// The peer takes nothing more.
    Gone,
    Failed(E),
}

/// The network, as the protocols see it.
pub(crate) trait Wire {
    type Error;

    fn control(&mut self, to: u32, control: &Control, credit: Credit) -> Result<(), Unsent<Self::Error>>;

    fn eager(
        &mut self,
        to: u32,
        envelope: &Envelope,
        credit: Credit,
        bytes: &[u8],
    ) -> Result<(), Unsent<Self::Error>>;

    /// Places a part in the receiver's segment, or sends it as a message of its own.
    fn part(&mut self, to: u32, part: &Part, bytes: &[u8], offset: Option<u64>)
    -> Result<(), Unsent<Self::Error>>;

    fn read(&mut self, to: u32, read: &Read) -> Result<(), Unsent<Self::Error>>;

    /// Copies bytes that a peer lends, from a byte on.
    fn read_lent(&mut self, from: u32, lent: &Source, at: u64, out: &mut [u8]) -> Result<(), LentFault>;

    /// Copies bytes of the own segment that a message is sent from.
    fn read_own(&mut self, at: u64, out: &mut [u8]);

    /// Whether this process sees a peer's segment as memory.
    fn maps(&self, to: u32) -> bool;

    /// Copies bytes of the own segment, which a message is sent from, to a place in such a peer's. Whether it did.
    fn copy_own(&mut self, from: Range<u64>, to: u32, offset: u64) -> bool;

    /// The most bytes of a part.
    fn longest_part(&self, to: u32, placed: bool) -> u64;

    /// The most bytes that one request reads.
    fn longest_read(&self, to: u32, placed: bool) -> u32;
}

/// A part of a message to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    pub(crate) to: u32,
    pub(crate) part: Part,
    pub(crate) bytes: Range<usize>,
    pub(crate) offset: Option<u64>,
}

/// Bytes of the parts of a message: receivers copy one out while the next is written, so that short messages have
/// short ones.
const fn part_len(len: u64) -> u64 {
    let eighth = len / 8;
    if eighth < SHORTEST_PART { SHORTEST_PART } else { eighth }
}

/// Bytes of a part at least. Tests have few bytes in several parts.
const SHORTEST_PART: u64 = if cfg!(test) { 64 } else { 8 << 10 };

/// Bytes of the segment that are copied on their way to a network at most.
const MOST_SCRATCH: u64 = 64 << 10;

/// What serving a peer has come to.
enum Served {
    Sent,
    Busy,
    Gone,
}

macro_rules! attempt {
    ($sent:expr) => {
        match $sent {
            Ok(()) => {}
            Err(Unsent::Busy) => return Ok(Served::Busy),
            Err(Unsent::Gone) => return Ok(Served::Gone),
            Err(Unsent::Failed(error)) => return Err(error),
        }
    };
}

impl Machine {
    /// A control message has come.
    pub(crate) fn on_control(&mut self, from: u32, control: Control, credit: Credit) {
        let peer = self.peer(from);
        if self.peers[peer].is_faulty() {
            return self.ignore();
        }
        if !self.accept_credit(peer, credit) {
            return;
        }
        match control {
            Control::Rts { envelope, offer, len } => self.on_rts(from, envelope, offer, len),
            Control::Cts { send, receive, offset, stays, copies } => {
                self.peers[peer].copies = copies;
                self.on_cts(from, send, receive, (offset, stays));
            }
            Control::Refuse { send, freed } => self.on_refuse(from, send, freed),
            Control::Rtr { context, tag, seen, place, receive, capacity, offset, stays, copies } => {
                self.peers[peer].copies = copies;
                let advert = Advert { tag, before: place, receive, capacity, offset, stays };
                self.on_rtr(from, (context, tag, seen), advert);
            }
            Control::Revoke { context, tag, seen, place, receive } => {
                self.on_revoke(from, (context, tag, seen), place, receive);
            }
            Control::Revoked { context, receive, done } => self.on_revoked(from, context, receive, done),
            Control::Retire { receive } => self.on_retire(from, receive),
            Control::Retired { receive } => self.on_retired(from, receive),
            Control::Written { envelope, receive, len } => self.on_written(from, envelope, receive, len),
            Control::Fin { receive } => self.on_fin(from, receive),
            Control::Ack { send } => self.on_ack(from, send),
            Control::Credit => {}
        }
    }

    /// Sends what is to be sent, as far as there is room.
    pub(crate) fn advance<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, W::Error> {
        // While a call may come that reads what is lent, nobody sleeps.
        let awaits = !self.unread.is_empty() && self.await_readers(wire);
        let mut progress = if awaits { Progress::Advanced } else { Progress::Idle };
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            let index = index as usize;
            self.peers[index].is_ready = false;
            let served = self.serve(index, wire, &mut progress).inspect_err(|_| {
                // What this rank asks for was checked, so that it is the peer who named what cannot be done.
                let rank = self.peers[index].rank;
                self.fault(rank);
            });
            match served? {
                Served::Sent => {}
                Served::Busy => {
                    progress = progress.max(Progress::Blocked);
                    self.mark_ready(index);
                }
                // The losses that the endpoint tells end what is under way.
                Served::Gone => self.peers[index].queue.clear(),
            }
        }
        Ok(progress)
    }

    fn serve<W: Wire>(&mut self, index: usize, wire: &mut W, progress: &mut Progress) -> Result<Served, W::Error> {
        let to = self.peers[index].rank;
        while let Some(item) = self.peers[index].queue.front().copied() {
            match item {
                Item::Control(mut control) => {
                    if let Control::Cts { copies, .. } = &mut control {
                        *copies = wire.maps(to);
                    }
                    attempt!(wire.control(to, &control, self.peers[index].consumed));
                    match control {
                        Control::Revoked { .. } | Control::Retired { .. } => self.peers[index].answers -= 1,
                        Control::Cts { copies, .. } => self.peers[index].maps = copies,
                        _ => {}
                    }
                    self.attach_credit(index);
                }
                Item::Eager(key) => {
                    if let Some(send) = self.sends.get(key)
                        && let Body::Owned(bytes) = &send.body
                    {
                        attempt!(wire.eager(to, &send.envelope, self.peers[index].consumed, bytes));
                        self.attach_credit(index);
                        self.sent(key);
                    }
                }
                Item::Write(key) => match self.write(key, wire)? {
                    Served::Sent => {}
                    turn => return Ok(turn),
                },
                Item::End(key) => {
                    let grant = self.sends.get(key).and_then(|send| Some((send.grant?, send.envelope, send.len)));
                    if let Some((Grant { receive, unknown, .. }, envelope, len)) = grant {
                        let written = Control::Written { envelope, receive, len };
                        let fin = if unknown { written } else { Control::Fin { receive } };
                        attempt!(wire.control(to, &fin, self.peers[index].consumed));
                        self.counts.fin += 1;
                        self.attach_credit(index);
                        self.sent(key);
                    }
                }
                Item::Advertise(key) => {
                    if let Some(mut rtr) = self.advertisement(key) {
                        if let Control::Rtr { copies, .. } = &mut rtr {
                            *copies = wire.maps(to);
                        }
                        let sent = wire.control(to, &rtr, self.peers[index].consumed);
                        if sent.is_err() {
                            self.withdraw_advertisement(key);
                        }
                        attempt!(sent);
                        self.counts.rtr += 1;
                        self.peers[index].maps = wire.maps(to);
                        self.attach_credit(index);
                    }
                }
                Item::Revoke(context, key) => {
                    let pair = self.pair(context, to);
                    if let Some(revoke) = self.revocation(pair, context, key) {
                        attempt!(wire.control(to, &revoke, self.peers[index].consumed));
                        self.counts.revocations += 1;
                        self.attach_credit(index);
                    }
                }
                Item::Read(key) => match self.request_reads(to, key, wire)? {
                    Served::Sent => {}
                    turn => return Ok(turn),
                },
            }
            *progress = Progress::Advanced;
            self.peers[index].queue.pop_front();
        }
        if self.peers[index].due {
            attempt!(wire.control(to, &Control::Credit, self.peers[index].consumed));
            self.counts.credit += 1;
            self.attach_credit(index);
            *progress = Progress::Advanced;
        }
        Ok(Served::Sent)
    }

    /// Asks for more of a message.
    fn request_reads<W: Wire>(&mut self, to: u32, key: Key, wire: &mut W) -> Result<Served, W::Error> {
        while let Some(receive) = self.receives.get_mut(key)
            && let whole = receive.len
            && let Transfer { reading: Some(reading), staged, .. } = receive.transfer()
            && reading.asked < whole
            && reading.under_way < READS
        {
            let most = wire.longest_read(to, staged.is_some());
            let len = (whole - reading.asked).min(u64::from(most)) as u32;
            let offset = staged.map(|block| block.offset + reading.asked);
            let read = Read { send: reading.send, receive: key, at: reading.asked, len, offset };
            attempt!(wire.read(to, &read));
            reading.asked += u64::from(len);
            reading.under_way += 1;
        }
        Ok(Served::Sent)
    }

    /// The next part of a message that is being written: whom it goes to, which bytes, and where in the receiver's
    /// segment. `most` tells the most bytes of a part that is placed there, or is not.
    /// `near` if the receiver's segment is memory of this process.
    pub(crate) fn next_part(&self, key: Key, near: bool, most: impl FnOnce(u32, bool) -> u64) -> Option<Next> {
        let send = self.sends.get(key)?;
        let Grant { receive, offset, stays, unknown } = send.grant?;
        // An elided end is told by the bytes, so that there is a part even where there are none.
        let envelope = self.elides() && unknown && !send.begun;
        if send.at == send.len && !envelope {
            return None;
        }
        let most =
            most(send.to, offset.is_some()).min(if stays || !near { u64::MAX } else { part_len(send.len) }).max(1);
        let end = send.len.min(send.at + most);
        let part =
            Part { receive, at: send.at, envelope: envelope.then_some((send.envelope, send.len)), copied: 0 };
        let offset = offset.map(|offset| offset + send.at);
        Some(Next { to: send.to, part, bytes: send.at as usize..end as usize, offset })
    }

    /// A part of a message has been sent, up to a byte.
    pub(crate) fn part_sent(&mut self, key: Key, end: usize) {
        let Some(send) = self.sends.get_mut(key) else { return };
        (send.at, send.begun) = (end as u64, true);
    }

    /// All parts of a message have been sent.
    pub(crate) fn written(&mut self, key: Key) {
        let Some(send) = self.sends.get_mut(key).filter(|send| send.grant.is_some()) else { return };
        if self.config.protocol == Protocol::Elided {
            return self.sent(key);
        }
        // Its end is reported before it is over.
        send.stage = Stage::Ending;
        let to = send.to;
        let peer = self.peer(to);
        self.peers[peer].queue.push_back(Item::End(key));
        self.mark_ready(peer);
    }

    fn write<W: Wire>(&mut self, key: Key, wire: &mut W) -> Result<Served, W::Error> {
        let Some(send) = self.sends.get(key) else { return Ok(Served::Sent) };
        let own = if let Body::Placed(at) = send.body { Some(at) } else { None };
        // A receiver that does not see this rank's segment does not believe that this one sees its.
        let believed = self.peer_of.get(&send.to).is_some_and(|peer| self.peers[*peer as usize].copies);
        let near = believed && wire.maps(send.to);
        let most = |wire: &W, to, placed| match own {
            Some(_) if placed && near => Part::MOST_COPIED,
            // As much as is copied on its way at once.
            Some(_) => wire.longest_part(to, placed).min(MOST_SCRATCH),
            None => wire.longest_part(to, placed),
        };
        while let Some(mut next) = self.next_part(key, near, |to, placed| most(wire, to, placed)) {
            let Self { sends, scratch, .. } = self;
            if near && let (Some(at), Some(offset), Some(send)) = (own, next.offset, sends.get_mut(key)) {
                let end = next.bytes.end as u64;
                // Not again where there was no room to tell of it.
                if send.copied < end {
                    let from = at + next.bytes.start as u64..at + end;
                    if !wire.copy_own(from, next.to, offset) {
                        let rank = next.to;
                        self.fault(rank);
                        return Ok(Served::Gone);
                    }
                    send.copied = end;
                }
                next.part.copied = next.bytes.len() as u32;
                attempt!(wire.part(next.to, &next.part, &[], None));
                self.part_sent(key, next.bytes.end);
                continue;
            }
            let bytes = match sends.get(key).map(|send| &send.body) {
                Some(Body::Owned(bytes)) => &bytes[next.bytes.clone()],
                Some(Body::Placed(at)) => {
                    scratch.resize(next.bytes.len(), 0);
                    wire.read_own(at + next.bytes.start as u64, scratch);
                    &scratch[..]
                }
                Some(Body::Lent) | None => return Ok(Served::Sent),
            };
            attempt!(wire.part(next.to, &next.part, bytes, next.offset));
            self.part_sent(key, next.bytes.end);
        }
        self.written(key);
        Ok(Served::Sent)
    }
}
