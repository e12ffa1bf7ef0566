//! Random schedules: biased, reproducible from a seed, and run until nothing can happen any more.

use super::net::{Action, Net, Violation};
use fabric_sim::splitmix64;

/// What a schedule has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) steps: usize,
    pub(crate) accepted: usize,
    pub(crate) revoked: usize,
    /// The most receive space that was ever occupied at one node.
    pub(crate) peak: u32,
}

/// The hardest schedule for the receive space: everything that can be sent is sent and deposited before anybody
/// polls; then everybody serves what is there; and so on until nothing changes.
pub(crate) fn flood(net: &mut Net) -> Result<Tally, Violation> {
    let tally = flood_where(net, |_, _| true)?;
    net.check_end()?;
    Ok(tally)
}

/// A flood in which only certain actions happen. Some requests may never be served.
pub(crate) fn flood_where(net: &mut Net, wanted: impl Fn(&Net, Action) -> bool) -> Result<Tally, Violation> {
    let mut tally = Tally::default();
    loop {
        let sending = |action| matches!(action, Action::Send { .. } | Action::Deliver { .. });
        let sent = sweep(net, &mut tally, |net, action| sending(action) && wanted(net, action))?;
        let served = sweep(net, &mut tally, |net, action| !sending(action) && wanted(net, action))?;
        if !sent && !served {
            return Ok(tally);
        }
    }
}

/// Repeats all candidates that are wanted, in turn, until none of them changes anything.
fn sweep(net: &mut Net, tally: &mut Tally, wanted: impl Fn(&Net, Action) -> bool) -> Result<bool, Violation> {
    let mut changed = false;
    loop {
        let mut again = false;
        for action in net.candidates() {
            again |= wanted(net, action) && tally.apply(net, action)?;
        }
        if !again {
            return Ok(changed);
        }
        changed = true;
    }
}

/// Steps after which a network that still moves is taken to move for ever. The workloads here need a few thousand.
const LIVELOCK: usize = 2_000_000;

impl Tally {
    /// Applies one action and counts it.
    pub(crate) fn apply(&mut self, net: &mut Net, action: Action) -> Result<bool, Violation> {
        let changed = net.apply(action)?;
        if changed {
            self.steps += 1;
            assert!(self.steps < LIVELOCK, "the network never comes to rest");
            match action {
                Action::Accept { .. } => self.accepted += 1,
                Action::Revoke { .. } => self.revoked += 1,
                Action::Deliver { to, .. } => self.peak = self.peak.max(net.occupied(to)),
                _ => {}
            }
        }
        Ok(changed)
    }
}

/// Picks actions at random, each kind with its own weight, so that one seed starves revocations and another one
/// answers.
pub(crate) struct Scheduler {
    random: u64,
    weights: [u64; 7],
}

impl Scheduler {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = seed;
        let weights = std::array::from_fn(|_| [1, 8, 64, 512][(splitmix64(&mut random) % 4) as usize]);
        Self { random, weights }
    }

    /// Runs until nothing changes any more, then checks that nothing is left and that the books agree.
    pub(crate) fn drain(&mut self, net: &mut Net) -> Result<Tally, Violation> {
        let mut tally = Tally::default();
        while self.step(net, &mut tally)? {}
        net.check_end()?;
        if net.checks.conservation {
            net.check_settled()?;
        }
        Ok(tally)
    }

    /// One step that changes something, or `false` if there is none.
    pub(crate) fn step(&mut self, net: &mut Net, tally: &mut Tally) -> Result<bool, Violation> {
        let mut candidates = net.candidates();
        while !candidates.is_empty() {
            let action = candidates.swap_remove(self.pick(&candidates));
            if tally.apply(net, action)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn pick(&mut self, candidates: &[Action]) -> usize {
        let weight = |action: &Action| {
            self.weights[match action {
                Action::Send { .. } => 0,
                Action::Deliver { .. } => 1,
                Action::Accept { .. } => 2,
                Action::Finish { .. } => 3,
                Action::Revoke { .. } => 4,
                Action::Kill { .. } => 5,
                Action::Detect { .. } => 6,
            }]
        };
        let sum: u64 = candidates.iter().map(weight).sum();
        let mut at = splitmix64(&mut self.random) % sum;
        let chosen = candidates.iter().position(|action| {
            let here = at < weight(action);
            at = at.saturating_sub(weight(action));
            here
        });
        chosen.expect("a number below the sum falls into one of the weights")
    }
}
