//! Transfers: page faults, reordering, translation, reads.

use am_core::Span;
use exanet_sim::nic::{
    Access, Defects, Fault, HostMemory, MapError, Mutation, Notify, Paging, Progress, RdmaError, TransferId,
};
use exanet_sim::{ExanetConfig, Nic, Testing};
use fabric_sim::{FaultEvent, Faults, Scheduled, Topology, WaitFor};

const LEN: u64 = 65_536;
const NOTE: u64 = LEN;

fn end(nic: &Nic<'_>, id: TransferId) -> Progress {
    loop {
        match nic.rdma_poll(id).unwrap() {
            Progress::Pending => nic.idle(None, WaitFor::Named("the end of a transfer")),
            end => return end,
        }
    }
}

/// Memory that is mapped from address 0 on.
fn mapped(nic: &Nic<'_>, access: Access, paging: Paging) -> HostMemory {
    let memory = HostMemory::new(LEN as usize + 8);
    nic.open();
    nic.map(0, &memory, access, paging).unwrap();
    nic.charge(Span::from_nanos(1));
    nic.sync();
    memory
}

/// What a receiver sees of a write: the bytes that are there at its notification, and counters.
fn write_seen(machine: &ExanetConfig, paging: Paging) -> (usize, u64) {
    let report = exanet_sim::run(machine, move |nic| {
        let memory = mapped(&nic, Access::ReadWrite, if nic.rank() == 0 { Paging::Pinned } else { paging });
        if nic.rank() == 0 {
            memory.write(0, &[7; LEN as usize]);
            let notify = Some(Notify { at: NOTE, value: 1 });
            let write = nic.rdma_write(0, nic.address(1).unwrap(), 0, LEN, notify).unwrap();
            assert_eq!(end(&nic, write), Progress::Done);
            return (0, 0);
        }
        while !nic.notified(&memory, NOTE as usize, 1) {
            nic.idle(None, WaitFor::Named("the notification"));
        }
        let there = (0..LEN as usize).filter(|at| memory.byte(*at) == 7).count();
        // Nothing but the write has come: no message acknowledges or announces it.
        assert_eq!(nic.counters().packets, 0);
        (there, nic.counters().page_faults)
    });
    report.unwrap().results[1].unwrap()
}

fn reordering(defects: Defects) -> ExanetConfig {
    let faults = Faults { seed: 3, reordering: 0.5, reorder_ns: 30_000.0, ..Faults::default() };
    ExanetConfig { faults, testing: Testing { defects }, ..ExanetConfig::pair() }
}

/// Page fault mid-write: blocks are sent again, and the notification waits.
#[test]
fn page_faults_delay_the_notification() {
    let (there, faults) = write_seen(&ExanetConfig::pair(), Paging::Untouched);
    assert_eq!(there, LEN as usize);
    assert!(faults >= LEN / 4096, "{faults}");
    let testing = Testing { defects: Defects::of(Mutation::IgnorePageFaults) };
    let (there, _) = write_seen(&ExanetConfig { testing, ..ExanetConfig::pair() }, Paging::Untouched);
    assert!(there < LEN as usize, "the defect shows");
}

/// Cells that take several ways: the notification is behind all of them.
#[test]
fn reordering_never_shows_the_notification_first() {
    assert_eq!(write_seen(&reordering(Defects::default()), Paging::Pinned).0, LEN as usize);
    let early = Defects::of(Mutation::NotifyAtTail);
    assert!(write_seen(&reordering(early), Paging::Pinned).0 < LEN as usize, "the defect shows");
}

/// Writes and reads of what is not mapped, or not for writing, fault and change nothing.
#[test]
fn memory_is_what_was_mapped() {
    for defect in [None, Some(Mutation::SkipRights)] {
        let testing = Testing { defects: defect.map_or_else(Defects::default, Defects::of) };
        let machine = ExanetConfig { testing, ..ExanetConfig::pair() };
        let report = exanet_sim::run(&machine, move |nic| {
            let memory =
                mapped(&nic, if nic.rank() == 0 { Access::ReadWrite } else { Access::Read }, Paging::Pinned);
            memory.write(0, &[nic.rank() as u8 + 1; 64]);
            let mut ends = Vec::new();
            if nic.rank() == 0 {
                let to = nic.address(1).unwrap();
                let write = |at, target, notify| end(&nic, nic.rdma_write(at, to, target, 64, notify).unwrap());
                ends.push(write(0, 512, None));
                ends.push(write(0, 1 << 40, None));
                ends.push(write(1 << 40, 0, None));
                ends.push(end(&nic, nic.rdma_read(to, 1 << 40, 0, 64, None).unwrap()));
                ends.push(end(&nic, nic.rdma_read(to, 0, 1 << 40, 64, None).unwrap()));
                ends.push(end(
                    &nic,
                    nic.rdma_read(to, 0, 128, 64, Some(Notify { at: 1 << 40, value: 1 })).unwrap(),
                ));
                ends.push(end(&nic, nic.rdma_read(to, 0, 64, 64, Some(Notify { at: NOTE, value: 5 })).unwrap()));
                while !nic.notified(&memory, NOTE as usize, 5) {
                    nic.idle(None, WaitFor::Named("the notification"));
                }
                assert_eq!((memory.byte(64), memory.byte(128)), (2, 0));
                nic.pkt_send(to, &[]).unwrap();
            } else {
                while nic.mbox_poll().is_none() {
                    nic.idle(None, WaitFor::Arrival);
                }
            }
            (ends, memory.byte(512))
        });
        let results = report.unwrap().results;
        let first = if defect.is_none() { Progress::Fault(Fault::Destination) } else { Progress::Done };
        let [source, destination] = [Fault::Source, Fault::Destination].map(Progress::Fault);
        let ends = &results[0].as_ref().unwrap().0;
        assert_eq!(ends[..], [first, destination, source, source, destination, destination, Progress::Done]);
        assert_eq!(results[1].as_ref().unwrap().1, u8::from(defect.is_some()));
    }
}

