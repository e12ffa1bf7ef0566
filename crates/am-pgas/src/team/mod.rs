//! Teams: ordered sets of ranks, over which collective operations run.

mod shrink;

pub(crate) use shrink::Shrinking;

use crate::collectives::{CollectiveError, Collectives, Learning, Members, Offer, Operation, call, with_engine};
use am_core::{Endpoint, HasLayer, Rank, Transport};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A team of ranks, as one of its members has it. Its members have positions, numbered from 0. Clones are cheap
/// and the same team; when the last is dropped, this member's part of the team goes.
///
/// Every rank takes part with the endpoint that has the same number; so the endpoints with one number, of all
/// ranks, are a world of their own.
///
/// Methods that make teams are collective over the team that they are called on: all of its members call them, in
/// the same order. They agree on the new team's number, so that operations of different teams never meet.
///
/// # Example
///
/// ```
/// use am_core::{Endpoint, Handlers, loopback};
/// use am_pgas::{Pgas, Team};
///
/// let transport = loopback::network(1, loopback::LoopbackConfig::default()).remove(0);
/// let mut handlers = Handlers::<Pgas>::new();
/// let pgas = Pgas::register(&mut handlers)?;
/// let mut endpoint = Endpoint::attach(transport, handlers, pgas)?;
/// let world = Team::world(&mut endpoint)?;
/// let host = world.split_by_host(&mut endpoint)?;
/// assert_eq!((host.size(), host.rank(0), world.position(endpoint.rank())), (1, Some(endpoint.rank()), Some(0)));
/// endpoint.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Team {
    pub(crate) members: Arc<Members>,
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("number", &self.members.context)
            .field("me", &self.members.me)
            .field("ranks", &self.members.ranks)
            .finish()
    }
}

/// Equal if they are the same team of the same member.
impl PartialEq for Team {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.members, &other.members)
    }
}

impl Eq for Team {}

impl Team {
    /// The team of all ranks, by rank. The first call is collective over the job and blocks, since ranks tell each
    /// other of their hosts; later ones give the same team. If a rank is lost before or meanwhile, the team is
    /// there all the same, fails, and can be [shrunk](Self::shrink).
    ///
    /// # Errors
    /// A time-out of the first call; the next call goes on with it. Other errors are those of the team's
    /// operations.
    pub fn world<T: Transport, S: HasLayer<Collectives>>(
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Self, CollectiveError> {
        let layer = endpoint.layer_unscheduled::<Collectives>();
        let world = match layer.world.clone() {
            Some(world) if layer.learning.iter().all(|learning| learning.team != world) => return Ok(world),
            Some(world) => world,
            None => {
                let ranks = (0..endpoint.ranks()).map(Rank).collect();
                let (me, address) = (endpoint.rank().0, endpoint.address());
                let world = Self::open(endpoint, 0, ranks, me, address.endpoint, None);
                endpoint.layer_unscheduled::<Collectives>().world = Some(world.clone());
                world
            }
        };
        world.learn_hosts(endpoint, None)?;
        Ok(world)
    }

    /// Learns the hosts of all members; not if the team fails. Called again after a time-out, it goes on.
    fn learn_hosts<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        from: Option<u32>,
    ) -> Result<(), CollectiveError> {
        let learning = &mut endpoint.layer_unscheduled::<Collectives>().learning;
        let (offer, hosts) = match learning.iter().position(|learning| learning.team == *self) {
            Some(at) => {
                let learning = learning.swap_remove(at);
                (learning.offer, learning.hosts)
            }
            None => {
                let me = endpoint.rank();
                let near = |rank: &&Rank| **rank == me || endpoint.remote_segment(**rank).is_some();
                let host = self.ranks().iter().find(near).map_or(me.0, |rank| rank.0);
                let offer = self.offer(endpoint);
                let [lines, blocks] = offer;
                match self.allgather_nb(endpoint, &[[host, lines, blocks]]) {
                    Ok(hosts) => (offer, hosts),
                    Err(_) => {
                        take_back(endpoint, offer);
                        return Ok(());
                    }
                }
            }
        };
        if let Err(error) = hosts.wait_again(endpoint) {
            let learning = Learning { from, team: self.clone(), offer, hosts };
            endpoint.layer_unscheduled::<Collectives>().learning.push(learning);
            return Err(error);
        }
        match hosts.wait(endpoint) {
            Ok(hosts) => {
                // Set once: only here, at the same place in the order of the team's operations everywhere.
                let _ = self.members.hosts.set(hosts.iter().map(|[host, ..]| *host).collect());
                self.share(endpoint, hosts.iter().map(|[_, offer @ ..]| *offer).collect());
            }
            Err(_) => take_back(endpoint, offer),
        }
        Ok(())
    }

