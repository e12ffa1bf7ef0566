//! Whole endpoints over a network whose providers are tables of C functions of this file. From a seed it refuses
//! calls, receipts among them, reorders messages, splits and delays completions, those of messages that share a
//! slot with later ones among them, fails registrations; and does, as mutations that have to be noticed, what no
//! provider may. It keeps messages that find no slot, and lives in a variable of the thread.

use super::abi::{
    FI_EAGAIN, FI_EAVAIL, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MULTI_RECV, FI_RECV,
    FI_WAIT_FD, fi_addr_t, fi_av_attr, fi_cq_attr, fi_cq_data_entry, fi_cq_err_entry, fi_fabric_attr, fi_info,
    fi_msg, fi_msg_rma, fi_ops, fi_ops_av, fi_ops_cm, fi_ops_cq, fi_ops_domain, fi_ops_ep, fi_ops_fabric,
    fi_ops_mr, fi_ops_msg, fi_ops_rma, fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr,
};
use super::info::{Infos, Query};
use super::library::Library;
use super::port::{Opening, Port, Remote};
use super::port_tests::{bind, freeinfo, hand_out, info, own_reason, reason, trywait};
use crate::conduit::{Conduit, Settings};
use crate::error::OfiError;
use crate::memory::OfiMemory;
use crate::wire::Sizes;
use am_core::transport::{Arrival, Body, Refused, ReplyBound, ReplyPath, RequestHeader, Sink};
use am_core::{Payload, Peer, Segment, Shape, Span, Transport as _, Words};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// Bytes of a segment, and of the longest payload, which takes several parts.
const SEGMENT: usize = 1 << 16;
const LONGEST: u64 = 10_000;
/// Looks after which a conversation that is not over never will be.
const PATIENCE: u32 = 20_000;

/// Random numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What no provider may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutation {
    None,
    /// An operation is done, and nobody is told.
    LostCompletion,
    /// A write is told to be done before its bytes are there.
    DataAfterMessage,
}

enum Work {
    Send { to: usize, bytes: Vec<u8> },
    Write { bytes: Vec<u8>, start: usize },
    Read { len: usize, from: usize, start: usize },
}

/// A receive buffer on offer.
struct Offered {
    context: usize,
    start: usize,
    len: usize,
    filled: usize,
}

#[derive(Clone, Copy)]
struct Done {
    context: usize,
    flags: u64,
    buf: usize,
    len: usize,
}

/// What the network keeps for each domain, of which an endpoint has one.
#[derive(Default)]
struct Node {
    inbox: VecDeque<Vec<u8>>,
    offered: VecDeque<Offered>,
    work: VecDeque<(Work, usize)>,
    done: VecDeque<Done>,
    /// Messages that have a place in a slot, and are not there yet.
    under_way: Vec<(Vec<u8>, Done)>,
    cancelled: VecDeque<usize>,
    /// Key, beginning and bytes of what was registered.
    regions: Vec<(u64, usize, usize)>,
    /// Bytes that are told to be there, and are not.
    late: Vec<Work>,
    /// Looks in a row that have found nothing.
    fruitless: u32,
}

struct State {
    random: Random,
    mr_mode: c_int,
    again: u64,
    late: u64,
    reorder: bool,
    mutation: Mutation,
    mutated: u32,
    /// Registrations until one fails.
    registrations: u32,
    /// All endpoints are open.
    talks: bool,
    nodes: Vec<Node>,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

fn with<R>(act: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(|state| act(state.as_mut().expect("there is a network")))
}

impl State {
    fn refuses(&mut self) -> bool {
        let again = self.again;
        self.random.percent(again)
    }

    fn mutates(&mut self, mutation: Mutation) -> bool {
        let now = self.mutation == mutation && self.mutated < 3 && self.random.percent(20);
        self.mutated += u32::from(now);
        now
    }