/// A context has so many transfers until their ends are polled; what is no transfer is refused.
#[test]
fn a_full_queue_refuses() {
    let mut machine = ExanetConfig::pair();
    machine.parameters.rdma.queue = 2;
    let report = exanet_sim::run(&machine, |nic| {
        let to = nic.address(1 - nic.rank()).unwrap();
        assert_eq!(nic.rdma_write(0, to, 0, 8, None), Err(RdmaError::NotOpen));
        let page = HostMemory::new(8);
        assert_eq!(nic.map(0, &page, Access::Read, Paging::Pinned), Err(MapError::NotOpen));
        mapped(&nic, Access::ReadWrite, Paging::Pinned);
        if nic.rank() == 1 {
            return;
        }
        let write = |len| nic.rdma_write(0, to, 0, len, None);
        assert_eq!(write(0), Err(RdmaError::BadLength { len: 0, at: 0 }));
        let (one, _) = (write(8).unwrap(), write(8).unwrap());
        assert_eq!(write(8), Err(RdmaError::QueueFull(2)));
        assert_eq!(end(&nic, one), Progress::Done);
        assert_eq!(nic.rdma_poll(one), Err(RdmaError::NoTransfer));
        assert!(write(8).is_ok());
    });
    report.unwrap();
}

/// A transfer to a node that stops is given up.
#[test]
fn a_node_that_stops_is_given_up() {
    let schedule = vec![Scheduled { at_ns: 20_000.0, event: FaultEvent::NodeStop { node: 1 } }];
    let mut machine = ExanetConfig { faults: Faults { schedule, ..Faults::default() }, ..ExanetConfig::pair() };
    machine.parameters.retry.limit = 5;
    let report = exanet_sim::run(&machine, |nic| {
        mapped(&nic, Access::ReadWrite, Paging::Pinned);
        if nic.rank() == 1 {
            nic.idle(None, WaitFor::Arrival);
            return (Progress::Pending, 0);
        }
        let write = nic.rdma_write(0, nic.address(1).unwrap(), 0, LEN, None).unwrap();
        (end(&nic, write), nic.counters().abandoned)
    });
    let (progress, abandoned) = report.unwrap().results[0].unwrap();
    assert_eq!(progress, Progress::Fault(Fault::Unreachable));
    assert!(abandoned > 0);
}

/// Writes that fault at their source leave room to those behind them.
#[test]
fn writes_behind_faulty_ones_go_on() {
    let machine = ExanetConfig::new(3, Topology::Ring { nodes: 3 });
    let report = exanet_sim::run(&machine, |nic| {
        mapped(&nic, Access::ReadWrite, Paging::Pinned);
        if nic.rank() != 0 {
            return true;
        }
        let [one, two] = [1, 2].map(|rank| nic.address(rank).unwrap());
        // The engine is busy while more blocks are queued for node 1 than may be under way.
        let busy = nic.rdma_write(0, two, 0, LEN, None).unwrap();
        let faulty = [(); 9].map(|()| nic.rdma_write(1 << 40, one, 0, LEN, None).unwrap());
        let good = nic.rdma_write(0, one, 0, LEN, None).unwrap();
        let ends = faulty.map(|id| end(&nic, id));
        assert_eq!(ends, [Progress::Fault(Fault::Source); 9]);
        [busy, good].into_iter().all(|id| end(&nic, id) == Progress::Done)
    });
    assert_eq!(report.unwrap().results[0], Some(true));
}

/// A read whose answer is given up while a link is down ends as a fault, whether the link comes back or not, and
/// nothing comes later.
#[test]
fn reads_that_were_given_up_are_told() {
    for up_again in [false, true] {
        let at = |at_ns, event| Scheduled { at_ns, event };
        let mut schedule = vec![at(15_000.0, FaultEvent::LinkDown { from: 1, to: 0 })];
        if up_again {
            schedule.push(at(1e6, FaultEvent::LinkUp { from: 1, to: 0 }));
        }
        let mut machine =
            ExanetConfig { faults: Faults { schedule, ..Faults::default() }, ..ExanetConfig::pair() };
        (machine.parameters.retry.timeout_ns, machine.parameters.retry.limit) = (10_000.0, 3);
        let report = exanet_sim::run(&machine, |nic| {
            let memory = mapped(&nic, Access::ReadWrite, Paging::Pinned);
            if nic.rank() == 1 {
                nic.idle(Some(am_core::Instant(5_000_000_000)), WaitFor::Named("the end"));
                return None;
            }
            let notify = Some(Notify { at: NOTE, value: 1 });
            let read = nic.rdma_read(nic.address(1).unwrap(), 0, 0, LEN, notify).unwrap();
            let progress = end(&nic, read);
            nic.charge(Span::from_millis(1));
            nic.sync();
            Some((progress, memory.word(NOTE as usize)))
        });
        assert_eq!(report.unwrap().results[0], Some(Some((Progress::Fault(Fault::Unreachable), 0))), "{up_again}");
    }
}
