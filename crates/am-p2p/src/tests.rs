//! Messages between threads over the loopback transport.

use crate::layer::{self, Awaited};
use crate::machine::Copies;
use crate::request::{test_all, test_any, test_some, wait_all, wait_any, wait_some};
use crate::*;
use am_core::loopback::{Loopback, LoopbackConfig, network, network_over};
use am_core::{Endpoint, Handlers, LossCause, Rank, Select, Span, Transport, WaitError};
use am_pgas::sections::Strided;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

pub(crate) type Ranks = Endpoint<Loopback, P2p>;

pub(crate) fn run(
    ranks: u32,
    loopback: LoopbackConfig,
    config: MessageConfig,
    work: &(impl Fn(&mut Ranks, Communicator) + Sync),
) {
    thread::scope(|scope| {
        for transport in network(ranks, loopback) {
            scope.spawn(move || {
                let mut handlers = Handlers::new();
                let p2p = P2p::register_with(&mut handlers, config).unwrap();
                let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
                endpoint.set_timeout(Span::from_secs(20));
                let world = Communicator::world(&mut endpoint).unwrap();
                work(&mut endpoint, world);
                endpoint.finish().unwrap();
            });
        }
    });
}

/// All protocols, with and without memory in segments, with large and small Medium messages.
pub(crate) fn everywhere(ranks: u32, work: impl Fn(&mut Ranks, Communicator) + Sync) {
    for protocol in Protocol::ALL {
        for (medium, segment, eager) in [(8192, 1 << 16, 256), (128, 1 << 16, 0), (256, 0, 100)] {
            let loopback = LoopbackConfig::default().medium(medium).segment(segment);
            let config = MessageConfig::new().protocol(protocol).eager(eager);
            run(ranks, loopback, config, &work);
        }
    }
}

const LENS: [usize; 7] = [0, 1, 12, 64, 65, 2000, 30_000];

fn values(len: usize, salt: u32) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(2_654_435_761).wrapping_add(salt)).collect()
}

#[test]
fn blocking_round_trips() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        for (tag, len) in (0..).zip(LENS) {
            if world.rank() == 0 {
                world.send(endpoint, other, tag, &values(len, 1)).unwrap();
                world.synchronous_send(endpoint, other, tag, &values(len, 2)).unwrap();
            } else {
                let mut into = values(len + 1, 9);
                let status = world.receive_into(endpoint, other, tag, &mut into).unwrap();
                assert_eq!((status.source_rank(), status.tag(), status.count::<u32>()), (0, tag, len));
                assert_eq!((&into[..len], into[len]), (&values(len, 1)[..], values(len + 1, 9)[len]));
                let (got, _) = world.receive_vec::<_, _, u32>(endpoint, ANY_SOURCE, ANY_TAG).unwrap();
                assert_eq!(got, values(len, 2));
            }
            // Both at once, however long.
            let mut into = vec![0; len];
            let own = values(len, world.rank());
            world.send_receive_into(endpoint, (other, 99), &own, (other, 99), &mut into).unwrap();
            assert_eq!(into, values(len, other));
            let mut own = own;
            world.send_receive_replace(endpoint, (other, 98), (other, ANY_TAG), &mut own).unwrap();
            assert_eq!(own, values(len, other));
            // To oneself.
            let to_self = world.immediate_send(endpoint, world.rank(), 5, &own).unwrap();
            assert_eq!(world.receive_vec::<_, _, u32>(endpoint, world.rank(), 5).unwrap().0, own);
            to_self.wait(endpoint).unwrap();
        }
    });
}

#[test]
fn requests_together() {
    everywhere(3, |endpoint, world| {
        let (me, size) = (world.rank(), world.size());
        let receives: Vec<_> = (0..size)
            .flat_map(|from| LENS.map(|len| (from, len)))
            .map(|(from, len)| world.immediate_receive::<_, _, u32>(endpoint, from, len as i32, len).unwrap())
            .collect();
        let mut sends = Vec::new();
        for len in LENS.into_iter().rev() {
            for to in 0..size {
                sends.push(world.immediate_send(endpoint, to, len as i32, &values(len, me)).unwrap());
            }
        }
        let pending: Vec<&dyn Pending> = receives.iter().map(|request| request as &dyn Pending).collect();
        assert_eq!(wait_any(endpoint, &[]).unwrap(), None);
        let first = wait_any(endpoint, &pending).unwrap().unwrap();
        assert!(wait_some(endpoint, &pending).unwrap().contains(&first));
        wait_all(endpoint, &pending).unwrap();
        assert!(test_all(endpoint, &pending).unwrap());
        assert_eq!([test_any(endpoint, &pending).unwrap(), test_any(endpoint, &[]).unwrap()], [Some(0), None]);
        for (index, request) in receives.into_iter().enumerate() {
            let (from, len) = (index / LENS.len(), LENS[index % LENS.len()]);
            let (got, status) = request.test(endpoint).unwrap().unwrap();
            assert_eq!((got, status.source_rank()), (values(len, from as u32), from as u32));
            assert_eq!(status.element_type(), ElementType::of::<u32>());
        }
        for mut send in sends {
            while let Err(again) = send.test(endpoint) {
                send = again;
            }
        }
    });
}

