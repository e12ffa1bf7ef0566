//! The fewest cables between two halves of the nodes of any network: exactly for a few vertices, else bounds.
//!
//! From above: the best halves that moves of single vertices find (Fiduccia and Mattheyses, 1982) from some first
//! ones. From below: if every two nodes send each other one unit over all shortest ways alike, halves exchange a
//! known number of units, and no cable carries more than the one that carries most.

use crate::network::Network;
use std::collections::VecDeque;

/// With so many vertices all halves are tried.
const EXACT: usize = 22;
/// With so many vertices moves of nodes are tried, each time the best of all.
const MOVES: usize = 4096;
/// Of so many nodes times cables all shortest ways are counted.
const WAYS: usize = 1 << 28;

/// The cables between vertices, of which the first are nodes. Of each vertex the ends of its cables, in both
/// directions.
pub(crate) struct Cables {
    nodes: usize,
    ends: Vec<Vec<u32>>,
    /// Where links go one way, every other one that crosses goes back.
    one_way: bool,
}

impl Cables {
    pub(crate) fn of(network: &Network, one_way: bool) -> Self {
        let mut ends = vec![Vec::new(); network.vertices() as usize];
        for vertex in 0..network.vertices() {
            for end in network.ports(vertex).filter_map(|link| network.head(link)) {
                ends[vertex as usize].push(end);
                if one_way {
                    ends[end as usize].push(vertex);
                }
            }
        }
        Self { nodes: network.nodes as usize, ends, one_way }
    }

    /// The fewest cables between halves: at least, and at most.
    pub(crate) fn fewest(&self) -> [u64; 2] {
        if self.nodes < 2 {
            return [0; 2];
        }
        if self.ends.len() <= EXACT {
            return [self.exact(); 2];
        }
        let most = self.found();
        [self.carried().min(most), most]
    }

    /// Cables for so many ends of cables on the other side, seen from one side.
    fn cables(&self, crossing: u64) -> u64 {
        if self.one_way { crossing / 2 } else { crossing }
    }

    fn cut(&self, side: &[bool]) -> u64 {
        let from = (0..self.ends.len()).filter(|vertex| side[*vertex]);
        let crossing = |vertex: usize| self.ends[vertex].iter().filter(|end| !side[**end as usize]).count() as u64;
        from.map(crossing).sum()
    }

    /// How many cables fewer cross once a vertex is on the other side.
    fn gain(&self, vertex: usize, side: &[bool]) -> i64 {
        let across = self.ends[vertex].iter().filter(|end| side[**end as usize] != side[vertex]).count();
        2 * across as i64 - self.ends[vertex].len() as i64
    }

    /// All halves, each one move from the one before (Gray's code). The last vertex stays where it is.
    fn exact(&self) -> u64 {
        let mut side = vec![false; self.ends.len()];
        let (mut there, mut cut, mut fewest) = (0, 0_u64, u64::MAX);
        for number in 1..1_u32 << (self.ends.len() - 1) {
            let vertex = number.trailing_zeros() as usize;
            cut = cut.saturating_add_signed(-self.gain(vertex, &side));
            side[vertex] = !side[vertex];
            if vertex < self.nodes {
                there = if side[vertex] { there + 1 } else { there - 1 };
            }
            if there == self.nodes / 2 || there == self.nodes.div_ceil(2) {
                fewest = fewest.min(cut);
            }
        }
        self.cables(fewest)
    }

    /// The best halves that are found.
    pub(super) fn found(&self) -> u64 {
        let by_number: Vec<usize> = (0..self.ends.len()).collect();
        let near_first = self.by_distance(0);
        let near_last = self.by_distance(*near_first.last().expect("there are vertices"));
        let starts = [by_number, near_first, near_last];
        let fewest = starts.iter().map(|order| self.improved(order)).min();
        self.cables(fewest.expect("there are first halves"))
    }

    /// The vertices from a vertex on.
    fn by_distance(&self, from: usize) -> Vec<usize> {
        let (mut known, mut order) = (vec![false; self.ends.len()], vec![from]);
        known[from] = true;
        let mut at = 0;
        while let Some(vertex) = order.get(at).copied() {
            at += 1;
            for end in &self.ends[vertex] {
                if !std::mem::replace(&mut known[*end as usize], true) {
                    order.push(*end as usize);
                }
            }
        }
        order
    }

    /// The cut of the halves that moves make of the first half of the nodes in an order.
    fn improved(&self, order: &[usize]) -> u64 {
        let mut side = vec![true; self.ends.len()];
        let first = order.iter().filter(|vertex| **vertex < self.nodes).take(self.nodes / 2);
        first.for_each(|node| side[*node] = false);
        self.settle(&mut side);
        let mut cut = self.cut(&side);
        while self.ends.len() <= MOVES {
            let better = self.pass(&mut side);
            if better >= cut {
                break;
            }
            cut = better;
        }
        cut
    }

