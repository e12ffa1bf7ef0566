//! What the interface does for Portals 4: commands become messages, messages become events and counts, each at its
//! time, and counts trigger commands.

use super::atomic::{self, AtomicOp, Call, Datatype};
use super::command::{Atomic, Command, FetchAtomic, Get, Put, Region, Swap, Target};
use super::engine::{Interface, Outcome, Pending};
use super::error::P4Error;
use super::lists::{Asked, Effect, Operation, Place};
use super::types::{Ack, CtEvent, CtHandle, Event, EventKind, MdHandle, NiFail};
use crate::nic::device::{COUNTS, Load, Portals};
use crate::nic::wire::{Body, Wire};
use am_core::Instant;
use am_core::segment::Memory;
use am_core::slab::Key;
use fabric_sim::bytes::Bytes;
use fabric_sim::{DeviceContext, Packet};

/// What travels for Portals 4.
#[derive(Clone)]
pub(crate) enum Message<D = Bytes> {
    Put {
        pt_index: u16,
        atomic: Option<(AtomicOp, Datatype)>,
        match_bits: u64,
        hdr_data: u64,
        offset: u64,
        /// Who waits for the acknowledgement.
        key: Option<Key>,
        data: D,
    },
    Get {
        pt_index: u16,
        length: u32,
        match_bits: u64,
        offset: u64,
        key: Key,
    },
    Fetch(Box<Fetch<D>>),
    Ack {
        key: Key,
        outcome: Outcome,
    },
    Reply {
        key: Key,
        outcome: Outcome,
        data: D,
    },
}

/// A fetching atomic operation or a swap.
#[derive(Clone)]
pub(crate) struct Fetch<D = Bytes> {
    pt_index: u16,
    atomic: (AtomicOp, Datatype),
    operand: [u8; 16],
    match_bits: u64,
    hdr_data: u64,
    offset: u64,
    key: Key,
    data: D,
}

impl<D> Message<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Message<E> {
        match self {
            Self::Put { pt_index, atomic, match_bits, hdr_data, offset, key, data } => {
                Message::Put { pt_index, atomic, match_bits, hdr_data, offset, key, data: bytes(data) }
            }
            Self::Get { pt_index, length, match_bits, offset, key } => {
                Message::Get { pt_index, length, match_bits, offset, key }
            }
            Self::Fetch(fetch) => {
                let Fetch { pt_index, atomic, operand, match_bits, hdr_data, offset, key, data } = *fetch;
                let data = bytes(data);
                let fetch = Fetch { pt_index, atomic, operand, match_bits, hdr_data, offset, key, data };
                Message::Fetch(Box::new(fetch))
            }
            Self::Ack { key, outcome } => Message::Ack { key, outcome },
            Self::Reply { key, outcome, data } => Message::Reply { key, outcome, data: bytes(data) },
        }
    }
}

impl Message {
    /// The bytes that it carries.
    pub(crate) fn data(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Put { data, .. } | Self::Reply { data, .. } => Some(data),
            Self::Fetch(fetch) => Some(&mut fetch.data),
            Self::Get { .. } | Self::Ack { .. } => None,
        }
    }
}

/// A command's common part, checked.
struct Checked {
    to: u32,
    pt: u16,
}

const BAD_ATOMIC: &str = "one that the call and the datatype take, for whole elements, one if there is an operand";

impl Portals {
    /// Portals 4 of one of the node's processes.
    #[inline]
    pub(crate) fn p4(&mut self, local: u32) -> &mut Interface {
        &mut self.processes[local as usize].p4
    }

    fn p4_target(&mut self, local: u32, target: &Target) -> Result<Checked, P4Error> {
        let interface = &self.processes[local as usize].p4;
        interface.opened()?;
        let id = interface.physical(target.process)?;
        let (what, value) = ("target", u64::from(id.nid) << 32 | u64::from(id.pid));
        let unknown = P4Error::ArgInvalid { what, value, limit: "a process of the job" };
        let to = self.shared.directory.rank(id).ok_or(unknown)?;
        let (index, limit) = (target.pt_index, interface.limits.pt_entries);
        if index >= limit {
            let (what, value) = ("portal table entry", index.into());
            return Err(P4Error::ArgInvalid { what, value, limit: "inside the table" });
        }
        Ok(Checked { to, pt: index as u16 })
    }

    fn p4_atomic(put: &Put, operation: AtomicOp, datatype: Datatype, call: Call) -> Result<(), P4Error> {
        let size = datatype.size();
        let whole = put.length.is_multiple_of(size) && (!operation.has_operand() || put.length == size);
        if operation.call() == call && operation.works_on(datatype) && whole {
            return Ok(());
        }
        Err(P4Error::ArgInvalid { what: "operation", value: operation as u64, limit: BAD_ATOMIC })
    }

