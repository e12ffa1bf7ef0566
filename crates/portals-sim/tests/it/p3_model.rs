//! Portals 3.3 against a simple model of its rules: random lists, descriptors and messages; what is delivered,
//! where, what is cut off, dropped, acknowledged and unlinked is the same.

use crate::model_support::{machine, notices, slot};
use portals_sim::model::Parameters;
use portals_sim::nic::HostMemory;
use portals_sim::nic::mutation::{Defects, Mutation};
use portals_sim::nic::p3::{
    Ack, Criteria, EqHandle, Event, EventKind, Md, MdHandle, MeHandle, Options, P3, P3Error, Position, Threshold,
    Unlink,
};
use proptest::prelude::*;

/// What rank 1 does to its list, or rank 0 sends.
#[derive(Clone, Debug)]
enum Step {
    /// A match entry with a descriptor: `place` says where in the list.
    Attach {
        place: usize,
        bits: u64,
        ignore: u64,
        unlink: bool,
        options: u32,
        length: usize,
        threshold: Option<u32>,
        max_size: usize,
        md_unlink: bool,
    },
    /// Unlinks the descriptor of an entry, or the entry.
    Remove {
        which: usize,
        entry: bool,
    },
    Put {
        bits: u64,
        length: u32,
        offset: u64,
        ack: bool,
    },
    Get {
        bits: u64,
        length: u32,
        offset: u64,
    },
}

/// The kinds of events, and what they tell: user pointer, offset, requested and delivered length.
type Fields = (EventKind, u64, u64, u32, u32);

fn fields(event: &Event) -> Fields {
    (event.kind, event.user_ptr, event.offset, event.rlength, event.mlength)
}

const ROOM: usize = 256;

/// The model: a list, and for each entry a descriptor.
#[derive(Default)]
struct Model {
    list: Vec<Entry>,
    entries: u64,
    memory: Vec<Vec<u8>>,
    target: Vec<Fields>,
    initiator: Vec<Fields>,
    dropped: u64,
}

struct Entry {
    number: u64,
    bits: u64,
    ignore: u64,
    unlink: bool,
    md: Option<Descriptor>,
}

struct Descriptor {
    options: Options,
    length: usize,
    left: Option<u32>,
    max_size: usize,
    unlink: bool,
    offset: usize,
    exhausted: bool,
}

fn options(number: u32) -> Options {
    let all = [
        Options::OP_PUT,
        Options::OP_GET,
        Options::MANAGE_REMOTE,
        Options::TRUNCATE,
        Options::ACK_DISABLE,
        Options::MAX_SIZE,
    ];
    let chosen = all.iter().enumerate().filter(|(bit, _)| number & 1 << bit != 0);
    chosen.fold(Options::EVENT_START_DISABLE, |options, (_, option)| options | *option)
}

impl Model {
    /// A peer's operation; returns the bytes moved, and where, if anything takes it.
    fn operate(
        &mut self,
        operation: Options,
        bits: u64,
        length: u32,
        offset: u64,
    ) -> Option<(u64, usize, usize, bool)> {
        for index in 0..self.list.len() {
            let entry = &mut self.list[index];
            let Some(md) = &mut entry.md else { continue };
            let fits = (bits ^ entry.bits) & !entry.ignore == 0;
            if !fits || md.left == Some(0) || md.exhausted || !md.options.has(operation) {
                continue;
            }
            let remote = md.options.has(Options::MANAGE_REMOTE);
            let at = if remote { (offset as usize).min(md.length) } else { md.offset };
            let moved = (length as usize).min(md.length - at);
            if moved < length as usize && !md.options.has(Options::TRUNCATE) {
                continue;
            }
            if let Some(left) = &mut md.left {
                *left -= 1;
            }
            if !remote {
                md.offset = at + moved;
                md.exhausted = md.options.has(Options::MAX_SIZE) && md.length - md.offset < md.max_size;
            }
            let acknowledged = !md.options.has(Options::ACK_DISABLE);
            let ends = (md.left == Some(0) || md.exhausted) && md.unlink;
            let number = entry.number;
            let kind = if operation == Options::OP_PUT { EventKind::PutEnd } else { EventKind::GetEnd };
            self.target.push((kind, number, at as u64, length, moved as u32));
            if ends {
                self.target.push((EventKind::Unlink, number, at as u64, length, moved as u32));
                entry.md = None;
                if entry.unlink {
                    self.list.remove(index);
                }
            }
            return Some((number, at, moved, acknowledged));
        }
        self.dropped += 1;
        None
    }

