//! The reliable channels between processes: sequence numbers on the way out, judgement on the way in, reports
//! back, and the repair of what the network loses.

use super::address::Address;
use super::device::{Extoll, KINDS, OVERDUE, RESEND, RMA_TX, VELO_TX};
use super::mutation::Mutation;
use super::replay::{Progress, Receiver, Sender, TELL_EVERY, Verdict, WINDOW};
use super::rma::wire::Message;
use super::velo::mailbox::Letter;
use am_core::{Instant, Span};
use fabric_sim::bytes::PooledBytes;
use fabric_sim::{DeviceContext, Outgoing, Packet, PacketId, StageTimes};

/// The channels of a pair of processes. Each is in order and reliable by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Velo,
    /// Commands.
    Request,
    /// Answers, which must not wait behind commands.
    Response,
}

/// What travels on a channel.
#[derive(Clone)]
pub(crate) enum Frame<D = PooledBytes> {
    Velo(Letter<D>),
    Rma(Message<D>),
}

/// What packets of the simulated network carry. Opaque: only interfaces look inside.
#[derive(Clone)]
pub struct Wire<D = PooledBytes>(pub(crate) Body<D>);

#[derive(Clone)]
pub(crate) enum Body<D = PooledBytes> {
    Frame {
        channel: Channel,
        sequence: u8,
        frame: Frame<D>,
    },
    Progress {
        channel: Channel,
        progress: Progress,
        replay: bool,
    },
    /// A timer of the sending interface; it never leaves it.
    Aside,
}

impl<D> Wire<D> {
    /// The same with its bytes in another form.
    pub(crate) fn map<E>(self, bytes: impl FnOnce(D) -> E) -> Wire<E> {
        Wire(match self.0 {
            Body::Frame { channel, sequence, frame } => {
                let frame = match frame {
                    Frame::Velo(letter) => Frame::Velo(letter.map(bytes)),
                    Frame::Rma(message) => Frame::Rma(message.map(bytes)),
                };
                Body::Frame { channel, sequence, frame }
            }
            Body::Progress { channel, progress, replay } => Body::Progress { channel, progress, replay },
            Body::Aside => Body::Aside,
        })
    }
}

impl<D> std::fmt::Debug for Wire<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

/// How large a packet is and how it passes the units.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) bytes: u32,
    pub(crate) header: u32,
    /// Wire fragments.
    pub(crate) fragments: u32,
}

/// The sending side of a channel.
pub(crate) struct Outbound {
    pub(super) from: u32,
    to: u32,
    channel: Channel,
    pub(crate) sender: Sender<(Frame, Size)>,
    /// When the last packet has left the unit.
    idle_at: Instant,
    timed: bool,
    deadline: Instant,
    tries: u32,
    /// The receiver is out of reach.
    pub(crate) broken: bool,
}

/// The receiving side of a channel.
pub(crate) struct Inbound {
    pub(super) local: u32,
    from: u32,
    address: Address,
    channel: Channel,
    receiver: Receiver,
    /// When the last packet came out of the unit.
    pub(super) last: Instant,
    /// A packet that waits for the next one to overtake it, if the interface is broken like that.
    swapped: Option<Box<Packet<Wire>>>,
}

/// Fruitless retries after which a sender's departure no longer waits for what is under way.
const PATIENT_TRIES: u32 = 8;

/// Bytes of a progress report on the wire.
const REPORT: u32 = 16;

/// The network's channel of reports, which wait for no data.
const REPORTS: u8 = Channel::Response as u8 + 1;

impl Extoll {
    /// The sending side of a channel, by number.
    pub(crate) fn outbound(&mut self, local: u32, to: u32, channel: Channel) -> u32 {
        let from = self.processes[local as usize].rank;
        let plain = self.shared.defects.has(Mutation::PlainCompare);
        self.outbound.number(local, to, channel as u8, || Outbound {
            from,
            to,
            channel,
            sender: if plain { Sender::broken() } else { Sender::default() },
            idle_at: Instant::default(),
            timed: false,
            deadline: Instant::default(),
            tries: 0,
            broken: false,
        })
    }

    /// Sends a frame on a channel that has room. Returns when it was in the unit.
    pub(crate) fn dispatch(
        &mut self,
        number: u32,
        frame: Frame,
        size: Size,
        port: &mut DeviceContext<'_, Wire>,
    ) -> StageTimes {
        let timeout = self.shared.costs.timeout;
        let lossy = self.shared.lossy;
        let outbound = self.outbound.at(number);
        // Each fragment has a number and a place in the ring.
        let sequence = outbound.sender.push(lossy.then(|| (frame.clone(), size)), size.fragments as u8);
        let served = self.transmit(number, sequence, frame, size, port);
        let outbound = self.outbound.at(number);
        if lossy && !outbound.timed {
            (outbound.timed, outbound.deadline) = (true, served.leaves + timeout);
            self.time_overdue(number, port);
        }
        served
    }

