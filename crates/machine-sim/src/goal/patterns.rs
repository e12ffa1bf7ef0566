//! Schedules of collective operations, as LogGOPSim's generator has them.

use super::{Action, Operation, Schedule};

fn ranks(count: u32, of: impl Fn(u32) -> Vec<Operation>) -> Schedule {
    Schedule { ranks: (0..count).map(of).collect() }
}

/// A broadcast of so many bytes from rank 0 along a binomial tree.
pub fn binomial_broadcast(count: u32, bytes: u64) -> Schedule {
    ranks(count, |me| {
        let mut all = Vec::new();
        // The highest bit names the parent, and higher ones the children.
        let first = if me == 0 { 0 } else { 32 - me.leading_zeros() };
        if me != 0 {
            let from = Some(me ^ 1 << (first - 1));
            all.push(Operation::new(Action::Receive { bytes, from, tag: Some(0) }));
        }
        for child in (first..32)
            .map_while(|bit| 1u32.checked_shl(bit))
            .map(|bit| me | bit)
            .take_while(|child| *child < count)
        {
            all.push(Operation::new(Action::Send { bytes, to: child, tag: 0 }).after((me != 0).then_some(0)));
        }
        all
    })
}

/// A barrier by dissemination (Hensgen, Finkel and Manber, 1988): in each round every rank hears of twice as many.
pub fn dissemination_barrier(count: u32, bytes: u64) -> Schedule {
    ranks(count, |me| {
        let mut all = Vec::new();
        let mut before = None;
        for round in (0..32).take_while(|round| 1u64 << round < u64::from(count)) {
            let apart = 1u32 << round;
            let (to, from) = ((me + apart) % count, (me + count - apart % count) % count);
            let place = all.len() as u32;
            all.push(Operation::new(Action::Send { bytes, to, tag: round }).after(before));
            all.push(Operation::new(Action::Receive { bytes, from: Some(from), tag: Some(round) }).after(before));
            before = Some(place + 1);
        }
        all
    })
}

/// An all-to-all in which every rank sends to one after the other, and receives as it comes.
pub fn linear_alltoall(count: u32, bytes: u64) -> Schedule {
    ranks(count, |me| {
        let others = || (1..count).map(|apart| (me + apart) % count);
        let send = others().map(|to| Operation::new(Action::Send { bytes, to, tag: 0 }));
        let receive =
            others().map(|from| Operation::new(Action::Receive { bytes, from: Some(from), tag: Some(0) }));
        send.chain(receive).collect()
    })
}
