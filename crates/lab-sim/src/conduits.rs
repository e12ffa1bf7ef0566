//! A program on any of the simulated conduits, each on its usual machine.

use active_messages::Transport;
use exanet_sim::{ExanetConfig, conduit as exanet};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::{gasnet, pscom};
use fabric_sim::{ConfigError, Processors, RankMemory, Report, RunError, Topology};
use machine_sim::{MachineConfig, conduit as machine};
use portals_sim::{PortalsConfig, conduit as portals};
use sci_sim::{SciConfig, conduit as sci};

/// A program of all ranks.
pub trait Program: Copy + Send + Sync + 'static {
    /// What a rank brings.
    type Result: Send + 'static;

    /// A rank's part.
    fn play<T: Transport>(self, transport: T) -> Self::Result;
}

/// A conduit of a simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conduit {
    /// GASNet's over EXTOLL.
    Gasnet,
    /// pscom's over EXTOLL.
    Pscom,
    /// Portals'.
    Portals,
    /// ExaNet's.
    Exanet,
    /// A machine of LogGP's parameters.
    Machine,
    /// SCI's: each node has a command segment for each other one, as published, so that thousands do not fit.
    Sci,
}

/// What a rank has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The machine's usual stack and the conduit's usual segment.
    Usual,
    /// A stack of 64 KiB and a segment of 4 KiB: enough for a small program on very many ranks.
    Small,
}

impl Room {
    fn fit(self, stack_bytes: &mut usize, segment: &mut u64) {
        if self == Self::Small {
            (*stack_bytes, *segment) = (64 << 10, 4096);
        }
    }
}

impl Conduit {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Gasnet, Self::Pscom, Self::Portals, Self::Exanet, Self::Machine, Self::Sci];

    /// Its name in figures and variables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gasnet => "gasnet",
            Self::Pscom => "pscom",
            Self::Portals => "portals",
            Self::Exanet => "exanet",
            Self::Machine => "machine",
            Self::Sci => "sci",
        }
    }

    /// What a rank takes of the system's memory.
    pub fn memory(self) -> RankMemory {
        match self {
            Self::Gasnet => gasnet::MEMORY,
            Self::Pscom => pscom::MEMORY,
            Self::Portals => portals::MEMORY,
            Self::Exanet => exanet::MEMORY,
            Self::Machine => machine::MEMORY,
            Self::Sci => sci::MEMORY,
        }
    }

    /// Runs a program on so many ranks of its usual machine in this topology.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run<P: Program>(
        self,
        ranks: u32,
        topology: Topology,
        room: Room,
        program: P,
    ) -> Result<Report<P::Result>, RunError> {
        self.run_on(None, ranks, topology, room, program)
    }

    /// The same in halves on so many processors, if that is asked for
    /// ([`Sim::run_halves`](fabric_sim::Sim::run_halves)).
    ///
    /// # Errors
    /// [`RunError`]; SCI's machines cannot be halved.
    pub fn run_on<P: Program>(
        self,
        processors: Option<Processors>,
        ranks: u32,
        topology: Topology,
        room: Room,
        program: P,
    ) -> Result<Report<P::Result>, RunError> {
        match self {
            Self::Gasnet => {
                let (mut machine, mut config) =
                    (ExtollConfig::new(ranks, topology), gasnet::GasnetConfig::default());
                room.fit(&mut machine.stack_bytes, &mut config.segment);
                match processors {
                    None => gasnet::run(&machine, &config, move |ours| program.play(ours)),
                    Some(some) => gasnet::run_halves(&machine, &config, some, move |ours| program.play(ours)),
                }
            }
            Self::Pscom => {
                let (mut machine, mut config) =
                    (ExtollConfig::new(ranks, topology), pscom::PscomConfig::default());
                room.fit(&mut machine.stack_bytes, &mut config.am.segment);
                match processors {
                    None => pscom::run(&machine, &config, move |ours| program.play(ours)),
                    Some(some) => pscom::run_halves(&machine, &config, some, move |ours| program.play(ours)),
                }
            }
            Self::Portals => {
                let (mut machine, mut config) =
                    (PortalsConfig::new(ranks, topology), portals::ConduitConfig::default());
                room.fit(&mut machine.stack_bytes, &mut config.segment);
                match processors {
                    None => portals::run(&machine, &config, move |ours| program.play(ours)),
                    Some(some) => portals::run_halves(&machine, &config, some, move |ours| program.play(ours)),
                }
            }
            Self::Exanet => {
                let (mut machine, mut config) =
                    (ExanetConfig::new(ranks, topology), exanet::ConduitConfig::default());
                room.fit(&mut machine.stack_bytes, &mut config.segment);
                match processors {
                    None => exanet::run(&machine, &config, move |ours| program.play(ours)),
                    Some(some) => exanet::run_halves(&machine, &config, some, move |ours| program.play(ours)),
                }
            }
            Self::Machine => {
                let (mut machine, mut config) =
                    (MachineConfig::new(ranks, topology), machine::ConduitConfig::default());
                room.fit(&mut machine.stack_bytes, &mut config.segment);
                match processors {
                    None => machine::run(&machine, &config, move |ours| program.play(ours)),
                    Some(some) => machine::run_halves(&machine, &config, some, move |ours| program.play(ours)),
                }
            }
            Self::Sci if processors.is_some() => {
                let (field, other) = ("processors".into(), "the SCI interface".into());
                let reason =
                    "its transfers read memory of the other half of a machine; run it in one piece".into();
                Err(ConfigError::Contradiction { field, other, reason }.into())
            }
            Self::Sci => {
                let (mut machine, mut config) = (SciConfig::new(ranks, topology), sci::ConduitConfig::default());
                room.fit(&mut machine.stack_bytes, &mut config.segment);
                sci::run(&machine, &config, move |ours| program.play(ours))
            }
        }
    }
}