#[test]
fn probes_and_cancels() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        if world.rank() == 0 {
            for len in LENS {
                let first = world.immediate_send(endpoint, other, 1, &values(len, 0)).unwrap();
                world.send(endpoint, other, 2, &values(len, 1)).unwrap();
                first.wait(endpoint).unwrap();
            }
            let left = world.immediate_receive::<_, _, u32>(endpoint, other, 7, 3000).unwrap();
            let kept = world.immediate_receive::<_, _, u32>(endpoint, other, 7, 3000).unwrap();
            assert!(left.cancel(endpoint).unwrap().is_none());
            world.send(endpoint, other, 3, &[0u8]).unwrap();
            assert_eq!(kept.wait(endpoint).unwrap().0, values(2500, 7));
            assert!(world.immediate_probe(endpoint, ANY_SOURCE, ANY_TAG).unwrap().is_none());
        } else {
            for len in LENS {
                let status = world.probe(endpoint, other, 2).unwrap();
                assert_eq!((status.count::<u32>(), status.tag()), (len, 2));
                let first = world.matched_probe(endpoint, ANY_SOURCE, ANY_TAG).unwrap();
                assert_eq!(first.status().tag(), 1);
                assert_eq!(world.receive_vec::<_, _, u32>(endpoint, other, ANY_TAG).unwrap().0, values(len, 1));
                let mut into = vec![0; len];
                first.receive_into(endpoint, &mut into).unwrap();
                assert_eq!(into, values(len, 0));
            }
            world.receive_vec::<_, _, u8>(endpoint, other, 3).unwrap();
            world.send(endpoint, other, 7, &values(2500, 7)).unwrap();
        }
    });
}

#[test]
fn persistent_and_sections() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        let mut send = world.send_init(other, 4, values(500, 0)).unwrap();
        let mut receive = world.receive_init(other, 4, vec![0u32; 500]).unwrap();
        assert_eq!(receive.wait(endpoint).unwrap(), None);
        for round in 0..5 {
            receive.start(endpoint).unwrap();
            send.values = values(500, round);
            send.start(endpoint).unwrap();
            assert_eq!(receive.wait(endpoint).unwrap().unwrap().count::<u32>(), 500);
            send.wait(endpoint).unwrap();
            assert_eq!(receive.values, values(500, round));
        }
        // Several together, tested and cancelled.
        let mut receives = [5, 6].map(|tag| world.receive_init(other, tag, vec![0u32; 500]).unwrap());
        let mut sends = [6, 5].map(|tag| world.send_init(other, tag, values(500, tag as u32)).unwrap());
        assert!(receives[0].request().is_none() && sends[0].request().is_none());
        receives.iter_mut().for_each(|receive| receive.start(endpoint).unwrap());
        assert!(receives[1].cancel(endpoint).unwrap() && receives[1].cancel(endpoint).unwrap());
        receives[1].start(endpoint).unwrap();
        world.team().barrier(endpoint).unwrap();
        sends.iter_mut().for_each(|send| send.start(endpoint).unwrap());
        let pending: Vec<_> = receives.iter().map(|receive| receive.request().unwrap()).collect();
        wait_all(endpoint, &pending).unwrap();
        for (tag, receive) in (5..).zip(&mut receives) {
            assert!(!receive.cancel(endpoint).unwrap());
            assert_eq!(receive.test(endpoint).unwrap().unwrap().tag(), tag);
            assert_eq!((receive.test(endpoint).unwrap(), &receive.values), (None, &values(500, tag as u32)));
        }
        while !sends.iter_mut().all(|send| send.test(endpoint).unwrap()) {}
        let all = values(400, 3);
        let request = world.immediate_receive::<_, _, u32>(endpoint, other, 8, usize::MAX).unwrap();
        let (column, row) = (Strided { start: 3, strides: &[20] }, Strided { start: 20, strides: &[1] });
        if world.rank() == 0 {
            world.send_strided(endpoint, (1, 5), &all, &[20], column).unwrap();
            world.send_indexed(endpoint, (1, 6), &all, 2, &[7, 100, 0]).unwrap();
        } else {
            let mut into = vec![0; 400];
            world.receive_strided(endpoint, (0, 5), &mut into, &[20], row).unwrap();
            assert_eq!(into[20..40], (0..20).map(|y| all[3 + 20 * y]).collect::<Vec<_>>());
            world.receive_indexed(endpoint, (0, 6), &mut into, 3, &[90, 0]).unwrap();
            assert_eq!(
                (&into[90..93], &into[..3]),
                (&[all[7], all[8], all[100]][..], &[all[101], all[0], all[1]][..])
            );
        }
        // Dropped, it is cancelled, and its message is another's.
        drop(request);
        assert!(world.immediate_probe(endpoint, other, 9).unwrap().is_none());
        world.team().barrier(endpoint).unwrap();
        let mut into = [0u32; 2];
        world.send_receive_into(endpoint, (other, 8), &[1u32, 2], (other, 8), &mut into).unwrap();
        assert_eq!(into, [1, 2]);
    });
}

