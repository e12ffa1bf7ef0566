//! Item 23, what MPI promises of two-sided messages, by each protocol: a ring of blocking sends ends with
//! reports and not never; sends that receive meanwhile never wait for each other; receives of any tag get the
//! messages of a pair in the order in which they were sent; messages that go eagerly and ones that do not meet
//! the receives that were posted for them at every length at which their way changes.

use super::message_memory::{Receiving, Sending};
use super::messages::{Ranks, attach, same_counts};
use super::partner;
use crate::random::{Random, mix, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{Address, Category, Lane, Rank, Span, Transport, WaitError};
use am_p2p::{ANY_SOURCE, ANY_TAG, Communicator, MessageConfig, MessageError, Protocol, Source, Tag};
use am_pgas::collectives::Sum;

/// Runs in which each protocol has its turn.
pub(super) const DRAWS: u32 = 5;

/// Longer messages than are sent eagerly here.
const LONG: usize = 9000;

/// How long a send waits that cannot end by itself.
const PATIENCE: Span = Span::from_millis(20);

/// What all parts of the case have in common.
struct Rules<'w> {
    world: &'w World,
    all: Communicator,
    /// The largest eager message.
    eager: usize,
    random: Random,
    rounds: u64,
}

pub(super) fn rules<T: Transport>(world: &World, transport: T) -> Verdict {
    let drawn = world.combination(2305, DRAWS);
    let protocol = Protocol::ALL[drawn as usize];
    let mut random = world.random(2306 + u64::from(drawn));
    let eager = [64, 1000, 8192][random.below(3) as usize];
    let cost = [u32::MAX, 0, MessageConfig::default().lent_cost][random.below(3) as usize];
    let config = MessageConfig::default().protocol(protocol).eager(eager).lent_cost(cost);
    let mut endpoint = attach(world, transport, config)?;
    let all = Communicator::world(&mut endpoint)?;
    let mediums = (0..all.size())
        .filter_map(|rank| endpoint.max_payload(Address::from(Rank(rank)), Category::Medium, Lane::Request, 6));
    let eager = mediums.min().map_or(0, |medium| medium as usize).min(eager);
    let mut rules = Rules { world, all, eager, random, rounds: 0 };
    rules.ring(&mut endpoint)?;
    for len in rules.lengths() {
        rules.exchange(&mut endpoint, len)?;
    }
    for early in [0, 3, 6] {
        for settled in [false, true] {
            rules.meet(&mut endpoint, early, settled)?;
        }
    }
    for any_source in [false, true] {
        rules.any_tag(&mut endpoint, any_source)?;
    }
    same_counts(&mut endpoint, &rules.all)?;
    endpoint.finish()?;
    Ok(())
}

