//! Large pages for the heap of a program that simulates: a thousand ranks touch more pages than a processor
//! keeps the addresses of.

/// Asks for large pages for what this program allocates from now on, as far as glibc's heap of the main thread
/// has it: everything below [`MAPPED`] bytes, until [`RESERVED`] bytes are in use. Without effect elsewhere, and
/// where the system grants none. Address space is reserved; memory is taken as it is touched, two MiB at a time.
///
/// The first that a program does: it changes how memory is given out, never what a run computes.
pub fn ask() {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
    glibc::reserve();
}

/// Bytes of the heap with large pages.
pub const RESERVED: usize = 4 << 30;

/// What is as large as this is mapped by itself, as glibc does from the beginning: zeroed memory that nobody
/// touches then takes none.
pub const MAPPED: usize = 128 << 10;

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#[allow(unsafe_code, reason = "the allocator's settings and advice about its memory")]
mod glibc {
    use super::{MAPPED, RESERVED};

    const LARGE_PAGE: usize = 2 << 20;
    /// How many chunks may be mapped by themselves: glibc's own default.
    const MAPPINGS: libc::c_int = 65_536;

    fn set(setting: libc::c_int, value: libc::c_int) {
        // SAFETY: changes a setting of the allocator, which is done under its lock; refused ones change nothing.
        unsafe { libc::mallopt(setting, value) };
    }

    /// Lets the heap grow once, by all that it may need, and keeps what it has.
    pub(super) fn reserve() {
        set(libc::M_MMAP_MAX, 0);
        set(libc::M_TRIM_THRESHOLD, -1);
        let mut room: Vec<u8> = Vec::new();
        // Where so much is not to be had the heap stays as it was.
        if room.try_reserve_exact(RESERVED).is_ok() {
            let ahead = room.as_ptr().align_offset(LARGE_PAGE);
            let (begin, len) = (room.as_mut_ptr().wrapping_add(ahead), (RESERVED - ahead) & !(LARGE_PAGE - 1));
            // SAFETY: the range lies within the allocation, which is alive; the advice changes no content.
            unsafe { libc::madvise(begin.cast(), len, libc::MADV_HUGEPAGE) };
        }
        drop(room);
        set(libc::M_MMAP_MAX, MAPPINGS);
        set(libc::M_MMAP_THRESHOLD, MAPPED as libc::c_int);
    }
}
