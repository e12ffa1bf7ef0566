//! The return codes of Portals 4 that are not success.

use super::types::Event;
use thiserror::Error;

/// A call's return code, with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum P4Error {
    /// `PTL_ARG_INVALID`: a handle of nothing, or a number outside its limits.
    #[error("{what} is {value}, but must be {limit}")]
    ArgInvalid {
        /// Which argument.
        what: &'static str,
        /// Its value; of a handle, its place in the table.
        value: u64,
        /// What is allowed.
        limit: &'static str,
    },
    /// `PTL_CT_NONE_REACHED`: no counter has reached what was waited for in time.
    #[error("no counter was reached in time")]
    CtNoneReached,
    /// `PTL_EQ_DROPPED`: an event is there, but others have been written over since the one before. They cannot be
    /// had again.
    #[error("{lost} events have been lost; the next is {event:?}")]
    EqDropped {
        /// The next event.
        event: Event,
        /// How many are lost.
        lost: u64,
    },
    /// `PTL_EQ_EMPTY`: no event is there.
    #[error("the event queue is empty")]
    EqEmpty,
    /// `PTL_FAIL`: what was asked is not so.
    #[error("the handles are not equal")]
    Fail,
    /// `PTL_IGNORED`: there is a map already, which stays.
    #[error("there is a map of {processes} processes already")]
    Ignored {
        /// Its size.
        processes: u32,
    },
    /// `PTL_IN_USE`: the interface still needs it.
    #[error("the {what} has {pending} pending operations or unexpected headers")]
    InUse {
        /// What.
        what: &'static str,
        /// By how many.
        pending: u32,
    },
    /// `PTL_LIST_TOO_LONG`: the list has as many entries as it may have.
    #[error("the list of portal table entry {pt_index} has all {limit} entries that it may have")]
    ListTooLong {
        /// Whose list.
        pt_index: u32,
        /// Entries that it may have.
        limit: u32,
    },
    /// `PTL_NO_INIT`: the interface is not open.
    #[error("the interface is not open")]
    NoInit,
    /// `PTL_NO_SPACE`: all that there may be are in use.
    #[error("all {limit} {what} are in use")]
    NoSpace {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: u32,
    },
    /// `PTL_PID_IN_USE`: another process has this number.
    #[error("pid {pid} belongs to another process")]
    PidInUse {
        /// The number.
        pid: u32,
    },
    /// `PTL_PT_FULL`: all portal table entries are in use.
    #[error("all {entries} portal table entries are in use")]
    PtFull {
        /// How many there are.
        entries: u32,
    },
    /// `PTL_PT_EQ_NEEDED`: flow control wants an event queue.
    #[error("a portal table entry with flow control needs an event queue")]
    PtEqNeeded,
    /// `PTL_PT_IN_USE`: the portal table entry is in use.
    #[error("portal table entry {index} is in use, by {entries} entries")]
    PtInUse {
        /// Which.
        index: u32,
        /// Entries in its lists.
        entries: u32,
    },
}

impl P4Error {
    /// The code's name in the interface's header.
    ///
    /// ```
    /// assert_eq!(portals_sim::nic::p4::P4Error::PtEqNeeded.code(), "PTL_PT_EQ_NEEDED");
    /// ```
    pub const fn code(&self) -> &'static str {
        match self {
            Self::ArgInvalid { .. } => "PTL_ARG_INVALID",
            Self::CtNoneReached => "PTL_CT_NONE_REACHED",
            Self::EqDropped { .. } => "PTL_EQ_DROPPED",
            Self::EqEmpty => "PTL_EQ_EMPTY",
            Self::Fail => "PTL_FAIL",
            Self::Ignored { .. } => "PTL_IGNORED",
            Self::InUse { .. } => "PTL_IN_USE",
            Self::ListTooLong { .. } => "PTL_LIST_TOO_LONG",
            Self::NoInit => "PTL_NO_INIT",
            Self::NoSpace { .. } => "PTL_NO_SPACE",
            Self::PidInUse { .. } => "PTL_PID_IN_USE",
            Self::PtFull { .. } => "PTL_PT_FULL",
            Self::PtEqNeeded => "PTL_PT_EQ_NEEDED",
            Self::PtInUse { .. } => "PTL_PT_IN_USE",
        }
    }
}

/// A handle of something that is not there.
pub(crate) const fn stale(what: &'static str, index: u32) -> P4Error {
    P4Error::ArgInvalid { what, value: index as u64, limit: "a handle of something that exists" }
}
