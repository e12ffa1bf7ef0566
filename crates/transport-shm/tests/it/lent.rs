//! Long two-sided messages are read by their receivers in the memory of their senders.

use am_core::{Endpoint, Handlers, LossCause, Payload, Rank, Request, Span, WaitError};
use am_p2p::request::{wait_all, wait_any};
use am_p2p::{ANY_SOURCE, Communicator, Counts, MessageConfig, MessageError, Messages, P2p, Protocol};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use transport_shm::{Job, JobConfig, JoinOptions, Shm};

type Ranks = Endpoint<Shm, P2p>;

const LEN: usize = 100_000;

/// Runs ranks as threads of this process.
fn run(ranks: u32, config: MessageConfig, work: impl Fn(Ranks, Communicator) + Sync) {
    run_with_panic(ranks, config, |endpoint, world, _| work(endpoint, world));
}

/// Ranks with a handler that panics.
fn run_with_panic(ranks: u32, config: MessageConfig, work: impl Fn(Ranks, Communicator, Request<()>) + Sync) {
    let job = Job::create(&JobConfig::new(ranks)).expect("memory is there");
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (job, work) = (&job, &work);
            scope.spawn(move || {
                let mut handlers = Handlers::new();
                let p2p = P2p::register_with(&mut handlers, config).unwrap();
                let panic = |_: &mut P2p, _, (), _: Payload<'_>| panic!("a handler of the program");
                let panic = handlers.one_way("panic", panic).unwrap();
                let shm = job.join_with(rank, JoinOptions::default().segment_bytes(1 << 20)).unwrap();
                let mut endpoint = Endpoint::attach(shm, handlers, p2p).unwrap();
                endpoint.set_timeout(Span::from_secs(20));
                let world = Communicator::world(&mut endpoint).unwrap();
                work(endpoint, world, panic);
            });
        }
    });
}

/// Whatever a copy by the system costs.
fn reading() -> MessageConfig {
    MessageConfig::default().lent_cost(u32::MAX)
}

fn pair(work: impl Fn(&mut Ranks, Communicator) + Sync) {
    run(2, reading(), |mut endpoint, world| {
        work(&mut endpoint, world.clone());
        endpoint.finish().unwrap();
    });
}

fn values(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + index / 256 + salt) as u8).collect()
}

fn counts(endpoint: &Ranks) -> Counts {
    endpoint.layer::<Messages>().counts()
}

#[test]
fn long_messages_are_read() {
    let lens = [8 << 10, (8 << 10) + 1, 12_345, LEN, 1 << 20, (1 << 20) + 1, (3 << 20) + 77];
    pair(|endpoint, world| {
        let other = 1 - world.rank();
        for (round, len) in lens.into_iter().enumerate() {
            let (mut into, sent) = (vec![0; len + 1], values(len, round));
            if other == 1 {
                world.send(endpoint, 1, 3, &sent).unwrap();
                world.synchronous_send(endpoint, 1, 3, &sent).unwrap();
                world.immediate_send(endpoint, 1, 3, &sent).unwrap().wait(endpoint).unwrap();
            } else {
                let status = world.receive_into(endpoint, ANY_SOURCE, 3, &mut into).unwrap();
                assert!(status.bytes() == len as u64 && into[..len] == sent && into[len] == 0);
                let request = world.immediate_receive::<_, _, u8>(endpoint, 0, 3, len).unwrap();
                assert_eq!(request.wait(endpoint).unwrap().0, sent);
                let request = world.immediate_receive::<_, _, u8>(endpoint, 0, 3, len + 1).unwrap();
                request.wait_into(endpoint, &mut into).unwrap();
                assert!(into[..len] == sent);
            }
        }
        let Counts { lent, ack, cts, rtr, .. } = counts(endpoint);
        // Messages of 8 KiB go eagerly, or are written where they are synchronous.
        let read = 3 * lens.len() as u64 - 2;
        if other == 1 {
            assert_eq!((lent, ack), (read - 1, 0));
        } else {
            assert_eq!((lent, ack, cts, rtr), (0, read - 1, 1, 0));
        }
    });
}

