//! What the interface does for Portals 3.3: commands become messages, messages become events, each at its time.

use super::engine::{Asked, EventDetails, Interface};
use super::error::P3Error;
use super::types::MdHandle;
use crate::nic::device::{Load, Portals};
use crate::nic::wire::{Body, Wire};
use am_core::Instant;
use am_core::segment::Memory;
use fabric_sim::DeviceContext;
use fabric_sim::bytes::Bytes;

/// A put or get as it is given.
pub(crate) struct Order {
    pub(crate) md: MdHandle,
    pub(crate) local_offset: u64,
    pub(crate) length: u32,
    pub(crate) to: u32,
    pub(crate) pt_index: u32,
    pub(crate) match_bits: u64,
    pub(crate) remote_offset: u64,
    pub(crate) hdr_data: u64,
}

/// What travels for Portals 3.3.
#[derive(Clone)]
pub(crate) enum Message<D = Bytes> {
    Put { pt_index: u16, ack: bool, match_bits: u64, hdr_data: u64, offset: u64, md: MdHandle, data: D },
    Get { pt_index: u16, length: u32, match_bits: u64, offset: u64, md: MdHandle, local: u64 },
    Ack { pt_index: u16, md: MdHandle, rlength: u32, mlength: u32, match_bits: u64, hdr_data: u64, offset: u64 },
    Reply { pt_index: u16, md: MdHandle, rlength: u32, match_bits: u64, offset: u64, local: u64, data: D },
}

impl<D> Message<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Message<E> {
        match self {
            Self::Put { pt_index, ack, match_bits, hdr_data, offset, md, data } => {
                Message::Put { pt_index, ack, match_bits, hdr_data, offset, md, data: bytes(data) }
            }
            Self::Get { pt_index, length, match_bits, offset, md, local } => {
                Message::Get { pt_index, length, match_bits, offset, md, local }
            }
            Self::Ack { pt_index, md, rlength, mlength, match_bits, hdr_data, offset } => {
                Message::Ack { pt_index, md, rlength, mlength, match_bits, hdr_data, offset }
            }
            Self::Reply { pt_index, md, rlength, match_bits, offset, local, data } => {
                Message::Reply { pt_index, md, rlength, match_bits, offset, local, data: bytes(data) }
            }
        }
    }
}

impl Message {
    /// Whether nobody waits for an answer to it.
    pub(crate) const fn is_plain_put(&self) -> bool {
        matches!(self, Self::Put { ack: false, .. })
    }

    /// The bytes that it carries.
    pub(crate) fn data(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Put { data, .. } | Self::Reply { data, .. } => Some(data),
            Self::Get { .. } | Self::Ack { .. } => None,
        }
    }
}

impl Portals {
    /// Portals 3.3 of one of the node's processes.
    #[inline]
    pub(crate) fn p3(&mut self, local: u32) -> &mut Interface {
        &mut self.processes[local as usize].p3
    }

    pub(crate) fn p3_put(
        &mut self,
        local: u32,
        order: &Order,
        ack: bool,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), P3Error> {
        let Order { md, local_offset, length, to, pt_index, match_bits, remote_offset, hdr_data, .. } = *order;
        let process = &mut self.processes[local as usize];
        let (initiator, from) = (process.id, process.rank);
        process.p3.check_pt(pt_index)?;
        let (memory, at) = process.p3.put(md, local_offset, length)?;
        let (data, source) = self.shared.source(memory, at, length);
        let (pt, offset) = (pt_index as u16, remote_offset);
        let message = Message::Put { pt_index: pt, ack, match_bits, hdr_data, offset, md, data };
        let sent = self.transmit(Load { from, to, length, body: Body::P3(message), source }, port);
        let about =
            EventDetails { initiator, pt_index, match_bits, hdr_data, rlength: length, mlength: length, offset };
        let event = sent + self.shared.costs.event;
        self.p3(local).sent(md, about, sent, event);
        self.expect_event(local, event, port);
        Ok(())
    }

    pub(crate) fn p3_get(
        &mut self,
        local: u32,
        order: &Order,
        port: &mut DeviceContext<'_, Wire>,
    ) -> Result<(), P3Error> {
        let Order { md, local_offset, length, to, pt_index, match_bits, remote_offset, .. } = *order;
        let process = &mut self.processes[local as usize];
        let from = process.rank;
        process.p3.check_pt(pt_index)?;
        process.p3.get(md, local_offset, length)?;
        let (pt_index, offset, local) = (pt_index as u16, remote_offset, local_offset);
        let message = Message::Get { pt_index, length, match_bits, offset, md, local };
        self.transmit(Load { from, to, length: 0, body: Body::P3(message), source: None }, port);
        Ok(())
    }

    /// A message has arrived for one of the node's processes, now or, if it was kept, before.
    pub(crate) fn p3_arrive(
        &mut self,
        local: u32,
        from: u32,
        message: Message,
        now: Instant,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let costs = self.shared.costs;
        let sender = self.shared.directory.of(from);
        let done = now + costs.complete;
        let event = costs.told(now);
        let process = &mut self.processes[local as usize];
        let (me, rank) = (process.id, process.rank);
        match message {
            Message::Put { pt_index, ack, match_bits, hdr_data, offset, md, data } => {
                let length = data.len() as u32;
                let pt = u32::from(pt_index);
                let asked = Asked { initiator: sender, pt_index: pt, match_bits, hdr_data, length, offset };
                let delivered = process.p3.delivered(&asked, &data, event);
                self.shared.pool.give(data);
                // Who waits for a message that found no place had better look what has become of it.
                let Some(delivered) = delivered else { return self.concern(local, port) };
                if ack && delivered.ack {
                    let (offset, mlength) = (delivered.offset, delivered.mlength);
                    let message =
                        Message::Ack { pt_index, md, rlength: length, mlength, match_bits, hdr_data, offset };
                    self.acknowledge(rank, from, done, Body::P3(message), port);
                }
                if delivered.silent {
                    self.concern(local, port);
                } else {
                    self.expect_event(local, event, port);
                }
            }
            Message::Get { pt_index, length, match_bits, offset, md, local: place } => {
                let pt = u32::from(pt_index);
                let asked = Asked { initiator: sender, pt_index: pt, match_bits, hdr_data: 0, length, offset };
                let pool = &self.shared.pool;
                let answer = process.p3.fetched(&asked, event, |answer| {
                    (answer.offset, pool.fill(answer.mlength, |buffer| answer.memory.load(answer.at, buffer)))
                });
                let Some((offset, data)) = answer else { return };
                let mlength = data.len() as u32;
                let message =
                    Message::Reply { pt_index, md, rlength: length, match_bits, offset, local: place, data };
                self.reply(rank, from, mlength, done, Body::P3(message), port);
                self.expect_event(local, event, port);
            }
            Message::Ack { pt_index, md, rlength, mlength, match_bits, hdr_data, offset } => {
                let pt_index = pt_index.into();
                let about =
                    EventDetails { initiator: me, pt_index, match_bits, hdr_data, rlength, mlength, offset };
                let event: Instant = now + costs.ack_event;
                process.p3.acknowledged(md, about, event);
                self.expect_event(local, event, port);
            }
            Message::Reply { pt_index, md, rlength, match_bits, offset, local: place, data } => {
                let (pt_index, mlength) = (pt_index.into(), data.len() as u32);
                let about =
                    EventDetails { initiator: me, pt_index, match_bits, hdr_data: 0, rlength, mlength, offset };
                process.p3.answered(md, place, about, &data, event);
                self.shared.pool.give(data);
                self.expect_event(local, event, port);
            }
        }
    }
}
