//! The port over a provider made of functions of this file: what it registers, calls back and closes, and what it
//! makes of errors. The provider keeps what it is told in a variable of the thread.

use super::abi::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_EAVAIL, FI_GETWAIT, FI_MR_ENDPOINT, FI_MR_LOCAL,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_MULTI_RECV, FI_OPT_MIN_MULTI_RECV, FI_RECV, FI_WAIT_FD, fi_addr_t,
    fi_av_attr, fi_cq_attr, fi_cq_data_entry, fi_cq_err_entry, fi_domain_attr, fi_ep_attr, fi_fabric_attr,
    fi_info, fi_msg, fi_msg_rma, fi_ops, fi_ops_av, fi_ops_cm, fi_ops_cq, fi_ops_domain, fi_ops_ep, fi_ops_fabric,
    fi_ops_mr, fi_ops_msg, fi_ops_rma, fi_rx_attr, fi_tx_attr, fid, fid_av, fid_cq, fid_domain, fid_ep,
    fid_fabric, fid_mr,
};
use super::info::{Infos, Query};
use super::library::Library;
use super::port::{Opening, Port};
use crate::error::OfiError;
use crate::memory::OfiMemory;
use crate::wire::{Event, Failure, Fault, Operation, Receipt, Sizes, Wire};
use am_core::Segment;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;

/// What the provider was told, and what it is to do.
#[derive(Default)]
struct State {
    mr_mode: c_int,
    /// Registrations that succeed.
    registrations: usize,
    log: Vec<&'static str>,
    /// Contexts of slots on offer.
    offered: Vec<usize>,
    done: VecDeque<Done>,
    /// Contexts and codes of operations that have failed, and the flags of their completions.
    failed: VecDeque<(usize, c_int, c_int, u64)>,
    /// Of slots on offer for several messages: context, beginning, bytes.
    shared: Vec<(usize, usize, usize)>,
    /// The least room that such a slot is to have left.
    least: usize,
    /// The descriptor of completion queues, if they have one.
    queue: Option<UnixStream>,
    /// The flags of the reads and writes that were started.
    accessed: Vec<u64>,
}

/// A completion.
struct Done {
    context: usize,
    flags: u64,
    buf: usize,
    len: usize,
}

impl Done {
    /// Of an operation that is no receipt.
    fn of(context: usize) -> Self {
        Self { context, flags: 0, buf: 0, len: 8 }
    }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

fn with<R>(act: impl FnOnce(&mut State) -> R) -> R {
    STATE.with_borrow_mut(act)
}

/// Something zero, for good.
fn leak<T>(value: T) -> *mut T {
    Box::leak(Box::new(value))
}

const fn object(class: usize) -> fid {
    fid { fclass: class, context: ptr::null_mut(), ops: &raw const COMMON }
}

/// Makes an object and hands it out.
///
/// # Safety
/// There has to be a place for it.
pub(super) unsafe fn hand_out<T>(place: *mut *mut T, value: T) -> c_int {
    // SAFETY: the caller has a place.
    unsafe { *place = leak(value) };
    0
}

const NAMES: [&str; 6] = ["fabric", "domain", "av", "cq", "ep", "mr"];

static COMMON: fi_ops = fi_ops { size: size_of::<fi_ops>(), close, bind, control };

unsafe extern "C" fn close(object: *mut fid) -> c_int {
    // SAFETY: the object was made here and never goes.
    let class = unsafe { (*object).fclass };
    with(|state| {
        assert!(class != 5 || state.offered.is_empty(), "a registration goes while slots are on offer");
        if class == 4 {
            state.offered.clear();
        }
        state.log.push(NAMES[class]);
    });
    0
}

pub(super) unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_: *mut fid, command: c_int, place: *mut c_void) -> c_int {
    if command == FI_GETWAIT {
        let number = with(|state| state.queue.as_ref().expect("a queue with a descriptor").as_raw_fd());
        // SAFETY: the caller has a place for a number.
        unsafe { place.cast::<c_int>().write(number) };
    }
    0
}

