//! The state machine over a network that misbehaves: conversations from seeds, in one thread, each call of which
//! is repeatable; and the conformance suite with ranks as threads.

use crate::fake::{FakePort, Faults, Mutation, Network, Random, SEGMENT};
use am_conformance::{Buffers, Fabric, Needs, Plan, Profile, all_cases, run};
use am_core::transport::{
    Arrival, Body, Completion, Landing, OperationFault, PendingKey, Refused, Remote, ReplyBound, ReplyPath,
    RequestHeader, Sink, Slot as _, Ticket,
};
use am_core::{LossCause, Payload, PayloadWriter as _, Peer, PeerStatus, Rank, Shape, Transport as _, Words};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use transport_ofi::Conduit;

/// Polls after which a conversation that is not over never will be.
const PATIENCE: u32 = 20_000;

/// Bytes that follow from a number.
fn pattern(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|index| (number as usize * 31 + index * 7) as u8).collect()
}

/// What an endpoint has seen, and what it does with requests.
struct Player {
    me: usize,
    random: Random,
    /// Per peer: requests sent and seen, replies seen, in number.
    sent: Vec<u32>,
    seen: Vec<u32>,
    answers: Vec<u32>,
    pending: VecDeque<PendingKey>,
    replies_given: u32,
    replies_seen: u32,
    /// Peers may be lost.
    bereaved: bool,
    findings: Vec<String>,
    /// How one-sided operations ended.
    ended: Vec<Result<(), OperationFault>>,
}

