//! A host of the simulated network: it holds the machines of its ranks and drives them when datagrams arrive and
//! when deadlines pass, whatever the ranks are doing, as the kernel and a service thread do for sockets.

use crate::proto::{Machine, OwnSegment};
use crate::sim::SplitMix64;
use am_core::Instant;
use am_core::transport::PeerStatus;
use fabric_sim::{Device, DeviceContext, Packet};
use std::cell::RefCell;
use std::rc::Rc;

/// Datagrams and their bytes that a host has taken in and sent without its rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debt {
    pub(super) received: (u64, u64),
    pub(super) sent: (u64, u64),
}

/// One rank's place at its host.
#[derive(Debug)]
pub(super) struct Seat {
    rank: u32,
    pub(super) machine: Rc<RefCell<Machine>>,
    pub(super) segment: OwnSegment,
    /// What the host has done for which the rank has not paid yet.
    pub(super) debt: Debt,
    /// By when accepted messages leave without further calls.
    flush_at: Option<Instant>,
    /// The earliest timer that is set.
    armed: Option<Instant>,
    losses: u32,
    /// How the rank has ended, and until when its machine may take to settle.
    leaving: Option<(PeerStatus, Instant)>,
}

impl Seat {
    pub(super) fn new(rank: u32, machine: Machine, segment: OwnSegment) -> Self {
        Self {
            rank,
            machine: Rc::new(RefCell::new(machine)),
            segment,
            debt: Debt::default(),
            flush_at: None,
            armed: None,
            losses: 0,
            leaving: None,
        }
    }
}

/// A host: the device of a node of the fabric.
#[derive(Debug)]
pub struct Node {
    seats: Vec<Seat>,
    /// What corruption does to a datagram.
    random: SplitMix64,
    buffer: Vec<u8>,
}

impl Node {
    pub(super) fn new(seats: Vec<Seat>, random: SplitMix64) -> Self {
        let largest = seats.iter().map(|seat| usize::from(seat.machine.borrow().config().datagram_limit)).max();
        Self { seats, random, buffer: vec![0; largest.unwrap_or(0)] }
    }

    fn index(&self, rank: u32) -> usize {
        self.seats.iter().position(|seat| seat.rank == rank).expect("a rank asks its own host")
    }

    pub(super) fn seat(&mut self, rank: u32) -> &mut Seat {
        let index = self.index(rank);
        &mut self.seats[index]
    }

    /// Sees to it that what a rank has handed over leaves by a time.
    pub(super) fn flush_by(&mut self, rank: u32, at: Instant, port: &mut DeviceContext<'_, Vec<u8>>) {
        let index = self.index(rank);
        let seat = &mut self.seats[index];
        if seat.flush_at.is_none() {
            seat.flush_at = Some(at);
            self.arm(index, port);
        }
    }

    /// The rank has sent what there was: from here on, deadlines are this host's business.
    pub(super) fn sent_out(&mut self, rank: u32, port: &mut DeviceContext<'_, Vec<u8>>) {
        let index = self.index(rank);
        self.seats[index].flush_at = None;
        self.arm(index, port);
    }

    /// The rank has ended; its machine goes on until all is delivered, or `until`.
    pub(super) fn leave(
        &mut self,
        rank: u32,
        status: PeerStatus,
        until: Instant,
        port: &mut DeviceContext<'_, Vec<u8>>,
    ) {
        let index = self.index(rank);
        self.seats[index].leaving = Some((status, until));
        self.drive(index, port);
    }

    fn arm(&mut self, index: usize, port: &mut DeviceContext<'_, Vec<u8>>) {
        let seat = &mut self.seats[index];
        let linger = seat.leaving.map(|(_, until)| until);
        let next = [seat.machine.borrow().deadline(), seat.flush_at, linger].into_iter().flatten().min();
        if let Some(at) = next
            && seat.armed.is_none_or(|armed| at < armed)
        {
            let at = at.max(port.now());
            seat.armed = Some(at);
            port.timer(at, index as u32);
        }
    }

    /// Lets time act on a machine, and sends what it wants to send.
    fn drive(&mut self, index: usize, port: &mut DeviceContext<'_, Vec<u8>>) {
        let (seat, now) = (&mut self.seats[index], port.now());
        let mut machine = seat.machine.borrow_mut();
        if machine.wakes(now) {
            port.wake(seat.rank);
        }
        machine.tick(now);
        while let Some((to, len)) = machine.transmit(now, &mut self.buffer) {
            if to.0 == seat.rank {
                to_itself(&mut machine, now, &mut self.buffer[..len]);
                port.wake(seat.rank);
            } else {
                let Debt { sent: (datagrams, bytes), .. } = &mut seat.debt;
                (*datagrams, *bytes) = (*datagrams + 1, *bytes + len as u64);
                port.send(seat.rank, to.0, len as u32, self.buffer[..len].to_vec());
            }
        }
        seat.flush_at = None;
        if machine.losses() != seat.losses {
            seat.losses = machine.losses();
            port.wake(seat.rank);
        }
        if let Some((status, until)) = seat.leaving
            && (machine.settled() || until <= now)
        {
            seat.leaving = None;
            port.depart(seat.rank, status);
        }
        drop(machine);
        self.arm(index, port);
    }

    /// What a bad link makes of a datagram: a bit flips, or the end is missing.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        let at = self.random.below(bytes.len() as u64) as usize;
        if self.random.chance(300) {
            bytes.truncate(at);
        } else if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.random.below(8);
        }
    }
}

/// What a rank sends to itself is there at once and unharmed: no interface and no link is between.
pub(super) fn to_itself(machine: &mut Machine, now: Instant, datagram: &mut [u8]) {
    // What the machine drops it has counted.
    let _ = machine.handle(now, datagram);
}

impl Device for Node {
    type Body = Vec<u8>;

    fn arrive(&mut self, packet: Packet<Vec<u8>>, port: &mut DeviceContext<'_, Vec<u8>>) {
        let Packet { to, mut body, corrupt, .. } = packet;
        if corrupt {
            self.spoil(&mut body);
        }
        let index = self.index(to);
        let seat = &mut self.seats[index];
        let Debt { received: (datagrams, bytes), .. } = &mut seat.debt;
        (*datagrams, *bytes) = (*datagrams + 1, *bytes + body.len() as u64);
        let accepted = seat.machine.borrow_mut().handle(port.now(), &mut body).is_ok();
        self.drive(index, port);
        if accepted {
            port.wake(to);
        }
    }

    fn timer(&mut self, token: u32, port: &mut DeviceContext<'_, Vec<u8>>) {
        let Some(seat) = self.seats.get_mut(token as usize) else { return };
        // Timers that an earlier one has overtaken run out in vain.
        if seat.armed == Some(port.now()) {
            seat.armed = None;
            self.drive(token as usize, port);
        }
    }
}
