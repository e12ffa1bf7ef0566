//! The interface itself: stores, DMA, where the two cross, and reads.

use super::pairs::{self, Way};
use super::sources::{CROSSOVER, FORMULA, READS, STORES};
use super::{Context, Curve, curve, is_training, micros, points};
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part};
use sci_sim::SciConfig;
use sci_sim::model::{DmaParameters, Parameters};

/// Crossovers of the sheet, in bytes, and the time to start that belongs to each, in microseconds.
const CROSSOVERS: [(u32, f64); 4] = [(2 << 10, 3.2), (4 << 10, 3.8), (8 << 10, 4.8), (16 << 10, 7.0)];

/// From one size to the next in the search for a crossover, in bytes: what DMA moves at least.
const STEP: usize = 64;

/// Bytes from which stores stream.
const MANY: usize = 64 << 10;

/// Bytes of the comparison of reads, which do not stream, with stores.
const SOME: usize = 512;

fn measured(machine: &SciConfig, way: Way, sizes: &[usize]) -> Result<Curve, Failure> {
    curve("raw transfers", sizes, |size| pairs::raw(machine, way, size))
}

fn one(machine: &SciConfig, way: Way, size: usize) -> Result<f64, Failure> {
    Ok(measured(machine, way, &[size])?[0].1)
}

pub(super) fn run(context: &Context) -> Result<Part, Failure> {
    let machine = context.pair();
    let stores = |size| one(&machine, Way::Stores, size);
    let mut lines =
        vec![STORES.value("stores, 80 B", "us", 3.16, stores(80)?).trained(is_training("stores, 80 B"))];
    for (size, expected) in [(8, 2.93), (64, 2.93), (1024, 6.38)] {
        lines.push(FORMULA.value(format!("stores, {size} B"), "us", expected, stores(size)?));
    }
    let rate = MANY as f64 / (stores(2 * MANY)? - stores(MANY)?);
    lines.push(FORMULA.value("stores, streaming", "MB/s", 278.0, rate));
    for (crossover, start) in CROSSOVERS {
        let machine = with_crossover(context, crossover);
        let size = 4 * crossover as usize;
        let found = one(&machine, Way::Dma, size)? - size as f64 / 300.0;
        let name = format!("DMA's start for a crossover at {} KB", crossover >> 10);
        lines.push(FORMULA.value(name, "us", start, found));
        let found = find_crossover(&machine, crossover as usize)?;
        let name = format!("DMA faster than stores from, for {} KB", crossover >> 10);
        lines.push(CROSSOVER.value(name, "B", f64::from(crossover), found));
    }
    let read = micros(pairs::read(&machine, SOME).map_err(Failure::of("reads"))?);
    // The document tells no size, and this one is chosen so that it holds.
    lines.push(
        READS.value("reads take longer than stores, 512 B", "times", 10.0, read / stores(SOME)?).trained(true),
    );
    let line = micros(pairs::read(&machine, 64).map_err(Failure::of("reads"))?);
    lines.push(FORMULA.value("reads, 64 B", "us", 5.86, line));

    let sizes = context.thin((3..=16).map(|power| 1 << power).collect());
    let large: Vec<usize> = sizes.iter().copied().filter(|size| *size >= 64).collect();
    let reads = curve("reads", &sizes, |size| pairs::read(&machine, size))?;
    let (by_stores, by_dma) = (measured(&machine, Way::Stores, &sizes)?, measured(&machine, Way::Dma, &large)?);
    let line = |name, colour, curve: &Curve| Series { name, style: Style::Line, colour, points: points(curve) };
    let marks = vec![(80.0, 3.16)];
    let plot = Plot {
        name: "raw",
        title: "SCI: stores, DMA and reads on the interface",
        subtitle: "from the first byte until the last has landed, between neighbouring nodes",
        x: Axis { label: "bytes", scale: Scale::Binary },
        y: Axis { label: "time, us", scale: Scale::Decimal },
        series: vec![
            line("stores (PIO), simulated", 0, &by_stores),
            line("DMA, simulated", 1, &by_dma),
            line("remote reads, simulated", 4, &reads),
            Series { name: "published: stores", style: Style::Marks, colour: 0, points: marks },
        ],
    };
    Ok(Part { title: "The interface: stores, DMA, reads", lines, plots: vec![plot], ..Part::default() })
}

fn with_crossover(context: &Context, crossover_bytes: u32) -> SciConfig {
    let dma = DmaParameters { crossover_bytes, ..context.parameters.dma.clone() };
    SciConfig { parameters: Parameters { dma, ..context.parameters.clone() }, ..context.pair() }
}

/// The smallest size from which on DMA is as fast as stores, looked for around a place.
fn find_crossover(machine: &SciConfig, around: usize) -> Result<f64, Failure> {
    let sizes: Vec<usize> = (around - 4 * STEP..=around + 4 * STEP).step_by(STEP).collect();
    let (stores, dma) = (measured(machine, Way::Stores, &sizes)?, measured(machine, Way::Dma, &sizes)?);
    // The two are equal at the crossover, but for rounding to picoseconds.
    let slower = stores.iter().zip(&dma).rposition(|(stores, dma)| dma.1 > stores.1 + 1e-4);
    let faster = slower.map_or(0, |last| last + 1);
    Ok(sizes.get(faster).map_or(f64::NAN, |size| *size as f64))
}
