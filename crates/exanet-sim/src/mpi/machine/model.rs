//! Random programs on a few machines, whose packets keep their order per pair and whose transfers take their time:
//! what has met must be what MPI permits.

use super::*;
use crate::mpi::config::MpiConfig;
use fabric_sim::splitmix64;

const RANKS: u32 = 3;
const EAGER: u32 = 16;

/// A message that a rank has begun to send.
#[derive(Clone, Copy, Debug)]
struct Sent {
    stream: Stream,
    len: u64,
    key: Key,
    done: bool,
}

/// A receive that a rank has posted.
#[derive(Clone, Copy, Debug)]
struct Posted {
    selector: Selector,
    capacity: u64,
    key: Key,
    cancelled: bool,
    result: Option<Result<Status, MpiError>>,
    /// The message that came: its sender, and its number among all that this has sent.
    message: Option<u64>,
}

struct World {
    state: u64,
    machines: Vec<Machine>,
    sent: Vec<Vec<Sent>>,
    posted: Vec<Vec<Posted>>,
    /// Packets by sender and receiver; transfers in no order.
    wires: Vec<VecDeque<(Control, Vec<u8>)>>,
    transfers: Vec<(u32, Action)>,
}

/// Where a message lies, and where a receive wants it: the rank and the number instead of addresses.
fn address(rank: u32, number: usize) -> u64 {
    u64::from(rank) << 32 | number as u64
}

impl World {
    fn new(seed: u64, protocol: Protocol) -> Self {
        let config = MpiConfig { eager: EAGER, ..MpiConfig::of(protocol) };
        Self {
            state: seed,
            machines: (0..RANKS).map(|_| Machine::new(config)).collect(),
            sent: vec![Vec::new(); RANKS as usize],
            posted: vec![Vec::new(); RANKS as usize],
            wires: vec![VecDeque::new(); (RANKS * RANKS) as usize],
            transfers: Vec::new(),
        }
    }

    fn draw(&mut self, of: u64) -> u64 {
        splitmix64(&mut self.state) % of
    }

    fn act(&mut self, rank: u32) {
        while let Some(action) = self.machines[rank as usize].action() {
            match action {
                Action::Packet { to, control, payload } => {
                    self.wires[(rank * RANKS + to) as usize].push_back((control, payload));
                }
                Action::Fill { at, bytes } => {
                    let message = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                    self.fill(at, message);
                }
                transfer => self.transfers.push((rank, transfer)),
            }
        }
    }

    /// A message comes to where a receive wants it.
    fn fill(&mut self, at: u64, message: u64) {
        let posted = &mut self.posted[(at >> 32) as usize][at as u32 as usize];
        assert!(posted.result.is_none(), "{posted:?} is over, and {message:#x} is written to it");
        assert_eq!(posted.message.replace(message), None, "two messages for {posted:?}");
    }

    fn send(&mut self, rank: u32) {
        let stream =
            Stream { peer: self.draw(3) as u32, communicator: self.draw(2) as u16, tag: self.draw(2) as u32 };
        let len = [8, 16, 17, 40, 80][self.draw(5) as usize];
        let number = self.sent[rank as usize].len();
        let bytes = move || {
            let mut bytes = address(rank, number).to_le_bytes().to_vec();
            bytes.resize(len as usize, 0);
            bytes
        };
        let key = self.machines[rank as usize].send(stream, address(rank, number), len, bytes);
        self.sent[rank as usize].push(Sent { stream, len, key, done: false });
        self.act(rank);
        self.look(rank);
    }

    fn receive(&mut self, rank: u32, selector: Selector, capacity: u64) {
        let number = self.posted[rank as usize].len();
        // The receive may meet a message at once.
        let none = Key::from_u64(u64::MAX);
        let posted = Posted { selector, capacity, key: none, cancelled: false, result: None, message: None };
        self.posted[rank as usize].push(posted);
        let key = self.machines[rank as usize].receive(selector, address(rank, number), capacity);
        self.posted[rank as usize][number].key = key;
        self.act(rank);
        self.look(rank);
    }

    fn post(&mut self, rank: u32) {
        let source = (self.draw(4) != 0).then(|| self.draw(3) as u32);
        let tag = (self.draw(6) != 0).then(|| self.draw(2) as u32);
        let selector = Selector { communicator: self.draw(2) as u16, source, tag };
        let capacity = [16, 40, 80, 80, 80][self.draw(5) as usize];
        self.receive(rank, selector, capacity);
    }

