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
