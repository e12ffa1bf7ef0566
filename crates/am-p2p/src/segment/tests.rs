//! Messages of segments over the loopback transport, which shows nobody the segments of others.

use super::*;
use crate::request::{wait_all, wait_any};
use crate::tests::{Ranks, everywhere, run};
use crate::*;
use am_core::Span;
use am_core::loopback::LoopbackConfig;
use am_pgas::allocator::{AllocationError, SegmentAllocation};
use am_pgas::memory::GlobalMemory;
use am_pgas::pointer::GlobalPtr;

const LENS: [u64; 6] = [0, 1, 12, 65, 2000, 2500];

fn values(len: u64, salt: u32) -> Vec<u32> {
    (0..len as u32).map(|index| index.wrapping_mul(2_654_435_761).wrapping_add(salt)).collect()
}

/// Memory with values; `None` where segments have none.
fn filled(endpoint: &mut Ranks, len: u64, salt: u32) -> Option<LocalArray<u32>> {
    let array = endpoint.allocate_local::<u32>(len).ok()?;
    endpoint.local(array.slice()).unwrap().unwrap().write(0, &values(len, salt));
    Some(array)
}

fn found(endpoint: &Ranks, memory: &impl SegmentMemory<Value = u32>, len: u64) -> Vec<u32> {
    let slice = memory.slice_on(endpoint.rank()).unwrap();
    endpoint.local(slice.range(0..len).unwrap()).unwrap().unwrap().to_vec()
}

fn free(endpoint: &mut Ranks) -> u64 {
    let Err(AllocationError::Exhausted { total, .. }) = endpoint.allocate_local::<u8>(1 << 40) else {
        panic!("nobody has so much memory");
    };
    total
}

/// From segment to segment, from and to slices, blocking and not, and over and over.
#[test]
fn all_forms_travel() {
    everywhere(2, |endpoint, world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let before = free(endpoint);
        for (tag, len) in (0..).zip(LENS) {
            let Some(out) = filled(endpoint, len, me) else { continue };
            let Some(mut into) = filled(endpoint, len + 3, 9) else { continue };
            let theirs = values(len, other);
            let mut slice = vec![0; len as usize];
            if me == 0 {
                world.send_segment(endpoint, other, tag, &out).unwrap();
                world.synchronous_send_segment(endpoint, other, tag, &out).unwrap();
                world.send(endpoint, other, tag, &values(len, me)).unwrap();
                let sent = world.immediate_send_segment(endpoint, other, tag, out.slice()).unwrap();
                sent.wait(endpoint).unwrap();
            } else {
                let status = world.receive_into(endpoint, other, tag, &mut slice).unwrap();
                assert_eq!((status.count::<u32>() as u64, &slice), (len, &theirs));
                let status;
                (into, status) = world.receive_segment(endpoint, ANY_SOURCE, tag, into).unwrap();
                assert_eq!((status.source_rank(), status.count::<u32>() as u64), (0, len));
                assert_eq!(found(endpoint, &into, len), theirs);
                assert_eq!(found(endpoint, &into, len + 3)[len as usize..], values(len + 3, 9)[len as usize..]);
                for _ in 0..2 {
                    endpoint.local(into.slice()).unwrap().unwrap().fill(0);
                    let receive = world.immediate_receive_segment(endpoint, other, tag, into).unwrap();
                    assert_eq!(wait_any(endpoint, &[&receive]).unwrap(), Some(0));
                    (into, _) = receive.test(endpoint).unwrap().unwrap();
                    assert_eq!(found(endpoint, &into, len), theirs);
                }
            }
            let status;
            (into, status) = world.send_receive_segment(endpoint, (other, 99), &out, (other, 99), into).unwrap();
            assert_eq!((found(endpoint, &into, len), status.count::<u32>() as u64), (theirs.clone(), len));
            // To oneself.
            let receive = world.immediate_receive_segment(endpoint, me, 5, into).unwrap();
            world.send_segment(endpoint, me, 5, &out).unwrap();
            (into, _) = receive.wait(endpoint).unwrap();
            assert_eq!(found(endpoint, &into, len), values(len, me));
            // Set aside, and parts of one array.
            let whole = Arc::new(into);
            let (low, high) = (len / 2, len - len / 2);
            if me == 0 {
                let out = Arc::new(out);
                let of = |range| Part::new(Arc::clone(&out), range);
                let sends = [of(0..low), of(low..len)]
                    .map(|part| world.immediate_synchronous_send_segment(endpoint, other, tag, part).unwrap());
                let pending: Vec<&dyn Pending> = sends.iter().map(|send| send as &dyn Pending).collect();
                wait_all(endpoint, &pending).unwrap();
                for mut send in sends {
                    while let Err(again) = send.test(endpoint) {
                        send = again;
                    }
                }
            } else {
                endpoint.local(whole.slice()).unwrap().unwrap().fill(0);
                let first = world.matched_probe(endpoint, other, tag).unwrap();
                let part = Part::new(Arc::clone(&whole), 0..low);
                let (_, status) = first.receive_segment(endpoint, part).unwrap();
                assert_eq!(status.count::<u32>() as u64, low);
                let part = Part::new(Arc::clone(&whole), low..len + 1);
                let (_, status) = world.receive_segment(endpoint, other, ANY_TAG, part).unwrap();
                assert_eq!((status.count::<u32>() as u64, found(endpoint, &*whole, len)), (high, theirs));
            }
        }
        // What nobody has any more is free again.
        world.team().barrier(endpoint).unwrap();
        assert_eq!(free(endpoint), before);
    });
}

