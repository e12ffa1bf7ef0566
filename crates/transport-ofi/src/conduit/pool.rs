//! Buffers of one kind, shared out among peers so that one that takes nothing off leaves some to the others.

/// The buffers of one kind that are free, and the rule by which peers share them.
///
/// A peer that holds none may take any that is free. One that holds some may hold three quarters of what is free
/// beyond a kept part: a quarter of all, or one for each other peer if that is less. So peers that stop one after
/// the other hold less and less, and of the kept part one each.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<u32>,
    kept: u32,
    /// Whether all buffers are one peer's.
    alone: bool,
}

impl Pool {
    /// The buffers of these numbers, shared by endpoints that have so many peers besides themselves.
    pub(super) fn new(buffers: std::ops::Range<u32>, others: u32) -> Self {
        let total = buffers.len() as u32;
        let kept = others.saturating_sub(1).min(total / 4);
        Self { free: buffers.rev().collect(), kept, alone: others <= 1 }
    }

    /// Whether a peer that holds so many of so many free ones may take another.
    fn allows(&self, held: u32, free: u32) -> bool {
        free > 0 && (held == 0 || self.alone || held < 3 * free.saturating_sub(self.kept))
    }

    /// Whether a peer that holds so many may take one.
    #[inline]
    pub(super) fn has_room(&self, held: u32) -> bool {
        self.allows(held, self.free.len() as u32)
    }

    /// Whether a peer that holds `held` may take `more` without waiting for any to come back.
    pub(super) fn has_room_for(&self, held: u32, more: u32) -> bool {
        let free = self.free.len() as u32;
        (0..more).all(|taken| self.allows(held + taken, free.saturating_sub(taken)))
    }

    /// Whether there would be room for so many at once if all were free.
    pub(super) fn could_hold(&self, total: u32, more: u32) -> bool {
        (0..more).all(|taken| self.allows(taken, total.saturating_sub(taken)))
    }

    /// A buffer for a peer that holds so many.
    #[inline]
    pub(super) fn take(&mut self, held: u32) -> Option<u32> {
        if self.has_room(held) { self.free.pop() } else { None }
    }

    /// Any buffer, whoever has how many.
    pub(super) fn take_any(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives a buffer back.
    #[inline]
    pub(super) fn put(&mut self, buffer: u32) {
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What peers that stop one after the other take of so many buffers.
    fn stopped(total: u32, others: u32) -> Vec<u32> {
        let mut pool = Pool::new(0..total, others);
        let all = |pool: &mut Pool| (0..).take_while(|held| pool.take(*held).is_some()).count() as u32;
        (0..others).map(|_| all(&mut pool)).collect()
    }

    #[test]
    fn who_stops_leaves_some_to_the_others() {
        assert_eq!(stopped(8, 1), [8]);
        assert_eq!(stopped(16, 2), [12, 3]);
        assert_eq!(stopped(128, 7)[..4], [92, 23, 6, 1]);
        // The kept quarter serves as many as it has buffers.
        assert!(stopped(128, 33).iter().all(|taken| *taken > 0));
        assert_eq!(stopped(1, 3), [1, 0, 0]);
    }

    #[test]
    fn room_is_counted_as_it_is_taken() {
        for (total, others, held) in [(8, 1, 0), (16, 3, 0), (16, 3, 2), (128, 7, 10), (1, 1, 0)] {
            let mut pool = Pool::new(0..total, others);
            let could = (0..=total).rev().find(|more| pool.could_hold(total, *more)).unwrap();
            let room = (0..=total).rev().find(|more| pool.has_room_for(held, *more)).unwrap();
            assert!(held != 0 || could == room);
            let taken = (held..).take_while(|held| pool.take(*held).is_some()).count() as u32;
            assert_eq!(taken, room, "{total} {others} {held}");
            assert_eq!(pool.take_any().is_none(), taken == total);
        }
    }
}