    /// This member's memory for operations through memory that all members share; none if it does not see all of
    /// it.
    fn offer<T: Transport, S: HasLayer<Collectives>>(&self, endpoint: &mut Endpoint<T, S>) -> Offer {
        let most = endpoint.layer_unscheduled::<Collectives>().engine().largest_direct();
        if self.size() < 2 || self.size() as usize > most {
            return [0; 2];
        }
        let mut sees = (0..self.size()).map(|member| endpoint.auxiliary(self.members.address(member)));
        let Some(own) = endpoint.auxiliary(endpoint.address()).filter(|_| sees.all(|memory| memory.is_some()))
        else {
            return [0; 2];
        };
        endpoint.layer_unscheduled::<Collectives>().engine_mut().offer(own.len())
    }

    /// Uses the memory that all members have offered.
    fn share<T: Transport, S: HasLayer<Collectives>>(&self, endpoint: &mut Endpoint<T, S>, offers: Vec<Offer>) {
        let seen = |member: u32| endpoint.auxiliary(self.members.address(member));
        let memory: Vec<_> = (0..self.size()).map(seen).collect();
        with_engine(endpoint, |engine| {
            engine.share(self.members.context, &offers, |member| memory[member].clone());
        });
    }

    /// Makes a team that its members have agreed on.
    fn open<T: Transport, S: HasLayer<Collectives>>(
        endpoint: &mut Endpoint<T, S>,
        context: u32,
        ranks: Vec<Rank>,
        me: u32,
        number: u16,
        parent: Option<u32>,
    ) -> Self {
        // What came for it before may be work.
        let engine = endpoint.layer_mut::<Collectives>().engine_mut();
        let members = Arc::new(Members::new(engine.id, context, ranks, me, number));
        engine.open(&members, parent);
        Self { members }
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.members.ranks.len() as u32
    }

    /// The team's number: the same at all members, and of no other team that one of them is in.
    pub fn number(&self) -> u32 {
        self.members.context
    }

    /// This member's position.
    pub fn me(&self) -> u32 {
        self.members.me
    }

    /// The rank at a position, or `None` beyond the team.
    pub fn rank(&self, position: u32) -> Option<Rank> {
        self.members.ranks.get(position as usize).copied()
    }

    /// The position of a rank, or `None` if it is not in the team.
    pub fn position(&self, rank: Rank) -> Option<u32> {
        self.members.position(rank)
    }

    /// The ranks by position.
    pub fn ranks(&self) -> &[Rank] {
        &self.members.ranks
    }

    /// The position in another team of the member at a position in this one, or `None` if it is in one of them
    /// only.
    pub fn translate(&self, position: u32, other: &Self) -> Option<u32> {
        other.position(self.rank(position)?)
    }