    /// Carries on what an endpoint has started, and what has come to it.
    fn carry_on(&mut self, me: usize) {
        let late = self.late;
        for _ in 0..self.nodes[me].work.len() {
            let index =
                if self.reorder { self.random.below(self.nodes[me].work.len() as u64) as usize } else { 0 };
            if self.random.percent(late) {
                break;
            }
            let (work, context) = self.nodes[me].work.remove(index).expect("it is among them");
            if matches!(work, Work::Write { .. }) && self.mutates(Mutation::DataAfterMessage) {
                self.nodes[me].late.push(work);
            } else {
                self.carry_out(work);
            }
            if context != 0 && !self.mutates(Mutation::LostCompletion) {
                self.nodes[me].done.push_back(Done { context, flags: 0, buf: 0, len: 8 });
            }
        }
        if self.random.percent(2)
            && let Some(work) = self.nodes[me].late.pop()
        {
            self.carry_out(work);
        }
        let node = &mut self.nodes[me];
        node.under_way.retain(|(bytes, done)| {
            let there = self.random.percent(10);
            if there {
                put(bytes, done.buf);
                node.done.push_back(*done);
            }
            !there
        });
        while let Some(slot) = node.offered.front_mut()
            && let Some(bytes) = node.inbox.pop_front()
        {
            let at = slot.start + slot.filled;
            assert!(bytes.len() <= slot.len - slot.filled, "a message fits the slot on offer");
            slot.filled += bytes.len();
            let several = slot.len > FRAME;
            let full = !several || slot.len - slot.filled < FRAME;
            let flags = FI_RECV | if several && full { FI_MULTI_RECV } else { 0 };
            let done = Done { context: slot.context, flags, buf: at, len: bytes.len() };
            if several && !full && self.random.percent(late / 2) {
                node.under_way.push((bytes, done));
            } else {
                put(&bytes, at);
                node.done.push_back(done);
            }
            if full {
                node.offered.pop_front();
            }
        }
    }

    fn carry_out(&mut self, work: Work) {
        match work {
            Work::Send { to, bytes } => self.nodes[to].inbox.push_back(bytes),
            // SAFETY: the range was registered and is there as long as the endpoints are.
            Work::Write { bytes, start } => unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len());
            },
            // SAFETY: as above; the buffer is lent.
            Work::Read { len, from, start } => unsafe {
                ptr::copy_nonoverlapping(from as *const u8, start as *mut u8, len);
            },
        }
    }
}

/// Writes a message to its place in a slot.
fn put(bytes: &[u8], at: usize) {
    // SAFETY: the slot was offered, had room for the message, and has not been given back since.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
}

static COMMON: fi_ops = fi_ops { size: size_of::<fi_ops>(), close, bind, control };

const fn object(node: usize) -> fid {
    fid { fclass: 0, context: ptr::without_provenance_mut(node), ops: &raw const COMMON }
}

/// The number of an object's node, which its beginning has.
///
/// # Safety
/// The object was made here.
unsafe fn node<T>(object: *const T) -> usize {
    // SAFETY: the caller says so; every object begins so.
    unsafe { (*object.cast::<fid>()).context.addr() }
}

unsafe extern "C" fn close(_: *mut fid) -> c_int {
    0
}

unsafe extern "C" fn control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn getinfo(
    _: u32,
    _: *const c_char,
    _: *const c_char,
    _: u64,
    _: *const fi_info,
    place: *mut *mut fi_info,
) -> c_int {
    // SAFETY: it looks at nothing.
    let made = unsafe { dupinfo(ptr::null()) };
    // SAFETY: the caller has a place.
    unsafe { *place = made };
    0
}

unsafe extern "C" fn dupinfo(_: *const fi_info) -> *mut fi_info {
    info(with(|state| state.mr_mode))
}

unsafe extern "C" fn fabric(_: *mut fi_fabric_attr, place: *mut *mut fid_fabric, _: *mut c_void) -> c_int {
    static OPS: fi_ops_fabric =
        fi_ops_fabric { size: 0, domain, passive_ep: None, eq_open: None, wait_open: None, trywait };
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_fabric { fid: object(0), ops: &raw const OPS, api_version: 0 }) }
}

unsafe extern "C" fn domain(
    _: *mut fid_fabric,
    _: *mut fi_info,
    place: *mut *mut fid_domain,
    _: *mut c_void,
) -> c_int {
    static OPS: fi_ops_domain = fi_ops_domain { size: 0, av_open, cq_open, endpoint };
    static MR: fi_ops_mr = fi_ops_mr { size: 0, reg };
    let number = with(|state| {
        state.nodes.push(Node::default());
        state.nodes.len() - 1
    });
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_domain { fid: object(number), ops: &raw const OPS, mr: &raw const MR }) }
}

unsafe extern "C" fn av_open(
    _: *mut fid_domain,
    _: *mut fi_av_attr,
    place: *mut *mut fid_av,
    _: *mut c_void,
) -> c_int {
    static OPS: fi_ops_av = fi_ops_av { size: 0, insert };
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_av { fid: object(0), ops: &raw const OPS }) }
}

