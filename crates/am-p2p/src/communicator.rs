//! Communicators: teams whose members send each other messages.

use crate::collectives::collective_context;
use crate::config::{Counts, Protocol};
use crate::error::{AskedBytes, AskedTag, MessageError};
use crate::kind::ElementType;
use crate::layer::{self, Dropped, Messages};
use crate::machine::{ANY, Failure, MessageInfo, Selector};
use am_core::{Endpoint, HasLayer, PeerStatus, Rank, Transport};
use am_pgas::Team;
use am_pgas::allocator::SegmentAllocator;
use am_pgas::collectives::{Collectives, Min};
use am_pgas::pointer::Element;
use std::sync::Arc;

/// Whom a message is to come from: a member's position, or any member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The member at this position.
    Member(u32),
    /// Any member.
    Any,
}

/// Any member, as a source.
pub const ANY_SOURCE: Source = Source::Any;

impl From<u32> for Source {
    fn from(member: u32) -> Self {
        Self::Member(member)
    }
}

/// Which tag a message is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// This one.
    Is(i32),
    /// Any.
    Any,
}

/// Any tag.
pub const ANY_TAG: Tag = Tag::Any;

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Self::Is(tag)
    }
}

/// What is known of a message that was received or probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub(crate) source: u32,
    pub(crate) tag: i32,
    pub(crate) bytes: u64,
    pub(crate) kind: u32,
}

impl Status {
    /// The sender's position in the communicator.
    pub fn source_rank(&self) -> u32 {
        self.source
    }

    /// The message's tag.
    pub fn tag(&self) -> i32 {
        self.tag
    }

    /// Bytes of the message.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Elements of a type that the message holds: whole ones.
    pub fn count<V: Element>(&self) -> usize {
        (self.bytes / (size_of::<V>() as u64).max(1)) as usize
    }

    /// The type of the message's elements.
    pub fn element_type(&self) -> ElementType {
        ElementType::from_number(self.kind)
    }
}

/// A team whose members send each other messages, as one of them has it. Ranks are positions in the team, from 0.
///
/// Communicators of different teams never see each other's messages; those that are made from the same team are
/// the same. Messages of one member to another in a communicator do not overtake each other: of two that a receive
/// could get, it gets the one that was sent first.
///
/// Methods that make communicators are collective over the one that they are called on. A method that fails for a
/// lost rank leaves the communicator usable among the others.
///
/// # Blocking
///
/// Whoever waits serves everything that arrives at the endpoint. A blocking send returns when its buffer can be
/// used again: at once where the message goes eagerly, else when the receiver has come. Two ranks that send each
/// other long messages before they receive wait for each other, as MPI allows; with [`Endpoint::set_timeout`] that
/// ends as an error with a report. [`send_receive_into`](Self::send_receive_into) never does.
///
/// Clones are cheap, and the same communicator.
#[derive(Clone, Debug)]
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
}

/// What the clones of a communicator and its requests share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) team: Team,
    pub(crate) context: u32,
    /// Which endpoint's layer it belongs to.
    pub(crate) layer: u64,
    /// Where requests go that are dropped.
    pub(crate) dropped: Arc<Dropped>,
}

impl Communicator {
    /// The communicator of all ranks. The first call is collective over the job and blocks; later ones give the
    /// same communicator.
    ///
    /// # Errors
    /// As [`Team::world`].
    pub fn world<T: Transport, S>(endpoint: &mut Endpoint<T, S>) -> Result<Self, MessageError>
    where
        S: HasLayer<Messages> + HasLayer<Collectives> + HasLayer<SegmentAllocator>,
    {
        let team = Team::world(endpoint)?;
        Ok(Self::of(endpoint, team))
    }

    /// The communicator of a team. The first call at an endpoint allocates memory of its segment for long
    /// messages; not collective.
    pub fn of<T: Transport, S>(endpoint: &mut Endpoint<T, S>, team: Team) -> Self
    where
        S: HasLayer<Messages> + HasLayer<SegmentAllocator>,
    {
        layer::set_up(endpoint);
        Self::made(endpoint, team)
    }

    /// A communicator of the same members, whose messages never meet those of this one. Collective; blocks.
    ///
    /// # Errors
    /// As [`Team::duplicate`].
    pub fn duplicate<T: Transport, S: HasLayer<Messages> + HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Self, MessageError> {
        let team = self.shared.team.duplicate(endpoint)?;
        Ok(Self::made(endpoint, team))
    }

