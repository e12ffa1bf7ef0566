//! A checked topology: numbered links and vertices, and the way of a packet through them.
//!
//! Vertices are the nodes and then the switches. Every link leads from one vertex to another; a cable is two of
//! them.

use crate::random::splitmix64;
use crate::routing::Algorithm;
use crate::topology::dragonfly::Dragonfly;
use crate::topology::fat_tree::FatTree;
use crate::topology::graph::Graph;
use crate::topology::grid::{AXES, Grid, Order};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Direct,
    Crossbar,
    Grid(Grid),
    Hypercube { dims: u32 },
    FatTree(FatTree),
    Dragonfly(Dragonfly),
    Graph(Box<Graph>),
}

/// What a packet remembers of its way. Either it is on the [`DIRECT`] way to its destination, with bits that
/// choose among equal links, or it goes to this vertex first.
pub(crate) type Flow = u32;

/// The packet goes straight to its destination.
pub(crate) const DIRECT: Flow = 1 << 31;
/// It takes the dimensions from the last to the first.
const REVERSED: Flow = 1 << 30;
/// Where it first has a choice, it takes one.
pub(crate) const UNDECIDED: Flow = DIRECT - 1;
/// It takes the link with the shortest queue wherever it has a choice.
pub(crate) const SHORTEST: Flow = DIRECT - 2;
/// The bits that choose among equal links.
const CHOICE: Flow = REVERSED - 1;

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) nodes: u32,
    pub(crate) shape: Shape,
    pub(crate) algorithm: Algorithm,
    /// State of the draws of ways.
    pub(crate) draws: u64,
}

impl Network {
    pub(crate) fn new(nodes: u32, shape: Shape) -> Self {
        Self { nodes, shape, algorithm: Algorithm::default(), draws: 0 }
    }

    /// Number of vertices.
    pub(crate) fn vertices(&self) -> u32 {
        match &self.shape {
            Shape::Direct | Shape::Grid(_) | Shape::Hypercube { .. } => self.nodes,
            Shape::Crossbar => self.nodes + 1,
            Shape::FatTree(tree) => tree.vertices(),
            Shape::Dragonfly(fly) => self.nodes + fly.all_routers(),
            Shape::Graph(graph) => graph.vertices(),
        }
    }

    /// Number of link numbers; at the border of a mesh, and where a dragonfly has free ports, some are never used.
    pub(crate) fn links(&self) -> usize {
        let nodes = self.nodes as usize;
        match &self.shape {
            Shape::Direct => nodes * nodes,
            Shape::Grid(grid) => nodes * grid.ports() as usize,
            Shape::Hypercube { dims } => nodes * *dims as usize,
            Shape::Crossbar => nodes * 2,
            Shape::FatTree(tree) => tree.links() as usize,
            Shape::Dragonfly(fly) => fly.links() as usize,
            Shape::Graph(graph) => graph.links() as usize,
        }
    }

    /// How the packets between two nodes begin.
    #[inline]
    pub(crate) fn flow(&self, from: u32, to: u32) -> Flow {
        match (self.algorithm, &self.shape) {
            (Algorithm::DimensionOrder | Algorithm::Default, Shape::Grid(grid)) => DIRECT | grid.ties(from, to),
            (Algorithm::Minimal, Shape::Grid(grid)) => {
                DIRECT | grid.ties(from, to) | if hash(from, to) & 1 == 0 { 0 } else { REVERSED }
            }
            (Algorithm::Minimal, Shape::Hypercube { .. }) => {
                DIRECT | if hash(from, to) & 1 == 0 { 0 } else { REVERSED }
            }
            (Algorithm::Adaptive, Shape::FatTree(_)) => SHORTEST,
            (Algorithm::Valiant | Algorithm::Adaptive, _) => UNDECIDED,
            (_, Shape::Graph(_) | Shape::Dragonfly(_)) => DIRECT | hash(from, to) & CHOICE,
            _ => DIRECT,
        }
    }

