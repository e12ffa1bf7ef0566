//! Who is where: the address of each process.

use std::cell::RefCell;

/// Where a process is in the network, as an interface says it.
pub trait ProcessAddress: Copy {
    /// The address of one of a node's processes, counted from 0.
    fn new(node: u32, process: u32) -> Self;

    /// The node, and which of its processes.
    fn place(self) -> (u32, u32);
}

/// All processes of a machine, written while it is built.
#[derive(Debug)]
pub struct Directory<A> {
    /// Per node: its ranks, in the order of their addresses.
    nodes: RefCell<Vec<Box<[u32]>>>,
    /// Per rank.
    addresses: RefCell<Vec<Option<A>>>,
}

impl<A> Default for Directory<A> {
    fn default() -> Self {
        Self { nodes: RefCell::default(), addresses: RefCell::default() }
    }
}

impl<A: ProcessAddress> Directory<A> {
    /// Notes the ranks of a node.
    pub fn add(&self, node: u32, ranks: &[u32]) {
        let (mut nodes, mut addresses) = (self.nodes.borrow_mut(), self.addresses.borrow_mut());
        let count = nodes.len().max(node as usize + 1);
        nodes.resize(count, Box::default());
        nodes[node as usize] = ranks.into();
        for (process, rank) in (0..).zip(ranks) {
            let count = addresses.len().max(*rank as usize + 1);
            addresses.resize(count, None);
            addresses[*rank as usize] = Some(A::new(node, process));
        }
    }

    /// The rank at an address.
    #[inline]
    pub fn rank(&self, address: A) -> Option<u32> {
        let (node, process) = address.place();
        self.nodes.borrow().get(node as usize)?.get(process as usize).copied()
    }

    /// The address of a rank.
    #[inline]
    pub fn address(&self, rank: u32) -> Option<A> {
        self.addresses.borrow().get(rank as usize).copied().flatten()
    }

    /// The address of a rank of the job, as all are that packets come from or go to.
    ///
    /// # Panics
    /// If there is no such rank.
    #[inline]
    pub fn of(&self, rank: u32) -> A {
        self.address(rank).expect("every rank of the job has its place in the machine")
    }

    /// Processes of a node; 0 if there is no such node.
    pub fn processes(&self, node: u32) -> usize {
        self.nodes.borrow().get(node as usize).map_or(0, |ranks| ranks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ProcessAddress for (u32, u32) {
        fn new(node: u32, process: u32) -> Self {
            (node, process)
        }

        fn place(self) -> (u32, u32) {
            self
        }
    }

    #[test]
    fn ranks_are_found_where_they_are() {
        let directory = Directory::default();
        directory.add(2, &[0, 3]);
        directory.add(0, &[1]);
        assert_eq!([0, 1, 3].map(|rank| directory.of(rank)), [(2, 0), (0, 0), (2, 1)]);
        assert_eq!([2, 4].map(|rank| directory.address(rank)), [None; 2]);
        assert_eq!([(2, 1), (2, 2), (1, 0), (9, 0)].map(|at| directory.rank(at)), [Some(3), None, None, None]);
        assert_eq!([0, 1, 2, 3].map(|node| directory.processes(node)), [1, 0, 2, 0]);
    }
}
