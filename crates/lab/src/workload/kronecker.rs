//! The Kronecker graphs of Graph500, what it demands of a breadth-first search, and a sequential one.

use super::scramble;
use std::ops::Range;
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
    isolated: Bits,
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
        let alone = |vertex: &usize| *vertex >= vertices || starts[*vertex] == starts[*vertex + 1];
        let isolated = Bits::of(vertices, (0..vertices.next_multiple_of(64)).filter(alone));
        Self { starts, neighbours, isolated }
    }

    /// The vertices of a range of places that are not in `seen` and have a neighbour in `level`, with the first
    /// such neighbour. The range begins with vertex 0 of this.
    pub fn upwards(&self, seen: &Bits, places: Range<usize>, level: &Bits) -> impl Iterator<Item = (usize, u32)> {
        let first = places.start;
        seen.missing(places).filter_map(move |place| {
            let parent = self.of(place - first).iter().find(|to| level.contains(**to as usize))?;
            Some((place, *parent))
        })
    }

    /// The vertices without edges, and the numbers behind the last vertex that its word has bits for.
    pub fn isolated(&self) -> &Bits {
        &self.isolated
    }

    /// The neighbours of a vertex.
    #[inline]
    pub fn of(&self, vertex: usize) -> &[u32] {
        &self.neighbours[self.starts[vertex]..self.starts[vertex + 1]]
    }
}

/// How vertices are spread over ranks: vertex `v` belongs to rank `v % ranks`. Its *place* has the owner in the
/// upper bits and counts the owner's vertices in the lower ones, so that neither takes a division.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    ranks: u32,
    bits: u32,
}

impl Spread {
    /// So many vertices on so many ranks, which have whole words of a [`Bits`] each.
    ///
    /// # Panics
    /// If places need more than 32 bits, which takes more than 2^26 ranks.
    pub fn new(vertices: u32, ranks: u32) -> Self {
        let bits = vertices.div_ceil(ranks).next_power_of_two().ilog2().max(64u32.ilog2());
        assert!(u64::from(ranks) << bits <= 1 << 32, "{ranks} ranks have more places than 32 bits count");
        Self { ranks, bits }
    }

    /// Where a vertex is.
    pub fn place(self, vertex: u32) -> u32 {
        self.at(vertex % self.ranks, (vertex / self.ranks) as usize)
    }

    /// The place of one of a rank's vertices.
    #[inline]
    pub fn at(self, rank: u32, index: usize) -> u32 {
        rank << self.bits | index as u32
    }

    /// The rank that a place belongs to.
    #[inline]
    pub fn owner(self, place: u32) -> u32 {
        // Widened: a single rank may have all 32 bits.
        (u64::from(place) >> self.bits) as u32
    }

    /// Which of its owner's vertices is at a place.
    #[inline]
    pub fn local(self, place: u32) -> usize {
        place as usize & (self.each() - 1)
    }

    /// Some of a rank's vertices as a set of places.
    pub fn spread(self, rank: u32, vertices: &Bits) -> Bits {
        let mut places = Bits::none(self.all());
        let first = self.at(rank, 0) as usize / 64;
        places.0[first..first + vertices.0.len()].copy_from_slice(&vertices.0);
        places
    }

    /// Places of each rank, some of them without a vertex.
    pub fn each(self) -> usize {
        1 << self.bits
    }

    /// Places of all ranks.
    pub fn all(self) -> usize {
        self.each() * self.ranks as usize
    }
}

