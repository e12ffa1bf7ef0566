//! Stages: the FIFO servers that a packet passes on its way through an interface.

use crate::error::ConfigError;
use crate::nic::picos;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The cost of a stage. It is busy for `per_unit_ns` times the number of units of a packet (at least one unit),
/// then the packet takes `fixed_ns` more while the next may already enter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stage {
    /// Latency of every packet, in nanoseconds; packets overlap in it as far as the depth allows.
    pub fixed_ns: f64,
    /// Time for which each unit occupies the stage, in nanoseconds.
    pub per_unit_ns: f64,
    /// Size of a unit in bytes; a packet without bytes counts as one unit.
    pub unit_bytes: u32,
    /// Packets that may be in the stage at once; with 1 the fixed time occupies it too.
    pub depth: u32,
}

impl Stage {
    /// A stage that takes no time.
    pub const NONE: Self = Self { fixed_ns: 0.0, per_unit_ns: 0.0, unit_bytes: 1, depth: u32::MAX };

    /// A stage of pure latency, in nanoseconds.
    pub const fn latency(fixed_ns: f64) -> Self {
        Self { fixed_ns, ..Self::NONE }
    }

    pub(crate) fn check(&self, field: &str) -> Result<Cost, ConfigError> {
        if self.unit_bytes == 0 {
            return Err(ConfigError::range(format!("{field}.unit_bytes"), 0, "at least 1"));
        }
        if self.depth == 0 {
            return Err(ConfigError::range(format!("{field}.depth"), 0, "at least 1"));
        }
        Ok(Cost {
            fixed: picos(self.fixed_ns, &format!("{field}.fixed_ns"))?,
            per_unit: picos(self.per_unit_ns, &format!("{field}.per_unit_ns"))?,
            unit: self.unit_bytes,
            depth: self.depth,
        })
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::NONE
    }
}

/// A stage's cost in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    fixed: u64,
    per_unit: u64,
    unit: u32,
    depth: u32,
}

/// Slowness of a node that is not slow, in 1/1024.
pub(crate) const NORMAL: u64 = 1024;

impl Cost {
    #[inline]
    fn occupancy(&self, bytes: u32) -> u64 {
        if self.per_unit == 0 {
            return 0;
        }
        // A packet of one unit, which most are, takes no division.
        let units = if bytes <= self.unit { 1 } else { bytes.div_ceil(self.unit) };
        self.per_unit * u64::from(units)
    }

    /// Time for one packet that meets nobody, in picoseconds.
    #[inline]
    pub(crate) fn alone(&self, bytes: u32, slowness: u64) -> u64 {
        slowed(self.occupancy(bytes) + self.fixed, slowness)
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.fixed == 0 && self.per_unit == 0
    }
}

/// A time stretched by a node's slowness.
#[inline]
pub(crate) fn slowed(time: u64, slowness: u64) -> u64 {
    if slowness == NORMAL { time } else { (u128::from(time) * u128::from(slowness) / 1024) as u64 }
}

/// One stage of one interface. Two cache lines, of which a stage without a limited depth needs little more than
/// the first.
#[repr(C, align(64))]
pub(crate) struct Server {
    cost: Cost,
    free_at: u64,
    last: u64,
    pub(crate) packets: u64,
    pub(crate) busy: u64,
    pub(crate) bytes: u64,
    /// When those inside leave, while the depth is limited.
    leaving: VecDeque<u64>,
    /// The last times without a pause, from when to when. A stage behind another one may serve in the future what
    /// is in that one yet.
    runs: VecDeque<(u64, u64)>,
}

/// Times that a stage keeps.
const RUNS: usize = 8;

impl Server {
    pub(crate) fn new(cost: Cost) -> Self {
        Self {
            cost,
            free_at: 0,
            last: 0,
            leaving: VecDeque::new(),
            runs: VecDeque::new(),
            packets: 0,
            bytes: 0,
            busy: 0,
        }
    }

    /// For how long of a run it was busy: what still waits for it at the run's end does not count.
    pub(crate) fn used(&self, ended: u64) -> u64 {
        let after: u64 = self.runs.iter().map(|(from, to)| to.saturating_sub(ended.max(*from))).sum();
        self.busy.saturating_sub(after).min(ended)
    }