    /// Checks that a command could be executed now; returns whom it is for, if anyone.
    pub(crate) fn p4_check(&mut self, local: u32, command: &Command) -> Result<Option<u32>, P4Error> {
        let (put, to, target) = match command {
            Command::CtInc(ct, _) | Command::CtSet(ct, _) => return self.p4(local).ct(*ct).map(|_| None),
            Command::Put(put) => (Some(put), None, &put.target),
            Command::Get(get) => (None, Some((get.to, get.length)), &get.target),
            Command::Atomic(Atomic { put, operation, datatype }) => {
                Self::p4_atomic(put, *operation, *datatype, Call::Combine)?;
                (Some(put), None, &put.target)
            }
            Command::FetchAtomic(FetchAtomic { to, put, operation, datatype }) => {
                Self::p4_atomic(put, *operation, *datatype, Call::Combine)?;
                (Some(put), Some((*to, put.length)), &put.target)
            }
            Command::Swap(Swap { to, put, operation, datatype, .. }) => {
                Self::p4_atomic(put, *operation, *datatype, Call::Exchange)?;
                (Some(put), Some((*to, put.length)), &put.target)
            }
        };
        let interface = &self.processes[local as usize].p4;
        if let Some(put) = put {
            interface.region(put.from, put.length)?;
        }
        if let Some((region, length)) = to {
            interface.region(region, length)?;
        }
        self.p4_target(local, target).map(|checked| Some(checked.to))
    }

    /// Executes a command that has been checked.
    pub(crate) fn p4_execute(
        &mut self,
        local: u32,
        command: &Command,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), P4Error> {
        match command {
            Command::Put(put) => self.p4_put(local, put, None, port),
            Command::Atomic(Atomic { put, operation, datatype }) => {
                self.p4_put(local, put, Some((*operation, *datatype)), port)
            }
            Command::Get(get) => self.p4_get(local, get, port),
            Command::FetchAtomic(FetchAtomic { to, put, operation, datatype }) => {
                self.p4_fetch(local, *to, put, (*operation, *datatype), [0; 16], port)
            }
            Command::Swap(Swap { to, put, operation, datatype, operand }) => {
                self.p4_fetch(local, *to, put, (*operation, *datatype), *operand, port)
            }
            Command::CtInc(ct, by) => {
                self.p4(local).ct(*ct)?.add(*by);
                self.p4_fire(local, *ct, port);
                Ok(())
            }
            Command::CtSet(ct, value) => {
                self.p4(local).ct(*ct)?.set(*value);
                self.p4_fire(local, *ct, port);
                Ok(())
            }
        }
    }

    fn p4_put(
        &mut self,
        local: u32,
        put: &Put,
        atomic: Option<(AtomicOp, Datatype)>,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), P4Error> {
        let Put { from: Region { md, offset: place }, length, ack, target, user_ptr, hdr_data } = *put;
        let Checked { to, pt } = self.p4_target(local, &target)?;
        let Target { pt_index, match_bits, offset, .. } = target;
        let process = &mut self.processes[local as usize];
        let from = process.rank;
        let (memory, at) = process.p4.region(put.from, length)?;
        let (data, source) = self.shared.source(memory, at, length);
        let key = (ack != Ack::None).then(|| {
            process.p4.expect(Pending {
                to,
                md,
                local: place,
                ack: Some(ack),
                length,
                pt_index,
                match_bits,
                user_ptr,
                hdr_data,
            })
        });
        let message = Message::Put { pt_index: pt, atomic, match_bits, hdr_data, offset, key, data };
        let sent = self.transmit(Load { from, to, length, body: Body::P4(message), source }, port);
        let about = Event {
            initiator: self.processes[local as usize].id,
            match_bits,
            rlength: length,
            mlength: length,
            remote_offset: offset,
            start: place,
            user_ptr,
            hdr_data,
            atomic,
            ..Event::of(EventKind::Send, pt_index)
        };
        self.p4_sent(local, md, about, sent, port);
        Ok(())
    }

    /// The bytes of a descriptor have been read.
    fn p4_sent(
        &mut self,
        local: u32,
        md: MdHandle,
        about: Event,
        sent: Instant,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let event = sent + self.shared.costs.event;
        let interface = self.p4(local);
        interface.busy(md, sent);
        let (eq, count) = interface.told(md, EventKind::Send, true, about.mlength);
        if let Some(eq) = eq {
            interface.post(eq, about, event);
            self.expect_event(local, event, port);
        }
        if let Some((ct, by)) = count {
            self.p4_count(local, ct, by, sent, port);
        }
    }

