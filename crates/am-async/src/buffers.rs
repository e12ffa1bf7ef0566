//! Buffers that go round: requests and answers are kept in memory that was used before, so that calls allocate
//! nothing after a while.

use std::cell::RefCell;

/// Bytes of short buffers that a thread keeps at most.
const KEPT: usize = 8 << 20;

/// Bytes of a buffer that is made for an answer, at least: one size serves most.
const SHORTEST: usize = 64;

/// A longer buffer is a long one.
const LONGEST: usize = 64 << 10;

/// Bytes of long buffers that a thread keeps at most.
const KEPT_LONG: usize = 64 << 20;

#[derive(Default)]
struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
    /// Long ones, which keep what they hold.
    long: Vec<Vec<u8>>,
    long_bytes: usize,
}

impl Pool {
    /// The least of the long buffers that have so many bytes.
    fn long(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fitting = self.long.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= bytes);
        let (place, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        let buffer = self.long.swap_remove(place);
        self.long_bytes -= buffer.capacity();
        Some(buffer)
    }
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// An empty buffer. Allocates nothing.
#[inline]
pub(crate) fn take() -> Vec<u8> {
    let pooled = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        let buffer = pool.free.pop()?;
        pool.bytes -= buffer.capacity();
        Some(buffer)
    });
    pooled.ok().flatten().unwrap_or_default()
}

/// An empty buffer for about so many bytes. Allocates nothing.
#[inline]
pub(crate) fn take_for(bytes: usize) -> Vec<u8> {
    if bytes <= LONGEST { take() } else { take_long(bytes) }
}

#[cold]
fn take_long(bytes: usize) -> Vec<u8> {
    let pooled = POOL.try_with(|pool| pool.borrow_mut().long(bytes)).ok().flatten();
    let mut buffer = pooled.unwrap_or_else(|| Vec::with_capacity(bytes));
    buffer.clear();
    buffer
}

/// A buffer of so many bytes, to be overwritten. Allocates unless one of this size was given before.
pub(crate) fn take_filled(bytes: usize) -> Vec<u8> {
    let pooled = match bytes {
        0..=LONGEST => Some(take()),
        // What it holds may stay.
        _ => POOL.try_with(|pool| pool.borrow_mut().long(bytes)).ok().flatten(),
    };
    let Some(mut buffer) = pooled else { return vec![0; bytes] };
    buffer.resize(bytes, 0);
    buffer
}

/// Makes room in an empty buffer for an answer of one message, in one that goes round if it has no memory. Sizes
/// are powers of two, as those of buffers that are written into piece by piece, so that none outgrows the short
/// ones.
#[inline]
pub(crate) fn make_room(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.capacity() == 0 && bytes != 0 {
        *buffer = take();
    }
    if buffer.capacity() < bytes {
        buffer.reserve_exact(bytes.max(SHORTEST).next_power_of_two());
    }
}

/// How long the next one is expected to be, after one of so many bytes where so many were expected.
pub(crate) fn expect(before: usize, bytes: usize) -> usize {
    bytes.max(before - before.div_ceil(64))
}

/// Keeps a buffer for later.
#[inline]
pub(crate) fn give(mut buffer: Vec<u8>) {
    let capacity = buffer.capacity();
    if capacity == 0 || capacity > KEPT_LONG {
        return;
    }
    // A thread that is ending keeps nothing.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if capacity > LONGEST {
            if pool.long_bytes + capacity <= KEPT_LONG {
                pool.long_bytes += capacity;
                pool.long.push(buffer);
            }
        } else if pool.bytes + capacity <= KEPT {
            buffer.clear();
            pool.bytes += capacity;
            pool.free.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_round_up_to_a_limit() {
        assert_eq!(take().capacity(), 0);
        let mut buffer = Vec::with_capacity(100);
        buffer.push(1);
        give(buffer);
        let buffer = take();
        assert_eq!((buffer.len(), buffer.capacity()), (0, 100));
        (0..2 * KEPT / LONGEST).for_each(|_| give(Vec::with_capacity(LONGEST)));
        POOL.with_borrow(|pool| assert_eq!((pool.bytes, pool.free.len()), (KEPT, KEPT / LONGEST)));
    }

    #[test]
    fn long_buffers_go_round_by_size() {
        give(vec![1; 4 * LONGEST]);
        give(vec![2; 2 * LONGEST]);
        // They are not for what is short.
        assert_eq!(take().capacity(), 0);
        let buffer = take_filled(2 * LONGEST - 5);
        assert_eq!((buffer.len(), buffer.capacity()), (2 * LONGEST - 5, 2 * LONGEST));
        give(buffer);
        let buffer = take_for(3 * LONGEST);
        assert_eq!((buffer.len(), buffer.capacity()), (0, 4 * LONGEST));
        give(buffer);
        assert_eq!(take_filled(5 * LONGEST), vec![0; 5 * LONGEST]);
        assert_eq!(take_filled(10), vec![0; 10]);
        give(Vec::with_capacity(KEPT_LONG));
        POOL.with_borrow(|pool| assert_eq!((pool.long_bytes, pool.long.len()), (6 * LONGEST, 2)));
    }
}
