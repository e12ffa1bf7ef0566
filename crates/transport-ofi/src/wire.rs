//! What the protocol needs from a network: the seam between the state machine of [`Conduit`](crate::Conduit) and
//! libfabric, behind which tests put a network of their own.
//!
//! A wire has buffers for outgoing messages (frames, then chunks, numbered together) and slots for incoming ones.
//! What a call accepted ends in exactly one [`Event`]; until then its buffer or slot is not to be touched. A slot
//! may take several messages one after the other (libfabric's multi-receive buffers): each is a [`Receipt`], and
//! the slot stays the network's until one of them is the last.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How many buffers there are, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Buffers for messages: numbers from 0.
    pub frames: u32,
    /// Bytes of each, and of the longest message.
    pub frame_bytes: usize,
    /// Buffers for parts of Long payloads: numbers from `frames`.
    pub chunks: u32,
    /// Bytes of each.
    pub chunk_bytes: usize,
    /// Slots for messages that arrive.
    pub slots: u32,
    /// Bytes of each: those of a frame, or more where slots take several messages.
    pub slot_bytes: usize,
    /// Bytes of the largest message that can be injected.
    pub inject: usize,
}

impl Sizes {
    /// Whether slots take several messages.
    pub const fn takes_several(&self) -> bool {
        self.slot_bytes > self.frame_bytes
    }
}

/// Why an operation was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No room for now; poll and try again.
    Again,
    /// It will never be: the error number of the network.
    Failed(i32),
}

/// Something that was started, by the number of its buffer or slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`Wire::send`] of this buffer.
    Send(u32),
    /// [`Wire::write`] of this buffer.
    Write(u32),
    /// [`Wire::read`] into this buffer.
    Read(u32),
    /// [`Wire::post`] of this slot.
    Receive(u32),
}

/// Why an operation that was started has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The error number of the network.
    pub code: i32,
    /// The provider's own number, 0 where it has none.
    pub own: i32,
}

/// A message that has arrived: bytes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Which slot.
    pub slot: u32,
    /// Where in it the message begins, and its length in bytes.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
    /// Whether nothing else comes into the slot, which is the program's now.
    pub last: bool,
    /// The wire's own: what it finds the message by.
    pub place: u32,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message has arrived. It can be read until the next poll, or until its slot is offered again.
    Arrived(Receipt),
    /// An operation is done. Of a receipt: nothing else comes into the slot, which is the program's now.
    Done(Operation),
    /// It has failed; `None` where it was one that has no number (an injected message).
    Failed(Option<Operation>, Failure),
    /// A message has not come in whole; its slot, which takes several, stays the network's.
    Dropped(Failure),
}

/// A network that carries messages and writes memory, for one endpoint. No call blocks or allocates.
pub trait Wire {
    /// How many buffers there are, and how large. The same at every call.
    fn sizes(&self) -> Sizes;

    /// A buffer's bytes.
    ///
    /// # Panics
    /// If it is under way.
    fn buffer(&mut self, buffer: u32) -> &mut [u8];

    /// Sends the first `len` bytes of a buffer.
    ///
    /// # Errors
    /// [`Fault`]; nothing was started.
    fn send(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault>;

    /// Sends the first `len` bytes of a buffer, at most [`Sizes::inject`]; the buffer is free when the call
    /// returns, and no event follows unless the message fails.
    ///
    /// # Errors
    /// [`Fault`]; nothing was started.
    fn inject(&mut self, to: u32, buffer: u32, len: usize) -> Result<(), Fault>;

    /// Writes the first `len` bytes of a buffer to byte `at` of a peer's segment. It is done once the bytes are
    /// there to be read.
    ///
    /// # Errors
    /// [`Fault`]; nothing was started.
    fn write(&mut self, to: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault>;

    /// Whether [`place`](Self::place) may work towards a peer.
    fn places(&self, to: u32) -> bool {
        let _ = to;
        false
    }

    /// Copies bytes to byte `at` of a peer's segment, where the system does so at once: they are there to be read
    /// when the call returns true. If it returns false, some of them may be, and it is of no use to ask again.
    fn place(&mut self, to: u32, bytes: &[u8], at: u64) -> bool {
        let _ = (to, bytes, at);
        false
    }

    /// The endpoint has left, and everybody knows: nobody places bytes in its segment any more.
    fn has_left(&mut self) {}

    /// Reads `len` bytes at byte `at` of a peer's segment into a buffer.
    ///
    /// # Errors
    /// [`Fault`]; nothing was started.
    fn read(&mut self, from: u32, buffer: u32, len: usize, at: u64) -> Result<(), Fault>;

    /// Offers a slot to what arrives.
    ///
    /// # Errors
    /// [`Fault`]; the slot is not offered.
    fn post(&mut self, slot: u32) -> Result<(), Fault>;

    /// The bytes of a message of the last [`poll`](Self::poll), whose slot was not offered again since.
    ///
    /// # Panics
    /// If it is none.
    fn arrived(&self, receipt: &Receipt) -> &[u8];

    /// Carries everything on, and appends what has ended, as far as `events` has capacity.
    ///
    /// # Errors
    /// The error number of the network if it is broken as a whole.
    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), i32>;

    /// A descriptor that becomes readable when [`poll`](Self::poll) may have something to do; `None` where the
    /// network has none. The same at every call.
    fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    /// Whether a sleep on the [`descriptor`](Self::descriptor) may begin now: nothing is there that it would not
    /// tell of.
    fn may_sleep(&mut self) -> bool {
        false
    }

    /// What a failure means, for people. Allocates.
    fn explain(&self, failure: Failure) -> String {
        let Failure { code, own } = failure;
        if own == 0 { format!("error {code}") } else { format!("error {code}, the provider's {own}") }
    }
}
