//! Item 23, two-sided messages: rounds of random messages whose receives are posted before or after they come,
//! with and without wildcards, probed or not, from memory of segments and into it. No two messages that a receive
//! could get overtake each other.

use super::message_memory::{Receiving, Sending, receive_aside};
use super::partner;
use crate::random::{Random, mix, pattern};
use crate::world::{Failure, Verdict, World, ensure, equal};
use am_core::{Endpoint, Handlers, Rank, Transport};
use am_p2p::request::wait_all;
use am_p2p::{
    ANY_SOURCE, ANY_TAG, ByProtocol, Communicator, MessageConfig, MessageError, P2p, Pending, Protocol, Source,
    Status, Tag,
};
use am_pgas::collectives::Sum;
use std::collections::BTreeMap;

pub(super) type Ranks<T> = Endpoint<T, P2p>;

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self::Check(format!("message: {error}"))
    }
}

pub(super) fn attach<T: Transport>(
    world: &World,
    transport: T,
    config: MessageConfig,
) -> Result<Ranks<T>, Failure> {
    let mut handlers = Handlers::<P2p>::new();
    let p2p = P2p::register_with(&mut handlers, config)?;
    Ok(world.attach(transport, handlers, p2p)?)
}

/// A message of a round, the same draw on all ranks.
#[derive(Clone, Copy)]
struct Planned {
    from: u32,
    to: u32,
    tag: i32,
    len: usize,
    synchronous: bool,
}

/// How the receives of a round choose their messages.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Exact,
    AnySource,
    AnyTag,
    Any,
    Probed,
    SetAside,
}

const WAYS: [Way; 6] = [Way::Exact, Way::AnySource, Way::AnyTag, Way::Any, Way::Probed, Way::SetAside];

fn length(random: &mut Random, eager: usize) -> usize {
    let lens = [0, 1, 8, eager.saturating_sub(1), eager, eager + 1, 2 * eager + 3, 300, 5000];
    match random.below(40) {
        0 => 70_000,
        choice => lens[choice as usize % lens.len()],
    }
}

/// The bytes of the message with a number among those of a round from a rank to another.
fn content(world: &World, round: u32, planned: &Planned, number: u32) -> Vec<u8> {
    let of = [u64::from(round), u64::from(planned.from), u64::from(planned.to), u64::from(number)];
    let mut bytes = pattern(world.salt(&[mix(&of), 23]), planned.len);
    // Which one it is, for receives of any message.
    let told = number.to_le_bytes();
    let len = bytes.len().min(4);
    bytes[..len].copy_from_slice(&told[..len]);
    bytes
}

/// Receives all messages of a round that are for this rank: status and bytes in the order of the receives.
fn receive_all<T: Transport>(
    endpoint: &mut Ranks<T>,
    team: &Communicator,
    (mine, places): (&[Planned], &mut Random),
    way: Way,
    before: impl FnOnce(&mut Ranks<T>) -> Result<Vec<Sending>, Failure>,
    early: bool,
) -> Result<Vec<(Status, Vec<u8>)>, Failure> {
    let mut got = Vec::new();
    let selector = |planned: &Planned| -> (Source, Tag) {
        let source = if matches!(way, Way::Exact | Way::AnyTag) { planned.from.into() } else { ANY_SOURCE };
        let tag = if matches!(way, Way::Exact | Way::AnySource) { planned.tag.into() } else { ANY_TAG };
        (source, tag)
    };
    let post = |endpoint: &mut Ranks<T>, places: &mut Random| -> Result<Vec<_>, Failure> {
        // Sizes are not known in advance where any message may come; one in three receives does not tell the most
        // either.
        let longest = mine.iter().map(|planned| planned.len).max().unwrap_or(0);
        let mut posted = Vec::new();
        for (index, planned) in mine.iter().enumerate() {
            let most = if index % 3 == 2 { usize::MAX } else { longest };
            let placed = places.below(3) == 0;
            posted.push(Receiving::begin(endpoint, team, selector(planned), most, placed)?);
        }
        Ok(posted)
    };
    let mut posted = Vec::new();
    let posts = !matches!(way, Way::Probed | Way::SetAside);
    if posts && early {
        posted = post(endpoint, places)?;
    }
    let sends = before(endpoint)?;
    if posts && !early {
        posted = post(endpoint, places)?;
    }
    for request in posted {
        let (bytes, status) = request.wait(endpoint)?;
        got.push((status, bytes));
    }
    for _ in mine.iter().filter(|_| way == Way::Probed) {
        let seen = team.probe(endpoint, ANY_SOURCE, ANY_TAG)?;
        let mut bytes = vec![0u8; seen.bytes() as usize];
        let status = team.receive_into(endpoint, seen.source_rank(), seen.tag(), &mut bytes)?;
        equal("a probed message", status, seen)?;
        got.push((status, bytes));
    }
    for _ in mine.iter().filter(|_| way == Way::SetAside) {
        let message = team.matched_probe(endpoint, ANY_SOURCE, ANY_TAG)?;
        let (bytes, status) = receive_aside(endpoint, message, places.below(2) == 0)?;
        got.push((status, bytes));
    }
    let pending: Vec<&dyn Pending> = sends.iter().map(Sending::pending).collect();
    wait_all(endpoint, &pending)?;
    for send in sends {
        send.wait(endpoint)?;
    }
    Ok(got)
}

