//! The parameter tables' totals against the published figures, and the machine's shape behind them.

use am_core::Span;
use extoll_sim::model::Parameters;
use extoll_sim::model::fit::{Given, TRAINING_SET, fit};
use extoll_sim::nic::HostMemory;
use extoll_sim::nic::rma::{Access, Notify};
use extoll_sim::{ExtollConfig, Nic};
use fabric_sim::{Report, Topology};

fn config(parameters: Parameters) -> ExtollConfig {
    ExtollConfig { parameters, ..ExtollConfig::pair() }
}

fn us(picos: u64) -> f64 {
    picos as f64 / 1e6
}

fn run<R: 'static>(config: &ExtollConfig, program: impl Fn(Nic<'_>) -> R + 'static) -> Report<R> {
    extoll_sim::run(config, program).unwrap_or_else(|error| panic!("{error}"))
}

/// Time from the start of a stream of packets until the last is in the receiver's hands, in microseconds.
fn velo_stream(parameters: Parameters, packets: u32, bytes: usize) -> f64 {
    let report = run(&config(parameters), move |nic| {
        let velo = nic.velo();
        velo.open().unwrap();
        for _ in 0..packets {
            if nic.rank() == 0 {
                let peer = velo.connect(nic.address(1).unwrap()).unwrap();
                velo.send(peer, &vec![1; bytes], 0, 0).unwrap();
            } else {
                velo.recv(None).unwrap();
            }
        }
        us(nic.now().0)
    });
    report.results[1].unwrap()
}

/// Time from posting a put until its completer notification is in the receiver's hands, in microseconds.
fn put(parameters: Parameters, bytes: u32) -> f64 {
    let report = run(&config(parameters), move |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(bytes as usize));
        rma.open().unwrap();
        let region = rma.register(&memory, 0, bytes.into(), Access::ReadWrite).unwrap();
        // Both ranks are through with it at the same time.
        let registered = nic.now();
        if nic.rank() == 0 {
            let peer = rma.connect(nic.address(1).unwrap()).unwrap();
            let to = rma.nla(region, 0).unwrap();
            rma.post_put_bt(peer, region, 0, bytes, to, Notify::COMPLETER).unwrap();
        } else {
            let came = rma.noti_get_block(None).unwrap();
            rma.noti_free(came).unwrap();
        }
        us(nic.now().since(registered).0)
    });
    report.results[1].unwrap()
}

fn near(found: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((found - wanted).abs() <= tolerance, "{what}: {found:.4} us, wanted {wanted:.4} +- {tolerance}");
}

/// The latency table of the pscom report, with the plugin's software on top: n = ceil((S + 20) / 64) packets.
#[test]
fn velo_reaches_the_latency_table() {
    for parameters in [Parameters::deep(), Parameters::cluster()] {
        let pscom = parameters.pscom.clone();
        for (size, published) in [(32, 2.8), (64, 3.5), (128, 3.9), (256, 4.9), (512, 6.7)] {
            let packets = (size + 20u32).div_ceil(64);
            let reassembly = if packets > 1 { pscom.velo_reassembly_ns } else { 0.0 };
            let software = (pscom.velo_software_ns + reassembly) / 1e3;
            let found = velo_stream(parameters.clone(), packets, 64) + software;
            // 128 and 256 bytes are held out.
            let tolerance = if [128, 256].contains(&size) { 0.1 } else { 0.05 };
            near(found, published, tolerance, &format!("{} with {size} bytes", parameters.name));
            let model = fit(&TRAINING_SET, &Given::evaluator()).velo_us(&TRAINING_SET, size.into());
            near(found, model, 0.01, &format!("the model of {} with {size} bytes", parameters.name));
        }
    }
}

