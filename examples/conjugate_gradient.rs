//! Conjugate gradient: solves a sparse symmetric system whose rows are spread over all ranks.
//!
//! Row `i` has `2 * reach + 1` on the diagonal and -1 in the columns of its neighbours, a ring with renumbered
//! places, so that neighbours live on other ranks. A product with the matrix pushes each element of the vector to
//! the rows that need it.
//!
//! `cargo run --release --example conjugate_gradient -- --ranks 4`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::pgas::Team;
use active_messages::pgas::aggregate::AggregateError;
use active_messages::pgas::collectives::{CollectiveError, Sum};
use active_messages::pgas::prelude::*;
use active_messages::prelude::*;

struct ConjugateGradient {
    rows: u64,
    reach: u64,
    json: bool,
}

struct State {
    pgas: Pgas,
    /// This rank's part of the product that is being made.
    product: Vec<f64>,
}
pgas_state!(State, pgas);

/// What ranks do together.
struct Solver<'a, T: Transport> {
    endpoint: Endpoint<T, State>,
    add: Aggregator<[u64; 2]>,
    world: Team,
    system: &'a ConjugateGradient,
}

impl<T: Transport> Solver<'_, T> {
    /// The scalar product of two vectors, the same everywhere to the last bit.
    fn dot(&mut self, a: &[f64], b: &[f64]) -> Result<f64, CollectiveError> {
        let mine: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
        self.world.allreduce_one(&mut self.endpoint, mine, Sum)
    }

    /// The product of the matrix and a vector. A sum over all ranks has to follow before the next.
    fn product(&mut self, vector: &[f64]) -> Result<Vec<f64>, AggregateError> {
        let (me, ranks) = (u64::from(self.endpoint.rank().0), u64::from(self.endpoint.ranks()));
        for (index, element) in vector.iter().enumerate() {
            let neighbours = self.system.neighbours(index as u64 * ranks + me);
            let parts = neighbours.map(|row| (Rank((row % ranks) as u32), [row / ranks, (-element).to_bits()]));
            self.endpoint.push_all(self.add, parts)?;
        }
        self.endpoint.done(self.add)?;
        let diagonal = (2 * self.system.reach + 1) as f64;
        let product = &mut self.endpoint.state_mut().product;
        let whole = product.iter().zip(vector).map(|(sum, element)| sum + diagonal * element).collect();
        product.fill(0.0);
        Ok(whole)
    }
}

impl ConjugateGradient {
    /// The rows in whose equations an unknown occurs, its own aside. Their number is a power of two, so that odd
    /// factors renumber them.
    fn neighbours(&self, row: u64) -> impl Iterator<Item = u64> {
        const ODD: u64 = 0x9e37_79b1;
        let (mask, inverse) =
            (self.rows - 1, (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(ODD.wrapping_mul(x)))));
        let place = row.wrapping_mul(inverse);
        let name = move |place: u64| place.wrapping_mul(ODD) & mask;
        (1..=self.reach).flat_map(move |next| [name(place.wrapping_add(next)), name(place.wrapping_sub(next))])
    }
}

impl Program for ConjugateGradient {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let mut handlers = Handlers::<State>::new();
        let mut pgas = Pgas::register(&mut handlers)?;
        let config = AggregatorConfig::new();
        let add = |state: &mut State, parts: &[[u64; 2]]| {
            parts.iter().for_each(|[row, part]| state.product[*row as usize] += f64::from_bits(*part));
        };
        let add = Aggregator::register_anonymous(&rank, &mut pgas, &mut handlers, "add", config, add)?;
        let (me, ranks) = (u64::from(rank.address().rank.0), u64::from(rank.shape().ranks));
        let own = (self.rows - me).div_ceil(ranks) as usize;
        let mut endpoint = rank.attach(handlers, State { pgas, product: vec![0.0; own] })?;
        let world = Team::world(&mut endpoint)?;
        let mut solver = Solver { endpoint, add, world, system: self };

        let solution: Vec<f64> = (0..own).map(|index| ((index as u64 * ranks + me) as f64).sin()).collect();
        let right = solver.product(&solution)?;
        let (mut x, mut residual, mut direction) = (vec![0.0; own], right.clone(), right.clone());
        let mut error = solver.dot(&residual, &residual)?;
        let (goal, start, mut iterations) = (error * 1e-24, solver.endpoint.now(), 0u32);
        while error > goal && iterations < 1000 {
            let image = solver.product(&direction)?;
            let step = error / solver.dot(&direction, &image)?;
            for index in 0..own {
                x[index] += step * direction[index];
                residual[index] -= step * image[index];
            }
            let before = std::mem::replace(&mut error, solver.dot(&residual, &residual)?);
            direction.iter_mut().zip(&residual).for_each(|(old, new)| *old = new + error / before * *old);
            iterations += 1;
        }
        let time = solver.endpoint.now() - start;
        let wrong = x.iter().zip(&solution).filter(|(x, due)| (*x - *due).abs() > 1e-9).count();
        let errors = solver.world.allreduce_one(&mut solver.endpoint, wrong as u64, Sum)?;
        solver.endpoint.finish()?;
        if me != 0 {
            return Ok(());
        }
        let entries = self.rows as f64 * (2 * self.reach + 1) as f64 * f64::from(iterations);
        let report =
            Report::new("conjugate_gradient", ranks as u32, time).work(entries, "entries/s").errors(errors);
        report
            .with("rows", self.rows as f64)
            .with("iterations", iterations)
            .with("residual", error.sqrt())
            .print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Solves a distributed sparse system by conjugate gradients.", Options::new());
    let log2 = flags.value("--log2-rows", "N", 14u32, "binary logarithm of the number of rows");
    let reach = flags.value("--reach", "N", 8u64, "following rows that a row is connected to");
    let rows = 1 << log2.min(31);
    flags.require(
        log2 <= 31 && u64::from(flags.ranks()) <= rows,
        "--log2-rows is at most 31, with a row for each rank",
    );
    flags.memory("--log2-rows", log2.into(), 56 * rows / u64::from(flags.ranks().max(1)));
    flags.require(2 * reach < rows, "--reach is less than half of the rows");
    let json = flags.json();
    flags.run(ConjugateGradient { rows, reach, json })
}
