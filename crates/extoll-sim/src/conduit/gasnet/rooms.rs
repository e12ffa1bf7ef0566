//! The partition of the mailbox rings: how many slots each pair may use, for what, and how large rings have to be.
//!
//! Every rank shares its ring among all ranks of the job, itself included. A peer's share has three parts:
//!
//! * *request slots*, counted by the peer: it takes them when it sends a request, and gets them back when that has
//!   been handled;
//! * *answer slots*, counted by the ring's owner: it sets them aside when it sends a request to the peer, as many
//!   as the largest permitted reply takes and one for a packet of credits, and has them back when the answer has
//!   come;
//! * *control slots*, counted by the peer, for the small messages of barriers, so that a flood of requests cannot
//!   get into their way; with a few slots of the owner's ring for the credits that come back for them.
//!
//! Nothing is ever sent without slots, so no ring overflows, replies and credits are never refused for want of
//! room, and whatever a rank does not take out of its ring disturbs nobody but those who sent it. One segment of
//! 64 KB (1024 slots) cannot serve 1023 peers that way. So rings are as large as the job needs, up to the 512
//! segments (524,288 slots) that the interface allows; where that is still too little for the wanted shares,
//! shares shrink, and with them the largest Medium payload. A job of 16,384 ranks has 31 slots per pair left: 12
//! for requests, 13 for answers, 6 for control, and Medium payloads of up to 600 bytes.

use super::config::{GasnetConfig, range};
use super::header::{HEADER, MOST_RESERVED};
use super::layout::Implementation;
use fabric_sim::ConfigError;

/// Slots of a segment of 64 KB.
const SEGMENT: u32 = 1024;
/// The most segments of a ring.
const MOST_SEGMENTS: u32 = 512;
/// Slots that may be read but not committed: the read pointer is committed every eight slots, and the last of them
/// may begin a message of three.
const SLACK: u32 = 16;
/// Arguments of the messages that use control slots.
pub(super) const CONTROL_ARGS: usize = 7;
/// How many of them a pair may have under way, and how many are acknowledged together.
const CONTROL_FRAMES: u32 = 4;
const CONTROL_TOGETHER: u32 = 2;
/// The least Medium payload that is worth a transport.
const LEAST_MEDIUM: usize = 64;
/// No pair needs more slots than a header's credits can tell of.
const MOST_SLOTS: u32 = 2048;

/// The shares of one pair, in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rooms {
    /// Size of the rings in segments.
    pub(super) segments: u32,
    pub(super) requests: u32,
    pub(super) answers: u32,
    pub(super) control: u32,
    /// Slots of the largest message that uses control slots.
    pub(super) control_frame: u32,
    /// Control slots that are acknowledged together.
    pub(super) control_due: u32,
    pub(super) medium_request: usize,
    pub(super) medium_reply: usize,
}