#[test]
fn persistent_forms_repeat() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        let Some(memory) = filled(endpoint, 2000, 0) else { return };
        if world.rank() == 0 {
            let mut send = world.send_segment_init(endpoint, other, 1, memory).unwrap();
            for turn in 0..4 {
                endpoint.local(send.memory().slice()).unwrap().unwrap().write(0, &values(2000, turn));
                send.start(endpoint).unwrap();
                while !send.test(endpoint).unwrap() {}
                send.wait(endpoint).unwrap();
            }
        } else {
            let mut receive = world.receive_segment_init(endpoint, other, 1, memory).unwrap();
            for turn in 0..4 {
                receive.start(endpoint).unwrap();
                let status = if turn % 2 == 0 {
                    receive.wait(endpoint).unwrap()
                } else {
                    wait_any(endpoint, &[receive.request().unwrap()]).unwrap();
                    receive.test(endpoint).unwrap()
                };
                assert_eq!(status.unwrap().count::<u32>(), 2000);
                assert_eq!(found(endpoint, receive.memory(), 2000), values(2000, turn));
            }
            receive.start(endpoint).unwrap();
            assert!(receive.cancel(endpoint).unwrap());
        }
    });
}

#[test]
fn wrong_memory_is_told() {
    let loopback = LoopbackConfig::default().segment(1 << 16);
    run(2, loopback, MessageConfig::new(), &|endpoint, world| {
        let (me, other) = (endpoint.rank(), 1 - world.rank());
        let theirs = GlobalPtr::<u64>::new(Rank(other), 8).slice(2);
        let error = world.send_segment(endpoint, other, 1, &theirs).unwrap_err();
        let segment = 1 << 16;
        assert_eq!(error, MessageError::Place { rank: Rank(other), offset: 8, bytes: 16, me, segment });
        let beyond = GlobalPtr::<u64>::new(me, segment - 8).slice(2);
        let error = world.receive_segment(endpoint, other, 1, beyond).unwrap_err();
        let expected = MessageError::Place { rank: me, offset: segment - 8, bytes: 16, me, segment };
        assert_eq!((error.to_string(), error), (expected.to_string(), expected));
        let huge = GlobalPtr::<u64>::new(me, 8).slice(u64::MAX);
        assert!(matches!(world.send_segment(endpoint, other, 1, &huge), Err(MessageError::Place { .. })));
        let array = endpoint.allocate_local::<u64>(4).unwrap();
        let outside = Part::new(Arc::new(array), 2..5);
        let error = world.immediate_send_segment(endpoint, other, 1, outside).unwrap_err();
        assert_eq!(error, MessageError::Outside { lowest: 2, highest: 4, len: 4 });
    });
}

/// Messages that are too long leave memory as it is; those of another type may change it.
#[test]
fn wrong_messages_are_told() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        let Some(memory) = filled(endpoint, 1000, world.rank()) else { return };
        let memory = Arc::new(memory);
        for len in [3, 900] {
            if world.rank() == 0 {
                let part = Part::new(Arc::clone(&memory), 0..len);
                world.send_segment(endpoint, other, 1, &part).unwrap();
                world.send_segment(endpoint, other, 2, &part).unwrap();
            } else {
                let part = Part::new(Arc::clone(&memory), 0..len - 1);
                let error = world.receive_segment(endpoint, other, 1, part).unwrap_err();
                let truncated = matches!(error, MessageError::Truncated { bytes, capacity, .. }
                    if (bytes, capacity) == (4 * len, 4 * len - 4));
                assert!(truncated, "{error}");
                assert_eq!(found(endpoint, &memory, 1000), values(1000, 1));
                let floats = GlobalPtr::<f32>::new(endpoint.rank(), memory.slice().offset()).slice(1000);
                let error = world.receive_segment(endpoint, other, 2, floats).unwrap_err();
                assert!(matches!(error, MessageError::WrongType { .. }), "{error}");
                // What was written there by then is.
                endpoint.local(memory.slice()).unwrap().unwrap().write(0, &values(1000, 1));
            }
        }
    });
}