impl Player {
    fn new(me: usize, peers: usize, seed: u64) -> Self {
        Self {
            me,
            random: Random::new(seed + me as u64),
            sent: vec![0; peers],
            seen: vec![0; peers],
            answers: vec![0; peers],
            pending: VecDeque::new(),
            replies_given: 0,
            replies_seen: 0,
            bereaved: false,
            findings: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn check(&mut self, what: &str, from: usize, number: u32, arrival: &Arrival<'_>) {
        let len = arrival.args.word(1).unwrap_or(u32::MAX) as usize;
        let found = arrival.payload.to_vec();
        if found != pattern(number, len) {
            let me = self.me;
            self.findings
                .push(format!("{what} {number} from {from} to {me}: payload of {len} is not as it was sent"));
        }
    }
}

fn args(number: u32, len: usize) -> Words {
    Words::from_slice(&[number, len as u32]).expect("two words fit")
}

/// A reply, or none, or a later one.
fn answer(player: &mut Player, path: &mut dyn ReplyPath, from: usize) {
    if path.bound() == 0 {
        return;
    }
    let number = player.answers[from];
    let (len, kind) = (player.random.below(3000) as usize, player.random.below(5));
    let sent = match kind {
        0 => path.send(1, &args(number, 0), Body::None),
        1 => {
            let bytes = pattern(number, len.min(path.bound()));
            path.send(1, &args(number, bytes.len()), Body::Copy(&bytes))
        }
        2 => {
            // Replies under way lie apart: there are at most as many of one peer as the window is wide.
            let at = (SEGMENT / 2) as u64 + 32768 * (player.me as u64) + 4096 * u64::from(number % 8) + 3;
            path.send(1, &args(number, len), Body::Place(&pattern(number, len), at))
        }
        3 => return player.pending.push_back(path.detach()),
        // None: a bare credit.
        _ => return,
    };
    match sent {
        Ok(()) => {
            player.answers[from] += 1;
            player.replies_given += 1;
        }
        Err(_) if player.bereaved => {}
        Err(gone) => player.findings.push(format!("a reply is refused: {gone:?}")),
    }
}

impl Sink for Player {
    fn request(&mut self, arrival: Arrival<'_>, path: &mut dyn ReplyPath) {
        let (from, number) = (arrival.from.index(), arrival.args.word(0).unwrap_or(u32::MAX));
        if number != self.seen[from] {
            self.findings.push(format!("request {number} of {from} comes where {} is due", self.seen[from]));
        }
        self.seen[from] = number.wrapping_add(1);
        self.check("request", from, number, &arrival);
        answer(self, path, from);
    }

    fn reply(&mut self, arrival: Arrival<'_>) {
        let (from, number) = (arrival.from.index(), arrival.args.word(0).unwrap_or(u32::MAX));
        self.replies_seen += 1;
        self.check("reply", from, number, &arrival);
    }

    fn completed(&mut self, completion: Completion<'_>) {
        self.ended.push(completion.outcome.map(drop));
    }

    fn control(&mut self, from: Peer, args: &Words, payload: Payload<'_>) {
        if payload.to_vec() != pattern(args.word(0).unwrap_or(u32::MAX), 40) {
            self.findings.push(format!("a message between cores from {} is not as it was sent", from.0));
        }
    }
}

/// Sends one request of some kind; whether it was accepted.
fn ask(conduit: &mut Conduit<FakePort>, player: &mut Player, to: usize, longest: u64) -> bool {
    let number = player.sent[to];
    let bound = if player.random.percent(70) { ReplyBound::UpTo(256) } else { ReplyBound::None };
    let (peer, head) = (Peer(to as u32), RequestHeader::new(0, bound));
    // A request's payload lies where only this sender writes, who sends when all that it sent before was handled.
    let at = 4096 * player.me as u64 + 5;
    let result = match player.random.below(5) {
        0 => conduit.send(peer, head, &args(number, 0), Body::None),
        1 => {
            let bytes = pattern(number, player.random.below(257) as usize);
            conduit.send(peer, head, &args(number, bytes.len()), Body::Copy(&bytes))
        }
        2 => {
            let bytes = pattern(number, player.random.below(257) as usize);
            let words = args(number, bytes.len());
            conduit.reserve(peer, head, &words, bytes.len()).map(|room| {
                let mut slot = conduit.slot(peer, head, &words, bytes.len(), room);
                slot.write(0, &bytes);
                if player.random.percent(80) {
                    slot.commit();
                } else {
                    player.sent[to] = number.wrapping_sub(1);
                }
            })
        }
        3 => {
            let bytes = pattern(number, player.random.below(longest) as usize);
            conduit.send(peer, head, &args(number, bytes.len()), Body::Place(&bytes, at))
        }
        _ => conduit.control(peer, &args(number, 0), &pattern(number, 40)).map(|()| {
            player.sent[to] = number.wrapping_sub(1);
        }),
    };
    match result {
        Ok(()) => {
            player.sent[to] = player.sent[to].wrapping_add(1);
            true
        }
        Err(Refused::Busy(_)) => false,
        Err(Refused::Gone(PeerStatus::Lost(LossCause::Silent))) if player.bereaved => false,
        Err(Refused::Gone(status)) => {
            player.findings.push(format!("a request is refused: {status:?}"));
            false
        }
    }
}

/// Sends one short request that nobody answers, if it is accepted.
fn ask_shortly(conduit: &mut Conduit<FakePort>, player: &mut Player, to: usize) {
    let head = RequestHeader::new(0, ReplyBound::None);
    if conduit.send(Peer(to as u32), head, &args(player.sent[to], 0), Body::None).is_ok() {
        player.sent[to] += 1;
    }
}

/// A conversation from a seed; what went wrong.
fn converse(faults: Faults) -> Result<(), String> {
    let mut random = Random::new(faults.seed ^ 0xace);
    let peers = 1 + random.below(3) as u32;
    let window = 1 + random.below(5) as u32;
    let sizes = (1 + random.below(6) as u32, 1 + random.below(4) as u32);
    let (network, mut conduits) = Network::with_conduits(Shape::new(peers), window, sizes, 256, faults);
    let peers = peers as usize;
    let mut players: Vec<Player> = (0..peers).map(|me| Player::new(me, peers, faults.seed)).collect();
    let rounds = 40 + random.below(100);
    for _ in 0..rounds {
        let (me, to) = (random.below(peers as u64) as usize, random.below(peers as u64) as usize);
        let (conduit, player) = (&mut conduits[me], &mut players[me]);
        // A payload lies at one place for each pair: it is compared before the next one is sent.
        if conduit.is_quiescent() {
            ask(conduit, player, to, 4000);
        }
        // Others behind it in the same turn.
        for _ in 0..player.random.below(3) * player.random.below(4) {
            ask_shortly(conduit, player, to);
        }
        serve(conduit, player);
    }
    for _ in 0..PATIENCE {
        for (conduit, player) in conduits.iter_mut().zip(&mut players) {
            serve(conduit, player);
            conduit.flush();
        }
        let (given, seen) = players
            .iter()
            .fold((0, 0), |(given, seen), player| (given + player.replies_given, seen + player.replies_seen));
        let open = players.iter().any(|player| !player.pending.is_empty());
        if !open && given == seen && conduits.iter_mut().all(Conduit::is_quiescent) {
            break;
        }
    }
    let mut findings: Vec<String> = players.iter().flat_map(|player| player.findings.clone()).collect();
    for (me, (conduit, player)) in conduits.iter_mut().zip(&players).enumerate() {
        if !conduit.is_quiescent() {
            findings.push(format!("endpoint {me} waits for ever"));
        }
        for (to, (sent, other)) in player.sent.iter().zip(&players).enumerate() {
            if *sent != other.seen[me] {
                findings.push(format!("{sent} requests from {me} to {to}, {} seen", other.seen[me]));
            }
        }
    }
    let (given, seen): (u32, u32) = (
        players.iter().map(|player| player.replies_given).sum(),
        players.iter().map(|player| player.replies_seen).sum(),
    );
    if given != seen {
        findings.push(format!("{given} replies, {seen} seen"));
    }
    // Everything is given back.
    for _ in 0..200 {
        for (conduit, player) in conduits.iter_mut().zip(&mut players) {
            serve(conduit, player);
            conduit.flush();
        }
    }
    for (me, conduit) in conduits.iter().enumerate() {
        if conduit.strays() != network.strays(me as u32) {
            findings.push(format!("endpoint {me} has counted {} strays", conduit.strays()));
        }
        for to in 0..peers {
            let credits = conduit.credits(Peer(to as u32));
            if (credits.request_frames, credits.reply_frames) != (window.into(), window.into()) {
                findings.push(format!("endpoint {me} has {credits:?} towards {to}, and a window of {window}"));
            }
        }
    }
    let departures: Vec<_> = conduits.into_iter().map(|conduit| std::thread::spawn(|| drop(conduit))).collect();
    departures.into_iter().for_each(|departure| departure.join().expect("a departure does not panic"));
    match findings.first() {
        None => Ok(()),
        Some(first) => Err(format!("seed {}: {first} (of {})", faults.seed, findings.len())),
    }
}

fn serve(conduit: &mut Conduit<FakePort>, player: &mut Player) {
    let budget = 1 + player.random.below(4) as usize;
    conduit.poll(budget, player);
    if player.random.percent(50)
        && let Some(key) = player.pending.pop_front()
    {
        let from = key.to.index();
        conduit.reply_detached(key, |path| answer(player, path, from));
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first = number("AM_CONFORMANCE_FIRST").unwrap_or(1);
    first..first + number("AM_CONFORMANCE_SEEDS").unwrap_or(default)
}

#[test]
fn conversations_survive_any_legal_network() {
    for seed in seeds(100) {
        converse(Faults::drawn(seed)).unwrap();
    }
}

/// `cargo test --release -p active-messages-ofi --test it -- --ignored full_conversations`.
#[test]
#[ignore = "twenty thousand seeds"]
fn full_conversations() {
    for seed in seeds(20_000) {
        converse(Faults::drawn(seed)).unwrap();
    }
}

/// How many of some seeds notice a mutation, by a finding or a panic.
fn noticed(mutation: Mutation, seeds: u64) -> u64 {
    let fails = |seed: &u64| {
        let faults = Faults { mutation, ..Faults::drawn(*seed) };
        catch_unwind(AssertUnwindSafe(|| converse(faults))).map_or(true, |result| result.is_err())
    };
    (1..=seeds).filter(fails).count() as u64
}

#[test]
fn a_lost_completion_is_noticed() {
    assert!(noticed(Mutation::LostCompletion, 10) > 0);
}

#[test]
fn data_behind_its_message_is_noticed() {
    assert!(noticed(Mutation::DataAfterMessage, 20) > 0);
}

#[test]
fn a_lost_message_is_noticed() {
    assert!(noticed(Mutation::LostMessage, 10) > 0);
}

#[test]
fn a_doubled_message_is_noticed() {
    assert!(noticed(Mutation::DoubledMessage, 10) > 0);
}

/// Of slots that take several messages: with all of them kept nothing arrives any more.
#[test]
fn a_slot_that_is_kept_is_noticed() {
    let fails = |mutation| {
        let fails = |seed| {
            let faults = Faults { mutation, several: true, ..Faults::drawn(seed) };
            catch_unwind(AssertUnwindSafe(|| converse(faults))).map_or(true, |result| result.is_err())
        };
        (1..=10).filter(|seed| fails(*seed)).count()
    };
    assert!(fails(Mutation::KeptSlot) > 0);
    assert_eq!(fails(Mutation::None), 0);
}

/// Messages of other jobs and bytes without sense change nothing.
#[test]
fn strays_are_dropped() {
    for seed in 1..=50 {
        let faults = Faults { mutation: Mutation::Strays, ..Faults::drawn(seed) };
        converse(faults).unwrap();
    }
}

fn status(conduit: &Conduit<FakePort>, peer: usize) -> PeerStatus {
    am_core::Membership::status(conduit, Peer(peer as u32))
}

/// A conversation during which operations fail, or an endpoint is killed in the middle; how many pairs were lost,
/// or what went wrong.
///
/// Whoever has lost frames is lost to its peer, and knows it: nobody waits for ever. The others go on, and
/// everything between them comes.
fn converse_failing(faults: Faults, killed: Option<usize>) -> Result<u32, String> {
    let mut random = Random::new(faults.seed ^ 0xfa11);
    let peers = 3;
    let window = 1 + random.below(5) as u32;
    let sizes = (2 + random.below(6) as u32, 1 + random.below(4) as u32);
    let (network, mut conduits) = Network::with_conduits(Shape::new(peers), window, sizes, 256, faults);
    let peers = peers as usize;
    let mut players: Vec<Player> = (0..peers).map(|me| Player::new(me, peers, faults.seed)).collect();
    players.iter_mut().for_each(|player| player.bereaved = true);
    let rounds = 60 + random.below(100);
    let alive = |round: u64, me: usize| killed != Some(me) || round < rounds / 2;
    for round in 0..rounds {
        let (me, to) = (random.below(peers as u64) as usize, random.below(peers as u64) as usize);
        if killed.is_some() && round == rounds / 2 {
            network.kill(killed.unwrap_or_default() as u32);
        }
        if !alive(round, me) {
            continue;
        }
        let (conduit, player) = (&mut conduits[me], &mut players[me]);
        if conduit.is_quiescent() {
            ask(conduit, player, to, 400);
        }
        serve(conduit, player);
    }
    let survivors: Vec<usize> = (0..peers).filter(|me| alive(rounds, *me)).collect();
    let mut lost = 0;
    let mut finding = None;
    for _ in 0..PATIENCE {
        for &me in &survivors {
            // Whoever talks to the dead learns of it.
            if let Some(dead) = killed
                && status(&conduits[me], dead) == PeerStatus::Active
            {
                let head = RequestHeader::new(0, ReplyBound::None);
                let _ = conduits[me].send(Peer(dead as u32), head, &args(0, 0), Body::None);
            }
            serve(&mut conduits[me], &mut players[me]);
            conduits[me].flush();
        }
        (lost, finding) = (0, None);
        for &me in &survivors {
            // Whoever has no credit left towards the dead cannot know that it is.
            let blind = |dead: usize| {
                let (conduit, dead) = (&conduits[me], Peer(dead as u32));
                conduit.credits(dead).request_frames == 0 && status(conduit, dead.index()) == PeerStatus::Active
            };
            let blind = killed.is_some_and(blind);
            if !blind && !conduits[me].is_quiescent() {
                finding = Some(format!("endpoint {me} waits for ever"));
            }
            for to in (0..peers).filter(|to| *to != me) {
                let (there, back) = (status(&conduits[me], to), status(&conduits[to], me));
                let own = PeerStatus::Lost(LossCause::Silent);
                lost += u32::from(there == own);
                if there != PeerStatus::Active && there != own {
                    finding = Some(format!("{to} is {there:?} to {me}"));
                } else if survivors.contains(&to) && there != back {
                    finding = Some(format!("{to} is {there:?} to {me}, which is {back:?} to {to}"));
                } else if there == own && [me, to].iter().all(|of| conduits[*of].last_failure().is_none()) {
                    finding = Some(format!("nobody knows why {to} is lost to {me}"));
                } else if survivors.contains(&to) && there != own && players[me].sent[to] != players[to].seen[me] {
                    finding = Some(format!("requests from {me} to {to} are missing"));
                } else if killed == Some(to) && there == PeerStatus::Active && !blind {
                    finding = Some(format!("{me} does not know that {to} is dead"));
                }
            }
        }
        if finding.is_none() {
            break;
        }
    }
    conduits.into_iter().enumerate().filter(|(me, _)| !survivors.contains(me)).for_each(|(_, dead)| {
        std::mem::forget(dead);
    });
    let wrong = players.iter().flat_map(|player| player.findings.first().cloned()).next();
    match wrong.or(finding) {
        None => Ok(lost),
        Some(what) => Err(format!("seed {}: {what}", faults.seed)),
    }
}

/// Operations fail, by name or without.
#[test]
fn who_has_lost_frames_is_lost_on_both_sides() {
    let lost = |seed| converse_failing(Faults { failing: 1, linger: 0, ..Faults::drawn(seed) }, None).unwrap();
    assert!(seeds(60).map(lost).sum::<u32>() > 20);
}

/// Between the living frames are late, and never missing, however long the host keeps this process waiting.
#[test]
fn the_others_go_on_without_the_dead() {
    let lost = |seed: u64| {
        let faults = Faults { linger: 0, backoff: 600_000, ..Faults::drawn(seed) };
        converse_failing(faults, Some((seed % 3) as usize)).unwrap()
    };
    let lost: Vec<u32> = seeds(60).map(lost).collect();
    assert!(lost.iter().all(|lost| *lost <= 2) && lost.iter().sum::<u32>() > 90, "{lost:?}");
}

/// An endpoint that has stopped takes its part of the buffers, and no more.
#[test]
fn who_stops_leaves_buffers_to_the_others() {
    let faults = Faults { stopped: Some(2), linger: 0, ..Faults::none(3) };
    let mut conduits = Network::conduits(Shape::new(3), 32, (8, 4), 256, faults);
    let mut players: Vec<Player> = (0..3).map(|me| Player::new(me, 3, 3)).collect();
    let head = RequestHeader::new(0, ReplyBound::None);
    // Messages too long to be injected, and Long ones, until the stopped one may have no more.
    let bytes = pattern(0, 200);
    while conduits[0].send(Peer(2), head, &args(0, 200), Body::Copy(&bytes)).is_ok() {}
    let long = pattern(0, 1000);
    while conduits[0].send(Peer(2), head, &args(0, 1000), Body::Place(&long, 0)).is_ok() {}
    let refused = conduits[0].send(Peer(2), head, &args(0, 200), Body::Copy(&bytes));
    assert_eq!(refused, Err(Refused::Busy(am_core::Resource::Interface)));
    for number in 0..20 {
        conduits[0].send(Peer(1), head, &args(number, 200), Body::Copy(&pattern(number, 200))).unwrap();
        conduits[0].flush();
        conduits[1].poll(9, &mut players[1]);
        conduits[1].flush();
        conduits[0].poll(9, &mut players[0]);
    }
    // Longer than all buffers together.
    let long = pattern(20, 9 * 512);
    conduits[0].send(Peer(1), head, &args(20, long.len()), Body::Place(&long, 0)).unwrap();
    for _ in 0..5 {
        conduits[0].flush();
        conduits[1].poll(9, &mut players[1]);
    }
    assert_eq!((players[1].seen[0], &players[1].findings), (21, &Vec::new()));
}

/// Two endpoints of one slot each whose program does not look: a Long message comes through although others wait
/// before it.
#[test]
fn few_slots_are_emptied_early() {
    let faults = Faults { streams: true, ..Faults::none(4) };
    let conduits = Network::conduits(Shape::new(2), 8, (8, 1), 256, faults);
    // Nobody looks for those who do not: who has everything looks until the other has it, too.
    static SERVED: AtomicU32 = AtomicU32::new(0);
    let play = |mut conduit: Conduit<FakePort>, to: u32| {
        let head = RequestHeader::new(0, ReplyBound::None);
        for number in 0..4 {
            conduit.send(Peer(to), head, &args(number, 0), Body::None).unwrap();
        }
        let long = pattern(4, 5 * 512);
        conduit.send(Peer(to), head, &args(4, long.len()), Body::Place(&long, 0)).unwrap();
        let mut player = Player::new(1 - to as usize, 2, 4);
        let mut served = false;
        while SERVED.load(SeqCst) < 2 && status(&conduit, to as usize) == PeerStatus::Active {
            conduit.poll(1, &mut player);
            if player.seen[to as usize] == 5 && !std::mem::replace(&mut served, true) {
                SERVED.fetch_add(1, SeqCst);
            }
        }
        assert_eq!((player.seen[to as usize], &player.findings), (5, &Vec::new()));
        conduit
    };
    let players: Vec<_> = conduits
        .into_iter()
        .zip([1, 0])
        .map(|(conduit, to)| std::thread::spawn(move || play(conduit, to)))
        .collect();
    let ends: Vec<_> = players.into_iter().map(|player| player.join().expect("everything comes")).collect();
    let ends = ends.into_iter().map(|conduit| std::thread::spawn(|| drop(conduit)));
    ends.collect::<Vec<_>>().into_iter().for_each(|end| end.join().expect("a departure does not panic"));
}

/// A peer that sends more requests than it may is lost as faulty.
#[test]
fn who_sends_more_than_its_window_is_faulty() {
    let faults = Faults { mutation: Mutation::Flood, ..Faults::none(1) };
    let mut conduits = Network::conduits(Shape::new(2), 1, (8, 1), 256, faults);
    let mut players: Vec<Player> = (0..2).map(|me| Player::new(me, 2, 1)).collect();
    for number in 0..2 {
        let head = RequestHeader::new(0, ReplyBound::None);
        conduits[0].send(Peer(1), head, &args(number, 0), Body::None).unwrap();
    }
    conduits[0].flush();
    conduits[1].poll(10, &mut players[1]);
    assert_eq!(players[1].seen[0], 1, "the first is within the window");
    let status = am_core::Membership::status(&conduits[1], Peer(0));
    assert_eq!(status, PeerStatus::Lost(LossCause::Faulty));
}

/// A bundle without a whole header makes its sender faulty.
#[test]
fn who_cuts_a_bundle_is_faulty() {
    let faults = Faults { mutation: Mutation::CutBundle, ..Faults::none(1) };
    let mut conduits = Network::conduits(Shape::new(2), 8, (8, 1), 256, faults);
    let mut player = Player::new(1, 2, 1);
    let head = RequestHeader::new(0, ReplyBound::None);
    conduits[0].send(Peer(1), head, &args(0, 0), Body::None).unwrap();
    conduits[0].flush();
    conduits[1].poll(10, &mut player);
    assert_eq!(player.seen[0], 0);
    let status = am_core::Membership::status(&conduits[1], Peer(0));
    assert_eq!(status, PeerStatus::Lost(LossCause::Faulty));
}

/// Jobs over the fake network whose ranks are threads.
struct Threads {
    seed: u64,
}

impl Fabric for Threads {
    type Transport = Conduit<FakePort>;
    type Job = Mutex<Vec<Option<Conduit<FakePort>>>>;

    fn name(&self) -> String {
        format!("a network that misbehaves, seed {}", self.seed)
    }

    fn create(&self, ranks: u32, needs: &Needs) -> Self::Job {
        let (window, sizes, medium) = match needs.buffers {
            Buffers::Default => (32, (32, 8), 8192),
            Buffers::Smallest => (1, (1, 1), 64),
        };
        let shape = Shape { ranks, endpoints: needs.endpoints };
        let conduits = Network::conduits(shape, window, sizes, medium, Faults::drawn(self.seed));
        Mutex::new(conduits.into_iter().map(Some).collect())
    }

    fn join(&self, job: &Self::Job, rank: Rank) -> Vec<Conduit<FakePort>> {
        let mut conduits = job.lock().unwrap();
        let mine = |conduit: &Option<Conduit<FakePort>>| {
            conduit.as_ref().is_some_and(|conduit| {
                let peer = am_core::Membership::local_peer(conduit);
                am_core::Membership::shape(conduit).address(peer).rank == rank
            })
        };
        let mine = conduits.iter_mut().filter(|conduit| mine(conduit)).filter_map(Option::take);
        mine.map(|conduit| conduit.with_helper(Duration::from_millis(20)).expect("a thread can be started"))
            .collect()
    }
}

#[test]
fn conformance() {
    run(Threads { seed: 2 }, all_cases(), &Plan::with_ranks(Profile::Quick, &[2])).check();
}

/// The quick profile with more numbers of ranks.
#[test]
#[ignore = "the quick tests have two ranks"]
fn full_conformance() {
    for (seed, ranks) in [(1, 1), (2, 2), (3, 3)] {
        run(Threads { seed }, all_cases(), &Plan::with_ranks(Profile::Quick, &[ranks])).check();
    }
}

/// An injected message fails while its peer is being asked for an earlier one, which was another peer's.
#[test]
fn a_failure_during_a_question_is_asked_for_too() {
    let (network, mut conduits) = Network::with_conduits(Shape::new(3), 8, (8, 2), 256, Faults::none(1));
    let mut players: Vec<Player> = (0..3).map(|me| Player::new(me, 3, 1)).collect();
    let head = RequestHeader::new(0, ReplyBound::None);
    let send = |conduits: &mut Vec<Conduit<FakePort>>, to: u32, number: u32| {
        conduits[0].send(Peer(to), head, &args(number, 0), Body::None).unwrap();
    };
    // Something was injected to both.
    send(&mut conduits, 1, 0);
    conduits[0].poll(9, &mut players[0]);
    network.fail_injected(2);
    send(&mut conduits, 2, 0);
    // The failure, and a question to both.
    for _ in 0..3 {
        conduits[0].poll(9, &mut players[0]);
    }
    network.fail_injected(1);
    send(&mut conduits, 1, 1);
    conduits[0].poll(9, &mut players[0]);
    // Now everybody serves; the patience of the test's endpoints is a millisecond.
    let known = |conduits: &[Conduit<FakePort>]| [1, 2].map(|peer| status(&conduits[0], peer));
    let lost = PeerStatus::Lost(LossCause::Silent);
    let start = std::time::Instant::now();
    // The message itself is gone, so both are lost: whom it was for, and who was asked before.
    while known(&conduits) != [lost; 2] {
        let known = known(&conduits);
        assert!(start.elapsed() < Duration::from_secs(60), "a message is missing, and nobody says so: {known:?}");
        for (conduit, player) in conduits.iter_mut().zip(&mut players) {
            conduit.poll(9, player);
            conduit.flush();
        }
    }
    conduits.into_iter().for_each(std::mem::forget);
}

/// What a get brings after its target is known to be lost does not overwrite the segment: the program has its
/// memory back.
#[test]
fn nothing_lands_after_a_loss() {
    let mut late = 0;
    for seed in 1..30 {
        let faults = Faults { late: 90, ..Faults::none(seed) };
        let mut conduits = Network::conduits(Shape::new(2), 8, (8, 2), 256, faults);
        let mut player = Player::new(0, 2, 1);
        conduits[1].segment().write(0, &[9; 100]).unwrap();
        let remote = Remote { peer: Peer(1), at: 0, ticket: Ticket { id: 1, part: 0 } };
        conduits[0].native(Peer(1)).unwrap().0.get(remote, 100, Landing::Segment(500), &mut |_| ()).unwrap();
        conduits[0].failure_notifier().lost(Rank(1), LossCause::Died);
        while status(&conduits[0], 1) == PeerStatus::Active {
            conduits[0].poll(9, &mut player);
        }
        // What was done before can be polled; then the operation is over, and its memory the program's.
        for _ in 0..3 {
            conduits[0].poll(9, &mut player);
        }
        conduits[0].segment().write(500, &[1; 100]).unwrap();
        for _ in 0..500 {
            conduits[0].poll(9, &mut player);
        }
        late += u32::from(conduits[0].segment().view(500, 100).unwrap().to_vec() != vec![1; 100]);
        conduits.into_iter().for_each(std::mem::forget);
    }
    assert_eq!(late, 0, "of 29 segments so many were written to after the loss");
}

/// Operations that the network fails to carry end as those of a lost peer, whether that failure or the launcher's
/// word comes first.
#[test]
fn failed_operations_are_those_of_a_lost_peer() {
    for word_first in [false, true] {
        let (network, mut conduits) =
            Network::with_conduits(Shape::new(2), 8, (8, 2), 256, Faults { late: 50, ..Faults::none(2) });
        let mut player = Player::new(0, 2, 1);
        let remote = |id| Remote { peer: Peer(1), at: 0, ticket: Ticket { id, part: 0 } };
        let native = conduits[0].native(Peer(1)).unwrap().0;
        native.get(remote(1), 100, Landing::Report, &mut |_| ()).unwrap();
        native.get(remote(2), 100, Landing::Segment(500), &mut |_| ()).unwrap();
        native.put(remote(3), &[1; 100], None, &mut |_| ()).unwrap();
        network.kill(1);
        let notifier = conduits[0].failure_notifier();
        if word_first {
            notifier.lost(Rank(1), LossCause::Died);
        }
        while player.ended.len() < 3 {
            conduits[0].poll(9, &mut player);
        }
        notifier.lost(Rank(1), LossCause::Died);
        conduits[0].poll(9, &mut player);
        assert_eq!(player.ended, [Err(OperationFault::Gone); 3], "the word first: {word_first}");
        let cause = if word_first { LossCause::Died } else { LossCause::Silent };
        assert_eq!(status(&conduits[0], 1), PeerStatus::Lost(cause), "the first to tell counts");
        conduits.into_iter().for_each(std::mem::forget);
    }
}

/// What follows a first frame in one turn of the program travels together, in order; nothing waits that comes
/// alone.
#[test]
fn frames_of_one_turn_travel_together() {
    let (network, mut conduits) = Network::with_conduits(Shape::new(3), 64, (8, 2), 256, Faults::none(1));
    let mut players: Vec<Player> = (0..3).map(|me| Player::new(me, 3, 1)).collect();
    for turn in 0..3 {
        // A buffer of the test's endpoints takes 16 of these, a turn has as many packets and the first frame.
        for (to, frames, packets) in [(1, 1, 1), (2, 25, 1 + 2)] {
            let before = network.sent(0);
            ask_shortly(&mut conduits[0], &mut players[0], to);
            assert_eq!(network.sent(0) - before, 1, "the first goes at once");
            (1..frames).for_each(|_| ask_shortly(&mut conduits[0], &mut players[0], to));
            conduits[0].poll(9, &mut players[0]);
            assert_eq!(network.sent(0) - before, packets, "turn {turn}");
        }
        for to in [1, 2] {
            conduits[to].poll(99, &mut players[to]);
            conduits[to].flush();
        }
        conduits[0].poll(9, &mut players[0]);
        assert_eq!((players[1].seen[0], players[2].seen[0]), (turn + 1, 25 * (turn + 1)));
        assert!(players.iter().all(|player| player.findings.is_empty()));
    }
    conduits.into_iter().for_each(std::mem::forget);
}

/// What an endpoint sends to itself, and takes at every poll, keeps nobody else's messages back.
#[test]
fn messages_to_oneself_hide_no_others() {
    let (_network, mut conduits) = Network::with_conduits(Shape::new(2), 64, (8, 2), 256, Faults::none(1));
    let mut players: Vec<Player> = (0..2).map(|me| Player::new(me, 2, 1)).collect();
    ask_shortly(&mut conduits[1], &mut players[1], 0);
    conduits[1].poll(99, &mut players[1]);
    for _ in 0..20 {
        ask_shortly(&mut conduits[0], &mut players[0], 0);
        conduits[0].poll(99, &mut players[0]);
    }
    assert_eq!(players[0].seen[1], 1);
    conduits.into_iter().for_each(std::mem::forget);
}

/// The helper sends what a program that computes has left.
#[test]
fn the_helper_ends_a_turn() {
    let (network, mut conduits) = Network::with_conduits(Shape::new(2), 64, (8, 2), 256, Faults::none(1));
    let first = conduits.remove(0).with_helper(Duration::from_millis(2));
    let mut first = first.expect("a thread can be started");
    let mut player = Player::new(0, 2, 1);
    (0..2).for_each(|_| ask_shortly(&mut first, &mut player, 1));
    while network.sent(0) < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::mem::forget((first, conduits));
}

/// Credits are nothing that the program has sent: what it sends after them goes at once.
#[test]
fn credits_begin_no_turn() {
    let (network, mut conduits) = Network::with_conduits(Shape::new(2), 64, (8, 2), 256, Faults::none(1));
    let mut players: Vec<Player> = (0..2).map(|me| Player::new(me, 2, 1)).collect();
    ask_shortly(&mut conduits[1], &mut players[1], 0);
    conduits[1].poll(9, &mut players[1]);
    conduits[0].poll(9, &mut players[0]);
    assert_eq!((players[0].seen[1], network.sent(0)), (1, 0), "credits are owed");
    conduits[0].flush();
    ask_shortly(&mut conduits[0], &mut players[0], 1);
    assert_eq!(network.sent(0), 2, "the credits, and the request");
    conduits.into_iter().for_each(std::mem::forget);
}

/// Where the system copies to a peer's segment, a Long payload larger than all buffers is there at once, without a
/// write of the network.
#[test]
fn the_system_copies_long_payloads() {
    for places in [false, true] {
        let faults = Faults { places, ..Faults::none(1) };
        let (network, mut conduits) = Network::with_conduits(Shape::new(2), 8, (8, 2), 256, faults);
        let (head, bytes) = (RequestHeader::new(0, ReplyBound::None), pattern(1, 5000));
        conduits[0].send(Peer(1), head, &args(0, 0), Body::Place(&bytes, 24)).unwrap();
        let there = conduits[1].segment().view(24, 5000).unwrap().to_vec() == bytes;
        let parts = (network.written(0) > 0, network.sent(0));
        assert_eq!((there && places, parts), (places, (!places, u32::from(places))));
        conduits.into_iter().for_each(std::mem::forget);
    }
}