    /// The flow of the shortest way from a vertex on, for a packet that has been elsewhere.
    pub(crate) fn straight(&self, from: u32, to: u32) -> Flow {
        match &self.shape {
            Shape::Grid(grid) => DIRECT | grid.ties(from, to),
            Shape::Graph(_) | Shape::Dragonfly(_) => DIRECT | hash(from, to) & CHOICE,
            _ => DIRECT,
        }
    }

    /// 1 for packets that take the dimensions from the last to the first, else 0.
    pub(crate) fn order(flow: Flow) -> u32 {
        u32::from(flow & DIRECT != 0 && flow & REVERSED != 0)
    }

    /// The link out of `at` towards `to`, and where it leads, for packets of a flow that is [`DIRECT`]. The two
    /// must differ, or it panics.
    #[inline]
    pub(crate) fn next(&self, at: u32, to: u32, flow: Flow) -> (u32, u32) {
        match &self.shape {
            Shape::Direct => (at * self.nodes + to, to),
            Shape::Crossbar if at == self.nodes => (self.nodes + to, to),
            Shape::Crossbar => (at, self.nodes),
            Shape::Grid(grid) => {
                let order = if flow & REVERSED == 0 { Order::FirstToLast } else { Order::LastToFirst };
                grid.next(at, to, flow, order)
            }
            Shape::Hypercube { dims } => {
                let differ = at ^ to;
                let dim = if flow & REVERSED == 0 { differ.trailing_zeros() } else { 31 - differ.leading_zeros() };
                (at * dims + dim, at ^ 1 << dim)
            }
            Shape::FatTree(tree) => tree.next(at, to, None),
            Shape::Dragonfly(fly) => fly.next(at, to, flow & CHOICE),
            Shape::Graph(graph) => graph.next(at, to, flow & CHOICE),
        }
    }

    /// A next link of a packet whose flow is not [`DIRECT`]: the link, where it leads, and the flow from there on.
    /// `queue` tells how long a link is busy.
    pub(crate) fn choose(
        &mut self,
        at: u32,
        goal: u32,
        flow: Flow,
        queue: impl Fn(u32) -> u64,
    ) -> (u32, u32, Flow) {
        match flow {
            SHORTEST => {
                let Shape::FatTree(tree) = &self.shape else { unreachable!("only trees choose at every switch") };
                let Some((first, count)) = tree.choices(at, goal) else {
                    let (link, next) = tree.next(at, goal, None);
                    return (link, next, flow);
                };
                // Among equals the draw decides, so that senders do not all begin with the first.
                let begin = (splitmix64(&mut self.draws) % u64::from(count)) as u32;
                let links = (0..count).map(|index| first + (begin + index) % count);
                let link = links.min_by_key(|link| queue(*link)).expect("there is a choice");
                (link, tree.head(link), flow)
            }
            UNDECIDED => self.decide(at, goal, queue),
            via => {
                let (link, next) = self.next(at, via, self.straight(at, via));
                (link, next, self.onward(next, goal, via))
            }
        }
    }

    /// The flow of a packet that goes to a vertex first and is at another one.
    fn onward(&self, at: u32, goal: u32, via: u32) -> Flow {
        let there = match &self.shape {
            // Anywhere in the group will do.
            Shape::Dragonfly(fly) => at >= self.nodes && fly.group(at) == fly.group(via),
            _ => at == via,
        };
        if there { self.straight(at, goal) } else { via }
    }

    /// Takes a packet's choice between its shortest way and one through a vertex that is drawn.
    fn decide(&mut self, at: u32, goal: u32, queue: impl Fn(u32) -> u64) -> (u32, u32, Flow) {
        if let Shape::FatTree(tree) = &self.shape {
            let draw = splitmix64(&mut self.draws) as u32;
            let (link, next) = tree.next(at, goal, Some(draw >> 8));
            return (link, next, UNDECIDED);
        }
        let straight = self.straight(at, goal);
        let direct = self.next(at, goal, straight);
        // A node with one link leaves the choice to its switch.
        if !self.passes(at) {
            return (direct.0, direct.1, if direct.1 == goal { straight } else { UNDECIDED });
        }
        let Some(via) = self.via(at, goal) else { return (direct.0, direct.1, straight) };
        let around = self.next(at, via, self.straight(at, via));
        if self.algorithm == Algorithm::Adaptive {
            // UGAL with local queues (Singh, 2005): the product of queue and length decides.
            let (queues, hops) = ([queue(direct.0), queue(around.0)], self.lengths(at, goal, via));
            if queues[0].saturating_mul(hops[0].into()) <= queues[1].saturating_mul(hops[1].into()) {
                return (direct.0, direct.1, straight);
            }
        }
        (around.0, around.1, self.onward(around.1, goal, via))
    }

