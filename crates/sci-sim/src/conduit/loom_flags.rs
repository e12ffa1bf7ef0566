//! Models of announcing and looking: no message is lost, none is seen twice, none before its data; and the
//! reorderings that break that are found. The search is `flags::search` itself, the flags are those of the mapped
//! implementation.
//!
//! Only compiled with `--cfg am_loom`:
//! `RUSTFLAGS="--cfg am_loom" cargo test -p active-messages-sci --release --lib loom`.

use super::flags::{Clear, OwnFlags, search};
use crate::nic::flag::Flag;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Slots that a model has.
const SLOTS: usize = 2;

/// A receiver: the data of its slots, their ready flags, the exist flag.
struct Receiver {
    data: [AtomicU64; SLOTS],
    ready: [Flag; SLOTS],
    exist: Flag,
}

impl OwnFlags for Receiver {
    fn clear_exist(&self) {
        self.exist.take();
    }

    fn glance(&self, word: usize) -> u64 {
        assert_eq!(word, 0, "a model has one word of flags");
        self.ready.iter().enumerate().map(|(slot, flag)| u64::from(flag.glance()) << (8 * slot)).sum()
    }

    fn ready(&self, at: usize) -> u8 {
        self.ready[at].look()
    }

    fn take_ready(&self, at: usize) -> u8 {
        self.ready[at].take()
    }
}

/// What a sender does, in its order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Data,
    Ready,
    Exist,
    /// The exist flag, stored as if nobody else did so.
    ExistAlone,
}

const RIGHT: [Step; 3] = [Step::Data, Step::Ready, Step::Exist];

impl Receiver {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            data: std::array::from_fn(|_| AtomicU64::new(0)),
            ready: std::array::from_fn(|_| Flag::new(0)),
            exist: Flag::new(0),
        })
    }

    fn send(&self, slot: usize, value: u64, flag: u8, steps: [Step; 3]) {
        for step in steps {
            match step {
                Step::Data => self.data[slot].store(value, Relaxed),
                Step::Ready => self.ready[slot].set(flag),
                Step::Exist => self.exist.set(1),
                Step::ExistAlone => self.exist.set_alone(1),
            }
        }
    }

    /// A poll as the conduit does it.
    fn poll(&self, seen: &mut [u64], clear: Clear, mut found: impl FnMut(usize, u8, u64)) {
        if self.exist.look() != 0 {
            search(self, 1, seen, clear, |slot, flag| found(slot, flag, self.data[slot].load(Relaxed)));
        }
    }
}

/// So many senders announce a message each while the receiver polls; when they are done it polls once more, and
/// then nothing may be missing.
fn arrivals(senders: usize, steps: [Step; 3], clear: Clear, numbered: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let receiver = Receiver::new();
        let threads: Vec<_> = (0..senders)
            .map(|slot| {
                let receiver = Arc::clone(&receiver);
                thread::spawn(move || receiver.send(slot, 42 + slot as u64, 0x1a, steps))
            })
            .collect();
        let (mut seen, mut count) = ([0], [0; SLOTS]);
        let seen = if numbered { &mut seen[..] } else { &mut [] };
        let mut poll = || {
            receiver.poll(seen, clear, |slot, flag, data| {
                assert!(flag == 0x1a && data == 42 + slot as u64, "a message was seen before its data");
                count[slot] += 1;
            });
        };
        poll();
        poll();
        threads.into_iter().for_each(|thread| thread.join().expect("the sender is done"));
        poll();
        assert!(count[..senders].iter().all(|count| *count > 0), "a message was lost");
        assert!(count[..senders].iter().all(|count| *count == 1), "a message was seen twice");
    }
}

/// Two messages one after the other through the same slot: the second is sent when the first has been answered.
fn reuse(numbered: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (asked, asker) = (Receiver::new(), Receiver::new());
        let answering = {
            let (asked, asker) = (Arc::clone(&asked), Arc::clone(&asker));
            thread::spawn(move || {
                let (mut seen, mut next) = ([0], 0);
                while next < 2 {
                    let seen = if numbered { &mut seen[..] } else { &mut [] };
                    asked.poll(seen, Clear::First, |slot, flag, data| {
                        assert_eq!((slot, flag, data), (0, 0x1a + 0x10 * next, 100 + u64::from(next)));
                        next += 1;
                        asker.send(1, 0, 0x1d + 0x10 * (next - 1), RIGHT);
                    });
                    thread::yield_now();
                }
            })
        };
        let mut seen = [0];
        for number in 0..2 {
            asked.send(0, 100 + u64::from(number), 0x1a + 0x10 * number, RIGHT);
            let mut answered = false;
            while !answered {
                let seen = if numbered { &mut seen[..] } else { &mut [] };
                asker.poll(seen, Clear::First, |slot, flag, _| {
                    assert_eq!((slot, flag), (1, 0x1d + 0x10 * number));
                    answered = true;
                });
                thread::yield_now();
            }
        }
        answering.join().expect("the answerer is done");
    }
}

/// Tries every schedule with at most three preemptions, and every value that each load may see.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Runs a model that loom must find wrong in the way that `complaint` says.
#[track_caller]
fn fails(complaint: &str, model: impl Fn() + Send + Sync + 'static) {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model)));
    let panic = found.expect_err("loom finds the wrong model wrong");
    let text = panic.downcast_ref::<&str>().map(|text| String::from(*text));
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(text.contains(complaint), "the wrong model gave '{text}', not '{complaint}'");
}

#[test]
fn no_message_is_lost_or_seen_twice() {
    check(arrivals(1, RIGHT, Clear::First, false));
    check(arrivals(1, RIGHT, Clear::First, true));
}

#[test]
fn two_senders_lose_nothing() {
    check(arrivals(2, RIGHT, Clear::First, false));
    check(arrivals(2, RIGHT, Clear::First, true));
}

#[test]
fn a_slot_is_used_again_after_its_answer() {
    check(reuse(false));
    check(reuse(true));
}

#[test]
fn clearing_after_the_search_is_found() {
    // The first message brings the receiver to search, the second comes behind its back.
    fails("a message was lost", arrivals(2, RIGHT, Clear::After, false));
    fails("a message was lost", arrivals(2, RIGHT, Clear::After, true));
}

#[test]
fn a_ready_flag_before_the_data_is_found() {
    let steps = [Step::Ready, Step::Data, Step::Exist];
    fails(
        "a message was seen before its data",
        arrivals(1, [Step::Ready, Step::Exist, Step::Data], Clear::First, false),
    );
    // While the exist flag comes last, only another sender's can lead the receiver to look too early.
    fails("a message was seen before its data", arrivals(2, steps, Clear::First, false));
}

#[test]
fn an_exist_flag_before_the_ready_flag_is_found() {
    fails("a message was lost", arrivals(1, [Step::Data, Step::Exist, Step::Ready], Clear::First, false));
}

#[test]
fn a_lost_exist_flag_is_found() {
    fails("a message was lost", arrivals(2, [Step::Data, Step::Ready, Step::ExistAlone], Clear::First, false));
}
