//! Two programs on the two-sided messages, conjugate gradient and the spreading of heat, on cubes of points in a
//! box of ranks; and what receiver-initiated writes save of their time.

use super::Context;
use super::sources::{MPI, PROGRAMS};
use crate::figures::line::Source;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, NotReproduced, Part};
use active_messages::{Instant, Span};
use exanet_sim::ExanetConfig;
use exanet_sim::mpi::{self, Buffer, Mpi, MpiConfig, MpiError, Protocol, Request, WORLD};
use fabric_sim::RunError;
use std::f64::consts::PI;
use std::ops::Range;

/// What a point costs in a step, in nanoseconds. Assumed, as in the example `stencil`.
const POINT_NS: u64 = 10;

/// How far heat gets in a step: at most a sixth.
const SPREAD: f64 = 0.125;

/// How large a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Ranks along each axis.
    pub ranks: [u32; 3],
    /// Points along an edge of each rank's cube.
    pub edge: usize,
    /// Steps in time, or iterations.
    pub steps: u32,
}

/// What a run has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// From the common start to the common end, in microseconds.
    pub time_us: f64,
    /// The part of it that ranks spend in communication, in the mean.
    pub communication: f64,
    /// Points whose values are not what they must be.
    pub wrong: u64,
}

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Conjugate gradient on Poisson's equation: an exchange with six neighbours and two sums in each iteration.
    ConjugateGradient,
    /// Heat spreads: an exchange with six neighbours in each step.
    Stencil,
}

impl Program {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ConjugateGradient, Self::Stencil];

    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::ConjugateGradient => [
                "conjugate gradient",
                "conjugate gradient, simulated",
                "conjugate gradient: communication, simulated",
            ],
            Self::Stencil => ["stencil", "stencil, simulated", "stencil: communication, simulated"],
        }
    }

    /// Runs the program on a machine like this one with a rank for each cube.
    ///
    /// # Errors
    /// The machine or the settings cannot be.
    pub fn run(self, machine: &ExanetConfig, config: &MpiConfig, shape: Shape) -> Result<Run, RunError> {
        let machine = ExanetConfig { ranks: shape.ranks.iter().product(), ..machine.clone() };
        let report = mpi::run(&machine, config, move |mpi| {
            let mut rank = Rank::new(mpi, shape);
            match self {
                Self::ConjugateGradient => rank.conjugate_gradient(),
                Self::Stencil => rank.stencil(),
            }
        })?;
        let (mut time, mut communication, mut wrong) = (Span(0), 0.0, 0);
        for result in report.results {
            let Some(Ok((took, waited, errors))) = result else { panic!("nothing is lost here: {result:?}") };
            time = time.max(took);
            communication += waited.0 as f64;
            wrong += errors;
        }
        let communication = communication / f64::from(machine.ranks) / time.0 as f64;
        Ok(Run { time_us: time.0 as f64 * 1e-6, communication, wrong })
    }
}

/// What a rank brings: how long it took, how long of that it communicated, how many of its values are wrong.
type Brought = (Span, Span, u64);

/// A rank, its cube in a layer of other ranks' points, and the buffers of both sides of all six faces.
struct Rank<'m, 'a> {
    mpi: &'m mut Mpi<'a>,
    shape: Shape,
    place: [u32; 3],
    faces: Vec<Face>,
    communicated: Span,
}

/// A face with another rank behind it.
struct Face {
    side: usize,
    neighbour: u32,
    sent: Buffer,
    received: Buffer,
    posted: Option<Request>,
}

impl<'m, 'a> Rank<'m, 'a> {
    fn new(mpi: &'m mut Mpi<'a>, shape: Shape) -> Self {
        let [x, y, _] = shape.ranks;
        let me = mpi.rank();
        let place = [me % x, me / x % y, me / (x * y)];
        let strides = [1, x, x * y];
        let bytes = 8 * shape.edge * shape.edge;
        let mut faces = Vec::new();
        for side in 0..6_usize {
            let axis = side / 2;
            let neighbour = if side.is_multiple_of(2) {
                (place[axis] > 0).then(|| me - strides[axis])
            } else {
                (place[axis] + 1 < shape.ranks[axis]).then(|| me + strides[axis])
            };
            let Some(neighbour) = neighbour else { continue };
            let (sent, received) = (mpi.buffer(bytes), mpi.buffer(bytes));
            faces.push(Face { side, neighbour, sent, received, posted: None });
        }
        Self { mpi, shape, place, faces, communicated: Span(0) }
    }

    /// Values for the cube and the layer around it, all zero.
    fn zeroes(&self) -> Vec<f64> {
        vec![0.0; (self.shape.edge + 2).pow(3)]
    }

    fn strides(&self) -> [usize; 3] {
        let width = self.shape.edge + 2;
        [1, width, width * width]
    }

