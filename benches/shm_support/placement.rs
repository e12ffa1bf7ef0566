//! Where the first two ranks of a crew run, told from the raw one-line ping-pong: a virtual machine's CPUs are two
//! cores at one time and two hyper-threads of one core at another, and nothing but the time of a cache line's way
//! shows it.

use std::time::Duration;

use super::crew::Crew;
use super::raw::RawTask;
use super::world::Task;
use lab::bench::command::Mode;
use lab::bench::summary::median_and_spread;

/// Round trips of each of a probe's runs.
const ROUNDS: u64 = 1000;
/// Runs of a probe, of which the median counts.
const RUNS: u32 = 5;
/// Round trips before these, and the microseconds of each beyond which both ranks take turns on one CPU.
const FEW: u64 = 20;
const IN_TURN: f64 = 100.0;

/// Where two ranks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Two hyper-threads of one core.
    Siblings,
    /// Two cores.
    SeparateCores,
    /// One CPU for both, in turn.
    OneCpu,
}

impl Placement {
    /// The placement that a raw one-line round trip of this many microseconds betrays.
    fn of_round_trip(microseconds: f64) -> Self {
        match microseconds {
            time if time < 0.06 => Self::Siblings,
            time if time < 2.0 => Self::SeparateCores,
            _ => Self::OneCpu,
        }
    }

    /// How the placement is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Siblings => "hyper-threads of one core",
            Self::SeparateCores => "separate cores",
            Self::OneCpu => "one CPU",
        }
    }
}

/// What a probe found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The raw one-line round trip.
    pub(crate) microseconds: f64,
    /// The placement that follows.
    pub(crate) placement: Placement,
}

impl Probe {
    /// Takes a probe: well under a millisecond on two CPUs.
    pub(crate) fn take(crew: &mut Crew, mode: Mode) -> Self {
        let (runs, rounds) = match mode {
            Mode::Test => (1, 1),
            // There is nothing to find out, and each round trip takes two switches of the CPU.
            _ if crew.is_confined() => (1, 20),
            _ => (RUNS, ROUNDS),
        };
        // One CPU for both, in turn, shows at once; more rounds of it would take seconds.
        if mode != Mode::Test && !crew.is_confined() {
            let few = crew.run(&Task::Raw(RawTask::Word), FEW).as_secs_f64() / FEW as f64 * 1e6;
            if few > IN_TURN {
                return Self { microseconds: few, placement: Placement::OneCpu };
            }
        }
        let mut run = |_| {
            let elapsed = crew.run(&Task::Raw(RawTask::Word), rounds);
            elapsed.as_secs_f64() / rounds as f64 * 1e6
        };
        let times: Vec<f64> = (0..runs).map(&mut run).collect();
        let (microseconds, _) = median_and_spread(&times);
        Self { microseconds, placement: Placement::of_round_trip(microseconds) }
    }

    /// Probes until the kernel has spread the ranks over the CPUs, a dozen times at most.
    pub(crate) fn take_settled(crew: &mut Crew, mode: Mode) -> Self {
        let mut found = Self::take(crew, mode);
        for attempt in 0..12 {
            if found.placement != Placement::OneCpu || crew.is_confined() || mode == Mode::Test {
                break;
            }
            if attempt == 0 {
                println!("    both ranks are on one CPU: waits until the system parts them");
            }
            std::thread::sleep(Duration::from_millis(10));
            found = Self::take(crew, mode);
        }
        found
    }
}
