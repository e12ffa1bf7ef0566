//! A machine of generic interfaces: ranks, topology, parameters, faults.

use crate::model::{Costs, Parameters};
use crate::nic::{Nic, device::Interface};
use fabric_sim::bytes::Pool;
use fabric_sim::{Config, ConfigError, Context, Machine, NetworkModel, NoErrors, Report, RunError, Topology};
use std::rc::Rc;

/// A machine of one's own and what happens to it. Read it from TOML, or start from [`Machine::new`] and change
/// fields.
///
/// ```
/// let config = machine_sim::MachineConfig::from_toml("
///     ranks = 64
///     topology = { kind = 'fat_tree', arity = 8, levels = 2, oversubscription = 2 }
///     routing = { algorithm = 'adaptive' }
///     links = { host = { bandwidth_mb_s = 12500, latency_ns = 50 } }
///     [parameters]
///     latency_ns = 600
///     link = { bandwidth_mb_s = 12500, latency_ns = 100 }
///     sizes = [{ send_ns = 150, receive_ns = 150, gap_ns = 20, gap_per_byte_ns = 0.08 }]
///     [faults]
///     seed = 7
///     loss = 0.001
/// ").unwrap();
/// assert_eq!(config.topology.bisection().unwrap(), Some(16));
/// ```
pub type MachineConfig = Machine<GenericInterface>;

/// The interface that [`MachineConfig`] is a machine of. A node has 1 to 1024 ranks. Where links lose packets, the
/// interfaces send them again; where packets of a pair may overtake each other, they bring them back in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenericInterface;

/// What all interfaces of a machine share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) parameters: Parameters,
    pub(crate) costs: Costs,
    pub(crate) ranks: u32,
    /// Whether packets of a pair may overtake each other, and whether they may be lost.
    pub(crate) sequenced: bool,
    pub(crate) lossy: bool,
    pub(crate) pool: Rc<Pool>,
}

/// So many ranks on a crossbar of generic interfaces.
pub fn crossbar(ranks: u32) -> MachineConfig {
    Machine::new(ranks, Topology::Crossbar { nodes: ranks })
}

/// Runs a program on every rank: [`Machine::run`]. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(machine: &MachineConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Nic<'_>) -> R + 'static,
{
    machine.run(program)
}

/// What all interfaces of a machine share.
pub(crate) fn shared(machine: &MachineConfig) -> Result<Shared, ConfigError> {
    let costs = machine.parameters.compile()?;
    // A copy is recognised by its turn. What a stopped node does not take is in nobody's way.
    let lossy = machine.faults.can_lose(costs.packet) || machine.faults.can_double();
    Ok(Shared {
        parameters: machine.parameters.clone(),
        costs,
        ranks: machine.ranks,
        sequenced: lossy || machine.faults.reordering > 0.0 || !machine.routing.algorithm.keeps_order(),
        lossy,
        pool: Rc::new(Pool::default()),
    })
}

impl fabric_sim::Interface for GenericInterface {
    type Parameters = Parameters;
    type Adversary = NoErrors;
    type Errors = NoErrors;
    type Testing = ();
    type Shared = Shared;
    type Device = Interface;
    type Handle<'a> = Nic<'a>;

    fn pair() -> Topology {
        Topology::Direct { nodes: 2 }
    }

    fn network(machine: &MachineConfig, network: &mut Config) -> Result<(), ConfigError> {
        if machine.ranks_per_node > 1024 {
            return Err(ConfigError::range("ranks_per_node", machine.ranks_per_node, "at most 1024"));
        }
        let (packet, header) = (machine.parameters.packet_bytes, machine.parameters.header_bytes);
        let longest = u64::from(packet) + u64::from(header);
        for (index, link) in machine.faults.links.iter().enumerate() {
            if let Some(mtu) = link.mtu_bytes.filter(|mtu| u64::from(*mtu) < longest) {
                let field = format!("faults.links[{index}].mtu_bytes");
                return Err(ConfigError::range(
                    field,
                    mtu,
                    format!("at least {longest}, a packet and its header"),
                ));
            }
        }
        let room = machine.buffers.channel_bytes;
        if machine.model == NetworkModel::Buffered && u64::from(room) < longest {
            let limit = format!("at least {longest}, a packet and its header; or lower parameters.packet_bytes");
            return Err(ConfigError::range("buffers.channel_bytes", room, limit));
        }
        network.nic = machine.parameters.network();
        Ok(())
    }

    fn shared(machine: &MachineConfig) -> Result<Shared, ConfigError> {
        shared(machine)
    }

    fn device(shared: Rc<Shared>, _: u32, ranks: &[u32]) -> Interface {
        Interface::new(shared, ranks)
    }

    fn handle(context: Context<'_, Interface>, shared: Rc<Shared>) -> Nic<'_> {
        Nic::new(context, shared)
    }
}