    fn p4_get(&mut self, local: u32, get: &Get, port: &mut DeviceContext<'_, Wire>) -> Result<(), P4Error> {
        let Get { to: Region { md, offset: place }, length, target, user_ptr } = *get;
        let Checked { to, pt } = self.p4_target(local, &target)?;
        let Target { pt_index, match_bits, offset, .. } = target;
        let process = &mut self.processes[local as usize];
        let from = process.rank;
        let (ack, hdr_data) = (None, 0);
        let pending = Pending { to, md, local: place, ack, length, pt_index, match_bits, user_ptr, hdr_data };
        let key = process.p4.expect(pending);
        let message = Message::Get { pt_index: pt, length, match_bits, offset, key };
        self.transmit(Load { from, to, length: 0, body: Body::P4(message), source: None }, port);
        Ok(())
    }

    fn p4_fetch(
        &mut self,
        local: u32,
        region: Region,
        put: &Put,
        atomic: (AtomicOp, Datatype),
        operand: [u8; 16],
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), P4Error> {
        let Put { from: Region { md: source_md, .. }, length, target, user_ptr, hdr_data, .. } = *put;
        let Checked { to, pt: pt_index } = self.p4_target(local, &target)?;
        let Target { match_bits, offset, .. } = target;
        let process = &mut self.processes[local as usize];
        let from = process.rank;
        let (memory, at) = process.p4.region(put.from, length)?;
        let (data, source) = self.shared.source(memory, at, length);
        let Region { md, offset: place } = region;
        let (ack, pt) = (None, u32::from(pt_index));
        let pending = Pending { to, md, local: place, ack, length, pt_index: pt, match_bits, user_ptr, hdr_data };
        let key = process.p4.expect(pending);
        let fetch = Fetch { pt_index, atomic, operand, match_bits, hdr_data, offset, key, data };
        let body = Body::P4(Message::Fetch(Box::new(fetch)));
        let sent = self.transmit(Load { from, to, length, body, source }, port);
        self.p4(local).busy(source_md, sent);
        Ok(())
    }

    // Counters.

    /// Lets a counter move at a time.
    pub(crate) fn p4_count(
        &mut self,
        local: u32,
        ct: CtHandle,
        by: CtEvent,
        at: Instant,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        if at > port.now() {
            let (rank, sent, body) = (self.processes[local as usize].rank, port.now(), Wire(Body::Count(ct, by)));
            let packet = Packet { number: 0, from: rank, to: rank, bytes: 0, sent, corrupt: false, body };
            return port.defer(at, packet, COUNTS);
        }
        if let Some(counter) = self.p4(local).counter(ct) {
            counter.add(by);
            self.concern(local, port);
            self.p4_fire(local, ct, port);
        }
    }

    /// Executes what a counter triggers. A command that moves the same counter lets what follows from that happen
    /// in its turn.
    pub(crate) fn p4_fire(&mut self, local: u32, ct: CtHandle, port: &mut DeviceContext<'_, Wire>) {
        self.concern(local, port);
        while let Some(command) = self.p4(local).due(ct) {
            let done = self.p4_check(local, &command).and_then(|_| self.p4_execute(local, &command, port));
            if done.is_err() {
                self.p4(local).drop_one();
            }
        }
    }