/// Where the system copies slowly, messages are written while there is room for them, and read otherwise.
#[test]
fn messages_are_written_beside_slow_copies() {
    const LENS: [usize; 3] = [12_345, LEN, (1 << 20) + 1];
    run(2, reading().lent_cost(0), |mut endpoint, world| {
        for (round, len) in LENS.into_iter().enumerate() {
            let (mut into, sent) = (vec![0; len], values(len, round));
            if world.rank() == 0 {
                world.send(&mut endpoint, 1, 3, &sent).unwrap();
                world.immediate_send(&mut endpoint, 1, 3, &sent).unwrap().wait(&mut endpoint).unwrap();
            } else {
                world.receive_into(&mut endpoint, 0, 3, &mut into).unwrap();
                assert!(into == sent, "{len} bytes");
                let request = world.immediate_receive::<_, _, u8>(&mut endpoint, 0, 3, len).unwrap();
                assert_eq!(request.wait(&mut endpoint).unwrap().0, sent);
            }
        }
        let Counts { lent, sender_initiated, receiver_initiated, crossing, .. } = counts(&endpoint);
        if world.rank() == 0 {
            // A quarter of the segment holds the first two lengths.
            assert_eq!((lent, sender_initiated + receiver_initiated + crossing), (2, 4));
        }
        endpoint.finish().unwrap();
    });
}

/// A receiver that reads a message part by part does not idle between them: what has to come is there.
#[test]
fn readers_do_not_sleep_between_parts() {
    const PARTS: usize = 40;
    let announced = Barrier::new(2);
    pair(|endpoint, world| {
        let len = PARTS << 20;
        if world.rank() == 0 {
            let request = world.immediate_send(endpoint, 1, 3, &vec![7u8; len]).unwrap();
            endpoint.poll().unwrap();
            announced.wait();
            request.wait(endpoint).unwrap();
        } else {
            announced.wait();
            let mut into = vec![0u8; len];
            let before = endpoint.idles();
            world.receive_into(endpoint, 0, 3, &mut into).unwrap();
            assert!(endpoint.idles() - before < PARTS as u64 / 4, "{} times", endpoint.idles() - before);
            assert!(into.iter().all(|byte| *byte == 7));
        }
    });
}

#[test]
fn both_ways_at_once_are_read() {
    pair(|endpoint, world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        for len in [LEN, (2 << 20) + 5] {
            let mut into = vec![0; len];
            let own = values(len, me as usize);
            world.send_receive_into(endpoint, (other, 1), &own, (other, 1), &mut into).unwrap();
            assert!(into == values(len, other as usize));
        }
        assert_eq!((counts(endpoint).lent, counts(endpoint).cts), (2, 0));
    });
}

/// What was sent is received, whatever the sender does with its memory once it has it back.
#[test]
fn memory_that_was_taken_back_is_not_read() {
    let sent_in_vain = Barrier::new(2);
    pair(|endpoint, world| {
        let mut own = values(LEN, 1);
        if world.rank() == 0 {
            endpoint.set_timeout(Span::from_millis(5));
            let error = world.send(endpoint, 1, 3, &own).unwrap_err();
            assert!(matches!(error, MessageError::Wait(WaitError::TimedOut(_))), "{error}");
            endpoint.set_timeout(Span::from_secs(20));
            own.fill(99);
            sent_in_vain.wait();
        } else {
            sent_in_vain.wait();
            let mut into = vec![0; LEN];
            world.receive_into(endpoint, 0, 3, &mut into).unwrap();
            assert!(into == own);
            assert_eq!((counts(endpoint).ack, counts(endpoint).cts), (0, 1));
        }
    });
}

/// Waits that have no buffer for a message read it all the same.
#[test]
fn every_wait_reads() {
    pair(|endpoint, world| {
        let sent = values(LEN, 4);
        if world.rank() == 0 {
            (0..3).for_each(|tag| world.send(endpoint, 1, tag, &sent).unwrap());
            let Counts { lent, sender_initiated, .. } = counts(endpoint);
            assert_eq!((lent, sender_initiated), (3, 0));
        } else {
            let receive =
                |endpoint: &mut Ranks, tag| world.immediate_receive::<_, _, u8>(endpoint, 0, tag, LEN).unwrap();
            let mut requests: Vec<_> = (0..3).map(|tag| receive(endpoint, tag)).collect();
            let mut last = requests.pop().unwrap();
            assert_eq!(wait_any(endpoint, &[&requests[0]]).unwrap(), Some(0));
            assert_eq!(requests.remove(0).wait(endpoint).unwrap().0, sent);
            wait_all(endpoint, &[&requests[0]]).unwrap();
            let mut into = vec![0; LEN];
            requests.remove(0).wait_into(endpoint, &mut into).unwrap();
            assert!(into == sent);
            let got = loop {
                match last.test(endpoint) {
                    Ok(outcome) => break outcome.unwrap().0,
                    Err(again) => last = again,
                }
            };
            assert!(got == sent);
        }
    });
}

