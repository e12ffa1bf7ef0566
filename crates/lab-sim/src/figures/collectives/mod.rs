//! Collective operations: how long they take over the number of ranks, beside what LogP says, and with larger
//! messages, LogGP.
//!
//! The ranks are those of one switch, which no two messages share, so that nothing is contended but the ranks
//! themselves. The parameters of LogP are measured on the same machine, between ranks that do nothing else.

mod programs;

use crate::conduits::Program;
use crate::figures::cli::Cli;
use crate::figures::line::{Class, Group, Source, Tolerance};
use crate::figures::parts::Parts;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part, Report};
use crate::figures::settings::Settings;
use active_messages::Span;
use active_messages::pgas::collectives::schedule::{LogGp, cost};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use fabric_sim::{RunError, Topology};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig};
use programs::{Algorithm, Calibration, Measured, Timing};

/// A machine.
#[derive(Clone, Debug)]
pub enum Site {
    /// EXTOLL, with the conduit of GASNet.
    Extoll(Box<ExtollConfig>),
    /// Portals, with the conduit's usual flow control.
    Portals(Box<PortalsConfig>),
}

impl Site {
    /// EXTOLL with its usual parameters.
    pub fn extoll() -> Self {
        Self::Extoll(Box::new(ExtollConfig::pair()))
    }

    /// Portals with its usual parameters.
    pub fn portals() -> Self {
        Self::Portals(Box::new(PortalsConfig::pair()))
    }

    /// Runs a program on so many ranks, each at a port of one switch; what it brings, and how many events it took.
    fn simulate<P: Program>(&self, ranks: u32, program: P) -> Result<(Vec<P::Result>, u64), RunError> {
        let topology = Topology::Crossbar { nodes: ranks };
        let (results, events) = match self {
            Self::Extoll(machine) => {
                let machine = ExtollConfig { ranks, topology, ..(**machine).clone() };
                let run = gasnet::run(&machine, &GasnetConfig::default(), move |ours| program.play(ours))?;
                (run.results, run.events)
            }
            Self::Portals(machine) => {
                let machine = PortalsConfig { ranks, topology, ..(**machine).clone() };
                let run = conduit::run(&machine, &ConduitConfig::default(), move |ours| program.play(ours))?;
                (run.results, run.events)
            }
        };
        Ok((results.into_iter().flatten().collect(), events))
    }

    fn run<P: Program>(&self, ranks: u32, program: P) -> Result<Vec<P::Result>, Failure> {
        let results = self.simulate(ranks, program).map(|(results, _)| results);
        results.map_err(Failure::of("collective operations"))
    }

    /// Makes a world of so many ranks, in which each of them takes part in so many barriers, broadcasts and
    /// allreduces of a word, by the usual tuning; how many events that takes.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn mixed(&self, ranks: u32, times: u32) -> Result<u64, RunError> {
        self.simulate(ranks, programs::Mixed(times)).map(|(_, events)| events)
    }

    /// Whether the network interface takes messages whole. EXTOLL's conduit cuts them into packets of 56 bytes
    /// that the processors of both ends handle one by one: a byte more can take a packet more, which no parameter
    /// for each byte says of messages of a few packets.
    fn sends_whole(&self) -> bool {
        matches!(self, Self::Portals(_))
    }

    /// LogP's parameters for messages as small operations send them; with a payload, for such messages.
    fn logp(&self, payload: usize) -> Result<LogGp, Failure> {
        let ranks = self.run(1 + programs::BURST, Calibration(payload))?;
        let Measured { trip, overhead, .. } = ranks[0];
        let arrivals: Vec<u64> = ranks[1..].iter().map(|rank| rank.arrival).collect();
        let (first, last) = (arrivals.iter().min(), arrivals.iter().max());
        let spread = last.zip(first).map_or(0, |(last, first)| last - first);
        let gap = Span(spread / u64::from(programs::BURST - 1));
        let latency = Span((trip / 2).saturating_sub(2 * overhead));
        Ok(LogGp { latency, overhead: Span(overhead), gap, per_byte: 0.0, busy_per_byte: 0.0, compute: 0.0 })
    }

    /// LogGP's parameters: those of messages with little payload, and by how much longer larger ones take.
    fn loggp(&self) -> Result<LogGp, Failure> {
        let pair = |payload| Ok::<_, Failure>(self.run(1 + programs::BURST, Calibration(payload))?[0]);
        let (little, much) = (pair(LITTLE)?, pair(MUCH)?);
        let each = |little: u64, much: u64| much.saturating_sub(little) as f64 / (MUCH - LITTLE) as f64;
        let per_byte = each(little.trip, much.trip) / 2.0;
        // What hands a message over does so with each of its packets.
        let busy_per_byte = each(little.overhead, much.overhead);
        let model = self.logp(LITTLE)?;
        let latency = model.latency.picos().saturating_sub((LITTLE as f64 * per_byte) as u64);
        Ok(LogGp { latency: Span(latency), per_byte, busy_per_byte, ..model })
    }
}

