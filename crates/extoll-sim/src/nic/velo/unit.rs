//! What the VELO unit of a node does for its processes.

use super::mailbox::{Letter, Mailbox, Nothing, Slots, Store, Valid};
use super::status::Status;
use super::{Connection, Message, VeloError};
use crate::nic::address::Address;
use crate::nic::channel::{Channel, Frame, Size, Wire};
use crate::nic::device::{Extoll, NOTHING, Open};
use crate::nic::mutation::Defects;
use am_core::Span;
use fabric_sim::DeviceContext;
use std::collections::VecDeque;
use std::rc::Rc;

/// The VELO port of a process.
pub(crate) struct Post {
    state: Open,
    mailbox: Mailbox,
    /// How many of its slots are valid.
    pub(crate) valid: Valid,
    /// Messages that have arrived but find no room, with the numbers of their channels.
    held: VecDeque<(u32, Letter)>,
    /// Writes to the mailbox that are yet to happen, if they are spread over time.
    stores: VecDeque<Store>,
    /// Per connection: the receiver's rank and the number of its channel.
    connections: Vec<Option<(u32, u32)>>,
}

impl Post {
    pub(crate) fn new(segments: u32, defects: Defects, slots: &Slots, valid: &Valid) -> Self {
        Self {
            state: Open::NotYet,
            mailbox: Mailbox::new(segments, defects, slots, valid),
            valid: Rc::clone(valid),
            held: VecDeque::new(),
            stores: VecDeque::new(),
            connections: Vec::new(),
        }
    }

    /// Slots in use, and messages that wait for room.
    pub(crate) fn occupancy(&self) -> (u64, u32) {
        (self.mailbox.used(), self.held.len() as u32)
    }

    pub(crate) fn explain(&self) -> String {
        format!("mailbox: {} slots used, {} messages held", self.mailbox.used(), self.held.len())
    }

    fn connection(&self, connection: Connection) -> Result<(u32, u32), VeloError> {
        let found = self.connections.get(connection.0 as usize).copied().flatten();
        found.ok_or(VeloError::Error("there is no such connection"))
    }
}

impl Extoll {
    fn post(&mut self, local: u32) -> &mut Post {
        &mut self.processes[local as usize].post
    }