/// T = 4.3 + 0.30 min(k - 1, 8) + 0.0727 max(0, k - 9), of which 1.2 is software.
#[test]
fn rma_reaches_the_latency_model() {
    for fragments in [1, 2, 3, 5, 9, 10, 17, 65, 257] {
        let slow = (fragments - 1).min(8);
        let model = 4.3 + 0.30 * f64::from(slow) + 0.0727 * f64::from(fragments - 1 - slow);
        let found = put(Parameters::deep(), fragments * 64) + 1.2;
        near(found, model, 0.015 + 0.001 * model, &format!("{fragments} fragments"));
    }
    near(put(Parameters::cluster(), 64) + 1.2, 4.3, 0.01, "one fragment on the cluster");
    near(put(Parameters::cluster(), 32) + 1.2, 4.3, 0.1, "32 bytes on the cluster");
}

/// Puts one after the other fill the link: 64 of 79 bytes of 1086 MB/s, at the same time in both directions.
#[test]
fn rma_saturates_the_link_both_ways() {
    let (puts, bytes) = (64, 65_536);
    let report = run(&config(Parameters::deep()), move |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(bytes));
        rma.open().unwrap();
        let region = rma.register(&memory, 0, bytes as u64, Access::ReadWrite).unwrap();
        let peer = rma.connect(nic.address(1 - nic.rank()).unwrap()).unwrap();
        let (to, registered) = (rma.nla(region, 0).unwrap(), nic.now());
        for _ in 0..puts {
            rma.post_put_bt(peer, region, 0, bytes as u32, to, Notify::COMPLETER).unwrap();
        }
        for _ in 0..puts {
            let came = rma.noti_get_block(None).unwrap();
            rma.noti_free(came).unwrap();
        }
        nic.now().since(registered).0
    });
    let slowest = report.results.iter().flatten().max().copied().unwrap();
    let rate = (2 * puts * bytes) as f64 / us(slowest);
    assert!((rate / 1760.0 - 1.0).abs() < 0.03, "{rate:.0} MB/s in both directions");
}

/// How many fragments the simulation moves as one packet is its grain, and no property of the machine: also where
/// the replay window of 256 fragments is what limits a stream.
#[test]
fn the_grain_of_puts_changes_nothing() {
    let fast = || {
        let mut parameters = Parameters::deep();
        (parameters.link.bandwidth_mb_s, parameters.link.latency_ns) = (12_500.0, 1_000.0);
        parameters.port = fabric_sim::PortParameters::default();
        (parameters.rma.tx.per_unit_ns, parameters.rma.rx.per_unit_ns) = (6.6, 6.6);
        (parameters.rma.ramp_fragments, parameters.rma.ramp_ns) = (0, 0.0);
        parameters
    };
    for (name, parameters) in [("deep", Parameters::deep()), ("cluster", Parameters::cluster()), ("fast", fast())]
    {
        for bytes in [64, 1000, 65_536] {
            let with = |burst| {
                let mut parameters = parameters.clone();
                parameters.rma.burst = burst;
                put(parameters, bytes)
            };
            let single = with(1);
            for burst in [4, 16, 64] {
                near(with(burst), single, 0.002 * single, &format!("{name}, {bytes} bytes by {burst}"));
            }
        }
    }
}

/// A message beside a stream of puts waits for a fragment of it, whatever the simulation's grain is.
#[test]
fn messages_pass_between_fragments() {
    let beside = |burst: u32, bytes: usize| {
        let mut parameters = Parameters::cluster();
        parameters.rma.burst = burst;
        let report = run(&config(parameters), move |nic| {
            let (rma, velo, memory) = (nic.rma(), nic.velo(), HostMemory::new(1 << 16));
            rma.open().unwrap();
            velo.open().unwrap();
            let region = rma.register(&memory, 0, 1 << 16, Access::ReadWrite).unwrap();
            if nic.rank() == 1 {
                velo.recv(None).unwrap();
                return us(nic.now().0);
            }
            let (page, peer) =
                (rma.connect(nic.address(1).unwrap()).unwrap(), velo.connect(nic.address(1).unwrap()).unwrap());
            if bytes != 0 {
                rma.post_put_bt(page, region, 0, bytes as u32, rma.nla(region, 0).unwrap(), Notify::NONE).unwrap();
            }
            nic.charge(Span::from_micros(30));
            velo.send(peer, &[1; 64], 0, 0).unwrap();
            0.0
        });
        report.results[1].unwrap()
    };
    let fragment = 79.0 / 624.0;
    for burst in [1, 16, 64] {
        let (alone, later) = (beside(burst, 0), beside(burst, 1 << 16));
        assert!(later <= alone + 2.0 * fragment + 0.5, "by {burst}: {later}, alone {alone}");
    }
}