    /// Splits the communicator as [`Team::split`] does. Collective; blocks.
    ///
    /// # Errors
    /// As [`Team::split`].
    pub fn split<T: Transport, S: HasLayer<Messages> + HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        colour: Option<u32>,
        key: i32,
    ) -> Result<Option<Self>, MessageError> {
        let team = self.shared.team.split(endpoint, colour, key)?;
        Ok(team.map(|team| Self::made(endpoint, team)))
    }

    /// The communicator of a group of members, in the order of their positions in the list; none for those who are
    /// not in it. Collective over this one; blocks.
    ///
    /// # Errors
    /// As [`Team::select`].
    pub fn group<T: Transport, S: HasLayer<Messages> + HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        members: &[u32],
    ) -> Result<Option<Self>, MessageError> {
        let team = self.shared.team.select(endpoint, members)?;
        Ok(team.map(|team| Self::made(endpoint, team)))
    }

    /// Chooses how long messages travel from now on, in all communicators, and what is sent eagerly. Collective
    /// over all ranks, in a communicator of all; blocks.
    ///
    /// # Errors
    /// [`MessageError::NotAllRanks`] in a communicator of fewer; [`MessageError::UnderWay`] on all ranks if at any
    /// one is under way, or waits for its receive, in any communicator: nothing has changed then. What the
    /// collective operations of this call fail with.
    pub fn choose<T: Transport, S: HasLayer<Messages> + HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        protocol: Protocol,
        eager: usize,
    ) -> Result<(), MessageError> {
        self.check_endpoint(endpoint)?;
        let (size, ranks) = (self.size(), endpoint.ranks());
        if size != ranks {
            return Err(MessageError::NotAllRanks { size, ranks });
        }
        let (team, medium) = (&self.shared.team, layer::medium(endpoint).0);
        team.barrier(endpoint)?;
        let [sends, receives, unasked] = endpoint.layer_unscheduled::<Messages>().machine.used();
        let idle = [sends, receives, unasked] == [0; 3];
        // All of them, or none.
        let all_idle = team.allreduce_one(endpoint, u8::from(idle), Min)? == 1;
        if all_idle {
            endpoint.layer_unscheduled::<Messages>().machine.choose(protocol, eager, medium);
        }
        team.barrier(endpoint)?;
        if all_idle { Ok(()) } else { Err(MessageError::UnderWay { sends, receives, unasked }) }
    }

    fn made<T: Transport, S: HasLayer<Messages>>(endpoint: &mut Endpoint<T, S>, team: Team) -> Self {
        let (context, layer) = (team.number(), endpoint.layer_unscheduled::<Messages>());
        for context in [context, collective_context(context)] {
            layer.machine.open(context, team.ranks().iter().map(|rank| rank.0));
        }
        let shared = Shared { team, context, layer: layer.id, dropped: Arc::clone(&layer.dropped) };
        Self { shared: Arc::new(shared) }
    }

    /// Ends the communicator for this member: receives that have met no message fail, messages that nobody has
    /// asked for go, and later ones are errors, here and for those who wait to send them. Does not block and is
    /// not collective. The world's messages end, too; its team stays.
    ///
    /// # Errors
    /// A communicator of another endpoint.
    pub fn free<T: Transport, S: HasLayer<Messages> + HasLayer<Collectives>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        self.check_endpoint(endpoint)?;
        let layer = endpoint.layer_mut::<Messages>();
        layer.forget_handles();
        for context in [self.shared.context, collective_context(self.shared.context)] {
            layer.machine.close(context);
        }
        Ok(self.shared.team.clone().destroy(endpoint)?)
    }

    /// The team.
    pub fn team(&self) -> &Team {
        &self.shared.team
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.shared.team.size()
    }

    /// This member's position.
    pub fn rank(&self) -> u32 {
        self.shared.team.me()
    }

    /// What has been counted so far at this endpoint, in all communicators.
    pub fn counts<T: Transport, S: HasLayer<Messages>>(&self, endpoint: &Endpoint<T, S>) -> Counts {
        endpoint.layer::<Messages>().counts()
    }

    /// Lets receives from any source go on although members are lost that are known to be by now. Returns these
    /// members.
    pub fn acknowledge_losses<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Vec<u32> {
        let lost = |rank: &Rank| {
            let faulty = matches!(endpoint.layer::<Messages>().machine.gone(rank.0), Some(Failure::Gone(Some(_))));
            faulty || matches!(endpoint.status(*rank), Some(PeerStatus::Lost(_)))
        };
        let lost: Vec<Rank> = self.shared.team.ranks().iter().copied().filter(lost).collect();
        let layer = endpoint.layer_unscheduled::<Messages>();
        for rank in &lost {
            if !layer.acknowledged.contains(rank) {
                layer.acknowledged.push(*rank);
            }
        }
        lost.into_iter().filter_map(|rank| self.shared.team.position(rank)).collect()
    }

    #[inline]
    pub(crate) fn check_endpoint<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        let layer = endpoint.layer_unscheduled::<Messages>();
        // What was dropped before comes before what is asked for now.
        layer.process_dropped();
        if layer.id == self.shared.layer { Ok(()) } else { Err(MessageError::Foreign) }
    }

    /// The rank at a position, which a message with a tag is for or from.
    #[inline]
    pub(crate) fn member(&self, member: u32, tag: impl Into<Tag>) -> Result<Rank, MessageError> {
        self.shared.team.rank(member).ok_or_else(|| {
            let tag = if let Tag::Is(tag) = tag.into() { Some(tag) } else { None };
            MessageError::NoSuchMember { member, size: self.size(), tag: Some(AskedTag(tag)) }
        })
    }

    /// A tag as messages have it.
    #[inline]
    pub(crate) fn tag(tag: i32) -> Result<u32, MessageError> {
        u32::try_from(tag).map_err(|_| MessageError::BadTag { tag })
    }

    #[inline]
    pub(crate) fn selector(&self, source: Source, tag: Tag) -> Result<Selector, MessageError> {
        let source = match source {
            Source::Member(member) => self.member(member, tag)?.0,
            Source::Any => ANY,
        };
        let tag = match tag {
            Tag::Is(tag) => Self::tag(tag)?,
            Tag::Any => ANY,
        };
        Ok(Selector { context: self.shared.context, source, tag })
    }

    pub(crate) fn status(&self, info: MessageInfo) -> Status {
        let source = self.shared.team.position(Rank(info.from)).unwrap_or(0);
        Status { source, tag: info.tag as i32, bytes: info.len, kind: info.kind }
    }

    /// Why nothing can come for a receive that has met no message, although no peer that it names is gone.
    pub(crate) fn cannot_come<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        bytes: AskedBytes,
    ) -> Option<MessageError> {
        // A message that was let go may be what its sender waits for.
        layer::note_dropped(endpoint);
        if selector.source == ANY {
            return self
                .no_sender_left(endpoint, selector, bytes)
                .or_else(|| self.all_starved(endpoint, selector));
        }
        let messages = endpoint.layer_unscheduled::<Messages>().machine.starved(selector.source)?;
        Some(MessageError::Exhausted { rank: Rank(selector.source), tag: AskedTag::of(selector.tag), messages })
    }

    /// Whether no member may send anything before one of its messages is received; the first such member.
    fn all_starved<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
    ) -> Option<MessageError> {
        let (me, machine) = (endpoint.rank(), &endpoint.layer_unscheduled::<Messages>().machine);
        let (mut first, tag) = (None, AskedTag::of(selector.tag));
        for rank in self.shared.team.ranks() {
            match machine.starved(rank.0) {
                Some(messages) => {
                    first.get_or_insert(MessageError::Exhausted { rank: *rank, tag, messages });
                }
                // This rank sends nothing while it waits.
                None if *rank == me && machine.has_heard_all(me.0) => {}
                None if machine.gone(rank.0).is_some() => {}
                None => return None,
            }
        }
        first
    }

    /// Why nothing can come for a receive from any source, if so.
    pub(crate) fn no_sender_left<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        selector: Selector,
        bytes: AskedBytes,
    ) -> Option<MessageError> {
        if endpoint.layer_unscheduled::<Messages>().machine.is_closed(self.shared.context) {
            return Some(MessageError::freed(selector.source, selector.tag, bytes));
        }
        let me = endpoint.rank();
        let (mut others, mut gone) = (0, None);
        let layer = endpoint.layer_unscheduled::<Messages>();
        for rank in self.shared.team.ranks().iter().filter(|rank| **rank != me) {
            // Not what the endpoint knows of it, which may be more than what it sent.
            let Some(failure) = layer.machine.gone(rank.0) else {
                others += 1;
                continue;
            };
            let Failure::Gone(cause) = failure else { continue };
            let error = MessageError::gone(rank.0, selector.tag, bytes, cause);
            if cause.is_some() && !layer.acknowledged.contains(rank) {
                return Some(error);
            }
            gone = Some(error);
        }
        gone.filter(|_| others == 0)
    }
}