    /// Splits the team: members that give the same colour make a team, in the order of their keys, and of their
    /// positions where keys are equal. Who gives no colour gets no team. Collective; blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn split<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        colour: Option<u32>,
        key: i32,
    ) -> Result<Option<Self>, CollectiveError> {
        let wish = [u32::from(colour.is_none()), colour.unwrap_or(0), key as u32];
        let wishes = self.exchange(endpoint, Operation::Split, wish)?;
        let chosen = |wish: &[u32; 3]| colour.is_some() && wish[..2] == [0, colour.unwrap_or(0)];
        let mut positions: Vec<u32> =
            (0..self.size()).filter(|position| chosen(&wishes.0[*position as usize])).collect();
        positions.sort_by_key(|position| wishes.0[*position as usize][2] as i32);
        self.confirmed(endpoint, &positions, wishes.1)
    }

    /// A team of the same members in the same order, whose operations do not meet those of this one. Collective;
    /// blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`]; also that of an operation in the new team, if that fails at a member that is there
    /// already.
    pub fn duplicate<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Self, CollectiveError> {
        let (_, context) = self.exchange(endpoint, Operation::Duplicate, [0; 3])?;
        let all: Vec<u32> = (0..self.size()).collect();
        let team = self.confirmed(endpoint, &all, context)?;
        Ok(team.expect("every member is in the team"))
    }

    /// The team of the members at some positions, in the order of the list, which all members give alike; none for
    /// those who are not in it. Collective over this team; blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError::NoSuchMember`]; [`CollectiveError::Length`] for a position that stands twice;
    /// [`CollectiveError::ListsDiffer`] on every member if two gave different lists.
    pub fn select<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        positions: &[u32],
    ) -> Result<Option<Self>, CollectiveError> {
        let mut sorted = positions.to_vec();
        sorted.sort_unstable();
        if let Some(member) = sorted.last().filter(|last| **last >= self.size()) {
            let error = CollectiveError::NoSuchMember { member: *member, size: self.size() };
            return Err(self.refuse(endpoint, error));
        }
        sorted.dedup();
        if sorted.len() < positions.len() {
            let what = "the list of members, each of which stands in it once,";
            let error = CollectiveError::Length { what, given: positions.len(), needed: sorted.len() };
            return Err(self.refuse(endpoint, error));
        }
        let hash = positions.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, position| {
            (hash ^ u64::from(*position)).wrapping_mul(0x0100_0000_01b3)
        });
        let wish = [hash as u32, (hash >> 32) as u32, positions.len() as u32];
        let (lists, context) = self.exchange(endpoint, Operation::Select, wish)?;
        if let Some(other) = lists.iter().position(|list| *list != lists[0]) {
            let [(first, first_members), (second, second_members)] =
                [0, other].map(|position| (self.members.ranks[position], lists[position][2]));
            return Err(CollectiveError::ListsDiffer { first, first_members, second, second_members });
        }
        self.confirmed(endpoint, positions, context)
    }

    /// The team of those members whose segments this one sees as memory: the ranks of a host where they share it.
    /// Collective; blocks; allocates.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn split_by_host<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<Self, CollectiveError> {
        let host = self.hosts()[self.me() as usize];
        let team = self.split(endpoint, Some(host), 0)?;
        Ok(team.expect("a colour was given"))
    }

    /// Ends the team for this member. Operations under way go on by themselves; later ones, through clones, are
    /// errors. Does not block and is not collective. The world stays.
    ///
    /// # Errors
    /// A team of another endpoint.
    pub fn destroy<T: Transport, S: HasLayer<Collectives>>(
        self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), CollectiveError> {
        let layer = endpoint.layer_unscheduled::<Collectives>();
        if layer.engine().id != self.members.engine {
            return Err(CollectiveError::NotInTeam);
        }
        if layer.world.as_ref() != Some(&self) {
            layer.engine_mut().close(&self.members);
        }
        Ok(())
    }

    /// The members' hosts by number, each a host of its own where they are not known.
    fn hosts(&self) -> Cow<'_, [u32]> {
        match self.members.hosts.get() {
            Some(hosts) => Cow::Borrowed(hosts),
            None => Cow::Owned(self.members.ranks.iter().map(|rank| rank.0).collect()),
        }
    }

    /// What all members wish, by position, and the number of the team that they make.
    fn exchange<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        operation: Operation,
        [a, b, c]: [u32; 3],
    ) -> Result<(Vec<[u32; 3]>, u32), CollectiveError> {
        let next = endpoint.layer_unscheduled::<Collectives>().engine().next_context;
        let all = self.allgather_words(endpoint, operation, [a, b, c, operation as u32, next])?;
        // Where calls are not compared, members may make teams in different ways.
        let made = |words: &[u32; 5]| Some(call::<[u32; 5]>(Operation::decode(words[3])?, 1, None));
        if let Some(other) = all.iter().position(|words| words[3] != all[0][3])
            && let (Some(first_call), Some(second_call)) = (made(&all[0]), made(&all[other]))
        {
            let (first, second) = (self.members.ranks[0], self.members.ranks[other]);
            return Err(CollectiveError::Mismatch { first, first_call, second, second_call });
        }
        let context = all.iter().map(|[.., next]| *next).max().unwrap_or(next);
        if context == u32::MAX {
            return Err(CollectiveError::TooManyTeams { members: self.size() });
        }
        // Also for those who are not in it: the number is never given again.
        let engine = endpoint.layer_unscheduled::<Collectives>().engine_mut();
        engine.next_context = engine.next_context.max(context);
        Ok((all.into_iter().map(|[a, b, c, ..]| [a, b, c]).collect(), context))
    }

    /// The team of the members at some positions, if this one is among them, once all of them have made it. A
    /// member that is lost before fails it, with this team, at all that have.
    fn confirmed<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        positions: &[u32],
        context: u32,
    ) -> Result<Option<Self>, CollectiveError> {
        let Some(team) = self.among(endpoint, positions, context, Some(self.members.context)) else {
            return Ok(None);
        };
        if let Some(hosts) = self.members.hosts.get() {
            let hosts = positions.iter().map(|position| hosts[*position as usize]).collect();
            team.members.hosts.set(hosts).expect("a new team has no hosts");
        }
        let offer = team.offer(endpoint);
        let offers = team.allgather_nb(endpoint, &[offer]).and_then(|offers| offers.wait(endpoint));
        let offers = offers.inspect_err(|_| take_back(endpoint, offer))?;
        team.share(endpoint, offers);
        endpoint.layer_unscheduled::<Collectives>().engine_mut().confirm(context);
        Ok(Some(team))
    }

    /// The team of the members at some positions, if this one is among them.
    fn among<T: Transport, S: HasLayer<Collectives>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        positions: &[u32],
        context: u32,
        parent: Option<u32>,
    ) -> Option<Self> {
        let me = positions.iter().position(|position| *position == self.me());
        let Some(me) = me else {
            endpoint.layer_unscheduled::<Collectives>().engine_mut().pass(context);
            return None;
        };
        let ranks = positions.iter().map(|position| self.members.ranks[*position as usize]).collect();
        Some(Self::open(endpoint, context, ranks, me as u32, self.members.endpoint, parent))
    }
}

