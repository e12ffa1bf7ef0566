//! What a half of a machine tells the other half: packets that cross, and what concerns both.
//!
//! A half executes the events of its own nodes alone. Nothing of it is looked at by the other one: what that
//! has to know is written down here while a window is executed, and read by the other half between two windows.

use crate::device::{Device, Packet};
use crate::engine::{Core, Engine};
use crate::in_flight::Flight;
use crate::lane_order::Lane;
use crate::queue::Event;
use crate::ranks::State;
use crate::split::Split;
use am_core::PeerStatus;

/// A device whose packets may go to another thread: what [`Sim::run_halves`](crate::Sim::run_halves) wants.
///
/// Each half of a machine has its own devices and its own of everything that they share, so that nothing of it
/// need be fit for two threads. Contents of packets that cross go there in a form that is.
pub trait Crossing: Device {
    /// What a packet carries, while it is between the halves.
    type Sent: Send + 'static;

    /// The contents leave this half.
    fn send_over(body: Self::Body) -> Self::Sent;

    /// The contents come into this half.
    fn take_over(&self, sent: Self::Sent) -> Self::Body;

    /// A [switch](crate::DeviceContext::throw) was thrown in the other half. Called of one device of this half,
    /// before anything comes that was sent over there since.
    fn thrown(&self, switch: u8) {
        let _ = switch;
    }
}

/// What one half tells the other one.
#[derive(Debug)]
pub(crate) enum News<B> {
    /// A packet crosses: its head is there at a time. A train has a number, by which it is known afterwards.
    Packet { head: u64, flight: Flight, packet: Packet<B>, train: Option<u64> },
    /// A packet for the other half sets out.
    SetOut { lane: Lane, turn: u64 },
    /// A train that has crossed ends later on a link that it has passed: when, and what had been passed there.
    Later { train: u64, end: u64, passed: u64 },
    /// So many packets of a rank of the other half that had crossed are not under way here any more.
    Landed { rank: u32, count: u32, at: u64 },
    /// A rank has departed, and nothing of it is under way.
    Departed { rank: u32, status: PeerStatus, at: u64 },
    /// A rank of this half has told all ranks a word.
    Announced { rank: u32, word: u64 },
    /// A switch was thrown.
    Thrown(u8),
}

impl<B> News<B> {
    /// The same with other contents.
    pub(crate) fn map<C>(self, contents: impl FnOnce(B) -> C) -> News<C> {
        match self {
            Self::Packet { head, flight, packet, train } => {
                let Packet { number, from, to, bytes, sent, corrupt, body } = packet;
                let packet = Packet { number, from, to, bytes, sent, corrupt, body: contents(body) };
                News::Packet { head, flight, packet, train }
            }
            Self::SetOut { lane, turn } => News::SetOut { lane, turn },
            Self::Later { train, end, passed } => News::Later { train, end, passed },
            Self::Landed { rank, count, at } => News::Landed { rank, count, at },
            Self::Departed { rank, status, at } => News::Departed { rank, status, at },
            Self::Announced { rank, word } => News::Announced { rank, word },
            Self::Thrown(switch) => News::Thrown(switch),
        }
    }
}

/// A half, as its machine sees it.
pub(crate) struct Away<B> {
    split: Split,
    /// Which half it is.
    own: usize,
    /// What the other half is to be told.
    news: Vec<News<B>>,
    /// The switches that are known to be thrown.
    thrown: u32,
}

impl<B> Away<B> {
    pub(crate) const fn new(split: Split, own: usize) -> Self {
        Self { split, own, news: Vec::new(), thrown: 0 }
    }

    /// Whether a node, or a switch at which a packet for a node is, belongs to the other half.
    #[inline]
    fn is_away(&self, at: u32, goal: u32) -> bool {
        self.split.half(at, goal) != self.own
    }
}

/// When an event of the other half follows from news at the earliest. The other half has executed what is before
/// `bound`.
pub(crate) fn follows<B>(news: &News<B>, notice: u64, lookahead: u64, bound: u64) -> u64 {
    match news {
        News::Packet { head, flight, .. } if flight.at != flight.goal => *head,
        // On a bus a train delays others from its head on, also some that have crossed.
        News::Packet { head, train: Some(_), .. } => *head,
        News::Packet { flight, .. } => flight.tail,
        News::Departed { at, .. } => at.saturating_add(notice).max(bound),
        // The rank's half may tell of its departure, and is not to come too late with it.
        News::Landed { at, .. } => at.saturating_add(notice).saturating_sub(lookahead).max(bound),
        // It wakes who waits.
        News::Announced { .. } => bound,
        // A train that has left that half again ends later here, too, and is not to end here before it is told of.
        News::Later { .. } => bound,
        News::SetOut { .. } | News::Thrown(_) => u64::MAX,
    }
}

impl<B: Clone> Core<B> {
    /// Makes this machine one of two halves.
    pub(crate) fn halve(&mut self, split: Split, own: usize) {
        for link in split.between(&self.network) {
            self.links[link as usize].careful = true;
        }
        // So that the numbers of their packets differ.
        self.numbers = (own as u64) << 40;
        let ranks: Vec<bool> = self.node_of.iter().map(|node| split.half(*node, *node) != own).collect();
        for (state, _) in self.ranks.iter_mut().zip(&ranks).filter(|(_, away)| **away) {
            state.state = State::Done;
        }
        self.members.halve(ranks);
        self.in_flight.halve();
        self.away = Some(Box::new(Away::new(split, own)));
    }