pub(super) unsafe extern "C" fn trywait(_: *mut fid_fabric, _: *mut *mut fid, count: c_int) -> c_int {
    assert_eq!(count, 1);
    with(|state| if state.done.is_empty() && state.failed.is_empty() { 0 } else { -libc::EAGAIN })
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

pub(super) unsafe extern "C" fn freeinfo(_: *mut fi_info) {}

unsafe extern "C" fn dupinfo(_: *const fi_info) -> *mut fi_info {
    info(with(|state| state.mr_mode))
}

/// An answer of a provider that asks for these modes of registration.
pub(super) fn info(mr_mode: c_int) -> *mut fi_info {
    leak(fi_info {
        next: ptr::null_mut(),
        caps: 0,
        mode: 0,
        addr_format: 0,
        src_addrlen: 0,
        dest_addrlen: 0,
        src_addr: ptr::null_mut(),
        dest_addr: ptr::null_mut(),
        handle: ptr::null_mut(),
        tx_attr: leak(fi_tx_attr {
            caps: 0,
            mode: 0,
            op_flags: 0,
            msg_order: 0,
            comp_order: 0,
            inject_size: 64,
            size: 64,
            iov_limit: 1,
            rma_iov_limit: 1,
            tclass: 0,
        }),
        rx_attr: leak(fi_rx_attr {
            caps: 0,
            mode: 0,
            op_flags: 0,
            msg_order: 0,
            comp_order: 0,
            total_buffered_recv: 0,
            size: 64,
            iov_limit: 1,
        }),
        ep_attr: leak(fi_ep_attr { r#type: 3, protocol: 0, protocol_version: 0, max_msg_size: 1 << 20 }),
        domain_attr: leak(fi_domain_attr {
            domain: ptr::null_mut(),
            name: ptr::null_mut(),
            threading: 0,
            control_progress: 0,
            data_progress: 0,
            resource_mgmt: 0,
            av_type: 0,
            mr_mode,
            mr_key_size: 8,
            cq_data_size: 0,
            cq_cnt: 1,
            ep_cnt: 1,
        }),
        fabric_attr: leak(fi_fabric_attr {
            fabric: ptr::null_mut(),
            name: ptr::null_mut(),
            prov_name: ptr::null_mut(),
            prov_version: 0,
            api_version: 0,
        }),
        nic: ptr::null_mut(),
    })
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
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_domain { fid: object(1), ops: &raw const OPS, mr: &raw const MR }) }
}

unsafe extern "C" fn av_open(
    _: *mut fid_domain,
    _: *mut fi_av_attr,
    place: *mut *mut fid_av,
    _: *mut c_void,
) -> c_int {
    static OPS: fi_ops_av = fi_ops_av { size: 0, insert };
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_av { fid: object(2), ops: &raw const OPS }) }
}

unsafe extern "C" fn insert(
    _: *mut fid_av,
    _: *const c_void,
    _: usize,
    place: *mut fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller has a place.
    unsafe { *place = 0 };
    1
}

unsafe extern "C" fn cq_open(
    _: *mut fid_domain,
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
    let wait_obj = unsafe { (*attributes).wait_obj };
    if wait_obj == FI_WAIT_FD && with(|state| state.queue.is_none()) {
        return -libc::ENOSYS;
    }
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_cq { fid: object(3), ops: &raw const OPS }) }
}

unsafe extern "C" fn read(_: *mut fid_cq, place: *mut c_void, _: usize) -> isize {
    let (done, failed) = with(|state| (state.done.pop_front(), !state.failed.is_empty()));
    let Some(done) = done else { return if failed { -FI_EAVAIL } else { -FI_EAGAIN } };
    let Done { context, flags, buf, len } = done;
    let (op_context, buf) = (context as *mut c_void, buf as *mut c_void);
    let entry = fi_cq_data_entry { op_context, flags, len, buf, data: 0 };
    // SAFETY: the caller has room for an entry of this format.
    unsafe { place.cast::<fi_cq_data_entry>().write(entry) };
    1
}

