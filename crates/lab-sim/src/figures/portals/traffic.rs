//! Traffic between many nodes, in bursts: who sends to whom, and how long it takes.
//!
//! Every node repeats: send a burst of one-way Medium messages, take in what has come, compute for a while. A node
//! that computes takes nothing in, so its senders need credits for as long: this is what receive buffers are for.

use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Span};
use fabric_sim::{RunError, splitmix64};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig, ConduitCounters};

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Each message to a node drawn at random.
    Uniform,
    /// One node in four is hot: the three others of its group send it all their bursts but every fourth, which is
    /// uniform.
    Hotspot,
    /// All bursts to the next node.
    Neighbour,
    /// All bursts to one node, another one after every second burst.
    Shifting,
}

impl Pattern {
    pub(crate) const ALL: [Self; 4] = [Self::Uniform, Self::Hotspot, Self::Neighbour, Self::Shifting];

    /// What it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Hotspot => "hotspot",
            Self::Neighbour => "neighbour",
            Self::Shifting => "shifting",
        }
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Bursts of each node.
    pub(crate) bursts: u32,
    /// Messages of a burst.
    pub(crate) burst: u32,
    /// Payload bytes of a message.
    pub(crate) bytes: u32,
    /// What a node computes after each burst.
    pub(crate) compute: Span,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Messages a second that a node sent, over the whole run.
    pub(crate) rate: f64,
    /// Sums over all nodes.
    pub(crate) revocations: u64,
    pub(crate) resent: u64,
}

/// A reproducible sequence (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u32) -> u32 {
        ((u128::from(splitmix64(&mut self.0)) * u128::from(limit)) >> 64) as u32
    }

    /// Any node but one.
    fn other(&mut self, me: u32, nodes: u32) -> u32 {
        (me + 1 + self.below(nodes - 1)) % nodes
    }
}

/// Runs the traffic on all nodes of a machine.
pub(crate) fn run(
    machine: &PortalsConfig,
    config: &ConduitConfig,
    pattern: Pattern,
    load: Load,
) -> Result<Outcome, RunError> {
    let report = conduit::run(machine, config, move |transport| {
        let mut handlers = Handlers::<u64>::new();
        let take = handlers.one_way("take", |taken: &mut u64, _: Address, (): (), _: Payload<'_>| *taken += 1);
        let take = take.expect("the table has room");
        let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("all nodes attach");
        let (me, nodes) = (endpoint.rank().0, endpoint.ranks());
        let (mut dice, payload) = (Draw(u64::from(me)), vec![3; load.bytes as usize]);
        endpoint.barrier().expect("nobody is lost");
        let began = endpoint.now();
        for burst in 0..load.bursts {
            let fixed = match pattern {
                Pattern::Uniform => None,
                Pattern::Hotspot if me.is_multiple_of(4) || burst % 4 == 3 => None,
                Pattern::Hotspot => Some(me - me % 4),
                Pattern::Neighbour => Some((me + 1) % nodes),
                Pattern::Shifting => Some((me + 1 + burst / 2 * 7) % nodes),
            };
            for _ in 0..load.burst {
                let to = fixed.unwrap_or_else(|| dice.other(me, nodes));
                endpoint.request_medium(Rank(to), take, (), &payload).expect("nobody is lost");
            }
            while endpoint.poll().expect("nobody is lost") != 0 {}
            endpoint.charge(load.compute);
        }
        endpoint.drain().expect("nobody is lost");
        endpoint.barrier().expect("nobody is lost");
        let took = endpoint.now().since(began);
        let counters = endpoint.transport().counters();
        endpoint.finish().expect("nobody is lost");
        (took, counters)
    })?;
    let results: Vec<(Span, ConduitCounters)> = report.results.into_iter().flatten().collect();
    let longest = results.iter().map(|(took, _)| took.0).max().unwrap_or(0);
    Ok(Outcome {
        rate: f64::from(load.bursts) * f64::from(load.burst) / (longest as f64 * 1e-12),
        revocations: results.iter().map(|(_, counters)| counters.revocations).sum(),
        resent: results.iter().map(|(_, counters)| counters.resent).sum(),
    })
}
