//! An endpoint of libfabric with all that it needs: fabric, domain, address vector, completion queue, registered
//! memory. It is the [`Wire`] of libfabric.

use super::abi::{
    FI_AV_TABLE, FI_COMPLETION, FI_CQ_FORMAT_DATA, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_EAVAIL, FI_ENABLE,
    FI_GETWAIT, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MULTI_RECV, FI_OPT_ENDPOINT,
    FI_OPT_MIN_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WAIT_FD, FI_WAIT_NONE,
    FI_WRITE, fi_addr_t, fi_av_attr, fi_cq_attr, fi_cq_data_entry, fi_cq_err_entry, fi_info, fi_msg, fi_msg_rma,
    fi_rma_iov, fid, fid_cq,
};
use super::fills::{Fills, packs};
use super::info::Infos;
use super::library::Library;
use super::neighbour::{Mark, Neighbour};
use super::objects::{Check, Objects, table};
use crate::error::OfiError;
use crate::memory::{Arena, Contexts, Process};
use crate::wire::{Event, Failure, Fault, Operation, Receipt, Sizes, Wire};
use am_core::{AnyMemory, Segment};
use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

/// The provider whose endpoints are all on one host.
pub(crate) const LOCAL: &str = "shm";
/// No particular peer.
const ANYONE: fi_addr_t = fi_addr_t::MAX;
/// Bytes of the longest name of an endpoint.
pub(crate) const LONGEST_NAME: usize = 1023;
/// Completions that are read with one call.
const BATCH: usize = 32;
/// The call that a provider without buffers for several messages refuses.
pub(crate) const SETOPT: &str = "fi_setopt of the least room of a receive buffer";
/// Looks at the completion queue while slots are called back.
const CALLS_BACK: u32 = 10_000;

/// Bytes that begin where any struct of C may.
#[repr(align(16))]
struct Aligned([u8; LONGEST_NAME + 1]);

/// What opening an endpoint takes.
pub(crate) struct Opening<'a> {
    pub(crate) infos: &'a mut Infos,
    /// Number of the offer.
    pub(crate) offer: usize,
    pub(crate) provider: &'a str,
    pub(crate) sizes: Sizes,
    pub(crate) segment: &'a Segment<AnyMemory>,
}

/// What an endpoint needs of a peer's to write to its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) key: u64,
    /// What stands for byte 0 of the segment.
    pub(crate) base: u64,
    /// The way through the system, where the provider leads to one host.
    pub(crate) neighbour: Neighbour,
}

/// A peer: where it is, and its segment.
#[derive(Clone, Copy, Debug)]
struct Target {
    address: fi_addr_t,
    remote: Remote,
}

/// An endpoint of libfabric. It can be sent to the thread that uses it.
pub struct Port {
    objects: Objects,
    library: &'static Library,
    provider: String,
    sizes: Sizes,
    /// What stands for registered buffers in calls, where the provider asks for it.
    descriptors: [*mut c_void; 3],
    frames: ManuallyDrop<Arena>,
    chunks: ManuallyDrop<Arena>,
    slots: ManuallyDrop<Arena>,
    /// One per buffer and slot: slots, then buffers. Their addresses name operations.
    contexts: ManuallyDrop<Contexts>,
    /// By buffer: what was last started with it.
    started: Vec<Operation>,
    /// What the last look has brought into slots that take several messages. Of a slot that is on offer anew, none
    /// names it any more.
    latest: Vec<Receipt>,
    fills: Fills,
    targets: Vec<Target>,
    /// What peers need to write to this endpoint's segment.
    own: Remote,
    /// What others tell this process by, if any of them writes to its segment.
    mark: Option<Mark>,
    /// None of them does so any more.
    left: bool,
    /// Keeps the segment's memory for as long as it is registered.
    segment: Segment<AnyMemory>,
    /// The completion queue's, where the provider has one.
    descriptor: Option<Arc<OwnedFd>>,
    process: Process,
}

