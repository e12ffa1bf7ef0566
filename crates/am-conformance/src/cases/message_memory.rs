//! Messages of item 23 from memory of segments and into it, beside those of slices: what both have in common.

use super::messages::Ranks;
use crate::world::Failure;
use am_core::Transport;
use am_p2p::{
    Communicator, Message, MessageError, OwnedSend, Pending, ReceiveRequest, SegmentReceive, SegmentSend,
};
use am_p2p::{SendRequest, Source, Status, Tag};
use am_pgas::allocator::{LocalArray, SegmentAllocation};

/// Memory of the segment, if there is some left.
fn memory<T: Transport>(endpoint: &mut Ranks<T>, len: usize) -> Option<LocalArray<u8>> {
    endpoint.allocate_local(len as u64).ok()
}

/// A message that is being sent.
pub(super) enum Sending {
    Own(SendRequest),
    Given(OwnedSend<Vec<u8>>),
    Placed(SegmentSend<LocalArray<u8>>),
}

impl Sending {
    /// Begins to send bytes, from the segment if `placed`; of others, half are copied, and half given away.
    pub(super) fn begin<T: Transport>(
        endpoint: &mut Ranks<T>,
        team: &Communicator,
        (to, tag): (u32, i32),
        bytes: &[u8],
        (synchronous, placed): (bool, bool),
    ) -> Result<Self, Failure> {
        let memory = if placed { memory(endpoint, bytes.len()) } else { None };
        let gives = (bytes.len() as i32).wrapping_add(tag) % 2 == 0;
        let Some(memory) = memory else {
            if gives {
                let bytes = bytes.to_vec();
                return Ok(Self::Given(if synchronous {
                    team.immediate_synchronous_send_owned(endpoint, to, tag, bytes)?
                } else {
                    team.immediate_send_owned(endpoint, to, tag, bytes)?
                }));
            }
            return Ok(Self::Own(if synchronous {
                team.immediate_synchronous_send(endpoint, to, tag, bytes)?
            } else {
                team.immediate_send(endpoint, to, tag, bytes)?
            }));
        };
        endpoint.segment().write(memory.slice().offset(), bytes).expect("it was allocated");
        Ok(Self::Placed(if synchronous {
            team.immediate_synchronous_send_segment(endpoint, to, tag, memory)?
        } else {
            team.immediate_send_segment(endpoint, to, tag, memory)?
        }))
    }

    pub(super) fn pending(&self) -> &dyn Pending {
        match self {
            Self::Own(request) => request,
            Self::Given(request) => request,
            Self::Placed(request) => request,
        }
    }

    pub(super) fn wait<T: Transport>(self, endpoint: &mut Ranks<T>) -> Result<(), MessageError> {
        match self {
            Self::Own(request) => request.wait(endpoint),
            Self::Given(request) => request.wait(endpoint).map(drop),
            Self::Placed(request) => request.wait(endpoint).map(drop),
        }
    }
}

/// A message that is to be received.
pub(super) enum Receiving {
    Own(ReceiveRequest<u8>),
    Placed(SegmentReceive<LocalArray<u8>>),
}

/// What memory of the segment has got.
fn found<T: Transport>(endpoint: &Ranks<T>, (memory, status): (LocalArray<u8>, Status)) -> (Vec<u8>, Status) {
    let mut bytes = vec![0; status.bytes() as usize];
    endpoint.segment().read(memory.slice().offset(), &mut bytes).expect("it was allocated");
    (bytes, status)
}

impl Receiving {
    /// Begins to receive at most `most` bytes, to the segment if `placed`.
    pub(super) fn begin<T: Transport>(
        endpoint: &mut Ranks<T>,
        team: &Communicator,
        (source, tag): (Source, Tag),
        most: usize,
        placed: bool,
    ) -> Result<Self, Failure> {
        let memory = if placed && most != usize::MAX { memory(endpoint, most) } else { None };
        Ok(match memory {
            None => Self::Own(team.immediate_receive(endpoint, source, tag, most)?),
            Some(memory) => Self::Placed(team.immediate_receive_segment(endpoint, source, tag, memory)?),
        })
    }

    pub(super) fn pending(&self) -> &dyn Pending {
        match self {
            Self::Own(request) => request,
            Self::Placed(request) => request,
        }
    }

    /// The bytes, and what is known of the message.
    pub(super) fn wait<T: Transport>(self, endpoint: &mut Ranks<T>) -> Result<(Vec<u8>, Status), MessageError> {
        match self {
            Self::Own(request) => request.wait(endpoint),
            Self::Placed(request) => {
                let received = request.wait(endpoint)?;
                Ok(found(endpoint, received))
            }
        }
    }

    /// Cancels the receive; the request if it has met a message.
    pub(super) fn cancel<T: Transport>(self, endpoint: &mut Ranks<T>) -> Result<Option<Self>, MessageError> {
        Ok(match self {
            Self::Own(request) => request.cancel(endpoint)?.map(Self::Own),
            Self::Placed(request) => request.cancel(endpoint)?.err().map(Self::Placed),
        })
    }
}

/// Receives a message that was set aside, to the segment if `placed`.
pub(super) fn receive_aside<T: Transport>(
    endpoint: &mut Ranks<T>,
    message: Message,
    placed: bool,
) -> Result<(Vec<u8>, Status), Failure> {
    let len = message.status().bytes() as usize;
    let memory = if placed { memory(endpoint, len) } else { None };
    Ok(match memory {
        None => message.receive_vec(endpoint)?,
        Some(memory) => {
            let received = message.receive_segment(endpoint, memory)?;
            found(endpoint, received)
        }
    })
}