    /// Whether the next place of a packet belongs to the other half.
    #[inline]
    pub(crate) fn crosses(&self, next: u32, goal: u32) -> bool {
        self.away.as_ref().is_some_and(|away| away.is_away(next, goal))
    }

    /// A packet of a lane whose destination is in the other half sets out; whether it is so.
    pub(crate) fn set_out_there(&mut self, goal: u32, lane: Lane, turn: u64) -> bool {
        match &mut self.away {
            Some(away) if away.is_away(goal, goal) => {
                away.news.push(News::SetOut { lane, turn });
                true
            }
            _ => false,
        }
    }

    /// A packet goes over to the other half, where its head is at a time.
    pub(crate) fn cross(&mut self, index: u32, head: u64, now: u64) {
        let longest = self.costs.packet;
        let train = self.in_flight.leaves(index, longest, now);
        let (flight, packet) = self.in_flight.land(index);
        let from = packet.from;
        let Some(away) = &mut self.away else { return };
        away.news.push(News::Packet { head, flight, packet, train });
        // One of the other half that was here on its way.
        if self.members.is_away(from) {
            self.landed(from, now);
        }
    }

    /// A rank tells all ranks a word.
    pub(crate) fn announce(&mut self, rank: u32, word: u64) {
        self.take_announcement(rank, word);
        if let Some(away) = &mut self.away {
            away.news.push(News::Announced { rank, word });
        }
    }

    fn take_announcement(&mut self, rank: u32, word: u64) {
        self.announced.resize(self.node_of.len(), None);
        self.announcements += u32::from(self.announced[rank as usize].replace(word).is_none());
    }

    /// Throws a switch of all devices of the machine: those of this half know.
    #[inline]
    pub(crate) fn throw(&mut self, switch: u8) {
        if let Some(away) = &mut self.away
            && away.thrown >> switch & 1 == 0
        {
            away.thrown |= 1 << switch;
            away.news.push(News::Thrown(switch));
        }
    }

    /// What the other half is to be told of this window.
    pub(crate) fn take_news(&mut self) -> Vec<News<B>> {
        let Some(away) = &mut self.away else { return Vec::new() };
        let mut news = std::mem::take(&mut away.news);
        news.extend(self.members.take_news());
        news.extend(self.in_flight.take_later().map(|(train, end, passed)| News::Later { train, end, passed }));
        news
    }
}

impl<D: Crossing> Engine<D> {
    /// Reads what the other half has told. What this half has executed ends at `bound`.
    pub(crate) fn take_in(&mut self, news: News<D::Sent>, bound: u64) {
        let Self { core, devices, .. } = self;
        // What it shares with all others of this half is what matters.
        let device = &devices[0];
        match news.map(|sent| device.take_over(sent)) {
            News::Packet { head, flight, packet, train } => core.enter(head, flight, packet, train),
            News::SetOut { lane, turn } => {
                if let Some(order) = &mut core.lane_order {
                    order.expect(lane, turn);
                }
            }
            News::Later { train, end, passed } => core.in_flight.later(train, end, passed),
            News::Landed { rank, count, at } => {
                let notice = core.members.landed_there(rank, count, at);
                core.plan_notice(notice, bound);
            }
            News::Departed { rank, status, at } => {
                let notice = core.members.departed_there(rank, status, at);
                core.plan_notice(notice, bound);
            }
            News::Announced { rank, word } => core.take_announcement(rank, word),
            News::Thrown(switch) => {
                if let Some(away) = &mut core.away {
                    away.thrown |= 1 << switch;
                }
                device.thrown(switch);
            }
        }
    }
}

impl<D: Device> Engine<D> {
    /// Lets happen what happens for now before the time of a rank that is ahead of that. Whether the rank may
    /// begin to wait: what comes before its time in later windows finds it waiting.
    #[cold]
    #[inline(never)]
    pub(crate) fn catch_up_late(&mut self, rank: u32, now: u64) -> bool {
        let (horizon, deadline) = (self.core.horizon, self.core.deadline);
        if self.core.over || now > deadline {
            return false;
        }
        self.settle_for(rank, horizon);
        self.core.ranks[rank as usize].state != State::Stopped
    }
}

impl<B: Clone> Core<B> {
    fn plan_notice(&mut self, notice: Option<u64>, bound: u64) {
        if let Some(notice) = notice {
            self.queue.push(notice.max(bound), Event::Notice);
        }
    }

    /// A packet comes over from the other half, where it left a link: its head is there at a time.
    fn enter(&mut self, head: u64, flight: Flight, packet: Packet<B>, train: Option<u64>) {
        let Flight { at, goal, channel, turn, .. } = flight;
        let lane = (packet.from, packet.to, channel);
        self.members.comes_over(packet.from);
        let index = self.in_flight.launch(flight, packet);
        if let Some(train) = train {
            self.in_flight.enters(train, index);
        }
        if let Some(order) = &mut self.lane_order
            && !self.away.as_ref().is_some_and(|away| away.is_away(goal, goal))
        {
            order.comes_over(index, lane, turn);
        }
        if at != goal {
            return self.queue.push(head, Event::Hop(index));
        }
        if let Some(ports) = &mut self.ports {
            ports.begin_to_take_in(index, head, &mut self.in_flight, self.costs.packet);
        }
        let tail = self.in_flight.path(index).tail;
        self.plan_arrival(index, tail);
    }
}
