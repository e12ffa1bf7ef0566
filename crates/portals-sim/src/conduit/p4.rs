//! The conduit's use of Portals 4: requests go to a portal table entry with flow control, which disables itself
//! when its buffers or its event queue are full; senders learn that from acknowledgements and send again.
//!
//! | portal table entry | entries | events | purpose |
//! |---|---|---|---|
//! | RAR | the segment, puts and gets | none | one-sided operations, payloads of Long messages |
//! | AM | receive buffers, locally managed, with `min_free`; flow control | AM | requests |
//! | REPLY | the send buffer | SAFE | replies, each into the chunk of its request |
//!
//! The payload of a Long message is put before its header. Messages of a pair are matched in the order of sending,
//! so it is there when the header's event comes, and needs none of its own.

use super::codec::{Bits, HeaderData, IGNORED, Target};
use super::events::{Am, Origin, Safe};
use super::native::Command;
use super::p3::Memories;
use super::space::Space;
use crate::nic::p4::{
    Ack, AtomicOp, EqHandle, Event, EventKind, FetchAtomic, Get, List, Md, MdHandle, MdOptions, Me, MeOptions,
    NiFail, P4, P4Error, PtOptions, Put, Region, Swap, Target as To,
};

/// How an operation ended.
fn outcome(ni_fail: NiFail) -> Result<(), NiFail> {
    if ni_fail == NiFail::Ok { Ok(()) } else { Err(ni_fail) }
}
use crate::nic::{HostMemory, Nic};
use am_core::Instant;
use fabric_sim::WaitFor;

/// Portal table entries.
const RAR: u32 = 1;
const AM: u32 = 2;
const REPLY: u32 = 3;

const SET_UP: &str = "the interface has room for the conduit's entries";
const OWN: &str = "the conduit puts from its own descriptors, to ranks of the job";

/// A rank's entries, descriptors and queues.
#[derive(Clone, Debug)]
pub(super) struct P4Wire<'a> {
    nic: Nic<'a>,
    p4: P4<'a>,
    safe: EqHandle,
    am: EqHandle,
    segment: MdHandle,
    requests: MdHandle,
    replies: MdHandle,
    results: MdHandle,
    inbox: HostMemory,
    space: Space,
    largest: usize,
}

impl<'a> P4Wire<'a> {
    /// Opens the interface and sets everything up.
    ///
    /// # Panics
    /// If the interface has no room.
    pub(super) fn new(nic: &Nic<'a>, memories: &Memories, space: Space, largest: u32, queues: [u32; 2]) -> Self {
        let p4 = nic.p4();
        p4.init(None).expect("the interface is free for the conduit");
        let safe = p4.eq_alloc(queues[0]).expect("the interface has room for the SAFE queue");
        let am = p4.eq_alloc(queues[1]).expect("the interface has room for the AM queue");
        p4.pt_alloc(PtOptions::NONE, None, Some(RAR)).expect(SET_UP);
        p4.pt_alloc(PtOptions::FLOWCTRL, Some(am), Some(AM)).expect(SET_UP);
        p4.pt_alloc(PtOptions::NONE, Some(safe), Some(REPLY)).expect(SET_UP);
        let quiet = MeOptions::EVENT_LINK_DISABLE;
        let both = MeOptions::OP_PUT | MeOptions::OP_GET | MeOptions::EVENT_COMM_DISABLE;
        let rar = Me::new(&memories.segment, quiet | both, 0, u64::MAX);
        p4.me_append(RAR, &rar, List::Priority, 0).expect(SET_UP);
        let back = quiet | MeOptions::OP_PUT | MeOptions::ACK_DISABLE;
        let back = Me::new(&memories.requests, back, Target::ReqSb as u64, IGNORED);
        p4.me_append(REPLY, &back, List::Priority, 0).expect(SET_UP);
        let bind = |memory: &HostMemory| p4.md_bind(&Md { eq: Some(safe), ..Md::new(memory) }).expect(SET_UP);
        let [segment, requests, replies] = [&memories.segment, &memories.requests, &memories.replies].map(bind);
        let results = bind(&memories.results);
        let wire = Self {
            nic: nic.clone(),
            p4,
            safe,
            am,
            segment,
            requests,
            replies,
            results,
            inbox: memories.inbox.clone(),
            space,
            largest: largest as usize,
        };
        for buffer in 0..space.buffers {
            wire.link(buffer);
        }
        wire
    }

