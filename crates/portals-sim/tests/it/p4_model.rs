//! Portals 4 against a simple model of its rules: random entries in both lists, messages before and after them;
//! what is delivered, where, what is unexpected, cut off, refused and unlinked is the same.

use crate::model_support::{machine, notices, slot};
use portals_sim::model::Parameters;
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::{Defects, Mutation};
use portals_sim::nic::p4::{
    Ack, EqHandle, Event, EventKind, Get, List, Md, MdOptions, Me, MeHandle, MeOptions, NiFail, P4, P4Error,
    PtOptions, Put, Region, Search, Target,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Append {
        overflow: bool,
        bits: u64,
        ignore: u64,
        options: u32,
        length: usize,
        min_free: usize,
    },
    /// Unlinks an entry, given in the order of appending.
    Unlink {
        which: usize,
    },
    Search {
        bits: u64,
        ignore: u64,
        delete: bool,
        once: bool,
    },
    Enable {
        enable: bool,
    },
    Put {
        bits: u64,
        length: u32,
        offset: u64,
    },
    Get {
        bits: u64,
        length: u32,
        offset: u64,
    },
}

/// Kind, failure, list, user pointer, owner of the memory, where, lengths.
type Fields = (EventKind, NiFail, bool, u64, u64, u64, u32, u32);

const ROOM: usize = 256;
const PT: u32 = 9;
const SEARCHER: u64 = 999;
const ALL: [MeOptions; 6] = [
    MeOptions::OP_PUT,
    MeOptions::OP_GET,
    MeOptions::MANAGE_LOCAL,
    MeOptions::NO_TRUNCATE,
    MeOptions::USE_ONCE,
    MeOptions::MAY_ALIGN,
];

fn options(number: u32) -> MeOptions {
    let chosen = ALL.iter().enumerate().filter(|(bit, _)| number & 1 << bit != 0);
    chosen.fold(MeOptions::NONE, |options, (_, option)| options | *option)
}

fn fields(event: &Event) -> Fields {
    let Event { kind, ni_fail, list, user_ptr, overflow_ptr, start, rlength, mlength, .. } = *event;
    (kind, ni_fail, list == List::Overflow, user_ptr, overflow_ptr, start, rlength, mlength)
}

struct Entry {
    number: u64,
    overflow: bool,
    bits: u64,
    ignore: u64,
    options: MeOptions,
    length: usize,
    min_free: usize,
    offset: usize,
    linked: bool,
    headers: u32,
}

#[derive(Clone, Copy)]
struct Header {
    get: bool,
    bits: u64,
    length: u32,
    moved: u32,
    at: u64,
    owner: usize,
}

#[derive(Default)]
struct Model {
    entries: Vec<Entry>,
    headers: Vec<Header>,
    disabled: bool,
    memory: Vec<Vec<u8>>,
    target: Vec<Fields>,
    initiator: Vec<(EventKind, NiFail, u32, u64, u64)>,
}

impl Model {
    fn plain(&mut self, kind: EventKind, number: u64, overflow: bool) {
        self.target.push((kind, NiFail::Ok, overflow, number, 0, 0, 0, 0));
    }

    /// What follows when an entry has unlinked itself or has lost a header.
    fn free(&mut self, index: usize) {
        let entry = &self.entries[index];
        if !entry.linked && entry.headers == 0 && entry.overflow {
            self.plain(EventKind::AutoFree, self.entries[index].number, true);
        }
    }

    fn unlink(&mut self, index: usize) {
        let Entry { number, overflow, .. } = self.entries[index];
        self.plain(EventKind::AutoUnlink, number, overflow);
        self.entries[index].linked = false;
        self.free(index);
    }

    /// Headers that fit, oldest first; takes them, or only looks.
    fn claim(
        &mut self,
        bits: u64,
        ignore: u64,
        longest: Option<usize>,
        user: u64,
        once: bool,
        take: bool,
    ) -> bool {
        let (headers, mut kept, mut found) = (std::mem::take(&mut self.headers), Vec::new(), false);
        for header in headers {
            let fits = (header.bits ^ bits) & !ignore == 0;
            let fits = fits && longest.is_none_or(|longest| header.length as usize <= longest);
            if !fits || once && found {
                kept.push(header);
                continue;
            }
            found = true;
            let owner = self.entries[header.owner].number;
            let kind = match (take, header.get) {
                (false, _) => EventKind::Search,
                (true, false) => EventKind::PutOverflow,
                (true, true) => EventKind::GetOverflow,
            };
            self.target.push((kind, NiFail::Ok, true, user, owner, header.at, header.length, header.moved));
            if take {
                self.entries[header.owner].headers -= 1;
                self.free(header.owner);
            } else {
                kept.push(header);
            }
        }
        self.headers = kept;
        found
    }

