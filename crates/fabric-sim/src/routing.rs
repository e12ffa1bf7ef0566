//! Routing: which of the ways through a network packets take, and how many virtual channels that needs so that
//! links that wait for each other cannot do so in a circle (Dally and Seitz, 1987).

use crate::error::ConfigError;
use crate::network::{Network, Shape};
use crate::topology::graph::Ways;
use serde::{Deserialize, Serialize};

/// How packets find their way. Links hold what waits for them without limit, so nothing deadlocks in the
/// simulation; but a routing that would need more virtual channels than the machine has is refused.
///
/// ```
/// let error = fabric_sim::Config::from_toml("
///     ranks = 16
///     topology = { kind = 'torus', dims = [4, 4] }
///     routing = { algorithm = 'valiant', virtual_channels = 2 }
/// ").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "routing.virtual_channels is 2, but must be at least 4, or valiant routing on torus:4x4 could deadlock"
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Routing {
    /// Which way packets take.
    pub algorithm: Algorithm,
    /// Virtual channels of every link, 1 to 64; 0, the default: as many as the algorithm needs, at most 16.
    pub virtual_channels: u32,
}

/// Which way packets take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Algorithm {
    /// What is usual for the topology: dimension order in grids and hypercubes, up and down in fat trees, the
    /// shortest way elsewhere. All packets of a pair take the same way.
    #[default]
    Default,
    /// In grids and hypercubes: one dimension after the other. All packets of a pair take the same way.
    DimensionOrder,
    /// A shortest way, of several one that differs between pairs. In grids and hypercubes half of the pairs
    /// take the dimensions in the opposite order (O1TURN, Seo et al., 2005). All packets of a pair take the same
    /// way.
    Minimal,
    /// Through an intermediate vertex that is drawn for each packet (Valiant, 1982): in dragonflies through a
    /// drawn group, in fat trees up to a drawn switch. Packets of a pair may overtake each other.
    Valiant,
    /// The shortest way, or Valiant's where the queues of the first links say that it is faster (UGAL with local
    /// queues, Singh, 2005); in fat trees, the link up with the shortest queue. Packets of a pair may overtake
    /// each other.
    Adaptive,
    /// In graphs: up the levels of a spanning tree, then down. All packets of a pair take the same way.
    UpDown,
}

/// Virtual channels that are assumed to be there where nobody says how many there are.
const USUAL: u32 = 16;

impl Algorithm {
    /// As files spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::DimensionOrder => "dimension_order",
            Self::Minimal => "minimal",
            Self::Valiant => "valiant",
            Self::Adaptive => "adaptive",
            Self::UpDown => "up_down",
        }
    }

    /// Whether all packets of a pair take the same way.
    pub const fn keeps_order(self) -> bool {
        !matches!(self, Self::Valiant | Self::Adaptive)
    }

    /// How a graph's ways are to be found.
    pub(crate) fn ways(self) -> Ways {
        if self == Self::UpDown { Ways::UpDown } else { Ways::Shortest }
    }
}

