//! A global allocator that counts, for tests that hold a hot path to its word: nothing is allocated per message.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting every thread's requests for memory apart from the others'.
///
/// A test makes it the program's own:
///
/// ```
/// use am_conformance::{CountingAllocator, allocations};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator;
///
/// # fn main() {
/// let before = allocations();
/// drop(std::hint::black_box(vec![1; 10]));
/// assert_eq!(allocations() - before, 1);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// How often this thread has asked for memory, first or anew, since it began. Stays 0 unless [`CountingAllocator`]
/// is the program's allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Shared by tests that count allocations, taken alone by those that request stall reports.
static STALL_REQUESTS: RwLock<()> = RwLock::new(());

/// No test of this process that holds [`with_stall_requests`] runs while this guard lives. Tests that count
/// allocations hold it: a requested [stall report](am_core::stall::request) is printed by every endpoint of the
/// process, and allocates. Blocks until those tests have ended.
pub fn without_stall_requests() -> RwLockReadGuard<'static, ()> {
    STALL_REQUESTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// This test alone may request stall reports of the process's endpoints while this guard lives. Blocks until the
/// tests that hold this or [`without_stall_requests`] have ended.
pub fn with_stall_requests() -> RwLockWriteGuard<'static, ()> {
    STALL_REQUESTS.write().unwrap_or_else(PoisonError::into_inner)
}

fn count() {
    // A thread that is ending has no counter any more, and is not being measured.
    let _ = ALLOCATIONS.try_with(|requests| requests.set(requests.get() + 1));
}

// SAFETY: every method hands its arguments to the system's allocator and its result back; counting allocates
// nothing, since the counter needs neither initialisation nor a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps to the contract of this method, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    // Without this the system's zeroed pages would be written once more, and so take memory that nobody uses.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from `alloc` or `realloc`, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Pages of the process that are in memory, in KiB.
    fn resident() -> Option<usize> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    }

    #[test]
    fn zeroed_memory_is_not_touched() {
        const SIZE: usize = 256 << 20;
        let layout = Layout::from_size_align(SIZE, 8).expect("the size is possible");
        let (counted, before) = (allocations(), resident());
        // SAFETY: the layout has a size.
        let memory = black_box(unsafe { CountingAllocator.alloc_zeroed(layout) });
        assert!(!memory.is_null());
        assert_eq!(allocations(), counted + 1);
        if let (Some(before), Some(after)) = (before, resident()) {
            assert!(after < before + (SIZE >> 11), "{} KiB have become resident", after - before);
        }
        // SAFETY: it was allocated above, with this layout.
        unsafe { CountingAllocator.dealloc(memory, layout) };
    }
}
