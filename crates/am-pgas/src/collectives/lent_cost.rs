//! What a copy by the system out of a process costs beside a copy within it: by that a member chooses whether it
//! lends what it gives or fills blocks.

use am_core::transport::Lender;
use am_core::{Endpoint, Transport};
use std::hint::black_box;

/// Bytes that are copied to find out: both copies of them stay in a processor's second cache.
const BYTES: usize = 256 << 10;

/// Copies of each kind, the fastest of which counts: the first one meets new pages.
const TRIES: usize = 4;

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

/// How long the system takes for a copy out of this process, in percent of what the process takes; `None` where it
/// makes none, or none now. Takes some 0.2 ms; allocates.
pub(super) fn measure<T: Transport, S>(endpoint: &mut Endpoint<T, S>) -> Option<u32> {
    let (source, mut target) = (vec![1; BYTES], vec![0; BYTES]);
    let mut lender = Lender::new(1);
    let loan = lender.lend(&source)?;
    let (me, mut fastest) = (endpoint.address(), [u64::MAX; 2]);
    for _ in 0..TRIES {
        let start = endpoint.now();
        endpoint.read_lent(me, &loan.lent(), 0, &mut target).ok()?;
        let between = endpoint.now();
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
        let took = [between - start, endpoint.now() - between];
        fastest.iter_mut().zip(took).for_each(|(fastest, took)| *fastest = took.picos().min(*fastest));
    }
    let [by_system, within] = fastest;
    Some((u128::from(by_system) * 100 / u128::from(within.max(1))).try_into().unwrap_or(u32::MAX))
}
