//! A machine of Portals interfaces: ranks, topology, parameters, faults.

use crate::model::Parameters;
use crate::nic::device::Shared;
use crate::nic::mutation::Defects;
use crate::nic::{Nic, Portals};
use fabric_sim::bytes::Pool;
use fabric_sim::parameters::Checker;
use fabric_sim::{Config, ConfigError, Context, Interface, Machine, NoErrors, Report, RunError, Topology};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::rc::Rc;

/// A Portals machine and what happens to it. Read it from TOML, or start from one of the constructors and change
/// fields.
///
/// ```
/// let config = portals_sim::PortalsConfig::from_toml("
///     ranks = 512
///     topology = { kind = 'torus', dims = [8, 8, 8] }
///     parameters = { nic = { tx_ns = 800 } }
///     faults = { seed = 7, loss = 0.01, retry_ns = 500 }
/// ").unwrap();
/// assert_eq!(config.parameters.nic.tx_ns, 800.0);
///
/// let small = "ranks = 9\ntopology = { kind = 'torus', dims = [2, 2, 2] }";
/// let error = portals_sim::PortalsConfig::from_toml(small);
/// assert_eq!(error.unwrap_err().to_string(), "ranks is 9, but must be at most 8 nodes times 1 ranks per node");
/// ```
pub type PortalsConfig = Machine<PortalsInterface>;

/// Portals' interface, which [`PortalsConfig`] is a machine of. A node has 1 to 65,536 ranks. Links always repair
/// what they lose or spoil, as SeaStar's do; the end of a rank is known once its last events have reached their
/// queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortalsInterface;

/// Timing that the interface permits, but that is as hard on programs as it can be. Drawn from the faults' seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdversarialTiming {
    /// Messages take up to this much longer to be delivered, in nanoseconds. Those of one pair stay in order.
    pub jitter_ns: f64,
    /// The interface reads the memory of a put just before the send event, not when the command is given: what a
    /// program changes too early goes wrong.
    pub late_read: bool,
}

/// What tests do to the interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Testing {
    /// What it does wrong.
    pub defects: Defects,
    /// The run does everything at once that it otherwise does late because nobody can tell.
    pub no_lookahead: bool,
}

/// So many ranks, one per node, in the most compact 3D torus that has no node more than needed, if possible.
///
/// ```
/// use fabric_sim::Topology;
/// let machine = portals_sim::xt4(4096);
/// assert_eq!(machine.topology, Topology::Torus { dims: vec![16, 16, 16] });
/// ```
pub fn xt4(ranks: u32) -> PortalsConfig {
    Machine::new(ranks, torus(ranks))
}

