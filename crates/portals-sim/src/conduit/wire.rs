//! The interface below the conduit: Portals 3.3, or Portals 4.

use super::codec::{Bits, HeaderData};
use super::events::{Am, Safe};
use super::native::Command;
use super::p3::{Memories, P3Wire};
use super::p4::P4Wire;
use super::space::Space;
use crate::nic::{HostMemory, Nic, p3, p4};
use am_core::Instant;
use fabric_sim::WaitFor;

/// A memory descriptor of the registration cache.
#[derive(Clone, Copy, Debug)]
pub(super) enum Descriptor {
    P3(p3::MdHandle),
    /// With its slot in the cache.
    P4(p4::MdHandle, u32),
}

impl Descriptor {
    fn of_p3(self) -> p3::MdHandle {
        let Self::P3(md) = self else { unreachable!("a rank's descriptors are of its own interface") };
        md
    }

    fn of_p4(self) -> (p4::MdHandle, u32) {
        let Self::P4(md, slot) = self else { unreachable!("a rank's descriptors are of its own interface") };
        (md, slot)
    }
}

/// A rank's descriptors and queues.
#[derive(Clone, Debug)]
pub(super) enum Wire<'a> {
    P3(P3Wire<'a>),
    P4(P4Wire<'a>),
}

impl<'a> Wire<'a> {
    /// Opens the interface and sets everything up.
    pub(super) fn new(
        portals_4: bool,
        nic: &Nic<'a>,
        memories: &Memories,
        space: Space,
        largest: u32,
        queues: [u32; 2],
    ) -> Self {
        if portals_4 {
            return Self::P4(P4Wire::new(nic, memories, space, largest, queues));
        }
        Self::P3(P3Wire::new(nic, memories, space, largest, queues))
    }

    /// Puts a receive buffer behind the others.
    pub(super) fn link(&self, buffer: u32) {
        match self {
            Self::P3(wire) => wire.link(buffer),
            Self::P4(wire) => wire.link(buffer),
        }
    }

    /// Lets the receiver take requests again, after all that had come was taken in.
    pub(super) fn enable(&self) {
        match self {
            Self::P3(_) => {}
            Self::P4(wire) => wire.enable(),
        }
    }

    /// Whether the payloads of Long messages are told of by themselves.
    pub(super) const fn tells_payloads(&self) -> bool {
        matches!(self, Self::P3(_))
    }

    /// Puts a request from its chunk.
    pub(super) fn request(&self, to: u32, chunk: u32, len: u32, bits: Bits, data: HeaderData) {
        match self {
            Self::P3(wire) => wire.request(to, chunk, len, bits, data),
            Self::P4(wire) => wire.request(to, chunk, len, bits, data),
        }
    }

    /// Puts a reply from its slot into the chunk of its request.
    pub(super) fn reply(&self, to: u32, slot: u64, len: u32, bits: Bits, data: HeaderData) {
        match self {
            Self::P3(wire) => wire.reply(to, slot, len, bits, data),
            Self::P4(wire) => wire.reply(to, slot, len, bits, data),
        }
    }

    /// Puts a Long payload into the peer's segment.
    pub(super) fn payload(&self, to: u32, md: Descriptor, len: u32, at: u64, bits: Bits) {
        match self {
            Self::P3(wire) => wire.payload(to, md.of_p3(), len, at, bits),
            Self::P4(wire) => {
                let (md, slot) = md.of_p4();
                wire.payload(to, md, slot, len, at, bits);
            }
        }
    }

    /// Begins a one-sided put, from the segment or from a descriptor of the registration cache.
    /// `told`: whether it is acknowledged, as it always is on Portals 3.3.
    #[expect(clippy::too_many_arguments, reason = "these are the interface's")]
    pub(super) fn put_direct(
        &self,
        to: u32,
        md: Option<Descriptor>,
        from: u64,
        len: u32,
        at: u64,
        bits: u64,
        told: bool,
    ) {
        match self {
            Self::P3(wire) => wire.put_direct(to, md.map(Descriptor::of_p3), from, len, at, bits),
            Self::P4(wire) => {
                let ack = if told { p4::Ack::Request } else { p4::Ack::None };
                wire.put_direct(to, md.map(Descriptor::of_p4), from, len, at, bits, ack);
            }
        }
    }

    /// Begins a one-sided get, into the segment or into a descriptor of the registration cache.
    pub(super) fn get_direct(&self, to: u32, md: Option<Descriptor>, into: u64, len: u32, at: u64, bits: u64) {
        match self {
            Self::P3(wire) => wire.get_direct(to, md.map(Descriptor::of_p3), into, len, at, bits),
            Self::P4(wire) => wire.get_direct(to, md.map(Descriptor::of_p4), into, len, at, bits),
        }
    }

    /// Begins an atomic operation (Portals 4); see [`P4Wire::atomic`].
    pub(super) fn atomic(&self, to: u32, place: u64, at: u64, atomic: &Command, bits: u64) {
        let Self::P4(wire) = self else { unreachable!("Portals 3.3 has no atomic operations") };
        wire.atomic(to, place, at, atomic, bits);
    }

    /// Binds memory outside the segment.
    pub(super) fn bind(&self, memory: &HostMemory, start: usize, length: usize, slot: u32) -> Descriptor {
        match self {
            Self::P3(wire) => Descriptor::P3(wire.bind(memory, start, length, slot)),
            Self::P4(wire) => Descriptor::P4(wire.bind(memory, start, length), slot),
        }
    }

    /// Unbinds such memory unless an operation uses it that may never end; whether it did.
    pub(super) fn is_unbound(&self, md: Descriptor) -> bool {
        match self {
            Self::P3(wire) => wire.is_unbound(md.of_p3()),
            Self::P4(wire) => {
                wire.unbind(md.of_p4().0);
                true
            }
        }
    }

    /// Unbinds such memory, which no operation uses any more.
    pub(super) fn unbind(&self, md: Descriptor) {
        match self {
            Self::P3(wire) => wire.unbind(md.of_p3()),
            Self::P4(wire) => wire.unbind(md.of_p4().0),
        }
    }

    /// The next event of the SAFE queue.
    #[inline]
    pub(super) fn safe(&self) -> Option<Safe> {
        match self {
            Self::P3(wire) => wire.safe(),
            Self::P4(wire) => wire.safe(),
        }
    }

    /// The next event of the AM queue.
    #[inline]
    pub(super) fn am(&self) -> Option<Am> {
        match self {
            Self::P3(wire) => wire.am(),
            Self::P4(wire) => wire.am(),
        }
    }

    /// Messages that found no buffer, where that is an error.
    pub(super) fn dropped(&self) -> u64 {
        match self {
            Self::P3(wire) => wire.dropped(),
            Self::P4(_) => 0,
        }
    }

    /// Waits for an event of the SAFE queue.
    pub(super) fn idle_safe(&self, wanted: &'static str) {
        match self {
            Self::P3(wire) => wire.idle_safe(wanted),
            Self::P4(wire) => wire.idle_safe(wanted),
        }
    }

    /// Waits for an event.
    pub(super) fn idle(&self, until: Option<Instant>, wanted: WaitFor) {
        match self {
            Self::P3(wire) => wire.idle(until, wanted),
            Self::P4(wire) => wire.idle(until, wanted),
        }
    }
}