impl Routing {
    /// Lets a network route so, if it can.
    pub(crate) fn apply(self, network: &mut Network, topology: &str, ordered: bool) -> Result<(), ConfigError> {
        let Self { algorithm, virtual_channels } = self;
        let refuse = |limit: String| ConfigError::range("routing.algorithm", algorithm.name(), limit);
        match (&network.shape, algorithm) {
            (Shape::Grid(_) | Shape::Hypercube { .. }, Algorithm::UpDown) => {
                return Err(refuse(format!(
                    "one of default, dimension_order, minimal, valiant, adaptive on {topology}"
                )));
            }
            (Shape::Grid(_) | Shape::Hypercube { .. }, _)
            | (Shape::Graph(_), Algorithm::UpDown)
            | (_, Algorithm::Default | Algorithm::Minimal) => {}
            (Shape::Crossbar, _) => {
                return Err(refuse(format!("default: {topology} has one way between two nodes")));
            }
            (_, Algorithm::DimensionOrder) => {
                return Err(refuse(format!("another one: {topology} has no dimensions")));
            }
            (_, Algorithm::UpDown) => return Err(refuse(format!("another one: {topology} is no graph"))),
            _ => {}
        }
        if ordered && !algorithm.keeps_order() {
            return Err(ConfigError::Contradiction {
                field: "routing.algorithm".into(),
                other: "nic.ordered".into(),
                reason: format!(
                    "{} routing lets packets of a pair overtake each other, and this interface keeps their order",
                    algorithm.name()
                ),
            });
        }
        if virtual_channels > 64 {
            return Err(ConfigError::range("routing.virtual_channels", virtual_channels, "at most 64"));
        }
        network.algorithm = algorithm;
        let (needed, most) =
            (network.virtual_channels(), if virtual_channels == 0 { USUAL } else { virtual_channels });
        if needed > most {
            let (found, remedy) = match network.shape {
                Shape::Graph(_) => (most, "; up_down routing needs 1"),
                _ => (most, ""),
            };
            let limit =
                format!("at least {needed}, or {} routing on {topology} could deadlock{remedy}", algorithm.name());
            return Err(ConfigError::range("routing.virtual_channels", found, limit));
        }
        Ok(())
    }
}

impl Network {
    /// How many virtual channels the routing needs.
    pub(crate) fn virtual_channels(&self) -> u32 {
        let twice = if self.algorithm.keeps_order() { 1 } else { 2 };
        match &self.shape {
            Shape::Crossbar | Shape::FatTree(_) => 1,
            Shape::Direct => twice,
            // The two orders of dimensions have channels of their own, as have the two parts of Valiant's way; and
            // within each dimension of a torus those that have passed the circle's end (Dally and Seitz, 1987).
            Shape::Grid(grid) => {
                let circles = grid.circles();
                let several = grid.dims.iter().filter(|extent| **extent > 1).count() > 1;
                let orders = if self.algorithm == Algorithm::Minimal && several { 2 } else { 1 };
                circles * orders * twice
            }
            Shape::Hypercube { dims } if self.algorithm == Algorithm::Minimal && *dims > 1 => 2,
            Shape::Hypercube { .. } => twice,
            // A packet takes the next channel with every global link (Kim et al., 2008).
            Shape::Dragonfly(fly) if fly.groups == 1 => 1,
            Shape::Dragonfly(fly) if fly.groups == 2 => 2,
            Shape::Dragonfly(_) => 1 + twice,
            Shape::Graph(graph) => {
                let one = match graph.ways {
                    Ways::UpDown => 1,
                    Ways::Shortest if !self.waits_in_circles() => 1,
                    // With every link the next channel.
                    Ways::Shortest => graph.longest(),
                };
                one * twice
            }
        }
    }

    /// Whether shortest ways through a graph, with one channel per link, let links wait for each other in a
    /// circle.
    fn waits_in_circles(&self) -> bool {
        let Shape::Graph(graph) = &self.shape else { return false };
        let mut after = vec![Vec::new(); self.links()];
        for goal in 0..graph.router_count() {
            let goal = graph.router_vertex(goal);
            for at in (0..graph.router_count()).map(|at| graph.router_vertex(at)).filter(|at| *at != goal) {
                for link in graph.choices(at, goal) {
                    let next = graph.head(link);
                    if next != goal {
                        after[link as usize].extend(graph.choices(next, goal));
                    }
                }
            }
        }
        after.iter_mut().for_each(|links| {
            links.sort_unstable();
            links.dedup();
        });
        has_circle(&after)
    }
}

/// Whether a directed graph, given by the successors of each vertex, has a circle.
fn has_circle(after: &[Vec<u32>]) -> bool {
    let mut before = vec![0u32; after.len()];
    after.iter().flatten().for_each(|next| before[*next as usize] += 1);
    let mut free: Vec<usize> = (0..after.len()).filter(|at| before[*at] == 0).collect();
    let mut taken = 0;
    while let Some(at) = free.pop() {
        taken += 1;
        for next in &after[at] {
            before[*next as usize] -= 1;
            if before[*next as usize] == 0 {
                free.push(*next as usize);
            }
        }
    }
    taken != after.len()
}

#[cfg(test)]
mod tests;
