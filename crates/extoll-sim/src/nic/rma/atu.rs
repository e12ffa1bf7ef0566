//! The address translation unit of a node: network logical addresses (NLAs), pages, rights. A state machine with
//! no clock.

use crate::nic::mutation::{Defects, Mutation};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use thiserror::Error;

/// The page sizes of the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KB.
    Kib4,
    /// 64 KB.
    Kib64,
    /// 2 MB.
    Mib2,
    /// 1 GB.
    Gib1,
}

impl PageSize {
    const ALL: [Self; 4] = [Self::Kib4, Self::Kib64, Self::Mib2, Self::Gib1];

    /// The size as a power of two.
    pub const fn shift(self) -> u32 {
        match self {
            Self::Kib4 => 12,
            Self::Kib64 => 16,
            Self::Mib2 => 21,
            Self::Gib1 => 30,
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

/// What the interface may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    ReadOnly,
    /// Writing only.
    WriteOnly,
    /// Both.
    ReadWrite,
}

/// A network logical address: page size in bits 63:62, page number, offset in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nla(pub u64);

impl Nla {
    fn new(size: PageSize, frame: u64, offset: u64) -> Self {
        Self((size as u64) << 62 | frame << size.shift() | offset)
    }

    fn size(self) -> PageSize {
        PageSize::ALL[(self.0 >> 62) as usize]
    }

    /// Page number and offset.
    fn parts(self) -> (u64, u64) {
        let (size, address) = (self.size(), self.0 << 2 >> 2);
        (address >> size.shift(), address & (size.bytes() - 1))
    }
}

/// Why the unit refuses an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AtuFault {
    /// No page is registered there, or the range leaves its region.
    #[error("nothing is registered at NLA {nla:#x} for {len} bytes")]
    BadNla {
        /// The address.
        nla: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// The page belongs to another process.
    #[error("the page at NLA {nla:#x} belongs to vpid {owner}, not {vpid}")]
    WrongVpid {
        /// The address.
        nla: u64,
        /// Whose it is.
        owner: u8,
        /// Who was addressed.
        vpid: u8,
    },
    /// The page may not be written.
    #[error("the page at NLA {nla:#x} is read-only")]
    ReadOnly {
        /// The address.
        nla: u64,
    },
    /// The page may not be read.
    #[error("the page at NLA {nla:#x} is write-only")]
    WriteOnly {
        /// The address.
        nla: u64,
    },
}

/// What an access wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Read,
    Write,
}

#[derive(Clone, Copy)]
struct Page {
    region: u32,
    access: Access,
}

struct Region<M> {
    memory: M,
    /// Bytes of the memory, and where the region's first page begins in it.
    len: u64,
    start: u64,
    size: PageSize,
    first: u64,
    pages: u64,
    vpid: u8,
}

/// The table of a node. `M` is a handle to memory.
pub(crate) struct Atu<M> {
    /// Per page size: the pages in use by number.
    pages: [Vec<Option<Page>>; 4],
    /// Per page size: runs of pages that were given back, as (first, count).
    spare: [Vec<(u64, u64)>; 4],
    regions: Vec<Option<Region<M>>>,
    /// Numbers of regions that were given back; the smallest is used first.
    unused: BinaryHeap<Reverse<u32>>,
    used: u64,
    limit: u64,
    defects: Defects,
}

/// A registration: its number and the address of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) region: u32,
    pub(crate) base: Nla,
}

impl<M> Atu<M> {
    pub(crate) fn new(limit: u32, defects: Defects) -> Self {
        let regions = Vec::new();
        Self {
            pages: Default::default(),
            spare: Default::default(),
            regions,
            unused: BinaryHeap::new(),
            used: 0,
            limit: limit.into(),
            defects,
        }
    }

    /// The smallest page size that needs no more than a thousand pages.
    pub(crate) fn fitting(bytes: u64) -> PageSize {
        PageSize::ALL.into_iter().find(|size| bytes >> size.shift() < 1000).unwrap_or(PageSize::Gib1)
    }

    /// Registers `bytes` bytes from offset `at` on of a memory of `len` bytes. The whole pages around the range
    /// become accessible, as far as there is memory. A full table refuses: pages wanted, used and possible.
    pub(crate) fn register(
        &mut self,
        memory: M,
        len: u64,
        (at, bytes): (u64, u64),
        size: PageSize,
        access: Access,
        vpid: u8,
    ) -> Result<Registered, (u64, u64, u64)> {
        let (from, to) = (at >> size.shift(), (at + bytes.max(1) - 1) >> size.shift());
        let count = to - from + 1;
        if self.used + count > self.limit {
            return Err((count, self.used, self.limit));
        }
        self.used += count;
        let region = self.unused.pop().map_or(self.regions.len(), |Reverse(number)| number as usize);
        let first = self.frames(size, count);
        let pages = &mut self.pages[size as usize];
        pages[first as usize..(first + count) as usize].fill(Some(Page { region: region as u32, access }));
        let entry = Region { memory, len, start: from << size.shift(), size, first, pages: count, vpid };
        self.regions.resize_with(self.regions.len().max(region + 1), || None);
        self.regions[region] = Some(entry);
        let base = Nla::new(size, first, at - (from << size.shift()));
        Ok(Registered { region: region as u32, base })
    }

