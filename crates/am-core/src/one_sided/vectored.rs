//! Puts and gets of many runs: loops where the segment is memory, else messages that carry many runs each.

use super::access::Parts;
use super::operation::{Operation, Owner};
use super::runs::{Described, Runs, describe};
use super::{Done, Got, OneSided, OneSidedError, PIECE, take_in};
use crate::address::{Address, Rank};
use crate::endpoint::Endpoint;
use crate::error::{HandlerFault, RegisterError, SendError};
use crate::handlers::Request;
use crate::layer::{HasLayer, LayerHandlers};
use crate::outcome::{HandlerError, HandlerResult};
use crate::payload::Payload;
use crate::token::Token;
use crate::transport::{Category, Lane, Transport};

/// The handlers that runs travel to: the operation, the form of their description, and their number; of a get
/// before these last where in the answer's buffer the bytes belong. The payload is the description, and of a put
/// the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    put: Request<(u64, u32, u32)>,
    get: Request<(u64, u64, u32, u32)>,
    /// As `get`, but the bytes belong into the requester's segment.
    get_into: Request<(u64, u64, u32, u32)>,
}

/// Reads the runs that a message describes, one after the other.
fn gather<'a>(
    layer: &'a mut OneSided,
    token: &Token<'_>,
    (form, count): (u32, u32),
    payload: &Payload<'_>,
) -> Result<&'a [u8], HandlerError> {
    let message = take_in(payload, &mut layer.scratch)?;
    let (runs, _) = Described::parse(form, count, message)?;
    let bytes = usize::try_from(runs.bytes()).ok().filter(|bytes| *bytes <= PIECE);
    let bytes = bytes.ok_or(HandlerFault("runs have more bytes than the layer's buffer"))?;
    layer.answer.resize(bytes, 0);
    let (segment, mut rest) = (token.segment(), layer.answer.as_mut_slice());
    runs.try_for_each(|offset, len| {
        let (run, others) = std::mem::take(&mut rest).split_at_mut(len as usize);
        rest = others;
        segment.read(offset, run)
    })?;
    Ok(&layer.answer)
}

impl Requests {
    pub(super) fn register<S: HasLayer<OneSided>>(
        layer: &mut LayerHandlers<'_, S, OneSided>,
        done: Done,
        got: Got,
    ) -> Result<Self, RegisterError> {
        let put = layer.request_bounded(
            "put-runs",
            0,
            move |layer: &mut OneSided,
                  token: Token<'_>,
                  (operation, form, count): (u64, u32, u32),
                  payload: Payload<'_>|
                  -> HandlerResult {
                let message = take_in(&payload, &mut layer.scratch)?;
                let (runs, mut bytes) = Described::parse(form, count, message)?;
                if runs.bytes() != bytes.len() as u64 {
                    return Err(HandlerFault("a message has other bytes than its runs").into());
                }
                let segment = token.segment();
                runs.try_for_each(|offset, len| {
                    let (run, rest) = bytes.split_at(len as usize);
                    bytes = rest;
                    segment.write(offset, run)
                })?;
                Ok(token.reply(done, (operation, 0))?)
            },
        )?;
        let get = layer.request_largest(
            "get-runs",
            move |layer: &mut OneSided,
                  token: Token<'_>,
                  (operation, into, form, count): (u64, u64, u32, u32),
                  payload: Payload<'_>|
                  -> HandlerResult {
                let bytes = gather(layer, &token, (form, count), &payload)?;
                Ok(token.reply_medium(got, (operation, into), bytes)?)
            },
        )?;
        let get_into = layer.request_bounded(
            "get-runs-into",
            0,
            move |layer: &mut OneSided,
                  token: Token<'_>,
                  (operation, into, form, count): (u64, u64, u32, u32),
                  payload: Payload<'_>|
                  -> HandlerResult {
                let bytes = gather(layer, &token, (form, count), &payload)?;
                Ok(token.reply_long(done, (operation, 0), bytes, into)?)
            },
        )?;
        Ok(Self { put, get, get_into })
    }
}

/// Bytes that runs which repeat places may have in a segment of fewer.
const REPEATED: u64 = 1 << 30;

