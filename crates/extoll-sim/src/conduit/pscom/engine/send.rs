//! Sending: the queues of connections, whose turn it is, chunk by chunk.

use super::{DATA, Engine, HELLO, LinkError, REFUSAL, RETRY_AFTER, Wire};
use crate::conduit::pscom::stream::Outgoing;
use crate::nic::velo::VeloError;

impl Engine<'_> {
    pub(super) fn enqueue(&mut self, number: u32, message: Outgoing, ticket: u64) {
        self.unsent += 1;
        let connection = &mut self.connections[number as usize];
        if connection.gone {
            self.pool.give(message.into_body());
            return self.finish(ticket);
        }
        connection.queue.push_back((message, ticket));
        self.sends(number);
        if self.connections[number as usize].queue.len() == 1 {
            self.send_chunk();
        }
    }

    /// Puts a connection into the list of those that send.
    pub(super) fn sends(&mut self, number: u32) {
        if !std::mem::replace(&mut self.connections[number as usize].sending, true) {
            self.sending.push_back(number);
            self.stuck = false;
        }
    }

    pub(super) fn finish(&mut self, ticket: u64) {
        self.unsent -= 1;
        if ticket != 0 && self.notes_sends {
            self.sent.push_back(ticket);
        }
    }

    /// Sends a chunk of the connection whose turn it is. Connections that are busy wait for their next turn.
    pub(super) fn send_chunk(&mut self) -> bool {
        if self.stuck || self.refused.is_some_and(|taken| taken < RETRY_AFTER) {
            return false;
        }
        self.stuck = true;
        for _ in 0..self.sending.len() {
            let Some(number) = self.sending.pop_front() else { break };
            match self.send_of(number) {
                Ok(Some(more)) => {
                    self.stuck = false;
                    self.connections[number as usize].sending = more;
                    if more {
                        self.sending.push_back(number);
                    }
                    return true;
                }
                Ok(None) => self.sending.push_back(number),
                Err(error) => {
                    self.stuck = false;
                    self.connections[number as usize].sending = false;
                    self.breaks(number, error);
                    return true;
                }
            }
        }
        false
    }

    /// Sends a chunk of a connection. `None`: it is busy; otherwise whether it has more to send.
    pub(super) fn send_of(&mut self, number: u32) -> Result<Option<bool>, LinkError> {
        if let Wire::Ring { ring, greeted: true, .. } = &self.connections[number as usize].wire {
            if !ring.may_send() && !self.connections[number as usize].queue.is_empty() {
                return Ok(None);
            }
            self.offer_first(number);
        }
        let connection = &mut self.connections[number as usize];
        let mut buffer = [0; 128];
        let len = match &mut connection.wire {
            Wire::Own => return Ok(Some(false)),
            Wire::Ring { ring, hello, greeted } if !*greeted => {
                let nla = ring.nla().0.to_le_bytes();
                match self.velo.send(*hello, &nla, 0, HELLO) {
                    Ok(()) => *greeted = true,
                    Err(VeloError::TryAgain { .. }) => {
                        (self.refused, self.stuck) = (Some(0), false);
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
                return Ok(Some(!connection.queue.is_empty()));
            }
            Wire::Ring { ring, .. } => {
                let Some((message, _)) = connection.queue.front() else { return Ok(Some(false)) };
                match ring.send(message, &mut self.scratch)? {
                    Some(len) => len,
                    // The interface takes no command now.
                    None => {
                        self.stuck = false;
                        return Ok(None);
                    }
                }
            }
            Wire::Velo { page, refuses } if *refuses => {
                match self.velo.send(*page, &[], 0, REFUSAL) {
                    Ok(()) => *refuses = false,
                    Err(VeloError::TryAgain { .. }) => {
                        (self.refused, self.stuck) = (Some(0), false);
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
                return Ok(Some(!connection.queue.is_empty()));
            }
            Wire::Velo { page, .. } => {
                let Some((message, _)) = connection.queue.front() else { return Ok(Some(false)) };
                let len = message.chunk(&mut buffer[..self.unit]);
                match self.velo.send(*page, &buffer[..len], 0, DATA) {
                    Ok(()) => len,
                    Err(VeloError::TryAgain { .. }) => {
                        (self.refused, self.stuck) = (Some(0), false);
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        self.refused = None;
        let (message, _) = connection.queue.front_mut().expect("the chunk was of the first message");
        if message.advance(len) {
            let (message, ticket) = connection.queue.pop_front().expect("the chunk was of the first message");
            self.pool.give(message.into_body());
            self.finish(ticket);
        }
        Ok(Some(!self.connections[number as usize].queue.is_empty()))
    }
}