unsafe extern "C" fn insert(
    _: *mut fid_av,
    name: *const c_void,
    _: usize,
    place: *mut fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller has a name, which is a number.
    let number = unsafe { name.cast::<u64>().read_unaligned() };
    // SAFETY: the caller has a place.
    unsafe { *place = number };
    1
}

unsafe extern "C" fn getname(ep: *mut fid, place: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: it was made here.
    let number = unsafe { node(ep) } as u64;
    // SAFETY: the caller has room for more than that.
    unsafe { place.cast::<u64>().write_unaligned(number) };
    // SAFETY: the caller says where the length is.
    unsafe { *len = 8 };
    0
}

unsafe extern "C" fn cq_open(
    domain: *mut fid_domain,
    attributes: *mut fi_cq_attr,
    place: *mut *mut fid_cq,
    _: *mut c_void,
) -> c_int {
    static OPS: fi_ops_cq = fi_ops_cq {
        size: 0,
        read,
        readfrom: None,
        readerr,
        sread: None,
        sreadfrom: None,
        signal: None,
        strerror: own_reason,
    };
    // SAFETY: the caller has attributes.
    if unsafe { (*attributes).wait_obj } == FI_WAIT_FD {
        return -libc::ENOSYS;
    }
    // SAFETY: it was made here.
    let number = unsafe { node(domain) };
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_cq { fid: object(number), ops: &raw const OPS }) }
}

unsafe extern "C" fn read(cq: *mut fid_cq, place: *mut c_void, most: usize) -> isize {
    // SAFETY: it was made here.
    let me = unsafe { node(cq) };
    let (done, cancelled) = with(|state| {
        state.carry_on(me);
        let late = state.late;
        // A part of what is done, or nothing yet.
        let most = if state.random.percent(late) { 0 } else { 1 + state.random.below(most as u64) as usize };
        let node = &mut state.nodes[me];
        let count = most.min(node.done.len());
        (node.done.drain(..count).collect::<Vec<_>>(), !node.cancelled.is_empty())
    });
    for (index, Done { context, flags, buf, len }) in done.iter().copied().enumerate() {
        let (op_context, buf) = (context as *mut c_void, buf as *mut c_void);
        let entry = fi_cq_data_entry { op_context, flags, len, buf, data: 0 };
        // SAFETY: the caller has room for so many entries of this format.
        let place = unsafe { place.cast::<fi_cq_data_entry>().add(index) };
        // SAFETY: as above.
        unsafe { place.write(entry) };
    }
    let fruitless = with(|state| {
        let fruitless = &mut state.nodes[me].fruitless;
        *fruitless = if done.is_empty() { *fruitless + 1 } else { 0 };
        *fruitless
    });
    match done.len() {
        0 if cancelled => -FI_EAVAIL,
        // A call that waits for ever, as some do after a mutation, ends.
        0 if fruitless > 2 * PATIENCE => -(libc::EIO as isize),
        0 => -FI_EAGAIN,
        count => count as isize,
    }
}

unsafe extern "C" fn readerr(cq: *mut fid_cq, place: *mut fi_cq_err_entry, _: u64) -> isize {
    // SAFETY: it was made here.
    let me = unsafe { node(cq) };
    let Some(context) = with(|state| state.nodes[me].cancelled.pop_front()) else { return -FI_EAGAIN };
    // SAFETY: the caller has an entry.
    let entry = unsafe { &mut *place };
    (entry.op_context, entry.err) = (context as *mut c_void, libc::ECANCELED);
    1
}

unsafe extern "C" fn endpoint(
    domain: *mut fid_domain,
    _: *mut fi_info,
    place: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    static OPS: fi_ops_ep = fi_ops_ep { size: 0, cancel, getopt: None, setopt };
    static CM: fi_ops_cm = fi_ops_cm { size: 0, setname: None, getname };
    static MSG: fi_ops_msg =
        fi_ops_msg { size: 0, recv, recvv: None, recvmsg, send, sendv: None, sendmsg: None, inject };
    static RMA: fi_ops_rma = fi_ops_rma {
        size: 0,
        read: None,
        readv: None,
        readmsg: read_from,
        write: None,
        writev: None,
        writemsg: write_to,
    };
    let (ops, cm, msg, rma) = (&raw const OPS, &raw const CM, &raw const MSG, &raw const RMA);
    // SAFETY: it was made here.
    let number = unsafe { node(domain) };
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_ep { fid: object(number), ops, cm, msg, rma }) }
}