// SAFETY: the objects belong to this value alone, whose calls take `&mut self`: as the domain's threading mode
// asks, one thread at a time uses them, which one does not matter.
unsafe impl Send for Port {}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("provider", &self.provider)
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.process.is_other() {
            // The objects are the parent's: closing its connections here would end them there.
            std::mem::forget(self.segment.clone());
            return;
        }
        if self.mark.is_some() && !self.left {
            // Nothing else is to be where others may still write.
            std::mem::forget(self.segment.clone());
        }
        if self.objects.bound {
            self.call_back();
        }
        if self.objects.close() {
            for arena in [&mut self.frames, &mut self.chunks, &mut self.slots] {
                // SAFETY: nobody uses it after this, and the provider has let go of it.
                unsafe { ManuallyDrop::drop(arena) };
            }
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.contexts) };
        } else {
            // Something is still in use there: what it may write to stays.
            std::mem::forget(self.segment.clone());
        }
    }
}

impl Port {
    /// Opens an endpoint, registers its memory and offers its slots. Blocks as long as the provider takes.
    ///
    /// # Errors
    /// [`OfiError::Call`], [`OfiError::Memory`].
    pub(crate) fn open(opening: Opening<'_>) -> Result<Self, OfiError> {
        let Opening { infos, offer, provider, sizes, segment } = opening;
        let library = infos.library();
        let info = infos.answer(offer);
        let count = sizes.slots + sizes.frames + sizes.chunks;
        let arena = |count: u32, bytes| {
            Arena::new(count as usize, bytes).map(ManuallyDrop::new).map_err(OfiError::memory("messages"))
        };
        let mut port = Self {
            objects: Objects::none(),
            library,
            provider: provider.into(),
            sizes,
            descriptors: [ptr::null_mut(); 3],
            frames: arena(sizes.frames, sizes.frame_bytes)?,
            chunks: arena(sizes.chunks, sizes.chunk_bytes)?,
            slots: arena(sizes.slots, sizes.slot_bytes)?,
            contexts: ManuallyDrop::new(Contexts::new(count).map_err(OfiError::memory("contexts"))?),
            started: (0..sizes.frames + sizes.chunks).map(Operation::Send).collect(),
            latest: Vec::new(),
            fills: Fills::new(sizes.slots, packs(provider)),
            targets: Vec::new(),
            own: Remote::default(),
            mark: None,
            left: false,
            segment: segment.clone(),
            descriptor: None,
            process: Process::current().map_err(OfiError::memory("the mark of this process"))?,
        };
        port.open_objects(info, count as usize)?;
        port.register(info)?;
        for slot in 0..sizes.slots {
            match port.post(slot) {
                Ok(()) => {}
                Err(Fault::Again) => port.check().of("fi_recv", -libc::EAGAIN)?,
                Err(Fault::Failed(code)) => port.check().of("fi_recv", -code)?,
            }
        }
        Ok(port)
    }