    /// Tells the program what has happened: events at one time, counts at another.
    pub(crate) fn p4_effects(
        &mut self,
        local: u32,
        events: Instant,
        counts: Instant,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let mut effects = std::mem::take(&mut self.p4(local).table.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Event(eq, event) => {
                    self.p4(local).post(eq, event, events);
                    self.expect_event(local, events, port);
                }
                Effect::Count(ct, by) => self.p4_count(local, ct, by, counts, port),
            }
        }
        // The list goes round, unless a triggered command has left another.
        if self.p4(local).table.effects.is_empty() {
            self.p4(local).table.effects = effects;
        }
    }

    // Messages.

    /// A message has arrived for one of the node's processes.
    pub(crate) fn p4_arrive(
        &mut self,
        local: u32,
        from: u32,
        message: Message,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let costs = self.shared.costs;
        let (now, sender) = (port.now(), self.shared.directory.of(from));
        let done = now + costs.complete;
        let event = done + costs.event;
        let process = &mut self.processes[local as usize];
        let rank = process.rank;
        let asked = |operation, pt_index: u16, match_bits, hdr_data, length, offset, atomic| Asked {
            operation,
            initiator: sender,
            uid: 0,
            pt_index: pt_index.into(),
            match_bits,
            hdr_data,
            length,
            offset,
            atomic,
        };
        match message {
            Message::Put { pt_index, atomic, match_bits, hdr_data, offset, key, data } => {
                let operation = if atomic.is_some() { Operation::Atomic } else { Operation::Put };
                let length = data.len() as u32;
                let asked = asked(operation, pt_index, match_bits, hdr_data, length, offset, atomic);
                let taken = process.p4.arrive(&asked);
                let outcome = match &taken {
                    Ok(place) => {
                        self.p4_write(place, atomic, &data);
                        let (mlength, offset) = (place.mlength, place.offset);
                        Outcome { ni_fail: NiFail::Ok, mlength, offset, silent: !place.ack }
                    }
                    Err(ni_fail) => Outcome::failure(*ni_fail),
                };
                self.shared.pool.give(data);
                if let Some(key) = key {
                    self.acknowledge(rank, from, done, Body::P4(Message::Ack { key, outcome }), port);
                }
                self.p4_effects(local, event, done, port);
                if taken.is_ok() {
                    self.concern(local, port);
                }
            }
            Message::Get { pt_index, length, match_bits, offset, key } => {
                let asked = asked(Operation::Get, pt_index, match_bits, 0, length, offset, None);
                let taken = process.p4.arrive(&asked);
                self.p4_answer(rank, from, key, taken, done, |_, _| {}, port);
                self.p4_effects(local, event, done, port);
            }
            Message::Fetch(fetch) => {
                let Fetch { pt_index, atomic, operand, match_bits, hdr_data, offset, key, data } = *fetch;
                let length = data.len() as u32;
                let operation = Operation::FetchAtomic;
                let asked = asked(operation, pt_index, match_bits, hdr_data, length, offset, Some(atomic));
                let taken = process.p4.arrive(&asked);
                let change = |place: &Place, old: &[u8]| {
                    let mut new = old.to_vec();
                    atomic::apply(atomic.0, atomic.1, &mut new, &data, &operand);
                    place.memory.write(place.at, &new);
                };
                self.p4_answer(rank, from, key, taken, done, change, port);
                self.shared.pool.give(data);
                self.p4_effects(local, event, done, port);
                self.concern(local, port);
            }
            Message::Ack { key, outcome } => {
                process.p4.answered(key, outcome, &[]);
                self.p4_effects(local, now + costs.ack_event, now, port);
            }
            Message::Reply { key, outcome, data } => {
                process.p4.answered(key, outcome, &data);
                self.shared.pool.give(data);
                self.p4_effects(local, event, done, port);
            }
        }
    }

    /// Writes the bytes of a put to their place, or combines them with what is there.
    fn p4_write(&self, place: &Place, atomic: Option<(AtomicOp, Datatype)>, data: &[u8]) {
        let data = &data[..place.mlength as usize];
        let Some((operation, datatype)) = atomic else { return place.memory.write(place.at, data) };
        let bytes = self.shared.pool.fill(place.mlength, |bytes| {
            place.memory.load(place.at, bytes);
            atomic::apply(operation, datatype, bytes, data, &[]);
        });
        place.memory.write(place.at, &bytes);
        self.shared.pool.give(bytes);
    }

    /// Answers an operation that fetches; `change` is told the place and what is fetched.
    #[expect(clippy::too_many_arguments, reason = "all of it is the message's")]
    fn p4_answer(
        &mut self,
        rank: u32,
        to: u32,
        key: Key,
        taken: Result<Place, NiFail>,
        done: Instant,
        change: impl FnOnce(&Place, &[u8]),
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let (outcome, data) = match taken {
            Ok(place) => {
                let data = self.shared.pool.fill(place.mlength, |bytes| place.memory.load(place.at, bytes));
                change(&place, &data);
                let (mlength, offset) = (place.mlength, place.offset);
                (Outcome { ni_fail: NiFail::Ok, mlength, offset, silent: false }, data)
            }
            Err(ni_fail) => (Outcome::failure(ni_fail), Bytes::default()),
        };
        let length = data.len() as u32;
        self.reply(rank, to, length, done, Body::P4(Message::Reply { key, outcome, data }), port);
    }

    /// Ends all operations that wait for a rank, which is lost.
    pub(crate) fn p4_fail(&mut self, local: u32, rank: u32, port: &mut DeviceContext<'_, Wire>) {
        self.p4(local).fail(rank);
        let now = port.now();
        self.p4_effects(local, now, now, port);
    }
}
