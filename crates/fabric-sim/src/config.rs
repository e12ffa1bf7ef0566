//! The configuration of a run: how many ranks, on which machine, with which faults.

use crate::buffered::{Buffered, Buffers};
use crate::error::ConfigError;
use crate::fault_rng::{FaultRng, shuffled};
use crate::faults::{Faults, LinkRules, ScheduledFault};
use crate::network::Network;
use crate::nic::{Costs, LinkParameters, NicParameters, picos};
use crate::parameters::{self, default};
use crate::random::splitmix64;
use crate::routing::Routing;
use crate::topology::Topology;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most ranks of a run: each takes two memory mappings, of which Linux by default allows 65,530. A run checks
/// before it begins that this process may have as many as its ranks need.
pub const MAX_RANKS: u32 = 32_000;

/// The smallest stack of a rank in bytes.
pub const MIN_STACK: usize = 16 << 10;

/// Which node a rank runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Placement {
    /// One node after the other is filled.
    #[default]
    RowMajor,
    /// Rank by rank to the next node.
    RoundRobin,
    /// A random order of all places.
    Random {
        /// The seed of the order.
        seed: u64,
    },
    /// As a file says: the node of each rank, rank by rank, separated by blanks or ends of lines; `#` begins a
    /// comment.
    File {
        /// The file. In a machine's file, a relative path begins where that file is.
        file: PathBuf,
    },
}

impl Placement {
    /// Lets a relative path begin at a folder.
    pub(crate) fn relative_to(&mut self, folder: &Path) {
        if let Self::File { file } = self
            && file.is_relative()
        {
            *file = folder.join(&*file);
        }
    }
}

/// How links, switches and buffers are simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkModel {
    /// Links hold whatever waits for them: an event for each link of a message, and no back-pressure.
    #[default]
    Queues,
    /// Links with finite [`Buffers`], virtual channels and arbitration: some four events for each link of each
    /// packet.
    Buffered,
}

/// A machine and what happens to it. Read it from TOML, or start from [`Config::new`] and change fields.
///
/// ```
/// let config = fabric_sim::Config::from_toml("
///     ranks = 128
///     ranks_per_node = 2
///     topology = { kind = 'mesh', dims = [4, 4, 4] }
///     nic = { link = { bandwidth_mb_s = 625, latency_ns = 300 } }
///     [faults]
///     seed = 7
///     loss = 0.01
///     link_retry = true
///     schedule = [{ at_ns = 1000, event = { link_down = { from = 0, to = 1 } } }]
/// ").unwrap();
/// assert_eq!(config.topology.nodes().unwrap(), 64);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Number of ranks, 1 to [`MAX_RANKS`].
    pub ranks: u32,
    /// How many ranks share a node and its interface, at least 1.
    #[serde(default = "default::ranks_per_node")]
    pub ranks_per_node: u32,
    /// How nodes are connected.
    pub topology: Topology,
    /// Which of the ways between two nodes packets take.
    #[serde(default)]
    pub routing: Routing,
    /// How the network is simulated.
    #[serde(default)]
    pub model: NetworkModel,
    /// The buffers of the [buffered](NetworkModel::Buffered) model.
    #[serde(default)]
    pub buffers: Buffers,
    /// Classes of links that differ from [`NicParameters::link`], by the [topology](Topology)'s names for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkParameters>,
    /// Which node a rank runs on.
    #[serde(default)]
    pub placement: Placement,
    /// What interfaces and links cost.
    #[serde(default)]
    pub nic: NicParameters,
    /// What goes wrong.
    #[serde(default)]
    pub faults: Faults,
    /// Whether to record every stage of every packet, at 64 bytes of memory or so each.
    #[serde(default)]
    pub trace: bool,
    /// Size of each rank's stack in bytes, at least [`MIN_STACK`]; 256 KiB unless given. A stack takes memory page
    /// by page as it is used for the first time, typically 8 to 16 KiB of it; below it lies a page that nobody may
    /// touch, so that a rank that needs more ends the process instead of writing over others.
    #[serde(default = "default::stack_bytes")]
    pub stack_bytes: usize,
    /// How long after a rank ends the others know, in nanoseconds; see
    /// [`Context::depart`](crate::Context::depart).
    #[serde(default = "default::notice_ns")]
    pub notice_ns: f64,
    /// When a run that has not ended is given up, in nanoseconds of virtual time; infinite: never. Good against
    /// programs that poll for ever.
    #[serde(default = "default::deadline_ns")]
    pub deadline_ns: f64,
}