    /// Calls back the slots on offer, and waits a little until the provider has let go of them: where
    /// registrations belong to the endpoint they have to go before it, and nothing that is on offer may lose its
    /// registration.
    fn call_back(&mut self) {
        let offered: Vec<u32> = (0..self.sizes.slots).filter(|slot| self.slots.is_lent(*slot as usize)).collect();
        let ep = self.objects.ep;
        if ep.is_null() {
            return;
        }
        // SAFETY: the endpoint is open and has its table.
        let cancel = unsafe { table(ep, |object| object.ops) }.cancel;
        for slot in &offered {
            let context = self.context(Operation::Receive(*slot));
            // SAFETY: the context names an operation under way. A refusal leaves it there, as below.
            unsafe { cancel(ep.cast(), context) };
        }
        let mut events = Vec::with_capacity(BATCH);
        for _ in 0..CALLS_BACK {
            let lent = |slot: &u32| self.slots.is_lent(*slot as usize);
            events.clear();
            if !offered.iter().any(lent) || self.poll(&mut events).is_err() {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn check(&self) -> Check<'_> {
        Check { library: self.library, provider: &self.provider }
    }

    fn open_objects(&mut self, info: *mut fi_info, completions: usize) -> Result<(), OfiError> {
        let check = Check { library: self.library, provider: &self.provider };
        let objects = &mut self.objects;
        // SAFETY: every answer has this part.
        let fabric_attr = unsafe { (*info).fabric_attr };
        // SAFETY: the attributes and the place for the object live through the call.
        let code = unsafe { (self.library.fabric)(fabric_attr, &raw mut objects.fabric, ptr::null_mut()) };
        check.of("fi_fabric", code)?;
        let fabric = objects.fabric;
        // SAFETY: the fabric is open and has its table.
        let open = unsafe { table(fabric, |object| object.ops) }.domain;
        // SAFETY: as for the fabric.
        let code = unsafe { open(fabric, info, &raw mut objects.domain, ptr::null_mut()) };
        check.of("fi_domain", code)?;
        let domain = objects.domain;
        // SAFETY: the domain is open and has its table.
        let functions = unsafe { table(domain, |object| object.ops) };
        let mut attributes = fi_av_attr {
            r#type: FI_AV_TABLE,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        // SAFETY: as for the fabric.
        let code =
            unsafe { (functions.av_open)(domain, &raw mut attributes, &raw mut objects.av, ptr::null_mut()) };
        check.of("fi_av_open", code)?;
        // Not every provider has a descriptor to sleep on.
        let mut code = 0;
        for wait_obj in [FI_WAIT_FD, FI_WAIT_NONE] {
            let mut attributes = fi_cq_attr {
                size: completions,
                flags: 0,
                format: FI_CQ_FORMAT_DATA,
                wait_obj,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: ptr::null_mut(),
            };
            // SAFETY: as for the fabric.
            code =
                unsafe { (functions.cq_open)(domain, &raw mut attributes, &raw mut objects.cq, ptr::null_mut()) };
            if code == 0 {
                self.descriptor = (wait_obj == FI_WAIT_FD).then(|| descriptor(objects.cq)).flatten();
                break;
            }
            // What a call that fails leaves there is nothing to close.
            objects.cq = ptr::null_mut();
        }
        check.of("fi_cq_open", code)?;
        // SAFETY: as for the fabric.
        let code = unsafe { (functions.endpoint)(domain, info, &raw mut objects.ep, ptr::null_mut()) };
        check.of("fi_endpoint", code)?;
        let ep: *mut fid = objects.ep.cast();
        // SAFETY: the endpoint is open and has its table.
        let common = unsafe { table(ep, |object| object.ops) };
        // SAFETY: both objects are open.
        let code = unsafe { (common.bind)(ep, objects.av.cast(), 0) };
        check.of("fi_ep_bind of the address vector", code)?;
        // SAFETY: both objects are open.
        let code = unsafe { (common.bind)(ep, objects.cq.cast(), FI_SEND | FI_RECV) };
        check.of("fi_ep_bind of the completion queue", code)?;
        // SAFETY: the endpoint is open; this command takes no argument.
        let code = unsafe { (common.control)(ep, FI_ENABLE, ptr::null_mut()) };
        check.of("fi_enable", code)?;
        if self.sizes.takes_several() {
            // A slot is done with once the longest message would not fit. The provider shm has no place for the
            // option before its endpoint is enabled.
            let least = self.sizes.frame_bytes;
            // SAFETY: the endpoint is open and has its table.
            let setopt = unsafe { table(objects.ep, |object| object.ops) }.setopt;
            let value = (&raw const least).cast();
            // SAFETY: the endpoint is open; the option is a number of this size, read before the call returns.
            let code = unsafe { setopt(ep, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, size_of::<usize>()) };
            check.of(SETOPT, code)?;
        }
        Ok(())
    }

    /// Registers the segment, and the buffers where the provider asks for it.
    fn register(&mut self, info: *mut fi_info) -> Result<(), OfiError> {
        // SAFETY: every answer has this part.
        let mode = unsafe { table(info, |info| info.domain_attr.cast_const()) }.mr_mode;
        let check = Check { library: self.library, provider: &self.provider };
        let objects = &mut self.objects;
        objects.bound = mode & FI_MR_ENDPOINT != 0;
        if !self.segment.is_empty() {
            // Peers write there through the words, whose accesses are atomic.
            let start = self.segment.words().as_ptr().cast_mut().cast::<u8>();
            objects.register(&check, 0, (start, self.segment.len()), FI_REMOTE_READ | FI_REMOTE_WRITE)?;
            // SAFETY: the registration is there for as long as `self`.
            let key = unsafe { (*objects.mrs[0]).key };
            let base = if mode & FI_MR_VIRT_ADDR != 0 { start as u64 } else { 0 };
            let mark = (self.provider == LOCAL).then(|| Mark::new(start as u64));
            let mark = mark.transpose().map_err(OfiError::memory("a mark"))?;
            let neighbour = mark.as_ref().map(Mark::neighbour).unwrap_or_default();
            self.mark = mark;
            self.own = Remote { key, base, neighbour };
        }
        if mode & FI_MR_LOCAL != 0 {
            let both = FI_SEND | FI_READ | FI_WRITE;
            let arenas = [(&self.frames, both), (&self.chunks, both), (&self.slots, FI_RECV)];
            for (index, (arena, access)) in arenas.into_iter().enumerate() {
                let region = arena.region();
                objects.register(&check, index + 1, (region.start(), region.len()), access)?;
                // SAFETY: the registration is there for as long as `self`.
                self.descriptors[index] = unsafe { (*objects.mrs[index + 1]).mem_desc };
            }
        }
        Ok(())
    }

    /// Where peers find this endpoint, as they insert it into their address vectors.
    ///
    /// # Errors
    /// [`OfiError::Call`].
    pub(crate) fn name(&self) -> Result<Vec<u8>, OfiError> {
        let mut name = vec![0u8; LONGEST_NAME];
        let ep = self.objects.ep;
        // SAFETY: the endpoint is open and has its table.
        let getname = unsafe { table(ep, |object| object.cm) }.getname;
        loop {
            let mut len = name.len();
            // SAFETY: the buffer has room for `len` bytes.
            let code = unsafe { getname(ep.cast(), name.as_mut_ptr().cast(), &raw mut len) };
            match code {
                0 => {
                    name.truncate(len);
                    return Ok(name);
                }
                _ if len > name.len() => name.resize(len, 0),
                _ => self.check().of("fi_getname", -code.abs())?,
            }
        }
    }

    /// Whether this process is a fork of the one that opened it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.process.is_other()
    }

    /// The address of a peer and what its segment needs. A provider that is handed no address of its own takes it
    /// for one all the same, so nothing is asked of it for a peer that has none.
    fn target(&self, peer: u32) -> Result<Target, Fault> {
        let target = self.targets[peer as usize];
        if target.address == ANYONE { Err(Fault::Failed(libc::EHOSTUNREACH)) } else { Ok(target) }
    }

    /// What peers need to write to this endpoint's segment.
    pub(crate) fn own(&self) -> Remote {
        self.own
    }

    /// Tells of all peers, in their order. Allocates.
    ///
    /// # Errors
    /// [`OfiError::Call`] if the provider cannot make sense of a name.
    pub(crate) fn connect<'n>(
        &mut self,
        peers: impl Iterator<Item = (Option<&'n [u8]>, Remote)>,
    ) -> Result<(), OfiError> {
        let av = self.objects.av;
        // SAFETY: the vector is open and has its table.
        let insert = unsafe { table(av, |object| object.ops) }.insert;
        for (name, remote) in peers {
            let mut address = ANYONE;
            if let Some(name) = name {
                // Zeros follow the name: a provider reads a whole address, or text to its end, wherever the name
                // came from.
                let mut padded = Aligned([0; LONGEST_NAME + 1]);
                padded.0[..name.len()].copy_from_slice(name);
                let from = padded.0.as_ptr().cast();
                // SAFETY: there are more bytes than an address of any provider has, and text ends among them.
                let code = unsafe { insert(av, from, 1, &raw mut address, 0, ptr::null_mut()) };
                let code = match code {
                    1 => 0,
                    ..=-1 => code,
                    _ => -libc::EINVAL,
                };
                self.check().of("fi_av_insert", code)?;
            }
            self.targets.push(Target { address, remote });
        }
        Ok(())
    }

    fn context(&mut self, operation: Operation) -> *mut c_void {
        let index = match operation {
            Operation::Receive(slot) => slot,
            Operation::Send(buffer) | Operation::Write(buffer) | Operation::Read(buffer) => {
                self.started[buffer as usize] = operation;
                self.sizes.slots + buffer
            }
        };
        self.contexts.place(index)
    }

    /// What a completion says.
    fn event(&mut self, entry: &fi_cq_data_entry) -> Option<Event> {
        let slot = self.contexts.index(entry.op_context).filter(|index| *index < self.sizes.slots);
        let Some(slot) = slot else { return self.operation(entry.op_context).map(Event::Done) };
        if !self.slots.is_lent(slot as usize) {
            return None;
        }
        let several = self.sizes.takes_several();
        let at = if several { self.slots.offset(slot as usize, entry.buf.cast_const().cast()) } else { Some(0) };
        let inside = at.filter(|at| entry.len != 0 && entry.len <= self.sizes.slot_bytes - at);
        if let Some(at) = inside {
            self.fills.arrive(slot, at, entry.len);
        }
        if !several || entry.flags & FI_MULTI_RECV != 0 {
            self.fills.release(slot);
        }
        let last = self.fills.is_over(slot);
        if last {
            self.slots.take_back(slot as usize);
        }
        match inside {
            Some(at) => {
                let place = self.latest.len() as u32;
                let receipt = Receipt { slot, at, len: entry.len, last, place };
                if several {
                    self.latest.push(receipt);
                }
                Some(Event::Arrived(receipt))
            }
            // Where a slot is given back without a message, which some providers do apart.
            None => last.then_some(Event::Done(Operation::Receive(slot))),
        }
    }

    /// The operation that a completion names, whose buffer is the program's again.
    fn operation(&mut self, context: *mut c_void) -> Option<Operation> {
        let index = self.contexts.index(context)?;
        let Sizes { slots, frames, .. } = self.sizes;
        let buffer = index.wrapping_sub(slots);
        let (arena, place, operation) = if index < slots {
            (&mut self.slots, index, Operation::Receive(index))
        } else {
            let operation = *self.started.get(buffer as usize)?;
            match buffer.checked_sub(frames) {
                None => (&mut self.frames, buffer, operation),
                Some(chunk) => (&mut self.chunks, chunk, operation),
            }
        };
        // A completion of something that is not under way would be the provider's mistake.
        arena.is_lent(place as usize).then(|| arena.take_back(place as usize))?;
        Some(operation)
    }

    /// A buffer's arena, its number there, and what stands for it in calls.
    fn place(&mut self, buffer: u32) -> (&mut Arena, usize, *mut c_void) {
        match buffer.checked_sub(self.sizes.frames) {
            None => (&mut self.frames, buffer as usize, self.descriptors[0]),
            Some(chunk) => (&mut self.chunks, chunk as usize, self.descriptors[1]),
        }
    }

    /// Starts a read or a write between a buffer and a peer's segment.
    fn access(
        &mut self,
        operation: Operation,
        peer: u32,
        (buffer, len): (u32, usize),
        at: u64,
    ) -> Result<(), Fault> {
        let Target { address, remote } = self.target(peer)?;
        let context = self.context(operation);
        let (arena, place, mut descriptor) = self.place(buffer);
        let (start, bytes) = arena.lend(place);
        assert!(len <= bytes, "a part fits its buffer");
        let local = libc::iovec { iov_base: start.cast(), iov_len: len };
        let there = fi_rma_iov { addr: remote.base.wrapping_add(at), len, key: remote.key };
        let message = fi_msg_rma {
            msg_iov: &raw const local,
            desc: &raw mut descriptor,
            iov_count: 1,
            addr: address,
            rma_iov: &raw const there,
            rma_iov_count: 1,
            context,
            data: 0,
        };
        let ep = self.objects.ep;
        // SAFETY: the endpoint is open and has its table.
        let functions = unsafe { table(ep, |object| object.rma) };
        let (call, flags) = match operation {
            Operation::Read(_) => (functions.readmsg, FI_COMPLETION),
            _ => (functions.writemsg, FI_COMPLETION | FI_DELIVERY_COMPLETE),
        };
        // SAFETY: as in `send`; the description itself is read before the call returns.
        let code = unsafe { call(ep, &raw const message, flags) };
        self.started(buffer, code)
    }

    /// What an operation with a lent buffer came to.
    fn started(&mut self, buffer: u32, code: isize) -> Result<(), Fault> {
        let result = outcome(code);
        if result.is_err() {
            let (arena, place, _) = self.place(buffer);
            arena.take_back(place);
        }
        result
    }

    /// What a completion with an error says. Slots for several messages go on after an error of one, and are kept;
    /// some providers forget the flag of one that does not.
    ///
    /// # Errors
    /// The error's code if there is no slot left that may go on.
    fn failed(&mut self, entry: &fi_cq_err_entry, failure: Failure) -> Result<Event, i32> {
        let slot = self.contexts.index(entry.op_context).filter(|index| *index < self.sizes.slots);
        let over = entry.flags & FI_MULTI_RECV != 0 || failure.code == libc::ECANCELED;
        match slot {
            // A message that has not come in whole, into a slot that goes on.
            Some(slot) if self.sizes.takes_several() && !over => {
                let goes_on = self.fills.fail(slot);
                if self.fills.is_over(slot) {
                    return Ok(Event::Failed(self.operation(entry.op_context), failure));
                }
                if goes_on { Ok(Event::Dropped(failure)) } else { Err(failure.code) }
            }
            _ => Ok(Event::Failed(self.operation(entry.op_context), failure)),
        }
    }

    /// The error at the head of the completion queue.
    fn read_error(&mut self) -> Result<Event, i32> {
        let mut entry = fi_cq_err_entry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
            later: [0; 8],
        };
        let cq = self.objects.cq;
        // SAFETY: the queue is open and has its table.
        let readerr = unsafe { table(cq, |object| object.ops) }.readerr;
        // SAFETY: the entry is at least as long as that of any version.
        match unsafe { readerr(cq, &raw mut entry, 0) } {
            1.. => {
                let failure = Failure { code: entry.err, own: entry.prov_errno };
                self.failed(&entry, failure)
            }
            0 => Err(FI_EAGAIN as i32),
            code => Err(code.unsigned_abs() as i32),
        }
    }
}

/// The descriptor of an open completion queue, as one of this crate's own.
fn descriptor(cq: *mut fid_cq) -> Option<Arc<OwnedFd>> {
    let cq: *mut fid = cq.cast();
    // SAFETY: the queue is open and has its table.
    let control = unsafe { table(cq, |object| object.ops) }.control;
    let mut number: c_int = -1;
    // SAFETY: the queue is open; the command writes a descriptor's number.
    let code = unsafe { control(cq, FI_GETWAIT, (&raw mut number).cast()) };
    if code != 0 || number < 0 {
        return None;
    }
    // SAFETY: the descriptor is the queue's, which is open.
    let number = unsafe { BorrowedFd::borrow_raw(number) };
    number.try_clone_to_owned().ok().map(Arc::new)
}

/// What a call came to.
fn outcome(code: isize) -> Result<(), Fault> {
    match -code {
        0 => Ok(()),
        FI_EAGAIN => Err(Fault::Again),
        code => Err(Fault::Failed(code as i32)),
    }
}

impl Wire for Port {
    fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn buffer(&mut self, buffer: u32) -> &mut [u8] {
        let (arena, place, _) = self.place(buffer);
        arena.bytes_mut(place)
    }