impl Rooms {
    pub(super) fn divide(config: &GasnetConfig, ranks: u32) -> Result<Self, ConfigError> {
        let layout = config.layout();
        let medium = config.medium as usize;
        let control_frame = layout.slots(HEADER + 4 * CONTROL_ARGS, 0);
        let together = match config.implementation {
            Implementation::First => 1,
            Implementation::Second => CONTROL_TOGETHER,
        };
        let control = CONTROL_FRAMES * control_frame;
        let both = control + CONTROL_FRAMES / together;
        let request = layout.slots_of_medium(medium).max(layout.slots_of_lead());
        let reply = layout.reserve(medium);
        if reply > u32::from(MOST_RESERVED) {
            let limit = format!("large enough that a reply of {medium} bytes takes at most {MOST_RESERVED} slots");
            return Err(range("packet", config.packet, &limit));
        }
        let mut requests = config.request_slots.clamp(request, MOST_SLOTS.max(request));
        let mut answers = config.reply_slots.clamp(reply, MOST_SLOTS.max(reply));
        let wanted = u64::from(ranks) * u64::from(requests + answers + both) + u64::from(SLACK);
        let needed = wanted.div_ceil(u64::from(SEGMENT));
        let segments = match config.segments {
            0 => needed.min(u64::from(MOST_SEGMENTS)) as u32,
            given => given,
        };
        let share = (segments * SEGMENT - SLACK) / ranks;
        if requests + answers + both > share {
            let rest = share.saturating_sub(both);
            // A reply needs one slot more than a request, for the packet of credits.
            requests = requests.min(rest.saturating_sub(1) / 2);
            answers = rest - requests;
        }
        let least = layout.slots_of_medium(LEAST_MEDIUM.min(medium)).max(layout.slots_of_lead());
        if requests < least || answers < least + 1 {
            let limit = format!(
                "at least {}, since {ranks} ranks want {} slots each",
                (u64::from(ranks) * u64::from(2 * least + 1 + both) + u64::from(SLACK))
                    .div_ceil(u64::from(SEGMENT)),
                2 * least + 1 + both,
            );
            return Err(range("segments", segments, &limit));
        }
        Ok(Self {
            segments,
            requests,
            answers,
            control,
            control_frame,
            control_due: together * control_frame,
            medium_request: medium.min(layout.payload_of(requests)),
            medium_reply: medium.min(layout.payload_of(answers - 1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_small_job_has_what_it_wants_in_a_small_ring() {
        let rooms = GasnetConfig::default().compile(2, 64).unwrap();
        assert_eq!((rooms.segments, rooms.requests, rooms.answers, rooms.control), (3, 512, 512, 4));
        assert_eq!((rooms.medium_request, rooms.medium_reply), (8192, 8192));
    }

    #[test]
    fn large_jobs_share_the_largest_ring() {
        let rooms = |ranks| GasnetConfig::default().compile(ranks, 64).unwrap();
        let many = rooms(1024);
        assert_eq!((many.segments, many.requests, many.answers, many.medium_request), (512, 252, 253, 8192));
        let most = rooms(16_384);
        assert_eq!((most.requests, most.answers, most.control), (12, 13, 4));
        assert_eq!((most.medium_request, most.medium_reply), (600, 600));
    }

    #[test]
    fn a_ring_of_one_segment_cannot_serve_1023_peers() {
        let config = GasnetConfig { segments: 1, ..GasnetConfig::default() };
        let error = config.compile(1024, 64).unwrap_err().to_string();
        assert_eq!(error, "gasnet.segments is 1, but must be at least 14, since 1024 ranks want 13 slots each");
        config.compile(64, 64).unwrap();
    }

    proptest! {
        #[test]
        fn shares_fit_the_ring_and_hold_messages(
            first: bool, packet in prop::sample::select(vec![56u32, 64, 112, 120]), ranks in 1u32..32_000,
            medium in 64u32..=8192,
            request_slots in 0u32..4000, reply_slots in 0u32..4000, segments in 0u32..=512
        ) {
            let implementation = if first { Implementation::First } else { Implementation::Second };
            let config = GasnetConfig { implementation, packet, medium, ..GasnetConfig::default() };
            let config = GasnetConfig { request_slots, reply_slots, segments, ..config };
            if let Ok(rooms) = config.compile(ranks, 120) {
                let control = rooms.control + CONTROL_FRAMES * rooms.control_frame / rooms.control_due;
                let all = u64::from(rooms.requests + rooms.answers + control) * u64::from(ranks);
                prop_assert!(all + u64::from(SLACK) <= u64::from(rooms.segments * SEGMENT));
                let layout = config.layout();
                prop_assert!(layout.slots_of_medium(rooms.medium_request) <= rooms.requests);
                prop_assert!(layout.reserve(rooms.medium_reply) <= rooms.answers);
                prop_assert!(layout.slots_of_lead() <= rooms.requests);
                prop_assert!(rooms.medium_request >= 64 && rooms.medium_reply >= 64);
            } else {
                prop_assert!(segments != 0 || ranks > 15_000);
            }
        }
    }
}