impl Config {
    /// One rank per node around a crossbar switch that costs nothing, without faults.
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            ranks_per_node: default::ranks_per_node(),
            topology: Topology::Crossbar { nodes: ranks },
            routing: Routing::default(),
            model: NetworkModel::default(),
            buffers: Buffers::default(),
            links: BTreeMap::new(),
            placement: Placement::RowMajor,
            nic: NicParameters::default(),
            faults: Faults::default(),
            trace: false,
            stack_bytes: default::stack_bytes(),
            notice_ns: default::notice_ns(),
            deadline_ns: default::deadline_ns(),
        }
    }

    /// Reads a configuration from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not possible and its limit.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, Self::check)
    }

    /// Reads a configuration from a TOML file and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] as [`Config::from_toml`], or says why the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let relative_to = |config: &mut Self, folder: &Path| {
            config.topology.relative_to(folder);
            config.placement.relative_to(folder);
        };
        parameters::from_file(path.as_ref(), relative_to, Self::check)
    }

    /// Checks that there can be such a machine.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is not possible and its limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        let plan = self.compile()?;
        if self.model == NetworkModel::Buffered { self.buffered(plan).map(drop) } else { Ok(()) }
    }

    /// The network with finite buffers, if this configuration asks for it.
    pub(crate) fn buffered_network(&self) -> Result<Option<Buffered>, ConfigError> {
        match self.model {
            NetworkModel::Queues => Ok(None),
            NetworkModel::Buffered => self.buffered(self.compile()?).map(Some),
        }
    }

    fn buffered(&self, plan: Plan) -> Result<Buffered, ConfigError> {
        if let Some(field) = self.faults.of_links() {
            return Err(ConfigError::Contradiction {
                field: format!("faults.{field}"),
                other: "model".into(),
                reason:
                    "links with finite buffers lose, spoil and delay nothing; leave it out, or take model queues"
                        .into(),
            });
        }
        let (room, packet) = (self.buffers.channel_bytes, self.nic.packet_bytes);
        if packet > room {
            let limit = format!("at least {packet}, a packet");
            return Err(ConfigError::range("buffers.channel_bytes", room, limit));
        }
        Buffered::of(plan, self.buffers)
    }

    pub(crate) fn compile(&self) -> Result<Plan, ConfigError> {
        if self.ranks == 0 || self.ranks > MAX_RANKS {
            return Err(ConfigError::range("ranks", self.ranks, format!("from 1 to {MAX_RANKS}")));
        }
        if self.ranks_per_node == 0 {
            return Err(ConfigError::range("ranks_per_node", 0, "at least 1"));
        }
        if self.stack_bytes < MIN_STACK || self.stack_bytes > 1 << 30 {
            let limit = format!("from {MIN_STACK} to {}", 1 << 30);
            return Err(ConfigError::range("stack_bytes", self.stack_bytes, limit));
        }
        let costs = self.nic.check()?;
        let mut network = self.topology.compile(self.routing.algorithm)?;
        self.routing.apply(&mut network, &self.topology.to_string(), self.nic.ordered)?;
        network.draws = splitmix64(&mut { self.faults.seed ^ ROUTES });
        let places = u64::from(network.nodes) * u64::from(self.ranks_per_node);
        if u64::from(self.ranks) > places {
            let limit = format!("at most {} nodes times {} ranks per node", network.nodes, self.ranks_per_node);
            return Err(ConfigError::range("ranks", self.ranks, limit));
        }
        let node_of = match &self.placement {
            Placement::RowMajor => (0..self.ranks).map(|rank| rank / self.ranks_per_node).collect(),
            Placement::RoundRobin => (0..self.ranks).map(|rank| rank % network.nodes).collect(),
            Placement::Random { seed } => {
                let Some(places) = u32::try_from(places).ok().filter(|places| *places <= 1 << 24) else {
                    let limit = format!("at most {} places in all to place ranks at random", 1 << 24);
                    return Err(ConfigError::range("ranks_per_node", self.ranks_per_node, limit));
                };
                let order = shuffled(places, *seed);
                order.into_iter().take(self.ranks as usize).map(|place| place / self.ranks_per_node).collect()
            }
            Placement::File { file } => self.placed(file, network.nodes)?,
        };
        let mut link_rules = self.faults.link_rules(&network)?;
        self.classify(&network, &costs, &mut link_rules)?;
        Ok(Plan {
            node_of,
            costs,
            fault_rng: self.faults.fault_rng(self.nic.ordered)?,
            scheduled_faults: self.faults.scheduled_faults(&network)?,
            link_rules,
            network,
            notice: picos(self.notice_ns, "notice_ns")?,
            deadline: if self.deadline_ns == default::deadline_ns() {
                u64::MAX
            } else {
                picos(self.deadline_ns, "deadline_ns")?
            },
            seed: self.faults.seed,
        })
    }

    /// Gives every link the costs of its class.
    fn classify(&self, network: &Network, costs: &Costs, rules: &mut [LinkRules]) -> Result<(), ConfigError> {
        let classes = network.classes();
        if let Some(name) = self.links.keys().find(|name| !classes.contains(name)) {
            let limit = format!("one of {}, the classes of links of {}", classes.join(", "), self.topology);
            return Err(ConfigError::range("links", name, limit));
        }
        let of_class = classes.iter().map(|class| match self.links.get(class) {
            Some(link) => link.check(&format!("links.{class}")),
            None => Ok((costs.latency, costs.femtos_per_byte)),
        });
        let of_class: Vec<(u64, u64)> = of_class.collect::<Result<_, _>>()?;
        for (link, rules) in rules.iter_mut().enumerate() {
            let (latency, femtos) = of_class[network.class(link as u32)];
            (rules.latency, rules.femtos_per_byte) = (rules.latency.saturating_add(latency), femtos);
        }
        Ok(())
    }

    /// The nodes of ranks as a file says.
    fn placed(&self, file: &Path, nodes: u32) -> Result<Vec<u32>, ConfigError> {
        let wrong = |problem: String| ConfigError::OtherFile {
            field: "placement.file.file".into(),
            problem: format!("{}{problem}", file.display()),
        };
        let text = std::fs::read_to_string(file).map_err(|error| wrong(format!(": {error}")))?;
        let (mut node_of, mut used) = (Vec::new(), vec![0; nodes as usize]);
        for (index, line) in text.lines().enumerate() {
            for word in line.split('#').next().unwrap_or_default().split_whitespace() {
                let wrong = |problem: String| wrong(format!(", line {}: {problem}", index + 1));
                let node = word.parse::<u32>().map_err(|_| wrong(format!("'{word}' is no node's number")))?;
                let Some(used) = used.get_mut(node as usize) else {
                    return Err(wrong(format!("node {node}, but must be below the number of nodes, {nodes}")));
                };
                *used += 1;
                if *used > self.ranks_per_node {
                    return Err(wrong(format!(
                        "node {node} has {used} ranks, but must have at most {}",
                        self.ranks_per_node
                    )));
                }
                node_of.push(node);
            }
        }
        if node_of.len() < self.ranks as usize {
            return Err(wrong(format!(
                ": {} nodes, but must be one for each of {} ranks",
                node_of.len(),
                self.ranks
            )));
        }
        node_of.truncate(self.ranks as usize);
        Ok(node_of)
    }
}