    /// Links of the shortest way, and of the one through a vertex.
    fn lengths(&self, at: u32, goal: u32, via: u32) -> [u32; 2] {
        [self.distance(at, goal), self.distance(at, via) + self.distance(via, goal)]
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        match &self.shape {
            Shape::Dragonfly(fly) => fly.hops(from, to, self.straight(from, to) & CHOICE),
            _ => self.hops(from, to),
        }
    }

    /// Whether packets may pass through a vertex.
    fn passes(&self, vertex: u32) -> bool {
        match &self.shape {
            Shape::Dragonfly(_) => vertex >= self.nodes,
            Shape::Graph(graph) => graph.is_router(vertex),
            _ => true,
        }
    }

    /// A vertex for a detour, drawn; none if there is no other.
    fn via(&mut self, at: u32, goal: u32) -> Option<u32> {
        let draw = splitmix64(&mut self.draws);
        let below = |count: u32| ((u128::from(draw) * u128::from(count)) >> 64) as u32;
        match &self.shape {
            Shape::Dragonfly(fly) => {
                let (here, there) = (fly.group(at), fly.group(goal));
                let others = fly.groups - 1 - u32::from(here != there);
                if others == 0 {
                    return None;
                }
                let mut drawn = below(others * fly.routers);
                let router = drawn % fly.routers;
                drawn /= fly.routers;
                for group in [here.min(there), here.max(there)].into_iter().take(1 + usize::from(here != there)) {
                    drawn += u32::from(drawn >= group);
                }
                Some(self.nodes + drawn * fly.routers + router)
            }
            Shape::Graph(graph) => {
                let routers = graph.router_count();
                let drawn = graph.router_vertex(below(routers));
                (drawn != at && drawn != goal).then_some(drawn)
            }
            _ => {
                let drawn = below(self.nodes);
                (drawn != at && drawn != goal).then_some(drawn)
            }
        }
    }

    /// Number of links on the shortest way between two nodes.
    pub(crate) fn hops(&self, from: u32, to: u32) -> u32 {
        match &self.shape {
            _ if from == to => 0,
            Shape::Direct => 1,
            Shape::Crossbar => 2,
            Shape::Grid(grid) => grid.hops(from, to),
            Shape::Hypercube { .. } => (from ^ to).count_ones(),
            Shape::FatTree(tree) => tree.hops(from, to),
            Shape::Dragonfly(fly) => fly.hops(from, to, self.straight(from, to) & CHOICE),
            Shape::Graph(graph) => graph.hops(from, to),
        }
    }

    /// The most links on a shortest way from a node to another one.
    pub(crate) fn reach(&self, from: u32) -> u32 {
        let mut distance = vec![u32::MAX; self.vertices() as usize];
        let mut queue = VecDeque::from([from]);
        distance[from as usize] = 0;
        while let Some(at) = queue.pop_front() {
            for end in self.ports(at).filter_map(|link| self.head(link)) {
                if distance[end as usize] == u32::MAX {
                    distance[end as usize] = distance[at as usize] + 1;
                    queue.push_back(end);
                }
            }
        }
        distance[..self.nodes as usize].iter().copied().max().unwrap_or(0)
    }

