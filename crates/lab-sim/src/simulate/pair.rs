//! Messages between two ranks, with their processors' overheads.

use fabric_sim::{Report, RunError};
use machine_sim::{MachineConfig, Nic};

/// Round trips that are averaged; without faults all of them take the same time.
const ROUNDS: u32 = 10;

type Measured = Result<(f64, Report<Option<f64>>), RunError>;

/// The value that one rank brought.
fn value(report: Report<Option<f64>>) -> (f64, Report<Option<f64>>) {
    let found = report.results.iter().flatten().flatten().next().copied();
    (found.expect("the rank that measures returns a value"), report)
}

/// Half a round trip of messages of so many bytes, in nanoseconds.
pub(crate) fn latency(machine: &MachineConfig, (one, other): (u32, u32), bytes: u32) -> Measured {
    machine_sim::run(machine, move |nic: Nic<'_>| {
        let me = nic.rank();
        if me == other {
            for _ in 0..ROUNDS {
                nic.wait();
                nic.send(one, [0; 2], bytes, |_| ());
            }
        }
        if me != one {
            return None;
        }
        let began = nic.now();
        for _ in 0..ROUNDS {
            nic.send(other, [0; 2], bytes, |_| ());
            nic.wait();
        }
        Some(nic.now().since(began).0 as f64 / 1e3 / f64::from(2 * ROUNDS))
    })
    .map(value)
}

/// Messages of so many bytes in a second, of a stream one way: from the first call to the end of the last receipt.
pub(crate) fn stream(machine: &MachineConfig, (from, to): (u32, u32), bytes: u32, messages: u32) -> Measured {
    machine_sim::run(machine, move |nic: Nic<'_>| {
        if nic.rank() == from {
            (0..messages).for_each(|_| nic.send(to, [0; 2], bytes, |_| ()));
        }
        if nic.rank() != to {
            return None;
        }
        (0..messages).for_each(|_| drop(nic.wait()));
        Some(f64::from(messages) / (nic.now().0 as f64 / 1e12))
    })
    .map(value)
}
