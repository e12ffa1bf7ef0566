//! Who is where: the network address of each process.

use std::cell::RefCell;
use std::fmt;

/// Where a process is in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node: 16 bits.
    pub node: u16,
    /// The process within the node, by which interfaces tell its memory and mailbox from others': 8 bits.
    pub vpid: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} vpid {}", self.node, self.vpid)
    }
}

/// All processes of the machine, written while it is built.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Per node: its ranks, in the order of their vpids.
    nodes: RefCell<Vec<Vec<u32>>>,
    /// Per rank.
    addresses: RefCell<Vec<Option<Address>>>,
}

impl Directory {
    pub(crate) fn add(&self, node: u32, ranks: &[u32]) {
        let mut nodes = self.nodes.borrow_mut();
        let mut addresses = self.addresses.borrow_mut();
        let count = nodes.len().max(node as usize + 1);
        nodes.resize(count, Vec::new());
        nodes[node as usize] = ranks.to_vec();
        for (vpid, rank) in ranks.iter().enumerate() {
            let count = addresses.len().max(*rank as usize + 1);
            addresses.resize(count, None);
            addresses[*rank as usize] = Some(Address { node: node as u16, vpid: vpid as u8 });
        }
    }

    pub(crate) fn rank(&self, address: Address) -> Option<u32> {
        self.nodes.borrow().get(usize::from(address.node))?.get(usize::from(address.vpid)).copied()
    }

    /// Processes of a node; 0 if there is no such node.
    pub(crate) fn processes(&self, node: u16) -> usize {
        self.nodes.borrow().get(usize::from(node)).map_or(0, Vec::len)
    }

    pub(crate) fn address(&self, rank: u32) -> Option<Address> {
        self.addresses.borrow().get(rank as usize).copied().flatten()
    }
}
