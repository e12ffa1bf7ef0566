//! Breadth-first search in a Kronecker graph (Graph500): level by level, each in the direction that looks at fewer
//! edges; validation; traversed edges per second.
//!
//! `cargo run --release --example bfs -- --ranks 2 --scale 20 --beside`; `--help` lists the flags. `--beside` runs
//! a textbook's sequential search and one in either direction afterwards. A copy takes along `kronecker.rs` of
//! `crates/lab/src/workload`, and `scramble` of the `mod.rs` there.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::Team;
use active_messages::pgas::collectives::Sum;
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;
use lab::workload::{Adjacency, Bits, Kronecker, NONE, Progress, Spread, Tree};

struct Bfs {
    graph: Kronecker,
    roots: u64,
    beside: bool,
    json: bool,
}

struct State {
    pgas: Pgas,
    edges: Vec<[u32; 2]>,
    tree: Tree,
    errors: u64,
}
pgas_state!(State, pgas);

impl Program for Bfs {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let (me, ranks) = (rank.address().rank.0, rank.shape().ranks);
        let places = Spread::new(self.graph.vertices(), ranks);
        let (owner, local) = (move |place| Rank(places.owner(place)), move |place| places.local(place));
        let config = AggregatorConfig::new();
        let connect = move |state: &mut State, edges: &[[u32; 2]]| {
            state.edges.extend(edges.iter().map(|[from, to]| [local(*from) as u32, *to]));
        };
        let connect = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "connect", config, connect)?;
        let visit = move |state: &mut State, visits: &[[u32; 2]]| {
            visits.iter().for_each(|[vertex, parent]| state.tree.visit(local(*vertex), *vertex, *parent));
        };
        let visit = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "visit", config, visit)?;
        let check = move |state: &mut State, edges: &[[u32; 3]]| {
            let wrong = |[vertex, other, level]: &&[u32; 3]| !state.tree.of(local(*vertex)).allows(*other, *level);
            state.errors += edges.iter().filter(wrong).count() as u64;
        };
        let check = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "check", config, check)?;

        let own = (self.graph.vertices() - me).div_ceil(ranks) as usize;
        let state = State { pgas, edges: Vec::new(), tree: Tree::new(own), errors: 0 };
        let mut endpoint = rank.attach(handlers, state)?;
        let world = Team::world(&mut endpoint)?;
        let edges = self.graph.edges(me, ranks).map(|edge| edge.map(|vertex| places.place(vertex)));
        endpoint.push_all(connect, edges.map(|edge| (owner(edge[0]), edge)))?;
        endpoint.done(connect)?;
        let edges = std::mem::take(&mut endpoint.state_mut().edges);
        let (adjacent, ends) = (Adjacency::new(own, edges.iter().copied()), edges.len() as u64);
        let degree = |place| adjacent.of(local(place)).len() as u64;
        let first = places.at(me, 0) as usize;

        let (mut time, mut traversed, mut candidates) = (Span::ZERO, 0, self.graph.candidates());
        for _ in 0..self.roots {
            let (mut root, mut edges) = (0, 0);
            while edges == 0 {
                root = places.place(candidates.next().expect("there is no end of candidates"));
                let here = if owner(root) == Rank(me) { degree(root) } else { 0 };
                edges = world.allreduce_one(&mut endpoint, here, Sum)?;
            }
            // Who needs no visit from here, and the vertices of a level on all ranks.
            let (mut seen, mut level) = (places.spread(me, adjacent.isolated()), Bits::none(places.all()));
            let (mut left, mut upwards) = (ends, false);
            let own_root = (owner(root) == Rank(me)).then(|| (local(root), root));
            endpoint.state_mut().tree.restart(own_root);
            endpoint.barrier()?;
            let start = endpoint.now();
            loop {
                let frontier = endpoint.state_mut().tree.next_level();
                let edges = frontier.iter().map(|vertex| degree(*vertex)).sum();
                left -= edges;
                let mut sums = [frontier.len() as u64, edges, left];
                world.allreduce(&mut endpoint, &mut sums, Sum)?;
                if sums[0] == 0 {
                    break;
                }
                upwards = Progress(sums).upwards(upwards, self.graph.vertices());
                frontier.iter().for_each(|vertex| _ = seen.insert(*vertex as usize));
                if upwards {
                    let part = Bits::of(places.each(), frontier.iter().map(|vertex| local(*vertex)));
                    world.allgather(&mut endpoint, part.words(), level.words_mut())?;
                    seen.unite(&level);
                    let tree = &mut endpoint.state_mut().tree;
                    for (place, parent) in adjacent.upwards(&seen, first..first + own.next_multiple_of(64), &level)
                    {
                        tree.visit(local(place as u32), place as u32, parent);
                    }
                } else {
                    // A vertex that this rank has seen before was visited then.
                    let visits = frontier.into_iter().flat_map(|vertex| {
                        adjacent.of(local(vertex)).iter().map(move |to| (owner(*to), [*to, vertex]))
                    });
                    endpoint.push_all(visit, visits.filter(|(_, [to, _])| seen.insert(*to as usize)))?;
                    endpoint.done(visit)?;
                }
            }
            time.0 += (endpoint.now() - start).picos();
            for index in 0..own {
                let (vertex, edges) = (places.at(me, index), adjacent.of(index));
                let found = endpoint.state().tree.of(index);
                traversed += if found.level == NONE { 0 } else { edges.len() as u64 };
                endpoint.state_mut().errors += u64::from(!found.is_real(vertex, root, edges));
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
        let report = Report::new("bfs", ranks, time).work((sums[0] / 2) as f64, "TEPS").errors(sums[1]);
        let report = report.with("scale", self.graph.scale).with("edge_factor", self.graph.edge_factor as f64);
        let report = report.with("roots", self.roots as f64);
        if !self.beside {
            return report.print(self.json);
        }
        let alone = self.graph.search_alone(self.roots).map(|searches| searches.rate());
        let rate = (sums[0] / 2) as f64 / (time.picos() as f64 * 1e-12);
        let report = report.with("plain", alone[0]).with("ratio", rate / alone[0]);
        report.with("either_way", alone[1]).with("either_way_ratio", rate / alone[1]).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Breadth-first searches in a Kronecker graph, as Graph500 does.", Options::new());
    let scale = flags.value("--scale", "N", 16, "binary logarithm of the number of vertices");
    let edge_factor = flags.value("--edge-factor", "N", 16u64, "edges for each vertex");
    let roots = flags.value("--roots", "N", 4, "searches");
    let fits = (1..32).contains(&scale) && flags.ranks() <= 1 << scale.min(31);
    flags.require(fits, "--scale is from 1 to 31, with a vertex for each rank");
    flags.require(edge_factor > 0 && roots > 0, "--edge-factor and --roots are at least 1");
    let graph = Kronecker { scale, edge_factor };
    flags.memory("--edge-factor", edge_factor, graph.bytes(flags.ranks()));
    let beside = flags.switch("--beside", "search on one rank without messages, too, and print the ratios");
    let json = flags.json();
    flags.run(Bfs { graph, roots, beside, json })
}
