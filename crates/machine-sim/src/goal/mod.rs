//! Schedules in GOAL's text format (Hoefler, Siebert and Lumsdaine, 2009), run on a machine: each rank's
//! computations, sends and receives with what they require of each other.
//!
//! * `text` reads schedules, and says what is wrong with others by line;
//! * `player` runs them: a state machine of each rank, in the network's events;
//! * [`patterns`] has schedules of collective operations.
//!
//! # What is simulated
//!
//! The rules are LogGOPS's, as LogGOPSim has them: a send waits for its processor and its interface, occupies the
//! first for `o_s + (s - 1) O` and the second for `g + (s - 1) G`; its first byte arrives `L` after the overhead,
//! besides what the links take; the receiver then is occupied for `o_r` and the bytes' `(s - 1) G` or `(s - 1) O`,
//! whichever is longer, whether or not the receive was posted. Messages match receives by source and tag in the
//! order in which they were taken in. A `calc` of `n` takes `n` nanoseconds. Of what waits for the same processor
//! or interface, that which became possible first begins first.
//!
//! # Different from LogGOPSim
//!
//! Held against its source (`LogGOPSim.cpp` of spcl/LogGOPSim); where none of these matters, the times are meant
//! to be equal.
//!
//! | | here | LogGOPSim |
//! |---|---|---|
//! | an operation that `requires` one on another processor of the rank | begins when that has ended | begins when its own processor is free |
//! | operations that may begin at the same time | in the order in which all that they require has ended, then by place | in the order in which what they require began, then sends, receives, computations |
//! | a message above the eager limit | its sender's operation ends a latency, and what links take, after it was matched | ends at that moment, and the sender's processor and interface have waited until then |
//! | which processor and interface a message occupies at its receiver | those of the receive that is posted when it arrives; else its sender's numbers | its sender's numbers |
//! | a message without bytes | costs no time per byte | is charged for `s - 1` bytes, a number below zero |
//! | links, losses | the machine's links, which a message passes as one packet; no data path of the node | none (`LogGP`), or paths of a graph |
//! | a message above the eager limit | by the message's size | by the receive's, where the receive comes late |
//! | `tag -1` of a send | refused | taken |
//! | computations | on a slow node they take longer | noise from a trace |
//!
//! Neither waits with the bytes of a message above the eager limit until it is matched: only its sender's
//! operation does.
//!
//! ```
//! use machine_sim::{crossbar, goal::{self, Schedule}, model::Parameters};
//!
//! let schedule: Schedule = "
//!     num_ranks 2
//!     rank 0 {
//!         before: calc 100
//!         ping: send 8b to 1 tag 3
//!         ping requires before
//!     }
//!     rank 1 {
//!         recv 8b from 0 tag 3
//!     }
//! ".parse()?;
//! let mut machine = crossbar(2);
//! machine.parameters = Parameters::loggp(1000.0, 200.0, 50.0, 1.0);
//! let played = goal::run(&machine, &schedule)?;
//! // 100, o, L, o and seven bytes.
//! assert_eq!(played.ended[1].0, (100 + 200 + 1000 + 200 + 7) * 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod patterns;
mod player;
mod text;

pub use player::ScheduleReport;
pub use text::ScheduleError;

use crate::MachineConfig;
use fabric_sim::{ConfigError, RunError};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Computes for so many nanoseconds.
    Calc(u64),
    /// Sends so many bytes.
    Send {
        /// Their number.
        bytes: u64,
        /// To whom.
        to: u32,
        /// With which tag.
        tag: u32,
    },
    /// Receives so many bytes.
    Receive {
        /// Their number.
        bytes: u64,
        /// From whom; `None` from anyone.
        from: Option<u32>,
        /// With which tag; `None` with any.
        tag: Option<u32>,
    },
}

/// An operation of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub action: Action,
    /// The processor of the rank, 0 to 255.
    pub cpu: u8,
    /// The interface of the rank, 0 to 255.
    pub nic: u8,
    /// Operations of the same rank, by their place, that must have ended before it begins.
    pub requires: Vec<u32>,
    /// Those that must have begun.
    pub irequires: Vec<u32>,
}

impl Operation {
    /// An operation on processor and interface 0 that requires nothing.
    pub fn new(action: Action) -> Self {
        Self { action, cpu: 0, nic: 0, requires: Vec::new(), irequires: Vec::new() }
    }

    /// The same, after others have ended.
    #[must_use]
    pub fn after(mut self, others: impl IntoIterator<Item = u32>) -> Self {
        self.requires.extend(others);
        self
    }
}

/// The operations of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Per rank.
    pub ranks: Vec<Vec<Operation>>,
}

/// Runs a schedule on a machine, which gets as many ranks as the schedule has. Blocks until it has ended.
///
/// # Errors
/// An impossible machine, one that loses packets without repair, a schedule with operations that require each
/// other, or one whose messages do not match: a deadlock that names what is left.
pub fn run(machine: &MachineConfig, schedule: &Schedule) -> Result<ScheduleReport, RunError> {
    let ranks = u32::try_from(schedule.ranks.len()).unwrap_or(u32::MAX);
    let machine = MachineConfig { ranks, ..machine.clone() };
    machine.check()?;
    for (rank, operations) in schedule.ranks.iter().enumerate() {
        for (place, operation) in operations.iter().enumerate() {
            let field = format!("schedule.ranks[{rank}][{place}]");
            let peer = match operation.action {
                Action::Send { to, .. } => Some(to),
                Action::Receive { from, .. } => from,
                Action::Calc(_) => None,
            };
            if let Some(peer) = peer.filter(|peer| *peer >= ranks) {
                return Err(ConfigError::range(
                    field,
                    format!("with rank {peer}"),
                    format!("with a rank below {ranks}"),
                )
                .into());
            }
            let before = operation.requires.iter().chain(&operation.irequires);
            if let Some(other) = before.copied().find(|other| *other as usize >= operations.len()) {
                let limit = format!("one of {} operations", operations.len());
                return Err(ConfigError::range(field, format!("after operation {other}"), limit).into());
            }
        }
    }
    player::play(&machine, schedule)
}
