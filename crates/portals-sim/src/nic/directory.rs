//! Who is where: the identity of each process.

use fabric_sim::ProcessAddress;
use std::fmt;

/// A process: its node and which of the node's it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The node.
    pub nid: u32,
    /// The process within the node.
    pub pid: u32,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nid {} pid {}", self.nid, self.pid)
    }
}

impl ProcessAddress for ProcessId {
    fn new(nid: u32, pid: u32) -> Self {
        Self { nid, pid }
    }

    fn place(self) -> (u32, u32) {
        (self.nid, self.pid)
    }
}

/// Whose operations a match entry takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// Everyone's.
    #[default]
    Any,
    /// Those of any process of a node.
    Node(u32),
    /// Those of one process.
    Process(ProcessId),
}

impl Source {
    #[inline]
    pub(crate) fn fits(self, id: ProcessId) -> bool {
        match self {
            Self::Any => true,
            Self::Node(nid) => nid == id.nid,
            Self::Process(process) => process == id,
        }
    }
}
