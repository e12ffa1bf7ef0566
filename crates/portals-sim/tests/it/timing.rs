//! The parameter table's totals against the sheet, and the machine's shape behind them.

use fabric_sim::{Report, Topology};
use portals_sim::model::Parameters;
use portals_sim::nic::HostMemory;
use portals_sim::nic::p3::{Ack, Criteria, EqHandle, EventKind, Md, MdHandle, Options, P3, Position, Unlink};
use portals_sim::{Nic, PortalsConfig};

fn run<R: 'static>(config: &PortalsConfig, program: impl Fn(Nic<'_>) -> R + 'static) -> Report<R> {
    portals_sim::run(config, program).unwrap_or_else(|error| panic!("{error}"))
}

fn near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what}: {found:.4}, wanted {wanted:.4} +- {tolerance}");
}

/// Memory that everyone may put to and get from, and an event queue.
fn open(nic: &Nic<'_>, bytes: usize) -> (MdHandle, EqHandle) {
    let (p3, memory) = (nic.p3(), HostMemory::new(bytes));
    p3.init().unwrap();
    let eq = p3.eq_alloc(1 << 16).unwrap();
    let me = p3.me_attach(0, Criteria::bits(0, 0), Unlink::Retain, Position::After).unwrap();
    let options = Options::OP_PUT | Options::OP_GET | Options::MANAGE_REMOTE | Options::EVENT_START_DISABLE;
    let md = p3.md_attach(me, &Md { eq: Some(eq), ..Md::new(&memory, options) }, Unlink::Retain).unwrap();
    nic.launched();
    (md, eq)
}

fn wait(p3: &P3<'_>, eq: EqHandle, kind: EventKind) {
    while p3.eq_wait(eq, None).unwrap().kind != kind {}
}

fn us(nic: &Nic<'_>, began: am_core::Instant) -> f64 {
    nic.now().since(began).0 as f64 / 1e6
}

/// Time of a blocking put or get between two ranks, in microseconds, without the conduit's software.
fn blocking(config: &PortalsConfig, to: u32, bytes: u32, get: bool) -> f64 {
    let report = run(config, move |nic| {
        let (p3, (md, eq)) = (nic.p3(), open(&nic, 1 << 21));
        let began = nic.now();
        if nic.rank() != 0 {
            return 0.0;
        }
        let peer = nic.id(to).unwrap();
        if get {
            p3.get(md, 0, bytes, peer, 0, 0, 0).unwrap();
            wait(&p3, eq, EventKind::ReplyEnd);
        } else {
            p3.put(md, 0, bytes, Ack::Request, peer, 0, 0, 0, 0).unwrap();
            wait(&p3, eq, EventKind::Ack);
        }
        us(&nic, began)
    });
    report.results[0].unwrap()
}

/// Bandwidth of a flood of puts in MB/s.
fn flood(bytes: u32, puts: u32) -> f64 {
    let report = run(&PortalsConfig::pair(), move |nic| {
        let (p3, (md, eq)) = (nic.p3(), open(&nic, 1 << 21));
        if nic.rank() == 1 {
            let mut began = None;
            for _ in 0..puts {
                wait(&p3, eq, EventKind::PutEnd);
                began.get_or_insert(nic.now());
            }
            return f64::from(bytes) * f64::from(puts - 1) / us(&nic, began.unwrap());
        }
        // No more at once than there are DMA slots.
        for number in 0..puts {
            if number >= 64 {
                wait(&p3, eq, EventKind::SendEnd);
            }
            p3.put(md, 0, bytes, Ack::None, nic.id(1).unwrap(), 0, 0, 0, 0).unwrap();
        }
        0.0
    });
    report.results[1].unwrap()
}

#[test]
fn a_put_takes_what_the_sheet_says_and_less_than_over_mpi() {
    let parameters = Parameters::xt4();
    let put = blocking(&PortalsConfig::pair(), 1, 1, false) + parameters.software.gasnet_ns / 1e3;
    near(put, 10.0, 0.01, "a blocking put of one byte in us");
    let (ping, over_mpi) = (parameters.mpi.ping_ack_ns / 1e3, parameters.mpi.conduit_put_ns / 1e3);
    assert!(put < ping && ping < over_mpi && over_mpi / put > 1.8, "{put} < {ping} < {over_mpi}");
}

#[test]
fn a_message_of_no_bytes_takes_less_than_six_microseconds() {
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p3, (md, eq)) = (nic.p3(), open(&nic, 64));
        let began = nic.now();
        if nic.rank() == 0 {
            p3.put(md, 0, 0, Ack::None, nic.id(1).unwrap(), 0, 0, 0, 0).unwrap();
        } else {
            wait(&p3, eq, EventKind::PutEnd);
        }
        [began, nic.now()]
    });
    let [[began, _], [_, ended]] = [0, 1].map(|rank| report.results[rank].unwrap());
    let one_way = ended.since(began).0 as f64 / 1e6;
    near(one_way, 5.7 + 0.074, 0.001, "one way in us, with the look at the queue");
    assert!(one_way < 6.0);
}

