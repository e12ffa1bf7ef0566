//! Messages: sending and receiving, blocking and not.

use crate::communicator::{Communicator, Source, Status, Tag};
use crate::error::{AskedBytes, AskedRank, AskedTag, MessageError};
use crate::kind::ElementType;
use crate::layer::{self, Awaited, Dropped, DroppedHandle, Messages};
use crate::machine::{
    ANY, Block, Copies, Envelope, Found, MessageInfo, Mode, PIECE, Readable, Selector, Source as Lies, Taken,
    Word, place_of, values_in, zeroes,
};
use crate::request::{ReceiveRequest, SendRequest};
use am_core::slab::Key;
use am_core::transport::{LentFault, Loan};
use am_core::zerocopy::IntoBytes;
use am_core::{Address, Category, Endpoint, HasLayer, Lane, Rank, SendError, Transport};
use am_pgas::pointer::Element;
use std::sync::Arc;

/// A message that is about to be sent: whom to, what it is matched by, and how.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing {
    pub(crate) to: Rank,
    pub(crate) envelope: Envelope,
    pub(crate) mode: Mode,
}

/// Looks at the network before a wait becomes one that may sleep, where it does not at once.
pub(crate) const SPINS: u32 = 512;

/// What sending a message has come to so far.
pub(crate) enum Begun {
    Sent,
    /// It is under way, with its bytes or without, which the receiver may read for as long as there is a loan.
    UnderWay(Key, Option<Loan>),
}

/// A posted receive whose call has nothing else that owns it: goes where the call unwinds.
struct CallReceive<'d> {
    key: Option<Key>,
    dropped: &'d Dropped,
}

impl CallReceive<'_> {
    /// The call ends as calls do.
    fn ends(mut self) {
        self.key = None;
    }
}

/// An endpoint in a blocking call whose receive has no key yet. The receive goes if the call unwinds, with a
/// message that it has met.
struct DirectCall<'e, T: Transport, S: HasLayer<Messages>>(&'e mut Endpoint<T, S>);

impl<T: Transport, S: HasLayer<Messages>> Drop for DirectCall<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.0.layer_unscheduled::<Messages>().machine.end_direct();
    }
}

impl Drop for CallReceive<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.dropped.push(DroppedHandle::Receive(key));
        }
    }
}

/// A message whose bytes are with the call that sends it: where that unwinds, it goes on by itself.
struct CallSend<'b> {
    key: Option<Key>,
    bytes: &'b [u8],
    dropped: Arc<Dropped>,
}

impl CallSend<'_> {
    /// The call ends as calls do.
    fn ends(mut self) {
        self.key = None;
    }
}

impl Drop for CallSend<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.dropped.push(DroppedHandle::Lent(key, self.bytes.to_vec()));
        }
    }
}

