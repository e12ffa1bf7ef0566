//! What a copy by the system out of a process costs beside a copy within it: by that layers choose whether they
//! lend what they send or copy it through shared memory.

use super::Endpoint;
use crate::transport::{Lender, Transport};
use std::hint::black_box;

/// Bytes that are copied to find out: both copies of them stay in a processor's second cache.
const BYTES: usize = 256 << 10;

/// Copies of each kind, the fastest of which counts: the first one meets new pages.
const TRIES: usize = 4;

impl<T: Transport, S> Endpoint<T, S> {
    /// How long the system takes for a copy out of a process ([`read_lent`](Self::read_lent), tried with this
    /// one), in percent of what a copy within the process takes; `None` where it makes none. Measures it: four
    /// copies of each kind of 256 KiB, of which the fastest count. Takes some 0.2 ms; allocates.
    pub fn lent_cost(&mut self) -> Option<u32> {
        let (source, mut target) = (vec![1; BYTES], vec![0; BYTES]);
        let mut lender = Lender::new(1);
        let loan = lender.lend(&source)?;
        let (me, mut fastest) = (self.address(), [u64::MAX; 2]);
        for _ in 0..TRIES {
            let start = self.now();
            self.read_lent(me, &loan.lent(), 0, &mut target).ok()?;
            let between = self.now();
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
            let took = [between - start, self.now() - between];
            fastest.iter_mut().zip(took).for_each(|(fastest, took)| *fastest = took.picos().min(*fastest));
        }
        let [by_system, within] = fastest;
        Some((u128::from(by_system) * 100 / u128::from(within.max(1))).try_into().unwrap_or(u32::MAX))
    }
}