    /// It is busy from a time to another.
    #[inline]
    fn run(&mut self, from: u64, to: u64) {
        self.busy += to - from;
        match self.runs.back_mut() {
            Some((_, end)) if *end >= from => *end = to,
            _ => {
                if self.runs.len() == RUNS {
                    self.runs.pop_front();
                }
                self.runs.push_back((from, to));
            }
        }
    }

    /// When a packet that comes at `time` would enter, where one is served at a time or none waits for the depth.
    pub(crate) fn next(&self, time: u64) -> u64 {
        let last = if self.cost.depth == 1 { self.last } else { 0 };
        time.max(self.free_at).max(last)
    }

    /// Takes a packet that comes at `time`; returns when it enters and leaves. Calls come in the order of time.
    #[inline]
    pub(crate) fn serve(&mut self, time: u64, bytes: u32, slowness: u64) -> (u64, u64) {
        if self.cost.is_free() {
            return (time, time);
        }
        let mut enters = time.max(self.free_at);
        // With room for one only, who is inside is who left last.
        let single = self.cost.depth == 1;
        let limited = !single && self.cost.depth != u32::MAX;
        if single {
            enters = enters.max(self.last);
        } else if limited && self.leaving.len() == self.cost.depth as usize {
            let first = self.leaving.pop_front().expect("a full stage holds a packet");
            enters = enters.max(first);
        }
        let occupied = slowed(self.cost.occupancy(bytes), slowness);
        self.free_at = enters + occupied;
        self.packets += 1;
        self.bytes += u64::from(bytes);
        // A node that becomes faster again lets nobody overtake.
        let leaves = (self.free_at + slowed(self.cost.fixed, slowness)).max(self.last);
        self.last = leaves;
        if limited {
            self.leaving.push_back(leaves);
        }
        // With room for one only, the fixed time occupies the stage too.
        self.run(enters, if single { leaves } else { self.free_at });
        (enters, leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(fixed_ns: f64, per_unit_ns: f64, unit_bytes: u32, depth: u32) -> Server {
        Server::new(Stage { fixed_ns, per_unit_ns, unit_bytes, depth }.check("s").unwrap())
    }

    #[test]
    fn packets_overlap_in_the_latency_but_not_in_the_units() {
        let mut server = server(1.0, 0.5, 64, u32::MAX);
        assert_eq!(server.serve(0, 65, NORMAL), (0, 2_000));
        assert_eq!(server.serve(0, 64, NORMAL), (1_000, 2_500));
        assert_eq!(server.serve(9_000, 0, NORMAL), (9_000, 10_500));
    }

    #[test]
    fn depth_one_serves_one_at_a_time_and_depth_two_two() {
        let mut one = server(1.0, 0.5, 64, 1);
        assert_eq!([0; 3].map(|time| one.serve(time, 1, NORMAL).1), [1_500, 3_000, 4_500]);
        let mut two = server(1.0, 0.1, 64, 2);
        assert_eq!([0; 4].map(|time| two.serve(time, 1, NORMAL).1), [1_100, 1_200, 2_200, 2_300]);
    }

    /// What is served behind the run's end does not count, and the pause before it was none of the run's.
    #[test]
    fn what_is_behind_the_end_is_not_used() {
        let mut server = server(0.0, 1.0, 64, u32::MAX);
        server.serve(0, 64, NORMAL);
        assert_eq!((server.used(500), server.used(1_000), server.used(9_000)), (500, 1_000, 1_000));
        // Two more come out of the stage before, long after.
        server.serve(50_000, 64, NORMAL);
        server.serve(60_000, 64, NORMAL);
        assert_eq!(server.used(9_000), 1_000, "the pause is not taken off");
        assert_eq!((server.used(50_500), server.used(55_000), server.used(70_000)), (1_500, 2_000, 3_000));
    }

    #[test]
    fn a_slow_node_takes_longer() {
        assert_eq!(server(1.0, 0.5, 64, 1).serve(0, 1, 3 * NORMAL), (0, 4_500));
    }

    #[test]
    fn what_is_not_physical_is_refused_by_name() {
        let bad = Stage { per_unit_ns: -1.0, ..Stage::NONE }.check("nic.nic_tx").unwrap_err();
        assert_eq!(
            bad.to_string(),
            "nic.nic_tx.per_unit_ns is -1, but must be a finite number of nanoseconds from 0 to 1e15"
        );
        assert!(Stage { depth: 0, ..Stage::NONE }.check("s").is_err());
        assert!(Stage { unit_bytes: 0, ..Stage::NONE }.check("s").is_err());
    }
}
