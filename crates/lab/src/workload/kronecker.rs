//! The Kronecker graphs of Graph500, what it demands of a breadth-first search, and a sequential one.

use super::scramble;
use std::time::{Duration, Instant};

/// In the place of a parent or level: the vertex was not reached.
pub const NONE: u32 = u32::MAX;

/// A graph of `2^scale` vertices (Graph500's generator with A = 0.57, B = C = 0.19, vertices relabelled by a
/// bijection).
#[derive(Clone, Copy, Debug)]
pub struct Kronecker {
    /// Binary logarithm of the number of vertices, from 1 to 31.
    pub scale: u32,
    /// Edges for each vertex.
    pub edge_factor: u64,
}

/// The neighbours of vertices, in compressed sparse rows.
#[derive(Clone, Debug, Default)]
pub struct Adjacency {
    starts: Vec<usize>,
    neighbours: Vec<u32>,
}

impl Adjacency {
    /// The rows of so many vertices and of edges `[vertex, neighbour]`.
    pub fn new(vertices: usize, edges: impl Iterator<Item = [u32; 2]> + Clone) -> Self {
        let mut starts = vec![0usize; vertices + 1];
        edges.clone().for_each(|[from, _]| starts[from as usize + 1] += 1);
        (0..vertices).for_each(|vertex| starts[vertex + 1] += starts[vertex]);
        let (mut next, mut neighbours) = (starts.clone(), vec![0u32; starts[vertices]]);
        for [from, to] in edges {
            neighbours[next[from as usize]] = to;
            next[from as usize] += 1;
        }
        Self { starts, neighbours }
    }

    /// The neighbours of a vertex.
    #[inline]
    pub fn of(&self, vertex: usize) -> &[u32] {
        &self.neighbours[self.starts[vertex]..self.starts[vertex + 1]]
    }
}

/// A set of vertices as bits, which caches hold where they do not hold what a search finds out about each.
#[derive(Clone, Debug, Default)]
pub struct Seen(Vec<u64>);

impl Seen {
    /// None of so many vertices.
    pub fn none(vertices: u32) -> Self {
        Self(vec![0; vertices.div_ceil(64) as usize])
    }

