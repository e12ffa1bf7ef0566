//! Who is where: the network address of each process.

use std::cell::RefCell;
use std::fmt;

/// Where a process is in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node.
    pub node: u16,
    /// The process's context in its node's interface.
    pub context: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} context {}", self.node, self.context)
    }
}

/// All processes of the machine, written while it is built.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Per node: its ranks, in the order of their contexts.
    nodes: RefCell<Vec<Vec<u32>>>,
    /// Per rank.
    addresses: RefCell<Vec<Option<Address>>>,
}

impl Directory {
    pub(crate) fn add(&self, node: u32, ranks: &[u32]) {
        let (mut nodes, mut addresses) = (self.nodes.borrow_mut(), self.addresses.borrow_mut());
        let count = nodes.len().max(node as usize + 1);
        nodes.resize(count, Vec::new());
        nodes[node as usize] = ranks.to_vec();
        for (context, rank) in ranks.iter().enumerate() {
            let count = addresses.len().max(*rank as usize + 1);
            addresses.resize(count, None);
            addresses[*rank as usize] = Some(Address { node: node as u16, context: context as u8 });
        }
    }

    pub(crate) fn rank(&self, address: Address) -> Option<u32> {
        self.nodes.borrow().get(usize::from(address.node))?.get(usize::from(address.context)).copied()
    }

    pub(crate) fn address(&self, rank: u32) -> Option<Address> {
        self.addresses.borrow().get(rank as usize).copied().flatten()
    }

    /// Number of processes of a node.
    pub(crate) fn processes(&self, node: u16) -> usize {
        self.nodes.borrow().get(usize::from(node)).map_or(0, Vec::len)
    }
}
