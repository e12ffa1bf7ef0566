//! Buffers that go round: requests and answers are kept in memory that was used before, so that calls allocate nothing after a while.

use std::cell::RefCell;

/// Bytes that a thread keeps at most.
const KEPT: usize = 8 << 20;

/// A longer buffer is not kept.
const LONGEST: usize = 64 << 10;

#[derive(Default)]
struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
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

/// Keeps a buffer for later.
#[inline]
pub(crate) fn give(mut buffer: Vec<u8>) {
    let capacity = buffer.capacity();
    if capacity == 0 || capacity > LONGEST {
        return;
    }
    buffer.clear();
    // A thread that is ending keeps nothing.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.bytes + capacity <= KEPT {
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
        give(Vec::with_capacity(LONGEST + 1));
        assert_eq!(take().capacity(), 0);
        let mut buffer = Vec::with_capacity(100);
        buffer.push(1);
        give(buffer);
        let buffer = take();
        assert_eq!((buffer.len(), buffer.capacity()), (0, 100));
        (0..2 * KEPT / LONGEST).for_each(|_| give(Vec::with_capacity(LONGEST)));
        POOL.with_borrow(|pool| assert_eq!((pool.bytes, pool.free.len()), (KEPT, KEPT / LONGEST)));
    }
}
