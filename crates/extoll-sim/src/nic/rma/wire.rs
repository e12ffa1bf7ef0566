//! What RMA units send each other.

use super::atu::{AtuFault, Nla};
use super::command_queue::Pace;
use super::notification::{Command, Notify};
use fabric_sim::bytes::PooledBytes;

/// A part of a put, or of the answer to a get.
#[derive(Clone)]
pub(crate) struct Part<D = PooledBytes> {
    pub(crate) command: Command,
    /// Tells the operations of a sender apart.
    pub(crate) operation: u32,
    /// Where the whole goes, and its size.
    pub(crate) to: Nla,
    pub(crate) size: u32,
    /// Where this part is in the whole.
    pub(crate) offset: u32,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) notify: Notify,
    pub(crate) data: D,
}

#[derive(Clone)]
pub(crate) enum Message<D = PooledBytes> {
    Part(Part<D>),
    Get {
        from: Nla,
        size: u32,
        to: Nla,
        notify: Notify,
    },
    Lock {
        lock: u32,
        compare: i32,
        add: i32,
        notify: Notify,
    },
    Locked {
        lock: u32,
        old: i32,
        hit: bool,
        notify: Notify,
    },
    Notification {
        value: u64,
        class: u8,
    },
    /// A command could not be executed at its target.
    Failed {
        command: Command,
        fault: AtuFault,
        notify: Notify,
        size: u32,
        value: u64,
    },
}

impl<D> Message<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Message<E> {
        match self {
            Self::Part(Part { command, operation, to, size, offset, first, last, notify, data }) => {
                let data = bytes(data);
                Message::Part(Part { command, operation, to, size, offset, first, last, notify, data })
            }
            Self::Get { from, size, to, notify } => Message::Get { from, size, to, notify },
            Self::Lock { lock, compare, add, notify } => Message::Lock { lock, compare, add, notify },
            Self::Locked { lock, old, hit, notify } => Message::Locked { lock, old, hit, notify },
            Self::Notification { value, class } => Message::Notification { value, class },
            Self::Failed { command, fault, notify, size, value } => {
                Message::Failed { command, fault, notify, size, value }
            }
        }
    }
}

impl Message {
    /// How many of the machine's packets it stands for.
    pub(crate) fn packets(&self, pace: &Pace) -> u8 {
        if let Self::Part(part) = self { pace.fragments(part.data.len() as u32) as u8 } else { 1 }
    }

    /// Payload on the wire in bytes.
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Part(part) => part.data.len() as u32,
            Self::Get { .. } => 24,
            Self::Lock { .. } | Self::Locked { .. } => 16,
            Self::Notification { .. } => 16,
            Self::Failed { .. } => 16,
        }
    }
}