    /// A run of unused page numbers.
    fn frames(&mut self, size: PageSize, count: u64) -> u64 {
        let spare = &mut self.spare[size as usize];
        if let Some(index) = spare.iter().position(|(_, free)| *free >= count) {
            let (first, free) = spare[index];
            if free == count {
                spare.remove(index);
            } else {
                spare[index] = (first + count, free - count);
            }
            return first;
        }
        let pages = &mut self.pages[size as usize];
        let first = pages.len();
        pages.resize(first + count as usize, None);
        first as u64
    }

    /// Ends a registration; returns whether there was one of this process.
    pub(crate) fn unregister(&mut self, region: u32, vpid: u8) -> bool {
        let Some(entry) = self.regions.get_mut(region as usize) else { return false };
        if entry.as_ref().is_none_or(|entry| entry.vpid != vpid) {
            return false;
        }
        let Region { size, first, pages, .. } = entry.take().expect("the region was just seen");
        self.pages[size as usize][first as usize..(first + pages) as usize].fill(None);
        self.spare[size as usize].push((first, pages));
        self.unused.push(Reverse(region));
        self.used -= pages;
        true
    }

    /// Whether a region is registered and this process's.
    pub(crate) fn owns(&self, region: u32, vpid: u8) -> bool {
        let entry = self.regions.get(region as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.vpid == vpid)
    }

    /// Ends all registrations of a process.
    pub(crate) fn clear(&mut self, vpid: u8) {
        for region in 0..self.regions.len() as u32 {
            self.unregister(region, vpid);
        }
    }

    /// Changes the rights of one page of a region; returns whether there is such a page of this process.
    pub(crate) fn protect(&mut self, nla: Nla, access: Access, vpid: u8) -> bool {
        let (frame, _) = nla.parts();
        let Some(Some(page)) = self.pages[nla.size() as usize].get_mut(frame as usize) else { return false };
        let owner = self.regions[page.region as usize].as_ref().map(|region| region.vpid);
        if owner == Some(vpid) {
            page.access = access;
        }
        owner == Some(vpid)
    }

    /// Checks every page of a range against the process and the wish; returns the memory and the offset in it.
    pub(crate) fn translate(&self, nla: Nla, len: u64, wish: Wish, vpid: u8) -> Result<(&M, usize), AtuFault> {
        let bad = AtuFault::BadNla { nla: nla.0, len };
        let (size, (frame, offset)) = (nla.size(), nla.parts());
        let last = offset.checked_add(len.max(1) - 1).ok_or(bad)? >> size.shift();
        let pages = &self.pages[size as usize];
        let mut first = None;
        // Rule 7 of the sheet: every page of the range is checked before any of it is read or written.
        for number in frame..=frame.checked_add(last).ok_or(bad)? {
            let found = usize::try_from(number).ok().and_then(|number| pages.get(number).copied().flatten());
            let Some(page) = found.or_else(|| self.any_page()) else { return Err(bad) };
            // Neighbouring pages of different regions are no memory in one piece.
            if *first.get_or_insert(page.region) != page.region {
                return Err(bad);
            }
            let at = if number == frame { nla } else { Nla::new(size, number, 0) };
            let owner = self.regions[page.region as usize].as_ref().ok_or(bad)?.vpid;
            if owner != vpid && !self.defects.has(Mutation::SkipVpid) {
                return Err(AtuFault::WrongVpid { nla: at.0, owner, vpid });
            }
            match (page.access, wish) {
                _ if self.defects.has(Mutation::SkipRights) => {}
                (Access::ReadOnly, Wish::Write) => return Err(AtuFault::ReadOnly { nla: at.0 }),
                (Access::WriteOnly, Wish::Read) => return Err(AtuFault::WriteOnly { nla: at.0 }),
                _ => {}
            }
        }
        let region = first.and_then(|region| self.regions[region as usize].as_ref()).ok_or(bad)?;
        let skipped = self.defects.has(Mutation::SkipLookup)
            && (frame < region.first || frame >= region.first + region.pages);
        let frame = if skipped { region.first } else { frame };
        let at = region.start + ((frame - region.first) << size.shift()) + offset;
        if at.checked_add(len).is_none_or(|end| end > region.len) {
            return Err(bad);
        }
        Ok((&region.memory, at as usize))
    }

