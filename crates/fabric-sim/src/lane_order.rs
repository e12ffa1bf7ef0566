//! The order of what two ranks send each other, where links carry others between the packets of a long message.
//!
//! A short message cuts into a train that another sender has on a link. It must not overtake a train that its own
//! sender has sent before it: the two travel in one order of packets. So packets of a pair and channel are handed
//! to their destination in the order in which they set out, whenever they come.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A pair of ranks and a channel between them.
pub(crate) type Lane = (u32, u32, u8);

/// A packet under way.
#[derive(Debug)]
struct Ahead {
    turn: u64,
    index: u32,
    state: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    UnderWay,
    /// It has come and waits for those before it.
    Come,
    Lost,
}

/// Numbers mixed with one multiplication each: lanes are only looked up, never gone through.
#[derive(Default)]
pub(crate) struct LaneHasher(u64);

impl Hasher for LaneHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u32(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The packets under way by their lanes.
#[derive(Debug, Default)]
pub(crate) struct LaneOrder {
    turns: u64,
    lanes: HashMap<Lane, VecDeque<Ahead>, BuildHasherDefault<LaneHasher>>,
    /// Empty queues, to be used again.
    unused: Vec<VecDeque<Ahead>>,
}

impl LaneOrder {
    /// A packet sets out; returns its turn.
    pub(crate) fn set_out(&mut self, index: u32, lane: Lane) -> u64 {
        let turn = self.next_turn();
        self.add(index, lane, turn);
        turn
    }

    /// A turn behind all others.
    #[inline]
    pub(crate) fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// A packet sets out with its turn.
    #[inline]
    pub(crate) fn add(&mut self, index: u32, lane: Lane, turn: u64) {
        let unused = &mut self.unused;
        let queue = self.lanes.entry(lane).or_insert_with(|| unused.pop().unwrap_or_default());
        queue.push_back(Ahead { turn, index, state: Progress::UnderWay });
    }

    /// A packet for this half has set out in the other one.
    pub(crate) fn expect(&mut self, lane: Lane, turn: u64) {
        self.add(u32::MAX, lane, turn);
    }

    /// A packet for this half comes over from the other one, and is known by an index here.
    pub(crate) fn comes_over(&mut self, index: u32, lane: Lane, turn: u64) {
        let Some(packets) = self.lanes.get_mut(&lane) else { return };
        let place = packets.partition_point(|ahead| ahead.turn < turn);
        if let Some(ahead) = packets.get_mut(place).filter(|ahead| ahead.turn == turn) {
            ahead.index = index;
        }
    }

    /// A packet has come. Whether it is handed over at once; if not, [`LaneOrder::handed_over`] tells when it is
    /// its turn.
    pub(crate) fn comes(&mut self, index: u32, lane: Lane, turn: u64) -> bool {
        let Some(packets) = self.lanes.get_mut(&lane) else { return true };
        let place = packets.partition_point(|ahead| ahead.turn < turn);
        match packets.get_mut(place).filter(|ahead| ahead.turn == turn && ahead.index == index) {
            Some(ahead) if place != 0 => {
                ahead.state = Progress::Come;
                false
            }
            // It is the first; or a copy of a packet, which has no turn of its own.
            _ => true,
        }
    }

    /// A packet has been handed over, or is lost; returns the next one of its lane if that has come.
    pub(crate) fn handed_over(&mut self, index: u32, lane: Lane, turn: u64) -> Option<u32> {
        let packets = self.lanes.get_mut(&lane)?;
        let place = packets.partition_point(|ahead| ahead.turn < turn);
        let ahead = packets.get_mut(place).filter(|ahead| ahead.turn == turn && ahead.index == index)?;
        ahead.state = Progress::Lost;
        if place != 0 {
            return None;
        }
        while packets.front().is_some_and(|ahead| ahead.state == Progress::Lost) {
            packets.pop_front();
        }
        match packets.front() {
            Some(ahead) => (ahead.state == Progress::Come).then_some(ahead.index),
            None => {
                self.unused.extend(self.lanes.remove(&lane));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = (0, 1, 0);

    #[test]
    fn packets_are_handed_over_in_turn() {
        let mut order = LaneOrder::default();
        let turns: Vec<u64> = (7..11).map(|index| order.set_out(index, LANE)).collect();
        let beside = order.set_out(11, (0, 1, 1));
        assert!(order.comes(11, (0, 1, 1), beside) && !order.comes(10, LANE, turns[3]));
        assert!(!order.comes(8, LANE, turns[1]) && order.comes(7, LANE, turns[0]));
        assert_eq!(order.handed_over(7, LANE, turns[0]), Some(8));
        // One in between is lost, when it is its turn or before.
        assert_eq!(order.handed_over(9, LANE, turns[2]), None);
        assert_eq!(order.handed_over(8, LANE, turns[1]), Some(10));
        assert!(order.comes(10, LANE, turns[3]));
        assert_eq!((order.handed_over(10, LANE, turns[3]), order.lanes.len()), (None, 1));
        assert_eq!(order.handed_over(10, LANE, turns[3]), None, "a copy has no turn of its own");
    }
}
