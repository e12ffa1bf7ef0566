//! Topologies: which links there are, and the one way that dimension-order routing takes through them.

use crate::error::ConfigError;
use serde::{Deserialize, Serialize};

/// How nodes are connected. Every link stands for two, one in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Topology {
    /// A cable between every two nodes; with two nodes, back to back.
    Direct {
        /// Number of nodes, 1 to 256.
        nodes: u32,
    },
    /// Nodes in a circle; packets take the shorter way.
    Ring {
        /// Number of nodes, 1 to 65,536.
        nodes: u32,
    },
    /// A grid of one to three dimensions without wrap-around.
    Mesh {
        /// Extent in each dimension; the product is at most 65,536.
        dims: Vec<u32>,
    },
    /// A grid of one to three dimensions with wrap-around; packets take the shorter way in each dimension.
    Torus {
        /// Extent in each dimension; the product is at most 65,536.
        dims: Vec<u32>,
    },
    /// One switch that connects every input to every output; only the links to and from it are shared.
    Crossbar {
        /// Number of nodes, 1 to 65,536.
        nodes: u32,
    },
}

const MAX_NODES: u32 = 65_536;
const MAX_DIRECT: u32 = 256;

impl Topology {
    /// Number of nodes.
    ///
    /// # Errors
    /// [`ConfigError`] for a topology that cannot be.
    pub fn nodes(&self) -> Result<u32, ConfigError> {
        Ok(self.compile()?.nodes)
    }