unsafe extern "C" fn readerr(_: *mut fid_cq, place: *mut fi_cq_err_entry, _: u64) -> isize {
    let Some((context, err, own, flags)) = with(|state| state.failed.pop_front()) else { return -FI_EAGAIN };
    // SAFETY: the caller has an entry.
    let entry = unsafe { &mut *place };
    (entry.op_context, entry.err, entry.prov_errno) = (context as *mut c_void, err, own);
    entry.flags = flags;
    1
}

pub(super) unsafe extern "C" fn own_reason(
    _: *mut fid_cq,
    _: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: usize,
) -> *const c_char {
    c"the cable is out".as_ptr()
}

unsafe extern "C" fn endpoint(
    _: *mut fid_domain,
    _: *mut fi_info,
    place: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    static OPS: fi_ops_ep = fi_ops_ep { size: 0, cancel, getopt: None, setopt };
    static CM: fi_ops_cm = fi_ops_cm { size: 0, setname: None, getname };
    static MSG: fi_ops_msg =
        fi_ops_msg { size: 0, recv, recvv: None, recvmsg, send, sendv: None, sendmsg: None, inject };
    static RMA: fi_ops_rma =
        fi_ops_rma { size: 0, read: None, readv: None, readmsg: rma, write: None, writev: None, writemsg: rma };
    let (ops, cm, msg, rma) = (&raw const OPS, &raw const CM, &raw const MSG, &raw const RMA);
    let made = fid_ep { fid: object(4), ops, cm, msg, rma };
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, made) }
}

unsafe extern "C" fn cancel(_: *mut fid, context: *mut c_void) -> isize {
    with(|state| {
        state.log.push("cancel");
        state.offered.retain(|offered| *offered != context as usize);
        state.failed.push_back((context as usize, libc::ECANCELED, 0, 0));
    });
    0
}

unsafe extern "C" fn getname(_: *mut fid, place: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller has room for more than that.
    unsafe { ptr::copy_nonoverlapping(c"fake".as_ptr().cast(), place.cast::<u8>(), 4) };
    // SAFETY: the caller says where the length is.
    unsafe { *len = 4 };
    0
}

unsafe extern "C" fn recv(
    _: *mut fid_ep,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    with(|state| state.offered.push(context as usize));
    0
}

unsafe extern "C" fn recvmsg(_: *mut fid_ep, message: *const fi_msg, flags: u64) -> isize {
    assert_ne!(flags & FI_MULTI_RECV, 0, "a slot for one message is offered otherwise");
    // SAFETY: the caller has a description.
    let message = unsafe { &*message };
    // SAFETY: it describes one place.
    let place = unsafe { &*message.msg_iov };
    with(|state| {
        let context = message.context as usize;
        assert!(!state.offered.contains(&context), "a slot is offered twice");
        state.offered.push(context);
        state.shared.push((context, place.iov_base as usize, place.iov_len));
    });
    0
}

unsafe extern "C" fn setopt(_: *mut fid, _: c_int, option: c_int, value: *const c_void, len: usize) -> c_int {
    assert_eq!((option, len), (FI_OPT_MIN_MULTI_RECV, size_of::<usize>()));
    // SAFETY: the caller has a number of this size.
    let least = unsafe { *value.cast::<usize>() };
    with(|state| state.least = least);
    0
}

unsafe extern "C" fn send(
    _: *mut fid_ep,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: fi_addr_t,
    context: *mut c_void,
) -> isize {
    with(|state| state.failed.push_back((context as usize, libc::ECONNRESET, 77, 0)));
    0
}

unsafe extern "C" fn inject(_: *mut fid_ep, _: *const c_void, _: usize, _: fi_addr_t) -> isize {
    -FI_EAGAIN
}

