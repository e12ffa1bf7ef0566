//! Traffic of all ranks in drawn sizes, and the bounds that a machine of nodes and links sets it.

use crate::random::Random;
use am_core::{Address, Category, Endpoint, Handlers, Lane, Payload, Rank, Transport};

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