    fn cancel(&mut self, rank: u32) {
        let waiting: Vec<usize> = (0..self.posted[rank as usize].len())
            .filter(|at| self.posted[rank as usize][*at].result.is_none())
            .collect();
        if !waiting.is_empty() {
            let at = waiting[self.draw(waiting.len() as u64) as usize];
            let posted = &mut self.posted[rank as usize][at];
            posted.cancelled = true;
            let key = posted.key;
            self.machines[rank as usize].cancel(key);
            self.act(rank);
            self.look(rank);
        }
    }

    /// Takes in what has ended.
    fn look(&mut self, rank: u32) {
        let machine = &mut self.machines[rank as usize];
        for sent in self.sent[rank as usize].iter_mut().filter(|sent| !sent.done) {
            sent.done = machine.sent(sent.key).is_some();
        }
        for posted in self.posted[rank as usize].iter_mut().filter(|posted| posted.result.is_none()) {
            posted.result = machine.received(posted.key);
        }
    }

    /// Something that is under way arrives; whether anything was.
    fn step(&mut self) -> bool {
        let busy: Vec<usize> = (0..self.wires.len()).filter(|wire| !self.wires[*wire].is_empty()).collect();
        let choices = busy.len() + self.transfers.len();
        if choices == 0 {
            return false;
        }
        let choice = self.draw(choices as u64) as usize;
        let touched = if choice < busy.len() {
            let (from, to) = (busy[choice] as u32 / RANKS, busy[choice] as u32 % RANKS);
            let (control, payload) = self.wires[busy[choice]].pop_front().unwrap();
            self.machines[to as usize].take(from, &control, payload).unwrap();
            vec![to]
        } else {
            let (rank, transfer) = self.transfers.swap_remove(choice - busy.len());
            match transfer {
                Action::Write { send, to, source, place, len } => {
                    assert!(len <= place.len);
                    self.fill(place.at, source);
                    self.machines[rank as usize].written(send);
                    let awaited = self.machines[to as usize].awaited();
                    let noted = awaited.filter(|(_, other)| other.note == place.note).map(|(key, _)| key);
                    let key = noted.collect::<Vec<_>>();
                    assert_eq!(key.len(), 1, "a message is written that nobody waits for");
                    self.machines[to as usize].noted(key[0], len).unwrap();
                    vec![rank, to]
                }
                Action::Read { receive, source, at, .. } => {
                    self.fill(at, source);
                    self.machines[rank as usize].read(receive);
                    vec![rank]
                }
                Action::Packet { .. } | Action::Fill { .. } => unreachable!(),
            }
        };
        for rank in touched {
            self.act(rank);
            self.look(rank);
        }
        true
    }

    /// What has met is what MPI permits.
    fn check(&self) {
        for (rank, posted) in self.posted.iter().enumerate() {
            for (at, receive) in posted.iter().enumerate() {
                let Some((stream, number, len)) = self.message(rank, receive) else { continue };
                assert!(receive.selector.takes(&stream), "{receive:?} has met {stream:?}");
                assert_eq!(len <= receive.capacity, receive.message.is_some(), "{receive:?}");
                // An earlier message of the same sender that this receive takes was met by an earlier receive.
                for (other_at, other) in posted.iter().enumerate().skip(at + 1) {
                    if let Some((other_stream, other_number, _)) = self.message(rank, other)
                        && other_stream.peer == stream.peer
                        && other_number < number
                    {
                        assert!(
                            !receive.selector.takes(&other_stream),
                            "rank {rank}: receive {at} has met {number}, and {other_at} {other_number} of \
                             {other_stream:?}"
                        );
                    }
                }
            }
        }
    }

    /// The message that a receive has met: its row, its number among its sender's, its length.
    fn message(&self, rank: usize, receive: &Posted) -> Option<(Stream, usize, u64)> {
        match receive.result? {
            Ok(Status { source, tag, len }) => {
                let message = receive.message.expect("a receive that is over has its message");
                assert_eq!((message >> 32) as u32, source);
                let sent = self.sent[source as usize][message as u32 as usize];
                assert_eq!((sent.stream.tag, sent.len, sent.stream.peer as usize), (tag, len, rank));
                Some((Stream { peer: source, ..sent.stream }, message as u32 as usize, len))
            }
            // Nothing of it was written; which one it was follows from the others.
            Err(_) => {
                assert_eq!(receive.message, None, "{receive:?}");
                None
            }
        }
    }
}