    fn transmit(
        &mut self,
        number: u32,
        sequence: u8,
        frame: Frame,
        size: Size,
        port: &mut DeviceContext<'_, Wire>,
    ) -> StageTimes {
        let outbound = self.outbound.at(number);
        let Outbound { from, to, channel, .. } = *outbound;
        let about = PacketId { number: port.number(), from, to };
        let (stage, translate) = match channel {
            Channel::Velo => (VELO_TX, Span::ZERO),
            _ => (RMA_TX, self.shared.costs.translate),
        };
        let served = port.serve(stage, port.now(), size.bytes, about);
        // The first fragment of several goes out while the unit works on the others.
        let others = Span(self.shared.costs.tx_gap.0 * u64::from(size.fragments - 1));
        let at = Instant((served.leaves + port.slowed(translate)).0 - port.slowed(others).0);
        outbound.idle_at = at;
        let body = Wire(Body::Frame { channel, sequence, frame });
        let (bytes, header, at) = (size.bytes, Some(size.header), Some(at));
        let number = Some(about.number);
        port.send_as(Outgoing {
            header,
            at,
            number,
            channel: channel as u8,
            ..Outgoing::new(from, to, bytes, body)
        });
        served
    }

    /// A packet of a channel, which stands for so many, has found its place. Tells its sender once in a while.
    #[inline]
    pub(crate) fn commit(&mut self, number: u32, count: u8, port: &mut DeviceContext<'_, Wire>) {
        let every = if self.shared.lossy { 1 } else { TELL_EVERY };
        if self.inbound.at(number).receiver.commit(count, every) {
            self.tell(number, false, port);
        }
    }

    /// Who sends on a channel: its address.
    pub(crate) fn partner(&mut self, number: u32) -> Address {
        self.inbound.at(number).address
    }

    /// Who sends on a channel, and which of the two RMA channels it is.
    pub(crate) fn sender(&mut self, number: u32) -> (u32, Channel) {
        let Inbound { from, channel, .. } = self.inbound.at(number);
        (*from, *channel)
    }

    /// The number of the channel that a packet comes by.
    fn inbound_number(&mut self, packet: &Packet<Wire>, channel: Channel) -> u32 {
        let (local, from, directory) = (self.local(packet.to), packet.from, &self.shared.directory);
        let make = || Inbound {
            local,
            from,
            address: directory.of(from),
            channel,
            receiver: Receiver::default(),
            last: Instant(0),
            swapped: None,
        };
        self.inbound.number(local, from, channel as u8, make)
    }

    fn tell(&mut self, number: u32, replay: bool, port: &mut DeviceContext<'_, Wire>) {
        let Inbound { local, from, channel, receiver, .. } = self.inbound.at(number);
        let body = Wire(Body::Progress { channel: *channel, progress: receiver.tell(), replay });
        let rank = self.processes[*local as usize].rank;
        let report = Outgoing::new(rank, *from, 0, body);
        port.send_as(Outgoing { header: Some(REPORT), channel: REPORTS, ..report });
    }

    /// A receiver has told how far it is.
    pub(super) fn progress(
        &mut self,
        packet: &Packet<Wire>,
        channel: Channel,
        progress: Progress,
        replay: bool,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let local = self.local(packet.to);
        let number = self.outbound(local, packet.from, channel);
        let timeout = self.shared.costs.timeout;
        let outbound = self.outbound.at(number);
        let (moved, open) = outbound.sender.progress(progress);
        if moved {
            (outbound.tries, outbound.deadline) = (0, port.now() + timeout);
        }
        if replay {
            self.flag(number, port);
        }
        if open {
            self.room(number, port);
        }
    }

    /// Puts the retry flag up and plans to send again once the sender is idle.
    fn flag(&mut self, number: u32, port: &mut DeviceContext<'_, Wire>) {
        if self.shared.defects.has(Mutation::NoReplay) {
            return;
        }
        // Rule 6 of the sheet: everything from the lost packet on is sent again.
        let idle = port.slowed(self.shared.costs.idle);
        let outbound = self.outbound.at(number);
        if outbound.sender.flag() {
            port.timer(outbound.idle_at.max(port.now()) + idle, number * KINDS + RESEND);
        }
    }

