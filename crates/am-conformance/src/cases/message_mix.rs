//! Item 23, all of it in one program: ranks send at random, post receives with and without wildcards in two
//! communicators, cancel some of them, probe, and set messages aside, by each protocol. What came is compared with
//! what MPI permits, which [`judge`] says.

use super::breathe;
use super::message_memory::{Receiving, Sending, receive_aside};
use super::messages::{Ranks, attach, same_counts};
use crate::random::{Random, mix, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::Transport;
use am_p2p::request::test_some;
use am_p2p::{ANY_SOURCE, ANY_TAG, Communicator, Message, MessageConfig, MessageError, Pending, Protocol, Status};
use am_pgas::collectives::Sum;

/// Runs in which each protocol has its turn.
pub(super) const DRAWS: u32 = 5;

/// Tags that are used.
const TAGS: u64 = 3;

/// The longest message.
const LONGEST: usize = 20_000;

/// What a receive asks for; `None` for any.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    source: Option<u32>,
    tag: Option<i32>,
}

impl Wanted {
    fn fits(&self, from: u32, tag: i32) -> bool {
        self.source.is_none_or(|source| source == from) && self.tag.is_none_or(|wanted| wanted == tag)
    }
}

/// What a receive has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Open,
    /// The message of a member with a number among those to this rank, and its tag.
    Got(u32, u64, i32),
    Cancelled,
    /// Cancelled once all messages had come.
    Left,
}

/// A receive or a message that was set aside, in the order in which the program did so.
#[derive(Clone, Copy, Debug)]
struct Entry {
    team: usize,
    wanted: Wanted,
    end: End,
}

/// Compares what receives have got with what MPI permits, whenever messages came: each has a message that it asks
/// for, which no other one has; of two messages of a sender, the later one does not go to the earlier of two
/// receives that take both; and no message goes past an earlier receive that takes it and never gets one.
fn judge(entries: &[Entry]) -> Result<(), String> {
    for (index, entry) in entries.iter().enumerate() {
        let End::Got(from, number, tag) = entry.end else { continue };
        if !entry.wanted.fits(from, tag) {
            return Err(format!("receive {index} of {:?} got a message from {from} with tag {tag}", entry.wanted));
        }
        for (before, earlier) in entries[..index].iter().enumerate() {
            if earlier.team != entry.team || !earlier.wanted.fits(from, tag) {
                continue;
            }
            let wrong = match earlier.end {
                End::Got(other, later, _) => other == from && later >= number,
                End::Left => true,
                End::Open | End::Cancelled => false,
            };
            if wrong {
                return Err(format!(
                    "message {number} from {from} with tag {tag} went to receive {index}, not to {before}, of \
                     {:?}, which came to {:?}",
                    earlier.wanted, earlier.end
                ));
            }
        }
    }
    Ok(())
}

/// A message, the same on the rank that sends it and on the one that receives it.
#[derive(Clone, Copy)]
struct Planned {
    tag: i32,
    len: usize,
    synchronous: bool,
}

/// What a rank's program has under way.
struct Program<'w> {
    world: &'w World,
    teams: [Communicator; 2],
    eager: usize,
    random: Random,
    entries: Vec<Entry>,
    posted: Vec<(usize, Receiving)>,
    aside: Vec<(usize, Message)>,
    sends: Vec<Sending>,
    /// Messages to each member of each communicator, and all that have come.
    sent: [Vec<u64>; 2],
    received: u64,
}