    /// Puts a receive buffer behind the others.
    pub(super) fn link(&self, buffer: u32) {
        let options =
            MeOptions::OP_PUT | MeOptions::MANAGE_LOCAL | MeOptions::NO_TRUNCATE | MeOptions::EVENT_LINK_DISABLE;
        let me = Me {
            start: (u64::from(buffer) * self.space.bytes) as usize,
            length: self.space.bytes as usize,
            min_free: self.largest,
            ..Me::new(&self.inbox, options, Target::ReqRb as u64, IGNORED)
        };
        self.p4.me_append(AM, &me, List::Priority, buffer.into()).expect(SET_UP);
    }

    /// Lets the receiver take requests again.
    pub(super) fn enable(&self) {
        self.p4.pt_enable(AM).expect("the portal table entry is the conduit's");
    }

    #[expect(clippy::too_many_arguments, reason = "these are the interface's")]
    fn put(
        &self,
        from: Region,
        length: u32,
        ack: Ack,
        to: u32,
        pt_index: u32,
        bits: u64,
        offset: u64,
        hdr_data: u64,
        origin: Origin,
    ) {
        let process = self.nic.id(to).expect("frames are for ranks of the job").into();
        let target = To { process, pt_index, match_bits: bits, offset };
        let user_ptr = origin.word();
        self.p4.put(&Put { from, length, ack, target, user_ptr, hdr_data }).expect(OWN);
    }

    /// Puts a request from its chunk.
    pub(super) fn request(&self, to: u32, chunk: u32, len: u32, bits: Bits, data: HeaderData) {
        let from = Region { md: self.requests, offset: chunk.into() };
        self.put(from, len, Ack::Request, to, AM, bits.encode(), 0, data.encode(), Origin::Request);
    }

    /// Puts a reply from its slot into the chunk of its request.
    pub(super) fn reply(&self, to: u32, slot: u64, len: u32, bits: Bits, data: HeaderData) {
        let (from, chunk) = (Region { md: self.replies, offset: slot }, bits.chunk.into());
        self.put(from, len, Ack::None, to, REPLY, bits.encode(), chunk, data.encode(), Origin::Reply);
    }

    /// Puts a Long payload into the peer's segment.
    pub(super) fn payload(&self, to: u32, md: MdHandle, slot: u32, len: u32, at: u64, bits: Bits) {
        let from = Region { md, offset: 0 };
        self.put(from, len, Ack::None, to, RAR, bits.encode(), at, 0, Origin::Temporary(slot));
    }

    /// The descriptor of an operation's local side, and how its events tell it.
    fn local(&self, md: Option<(MdHandle, u32)>, offset: u64) -> (Region, Origin) {
        match md {
            Some((md, slot)) => (Region { md, offset }, Origin::Temporary(slot)),
            None => (Region { md: self.segment, offset }, Origin::Segment),
        }
    }

    /// Begins a one-sided put.
    #[expect(clippy::too_many_arguments, reason = "these are the interface's")]
    pub(super) fn put_direct(
        &self,
        to: u32,
        md: Option<(MdHandle, u32)>,
        from: u64,
        len: u32,
        at: u64,
        bits: u64,
        ack: Ack,
    ) {
        let (from, origin) = self.local(md, from);
        self.put(from, len, ack, to, RAR, bits, at, 0, origin);
    }

    /// Begins a one-sided get.
    pub(super) fn get_direct(
        &self,
        to: u32,
        md: Option<(MdHandle, u32)>,
        into: u64,
        len: u32,
        at: u64,
        bits: u64,
    ) {
        let process = self.nic.id(to).expect("gets are from ranks of the job").into();
        let (region, origin) = self.local(md, into);
        let target = To { process, pt_index: RAR, match_bits: bits, offset: at };
        let get = Get { to: region, length: len, target, user_ptr: origin.word() };
        self.p4.get(&get).expect(OWN);
    }

