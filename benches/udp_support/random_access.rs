//! HPCC RandomAccess between two ranks: every rank applies a stream of random updates, each to the rank that holds
//! its word. At most 1024 updates of a rank may wait before they are sent; here it is 512.

use super::am::{State, Table};
use active_messages::{Endpoint, Rank};
use transport_udp::Udp;

/// Words of each rank's part of the table.
pub(crate) const WORDS: usize = 1 << 22;
/// Updates between two polls, and in a bucket.
const AHEAD: u64 = 512;

/// How updates travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// One update per Short message.
    Short,
    /// Buckets of updates in Medium messages.
    Medium,
}

/// The benchmark's sequence: x(n+1) = 2 x(n) over GF(2), with the polynomial x^63 + x^2 + x + 1.
#[derive(Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    /// A rank's own stretch of the sequence, far from the others'.
    pub(crate) fn new(rank: u64) -> Self {
        let mut stream = Self(1 + rank.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..1000 {
            stream.next();
        }
        stream
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0 << 1 ^ if self.0 >> 63 == 1 { 7 } else { 0 };
        self.0
    }
}

/// Applies one update to this rank's part.
pub(crate) fn apply(table: &mut [u64], value: u64) {
    let at = value as usize % WORDS;
    if let Some(word) = table.get_mut(at) {
        *word ^= value;
    }
}

/// Applies `count` updates, wherever they belong, and waits until all are applied.
pub(crate) fn run(
    endpoint: &mut Endpoint<Udp, State>,
    table: &Table,
    variant: Variant,
    stream: &mut Stream,
    count: u64,
) {
    let me = endpoint.rank();
    let other = Rank(1 - me.0);
    let mut bucket: Vec<u8> = Vec::with_capacity(8 * AHEAD as usize);
    for number in 1..=count {
        let value = stream.next();
        if (value / WORDS as u64) % 2 == u64::from(me.0) {
            apply(&mut endpoint.state_mut().table, value);
        } else if variant == Variant::Short {
            endpoint.request(other, table.update, value).expect("the other rank is there");
        } else {
            bucket.extend_from_slice(&value.to_le_bytes());
        }
        if number % AHEAD == 0 || number == count {
            if !bucket.is_empty() {
                endpoint.request_medium(other, table.updates, (), &bucket).expect("the other rank is there");
                bucket.clear();
            }
            endpoint.poll().expect("the other rank is there");
        }
    }
    endpoint.drain().expect("the other rank applies them");
}
