//! The shape of rsmpi, over threads.

use super::request::{CancelGuard, WaitGuard, scope, wait_any};
use super::traits::*;
use super::{SimpleCommunicator, Universe, point_to_point};
use crate::P2p;
use am_core::loopback::{Loopback, LoopbackConfig, network};
use am_core::{Endpoint, Handlers, Span};
use std::thread;

fn run(ranks: u32, work: impl Fn(SimpleCommunicator<'_, Loopback, P2p>) + Sync) {
    thread::scope(|scope| {
        for transport in network(ranks, LoopbackConfig::default()) {
            let work = &work;
            scope.spawn(move || {
                let mut handlers = Handlers::new();
                let p2p = P2p::register(&mut handlers).unwrap();
                let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
                endpoint.set_timeout(Span::from_secs(20));
                let universe = Universe::new(endpoint).unwrap();
                work(universe.world());
                universe.finalize().unwrap();
            });
        }
    });
}

#[test]
fn processes_and_both_at_once() {
    run(3, |world| {
        let (rank, size) = (world.rank(), world.size());
        let next = world.process_at_rank((rank + 1) % size);
        let previous = world.process_at_rank((rank + size - 1) % size);
        let (value, status): (i32, _) = point_to_point::send_receive(&rank, &next, &previous);
        assert_eq!((value, status.source_rank(), status.count::<i32>()), (previous.rank(), previous.rank(), 1));
        let mut value = [rank, rank + 1];
        point_to_point::send_receive_replace_into(&mut value[..], &next, &previous);
        assert_eq!(value, [previous.rank(), previous.rank() + 1]);
        if rank == 0 {
            for _ in 1..size {
                let (values, status) = world.any_process().receive_vec::<f64>();
                assert_eq!(values, vec![f64::from(status.source_rank()); 3]);
            }
        } else {
            world.process_at_rank(0).synchronous_send(&[f64::from(rank); 3][..]);
        }
        let halves = world.duplicate().split_by_color(Some(u32::from(rank == 0))).unwrap();
        assert_eq!(halves.size(), if rank == 0 { 1 } else { 2 });
        halves.barrier();
    });
}

/// Processes are made where they are needed, as programs of rsmpi do.
#[test]
fn processes_need_no_names() {
    run(1, |world| {
        let (x, mut y) = (2.5f32, 0.0f32);
        scope(|scope| {
            let sent = world.this_process().immediate_send(scope, &x);
            world.any_process().immediate_receive_into(scope, &mut y).wait();
            sent.wait();
        });
        assert_eq!(x, std::mem::take(&mut y));
        scope(|scope| {
            let _receive = WaitGuard::from(world.any_process().immediate_receive_into(scope, &mut y));
            let _send: WaitGuard<'_, _, _> = world.this_process().immediate_ready_send(scope, &x).into();
        });
        assert_eq!(x, std::mem::take(&mut y));
        assert!(world.any_process().immediate_matched_probe().is_none());
        scope(|scope| {
            let _send = WaitGuard::from(world.this_process().immediate_synchronous_send(scope, &x));
            let (message, status) = loop {
                if let Some(found) = world.any_process().immediate_matched_probe() {
                    break found;
                }
            };
            assert_eq!(status.count::<f32>(), 1);
            message.immediate_matched_receive_into(scope, &mut y).wait();
        });
        assert_eq!(x, std::mem::take(&mut y));
        let (first, second) =
            (world.any_process().immediate_receive::<f32>(), world.any_process().immediate_receive());
        let mut second = second.r#try().expect_err("nothing was sent");
        world.this_process().send(&x);
        world.this_process().send(&7u16);
        assert_eq!(first.get().0, x);
        let value: u16 = loop {
            match second.r#try() {
                Ok((value, _)) => break value,
                Err(again) => second = again,
            }
        };
        assert_eq!(value, 7);
        let mut z = 0.0f32;
        scope(|scope| {
            let sent = world.this_process().immediate_send(scope, &x);
            sent.cancel();
            sent.wait();
            assert_eq!(world.any_process().receive::<f32>().0, x);
            let receive = world.any_process().immediate_receive_into(scope, &mut y);
            receive.cancel();
            assert_eq!(receive.wait(), None);
            // One that has met its message gets it.
            let receive = world.any_process().immediate_receive_into(scope, &mut z);
            world.this_process().send(&x);
            assert!(world.any_process().immediate_probe().is_none());
            receive.cancel();
            assert_eq!(receive.wait().map(|status| status.count::<f32>()), Some(1));
        });
        assert_eq!((y, z), (0.0, x));
    });
}

