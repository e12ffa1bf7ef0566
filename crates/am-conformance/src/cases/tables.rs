//! Item 10, handler tables that differ between ranks: every rank learns at attach which handler differs first.

use crate::world::{Failure, Verdict, World, ensure};
use am_core::{Address, AttachError, Handlers, Payload, Rank, RegisterError, Token, Transport};

type Table = Handlers<()>;

fn note<A>(_: &mut (), _: Address, _: A, _: Payload<'_>) {}

fn ask<A>(_: &mut (), _: Token<'_>, _: A, _: Payload<'_>) {}

/// Attaches with one table on the last rank and another on all others.
fn differ<T: Transport>(
    world: &World,
    transport: T,
    index: usize,
    [in_most, in_last]: [&str; 2],
    register: impl Fn(&mut Table, bool) -> Result<(), RegisterError>,
) -> Verdict {
    let (shape, me) = (transport.shape(), transport.shape().address(transport.local_peer()).rank);
    let last = Rank(shape.ranks - 1);
    let mut handlers = Table::new();
    register(&mut handlers, me == last)?;
    let error = match world.attach(transport, handlers, ()) {
        Ok(_) => return Err(Failure::Check("different handler tables were accepted".into())),
        Err(error) => error,
    };
    // Which of the two comes first depends on the tables' fingerprints.
    let (most, last) = ((Address::from(Rank(0)), in_most.to_string()), (Address::from(last), in_last.to_string()));
    let expected = [(&most, &last), (&last, &most)].map(|(a, b)| {
        let (a, in_a) = a.clone();
        let (b, in_b) = b.clone();
        AttachError::TablesDiffer { a, b, index, in_a, in_b }
    });
    ensure(expected.contains(&error), || format!("attaching: found {error:?}, expected {:?}", expected[0]))
}

/// Another name.
pub(super) fn names<T: Transport>(world: &World, transport: T) -> Verdict {
    differ(world, transport, 1, ["'b' (one-way u32)", "'c' (one-way u32)"], |table, last| {
        table.one_way("a", note::<u32>)?;
        table.one_way(if last { "c" } else { "b" }, note::<u32>)?;
        table.one_way("d", note::<u32>).map(drop)
    })
}

/// Other arguments.
pub(super) fn arguments<T: Transport>(world: &World, transport: T) -> Verdict {
    differ(world, transport, 0, ["'a' (request u64)", "'a' (request (u32, u32))"], |table, last| {
        let registered = if last {
            table.request("a", ask::<(u32, u32)>)?.index()
        } else {
            table.request("a", ask::<u64>)?.index()
        };
        let _ = registered;
        Ok(())
    })
}

/// One-way here, answering there; and a declared bound of replies.
pub(super) fn kinds<T: Transport>(world: &World, transport: T) -> Verdict {
    differ(world, transport, 0, ["'a' (request u32 replying up to 8)", "'a' (one-way u32)"], |table, last| {
        if last { table.one_way("a", note::<u32>) } else { table.request_bounded("a", 8, ask::<u32>) }.map(drop)
    })
}

/// One more handler, in long tables whose descriptions take many messages.
pub(super) fn lengths<T: Transport>(world: &World, transport: T) -> Verdict {
    differ(world, transport, 255, ["nothing", "'one more' (reply f64)"], |table, last| {
        for index in 0..255 {
            table
                .reply(&format!("a reply with a name of some length, number {index}"), note::<(u64, u64, i64)>)?;
        }
        if last { table.reply("one more", note::<f64>).map(drop) } else { Ok(()) }
    })
}
