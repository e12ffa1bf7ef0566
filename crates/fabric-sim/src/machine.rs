//! A machine of simulated interfaces: what every interface's configuration has in common, and how it is run.

use crate::away::Crossing;
use crate::buffered::Buffers;
use crate::config::{Config, NetworkModel, Placement};
use crate::context::Context;
use crate::device::Device;
use crate::error::{ConfigError, RunError};
use crate::faults::Faults;
use crate::halved_run::Processors;
use crate::nic::LinkParameters;
use crate::parameters::{self, default};
use crate::report::Report;
use crate::routing::Routing;
use crate::run::Sim;
use crate::topology::Topology;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::rc::Rc;

/// A simulated interface, as far as a [`Machine`] of it has to know it. The type itself carries nothing: it names
/// the interface.
pub trait Interface: Clone + Debug + PartialEq + 'static {
    /// What interfaces and links cost.
    type Parameters: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned;
    /// Adversarial timing that the interface permits.
    type Adversary: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned;
    /// What the interface itself does wrong, besides the network's faults; [`NoErrors`] for most.
    type Errors: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned;
    /// What tests do to the interface.
    type Testing: Clone + Debug + Default + PartialEq;
    /// What all interfaces of a machine share.
    type Shared: 'static;
    /// The interface of a node.
    type Device: Device;
    /// What a rank's program gets.
    type Handle<'a>;

    /// The links of a machine of two nodes.
    fn pair() -> Topology;

    /// Completes the network below the interfaces, which has the machine's own fields already: with its costs, and
    /// with what else the interface makes of them.
    ///
    /// # Errors
    /// [`ConfigError`] names what the interface does not permit.
    fn network(machine: &Machine<Self>, network: &mut Config) -> Result<(), ConfigError>;

    /// What the interfaces of this machine share.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is not possible and its limit.
    fn shared(machine: &Machine<Self>) -> Result<Self::Shared, ConfigError>;

    /// The interface of a node with these ranks.
    fn device(shared: Rc<Self::Shared>, node: u32, ranks: &[u32]) -> Self::Device;

    /// A rank's handle to its node's interface.
    fn handle(context: Context<'_, Self::Device>, shared: Rc<Self::Shared>) -> Self::Handle<'_>;
}

/// What an interface does wrong that does nothing wrong by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoErrors {}

/// A machine of simulated interfaces and what happens to it. Read it from TOML, or start from [`Machine::new`] and
/// change fields. Each interface's crate has an example, and functions for the published machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "")]
pub struct Machine<I: Interface> {
    /// Number of ranks.
    pub ranks: u32,
    /// Ranks that share a node and its interface, at least 1; each interface has a limit of its own.
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
    /// Classes of links that differ from the parameters' link, by the [topology](Topology)'s names for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, LinkParameters>,
    /// Which node a rank runs on.
    #[serde(default)]
    pub placement: Placement,
    /// What interfaces and links cost.
    #[serde(default)]
    pub parameters: I::Parameters,
    /// What goes wrong in the network.
    #[serde(default)]
    pub faults: Faults,
    /// What goes wrong in the interfaces.
    #[serde(default)]
    pub errors: I::Errors,
    /// Adversarial timing: legal, and as hard on programs as it can be.
    #[serde(default)]
    pub adversary: I::Adversary,
    /// Whether to record every stage of every packet.
    #[serde(default)]
    pub trace: bool,
    /// Size of each rank's stack in bytes.
    #[serde(default = "default::stack_bytes")]
    pub stack_bytes: usize,
    /// How long after a rank ends the others know, in nanoseconds.
    #[serde(default = "default::notice_ns")]
    pub notice_ns: f64,
    /// When a run that has not ended is given up, in nanoseconds of virtual time; infinite: never.
    #[serde(default = "default::deadline_ns")]
    pub deadline_ns: f64,
    /// Makes the interface wrong on purpose.
    #[doc(hidden)]
    #[serde(skip)]
    pub testing: I::Testing,
}

