//! Topologies: which links there are.

pub(crate) mod dragonfly;
pub(crate) mod fat_tree;
pub(crate) mod graph;
pub(crate) mod grid;
mod halving;

use crate::error::ConfigError;
use crate::network::{Network, Shape};
use crate::routing::Algorithm;
use dragonfly::Dragonfly;
use fat_tree::FatTree;
use graph::Graph;
use grid::{Grid, MAX_DIMS};
use halving::Cables;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How nodes are connected. Every link stands for two, one in each direction.
///
/// Links fall into classes, which a machine may give other bandwidths and latencies
/// ([`Config::links`](crate::Config::links)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Topology {
    /// A cable between every two nodes; with two nodes, back to back. Links are of the class `host`.
    Direct {
        /// Number of nodes, 1 to 256.
        nodes: u32,
    },
    /// Nodes in a circle; packets take the shorter way. Links are of the class `x`.
    Ring {
        /// Number of nodes, 1 to 65,536.
        nodes: u32,
    },
    /// A grid of one to eight dimensions without wrap-around. Links are of the classes `x`, `y`, `z`, `w`, `v`,
    /// `u`, `t` and `s`.
    Mesh {
        /// Extent in each dimension; the product is at most 65,536.
        dims: Vec<u32>,
    },
    /// A grid of one to eight dimensions with wrap-around; packets take the shorter way in each dimension, and
    /// where both are equally long some pairs take one and some the other. Classes as in a mesh.
    Torus {
        /// Extent in each dimension; the product is at most 65,536.
        dims: Vec<u32>,
    },
    /// Rings of one direction in one to eight dimensions, as SCI's ringlets are: a packet goes on until it is
    /// there, however far that is, and an answer goes round the rest. Classes as in a mesh.
    Ringlets {
        /// Extent in each dimension; the product is at most 65,536.
        dims: Vec<u32>,
    },
    /// One switch that connects every input to every output; only the links to and from it are shared. Links are
    /// of the class `host`.
    Crossbar {
        /// Number of nodes, 1 to 65,536.
        nodes: u32,
    },
    /// A node at each corner of a cube of many dimensions. Links are of the classes `dim0`, `dim1` and so on.
    Hypercube {
        /// Dimensions, 1 to 16: there are 2 to that power of nodes.
        dims: u32,
    },
    /// A k-ary n-tree: `arity` to the power of `levels` nodes, and as many levels of switches with `arity` links
    /// down and up. Links are of the class `host` at nodes, and `level1` and so on above switches of that level.
    FatTree {
        /// Links down from each switch, at least 2.
        arity: u32,
        /// Levels of switches, 1 to 16.
        levels: u32,
        /// Links down for each link up of the lowest switches; a divisor of the arity.
        #[serde(default = "one")]
        oversubscription: u32,
    },
    /// A canonical dragonfly: groups of routers that are all linked to each other, and links between all groups.
    /// Links are of the classes `host`, `local` and `global`.
    Dragonfly {
        /// Nodes of each router, at least 1.
        terminals: u32,
        /// Routers of each group, at least 1.
        routers: u32,
        /// Links of each router to other groups, at least 1.
        global: u32,
        /// Number of groups, at most `routers * global + 1`, as which it defaults. With fewer there are several
        /// links between two groups, as far as they go round.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        groups: Option<u32>,
    },
    /// Any graph, from a file: one cable a line, by its two ends and the name of its class, if any; a number is a
    /// node, any other word a switch, and `#` begins a comment. Without a name links are of the class `link`.
    Graph {
        /// The file. In a machine's file, a relative path begins where that file is.
        file: PathBuf,
    },
}

fn one() -> u32 {
    1
}

const MAX_NODES: u32 = 65_536;
const MAX_DIRECT: u32 = 256;
/// Link numbers of a network, at most.
const MAX_LINKS: u64 = 1 << 22;

impl Topology {
    /// Number of nodes.
    ///
    /// # Errors
    /// [`ConfigError`] for a topology that cannot be.
    pub fn nodes(&self) -> Result<u32, ConfigError> {
        Ok(self.compile(Algorithm::Default)?.nodes)
    }