    /// The sender is idle: what is not committed is sent again.
    pub(super) fn resend(&mut self, number: u32, port: &mut DeviceContext<'_, Wire>) {
        let outbound = self.outbound.at(number);
        if !outbound.sender.retrying() {
            return;
        }
        let (packets, open) = outbound.sender.replay();
        for (sequence, (frame, size)) in packets {
            self.counters.resent += 1;
            self.transmit(number, sequence, frame, size, port);
        }
        if open {
            self.room(number, port);
        }
    }

    /// The deadline of a channel may have passed.
    pub(super) fn overdue(&mut self, number: u32, port: &mut DeviceContext<'_, Wire>) {
        let (timeout, limit) = (self.shared.costs.timeout, self.shared.parameters.retry.limit);
        let outbound = self.outbound.at(number);
        outbound.timed = false;
        // What has been delivered will be committed, if only the process reads; that matters when nothing more may
        // be sent.
        if outbound.sender.undelivered() == 0 && outbound.sender.uncommitted() < WINDOW {
            return;
        }
        if outbound.deadline <= port.now() {
            outbound.tries += 1;
            if outbound.tries > limit {
                // It has everything and only does not read; it will tell when it does.
                if outbound.sender.undelivered() == 0 {
                    return;
                }
                outbound.broken = true;
                self.counters.abandoned += u64::from(outbound.sender.abandon());
                return self.room(number, port);
            }
            outbound.deadline = port.now() + Span(timeout.0 << outbound.tries.min(40));
            self.flag(number, port);
        }
        self.outbound.at(number).timed = true;
        self.time_overdue(number, port);
    }

    /// Asks at its deadline whether what a channel has sent has arrived. Until then something counts as under way,
    /// so that a rank's departure is not known before its last packets have come, unless the receiver seems to be
    /// gone.
    fn time_overdue(&mut self, number: u32, port: &mut DeviceContext<'_, Wire>) {
        let Outbound { from, to, deadline, tries, .. } = *self.outbound.at(number);
        let token = number * KINDS + OVERDUE;
        if tries > PATIENT_TRIES {
            return port.timer(deadline, token);
        }
        Self::set_aside(from, to, deadline, token, port);
    }

    /// A channel that refused has room now.
    fn room(&mut self, number: u32, port: &mut DeviceContext<'_, Wire>) {
        let Outbound { from, channel, .. } = *self.outbound.at(number);
        let local = self.local(from);
        match channel {
            Channel::Velo => port.wake(from),
            Channel::Request => self.run_commands(local, 0, port),
            Channel::Response => self.run_commands(local, 1, port),
        }
    }

    /// A frame has reached the interface: it is judged by its number and passes the receiving unit.
    pub(super) fn take(
        &mut self,
        mut packet: Packet<Wire>,
        channel: Channel,
        sequence: u8,
        port: &mut DeviceContext<'_, Wire>,
    ) {
        let number = self.inbound_number(&packet, channel);
        let count = match &packet.body {
            Wire(Body::Frame { frame: Frame::Rma(message), .. }) => message.packets(&self.shared.pace),
            _ => 1,
        };
        let inbound = self.inbound.at(number);
        if packet.corrupt {
            self.counters.spoilt += 1;
            let Wire(Body::Frame { frame: Frame::Velo(letter), .. }) = &mut packet.body else { return };
            // Rule 6 of the sheet: a spoilt packet is treated as a lost one.
            if !self.shared.defects.has(Mutation::TakeSpoilt) {
                return;
            }
            letter.error = true;
        }
        if self.shared.defects.has(Mutation::AnySequence) {
            inbound.receiver.take_any(count);
        } else {
            // Rules 1 and 6 of the sheet: packets of a channel are taken once, in the order of their numbers; each
            // unit has channels of its own.
            match inbound.receiver.judge(sequence, count) {
                Verdict::Take => {}
                Verdict::Known => {
                    self.counters.repeated += 1;
                    return self.tell(number, false, port);
                }
                Verdict::Missing => return self.tell(number, true, port),
                Verdict::Waiting => return,
            }
        }
        if self.shared.defects.has(Mutation::SwapPackets) && channel == Channel::Velo {
            let Some(earlier) = inbound.swapped.take() else {
                inbound.swapped = Some(Box::new(packet));
                return;
            };
            self.pass(number, packet, channel, port);
            return self.pass(number, *earlier, channel, port);
        }
        self.pass(number, packet, channel, port);
    }
}
