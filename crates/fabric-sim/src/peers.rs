//! What a rank keeps of its peers, only of those that it has to do with: jobs may have many ranks.

const PAGE: usize = 16;

type Page<P> = Option<Box<[Option<P>; PAGE]>>;

/// States of peers, made when first used. Takes eight bytes for every sixteen ranks besides.
#[derive(Clone, Debug)]
pub struct PagedPeers<P> {
    pages: Vec<Page<P>>,
}

impl<P> PagedPeers<P> {
    /// No states of so many ranks.
    pub fn new(ranks: u32) -> Self {
        Self { pages: (0..(ranks as usize).div_ceil(PAGE)).map(|_| None).collect() }
    }

    /// The state of a peer, made if there is none. Allocates for the first peer of sixteen.
    ///
    /// # Panics
    /// If there is no such rank.
    #[inline]
    pub fn get_or_insert_with(&mut self, peer: u32, make: impl FnOnce() -> P) -> &mut P {
        let page = self.pages[peer as usize / PAGE].get_or_insert_with(|| Box::new([const { None }; PAGE]));
        page[peer as usize % PAGE].get_or_insert_with(make)
    }

    /// The state of a peer, if there ever was anything to keep.
    ///
    /// # Panics
    /// If there is no such rank.
    #[inline]
    pub fn get(&self, peer: u32) -> Option<&P> {
        self.pages[peer as usize / PAGE].as_ref()?[peer as usize % PAGE].as_ref()
    }

    /// The next peer after one, in a circle that ends with it, whose state fits.
    pub fn next(&self, after: u32, fits: impl Fn(u32, &P) -> bool) -> Option<u32> {
        let (pages, first) = (self.pages.len(), after as usize / PAGE);
        let begin = after as usize % PAGE + 1;
        let parts = std::iter::once((first, begin..PAGE))
            .chain((1..pages).map(|step| ((first + step) % pages, 0..PAGE)))
            .chain(std::iter::once((first, 0..begin)));
        parts
            .filter_map(|(page, range)| Some((page, range, self.pages[page].as_ref()?)))
            .flat_map(|(page, range, states)| range.map(move |offset| (page * PAGE + offset, &states[offset])))
            .find(|(peer, state)| state.as_ref().is_some_and(|state| fits(*peer as u32, state)))
            .map(|(peer, _)| peer as u32)
    }

    /// A peer whose state fits: this one, or the next after it. A search that begins with what it found the last
    /// time is short as long as that fits, however many peers there are.
    pub fn at_or_after(&self, peer: u32, fits: impl Fn(u32, &P) -> bool) -> Option<u32> {
        if self.get(peer).is_some_and(|state| fits(peer, state)) { Some(peer) } else { self.next(peer, fits) }
    }

    /// All peers with a state, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &P)> {
        let pages = self.pages.iter().enumerate().filter_map(|(index, page)| Some((index, page.as_ref()?)));
        pages.flat_map(|(index, page)| {
            let states = page.iter().enumerate();
            states.filter_map(move |(offset, state)| Some(((index * PAGE + offset) as u32, state.as_ref()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_peer_is_found_in_a_circle() {
        let mut peers = PagedPeers::new(100);
        for peer in [3, 5, 40, 99] {
            *peers.get_or_insert_with(peer, || false) = true;
        }
        peers.get_or_insert_with(4, || false);
        let next = |after| peers.next(after, |_, wanted| *wanted);
        assert_eq!([0, 3, 5, 40, 99, 39, 98].map(next), [3, 5, 40, 99, 3, 40, 99].map(Some));
        assert_eq!(peers.next(3, |peer, _| peer == 3), Some(3));
        assert_eq!(peers.next(3, |_, _| false), None);
        assert_eq!([2, 3, 4].map(|peer| peers.at_or_after(peer, |_, wanted| *wanted)), [3, 3, 5].map(Some));
        assert!(peers.iter().map(|(peer, _)| peer).eq([3, 4, 5, 40, 99]));
        assert_eq!((peers.get(4), peers.get(6)), (Some(&false), None));
    }
}