unsafe extern "C" fn setopt(_: *mut fid, _: c_int, _: c_int, _: *const c_void, _: usize) -> c_int {
    0
}

unsafe extern "C" fn cancel(ep: *mut fid, context: *mut c_void) -> isize {
    // SAFETY: it was made here.
    let me = unsafe { node(ep) };
    with(|state| {
        let node = &mut state.nodes[me];
        let before = node.offered.len();
        node.offered.retain(|slot| slot.context != context as usize);
        if node.offered.len() != before {
            node.cancelled.push_back(context as usize);
        }
    });
    0
}

/// Offers a slot; refused now and then once the endpoint has begun to talk.
fn offer(me: usize, context: usize, start: usize, len: usize) -> isize {
    with(|state| {
        if state.talks && state.refuses() {
            return -FI_EAGAIN;
        }
        let node = &mut state.nodes[me];
        assert!(node.offered.iter().all(|slot| slot.context != context), "a slot is offered twice");
        node.offered.push_back(Offered { context, start, len, filled: 0 });
        0
    })
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    start: *mut c_void,
    len: usize,
    _: *mut c_void,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: it was made here.
    offer(unsafe { node(ep) }, context as usize, start as usize, len)
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, message: *const fi_msg, _: u64) -> isize {
    // SAFETY: the caller has a description.
    let message = unsafe { &*message };
    // SAFETY: it describes one place.
    let place = unsafe { &*message.msg_iov };
    // SAFETY: it was made here.
    offer(unsafe { node(ep) }, message.context as usize, place.iov_base as usize, place.iov_len)
}

/// Starts a message.
///
/// # Safety
/// There have to be so many bytes.
unsafe fn start(ep: *mut fid_ep, bytes: *const c_void, len: usize, to: fi_addr_t, context: usize) -> isize {
    // SAFETY: it was made here.
    let me = unsafe { node(ep) };
    if with(State::refuses) {
        return -FI_EAGAIN;
    }
    // SAFETY: the caller has so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) }.to_vec();
    with(|state| state.nodes[me].work.push_back((Work::Send { to: to as usize, bytes }, context)));
    0
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    bytes: *const c_void,
    len: usize,
    _: *mut c_void,
    to: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller has so many bytes.
    unsafe { start(ep, bytes, len, to, context as usize) }
}

unsafe extern "C" fn inject(ep: *mut fid_ep, bytes: *const c_void, len: usize, to: fi_addr_t) -> isize {
    // SAFETY: the caller has so many bytes.
    unsafe { start(ep, bytes, len, to, 0) }
}

/// Starts a read or a write.
///
/// # Safety
/// There has to be a description.
unsafe fn access(ep: *mut fid_ep, message: *const fi_msg_rma, writes: bool) -> isize {
    // SAFETY: the caller has a description.
    let message = unsafe { &*message };
    // SAFETY: it describes one place here.
    let here = unsafe { &*message.msg_iov };
    // SAFETY: and one there.
    let there = unsafe { &*message.rma_iov };
    // SAFETY: it was made here.
    let me = unsafe { node(ep) };
    with(|state| {
        if state.refuses() {
            return -FI_EAGAIN;
        }
        let to = message.addr as usize;
        let region = state.nodes[to].regions.iter().find(|(key, ..)| *key == there.key);
        let (_, start, len) = *region.expect("what is accessed is registered");
        let base = if state.mr_mode & FI_MR_VIRT_ADDR != 0 { 0 } else { start };
        let at = base + there.addr as usize;
        assert!(at >= start && at + there.len <= start + len && there.len == here.iov_len, "it stays inside");
        let local = here.iov_base as usize;
        let work = if writes {
            // SAFETY: the buffer is lent, and has so many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(local as *const u8, here.iov_len) }.to_vec();
            Work::Write { bytes, start: at }
        } else {
            Work::Read { len: here.iov_len, from: at, start: local }
        };
        state.nodes[me].work.push_back((work, message.context as usize));
        0
    })
}

unsafe extern "C" fn read_from(ep: *mut fid_ep, message: *const fi_msg_rma, _: u64) -> isize {
    // SAFETY: the caller has a description.
    unsafe { access(ep, message, false) }
}

unsafe extern "C" fn write_to(ep: *mut fid_ep, message: *const fi_msg_rma, _: u64) -> isize {
    // SAFETY: the caller has a description.
    unsafe { access(ep, message, true) }
}