/// Registering costs by the page, which is why a ring of buffers is registered once.
#[test]
fn registering_costs_by_the_page() {
    let report = run(&config(Parameters::deep()), |nic| {
        let (rma, memory) = (nic.rma(), HostMemory::new(1 << 16));
        rma.open().unwrap();
        let began = nic.now();
        let region = rma.register(&memory, 0, 40_000, Access::ReadWrite).unwrap();
        let registered = nic.now();
        rma.unregister(region).unwrap();
        [us(registered.since(began).0), us(nic.now().since(registered).0)]
    });
    assert_eq!(report.results[0], Some([11.0, 1.0]));
}

/// A stream of packets is bound by the receiving processor.
#[test]
fn velo_streams_at_the_receivers_pace() {
    let (few, many) = (velo_stream(Parameters::deep(), 100, 64), velo_stream(Parameters::deep(), 1100, 64));
    near((many - few) / 1000.0, 0.457, 0.001, "each packet of a stream");
}

/// The interface of a node is one for all of its ranks.
#[test]
fn ranks_of_a_node_share_the_units() {
    let time = |senders: u32| {
        let mut parameters = Parameters::cluster();
        (parameters.velo.receive_ns, parameters.velo.send_ns) = (1.0, 1.0);
        let config = ExtollConfig {
            ranks: 16,
            ranks_per_node: 8,
            parameters,
            ..ExtollConfig::new(16, Topology::Direct { nodes: 2 })
        };
        let report = run(&config, move |nic| {
            let velo = nic.velo();
            velo.open().unwrap();
            let pair = nic.rank() % 8;
            if pair < senders && nic.rank() < 8 {
                let peer = velo.connect(nic.address(8 + pair).unwrap()).unwrap();
                (0..100).for_each(|_| velo.send(peer, &[0; 64], 0, 0).unwrap());
            } else if pair < senders {
                for _ in 0..100 {
                    velo.recv(None).unwrap();
                }
            }
            nic.now().0
        });
        us(report.ended.0)
    };
    let (one, eight) = (time(1), time(8));
    // 100 packets occupy the unit for 12.8 us, 800 for 102.6 us.
    near(eight - one, 7.0 * 12.82, 0.1, "seven more senders");
}

/// Links count: one hop more is 0.3 us and nothing else.
#[test]
fn a_hop_more_takes_its_latency() {
    let time = |to: u32| {
        let config = ExtollConfig {
            parameters: Parameters::deep(),
            ..ExtollConfig::new(4, Topology::Mesh { dims: vec![4] })
        };
        let report = run(&config, move |nic| {
            let velo = nic.velo();
            velo.open().unwrap();
            if nic.rank() == 0 {
                let peer = velo.connect(nic.address(to).unwrap()).unwrap();
                velo.send(peer, &[0; 64], 0, 0).unwrap();
            } else if nic.rank() == to {
                velo.recv(None).unwrap();
            }
            us(nic.now().0)
        });
        us(report.ended.0)
    };
    near(time(1), 1.9, 0.001, "one hop");
    near(time(3) - time(1), 0.6, 0.001, "two hops more");
}

#[test]
fn the_asic_takes_600_ns_and_larger_packets() {
    near(velo_stream(Parameters::asic(), 1, 64), 0.6, 0.005, "the ASIC");
    let largest = velo_stream(Parameters::asic(), 1, 120);
    assert!(largest > 0.6 && largest < 0.8, "{largest}");
}

#[test]
fn without_cost_only_looking_takes_time() {
    assert_eq!(velo_stream(Parameters::free(), 10, 64), 0.0);
    assert_eq!(put(Parameters::free(), 100_000), 0.0);
}
