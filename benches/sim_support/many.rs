//! A thousand ranks with a conduit: how many events a second one core gets through while each sends Shorts to its
//! neighbours, or to ranks drawn at random, as RandomAccess does.

use active_messages::{Address, Endpoint, Handlers, Instant, Payload, Rank, Transport};
use fabric_sim::{Processors, Topology, splitmix64};
use lab_sim::conduits::{Conduit, Program, Room};

use super::measure::{Bench, Counted};
use lab::bench::command::Mode;
use lab::bench::summary::{Bar, Unit};

/// How far away in number a rank's neighbours are, on either side.
const APART: [u32; 3] = [1, 16, 256];

/// To whom ranks send.
#[derive(Clone, Copy)]
enum Load {
    /// So often to each neighbour, and on when all have come.
    Neighbours(u32),
    /// So many to ranks at random.
    Random(u32),
}

impl Program for Load {
    type Result = u64;

    fn play<T: Transport>(self, transport: T) -> u64 {
        play(transport, self)
    }
}

/// One rank; returns how many messages it got.
fn play(transport: impl Transport, load: Load) -> u64 {
    let mut handlers = Handlers::new();
    let count = |got: &mut u64, _: Address, _: u64, _: Payload<'_>| *got += 1;
    let count = handlers.one_way("count", count).expect("the table has room");
    let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("all ranks register alike");
    let (me, ranks) = (endpoint.rank().0, endpoint.ranks());
    let send = |endpoint: &mut Endpoint<_, _>, to: u32| {
        endpoint.request(Rank(to), count, u64::from(me)).expect("all serve until all is done");
    };
    match load {
        Load::Neighbours(times) => {
            for time in 1..=u64::from(times) {
                // A test's ranks are fewer.
                for apart in APART.map(|apart| apart % ranks) {
                    send(&mut endpoint, (me + apart) % ranks);
                    send(&mut endpoint, (me + ranks - apart) % ranks);
                }
                endpoint.wait_until(|got| *got >= time * 6).expect("the neighbours send as often");
            }
        }
        Load::Random(times) => {
            let mut draws = u64::from(me);
            for _ in 0..times {
                send(&mut endpoint, (splitmix64(&mut draws) % u64::from(ranks)) as u32);
            }
        }
    }
    endpoint.finish().expect("all ranks end")
}

/// The conduits that so many ranks fit: SCI's command segments of a thousand nodes would fill the memory.
fn conduits() -> impl Iterator<Item = Conduit> {
    Conduit::ALL.into_iter().filter(|conduit| *conduit != Conduit::Sci)
}

/// A run of a thousand ranks: on how many processors its halves are simulated, if they are; its hash and events.
pub(crate) type Halved = Box<dyn Fn(Option<Processors>) -> (u64, u64)>;

/// Runs in halves by their names: with each conduit whose machine can be halved, to neighbours and at random.
pub(crate) fn halved(dims: [u32; 3], times: u32) -> Vec<(String, Halved)> {
    let loads = [("neighbours", Load::Neighbours(times)), ("random", Load::Random(2 * times))];
    let runs = conduits().filter(|conduit| *conduit != Conduit::Machine).flat_map(|conduit| {
        loads.map(|(what, load)| -> (String, Halved) {
            let topology = Topology::Torus { dims: dims.to_vec() };
            let play = move |processors| {
                let ranks = dims.iter().product();
                let report = conduit.run_on(processors, ranks, topology.clone(), Room::Usual, load);
                let report = report.expect("the ranks end");
                (report.hash, report.events)
            };
            (format!("{}, {what}", conduit.name()), Box::new(play))
        })
    });
    runs.collect()
}

/// Runs by their names: with each conduit, to neighbours and at random.
pub(crate) fn runs(dims: [u32; 3], times: u32) -> Vec<(String, Box<dyn Fn()>)> {
    let loads = [("neighbours", Load::Neighbours(times)), ("random", Load::Random(2 * times))];
    let runs = conduits().flat_map(|conduit| {
        loads.map(|(what, load)| -> (String, Box<dyn Fn()>) {
            let topology = Topology::Torus { dims: dims.to_vec() };
            let play = move || {
                let run = conduit.run(dims.iter().product(), topology.clone(), Room::Usual, load);
                drop(run.expect("the ranks end"));
            };
            (format!("{}, {what}", conduit.name()), Box::new(play))
        })
    });
    runs.collect()
}

/// All figures of a thousand ranks.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let (test, dims) = (bench.mode() == Mode::Test, [8, 8, 16]);
    let dims = if test { [4, 4, 4] } else { dims };
    let (ranks, times) = (dims.iter().product(), if test { 2 } else { 100 });
    for conduit in conduits() {
        for (what, load) in [("neighbours", Load::Neighbours(times)), ("random", Load::Random(2 * times))] {
            let name = format!("many/{}, 1024 ranks, {what}, events", conduit.name());
            if !bench.wants(&name) {
                continue;
            }
            let play = || {
                let topology = Topology::Torus { dims: dims.to_vec() };
                let report = conduit.run(ranks, topology, Room::Usual, load).expect("the ranks end");
                (report.events, report.hash, report.ended)
            };
            let all = play();
            if !test {
                println!(
                    "{name}: {} events in {} of virtual time, hash {:016x}",
                    all.0,
                    all.2.since(Instant(0)),
                    all.1
                );
            }
            let (unit, bar) = (Unit::MillionPerSecond, Some(Bar::ValueAtLeast(2.0)));
            let figure = Counted { name, unit, amount: all.0 as f64, bar, heap: None };
            bench.one_core(all.0, &[figure], || assert_eq!(play(), all, "every run is the same"));
        }
    }
}