/// Bytes of the payloads that LogGP's parameters are measured with.
const LITTLE: usize = 16;
const MUCH: usize = 1024;

/// Times in microseconds over numbers of ranks.
type Curve = Vec<(f64, f64)>;

/// What an algorithm takes on a machine, and what LogP says.
fn curves(site: &Site, model: &LogGp, algorithm: Algorithm, sizes: &[u32]) -> Result<[Curve; 2], Failure> {
    let (mut simulated, mut predicted) = (Vec::new(), Vec::new());
    for ranks in sizes {
        let took = site.run(*ranks, Timing(algorithm))?;
        let rounds = took.first().map_or(0, Vec::len);
        // An operation is over when it is over everywhere.
        let last = |round: usize| took.iter().map(|rank| rank[round]).max().unwrap_or(0);
        let mean = (0..rounds).map(last).sum::<u64>() as f64 / rounds as f64;
        simulated.push((f64::from(*ranks), mean * 1e-6));
        let schedules: Vec<_> = (0..*ranks).map(|me| algorithm.schedule(me as usize, *ranks as usize)).collect();
        let cost = cost(&schedules, 8, model).expect("schedules come to an end");
        predicted.push((f64::from(*ranks), cost.picos() as f64 * 1e-6));
    }
    Ok([simulated, predicted])
}

/// How far off LogP is at most, in percent, and from how many ranks on. With fewer, what a rank still does after
/// its last message, which LogP counts and an operation does not wait for, is a good part of it.
const MOST: f64 = 10.0;
const FEW: f64 = 8.0;

static LOGP: Group = Group {
    class: Class::Model,
    source: Source {
        document: "LogGP (Alexandrov, Ionescu, Schauser, Scheiman), SPAA 1995",
        place: "the cost of messages",
    },
    sentence: "schedules of this project cost what LogGP says, with parameters measured on the same machine",
    tolerance: Tolerance::Absolute(0.0),
    rule: "this project's bar of 10 %, from 8 ranks on",
};

/// A line's name and its percent.
type Off = (String, f64);

/// By how many percent LogP is off at most, and the curves of some algorithms.
fn judged(
    (site, name): (&Site, &str),
    model: &LogGp,
    algorithms: &[Algorithm],
    sizes: &[u32],
) -> Result<(Vec<Off>, Vec<Series>), Failure> {
    let (mut all, mut series) = (Vec::new(), Vec::new());
    for (colour, algorithm) in algorithms.iter().enumerate() {
        let [simulated, predicted] = curves(site, model, *algorithm, sizes)?;
        let both = simulated.iter().zip(&predicted).filter(|(took, _)| took.0 >= FEW);
        let off = both.map(|(took, cost)| 100.0 * (took.1 / cost.1 - 1.0).abs());
        let [line, took, cost] = algorithm.names();
        let worst = off.fold(0.0, f64::max);
        all.push((format!("{name}: {line}, off LogP"), worst));
        series.push(Series { name: took, style: Style::Line, colour, points: simulated });
        series.push(Series { name: cost, style: Style::Dashed, colour, points: predicted });
    }
    Ok((all, series))
}

