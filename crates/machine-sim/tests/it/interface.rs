//! The interface: its times, its order, its data paths.

use am_core::{Instant, PeerStatus, Span};
use fabric_sim::{Algorithm, Faults, LinkParameters, WaitFor};
use machine_sim::MachineConfig;
use machine_sim::conduit::ConduitConfig;
use machine_sim::model::{Parameters, SharedMemory, SizeClass};

fn loggp(ranks: u32) -> MachineConfig {
    MachineConfig { parameters: Parameters::loggp(1000.0, 200.0, 50.0, 1.0), ..machine_sim::crossbar(ranks) }
}

/// When rank 1 has the last of some messages from rank 0, in nanoseconds.
fn last_of(machine: &MachineConfig, count: u64, bytes: u32) -> u64 {
    let report = machine_sim::run(machine, move |nic| match nic.rank() {
        0 => (0..count).for_each(|number| nic.send(1, [number, 0], bytes, |_| ())),
        1 => (0..count).for_each(|number| assert_eq!(nic.wait().immediate[0], number)),
        _ => {}
    });
    report.unwrap().ended.0 / 1000
}

#[test]
fn a_message_takes_what_loggp_says() {
    for bytes in [1, 2, 1000, 100_000] {
        assert_eq!(last_of(&loggp(2), 1, bytes), 200 + 1000 + u64::from(bytes - 1) + 200, "{bytes}");
    }
}

/// The slowest of processor, interface and link decides how many messages there are in a time.
#[test]
fn a_stream_is_as_fast_as_its_slowest_part() {
    let each =
        |machine: &MachineConfig, bytes: u32| (last_of(machine, 101, bytes) - last_of(machine, 1, bytes)) / 100;
    assert_eq!(each(&loggp(2), 1), 200, "the processor");
    assert_eq!(each(&loggp(2), 1001), 1050, "the interface: g and 1000 G");
    let mut linked = loggp(2);
    linked.parameters.link = LinkParameters { bandwidth_mb_s: 100.0, latency_ns: 10.0 };
    assert_eq!(each(&linked, 1000), 10_000, "the link: 1000 bytes at 100 MB/s");
    let mut injected = loggp(2);
    injected.parameters.injection_mb_s = 250.0;
    assert_eq!(each(&injected, 1000), 4000, "the data path out");
    let mut ejected = loggp(2);
    ejected.parameters.ejection_mb_s = 125.0;
    assert_eq!(each(&ejected, 1000), 8000, "the data path in");
}

/// A node takes in no more than its data path can, however many send.
#[test]
fn many_senders_share_a_receiver() {
    let mut machine = loggp(9);
    machine.parameters.ejection_mb_s = 500.0;
    let report = machine_sim::run(&machine, |nic| {
        if nic.rank() != 0 {
            return (0..20).for_each(|_| nic.send(0, [0; 2], 1000, |_| ()));
        }
        (0..8 * 20).for_each(|_| drop(nic.wait()));
    });
    let least = 8 * 20 * 1000 * 1_000_000 / 500;
    assert!(report.as_ref().unwrap().ended.0 >= least, "{report:?}");
    assert!(report.unwrap().ended.0 < least + least / 20);
}

#[test]
fn size_classes_have_their_own_costs() {
    let mut machine = loggp(2);
    let class = |up_to, overhead: f64| SizeClass {
        up_to,
        send_ns: overhead,
        receive_ns: overhead,
        ..SizeClass::default()
    };
    machine.parameters.sizes = vec![class(Some(100), 10.0), class(None, 500.0)];
    assert_eq!((last_of(&machine, 1, 100), last_of(&machine, 1, 101)), (1020, 2000));
}

/// A long message first asks: three latencies instead of one.
#[test]
fn long_messages_wait_to_be_cleared() {
    let mut machine = loggp(2);
    machine.parameters.eager_bytes = Some(500);
    assert_eq!(last_of(&machine, 1, 500), 200 + 1000 + 499 + 200);
    assert_eq!(last_of(&machine, 1, 501), 200 + 3000 + 500 + 200);
    // Those behind it stay behind it.
    let report = machine_sim::run(&machine, |nic| {
        let sizes = [8, 900, 8, 8, 2000, 700, 8];
        if nic.rank() == 0 {
            sizes.iter().for_each(|size| nic.send(1, [u64::from(*size), 0], *size, |_| ()));
        } else {
            let found = sizes.map(|_| nic.wait().data.len() as u32);
            assert_eq!(found, sizes);
        }
    });
    report.unwrap();
}

/// Who leaves is known to have left when everything that it called for before has come, even where sending costs
/// no time, so that all of it is called for at the moment of the departure.
#[test]
fn departures_wait_for_messages_that_ask_first() {
    let mut machine = MachineConfig { parameters: Parameters::free(), ..machine_sim::crossbar(2) };
    machine.parameters.eager_bytes = Some(64);
    // Longer than until the news of a departure comes.
    machine.parameters.link.latency_ns = 10_000.0;
    let report = machine_sim::run(&machine, |nic| {
        if nic.rank() == 0 {
            // From here on all is of one moment: there is a turn for it already.
            nic.idle(Some(Instant(1_000_000)), WaitFor::Named("its time"));
            nic.send(1, [0; 2], 65, |_| ());
            return nic.depart(PeerStatus::Finished);
        }
        while nic.context().status(0) == PeerStatus::Active {
            nic.charge(Span::from_micros(1));
        }
        assert!(nic.receive().is_some(), "the message came before");
    });
    report.unwrap();
}