impl Program<'_> {
    fn planned(&self, team: usize, from: u32, to: u32, number: u64) -> Planned {
        let of = mix(&[team as u64, u64::from(from), u64::from(to), number, 2310]);
        let mut random = self.world.random(of);
        let eager = self.eager;
        let lens = [8, 16, eager.saturating_sub(1), eager, eager + 1, 2 * eager + 3, 300, 5000, 5000, LONGEST];
        let len = lens[random.below(lens.len() as u64) as usize].clamp(8, LONGEST);
        Planned { tag: random.below(TAGS) as i32, len, synchronous: random.below(6) == 0 }
    }

    /// The bytes of a message, which begin with its number.
    fn content(&self, team: usize, from: u32, to: u32, number: u64) -> Vec<u8> {
        let of = mix(&[team as u64, u64::from(from), u64::from(to), number]);
        let mut bytes = pattern(self.world.salt(&[of, 2311]), self.planned(team, from, to, number).len);
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    fn send<T: Transport>(&mut self, endpoint: &mut Ranks<T>, team: usize) -> Verdict {
        let (me, size) = (self.teams[team].rank(), self.teams[team].size());
        let to = self.random.below(u64::from(size)) as u32;
        let number = self.sent[team][to as usize];
        self.sent[team][to as usize] += 1;
        let Planned { tag, synchronous, .. } = self.planned(team, me, to, number);
        let (bytes, placed) = (self.content(team, me, to, number), self.random.below(3) == 0);
        self.sends.push(Sending::begin(endpoint, &self.teams[team], (to, tag), &bytes, (synchronous, placed))?);
        Ok(())
    }

    fn wanted(&mut self, team: usize) -> Wanted {
        let (source, tag) = (self.random.below(u64::from(self.teams[team].size())), self.random.below(TAGS));
        let (any_source, any_tag) = (self.random.below(3) == 0, self.random.below(3) == 0);
        Wanted { source: (!any_source).then_some(source as u32), tag: (!any_tag).then_some(tag as i32) }
    }

    /// Adds a receive that was posted, or a message that was set aside, to the book.
    fn note(&mut self, team: usize, wanted: Wanted) -> usize {
        self.entries.push(Entry { team, wanted, end: End::Open });
        self.entries.len() - 1
    }

    /// A receive has got a message.
    fn got(&mut self, entry: usize, bytes: &[u8], status: Status) -> Verdict {
        let Entry { team, .. } = self.entries[entry];
        let (from, me, tag) = (status.source_rank(), self.teams[team].rank(), status.tag());
        let number = bytes.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number));
        ensure(number != u64::MAX && from < self.teams[team].size(), || format!("{status:?} cannot be"))?;
        equal("the tag of a message", tag, self.planned(team, from, me, number).tag)?;
        ensure(bytes == self.content(team, from, me, number), || {
            format!("message {number} from {from} with tag {tag} came as another one of {} bytes", bytes.len())
        })?;
        (self.entries[entry].end, self.received) = (End::Got(from, number, tag), self.received + 1);
        Ok(())
    }

    fn post<T: Transport>(&mut self, endpoint: &mut Ranks<T>, team: usize) -> Verdict {
        let wanted = self.wanted(team);
        let selector = (wanted.source.map_or(ANY_SOURCE, Into::into), wanted.tag.map_or(ANY_TAG, Into::into));
        let (placed, most) = (self.random.below(4) == 0, [LONGEST, usize::MAX][self.random.below(2) as usize]);
        let receive = Receiving::begin(endpoint, &self.teams[team], selector, most, placed)?;
        let entry = self.note(team, wanted);
        self.posted.push((entry, receive));
        Ok(())
    }

    /// Looks at a message; and receives it, or sets it aside.
    fn probe<T: Transport>(&mut self, endpoint: &mut Ranks<T>, team: usize) -> Verdict {
        let wanted = self.wanted(team);
        let source = wanted.source.map_or(ANY_SOURCE, Into::into);
        let tag = wanted.tag.map_or(ANY_TAG, Into::into);
        let Some(seen) = self.teams[team].immediate_probe(endpoint, source, tag)? else { return Ok(()) };
        match self.random.below(3) {
            0 => {}
            1 => {
                let mut bytes = vec![0; seen.bytes() as usize];
                let (from, tag) = (seen.source_rank(), seen.tag());
                let entry = self.note(team, Wanted { source: Some(from), tag: Some(tag) });
                let status = self.teams[team].receive_into(endpoint, from, tag, &mut bytes)?;
                equal("a probed message", status, seen)?;
                self.got(entry, &bytes, status)?;
            }
            _ => {
                let message = self.teams[team].immediate_matched_probe(endpoint, source, tag)?;
                let message = message.ok_or_else(|| Failure::Check(format!("{seen:?} has gone")))?;
                equal("a message that was set aside", message.status(), seen)?;
                let entry = self.note(team, wanted);
                self.aside.push((entry, message));
            }
        }
        Ok(())
    }

    fn take_aside<T: Transport>(&mut self, endpoint: &mut Ranks<T>, index: usize) -> Verdict {
        let (entry, message) = self.aside.swap_remove(index);
        let (bytes, status) = receive_aside(endpoint, message, self.random.below(2) == 0)?;
        self.got(entry, &bytes, status)
    }

    /// Cancels a receive; it may have met a message before.
    fn cancel<T: Transport>(&mut self, endpoint: &mut Ranks<T>, index: usize, end: End) -> Verdict {
        let (entry, receive) = self.posted.swap_remove(index);
        match receive.cancel(endpoint)? {
            None => self.entries[entry].end = end,
            Some(receive) => {
                let (bytes, status) = receive.wait(endpoint)?;
                self.got(entry, &bytes, status)?;
            }
        }
        Ok(())
    }

    /// Takes what is over.
    fn collect<T: Transport>(&mut self, endpoint: &mut Ranks<T>) -> Verdict {
        let pending: Vec<&dyn Pending> = self.posted.iter().map(|(_, receive)| receive.pending()).collect();
        for index in test_some(endpoint, &pending)?.into_iter().rev() {
            let (entry, receive) = self.posted.swap_remove(index);
            let (bytes, status) = receive.wait(endpoint)?;
            self.got(entry, &bytes, status)?;
        }
        Ok(())
    }

    fn step<T: Transport>(&mut self, endpoint: &mut Ranks<T>) -> Verdict {
        let team = self.random.below(2) as usize;
        match self.random.below(18) {
            0..=5 => self.send(endpoint, team),
            6..=9 => self.post(endpoint, team),
            10..=11 => self.probe(endpoint, team),
            12 if !self.aside.is_empty() => {
                let index = self.random.below(self.aside.len() as u64) as usize;
                self.take_aside(endpoint, index)
            }
            13..=14 if !self.posted.is_empty() => {
                let index = self.random.below(self.posted.len() as u64) as usize;
                self.cancel(endpoint, index, End::Cancelled)
            }
            15..=16 => self.collect(endpoint),
            _ => Ok(endpoint.poll().map(drop)?),
        }
    }

    /// Receives all that is still to come, and cancels the receives that nothing has come for.
    fn end<T: Transport>(&mut self, endpoint: &mut Ranks<T>) -> Verdict {
        let mut expected = 0;
        for (team, sent) in self.teams.iter().zip(&self.sent) {
            for (to, sent) in (0..).zip(sent) {
                let all = team.team().allreduce_one(endpoint, *sent, Sum).map_err(MessageError::from)?;
                expected += if to == team.rank() { all } else { 0 };
            }
        }
        while self.received < expected {
            self.collect(endpoint)?;
            while !self.aside.is_empty() {
                self.take_aside(endpoint, 0)?;
            }
            for team in 0..self.teams.len() {
                let any = Wanted { source: None, tag: None };
                while let Some(message) =
                    self.teams[team].immediate_matched_probe(endpoint, ANY_SOURCE, ANY_TAG)?
                {
                    let entry = self.note(team, any);
                    self.aside.push((entry, message));
                    self.take_aside(endpoint, 0)?;
                }
            }
            if self.received < expected {
                breathe(endpoint)?;
            }
        }
        while !self.posted.is_empty() {
            self.cancel(endpoint, 0, End::Left)?;
        }
        equal("messages received", self.received, expected)?;
        std::mem::take(&mut self.sends).into_iter().try_for_each(|send| send.wait(endpoint))?;
        Ok(())
    }
}