    /// The most links on the shortest way between two nodes.
    ///
    /// # Errors
    /// [`ConfigError`] for a topology that cannot be.
    pub fn diameter(&self) -> Result<u32, ConfigError> {
        let network = self.compile(Algorithm::Default)?;
        Ok(match &network.shape {
            _ if network.nodes == 1 => 0,
            Shape::Direct => 1,
            Shape::Crossbar => 2,
            Shape::Grid(grid) => grid.diameter(),
            Shape::Hypercube { dims } => *dims,
            Shape::FatTree(tree) => 2 * tree.levels,
            // All groups are alike.
            Shape::Dragonfly(fly) => {
                (0..fly.routers).map(|router| network.reach(router * fly.terminals)).max().unwrap_or(0)
            }
            Shape::Graph(graph) => graph.diameter(),
        })
    }

    /// The fewest cables between two halves of the nodes, where they are known. By a formula: not for grids whose
    /// longest dimension has an odd extent, for fat trees of an odd arity, and for some dragonflies. Of graphs:
    /// where the [bounds](Topology::bisection_bounds) are the same.
    ///
    /// # Errors
    /// [`ConfigError`] for a topology that cannot be.
    pub fn bisection(&self) -> Result<Option<u64>, ConfigError> {
        let network = self.compile(Algorithm::Default)?;
        let nodes = u64::from(network.nodes);
        Ok(match &network.shape {
            _ if nodes == 1 => Some(0),
            Shape::Direct => Some(nodes / 2 * nodes.div_ceil(2)),
            // One half hangs on the switch alone.
            Shape::Crossbar => Some(nodes / 2),
            Shape::Grid(grid) => grid.bisection(),
            Shape::Hypercube { .. } => Some(nodes / 2),
            Shape::FatTree(tree) if tree.levels == 1 => Some(nodes / 2),
            Shape::FatTree(tree) if tree.arity % 2 == 0 => {
                let Self::FatTree { oversubscription, .. } = self else { return Ok(None) };
                Some(nodes / 2 / u64::from(*oversubscription))
            }
            Shape::FatTree(_) => None,
            // Half of the groups have a link, or several, to each of the others.
            Shape::Dragonfly(fly) if fly.groups % 2 == 0 => {
                let half = u64::from(fly.groups / 2);
                Some((half * half * u64::from(fly.rounds())).min(nodes / 2))
            }
            // One group is halved: its local links are cut, and its global ones go to the half that they are in.
            Shape::Dragonfly(fly) if fly.routers % 2 == 0 && fly.rounds() <= 1 => {
                let (half, part) = (u64::from(fly.groups / 2), u64::from(fly.routers / 2));
                Some((half * half + part * part).min(nodes / 2))
            }
            Shape::Dragonfly(_) => None,
            Shape::Graph(_) => {
                let [least, most] = Cables::of(&network, false).fewest();
                (least == most).then_some(most)
            }
        })
    }

    /// Between which bounds the fewest cables between two halves of the nodes lie.
    ///
    /// They are the same where a formula is known, and for up to 22 nodes and switches, of which all halves are
    /// tried. Else the upper one belongs to the best halves that a search has found; the lower one follows from
    /// what cables carry where all nodes send to all others over shortest ways, and is 1 where nodes times cables
    /// are more than 2^28. Takes seconds with thousands of nodes.
    ///
    /// ```
    /// let torus: fabric_sim::Topology = "torus:5x5".parse()?;
    /// assert_eq!((torus.bisection()?, torus.bisection_bounds()?), (None, [11, 12]));
    /// # Ok::<(), fabric_sim::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] for a topology that cannot be.
    pub fn bisection_bounds(&self) -> Result<[u64; 2], ConfigError> {
        let network = self.compile(Algorithm::Default)?;
        let one_way = match &network.shape {
            Shape::Graph(_) => false,
            shape => match (self.bisection()?, shape) {
                (Some(known), _) => return Ok([known; 2]),
                (None, Shape::Grid(grid)) => grid.one_way,
                (None, _) => false,
            },
        };
        Ok(Cables::of(&network, one_way).fewest())
    }