impl Communicator {
    #[inline]
    pub(crate) fn outgoing<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, tag): (u32, i32),
        kind: ElementType,
        mode: Mode,
    ) -> Result<Outgoing, MessageError> {
        self.check_endpoint(endpoint)?;
        let (to, tag) = (self.member(to, tag)?, Self::tag(tag)?);
        let envelope = Envelope { context: self.shared.context, tag, sequence: 0, kind: kind.number() };
        Ok(Outgoing { to, envelope, mode })
    }

    /// Begins to send; `lend` if the caller waits and can lend the bytes.
    #[inline]
    pub(crate) fn begin<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        Outgoing { to, envelope, mode }: Outgoing,
        bytes: &[u8],
        lend: bool,
    ) -> Result<Begun, MessageError> {
        let endpoint_number = endpoint.address().endpoint;
        let layer = endpoint.layer_unscheduled::<Messages>();
        if mode == Mode::Standard
            && let Some((numbered, credit)) = layer.machine.begin_eager(to.0, envelope, bytes.len())
        {
            let requests = &layer.requests;
            let (eager, short) = (requests.eager, requests.word);
            let address = Address { rank: to, endpoint: endpoint_number };
            let sent = match Word::of(bytes) {
                Some(word) => endpoint.try_request(address, short, layer::word_arguments(&numbered, credit, word)),
                None => endpoint.try_request_medium(address, eager, layer::eager_words(&numbered, credit), bytes),
            };
            return match sent {
                Ok(()) => Ok(Begun::Sent),
                // It has its number: whatever happens, it is what the receiver looks for next.
                Err(_) => {
                    let key = endpoint.layer_mut::<Messages>().machine.postpone(to.0, numbered, bytes);
                    Ok(Begun::UnderWay(key, None))
                }
            };
        }
        let machine = &mut endpoint.layer_mut::<Messages>().machine;
        if machine.is_closed(envelope.context) {
            return Err(MessageError::freed(to.0, envelope.tag, AskedBytes::Are(bytes.len() as u64)));
        }
        let lend = lend && machine.lends(bytes.len());
        Self::ask_for_access(endpoint, to.0);
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        if !lend {
            return Ok(Begun::UnderWay(machine.begin(to.0, envelope, mode, bytes.to_vec()), None));
        }
        let loan = machine.lend(to.0, bytes);
        let key = machine.begin_lent(to.0, envelope, mode, bytes.len() as u64, loan.as_ref());
        Ok(Begun::UnderWay(key, loan))
    }

    /// Finds out whether memory of a peer can be read, if that is not known yet: all have joined by now, so that
    /// the answer is final.
    pub(crate) fn ask_for_access<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>, rank: u32) {
        if !endpoint.layer_unscheduled::<Messages>().machine.knows_access(rank) {
            let readable =
                endpoint.reads_lent(Address { rank: Rank(rank), endpoint: endpoint.address().endpoint });
            endpoint.layer_unscheduled::<Messages>().machine.note_access(rank, readable);
        }
    }

    /// Says how long messages that may be read come, if it has not been said yet.
    #[inline]
    pub(crate) fn choose_copies<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>) {
        if endpoint.layer_unscheduled::<Messages>().machine.wants_copies() {
            // Ranks that share processors would wait for each other's turns at two copies.
            let spins = endpoint.transport().spins();
            let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
            machine.note_copies(match machine.config.lent_cost {
                u32::MAX => Copies::Read,
                0 => Copies::Written,
                _ if !spins => Copies::Read,
                most => Copies::timed(most),
            });
        }
    }

    /// Reads the message of a receive where its sender lends it, if it does: a piece at a time, from byte `at` on.
    /// Whether all of it is there.
    pub(crate) fn read_lent<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        key: Key,
        out: &mut [u8],
        at: &mut usize,
    ) -> bool {
        let number = endpoint.address().endpoint;
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        let Some(Readable { from, len, lent }) = machine.readable(key) else { return false };
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= out.len()) else { return false };
        machine.begin_reading(key);
        let (end, peer) = (len.min(*at + PIECE), Address { rank: Rank(from), endpoint: number });
        let read = match &lent {
            Lies::Process(lent) => {
                let since = machine.reading_begins();
                let read = endpoint.read_lent(peer, lent, *at as u64, &mut out[*at..end]);
                if read.is_ok() {
                    let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
                    machine.note_reading(since, len as u64, (end - *at) as u64);
                }
                read
            }
            Lies::Segment(lent) => Self::read_segment(endpoint, from, lent, *at as u64, &mut out[*at..end]),
        };
        match read {
            Ok(()) => *at = end,
            Err(fault) => {
                *at = 0;
                endpoint.layer_mut::<Messages>().machine.cannot_read(key, fault == LentFault::Refused);
                return false;
            }
        }
        if end < len {
            endpoint.layer_mut::<Messages>().machine.part_read = true;
            return false;
        }
        Self::tell_read(endpoint, key, peer);
        true
    }

    /// Tells the sender of a message that it has been read.
    pub(crate) fn tell_read<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        key: Key,
        peer: Address,
    ) {
        let layer = endpoint.layer_unscheduled::<Messages>();
        let (handler, ack) = (layer.requests.control(), layer.machine.has_read(key));
        if let Some((to, control, credit)) = ack {
            if endpoint.try_request(peer, handler, control.encode(credit)).is_err() {
                endpoint.layer_mut::<Messages>().machine.send_later(to, control);
            }
        } else {
            endpoint.layer_mut::<Messages>();
        }
    }

    /// Writes a message whose bytes are lent, as far as there is room.
    fn write_lent<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        key: Key,
        bytes: &[u8],
    ) -> Result<(), MessageError> {
        let number = endpoint.address().endpoint;
        loop {
            let placed = endpoint.layer_unscheduled::<Messages>().machine.is_placed(key);
            let Some((to, placed)) = placed else { return Ok(()) };
            let address = Address { rank: Rank(to), endpoint: number };
            let near = endpoint.mapped_segment(address.rank).is_some();
            let most = layer::longest_part(placed, near, |category: Category| {
                endpoint.max_payload(address, category, Lane::Request, 11)
            });
            let layer = endpoint.layer_unscheduled::<Messages>();
            let Some(next) = layer.machine.next_part(key, near, |_, _| most) else {
                endpoint.layer_mut::<Messages>().machine.written(key);
                return Ok(());
            };
            let (handler, words) = (layer.requests.part(), next.part.encode());
            let part = &bytes[next.bytes.clone()];
            let sent = match next.offset {
                Some(offset) => endpoint.try_request_long(address, handler, words, part, offset),
                None => endpoint.try_request_medium(address, handler, words, part),
            };
            match sent {
                Ok(()) => {
                    endpoint.layer_unscheduled::<Messages>().machine.part_sent(key, next.bytes.end);
                }
                Err(SendError::WouldBlock { .. }) => return Ok(()),
                // The loss ends the message where it is looked for.
                Err(error) if error.lost_rank().is_some() || matches!(error, SendError::Finished { .. }) => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    pub(crate) fn send_bytes<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        outgoing: Outgoing,
        bytes: &[u8],
    ) -> Result<(), MessageError> {
        match Self::begin(endpoint, outgoing, bytes, true)? {
            Begun::Sent => Ok(()),
            Begun::UnderWay(key, loan) => Self::finish_send(endpoint, outgoing, (key, loan), bytes, |_| ()),
        }
    }

    /// Waits until a message has been sent. `meanwhile` is called before each step.
    #[inline(never)]
    pub(crate) fn finish_send<T: Transport, S: HasLayer<Messages>>(
        endpoint: &mut Endpoint<T, S>,
        Outgoing { to, envelope, .. }: Outgoing,
        (key, loan): (Key, Option<Loan>),
        bytes: &[u8],
        mut meanwhile: impl FnMut(&mut Endpoint<T, S>),
    ) -> Result<(), MessageError> {
        let dropped = Arc::clone(&endpoint.layer_unscheduled::<Messages>().dropped);
        let call = CallSend { key: Some(key), bytes, dropped };
        let waited = layer::wait(endpoint, Awaited::One(to), |endpoint| {
            meanwhile(endpoint);
            if endpoint.layer_unscheduled::<Messages>().machine.granted(key) {
                Self::write_lent(endpoint, key, bytes)?;
            }
            Ok(endpoint.layer_unscheduled::<Messages>().machine.take_sent(key))
        });
        call.ends();
        // Before the caller may change its bytes.
        drop(loan);
        let sent = waited.inspect_err(|_| {
            // It goes on by itself.
            let machine = &mut endpoint.layer_mut::<Messages>().machine;
            machine.adopt(key, bytes);
            machine.drop_send(key);
        })?;
        let info = MessageInfo { from: to.0, tag: envelope.tag, len: bytes.len() as u64, kind: envelope.kind };
        sent.map_err(|failure| MessageError::of(failure, (info, true), envelope.kind, 0))
    }

    /// Sends values to a member. Blocks until the slice can be used again; does not allocate where the message
    /// goes eagerly.
    ///
    /// # Errors
    /// A member or tag that there is not; a freed communicator; a lost member; a time-out, after which the message
    /// goes on by itself.
    #[inline]
    pub fn send<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        values: &[V],
    ) -> Result<(), MessageError> {
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::of::<V>(), Mode::Standard)?;
        Self::send_bytes(endpoint, outgoing, values.as_bytes())
    }

    /// As [`send`](Self::send), and waits until the message has met its receive.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn synchronous_send<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        values: &[V],
    ) -> Result<(), MessageError> {
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::of::<V>(), Mode::Synchronous)?;
        Self::send_bytes(endpoint, outgoing, values.as_bytes())
    }

    /// Begins to send values, which are copied unless they go at once. Does not block.
    ///
    /// # Errors
    /// As [`send`](Self::send), but for losses and time-outs, of which the request tells.
    pub fn immediate_send<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        values: &[V],
    ) -> Result<SendRequest, MessageError> {
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::of::<V>(), Mode::Standard)?;
        let begun = Self::begin(endpoint, outgoing, values.as_bytes(), false)?;
        Ok(SendRequest::new(endpoint, begun, outgoing, values.as_bytes().len() as u64))
    }

    /// As [`immediate_send`](Self::immediate_send); the request is over when the message has met its receive.
    ///
    /// # Errors
    /// As [`immediate_send`](Self::immediate_send).
    pub fn immediate_synchronous_send<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: u32,
        tag: i32,
        values: &[V],
    ) -> Result<SendRequest, MessageError> {
        let outgoing = self.outgoing(endpoint, (to, tag), ElementType::of::<V>(), Mode::Synchronous)?;
        let begun = Self::begin(endpoint, outgoing, values.as_bytes(), false)?;
        Ok(SendRequest::new(endpoint, begun, outgoing, values.as_bytes().len() as u64))
    }

    /// Posts a receive.
    #[inline(always)]
    pub(crate) fn post<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        kind: ElementType,
        capacity: u64,
    ) -> Result<Key, MessageError> {
        self.check_endpoint(endpoint)?;
        if endpoint.layer_unscheduled::<Messages>().machine.is_long(capacity) {
            Self::choose_copies(endpoint);
            if selector.source != ANY {
                Self::ask_for_access(endpoint, selector.source);
            }
        }
        let layer = endpoint.layer_unscheduled::<Messages>();
        let key = layer.machine.post(selector, kind.number(), capacity);
        if layer.machine.has_work() {
            endpoint.layer_mut::<Messages>();
        }
        Ok(key)
    }

    /// Waits until a receive is over; what it has brought. `on_progress` is called before each step, and says
    /// whether the receive may be over by what it did.
    pub(crate) fn finish_receive<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        key: Key,
        (expected, capacity): (ElementType, u64),
        mut on_progress: impl FnMut(&mut Endpoint<T, S>) -> bool,
    ) -> Result<Taken, MessageError> {
        let layer = endpoint.layer_unscheduled::<Messages>();
        let mut taken = layer.machine.take_received(key);
        if taken.as_ref().is_some_and(|taken| taken.timed) {
            layer.machine.call_begins(false);
        }
        if taken.is_none() {
            let ranks = self.shared.team.ranks();
            let one = Awaited::One(Rank(selector.source));
            let awaited = if selector.source == ANY { Awaited::Any(ranks) } else { one };
            let (mut losses, mut idles) = (u32::MAX, endpoint.idles());
            taken = Some(layer::wait(endpoint, awaited, |endpoint| {
                let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
                if let Some(taken) = machine.take_received(key) {
                    return Ok(Some(taken));
                }
                if on_progress(endpoint) {
                    return Ok(endpoint.layer_unscheduled::<Messages>().machine.take_received(key));
                }
                let now = (endpoint.losses(), endpoint.idles());
                let before = (std::mem::replace(&mut losses, now.0), std::mem::replace(&mut idles, now.1));
                let machine = &endpoint.layer_unscheduled::<Messages>().machine;
                let moving = || machine.waits_for(key).is_some_and(|(_, _, met)| met);
                // One sender can be at the end of its memory only if something of it waits to be asked for.
                if now != before
                    && (selector.source == ANY || machine.has_unasked())
                    && !moving()
                    && let Some(error) = self.cannot_come(endpoint, selector, AskedBytes::at_most(capacity))
                {
                    return Err(error);
                }
                Ok(None)
            })?);
        }
        let taken = taken.expect("it was waited for");
        if taken.cancelled {
            self.give_back(endpoint, taken);
            let Selector { source, tag, .. } = selector;
            let (rank, tag, bytes) = (AskedRank::of(source), AskedTag::of(tag), AskedBytes::at_most(capacity));
            return Err(MessageError::Cancelled { rank, tag, bytes });
        }
        if let Some(failure) = taken.failure {
            let error = MessageError::of(failure, (taken.info, taken.met), expected.number(), capacity);
            self.give_back(endpoint, taken);
            return Err(error);
        }
        Ok(taken)
    }

    /// Gives back what a receive held.
    pub(crate) fn give_back<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        taken: Taken,
    ) {
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        if taken.timed {
            machine.note_written(Some(taken.info.len));
        }
        taken.staged.into_iter().for_each(|block| machine.release(block));
        machine.recycle(taken.bytes);
    }

    /// Copies out what a receive has brought, from a byte on; those before are there.
    pub(crate) fn copy_out<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        taken: Taken,
        out: &mut [u8],
        from: usize,
    ) -> Status {
        let len = taken.info.len as usize;
        match taken.staged {
            _ if from == len => {}
            Some(Block { offset, .. }) => {
                let read = endpoint.read_placed(offset + from as u64, &mut out[from..len]);
                read.expect("staging lies inside the segment");
            }
            None => {
                let bytes = taken.place.as_ref().map_or(&taken.bytes[..], |place| place.bytes());
                out[from..len].copy_from_slice(&bytes[from..len]);
            }
        }
        let status = self.status(taken.info);
        self.give_back(endpoint, taken);
        status
    }

    /// Receives a message into a slice that is at least as long. Blocks; does not allocate where the message comes
    /// eagerly and buffers have been used before. The rest of the slice stays as it is; where the receive fails,
    /// any of it may be changed.
    ///
    /// # Errors
    /// A member or tag that there is not; a freed communicator; a message that is too long or of another type; a
    /// source that is lost, or has left; a time-out, which cancels the receive.
    #[inline]
    pub fn receive_into<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        values: &mut [V],
    ) -> Result<Status, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        self.receive_bytes(endpoint, selector, ElementType::of::<V>(), values.as_mut_bytes())
    }

    pub(crate) fn receive_bytes<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        kind: ElementType,
        out: &mut [u8],
    ) -> Result<Status, MessageError> {
        self.check_endpoint(endpoint)?;
        let machine = &mut endpoint.layer_unscheduled::<Messages>().machine;
        if machine.begin_direct(selector, kind.number(), out.len() as u64) {
            return self.finish_direct(endpoint, selector, kind, out);
        }
        let key = self.post(endpoint, selector, kind, out.len() as u64)?;
        self.finish_into(endpoint, selector, key, kind, out, 0)
    }

    /// Waits for the only receive, at first by looks at the network alone.
    #[inline]
    fn finish_direct<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        kind: ElementType,
        out: &mut [u8],
    ) -> Result<Status, MessageError> {
        let DirectCall(endpoint) = &mut DirectCall(endpoint);
        let mut looks = if endpoint.transport().spins() { SPINS } else { 1 };
        loop {
            match endpoint.layer_unscheduled::<Messages>().machine.take_direct(out) {
                Found::Message(info, None) => return Ok(self.status(info)),
                Found::Message(info, Some(failure)) => {
                    return Err(MessageError::of(failure, (info, true), kind.number(), out.len() as u64));
                }
                Found::Posted(key) => return self.finish_into(endpoint, selector, key, kind, out, 0),
                Found::Nothing if looks == 0 => endpoint.layer_mut::<Messages>().machine.post_direct(),
                Found::Nothing => {
                    looks -= 1;
                    if let Err(error) = endpoint.poll_through() {
                        endpoint.defer_error(error);
                        looks = 0;
                    }
                }
            }
        }
    }

    /// Waits for a posted receive and copies its message out, long ones while they come; `copied` bytes are there.
    pub(crate) fn finish_into<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        key: Key,
        kind: ElementType,
        out: &mut [u8],
        mut copied: usize,
    ) -> Result<Status, MessageError> {
        let capacity = out.len() as u64;
        let call = CallReceive { key: Some(key), dropped: &self.shared.dropped };
        let taken = self.finish_receive(endpoint, selector, key, (kind, capacity), |endpoint| {
            if Self::read_lent(endpoint, key, out, &mut copied) {
                return true;
            }
            let here = endpoint.layer_unscheduled::<Messages>().machine.arrived(key);
            let Some((Block { offset, .. }, here)) = here else { return false };
            let here = here as usize;
            if here > copied && here <= out.len() {
                let read = endpoint.read_placed(offset + copied as u64, &mut out[copied..here]);
                read.expect("staging lies inside the segment");
                copied = here;
            }
            false
        });
        call.ends();
        match taken {
            Ok(taken) => Ok(self.copy_out(endpoint, taken, out, copied)),
            Err(error) => {
                endpoint.layer_mut::<Messages>().machine.drop_receive(key);
                Err(error)
            }
        }
    }

    /// Receives one value. Blocks.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into), and [`MessageError::ShortMessage`] for one without a value, which
    /// is lost then.
    pub fn receive<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<(V, Status), MessageError> {
        let mut value = [V::new_zeroed()];
        let status = self.receive_into(endpoint, source, tag, &mut value)?;
        if status.count::<V>() == 1 {
            Ok((value[0], status))
        } else {
            Err(self.too_short(&status, size_of::<V>() as u64))
        }
    }

    /// Of a message that is shorter than its receive.
    #[cold]
    pub(crate) fn too_short(&self, status: &Status, needed: u64) -> MessageError {
        let (bytes, tag) = (status.bytes(), AskedTag(Some(status.tag())));
        let rank = self.shared.team.rank(status.source_rank()).expect("the sender of a message is a member");
        MessageError::ShortMessage { rank, tag, bytes, needed }
    }

    /// Receives a message of any length. Blocks; allocates.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into); [`MessageError::ShortMessage`] for bytes that are no whole number
    /// of values.
    pub fn receive_vec<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<(Vec<V>, Status), MessageError> {
        let request = self.immediate_receive(endpoint, source, tag, usize::MAX)?;
        request.wait(endpoint)
    }

    /// Waits for a posted receive; the values of its message.
    pub(crate) fn finish_values<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        key: Key,
        expected: (ElementType, u64),
    ) -> Result<(Vec<V>, Status), MessageError> {
        let (mut values, mut read) = (Vec::new(), 0);
        let call = CallReceive { key: Some(key), dropped: &self.shared.dropped };
        let taken = self.finish_receive(endpoint, selector, key, expected, |endpoint| {
            let message = endpoint.layer_unscheduled::<Messages>().machine.readable(key);
            let Some(len) = message.and_then(|message| usize::try_from(message.len).ok()) else { return false };
            if values.is_empty() && len.is_multiple_of(size_of::<V>().max(1)) {
                values = zeroes(V::new_zeroed(), len / size_of::<V>().max(1)).unwrap_or_default();
            }
            // Without room it comes otherwise, and the error is told then.
            Self::read_lent(endpoint, key, values.as_mut_bytes(), &mut read)
        });
        call.ends();
        let taken = taken?;
        if read == 0 {
            return self.values(endpoint, taken);
        }
        Ok((values, self.copy_out(endpoint, taken, &mut [], read)))
    }

    /// The values of a message.
    fn values<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        mut taken: Taken,
    ) -> Result<(Vec<V>, Status), MessageError> {
        if let Some(place) = taken.place.take() {
            match values_in(place) {
                Ok(values) => return Ok((values, self.status(taken.info))),
                Err(place) => taken.place = Some(place),
            }
        }
        let (bytes, size) = (taken.info.len as usize, size_of::<V>().max(1));
        let Some(mut values) = zeroes(V::new_zeroed(), bytes / size) else {
            let MessageInfo { from, tag, len, .. } = taken.info;
            self.give_back(endpoint, taken);
            return Err(MessageError::NoMemory { rank: Rank(from), tag: AskedTag::of(tag), bytes: len });
        };
        if values.as_bytes().len() != bytes {
            let status = self.status(taken.info);
            self.give_back(endpoint, taken);
            return Err(self.too_short(&status, (bytes / size + 1) as u64 * size as u64));
        }
        let status = self.copy_out(endpoint, taken, values.as_mut_bytes(), 0);
        Ok((values, status))
    }

    /// Begins to receive at most `most` values. Does not block. The request owns the buffer.
    ///
    /// # Errors
    /// As [`receive_into`](Self::receive_into), but for what the request tells of.
    #[inline]
    pub fn immediate_receive<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        most: usize,
    ) -> Result<ReceiveRequest<V>, MessageError> {
        let selector = self.selector(source.into(), tag.into())?;
        let (kind, capacity) = (ElementType::of::<V>(), (most as u64).saturating_mul(size_of::<V>() as u64));
        let key = self.post(endpoint, selector, kind, capacity)?;
        let layer = endpoint.layer_unscheduled::<Messages>();
        if layer.machine.is_long(capacity) {
            layer.machine.set_make(key, place_of::<V>);
        }
        Ok(ReceiveRequest::new(layer.handle(self), selector, key, capacity))
    }

    /// Sends values to one member and receives others from one, both at once: never waits for itself.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`receive_into`](Self::receive_into).
    pub fn send_receive_into<T: Transport, S: HasLayer<Messages>, V: Element, W: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, send_tag): (u32, i32),
        values: &[V],
        (source, receive_tag): (impl Into<Source>, impl Into<Tag>),
        into: &mut [W],
    ) -> Result<Status, MessageError> {
        let selector = self.selector(source.into(), receive_tag.into())?;
        let outgoing = self.outgoing(endpoint, (to, send_tag), ElementType::of::<V>(), Mode::Standard)?;
        let into = (ElementType::of::<W>(), into.as_mut_bytes());
        self.exchange(endpoint, outgoing, values.as_bytes(), selector, into)
    }

    /// Sends bytes while others are received.
    pub(crate) fn exchange<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        outgoing: Outgoing,
        bytes: &[u8],
        selector: Selector,
        (kind, into): (ElementType, &mut [u8]),
    ) -> Result<Status, MessageError> {
        let key = self.post(endpoint, selector, kind, into.len() as u64)?;
        let call = CallReceive { key: Some(key), dropped: &self.shared.dropped };
        let mut read = 0;
        let sent = Self::begin(endpoint, outgoing, bytes, true).and_then(|begun| match begun {
            Begun::Sent => Ok(()),
            // The other may send before it reads what this rank lends.
            Begun::UnderWay(send, loan) => {
                Self::finish_send(endpoint, outgoing, (send, loan), bytes, |endpoint| {
                    Self::read_lent(endpoint, key, into, &mut read);
                })
            }
        });
        call.ends();
        if let Err(error) = sent {
            endpoint.layer_mut::<Messages>().machine.drop_receive(key);
            return Err(error);
        }
        self.finish_into(endpoint, selector, key, kind, into, read)
    }

    /// Sends a slice to one member and replaces it by what comes from one. Allocates.
    ///
    /// # Errors
    /// As [`send_receive_into`](Self::send_receive_into).
    pub fn send_receive_replace<T: Transport, S: HasLayer<Messages>, V: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, send_tag): (u32, i32),
        (source, receive_tag): (impl Into<Source>, impl Into<Tag>),
        values: &mut [V],
    ) -> Result<Status, MessageError> {
        let own = values.to_vec();
        self.send_receive_into(endpoint, (to, send_tag), &own, (source, receive_tag), values)
    }
}