    fn send(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault> {
        let Target { address, .. } = self.target(to)?;
        let context = self.context(Operation::Send(buffer));
        let (arena, place, descriptor) = self.place(buffer);
        let (start, bytes) = arena.lend(place);
        assert!(len <= bytes, "a message fits its buffer");
        let ep = self.objects.ep;
        // SAFETY: the endpoint is open and has its table.
        let send = unsafe { table(ep, |object| object.msg) }.send;
        // SAFETY: the buffer is lent until the completion, and outlives the endpoint; so does the context. The
        // address is one of the vector's.
        let code = unsafe { send(ep, start.cast_const().cast(), len, descriptor, address, context) };
        self.started(buffer, code)
    }

    fn inject(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault> {
        let Target { address, .. } = self.target(to)?;
        let (arena, place, _) = self.place(buffer);
        let start = arena.bytes(place)[..len].as_ptr();
        let ep = self.objects.ep;
        // SAFETY: the endpoint is open and has its table.
        let inject = unsafe { table(ep, |object| object.msg) }.inject;
        // SAFETY: the bytes are read before the call returns; the address is one of the vector's.
        outcome(unsafe { inject(ep, start.cast(), len, address) })
    }

    fn write(&mut self, to: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault> {
        self.access(Operation::Write(buffer), to, (buffer, len), at)
    }

    fn places(&self, to: u32) -> bool {
        self.targets[to as usize].remote.neighbour.is_some()
    }

    fn place(&mut self, to: u32, bytes: &[u8], at: u64) -> bool {
        let neighbour = &mut self.targets[to as usize].remote.neighbour;
        let there = neighbour.write(at, bytes);
        if !there {
            *neighbour = Neighbour::default();
        }
        there
    }

    fn has_left(&mut self) {
        self.left = true;
    }

    fn read(&mut self, from: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault> {
        self.access(Operation::Read(buffer), from, (buffer, len), at)
    }

    fn post(&mut self, slot: u32) -> Result<(), Fault> {
        let context = self.context(Operation::Receive(slot));
        self.latest.iter_mut().filter(|receipt| receipt.slot == slot).for_each(|receipt| receipt.slot = u32::MAX);
        self.fills.offer(slot);
        let (start, len) = self.slots.lend(slot as usize);
        let ep = self.objects.ep;
        // SAFETY: the endpoint is open and has its table.
        let functions = unsafe { table(ep, |object| object.msg) };
        let code = if self.sizes.takes_several() {
            let place = libc::iovec { iov_base: start.cast(), iov_len: len };
            let mut descriptor = self.descriptors[2];
            let message = fi_msg {
                msg_iov: &raw const place,
                desc: &raw mut descriptor,
                iov_count: 1,
                addr: ANYONE,
                context,
                data: 0,
            };
            // SAFETY: as below; the description itself is read before the call returns.
            unsafe { (functions.recvmsg)(ep, &raw const message, FI_COMPLETION | FI_MULTI_RECV) }
        } else {
            // SAFETY: the slot is lent until the completion, and outlives the endpoint; so does the context.
            unsafe { (functions.recv)(ep, start.cast(), len, self.descriptors[2], ANYONE, context) }
        };
        let result = outcome(code);
        if result.is_err() {
            self.slots.take_back(slot as usize);
        }
        result
    }

    fn arrived(&self, receipt: &Receipt) -> &[u8] {
        let Receipt { slot, at, len, place, .. } = *receipt;
        if !self.sizes.takes_several() {
            return &self.slots.bytes(slot as usize)[at..][..len];
        }
        assert!(self.latest.get(place as usize) == Some(receipt), "a message of the last look");
        // SAFETY: a completion has named these bytes (`event`): the provider puts nothing else there until the
        // slot is lent again, after which no receipt in the list names it (`post`).
        unsafe { self.slots.filled(slot as usize, at, len) }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), i32> {
        self.latest.clear();
        let cq = self.objects.cq;
        // SAFETY: the queue is open and has its table.
        let read = unsafe { table(cq, |object| object.ops) }.read;
        // Zeroing them would cost more than a look that finds nothing.
        let mut entries = [const { MaybeUninit::<fi_cq_data_entry>::uninit() }; BATCH];
        while events.len() < events.capacity() {
            let most = BATCH.min(events.capacity() - events.len());
            // SAFETY: there is room for so many entries of the queue's format.
            let count = unsafe { read(cq, entries.as_mut_ptr().cast(), most) };
            match count {
                1.. => {
                    for entry in &entries[..count as usize] {
                        // SAFETY: the call has written so many, whose bits are all valid.
                        let entry = unsafe { entry.assume_init_ref() };
                        events.extend(self.event(entry));
                    }
                    if (count as usize) < most {
                        break;
                    }
                }
                _ if count == 0 || -count == FI_EAGAIN => break,
                _ if -count == FI_EAVAIL => match self.read_error() {
                    Ok(event) => events.push(event),
                    Err(code) if code as isize == FI_EAGAIN => break,
                    Err(code) => return Err(code),
                },
                code => return Err(code.unsigned_abs() as i32),
            }
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.descriptor.clone()
    }

    fn may_sleep(&mut self) -> bool {
        let (fabric, mut queue) = (self.objects.fabric, self.objects.cq.cast::<fid>());
        // SAFETY: the fabric is open and has its table.
        let trywait = unsafe { table(fabric, |object| object.ops) }.trywait;
        // SAFETY: both objects are open; the list of one is read before the call returns.
        self.descriptor.is_some() && unsafe { trywait(fabric, &raw mut queue, 1) } == 0
    }

    fn explain(&self, failure: Failure) -> String {
        let Failure { code, own } = failure;
        let mut text = format!("{} of libfabric's provider {}", self.library.explain(code), self.provider);
        if own != 0 {
            let cq = self.objects.cq;
            // SAFETY: the queue is open and has its table.
            let strerror = unsafe { table(cq, |object| object.ops) }.strerror;
            // SAFETY: no details and no buffer are handed in; the answer is text that stays, or null.
            let reason = unsafe { strerror(cq, own, ptr::null(), ptr::null_mut(), 0) };
            text += &format!(", its own {own}");
            if !reason.is_null() {
                // SAFETY: a provider's text ends in a zero.
                text += &format!(": {}", unsafe { CStr::from_ptr(reason) }.to_string_lossy());
            }
        }
        text
    }
}