    /// Adds a vertex; whether it is new.
    #[inline]
    pub fn insert(&mut self, vertex: u32) -> bool {
        let (word, bit) = (&mut self.0[vertex as usize / 64], 1 << (vertex % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

/// What a search found out about a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Its distance from the root, or [`NONE`].
    pub level: u32,
    /// The vertex that it was reached from, itself for the root, or [`NONE`].
    pub parent: u32,
}

/// What sequential searches came to.
#[derive(Clone, Copy, Debug)]
pub struct PlainSearches {
    /// Edges of the vertices that were reached, each once.
    pub traversed: u64,
    /// Time of the searches, without that of making the graph.
    pub time: Duration,
    /// Faults that validation found.
    pub errors: u64,
}

impl Reached {
    /// A vertex that was not reached.
    pub const NOT: Self = Self { level: NONE, parent: NONE };

    /// Whether an edge from a vertex to `other`, of some level, is as Graph500 demands: both ends or none are
    /// reached, a level apart at most, and exactly one if the edge is of the tree.
    pub fn allows(self, other: u32, level: u32) -> bool {
        let apart = self.level == level || self.level != NONE && level != NONE && self.level.abs_diff(level) == 1;
        let child = self.parent == other && self.level != 0;
        apart && !(child && self.level != level.wrapping_add(1))
    }

    /// Whether a vertex that is not the root and was reached has an edge to its parent.
    pub fn is_real(self, adjacent: &[u32]) -> bool {
        self == Self::NOT || self.level == 0 || adjacent.contains(&self.parent)
    }
}

impl Kronecker {
    /// Number of vertices.
    pub fn vertices(&self) -> u32 {
        1 << self.scale
    }

    fn edge(&self, number: u64) -> [u32; 2] {
        let mut edge = [0u64; 2];
        for bit in 0..self.scale {
            let random = scramble(number * 64 + u64::from(bit)) >> 11;
            let [u, v] = match (random * 100) >> 53 {
                0..57 => [0, 0],
                57..76 => [0, 1],
                76..95 => [1, 0],
                _ => [1, 1],
            };
            edge = [edge[0] << 1 | u, edge[1] << 1 | v];
        }
        let mask = (1 << self.scale) - 1;
        edge.map(|vertex| ((vertex * 0x9e37_79b1 + 12345) & mask) as u32)
    }

    /// The edges that one of several ranks makes, each in both directions, without loops.
    pub fn edges(self, rank: u32, ranks: u32) -> impl Iterator<Item = [u32; 2]> + Clone {
        let numbers = (u64::from(rank)..self.edge_factor << self.scale).step_by(ranks as usize);
        let edges = numbers.map(move |number| self.edge(number)).filter(|[u, v]| u != v);
        edges.flat_map(|[u, v]| [[u, v], [v, u]])
    }

    /// Vertices to try as roots, in order; those without edges are no roots.
    pub fn candidates(&self) -> impl Iterator<Item = u32> + use<> {
        let vertices = self.vertices();
        (0..).map(move |number| scramble(number) as u32 % vertices)
    }

    /// Searches from so many roots with one thread and no messages: what a parallel search is compared with.
    pub fn search_plainly(&self, roots: u64) -> PlainSearches {
        let vertices = self.vertices() as usize;
        let adjacency = Adjacency::new(vertices, self.edges(0, 1));
        let of = |vertex: u32| adjacency.of(vertex as usize);
        let mut found = PlainSearches { traversed: 0, time: Duration::ZERO, errors: 0 };
        for root in self.candidates().filter(|root| !of(*root).is_empty()).take(roots as usize) {
            let (mut reached, mut seen) = (vec![Reached::NOT; vertices], Seen::none(self.vertices()));
            reached[root as usize] = Reached { level: 0, parent: root };
            seen.insert(root);
            let begin = Instant::now();
            let (mut queue, mut first) = (vec![root], 0);
            while let Some(vertex) = queue.get(first).copied() {
                let level = reached[vertex as usize].level + 1;
                for to in of(vertex) {
                    if seen.insert(*to) {
                        reached[*to as usize] = Reached { level, parent: vertex };
                        queue.push(*to);
                    }
                }
                first += 1;
            }
            found.time += begin.elapsed();
            found.traversed += queue.iter().map(|vertex| of(*vertex).len() as u64).sum::<u64>() / 2;
            for (vertex, of_vertex) in (0..).zip(&reached) {
                let wrong = |to: &&u32| !reached[**to as usize].allows(vertex, of_vertex.level);
                found.errors += of(vertex).iter().filter(wrong).count() as u64;
                found.errors += u64::from(!of_vertex.is_real(of(vertex)));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_make_all_edges_together() {
        let graph = Kronecker { scale: 7, edge_factor: 5 };
        let mut parts: Vec<_> = (0..3).flat_map(|rank| graph.edges(rank, 3)).collect();
        let mut all: Vec<_> = graph.edges(0, 1).collect();
        parts.sort_unstable();
        all.sort_unstable();
        assert!(parts == all && all.iter().all(|[u, v]| u != v && *u < 128 && *v < 128));
        assert!(all.iter().all(|[u, v]| all.binary_search(&[*v, *u]).is_ok()));
    }

    #[test]
    fn rows_and_sets_hold_what_they_are_given() {
        let rows = Adjacency::new(4, [[2, 7], [0, 1], [2, 5], [3, 0]].into_iter());
        assert_eq!([0, 1, 2, 3].map(|vertex| rows.of(vertex)), [&[1][..], &[], &[7, 5], &[0]]);
        let mut seen = Seen::none(65);
        assert!(seen.insert(64) && seen.insert(0) && !seen.insert(64) && seen.insert(63) && !seen.insert(0));
    }

    #[test]
    fn plain_searches_are_right() {
        let graph = Kronecker { scale: 9, edge_factor: 8 };
        let found = graph.search_plainly(3);
        assert_eq!(found.errors, 0);
        assert!((3000..=(3 * 8) << 9).contains(&found.traversed), "{}", found.traversed);
    }

    #[test]
    fn wrong_trees_are_found() {
        let at = |level, parent| Reached { level, parent };
        assert!(
            at(2, 7).allows(7, 1)
                && at(2, 7).allows(8, 3)
                && at(0, 5).allows(7, 1)
                && Reached::NOT.allows(3, NONE)
        );
        assert!(!at(2, 7).allows(7, 2), "a tree edge spans one level");
        assert!(!at(2, 7).allows(9, 4) && !at(2, 7).allows(9, NONE) && !Reached::NOT.allows(9, 1));
        assert!(at(2, 7).is_real(&[1, 7]) && !at(2, 7).is_real(&[1]) && at(0, 4).is_real(&[]));
    }
}