    /// Moves switches as long as fewer cables cross. At first each goes where most of its cables lead, the nearest
    /// to the nodes first.
    fn settle(&self, side: &mut [bool]) {
        let mut moved = true;
        while moved {
            moved = false;
            for switch in self.nodes..self.ends.len() {
                if self.gain(switch, side) > 0 {
                    side[switch] = !side[switch];
                    moved = true;
                }
            }
        }
    }

    /// Moves every vertex once, the best one first that leaves halves or brings them back; keeps the best halves.
    fn pass(&self, side: &mut [bool]) -> u64 {
        let mut cut = self.cut(side) as i64;
        let (start, mut best, mut moves) = (side.to_vec(), (cut, 0), Vec::new());
        let mut gains: Vec<i64> = (0..self.ends.len()).map(|vertex| self.gain(vertex, side)).collect();
        let mut free = vec![true; self.ends.len()];
        // Nodes that the true side has more than at the start.
        let mut more = 0;
        loop {
            let may = |vertex: usize| vertex >= self.nodes || more == 0 || (more > 0) == side[vertex];
            let next = (0..self.ends.len()).filter(|vertex| free[*vertex] && may(*vertex));
            let Some(vertex) = next.max_by_key(|vertex| gains[*vertex]) else { break };
            cut -= gains[vertex];
            side[vertex] = !side[vertex];
            free[vertex] = false;
            moves.push(vertex);
            if vertex < self.nodes {
                more += if side[vertex] { 1 } else { -1 };
            }
            gains[vertex] = -gains[vertex];
            for end in &self.ends[vertex] {
                gains[*end as usize] += if side[*end as usize] == side[vertex] { -2 } else { 2 };
            }
            if more == 0 && cut < best.0 {
                best = (cut, moves.len());
            }
        }
        side.copy_from_slice(&start);
        moves[..best.1].iter().for_each(|vertex| side[*vertex] = !side[*vertex]);
        best.0 as u64
    }

    /// As many cables as halves need for what they exchange, if every two nodes send each other one unit.
    pub(super) fn carried(&self) -> u64 {
        let cables: usize = self.ends.iter().map(Vec::len).sum();
        if self.nodes.saturating_mul(cables) > WAYS {
            return 1;
        }
        let mut first = vec![0];
        self.ends.iter().for_each(|ends| first.push(first[first.len() - 1] + ends.len()));
        let mut load = vec![0.0_f64; cables];
        for node in 0..self.nodes {
            self.load_from(node, &first, &mut load);
        }
        // A cable carries what goes in both directions: from both sides the same, since ways are the same.
        let most = 2.0 * load.iter().copied().fold(0.0, f64::max);
        let crossing = 2.0 * (self.nodes / 2) as f64 * self.nodes.div_ceil(2) as f64;
        let fewest = (crossing / most * (1.0 - 1e-9)).ceil();
        if fewest.is_finite() && fewest >= 1.0 { self.cables(fewest as u64).max(1) } else { 1 }
    }

    /// Adds what a node sends to all others, one unit each, in equal parts over all shortest ways (Brandes, 2001).
    fn load_from(&self, node: usize, first: &[usize], load: &mut [f64]) {
        let count = self.ends.len();
        let (mut distance, mut ways, mut order) = (vec![u32::MAX; count], vec![0.0_f64; count], Vec::new());
        (distance[node], ways[node]) = (0, 1.0);
        let mut queue = VecDeque::from([node]);
        while let Some(at) = queue.pop_front() {
            order.push(at);
            for end in self.ends[at].iter().map(|end| *end as usize) {
                if distance[end] == u32::MAX {
                    distance[end] = distance[at] + 1;
                    queue.push_back(end);
                }
                if distance[end] == distance[at] + 1 {
                    ways[end] += ways[at];
                }
            }
        }
        // What passes a vertex or ends there, from the farthest one on.
        let mut passes = vec![0.0_f64; count];
        for at in order.into_iter().rev() {
            let here = if at < self.nodes && at != node { 1.0 } else { 0.0 };
            let mut onwards = 0.0;
            for (index, end) in self.ends[at].iter().map(|end| *end as usize).enumerate() {
                if distance[end] == distance[at] + 1 {
                    let part = passes[end] * ways[at] / ways[end];
                    load[first[at] + index] += part;
                    onwards += part;
                }
            }
            passes[at] = here + onwards;
        }
    }
}