/// A set of vertices as bits, which caches hold where they do not hold what a search finds out about each.
#[derive(Clone, Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// None of so many.
    pub fn none(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// The given ones of so many.
    pub fn of(len: usize, numbers: impl Iterator<Item = usize>) -> Self {
        let mut bits = Self::none(len);
        numbers.for_each(|number| _ = bits.insert(number));
        bits
    }

    /// Adds one; whether it is new.
    #[inline]
    pub fn insert(&mut self, number: usize) -> bool {
        let (word, bit) = (&mut self.0[number / 64], 1 << (number % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether one is in the set.
    #[inline]
    pub fn contains(&self, number: usize) -> bool {
        self.0[number / 64] & 1 << (number % 64) != 0
    }

    /// Adds all of another set of the same size.
    pub fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// The bits, the first of which are the lowest of the first word.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The bits, to be changed.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    /// Numbers of a range that are not in the set, in order. The range is one of whole words.
    pub fn missing(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let words = self.0[range.start / 64..range.end / 64].iter().enumerate();
        words.flat_map(move |(word, bits)| {
            let mut left = !bits;
            std::iter::from_fn(move || {
                let next = (left != 0).then(|| range.start + 64 * word + left.trailing_zeros() as usize);
                left &= left.wrapping_sub(1);
                next
            })
        })
    }
}

/// How far a search has come: the vertices of its level, their edges, and the edges of vertices that are not
/// reached. That tells how to find the next level: from the vertices of this one, or from those that are not
/// reached, each of which looks for a neighbour in this one (Beamer, Asanovic and Patterson 2012).
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress(pub [u64; 3]);

impl Progress {
    /// Whether the next level of so many vertices is searched from those that are not reached, by the factors of
    /// that paper; `before`: whether this one was.
    pub fn upwards(self, before: bool, all: u32) -> bool {
        let [vertices, edges, left] = self.0;
        if before { vertices * 24 > u64::from(all) } else { edges * 14 > left }
    }
}

/// The tree that a search makes of some vertices, level by level.
#[derive(Clone, Debug)]
pub struct Tree {
    reached: Vec<Reached>,
    depth: u32,
    found: Vec<u32>,
}

impl Tree {
    /// Of so many vertices.
    pub fn new(vertices: usize) -> Self {
        Self { reached: vec![Reached::NOT; vertices], depth: 0, found: Vec::new() }
    }

    /// Begins again, with the root if that is one of these vertices: its number among them, and its name.
    pub fn restart(&mut self, root: Option<(usize, u32)>) {
        (self.depth, self.found) = (0, Vec::new());
        self.reached.fill(Reached::NOT);
        if let Some((index, name)) = root {
            self.reached[index] = Reached { level: 0, parent: name };
            self.found.push(name);
        }
    }

    /// Notes that a vertex can be reached from one of the level that is being searched.
    #[inline]
    pub fn visit(&mut self, index: usize, name: u32, parent: u32) {
        let reached = &mut self.reached[index];
        if reached.level == NONE {
            *reached = Reached { level: self.depth, parent };
            self.found.push(name);
        }
    }

    /// Goes on to the vertices that have been found.
    pub fn next_level(&mut self) -> Vec<u32> {
        self.depth += 1;
        std::mem::take(&mut self.found)
    }

    /// What was found out about a vertex.
    pub fn of(&self, index: usize) -> Reached {
        self.reached[index]
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Searches {
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

    /// Whether a vertex is as Graph500 demands: the root, and no other, is at level 0 and its own parent; others
    /// were not reached, or have an edge to their parent.
    pub fn is_real(self, vertex: u32, root: u32, adjacent: &[u32]) -> bool {
        match self.level {
            _ if vertex == root => self == Self { level: 0, parent: root },
            0 => false,
            NONE => self == Self::NOT,
            _ => adjacent.contains(&self.parent),
        }
    }
}

impl Kronecker {
    /// Number of vertices.
    pub fn vertices(&self) -> u32 {
        1 << self.scale
    }

    /// Bytes that each of so many ranks needs at most for its part of the graph and of a search: an edge as two
    /// pairs and in two rows, a vertex where its row starts (twice while rows are made), what was found out about
    /// it, and its place in two levels; and two sets of all vertices. The largest number, over the ranks, if they
    /// cannot be counted.
    pub fn bytes(&self, ranks: u32) -> u64 {
        let vertices = 1u64 << self.scale.min(31);
        let each = self.edge_factor.saturating_mul(24).saturating_add(32);
        (each.saturating_mul(vertices) / u64::from(ranks.max(1))).saturating_add(vertices / 4)
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

    /// Searches from so many roots with one thread and no messages, which is what a parallel search is compared
    /// with: from each root once from level to level as textbooks do, and once in either direction
    /// ([`Progress::upwards`]).
    pub fn search_alone(&self, roots: u64) -> [Searches; 2] {
        let vertices = self.vertices() as usize;
        let adjacency = Adjacency::new(vertices, self.edges(0, 1));
        let roots = self.candidates().filter(|root| !adjacency.of(*root as usize).is_empty()).take(roots as usize);
        let mut found = [Searches::default(); 2];
        for root in roots {
            for (found, search) in found.iter_mut().zip([plainly, either_way]) {
                let mut tree = Tree::new(vertices);
                tree.restart(Some((root as usize, root)));
                let begin = Instant::now();
                search(&adjacency, &mut tree);
                found.time += begin.elapsed();
                found.count(&adjacency, &tree, root);
            }
        }
        found
    }
}

impl Searches {
    /// Edges traversed a second.
    pub fn rate(&self) -> f64 {
        self.traversed as f64 / self.time.as_secs_f64()
    }

    /// Counts the edges and the faults of a search from a root.
    fn count(&mut self, adjacency: &Adjacency, tree: &Tree, root: u32) {
        let mut ends = 0;
        for (vertex, found) in (0..).zip(&tree.reached) {
            let adjacent = adjacency.of(vertex as usize);
            let wrong = |to: &&u32| !tree.of(**to as usize).allows(vertex, found.level);
            self.errors += adjacent.iter().filter(wrong).count() as u64;
            self.errors += u64::from(!found.is_real(vertex, root, adjacent));
            ends += if *found == Reached::NOT { 0 } else { adjacent.len() as u64 };
        }
        self.traversed += ends / 2;
    }
}

/// A search with a queue.
fn plainly(adjacency: &Adjacency, tree: &mut Tree) {
    let mut queue = tree.next_level();
    let reached = &mut tree.reached;
    let (mut seen, mut first) = (Bits::of(reached.len(), queue.iter().map(|root| *root as usize)), 0);
    while let Some(vertex) = queue.get(first).copied() {
        let level = reached[vertex as usize].level + 1;
        for to in adjacency.of(vertex as usize) {
            if seen.insert(*to as usize) {
                reached[*to as usize] = Reached { level, parent: vertex };
                queue.push(*to);
            }
        }
        first += 1;
    }
}

/// A search by levels, each in the better direction.
fn either_way(adjacency: &Adjacency, tree: &mut Tree) {
    let (vertices, mut left, mut upwards) = (tree.reached.len(), adjacency.neighbours.len() as u64, false);
    let (mut frontier, mut seen) = (tree.next_level(), adjacency.isolated().clone());
    while !frontier.is_empty() {
        let level = Bits::of(vertices, frontier.iter().map(|vertex| *vertex as usize));
        let edges = frontier.iter().map(|vertex| adjacency.of(*vertex as usize).len() as u64).sum();
        left -= edges;
        seen.unite(&level);
        upwards = Progress([frontier.len() as u64, edges, left]).upwards(upwards, vertices as u32);
        if upwards {
            for (vertex, parent) in adjacency.upwards(&seen, 0..vertices.next_multiple_of(64), &level) {
                tree.visit(vertex, vertex as u32, parent);
            }
        } else {
            for vertex in frontier {
                for to in adjacency.of(vertex as usize).iter().filter(|to| seen.insert(**to as usize)) {
                    tree.visit(*to as usize, *to, vertex);
                }
            }
        }
        frontier = tree.next_level();
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
        assert_eq!(rows.isolated().words(), [!0b1101]);
        let mut set = Bits::none(130);
        assert!(set.insert(64) && set.insert(0) && !set.insert(64) && set.insert(63) && !set.insert(0));
        assert!(set.contains(64) && !set.contains(65) && set.words().len() == 3);
        let missing: Vec<_> = set.missing(0..128).collect();
        assert_eq!((missing.len(), missing[0], missing[62], missing[124]), (125, 1, 65, 127));
        assert_eq!(set.missing(64..128).next(), Some(65));
        let mut other = Bits::none(130);
        other.insert(129);
        set.unite(&other);
        assert!(set.contains(129) && set.contains(0) && !set.contains(128));
    }

    #[test]
    fn every_vertex_has_a_place() {
        for (vertices, ranks) in [(128, 1), (128, 3), (1 << 10, 8), (1 << 31, 1), (1 << 31, 3), (64, 64)] {
            let spread = Spread::new(vertices, ranks);
            for vertex in [0, 1, ranks - 1, vertices / 2, vertices - 1] {
                let place = spread.place(vertex);
                assert_eq!(
                    (spread.owner(place), spread.local(place)),
                    (vertex % ranks, (vertex / ranks) as usize)
                );
                assert_eq!(spread.at(spread.owner(place), spread.local(place)), place);
                assert!((place as usize) < spread.all() && spread.each().is_multiple_of(64));
            }
        }
    }

    #[test]
    fn searches_alone_are_right() {
        for (scale, edge_factor) in [(9, 8), (4, 2), (11, 16)] {
            let graph = Kronecker { scale, edge_factor };
            let [plain, either_way] = graph.search_alone(3);
            assert_eq!((plain.errors, either_way.errors, either_way.traversed), (0, 0, plain.traversed));
            let some = 1..=(3 * edge_factor) << scale;
            assert!(some.contains(&plain.traversed), "{scale}: {}", plain.traversed);
        }
    }

    #[test]
    fn directions_turn_by_edges_and_back_by_vertices() {
        let at = |vertices, edges, left| Progress([vertices, edges, left]);
        assert!(!at(1, 10, 1000).upwards(false, 240) && at(9, 100, 1000).upwards(false, 240));
        assert!(at(11, 0, 1000).upwards(true, 240) && !at(10, 1000, 10).upwards(true, 240));
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
        assert!(at(2, 7).is_real(3, 5, &[1, 7]) && !at(2, 7).is_real(3, 5, &[1]));
        assert!(Reached::NOT.is_real(3, 5, &[]) && !at(NONE, 7).is_real(3, 5, &[7]));
        assert!(at(0, 5).is_real(5, 5, &[]) && !at(0, 7).is_real(5, 5, &[7]) && !at(1, 7).is_real(5, 5, &[7]));
    }

    /// Trees in which every edge is allowed, but which are none of the root.
    #[test]
    fn a_search_has_one_root() {
        let edges = [[0, 1], [1, 0], [2, 3], [3, 2]];
        let adjacency = Adjacency::new(4, edges.into_iter());
        let errors = |reached: [Reached; 4]| {
            let mut found = Searches::default();
            found.count(&adjacency, &Tree { reached: reached.to_vec(), ..Tree::new(0) }, 0);
            found.errors
        };
        let at = |level, parent| Reached { level, parent };
        let [first, second, not] = [at(0, 0), at(1, 0), Reached::NOT];
        assert_eq!(errors([first, second, not, not]), 0);
        assert_eq!(errors([not; 4]), 1, "a search that finds nothing");
        assert_eq!(errors([first, second, at(0, 2), at(1, 2)]), 1, "a second root");
    }

    #[test]
    fn memory_is_counted_for_edges_and_vertices() {
        let bytes = |scale, edge_factor, ranks| Kronecker { scale, edge_factor }.bytes(ranks);
        assert_eq!(bytes(10, 16, 1), 1024 * (16 * 24 + 32) + 1024 / 4);
        // Every rank has a bit for each vertex in two sets.
        assert_eq!(bytes(20, 1, 1 << 10), 1024 * (24 + 32) + (1 << 18));
        assert!(bytes(31, u64::MAX, 2) >= u64::MAX / 2, "what cannot be counted is more than any host has");
    }
}