#[test]
fn requests_in_scopes() {
    run(1, |world| {
        let (x, mut y) = (std::f32::consts::PI, 0.0f32);
        let (this, any) = (world.this_process(), world.any_process());
        scope(|scope| {
            let mut send = this.immediate_send(scope, &x);
            assert_eq!(any.immediate_receive_into(scope, &mut y).wait().unwrap().source_rank(), 0);
            while let Err(again) = send.test() {
                send = again;
            }
        });
        assert_eq!(x, std::mem::take(&mut y));
        assert!(any.immediate_probe().is_none());
        scope(|scope| {
            let _receive = WaitGuard::from(any.immediate_receive_into(scope, &mut y));
            let _send = WaitGuard::from(this.immediate_synchronous_send(scope, &x));
        });
        assert_eq!(x, y);
        this.send_with_tag(&[1u8, 2][..], 4);
        let (message, status) = any.matched_probe();
        assert_eq!((status.tag(), message.matched_receive_vec::<u8>().0), (4, vec![1, 2]));
        scope(|scope| drop(CancelGuard::from(any.immediate_receive_into(scope, &mut y))));
        let (mut a, mut b) = (0u8, 0u16);
        scope(|scope| {
            let mut requests =
                vec![any.immediate_receive_into(scope, &mut a), any.immediate_receive_into(scope, &mut b)];
            this.send(&7u8);
            assert_eq!(wait_any(&mut requests).unwrap().0, 0);
            this.send(&8u16);
            assert_eq!(wait_any(&mut requests).unwrap().0, 0);
            assert!(wait_any(&mut requests).is_none());
        });
        assert_eq!((a, b), (7, 8));
    });
}

/// Messages with other tags that came before are passed over by all calls that name one.
#[test]
fn tags_tell_messages_apart() {
    run(2, |world| {
        let other = world.process_at_rank(1 - world.rank());
        let before = [90u8, world.rank() as u8];
        other.send_with_tag(&before[..], 1);
        let (mut value, x) = (0u16, 100 + world.rank() as u16);
        scope(|scope| {
            let expected = 100 + other.rank() as u16;
            let receive = other.immediate_receive_into_with_tag(scope, &mut value, 2);
            let one = other.immediate_receive_with_tag::<u16>(3);
            let sends = [
                other.immediate_send_with_tag(scope, &x, 3),
                other.immediate_synchronous_send_with_tag(scope, &x, 2),
                other.immediate_ready_send_with_tag(scope, &x, 4),
            ];
            assert_eq!(receive.wait().map(|status| status.tag()), Some(2));
            assert_eq!(one.get().0, expected);
            assert_eq!(other.probe_with_tag(4).tag(), 4);
            assert_eq!(other.immediate_probe_with_tag(4).map(|status| status.tag()), Some(4));
            assert!(
                other.immediate_probe_with_tag(5).is_none() && other.immediate_matched_probe_with_tag(5).is_none()
            );
            let (message, status) = other.matched_probe_with_tag(4);
            assert_eq!((status.tag(), message.matched_receive_vec::<u16>().0), (4, vec![expected]));
            sends.into_iter().for_each(|send| send.wait_without_status());
        });
        assert_eq!(value, 100 + other.rank() as u16);
        let (mine, theirs) = (world.rank() as u32, other.rank() as u32);
        let (value, status): (u32, _) = point_to_point::send_receive_with_tags(&mine, &other, 6, &other, 6);
        assert_eq!((value, status.tag()), (theirs, 6));
        let mut buffer = [0u32; 2];
        point_to_point::send_receive_into_with_tags(&[mine, 7][..], &other, 7, &mut buffer[..], &other, 7);
        assert_eq!(buffer, [theirs, 7]);
        let mut buffer = [mine, 8];
        point_to_point::send_receive_replace_into_with_tags(&mut buffer[..], &other, 8, &other, 8);
        assert_eq!(buffer, [theirs, 8]);
        let (message, status) = loop {
            if let Some(found) = other.immediate_matched_probe_with_tag(1) {
                break found;
            }
        };
        assert_eq!((status.tag(), message.matched_receive_vec::<u8>().0), (1, vec![90, other.rank() as u8]));
        // In the order of the keys.
        let turned = world.split_by_color_with_key(Some(0), -world.rank()).unwrap();
        assert_eq!((turned.rank(), turned.size()), (1 - world.rank(), 2));
        turned.barrier();
    });
}
