//! Fat trees: k-ary n-trees (Petrini and Vanneschi, 1997), with fewer links than nodes above the lowest switches
//! where they are oversubscribed.

/// A k-ary n-tree. Level 0 are the nodes; a switch of level `l` stands above `arity^l` nodes, and
/// there are as many of these sets as there are switches of one position.
#[derive(Clone, Debug)]
pub(crate) struct FatTree {
    pub(crate) levels: u32,
    pub(crate) arity: u32,
    /// Links that lead up from a vertex of each level.
    ups: Vec<u32>,
    /// Nodes under a vertex of each level, and vertices of that level above the same nodes.
    under: Vec<u32>,
    copies: Vec<u32>,
    /// First vertex and first link of each level, and those behind the last.
    vertices: Vec<u32>,
    links: Vec<u32>,
}

impl FatTree {
    /// The oversubscription divides the arity, and the number of nodes has been checked.
    pub(crate) fn new(arity: u32, levels: u32, oversubscription: u32) -> Self {
        let up = |level| match level {
            0 => 1,
            level if level == levels => 0,
            1 => arity / oversubscription,
            _ => arity,
        };
        let (mut ups, mut under, mut copies) = (Vec::new(), vec![1u32], vec![1u32]);
        let (mut vertices, mut links) = (vec![0u32], vec![0u32]);
        let nodes = arity.pow(levels);
        for level in 0..=levels {
            let at = level as usize;
            ups.push(up(level));
            let count = nodes / under[at] * copies[at];
            let down = if level == 0 { 0 } else { arity };
            vertices.push(vertices[at] + count);
            links.push(links[at] + count * (ups[at] + down));
            under.push(under[at].saturating_mul(arity));
            copies.push(copies[at] * ups[at]);
        }
        Self { levels, arity, ups, under, copies, vertices, links }
    }

    pub(crate) fn nodes(&self) -> u32 {
        self.vertices[1]
    }

    pub(crate) fn vertices(&self) -> u32 {
        self.vertices[self.levels as usize + 1]
    }

    pub(crate) fn links(&self) -> u32 {
        self.links[self.levels as usize + 1]
    }

    /// The level of a vertex, which of its positions' copies it is, and its position.
    fn place(&self, vertex: u32) -> (usize, u32, u32) {
        let level = self.vertices.partition_point(|first| *first <= vertex) - 1;
        let index = vertex - self.vertices[level];
        (level, index % self.copies[level], index / self.copies[level])
    }

    fn vertex(&self, level: usize, copy: u32, position: u32) -> u32 {
        self.vertices[level] + position * self.copies[level] + copy
    }

    fn ports(&self, level: usize) -> u32 {
        self.ups[level] + if level == 0 { 0 } else { self.arity }
    }

    fn first_link(&self, vertex: u32, level: usize) -> u32 {
        self.links[level] + (vertex - self.vertices[level]) * self.ports(level)
    }

    /// Where a port of a vertex leads: first those up, then those down.
    fn end(&self, (level, copy, position): (usize, u32, u32), port: u32) -> u32 {
        if port < self.ups[level] {
            self.vertex(level + 1, copy + self.copies[level] * port, position / self.arity)
        } else {
            let child = port - self.ups[level];
            self.vertex(level - 1, copy % self.copies[level - 1], position * self.arity + child)
        }
    }

    /// The link towards a node, and where it leads. Of the ways up, `choice` takes one; without it the destination
    /// does, so that the packets for a node meet on the way up.
    pub(crate) fn next(&self, at: u32, to: u32, choice: Option<u32>) -> (u32, u32) {
        let place @ (level, _, position) = self.place(at);
        let digit = |level: usize| to / self.under[level.saturating_sub(1)] % self.arity;
        let port = if level > 0 && to / self.under[level] == position {
            self.ups[level] + digit(level)
        } else {
            choice.unwrap_or_else(|| digit(level)) % self.ups[level]
        };
        (self.first_link(at, level) + port, self.end(place, port))
    }

    /// The links up, if the way to a node leads up and there is a choice: the first, and how many.
    pub(crate) fn choices(&self, at: u32, to: u32) -> Option<(u32, u32)> {
        let (level, _, position) = self.place(at);
        let up = level == 0 || to / self.under[level] != position;
        (up && self.ups[level] > 1).then(|| (self.first_link(at, level), self.ups[level]))
    }

    pub(crate) fn head(&self, link: u32) -> u32 {
        let (vertex, level) = self.tail(link);
        self.end(self.place(vertex), link - self.first_link(vertex, level))
    }

    /// The vertex that a link leaves, and its level.
    fn tail(&self, link: u32) -> (u32, usize) {
        let level = self.links.partition_point(|first| *first <= link) - 1;
        (self.vertices[level] + (link - self.links[level]) / self.ports(level), level)
    }

    pub(crate) fn ports_of(&self, vertex: u32) -> std::ops::Range<u32> {
        let (level, ..) = self.place(vertex);
        let first = self.first_link(vertex, level);
        first..first + self.ports(level)
    }

    /// The level of the lower end of a link.
    pub(crate) fn class(&self, link: u32) -> usize {
        let (vertex, level) = self.tail(link);
        if link - self.first_link(vertex, level) < self.ups[level] { level } else { level - 1 }
    }

    pub(crate) fn hops(&self, from: u32, to: u32) -> u32 {
        let levels = 0..=self.levels;
        2 * levels
            .into_iter()
            .find(|level| from / self.under[*level as usize] == to / self.under[*level as usize])
            .expect("the top is above all nodes")
    }

    pub(crate) fn name(&self, link: u32) -> String {
        let name = |vertex| match self.place(vertex) {
            (0, _, node) => node.to_string(),
            (level, ..) => format!("s{level}.{}", vertex - self.vertices[level]),
        };
        format!("{} -> {}", name(self.tail(link).0), name(self.head(link)))
    }
}
