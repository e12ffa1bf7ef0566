//! The totals of the parameter table, as programs see them.

use exanet_sim::nic::{Access, HostMemory, Notify, Paging, Progress};
use exanet_sim::{ExanetConfig, Nic, PageFaults};
use fabric_sim::{Topology, WaitFor};

/// The least recent neighbour that is so many hops away from rank 0, in a ring.
fn ring() -> ExanetConfig {
    ExanetConfig::new(16, Topology::Ring { nodes: 16 })
}

/// How long a packet of 64 bytes takes from the call into the receiver's hands, in nanoseconds.
fn packet_ns(hops: u32) -> f64 {
    let report = exanet_sim::run(&ring(), move |nic| {
        nic.open();
        nic.sync();
        if nic.rank() == 0 {
            nic.pkt_send(nic.address(hops).unwrap(), &[7; 64]).unwrap();
        }
        while nic.rank() == hops && nic.mbox_poll().is_none() {
            nic.idle(None, WaitFor::Arrival);
        }
        nic.now().0
    });
    report.unwrap().results[hops as usize].unwrap() as f64 / 1e3
}

#[test]
fn packets_take_the_interface_the_wire_and_the_hops() {
    // The receiver's first, empty look passes the time in which the packet travels.
    assert_eq!([1, 5].map(|hops| packet_ns(hops).round()), [880.0, 2137.0]);
}

/// How long a write between neighbours takes until the receiver has noticed it and until its sender has, in
/// nanoseconds.
fn write_ns(machine: &ExanetConfig, len: u64, paging: Paging) -> (f64, f64) {
    let report = exanet_sim::run(machine, move |nic: Nic<'_>| {
        let memory = HostMemory::new(len.next_multiple_of(8) as usize + 8);
        let note = len.next_multiple_of(8);
        nic.open();
        nic.map(0, &memory, Access::ReadWrite, paging).unwrap();
        nic.sync();
        match nic.rank() {
            0 => {
                let to = nic.address(1).unwrap();
                let write = nic.rdma_write(0, to, 0, len, Some(Notify { at: note, value: 1 })).unwrap();
                while nic.rdma_poll(write).unwrap() == Progress::Pending {
                    nic.idle(None, WaitFor::Named("the end of the write"));
                }
            }
            1 => {
                while !nic.notified(&memory, note as usize, 1) {
                    nic.idle(None, WaitFor::Named("the notification"));
                }
            }
            _ => {}
        }
        nic.now().0
    });
    let ended = report.unwrap().results;
    (ended[1].unwrap() as f64 / 1e3, ended[0].unwrap() as f64 / 1e3)
}

#[test]
fn writes_take_their_set_up_and_their_bytes() {
    for (len, table) in [(256, 0.85), (1024, 1.60), (4096, 4.60), (16_384, 16.6), (65_536, 64.5)] {
        let (receiver, sender) = write_ns(&ring(), len, Paging::Pinned);
        let micros = receiver / 1e3;
        assert!((micros / table - 1.0).abs() < 0.01, "{len} bytes take {micros} us, and {table} in the table");
        assert!(sender > receiver && sender < receiver + 1_000.0, "{len} bytes: {sender} ns after {receiver}");
    }
}

#[test]
fn large_writes_use_the_published_part_of_the_link() {
    let len = 4u64 << 20;
    let mb_s = len as f64 / write_ns(&ring(), len, Paging::Pinned).0 * 1e3;
    let part = mb_s / ring().parameters.link.bandwidth_mb_s;
    assert!((part - 0.82).abs() < 0.001, "{part}");
}

#[test]
fn pages_that_are_not_there_are_fetched_once() {
    let pinned = write_ns(&ring(), 256, Paging::Pinned).0;
    let untouched = write_ns(&ring(), 256, Paging::Untouched).0;
    // One at the source, and one where the bytes go; the notification is in the latter.
    let retry = ring().parameters.retry;
    let least = pinned + retry.fetch_ns + retry.fault_wait_ns;
    assert!(untouched > least && untouched < least + 2_000.0, "{untouched} ns after {pinned}");
    let machine = ExanetConfig { errors: PageFaults { page_faults: 0.5 }, ..ring() };
    assert_eq!(write_ns(&machine, 256, Paging::Pinned).0, pinned, "what is pinned stays");
}

/// Within a node no link holds a write up, but the engine reads it at its own speed.
#[test]
fn writes_within_a_node_take_the_engines_time() {
    let machine = ExanetConfig { ranks: 2, ranks_per_node: 2, ..ExanetConfig::pair() };
    let rdma = &machine.parameters.rdma;
    let engine = |len: u64| rdma.tx.per_unit_ns * (len / 256) as f64;
    for len in [256, 1024, 65_536] {
        let (receiver, _) = write_ns(&machine, len, Paging::Pinned);
        let setup = rdma.post_ns + rdma.start_ns + rdma.rx.fixed_ns + rdma.notify_ns + rdma.notice_ns;
        assert!((receiver - setup - engine(len)).abs() < 1.0, "{len} bytes take {receiver} ns");
    }
}

/// Where the link is faster than the engine, no byte arrives that was not read.
#[test]
fn fast_links_wait_for_the_engine() {
    let mut machine = ring();
    machine.parameters.link.bandwidth_mb_s = 100_000.0;
    let engine = machine.parameters.rdma.tx.per_unit_ns * 256.0;
    let receiver = write_ns(&machine, 65_536, Paging::Pinned).0;
    assert!(receiver > engine, "{receiver} ns, and the engine alone takes {engine}");
}

/// Bytes of writes from all neighbours at once that a node takes in, in MB/s.
fn incast_mb_s(machine: &ExanetConfig, senders: u32) -> f64 {
    const LEN: u64 = 1 << 20;
    let report = exanet_sim::run(machine, move |nic: Nic<'_>| {
        let memory = HostMemory::new((LEN + 64) as usize);
        nic.open();
        nic.map(0, &memory, Access::ReadWrite, Paging::Pinned).unwrap();
        nic.sync();
        if (1..=senders).contains(&nic.rank()) {
            let at = LEN + 8 * u64::from(nic.rank() - 1);
            let write = nic.rdma_write(0, nic.address(0).unwrap(), 0, LEN, Some(Notify { at, value: 1 })).unwrap();
            while nic.rdma_poll(write).unwrap() == Progress::Pending {
                nic.idle(None, WaitFor::Named("the end of the write"));
            }
        }
        let there = |sender: u32| nic.notified(&memory, (LEN + 8 * u64::from(sender)) as usize, 1);
        while nic.rank() == 0 && !(0..senders).all(there) {
            nic.idle(None, WaitFor::Named("the notifications"));
        }
        nic.now().0
    });
    let took = report.unwrap().results[0].unwrap();
    (LEN * u64::from(senders)) as f64 / took as f64 * 1e6
}

/// The physical bound: a node takes in no more than its receiving engine can, however many links bring it.
#[test]
fn a_node_takes_in_what_its_engine_can() {
    let direct = ExanetConfig::new(7, Topology::Direct { nodes: 7 });
    let rx = direct.parameters.rdma.rx;
    let bound = f64::from(rx.unit_bytes) / rx.per_unit_ns * 1e3;
    let (one, two, six) = (incast_mb_s(&direct, 1), incast_mb_s(&direct, 2), incast_mb_s(&direct, 6));
    assert!((two / one - 2.0).abs() < 0.01, "two links are taken in as they come: {one}, {two}");
    assert!(six <= bound && six > 0.98 * bound, "{six} MB/s of {bound}");
}
