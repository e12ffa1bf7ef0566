//! Collective operations: how long they take over the number of ranks, beside what PLogP says.
//!
//! The ranks are those of one switch, which no two messages share, so that nothing is contended but the ranks
//! themselves. The parameters of PLogP, which are LogP's for each size of a message, are measured on the same
//! machine, between ranks that do nothing else, with messages as the operations send them. Besides its own
//! messages an operation pays for acknowledgements and credits, which the prediction has, too: it is for
//! operations in a row, as they are measured.

mod algorithm;
mod programs;

use crate::conduits::Program;
use crate::figures::cli::Cli;
use crate::figures::line::{Class, Group, Source, Tolerance};
use crate::figures::parts::Parts;
use crate::figures::plot::{Axis, Plot, Scale, Series, Style};
use crate::figures::report::{Failure, Part, Report};
use crate::figures::settings::Settings;
use active_messages::Span;
use active_messages::pgas::collectives::schedule::{PLogP, Upkeep, mean_cost};
use algorithm::{Algorithm, PICTURES};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use fabric_sim::{RunError, Topology};
use portals_sim::PortalsConfig;
use portals_sim::conduit::{self, ConduitConfig};
use programs::{Calibration, Measured, Timing};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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

    /// How members give each other room again. EXTOLL's conduit returns credits when it idles or has looked 16
    /// times; that of Portals answers each message.
    fn upkeep(&self) -> Upkeep {
        let looks = if matches!(self, Self::Extoll(_)) { Some(16) } else { None };
        Upkeep { window: WINDOW, looks }
    }

    /// What messages of so many bytes cost, as operations send them.
    fn cost(&self, bytes: usize) -> Result<PLogP, Failure> {
        let ranks = self.run(1 + programs::BURST, Calibration(bytes))?;
        let Measured { overhead, received, awaited, .. } = ranks[0];
        let arrivals: Vec<u64> = ranks[1..].iter().map(|rank| rank.arrival).collect();
        let (first, last) = (arrivals.iter().min(), arrivals.iter().max());
        let spread = last.zip(first).map_or(0, |(last, first)| last - first);
        let each = |span: u64| Span(span / u64::from(programs::BURST - 1));
        let (send, gap) = (Span(overhead), each(spread).max(Span(overhead)));
        let [more, gap_in] = [received, awaited].map(|[one, all]| each(all.saturating_sub(one)));
        // Where they come no faster than the processor takes them, how fast they could come does not show.
        let gap_in = if gap_in > more { gap_in } else { Span::ZERO };
        Ok(PLogP { send, gap, gap_in, receive: Span(received[0]), more, one_way: Span(awaited[0]) })
    }
}

/// The usual window of messages from one member to another.
const WINDOW: u32 = 8;

/// Bytes of a word.
const WORD: usize = 8;

/// Times in microseconds over numbers of ranks.
type Curve = Vec<(f64, f64)>;

/// What messages cost, by their bytes.
type Model = BTreeMap<usize, PLogP>;

/// Finds out what messages of so many bytes cost, unless that is known.
fn model_of(site: &Site, model: &mut Model, bytes: usize) -> Result<(), Failure> {
    if let Entry::Vacant(entry) = model.entry(bytes) {
        entry.insert(site.cost(bytes)?);
    }
    Ok(())
}

/// What an algorithm takes on a machine, and what PLogP says.
fn curves(site: &Site, model: &mut Model, algorithm: Algorithm, sizes: &[u32]) -> Result<[Curve; 2], Failure> {
    let (mut simulated, mut predicted) = (Vec::new(), Vec::new());
    for ranks in sizes.iter().filter(|ranks| algorithm.fits(**ranks)) {
        let took = site.run(*ranks, Timing(algorithm))?;
        let rounds = took.first().map_or(0, Vec::len);
        // An operation is over when it is over everywhere.
        let last = |round: usize| took.iter().map(|rank| rank[round]).max().unwrap_or(0);
        let mean = (0..rounds).map(last).sum::<u64>() as f64 / rounds as f64;
        simulated.push((f64::from(*ranks), mean * 1e-6));
        for bytes in [0, WORD] {
            model_of(site, model, bytes)?;
        }
        let schedules: Vec<_> = (0..*ranks).map(|me| algorithm.schedule(me as usize, *ranks as usize)).collect();
        for schedule in &schedules {
            let sends = (0..schedule.rounds()).flat_map(|round| schedule.round(round).sends);
            for bytes in sends.map(|send| WORD * send.part.len) {
                model_of(site, model, bytes)?;
            }
        }
        let between: Vec<_> = (0..*ranks as usize).map(|me| algorithm::beginning(me, *ranks as usize)).collect();
        let both = [between.as_slice(), schedules.as_slice()];
        let cost = mean_cost(both, WORD, rounds, site.upkeep(), |bytes| model[&bytes]);
        let cost = cost.expect("schedules come to an end");
        predicted.push((f64::from(*ranks), cost.picos() as f64 * 1e-6));
    }
    Ok([simulated, predicted])
}

