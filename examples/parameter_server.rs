//! A parameter server: the workers fit a plane to their points by gradients; rank 0 has the parameters and streams
//! each version.
//!
//! `cargo run --release --features calls --example parameter_server -- --ranks 4`; `--help` lists the flags.

use active_messages::anywhere::{Flags, Options, Part, Program, Report};
use active_messages::calls::{CallEndpoint, CallError, Calls, Context, Failure, Methods, SliceAnswer};
use active_messages::prelude::*;
use lab::workload::scramble;

/// Parameters of the plane.
const DIMENSIONS: usize = 8;
const PLANE: [f64; DIMENSIONS] = [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5];

#[derive(Default)]
struct Server {
    parameters: Vec<f64>,
    /// The gradients of this version, summed, and how many workers they are of.
    gradient: Vec<f64>,
    heard: u32,
    version: u32,
}

struct ParameterServer {
    points: u64,
    rounds: u32,
    json: bool,
}

/// A number from -1 to 1.
fn number(of: u64) -> f64 {
    scramble(of) as f64 / u64::MAX as f64 * 2.0 - 1.0
}

/// A point of a worker, and where the plane that is looked for is there.
fn point(worker: u32, index: u64) -> ([f64; DIMENSIONS], f64) {
    let x: [f64; DIMENSIONS] = std::array::from_fn(|d| number(u64::from(worker) << 40 | index << 8 | d as u64));
    (x, dot(&x, &PLANE))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Program for ParameterServer {
    fn rank<T: Transport>(&self, rank: Joining<T>) -> Part {
        let (workers, rounds, points) = (rank.shape().ranks, self.rounds, self.points);
        let mut methods = Methods::<Server>::new();
        // Gradients travel as they lie in memory.
        let push = methods.slices(
            "push",
            move |server: &mut Server, _, gradient: &[f64], _: &mut SliceAnswer<'_, f64>| {
                server.gradient.iter_mut().zip(gradient).for_each(|(sum, part)| *sum += part);
                server.heard += 1;
                if server.heard == workers {
                    let steps = server.gradient.iter_mut().map(|sum| std::mem::take(sum) / f64::from(workers));
                    server.parameters.iter_mut().zip(steps).for_each(|(parameter, step)| *parameter -= step);
                    (server.heard, server.version) = (0, server.version + 1);
                }
                Ok::<(), Failure>(())
            },
        )?;
        let watch =
            methods.stream("watch", move |context: Context<Server>, rounds: u32, mut sink| async move {
                for version in 0..=rounds {
                    while context.with(|server| server.version) < version {
                        context.sleep(Span::from_micros(2)).await;
                    }
                    let parameters: Vec<f64> = context.with(|server| server.parameters.clone());
                    sink.send(&parameters).await?;
                }
                Ok::<(), Failure>(())
            })?;
        let mut handlers = Handlers::new();
        let (parameters, gradient) = (vec![0.0; DIMENSIONS], vec![0.0; DIMENSIONS]);
        let calls = Calls::register(&mut handlers, methods, Server { parameters, gradient, ..Server::default() })?;
        let mut endpoint = rank.attach(handlers, calls)?;
        let me = endpoint.rank();
        endpoint.barrier()?;
        let start = endpoint.now();
        let fitted = endpoint.run(|context| async move {
            let mut versions = context.stream(Rank(0), watch, &rounds);
            let mut last = Vec::new();
            for round in 0..=rounds {
                let ended = CallError::Failed(Failure::new("the stream ended early"));
                last = versions.next().await.unwrap_or(Err(ended))?;
                if round == rounds {
                    break;
                }
                let mut gradient = [0.0; DIMENSIONS];
                for (x, y) in (0..points).map(|index| point(me.0, index)) {
                    let error = dot(&x, &last) - y;
                    gradient.iter_mut().zip(x).for_each(|(sum, x)| *sum += 2.0 * error * x / points as f64);
                }
                context.call(Rank(0), push, &gradient).await?;
            }
            let ended = versions.next().await.is_none();
            if ended { Ok(last) } else { Err(CallError::Failed(Failure::new("the stream did not end"))) }
        })?;
        let fitted = fitted.map_err(|error: CallError| error.to_string())?;
        let time = endpoint.now() - start;
        endpoint.finish()?;
        let worst = fitted.iter().zip(PLANE).map(|(found, due)| (found - due).abs()).fold(0.0, f64::max);
        if me != Rank(0) {
            return if worst < 1e-3 { Ok(()) } else { Err(format!("rank {me} is off by {worst}").into()) };
        }
        let report = Report::new("parameter_server", workers, time).work(f64::from(rounds), "rounds/s");
        report.errors(u64::from(worst >= 1e-3)).with("off_by", worst).print(self.json)
    }
}

fn main() -> std::process::ExitCode {
    let mut flags = Flags::new("Fits a plane with a parameter server.", Options::new().default_ranks(3));
    let points = flags.value("--points", "N", 200u64, "points of every worker");
    let rounds = flags.value("--rounds", "N", 100u32, "rounds");
    flags.require(points > 0 && rounds > 0, "--points and --rounds are at least 1");
    let json = flags.json();
    flags.run(ParameterServer { points, rounds, json })
}