/// Runs a program on every rank: [`Machine::run`]. Blocks until all have returned.
///
/// # Errors
/// An impossible configuration, too little memory for stacks, a panic of a rank, a deadlock. All ranks are unwound
/// then.
pub fn run<R, F>(machine: &PortalsConfig, program: F) -> Result<Report<R>, RunError>
where
    R: 'static,
    F: Fn(Nic<'_>) -> R + 'static,
{
    machine.run(program)
}

/// The most compact torus of three dimensions for so many nodes.
fn torus(nodes: u32) -> Topology {
    let nodes = nodes.clamp(1, 1 << 16);
    let mut best = [nodes, 1, 1];
    // The surface decides among tori of the same size; larger ones than needed are the last choice.
    let rating = |dims: [u32; 3]| {
        let [x, y, z] = dims.map(u64::from);
        (x * y * z, x * y + y * z + z * x)
    };
    for z in 1..=41u32 {
        for y in z..=256u32 {
            let x = nodes.div_ceil(y * z);
            if x < y {
                break;
            }
            if rating([x, y, z]) < rating(best) {
                best = [x, y, z];
            }
        }
    }
    Topology::Torus { dims: best.to_vec() }
}

impl Interface for PortalsInterface {
    type Parameters = Parameters;
    type Adversary = AdversarialTiming;
    type Errors = NoErrors;
    type Testing = Testing;
    type Shared = Shared;
    type Device = Portals;
    type Handle<'a> = Nic<'a>;

    fn pair() -> Topology {
        Topology::Direct { nodes: 2 }
    }

    fn network(machine: &PortalsConfig, network: &mut Config) -> Result<(), ConfigError> {
        if machine.ranks_per_node > 1 << 16 {
            let limit = "at most 65536, since pids are";
            return Err(ConfigError::range("ranks_per_node", machine.ranks_per_node, limit));
        }
        for (index, links) in machine.faults.links.iter().enumerate() {
            if let Some(bytes) = links.mtu_bytes {
                let limit = "left out, since interfaces rely on links that lose nothing";
                return Err(ConfigError::range(format!("faults.links[{index}].mtu_bytes"), bytes, limit));
            }
        }
        let costs = machine.parameters.compile()?;
        let notice = Checker::TOP.time("notice_ns", machine.notice_ns)?.0;
        let events = costs.complete.0 + costs.event.0.max(costs.ack_event.0);
        network.nic = machine.parameters.network();
        network.faults.link_retry = true;
        network.notice_ns = (notice + events) as f64 / 1e3 + machine.adversary.jitter_ns.max(0.0);
        Ok(())
    }

    fn shared(machine: &PortalsConfig) -> Result<Shared, ConfigError> {
        let jitter = Checker::of("adversary").time("jitter_ns", machine.adversary.jitter_ns)?;
        let costs = machine.parameters.compile()?;
        Ok(Shared {
            directory: Default::default(),
            parameters: machine.parameters.clone(),
            costs,
            jitter: jitter.0,
            late_read: machine.adversary.late_read,
            no_lookahead: Cell::new(machine.testing.no_lookahead),
            portals_4: Cell::default(),
            pool: Rc::new(Pool::default()),
            defects: machine.testing.defects,
        })
    }

    fn device(shared: Rc<Shared>, node: u32, ranks: &[u32]) -> Portals {
        Portals::new(shared, node, ranks)
    }

    fn handle(context: Context<'_, Portals>, shared: Rc<Shared>) -> Nic<'_> {
        Nic::new(context, shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_sim::Faults;

    #[test]
    fn configurations_survive_a_round_trip() {
        let mut config = crate::xt4(100);
        config.faults = Faults { seed: 7, loss: 0.25, ..Faults::default() };
        config.adversary = AdversarialTiming { jitter_ns: 12.5, late_read: true };
        config.parameters.limits.eqs = 3;
        let text = toml::to_string(&config).unwrap();
        assert_eq!(PortalsConfig::from_toml(&text).unwrap(), config);
    }

    #[test]
    fn tori_are_compact_and_large_enough() {
        let dims = |nodes| match torus(nodes) {
            Topology::Torus { dims } => dims,
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 2, 8, 64, 512].map(dims), [[1, 1, 1], [2, 1, 1], [2, 2, 2], [4, 4, 4], [8, 8, 8]]);
        assert_eq!([100, 1000, 1024, 4096].map(dims), [[5, 5, 4], [10, 10, 10], [16, 8, 8], [16, 16, 16]]);
        for nodes in (1..300).chain([997, 4095, 65_536]) {
            let extents = dims(nodes);
            let product: u32 = extents.iter().product();
            assert!(product >= nodes && product <= nodes.max(2) * 2, "{nodes} nodes in {extents:?}");
        }
    }

    #[test]
    fn bad_configurations_are_refused_by_field_and_limit() {
        for (text, wanted) in [
            ("rankss = 1", "rankss"),
            ("parameters = { nics = {} }", "nics"),
            ("parameters = { nic = { tx = 1 } }", "tx"),
            ("ranks_per_node = 65537", "ranks_per_node is 65537, but must be at most 65536"),
            (
                "parameters = { link = { bandwidth_mb_s = 0 } }",
                "parameters.link.bandwidth_mb_s is 0, but must be above 0",
            ),
            ("parameters = { link = { bandwidth_mb_s = nan } }", "parameters.link.bandwidth_mb_s is NaN"),
            ("parameters = { link = { latency_ns = -1 } }", "parameters.link.latency_ns is -1"),
            (
                "parameters = { nic = { command_ns = -1 } }",
                "parameters.nic.command_ns is -1, but must be a finite number",
            ),
            ("parameters = { nic = { tx_ns = inf } }", "parameters.nic.tx_ns is inf"),
            ("parameters = { nic = { inject_ns = nan } }", "parameters.nic.inject_ns is NaN"),
            ("parameters = { nic = { tx_gap_ns = 1e16 } }", "parameters.nic.tx_gap_ns is 1"),
            (
                "parameters = { nic = { dma_slots = 0 } }",
                "parameters.nic.dma_slots is 0, but must be from 1 to 16777216",
            ),
            ("parameters = { nic = { dma_overload_ns = -2 } }", "parameters.nic.dma_overload_ns is -2"),
            ("parameters = { nic = { header_bytes = 65537 } }", "parameters.nic.header_bytes is 65537"),
            ("parameters = { nic = { packet_bytes = 1073741825 } }", "parameters.nic.packet_bytes is 1073741825"),
            ("parameters = { port = { ejection_mb_s = 0 } }", "parameters.port.ejection_mb_s is 0"),
            (
                "parameters = { nic = { rx = { unit_bytes = 0 } } }",
                "parameters.nic.rx.unit_bytes is 0, but must be at least 1",
            ),
            ("parameters = { nic = { rx = { depth = 0 } } }", "parameters.nic.rx.depth is 0"),
            ("parameters = { nic = { rx = { fixed_ns = -1 } } }", "parameters.nic.rx.fixed_ns is -1"),
            ("parameters = { nic = { complete_ns = -1 } }", "parameters.nic.complete_ns is -1"),
            ("parameters = { nic = { event_ns = -1 } }", "parameters.nic.event_ns is -1"),
            ("parameters = { nic = { ack_tx_ns = -1 } }", "parameters.nic.ack_tx_ns is -1"),
            ("parameters = { nic = { ack_event_ns = -1 } }", "parameters.nic.ack_event_ns is -1"),
            ("parameters = { nic = { list_ns = -1 } }", "parameters.nic.list_ns is -1"),
            (
                "parameters = { nic = { eq_get_ns = 0 } }",
                "parameters.nic.eq_get_ns is 0, but must be at least 0.001 ns",
            ),
            ("parameters = { software = { gasnet_ns = -1 } }", "parameters.software.gasnet_ns is -1"),
            ("parameters = { mpi = { ping_ack_ns = -1 } }", "parameters.mpi.ping_ack_ns is -1"),
            ("parameters = { limits = { eqs = 0 } }", "parameters.limits.eqs is 0, but must be from 1 to 65536"),
            ("parameters = { limits = { pt_entries = 65537 } }", "parameters.limits.pt_entries is 65537"),
            ("parameters = { limits = { message_bytes = 0 } }", "parameters.limits.message_bytes is 0"),
            ("adversary = { jitter_ns = -1 }", "adversary.jitter_ns is -1"),
            ("adversary = { store_gap_ns = 1 }", "store_gap_ns"),
            ("notice_ns = -1", "notice_ns is -1"),
            ("faults = { loss = 2 }", "faults.loss is 2"),
            ("faults = { reordering = 0.1 }", "contradicts"),
            ("faults = { links = [{ mtu_bytes = 64 }] }", "faults.links[0].mtu_bytes is 64, but must be left out"),
            ("errors = { retriable = 0.1 }", "retriable"),
            ("testing = { defects = 1 }", "testing"),
        ] {
            let text = format!("ranks = 2\ntopology = {{ kind = 'torus', dims = [2, 1, 1] }}\n{text}");
            let error = PortalsConfig::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let small = "ranks = 2\ntopology = { kind = 'torus', dims = [0, 1, 1] }";
        assert!(PortalsConfig::from_toml(small).unwrap_err().to_string().contains("topology.dims[0] is 0"));
    }

    #[test]
    fn tables_survive_a_round_trip() {
        for name in Parameters::BUILT_IN {
            let table = Parameters::named(name).unwrap();
            assert_eq!(Parameters::from_toml(&toml::to_string(&table).unwrap()).unwrap(), table);
        }
    }
}
