//! Address translation: the memory that a process has mapped, and which pages of it are there. A state machine
//! without a clock.
//!
//! Programs name memory by the addresses of their own process, and need not pin it: a page that is not there is
//! fetched when the interface meets it, and the block that met it is sent again.

use super::errors::MapError;
use super::mutation::{Defects, Mutation};
use fabric_sim::HostMemory;
use std::collections::BTreeMap;

/// What the interface may do to mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it as the source of transfers.
    Read,
    /// Write to it, too.
    ReadWrite,
}

/// Whether the pages of a mapping are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paging {
    /// All of them, for good.
    Pinned,
    /// All of them at first; the system may take them away.
    Touched,
    /// None of them at first.
    Untouched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    There,
    Away,
    /// It is being fetched.
    Coming,
}

#[derive(Debug)]
struct Mapping {
    at: u64,
    memory: HostMemory,
    access: Access,
    paging: Paging,
    /// Pages that are not as `paging` has them at first.
    changed: BTreeMap<u64, Page>,
}

impl Mapping {
    fn page(&self, number: u64) -> Page {
        let first = if self.paging == Paging::Untouched { Page::Away } else { Page::There };
        self.changed.get(&number).copied().unwrap_or(first)
    }
}

/// The addresses are not mapped for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation;

/// A page is not there; its address. `fetch` tells the first who meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageFault {
    pub(crate) page: u64,
    pub(crate) fetch: bool,
}

/// Memory behind some addresses.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) memory: HostMemory,
    pub(crate) offset: usize,
    /// Whether the system may take its pages away.
    pub(crate) pageable: bool,
}

/// What a process has mapped.
#[derive(Debug)]
pub(crate) struct Space {
    page: u64,
    /// In the order of their addresses.
    mappings: Vec<Mapping>,
    defects: Defects,
}

impl Space {
    pub(crate) fn new(page: u32, defects: Defects) -> Self {
        Self { page: page.into(), mappings: Vec::new(), defects }
    }

    pub(crate) fn map(
        &mut self,
        at: u64,
        memory: &HostMemory,
        access: Access,
        paging: Paging,
    ) -> Result<(), MapError> {
        let len = memory.len() as u64;
        if !at.is_multiple_of(self.page) {
            return Err(MapError::Unaligned { at, page: self.page });
        }
        let in_use = MapError::InUse { at, len };
        let end = at.checked_add(len).ok_or(in_use)?;
        let index = self.mappings.partition_point(|mapping| mapping.at < at);
        let before = index.checked_sub(1).map(|before| &self.mappings[before]);
        let overlaps = before.is_some_and(|before| before.at + before.memory.len() as u64 > at)
            || self.mappings.get(index).is_some_and(|after| after.at < end || after.at == at);
        if overlaps {
            return Err(in_use);
        }
        let mapping = Mapping { at, memory: memory.clone(), access, paging, changed: BTreeMap::new() };
        self.mappings.insert(index, mapping);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, at: u64) -> Result<(), MapError> {
        let found = self.mappings.binary_search_by_key(&at, |mapping| mapping.at);
        found.map(|index| drop(self.mappings.remove(index))).map_err(|_| MapError::NotMapped(at))
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.mappings.clear();
    }

    fn find(&self, at: u64, len: u64) -> Result<usize, Violation> {
        let index = self.mappings.partition_point(|mapping| mapping.at <= at).checked_sub(1).ok_or(Violation)?;
        let mapping = &self.mappings[index];
        let end = (at - mapping.at).checked_add(len).ok_or(Violation)?;
        if end <= mapping.memory.len() as u64 { Ok(index) } else { Err(Violation) }
    }

    /// The memory behind some addresses that lie in one mapping.
    pub(crate) fn translate(&self, at: u64, len: u64, write: bool) -> Result<Place, Violation> {
        let mapping = &self.mappings[self.find(at, len)?];
        // Rule 6 of the sheet: memory is read and written as it was mapped.
        if write && mapping.access == Access::Read && !self.defects.has(Mutation::SkipRights) {
            return Err(Violation);
        }
        let pageable = mapping.paging != Paging::Pinned;
        Ok(Place { memory: mapping.memory.clone(), offset: (at - mapping.at) as usize, pageable })
    }