#[test]
fn communicators_are_apart() {
    everywhere(3, |endpoint, world| {
        let copy = world.duplicate(endpoint).unwrap();
        let pair = world.group(endpoint, &[2, 0]).unwrap();
        assert_eq!(pair.is_some(), world.rank() != 1);
        let next = (world.rank() + 1) % 3;
        let a = world.immediate_send(endpoint, next, 0, &[1u64]).unwrap();
        let b = copy.immediate_send(endpoint, next, 0, &[2u64]).unwrap();
        assert_eq!(copy.receive::<_, _, u64>(endpoint, ANY_SOURCE, ANY_TAG).unwrap().0, 2);
        assert_eq!(world.receive::<_, _, u64>(endpoint, ANY_SOURCE, ANY_TAG).unwrap().0, 1);
        a.wait(endpoint).unwrap();
        b.wait(endpoint).unwrap();
        if let Some(pair) = pair {
            let me = pair.rank();
            assert_eq!(me, u32::from(world.rank() == 0));
            let mut into = [9u8];
            let status = pair.send_receive_into(endpoint, (1 - me, 3), &[me as u8], (ANY_SOURCE, 3), &mut into);
            assert_eq!((status.unwrap().source_rank(), into), (1 - me, [1 - me as u8]));
        }
        // What is left in a freed communicator goes.
        let receive = copy.immediate_receive::<_, _, u64>(endpoint, next, 1, 3000).unwrap();
        let late = copy.immediate_send(endpoint, next, 2, &values(3000, 0)).unwrap();
        let probed = copy.probe(endpoint, ANY_SOURCE, 2).unwrap();
        assert_eq!(probed.count::<u32>(), 3000);
        let kept = copy.clone();
        copy.free(endpoint).unwrap();
        let freed = |rank, tag, bytes| {
            let (rank, tag) = (AskedRank(rank), AskedTag(Some(tag)));
            MessageError::Freed { rank, tag, bytes }
        };
        let next_rank = Some(Rank(next));
        let error = receive.wait(endpoint).unwrap_err();
        assert_eq!(error, freed(next_rank, 1, AskedBytes::AtMost(24_000)));
        let error = late.wait(endpoint).unwrap_err();
        assert_eq!(error, freed(next_rank, 2, AskedBytes::Are(12_000)));
        let error = kept.receive::<_, _, u64>(endpoint, ANY_SOURCE, 1).unwrap_err();
        assert_eq!(error, freed(None, 1, AskedBytes::AtMost(8)));
        assert_eq!(kept.probe(endpoint, next, 1).unwrap_err(), freed(next_rank, 1, AskedBytes::Any));
        for len in [0, 1, 3000] {
            let error = kept.send(endpoint, next, 1, &values(len, 1)).unwrap_err();
            assert_eq!(error, freed(next_rank, 1, AskedBytes::Are(4 * len as u64)), "{len} values");
        }
        world.team().barrier(endpoint).unwrap();
    });
}

