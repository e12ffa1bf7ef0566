//! Memory for secrets: it is wiped when it is given back, stays where it is while its owner moves, and is left out
//! of core dumps.
//!
//! A [`Key`] is a piece of a page that the process keeps for such pieces and marks once (`MADV_DONTDUMP`);
//! [`Bytes`] that are longer have pages of their own. Where the system has no such pages left, or cannot mark
//! them, both are ordinary memory that is wiped all the same. Swap, debuggers, and copies in registers and on
//! stacks are no matter of this module.

use memmap2::MmapMut;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use zeroize::Zeroize;

/// Bytes of a piece, the most of a [`Key`].
const PIECE: usize = 64;
/// Bytes that are marked at once.
const PAGE: usize = 4096;

type Piece = &'static mut [u8; PIECE];

/// Pieces that nobody has. It is only ever tried, so that a fork of a process whose other thread had it locked
/// goes on; what finds it locked uses a new page, or leaves a wiped piece unused.
static FREE: Mutex<Vec<Piece>> = Mutex::new(Vec::new());

/// Pages that core dumps leave out, or none.
fn pages(bytes: usize) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(bytes).ok()?;
    #[cfg(target_os = "linux")]
    pages.advise(memmap2::Advice::DontDump).ok()?;
    Some(pages)
}

/// A piece of zeros.
fn piece() -> Piece {
    if let Some(piece) = FREE.try_lock().ok().and_then(|mut free| free.pop()) {
        return piece;
    }
    // It serves others for as long as the process runs.
    let page: &'static mut [u8] = match pages(PAGE) {
        Some(page) => &mut Box::leak(Box::new(page))[..],
        None => &mut Box::leak(Box::new([0; PAGE]))[..],
    };
    let (pieces, _) = page.as_chunks_mut::<PIECE>();
    let (first, others) = pieces.split_first_mut().expect("a page has many pieces");
    if let Ok(mut free) = FREE.try_lock() {
        free.extend(others);
    }
    first
}

/// A secret of `N` bytes, 64 at most, zeros at first. Its `Debug` form does not show it.
pub struct Key<const N: usize>(Option<Piece>);

impl<const N: usize> Default for Key<N> {
    fn default() -> Self {
        const { assert!(N <= PIECE, "a key has 64 bytes at most") };
        Self(Some(piece()))
    }
}

impl<const N: usize> Deref for Key<N> {
    type Target = [u8; N];

    #[inline]
    fn deref(&self) -> &[u8; N] {
        self.0.as_ref().and_then(|piece| piece.first_chunk()).expect("a key has its piece until it is dropped")
    }
}

impl<const N: usize> DerefMut for Key<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8; N] {
        self.0.as_mut().and_then(|piece| piece.first_chunk_mut()).expect("a key has its piece until it is dropped")
    }
}

impl<const N: usize> Clone for Key<N> {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        copy.copy_from_slice(&**self);
        copy
    }
}

impl<const N: usize> Drop for Key<N> {
    fn drop(&mut self) {
        if let Some(piece) = self.0.take() {
            piece.zeroize();
            if let Ok(mut free) = FREE.try_lock() {
                free.push(piece);
            }
        }
    }
}

impl<const N: usize> fmt::Debug for Key<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Where [`Bytes`] are.
enum Place {
    Piece(Key<PIECE>),
    Pages(MmapMut),
    Heap(Box<[u8]>),
}

/// A secret of any length. Its `Debug` form does not show it. More than 64 bytes take pages of 4 KiB of their own.
pub struct Bytes {
    place: Place,
    len: usize,
}

impl Bytes {
    /// So many zeros. Allocates.
    pub fn zeroed(len: usize) -> Self {
        let place = match len {
            0..=PIECE => Place::Piece(Key::default()),
            _ => pages(len).map_or_else(|| Place::Heap(vec![0; len].into()), Place::Pages),
        };
        Self { place, len }
    }

    /// Keeps the first `len` bytes, all if there are fewer. What is cut off is wiped when this is dropped.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        let mut private = Self::zeroed(bytes.len());
        private.copy_from_slice(bytes);
        private
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.place {
            Place::Piece(piece) => &piece[..],
            Place::Pages(pages) => pages,
            Place::Heap(heap) => heap,
        };
        &all[..self.len]
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.place {
            Place::Piece(piece) => &mut piece[..],
            Place::Pages(pages) => pages,
            Place::Heap(heap) => heap,
        };
        &mut all[..self.len]
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl Drop for Bytes {
    fn drop(&mut self) {
        match &mut self.place {
            // It wipes itself.
            Place::Piece(_) => {}
            Place::Pages(pages) => pages.zeroize(),
            Place::Heap(heap) => heap.zeroize(),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bytes(..)")
    }
}

/// Whether core dumps of this process leave this memory out, as the kernel's account of its mappings says
/// (`/proc/self/smaps`, flag `dd`). Reads a file: for tests.
///
/// # Errors
/// The account cannot be read.
pub fn is_left_out_of_dumps(memory: &[u8]) -> io::Result<bool> {
    let (start, mut inside) = (memory.as_ptr() as usize, false);
    for line in BufReader::new(std::fs::File::open("/proc/self/smaps")?).lines() {
        let line = line?;
        let first = line.split(' ').next().unwrap_or_default();
        let bounds = first.split_once('-').map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(from), Ok(to)]) = bounds {
            inside = (from..to).contains(&start) && start + memory.len() <= to;
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return Ok(flags.split_whitespace().any(|flag| flag == "dd"));
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out_of_dumps() {
        let ordinary = vec![7; 32];
        assert!(!is_left_out_of_dumps(&ordinary).unwrap());
        let keys: Vec<_> = (0..100).map(|_| Key::<32>::default()).collect();
        assert!(keys.iter().all(|key| is_left_out_of_dumps(&key[..]).unwrap()));
        for len in [1, 64, 65, 5000] {
            assert!(is_left_out_of_dumps(&Bytes::zeroed(len)).unwrap(), "{len} bytes");
        }
    }

    #[test]
    fn keys_are_apart_stay_and_begin_as_zeros() {
        let mut keys: Vec<_> = (0..200u8).map(|_| Key::<16>::default()).collect();
        assert!(keys.iter().all(|key| **key == [0; 16]));
        (0..).zip(&mut keys).for_each(|(number, key)| key.fill(number));
        let at = keys[3].as_ptr();
        let moved = keys.swap_remove(3);
        assert_eq!((moved.as_ptr(), moved.clone()[..].to_vec()), (at, vec![3; 16]));
        keys.push(moved);
        let mut found: Vec<u8> = keys.iter().map(|key| key[0]).collect();
        found.sort_unstable();
        assert!(found.iter().copied().eq(0..200));
        drop(keys);
        // What was given back is wiped.
        assert!((0..300).all(|_| *Key::<16>::default() == [0; 16]));
    }

    #[test]
    fn bytes_are_bytes() {
        for len in [0, 1, 64, 65, 4097] {
            let text: Vec<u8> = (0..len).map(|index| index as u8).collect();
            let mut bytes = Bytes::from(&text[..]);
            assert_eq!((&bytes[..], bytes.clone() == bytes), (&text[..], true));
            bytes.truncate(len / 2);
            assert_eq!(bytes[..], text[..len / 2]);
            assert_eq!(format!("{bytes:?}"), "Bytes(..)");
        }
    }
}
