//! Breadth-first search in a Kronecker graph (Graph500): search level by level, validation, traversed edges per
//! second.
//!
//! `cargo run --release --example bfs -- --ranks 2 --scale 20 --beside`; `--help` lists the flags. `--beside` runs
//! the sequential search of the same graph afterwards and prints both rates.
//! A copy takes along `kronecker.rs` of `crates/lab/src/workload`, and `scramble` of the `mod.rs` there.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::Team;
use active_messages::pgas::collectives::Sum;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::{Adjacency, Kronecker, NONE, Reached, Seen};

struct Bfs {
    graph: Kronecker,
    roots: u64,
    /// Whether one rank then searches alone, without messages.
    beside: bool,
    json: bool,
}

struct State {
    pgas: Pgas,
    /// Edges of this rank's vertices: vertex `v` is vertex `v / ranks` of rank `v % ranks`.
    edges: Vec<[u32; 2]>,
    reached: Vec<Reached>,
    /// The level being searched, and the vertices that have been found for the next.
    depth: u32,
    found: Vec<u32>,
    errors: u64,
}
pgas_state!(State, pgas);

impl Program for Bfs {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let (me, ranks) = (rank.address().rank.0, rank.shape().ranks);
        let (owner, local) =
            (move |vertex: u32| Rank(vertex % ranks), move |vertex: u32| (vertex / ranks) as usize);
        let config = AggregatorConfig::new();
        let connect = move |state: &mut State, edges: &[[u32; 2]]| {
            state.edges.extend(edges.iter().map(|[from, to]| [local(*from) as u32, *to]));
        };
        let connect = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "connect", config, connect)?;
        let visit = move |state: &mut State, visits: &[[u32; 2]]| {
            for [vertex, parent] in visits {
                let reached = &mut state.reached[local(*vertex)];
                if reached.level == NONE {
                    *reached = Reached { level: state.depth + 1, parent: *parent };
                    state.found.push(*vertex);
                }
            }
        };
        let visit = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "visit", config, visit)?;
        let check = move |state: &mut State, edges: &[[u32; 3]]| {
            let wrong = |[vertex, other, level]: &&[u32; 3]| !state.reached[local(*vertex)].allows(*other, *level);
            state.errors += edges.iter().filter(wrong).count() as u64;
        };
        let check = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "check", config, check)?;

        let own = (self.graph.vertices() - me).div_ceil(ranks) as usize;
        let reached = vec![Reached::NOT; own];
        let state = State { pgas, edges: Vec::new(), reached, depth: 0, found: Vec::new(), errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let world = Team::world(&mut endpoint)?;
        endpoint.push_all(connect, self.graph.edges(me, ranks).map(|edge| (owner(edge[0]), edge)))?;
        endpoint.done(connect)?;
        let edges = std::mem::take(&mut endpoint.state_mut().edges);
        let adjacent = Adjacency::new(own, edges.into_iter());

        let (mut time, mut traversed, mut candidates) = (Span::ZERO, 0, self.graph.candidates());
        for _ in 0..self.roots {
            let (mut root, mut degree) = (0, 0);
            while degree == 0 {
                root = candidates.next().expect("there is no end of candidates");
                let mine = if owner(root) == Rank(me) { adjacent.of(local(root)).len() } else { 0 };
                degree = world.allreduce_one(&mut endpoint, mine as u64, Sum)?;
            }
            let (state, mut frontier, mut seen) =
                (endpoint.state_mut(), Vec::new(), Seen::none(self.graph.vertices()));
            state.depth = 0;
            state.reached.fill(Reached::NOT);
            if owner(root) == Rank(me) {
                state.reached[local(root)] = Reached { level: 0, parent: root };
                frontier.push(root);
            }
            endpoint.barrier()?;
            let start = endpoint.now();
            while world.allreduce_one(&mut endpoint, frontier.len() as u64, Sum)? > 0 {
                // A vertex that this rank has seen before was visited then.
                let visits = frontier.drain(..).flat_map(|vertex| {
                    adjacent.of(local(vertex)).iter().map(move |to| (owner(*to), [*to, vertex]))
                });
                endpoint.push_all(visit, visits.filter(|(_, [to, _])| seen.insert(*to)))?;
                endpoint.done(visit)?;
                let state = endpoint.state_mut();
                state.depth += 1;
                frontier.append(&mut state.found);
            }
            time.0 += (endpoint.now() - start).picos();
            for index in 0..own {
                let (vertex, edges) = (index as u32 * ranks + me, adjacent.of(index));
                let found = endpoint.state().reached[index];
                traversed += if found.level == NONE { 0 } else { edges.len() as u64 };
                endpoint.state_mut().errors += u64::from(!found.is_real(edges));
                endpoint.push_all(check, edges.iter().map(|to| (owner(*to), [*to, vertex, found.level])))?;
            }
            endpoint.done(check)?;
        }
        let mut sums = [traversed, endpoint.state().errors];
        world.allreduce(&mut endpoint, &mut sums, Sum)?;
        endpoint.finish()?;
        if me != 0 {
            return Ok(());
        }
        let report = self.report("bfs", ranks, time, sums[0] / 2, sums[1]);
        if !self.beside {
            return report.print(self.json);
        }
        let plain = self.graph.search_plainly(self.roots);
        let rate = |edges: u64, time: Span| edges as f64 / (time.picos() as f64 * 1e-12);
        let plain = rate(plain.traversed, plain.time.into());
        report.with("plain", plain).with("ratio", rate(sums[0] / 2, time) / plain).print(self.json)
    }
}

impl Bfs {
    fn report(&self, name: &str, ranks: u32, time: Span, traversed: u64, errors: u64) -> Report {
        let report = Report::new(name, ranks, time).work(traversed as f64, "TEPS").errors(errors);
        let report = report.with("scale", self.graph.scale).with("edge_factor", self.graph.edge_factor as f64);
        report.with("roots", self.roots as f64)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Breadth-first searches in a Kronecker graph, as Graph500 does.", Options::new());
    let scale = flags.value("--scale", "N", 16, "binary logarithm of the number of vertices");
    let edge_factor = flags.value("--edge-factor", "N", 16, "edges for each vertex");
    let roots = flags.value("--roots", "N", 4, "searches");
    let fits = (1..32).contains(&scale) && flags.ranks() <= 1 << scale.min(31);
    flags.require(fits, "--scale is from 1 to 31, with a vertex for each rank");
    flags.require(edge_factor > 0 && roots > 0, "--edge-factor and --roots are at least 1");
    let beside = flags
        .switch("--beside", "search sequentially, too, on one rank and without messages, and print the ratio");
    let json = flags.json();
    flags.run(Bfs { graph: Kronecker { scale, edge_factor }, roots, beside, json })
}
