//! Dragonflies (Kim, Dally, Scott and Abts, 2008): groups of routers that are all linked to each other, and links
//! between every two groups.

/// A dragonfly. Vertices are the nodes and then the routers, group by group.
#[derive(Clone, Debug)]
pub(crate) struct Dragonfly {
    pub(crate) terminals: u32,
    pub(crate) routers: u32,
    pub(crate) global: u32,
    pub(crate) groups: u32,
}

impl Dragonfly {
    pub(crate) fn nodes(&self) -> u32 {
        self.groups * self.routers * self.terminals
    }

    pub(crate) fn all_routers(&self) -> u32 {
        self.groups * self.routers
    }

    fn ports(&self) -> u32 {
        self.terminals + self.routers - 1 + self.global
    }

    pub(crate) fn links(&self) -> u32 {
        self.nodes() + self.all_routers() * self.ports()
    }

    /// How many links there are between two groups.
    pub(crate) fn rounds(&self) -> u32 {
        if self.groups > 1 { self.routers * self.global / (self.groups - 1) } else { 0 }
    }

    /// The router of a vertex.
    pub(crate) fn router(&self, vertex: u32) -> u32 {
        if vertex < self.nodes() { vertex / self.terminals } else { vertex - self.nodes() }
    }

    pub(crate) fn group(&self, vertex: u32) -> u32 {
        self.router(vertex) / self.routers
    }

    fn router_link(&self, router: u32, port: u32) -> u32 {
        self.nodes() + router * self.ports() + port
    }

    fn local_port(&self, here: u32, there: u32) -> u32 {
        self.terminals + there - u32::from(there > here)
    }

    /// Which channel of a group leads to another one, in some round.
    fn channel(&self, group: u32, to: u32, round: u32) -> u32 {
        round * (self.groups - 1) + (to + self.groups - group - 1) % self.groups
    }

    /// Where a channel of a group ends: the router, none if there is no link.
    fn far_end(&self, group: u32, channel: u32) -> Option<u32> {
        let others = self.groups - 1;
        let (round, offset) = (channel.checked_div(others)?, channel.checked_rem(others)?);
        if round >= self.rounds() {
            return None;
        }
        let to = (group + offset + 1) % self.groups;
        let back = self.channel(to, group, round);
        Some(to * self.routers + back / self.global)
    }

    /// The link towards a vertex, which is a node or a router, and where it leads. With several links between two
    /// groups, `round` takes one.
    pub(crate) fn next(&self, at: u32, to: u32, round: u32) -> (u32, u32) {
        let nodes = self.nodes();
        if at < nodes {
            return (at, nodes + at / self.terminals);
        }
        let (here, there) = (at - nodes, self.router(to));
        if here == there {
            return (self.router_link(here, to % self.terminals), to);
        }
        let (group, goal) = (here / self.routers, there / self.routers);
        let local = |to: u32| {
            let port = self.local_port(here % self.routers, to % self.routers);
            (self.router_link(here, port), nodes + to)
        };
        if group == goal {
            return local(there);
        }
        // A link of this router's own comes first.
        let owner = |round: &u32| group * self.routers + self.channel(group, goal, *round) / self.global;
        let round = (0..self.rounds()).find(|round| owner(round) == here).unwrap_or(round % self.rounds());
        let channel = self.channel(group, goal, round);
        let owner = group * self.routers + channel / self.global;
        if owner != here {
            return local(owner);
        }
        let port = self.terminals + self.routers - 1 + channel % self.global;
        let end = self.far_end(group, channel).expect("every two groups are linked");
        (self.router_link(here, port), nodes + end)
    }

    pub(crate) fn head(&self, link: u32) -> Option<u32> {
        let nodes = self.nodes();
        if link < nodes {
            return Some(nodes + link / self.terminals);
        }
        let (router, port) = ((link - nodes) / self.ports(), (link - nodes) % self.ports());
        let (group, index) = (router / self.routers, router % self.routers);
        if port < self.terminals {
            return Some(router * self.terminals + port);
        }
        let port = port - self.terminals;
        if port < self.routers - 1 {
            return Some(nodes + group * self.routers + port + u32::from(port >= index));
        }
        let channel = index * self.global + port - (self.routers - 1);
        self.far_end(group, channel).map(|end| nodes + end)
    }

    pub(crate) fn ports_of(&self, vertex: u32) -> std::ops::Range<u32> {
        if vertex < self.nodes() {
            return vertex..vertex + 1;
        }
        let first = self.router_link(vertex - self.nodes(), 0);
        first..first + self.ports()
    }

    /// 0 for links of nodes, 1 within a group, 2 between groups.
    pub(crate) fn class(&self, link: u32) -> usize {
        let Some(link) = link.checked_sub(self.nodes()) else { return 0 };
        let port = link % self.ports();
        if port < self.terminals { 0 } else { 1 + usize::from(port >= self.terminals + self.routers - 1) }
    }

    pub(crate) fn hops(&self, from: u32, to: u32, round: u32) -> u32 {
        let (mut at, mut hops) = (from, 0);
        while at != to {
            (at, hops) = (self.next(at, to, round).1, hops + 1);
        }
        hops
    }

    pub(crate) fn name(&self, link: u32) -> String {
        let name = |vertex: u32| match vertex.checked_sub(self.nodes()) {
            None => vertex.to_string(),
            Some(router) => format!("g{}.{}", router / self.routers, router % self.routers),
        };
        let tail = link.checked_sub(self.nodes()).map_or(link, |link| self.nodes() + link / self.ports());
        format!("{} -> {}", name(tail), self.head(link).map_or_else(|| "nowhere".into(), name))
    }
}
