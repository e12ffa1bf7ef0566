//! One-sided operations that a network does by itself: reads, writes and atomics of a peer's segment without the
//! peer's program.
//!
//! An optional part of the contract. [`Transport::native`](super::Transport::native) yields it towards peers that
//! are reached so, and [`Capability`] tells what the network does; everything else travels as active messages. The
//! rules that every transport keeps:
//!
//! * An operation is refused as a whole or accepted as a whole. The caller has checked its range against
//!   [`Transport::segment_len`](super::Transport::segment_len), and its length against the [`Capability`].
//! * The bytes of a put can be reused when the call returns.
//! * A completion says that the operation is done *at the target*: the bytes of a put are in its segment, an
//!   atomic is applied. Each accepted operation completes at most once: through `done` while any operation is
//!   started, or through [`Sink::completed`](super::Sink::completed) during a poll, whose budget and result it
//!   counts in. Operations are not ordered.
//! * [`Transport::is_quiescent`](super::Transport::is_quiescent) and a departure cover operations under way as
//!   they cover requests.
//! * Of a peer that is gone, what was done before can be polled once
//!   [`Membership::status`](super::Membership::status) tells; the rest need not complete. An operation that fails
//!   because its peer is gone fails with [`OperationFault::Gone`], also if that failure is how its loss is found
//!   out.
//! * `done` must not use the transport.

use super::Refused;
use crate::address::Peer;
use crate::one_sided::Atomic;
use crate::payload::Payload;

/// What an operation is called in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The core's number of the operation.
    pub id: u64,
    /// Where the part that this is of the operation belongs in what it brings, in bytes.
    pub part: u64,
}

/// Where an operation is done, and what it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Whose segment.
    pub peer: Peer,
    /// The byte offset in it.
    pub at: u64,
    /// For the completion.
    pub ticket: Ticket,
}

/// A set of atomic operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicSet(u128);

impl AtomicSet {
    /// No operation.
    pub const NONE: Self = Self(0);

    /// Adds those operations of `atomics` that their types have.
    #[must_use]
    pub fn with(self, atomics: impl IntoIterator<Item = Atomic>) -> Self {
        let bits = atomics.into_iter().filter(Atomic::is_supported).map(|atomic| 1 << atomic.number());
        Self(bits.fold(self.0, |all, bit: u128| all | bit))
    }

    /// Those operations that something holds of.
    #[must_use]
    pub fn only(self, keep: impl Fn(&Atomic) -> bool) -> Self {
        Self::NONE.with(Atomic::every().filter(|atomic| self.has(atomic) && keep(atomic)))
    }

    /// All operations of all types.
    pub fn all() -> Self {
        Self::NONE.with(Atomic::every())
    }

    /// Whether an operation is in the set, whatever its operands.
    #[inline]
    pub fn has(&self, atomic: &Atomic) -> bool {
        self.0 & 1 << atomic.number() != 0
    }
}

/// What a network does by itself towards one peer. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// Bytes of the largest single put; 0 where there is none.
    pub put: u64,
    /// Whether a put can add one to a counter of the same segment behind its bytes; of at most `put` bytes.
    pub signal: bool,
    /// Bytes of the largest single get that brings its bytes with the completion; 0 where there is none.
    pub get: u64,
    /// Bytes of the longest read for which gets are as fast as messages; longer ones travel as messages.
    pub longest_get: u64,
    /// Bytes of the largest single get into this rank's own segment; 0 where there is none.
    pub get_into: u64,
    /// The atomic operations.
    pub atomics: AtomicSet,
    /// Whether they are atomic with respect to those of the target's processor on the same value. Where they are
    /// not, they are not used: handlers, and ranks that see the segment as memory, work with the processor.
    pub coherent: bool,
}

impl Capability {
    /// Whether an atomic operation is done by the network.
    #[inline]
    pub fn does(&self, atomic: &Atomic) -> bool {
        self.coherent && self.atomics.has(atomic)
    }
}

/// Where the bytes of a get go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Into the completion.
    Report,
    /// To this offset of this rank's own segment.
    Segment(u64),
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationFault {
    /// The target is gone.
    Gone,
    /// The target's interface refused it: translation or permission.
    Refused,
    /// The network failed to carry it.
    Failed,
}

