//! Arbitrary graphs from a file.
//!
//! One link (a cable, for both directions) a line: two ends, and the name of its class if it has one. A number is
//! a node, any other word a switch; `#` begins a comment.
//!
//! ```text
//! 0 left
//! 1 left
//! 2 right
//! left right trunk
//! ```

use crate::error::ConfigError;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// Vertices through which packets may pass, at most.
pub(super) const MAX_ROUTERS: usize = 4096;
/// Vertices at all, at most.
const MAX_VERTICES: usize = 1 << 17;
const MAX_LINKS: usize = 1 << 20;
const FAR: u16 = u16::MAX;

/// How packets find their way through a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ways {
    /// A shortest one.
    Shortest,
    /// Up the levels of a spanning tree, then down (Autonet, Schroeder et al., 1991).
    UpDown,
}

#[derive(Clone, Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: u32,
    names: Vec<String>,
    /// Links by the vertex that they leave.
    first: Vec<u32>,
    ends: Vec<u32>,
    starts: Vec<u32>,
    class: Vec<u8>,
    pub(crate) classes: Vec<String>,
    /// Which of the vertices that packets may pass through a vertex is, or is linked to.
    router: Vec<u32>,
    routers: u32,
    passable: Vec<u32>,
    pub(crate) ways: Ways,
    /// Per router that packets go to and router that they are at: the links that are left on the way.
    distance: Vec<u16>,
    /// With [`Ways::UpDown`]: the same for ways that only lead down.
    down: Vec<u16>,
    /// A vertex's place in the order of the spanning tree.
    order: Vec<u32>,
}

impl Graph {
    pub(crate) fn read(path: &Path, ways: Ways) -> Result<Self, ConfigError> {
        let wrong = |line: usize, problem: String| {
            let place = if line == 0 { String::new() } else { format!(", line {line}") };
            let problem = format!("{}{place}: {problem}", path.display());
            ConfigError::OtherFile { field: "topology.file".into(), problem }
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(0, error.to_string()))?;
        Self::parse(&text, ways).map_err(|(line, problem)| wrong(line, problem))
    }