/// One round of messages among all ranks.
fn round<T: Transport>(
    world: &World,
    endpoint: &mut Ranks<T>,
    team: &Communicator,
    number: u32,
    eager: usize,
) -> Verdict {
    let (mut random, size, me) = (world.random(2300 + u64::from(number)), team.size(), team.rank());
    let way = WAYS[random.below(WAYS.len() as u64) as usize];
    let early = random.below(2) == 0;
    let planned: Vec<Planned> = (0..random.below(3 * u64::from(size.min(6))) + 2)
        .map(|_| Planned {
            from: random.below(u64::from(size)) as u32,
            to: random.below(u64::from(size)) as u32,
            tag: random.below(3) as i32,
            len: length(&mut random, eager),
            synchronous: random.below(5) == 0,
        })
        .collect();
    // Numbered by pair, in the order in which they are sent.
    let mut numbers = BTreeMap::<(u32, u32), Vec<Planned>>::new();
    for message in &planned {
        numbers.entry((message.from, message.to)).or_default().push(*message);
    }
    let mut mine: Vec<Planned> = planned.iter().copied().filter(|message| message.to == me).collect();
    random.shuffle(&mut mine);
    // What this rank alone decides: which messages are in its segment, and which go there.
    let mut places = world.random(mix(&[2_300_000, u64::from(number), u64::from(endpoint.rank().0)]));
    let from_segment: Vec<bool> = planned.iter().map(|_| places.below(3) == 0).collect();
    let send = |endpoint: &mut Ranks<T>| -> Result<Vec<Sending>, Failure> {
        let mut sends = Vec::new();
        let mut sent = BTreeMap::<u32, u32>::new();
        for (message, placed) in planned.iter().zip(&from_segment).filter(|(message, _)| message.from == me) {
            let index = sent.entry(message.to).or_default();
            let bytes = content(world, number, message, *index);
            *index += 1;
            let how = (message.synchronous, *placed);
            sends.push(Sending::begin(endpoint, team, (message.to, message.tag), &bytes, how)?);
        }
        Ok(sends)
    };
    let got = receive_all(endpoint, team, (&mine, &mut places), way, send, early)?;
    equal("messages of a round", got.len(), mine.len())?;
    // Of the same source and tag, earlier receives got earlier messages; where receives take any tag, of the same
    // source.
    let any_tag = !matches!(way, Way::Exact | Way::AnySource);
    let mut next = BTreeMap::<(u32, i32), usize>::new();
    for (status, bytes) in got {
        let (from, tag) = (status.source_rank(), status.tag());
        let all = numbers.get(&(from, me)).map_or(&[][..], Vec::as_slice);
        let start = next.entry((from, if any_tag { -1 } else { tag })).or_default();
        let mut rest = all.iter().enumerate().skip(*start).filter(|(_, message)| any_tag || message.tag == tag);
        let found = rest.next().map(|(index, message)| (index, *message));
        let found = found.filter(|(_, message)| message.tag == tag);
        let Some((index, message)) = found else {
            let text = format!("round {number}: a message from {from} with tag {tag} that it is not the turn of");
            return Err(Failure::Check(text));
        };
        *start = index + 1;
        let expected = content(world, number, &message, index as u32);
        ensure(bytes == expected, || {
            let lens = (bytes.len(), expected.len());
            format!("round {number}: message {index} from {from} with tag {tag} is another one, lengths {lens:?}")
        })?;
    }
    team.team().barrier(endpoint)?;
    Ok(())
}