#[test]
fn wrong_calls_are_told() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        let size = |tag| MessageError::NoSuchMember { member: 2, size: 2, tag: Some(AskedTag(tag)) };
        assert_eq!(world.send(endpoint, 2, 5, &[0u8]).unwrap_err(), size(Some(5)));
        assert_eq!(world.receive::<_, _, u8>(endpoint, 2, ANY_TAG).unwrap_err(), size(None));
        assert_eq!(world.send(endpoint, 1, -1, &[0u8]).unwrap_err(), MessageError::BadTag { tag: -1 });
        for (tag, len) in (0..).zip([3, 3000]) {
            let send = world.immediate_send(endpoint, other, tag, &values(len, 0)).unwrap();
            let error = world.receive_into(endpoint, other, tag, &mut [0u32; 2]).unwrap_err();
            let (rank, told, bytes) = (Rank(other), AskedTag(Some(tag)), 4 * len as u64);
            assert_eq!(error, MessageError::Truncated { rank, tag: told, bytes, capacity: 8 });
            send.wait(endpoint).unwrap();
            let send = world.immediate_send(endpoint, other, tag, &values(len, 0)).unwrap();
            let error = world.receive_into(endpoint, other, tag, &mut [0f32; 4000]).unwrap_err();
            let (sent, expected) = (ElementType::of::<u32>(), ElementType::of::<f32>());
            assert_eq!(error, MessageError::WrongType { rank, tag: told, bytes, sent, expected });
            send.wait(endpoint).unwrap();
            let text = error.to_string();
            assert!(text.contains(&format!("{bytes} bytes from rank {other} with tag {tag}")), "{text}");
            // A slice shorter than what was asked for.
            let receive = world.immediate_receive::<_, _, u32>(endpoint, other, tag, 4000).unwrap();
            let send = world.immediate_send(endpoint, other, tag, &values(len, 0)).unwrap();
            let error = receive.wait_into(endpoint, &mut [0u32; 2]).unwrap_err();
            assert_eq!(error, MessageError::Truncated { rank, tag: told, bytes, capacity: 8 });
            send.wait(endpoint).unwrap();
        }
        let (rank, tag) = (Rank(other), AskedTag(Some(2)));
        let send = world.immediate_send::<_, _, u64>(endpoint, other, 2, &[]).unwrap();
        let error = world.receive::<_, _, u64>(endpoint, other, 2).unwrap_err();
        assert_eq!(error, MessageError::ShortMessage { rank, tag, bytes: 0, needed: 8 });
        send.wait(endpoint).unwrap();
        let send = world.immediate_send(endpoint, other, 2, &[1u16, 2]).unwrap();
        let error = world.receive_indexed(endpoint, (other, 2), &mut [0u16; 5], 1, &[4, 0, 1]).unwrap_err();
        assert_eq!(error, MessageError::ShortMessage { rank, tag, bytes: 4, needed: 6 });
        send.wait(endpoint).unwrap();
    });
}

#[test]
fn rings_of_long_sends_time_out() {
    let late = AtomicU32::new(0);
    everywhere(3, |endpoint, world| {
        let next = (world.rank() + 1) % 3;
        let previous = (world.rank() + 2) % 3;
        endpoint.set_timeout(Span::from_millis(40));
        // The first that gives up receives, so that others may get through.
        if let Err(error) = world.send(endpoint, next, 0, &values(9000, 0)) {
            assert!(matches!(error, MessageError::Wait(WaitError::TimedOut(_))), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("36000 bytes with tag 0 to rank {next}, which ")), "{text}");
            late.fetch_add(1, Ordering::Relaxed);
        }
        // The message goes on by itself.
        endpoint.set_timeout(Span::from_secs(20));
        assert_eq!(world.receive_vec::<_, _, u32>(endpoint, previous, 0).unwrap().0, values(9000, 0));
        world.team().barrier(endpoint).unwrap();
    });
    assert!(late.into_inner() >= 15);
}

/// The report of a wait names what is waited for: rank, tag, length and step.
#[test]
fn reports_name_messages() {
    everywhere(2, |endpoint, world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        endpoint.set_timeout(Span::from_millis(5));
        let told = |error: MessageError, words: &str| {
            let text = error.to_string();
            assert!(text.contains(words), "{text} lacks '{words}'");
        };
        let error = world.receive_into(endpoint, other, 3, &mut [0u32; 10]).unwrap_err();
        told(error, &format!("a message with tag 3 from rank {other} of at most 40 bytes, which has not come"));
        let error = world.receive_vec::<_, _, u32>(endpoint, ANY_SOURCE, ANY_TAG).unwrap_err();
        told(error, "a message with any tag from any rank, which has not come");
        told(
            world.probe(endpoint, other, 4).unwrap_err(),
            &format!("a message with tag 4 from rank {other} to probe"),
        );
        let error = world.synchronous_send(endpoint, me, 5, &[7u8; 3]).unwrap_err();
        told(error, &format!("the message of 3 bytes with tag 5 to rank {me}, a synchronous one"));
        endpoint.set_timeout(Span::from_secs(20));
        world.receive_vec::<_, _, u8>(endpoint, me, 5).unwrap();
        world.team().barrier(endpoint).unwrap();
    });
}