    /// The graph that a text describes; else the line that is wrong, 0 for the whole, and why.
    pub(crate) fn parse(text: &str, ways: Ways) -> Result<Self, (usize, String)> {
        let (mut cables, mut switches) = (Vec::new(), BTreeMap::new());
        let (mut names, mut classes) = (Vec::new(), vec!["link".to_owned()]);
        let mut highest = 0;
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let wrong = |problem: String| (index + 1, problem);
            let (one, other, class) = match words[..] {
                [] => continue,
                [one, other] => (one, other, None),
                [one, other, class] => (one, other, Some(class)),
                _ => {
                    return Err(wrong(format!(
                        "{} words, but must be two ends and at most one class",
                        words.len()
                    )));
                }
            };
            let mut vertex = |word: &str| {
                if word.starts_with(|first: char| first.is_ascii_digit()) {
                    let node: u32 = word.parse().map_err(|_| wrong(format!("'{word}' is no node's number")))?;
                    if node as usize >= MAX_VERTICES / 2 {
                        return Err(wrong(format!("node {node}, but must be below {}", MAX_VERTICES / 2)));
                    }
                    highest = highest.max(node + 1);
                    return Ok((false, node));
                }
                let new = switches.len() as u32;
                let number = *switches.entry(word.to_owned()).or_insert_with(|| {
                    names.push(word.to_owned());
                    new
                });
                Ok((true, number))
            };
            let ends = (vertex(one)?, vertex(other)?);
            if ends.0 == ends.1 {
                return Err(wrong(format!("'{one}' is linked to itself")));
            }
            let class = match class {
                None => 0,
                Some(class) => classes.iter().position(|known| known == class).unwrap_or_else(|| {
                    classes.push(class.to_owned());
                    classes.len() - 1
                }),
            };
            if class > usize::from(u8::MAX) {
                return Err(wrong("more than 255 classes of links".into()));
            }
            cables.push((ends, class as u8));
            if 2 * cables.len() > MAX_LINKS {
                return Err(wrong(format!("more than {} links", MAX_LINKS / 2)));
            }
        }
        let vertices = highest as usize + names.len();
        if vertices > MAX_VERTICES {
            return Err((0, format!("{vertices} nodes and switches, but must be at most {MAX_VERTICES}")));
        }
        let number = |(switch, number): (bool, u32)| if switch { highest + number } else { number };
        let mut links: Vec<(u32, u32, u8)> = Vec::with_capacity(2 * cables.len());
        for ((one, other), class) in cables {
            let (one, other) = (number(one), number(other));
            links.extend([(one, other, class), (other, one, class)]);
        }
        links.sort_by_key(|link| link.0);
        let mut first = vec![0; vertices + 1];
        links.iter().for_each(|link| first[link.0 as usize + 1] += 1);
        (0..vertices).for_each(|vertex| first[vertex + 1] += first[vertex]);
        let mut graph = Self {
            nodes: highest,
            names,
            starts: links.iter().map(|link| link.0).collect(),
            ends: links.iter().map(|link| link.1).collect(),
            class: links.iter().map(|link| link.2).collect(),
            first,
            classes,
            router: Vec::new(),
            routers: 0,
            passable: Vec::new(),
            ways,
            distance: Vec::new(),
            down: Vec::new(),
            order: Vec::new(),
        };
        graph.find_ways().map_err(|problem| (0, problem))?;
        Ok(graph)
    }

    fn find_ways(&mut self) -> Result<(), String> {
        if self.nodes == 0 {
            return Err("there is no node".into());
        }
        let vertices = self.vertices() as usize;
        let degree = |vertex: u32| self.ports_of(vertex).len();
        if let Some(alone) = (0..self.nodes).find(|node| degree(*node) == 0) {
            return if self.nodes == 1 && vertices == 1 {
                Ok(())
            } else {
                Err(format!("node {alone} has no link, although there are nodes up to {}", self.nodes - 1))
            };
        }
        // A node with one link is no way to anywhere else, unless all there is is a cable.
        let leaf = |vertex: u32| vertex < self.nodes && degree(vertex) == 1 && vertices > 2;
        let mut router = vec![u32::MAX; vertices];
        let mut routers = Vec::new();
        for vertex in (0..vertices as u32).filter(|vertex| !leaf(*vertex)) {
            router[vertex as usize] = routers.len() as u32;
            routers.push(vertex);
        }
        if routers.len() > MAX_ROUTERS {
            let found = routers.len();
            return Err(format!(
                "{found} switches and nodes with several links, but must be at most {MAX_ROUTERS}"
            ));
        }
        for vertex in (0..vertices as u32).filter(|vertex| leaf(*vertex)) {
            let end = self.ends[self.first[vertex as usize] as usize];
            router[vertex as usize] = router[end as usize];
            if leaf(end) {
                return Err(format!("nodes {vertex} and {end} are linked to nothing else"));
            }
        }
        // The spanning tree begins at the vertex with the most links.
        let root =
            routers.iter().copied().max_by_key(|vertex| (degree(*vertex), u32::MAX - vertex)).unwrap_or_default();
        let mut order = vec![u32::MAX; vertices];
        let (mut reached, mut queue) = (0, VecDeque::from([root]));
        order[root as usize] = 0;
        while let Some(at) = queue.pop_front() {
            for link in self.ports_of(at) {
                let end = self.ends[link as usize];
                if order[end as usize] == u32::MAX && !leaf(end) {
                    reached += 1;
                    order[end as usize] = reached;
                    queue.push_back(end);
                }
            }
        }
        if let Some(lost) = routers.iter().find(|vertex| order[**vertex as usize] == u32::MAX) {
            return Err(format!("there is no way from {} to {}", self.vertex_name(root), self.vertex_name(*lost)));
        }
        let count = routers.len();
        let (mut distance, mut down) = (vec![FAR; count * count], Vec::new());
        let inside = |vertex: u32| !leaf(vertex);
        for (goal, vertex) in routers.iter().enumerate() {
            let row = &mut distance[goal * count..(goal + 1) * count];
            row[goal] = 0;
            match self.ways {
                Ways::Shortest => {
                    let mut queue = VecDeque::from([*vertex]);
                    while let Some(at) = queue.pop_front() {
                        let next = row[router[at as usize] as usize] + 1;
                        for link in self.ports_of(at) {
                            let end = self.ends[link as usize];
                            if inside(end) && row[router[end as usize] as usize] == FAR {
                                row[router[end as usize] as usize] = next;
                                queue.push_back(end);
                            }
                        }
                    }
                }
                Ways::UpDown => {
                    // Against the direction of travel: those from where it is down all the way.
                    let mut queue = VecDeque::from([*vertex]);
                    while let Some(at) = queue.pop_front() {
                        let next = row[router[at as usize] as usize] + 1;
                        for link in self.ports_of(at) {
                            let end = self.ends[link as usize];
                            let above = inside(end) && order[end as usize] < order[at as usize];
                            if above && row[router[end as usize] as usize] == FAR {
                                row[router[end as usize] as usize] = next;
                                queue.push_back(end);
                            }
                        }
                    }
                    down.extend_from_slice(row);
                    // The others first go up, to somebody who is earlier in the order.
                    let mut by_order = routers.clone();
                    by_order.sort_by_key(|vertex| order[*vertex as usize]);
                    for at in by_order {
                        let index = router[at as usize] as usize;
                        if row[index] == FAR {
                            let ends = self.ports_of(at).map(|link| self.ends[link as usize]);
                            let above =
                                ends.filter(|end| inside(*end) && order[*end as usize] < order[at as usize]);
                            row[index] =
                                above.map(|end| row[router[end as usize] as usize] + 1).min().unwrap_or(FAR);
                        }
                    }
                }
            }
        }
        (self.router, self.routers, self.passable) = (router, count as u32, routers);
        (self.distance, self.down, self.order) = (distance, down, order);
        Ok(())
    }

    pub(crate) fn vertices(&self) -> u32 {
        self.nodes + self.names.len() as u32
    }

    pub(crate) fn links(&self) -> u32 {
        self.ends.len() as u32
    }

    pub(crate) fn ports_of(&self, vertex: u32) -> std::ops::Range<u32> {
        self.first[vertex as usize]..self.first[vertex as usize + 1]
    }

    pub(crate) fn head(&self, link: u32) -> u32 {
        self.ends[link as usize]
    }

    pub(crate) fn class(&self, link: u32) -> usize {
        self.class[link as usize].into()
    }

    /// Whether packets may pass through a vertex.
    pub(crate) fn is_router(&self, vertex: u32) -> bool {
        self.order.get(vertex as usize).is_some_and(|order| *order != u32::MAX)
    }

    fn left(&self, table: &[u16], at: u32, to: u32) -> u32 {
        let left =
            table[self.router[to as usize] as usize * self.routers as usize + self.router[at as usize] as usize];
        left.into()
    }

    /// Whether a link is one of those that may be next towards a vertex.
    fn leads(&self, link: u32, at: u32, to: u32) -> bool {
        let end = self.ends[link as usize];
        if end == to {
            // A node's only link may lead to it from its switch alone.
            return self.router[at as usize] == self.router[to as usize]
                || self.is_router(to) && self.leads_on(end, at, to);
        }
        self.is_router(end) && self.leads_on(end, at, to)
    }

    fn leads_on(&self, end: u32, at: u32, to: u32) -> bool {
        match self.ways {
            Ways::Shortest => self.left(&self.distance, end, to) + 1 == self.left(&self.distance, at, to),
            Ways::UpDown => {
                let down = self.left(&self.down, at, to);
                let below = self.order[end as usize] > self.order[at as usize];
                if down != u32::from(FAR) {
                    below && self.left(&self.down, end, to) + 1 == down
                } else {
                    !below && self.left(&self.distance, end, to) + 1 == self.left(&self.distance, at, to)
                }
            }
        }
    }

    /// The links that may be next towards a vertex.
    pub(crate) fn choices(&self, at: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        let only = !self.is_router(at);
        self.ports_of(at).filter(move |link| only || self.leads(*link, at, to))
    }

    /// The link towards a vertex, and where it leads; of several the one that `choice` takes.
    pub(crate) fn next(&self, at: u32, to: u32, choice: u32) -> (u32, u32) {
        let count = self.choices(at, to).count().max(1);
        let link =
            self.choices(at, to).nth(choice as usize % count).expect("all vertices of a graph are connected");
        (link, self.ends[link as usize])
    }

    pub(crate) fn hops(&self, from: u32, to: u32) -> u32 {
        let ends = u32::from(!self.is_router(from)) + u32::from(!self.is_router(to));
        if from == to { 0 } else { ends + self.left(&self.distance, from, to) }
    }

    pub(crate) fn diameter(&self) -> u32 {
        let mut hosted: BTreeMap<u32, u32> = BTreeMap::new();
        for node in 0..self.nodes {
            let end = u32::from(!self.is_router(node));
            let most = hosted.entry(self.router.get(node as usize).copied().unwrap_or_default()).or_default();
            *most = end.max(*most);
        }
        let pairs = hosted.iter().flat_map(|one| hosted.iter().map(move |other| (one, other)));
        pairs
            .map(|((one, ends), (other, more))| {
                let index = (other * self.routers + one) as usize;
                ends + more + u32::from(self.distance.get(index).copied().unwrap_or_default())
            })
            .max()
            .unwrap_or_default()
    }

    /// Longest way between vertices that packets may pass through.
    pub(crate) fn longest(&self) -> u32 {
        self.distance.iter().copied().max().unwrap_or_default().into()
    }

    /// Number of vertices that packets may pass through.
    pub(crate) fn router_count(&self) -> u32 {
        self.passable.len() as u32
    }

    /// One of them.
    pub(crate) fn router_vertex(&self, index: u32) -> u32 {
        self.passable[index as usize]
    }

    fn vertex_name(&self, vertex: u32) -> String {
        vertex
            .checked_sub(self.nodes)
            .map_or_else(|| vertex.to_string(), |switch| self.names[switch as usize].clone())
    }

    pub(crate) fn name(&self, link: u32) -> String {
        let [from, to] =
            [self.starts[link as usize], self.ends[link as usize]].map(|vertex| self.vertex_name(vertex));
        format!("{from} -> {to}")
    }
}