/// A receive that is posted, a send, and a wait for the receive, at both ends.
#[test]
fn blocking_sends_read_what_is_received_meanwhile() {
    pair(|endpoint, world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        for len in [LEN / 4, (2 << 18) + 5] {
            let own: Vec<u32> = (0..len as u32).map(|index| index ^ me << 30).collect();
            let receive = world.immediate_receive::<_, _, u32>(endpoint, other, 1, len + 7).unwrap();
            world.send(endpoint, other, 1, &own).unwrap();
            let (got, _) = receive.wait(endpoint).unwrap();
            assert!(got.len() == len && got.iter().zip(&own).all(|(got, own)| got ^ own == 1 << 30));
        }
        let Counts { lent, cts, .. } = counts(endpoint);
        assert_eq!((lent, cts), (2, 0));
    });
}

/// Others that are read without end keep no message of a posted receive waiting.
#[test]
fn posted_receives_are_not_starved() {
    let done = AtomicBool::new(false);
    run(3, reading(), |mut endpoint, world| {
        let endpoint = &mut endpoint;
        let sent = values(LEN, 4);
        match world.rank() {
            0 => {
                let mut posted = Some(world.immediate_receive::<_, _, u8>(endpoint, 1, 1, LEN).unwrap());
                let mut into = vec![0u8; LEN];
                for _ in 0..10_000 {
                    world.receive_into(endpoint, 2, 2, &mut into).unwrap();
                    let Some(request) = posted.take() else { break };
                    match request.test(endpoint) {
                        Ok(outcome) => assert!(outcome.unwrap().0 == sent),
                        Err(again) => posted = Some(again),
                    }
                }
                assert!(posted.is_none(), "it is read at last");
                done.store(true, Ordering::Relaxed);
                while world.immediate_probe(endpoint, 2, 3).unwrap().is_none() {
                    if world.immediate_probe(endpoint, 2, 2).unwrap().is_some() {
                        world.receive_into(endpoint, 2, 2, &mut into).unwrap();
                    }
                }
            }
            1 => world.send(endpoint, 0, 1, &sent).unwrap(),
            _ => {
                let mut sends = std::collections::VecDeque::new();
                while !done.load(Ordering::Relaxed) {
                    sends.push_back(world.immediate_send(endpoint, 0, 2, &sent).unwrap());
                    if sends.len() > 3 {
                        sends.pop_front().unwrap().wait(endpoint).unwrap();
                    }
                }
                sends.into_iter().for_each(|send| send.wait(endpoint).unwrap());
                world.send(endpoint, 0, 3, &[0u8]).unwrap();
            }
        }
        world.team().barrier(endpoint).unwrap();
    });
}

/// A call that unwinds between two parts of a message lets its sender go on.
#[test]
fn unwound_receives_free_their_senders() {
    let ([offered, found, sent], freed) = ([(); 3].map(|()| Barrier::new(2)), AtomicBool::new(false));
    run_with_panic(2, reading(), |mut endpoint, world, panic| {
        if world.rank() == 0 {
            let send = world.immediate_send(&mut endpoint, 1, 3, &values(3 << 20, 4)).unwrap();
            endpoint.poll().unwrap();
            offered.wait();
            found.wait();
            endpoint.request(Rank(1), panic, ()).unwrap();
            sent.wait();
            let outcome = send.wait(&mut endpoint);
            freed.store(true, Ordering::Release);
            outcome.unwrap();
        } else {
            offered.wait();
            world.probe(&mut endpoint, 0, 3).unwrap();
            found.wait();
            sent.wait();
            let mut into = vec![0u8; 3 << 20];
            let receive = AssertUnwindSafe(|| world.receive_into(&mut endpoint, 0, 3, &mut into));
            assert!(catch_unwind(receive).is_err(), "its handler runs between two parts");
            while !freed.load(Ordering::Acquire) {
                endpoint.poll().unwrap();
            }
        }
        endpoint.finish().unwrap();
    });
}