/// Request and reply, each taken by its processor as the conduit does it.
#[test]
fn a_round_trip_takes_thirteen_microseconds() {
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p3, (md, eq)) = (nic.p3(), open(&nic, 64));
        let software = am_core::Span((nic.parameters().software.gasnet_ns * 1e3) as u64);
        let peer = nic.id(1 - nic.rank()).unwrap();
        let put = || p3.put(md, 0, 0, Ack::None, peer, 0, 0, 0, 0).unwrap();
        let take = || {
            wait(&p3, eq, EventKind::PutEnd);
            nic.charge(software);
        };
        let began = nic.now();
        for _ in 0..10 {
            if nic.rank() == 0 {
                put();
                take();
            } else {
                take();
                put();
            }
        }
        us(&nic, began) / 10.0
    });
    let (found, parameters) = (report.results[0].unwrap(), Parameters::xt4());
    near(found, 13.0, 0.1, "a round trip in us");
    assert!(found < parameters.mpi.conduit_round_trip_ns / 1e3);
}

#[test]
fn portals_4_takes_as_long() {
    use portals_sim::nic::p4;
    let report = run(&PortalsConfig::pair(), |nic| {
        let (p4, memory) = (nic.p4(), HostMemory::new(64));
        p4.init(None).unwrap();
        let eq = p4.eq_alloc(16).unwrap();
        let pt_index = p4.pt_alloc(p4::PtOptions::NONE, None, None).unwrap();
        let me = p4::Me::new(&memory, p4::MeOptions::OP_PUT, 0, 0);
        p4.me_append(pt_index, &me, p4::List::Priority, 0).unwrap();
        let md = p4.md_bind(&p4::Md { eq: Some(eq), ..p4::Md::new(&memory) }).unwrap();
        nic.launched();
        let began = nic.now();
        if nic.rank() == 0 {
            let process = nic.id(1).unwrap().into();
            let target = p4::Target { process, pt_index, match_bits: 0, offset: 0 };
            let from = p4::Region { md, offset: 0 };
            let ack = p4::Ack::Request;
            p4.put(&p4::Put { from, length: 1, ack, target, user_ptr: 0, hdr_data: 0 }).unwrap();
            while p4.eq_wait(eq, None).unwrap().kind != p4::EventKind::Ack {}
        }
        us(&nic, began)
    });
    let put = report.results[0].unwrap() + Parameters::xt4().software.gasnet_ns / 1e3;
    near(put, 10.0, 0.01, "a blocking put of one byte in us");
}

#[test]
fn bandwidth_follows_the_curve_and_stays_below_the_axis() {
    for bytes in [64, 1024, 4096, 16_384, 65_536, 1 << 20] {
        let (found, model) = (flood(bytes, 200), 1650.0 * f64::from(bytes) / (f64::from(bytes) + 4096.0));
        near(found / model, 1.0, 0.02, &format!("{bytes} bytes at {found:.0} of {model:.0} MB/s"));
        assert!(found < 1800.0);
    }
}

#[test]
fn bytes_count_once_on_the_way() {
    let (small, large) =
        (blocking(&PortalsConfig::pair(), 1, 1, false), blocking(&PortalsConfig::pair(), 1, 1 << 20, false));
    near(large - small, f64::from((1 << 20) - 1) / 1650.0, 1.0, "a mebibyte more in us");
    let (small, large) =
        (blocking(&PortalsConfig::pair(), 1, 1, true), blocking(&PortalsConfig::pair(), 1, 1 << 20, true));
    near(large - small, f64::from((1 << 20) - 1) / 1650.0, 1.0, "a mebibyte more to get in us");
    assert!(small < 12.0, "a get takes {small} us");
}

#[test]
fn a_hop_more_takes_its_latency_each_way() {
    let config = PortalsConfig::new(8, Topology::Torus { dims: vec![8, 1, 1] });
    let [one, two, four] = [1, 2, 4].map(|to| blocking(&config, to, 1, false));
    near(two - one, 0.1, 0.001, "one hop more in us");
    near(four - one, 0.3, 0.001, "three hops more in us");
}

#[test]
fn a_command_waits_for_a_dma_slot() {
    let sent = |puts: u32| {
        let report = run(&PortalsConfig::pair(), move |nic| {
            let (p3, (md, _)) = (nic.p3(), open(&nic, 64));
            let began = nic.now();
            if nic.rank() == 0 {
                for _ in 0..puts {
                    p3.put(md, 0, 0, Ack::None, nic.id(1).unwrap(), 0, 0, 0, 0).unwrap();
                }
            }
            (us(&nic, began) / f64::from(puts), nic.counters().overloads)
        });
        report.results[0].unwrap()
    };
    // The processor alone is faster than the engine, which is soon behind by all slots.
    assert_eq!(sent(256), (0.9, 0));
    let (each, waited) = sent(10_000);
    assert!(waited > 3_000, "{waited} of 10000 waited");
    assert!((2.3..2.6).contains(&each), "{each} us for each command");
}

/// A slow node is slow, and nothing is out of order for it.
#[test]
fn a_slow_node_takes_longer() {
    use fabric_sim::{FaultEvent, Faults, Scheduled};
    let slow = |node, factor| {
        let schedule = vec![Scheduled { at_ns: 0.0, event: FaultEvent::NodeSlow { node, factor } }];
        let faults = Faults { schedule, ..Faults::default() };
        blocking(&PortalsConfig { faults, ..PortalsConfig::pair() }, 1, 1, false)
    };
    let normal = slow(0, 1.0);
    assert!(slow(0, 10.0) > normal + 15.0 && slow(1, 10.0) > normal + 9.0);
}