unsafe extern "C" fn rma(_: *mut fid_ep, message: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the caller has a description.
    let context = unsafe { (*message).context };
    with(|state| {
        state.done.push_back(Done::of(context as usize));
        state.accessed.push(flags);
    });
    0
}

unsafe extern "C" fn reg(
    _: *mut fid,
    _: *const c_void,
    _: usize,
    _: u64,
    _: u64,
    key: u64,
    _: u64,
    place: *mut *mut fid_mr,
    _: *mut c_void,
) -> c_int {
    let fails = with(|state| {
        let fails = state.registrations == 0;
        state.registrations = state.registrations.saturating_sub(1);
        fails
    });
    if fails {
        return -libc::ENOMEM;
    }
    // SAFETY: the caller has a place.
    unsafe { hand_out(place, fid_mr { fid: object(5), mem_desc: ptr::null_mut(), key: 100 + key }) }
}

pub(super) unsafe extern "C" fn reason(code: c_int) -> *const c_char {
    let text: &CStr = if code == libc::ENOMEM { c"no memory" } else { c"reset" };
    text.as_ptr()
}

const SIZES: Sizes =
    Sizes { frames: 2, frame_bytes: 256, chunks: 1, chunk_bytes: 4096, slots: 3, slot_bytes: 256, inject: 64 };

/// A port over the provider in this mode, some of whose registrations succeed.
fn open(mr_mode: c_int, registrations: usize) -> Result<Port, OfiError> {
    open_sized(mr_mode, registrations, SIZES)
}

/// A port with slots for several messages.
fn open_shared(mr_mode: c_int) -> Port {
    open_sized(mr_mode, 9, Sizes { slots: 2, slot_bytes: 1024, ..SIZES }).unwrap()
}

fn open_sized(mr_mode: c_int, registrations: usize, sizes: Sizes) -> Result<Port, OfiError> {
    with(|state| *state = State { mr_mode, registrations, queue: state.queue.take(), ..State::default() });
    let library: &'static Library = Box::leak(Box::new(Library::fake(getinfo, freeinfo, dupinfo, fabric, reason)));
    let mut infos = Infos::ask(library, Query::default())?;
    let segment = Segment::new(OfiMemory::new(8192).unwrap(), 8192).erase();
    let opening = Opening { infos: &mut infos, offer: 0, provider: "fake", sizes, segment: &segment };
    Port::open(opening)
}

fn log() -> Vec<&'static str> {
    with(|state| std::mem::take(&mut state.log))
}

const ALL: c_int = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;

#[test]
fn registrations_of_an_endpoint_go_between_its_slots_and_itself() {
    drop(open(ALL, 9).unwrap());
    let [slots, regions] = [["cancel"; 3].as_slice(), &["mr"; 4]];
    assert_eq!(log(), [slots, regions, &["ep", "cq", "av", "domain", "fabric"]].concat());
    // Others may go with slots on offer, after the endpoint; a segment alone is registered.
    drop(open(0, 9).unwrap());
    assert_eq!(log(), ["ep", "mr", "cq", "av", "domain", "fabric"]);
}

#[test]
fn modes_decide_what_peers_are_told() {
    let port = open(FI_MR_PROV_KEY, 9).unwrap();
    assert_eq!((port.own().key, port.own().base), (101, 0));
    let port = open(FI_MR_VIRT_ADDR, 9).unwrap();
    assert_ne!(port.own().base, 0);
    assert_eq!(port.name().unwrap(), b"fake");
}

#[test]
fn a_registration_that_fails_closes_everything() {
    for registrations in 0..4 {
        let error = open(ALL, registrations).unwrap_err().to_string();
        assert!(
            error.starts_with("fi_mr_reg of libfabric's provider fake failed: no memory (12) (memory for"),
            "{error}"
        );
        assert!(error.contains("ulimit -l"), "{error}");
        let log = log();
        let closed = |name| log.iter().filter(|closed| **closed == name).count();
        assert_eq!((closed("mr"), closed("ep"), closed("fabric")), (registrations, 1, 1));
    }
}