    fn operate(&mut self, get: bool, bits: u64, length: u32, offset: u64, number: u64) {
        let reply = if get { EventKind::Reply } else { EventKind::Ack };
        let fail = |model: &mut Self, why| model.initiator.push((reply, why, 0, 0, number));
        if self.disabled {
            return fail(self, NiFail::PtDisabled);
        }
        for overflow in [false, true] {
            for index in 0..self.entries.len() {
                let entry = &mut self.entries[index];
                if !entry.linked || entry.overflow != overflow || (bits ^ entry.bits) & !entry.ignore != 0 {
                    continue;
                }
                let local = entry.options.has(MeOptions::MANAGE_LOCAL);
                let aligned = entry.options.has(MeOptions::MAY_ALIGN);
                let at = match (local, aligned) {
                    (true, true) => (entry.offset.div_ceil(8) * 8).min(entry.length),
                    (true, false) => entry.offset,
                    _ => (offset as usize).min(entry.length),
                };
                let moved = (length as usize).min(entry.length - at);
                if moved < length as usize && entry.options.has(MeOptions::NO_TRUNCATE) {
                    continue;
                }
                if !entry.options.has(if get { MeOptions::OP_GET } else { MeOptions::OP_PUT }) {
                    return fail(self, NiFail::OpViolation);
                }
                let (user, kind) = (entry.number, if get { EventKind::Get } else { EventKind::Put });
                self.target.push((kind, NiFail::Ok, overflow, user, user, at as u64, length, moved as u32));
                self.initiator.push((reply, NiFail::Ok, moved as u32, at as u64, number));
                if !get {
                    self.memory[user as usize][at..at + moved].fill(number as u8);
                }
                let (at, moved) = (at as u64, moved as u32);
                if overflow {
                    self.headers.push(Header { get, bits, length, moved, at, owner: index });
                    entry.headers += 1;
                }
                let mut ends = entry.options.has(MeOptions::USE_ONCE);
                if local {
                    entry.offset = at as usize + moved as usize;
                    ends |= entry.length - entry.offset < entry.min_free;
                }
                if ends {
                    self.unlink(index);
                }
                return;
            }
        }
        fail(self, NiFail::NoMatch);
    }

    fn step(&mut self, step: &Step, number: u64) {
        match *step {
            Step::Append { overflow, bits, ignore, options: wanted, length, min_free } => {
                let (options, number) = (options(wanted), self.memory.len() as u64);
                self.memory.push(vec![0; ROOM]);
                let once = options.has(MeOptions::USE_ONCE);
                let longest = options.has(MeOptions::NO_TRUNCATE).then_some(length);
                let found = !overflow && self.claim(bits, ignore, longest, number, once, true);
                let linked = !(found && once);
                let (offset, headers) = (0, 0);
                let entry =
                    Entry { number, overflow, bits, ignore, options, length, min_free, offset, linked, headers };
                self.entries.push(entry);
                self.plain(if linked { EventKind::Link } else { EventKind::AutoUnlink }, number, overflow);
            }
            Step::Unlink { which } => {
                if let Some(entry) = self.entries.get_mut(which)
                    && entry.headers == 0
                {
                    entry.linked = false;
                }
            }
            Step::Search { bits, ignore, delete, once } => {
                if !self.claim(bits, ignore, None, SEARCHER, once, delete) {
                    self.target.push((EventKind::Search, NiFail::NoMatch, false, SEARCHER, 0, 0, 0, 0));
                }
            }
            Step::Enable { enable } => self.disabled = !enable,
            Step::Put { bits, length, offset } => self.operate(false, bits, length, offset, number),
            Step::Get { bits, length, offset } => self.operate(true, bits, length, offset, number),
        }
    }
}

/// What rank 1 does to its lists.
fn change(p4: &P4<'_>, step: &Step, entries: &mut Vec<(MeHandle, HostMemory)>, model: &Model) {
    let searched = HostMemory::new(ROOM);
    match *step {
        Step::Append { overflow, bits, ignore, options: wanted, length, min_free } => {
            let memory = HostMemory::new(ROOM);
            let me = Me { length, min_free, ..Me::new(&memory, options(wanted), bits, ignore) };
            let list = if overflow { List::Overflow } else { List::Priority };
            let handle = p4.me_append(PT, &me, list, entries.len() as u64).unwrap();
            entries.push((handle, memory));
        }
        Step::Unlink { which } if which < entries.len() => {
            let result = p4.me_unlink(entries[which].0);
            let entry = &model.entries[which];
            match (entry.linked, entry.headers) {
                (false, _) => assert!(matches!(result, Err(P4Error::ArgInvalid { .. })), "{result:?}"),
                (true, 0) => assert_eq!(result, Ok(())),
                (true, pending) => assert_eq!(result, Err(P4Error::InUse { what: "overflow entry", pending })),
            }
        }
        Step::Search { bits, ignore, delete, once } => {
            let options = if once { MeOptions::USE_ONCE } else { MeOptions::NONE };
            let search = if delete { Search::Delete } else { Search::Only };
            p4.me_search(PT, &Me::new(&searched, options, bits, ignore), search, SEARCHER).unwrap();
        }
        Step::Enable { enable: true } => p4.pt_enable(PT).unwrap(),
        Step::Enable { enable: false } => p4.pt_disable(PT).unwrap(),
        _ => {}
    }
}

