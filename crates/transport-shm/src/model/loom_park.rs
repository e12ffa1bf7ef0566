//! Models of sleeping and waking: no wake-up is lost, whoever brings it. A lost one is a deadlock, which loom
//! reports.

use super::{View, Weak, check, fails, fails_without};
use crate::ear::{Ear, Heard};
use crate::park::{LONGEST, Parking, wake_all};
use crate::ring::{Cell, Reader, Writer};
use crate::sync::{Acquire, AtomicU32, AtomicU64, Release};
use loom::thread;
use std::sync::Arc;

pub(super) fn parking() -> Arc<Parking> {
    Arc::new(Parking::new(View::of([AtomicU32::new(0)])))
}

pub(super) fn cells(count: usize) -> View<Cell> {
    View::of((0..count).map(|_| Cell(std::array::from_fn(|_| AtomicU64::new(0)))))
}

/// A thread that writes one frame and wakes whoever sleeps.
fn sender(parking: &Arc<Parking>, ring: &View<Cell>, fenced: bool) -> thread::JoinHandle<()> {
    let (parking, ring) = (Arc::clone(parking), ring.clone());
    thread::spawn(move || {
        Writer::new(&ring).push(&ring, 0x100, &[], &[]);
        parking.notify(fenced);
    })
}

/// Sleeps until `work` is there.
fn wait(parking: &Parking, fenced: bool, work: impl Fn() -> bool) {
    while !work() {
        parking.park(fenced, LONGEST, &work);
    }
}

/// Sleeps in an event loop until `work` is there; as many times as `calls` says, something else wakes it first.
fn wait_in_loop(ear: &mut Ear, parking: &Parking, fenced: bool, mut calls: usize, work: impl Fn() -> bool) {
    while !work() {
        if ear.listen(parking, fenced, LONGEST, &work).expect("the model can sleep") == Heard::NothingYet {
            match calls.checked_sub(1) {
                Some(fewer) => calls = fewer,
                None => ear.kernel().wait_readable(),
            }
            parking.end();
        }
    }
}

/// A sender of a frame to a receiver that sleeps in an event loop, which `calls` others wake up before.
fn frames_to_loop(calls: usize, fenced: bool) -> impl Fn() + Send + Sync {
    move || {
        let (parking, ring) = (parking(), cells(2));
        let sender = sender(&parking, &ring, fenced);
        let mut ear = Ear::new().expect("the model can sleep");
        wait_in_loop(&mut ear, &parking, fenced, calls, || Reader::new(&ring).peek(&ring).is_some());
        sender.join().expect("the sender is done");
    }
}

/// A sender of two frames to a receiver that sleeps in an event loop before one, and by its word before the other.
fn two_ways_to_sleep(loop_first: bool, fenced: bool) -> impl Fn() + Send + Sync {
    move || {
        let (parking, ring) = (parking(), cells(2));
        let (theirs, sending) = (Arc::clone(&parking), ring.clone());
        let sender = thread::spawn(move || {
            let mut writer = Writer::new(&sending);
            for _ in 0..2 {
                writer.push(&sending, 0x100, &[], &[]);
                theirs.notify(fenced);
            }
        });
        let (mut reader, mut ear) = (Reader::new(&ring), Ear::new().expect("the model can sleep"));
        for in_loop in [loop_first, !loop_first] {
            if in_loop {
                wait_in_loop(&mut ear, &parking, fenced, 0, || reader.peek(&ring).is_some());
            } else {
                wait(&parking, fenced, || reader.peek(&ring).is_some());
            }
            reader.advance(1);
        }
        sender.join().expect("the sender is done");
    }
}

/// A sender per ring; the receiver sleeps until each has sent a frame.
fn frames(senders: usize, fenced: bool) -> impl Fn() + Send + Sync {
    move || {
        let parking = parking();
        let rings: Vec<View<Cell>> = (0..senders).map(|_| cells(2)).collect();
        let threads: Vec<_> = rings.iter().map(|ring| sender(&parking, ring, fenced)).collect();
        for ring in &rings {
            wait(&parking, fenced, || Reader::new(ring).peek(ring).is_some());
        }
        threads.into_iter().for_each(|thread| thread.join().expect("the sender is done"));
    }
}

/// A writer that sleeps for room and a reader that sleeps for frames, each woken by the other.
fn back_and_forth() {
    const FRAMES: u64 = 3;
    let (ring, done) = (cells(1), View::of([AtomicU64::new(0)]));
    let (asleep_writer, asleep_reader) = (parking(), parking());
    let writer = {
        let (ring, done) = (ring.clone(), done.clone());
        let (mine, theirs) = (Arc::clone(&asleep_writer), Arc::clone(&asleep_reader));
        thread::spawn(move || {
            let mut writer = Writer::new(&ring);
            for _ in 0..FRAMES {
                while !writer.room(&ring, &done[0], 1).expect("the reader keeps to the protocol") {
                    mine.park(false, LONGEST, || done[0].load(Acquire) == writer.written());
                }
                writer.push(&ring, 0x100, &[], &[]);
                theirs.notify(false);
            }
        })
    };
    let mut reader = Reader::new(&ring);
    for _ in 0..FRAMES {
        wait(&asleep_reader, false, || reader.peek(&ring).is_some());
        reader.advance(1);
        reader.publish(&done[0]);
        asleep_writer.notify(false);
    }
    writer.join().expect("the writer is done");
}