    fn step(&mut self, step: &Step, number: u64) {
        match *step {
            Step::Attach {
                place,
                bits,
                ignore,
                unlink,
                options: wanted,
                length,
                threshold,
                max_size,
                md_unlink,
            } => {
                let (options, number) = (options(wanted), self.entries);
                self.entries += 1;
                self.memory.push(vec![0; ROOM]);
                let (left, offset, exhausted) = (threshold, 0, false);
                let md = Descriptor { options, length, left, max_size, unlink: md_unlink, offset, exhausted };
                let at = place % (self.list.len() + 1);
                self.list.insert(at, Entry { number, bits, ignore, unlink, md: Some(md) });
            }
            Step::Remove { which, entry } => {
                if self.list.is_empty() {
                    return;
                }
                let at = which % self.list.len();
                let found = &mut self.list[at];
                let had = found.md.take().is_some();
                if entry || had && found.unlink {
                    self.list.remove(at);
                }
            }
            Step::Put { bits, length, offset, ack } => {
                let taken = self.operate(Options::OP_PUT, bits, length, offset);
                self.initiator.push((EventKind::SendEnd, 0, offset, length, length));
                if let Some((entry, at, moved, acknowledged)) = taken {
                    self.memory[entry as usize][at..at + moved].fill(number as u8);
                    if ack && acknowledged {
                        self.initiator.push((EventKind::Ack, 0, at as u64, length, moved as u32));
                    }
                }
            }
            Step::Get { bits, length, offset } => {
                if let Some((_, at, moved, _)) = self.operate(Options::OP_GET, bits, length, offset) {
                    self.initiator.push((EventKind::ReplyEnd, 0, at as u64, length, moved as u32));
                }
            }
        }
    }
}

/// The target's own view: handles in the order of the list.
#[derive(Default)]
struct Target {
    list: Vec<(MeHandle, MdHandle, u64)>,
    memory: Vec<HostMemory>,
}

impl Target {
    fn attach(&mut self, p3: &P3<'_>, eq: EqHandle, step: &Step) {
        let Step::Attach { place, bits, ignore, unlink, options: wanted, length, threshold, max_size, md_unlink } =
            *step
        else {
            unreachable!("only entries are attached")
        };
        let mode = |unlink: bool| if unlink { Unlink::Unlink } else { Unlink::Retain };
        let criteria = Criteria::bits(bits, ignore);
        let at = place % (self.list.len() + 1);
        // All three ways to get to a place.
        let me = if at == self.list.len() {
            p3.me_attach(3, criteria, mode(unlink), Position::After)
        } else if at == 0 {
            p3.me_attach(3, criteria, mode(unlink), Position::Before)
        } else if place % 2 == 0 {
            p3.me_insert(self.list[at].0, criteria, mode(unlink), Position::Before)
        } else {
            p3.me_insert(self.list[at - 1].0, criteria, mode(unlink), Position::After)
        };
        let (me, memory, number) = (me.unwrap(), HostMemory::new(ROOM), self.memory.len() as u64);
        let md = Md {
            length,
            threshold: threshold.map_or(Threshold::Infinite, Threshold::Count),
            max_size,
            user_ptr: number,
            eq: Some(eq),
            ..Md::new(&memory, options(wanted))
        };
        let md = p3.md_attach(me, &md, mode(md_unlink)).unwrap();
        self.memory.push(memory);
        self.list.insert(at, (me, md, number));
    }

    fn remove(&mut self, p3: &P3<'_>, which: usize, entry: bool, model: &Model) {
        if self.list.is_empty() {
            return;
        }
        let at = which % self.list.len();
        let (me, md, number) = self.list[at];
        let has = model.list[at].md.is_some();
        assert_eq!(model.list[at].number, number, "both lists are alike");
        if entry {
            p3.me_unlink(me).unwrap();
        } else if has {
            p3.md_unlink(md).unwrap();
        } else {
            assert_eq!(p3.md_unlink(md), Err(P3Error::MdInvalid { md }), "it has unlinked itself");
        }
    }
}

