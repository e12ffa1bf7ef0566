//! Peers that break the protocol: their numbers are drawn from what the receiver knows, around every limit of it.
//! Nothing panics, memory stays bounded, and the messages of the others arrive.

use super::control::Offer;
use super::model::{Packet, Play, PrintsOnPanic, SEGMENT, seeds};
use super::*;
use am_core::Payload;
use am_core::transport::Lent;

/// The ranks that break the protocol; ranks 0 and 1 keep it.
const HOSTILE: [u32; 2] = [2, 3];

/// Draws numbers as a hostile peer would that sees all of a rank's state.
struct Draw<'a> {
    play: &'a mut Play,
    /// The hostile rank, and its victim.
    from: u32,
    to: u32,
}

impl Draw<'_> {
    fn victim(&self) -> &Machine {
        &self.play.machines[self.to as usize]
    }

    fn one_of<N: Copy>(&mut self, of: &[N]) -> N {
        of[self.play.below(of.len())]
    }

    /// A number near one of some limits, or one of them.
    fn near(&mut self, limits: &[u64]) -> u64 {
        let limit = self.one_of(limits);
        let step = self.one_of(&[0, 0, 0, 1, u64::MAX]);
        limit.wrapping_add(step)
    }

    fn key<N>(&mut self, of: impl Fn(&Machine) -> Vec<(Key, N)>) -> Key {
        let keys: Vec<u64> = of(self.victim()).into_iter().map(|(key, _)| key.to_u64()).collect();
        let limits = [keys, vec![0, u64::from(u32::MAX), u64::MAX]].concat();
        // Mostly those that there are.
        let limit = if limits.len() > 3 && self.play.below(8) != 0 {
            limits[self.play.below(limits.len() - 3)]
        } else {
            self.near(&limits)
        };
        Key::from_u64(limit)
    }

    fn send_key(&mut self) -> Key {
        self.key(|machine| machine.sends.iter().map(|(key, send)| (key, send.len)).collect())
    }

    fn receive_key(&mut self) -> Key {
        self.key(|machine| machine.receives.iter().map(|(key, receive)| (key, receive.len)).collect())
    }

    fn context(&mut self) -> u32 {
        self.one_of(&[0, 0, 1, 1, 2, 3, u32::MAX])
    }

    fn tag(&mut self) -> u32 {
        if self.play.below(8) == 0 {
            self.one_of(&[i32::MAX as u32, 1 << 31, ANY - 1, ANY])
        } else {
            self.one_of(&[0, 1, 2])
        }
    }

    fn expected(&self, context: u32) -> u32 {
        let name = u64::from(context) << 32 | u64::from(self.from);
        self.victim().pair_of.get(&name).map_or(0, |pair| self.victim().pairs[*pair as usize].expected)
    }

    fn envelope(&mut self) -> Envelope {
        let (context, tag) = (self.context(), self.tag());
        let (expected, window) = (self.expected(context), self.victim().window.messages);
        let ahead = if self.play.below(4) == 0 {
            self.one_of(&[u32::MAX, 1, 2, window - 1, window, window + 1, 2 * window, 1 << 31, (1 << 31) + 1])
        } else {
            0
        };
        let kind = self.one_of(&[BYTES, BYTES, 0, u32::MAX]);
        Envelope { context, tag, sequence: expected.wrapping_add(ahead), kind }
    }

    fn credit(&mut self) -> Credit {
        let (from, machine) = (self.from, self.victim());
        let peer = machine.peer_of.get(&from).map(|peer| &machine.peers[*peer as usize]);
        let (sent, returned) = peer.map_or_else(Default::default, |peer| (peer.sent, peer.returned));
        match self.play.below(12) {
            0 => Credit { messages: sent.messages.wrapping_add(1), units: sent.units },
            1 => Credit { messages: sent.messages, units: sent.units.wrapping_add(1) },
            2 => Credit { messages: returned.messages.wrapping_sub(1), units: returned.units },
            3 => Credit { messages: sent.messages.wrapping_add(1 << 31), units: 0 },
            4 | 5 => sent,
            _ => returned,
        }
    }

    fn len(&mut self) -> u64 {
        let mut limits = vec![0, self.victim().eager, 2000, SEGMENT, isize::MAX as u64, u64::MAX];
        limits.extend(self.victim().receives.iter().flat_map(|(_, receive)| [receive.capacity, receive.len]));
        self.near(&limits)
    }

    fn offset(&mut self) -> u64 {
        let mut limits = vec![0, SEGMENT, SEGMENT + 64, u64::MAX, u64::MAX - 1000];
        limits.extend(
            self.victim().receives.iter().filter_map(|(_, receive)| receive.staged().map(|block| block.offset)),
        );
        self.near(&limits)
    }

    /// A part, mostly where it belongs.
    fn part(&mut self) -> (Part, Vec<u8>, Option<u64>) {
        let receive = self.receive_key();
        let (begun, of) = self.victim().receives.get(receive).map_or((0, None), |of| (of.arrived(), of.staged()));
        let at = if self.play.below(3) == 0 { self.len() } else { begun };
        let envelope = if self.play.below(3) == 0 { Some((self.envelope(), self.len())) } else { None };
        let bytes = vec![3; self.one_of(&[0, 1, 64, 300, 2000])];
        let len = bytes.len() as u64;
        let inside = |offset: &u64| offset.checked_add(len).is_some_and(|end| end <= SEGMENT + 64);
        let offset = match self.play.below(3) {
            0 => None,
            1 => Some(self.offset()),
            _ => of.map(|block| block.offset.wrapping_add(at)),
        };
        // Transports let nobody write beyond the segment.
        let copied = self.one_of(&[0, 0, 0, 1, 300, 2000, u32::MAX >> 1]);
        (Part { receive, at, envelope, copied }, bytes, offset.filter(inside))
    }

    fn control(&mut self) -> Control {
        let place = self.one_of(&[0, 0, 0, 1, 15, 16, 17, 1 << 31, u32::MAX]);
        match self.play.below(14) {
            0..=2 => {
                let of = [Source::Process, Source::Segment][self.play.below(2)];
                let lent = (self.play.below(2) == 0).then(|| of(Lent::new(self.len(), self.offset(), place)));
                let offer = Offer { send: Key::from_u64(self.len()), lent };
                Control::Rts { envelope: self.envelope(), offer, len: self.len() }
            }
            3 => {
                let offset = if self.play.below(2) == 0 { None } else { Some(self.offset()) };
                Control::Cts {
                    send: self.send_key(),
                    receive: self.receive_key(),
                    offset,
                    stays: place == 0,
                    copies: place < 2,
                }
            }
            4 => Control::Refuse { send: self.send_key(), freed: self.play.below(2) == 0 },
            5 | 6 => {
                let (context, tag) = (self.context(), self.tag());
                let seen = self.one_of(&[0, 1, 2, 1 << 31, u32::MAX]);
                let (receive, capacity, offset) = (self.receive_key(), self.len(), self.offset());
                Control::Rtr {
                    context,
                    tag,
                    seen,
                    place,
                    receive,
                    capacity,
                    offset,
                    stays: place == 0,
                    copies: place < 2,
                }
            }
            7 => {
                let (context, tag, receive) = (self.context(), self.tag(), self.receive_key());
                Control::Revoke { context, tag, seen: self.one_of(&[0, 1, u32::MAX]), place, receive }
            }
            8 => Control::Revoked { context: self.context(), receive: self.receive_key(), done: place == 0 },
            9 => Control::Retire { receive: self.receive_key() },
            10 => Control::Retired { receive: self.receive_key() },
            11 => Control::Written { envelope: self.envelope(), receive: self.receive_key(), len: self.len() },
            12 => Control::Fin { receive: self.receive_key() },
            _ => Control::Ack { send: self.send_key() },
        }
    }

    /// One message of the hostile rank.
    fn attack(&mut self) {
        let (from, credit) = (self.from, self.credit());
        match self.play.below(8) {
            0..=4 => {
                let control = self.control();
                // As it travels.
                let (control, credit) = Control::decode(&control.encode(credit)).unwrap();
                self.play.machines[self.to as usize].on_control(from, control, credit);
            }
            5 => {
                let (envelope, bytes) = (self.envelope(), vec![9; self.len().min(1000) as usize]);
                let machine = &mut self.play.machines[self.to as usize];
                match Word::of(&bytes) {
                    Some(word) => machine.on_word(from, envelope, credit, word),
                    None => machine.on_eager(from, envelope, credit, &Payload::own(&bytes)),
                }
            }
            6 => {
                let (part, bytes, offset) = self.part();
                let own = Payload::own(&bytes);
                let payload = match offset {
                    Some(offset) => own.placed_at(offset),
                    None => own,
                };
                self.play.machines[self.to as usize].on_part(from, &Part::decode(part.encode()), &payload);
            }
            _ => {
                let (send, receive, at) = (self.send_key(), self.receive_key(), self.len());
                let len = self.len() as u32;
                let read = Read::decode(Read { send, receive, at, len, offset: Some(0) }.encode());
                let _ = self.play.machines[self.to as usize].read(from, read.send, read.at, read.len);
            }
        }
    }

    /// The victim uses what the hostile rank offers.
    fn respond(&mut self) {
        let (from, at) = (self.from, self.to as usize);
        let (context, tag) = (self.play.below(2) as u32, self.play.below(3) as u32);
        match self.play.below(3) {
            0 => {
                let capacity = [64, 2000, u64::MAX][self.play.below(3)];
                self.play.machines[at].post(Selector { context, source: from, tag }, BYTES, capacity);
            }
            1 => {
                let (len, envelope) = (self.play.below(1500), Envelope { context, tag, sequence: 0, kind: BYTES });
                let lies = self.play.network.lay(self.to, &vec![5; len]);
                let machine = &mut self.play.machines[at];
                match len % 3 {
                    2 if len as u64 > machine.eager => {
                        let lent = (len % 2 == 0).then(|| Source::owned(lies));
                        machine.begin_placed((from, envelope, Mode::Standard), (lies, len as u64), lent)
                    }
                    0 => machine.begin(from, envelope, Mode::Standard, vec![5; len]),
                    _ => machine.begin_lent(from, envelope, Mode::Standard, len as u64, None),
                };
            }
            _ => {
                let keys: Vec<Key> = self.play.machines[at].receives.iter().map(|(key, _)| key).collect();
                for key in keys {
                    if self.play.machines[at].waits_for(key).is_some_and(|(selector, ..)| selector.source == from)
                    {
                        self.play.machines[at].cancel(key);
                        break;
                    }
                }
            }
        }
        // The network takes what goes to the hostile rank, or has no room for it.
        if self.play.below(4) == 0 {
            self.play.network.link(self.to, from).clear();
        }
    }
}