impl std::fmt::Display for OperationFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gone => "the target is gone",
            Self::Refused => "the target's interface refused it",
            Self::Failed => "the network failed to carry it",
        })
    }
}

/// What an operation has brought.
#[derive(Clone, Copy, Debug)]
pub struct Brought<'a> {
    /// The bits that were there before a fetching atomic.
    pub value: u64,
    /// The bytes of a get with [`Landing::Report`].
    pub bytes: Payload<'a>,
}

impl Brought<'_> {
    /// Of operations that bring nothing.
    pub const NOTHING: Self = Self { value: 0, bytes: Payload::EMPTY };
}

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// Which one.
    pub ticket: Ticket,
    /// What it has brought, or why it was not done.
    pub outcome: Result<Brought<'a>, OperationFault>,
}

impl Completion<'_> {
    /// Of an operation that is done and brings nothing.
    pub const fn done(ticket: Ticket) -> Self {
        Self { ticket, outcome: Ok(Brought::NOTHING) }
    }

    /// Of an operation that was not done.
    pub const fn failed(ticket: Ticket, fault: OperationFault) -> Self {
        Self { ticket, outcome: Err(fault) }
    }
}

/// Learns of completions while operations are started.
pub type Done<'a> = dyn FnMut(Completion<'_>) + 'a;

/// One-sided operations of a network: what [`Transport::native`](super::Transport::native) offers.
pub trait NativeOneSided {
    /// What the network does by itself towards a peer. The same at every call.
    fn capability(&self, to: Peer) -> Capability;

    /// Starts a put, and with `signal` an addition of one to the 64-bit counter at that offset of the same segment
    /// once the bytes are there. May block only as long as the medium takes to carry the bytes. Does not allocate
    /// after the first operations.
    ///
    /// # Errors
    /// [`Refused`]; nothing was started.
    fn put(&mut self, to: Remote, bytes: &[u8], signal: Option<u64>, done: &mut Done<'_>) -> Result<(), Refused>;

    /// Starts a get of `len` bytes. Once a poll has followed the loss of the peer, nothing of it is written: the
    /// core has told the program that the operation failed, whose memory is its own again.
    ///
    /// # Errors
    /// [`Refused`]; nothing was started.
    ///
    /// # Panics
    /// Unless the [`Capability`] has gets.
    fn get(&mut self, from: Remote, len: u64, landing: Landing, done: &mut Done<'_>) -> Result<(), Refused> {
        let _ = (from, len, landing, done);
        unreachable!("there are no gets");
    }

    /// Starts an atomic operation on a value, whose place is a multiple of its size; with `fetch` its completion
    /// brings what was there.
    ///
    /// # Errors
    /// [`Refused`]; nothing was started.
    ///
    /// # Panics
    /// Unless the [`Capability`] has atomics.
    fn atomic(&mut self, to: Remote, atomic: &Atomic, fetch: bool, done: &mut Done<'_>) -> Result<(), Refused> {
        let _ = (to, atomic, fetch, done);
        unreachable!("there are no atomic operations");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_sided::{AtomicCode, AtomicKind};

    #[test]
    fn sets_tell_operations_apart() {
        let of = |kind, code| Atomic { kind, code, operand: 7, expected: 7 };
        let add = of(AtomicKind::U64, AtomicCode::Add);
        let one = AtomicSet::NONE.with([add]);
        let members = Atomic::every().filter(|atomic| one.has(atomic)).count();
        assert_eq!((members, one.has(&add)), (1, true));
        // Bits of floating-point numbers are no operations.
        let bits = of(AtomicKind::F64, AtomicCode::Xor);
        assert_eq!((AtomicSet::all().has(&bits), AtomicSet::NONE.with([bits])), (false, AtomicSet::NONE));
        assert_eq!(Atomic::every().filter(|atomic| AtomicSet::all().has(atomic)).count(), 11 * 6 - 3 * 2);
        // What is not coherent is not used.
        let capability = Capability { atomics: AtomicSet::all(), ..Capability::default() };
        assert!(!capability.does(&add) && Capability { coherent: true, ..capability }.does(&add));
    }
}
