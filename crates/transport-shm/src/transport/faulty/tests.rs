//! Many faulty ranks, and what single frames of theirs do.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn fuzz(cases: u64, reach: Reach) {
    let seed = std::env::var("AM_FAULTY_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = seed.map_or(0..cases, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(&mut Random::new(seed), reach))) {
            eprintln!("AM_FAULTY_SEED={seed} repeats this failure ({reach:?})");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_rank_that_writes_garbage_harms_only_itself() {
    fuzz(600, Reach::Own);
}

#[test]
fn garbage_anywhere_is_survived() {
    fuzz(600, Reach::Everywhere);
}

/// `cargo test -p active-messages-shm --lib -- --ignored many`: minutes.
#[test]
#[ignore = "takes minutes"]
fn many_cases() {
    fuzz(50_000, Reach::Own);
    fuzz(50_000, Reach::Everywhere);
}

#[test]
fn frames_that_make_no_sense_are_told_from_those_that_do() {
    let received = |requests, frames: &[(u64, [u64; 2])]| {
        let padded = |(fields, [a, b]): &(u64, [u64; 2])| (*fields, [*a, *b, 0, 0, 0, 0, 0]);
        super::received(requests, &frames.iter().map(padded).collect::<Vec<_>>(), &mut Random::new(0))
    };
    let kind = |kind: u64| kind << 13;
    let (args, len) = (|count: u64| count << 8, |bytes: u64| bytes << 24);
    let (reply, in_ring) = (|granules: u64| granules << 44 | 1 << 59, 1 << 58);
    let end = SEGMENT as u64;
    let lost = PeerStatus::Lost(LossCause::Faulty);
    for (fields, words, expected) in [
        (kind(1) | args(14), [0; 2], PeerStatus::Active),
        (kind(1) | args(15), [0; 2], lost), // needs a second cell, which is not there
        (kind(1) | args(17), [0; 2], lost),
        (kind(0), [0; 2], lost),
        (kind(5), [0; 2], lost),
        (kind(1) | in_ring, [0; 2], lost),
        (kind(1) | reply(1), [0; 2], PeerStatus::Active),
        (kind(1) | reply(2), [0; 2], lost),
        (kind(2) | len(56), [0; 2], PeerStatus::Active),
        (kind(2) | len(57), [0; 2], lost),
        (kind(2) | in_ring | len(64), [0; 2], PeerStatus::Active),
        (kind(2) | in_ring | len(65), [0; 2], lost),
        (kind(3), [end - 8, 8], PeerStatus::Active),
        (kind(3), [end - 8, 9], lost),
        (kind(3), [u64::MAX, 2], lost),
        (kind(3), [8, u64::MAX], lost),
        (kind(3) | len(8), [0, 8], lost),
        (kind(3) | in_ring, [0, 8], lost),
        (kind(4) | in_ring | len(8), [0; 2], PeerStatus::Active),
        (kind(4) | len(8), [0; 2], lost),
    ] {
        assert_eq!(received(true, &[(fields, words)]), expected, "fields {fields:#x}, words {words:?}");
        // Nobody has asked, so every reply is one too many.
        assert_eq!(received(false, &[(fields, words)]), lost, "reply with fields {fields:#x}");
    }
    // A second cell must be of the same lap, whatever else it says.
    assert_eq!(received(true, &[(kind(1) | args(16), [0; 2]), (0, [0; 2])]), PeerStatus::Active);
}

/// A handler panics after its ring has gone round under the poll that called it: what came meanwhile is still
/// found.
#[test]
fn frames_are_found_after_a_handler_panicked() {
    struct Clumsy(usize);
    impl Sink for Clumsy {
        fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
            self.0 += 1;
            assert_ne!(self.0, 4, "a handler panics");
        }
        fn reply(&mut self, _: Arrival<'_>) {}
        fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    }
    let job = Job::create(&JobConfig::smallest(2)).expect("memory is there");
    let (mut receiver, mut sender) = (job.join(0).expect("it is free"), job.join(1).expect("it is free"));
    let head = RequestHeader::new(0, ReplyBound::None);
    let mut send =
        |count: usize| (0..count).filter(|_| sender.short(Peer(0), head, &Words::EMPTY).is_ok()).count();
    let mut sink = Clumsy(0);
    assert_eq!(send(4), 4);
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.poll(100, &mut sink))).is_err());
    // With the smallest ring every cell is given back at once, so the first one is written anew.
    assert_eq!(send(3), 3);
    assert_eq!((receiver.poll(100, &mut sink), sink.0), (3, 7));
}

/// The same where frames share cells: the ring goes round while one poll hands frames on, and the word that was
/// watched before it, in the middle of a cell, then holds an argument that looks as if nothing had come.
#[test]
fn packed_frames_are_found_after_a_handler_panicked() {
    struct Sending<'a>(usize, &'a mut Shm, Words);
    impl Sink for Sending<'_> {
        fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
            self.0 += 1;
            while self.1.short(Peer(0), RequestHeader::new(0, ReplyBound::None), &self.2).is_ok() {}
            assert_ne!(self.0, 12, "a handler panics");
        }
        fn reply(&mut self, _: Arrival<'_>) {}
        fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
    }
    let job = Job::create(&JobConfig::smallest(2)).expect("memory is there");
    let (mut receiver, mut sender) = (job.join(0).expect("it is free"), job.join(1).expect("it is free"));
    sender.asking[0].requests.always_pack();
    let head = RequestHeader::new(0, ReplyBound::None);
    let zeros = Words::from_pairs(4, [0, 0].into_iter()).expect("four words");
    sender.short(Peer(0), head, &Words::EMPTY).expect("there is room");
    assert_eq!(receiver.poll(100, &mut Ignored(0)), 1);
    sender.short(Peer(0), head, &zeros).expect("there is room");
    let mut sink = Sending(0, &mut sender, zeros);
    assert!(catch_unwind(AssertUnwindSafe(|| receiver.poll(100, &mut sink))).is_err());
    assert!(receiver.answering[1].requests.ready());
    let mut rest = Ignored(0);
    assert!(receiver.poll(100, &mut rest) > 0 && rest.0 > 0, "what is there is found");
}

/// Counts requests.
struct Ignored(usize);

impl Sink for Ignored {
    fn request(&mut self, _: Arrival<'_>, _: &mut dyn ReplyPath) {
        self.0 += 1;
    }
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}