/// How far off PLogP is at most, in percent, and from how many ranks on. With fewer, a message of credits more or
/// less is a good part of it.
const MOST: f64 = 10.0;
const FEW: f64 = 4.0;

static PLOGP: Group = Group {
    class: Class::Model,
    source: Source {
        document: "Fast Measurement of LogP Parameters (Kielmann, Bal, Verstoep), IPDPS workshops 2000",
        place: "PLogP, LogP by the size of a message",
    },
    sentence: "schedules of this project cost what PLogP says, with parameters measured on the same machine",
    tolerance: Tolerance::Absolute(0.0),
    rule: "this project's bar of 10 %, from 4 ranks on",
};

/// A line's name and its percent.
type Off = (String, f64);

/// How far off lines are, their curves, and where each is farthest off.
type Judged = (Vec<Off>, Vec<Series>, Vec<String>);

/// By how many percent PLogP is off at most, the curves of some algorithms, and where each is farthest off.
fn judged(
    (site, name): (&Site, &str),
    model: &mut Model,
    algorithms: &[Algorithm],
    sizes: &[u32],
) -> Result<Judged, Failure> {
    let (mut all, mut series, mut worsts) = (Vec::new(), Vec::new(), Vec::new());
    for (colour, algorithm) in algorithms.iter().enumerate() {
        let [simulated, predicted] = curves(site, model, *algorithm, sizes)?;
        let both = simulated.iter().zip(&predicted).filter(|(took, _)| took.0 >= FEW);
        let off = both.map(|(took, cost)| (took.0, 100.0 * (took.1 / cost.1 - 1.0)));
        let (ranks, worst) = off.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap_or_default();
        let [line, took, cost] = algorithm.names();
        all.push((format!("{name}: {line}, off PLogP"), worst.abs()));
        worsts.push(format!("{line}: {worst:+.1} % with {ranks} ranks"));
        series.push(Series { name: took, style: Style::Line, colour, points: simulated });
        series.push(Series { name: cost, style: Style::Dashed, colour, points: predicted });
    }
    Ok((all, series, worsts))
}

/// The numbers of ranks up to a power of two: the powers, and an odd one between any two.
fn sizes(most: u32) -> Vec<u32> {
    let between = |power: u32| 3 * (1 << power) / 2 - u32::from(power > 1);
    (1..=most).flat_map(|power| [1 << power, between(power)]).filter(|ranks| *ranks <= 1 << most).collect()
}

/// The pictures of a machine, whose name and title are given.
fn part(site: &Site, quick: bool, [name, title]: [&'static str; 2]) -> Result<Part, Failure> {
    let mut model = Model::new();
    let (mut lines, mut notes, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    for picture in &PICTURES {
        let [few, many] = picture.most;
        let sizes = sizes(if quick { few } else { many });
        let (all, series, worsts) = judged((site, name), &mut model, picture.algorithms, &sizes)?;
        lines.extend(all.into_iter().map(|(name, off)| PLOGP.at_most(name, "%", MOST, off)));
        notes.extend(worsts);
        plots.push(Plot {
            name: picture.names[usize::from(name == PICTURES[0].names[1])],
            title,
            subtitle: picture.subtitle,
            x: Axis { label: "ranks", scale: Scale::Binary },
            y: Axis { label: "time, us", scale: Scale::Decimal },
            series,
        });
    }
    let micros = |span: Span| span.picos() as f64 * 1e-6;
    notes.extend(model.iter().map(|(bytes, PLogP { send, gap, gap_in, receive, more, one_way })| {
        let [send, gap, gap_in] = [send, gap, gap_in].map(|span| micros(*span));
        let [receive, more, one_way] = [receive, more, one_way].map(|span| micros(*span));
        format!(
            "{bytes} B: {send:.3} us to send, {gap:.3} us to the next one sent, {gap_in:.3} us to \
             the next one that comes, {receive:.3} us to receive, {more:.3} us \
             for another one, {one_way:.3} us one way"
        )
    }));
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
        part(&Site::Extoll(Box::new(machine)), cli.quick, ["extoll", "EXTOLL: collective operations"])
    }),
    ("portals", "collective operations on Portals", |cli| {
        let parameters = Settings::new(cli)?
            .change(portals_sim::model::Parameters::xt4(), portals_sim::model::Parameters::from_toml)?;
        let machine = PortalsConfig { parameters, ..PortalsConfig::pair() };
        part(&Site::Portals(Box::new(machine)), cli.quick, ["portals", "Portals: collective operations"])
    }),
]);

/// Runs all machines, or those that the command line chooses.
///
/// # Errors
/// [`Failure`]: parameters that make no sense, or a simulation that failed.
pub(crate) fn run(cli: &Cli, report: &mut Report) -> Result<(), Failure> {
    PARTS.run(cli, report, |part, _| part(cli))
}