#[test]
fn errors_keep_the_providers_own_code() {
    let mut port = open(0, 9).unwrap();
    port.connect([(Some(&b"fake"[..]), port.own())].into_iter()).unwrap();
    assert_eq!(port.inject(0, 0, 8), Err(Fault::Again));
    port.send(0, 0, 8).unwrap();
    let mut events = Vec::with_capacity(8);
    port.poll(&mut events).unwrap();
    let failure = Failure { code: libc::ECONNRESET, own: 77 };
    assert_eq!(events, [Event::Failed(Some(Operation::Send(0)), failure)]);
    let reason = "reset (104) of libfabric's provider fake, its own 77: the cable is out";
    assert_eq!(port.explain(failure), reason);
}

#[test]
fn completions_of_nothing_are_ignored() {
    let mut port = open(0, 9).unwrap();
    port.connect([(Some(&b"fake"[..]), port.own())].into_iter()).unwrap();
    port.write(0, 2, 100, 0).unwrap();
    let context = with(|state| state.done[0].context);
    // An address beside the contexts, one within a context, the same completion twice.
    with(|state| state.done.extend([0, context + 8, context].map(Done::of)));
    let mut events = Vec::with_capacity(8);
    while with(|state| !state.done.is_empty()) {
        port.poll(&mut events).unwrap();
    }
    assert_eq!(events, [Event::Done(Operation::Write(2))]);
}

/// What is not there when it is done is lost with a connection that the provider replaces without a word, and the
/// writes behind it are not: an order among them tells nothing.
#[test]
fn each_write_is_done_when_it_is_there() {
    let mut port = open(0, 9).unwrap();
    port.connect([(Some(&b"fake"[..]), port.own())].into_iter()).unwrap();
    for part in 0..3 {
        port.write(0, part, 100, 100 * u64::from(part)).unwrap();
    }
    assert_eq!(with(|state| std::mem::take(&mut state.accessed)), [FI_COMPLETION | FI_DELIVERY_COMPLETE; 3]);
}

#[test]
fn a_queue_with_a_descriptor_may_be_slept_on() {
    assert!(open(0, 9).unwrap().descriptor().is_none(), "a provider that has none is no failure");
    let (queue, _other) = UnixStream::pair().unwrap();
    with(|state| state.queue = Some(queue));
    let mut port = open(0, 9).unwrap();
    let descriptor = port.descriptor().unwrap();
    assert_ne!(descriptor.as_raw_fd(), with(|state| state.queue.take().unwrap().as_raw_fd()));
    assert!(port.may_sleep());
    port.connect([(Some(&b"fake"[..]), port.own())].into_iter()).unwrap();
    port.write(0, 2, 100, 0).unwrap();
    assert!(!port.may_sleep(), "a completion is there");
}

/// Has the provider put bytes into the first slot, and tell so.
fn bring(at: usize, bytes: &[u8], flags: u64) {
    with(|state| {
        let (context, start, len) = state.shared[0];
        assert!(at + bytes.len() <= len);
        // SAFETY: the slot was offered, and has these bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), (start as *mut u8).wrapping_add(at), bytes.len()) };
        let flags = FI_RECV | flags;
        if flags & FI_MULTI_RECV != 0 {
            state.offered.retain(|offered| *offered != context);
        }
        state.done.push_back(Done { context, flags, buf: start + at, len: bytes.len() });
    });
}