/// What all ranks have sent by each protocol, they have received so.
pub(super) fn same_counts<T: Transport>(endpoint: &mut Ranks<T>, all: &Communicator) -> Verdict {
    let numbers = |by: ByProtocol| {
        let ByProtocol { eager, read, sender_initiated, receiver_initiated, crossing, lent, .. } = by;
        [eager, read, sender_initiated, receiver_initiated, crossing, lent]
    };
    let counts = all.counts(endpoint);
    let (sent, received) = (numbers(counts.sent_by()), numbers(counts.received_by));
    let mut sums = [[0; 6]; 2];
    for (sums, counts) in sums.iter_mut().zip([sent, received]) {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum = all.team().allreduce_one(endpoint, count, Sum).map_err(MessageError::from)?;
        }
    }
    equal("messages received by each protocol", sums[1], sums[0])
}

/// Rounds of random messages in two communicators.
pub(super) fn matched<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport, MessageConfig::default())?;
    let all = Communicator::world(&mut endpoint)?;
    let backwards: Vec<u32> = (0..all.size()).rev().collect();
    let other = all.group(&mut endpoint, &backwards)?.expect("all members are in it");
    for number in 0..world.count(12, 200) {
        let team = if number % 3 == 2 { &other } else { &all };
        round(world, &mut endpoint, team, number, 200)?;
    }
    equal("ignored messages", all.counts(&endpoint).ignored, 0)?;
    same_counts(&mut endpoint, &all)?;
    endpoint.finish()?;
    Ok(())
}

/// Runs in which each protocol meets each size of eager messages, and each way of messages that are lent.
pub(super) const DRAWS: u32 = 3;

/// Rounds by each protocol, and cancelled receives.
pub(super) fn protocols<T: Transport>(world: &World, transport: T) -> Verdict {
    // Little memory for unexpected messages, so that senders wait for it. Messages that are lent are read, or
    // written where there is room, or as the machine has it.
    let drawn = world.combination(2301, 9);
    let cost = [u32::MAX, 0, MessageConfig::default().lent_cost][drawn as usize % 3];
    let config = MessageConfig::default().unexpected(16 << 10).lent_cost(cost);
    let mut endpoint = attach(world, transport, config)?;
    let all = Communicator::world(&mut endpoint)?;
    let mut number = 1000 + 1000 * drawn;
    for repeat in 0..world.count(1, 10) {
        for (index, protocol) in (0..).zip(Protocol::ALL) {
            let eager = [0, 64, 4000][(index + repeat + drawn + drawn / 3) as usize % 3];
            all.choose(&mut endpoint, protocol, eager)?;
            for _ in 0..3 {
                number += 1;
                round(world, &mut endpoint, &all, number, eager)?;
            }
            cancel(&mut endpoint, &all)?;
            lone(&mut endpoint, &all, protocol, cost == u32::MAX)?;
        }
    }
    equal("ignored messages", all.counts(&endpoint).ignored, 0)?;
    same_counts(&mut endpoint, &all)?;
    endpoint.finish()?;
    Ok(())
}