fn drain(p4: &P4<'_>, eq: EqHandle) -> Vec<Event> {
    std::iter::from_fn(|| p4.eq_get(eq).ok()).collect()
}

fn run(steps: &[Step], parameters: Parameters, defects: Defects) -> Result<(), TestCaseError> {
    let all = steps.to_vec();
    let report = portals_sim::run(&machine(parameters, defects), move |nic| {
        let p4 = nic.p4();
        p4.init(None).unwrap();
        let eq = p4.eq_alloc(4096).unwrap();
        p4.pt_alloc(PtOptions::NONE, Some(eq), Some(PT)).unwrap();
        let (mut model, mut entries, memory) = (Model::default(), Vec::new(), HostMemory::new(ROOM));
        let options = MdOptions::EVENT_SEND_DISABLE;
        let md = p4.md_bind(&Md { options, eq: Some(eq), ..Md::new(&memory) }).unwrap();
        for (number, step) in all.iter().enumerate() {
            slot(&nic, number);
            let user_ptr = number as u64;
            let target = |match_bits, offset| Target {
                process: nic.id(1).unwrap().into(),
                pt_index: PT,
                match_bits,
                offset,
            };
            let place = Region { md, offset: 0 };
            match *step {
                Step::Put { bits, length, offset } if nic.rank() == 0 => {
                    nic.write(&memory, 0, &[number as u8; ROOM]);
                    let (target, ack, hdr_data) = (target(bits, offset), Ack::Request, 0);
                    p4.put(&Put { from: place, length, ack, target, user_ptr, hdr_data }).unwrap();
                }
                Step::Get { bits, length, offset } if nic.rank() == 0 => {
                    p4.get(&Get { to: place, length, target: target(bits, offset), user_ptr }).unwrap();
                }
                _ if nic.rank() == 1 => change(&p4, step, &mut entries, &model),
                _ => {}
            }
            model.step(step, number as u64);
        }
        slot(&nic, all.len() + 2);
        let events = drain(&p4, eq);
        if nic.rank() == 0 {
            let mut found: Vec<_> = events
                .iter()
                .map(|event| (event.kind, event.ni_fail, event.mlength, event.remote_offset, event.user_ptr))
                .collect();
            found.sort_unstable_by_key(|(.., number)| *number);
            assert_eq!(found, model.initiator);
            return;
        }
        assert_eq!(events.iter().map(fields).collect::<Vec<_>>(), model.target);
        for ((_, memory), expected) in entries.iter().zip(&model.memory) {
            let mut bytes = vec![0; ROOM];
            nic.read(memory, 0, &mut bytes);
            assert_eq!(&bytes, expected);
        }
        assert_eq!(p4.status().unwrap().unexpected as usize, model.headers.len());
    });
    report.map(drop).map_err(|error| TestCaseError::fail(error.to_string()))
}

fn step() -> impl Strategy<Value = Step> {
    let bits = || 0u64..4;
    let ignore = || prop_oneof![Just(0u64), 0u64..4, Just(u64::MAX)];
    let append = (any::<bool>(), bits(), ignore(), 0u32..64, 0usize..=ROOM, 0usize..64);
    let append = append.prop_map(|(overflow, bits, ignore, options, length, min_free)| Step::Append {
        overflow,
        bits,
        ignore,
        options,
        length,
        min_free,
    });
    let search = (bits(), ignore(), any::<bool>(), any::<bool>());
    let search = search.prop_map(|(bits, ignore, delete, once)| Step::Search { bits, ignore, delete, once });
    let message = || (bits(), 0u32..128, 0u64..300);
    prop_oneof![
        6 => append,
        1 => (0usize..20).prop_map(|which| Step::Unlink { which }),
        2 => search,
        1 => prop_oneof![3 => Just(true), 1 => Just(false)].prop_map(|enable| Step::Enable { enable }),
        8 => message().prop_map(|(bits, length, offset)| Step::Put { bits, length, offset }),
        3 => message().prop_map(|(bits, length, offset)| Step::Get { bits, length, offset }),
    ]
}

// `PROPTEST_CASES` asks for more.
proptest! {
    #[test]
    fn lists_work_as_the_model_says(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps, Parameters::xt4(), Defects::default())?;
        run(&steps, Parameters::free(), Defects::default())?;
    }
}

const MUTATIONS: [Mutation; 7] = [
    Mutation::LastMatch,
    Mutation::HalfOffset,
    Mutation::NoMaxSize,
    Mutation::HideTruncation,
    Mutation::OverflowFirst,
    Mutation::ForgetUnexpected,
    Mutation::TakeAndRefuse,
];

/// The comparison would notice an interface that breaks the rules.
#[test]
fn the_model_notices_defects() {
    notices(&MUTATIONS, step, run);
}
