//! Traffic of all ranks in drawn sizes, and the bounds that a machine of nodes and links sets it.

use crate::random::Random;
use am_core::{Address, Category, Endpoint, Handlers, Lane, Payload, Rank, Span, Transport};

/// A message: to whom, in which category, and how long it is.
type Message = (u32, Category, usize);

/// What a rank sends: to any other rank, or if it is `hot` mostly to rank 0.
fn drawn(seed: u64, (me, ranks): (u32, u32), hot: bool, messages: u32) -> Vec<Message> {
    let mut random = Random::new(seed, u64::from(me) + 1);
    let message = |random: &mut Random| {
        let elsewhere = (me + 1 + random.below(u64::from(ranks) - 1) as u32) % ranks;
        let to = if hot && me != 0 && random.below(8) != 0 { 0 } else { elsewhere };
        match random.below(4) {
            0 => (to, Category::Short, 0),
            1 => (to, Category::Medium, random.length(512)),
            2 => (to, Category::Long, random.length(4 << 10)),
            _ => (to, Category::Long, random.length(96 << 10)),
        }
    };
    (0..messages).map(|_| message(&mut random)).collect()
}

/// Sends messages of drawn sizes to drawn ranks, or if it is `hot` most of them to rank 0, and leaves once all
/// that others sent have come. All ranks of a job call it with the same seed.
///
/// # Panics
/// If an operation fails.
pub fn random_traffic(transport: impl Transport, seed: u64, hot: bool, messages: u32) {
    let mut handlers = Handlers::<u32>::new();
    let count = |came: &mut u32, _: Address, (): (), _: Payload<'_>| *came += 1;
    let take = handlers.one_way("take", count).expect("the name is new");
    let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("the job begins");
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let limits = *endpoint.limits(Rank((me + 1) % ranks)).expect("the job has more than one rank");
    let medium = limits.max_payload(Category::Medium, Lane::Request, 0) as usize;
    let long = (endpoint.segment().len() as u64).min(limits.long) as usize;
    for (to, category, len) in drawn(seed, (me, ranks), hot, messages) {
        let (to, payload) = (Rank(to), vec![len as u8; len]);
        let sent = match category {
            Category::Short => endpoint.request(to, take, ()),
            Category::Medium => endpoint.request_medium(to, take, (), &payload[..len.min(medium)]),
            Category::Long => endpoint.request_long(to, take, (), &payload[..len.min(long)], 0),
        };
        sent.expect("a message is sent");
    }
    let others = (0..ranks).filter(|rank| *rank != me).flat_map(|rank| drawn(seed, (rank, ranks), hot, messages));
    let expected = others.filter(|message| message.0 == me).count() as u32;
    endpoint.wait_until(|came| *came == expected).expect("all messages come");
    endpoint.finish().expect("the job ends");
}

/// Sends Longs of drawn sizes, from one byte to `longest`, from each rank of the lower half to drawn ranks of the
/// upper one, and back if it goes `both` ways, and leaves once all have come. Returns the bytes of payload that
/// have come from the lower half to this rank. All ranks of a job, an even number, call it with the same seed.
///
/// # Panics
/// If an operation fails.
fn cross_traffic(transport: impl Transport, seed: u64, messages: u32, longest: u64, both: bool) -> u64 {
    let mut handlers = Handlers::<(u32, u64)>::new();
    let count = |came: &mut (u32, u64), _: Address, (): (), payload: Payload<'_>| {
        *came = (came.0 + 1, came.1 + payload.len() as u64);
    };
    let take = handlers.one_way("take", count).expect("the name is new");
    let mut endpoint = Endpoint::attach(transport, handlers, (0, 0)).expect("the job begins");
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let half = ranks / 2;
    let of = |rank: u32| -> Vec<(u32, usize)> {
        let mut random = Random::new(seed, u64::from(rank) + 1);
        let first = if rank < half { half } else { 0 };
        let count = if rank < half || both { messages } else { 0 };
        let mut message = || {
            let to = first + random.below(u64::from(half)) as u32;
            (to, 1 + random.below(longest) as usize)
        };
        (0..count).map(|_| message()).collect()
    };
    let room = endpoint.segment().len();
    for (to, len) in of(me) {
        let payload = vec![len as u8; len.min(room)];
        endpoint.request_long(Rank(to), take, (), &payload, 0).expect("a message is sent");
    }
    let expected = (0..ranks).flat_map(of).filter(|(to, _)| *to == me).count() as u32;
    endpoint.wait_until(|came| came.0 == expected).expect("all messages come");
    let came = endpoint.state().1;
    endpoint.finish().expect("the job ends");
    if me < half { 0 } else { came }
}

/// What rank 0's Shorts to each other rank and back take, in turn; nothing on other ranks.
///
/// # Panics
/// If an operation fails.
fn round_trips(transport: impl Transport) -> Vec<Span> {
    let mut handlers = Handlers::<u32>::new();
    let count = |came: &mut u32, _: Address, (): (), _: Payload<'_>| *came += 1;
    let take = handlers.one_way("take", count).expect("the name is new");
    let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("the job begins");
    let mut took = Vec::new();
    if endpoint.rank().0 == 0 {
        for to in 1..endpoint.ranks() {
            let began = endpoint.now();
            endpoint.request(Rank(to), take, ()).expect("a message is sent");
            endpoint.wait_until(|came| *came == to).expect("it comes back");
            took.push(endpoint.now().since(began));
        }
    } else {
        endpoint.wait_until(|came| *came == 1).expect("a message comes");
        endpoint.request(Rank(0), take, ()).expect("a message is sent");
    }
    endpoint.finish().expect("the job ends");
    took
}