/// Takes back what was offered to a team that this member does not use it for. What it holds names teams, so none
/// of the others takes what another team leaves there for this one's.
fn take_back<T: Transport, S: HasLayer<Collectives>>(endpoint: &mut Endpoint<T, S>, offer: Offer) {
    endpoint.layer_unscheduled::<Collectives>().engine_mut().take_back_offer(offer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::tests::{LONG, play_over, tuned};
    use am_core::Span;

    /// A member whose time-out ends the making of a team takes back what it offered.
    #[test]
    fn time_outs_leak_no_rooms() {
        let direct = play_over(2, tuned(false, true), |endpoint| {
            let world = Team::world(endpoint).unwrap();
            for _ in 0..300 {
                let (_, context) = world.exchange(endpoint, Operation::Duplicate, [0; 3]).unwrap();
                if world.me() == 1 {
                    // It never tells what it offers.
                    endpoint.layer_unscheduled::<Collectives>().engine_mut().pass(context);
                    continue;
                }
                endpoint.set_timeout(Some(Span::from_micros(50)));
                let made = world.confirmed(endpoint, &[0, 1], context);
                assert!(matches!(made, Err(CollectiveError::Wait(_))), "{made:?}");
                endpoint.set_timeout(Some(LONG));
            }
            let last = world.duplicate(endpoint).unwrap();
            Some(endpoint.layer::<Collectives>().engine().shares(last.members.context))
        });
        assert_eq!(direct, [Some(true); 2]);
    }
}
