//! Collective operations on the two-sided messages, by protocol and over the number of ranks.

use super::Context;
use super::sources::BROADCAST;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use exanet_sim::ExanetConfig;
use exanet_sim::mpi::{self, Mpi, MpiConfig, MpiError, Protocol};
use fabric_sim::RunError;

/// An operation and the bytes that each rank gives.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Barrier,
    Broadcast(usize),
    AllReduce(usize),
    AllGather(usize),
}

impl Operation {
    fn name(self) -> String {
        match self {
            Self::Barrier => "barrier".into(),
            Self::Broadcast(bytes) => format!("broadcast of {bytes} B"),
            Self::AllReduce(bytes) => format!("allreduce of {bytes} B"),
            Self::AllGather(bytes) => format!("allgather of {bytes} B"),
        }
    }

    /// Performs it once, from a common beginning; until when this rank was in it, in picoseconds.
    fn perform(self, mpi: &mut Mpi<'_>) -> Result<u64, MpiError> {
        let bytes = match self {
            Self::Barrier => 0,
            Self::Broadcast(bytes) | Self::AllReduce(bytes) => bytes,
            Self::AllGather(bytes) => bytes * mpi.ranks() as usize,
        };
        let (buffer, mut values) = (mpi.buffer(bytes), vec![1.0; bytes / 8]);
        // Far behind everything that has come before.
        let start = active_messages::Instant(1_000_000_000);
        mpi.barrier()?;
        mpi.compute(start.since(mpi.now()));
        match self {
            Self::Barrier => mpi.barrier()?,
            Self::Broadcast(bytes) => mpi.broadcast(0, &buffer, 0..bytes as u64)?,
            Self::AllReduce(_) => mpi.all_reduce_sum(&mut values)?,
            Self::AllGather(bytes) => mpi.all_gather(&buffer, bytes as u64)?,
        }
        Ok(mpi.now().since(start).0)
    }

    /// How long the last rank takes, in microseconds.
    fn time_us(self, machine: &ExanetConfig, protocol: Protocol, ranks: u32) -> Result<f64, RunError> {
        let machine = ExanetConfig { ranks, ..machine.clone() };
        let report = mpi::run(&machine, &MpiConfig::of(protocol), move |mpi| self.perform(mpi))?;
        let last = report.results.into_iter().map(|result| match result {
            Some(Ok(took)) => took,
            other => panic!("nothing is lost in this program: {other:?}"),
        });
        Ok(last.max().unwrap_or(0) as f64 * 1e-6)
    }
}

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let rack = ExanetConfig { parameters: context.parameters.clone(), ..exanet_sim::rack(4) };
    let failed = Failure::of("collective operations");
    let time = |operation: Operation, protocol, ranks| operation.time_us(&rack, protocol, ranks).map_err(&failed);
    let most = if context.quick { 64 } else { 512_u32 };
    let mut notes = Vec::new();
    for operation in [
        Operation::Barrier,
        Operation::Broadcast(8),
        Operation::Broadcast(64 << 10),
        Operation::AllReduce(8),
        Operation::AllReduce(16 << 10),
        Operation::AllGather(4 << 10),
    ] {
        let times = Protocol::ALL
            .into_iter()
            .map(|protocol| Ok(format!("{} {:.1}", protocol.name(), time(operation, protocol, 64)?)));
        let times = times.collect::<Result<Vec<_>, Failure>>()?;
        notes.push(format!("{} on 64 ranks, us: {}", operation.name(), times.join(", ")));
    }
    let mut series = Vec::new();
    let mut small = Vec::new();
    for (colour, (name, operation, protocol, style)) in [
        ("broadcast of 8 B, simulated", Operation::Broadcast(8), Protocol::Elided, Style::Line),
        ("broadcast of 64 KiB, elided, simulated", Operation::Broadcast(64 << 10), Protocol::Elided, Style::Line),
        ("broadcast of 64 KiB, read, simulated", Operation::Broadcast(64 << 10), Protocol::Read, Style::Dashed),
        ("allreduce of 8 B, simulated", Operation::AllReduce(8), Protocol::Elided, Style::Line),
    ]
    .into_iter()
    .enumerate()
    {
        let ranks = (1..=most.ilog2()).map(|power| 1 << power);
        let points = ranks.map(|ranks| Ok((f64::from(ranks), time(operation, protocol, ranks)?)));
        let points = points.collect::<Result<Vec<_>, Failure>>()?;
        if colour == 0 {
            small.clone_from(&points);
        }
        series.push(Series { name, style, colour, points });
    }
    // The longest way on the torus of 8 x 4 x 4 has 8 hops.
    let training = exanet_sim::model::fit::TRAINING_SET;
    let hop = (training.five_hops_us - training.one_hop_us) / 4.0;
    let longest = training.one_hop_us + 7.0 * hop;
    let steps = || small.windows(2).map(|pair| pair[1].1 - pair[0].1);
    let (least, most) = (steps().fold(f64::INFINITY, f64::min), steps().fold(f64::NEG_INFINITY, f64::max));
    let lines = vec![
        BROADCAST.at_least("broadcast of 8 B, a doubling of the ranks adds", "us", 0.1, least),
        BROADCAST.at_most("broadcast of 8 B, a doubling of the ranks adds", "us", longest, most),
    ];
    let plot = Plot {
        name: "collectives",
        title: "ExaNet: collective operations",
        subtitle: "on the rack's nodes, four ranks each, until the last rank is done; the algorithms are this project's",
        x: Axis { label: "ranks", scale: Scale::Binary },
        y: Axis { label: "us", scale: Scale::Decimal },
        series,
    };
    Ok(Part { title: "Collective operations by protocol", lines, notes, plots: vec![plot], ..Part::default() })
}