impl<T: Transport, S: HasLayer<OneSided>> Endpoint<T, S> {
    /// Checks runs of a rank's segment and the length of their buffer.
    fn runs_fit(&self, rank: Rank, runs: &Runs<'_>, given: Option<u64>) -> Result<(), OneSidedError> {
        let Some(segment) = self.segment_len(rank) else {
            return Err(OneSidedError::NoSuchRank { rank, ranks: self.ranks() });
        };
        let needed = runs.bytes();
        if let Some(given) = given.filter(|given| *given != needed) {
            return Err(OneSidedError::Lengths { given, needed });
        }
        runs.check(segment).map_err(|source| OneSidedError::Segment { rank, source })?;
        // Only runs that repeat places can have more bytes than their segment.
        let (bytes, most) = (needed, segment.max(REPEATED));
        if bytes > most { Err(OneSidedError::TooLarge { bytes, most }) } else { Ok(()) }
    }

    /// Checks what every operation on runs of a rank's segment checks before it begins.
    ///
    /// # Errors
    /// A place outside the job or segment; [`OneSidedError::TooLarge`].
    pub fn check_runs(&self, rank: Rank, runs: &Runs<'_>) -> Result<(), OneSidedError> {
        self.runs_fit(rank, runs, None)
    }

    /// Bytes of one message, besides its arguments, and of the answer to one that asks for bytes.
    pub(super) fn room(&self, to: Address, arguments: usize, bound: u32) -> (u64, u64) {
        let most = |lane, arguments| self.max_payload(to, Category::Medium, lane, arguments).unwrap_or(0);
        let (request, reply) = (most(Lane::Request, arguments), most(Lane::Reply, 4));
        (request.min(PIECE as u64), reply.min(bound.into()).min(PIECE as u64))
    }