fn run(steps: &[Step], parameters: Parameters, defects: Defects) -> Result<(), TestCaseError> {
    let all = steps.to_vec();
    let report = portals_sim::run(&machine(parameters, defects), move |nic| {
        let p3 = nic.p3();
        p3.init().unwrap();
        let eq = p3.eq_alloc(4096).unwrap();
        let (mut model, mut target) = (Model::default(), Target::default());
        let memory = HostMemory::new(ROOM);
        let options = Options::EVENT_START_DISABLE;
        let source = p3.md_bind(&Md { eq: Some(eq), ..Md::new(&memory, options) }, Unlink::Retain).unwrap();
        for (number, step) in all.iter().enumerate() {
            slot(&nic, number);
            let peer = nic.id(1).unwrap();
            match step {
                Step::Attach { .. } if nic.rank() == 1 => target.attach(&p3, eq, step),
                Step::Remove { which, entry } if nic.rank() == 1 => target.remove(&p3, *which, *entry, &model),
                Step::Put { bits, length, offset, ack } if nic.rank() == 0 => {
                    nic.write(&memory, 0, &[number as u8; ROOM]);
                    let ack = if *ack { Ack::Request } else { Ack::None };
                    p3.put(source, 0, *length, ack, peer, 3, *bits, *offset, 0).unwrap();
                }
                Step::Get { bits, length, offset } if nic.rank() == 0 => {
                    p3.get(source, 0, *length, peer, 3, *bits, *offset).unwrap();
                }
                _ => {}
            }
            model.step(step, number as u64);
            // Entries that the model has unlinked are gone from the list.
            target.list.retain(|(_, _, number)| model.list.iter().any(|entry| entry.number == *number));
        }
        slot(&nic, all.len() + 2);
        let mut events = Vec::new();
        while let Ok(event) = p3.eq_get(eq) {
            events.push(fields(&event));
        }
        let contents = target.memory.iter().map(|memory| {
            let mut bytes = vec![0; ROOM];
            nic.read(memory, 0, &mut bytes);
            bytes
        });
        let contents: Vec<_> = contents.collect();
        let mut expected = if nic.rank() == 0 { model.initiator } else { model.target };
        // Each side's operations end in their order, but an acknowledgement may come after the next send.
        if nic.rank() == 0 {
            events.sort_unstable();
            expected.sort_unstable();
        }
        let dropped = if nic.rank() == 1 { model.dropped } else { 0 };
        let memories = if nic.rank() == 1 { model.memory } else { Vec::new() };
        (events, expected, contents, memories, p3.status().unwrap().dropped, dropped)
    });
    let report = report.map_err(|error| TestCaseError::fail(error.to_string()))?;
    for (events, expected, contents, memories, counted, dropped) in report.results.into_iter().flatten() {
        prop_assert_eq!(events, expected);
        prop_assert_eq!(contents, memories);
        prop_assert_eq!(counted, dropped);
    }
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    let bits = || 0u64..8;
    let attach = (
        (any::<usize>(), bits(), prop_oneof![Just(0u64), 0u64..8, Just(u64::MAX)], any::<bool>(), 0u32..64),
        (0usize..=ROOM, prop_oneof![Just(None), (0u32..4).prop_map(Some)], 0usize..64, any::<bool>()),
    );
    let attach =
        attach.prop_map(|((place, bits, ignore, unlink, options), (length, threshold, max_size, md_unlink))| {
            Step::Attach { place, bits, ignore, unlink, options, length, threshold, max_size, md_unlink }
        });
    let remove = (any::<usize>(), any::<bool>()).prop_map(|(which, entry)| Step::Remove { which, entry });
    let put = (bits(), 0u32..128, 0u64..300, any::<bool>());
    let put = put.prop_map(|(bits, length, offset, ack)| Step::Put { bits, length, offset, ack });
    let get = (bits(), 0u32..128, 0u64..300).prop_map(|(bits, length, offset)| Step::Get { bits, length, offset });
    prop_oneof![3 => attach, 1 => remove, 5 => put, 2 => get]
}

// `PROPTEST_CASES` asks for more.
proptest! {
    #[test]
    fn lists_work_as_the_model_says(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps, Parameters::xt4(), Defects::default())?;
        run(&steps, Parameters::free(), Defects::default())?;
    }
}

const MUTATIONS: [Mutation; 6] = [
    Mutation::LastMatch,
    Mutation::CompareIgnored,
    Mutation::HalfOffset,
    Mutation::NoMaxSize,
    Mutation::UnlinkEarly,
    Mutation::HideTruncation,
];

/// The comparison would notice an interface that breaks the rules.
#[test]
fn the_model_notices_defects() {
    notices(&MUTATIONS, step, run);
}