    fn any_page(&self) -> Option<Page> {
        if !self.defects.has(Mutation::SkipLookup) {
            return None;
        }
        self.pages.iter().flatten().copied().flatten().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_page_size_translates() {
        for size in PageSize::ALL {
            let mut atu = Atu::new(100, Defects::default());
            let (len, at) = (3 * size.bytes(), size.bytes() - 10);
            let first = atu.register('a', len, (at, 20), size, Access::ReadWrite, 1).unwrap();
            assert_eq!(atu.translate(first.base, 20, Wish::Write, 1), Ok((&'a', at as usize)));
            // The whole pages are there: both that the range touches, and no third.
            let start = Nla(first.base.0 - at);
            assert_eq!(atu.translate(start, 2 * size.bytes(), Wish::Read, 1), Ok((&'a', 0)));
            assert!(atu.translate(start, 2 * size.bytes() + 1, Wish::Read, 1).is_err());
            assert!(matches!(atu.translate(start, 1, Wish::Read, 2), Err(AtuFault::WrongVpid { owner: 1, .. })));
        }
    }

    #[test]
    fn addresses_at_the_end_of_the_world_do_not_overflow() {
        let mut atu = Atu::new(100, Defects::default());
        atu.register('a', 4096, (0, 4096), PageSize::Kib4, Access::ReadWrite, 0).unwrap();
        for nla in [u64::MAX, u64::MAX >> 2, 3 << 62, 1 << 62] {
            for len in [1, 8_388_608, u64::MAX] {
                assert!(atu.translate(Nla(nla), len, Wish::Read, 0).is_err());
            }
        }
    }

    proptest! {
        /// Against a map of single bytes: whatever is registered and unregistered, with whatever rights.
        #[test]
        fn the_table_is_a_map(
            steps in prop::collection::vec((0u8..6, 0u64..20_000, 1u64..20_000, 0usize..3, 0u8..2), 1..60)
        ) {
            const LEN: u64 = 40_000;
            let rights = [Access::ReadOnly, Access::WriteOnly, Access::ReadWrite];
            let mut atu = Atu::new(60, Defects::default());
            // Each live region: its memory's name, address of the memory's first page, pages, rights, owner.
            let mut live: Vec<(u32, u64, u64, u64, usize, u8)> = Vec::new();
            let mut used = 0;
            for (number, (what, at, bytes, access, vpid)) in steps.into_iter().enumerate() {
                if what == 0 && !live.is_empty() {
                    let (region, _, _, pages, _, owner) = live.remove(at as usize % live.len());
                    prop_assert!(!atu.unregister(region, 1 - owner), "regions of others stay");
                    prop_assert!(atu.unregister(region, owner) && !atu.owns(region, owner));
                    used -= pages;
                } else if what < 3 {
                    let (first, last) = (at / 4096, (at + bytes - 1) / 4096);
                    let pages = last - first + 1;
                    let name = number as u32;
                    let done = atu.register(name, LEN, (at, bytes), PageSize::Kib4, rights[access], vpid);
                    prop_assert_eq!(done.is_ok(), used + pages <= 60);
                    if let Ok(Registered { region, base }) = done {
                        used += pages;
                        let base = base.0 - at % 4096;
                        let taken = |other: &(u32, u64, u64, u64, usize, u8)| {
                            base < other.1 + other.3 * 4096 && other.1 < base + pages * 4096
                        };
                        prop_assert!(!live.iter().any(taken), "pages have one owner");
                        live.push((region, base, first * 4096, pages, access, vpid));
                    }
                } else {
                    let wish = if what == 3 { Wish::Read } else { Wish::Write };
                    let nla = at * 13 % (64 * 4096);
                    let found = atu.translate(Nla(nla), bytes, wish, vpid);
                    let inside = |live: &&(u32, u64, u64, u64, usize, u8)| {
                        nla >= live.1 && nla + bytes <= live.1 + live.3 * 4096
                    };
                    let region = live.iter().find(inside);
                    let allowed = region.filter(|(_, base, start, _, access, owner)| {
                        let denied = if wish == Wish::Read { Access::WriteOnly } else { Access::ReadOnly };
                        *owner == vpid && rights[*access] != denied && start + (nla - base) + bytes <= LEN
                    });
                    match (found, allowed) {
                        (Ok((_, offset)), Some((_, base, start, ..))) => {
                            prop_assert_eq!(offset as u64, start + (nla - base));
                        }
                        (Err(_), None) => {}
                        (found, allowed) => prop_assert!(false, "{:?} instead of {:?}", found, allowed),
                    }
                }
            }
        }
    }
}