    /// Sends the messages of an operation through a buffer that they are built in, one after the other.
    pub(super) fn with_outgoing(
        &mut self,
        id: u64,
        send: impl FnOnce(&mut Self, &mut Vec<u8>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let mut buffer = std::mem::take(&mut self.layer_unscheduled::<OneSided>().outgoing);
        let sent = self.sending(id, Parts::Counted, |endpoint| send(endpoint, &mut buffer));
        let layer = self.layer_unscheduled::<OneSided>();
        layer.outgoing = buffer;
        layer.operations.all_sent(id);
        sent
    }

    pub(super) fn expect_more(&mut self, id: u64) {
        self.layer_unscheduled::<OneSided>().operations.expect_more(id);
    }

    fn put_runs_as(
        &mut self,
        rank: Rank,
        runs: &Runs<'_>,
        bytes: &[u8],
        owner: Owner,
    ) -> Result<Operation<()>, OneSidedError> {
        self.runs_fit(rank, runs, Some(bytes.len() as u64))?;
        if bytes.is_empty() {
            // Runs without bytes can be any number.
            return Ok(Operation::done(0, Vec::new()));
        }
        if let Some(memory) = self.mapped_segment(rank) {
            let mut rest = bytes;
            for (offset, len) in runs.iter() {
                let (run, others) = rest.split_at(len as usize);
                rest = others;
                memory.write(offset, run).map_err(|source| OneSidedError::Segment { rank, source })?;
            }
            return Ok(Operation::done(0, Vec::new()));
        }
        let to = self.target(rank)?;
        let (id, requests) = self.begin(to, 1, 0, owner);
        let sent = self.with_outgoing(id, |endpoint, message| {
            let (room, _) = endpoint.room(to, 4, 0);
            let (mut first, mut rest) = (0, bytes);
            while first < runs.count() {
                message.clear();
                let part = describe(runs, first, room, None, message);
                let Some(part) = part else {
                    let (offset, len) = runs.iter_from(first).next().expect("the run is one of these");
                    let (run, others) = rest.split_at(len as usize);
                    endpoint.put_pieces(to, id, offset, run)?;
                    (first, rest) = (first + 1, others);
                    continue;
                };
                let (run, others) = rest.split_at(part.bytes as usize);
                message.extend_from_slice(run);
                endpoint.expect_more(id);
                endpoint.request_medium(to, requests.runs.put, (id, part.form, part.count), message)?;
                (first, rest) = (first + u64::from(part.count), others);
            }
            Ok(())
        });
        self.started(id, owner, sent)
    }

    /// Writes the bytes to runs of a rank's segment, in their order, and waits until they are there. Of runs that
    /// overlap, it is unspecified which is seen. All runs are checked before anything is written.
    ///
    /// # Errors
    /// As [`Endpoint::put`]; [`OneSidedError::Lengths`] if the runs have more or fewer bytes.
    pub fn put_runs(&mut self, rank: Rank, runs: &Runs<'_>, bytes: &[u8]) -> Result<(), OneSidedError> {
        let operation = self.put_runs_as(rank, runs, bytes, Owner::Handle)?;
        Ok(self.wait(operation)?)
    }

    /// Begins what [`Endpoint::put_runs`] does. The source can be reused when this returns.
    ///
    /// # Errors
    /// As [`Endpoint::put_runs`].
    pub fn put_runs_nb(
        &mut self,
        rank: Rank,
        runs: &Runs<'_>,
        bytes: &[u8],
    ) -> Result<Operation<()>, OneSidedError> {
        self.put_runs_as(rank, runs, bytes, Owner::Handle)
    }

    /// As [`Endpoint::put_runs_nb`], waited for by [`Endpoint::quiet`] or the access region that is open.
    ///
    /// # Errors
    /// As [`Endpoint::put_runs`].
    pub fn put_runs_nbi(&mut self, rank: Rank, runs: &Runs<'_>, bytes: &[u8]) -> Result<(), OneSidedError> {
        self.put_runs_as(rank, runs, bytes, Owner::Quiet).map(drop)
    }

    fn get_runs_direct(&self, rank: Rank, runs: &Runs<'_>, out: &mut [u8]) -> Option<Result<(), OneSidedError>> {
        let memory = self.mapped_segment(rank)?;
        let mut rest = out;
        Some(runs.iter().try_for_each(|(offset, len)| {
            let (run, others) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = others;
            memory.read(offset, run).map_err(|source| OneSidedError::Segment { rank, source })
        }))
    }

    fn begin_get_runs(
        &mut self,
        rank: Rank,
        runs: &Runs<'_>,
    ) -> Result<(u64, Result<(), SendError>), OneSidedError> {
        let to = self.target(rank)?;
        let bytes = usize::try_from(runs.bytes()).unwrap_or(usize::MAX);
        let (id, requests) = self.begin(to, 1, bytes, Owner::Handle);
        let sent = self.with_outgoing(id, |endpoint, message| {
            let (room, brought) = endpoint.room(to, 6, endpoint.reply_bound(requests.runs.get).unwrap_or(0));
            let (mut first, mut into) = (0, 0);
            while first < runs.count() {
                message.clear();
                let part = describe(runs, first, room, Some(brought), message);
                let Some(part) = part else {
                    let (offset, len) = runs.iter_from(first).next().expect("the run is one of these");
                    endpoint.get_pieces(to, id, offset, len as usize, into)?;
                    (first, into) = (first + 1, into + len);
                    continue;
                };
                endpoint.expect_more(id);
                let get = requests.runs.get.reply_up_to(part.bytes as u32);
                endpoint.request_medium(to, get, (id, into, part.form, part.count), message)?;
                (first, into) = (first + u64::from(part.count), into + part.bytes);
            }
            Ok(())
        });
        Ok((id, sent))
    }

    /// Reads runs of a rank's segment, in their order.
    ///
    /// # Errors
    /// As [`Endpoint::get`]; [`OneSidedError::Lengths`] if the runs have more or fewer bytes.
    pub fn get_runs(&mut self, rank: Rank, runs: &Runs<'_>, out: &mut [u8]) -> Result<(), OneSidedError> {
        self.runs_fit(rank, runs, Some(out.len() as u64))?;
        if out.is_empty() {
            return Ok(());
        }
        if let Some(read) = self.get_runs_direct(rank, runs, out) {
            return read;
        }
        let (id, sent) = self.begin_get_runs(rank, runs)?;
        self.take_get(id, sent, out)
    }

    /// Begins to read runs of a rank's segment; [`Endpoint::wait`] returns their bytes. Allocates their buffer.
    ///
    /// # Errors
    /// As [`Endpoint::get`].
    ///
    /// # Panics
    /// If the runs have more bytes than memory can hold.
    pub fn get_runs_nb(&mut self, rank: Rank, runs: &Runs<'_>) -> Result<Operation<Vec<u8>>, OneSidedError> {
        self.runs_fit(rank, runs, None)?;
        if runs.bytes() == 0 {
            return Ok(Operation::done(0, Vec::new()));
        }
        if self.mapped_segment(rank).is_some() {
            let mut bytes = vec![0; usize::try_from(runs.bytes()).expect("the runs fit memory")];
            self.get_runs_direct(rank, runs, &mut bytes).transpose()?;
            return Ok(Operation::done(0, bytes));
        }
        let (id, sent) = self.begin_get_runs(rank, runs)?;
        self.started(id, Owner::Handle, sent)
    }

    /// Begins to read runs of a rank's segment into runs of this rank's own segment, in their order; waited for by
    /// [`Endpoint::quiet`] or the access region that is open. Both sides have equally many bytes, and may be cut
    /// into runs differently. Where both lie in this rank's own segment they may overlap: the bytes are those that
    /// were there before. Of runs of the own segment that overlap each other, it is unspecified which is seen.
    ///
    /// Over messages, each run of the own segment is asked for by itself, and several runs there go into one
    /// message. Allocates a list of the runs of `from` if `into` has more than one, and a buffer for all bytes
    /// where the segment is memory.
    ///
    /// # Errors
    /// As [`Endpoint::put`], for both segments; [`OneSidedError::Lengths`] if the sides have different numbers of
    /// bytes.
    pub fn get_runs_nbi(&mut self, rank: Rank, from: &Runs<'_>, into: &Runs<'_>) -> Result<(), OneSidedError> {
        let (me, bytes) = (self.rank(), into.bytes());
        self.runs_fit(rank, from, Some(bytes))?;
        self.runs_fit(me, into, None)?;
        if bytes == 0 {
            return Ok(());
        }
        if self.mapped_segment(rank).is_some() {
            let mut buffer = vec![0; usize::try_from(bytes).expect("the runs fit memory")];
            self.get_runs_direct(rank, from, &mut buffer).transpose()?;
            return self.put_runs_nbi(me, into, &buffer);
        }
        let to = self.target(rank)?;
        let (id, _) = self.begin(to, 1, 0, Owner::Quiet);
        let sent = self.with_outgoing(id, |endpoint, message| {
            if let (1, Some((at, _))) = (into.count(), into.iter().next()) {
                return endpoint.get_runs_to(to, id, from, at, message);
            }
            let (mut list, mut there, mut rest) = (Vec::new(), from.iter(), (0, 0));
            for (at, len) in into.iter() {
                list.clear();
                let mut left = len;
                while left > 0 {
                    if rest.1 == 0 {
                        rest = there.next().expect("both sides have as many bytes");
                        continue;
                    }
                    let part = left.min(rest.1);
                    list.push((rest.0, part));
                    (rest, left) = ((rest.0 + part, rest.1 - part), left - part);
                }
                endpoint.get_runs_to(to, id, &Runs::List(&list), at, message)?;
            }
            Ok(())
        });
        self.started::<()>(id, Owner::Quiet, sent).map(drop)
    }

    /// Asks for runs that belong at a byte offset of this rank's own segment.
    fn get_runs_to(
        &mut self,
        to: Address,
        id: u64,
        from: &Runs<'_>,
        into: u64,
        message: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        let longest = self.max_payload(to, Category::Long, Lane::Reply, 2).unwrap_or(u64::MAX);
        let ((room, _), brought) = (self.room(to, 6, 0), longest.min(PIECE as u64));
        let (request, mut first, mut at) = (self.layer::<OneSided>().requests.runs.get_into, 0, into);
        while first < from.count() {
            message.clear();
            // One run needs no description, and the network may bring it by itself.
            let part = if from.count() == 1 { None } else { describe(from, first, room, Some(brought), message) };
            let Some(part) = part else {
                let (offset, len) = from.iter_from(first).next().expect("the run is one of these");
                self.get_pieces_into(to, id, offset, len, at)?;
                (first, at) = (first + 1, at + len);
                continue;
            };
            self.expect_more(id);
            self.request_medium(to, request, (id, at, part.form, part.count), message)?;
            (first, at) = (first + u64::from(part.count), at + part.bytes);
        }
        Ok(())
    }
}