    /// The links out of a vertex, as numbers; some of them may lead nowhere.
    pub(crate) fn ports(&self, vertex: u32) -> std::ops::Range<u32> {
        let each = |ports: u32| vertex * ports..(vertex + 1) * ports;
        match &self.shape {
            Shape::Direct => each(self.nodes),
            Shape::Crossbar if vertex == self.nodes => self.nodes..2 * self.nodes,
            Shape::Crossbar => each(1),
            Shape::Grid(grid) => each(grid.ports()),
            Shape::Hypercube { dims } => each(*dims),
            Shape::FatTree(tree) => tree.ports_of(vertex),
            Shape::Dragonfly(fly) => fly.ports_of(vertex),
            Shape::Graph(graph) => graph.ports_of(vertex),
        }
    }

    /// Where a link leads, if it is one.
    pub(crate) fn head(&self, link: u32) -> Option<u32> {
        match &self.shape {
            Shape::Direct => Some(link % self.nodes).filter(|to| *to != link / self.nodes),
            Shape::Crossbar => Some(link.checked_sub(self.nodes).unwrap_or(self.nodes)),
            Shape::Grid(grid) => grid.head(link),
            Shape::Hypercube { dims } => Some((link / dims) ^ (1 << (link % dims))),
            Shape::FatTree(tree) => Some(tree.head(link)),
            Shape::Dragonfly(fly) => fly.head(link),
            Shape::Graph(graph) => Some(graph.head(link)),
        }
    }

    /// The links of one hop from a vertex to its neighbour: none where they are no neighbours, two around a circle
    /// of two.
    pub(crate) fn between(&self, from: u32, to: u32) -> Vec<u32> {
        let vertices = self.vertices();
        if from == to || from >= vertices || to >= vertices {
            return Vec::new();
        }
        match &self.shape {
            Shape::Direct => vec![from * self.nodes + to],
            Shape::Crossbar if from == self.nodes => vec![self.nodes + to],
            Shape::Crossbar => (to == self.nodes).then_some(from).into_iter().collect(),
            _ => self.ports(from).filter(|link| self.head(*link) == Some(to)).collect(),
        }
    }

    /// The names of the classes that links may have other bandwidth and latency by.
    pub(crate) fn classes(&self) -> Vec<String> {
        match &self.shape {
            Shape::Direct | Shape::Crossbar => vec!["host".into()],
            Shape::Grid(grid) => AXES[..grid.dims.len()].iter().map(|axis| (*axis).to_owned()).collect(),
            Shape::Hypercube { dims } => (0..*dims).map(|dim| format!("dim{dim}")).collect(),
            Shape::FatTree(tree) => {
                let between = (1..tree.levels).map(|level| format!("level{level}"));
                std::iter::once("host".to_owned()).chain(between).collect()
            }
            Shape::Dragonfly(_) => ["host", "local", "global"].map(str::to_owned).into(),
            Shape::Graph(graph) => graph.classes.clone(),
        }
    }

    /// The class of a link, by its place among [`Network::classes`].
    pub(crate) fn class(&self, link: u32) -> usize {
        match &self.shape {
            Shape::Direct | Shape::Crossbar => 0,
            Shape::Grid(grid) => (link % grid.ports() / 2) as usize,
            Shape::Hypercube { dims } => (link % dims) as usize,
            Shape::FatTree(tree) => tree.class(link),
            Shape::Dragonfly(fly) => fly.class(link),
            Shape::Graph(graph) => graph.class(link),
        }
    }

    /// Where a link leads from and to, in words.
    pub(crate) fn name(&self, link: u32) -> String {
        match &self.shape {
            Shape::Direct => format!("{} -> {}", link / self.nodes, link % self.nodes),
            Shape::Crossbar if link < self.nodes => format!("{link} -> switch"),
            Shape::Crossbar => format!("switch -> {}", link - self.nodes),
            Shape::Grid(grid) => grid.name(link),
            Shape::Hypercube { dims } => format!("{} dim{}", link / dims, link % dims),
            Shape::FatTree(tree) => tree.name(link),
            Shape::Dragonfly(fly) => fly.name(link),
            Shape::Graph(graph) => graph.name(link),
        }
    }
}

/// Bits that are the same for all packets between two vertices, and differ between pairs.
fn hash(from: u32, to: u32) -> u32 {
    splitmix64(&mut (u64::from(from) << 32 | u64::from(to))) as u32
}
