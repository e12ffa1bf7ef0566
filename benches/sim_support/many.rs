//! A thousand ranks with a conduit: how many events a second one core gets through while each sends Shorts to its
//! neighbours, or to ranks drawn at random, as RandomAccess does.

use active_messages::{Address, Endpoint, Handlers, Instant, Payload, Rank, Transport};
use exanet_sim::{ExanetConfig, conduit as exanet};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::{gasnet, pscom};
use fabric_sim::{Report, RunError, Topology, splitmix64};
use machine_sim::{MachineConfig, conduit as machine};
use portals_sim::{PortalsConfig, conduit as portals};

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

/// A run of so many ranks in a torus with a conduit.
type Run = fn(u32, Topology, Load) -> Result<Report<u64>, RunError>;

const CONDUITS: [(&str, Run); 5] = [
    ("gasnet", |ranks, topology, load| {
        let machine = ExtollConfig::new(ranks, topology);
        gasnet::run(&machine, &gasnet::GasnetConfig::default(), move |transport| play(transport, load))
    }),
    ("pscom", |ranks, topology, load| {
        let machine = ExtollConfig::new(ranks, topology);
        pscom::run(&machine, &pscom::PscomConfig::default(), move |transport| play(transport, load))
    }),
    ("portals", |ranks, topology, load| {
        let machine = PortalsConfig::new(ranks, topology);
        portals::run(&machine, &portals::ConduitConfig::default(), move |transport| play(transport, load))
    }),
    ("exanet", |ranks, topology, load| {
        let machine = ExanetConfig::new(ranks, topology);
        exanet::run(&machine, &exanet::ConduitConfig::default(), move |transport| play(transport, load))
    }),
    ("machine", |ranks, topology, load| {
        let machine = MachineConfig::new(ranks, topology);
        machine::run(&machine, &machine::ConduitConfig::default(), move |transport| play(transport, load))
    }),
];

/// All figures of a thousand ranks.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let (test, dims) = (bench.mode() == Mode::Test, [8, 8, 16]);
    let dims = if test { [4, 4, 4] } else { dims };
    let (ranks, times) = (dims.iter().product(), if test { 2 } else { 100 });
    for (conduit, run) in CONDUITS {
        for (what, load) in [("neighbours", Load::Neighbours(times)), ("random", Load::Random(2 * times))] {
            let name = format!("many/{conduit}, 1024 ranks, {what}, events");
            if !bench.wants(&name) {
                continue;
            }
            let play = || {
                let report = run(ranks, Topology::Torus { dims: dims.to_vec() }, load).expect("the ranks end");
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
