//! Breadth-first search in a Kronecker graph (Graph500): generator, search level by level, validation, traversed
//! edges per second.
//!
//! `cargo run --release --example bfs -- --ranks 4 --scale 18`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::Team;
use active_messages::pgas::collectives::Sum;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;

struct Bfs {
    scale: u32,
    edge_factor: u64,
    roots: u64,
    json: bool,
}

const NONE: u32 = u32::MAX;

struct State {
    pgas: Pgas,
    /// Neighbours of this rank's vertices: vertex `v` is vertex `v / ranks` of rank `v % ranks`.
    adjacent: Vec<Vec<u32>>,
    parent: Vec<u32>,
    level: Vec<u32>,
    /// The level being searched, and the vertices that have been found for the next.
    depth: u32,
    found: Vec<u32>,
    errors: u64,
}
pgas_state!(State, pgas);

fn scramble(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Bfs {
    /// An edge of the generator with A = 0.57, B = C = 0.19, vertices relabelled by a bijection.
    fn edge(&self, number: u64) -> [u32; 2] {
        let mut edge = [0u64; 2];
        for bit in 0..self.scale {
            let random = scramble(number * 64 + u64::from(bit)) >> 11;
            let [u, v] = match (random * 100) >> 53 {
                0..57 => [0, 0],
                57..76 => [0, 1],
                76..95 => [1, 0],
                _ => [1, 1],
            };
            edge = [edge[0] << 1 | u, edge[1] << 1 | v];
        }
        let mask = (1 << self.scale) - 1;
        edge.map(|vertex| ((vertex * 0x9e37_79b1 + 12345) & mask) as u32)
    }
}

impl Program for Bfs {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let (me, ranks) = (rank.address().rank.0, rank.shape().ranks);
        let (owner, local) =
            (move |vertex: u32| Rank(vertex % ranks), move |vertex: u32| (vertex / ranks) as usize);
        let config = AggregatorConfig::new();
        let connect = move |state: &mut State, edges: &[[u32; 2]]| {
            edges.iter().for_each(|[from, to]| state.adjacent[local(*from)].push(*to));
        };
        let connect = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "connect", config, connect)?;
        let visit = move |state: &mut State, visits: &[[u32; 2]]| {
            for [vertex, parent] in visits {
                if state.parent[local(*vertex)] == NONE {
                    (state.parent[local(*vertex)], state.level[local(*vertex)]) = (*parent, state.depth + 1);
                    state.found.push(*vertex);
                }
            }
        };
        let visit = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "visit", config, visit)?;
        // What Graph500 demands of an edge: both ends or none are reached, a level apart at most, and exactly one
        // if it is of the tree.
        let check = move |state: &mut State, edges: &[[u32; 3]]| {
            for [vertex, other, level] in edges {
                let (mine, parent) = (state.level[local(*vertex)], state.parent[local(*vertex)]);
                let apart = mine == *level || mine != NONE && *level != NONE && mine.abs_diff(*level) == 1;
                let child = parent == *other && mine != 0;
                state.errors += u64::from(!apart || child && mine != level.wrapping_add(1));
            }
        };
        let check = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "check", config, check)?;

        let vertices = 1u32 << self.scale;
        let own = (vertices - me).div_ceil(ranks) as usize;
        let (adjacent, none) = (vec![Vec::new(); own], vec![NONE; own]);
        let state =
            State { pgas, adjacent, parent: none.clone(), level: none, depth: 0, found: Vec::new(), errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let world = Team::world(&mut endpoint)?;
        let edges = self.edge_factor << self.scale;
        let mine = (0..edges).filter(|edge| edge % u64::from(ranks) == u64::from(me)).map(|edge| self.edge(edge));
        let both = mine.filter(|[u, v]| u != v).flat_map(|[u, v]| [[u, v], [v, u]]);
        endpoint.push_all(connect, both.map(|edge| (owner(edge[0]), edge)))?;
        endpoint.done(connect)?;

        let (mut time, mut traversed, mut candidate) = (Span::ZERO, 0, 0);
        for _ in 0..self.roots {
            let root = loop {
                let root = scramble(candidate) as u32 % vertices;
                candidate += 1;
                let degree =
                    if owner(root) == Rank(me) { endpoint.state().adjacent[local(root)].len() } else { 0 };
                if world.allreduce_one(&mut endpoint, degree as u64, Sum)? > 0 {
                    break root;
                }
            };
            let state = endpoint.state_mut();
            (state.depth, state.errors) = (0, state.errors);
            state.parent.fill(NONE);
            state.level.fill(NONE);
            let mut frontier = Vec::new();
            if owner(root) == Rank(me) {
                (state.parent[local(root)], state.level[local(root)]) = (root, 0);
                frontier.push(root);
            }
            endpoint.barrier()?;
            let start = endpoint.now();
            while world.allreduce_one(&mut endpoint, frontier.len() as u64, Sum)? > 0 {
                for vertex in frontier.drain(..) {
                    // A vertex's neighbours are taken out while they are pushed, since handlers run meanwhile.
                    let adjacent = std::mem::take(&mut endpoint.state_mut().adjacent[local(vertex)]);
                    endpoint.push_all(visit, adjacent.iter().map(|to| (owner(*to), [*to, vertex])))?;
                    endpoint.state_mut().adjacent[local(vertex)] = adjacent;
                }
                endpoint.done(visit)?;
                let state = endpoint.state_mut();
                state.depth += 1;
                frontier.append(&mut state.found);
            }
            time.0 += (endpoint.now() - start).picos();
            let mut reached = 0;
            for index in 0..own {
                let (vertex, adjacent) =
                    (index as u32 * ranks + me, std::mem::take(&mut endpoint.state_mut().adjacent[index]));
                let (level, parent) = (endpoint.state().level[index], endpoint.state().parent[index]);
                reached += if level == NONE { 0 } else { adjacent.len() as u64 };
                let real = level == NONE && parent == NONE || vertex == root || adjacent.contains(&parent);
                endpoint.state_mut().errors += u64::from(!real);
                endpoint.push_all(check, adjacent.iter().map(|to| (owner(*to), [*to, vertex, level])))?;
                endpoint.state_mut().adjacent[index] = adjacent;
            }
            endpoint.done(check)?;
            traversed += world.allreduce_one(&mut endpoint, reached, Sum)? / 2;
        }
        let mine = endpoint.state().errors;
        let errors = world.allreduce_one(&mut endpoint, mine, Sum)?;
        endpoint.finish()?;
        if me != 0 {
            return Ok(());
        }
        let report = Report::new("bfs", ranks, time).work(traversed as f64, "TEPS").errors(errors);
        report
            .with("scale", self.scale)
            .with("edge_factor", self.edge_factor as f64)
            .with("roots", self.roots as f64)
            .print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Breadth-first searches in a Kronecker graph, as Graph500 does.", Options::new());
    let scale = flags.value("--scale", "N", 16, "binary logarithm of the number of vertices");
    let edge_factor = flags.value("--edge-factor", "N", 16, "edges for each vertex");
    let roots = flags.value("--roots", "N", 4, "searches");
    flags.require(
        (1..32).contains(&scale) && flags.ranks() <= 1 << scale.min(31),
        "--scale is from 1 to 31, with a vertex for each rank",
    );
    let json = flags.json();
    flags.run(Bfs { scale, edge_factor, roots, json })
}
