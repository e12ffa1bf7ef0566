//! What a copy by the system out of a process costs beside a copy within it: by that a member chooses whether it
//! lends what it gives or fills blocks.

/// Measurements that fail before no more are made: a system that refuses will go on, and each costs a call.
const FAILURES: u8 = 3;

/// What is known of the cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LentCost {
    percent: Option<u32>,
    failures: u8,
}

impl LentCost {
    /// In percent of a copy within the process, once it has been measured.
    pub(super) fn percent(self) -> Option<u32> {
        self.percent
    }

    /// Whether another measurement is worth its while.
    pub(super) fn is_open(self) -> bool {
        self.percent.is_none() && self.failures < FAILURES
    }

    /// The same after a measurement.
    pub(super) fn after(self, measured: Option<u32>) -> Self {
        Self { percent: measured, failures: self.failures + u8::from(measured.is_none()) }
    }
}
