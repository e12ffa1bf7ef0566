//! The conduit's use of Portals 3.3: seven memory descriptors, two event queues, two portal table entries.
//!
//! | descriptor | match | entry | operations | offset | events | purpose |
//! |---|---|---|---|---|---|---|
//! | RAR | 0 | RAR | put, get | remote | none | the segment |
//! | RARAM | 1 | RAR | put | remote | AM | payloads of Long requests |
//! | RARSRC | 2 | RAR | put | remote | SAFE | payloads of Long replies; this rank's own end of puts and gets |
//! | ReqRB | 3 | AM | put | local | AM | request receive buffers |
//! | ReqSB | 4 | AM | put | remote | SAFE | bounce buffer, source of requests, destination of their replies |
//! | RplSB | | | | | SAFE | source of replies |
//! | TMPMD | | | | | SAFE | memory outside the segment, bound by the registration cache |

use super::codec::{Bits, HeaderData, IGNORED, Target};
use super::events::{Am, Origin, Safe};
use super::space::Space;
use crate::nic::p3::{
    Ack, Criteria, EqHandle, Event, EventKind, Md, MdHandle, Options, P3, P3Error, Position, Unlink,
};
use crate::nic::{HostMemory, Nic};
use am_core::Instant;
use fabric_sim::WaitFor;

/// Portal table entries.
const RAR: u32 = 1;
const AM: u32 = 2;

const SET_UP: &str = "the interface has room for the conduit's descriptors";
const OWN: &str = "the conduit puts from its own descriptors, to ranks of the job";

/// What the descriptors lie in.
#[derive(Clone, Debug)]
pub(super) struct Memories {
    pub(super) segment: HostMemory,
    pub(super) requests: HostMemory,
    pub(super) replies: HostMemory,
    pub(super) inbox: HostMemory,
    /// Operands of atomics, and what they found: 16 bytes for each operation under way (Portals 4).
    pub(super) results: HostMemory,
}

/// A rank's descriptors and queues.
#[derive(Clone, Debug)]
pub(super) struct P3Wire<'a> {
    p3: P3<'a>,
    safe: EqHandle,
    am: EqHandle,
    rar_src: MdHandle,
    req_sb: MdHandle,
    rpl_sb: MdHandle,
    inbox: HostMemory,
    space: Space,
    largest: usize,
}

impl<'a> P3Wire<'a> {
    /// Opens the interface and sets everything up.
    ///
    /// # Panics
    /// If the interface is open, or has no room.
    pub(super) fn new(nic: &Nic<'a>, memories: &Memories, space: Space, largest: u32, queues: [u32; 2]) -> Self {
        let p3 = nic.p3();
        p3.init().expect("the interface is free for the conduit");
        let safe = p3.eq_alloc(queues[0]).expect("the interface has room for the SAFE queue");
        let am = p3.eq_alloc(queues[1]).expect("the interface has room for the AM queue");
        let Memories { segment, requests, replies, inbox, .. } = memories;
        let quiet = Options::EVENT_START_DISABLE;
        let remote = quiet | Options::MANAGE_REMOTE;
        let silent = Options::ACK_DISABLE;
        let attach = |pt: u32, target: Target, md: &Md| {
            let criteria = Criteria::bits(target as u64, IGNORED);
            let me = p3.me_attach(pt, criteria, Unlink::Retain, Position::After).expect(SET_UP);
            p3.md_attach(me, md, Unlink::Retain).expect(SET_UP)
        };
        attach(RAR, Target::Rar, &Md::new(segment, remote | Options::OP_PUT | Options::OP_GET));
        let to_am = Md { eq: Some(am), ..Md::new(segment, remote | silent | Options::OP_PUT) };
        attach(RAR, Target::RarAm, &to_am);
        let of = |memory: &HostMemory, origin: Origin, options: Options| Md {
            eq: Some(safe),
            user_ptr: origin.word(),
            ..Md::new(memory, options)
        };
        // Acknowledgements and answers of this rank's own operations come to it, so none are disabled.
        let rar_src = attach(RAR, Target::RarSrc, &of(segment, Origin::Segment, remote | Options::OP_PUT));
        let req_sb = attach(AM, Target::ReqSb, &of(requests, Origin::Request, remote | silent | Options::OP_PUT));
        let rpl_sb = p3.md_bind(&of(replies, Origin::Reply, quiet), Unlink::Retain).expect(SET_UP);
        let wire =
            Self { p3, safe, am, rar_src, req_sb, rpl_sb, inbox: inbox.clone(), space, largest: largest as usize };
        for buffer in 0..space.buffers {
            wire.link(buffer);
        }
        wire
    }

    /// Puts a receive buffer behind the others.
    pub(super) fn link(&self, buffer: u32) {
        let criteria = Criteria::bits(Target::ReqRb as u64, IGNORED);
        let me = self.p3.me_attach(AM, criteria, Unlink::Unlink, Position::After).expect(SET_UP);
        let options = Options::OP_PUT | Options::MAX_SIZE | Options::EVENT_START_DISABLE | Options::ACK_DISABLE;
        let md = Md {
            start: (u64::from(buffer) * self.space.bytes) as usize,
            length: self.space.bytes as usize,
            max_size: self.largest.min(self.space.bytes as usize),
            user_ptr: buffer.into(),
            eq: Some(self.am),
            ..Md::new(&self.inbox, options)
        };
        self.p3.md_attach(me, &md, Unlink::Unlink).expect(SET_UP);
    }