/// All ranks choose, or none: a communicator of fewer cannot, nor can one rank while another has a receive.
#[test]
fn all_ranks_choose_or_none() {
    let config = MessageConfig::new().protocol(Protocol::Elided);
    run(2, LoopbackConfig::default(), config, &|endpoint, world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let alone = world.split(endpoint, Some(me), 0).unwrap().unwrap();
        let error = alone.choose(endpoint, Protocol::Read, 16).unwrap_err();
        assert_eq!(error, MessageError::NotAllRanks { size: 1, ranks: 2 });
        let receive = world.immediate_receive::<_, _, u8>(endpoint, other, 1, 8).unwrap();
        let receive = if me == 0 { Some(receive) } else { receive.cancel(endpoint).unwrap() };
        let error = world.choose(endpoint, Protocol::Read, 16).unwrap_err();
        assert_eq!(error, MessageError::UnderWay { sends: 0, receives: u64::from(me == 0), unasked: 0 });
        assert_eq!(endpoint.layer::<Messages>().config().protocol, Protocol::Elided);
        assert!(receive.is_none_or(|receive| receive.cancel(endpoint).unwrap().is_none()));
        world.choose(endpoint, Protocol::Read, 16).unwrap();
        assert_eq!(endpoint.layer::<Messages>().config().protocol, Protocol::Read);
        let mut into = vec![0; 9000];
        world.send_receive_into(endpoint, (other, 2), &values(9000, 1), (other, 2), &mut into).unwrap();
        assert_eq!((into, world.counts(endpoint).ignored), (values(9000, 1), 0));
    });
}

#[test]
fn floods_wait_for_credit() {
    for protocol in Protocol::ALL {
        let config = MessageConfig::new().protocol(protocol).unexpected(8 << 10).eager(512);
        run(2, LoopbackConfig::default(), config, &|endpoint, world| {
            if world.rank() == 0 {
                for number in 0..500u32 {
                    world.send(endpoint, 1, 0, &[number]).unwrap();
                }
                assert!(world.counts(endpoint).stalled > 0);
            } else {
                world.probe(endpoint, 0, 0).unwrap();
                // They come backwards by tag, and forwards by number.
                for number in 0..500 {
                    assert_eq!(world.receive::<_, _, u32>(endpoint, ANY_SOURCE, ANY_TAG).unwrap().0, number);
                }
            }
        });
    }
}

#[test]
fn lost_peers_are_named() {
    for protocol in Protocol::ALL {
        let config = MessageConfig::new().protocol(protocol).eager(64);
        thread::scope(|scope| {
            for transport in network(3, LoopbackConfig::default()) {
                scope.spawn(move || {
                    let mut handlers = Handlers::new();
                    let p2p = P2p::register_with(&mut handlers, config).unwrap();
                    let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
                    endpoint.set_timeout(Span::from_secs(20));
                    let world = Communicator::world(&mut endpoint).unwrap();
                    if world.rank() == 2 {
                        world.send(&mut endpoint, 0, 1, &[7u32]).unwrap();
                        let offered = world.immediate_send(&mut endpoint, 0, 2, &values(3000, 0)).unwrap();
                        world.receive::<_, _, u8>(&mut endpoint, 1, 0).unwrap();
                        // Without a word.
                        drop(offered);
                        drop(endpoint);
                        return;
                    }
                    let lost = |tag, bytes| MessageError::Lost {
                        rank: Rank(2),
                        tag: AskedTag(Some(tag)),
                        bytes,
                        cause: LossCause::Left,
                    };
                    if world.rank() == 1 {
                        let receive = world.immediate_receive::<_, _, u32>(&mut endpoint, 2, 3, 3000).unwrap();
                        world.receive::<_, _, u8>(&mut endpoint, 0, 8).unwrap();
                        world.send(&mut endpoint, 2, 0, &[0u8]).unwrap();
                        assert_eq!(receive.wait(&mut endpoint).unwrap_err(), lost(3, AskedBytes::AtMost(12_000)));
                        let error = world.receive::<_, _, u8>(&mut endpoint, ANY_SOURCE, 4).unwrap_err();
                        assert_eq!(error, lost(4, AskedBytes::AtMost(1)));
                        assert_eq!(world.acknowledge_losses(&mut endpoint), [2]);
                    } else {
                        assert_eq!(world.probe(&mut endpoint, 2, 2).unwrap().count::<u32>(), 3000);
                        world.send(&mut endpoint, 1, 8, &[0u8]).unwrap();
                        let error = world.receive_vec::<_, _, u32>(&mut endpoint, 2, 9).unwrap_err();
                        assert_eq!(error, lost(9, AskedBytes::Any));
                        // What had come is there, what had been announced is not.
                        assert_eq!(world.receive::<_, _, u32>(&mut endpoint, 2, 1).unwrap().0, 7);
                        let error = world.receive_vec::<_, _, u32>(&mut endpoint, 2, 2).unwrap_err();
                        assert_eq!(error, lost(2, AskedBytes::Any));
                        let error = world.send(&mut endpoint, 2, 5, &values(3000, 0)).unwrap_err();
                        assert_eq!(error, lost(5, AskedBytes::Are(12_000)));
                        assert_eq!(world.acknowledge_losses(&mut endpoint), [2]);
                    }
                    // Survivors go on.
                    let other = 1 - world.rank();
                    let mut into = vec![0; 3000];
                    let own = values(3000, world.rank());
                    world.send_receive_into(&mut endpoint, (other, 6), &own, (ANY_SOURCE, 6), &mut into).unwrap();
                    assert_eq!(into, values(3000, other));
                    endpoint.acknowledge_loss(Rank(2));
                    endpoint.drain().unwrap();
                    endpoint.leave();
                });
            }
        });
    }
}