    /// The indices of the cube's points, in rows.
    fn rows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (edge, [_, y_stride, z_stride]) = (self.shape.edge, self.strides());
        (1..=edge).flat_map(move |z| {
            (1..=edge).map(move |y| {
                let first = z * z_stride + y * y_stride + 1;
                first..first + edge
            })
        })
    }

    /// The indices of a layer parallel to a side: that of the cube's points, or of those beyond.
    fn layer(&self, side: usize, beyond: bool) -> impl Iterator<Item = usize> + use<> {
        let (edge, strides) = (self.shape.edge, self.strides());
        let at = match (side.is_multiple_of(2), beyond) {
            (true, true) => 0,
            (true, false) => 1,
            (false, false) => edge,
            (false, true) => edge + 1,
        };
        let axis = side / 2;
        let (across, along) = (strides[(axis + 1) % 3], strides[(axis + 2) % 3]);
        let start = at * strides[axis];
        (1..=edge).flat_map(move |v| (1..=edge).map(move |u| start + v * across + u * along))
    }

    /// Posts the receives of the next exchange.
    fn post(&mut self) -> Result<(), MpiError> {
        for face in &mut self.faces {
            let (tag, len) = (face.side as u32 ^ 1, face.received.len());
            let receive =
                self.mpi.receive_begin(WORLD, Some(face.neighbour), Some(tag), &face.received, 0..len)?;
            face.posted = Some(receive);
        }
        Ok(())
    }

    /// Brings the neighbours' points beyond each face; posts the receives of the next exchange, if there is one.
    fn exchange(&mut self, values: &mut [f64], more: bool) -> Result<(), MpiError> {
        let began = self.mpi.now();
        let mut sends = Vec::new();
        for face in &self.faces {
            let bytes: Vec<u8> = self.layer(face.side, false).flat_map(|at| values[at].to_le_bytes()).collect();
            face.sent.write(self.mpi, 0, &bytes);
            let tag = face.side as u32;
            sends.push(self.mpi.send_begin(WORLD, face.neighbour, tag, &face.sent, 0..bytes.len() as u64)?);
        }
        let beyond: Vec<_> = self.faces.iter().map(|face| self.layer(face.side, true)).collect();
        for (face, places) in self.faces.iter_mut().zip(beyond) {
            self.mpi.wait(face.posted.take().expect("it was posted before the exchange"))?;
            let bytes = face.received.read(self.mpi, 0, face.received.len() as usize);
            for (at, value) in places.zip(bytes.chunks_exact(8)) {
                values[at] = f64::from_le_bytes(value.try_into().expect("a chunk has eight bytes"));
            }
        }
        if more {
            self.post()?;
        }
        self.mpi.wait_all(sends)?;
        self.communicated.0 += self.mpi.now().since(began).0;
        Ok(())
    }

    /// The sum of a value of each rank.
    fn sum(&mut self, value: f64) -> Result<f64, MpiError> {
        let began = self.mpi.now();
        let mut sum = [value];
        self.mpi.all_reduce_sum(&mut sum)?;
        self.communicated.0 += self.mpi.now().since(began).0;
        Ok(sum[0])
    }

    /// Lets the time pass that work on all points takes.
    fn work(&self) {
        self.mpi.compute(Span::from_nanos(POINT_NS * (self.shape.edge as u64).pow(3)));
    }

    fn begin(&mut self) -> Result<Instant, MpiError> {
        self.post()?;
        self.mpi.barrier()?;
        Ok(self.mpi.now())
    }

    fn end(&mut self, began: Instant) -> Result<Span, MpiError> {
        self.mpi.barrier()?;
        Ok(self.mpi.now().since(began))
    }

    /// The six neighbours of a point.
    fn around(&self, values: &[f64], at: usize) -> f64 {
        let [x, y, z] = self.strides();
        values[at - x] + values[at + x] + values[at - y] + values[at + y] + values[at - z] + values[at + z]
    }

    /// The state that keeps its form while heat spreads.
    fn wave(&self) -> Vec<f64> {
        let (edge, mut values) = (self.shape.edge, self.zeroes());
        let factors: [Vec<f64>; 3] = std::array::from_fn(|axis| {
            let whole = (self.shape.ranks[axis] as usize * edge + 1) as f64;
            let first = self.place[axis] as usize * edge;
            (0..edge).map(|at| (PI * (first + at + 1) as f64 / whole).sin()).collect()
        });
        for (row, places) in self.rows().enumerate() {
            let factor = factors[1][row % edge] * factors[2][row / edge];
            places.zip(&factors[0]).for_each(|(at, x)| values[at] = x * factor);
        }
        values
    }

    fn stencil(&mut self) -> Result<Brought, MpiError> {
        let start = self.wave();
        let (mut heat, mut next) = (start.clone(), self.zeroes());
        let (began, steps) = (self.begin()?, self.shape.steps);
        for step in 0..steps {
            self.exchange(&mut heat, step + 1 < steps)?;
            for at in self.rows().flatten() {
                next[at] = heat[at] + SPREAD * (self.around(&heat, at) - 6.0 * heat[at]);
            }
            std::mem::swap(&mut heat, &mut next);
            self.work();
        }
        let took = self.end(began)?;
        // Each step shrinks the wave by the same factor.
        let curvature = self.shape.ranks.map(|ranks| {
            let whole = (ranks as usize * self.shape.edge + 1) as f64;
            2.0 * (1.0 - (PI / whole).cos())
        });
        let shrink = (1.0 - SPREAD * curvature.iter().sum::<f64>()).powi(steps as i32);
        let right = |at: &usize| (heat[*at] - shrink * start[*at]).abs() <= 1e-10;
        Ok((took, self.communicated, self.rows().flatten().filter(|at| !right(at)).count() as u64))
    }

    fn dot(&mut self, a: &[f64], b: &[f64]) -> Result<f64, MpiError> {
        let mine = self.rows().flatten().map(|at| a[at] * b[at]).sum();
        self.sum(mine)
    }

    /// The product of Poisson's matrix and a vector.
    fn product(&mut self, vector: &mut [f64], image: &mut [f64], more: bool) -> Result<(), MpiError> {
        self.exchange(vector, more)?;
        self.rows().flatten().for_each(|at| image[at] = 6.0 * vector[at] - self.around(vector, at));
        Ok(())
    }

    fn conjugate_gradient(&mut self) -> Result<Brought, MpiError> {
        // Its solution has all frequencies.
        let (mut right, mut solution) = (self.zeroes(), self.zeroes());
        for (number, at) in self.rows().flatten().enumerate() {
            right[at] = (f64::from(self.mpi.rank()) + number as f64 * 1.7).sin();
        }
        let (mut residual, mut direction, mut image) = (right.clone(), right.clone(), self.zeroes());
        let began = self.begin()?;
        let first = self.dot(&residual, &residual)?;
        let mut error = first;
        for _ in 0..self.shape.steps {
            self.product(&mut direction, &mut image, true)?;
            let step = error / self.dot(&direction, &image)?;
            for at in self.rows().flatten() {
                solution[at] += step * direction[at];
                residual[at] -= step * image[at];
            }
            let before = std::mem::replace(&mut error, self.dot(&residual, &residual)?);
            for at in self.rows().flatten() {
                direction[at] = residual[at] + error / before * direction[at];
            }
            self.work();
        }
        let (took, communicated) = (self.end(began)?, self.communicated);
        // What the iterations say is left is what is left.
        self.product(&mut solution, &mut image, false)?;
        let agrees = |at: &usize| (right[*at] - image[*at] - residual[*at]).abs() <= 1e-9;
        let wrong = self.rows().flatten().filter(|at| !agrees(at)).count() as u64;
        // That holds for any step that all ranks share; of wrong sums the iterations do not come closer, and one
        // of known parts is wrong.
        let parts = self.sum(f64::from(self.mpi.rank() + 1))?;
        let ranks = f64::from(self.mpi.ranks());
        let sums = error < first && parts == ranks * (ranks + 1.0) / 2.0;
        Ok((took, communicated, wrong + u64::from(!sums)))
    }
}