/// A message whose call unwinds goes on by itself.
#[test]
fn unwound_sends_go_on() {
    for protocol in [Protocol::Elided, Protocol::SenderInitiated] {
        let (unwound, here) = (Barrier::new(2), AtomicBool::new(false));
        run_with_panic(2, reading().protocol(protocol), |mut endpoint, world, panic| {
            if world.rank() == 0 {
                let own = values(LEN, 4);
                let send = AssertUnwindSafe(|| world.send(&mut endpoint, 1, 3, &own));
                assert!(catch_unwind(send).is_err(), "its handler runs while the receiver does not receive");
                drop(own);
                unwound.wait();
                while !here.load(Ordering::Acquire) {
                    endpoint.poll().unwrap();
                }
            } else {
                world.probe(&mut endpoint, 0, 3).unwrap();
                endpoint.request(Rank(0), panic, ()).unwrap();
                unwound.wait();
                let mut into = vec![0; LEN];
                let outcome = world.receive_into(&mut endpoint, 0, 3, &mut into);
                here.store(true, Ordering::Release);
                outcome.unwrap();
                assert!(into == values(LEN, 4));
            }
            endpoint.finish().unwrap();
        });
    }
}

#[test]
fn receives_that_go_let_their_senders_go_on() {
    let offered = Barrier::new(2);
    pair(|endpoint, world| {
        if world.rank() == 0 {
            let send = world.immediate_send(endpoint, 1, 3, &values(LEN, 4)).unwrap();
            endpoint.poll().unwrap();
            offered.wait();
            send.wait(endpoint).unwrap();
            assert_eq!((counts(endpoint).lent, counts(endpoint).sender_initiated), (0, 0));
        } else {
            let request = world.immediate_receive::<_, _, u8>(endpoint, 0, 3, LEN).unwrap();
            offered.wait();
            endpoint.poll().unwrap();
            drop(request);
        }
    });
}

#[test]
fn lost_senders_and_receivers_are_told() {
    for sender_goes in [true, false] {
        let (offered, gone) = (Barrier::new(2), Barrier::new(2));
        run(2, reading(), |mut endpoint, world| {
            let goes = (world.rank() == 0) == sender_goes;
            let (lost, bytes) = (Rank(1 - world.rank()), values(LEN, 4));
            let send = (world.rank() == 0).then(|| world.immediate_send(&mut endpoint, 1, 3, &bytes).unwrap());
            let receive = (world.rank() == 1)
                .then(|| world.immediate_receive::<_, _, u8>(&mut endpoint, 0, 3, LEN).unwrap());
            endpoint.poll().unwrap();
            offered.wait();
            if goes {
                drop((send, receive));
                drop(endpoint);
                gone.wait();
                return;
            }
            gone.wait();
            let outcome = match (send, receive) {
                (Some(send), _) => send.wait(&mut endpoint),
                (_, Some(receive)) => receive.wait(&mut endpoint).map(drop),
                _ => unreachable!(),
            };
            assert!(
                matches!(outcome, Err(MessageError::Lost { rank, cause: LossCause::Left, .. }) if rank == lost),
                "{outcome:?}"
            );
        });
    }
}

#[test]
fn other_protocols_do_not_lend() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| *protocol != Protocol::Elided) {
        run(2, reading().protocol(protocol), |mut endpoint, world| {
            let endpoint = &mut endpoint;
            let mut into = vec![0; LEN];
            if world.rank() == 0 {
                world.send(endpoint, 1, 3, &values(LEN, 4)).unwrap();
            } else {
                world.receive_into(endpoint, 0, 3, &mut into).unwrap();
                assert!(into == values(LEN, 4));
            }
            world.team().barrier(endpoint).unwrap();
            assert_eq!(counts(endpoint).lent, 0);
        });
    }
}

/// A blocking receive that unwinds takes no message of those that come later.
#[test]
fn receives_behind_unwound_ones_get_their_messages() {
    run_with_panic(1, reading(), |mut endpoint, world, panic| {
        endpoint.set_timeout(Span::from_secs(20));
        endpoint.request(Rank(0), panic, ()).unwrap();
        let mut into = [0u8; 4];
        let receive = AssertUnwindSafe(|| world.receive_into(&mut endpoint, 0, 3, &mut into));
        assert!(catch_unwind(receive).is_err());
        let sent = world.immediate_send(&mut endpoint, 0, 3, &[1u8, 2, 3, 4]).unwrap();
        let (got, _) = world.receive_vec::<_, _, u8>(&mut endpoint, 0, 3).unwrap();
        assert_eq!(got, [1, 2, 3, 4]);
        sent.wait(&mut endpoint).unwrap();
        endpoint.finish().unwrap();
    });
}