    pub(crate) fn velo_open(
        &mut self,
        local: u32,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<Address, VeloError> {
        let post = self.post(local);
        if post.state == Open::Yes {
            return Err(VeloError::Error("the port is open already"));
        }
        post.state = Open::Yes;
        self.velo_release(local, port);
        Ok(self.processes[local as usize].address)
    }

    pub(crate) fn velo_close(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) -> Result<(), VeloError> {
        let (segments, defects) = (self.shared.parameters.velo.segments, self.shared.defects);
        let slots = self.shared.slots.clone();
        let post = self.post(local);
        if post.state != Open::Yes {
            return Err(VeloError::InvalidMbox);
        }
        let valid = Rc::clone(&post.valid);
        let held = std::mem::take(&mut post.held);
        *post = Post { state: Open::NoMore, ..Post::new(segments, defects, &slots, &valid) };
        for (channel, _) in held {
            self.commit(channel, 1, port);
        }
        Ok(())
    }

    pub(crate) fn velo_connect(&mut self, local: u32, to: Address) -> Result<Connection, VeloError> {
        if self.post(local).state != Open::Yes {
            return Err(VeloError::Error("the port is not open"));
        }
        let rank = self.shared.directory.rank(to).ok_or(VeloError::InvalidNode(to))?;
        let channel = self.outbound(local, rank, Channel::Velo);
        let connections = &mut self.post(local).connections;
        connections.push(Some((rank, channel)));
        Ok(Connection(connections.len() as u32 - 1))
    }

    pub(crate) fn velo_disconnect(&mut self, local: u32, connection: Connection) -> Result<(), VeloError> {
        let post = self.post(local);
        post.connection(connection)?;
        post.connections[connection.0 as usize] = None;
        Ok(())
    }

    pub(crate) fn velo_send(
        &mut self,
        local: u32,
        connection: Connection,
        message: &[u8],
        (tag, mtt): (u8, u8),
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), VeloError> {
        let velo = &self.shared.parameters.velo;
        let (mtu, header) = (velo.mtu as usize, velo.header_bytes);
        let (_, number) = self.post(local).connection(connection)?;
        if message.len() > mtu {
            return Err(VeloError::InvMsg { len: message.len(), mtu });
        }
        if mtt > 3 {
            return Err(VeloError::InvMtt { mtt });
        }
        let outbound = self.outbound.at(number);
        if outbound.broken {
            return Err(VeloError::Error("the receiver gives no sign"));
        }
        // Rule 2 of the sheet: without a slot, or during a replay, the call says so and sends nothing.
        if outbound.sender.room(1) == 0 {
            let (uncommitted, replay) = (outbound.sender.uncommitted(), outbound.sender.retrying());
            return Err(VeloError::TryAgain { uncommitted, replay });
        }
        let letter = Letter { tag, mtt, error: false, data: self.shared.pool.lend_copy(message) };
        let size = Size { bytes: message.len() as u32, header, fragments: 1 };
        self.dispatch(number, Frame::Velo(letter), size, port);
        Ok(())
    }

    /// A message has come through the unit, on a channel.
    pub(crate) fn velo_deliver(
        &mut self,
        local: u32,
        channel: u32,
        letter: Letter,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let post = self.post(local);
        let room = post.held.is_empty() && post.mailbox.has_room(letter.data.len());
        if post.state == Open::NoMore || (post.state == Open::Yes && room) {
            return self.velo_put(local, channel, letter, port);
        }
        post.held.push_back((channel, letter));
        self.counters.held += 1;
    }

    fn velo_put(&mut self, local: u32, channel: u32, letter: Letter, port: &mut DeviceContext<'_, Wire>) {
        let Address { node, vpid } = self.partner(channel);
        let gap = self.shared.adversary.store_gap;
        let post = self.post(local);
        if post.state == Open::Yes {
            let Letter { tag, mtt, error, data } = letter;
            let status = Status { node, vpid, mtt, end: false, error, tag, len: data.len() as u8 };
            if gap == 0 {
                post.mailbox.deposit(status, &data);
            } else {
                if post.stores.is_empty() {
                    Self::time_store(local, port.now(), port);
                }
                post.mailbox.plan(status, &data, &mut post.stores);
                // The sender's departure must not be known before its message can be read.
                let (written, rank) =
                    (Span((gap + 1) * post.stores.len() as u64), self.processes[local as usize].rank);
                let (from, _) = self.sender(channel);
                Self::set_aside(from, rank, port.now() + written, NOTHING, port);
            }
            port.wake(self.processes[local as usize].rank);
        }
        self.commit(channel, 1, port);
    }

    /// The next of the writes that are spread over time.
    pub(crate) fn velo_store(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        let gap = self.shared.adversary.store_gap;
        let post = self.post(local);
        let Some(store) = post.stores.pop_front() else { return };
        post.mailbox.store(store);
        if !post.stores.is_empty() {
            let pause = Span(port.random() % (gap + 1));
            Self::time_store(local, port.now() + pause, port);
        }
        port.wake(self.processes[local as usize].rank);
    }

    /// Puts messages that were held into the mailbox, as far as there is room.
    fn velo_release(&mut self, local: u32, port: &mut DeviceContext<'_, Wire>) {
        loop {
            let post = self.post(local);
            let room = post.held.front().is_some_and(|(_, letter)| post.mailbox.has_room(letter.data.len()));
            if !room {
                return;
            }
            let (channel, letter) = post.held.pop_front().expect("a held message was just seen");
            self.velo_put(local, channel, letter, port);
        }
    }

    /// Takes a message into `message`, of which nothing changes if there is none.
    #[inline]
    pub(crate) fn velo_take(
        &mut self,
        local: u32,
        mtt: Option<u8>,
        message: &mut Message,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), VeloError> {
        let post = self.post(local);
        if post.state != Open::Yes {
            return Err(VeloError::InvalidMbox);
        }
        if let Some(mtt) = mtt.filter(|mtt| *mtt > 3) {
            return Err(VeloError::InvMtt { mtt });
        }
        let taken = post.mailbox.take(mtt, &mut message.bytes).map_err(|nothing| match (nothing, mtt) {
            (Nothing::NoMatch, Some(mtt)) => VeloError::NoMatch { mtt },
            _ => VeloError::NoMsg,
        })?;
        if post.mailbox.commit() {
            self.velo_release(local, port);
        }
        let Status { node, vpid, mtt, error, tag, len, .. } = taken;
        message.from = Address { node, vpid };
        (message.tag, message.mtt, message.error, message.len) = (tag, mtt, error, len);
        Ok(())
    }
}