/// Points along an edge: a face is a long message from 17 on.
const EDGES: [usize; 5] = [17, 20, 24, 32, 40];

/// Boxes of ranks: a quarter of the rack, half of it, and all.
const BOXES: [[u32; 3]; 3] = [[8, 4, 4], [8, 8, 4], [8; 3]];

/// Ranks where the number of points varies, which are fewer.
const RANKS: f64 = 64.0;

/// Points along an edge where the number of ranks varies: the first of those above.
const SCALED_EDGE: usize = EDGES[0];

/// A program by reads and by receiver-initiated writes.
struct Pair {
    read: Run,
    written: Run,
}

impl Pair {
    fn of(context: &Context, program: Program, shape: Shape) -> Result<Self, Failure> {
        let rack = ExanetConfig { parameters: context.parameters.clone(), ..exanet_sim::rack(1) };
        let run = |protocol| {
            program.run(&rack, &MpiConfig::of(protocol), shape).map_err(Failure::of("programs on the rack"))
        };
        Ok(Self { read: run(Protocol::Read)?, written: run(Protocol::Elided)? })
    }

    /// How much less time the writes take, in percent.
    fn saving(&self) -> f64 {
        100.0 * (1.0 - self.written.time_us / self.read.time_us)
    }

    fn wrong(&self) -> u64 {
        self.read.wrong + self.written.wrong
    }