    #[expect(clippy::too_many_arguments, reason = "these are the interface's")]
    fn put(&self, md: MdHandle, from: u64, len: u32, ack: Ack, to: u32, pt: u32, bits: u64, at: u64, data: u64) {
        let target = self.p3.nic.id(to).expect("frames are for ranks of the job");
        self.p3.put(md, from, len, ack, target, pt, bits, at, data).expect(OWN);
    }

    /// Puts a request from its chunk.
    pub(super) fn request(&self, to: u32, chunk: u32, len: u32, bits: Bits, data: HeaderData) {
        self.put(self.req_sb, chunk.into(), len, Ack::None, to, AM, bits.encode(), 0, data.encode());
    }

    /// Puts a reply from its slot into the chunk of its request.
    pub(super) fn reply(&self, to: u32, slot: u64, len: u32, bits: Bits, data: HeaderData) {
        self.put(self.rpl_sb, slot, len, Ack::None, to, AM, bits.encode(), bits.chunk.into(), data.encode());
    }

    /// Puts a Long payload into the peer's segment.
    pub(super) fn payload(&self, to: u32, md: MdHandle, len: u32, at: u64, bits: Bits) {
        self.put(md, 0, len, Ack::None, to, RAR, bits.encode(), at, 0);
    }

    /// Begins a one-sided put; a descriptor of the registration cache, or the segment's own.
    pub(super) fn put_direct(&self, to: u32, md: Option<MdHandle>, from: u64, len: u32, at: u64, bits: u64) {
        self.put(md.unwrap_or(self.rar_src), from, len, Ack::Request, to, RAR, bits, at, 0);
    }

    /// Begins a one-sided get.
    pub(super) fn get_direct(&self, to: u32, md: Option<MdHandle>, into: u64, len: u32, at: u64, bits: u64) {
        let target = self.p3.nic.id(to).expect("gets are from ranks of the job");
        let md = md.unwrap_or(self.rar_src);
        self.p3.get(md, into, len, target, RAR, bits, at).expect(OWN);
    }

    /// Binds memory outside the segment.
    pub(super) fn bind(&self, memory: &HostMemory, start: usize, length: usize, slot: u32) -> MdHandle {
        let md = Md {
            start,
            length,
            eq: Some(self.safe),
            user_ptr: Origin::Temporary(slot).word(),
            ..Md::new(memory, Options::EVENT_START_DISABLE)
        };
        self.p3.md_bind(&md, Unlink::Retain).expect(SET_UP)
    }

    /// Unbinds such memory, which no operation uses any more.
    pub(super) fn unbind(&self, md: MdHandle) {
        // What has been told to have left has left.
        self.p3.md_unlink(md).expect("nothing uses a descriptor that the cache lets go");
    }

    /// Unbinds such memory unless a get uses it whose answer has not come; whether it did.
    pub(super) fn is_unbound(&self, md: MdHandle) -> bool {
        match self.p3.md_unlink(md) {
            Err(P3Error::MdInUse { .. }) => false,
            done => {
                done.expect("the descriptor was bound");
                true
            }
        }
    }

    fn take(&self, queue: EqHandle) -> Option<Event> {
        match self.p3.eq_get(queue) {
            Ok(event) => Some(event),
            Err(P3Error::EqEmpty) => None,
            Err(error) => panic!("the event queues have room for all that send slots and credits allow: {error}"),
        }
    }

    /// The next event of the SAFE queue.
    pub(super) fn safe(&self) -> Option<Safe> {
        let event = self.take(self.safe)?;
        let (origin, bits) = (Origin::of(event.user_ptr), event.match_bits);
        Some(match event.kind {
            EventKind::SendEnd => Safe::Left { origin, bits },
            EventKind::Ack => Safe::Delivered { origin, bits, outcome: Ok(()) },
            EventKind::ReplyEnd => Safe::Fetched { origin, bits, outcome: Ok(()) },
            EventKind::PutEnd => match (self.p3.nic.rank_of(event.initiator), Bits::decode(bits)) {
                (Some(from), Some(bits)) if bits.target == Target::RarSrc => Safe::Placed { from, bits },
                (Some(from), Some(bits)) => {
                    Safe::Reply { from, bits, data: HeaderData::decode(event.hdr_data), len: event.mlength }
                }
                _ => Safe::Nothing,
            },
            _ => Safe::Nothing,
        })
    }

    /// The next event of the AM queue.
    pub(super) fn am(&self) -> Option<Am> {
        let event = self.take(self.am)?;
        if event.kind == EventKind::Unlink {
            return Some(Am::Unlinked(event.user_ptr as u32));
        }
        let Some(from) = self.p3.nic.rank_of(event.initiator) else { return Some(Am::Nothing) };
        Some(match (event.kind, Bits::decode(event.match_bits)) {
            (EventKind::PutEnd, Some(bits)) if bits.target == Target::RarAm => Am::Placed { from, bits },
            (EventKind::PutEnd, Some(bits)) => {
                let at = event.user_ptr * self.space.bytes + event.offset;
                Am::Request { from, bits, data: HeaderData::decode(event.hdr_data), at, len: event.mlength }
            }
            (EventKind::PutEnd, None) => Am::Malformed { from },
            _ => Am::Nothing,
        })
    }

    /// Messages that found no buffer.
    pub(super) fn dropped(&self) -> u64 {
        self.p3.dropped()
    }

    /// Waits for an event of the SAFE queue.
    pub(super) fn idle_safe(&self, wanted: &'static str) {
        self.p3.idle(&[self.safe], None, WaitFor::Named(wanted)).expect("the queue is there");
    }

    /// Waits for an event.
    pub(super) fn idle(&self, until: Option<Instant>, wanted: WaitFor) {
        self.p3.idle(&[self.safe, self.am], until, wanted).expect("the queues are there");
    }
}
