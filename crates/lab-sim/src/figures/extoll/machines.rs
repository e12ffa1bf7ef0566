//! The two machines that the figures were measured on, with what the user wants different.

use crate::figures::cli::Cli;
use crate::figures::report::Failure;
use crate::figures::settings::Settings;
use extoll_sim::ExtollConfig;
use extoll_sim::model::Parameters;
use fabric_sim::Topology;

/// The machines.
#[derive(Clone, Debug)]
pub(super) struct Machines {
    evaluator: Parameters,
    cluster: Parameters,
}

/// Processes that share a node of the cluster.
pub(super) const PER_NODE: u32 = 16;

impl Machines {
    /// The published machines, changed as the command line wants.
    ///
    /// # Errors
    /// [`Failure::Usage`] names what makes no sense.
    pub(super) fn new(cli: &Cli) -> Result<Self, Failure> {
        let settings = Settings::new(cli)?;
        let change = |parameters| settings.change(parameters, Parameters::from_toml);
        Ok(Self { evaluator: change(Parameters::deep())?, cluster: change(Parameters::cluster())? })
    }

    /// Two neighbouring nodes of the DEEP evaluator, a process on each.
    pub(super) fn evaluator(&self) -> ExtollConfig {
        ExtollConfig { parameters: self.evaluator.clone(), ..ExtollConfig::pair() }
    }

    /// Two neighbouring nodes of the conduit paper's cluster, a process on each.
    pub(super) fn cluster_pair(&self) -> ExtollConfig {
        ExtollConfig { parameters: self.cluster.clone(), ..ExtollConfig::pair() }
    }

    /// So many processes on the cluster's nodes, connected in some way, filled in order.
    pub(super) fn cluster(&self, processes: u32, topology: Topology) -> ExtollConfig {
        ExtollConfig {
            parameters: self.cluster.clone(),
            ranks_per_node: PER_NODE,
            ..ExtollConfig::new(processes, topology)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn machines(arguments: &[&str]) -> Result<Machines, Failure> {
        let cli = Cli::try_parse_from(["figures", "extoll"].iter().chain(arguments)).unwrap();
        Machines::new(&cli)
    }

    #[test]
    fn settings_change_both_machines_and_nothing_else() {
        let changed = machines(&["--set", "velo.send_ns=0", "--set", "rma.tx.fixed_ns = 1.5"]).unwrap();
        assert_eq!((changed.evaluator.velo.send_ns, changed.cluster.rma.tx.fixed_ns), (0.0, 1.5));
        let mut plain = Parameters::deep();
        (plain.velo.send_ns, plain.rma.tx.fixed_ns) = (0.0, 1.5);
        assert_eq!(changed.evaluator, plain);
        assert_eq!(machines(&[]).unwrap().cluster, Parameters::cluster());
    }

    #[test]
    fn settings_that_make_no_sense_are_usage_errors() {
        for (setting, part) in [
            ("velo.send_ns", "--set is 'velo.send_ns'"),
            ("velo.send_ns=fast", "--set is"),
            ("velo.poll=0", "unknown field `poll`"),
            ("velo.mtu=96", "parameters.velo.mtu is 96"),
        ] {
            match machines(&["--set", setting]) {
                Err(Failure::Usage(error)) => assert!(error.contains(part), "{error}"),
                other => panic!("{setting}: {other:?}"),
            }
        }
    }
}
