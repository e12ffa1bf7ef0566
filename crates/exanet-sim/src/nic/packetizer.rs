//! Control packets: the channels that send them and the mailbox that takes them. State machines without a clock.
//!
//! A packet occupies a channel of its sender until the mailbox at the other side has accepted it. One that was
//! refused (NACK) stays in its channel, so that the program can have it sent again without writing it anew, or
//! give it up.

use super::address::Address;
use super::errors::Nack;
use super::mutation::{Defects, Mutation};
use fabric_sim::bytes::PooledBytes;
use std::collections::VecDeque;

/// The most bytes of a control packet.
pub const PACKET: usize = 64;

/// A control packet that has come.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Who sent it.
    pub from: Address,
    len: u8,
    bytes: [u8; PACKET],
}

impl Message {
    pub(crate) fn new(from: Address, bytes: &[u8]) -> Self {
        let mut message = Self { from, len: bytes.len() as u8, bytes: [0; PACKET] };
        message.bytes[..bytes.len()].copy_from_slice(bytes);
        message
    }

    /// Its bytes, at most [`PACKET`].
    pub fn data(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The mailbox of a context.
#[derive(Debug)]
pub(crate) struct Mailbox {
    capacity: usize,
    messages: VecDeque<Message>,
    defects: Defects,
}

impl Mailbox {
    pub(crate) fn new(capacity: u32, defects: Defects) -> Self {
        Self { capacity: capacity as usize, messages: VecDeque::new(), defects }
    }

    /// Takes a packet; whether it has room.
    pub(crate) fn put(&mut self, message: Message) -> bool {
        // Rule 1 of the sheet: a full mailbox refuses.
        let room = self.messages.len() < self.capacity;
        if room {
            self.messages.push_back(message);
        }
        room || self.defects.has(Mutation::DropWhenFull)
    }

    pub(crate) fn take(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// A packet in a channel.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// The rank that it is for.
    pub(crate) to: u32,
    pub(crate) data: PooledBytes,
}

#[derive(Debug)]
enum Channel {
    Free,
    Busy(Letter),
    Refused(Letter, Nack),
}

/// What the channels of a context hold, one bit for each. Those of neither kind are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// A packet that was not answered.
    pub busy: u64,
    /// A packet that was refused.
    pub refused: u64,
}

/// The sending side of a context.
#[derive(Debug)]
pub(crate) struct Packetizer {
    channels: Vec<Channel>,
    state: Channels,
}

impl Packetizer {
    pub(crate) fn new(channels: u32) -> Self {
        Self { channels: (0..channels).map(|_| Channel::Free).collect(), state: Channels::default() }
    }

    pub(crate) const fn state(&self) -> Channels {
        self.state
    }

    pub(crate) fn count(&self) -> u32 {
        self.channels.len() as u32
    }

    pub(crate) const fn in_use(&self) -> u32 {
        (self.state.busy | self.state.refused).count_ones()
    }

    /// Puts a packet into a free channel; `None` if there is none.
    pub(crate) fn claim(&mut self, letter: Letter) -> Option<u32> {
        let channel = (!(self.state.busy | self.state.refused)).trailing_zeros();
        *self.channels.get_mut(channel as usize)? = Channel::Busy(letter);
        self.state.busy |= 1 << channel;
        Some(channel)
    }

    /// The packet that a channel is sending.
    pub(crate) fn letter(&self, channel: u32) -> Option<&Letter> {
        match self.channels.get(channel as usize)? {
            Channel::Busy(letter) => Some(letter),
            _ => None,
        }
    }

    /// The packet was accepted.
    pub(crate) fn accepted(&mut self, channel: u32) {
        self.channels[channel as usize] = Channel::Free;
        self.state.busy &= !(1 << channel);
    }

    /// The packet was refused.
    pub(crate) fn refused(&mut self, channel: u32, nack: Nack) {
        let slot = &mut self.channels[channel as usize];
        let Channel::Busy(letter) = std::mem::replace(slot, Channel::Free) else {
            unreachable!("only packets under way are refused")
        };
        *slot = Channel::Refused(letter, nack);
        self.state.busy &= !(1 << channel);
        self.state.refused |= 1 << channel;
    }

    /// The rank that a refused packet is for, and why it was refused.
    pub(crate) fn refusal(&self, channel: u32) -> Option<(u32, Nack)> {
        match self.channels.get(channel as usize)? {
            Channel::Refused(letter, nack) => Some((letter.to, *nack)),
            _ => None,
        }
    }

    /// A refused packet is under way once more.
    pub(crate) fn again(&mut self, channel: u32) {
        let slot = &mut self.channels[channel as usize];
        let Channel::Refused(letter, _) = std::mem::replace(slot, Channel::Free) else {
            unreachable!("only refused packets are sent again")
        };
        *slot = Channel::Busy(letter);
        self.state.refused &= !(1 << channel);
        self.state.busy |= 1 << channel;
    }

    /// Gives a refused packet up; returns why it was refused.
    pub(crate) fn cancel(&mut self, channel: u32) -> Option<Nack> {
        let slot = self.channels.get_mut(channel as usize)?;
        let Channel::Refused(_, nack) = slot else { return None };
        let nack = *nack;
        *slot = Channel::Free;
        self.state.refused &= !(1 << channel);
        Some(nack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_sim::bytes::Pool;
    use proptest::prelude::*;
    use std::rc::Rc;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Claim,
        Accept(u32),
        Refuse(u32),
        Again(u32),
        Cancel(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Claim),
            2 => (0u32..6).prop_map(Step::Accept),
            2 => (0u32..6).prop_map(Step::Refuse),
            1 => (0u32..6).prop_map(Step::Again),
            1 => (0u32..6).prop_map(Step::Cancel),
        ];
        prop::collection::vec(step, 0..100)
    }

    proptest! {
        /// The channels against a model: a list of states.
        #[test]
        fn channels_hold_what_was_not_accepted(steps in steps()) {
            let pool = Rc::new(Pool::default());
            let (mut real, mut model) = (Packetizer::new(5), ['-'; 5]);
            for step in steps {
                let at = |channel: u32| model.get(channel as usize).copied();
                match step {
                    Step::Claim => {
                        let claimed = real.claim(Letter { to: 7, data: pool.lend_copy(&[1; 40]) });
                        let free = model.iter().position(|state| *state == '-');
                        prop_assert_eq!(claimed, free.map(|channel| channel as u32));
                        free.into_iter().for_each(|channel| model[channel] = 'b');
                    }
                    Step::Accept(channel) if at(channel) == Some('b') => {
                        real.accepted(channel);
                        model[channel as usize] = '-';
                    }
                    Step::Refuse(channel) if at(channel) == Some('b') => {
                        real.refused(channel, Nack::MailboxFull);
                        model[channel as usize] = 'r';
                    }
                    Step::Again(channel) if at(channel) == Some('r') => {
                        prop_assert_eq!(real.refusal(channel), Some((7, Nack::MailboxFull)));
                        real.again(channel);
                        model[channel as usize] = 'b';
                    }
                    Step::Cancel(channel) => {
                        let refused = at(channel) == Some('r');
                        prop_assert_eq!(real.cancel(channel), refused.then_some(Nack::MailboxFull));
                        if refused {
                            model[channel as usize] = '-';
                        }
                    }
                    _ => {}
                }
                let of = |wanted| (0..5).filter(|at| model[*at as usize] == wanted).map(|at| 1 << at).sum();
                prop_assert_eq!(real.state(), Channels { busy: of('b'), refused: of('r') });
                let letters = (0..6).map(|at| real.letter(at).is_some());
                prop_assert!(letters.eq((0..6).map(|at: usize| model.get(at) == Some(&'b'))));
            }
        }

        /// The mailbox against a model: what it takes comes out in order, and it takes no more than it holds.
        #[test]
        fn a_mailbox_takes_what_it_has_room_for(
            puts in prop::collection::vec(any::<bool>(), 0..60), capacity in 1u32..8
        ) {
            let (mut mailbox, mut model) = (Mailbox::new(capacity, Defects::default()), VecDeque::new());
            for (number, put) in puts.into_iter().enumerate() {
                if put {
                    let taken = mailbox.put(Message::new(Address::default(), &[number as u8]));
                    prop_assert_eq!(taken, model.len() < capacity as usize);
                    if taken {
                        model.push_back(number as u8);
                    }
                } else {
                    prop_assert_eq!(mailbox.take().map(|message| message.data()[0]), model.pop_front());
                }
                prop_assert_eq!(mailbox.len(), model.len());
            }
        }
    }
}