/// Pairs post several receives, cancel some while messages for them may be under way, and get as many as were not
/// cancelled.
fn cancel<T: Transport>(endpoint: &mut Ranks<T>, all: &Communicator) -> Verdict {
    let other = partner(endpoint.shape(), Rank(all.rank())).0;
    let (tag, len) = (77, 6000);
    let mut receives = Vec::new();
    for index in 0..4 {
        let selector = (other.into(), tag.into());
        receives.push(Receiving::begin(endpoint, all, selector, len, index % 3 == 0)?);
    }
    let mut sends = Vec::new();
    for number in 0..2u8 {
        sends.push(all.immediate_send(endpoint, other, tag, &vec![number; len])?);
    }
    let mut left = Vec::new();
    for (index, receive) in receives.into_iter().enumerate() {
        match index % 2 {
            0 => left.extend(receive.cancel(endpoint)?),
            _ => left.push(receive),
        }
    }
    // Those that are left are enough: of four receives at most two were cancelled.
    let mut expected = 0u8;
    while expected < 2 {
        let (bytes, _) = left.remove(0).wait(endpoint)?;
        ensure(bytes == vec![expected; len], || format!("message {expected} came as another one"))?;
        expected += 1;
    }
    for receive in left {
        let again = receive.cancel(endpoint)?;
        ensure(again.is_none(), || "a receive without a message was not cancelled".into())?;
    }
    for send in sends {
        send.wait(endpoint)?;
    }
    all.team().barrier(endpoint)?;
    Ok(())
}

/// One long message to a receive that is posted in time: how it travels is what the protocol says. One that is
/// lent is read for certain if `reads_lent` says so.
fn lone<T: Transport>(
    endpoint: &mut Ranks<T>,
    all: &Communicator,
    protocol: Protocol,
    reads_lent: bool,
) -> Verdict {
    if all.size() < 2 {
        return Ok(());
    }
    let (last, len) = (all.size() - 1, 3 * 4096);
    let before = all.counts(endpoint);
    let words = vec![0x5aa5_u16; len / 2];
    let reads = protocol == Protocol::Read;
    if all.rank() == last {
        let receive = all.immediate_receive::<_, _, u16>(endpoint, 0u32, 5, len / 2)?;
        // What advertises it leaves before this, so that it is known when the message is sent.
        endpoint.drain().map_err(Failure::Wait)?;
        let advertised = all.counts(endpoint).rtr - before.rtr;
        all.send(endpoint, 0, 6, &[advertised])?;
        ensure(receive.wait(endpoint)?.0 == words, || "a long message came as another one".into())?;
        let after = all.counts(endpoint);
        // Where the sender's memory can be read, the message is, or its sender hears where to write it.
        let (lent, acks) = (protocol == Protocol::Elided && endpoint.reads_lent(Rank(0)), after.ack - before.ack);
        let read = u64::from(lent && (reads_lent || acks != 0));
        equal("acknowledgements", acks, u64::from(reads) + read)?;
        let late = after.rtr - before.rtr;
        ensure(late == 0 || protocol >= Protocol::ReceiverInitiated, || {
            format!("{} advertises receives", protocol.name())
        })?;
        all.send(endpoint, 0, 7, &[after.cts - before.cts + read])?;
    } else if all.rank() == 0 {
        let (advertised, _) = all.receive::<_, _, u64>(endpoint, last, 6)?;
        all.send(endpoint, last, 5, &words)?;
        let after = all.counts(endpoint);
        let (answers, _) = all.receive::<_, _, u64>(endpoint, last, 7)?;
        equal("messages that were read", after.read - before.read, u64::from(reads))?;
        let written = after.receiver_initiated - before.receiver_initiated;
        ensure(written >= advertised, || "a message was not written to the receive that was advertised".into())?;
        equal("announcements", after.rts - before.rts, 1 - written)?;
        let crossing = after.crossing - before.crossing;
        equal("what lets the message be written", written + crossing + answers, u64::from(!reads))?;
        let ended = !matches!(protocol, Protocol::Read | Protocol::Elided);
        equal("ends that were told", after.fin - before.fin, u64::from(ended))?;
    }
    all.team().barrier(endpoint)?;
    Ok(())
}