/// Messages arrive once, whole and in order, whatever links and routing do.
#[test]
fn messages_arrive_once_and_in_order() {
    let faults = Faults {
        loss: 0.1,
        corruption: 0.05,
        duplication: 0.1,
        reordering: 0.3,
        reorder_ns: 30_000.0,
        ..Faults::default()
    };
    for seed in 0..10 {
        let mut machine = MachineConfig { topology: "hypercube:3".parse().unwrap(), ..loggp(8) };
        machine.parameters.packet_bytes = 64;
        machine.parameters.link = LinkParameters { bandwidth_mb_s: 1000.0, latency_ns: 100.0 };
        machine.faults = Faults { seed, ..faults.clone() };
        machine.routing.algorithm = Algorithm::Valiant;
        let report = machine_sim::run(&machine, |nic| {
            let (me, ranks) = (nic.rank(), nic.ranks());
            for number in 0..30u32 {
                nic.send((me + 1 + number % (ranks - 1)) % ranks, [u64::from(number), 0], 7 * number, |bytes| {
                    bytes.fill(number as u8)
                });
            }
            let mut last = vec![None; ranks as usize];
            for _ in 0..30 {
                let message = nic.wait();
                let number = message.immediate[0];
                assert!(last[message.from as usize].replace(number) < Some(number), "in order");
                assert_eq!(&*message.data, vec![number as u8; 7 * number as usize]);
            }
        });
        let report = report.unwrap();
        assert!(report.lost > 0 && report.corrupted > 0 && report.duplicated > 0);
    }
}

#[test]
fn what_a_rank_measures_is_what_came() {
    let report = machine_sim::run(&loggp(2), |nic| {
        nic.measure(Some(am_core::Span::from_micros(1)));
        if nic.rank() == 0 {
            (0..10).for_each(|_| nic.send(1, [0; 2], 100, |_| ()));
        } else {
            (0..10).for_each(|_| drop(nic.wait()));
        }
        nic.measurements()
    });
    let found: Vec<_> = report.unwrap().results.into_iter().map(Option::unwrap).collect();
    assert_eq!((found[0].sent.messages, found[1].received.bytes), (10, 1000));
    assert_eq!(found[1].series.iter().map(|count| count.messages).sum::<u64>(), 10);
    assert_eq!(found[1].classes[0].latency.count(), 10);
    // From the call, which is behind the overhead: L and 99 G.
    assert_eq!(found[1].classes[0].latency.longest().0, 1_099_000);
    assert_eq!(found[0].busy[0].0, 10 * 149_000);
}

#[test]
fn impossible_machines_are_refused_by_field() {
    for (text, expected) in [
        (
            "ranks = 3\ntopology = { kind = 'ring', nodes = 2 }",
            "ranks is 3, but must be at most 2 nodes times 1 ranks per node",
        ),
        (
            "ranks = 2\nranks_per_node = 2000\ntopology = { kind = 'ring', nodes = 2 }",
            "ranks_per_node is 2000, but must be at most 1024",
        ),
        (
            "ranks = 2\ntopology = { kind = 'ring', nodes = 2 }\nfaults = { links = [{ mtu_bytes = 100 }] }",
            "faults.links[0].mtu_bytes is 100, but must be at least 4096, a packet and its header",
        ),
        (
            "ranks = 2\ntopology = { kind = 'ring', nodes = 2 }\nmodel = 'buffered'\nbuffers = { channel_bytes = 100 }",
            "buffers.channel_bytes is 100, but must be at least 4096, a packet and its header; or lower \
             parameters.packet_bytes",
        ),
        (
            "ranks = 2\ntopology = { kind = 'torus', dims = [4, 4] }\nrouting = { virtual_channels = 1 }",
            "routing.virtual_channels is 1, but must be at least 2, or default routing on torus:4x4 could deadlock",
        ),
    ] {
        assert_eq!(MachineConfig::from_toml(text).unwrap_err().to_string(), expected);
    }
}

/// Ranks of a node talk through its memory if the machine says so, and the interface is left to the others.
#[test]
fn ranks_of_a_node_use_its_memory() {
    let mut machine = MachineConfig { ranks_per_node: 2, ..loggp(4) };
    let through = |machine: &MachineConfig, to: u32, bytes: u32| {
        let report = machine_sim::run(machine, move |nic| match nic.rank() {
            0 => nic.send(to, [7, 0], bytes, |_| ()),
            rank if rank == to => assert_eq!(nic.wait().immediate[0], 7),
            _ => {}
        });
        report.unwrap().ended.0 / 1000
    };
    machine.parameters.sizes[0].overhead_per_byte_ns = 0.0;
    assert_eq!((through(&machine, 1, 1001), through(&machine, 2, 1001)), (2400, 2400));
    let memory = SharedMemory { send_ns: 20.0, receive_ns: 30.0, latency_ns: 40.0, copy_per_byte_ns: 0.5 };
    machine.parameters.shared_memory = Some(memory);
    assert_eq!((through(&machine, 1, 1001), through(&machine, 2, 1001)), (20 + 500 + 40 + 30 + 500, 2400));
    // However long it is, it does not ask first; and a lock costs both ends.
    (machine.parameters.eager_bytes, machine.parameters.lock_ns) = (Some(8), 5.0);
    assert_eq!(through(&machine, 1, 1001), 20 + 500 + 40 + 30 + 500 + 10);
}

/// Joining costs what the addresses of the others do, and registering what the memory's pages do.
#[test]
fn joining_and_registering_cost() {
    let mut machine = loggp(5);
    (machine.parameters.exchange_ns, machine.parameters.register_page_ns) = (100.0, 10.0);
    let config = ConduitConfig { segment: 1 << 20, ..ConduitConfig::default() };
    let report = machine_sim::conduit::run(&machine, &config, |transport| transport.nic().now().0 / 1000);
    assert_eq!(report.unwrap().results[3], Some(256 * 10 + 4 * 100));
}
