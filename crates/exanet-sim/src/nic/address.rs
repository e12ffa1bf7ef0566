//! Who is where: the network address of each process.

use fabric_sim::ProcessAddress;
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

impl ProcessAddress for Address {
    fn new(node: u32, process: u32) -> Self {
        Self { node: node as u16, context: process as u8 }
    }

    fn place(self) -> (u32, u32) {
        (self.node.into(), self.context.into())
    }
}
