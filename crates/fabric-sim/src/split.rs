//! A machine as two halves: the nodes of lower and of higher number, each with the switches nearest to it.

use crate::network::{Network, Shape};
use crate::path::Link;

/// Which half a node or switch belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    nodes: u32,
    /// Per switch, where they belong to a half; the ports of a crossbar belong to their nodes.
    switches: Option<Vec<u8>>,
}

impl Split {
    pub(crate) fn new(network: &Network) -> Self {
        let switches = (!matches!(network.shape, Shape::Crossbar)).then(|| switches(network));
        Self { nodes: network.nodes, switches }
    }

    /// The half of a node, or of the switch at which a packet for a node is.
    #[inline]
    pub(crate) fn half(&self, at: u32, goal: u32) -> usize {
        let vertex = if at < self.nodes { at } else { goal };
        match &self.switches {
            Some(switches) if at >= self.nodes => switches[(at - self.nodes) as usize].into(),
            _ => usize::from(u64::from(vertex) * 2 >= u64::from(self.nodes)),
        }
    }

    /// The links that lead from one half to the other.
    pub(crate) fn between<'a>(&'a self, network: &'a Network) -> impl Iterator<Item = u32> + 'a {
        let links =
            move |from| network.ports(from).filter_map(move |link| Some((from, link, network.head(link)?)));
        (0..network.vertices()).flat_map(links).filter_map(|(from, link, to)| {
            // Packets for either half pass the link to a crossbar.
            let crosses = match self.switches {
                Some(_) => self.half(from, from) != self.half(to, to),
                None => from < self.nodes,
            };
            crosses.then_some(link)
        })
    }

    /// What happens in one half reaches the other one not before this time has passed: the least latency of a link
    /// between them.
    pub(crate) fn lookahead(&self, network: &Network, links: &[Link]) -> u64 {
        self.between(network).map(|link| links[link as usize].latency()).min().unwrap_or(u64::MAX)
    }
}

/// The half of each switch: that of the nodes nearest to it, and for those in the middle one and the other in
/// turn.
fn switches(network: &Network) -> Vec<u8> {
    let (nodes, vertices) = (network.nodes as usize, network.vertices() as usize);
    let mut reached: Vec<u8> =
        (0..vertices).map(|at| if at >= nodes { 0 } else { 1 + u8::from(at * 2 >= nodes) }).collect();
    loop {
        let mut next = reached.clone();
        for from in (0..vertices).filter(|from| reached[*from] != 0) {
            for to in network.ports(from as u32).filter_map(|link| network.head(link)) {
                if reached[to as usize] == 0 {
                    next[to as usize] |= reached[from];
                }
            }
        }
        if next == reached {
            break;
        }
        reached = next;
    }
    let half = |(number, reached): (usize, &u8)| match reached {
        1 => 0,
        2 => 1,
        _ => (number % 2) as u8,
    };
    reached[nodes..].iter().enumerate().map(half).collect()
}