/// A request that is dropped leaves the memory with its message.
#[test]
fn dropped_requests_keep_memory() {
    everywhere(2, |endpoint, world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let Some(memory) = filled(endpoint, 2500, me) else { return };
        let before = free(endpoint);
        if me == 0 {
            drop(world.immediate_send_segment(endpoint, other, 1, memory).unwrap());
            // What is allocated now is other memory, for as long as the message is under way.
            let others = filled(endpoint, 2500, 77).unwrap();
            world.receive_into::<_, _, u8>(endpoint, other, 2, &mut []).unwrap();
            drop(others);
        } else {
            let left = world.immediate_receive_segment(endpoint, other, 3, memory).unwrap();
            drop(left);
            let (got, _) = world.receive_vec::<_, _, u32>(endpoint, other, 1).unwrap();
            assert_eq!(got, values(2500, 0));
            world.send::<_, _, u8>(endpoint, other, 2, &[]).unwrap();
        }
        world.team().barrier(endpoint).unwrap();
        for _ in 0..200 {
            endpoint.poll().unwrap();
        }
        assert!(free(endpoint) > before + 9000, "the memory is free again");
    });
}

/// A blocking send that times out goes on with a copy; its memory can be used at once.
#[test]
fn sends_that_time_out_go_on() {
    everywhere(2, |endpoint, world| {
        let other = 1 - world.rank();
        if endpoint.segment().len() < 4096 {
            return;
        }
        if world.rank() == 0 {
            let memory = filled(endpoint, 2500, 3).unwrap();
            endpoint.set_timeout(Span::from_millis(20));
            let error = world.synchronous_send_segment(endpoint, other, 1, &memory).unwrap_err();
            assert!(matches!(error, MessageError::Wait(_)), "{error}");
            endpoint.set_timeout(Span::from_secs(20));
            endpoint.local(memory.slice()).unwrap().unwrap().fill(0);
            world.send(endpoint, other, 2, &[1u8]).unwrap();
        } else {
            world.receive_into(endpoint, other, 2, &mut [0u8]).unwrap();
            assert_eq!(world.receive_vec::<_, _, u32>(endpoint, other, 1).unwrap().0, values(2500, 3));
        }
        world.team().barrier(endpoint).unwrap();
    });
}

/// A persistent receive whose wait failed does not begin again while its message may still be written.
#[test]
fn a_receive_that_timed_out_waits_for_its_message() {
    let silent = std::sync::Barrier::new(2);
    let (loopback, writes) = (LoopbackConfig::default().segment(1 << 16), MessageConfig::new());
    run(2, loopback, writes.protocol(Protocol::SenderInitiated), &|endpoint, world| {
        let other = 1 - world.rank();
        let memory = filled(endpoint, 2500, 9).unwrap();
        if world.rank() == 0 {
            let sent = world.immediate_send_segment(endpoint, other, 1, memory).unwrap();
            endpoint.poll().unwrap();
            silent.wait();
            silent.wait();
            let memory = sent.wait(endpoint).unwrap();
            endpoint.local(memory.slice()).unwrap().unwrap().write(0, &values(2500, 4));
            world.send_segment(endpoint, other, 1, &memory).unwrap();
        } else {
            let mut receive = world.receive_segment_init(endpoint, other, 1, memory).unwrap();
            silent.wait();
            endpoint.set_timeout(Span::from_millis(20));
            receive.start(endpoint).unwrap();
            assert!(matches!(receive.wait(endpoint), Err(MessageError::Wait(_))));
            endpoint.set_timeout(Span::from_secs(20));
            let again = receive.start(endpoint);
            silent.wait();
            assert!(matches!(again, Err(MessageError::Landing { .. })), "{again:?}");
            while let Err(error) = receive.start(endpoint) {
                assert!(matches!(error, MessageError::Landing { .. }), "{error}");
                endpoint.poll().unwrap();
            }
            assert_eq!(receive.wait(endpoint).unwrap().unwrap().count::<u32>(), 2500);
            assert_eq!(found(endpoint, receive.memory(), 2500), values(2500, 4));
        }
        world.team().barrier(endpoint).unwrap();
    });
}
