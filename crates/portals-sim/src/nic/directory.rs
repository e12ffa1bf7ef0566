//! Who is where: the identity of each process.

use std::cell::RefCell;
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

/// All processes of the machine, written while it is built.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Per node: its ranks, in the order of their pids.
    nodes: RefCell<Vec<Box<[u32]>>>,
    /// Per rank.
    ids: RefCell<Vec<Option<ProcessId>>>,
}

impl Directory {
    pub(crate) fn add(&self, node: u32, ranks: &[u32]) {
        let mut nodes = self.nodes.borrow_mut();
        let mut ids = self.ids.borrow_mut();
        let count = nodes.len().max(node as usize + 1);
        nodes.resize(count, Box::default());
        nodes[node as usize] = ranks.into();
        for (pid, rank) in ranks.iter().enumerate() {
            let count = ids.len().max(*rank as usize + 1);
            ids.resize(count, None);
            ids[*rank as usize] = Some(ProcessId { nid: node, pid: pid as u32 });
        }
    }

    #[inline]
    pub(crate) fn rank(&self, id: ProcessId) -> Option<u32> {
        self.nodes.borrow().get(id.nid as usize)?.get(id.pid as usize).copied()
    }

    /// Processes of a node; 0 if there is no such node.
    pub(crate) fn processes(&self, nid: u32) -> usize {
        self.nodes.borrow().get(nid as usize).map_or(0, |ranks| ranks.len())
    }

    #[inline]
    pub(crate) fn id(&self, rank: u32) -> Option<ProcessId> {
        self.ids.borrow().get(rank as usize).copied().flatten()
    }

    /// The identity of a rank that a packet came from.
    #[inline]
    pub(crate) fn of(&self, rank: u32) -> ProcessId {
        self.id(rank).expect("packets come from ranks of the job")
    }
}
