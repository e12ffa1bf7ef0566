//! Immediate operations as programs of rsmpi write them; but for the imports nothing is of this crate. The rank
//! sends to itself, with requests that are tested, waited for by guards and cancelled, with messages that are set
//! aside, and with futures. What rsmpi's own example of immediate operations calls, this does, in its order.
//!
//! `cargo build --example mpi_immediate && amrun -n 2 target/debug/examples/mpi_immediate`.

use active_messages::mpi;
use active_messages::mpi::request::{CancelGuard, WaitGuard};
use active_messages::mpi::traits::*;

fn main() {
    let universe = mpi::initialize().expect("the program is started as a rank");
    let world = universe.world();
    let sent = std::f32::consts::E;
    let mut got = 0.0f32;

    mpi::request::scope(|scope| {
        let mut send = world.this_process().immediate_send(scope, &sent);
        world.any_process().immediate_receive_into(scope, &mut got).wait();
        while let Err(again) = send.test() {
            send = again;
        }
    });
    assert_eq!(sent, std::mem::take(&mut got));

    mpi::request::scope(|scope| {
        let _receive = WaitGuard::from(world.any_process().immediate_receive_into(scope, &mut got));
        // Safe here: rsmpi's has to stand in an `unsafe` block.
        let _send = WaitGuard::from(world.this_process().immediate_ready_send(scope, &sent));
    });
    assert_eq!(sent, std::mem::take(&mut got));

    assert!(world.any_process().immediate_probe().is_none());
    assert!(world.any_process().immediate_matched_probe().is_none());
    mpi::request::scope(|scope| {
        let _send: WaitGuard<'_, _, _> = world.this_process().immediate_synchronous_send(scope, &sent).into();
        let (message, status) = loop {
            if let Some(found) = world.any_process().immediate_matched_probe() {
                break found;
            }
        };
        assert_eq!(status.count::<f32>(), 1);
        let _receive = WaitGuard::from(message.immediate_matched_receive_into(scope, &mut got));
    });
    assert_eq!(sent, got);

    let future = world.any_process().immediate_receive::<f32>();
    world.this_process().send(&sent);
    assert_eq!(future.get().0, sent);

    let mut future = world.any_process().immediate_receive::<f32>().r#try().expect_err("nothing was sent");
    world.this_process().send(&sent);
    let value = loop {
        match future.r#try() {
            Ok((value, _)) => break value,
            Err(again) => future = again,
        }
    };
    assert_eq!(value, sent);

    mpi::request::scope(|scope| {
        let send = world.this_process().immediate_send(scope, &sent);
        send.cancel();
        send.wait();
        let _receive = CancelGuard::from(world.this_process().immediate_receive_into(scope, &mut got));
    });
    println!("rank {} is done", world.rank());
}