impl Rules<'_> {
    fn bytes(&self, from: u32, number: u64, len: usize) -> Vec<u8> {
        pattern(self.world.salt(&[mix(&[self.rounds, u64::from(from), number]), 2306]), len)
    }

    fn neighbours(&self) -> (u32, u32) {
        let (me, size) = (self.all.rank(), self.all.size());
        ((me + 1) % size, (me + size - 1) % size)
    }

    /// Lengths at which the way of messages changes, and of their parts: all of the short ones, and some of the
    /// long.
    fn lengths(&mut self) -> Vec<usize> {
        let around = |bound: usize| [bound.saturating_sub(1), bound, bound + 1];
        let mut lens: Vec<usize> = [0, 64, self.eager, 8 << 10, 64 << 10].into_iter().flat_map(around).collect();
        let mut long: Vec<usize> = [256 << 10, 512 << 10, 1 << 20].into_iter().flat_map(around).collect();
        self.random.shuffle(&mut long);
        lens.extend(&long[..self.world.count(2, 9) as usize]);
        lens
    }

    /// All send to the next rank before they receive: whoever gives up first receives, so that the others get on.
    fn ring<T: Transport>(&mut self, endpoint: &mut Ranks<T>) -> Verdict {
        self.rounds += 1;
        let ((next, previous), me, all) = (self.neighbours(), self.all.rank(), self.all.clone());
        endpoint.set_timeout(PATIENCE);
        let sent = all.send(endpoint, next, 1, &self.bytes(me, 0, LONG));
        endpoint.set_timeout(self.world.patience);
        let late = match sent {
            Ok(()) => 0u64,
            Err(error @ MessageError::Wait(WaitError::TimedOut(_))) => {
                let (text, rank) = (error.to_string(), all.team().rank(next).expect("it is a member"));
                let named = format!("{LONG} bytes with tag 1 to rank {rank}, which ");
                ensure(text.contains(&named), || format!("'{text}' lacks '{named}'"))?;
                1
            }
            Err(error) => return Err(error.into()),
        };
        // The message goes on by itself.
        let (bytes, _) = all.receive_vec::<_, _, u8>(endpoint, previous, 1)?;
        ensure(bytes == self.bytes(previous, 0, LONG), || "a ring's message came as another one".into())?;
        let late = all.team().allreduce_one(endpoint, late, Sum).map_err(MessageError::from)?;
        ensure(late != 0, || "a ring of blocking sends of long messages ended by itself".into())
    }

    /// All send to the next rank and receive from the one before at once, and pairs to each other.
    fn exchange<T: Transport>(&mut self, endpoint: &mut Ranks<T>, len: usize) -> Verdict {
        let ((next, previous), me) = (self.neighbours(), self.all.rank());
        let other = partner(endpoint.shape(), Rank(me)).0;
        for (to, from, tag) in [(next, previous, 2), (other, other, 3)] {
            self.rounds += 1;
            let (own, mut got) = (self.bytes(me, 0, len), vec![0; len]);
            let status = self.all.send_receive_into(endpoint, (to, tag), &own, (from, tag), &mut got)?;
            equal("bytes of an exchanged message", status.bytes(), len as u64)?;
            ensure(got == self.bytes(from, 0, len), || format!("{len} bytes from {from} came as others"))?;
        }
        Ok(())
    }

    /// Pairs send each other messages of one tag around the largest eager one. `early` of the receives are posted
    /// before, all of which take long messages, so that they may be advertised; `settled` if what advertises them
    /// has come by then.
    fn meet<T: Transport>(&mut self, endpoint: &mut Ranks<T>, early: usize, settled: bool) -> Verdict {
        self.rounds += 1;
        let (me, all, eager) = (self.all.rank(), self.all.clone(), self.eager);
        let other = partner(endpoint.shape(), Rank(me)).0;
        let mut lens = [eager, eager + 1, 2 * eager + 9, eager.saturating_sub(1), 0, eager + 1];
        self.random.shuffle(&mut lens);
        let most = 2 * eager + 9;
        // What each rank decides alone: which messages are in its segment, and which go there.
        let mut places = self.world.random(mix(&[self.rounds, u64::from(me), 2307]));
        let selector: (Source, Tag) = (other.into(), 4.into());
        let mut receives = Vec::new();
        for _ in 0..early {
            receives.push(Receiving::begin(endpoint, &all, selector, most, places.below(3) == 0)?);
        }
        if settled {
            endpoint.drain().map_err(Failure::Wait)?;
            all.team().barrier(endpoint).map_err(MessageError::from)?;
        }
        let mut sends = Vec::new();
        for (number, len) in (0..).zip(lens) {
            let (bytes, how) = (self.bytes(me, number, len), (places.below(5) == 0, places.below(3) == 0));
            sends.push(Sending::begin(endpoint, &all, (other, 4), &bytes, how)?);
        }
        for _ in early..lens.len() {
            receives.push(Receiving::begin(endpoint, &all, selector, most, places.below(3) == 0)?);
        }
        for ((number, len), receive) in (0..).zip(lens).zip(receives) {
            let (bytes, _) = receive.wait(endpoint)?;
            ensure(bytes == self.bytes(other, number, len), || {
                let found = bytes.len();
                format!("message {number} of {len} bytes came as another one, of {found}, {early} receives early")
            })?;
        }
        sends.into_iter().try_for_each(|send| send.wait(endpoint))?;
        all.team().barrier(endpoint).map_err(MessageError::from)?;
        Ok(())
    }

    /// Receives of any tag get the messages of a pair in the order in which they were sent, whatever their tags
    /// and lengths.
    fn any_tag<T: Transport>(&mut self, endpoint: &mut Ranks<T>, any_source: bool) -> Verdict {
        self.rounds += 1;
        const MESSAGES: u64 = 9;
        let ((next, previous), me, all) = (self.neighbours(), self.all.rank(), self.all.clone());
        let lens = [0, 8, self.eager, self.eager + 1, 3 * self.eager + 5];
        let planned = |rank: u32, number: u64| {
            let mut random = self.world.random(mix(&[self.rounds, u64::from(rank), number, 2308]));
            (random.below(4) as i32, lens[random.below(lens.len() as u64) as usize])
        };
        let (froms, most) = (if any_source { vec![previous, next] } else { vec![previous] }, 3 * self.eager + 5);
        let source = if any_source { ANY_SOURCE } else { previous.into() };
        let count = froms.len() as u64 * MESSAGES;
        let (mut receives, mut sends) = (Vec::new(), Vec::new());
        for _ in 0..count / 2 {
            receives.push(Receiving::begin(endpoint, &all, (source, ANY_TAG), most, false)?);
        }
        for number in 0..MESSAGES {
            for to in if any_source { vec![next, previous] } else { vec![next] } {
                let (tag, len) = planned(me, number);
                let bytes = self.bytes(me, number, len);
                sends.push(Sending::begin(endpoint, &all, (to, tag), &bytes, (false, false))?);
            }
        }
        for _ in count / 2..count {
            receives.push(Receiving::begin(endpoint, &all, (source, ANY_TAG), most, false)?);
        }
        // Where next and previous are the same, a rank gets each message twice.
        let twice = u64::from(any_source && next == previous);
        let mut heard = vec![0u64; all.size() as usize];
        for receive in receives {
            let (bytes, status) = receive.wait(endpoint)?;
            let from = status.source_rank();
            let number = heard[from as usize] >> twice;
            heard[from as usize] += 1;
            let (tag, len) = planned(from, number);
            equal("the tag of the next message of a pair", (from, status.tag()), (from, tag))?;
            ensure(bytes == self.bytes(from, number, len), || {
                format!("message {number} from {from} with tag {tag} was overtaken")
            })?;
        }
        sends.into_iter().try_for_each(|send| send.wait(endpoint))?;
        all.team().barrier(endpoint).map_err(MessageError::from)?;
        Ok(())
    }
}
