//! What an endpoint maps a segment for: no plain copy goes through a mapping that the program has, too.

use super::*;
use crate::region::Unshared;
use crate::{JobConfig, JoinOptions};
use am_core::transport::{ReplyBound, RequestHeader};
use std::collections::BTreeSet;

/// Where the bytes of a payload or a segment lie, by what they say there.
struct Seen(Vec<u8>);

impl Sink for Seen {
    fn request(&mut self, arrival: Arrival<'_>, _: &mut dyn ReplyPath) {
        self.0 = arrival.payload.to_vec();
    }
    fn reply(&mut self, _: Arrival<'_>) {}
    fn control(&mut self, _: Peer, _: &Words, _: Payload<'_>) {}
}

#[test]
fn plain_copies_have_mappings_of_their_own() {
    let job = Job::create(&JobConfig::new(2)).expect("memory is there");
    let join = |rank| job.join_with(rank, JoinOptions::default().segment_bytes(4096)).expect("it is free");
    let (mut sender, mut receiver) = (join(0), join(1));
    let head = RequestHeader::new(0, ReplyBound::None);
    let mut seen = Seen(Vec::new());
    sender.long(Peer(1), head, &Words::EMPTY, b"payload", 100).expect("there is room");
    assert_eq!(receiver.poll(1, &mut seen), 1);
    assert_eq!(seen.0, b"payload");
    let place = |words: &[AtomicU64]| words.as_ptr().addr();
    let unshared = |segment: &Segment<Unshared>| place(segment.words());
    let places = [
        unshared(sender.segments.put(&job, Rank(1)).expect("it was used")),
        place(sender.remote_segment(Rank(1)).expect("it can be mapped").words()),
        unshared(&receiver.segments.arrivals),
        place(receiver.segment().words()),
        place(join_again(&job).words()),
    ];
    assert_eq!(BTreeSet::from(places).len(), places.len(), "{places:x?}");
    // All of them are the same memory.
    let mut bytes = [0; 7];
    receiver.segment().read(100, &mut bytes).expect("it is inside");
    assert_eq!(&bytes, b"payload");
    receiver.read_placed(103, &mut bytes[..4]).expect("it is inside");
    assert_eq!(&bytes[..4], b"load");
    assert!(receiver.read_placed(4093, &mut bytes).is_err());
}

/// Rank 1's segment as somebody else in this process would map it.
fn join_again(job: &Job) -> Segment<ShmMemory> {
    job.map_segment(Rank(1), 4096).expect("it can be mapped")
}

/// Safe programs may read and write a segment from several threads at once: under ThreadSanitizer
/// (docs/testing.md) this finds plain copies.
#[test]
fn copies_of_several_threads_are_no_data_race() {
    const BYTES: usize = 1000;
    let job = Job::create(&JobConfig::new(1)).expect("memory is there");
    let shm = job.join_with(0, JoinOptions::default().segment_bytes(4096)).expect("it is free");
    let segment = shm.segment();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                segment.write(3, &[round; BYTES]).expect("it is inside");
            }
        });
        let mut found = [0; BYTES];
        let mut last = 0;
        while last < 199 {
            segment.read(3, &mut found).expect("it is inside");
            let most = found.iter().copied().max().unwrap_or_default();
            assert!(most < 200 && most >= last, "{most} after {last}");
            last = most;
        }
    });
}
