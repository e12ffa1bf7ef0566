//! Who is where: the network address of each process.

use fabric_sim::ProcessAddress;
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

impl ProcessAddress for Address {
    fn new(node: u32, process: u32) -> Self {
        Self { node: node as u16, vpid: process as u8 }
    }

    fn place(self) -> (u32, u32) {
        (self.node.into(), self.vpid.into())
    }
}