unsafe extern "C" fn reg(
    domain: *mut fid,
    start: *const c_void,
    len: usize,
    _: u64,
    _: u64,
    key: u64,
    _: u64,
    place: *mut *mut fid_mr,
    _: *mut c_void,
) -> c_int {
    // SAFETY: it was made here.
    let me = unsafe { node(domain) };
    let fails = with(|state| {
        let fails = state.registrations == 0;
        if state.registrations != u32::MAX {
            state.registrations = state.registrations.checked_sub(1).unwrap_or(u32::MAX);
        }
        state.nodes[me].regions.push((key, start as usize, len));
        fails
    });
    if fails {
        return -libc::ENOMEM;
    }
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_mr { fid: object(me), mem_desc: ptr::null_mut(), key }) }
}

/// Bytes of a frame's buffer.
const FRAME: usize = 512;
const MEDIUM: usize = 256;

/// What an endpoint has seen.
#[derive(Default)]
struct Player {
    sent: [u32; 3],
    seen: [u32; 3],
    replies: u32,
    asked: u32,
    findings: Vec<String>,
}

fn pattern(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|index| (number as usize * 31 + index * 7) as u8).collect()
}

impl Player {
    fn check(&mut self, what: &str, arrival: &Arrival<'_>) -> u32 {
        let [number, len] = [0, 1].map(|word| arrival.args.word(word).unwrap_or(u32::MAX));
        if arrival.payload.to_vec() != pattern(number, len as usize) {
            self.findings.push(format!("{what} {number} of {len} bytes is not as it was sent"));
        }
        number
    }
}

impl Sink for Player {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        let number = self.check("request", &arrival);
        let due = std::mem::replace(&mut self.seen[arrival.from.index()], number.wrapping_add(1));
        if number != due {
            self.findings.push(format!("request {number} comes where {due} is due"));
        }
        if path.bound() > 0 {
            let bytes = pattern(number, (number as usize * 37) % 200);
            let args = Words::from_slice(&[number, bytes.len() as u32]).expect("two words fit");
            if path.send(1, &args, Body::Copy(&bytes)).is_err() {
                self.findings.push(format!("a reply to {number} is refused"));
            }
        }
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        self.check("reply", &arrival);
        self.replies += 1;
    }

    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

fn ask(conduit: &mut Conduit<Port>, player: &mut Player, me: usize, to: usize, random: &mut Random) {
    let number = player.sent[to];
    let bound = if random.percent(60) { ReplyBound::UpTo(256) } else { ReplyBound::None };
    let head = RequestHeader::new(0, bound);
    let args = |len: usize| Words::from_slice(&[number, len as u32]).expect("two words fit");
    let peer = Peer(to as u32);
    let result = match random.below(3) {
        0 => conduit.send(peer, head, &args(0), Body::None),
        1 => {
            let bytes = pattern(number, random.below(MEDIUM as u64) as usize);
            conduit.send(peer, head, &args(bytes.len()), Body::Copy(&bytes))
        }
        _ => {
            let bytes = pattern(number, random.below(LONGEST) as usize);
            conduit.send(peer, head, &args(bytes.len()), Body::Place(&bytes, 16_000 * me as u64 + 3))
        }
    };
    match result {
        Ok(()) => {
            player.sent[to] += 1;
            player.asked += u32::from(bound != ReplyBound::None);
        }
        Err(Refused::Busy(_)) => {}
        Err(Refused::Gone(status)) => player.findings.push(format!("{to} is gone: {status:?}")),
    }
}

/// Opens a port; one whose registration fails is opened once more.
fn open(sizes: Sizes, segment: &Segment<OfiMemory>) -> Port {
    let library: &'static Library = Box::leak(Box::new(Library::fake(getinfo, freeinfo, dupinfo, fabric, reason)));
    let open = || {
        let mut infos = Infos::ask(library, Query::default()).expect("the provider answers");
        let segment = &segment.erase();
        Port::open(Opening { infos: &mut infos, offer: 0, provider: "tcp", sizes, segment })
    };
    match open() {
        Err(OfiError::Call { call: "fi_mr_reg", code: libc::ENOMEM, .. }) => {
            open().expect("the next one succeeds")
        }
        other => other.expect("nothing else fails"),
    }
}