    /// Begins an atomic operation on a value of a peer's segment. Its operand is at a place of the results'
    /// memory, and what it found comes 8 bytes behind that.
    pub(super) fn atomic(&self, to: u32, place: u64, at: u64, atomic: &Command, bits: u64) {
        let process = self.nic.id(to).expect("atomics are for ranks of the job").into();
        let of = |offset| Region { md: self.results, offset };
        let target = To { process, pt_index: RAR, match_bits: bits, offset: at };
        let (length, user_ptr) = (atomic.datatype.size(), Origin::Segment.word());
        let put = Put { from: of(place), length, ack: Ack::None, target, user_ptr, hdr_data: 0 };
        let Command { operation, datatype, operand, .. } = *atomic;
        let begun = match operation {
            AtomicOp::Swap | AtomicOp::Cswap => {
                self.p4.swap(&Swap { to: of(place + 8), put, operation, datatype, operand })
            }
            _ => self.p4.fetch_atomic(&FetchAtomic { to: of(place + 8), put, operation, datatype }),
        };
        begun.expect(OWN);
    }

    /// Binds memory outside the segment.
    pub(super) fn bind(&self, memory: &HostMemory, start: usize, length: usize) -> MdHandle {
        let options = MdOptions::NONE;
        let md = Md { start, length, options, eq: Some(self.safe), ..Md::new(memory) };
        self.p4.md_bind(&md).expect(SET_UP)
    }

    /// Unbinds such memory, which no operation uses any more.
    pub(super) fn unbind(&self, md: MdHandle) {
        self.p4.md_release(md).expect("nothing uses a descriptor that the cache lets go");
    }

    fn take(&self, queue: EqHandle) -> Option<Event> {
        match self.p4.eq_get(queue) {
            Ok(event) => Some(event),
            Err(P4Error::EqEmpty) => None,
            Err(error) => panic!("flow control and send slots keep room in the event queues: {error}"),
        }
    }

    /// The next event of the SAFE queue.
    pub(super) fn safe(&self) -> Option<Safe> {
        let event = self.take(self.safe)?;
        let (origin, bits) = (Origin::of(event.user_ptr), event.match_bits);
        Some(match event.kind {
            EventKind::Send => Safe::Left { origin, bits },
            EventKind::Ack if origin == Origin::Request => match (event.ni_fail, Bits::decode(bits)) {
                (NiFail::PtDisabled, Some(bits)) => Safe::Refused { bits },
                _ => Safe::Nothing,
            },
            EventKind::Ack => Safe::Delivered { origin, bits, outcome: outcome(event.ni_fail) },
            EventKind::Reply => Safe::Fetched { origin, bits, outcome: outcome(event.ni_fail) },
            EventKind::Put => match (self.nic.rank_of(event.initiator), Bits::decode(bits)) {
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
        match event.kind {
            EventKind::AutoUnlink => return Some(Am::Unlinked(event.user_ptr as u32)),
            EventKind::PtDisabled => return Some(Am::Disabled),
            EventKind::Put => {}
            _ => return Some(Am::Nothing),
        }
        let Some(from) = self.nic.rank_of(event.initiator) else { return Some(Am::Nothing) };
        Some(match Bits::decode(event.match_bits) {
            Some(bits) => {
                let at = event.user_ptr * self.space.bytes + event.remote_offset;
                Am::Request { from, bits, data: HeaderData::decode(event.hdr_data), at, len: event.mlength }
            }
            None => Am::Malformed { from },
        })
    }

    /// Waits for an event of the SAFE queue.
    pub(super) fn idle_safe(&self, wanted: &'static str) {
        self.p4.idle(&[self.safe], None, WaitFor::Named(wanted)).expect("the queue is there");
    }

    /// Waits for an event.
    pub(super) fn idle(&self, until: Option<Instant>, wanted: WaitFor) {
        self.p4.idle(&[self.safe, self.am], until, wanted).expect("the queues are there");
    }
}