    /// Looks whether all pages behind some mapped addresses are there; the first one that is not is then being
    /// fetched.
    pub(crate) fn touch(&mut self, at: u64, len: u64) -> Result<(), PageFault> {
        let Ok(index) = self.find(at, len) else { return Ok(()) };
        let mapping = &mut self.mappings[index];
        if mapping.paging == Paging::Pinned || mapping.paging == Paging::Touched && mapping.changed.is_empty() {
            return Ok(());
        }
        for number in at / self.page..=(at + len.max(1) - 1) / self.page {
            match mapping.page(number) {
                Page::There => {}
                Page::Coming => return Err(PageFault { page: number * self.page, fetch: false }),
                Page::Away => {
                    mapping.changed.insert(number, Page::Coming);
                    return Err(PageFault { page: number * self.page, fetch: true });
                }
            }
        }
        Ok(())
    }

    /// A page has been fetched.
    pub(crate) fn fetched(&mut self, page: u64) {
        self.change(page, Page::There);
    }

    /// The system takes away the page that an address is in, if it may.
    pub(crate) fn evict(&mut self, at: u64) {
        let coming = self.find(at, 1).is_ok_and(|index| self.mappings[index].page(at / self.page) == Page::Coming);
        if !coming {
            self.change(at, Page::Away);
        }
    }

    fn change(&mut self, at: u64, page: Page) {
        let number = at / self.page;
        let Ok(index) = self.find(at, 1) else { return };
        let mapping = &mut self.mappings[index];
        let first = if mapping.paging == Paging::Untouched { Page::Away } else { Page::There };
        if mapping.paging == Paging::Pinned || page == first {
            mapping.changed.remove(&number);
        } else {
            mapping.changed.insert(number, page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(paging: Paging) -> Space {
        let mut space = Space::new(4096, Defects::default());
        space.map(8192, &HostMemory::new(10_000), Access::ReadWrite, paging).unwrap();
        space
    }

    #[test]
    fn addresses_lie_in_one_mapping_with_its_rights() {
        let mut space = space(Paging::Pinned);
        space.map(20_480, &HostMemory::new(100), Access::Read, Paging::Pinned).unwrap();
        let offset = |at, len, write| space.translate(at, len, write).map(|place| place.offset);
        assert_eq!(offset(8192, 10_000, true), Ok(0));
        assert_eq!(offset(8200, 9_992, true), Ok(8));
        assert_eq!(offset(8200, 9_993, true), Err(Violation));
        assert_eq!((offset(8191, 1, false), offset(0, 1, false)), (Err(Violation), Err(Violation)));
        assert_eq!((offset(20_480, 100, false), offset(20_480, 1, true)), (Ok(0), Err(Violation)));
        assert_eq!(offset(u64::MAX, 2, false), Err(Violation));
    }

    #[test]
    fn mappings_do_not_overlap() {
        let mut space = space(Paging::Pinned);
        let mut map = |at, len| space.map(at, &HostMemory::new(len), Access::Read, Paging::Pinned);
        assert_eq!(map(4096, 4096), Ok(()));
        assert_eq!(map(12_288, 10), Err(MapError::InUse { at: 12_288, len: 10 }));
        assert_eq!(map(0, 4097), Err(MapError::InUse { at: 0, len: 4097 }));
        assert_eq!(map(100, 1), Err(MapError::Unaligned { at: 100, page: 4096 }));
        assert!(matches!(map(u64::MAX - 4095, 5000), Err(MapError::InUse { .. })));
        assert_eq!(space.unmap(8192), Ok(()));
        assert_eq!(space.unmap(8192), Err(MapError::NotMapped(8192)));
        assert_eq!(space.translate(8192, 1, false).err(), Some(Violation));
    }

    #[test]
    fn a_page_is_fetched_once_and_stays() {
        let mut space = space(Paging::Untouched);
        assert_eq!(space.touch(9000, 8000), Err(PageFault { page: 8192, fetch: true }));
        assert_eq!(space.touch(9000, 1), Err(PageFault { page: 8192, fetch: false }));
        space.fetched(8192);
        assert_eq!(space.touch(9000, 1), Ok(()));
        assert_eq!(space.touch(9000, 8000), Err(PageFault { page: 12_288, fetch: true }));
        // What is being fetched is not taken away.
        space.evict(12_300);
        assert_eq!(space.touch(12_300, 1), Err(PageFault { page: 12_288, fetch: false }));
    }

    #[test]
    fn pages_that_are_pinned_stay() {
        let (mut pinned, mut touched) = (space(Paging::Pinned), space(Paging::Touched));
        pinned.evict(9000);
        touched.evict(9000);
        assert_eq!(pinned.touch(8192, 10_000), Ok(()));
        assert_eq!(touched.touch(8192, 10_000), Err(PageFault { page: 8192, fetch: true }));
        touched.fetched(8192);
        assert_eq!(touched.touch(8192, 10_000), Ok(()));
    }
}