/// A conversation from a seed; what went wrong.
fn converse(seed: u64, mutation: Mutation) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mr_mode = [0, FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR][random.below(2) as usize];
    let (again, late, reorder) = (random.below(60), random.below(60), random.percent(70));
    STATE.set(Some(State {
        random: Random::new(seed ^ 0xace),
        mr_mode,
        again,
        late,
        reorder,
        mutation,
        mutated: 0,
        registrations: u32::MAX,
        talks: false,
        nodes: Vec::new(),
    }));
    let peers = 2 + random.below(2) as u32;
    let (window, several) = (1 + random.below(4) as u32, random.percent(40));
    let sizes = Sizes {
        frames: 1 + random.below(6) as u32,
        frame_bytes: FRAME,
        chunks: 1 + random.below(3) as u32,
        chunk_bytes: 4096,
        slots: if several { 2 } else { 1 + random.below(u64::from(Settings::slots(peers, window))) as u32 },
        slot_bytes: if several { 3 * FRAME } else { FRAME },
        inject: 64,
    };
    let segments: Vec<Segment<OfiMemory>> =
        (0..peers).map(|_| Segment::new(OfiMemory::new(SEGMENT).expect("memory"), SEGMENT)).collect();
    let mut ports = Vec::new();
    for segment in &segments {
        if random.percent(30) {
            let failing = random.below(if mr_mode == 0 { 1 } else { 4 }) as u32;
            with(|state| state.registrations = failing);
        }
        ports.push(open(sizes, segment));
        with(|state| state.registrations = u32::MAX);
    }
    let names: Vec<(Vec<u8>, Remote)> =
        ports.iter().map(|port| (port.name().expect("it has one"), port.own())).collect();
    with(|state| state.talks = true);
    let shape = Shape::new(peers);
    let (linger, backoff) = (Span::from_millis(0), Span::from_millis(1));
    let mut conduits = Vec::new();
    for (me, (mut port, segment)) in (0..peers).zip(ports.into_iter().zip(segments)) {
        let all = names.iter().map(|(name, remote)| (Some(&name[..]), *remote));
        port.connect(all).expect("names are addresses");
        let segments = vec![SEGMENT as u64; peers as usize];
        let settings = Settings { me: Peer(me), shape, tag: 7, window, medium: MEDIUM, segments, linger, backoff };
        conduits.push(Conduit::new(port, settings, segment).expect("there is memory"));
    }
    let mut players: Vec<Player> = conduits.iter().map(|_| Player::default()).collect();
    let over = |conduits: &mut Vec<Conduit<Port>>, players: &[Player]| {
        let answered = players.iter().all(|player| player.asked == player.replies);
        answered && conduits.iter_mut().all(am_core::Transport::is_quiescent)
    };
    for turn in 0..PATIENCE {
        for me in 0..conduits.len() {
            let to = (me + 1 + random.below(u64::from(peers) - 1) as usize) % peers as usize;
            // A payload lies at one place for each pair: it is compared before the next one is sent.
            if turn < 100 && conduits[me].is_quiescent() {
                ask(&mut conduits[me], &mut players[me], me, to, &mut random);
            }
            conduits[me].poll(1 + random.below(4) as usize, &mut players[me]);
        }
        if turn >= 100 && over(&mut conduits, &players) {
            break;
        }
    }
    let mut findings: Vec<String> = players.iter_mut().flat_map(|player| player.findings.drain(..)).collect();
    if !over(&mut conduits, &players) {
        findings.push("somebody waits for ever".into());
    }
    for (me, player) in players.iter().enumerate() {
        for (to, other) in players.iter().enumerate() {
            if player.sent[to] != other.seen[me] {
                findings.push(format!("{} requests from {me} to {to}, {} seen", player.sent[to], other.seen[me]));
            }
        }
    }
    // Nothing is carried out any more that goes to memory of those that are gone.
    with(|state| {
        state.again = 100;
        for node in &mut state.nodes {
            node.work.clear();
            node.late.clear();
            node.inbox.clear();
        }
    });
    drop(conduits);
    findings.first().map_or(Ok(()), |first| Err(format!("seed {seed}: {first} (of {})", findings.len())))
}

#[test]
fn conversations_survive_any_provider() {
    for seed in 1..=1000 {
        converse(seed, Mutation::None).unwrap();
    }
}

#[test]
fn what_no_provider_may_do_is_noticed() {
    for mutation in [Mutation::LostCompletion, Mutation::DataAfterMessage] {
        let noticed = (1..=20).filter(|seed| converse(*seed, mutation).is_err()).count();
        assert!(noticed > 0);
    }
}