/// Tells the stream of ways from the others of a seed.
const ROUTES: u64 = 0x726f_7574_6573;

/// A checked configuration.
pub(crate) struct Plan {
    pub(crate) network: Network,
    pub(crate) node_of: Vec<u32>,
    pub(crate) costs: Costs,
    pub(crate) fault_rng: FaultRng,
    pub(crate) scheduled_faults: Vec<(u64, ScheduledFault)>,
    pub(crate) link_rules: Vec<LinkRules>,
    pub(crate) notice: u64,
    pub(crate) deadline: u64,
    pub(crate) seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_fill_nodes_evenly_and_in_their_order() {
        let config = |placement| Config {
            ranks_per_node: 2,
            topology: Topology::Mesh { dims: vec![2, 2] },
            placement,
            ..Config::new(8)
        };
        let nodes = |placement| config(placement).compile().unwrap().node_of;
        assert_eq!(nodes(Placement::RowMajor), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(nodes(Placement::RoundRobin), [0, 1, 2, 3, 0, 1, 2, 3]);
        let mut random = nodes(Placement::Random { seed: 5 });
        assert_eq!(random, nodes(Placement::Random { seed: 5 }));
        assert_ne!(random, nodes(Placement::Random { seed: 6 }));
        random.sort_unstable();
        assert_eq!(random, [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn impossible_machines_name_field_and_limit() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::new(4);
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.ranks = 0), "ranks is 0, but must be from 1 to 32000");
        assert_eq!(refused(|c| c.ranks = 5), "ranks is 5, but must be at most 4 nodes times 1 ranks per node");
        assert_eq!(refused(|c| c.ranks = 40_000), "ranks is 40000, but must be from 1 to 32000");
        assert_eq!(refused(|c| c.ranks_per_node = 0), "ranks_per_node is 0, but must be at least 1");
        assert!(refused(|c| c.stack_bytes = 100).starts_with("stack_bytes is 100"));
        assert!(refused(|c| c.notice_ns = -1.0).starts_with("notice_ns is -1"));
        let unknown =
            Config::from_toml("ranks = 2\ntopology = { kind = 'ring', nodes = 2, sides = 3 }").unwrap_err();
        assert!(unknown.to_string().contains("sides"), "{unknown}");
        let unknown = Config::from_toml("ranks = 2\ntopology = { kind = 'star', nodes = 2 }").unwrap_err();
        assert!(unknown.to_string().contains("star"), "{unknown}");
        assert!(Config::from_toml("ranks = 2\nrancs = 3\ntopology = { kind = 'ring', nodes = 2 }").is_err());
    }
}
