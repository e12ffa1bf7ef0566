//! The return codes of Portals 3.3 that are not success.

use super::types::{EqHandle, Event, MdHandle, MeHandle};
use crate::nic::directory::ProcessId;
use thiserror::Error;

/// A call's return code, with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum P3Error {
    /// `PTL_NO_INIT`: the interface is not open.
    #[error("the interface is not open")]
    NoInit,
    /// `PTL_IFACE_DUP`: it is open already.
    #[error("the interface is open already")]
    IfaceDup,
    /// `PTL_NO_SPACE`: all that there may be are in use.
    #[error("all {limit} {what} are in use")]
    NoSpace {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: u32,
    },
    /// `PTL_PT_INDEX_INVALID`: no such portal table entry.
    #[error("portal table entry {index} is outside the table of {entries}")]
    PtIndexInvalid {
        /// The entry.
        index: u32,
        /// Those that there are.
        entries: u32,
    },
    /// `PTL_PROCESS_INVALID`: no such process.
    #[error("there is no process {id}")]
    ProcessInvalid {
        /// Its identity.
        id: ProcessId,
    },
    /// `PTL_ME_INVALID`: no such match entry.
    #[error("there is no match entry {me:?}")]
    MeInvalid {
        /// Its handle.
        me: MeHandle,
    },
    /// `PTL_ME_IN_USE`: the match entry has a memory descriptor, or one with pending operations.
    #[error("match entry {me:?} is in use by memory descriptor {md:?}")]
    MeInUse {
        /// The entry.
        me: MeHandle,
        /// What uses it.
        md: MdHandle,
    },
    /// `PTL_MD_INVALID`: no such memory descriptor, or an inactive one.
    #[error("there is no active memory descriptor {md:?}")]
    MdInvalid {
        /// Its handle.
        md: MdHandle,
    },
    /// `PTL_MD_ILLEGAL`: a memory descriptor outside its memory, or an operation outside its memory descriptor.
    #[error("{length} bytes at {offset} are not inside the {limit} bytes of {what}")]
    MdIllegal {
        /// Outside what.
        what: &'static str,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Bytes that there are, or that a message may have.
        limit: u64,
    },
    /// `PTL_MD_IN_USE`: the memory descriptor has pending operations.
    #[error("memory descriptor {md:?} has pending operations")]
    MdInUse {
        /// Its handle.
        md: MdHandle,
    },
    /// `PTL_EQ_INVALID`: no such event queue.
    #[error("there is no event queue {eq:?}")]
    EqInvalid {
        /// Its handle.
        eq: EqHandle,
    },
    /// `PTL_EQ_EMPTY`: no event is there.
    #[error("the event queue is empty")]
    EqEmpty,
    /// `PTL_EQ_DROPPED`: an event is there, but others have been lost since the one before: the queue was too
    /// small for what its program let come. What was lost cannot be had again.
    #[error("{lost} events have been lost; the next is {event:?}")]
    EqDropped {
        /// The next event.
        event: Event,
        /// How many are lost.
        lost: u64,
    },
}

impl P3Error {
    /// The code's name in the interface's header.
    ///
    /// ```
    /// assert_eq!(portals_sim::nic::p3::P3Error::EqEmpty.code(), "PTL_EQ_EMPTY");
    /// ```
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoInit => "PTL_NO_INIT",
            Self::IfaceDup => "PTL_IFACE_DUP",
            Self::NoSpace { .. } => "PTL_NO_SPACE",
            Self::PtIndexInvalid { .. } => "PTL_PT_INDEX_INVALID",
            Self::ProcessInvalid { .. } => "PTL_PROCESS_INVALID",
            Self::MeInvalid { .. } => "PTL_ME_INVALID",
            Self::MeInUse { .. } => "PTL_ME_IN_USE",
            Self::MdInvalid { .. } => "PTL_MD_INVALID",
            Self::MdIllegal { .. } => "PTL_MD_ILLEGAL",
            Self::MdInUse { .. } => "PTL_MD_IN_USE",
            Self::EqInvalid { .. } => "PTL_EQ_INVALID",
            Self::EqEmpty => "PTL_EQ_EMPTY",
            Self::EqDropped { .. } => "PTL_EQ_DROPPED",
        }
    }
}