/// What a lost rank was to write to is memory for others' messages again, since it writes no more.
#[test]
fn memory_comes_back_after_losses() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| *protocol >= Protocol::ReceiverInitiated) {
        let config = MessageConfig::new().protocol(protocol).eager(64).staging(16 << 10);
        thread::scope(|scope| {
            for transport in network(2, LoopbackConfig::default().segment(1 << 16)) {
                scope.spawn(move || {
                    let mut handlers = Handlers::new();
                    let p2p = P2p::register_with(&mut handlers, config).unwrap();
                    let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
                    endpoint.set_timeout(Span::from_secs(20));
                    let endpoint = &mut endpoint;
                    let world = Communicator::world(endpoint).unwrap();
                    if world.rank() == 1 {
                        // Until it has been told where to write.
                        world.receive::<_, _, u8>(endpoint, 0, 1).unwrap();
                        return;
                    }
                    // All of the memory.
                    let receive = world.immediate_receive::<_, _, u8>(endpoint, 1, 3, 16 << 10).unwrap();
                    endpoint.drain().unwrap();
                    let has = |endpoint: &mut Ranks| endpoint.layer::<Messages>().machine.staging_has(16 << 10);
                    assert!(!has(endpoint) && world.counts(endpoint).rtr == 1);
                    world.send(endpoint, 1, 1, &[0u8]).unwrap();
                    let error = receive.wait(endpoint).unwrap_err();
                    assert_eq!(error.loss(), Some((Rank(1), LossCause::Left)));
                    assert!(has(endpoint));
                });
            }
        });
    }
}

#[test]
fn calls_that_do_not_block_learn_of_losses() {
    thread::scope(|scope| {
        for transport in network(3, LoopbackConfig::default()) {
            scope.spawn(move || {
                let mut handlers = Handlers::new();
                let p2p = P2p::register(&mut handlers).unwrap();
                let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
                let world = Communicator::world(&mut endpoint).unwrap();
                if world.rank() == 2 {
                    // Without a word.
                    drop(endpoint);
                    return;
                }
                let endpoint = &mut endpoint;
                let lost_of = |tag, bytes| MessageError::Lost {
                    rank: Rank(2),
                    tag: AskedTag(Some(tag)),
                    bytes,
                    cause: LossCause::Left,
                };
                let (lost, probed) =
                    (|tag| lost_of(tag, AskedBytes::AtMost(8)), |tag| lost_of(tag, AskedBytes::Any));
                for source in [ANY_SOURCE, Source::Member(2)] {
                    let mut request = world.immediate_receive::<_, _, u8>(endpoint, source, 1, 8).unwrap();
                    let error = loop {
                        match request.test(endpoint) {
                            Ok(outcome) => break outcome.unwrap_err(),
                            Err(again) => request = again,
                        }
                    };
                    assert_eq!(error, lost(1));
                    let request = world.immediate_receive::<_, _, u8>(endpoint, source, 2, 8).unwrap();
                    assert_eq!(test_some(endpoint, &[&request]).unwrap(), [0]);
                    assert_eq!(wait_any(endpoint, &[&request]).unwrap(), Some(0));
                    assert_eq!(request.wait(endpoint).unwrap_err(), lost(2));
                    assert_eq!(world.immediate_probe(endpoint, source, 3).unwrap_err(), probed(3));
                    let error = world.immediate_matched_probe(endpoint, source, 4).unwrap_err();
                    assert_eq!(error, probed(4));
                    let request = world.immediate_receive::<_, _, u8>(endpoint, source, 5, 8).unwrap();
                    if let Some(request) = request.cancel(endpoint).unwrap() {
                        assert_eq!(request.wait(endpoint).unwrap_err(), lost(5));
                    }
                }
                assert_eq!(world.acknowledge_losses(endpoint), [2]);
                assert_eq!(world.immediate_probe(endpoint, ANY_SOURCE, 3).unwrap(), None);
                endpoint.acknowledge_loss(Rank(2));
                // Neither leaves before the other has looked.
                let other = 1 - world.rank();
                world.send_receive_into(endpoint, (other, 6), &[0u8], (other, 6), &mut [0u8]).unwrap();
                endpoint.drain().unwrap();
            });
        }
    });
}

