//! rsmpi's example of immediate operations, with its imports exchanged: a rank sends to itself, with requests that
//! are tested, waited for by guards and cancelled, and with messages that are set aside.
//!
//! `cargo build --example mpi_immediate && amrun -n 2 target/debug/examples/mpi_immediate`.

use active_messages::mpi;
use active_messages::mpi::request::{CancelGuard, WaitGuard};
use active_messages::mpi::traits::*;

fn main() {
    let universe = mpi::initialize().expect("the program is started as a rank");
    let world = universe.world();
    let (this, any) = (world.this_process(), world.any_process());
    let (x, mut y) = (std::f32::consts::PI, 0.0f32);

    mpi::request::scope(|scope| {
        let mut send = this.immediate_send(scope, &x);
        any.immediate_receive_into(scope, &mut y).wait();
        while let Err(again) = send.test() {
            send = again;
        }
    });
    assert_eq!(x, y);

    y = 0.0;
    mpi::request::scope(|scope| {
        let _receive = WaitGuard::from(any.immediate_receive_into(scope, &mut y));
        let _send = WaitGuard::from(this.immediate_synchronous_send(scope, &x));
    });
    assert_eq!(x, y);

    assert!(any.immediate_probe().is_none());
    this.send(&x);
    let (message, status) = any.matched_probe();
    assert_eq!(status.count::<f32>(), 1);
    y = 0.0;
    message.matched_receive_into(&mut y);
    assert_eq!(x, y);

    mpi::request::scope(|scope| {
        let _receive = CancelGuard::from(any.immediate_receive_into(scope, &mut y));
    });
    println!("rank {} is done", world.rank());
}