impl<I: Interface> Machine<I> {
    /// So many ranks on a machine, one per node, with the interface's default parameters.
    pub fn new(ranks: u32, topology: Topology) -> Self {
        Self {
            ranks,
            ranks_per_node: default::ranks_per_node(),
            topology,
            routing: Routing::default(),
            model: NetworkModel::default(),
            buffers: Buffers::default(),
            links: BTreeMap::new(),
            placement: Placement::default(),
            parameters: I::Parameters::default(),
            faults: Faults::default(),
            errors: I::Errors::default(),
            adversary: I::Adversary::default(),
            trace: false,
            stack_bytes: default::stack_bytes(),
            notice_ns: default::notice_ns(),
            deadline_ns: default::deadline_ns(),
            testing: I::Testing::default(),
        }
    }

    /// Two ranks on two nodes, neighbours.
    pub fn pair() -> Self {
        Self::new(2, I::pair())
    }

    /// Reads a machine from TOML and checks it.
    ///
    /// # Errors
    /// [`ConfigError`] names an unknown field, or the first value that is not possible and its limit.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        parameters::from_toml(text, Self::check)
    }

    /// Reads a machine from a TOML file and checks it.
    ///
    /// # Errors
    /// As [`Machine::from_toml`], or says why the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let relative_to = |machine: &mut Self, folder: &Path| {
            machine.topology.relative_to(folder);
            machine.placement.relative_to(folder);
        };
        parameters::from_file(path.as_ref(), relative_to, Self::check)
    }

    /// Checks that there can be such a machine.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is not possible and its limit.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.network()?.check().map_err(|error| error.renamed(in_parameters))?;
        I::shared(self).map(drop)
    }

    /// The network below the interfaces.
    ///
    /// # Errors
    /// [`ConfigError`] names what the interface does not permit.
    pub fn network(&self) -> Result<Config, ConfigError> {
        let mut network = Config {
            ranks_per_node: self.ranks_per_node,
            topology: self.topology.clone(),
            routing: self.routing,
            model: self.model,
            buffers: self.buffers,
            links: self.links.clone(),
            placement: self.placement.clone(),
            faults: self.faults.clone(),
            trace: self.trace,
            stack_bytes: self.stack_bytes,
            notice_ns: self.notice_ns,
            deadline_ns: self.deadline_ns,
            ..Config::new(self.ranks)
        };
        I::network(self, &mut network)?;
        Ok(network)
    }

    /// Runs a program on every rank. Blocks until all have returned.
    ///
    /// # Errors
    /// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are
    /// unwound then.
    pub fn run<R, F>(&self, program: F) -> Result<Report<R>, RunError>
    where
        R: 'static,
        F: Fn(I::Handle<'_>) -> R + 'static,
    {
        let (network, shared) = (self.network()?, Rc::new(I::shared(self)?));
        let devices = Rc::clone(&shared);
        Sim::run_with(
            &network,
            move |node, ranks| I::device(Rc::clone(&devices), node, ranks),
            move |context| program(I::handle(context, Rc::clone(&shared))),
        )
    }

    /// [`Machine::run`] in two halves, on one processor or on two: the same on both, but not the order of
    /// events of [`Machine::run`]; see [`Sim::run_halves`]. `half` makes the program of a half's ranks, on the
    /// thread of that half. Blocks until all have returned.
    ///
    /// # Errors
    /// As [`Machine::run`], and what [`Sim::run_halves`] refuses.
    pub fn run_halves<R, F>(
        &self,
        processors: Processors,
        half: impl Fn() -> F + Sync,
    ) -> Result<Report<R>, RunError>
    where
        R: Send + 'static,
        F: Fn(I::Handle<'_>) -> R + 'static,
        I::Device: Crossing,
        Self: Sync,
    {
        let network = self.network()?;
        I::shared(self)?;
        Sim::run_halves(&network, processors, || {
            let shared = Rc::new(I::shared(self).expect("it was possible before"));
            let (devices, program) = (Rc::clone(&shared), half());
            (
                move |node, ranks: &[u32]| I::device(Rc::clone(&devices), node, ranks),
                move |context: Context<'_, I::Device>| program(I::handle(context, Rc::clone(&shared))),
            )
        })
    }
}

/// What a field of the network's table is called in a machine's file.
fn in_parameters(field: String) -> String {
    match field.strip_prefix("nic.") {
        Some("empty_poll") => "parameters.empty_poll_ns".into(),
        Some(rest) => format!("parameters.{rest}"),
        None => field,
    }
}