pub(super) fn mixed<T: Transport>(world: &World, transport: T) -> Verdict {
    let drawn = world.combination(2312, DRAWS);
    let protocol = Protocol::ALL[drawn as usize];
    let mut random = world.random(2313 + u64::from(drawn));
    let eager = [0, 64, 1000][random.below(3) as usize];
    let cost = [u32::MAX, 0, MessageConfig::default().lent_cost][random.below(3) as usize];
    let unexpected = [16 << 10, MessageConfig::default().unexpected][random.below(2) as usize];
    let config = MessageConfig::default().protocol(protocol).eager(eager).lent_cost(cost).unexpected(unexpected);
    let mut endpoint = attach(world, transport, config)?;
    let all = Communicator::world(&mut endpoint)?;
    let backwards: Vec<u32> = (0..all.size()).rev().collect();
    let other = all.group(&mut endpoint, &backwards)?.expect("all members are in it");
    let random = world.random(mix(&[2314, u64::from(drawn), u64::from(all.rank())]));
    let none = vec![0; all.size() as usize];
    let mut program = Program {
        world,
        teams: [all, other],
        eager,
        random,
        entries: Vec::new(),
        posted: Vec::new(),
        aside: Vec::new(),
        sends: Vec::new(),
        sent: [none.clone(), none],
        received: 0,
    };
    for _ in 0..world.count(70, 700) {
        program.step(&mut endpoint)?;
    }
    program.end(&mut endpoint)?;
    judge(&program.entries).map_err(|what| Failure::Check(format!("{}: {what}", protocol.name())))?;
    let all = &program.teams[0];
    all.team().barrier(&mut endpoint).map_err(MessageError::from)?;
    equal("ignored messages", all.counts(&endpoint).ignored, 0)?;
    same_counts(&mut endpoint, all)?;
    endpoint.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Wanted = Wanted { source: None, tag: None };

    fn entry(source: Option<u32>, tag: Option<i32>, end: End) -> Entry {
        Entry { team: 0, wanted: Wanted { source, tag }, end }
    }

    /// Each rule is seen to be broken, and what only looks like it is permitted.
    #[test]
    fn what_mpi_forbids_is_noticed() {
        let got = End::Got;
        let right = [
            vec![entry(None, None, got(0, 0, 1)), entry(Some(0), Some(1), got(0, 1, 1))],
            // The earlier receive does not take the earlier message.
            vec![entry(Some(0), Some(2), got(0, 1, 2)), entry(Some(0), None, got(0, 0, 1))],
            // Nobody knows whose came first.
            vec![entry(None, None, got(1, 5, 1)), entry(None, None, got(0, 0, 1))],
            vec![entry(None, None, End::Cancelled), entry(None, None, got(0, 0, 1))],
            vec![entry(Some(1), None, End::Left), entry(None, None, got(0, 0, 1))],
            // Of another communicator.
            vec![Entry { team: 1, wanted: ANY, end: End::Left }, entry(None, None, got(0, 0, 1))],
        ];
        right.iter().for_each(|entries| assert_eq!(judge(entries), Ok(()), "{entries:?}"));
        let wrong = [
            vec![entry(Some(0), Some(1), got(0, 0, 2))],
            vec![entry(Some(1), None, got(0, 0, 2))],
            vec![entry(None, None, got(0, 1, 1)), entry(Some(0), Some(1), got(0, 0, 1))],
            vec![entry(None, None, got(0, 0, 1)), entry(None, None, got(0, 0, 1))],
            vec![entry(None, Some(1), End::Left), entry(None, None, got(0, 0, 1))],
        ];
        wrong.iter().for_each(|entries| assert!(judge(entries).is_err(), "{entries:?}"));
    }
}