/// How long messages come is said for those that a probe has set aside, too.
#[test]
fn long_messages_that_were_probed_come_as_others_do() {
    run(2, LoopbackConfig::default(), MessageConfig::new(), &|endpoint, world| {
        let sent = values(30_000, 5);
        if world.rank() == 0 {
            world.send(endpoint, 1, 0, &sent).unwrap();
        } else {
            let message = world.matched_probe(endpoint, 0, 0).unwrap();
            assert!(endpoint.layer::<Messages>().machine.wants_copies());
            assert_eq!(message.receive_vec::<_, _, u32>(endpoint).unwrap().0, sent);
            assert!(!endpoint.layer::<Messages>().machine.wants_copies());
        }
    });
}

#[test]
fn exhausted_memory_is_named() {
    // Room for four messages.
    let config = MessageConfig::new().unexpected(0);
    run(2, LoopbackConfig::default(), config, &|endpoint, world| {
        if world.rank() == 0 {
            let send = |endpoint: &mut Ranks, tag| world.immediate_send(endpoint, 1, tag, &[7u8]).unwrap();
            let sends: Vec<_> = [0, 0, 0, 0, 0, 1].into_iter().map(|tag| send(endpoint, tag)).collect();
            for request in sends {
                request.wait(endpoint).unwrap();
            }
        } else {
            while endpoint.layer::<Messages>().machine.exhausted().is_empty() {
                endpoint.poll().unwrap();
            }
            // At once, without a time-out.
            let told = MessageError::Exhausted { rank: Rank(0), tag: AskedTag(Some(1)), messages: 4 };
            assert_eq!(world.probe(endpoint, 0, 1).unwrap_err(), told);
            let error = world.receive::<_, _, u8>(endpoint, 0, 1).unwrap_err();
            assert_eq!(error, told);
            assert!(world.immediate_probe(endpoint, 0, 1).unwrap().is_none());
            let text = error.to_string();
            assert!(text.contains("4 messages of rank 0 wait for receives"), "{text}");
            assert!(text.contains("MessageConfig::unexpected"), "{text}");
            starved_waits_end(endpoint, &world, &told);
            // Two that are let go make room for another one and for the one that is waited for then.
            let one = world.immediate_receive::<_, _, u8>(endpoint, 0, 1, 1).unwrap();
            drop([(); 2].map(|()| world.matched_probe(endpoint, 0, 0).unwrap()));
            assert_eq!(wait_any(endpoint, &[&one]).unwrap(), Some(0));
            assert_eq!(one.wait(endpoint).unwrap().0, [7]);
            for tag in [0, 0, 0] {
                world.receive::<_, _, u8>(endpoint, 0, tag).unwrap();
            }
        }
    });
}

/// Waits for requests, none of which can be over, end like those for one of them; so do those for any source.
fn starved_waits_end(endpoint: &mut Ranks, world: &Communicator, told: &MessageError) {
    let one = world.immediate_receive::<_, _, u8>(endpoint, 0, 1, 1).unwrap();
    let any = world.immediate_receive::<_, _, u8>(endpoint, ANY_SOURCE, 1, 1).unwrap();
    assert_eq!(wait_any(endpoint, &[&one, &any]).unwrap(), Some(0));
    assert_eq!(wait_any(endpoint, &[&any, &one]).unwrap(), Some(0));
    assert_eq!(wait_some(endpoint, &[&one, &any]).unwrap(), [0]);
    wait_all(endpoint, &[&one, &any]).unwrap();
    // The program may receive the others, and then these.
    assert!(!test_all(endpoint, &[&one, &any]).unwrap());
    // One that can still come, from this rank itself, is waited for.
    let own = world.immediate_receive::<_, _, u8>(endpoint, 1, 3, 1).unwrap();
    world.send(endpoint, 1, 3, &[3u8]).unwrap();
    assert_eq!(wait_any(endpoint, &[&one, &own, &any]).unwrap(), Some(1));
    assert_eq!(own.wait(endpoint).unwrap().0, [3]);
    for request in [one, any] {
        assert_eq!(request.wait(endpoint).unwrap_err(), *told);
    }
    assert_eq!(world.probe(endpoint, ANY_SOURCE, 1).unwrap_err(), *told);
    assert_eq!(world.receive::<_, _, u8>(endpoint, ANY_SOURCE, 1).unwrap_err(), *told);
}

