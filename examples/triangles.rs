//! Triangles: counts the triangles of a graph whose rows are spread over all ranks (bale's `triangle`).
//!
//! The graph is a ring in which each vertex is connected to the `--reach` next ones, with its vertices renumbered
//! at random, so that the number of its triangles is known.
//!
//! `cargo run --release --example triangles -- --ranks 4`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;

struct Triangles {
    vertices: u64,
    reach: u64,
    json: bool,
}

struct State {
    pgas: Pgas,
    /// The smaller neighbours of this rank's vertices, in order.
    rows: Vec<Vec<u32>>,
    triangles: u64,
    total: u64,
}
pgas_state!(State, pgas);

/// A multiplier that renumbers the vertices: it has no factor in common with their number.
fn multiplier(vertices: u64) -> u64 {
    let coprime = |a: &u64| {
        let (mut a, mut b) = (*a, vertices);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    (vertices * 618 / 1000..).find(|a| *a > 0 && coprime(a)).expect("there are primes")
}

impl Program for Triangles {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let (me, ranks) = (rank.address().rank.0, rank.shape().ranks);
        let (owner, local) =
            (move |vertex: u32| Rank(vertex % ranks), move |vertex: u32| (vertex / ranks) as usize);
        let config = AggregatorConfig::new();
        let connect = move |state: &mut State, edges: &[[u32; 2]]| {
            edges.iter().for_each(|[larger, smaller]| state.rows[local(*larger)].push(*smaller));
        };
        let connect = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "connect", config, connect)?;
        // Two neighbours of a vertex: if they are connected, the three are a triangle.
        let close = move |state: &mut State, pairs: &[[u32; 2]]| {
            let closed = |[larger, smaller]: &&[u32; 2]| state.rows[local(*larger)].binary_search(smaller).is_ok();
            state.triangles += pairs.iter().filter(closed).count() as u64;
        };
        let close = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "close", config, close)?;
        let sum = |state: &mut State, counts: &[u64]| state.total += counts.iter().sum::<u64>();
        let sum = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "sum", config, sum)?;

        let rows = vec![Vec::new(); (self.vertices as usize).div_ceil(ranks as usize)];
        let mut endpoint = rank.attach(handlers, State { pgas, rows, triangles: 0, total: 0 })?;
        let (vertices, factor) = (self.vertices, multiplier(self.vertices));
        let name = move |place: u64| (place % vertices * factor % vertices) as u32;
        let places = (0..vertices).skip(me as usize).step_by(ranks as usize);
        let edges = places.flat_map(|place| (1..=self.reach).map(move |next| [name(place), name(place + next)]));
        let edges = edges.map(|[a, b]| (owner(a.max(b)), [a.max(b), a.min(b)]));
        endpoint.push_all(connect, edges)?;
        endpoint.done(connect)?;
        endpoint.state_mut().rows.iter_mut().for_each(|row| row.sort_unstable());
        // Nobody asks before all rows are in order.
        endpoint.barrier()?;
        let start = endpoint.now();
        let mut asked = 0;
        for index in 0..endpoint.state().rows.len() {
            // The row is copied because others look into it meanwhile.
            let row = endpoint.state().rows[index].clone();
            let pairs =
                row.iter().enumerate().flat_map(|(at, larger)| row[..at].iter().map(move |less| [*larger, *less]));
            asked += endpoint.push_all(close, pairs.map(|pair| (owner(pair[0]), pair)))?;
        }
        endpoint.done(close)?;
        let time = endpoint.now() - start;
        let mine = endpoint.state().triangles;
        endpoint.push(sum, Rank(0), mine)?;
        endpoint.done(sum)?;
        let found = endpoint.finish()?.total;
        if me != 0 {
            return Ok(());
        }
        let expected = vertices * self.reach * (self.reach - 1) / 2;
        let report = Report::new("triangles", ranks, time).work(asked as f64 * f64::from(ranks), "pairs/s");
        report
            .errors(found.abs_diff(expected))
            .with("triangles", found as f64)
            .with("vertices", vertices as f64)
            .print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Counts the triangles of a distributed graph.", Options::new());
    let vertices = flags.value("--vertices", "N", 1u64 << 16, "vertices of the graph");
    let reach = flags.value("--reach", "N", 16u64, "following vertices that a vertex is connected to");
    flags.require(
        reach > 0 && vertices > 3 * reach && vertices <= 1 << 32,
        "--vertices is above three times --reach, and at most 2^32",
    );
    let own = vertices / u64::from(flags.ranks().max(1));
    flags.memory("--vertices", vertices, reach.saturating_mul(8).saturating_add(24).saturating_mul(own));
    let json = flags.json();
    flags.run(Triangles { vertices, reach, json })
}