/// A machine's name, that of its second picture, and its title.
type Names = [&'static str; 3];

fn part(site: &Site, quick: bool, [name, larger, title]: Names) -> Result<Part, Failure> {
    let sizes = |most: u32| -> Vec<u32> { (1..=most).map(|power| 1 << power).collect() };
    let (model, with_bytes) = (site.logp(0)?, site.loggp()?);
    let here = (site, name);
    let (mut all, series) = judged(here, &model, &Algorithm::SMALL, &sizes(if quick { 6 } else { 10 }))?;
    // A ring takes as many messages as the square of the ranks.
    let (more, bulk) = judged(here, &with_bytes, &Algorithm::LARGE, &sizes(if quick { 5 } else { 7 }))?;
    let mut notes = Vec::new();
    for ((line, off), algorithm) in more.into_iter().zip(Algorithm::LARGE) {
        if site.sends_whole() || algorithm.sends_many_packets() {
            all.push((line, off));
        } else {
            notes.push(format!("not judged, messages of a few packets: {line}: {off:.1} %"));
        }
    }
    let lines = all.into_iter().map(|(name, off)| LOGP.at_most(name, "%", MOST, off)).collect();
    let micros = |span: Span| span.picos() as f64 * 1e-6;
    let parameters = |name: &str, model: &LogGp| {
        format!(
            "{name}: L = {:.3} us, o = {:.3} us, g = {:.3} us, G = {:.3} ns/B, O = {:.3} ns/B",
            micros(model.latency),
            micros(model.overhead),
            micros(model.gap),
            model.per_byte * 1e-3,
            model.busy_per_byte * 1e-3
        )
    };
    notes.extend([parameters("LogP", &model), parameters("LogGP, messages with payload", &with_bytes)]);
    let plot = |name, subtitle, series| Plot {
        name,
        title,
        subtitle,
        x: Axis { label: "ranks", scale: Scale::Binary },
        y: Axis { label: "time, us", scale: Scale::Decimal },
        series,
    };
    let begun = "8 bytes of each rank; ranks at one switch; from the common beginning to the last end";
    let sized = "sizes that each is made for; ranks at one switch; from the common beginning to the last end";
    let plots = vec![plot(name, begun, series), plot(larger, sized, bulk)];
    Ok(Part { title, lines, notes, plots, ..Part::default() })
}

/// A machine's figures.
type Run = fn(&Cli) -> Result<Part, Failure>;

/// The machines.
const PARTS: Parts<Run> = Parts(&[
    ("extoll", "collective operations on EXTOLL", |cli| {
        let parameters = Settings::new(cli)?
            .change(extoll_sim::model::Parameters::cluster(), extoll_sim::model::Parameters::from_toml)?;
        let machine = ExtollConfig { parameters, ..ExtollConfig::pair() };
        part(
            &Site::Extoll(Box::new(machine)),
            cli.quick,
            ["extoll", "extoll-larger", "EXTOLL: collective operations"],
        )
    }),
    ("portals", "collective operations on Portals", |cli| {
        let parameters = Settings::new(cli)?
            .change(portals_sim::model::Parameters::xt4(), portals_sim::model::Parameters::from_toml)?;
        let machine = PortalsConfig { parameters, ..PortalsConfig::pair() };
        part(
            &Site::Portals(Box::new(machine)),
            cli.quick,
            ["portals", "portals-larger", "Portals: collective operations"],
        )
    }),
]);

/// Runs all machines, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: parameters that make no sense, or a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    PARTS.run(cli, report, |part, _| part(cli))
}