#[cfg(feature = "serde")]
#[test]
fn values_of_any_type() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        let text: Vec<(String, Option<u32>)> =
            (0..400).map(|number| (format!("{number}"), Some(number))).collect();
        if world.rank() == 0 {
            world.send_value(endpoint, other, 0, &text).unwrap();
            world.send(endpoint, other, 0, &[1u16]).unwrap();
            world.send_value(endpoint, other, 0, "x").unwrap();
            world.send_value(endpoint, other, 0, &(7u32, 8u32)).unwrap();
            world.send_value(endpoint, other, 0, "hello").unwrap();
        } else {
            let (got, _) = world.receive_value::<_, _, Vec<(String, Option<u32>)>>(endpoint, other, 0).unwrap();
            assert_eq!(got, text);
            let error = world.receive_value::<_, _, u8>(endpoint, other, 0).unwrap_err();
            assert!(matches!(error, MessageError::WrongType { .. }), "{error}");
            let error = world.receive_value::<_, _, (u64, u64, u64)>(endpoint, other, 0).unwrap_err();
            assert!(matches!(error, MessageError::Value { .. }), "{error}");
            assert!(error.to_string().contains("2 bytes from rank 0 with tag 0"), "{error}");
            // What is left over is no part of a value of the type.
            for bytes in [2, 6] {
                let error = world.receive_value::<_, _, u32>(endpoint, other, 0).unwrap_err();
                let (rank, tag) = (Rank(0), AskedTag(Some(0)));
                assert_eq!(error, MessageError::LongerValue { rank, tag, bytes, used: 1 });
            }
        }
    });
}

/// Where answers to some ranks are shorter than to others, messages that are read come from both.
#[test]
fn messages_are_read_over_unequal_limits() {
    let (far, near) = (LoopbackConfig::default().segment(0), LoopbackConfig::default().medium(256));
    let far = network(3, far.direct(false));
    let hosts = [vec![Rank(0), Rank(2)], vec![Rank(1)]];
    let mut near = hosts.clone().map(|host| {
        let segments = host.iter().map(|rank| far[rank.0 as usize].segment().clone()).collect();
        network_over(segments, near).into_iter()
    });
    let both = far.into_iter().enumerate().map(|(rank, far)| {
        let host = rank % 2;
        Select::both(near[host].next().unwrap(), far, &hosts[host], |_| true).unwrap()
    });
    let both: Vec<_> = both.collect();
    let config = MessageConfig::new().protocol(Protocol::Read);
    thread::scope(|scope| {
        for transport in both {
            scope.spawn(move || {
                let mut handlers = Handlers::<P2p>::new();
                let p2p = P2p::register_with(&mut handlers, config).unwrap();
                let mut endpoint = Endpoint::attach(transport, handlers, p2p).unwrap();
                endpoint.set_timeout(Span::from_secs(20));
                let world = Communicator::world(&mut endpoint).unwrap();
                let (me, size) = (world.rank(), world.size());
                let sends: Vec<_> = (0..size)
                    .map(|to| world.immediate_send(&mut endpoint, to, 3, &values(5000, me)).unwrap())
                    .collect();
                for from in 0..size {
                    let got = world.receive_vec::<_, _, u32>(&mut endpoint, from, 3).unwrap().0;
                    assert_eq!(got, values(5000, from));
                }
                sends.into_iter().for_each(|send| send.wait(&mut endpoint).unwrap());
                assert_eq!(world.counts(&endpoint).ignored, 0);
                endpoint.finish().unwrap();
            });
        }
    });
}

/// Only the time of calls that wait counts for messages that are written.
#[test]
fn what_programs_compute_is_not_timed() {
    everywhere(1, |endpoint, _| {
        let away = |endpoint: &mut Ranks| endpoint.layer_mut::<Messages>().machine.is_away();
        endpoint.layer_mut::<Messages>().machine.note_copies(Copies::timed(100));
        assert_eq!(away(endpoint), Some((true, false)));
        let waiting = layer::wait(endpoint, Awaited::One(Rank(0)), |endpoint| Ok(Some(away(endpoint))));
        assert_eq!((waiting.unwrap(), away(endpoint)), (Some((false, true)), Some((true, false))));
    });
}