/// Plays a random program to its end.
fn play(seed: u64, protocol: Protocol) -> Counts {
    let mut world = World::new(seed, protocol);
    for _ in 0..60 {
        let rank = world.draw(RANKS.into()) as u32;
        match world.draw(8) {
            0..3 => world.send(rank),
            3..6 => world.post(rank),
            6 => world.cancel(rank),
            _ => {}
        }
        for _ in 0..world.draw(4) {
            world.step();
        }
    }
    while world.step() {}
    // Receives for what is left, and cancellations of what got nothing.
    for rank in 0..RANKS {
        for at in 0..world.posted[rank as usize].len() {
            let posted = world.posted[rank as usize][at];
            if posted.result.is_none() {
                world.posted[rank as usize][at].cancelled = true;
                world.machines[rank as usize].cancel(posted.key);
                world.act(rank);
                world.look(rank);
            }
        }
    }
    while world.step() {}
    let (mut rounds, mut left) = (0, true);
    while left {
        left = false;
        for rank in 0..RANKS {
            for communicator in 0..2 {
                if world.machines[rank as usize]
                    .unexpected
                    .iter()
                    .any(|one| one.stream.communicator == communicator)
                {
                    world.receive(rank, Selector { communicator, source: None, tag: None }, 80);
                    left = true;
                }
            }
        }
        while world.step() {}
        rounds += 1;
        assert!(rounds < 1000);
    }
    world.check();
    for (rank, machine) in world.machines.iter().enumerate() {
        assert!(machine.is_idle(), "rank {rank} has something under way: {machine:?}");
        assert!(world.sent[rank].iter().all(|sent| sent.done), "a message of rank {rank} was not sent");
        for posted in &world.posted[rank] {
            let result = posted.result.expect("every receive ends");
            assert!(posted.cancelled || result != Err(MpiError::Cancelled), "{posted:?}");
        }
        assert!(machine.adverts.is_empty() && machine.announced.is_empty() && machine.held.is_empty());
        assert!(machine.awaited.is_empty() && machine.notes.len() == machine.uses.len());
    }
    // Every message has come once.
    let sent: usize = world.sent.iter().map(Vec::len).sum();
    let taken =
        world.posted.iter().flatten().filter(|posted| !matches!(posted.result, Some(Err(MpiError::Cancelled))));
    assert_eq!(sent, taken.count(), "as many messages were sent as were received");
    world.machines.iter().fold(Counts::default(), |all, machine| all.and(&machine.counts))
}

#[test]
fn random_programs_meet_as_mpi_permits() {
    for protocol in Protocol::ALL {
        let all = (0..400).map(|seed| play(seed, protocol)).fold(Counts::default(), |all, one| all.and(&one));
        assert!(all.eager > 1000 && all.most_unexpected > 3, "{all:?}");
        if protocol.advertises() {
            // All of the paper's complications have come up.
            let least = [all.rts, all.cts, all.rtr, all.revoke, all.advertised, all.crossed].into_iter().min();
            assert!(least > Some(20), "{protocol:?}: {all:?}");
            assert_eq!(all.retired_by_number > 50, protocol >= Protocol::EagerAware, "{all:?}");
            assert_eq!((all.fin == 0, all.reads), (protocol == Protocol::Elided, 0));
        } else {
            assert_eq!(all.rtr + all.revoke, 0);
            assert_eq!(all.ack > 100, protocol == Protocol::Read);
        }
    }
}

/// A message is noted while its receive is being revoked, and its announcement comes before the answer.
#[test]
fn notes_wait_for_revocations() {
    play(4851, Protocol::Elided);
}

/// `cargo test --release -p active-messages-exanet --lib -- --ignored model::many_seeds`
#[test]
#[ignore = "a hundred thousand programs take a minute"]
fn many_seeds() {
    for protocol in Protocol::ALL {
        for seed in 1_000..21_000 {
            play(seed, protocol);
        }
    }
}