/// News that do not come in a ring, as of a lost peer, wake everyone.
fn news() {
    let (parking, changes) = (parking(), View::of([AtomicU64::new(0)]));
    let (theirs, count) = (Arc::clone(&parking), changes.clone());
    let teller = thread::spawn(move || {
        count[0].store(1, Release);
        wake_all(std::slice::from_ref(&*theirs));
    });
    wait(&parking, false, || changes[0].load(Acquire) == 1);
    teller.join().expect("the teller is done");
}

#[test]
fn a_frame_wakes_the_receiver() {
    check(frames(1, false));
    check(frames(1, true));
}

#[test]
fn a_frame_wakes_an_event_loop() {
    check(frames_to_loop(0, false));
    check(frames_to_loop(0, true));
    fails_without(Weak::Fences, "deadlock", frames_to_loop(0, false));
    fails_without(Weak::Fences, "deadlock", frames_to_loop(0, true));
}

/// What has been begun for one announcement serves the next ones.
#[test]
fn a_frame_wakes_an_event_loop_that_others_woke() {
    check(frames_to_loop(1, false));
    check(frames_to_loop(2, true));
    fails_without(Weak::Fences, "deadlock", frames_to_loop(1, false));
}

/// A faulty rank has moved the kernel's sleep to another word; whether it has lasted for the longest time by then.
fn moved_sleep(old: bool, fenced: bool) -> impl Fn() + Send + Sync {
    move || {
        let (parking, ring, elsewhere) = (parking(), cells(2), View::of([AtomicU32::new(0)]));
        let mut ear = Ear::new().expect("the model can sleep");
        let heard = ear.listen(&parking, fenced, LONGEST, || false).expect("the model can sleep");
        assert_eq!(heard, Heard::NothingYet);
        // The event loop has been woken by something else.
        parking.end();
        parking.move_sleepers(&elsewhere[0]);
        if old {
            ear.grow_old();
        }
        let sender = sender(&parking, &ring, fenced);
        wait_in_loop(&mut ear, &parking, fenced, 0, || Reader::new(&ring).peek(&ring).is_some());
        sender.join().expect("the sender is done");
    }
}

/// It is ended, by another thread and at any time, and begun anew.
#[test]
fn a_frame_wakes_an_event_loop_whose_sleep_was_moved() {
    check(moved_sleep(true, false));
    check(moved_sleep(true, true));
    fails("deadlock", moved_sleep(false, false));
}

#[test]
fn an_event_loop_and_waits_take_turns() {
    for loop_first in [true, false] {
        check(two_ways_to_sleep(loop_first, false));
        check(two_ways_to_sleep(loop_first, true));
    }
}

#[test]
fn an_early_last_look_of_an_event_loop_is_found() {
    fails("deadlock", || {
        let (parking, ring) = (parking(), cells(2));
        let sender = sender(&parking, &ring, false);
        let mut ear = Ear::new().expect("the model can sleep");
        while Reader::new(&ring).peek(&ring).is_none() {
            if ear.listen(&parking, false, LONGEST, || false).expect("the model can sleep") == Heard::NothingYet {
                ear.kernel().wait_readable();
                parking.end();
            }
        }
        sender.join().expect("the sender is done");
    });
}

#[test]
fn two_senders_wake_the_receiver() {
    check(frames(2, false));
}

#[test]
fn frames_and_room_wake_both_sides() {
    check(back_and_forth);
}

#[test]
fn news_wake_everyone() {
    check(news);
}

#[test]
fn missing_fences_are_found() {
    fails_without(Weak::Fences, "deadlock", frames(1, false));
    fails_without(Weak::Fences, "deadlock", frames(1, true));
    fails_without(Weak::Fences, "deadlock", back_and_forth);
}

#[test]
fn a_last_look_before_the_announcement_is_found() {
    fails("deadlock", || {
        let (parking, ring) = (parking(), cells(2));
        let sender = sender(&parking, &ring, false);
        while Reader::new(&ring).peek(&ring).is_none() {
            parking.park(false, LONGEST, || false);
        }
        sender.join().expect("the sender is done");
    });
}

#[test]
fn a_notice_before_the_work_is_found() {
    fails("deadlock", || {
        let (parking, ring) = (parking(), cells(2));
        let (theirs, sending) = (Arc::clone(&parking), ring.clone());
        let sender = thread::spawn(move || {
            theirs.notify(false);
            Writer::new(&sending).push(&sending, 0x100, &[], &[]);
        });
        wait(&parking, false, || Reader::new(&ring).peek(&ring).is_some());
        sender.join().expect("the sender is done");
    });
}