    pub(crate) fn compile(&self) -> Result<Network, ConfigError> {
        let count = |nodes: u32, max: u32| {
            let limit = || format!("from 1 to {max}");
            if nodes == 0 || nodes > max {
                Err(ConfigError::range("topology.nodes", nodes, limit()))
            } else {
                Ok(nodes)
            }
        };
        let grid = |dims: &[u32], wraps: bool| {
            if dims.is_empty() || dims.len() > 3 {
                let found = format!("{dims:?}");
                return Err(ConfigError::range("topology.dims", found, "a list of 1 to 3 extents"));
            }
            let mut all = [1; 3];
            for (index, extent) in dims.iter().enumerate() {
                if *extent == 0 || *extent > MAX_NODES {
                    let field = format!("topology.dims[{index}]");
                    return Err(ConfigError::range(field, extent, format!("from 1 to {MAX_NODES}")));
                }
                all[index] = *extent;
            }
            let product = all.iter().map(|extent| u64::from(*extent)).product::<u64>();
            if product > u64::from(MAX_NODES) {
                let found = format!("{dims:?} ({product} nodes)");
                return Err(ConfigError::range("topology.dims", found, format!("at most {MAX_NODES} nodes")));
            }
            Ok(Network::grid(all, wraps))
        };
        match self {
            Self::Direct { nodes } => {
                Ok(Network { nodes: count(*nodes, MAX_DIRECT)?, shape: Shape::Direct, places: Vec::new() })
            }
            Self::Ring { nodes } => grid(&[count(*nodes, MAX_NODES)?], true),
            Self::Mesh { dims } => grid(dims, false),
            Self::Torus { dims } => grid(dims, true),
            Self::Crossbar { nodes } => {
                Ok(Network { nodes: count(*nodes, MAX_NODES)?, shape: Shape::Crossbar, places: Vec::new() })
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Direct,
    Grid { dims: [u32; 3], wraps: bool },
    Crossbar,
}

/// A checked topology. Links and nodes are numbered; a switch has the number after the last node.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) nodes: u32,
    shape: Shape,
    /// In a grid, where each node is: 16 bits for each dimension, so that no step of a packet divides.
    places: Vec<u64>,
}

impl Network {
    /// Extents whose product is at most [`MAX_NODES`], so that coordinates fit 16 bits.
    fn grid(dims: [u32; 3], wraps: bool) -> Self {
        let nodes = dims.iter().product();
        let place = |node: u32| {
            let [x, y, z] = [node % dims[0], node / dims[0] % dims[1], node / dims[0] / dims[1]].map(u64::from);
            x | y << 16 | z << 32
        };
        Self { nodes, shape: Shape::Grid { dims, wraps }, places: (0..nodes).map(place).collect() }
    }

    /// Number of link numbers; at the border of a mesh some are never used.
    pub(crate) fn links(&self) -> usize {
        let nodes = self.nodes as usize;
        match self.shape {
            Shape::Direct => nodes * nodes,
            Shape::Grid { .. } => nodes * 6,
            Shape::Crossbar => nodes * 2,
        }
    }

    /// The link out of `at` towards `to`, and where it leads. The two must differ, or it panics.
    #[inline]
    pub(crate) fn next(&self, at: u32, to: u32) -> (u32, u32) {
        match self.shape {
            Shape::Direct => (at * self.nodes + to, to),
            Shape::Crossbar if at == self.nodes => (self.nodes + to, to),
            Shape::Crossbar => (at, self.nodes),
            Shape::Grid { dims, wraps } => {
                let (here, there) = (self.places[at as usize], self.places[to as usize]);
                // The first dimension in which they differ.
                let dim = (here ^ there).trailing_zeros() as usize / 16;
                let coordinate = |place: u64| (place >> (16 * dim)) as u32 & 0xffff;
                let (x, goal) = (coordinate(here), coordinate(there));
                let extent = dims[dim];
                let stride = [1, dims[0], dims[0] * dims[1]][dim];
                let ahead = if goal > x { goal - x } else { goal + extent - x };
                let up = if wraps { 2 * ahead <= extent } else { goal > x };
                let around = (extent - 1) * stride;
                let next = match (up, x) {
                    (true, x) if x + 1 == extent => at - around,
                    (true, _) => at + stride,
                    (false, 0) => at + around,
                    (false, _) => at - stride,
                };
                (at * 6 + 2 * dim as u32 + u32::from(!up), next)
            }
        }
    }

    /// Number of links on the way between two nodes.
    pub(crate) fn hops(&self, from: u32, to: u32) -> u32 {
        match self.shape {
            _ if from == to => 0,
            Shape::Direct => 1,
            Shape::Crossbar => 2,
            Shape::Grid { dims, wraps } => {
                let (here, there) = (self.places[from as usize], self.places[to as usize]);
                let coordinate = |place: u64, dim: usize| (place >> (16 * dim)) as u16;
                let apart = |dim: usize| u32::from(coordinate(here, dim).abs_diff(coordinate(there, dim)));
                let around = |dim: usize| if wraps { dims[dim] - apart(dim) } else { u32::MAX };
                (0..3).map(|dim| apart(dim).min(around(dim))).sum()
            }
        }
    }

    /// The link of one hop from `from` to its neighbour `to`, if there is one.
    pub(crate) fn between(&self, from: u32, to: u32) -> Option<u32> {
        let switch = u32::from(matches!(self.shape, Shape::Crossbar));
        let known = from != to && from < self.nodes + switch && to < self.nodes + switch;
        if !known {
            return None;
        }
        let (link, next) = self.next(from, to);
        (next == to).then_some(link)
    }

    /// Where a link leads from and to, in words.
    pub(crate) fn name(&self, link: u32) -> String {
        match self.shape {
            Shape::Direct => format!("{} -> {}", link / self.nodes, link % self.nodes),
            Shape::Crossbar if link < self.nodes => format!("{link} -> switch"),
            Shape::Crossbar => format!("switch -> {}", link - self.nodes),
            Shape::Grid { .. } => {
                let (axis, sign) = (["x", "y", "z"][(link % 6 / 2) as usize], ["+", "-"][(link % 2) as usize]);
                format!("{} {sign}{axis}", link / 6)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(network: &Network, from: u32, to: u32) -> Vec<u32> {
        let (mut at, mut links) = (from, Vec::new());
        while at != to {
            let (link, next) = network.next(at, to);
            assert!((link as usize) < network.links());
            links.push(link);
            at = next;
            assert!(links.len() <= 200_000, "a way ends");
        }
        links
    }

    proptest! {
        #[test]
        fn ways_in_grids_are_shortest_and_in_dimension_order(
            dims in prop::collection::vec(1u32..9, 1..4), wraps: bool, from: u32, to: u32
        ) {
            let topology = if wraps { Topology::Torus { dims: dims.clone() } } else { Topology::Mesh { dims: dims.clone() } };
            let network = topology.compile().unwrap();
            let (from, to) = (from % network.nodes, to % network.nodes);
            let links = path(&network, from, to);
            prop_assert_eq!(links.len() as u32, network.hops(from, to));
            prop_assert_eq!(links.len() as u32, network.hops(to, from));
            prop_assert!(links.is_sorted_by_key(|link| link % 6 / 2));
        }

        #[test]
        fn switches_take_two_links_and_cables_one(nodes in 2u32..200, from: u32, to: u32) {
            let (from, to) = (from % nodes, to % nodes);
            prop_assume!(from != to);
            let paths = [Topology::Crossbar { nodes }, Topology::Direct { nodes }].map(|t| {
                let network = t.compile().unwrap();
                (path(&network, from, to).len(), network.hops(from, to))
            });
            prop_assert_eq!(paths, [(2, 2), (1, 1)]);
        }

        /// Links of different pairs of neighbours are different.
        #[test]
        fn each_link_has_one_beginning(dims in prop::collection::vec(3u32..5, 1..4)) {
            let network = Topology::Torus { dims }.compile().unwrap();
            let mut seen = std::collections::BTreeMap::new();
            for from in 0..network.nodes {
                for to in (0..network.nodes).filter(|to| *to != from) {
                    let (link, next) = network.next(from, to);
                    prop_assert_eq!(*seen.entry(link).or_insert((from, next)), (from, next));
                }
            }
        }
    }

    #[test]
    fn impossible_topologies_name_field_and_limit() {
        let refused = |topology: Topology| topology.nodes().unwrap_err().to_string();
        assert_eq!(refused(Topology::Ring { nodes: 0 }), "topology.nodes is 0, but must be from 1 to 65536");
        assert_eq!(refused(Topology::Direct { nodes: 257 }), "topology.nodes is 257, but must be from 1 to 256");
        assert_eq!(
            refused(Topology::Mesh { dims: vec![4, 0] }),
            "topology.dims[1] is 0, but must be from 1 to 65536"
        );
        assert_eq!(
            refused(Topology::Torus { dims: vec![2; 4] }),
            "topology.dims is [2, 2, 2, 2], but must be a list of 1 to 3 extents"
        );
        assert!(refused(Topology::Mesh { dims: vec![4096, 4096] }).contains("at most 65536 nodes"));
    }

    #[test]
    fn neighbours_are_connected_and_others_are_not() {
        let mesh = Topology::Mesh { dims: vec![3, 3] }.compile().unwrap();
        assert!(mesh.between(0, 1).is_some() && mesh.between(0, 3).is_some());
        assert_eq!(
            (mesh.between(0, 2), mesh.between(0, 4), mesh.between(1, 1), mesh.between(0, 9)),
            (None, None, None, None)
        );
        let star = Topology::Crossbar { nodes: 3 }.compile().unwrap();
        assert_eq!((star.between(1, 3), star.between(3, 1), star.between(0, 1)), (Some(1), Some(4), None));
        assert_eq!((mesh.name(6), star.name(4)), ("1 +x".into(), "switch -> 1".into()));
    }
}
