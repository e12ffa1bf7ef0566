//! One of two ranks is lost at every step of a long message, by every protocol. The call of the other ends, with
//! the message or with who was lost, and leaves nothing behind.

use super::model::{Play, SEGMENT};
use super::*;

/// Bytes of the message: several parts, wherever they go.
const LEN: usize = 900;

/// When the receive is posted, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Course {
    /// Before the message, so that it may be advertised.
    Early,
    /// At the same time.
    Crossing,
    /// After the message was announced.
    Late,
    /// Before the message, and it is cancelled as that is sent.
    Revoked,
    /// It is cancelled, and no message comes.
    Alone,
    /// An eager message meets it.
    Retired,
}

const COURSES: [Course; 6] =
    [Course::Early, Course::Crossing, Course::Late, Course::Revoked, Course::Alone, Course::Retired];

/// Where the bytes of the message are at its sender.
#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    Owned,
    Lent,
    Placed,
}

/// A message from rank 0 to rank 1.
struct Message {
    play: Play,
    course: Course,
    from: From,
    into: bool,
    send: Option<Key>,
    receive: Option<Key>,
}

impl Message {
    fn new(protocol: Protocol, near: bool, course: Course, from: From, into: bool) -> Self {
        let play = Play::pair_with(protocol, 1 << 20);
        let play = if near { play.near() } else { play };
        Self { play, course, from, into, send: None, receive: None }
    }

    fn bytes() -> Vec<u8> {
        (0..LEN).map(|at| (at % 251) as u8).collect()
    }

    fn post(&mut self) {
        let selector = Selector { context: 0, source: 0, tag: 3 };
        let capacity = LEN as u64;
        let at = self.into.then(|| self.play.target(1, capacity));
        let machine = &mut self.play.machines[1];
        self.receive = Some(match at {
            Some(at) => machine.post_placed(selector, BYTES, capacity, at),
            None => machine.post(selector, BYTES, capacity),
        });
    }

    fn begin(&mut self) {
        let (envelope, bytes) = (Envelope { context: 0, tag: 3, sequence: 0, kind: BYTES }, Self::bytes());
        let at = self.play.network.lay(0, &bytes);
        let (machine, mapped) = (&mut self.play.machines[0], self.play.network.maps);
        self.send = Some(match self.from {
            From::Owned => machine.begin(1, envelope, Mode::Standard, bytes),
            From::Lent => {
                let loan = machine.lend(1, &bytes);
                let key = machine.begin_lent(1, envelope, Mode::Standard, LEN as u64, loan.as_ref());
                self.play.ranks[0].lent.push((key, bytes));
                key
            }
            From::Placed => {
                let lent = (mapped && machine.reads_segments()).then_some(Source::owned(at));
                machine.begin_placed((1, envelope, Mode::Standard), (at, LEN as u64), lent)
            }
        });
    }

    /// One step; whether anything has happened.
    fn step(&mut self, step: u32) -> bool {
        let first = self.course != Course::Late;
        match step {
            0 if self.course == Course::Crossing => {
                self.post();
                self.begin();
            }
            0 if first => self.post(),
            0 => self.begin(),
            MEANWHILE => match self.course {
                Course::Early => self.begin(),
                Course::Crossing => {}
                Course::Late => self.post(),
                Course::Revoked => {
                    self.cancel();
                    self.begin();
                }
                Course::Alone => self.cancel(),
                Course::Retired => self.send = Some(self.play.send_one(3, 5)),
            },
            _ => {}
        }
        let (from, to) = if step % 4 < 2 { (0, 1) } else { (1, 0) };
        if step.is_multiple_of(2) { self.play.advance(from) } else { self.play.deliver(from, to) }
    }

    fn cancel(&mut self) {
        self.play.machines[1].cancel(self.receive.expect("it was posted"));
    }

    /// Checks what the call of the rank that is left has come to; whether it has failed.
    fn check(&mut self, left: usize) -> bool {
        let gone = Failure::Gone(Some(LossCause::Died));
        let machine = &mut self.play.machines[left];
        let mut failed = false;
        if left == 0 {
            if let Some(send) = self.send {
                assert!(machine.is_sent(send));
                let outcome = machine.take_sent(send);
                assert!(matches!(outcome, None | Some(Ok(()))) || outcome == Some(Err(gone)), "{outcome:?}");
                failed = outcome == Some(Err(gone));
            }
        } else if let Some(receive) = self.receive {
            let taken = machine.take_received(receive).expect("it is over");
            failed = taken.failure.is_some();
            if failed {
                assert_eq!((taken.failure, taken.info.from, taken.info.tag), (Some(gone), 0, 3));
            } else if !taken.cancelled {
                let segment = &self.play.ranks[1].segment;
                let placed = taken.staged.map(|block| block.offset).or(taken.landed.then_some(SEGMENT + 64));
                let bytes = match (&taken.place, placed) {
                    (Some(place), _) => place.bytes(),
                    (None, Some(at)) => &segment[at as usize..][..taken.info.len as usize],
                    (None, None) => &taken.bytes,
                };
                let whole = if self.course == Course::Retired { vec![7; 5] } else { Self::bytes() };
                assert_eq!(bytes, whole);
            }
            taken.staged.into_iter().for_each(|block| machine.release(block));
        }
        assert_eq!(machine.load(), (0, 0, 0, machine.config.staging), "nothing is left");
        failed
    }
}

/// The step at which the second call is made.
const MEANWHILE: u32 = 12;

/// Loses a rank after some steps, with what was on its way from it or without; whether the other's call failed.
fn kill(mut play: Message, steps: u32, victim: u32, arrives: bool) -> bool {
    for step in 0..steps {
        play.step(step);
    }
    let left = 1 - victim;
    while arrives && play.play.deliver(victim, left) {}
    play.play.machines[left as usize].lose(victim, Some(LossCause::Died));
    play.check(left as usize)
}

#[test]
fn each_step_may_be_the_last() {
    for protocol in Protocol::ALL {
        for course in COURSES {
            let (mut failed, mut kills) = ([0, 0], 0);
            for choice in 0..12 {
                let (near, into) = (choice % 2 == 1, choice / 2 % 2 == 1);
                let from = [From::Owned, From::Lent, From::Placed][choice / 4];
                if from == From::Lent && protocol == Protocol::Read {
                    continue;
                }
                let new = || Message::new(protocol, near, course, from, into);
                let (mut whole, mut steps, mut rest) = (new(), 0, 0);
                while rest < 100 || steps < 2 * MEANWHILE {
                    rest = if whole.step(steps) { 0 } else { rest + 1 };
                    steps += 1;
                }
                let last = (steps - 100).max(MEANWHILE + 4);
                for (steps, victim) in (0..=last).flat_map(|steps| [(steps, 0), (steps, 1)]) {
                    for arrives in [false, true] {
                        let told = format!("{protocol:?}, {course:?}, near {near}, {from:?}, into {into}");
                        let what =
                            format!("{told}: rank {victim} lost at step {steps}, its last arrives: {arrives}");
                        let guard = super::model::PrintsOnPanic(what);
                        failed[victim as usize] += u32::from(kill(new(), steps, victim, arrives));
                        kills += 1;
                        std::mem::forget(guard);
                    }
                }
            }
            // Whoever is left learns of a loss amid the message, and has it where all had come.
            assert!(failed[0] > 0 && failed[0] < kills, "{protocol:?}, {course:?}: {failed:?} of {kills}");
            let sends = !matches!(course, Course::Alone | Course::Retired);
            assert_eq!(failed[1] > 0, sends, "{protocol:?}, {course:?}: {failed:?} of {kills}");
        }
    }
}