/// What a hostile rank can have made another keep.
fn check_bounds(machine: &Machine) {
    let window = machine.window;
    for rank in HOSTILE {
        let Some(peer) = machine.peer_of.get(&rank).map(|peer| &machine.peers[*peer as usize]) else { continue };
        let stored = machine.stored.iter().filter(|(_, message)| message.from == rank).count();
        assert!(stored <= window.messages as usize);
        assert!(peer.advertised <= adverts::ADVERTS && peer.answers as usize <= 64 + machine.pairs.len());
        let pairs = machine.pairs.iter().filter(|pair| machine.peers[pair.peer as usize].rank == rank);
        let early: usize = pairs.map(|pair| pair.out_of_order.len()).sum();
        assert!(early <= window.messages as usize);
    }
}

#[test]
fn hostile_peers_harm_nobody() {
    let (mut faulty, mut longest) = (0, 0);
    for seed in 0..4 * seeds() {
        let protocol = Protocol::ALL[seed as usize % 5];
        let guard = PrintsOnPanic(format!("seed {seed}, {}", protocol.name()));
        let mut play = Play::among_others(seed, 4, protocol);
        // One in two knows who is a member.
        if seed % 2 == 0 {
            play.machines[..2].iter_mut().for_each(|machine| {
                machine.open(0, 0..4);
                machine.open(1, 0..3);
            });
        }
        for step in 0..400 {
            let me = play.below(2) as u32;
            let (from, to) = (HOSTILE[play.below(2)], play.below(2) as u32);
            match play.below(6) {
                0 => play.act(me),
                1 => drop(play.advance(me)),
                2 => drop(play.deliver(to, me)),
                3 => Draw { play: &mut play, from, to }.respond(),
                _ => Draw { play: &mut play, from, to }.attack(),
            }
            let peers = play.machines[..2].iter().flat_map(|machine| &machine.peers);
            if peers.filter(|peer| peer.is_faulty()).count() < 4 {
                longest = longest.max(step);
            }
        }
        play.machines[..2].iter().for_each(check_bounds);
        // The two that keep the protocol end their program as if they were alone.
        play.machines[..2]
            .iter_mut()
            .for_each(|machine| HOSTILE.iter().for_each(|rank| machine.lose(*rank, None)));
        HOSTILE.iter().for_each(|rank| {
            (0..2).for_each(|to| play.network.link(to, *rank).clear());
        });
        play.end();
        play.check(0);
        play.check(1);
        faulty +=
            play.machines[..2].iter().flat_map(|machine| &machine.peers).filter(|peer| peer.is_faulty()).count();
        std::mem::forget(guard);
    }
    // Some are found out, and some keep to what is permitted for long.
    assert!(faulty > 0 && longest > 100, "{faulty} faulty peers, the last at step {longest}");
}

/// A packet that is lost between honest ranks would fail above; this names what hostile ranks are not.
#[test]
fn credit_beyond_what_was_sent_is_refused() {
    let mut play = Play::pair(1 << 20);
    play.send_one(1, 5);
    play.settle();
    let sent = play.machines[0].peers[0].sent;
    play.machines[0].on_control(1, Control::Credit, sent);
    assert!(!play.machines[0].peers[0].is_faulty());
    let more = Credit { messages: sent.messages + 1, units: sent.units + 1 };
    play.machines[0].on_control(1, Control::Credit, more);
    assert!(play.machines[0].peers[0].is_faulty());
    play.network.link(1, 0).push_back(Packet::Control(Control::Credit, more));
    play.deliver(1, 0);
    assert_eq!(play.machines[0].counts.ignored, 2);
}
