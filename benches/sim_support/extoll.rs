//! EXTOLL in both kinds of time. Virtual: half a round trip on the raw interface and on both conduits, 8 B to 1
//! MiB, which the parameter table fixes. On one core: how many messages and round trips a second the simulation
//! gets through, with everything that the interface and the conduits do.

use active_messages::{Address, Endpoint, Handlers, Payload, Rank, Span, Transport};
use extoll_sim::ExtollConfig;
use extoll_sim::conduit::gasnet::{self, GasnetConfig};
use extoll_sim::conduit::pscom::{self, PscomConfig};
use fabric_sim::RunError;

use super::measure::{Bench, Counted};
use lab::bench::command::Mode;
use lab::bench::summary::{Bar, Unit};
use lab_sim::figures::extoll::pairs::{self, Kind, Trips};

/// Round trips of each size; they take the same virtual time.
const TRIPS: u32 = 4;

/// All figures of EXTOLL.
pub(crate) fn measure(bench: &mut Bench<'_>) {
    let machine = ExtollConfig::pair();
    for bytes in (3..=20).step_by(3).chain([20]).map(|power| 1_usize << power) {
        sweep(bench, &machine, bytes);
    }
    let many = if bench.mode() == Mode::Test { 100 } else { 50_000 };
    one_core(bench, &machine, many);
}

/// The virtual latency of messages of one size, layer by layer.
fn sweep(bench: &mut Bench<'_>, machine: &ExtollConfig, bytes: usize) {
    let trips = [Trips { bytes, count: TRIPS }];
    let name = |layer: &str| format!("virtual/extoll/{layer}/{bytes} B");
    let (velo, rma) = (name("raw VELO"), name("raw RMA"));
    bench.virtual_time(&velo, None, || half(pairs::raw_velo(machine, &trips)));
    bench.virtual_time(&rma, None, || half(pairs::raw_rma(machine, &trips)));
    let (kind, raw) = match bytes {
        0..=8 => (Kind::Short, &velo),
        9..=8192 => (Kind::Medium, &velo),
        _ => (Kind::Long, &rma),
    };
    let gasnet = GasnetConfig::default();
    bench.virtual_time(&name("gasnet"), Some(raw), || half(pairs::conduit(machine, &gasnet, kind, &trips)));
    bench.virtual_time(&name("pscom"), Some(raw), || half(two_sided(machine, kind, &trips)));
}

/// Active messages over two-sided ones.
fn two_sided(machine: &ExtollConfig, kind: Kind, trips: &[Trips]) -> Result<Vec<Span>, RunError> {
    let mut config = PscomConfig::default();
    let largest = trips.iter().map(|trips| trips.bytes).max().unwrap_or(0);
    config.am.segment = config.am.segment.max(largest as u64);
    let trips = trips.to_vec();
    let report = pscom::run(machine, &config, move |transport| pairs::answered(transport, kind, &trips))?;
    Ok(report.results.into_iter().flatten().next().unwrap_or_default())
}

/// Half the time of a round trip.
fn half(times: Result<Vec<Span>, RunError>) -> Span {
    let times = times.expect("a ping-pong ends");
    Span(times[0].0 / u64::from(2 * TRIPS))
}

/// What the simulation gets through on one core.
fn one_core(bench: &mut Bench<'_>, machine: &ExtollConfig, many: u32) {
    let trips = [Trips { bytes: 8, count: many }];
    let figure = |name: &str, amount: u32, bar| Counted {
        name: format!("extoll/{name}"),
        unit: Unit::MillionPerSecond,
        amount: amount.into(),
        bar,
        heap: None,
    };
    let raw = figure("raw VELO ping-pong, messages", 2 * many, None);
    bench.one_core(u64::from(2 * many), &[raw], || {
        pairs::raw_velo(machine, &trips).expect("a ping-pong ends");
    });
    let gasnet = GasnetConfig::default();
    let round = figure("gasnet Short round trips", many, Some(Bar::ValueAtLeast(1.0)));
    bench.one_core(u64::from(many), &[round], || {
        pairs::conduit(machine, &gasnet, Kind::Short, &trips).expect("a ping-pong ends");
    });
    let round = figure("pscom Short round trips", many, None);
    bench.one_core(u64::from(many), &[round], || {
        two_sided(machine, Kind::Short, &trips).expect("a ping-pong ends");
    });
    let flood_of = figure("gasnet flood of Shorts, messages", many, None);
    bench.one_core(u64::from(many), &[flood_of], || {
        let report = gasnet::run(machine, &gasnet, move |transport| flood(transport, many));
        assert_eq!(report.expect("a flood ends").results[1], Some(u64::from(many)));
    });
}

/// Rank 0 sends one-way messages, and each rank tells how many it got.
fn flood<T: Transport>(transport: T, many: u32) -> u64 {
    let mut handlers = Handlers::new();
    let count = |got: &mut u64, _: Address, _: u64, _: Payload<'_>| *got += 1;
    let count = handlers.one_way("count", count).expect("the table has room");
    let mut endpoint = Endpoint::attach(transport, handlers, 0).expect("both ranks register alike");
    if endpoint.rank() == Rank(0) {
        (0..many).for_each(|number| {
            endpoint.request(Rank(1), count, number.into()).expect("rank 1 serves until all is done");
        });
    }
    endpoint.finish().expect("both ranks end")
}