/// What [`check_cuts_and_ways`] has the ranks of one job do.
#[derive(Clone, Copy, Debug)]
pub struct Crossing(Option<(u64, u64, bool)>);

impl Crossing {
    /// Plays this rank's part: the bytes that came over the cut, and rank 0's round trips. All ranks of a job call
    /// it.
    ///
    /// # Panics
    /// If an operation fails.
    pub fn play(self, transport: impl Transport) -> (u64, Vec<Span>) {
        match self.0 {
            Some((seed, longest, both)) => (cross_traffic(transport, seed, 12, longest, both), Vec::new()),
            None => (0, round_trips(transport)),
        }
    }
}

/// A job of eight ranks that has played a [`Crossing`].
#[derive(Clone, Debug)]
pub struct Crossed {
    /// How many cables lead over a smallest cut of the topology.
    pub cables: u64,
    /// What each carries in one direction, in 10^6 bytes a second.
    pub bandwidth_mb_s: f64,
    /// What the way over one takes at least, in nanoseconds.
    pub latency_ns: f64,
    /// How long the job took, in microseconds.
    pub microseconds: f64,
    /// What its ranks have [played](Crossing::play).
    pub ranks: Vec<(u64, Vec<Span>)>,
}

/// Has halves of eight nodes in several topologies send to each other in drawn sizes, and rank 0 and each other
/// one to and fro: no cut carries more than its links, and no message is faster than its way. Where one cable is
/// the cut, long messages fill the part `busiest` of it at least. `run` runs a job on a topology, named as in
/// machine files.
///
/// # Panics
/// If that does not hold.
pub fn check_cuts_and_ways(busiest: f64, mut run: impl FnMut(&str, Crossing) -> Crossed) {
    for topology in ["mesh:8", "ring:8", "torus:2x4", "hypercube:3"] {
        for (seed, longest, both) in [(1, 300, false), (2, 5000, true), (3, 60_000, false), (4, 60_000, true)] {
            let crossed = run(topology, Crossing(Some((seed, longest, both))));
            // The lower half of the numbers is behind a smallest cut of each.
            let bytes = crossed.ranks.iter().map(|(bytes, _)| bytes).sum::<u64>() as f64;
            let most = crossed.microseconds * crossed.bandwidth_mb_s * crossed.cables as f64;
            assert!(bytes <= most * (1.0 + 1e-6) + 1.0, "{topology}: {bytes} bytes where {most} pass");
            let least = if crossed.cables == 1 && longest == 60_000 { busiest * most } else { 0.0 };
            assert!(bytes >= least, "{topology}: {bytes} bytes, less than {least}");
        }
        let links = |to: u32| match topology {
            "mesh:8" => to,
            "ring:8" => to.min(8 - to),
            "hypercube:3" => to.count_ones(),
            // Of a torus what is certain of any order of its nodes.
            _ => 1,
        };
        let crossed = run(topology, Crossing(None));
        let took = &crossed.ranks[0].1;
        assert_eq!(took.len(), 7, "{topology}: rank 0 met each other rank");
        for (to, took) in (1..).zip(took) {
            let (least, took) = (2.0 * crossed.latency_ns * f64::from(links(to)), took.0 as f64 / 1e3);
            assert!(took >= least, "{topology}: rank {to} and back in {took} ns, over links of {least} ns");
        }
    }
}

/// What a node's interface can put out and take in, in MB/s.
#[derive(Clone, Copy, Debug)]
pub struct NodeRates {
    /// Out of the node.
    pub out: f64,
    /// Into the node.
    pub into: f64,
    /// Both together; infinite where they do not share anything.
    pub together: f64,
}

/// Checks that no node of a run has put out or taken in more than it can in the time of the run, and comes as near
/// to that as `busiest` of the rate into a node, which is a part of it. Links are given by their names `A -> B`,
/// as between nodes that are all linked to each other, with the bytes that they carried.
///
/// # Panics
/// If a node has, or none comes as near.
pub fn check_node_rates<'a>(
    links: impl IntoIterator<Item = (&'a str, u64)>,
    microseconds: f64,
    rates: NodeRates,
    busiest: f64,
) {
    let mut nodes = std::collections::BTreeMap::<&str, (f64, f64)>::new();
    for (name, bytes) in links {
        let (from, to) = name.split_once(" -> ").expect("the nodes are linked directly");
        nodes.entry(from).or_default().0 += bytes as f64;
        nodes.entry(to).or_default().1 += bytes as f64;
    }
    let most = |rate: f64| microseconds * rate * (1.0 + 1e-6) + 1.0;
    for (node, (out, into)) in &nodes {
        let NodeRates { out: out_rate, into: into_rate, together } = rates;
        assert!(*out <= most(out_rate), "node {node} puts out {out} bytes in {microseconds} us");
        assert!(*into <= most(into_rate), "node {node} takes in {into} bytes in {microseconds} us");
        let both = out + into;
        assert!(both <= most(together), "node {node} moves {both} bytes in {microseconds} us");
    }
    let found = nodes.values().map(|(_, into)| into / microseconds).fold(0.0, f64::max);
    assert!(found >= busiest * rates.into, "the busiest node takes in {found} of {} MB/s", rates.into);
}