    pub(crate) fn compile(&self, algorithm: Algorithm) -> Result<Network, ConfigError> {
        let count = |nodes: u32, max: u32| within("nodes", nodes, 1, max);
        let grid = |dims: &[u32], wraps: bool| {
            if dims.is_empty() || dims.len() > MAX_DIMS {
                let found = format!("{dims:?}");
                let limit = format!("a list of 1 to {MAX_DIMS} extents");
                return Err(ConfigError::range("topology.dims", found, limit));
            }
            for (index, extent) in dims.iter().enumerate() {
                within(&format!("dims[{index}]"), *extent, 1, MAX_NODES)?;
            }
            let product = dims.iter().map(|extent| u64::from(*extent)).fold(1, u64::saturating_mul);
            at_most("dims", format!("{dims:?}"), product)?;
            let grid = Grid::new(dims, wraps);
            Ok(Network::new(grid.nodes(), Shape::Grid(grid)))
        };
        let network = match self {
            Self::Direct { nodes } => Network::new(count(*nodes, MAX_DIRECT)?, Shape::Direct),
            Self::Ring { nodes } => grid(&[count(*nodes, MAX_NODES)?], true)?,
            Self::Mesh { dims } => grid(dims, false)?,
            Self::Torus { dims } => grid(dims, true)?,
            Self::Ringlets { dims } => {
                let mut network = grid(dims, true)?;
                if let Shape::Grid(grid) = &mut network.shape {
                    grid.one_way = true;
                }
                network
            }
            Self::Crossbar { nodes } => Network::new(count(*nodes, MAX_NODES)?, Shape::Crossbar),
            Self::Hypercube { dims } => {
                within("dims", *dims, 1, 16)?;
                Network::new(1 << dims, Shape::Hypercube { dims: *dims })
            }
            Self::FatTree { arity, levels, oversubscription } => {
                let (arity, levels) = (within("arity", *arity, 2, MAX_NODES)?, within("levels", *levels, 1, 16)?);
                if *oversubscription == 0 || !arity.is_multiple_of(*oversubscription) {
                    let limit = format!("a divisor of the arity, {arity}");
                    return Err(ConfigError::range("topology.oversubscription", oversubscription, limit));
                }
                at_most("levels", format!("{levels} of arity {arity}"), u64::from(arity).saturating_pow(levels))?;
                let tree = FatTree::new(arity, levels, *oversubscription);
                Network::new(tree.nodes(), Shape::FatTree(tree))
            }
            Self::Dragonfly { terminals, routers, global, groups } => {
                for (field, value) in [("terminals", terminals), ("routers", routers), ("global", global)] {
                    within(field, *value, 1, 4096)?;
                }
                let most = routers * global + 1;
                let groups = within("groups", groups.unwrap_or(most), 1, most)?;
                let nodes = u64::from(groups) * u64::from(*routers) * u64::from(*terminals);
                at_most("groups", format!("{groups} of {routers} routers with {terminals} terminals"), nodes)?;
                let ports = u64::from(terminals + routers - 1 + global) * u64::from(groups * routers);
                if ports > MAX_LINKS {
                    let limit = format!("so few that there are at most {MAX_LINKS} links, not {ports}");
                    return Err(ConfigError::range("topology.groups", groups, limit));
                }
                let (terminals, routers, global) = (*terminals, *routers, *global);
                Network::new(nodes as u32, Shape::Dragonfly(Dragonfly { terminals, routers, global, groups }))
            }
            Self::Graph { file } => {
                let graph = Graph::read(file, algorithm.ways())?;
                Network::new(graph.nodes, Shape::Graph(Box::new(graph)))
            }
        };
        Ok(network)
    }

    /// Lets a relative path begin at a folder.
    pub(crate) fn relative_to(&mut self, folder: &std::path::Path) {
        if let Self::Graph { file } = self
            && file.is_relative()
        {
            *file = folder.join(&*file);
        }
    }
}

fn within(field: &str, value: u32, least: u32, most: u32) -> Result<u32, ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::range(format!("topology.{field}"), value, format!("from {least} to {most}")))
}

fn at_most(field: &str, found: String, nodes: u64) -> Result<(), ConfigError> {
    if nodes <= u64::from(MAX_NODES) {
        return Ok(());
    }
    let (field, found) = (format!("topology.{field}"), format!("{found} ({nodes} nodes)"));
    Err(ConfigError::range(field, found, format!("at most {MAX_NODES} nodes")))
}

#[cfg(test)]
pub(crate) mod tests;
