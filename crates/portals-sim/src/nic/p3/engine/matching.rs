//! The operations of peers on Portals 3.3: which match entry and memory descriptor takes each, and where it goes.

use super::super::types::{EventKind, Md, Options};
use super::{Descriptor, EventDetails, Interface};
use crate::nic::HostMemory;
use crate::nic::directory::ProcessId;
use crate::nic::mutation::Mutation;
use am_core::Instant;
use am_core::slab::Key;

/// What a peer's put or get asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) initiator: ProcessId,
    pub(crate) pt_index: u32,
    pub(crate) match_bits: u64,
    pub(crate) hdr_data: u64,
    pub(crate) length: u32,
    pub(crate) offset: u64,
}

/// Where an operation goes.
#[derive(Clone, Copy)]
struct Place {
    md: Key,
    offset: usize,
    mlength: u32,
}

/// What has become of a peer's put.
#[derive(Clone, Copy)]
pub(crate) struct Delivered {
    pub(crate) offset: u64,
    pub(crate) mlength: u32,
    /// The memory descriptor lets it be acknowledged.
    pub(crate) ack: bool,
    /// No event tells of it.
    pub(crate) silent: bool,
}

/// What a peer's get is answered with.
pub(crate) struct Answer<'a> {
    pub(crate) memory: &'a HostMemory,
    pub(crate) at: usize,
    pub(crate) offset: u64,
    pub(crate) mlength: u32,
}

impl Interface {
    /// The place that a peer's operation takes: in the first entry that it matches and whose descriptor accepts
    /// it.
    #[inline]
    fn find(&mut self, asked: &Asked, operation: Options) -> Option<Place> {
        let mut found = None;
        let mut next = self.table.get(asked.pt_index as usize)?.first;
        while let Some(key) = next {
            let entry = self.entries.get(key).expect("a listed entry exists");
            next = entry.after;
            self.walked += 1;
            let mut criteria = entry.criteria;
            if self.defects.has(Mutation::CompareIgnored) {
                criteria.ignore_bits = 0;
            }
            if !criteria.fit(asked.initiator, asked.match_bits) {
                continue;
            }
            let Some(md) = entry.md else { continue };
            let descriptor = self.descriptors.get(md).expect("a linked descriptor exists");
            let Some((offset, mlength)) = Self::accepts(descriptor, asked, operation) else { continue };
            found = Some(Place { md, offset, mlength });
            // Rule 1 of the sheet: the first entry that matches takes the message.
            if !self.defects.has(Mutation::LastMatch) {
                break;
            }
        }
        found
    }

    /// Where in a descriptor an operation goes, and how much of it, if it is accepted.
    #[inline]
    fn accepts(descriptor: &Descriptor, asked: &Asked, operation: Options) -> Option<(usize, u32)> {
        let options = descriptor.md.options;
        if !options.has(operation) || !descriptor.active() {
            return None;
        }
        let length = descriptor.md.length;
        let offset = if options.has(Options::MANAGE_REMOTE) {
            usize::try_from(asked.offset).map_or(length, |offset| offset.min(length))
        } else {
            descriptor.offset
        };
        let room = length - offset;
        if asked.length as usize <= room {
            return Some((offset, asked.length));
        }
        options.has(Options::TRUNCATE).then_some((offset, room as u32))
    }

    /// Takes the place: counts the operation and moves the offset.
    fn take(&mut self, Place { md, offset, mlength }: Place) -> &mut Descriptor {
        let defects = self.defects;
        let descriptor = self.descriptors.get_mut(md).expect("a found descriptor exists");
        descriptor.count();
        let options = descriptor.md.options;
        if !options.has(Options::MANAGE_REMOTE) {
            // Rule 2 of the sheet: the local offset moves behind the message, and the descriptor is used up when
            // less than `max_size` is left.
            let half = defects.has(Mutation::HalfOffset);
            descriptor.offset = offset + if half { mlength as usize / 2 } else { mlength as usize };
            descriptor.exhausted = options.has(Options::MAX_SIZE)
                && descriptor.md.length - descriptor.offset < descriptor.md.max_size
                && !defects.has(Mutation::NoMaxSize);
        }
        descriptor
    }

    /// Delivers a peer's put; nothing if it is dropped. Its event comes at `at`.
    pub(crate) fn delivered(&mut self, asked: &Asked, data: &[u8], at: Instant) -> Option<Delivered> {
        let Some(place) = self.find(asked, Options::OP_PUT) else {
            self.dropped += 1;
            return None;
        };
        let Place { md, offset, mlength } = place;
        let Descriptor { md: Md { memory, start, options, eq, .. }, .. } = self.take(place);
        memory.write(*start + offset, &data[..mlength as usize]);
        let delivered = Delivered {
            offset: offset as u64,
            mlength,
            ack: !options.has(Options::ACK_DISABLE),
            silent: eq.is_none(),
        };
        self.finish(md, [EventKind::PutStart, EventKind::PutEnd], Self::about(asked, place), at);
        Some(delivered)
    }

    /// Answers a peer's get; nothing if it is dropped. `read` is given what to answer with.
    pub(crate) fn fetched<R>(
        &mut self,
        asked: &Asked,
        at: Instant,
        read: impl FnOnce(Answer<'_>) -> R,
    ) -> Option<R> {
        let Some(place) = self.find(asked, Options::OP_GET) else {
            self.dropped += 1;
            return None;
        };
        let Place { md, offset, mlength } = place;
        let Descriptor { md: Md { memory, start, .. }, .. } = self.take(place);
        let result = read(Answer { memory, at: *start + offset, offset: offset as u64, mlength });
        self.finish(md, [EventKind::GetStart, EventKind::GetEnd], Self::about(asked, place), at);
        Some(result)
    }

    fn about(asked: &Asked, place: Place) -> EventDetails {
        let Asked { initiator, pt_index, match_bits, hdr_data, length: rlength, .. } = *asked;
        let Place { offset, mlength, .. } = place;
        EventDetails { initiator, pt_index, match_bits, hdr_data, rlength, mlength, offset: offset as u64 }
    }
}