    /// The part of the time by reads that ranks communicate, in percent.
    fn communication(&self) -> f64 {
        100.0 * self.read.communication
    }

    fn note(&self, name: &str, place: &str) -> String {
        format!(
            "{name}, {place}: {:.0} us by reads, {:.0} % of them in communication; {:.1} % less by receiver-initiated writes",
            self.read.time_us,
            self.communication(),
            self.saving(),
        )
    }
}

/// What the shapes of a program have come to: lines of the plot by some number of each shape, and their savings.
struct Curve {
    times: Vec<(f64, f64)>,
    communication: Vec<(f64, f64)>,
    savings: Vec<String>,
    wrong: u64,
}

impl Curve {
    fn of(
        context: &Context,
        program: Program,
        shapes: impl Iterator<Item = (f64, String, Shape)>,
        notes: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let mut curve = Self { times: Vec::new(), communication: Vec::new(), savings: Vec::new(), wrong: 0 };
        for (x, place, shape) in shapes {
            let pair = Pair::of(context, program, shape)?;
            curve.wrong += pair.wrong();
            curve.savings.push(format!("{:.1} % with {place}", pair.saving()));
            curve.times.push((x, 100.0 - pair.saving()));
            curve.communication.push((x, pair.communication()));
            notes.push(pair.note(program.names()[0], &place));
        }
        Ok(curve)
    }

    fn series(self, colour: usize, program: Program) -> [Series; 2] {
        let [_, of_time, of_communication] = program.names();
        let line = |name, style, points| Series { name, style, colour, points };
        [line(of_time, Style::Line, self.times), line(of_communication, Style::Dashed, self.communication)]
    }
}

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let edges = if context.quick { &EDGES[..2] } else { &EDGES[..] };
    let boxes = if context.quick { &BOXES[..1] } else { &BOXES[..] };
    let steps = if context.quick { 5 } else { 20 };
    let (mut lines, mut notes, mut by_edge, mut by_ranks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut tried = String::from("10 ns a point (assumed), receiver-initiated writes beside reads:");
    for (colour, program) in Program::ALL.into_iter().enumerate() {
        let cubes = edges.iter().map(|edge| {
            let shape = Shape { ranks: [4; 3], edge: *edge, steps };
            (*edge as f64, format!("{edge}^3 points a rank on 64 ranks"), shape)
        });
        let cubes = Curve::of(context, program, cubes, &mut notes)?;
        // That of the smallest cube on 64 ranks is known by now.
        let jobs = boxes.iter().map(|ranks| {
            let (shape, count) =
                (Shape { ranks: *ranks, edge: SCALED_EDGE, steps }, ranks.iter().product::<u32>());
            (f64::from(count), format!("{SCALED_EDGE}^3 points a rank on {count} ranks"), shape)
        });
        let mut jobs = Curve::of(context, program, jobs, &mut notes)?;
        let [time, communication] = [cubes.times[0].1, cubes.communication[0].1];
        jobs.times.insert(0, (RANKS, time));
        jobs.communication.insert(0, (RANKS, communication));
        let (name, wrong) = (program.names()[0], cubes.wrong + jobs.wrong);
        lines.push(PROGRAMS.value(format!("{name}: wrong values"), "", 0.0, wrong as f64));
        let savings = [&cubes.savings[..], &jobs.savings[..]].concat();
        tried.push_str(&format!(" {name} takes less time by {};", savings.join(", ")));
        by_edge.extend(cubes.series(colour, program));
        by_ranks.extend(jobs.series(colour, program));
    }
    tried.push_str(
        " the part that is saved depends on the assumed time of a point, and is more than the messages' latencies explain: transfers \
         of four ranks meet at a node's interface; the publication's programs and their times are not at hand",
    );
    let parts = NotReproduced {
        source: Source { document: MPI, place: "abstract" },
        sentence: "applications take up to 10 % less time",
        tried,
    };
    let plot = Plot {
        name: "programs",
        title: "ExaNet: programs on 64 ranks",
        subtitle: "time by receiver-initiated writes, and the part of communication by reads; 10 ns a point are assumed",
        x: Axis { label: "points along an edge of a rank's cube", scale: Scale::Linear },
        y: Axis { label: "% of the time by reads", scale: Scale::Linear },
        series: by_edge,
    };
    let scaled = Plot {
        name: "programs-ranks",
        title: "ExaNet: programs on 64 to 512 ranks, 17^3 points each",
        x: Axis { label: "ranks", scale: Scale::Binary },
        series: by_ranks,
        ..plot.clone()
    };
    let plots = vec![plot, scaled];
    Ok(Part { title: "Programs by protocol", lines, notes, not_reproduced: vec![parts], plots })
}