/// A slot takes messages until the provider says that it is done with it, with a message or apart.
#[test]
fn a_slot_of_several_messages_is_given_back_once() {
    let mut port = open_shared(0);
    assert_eq!(with(|state| state.least), SIZES.frame_bytes);
    let mut events = Vec::with_capacity(8);
    for apart in [false, true] {
        bring(0, b"one", 0);
        bring(64, b"three", if apart { 0 } else { FI_MULTI_RECV });
        if apart {
            bring(0, b"", FI_MULTI_RECV);
        }
        events.clear();
        for _ in 0..3 {
            port.poll(&mut events).unwrap();
        }
        let receipt = |at, len, last| Receipt { slot: 0, at, len, last, place: 0 };
        let mut expected = vec![Event::Arrived(receipt(0, 3, false)), Event::Arrived(receipt(64, 5, !apart))];
        expected.extend(apart.then_some(Event::Done(Operation::Receive(0))));
        assert_eq!(events, expected);
        with(|state| state.shared.retain(|(context, ..)| state.offered.contains(context)));
        port.post(0).unwrap();
        with(|state| state.shared.reverse());
    }
}

/// What has come is shown until the next look, and not once its slot is on offer again.
#[test]
fn messages_of_a_shared_slot_are_shown_once() {
    let shown = |port: &Port, receipt: &Receipt| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| port.arrived(receipt).to_vec())).ok()
    };
    let mut port = open_shared(0);
    let mut events = Vec::with_capacity(8);
    bring(0, b"one", 0);
    port.poll(&mut events).unwrap();
    let Event::Arrived(first) = events[0] else { panic!("a message: {events:?}") };
    assert_eq!(shown(&port, &first).as_deref(), Some(&b"one"[..]));
    assert_eq!(shown(&port, &Receipt { at: 1, ..first }), None, "nobody was told of it");
    bring(64, b"two", FI_MULTI_RECV);
    port.poll(&mut events).unwrap();
    let Event::Arrived(second) = events[1] else { panic!("a message: {events:?}") };
    assert_eq!((shown(&port, &first), shown(&port, &second).as_deref()), (None, Some(&b"two"[..])));
    port.post(second.slot).unwrap();
    assert_eq!(shown(&port, &second), None, "the provider may write there");
}

/// An error of one message leaves its slot with the provider; one that gives it back, or calls it back, does not.
#[test]
fn errors_of_a_shared_slot_tell_whether_it_is_over() {
    let mut port = open_shared(0);
    let context = with(|state| state.shared[0].0);
    with(|state| state.failed.push_back((context, libc::EMSGSIZE, 0, FI_RECV)));
    with(|state| state.failed.push_back((context, libc::EIO, 0, FI_RECV | FI_MULTI_RECV)));
    let mut events = Vec::with_capacity(8);
    port.poll(&mut events).unwrap();
    let failure = |code| Failure { code, own: 0 };
    let failed = Event::Failed(Some(Operation::Receive(0)), failure(libc::EIO));
    assert_eq!(events, [Event::Dropped(failure(libc::EMSGSIZE)), failed]);
    with(|state| state.offered.retain(|offered| *offered != context));
    port.post(0).unwrap();
    // Registrations of an endpoint go when all slots have come back.
    drop(open_shared(ALL));
    assert_eq!(log().iter().filter(|word| **word == "cancel").count(), 2);
}

/// Once each slot has had an error, and nothing has come since, the port fails instead of waiting for ever.
#[test]
fn slots_that_all_have_failed_end_the_port() {
    let mut port = open_shared(0);
    let slots = with(|state| [0, 1].map(|slot| state.shared[slot].0));
    let fail = |slot: usize| with(|state| state.failed.push_back((slots[slot], libc::EIO, 0, FI_RECV)));
    let mut events = Vec::with_capacity(8);
    fail(0);
    port.poll(&mut events).unwrap();
    // It goes on.
    bring(0, b"one", 0);
    port.poll(&mut events).unwrap();
    fail(1);
    fail(1);
    port.poll(&mut events).unwrap();
    let dropped = Event::Dropped(Failure { code: libc::EIO, own: 0 });
    assert!(
        matches!(events[..], [first, Event::Arrived(_), second, third] if [first, second, third] == [dropped; 3])
    );
    fail(0);
    assert_eq!(port.poll(&mut events), Err(libc::EIO));
}
