//! Collective operations as messages between two members each: the algorithms of message-passing libraries, beside
//! those of [`Team`](am_pgas::Team), which need no messages that are matched.

use crate::communicator::Communicator;
use crate::error::MessageError;
use crate::kind::ElementType;
use crate::layer::Messages;
use crate::machine::{Mode, Selector, zeroes};
use crate::messages::Outgoing;
use am_core::zerocopy::IntoBytes;
use am_core::{Endpoint, HasLayer, Transport};
use am_pgas::collectives::Operator;
use am_pgas::pointer::Element;

/// The communicator whose messages are those of collective operations on the one with a number.
pub(crate) const fn collective_context(number: u32) -> u32 {
    // Teams are numbered from 0, and no job makes so many of them.
    number ^ 1 << 31
}

/// What is in a call's tag beside its number, so that operations that differ between members do not meet.
#[derive(Clone, Copy)]
enum Operation {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
}

/// The tag of the messages of one call. Every member numbers its calls, so that messages that a failed call has
/// left behind meet no later one.
#[derive(Clone, Copy)]
struct Call(i32);

/// A communicator's collective operations as two-sided messages: [`Communicator::two_sided`].
///
/// They are made of blocking sends and receives, and travel by the [`Protocol`](crate::Protocol) of all messages;
/// no message of the program meets one of theirs, whatever its receives ask for. `n` is the number of members.
///
/// | operation | algorithm | rounds |
/// |---|---|---|
/// | [`barrier`](Self::barrier) | dissemination | ⌈log2 n⌉ |
/// | [`broadcast`](Self::broadcast), [`reduce`](Self::reduce), [`gather`](Self::gather), [`scatter`](Self::scatter) | binomial tree | ⌈log2 n⌉ |
/// | [`allreduce`](Self::allreduce) | recursive doubling | ⌊log2 n⌋, 2 more if n is no power of two |
/// | [`allgather`](Self::allgather) | ring | n - 1 |
/// | [`alltoall`](Self::alltoall) | exchanges of pairs | n - 1 |
///
/// All members call the same operations in the same order, with slices of the same lengths.
///
/// # Errors
/// Each operation fails as its sends and receives do: a member that is lost, or has freed the communicator;
/// elements of another type; [`MessageError::Truncated`] and [`MessageError::Length`] where slices differ in
/// length; a root that there is not; a time-out. Who meets such an error returns at once, and those who wait for
/// this member learn of it only when it leaves: without [`Endpoint::set_timeout`] they may wait for ever. What
/// others have sent for a call that failed here is kept until the communicator is [freed](Communicator::free), and
/// met by no later call, as long as all members make as many calls: to go on after an error is for a
/// [duplicate](Communicator::duplicate). The operations of [`Team`](am_pgas::Team) tell all members.
#[derive(Clone, Copy, Debug)]
pub struct TwoSided<'c> {
    communicator: &'c Communicator,
}

impl Communicator {
    /// Collective operations as messages. What [`team`](Self::team) has are this project's own, which are faster.
    pub fn two_sided(&self) -> TwoSided<'_> {
        TwoSided { communicator: self }
    }
}

impl TwoSided<'_> {
    /// Begins a call, before anything of it is checked: members that fail count it, too.
    fn begin<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        operation: Operation,
    ) -> Result<Call, MessageError> {
        self.communicator.check_endpoint(endpoint)?;
        let number = endpoint.layer_unscheduled::<Messages>().machine.next_operation(self.context());
        Ok(Call((number & 0x0fff_ffff) as i32 * 8 + operation as i32))
    }

    fn me(&self) -> u32 {
        self.communicator.rank()
    }

    fn size(&self) -> u32 {
        self.communicator.size()
    }

    /// The member that is so many behind one.
    fn behind(&self, member: u32, distance: u32) -> u32 {
        ((u64::from(member) + u64::from(distance)) % u64::from(self.size())) as u32
    }

    /// How far this member is behind one.
    fn place(&self, root: u32) -> u32 {
        self.behind(self.me(), self.size() - root)
    }

    fn check_root(&self, root: u32) -> Result<(), MessageError> {
        let size = self.size();
        if root < size { Ok(()) } else { Err(MessageError::NoSuchMember { member: root, size, tag: None }) }
    }

    fn context(&self) -> u32 {
        collective_context(self.communicator.shared.context)
    }

    fn outgoing<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        (to, call): (u32, Call),
        kind: ElementType,
    ) -> Result<Outgoing, MessageError> {
        let mut outgoing = self.communicator.outgoing(endpoint, (to, call.0), kind, Mode::Standard)?;
        outgoing.envelope.context = self.context();
        Ok(outgoing)
    }

    fn send<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        to: (u32, Call),
        elements: &[E],
    ) -> Result<(), MessageError> {
        let outgoing = self.outgoing(endpoint, to, ElementType::of::<E>())?;
        Communicator::send_bytes(endpoint, outgoing, elements.as_bytes())
    }

    fn selector(&self, (from, call): (u32, Call)) -> Result<Selector, MessageError> {
        let selector = self.communicator.selector(from.into(), call.0.into())?;
        Ok(Selector { context: self.context(), ..selector })
    }

    /// Receives exactly as many elements as the slice has.
    fn receive<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        from: (u32, Call),
        elements: &mut [E],
    ) -> Result<(), MessageError> {
        let (selector, kind) = (self.selector(from)?, ElementType::of::<E>());
        let status = self.communicator.receive_bytes(endpoint, selector, kind, elements.as_mut_bytes())?;
        whole::<E>(status.bytes(), elements.len())
    }

    /// Sends to one member and receives from one, both at once.
    fn exchange<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        call: Call,
        (to, elements): (u32, &[E]),
        (from, into): (u32, &mut [E]),
    ) -> Result<(), MessageError> {
        let (selector, kind) = (self.selector((from, call))?, ElementType::of::<E>());
        let outgoing = self.outgoing(endpoint, (to, call), kind)?;
        let (bytes, buffer) = (elements.as_bytes(), (kind, into.as_mut_bytes()));
        let status = self.communicator.exchange(endpoint, outgoing, bytes, selector, buffer)?;
        whole::<E>(status.bytes(), into.len())
    }

    /// Waits until all members have come here. Blocks; does not allocate.
    ///
    /// # Errors
    /// See [`TwoSided`].
    pub fn barrier<T: Transport, S: HasLayer<Messages>>(
        &self,
        endpoint: &mut Endpoint<T, S>,
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Barrier)?;
        let (me, size) = (self.me(), self.size());
        let mut distance = 1;
        while distance < size {
            let (to, from) = (self.behind(me, distance), self.behind(me, size - distance));
            self.exchange::<_, _, u8>(endpoint, call, (to, &[]), (from, &mut []))?;
            distance = distance.saturating_mul(2);
        }
        Ok(())
    }

    /// Gives all members the elements of the root. Blocks.
    ///
    /// # Errors
    /// See [`TwoSided`].
    pub fn broadcast<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &mut [E],
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Broadcast)?;
        self.check_root(root)?;
        let (place, mut distance) = (self.place(root), 1);
        while distance < self.size() && place & distance == 0 {
            distance *= 2;
        }
        if place != 0 {
            let from = self.behind(root, place - distance);
            self.receive(endpoint, (from, call), elements)?;
        }
        while distance > 1 {
            distance /= 2;
            if place + distance < self.size() {
                let to = self.behind(root, place + distance);
                self.send(endpoint, (to, call), elements)?;
            }
        }
        Ok(())
    }

    /// Combines the elements of all members, place by place; the root has the result in place of its own, the
    /// others keep theirs. Blocks; allocates.
    ///
    /// # Errors
    /// See [`TwoSided`].
    pub fn reduce<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Reduce)?;
        self.check_root(root)?;
        // Where the order counts, it is that of positions from the first on.
        let top = if operator.commutes() { root } else { 0 };
        let place = self.place(top);
        let (mut mine, mut other) = (elements.to_vec(), elements.to_vec());
        let mut distance = 1;
        while distance < self.size() {
            if place & distance != 0 {
                self.send(endpoint, (self.behind(top, place - distance), call), &mine)?;
                break;
            }
            if place + distance < self.size() {
                self.receive(endpoint, (self.behind(top, place + distance), call), &mut other)?;
                combine(&operator, &mut mine, &other, true);
            }
            distance *= 2;
        }
        if top != root && self.me() == top {
            self.send(endpoint, (root, call), &mine)?;
        } else if top != root && self.me() == root {
            self.receive(endpoint, (top, call), elements)?;
        } else if self.me() == root {
            elements.copy_from_slice(&mine);
        }
        Ok(())
    }

    /// Combines the elements of all members, place by place; all have the same result, to the last bit, in place
    /// of their own. Blocks; allocates.
    ///
    /// # Errors
    /// See [`TwoSided`]; any of the elements may be changed then.
    pub fn allreduce<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &mut [E],
        operator: impl Operator<E>,
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Allreduce)?;
        let (me, size) = (self.me(), self.size());
        let core = 1 << size.ilog2();
        let extra = size - core;
        let mut other = elements.to_vec();
        // The first members come in twos, of which the first steps aside.
        if me < 2 * extra && me.is_multiple_of(2) {
            self.send(endpoint, (me + 1, call), elements)?;
            return self.receive(endpoint, (me + 1, call), elements);
        }
        if me < 2 * extra {
            self.receive(endpoint, (me - 1, call), &mut other)?;
            combine(&operator, elements, &other, false);
        }
        let place = if me < 2 * extra { me / 2 } else { me - extra };
        let member = |place: u32| if place < extra { 2 * place + 1 } else { place + extra };
        let mut distance = 1;
        while distance < core {
            let partner = member(place ^ distance);
            self.exchange(endpoint, call, (partner, &*elements), (partner, &mut other))?;
            combine(&operator, elements, &other, place & distance == 0);
            distance *= 2;
        }
        if me < 2 * extra {
            self.send(endpoint, (me - 1, call), elements)?;
        }
        Ok(())
    }

    /// How many members are in the tree below a place, itself included, where its parent is so far away.
    fn subtree(&self, place: u32, distance: u32) -> usize {
        distance.min(self.size() - place) as usize
    }

    /// Gives the root the parts of all members, which have the same length, in their order. `all` is of use at the
    /// root alone. Blocks; allocates.
    ///
    /// # Errors
    /// See [`TwoSided`]; [`MessageError::Length`] for `all` of another length at the root.
    pub fn gather<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        part: &[E],
        all: &mut [E],
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Gather)?;
        self.check_root(root)?;
        let (place, len, size) = (self.place(root), part.len(), self.size());
        if place == 0 {
            self.check_all(len, all.len())?;
        }
        let mut parts = part.to_vec();
        let mut distance = 1;
        while distance < size {
            if place & distance != 0 {
                return self.send(endpoint, (self.behind(root, place - distance), call), &parts);
            }
            if place + distance < size {
                let from = place + distance;
                let before = parts.len();
                parts.resize_with(before + len * self.subtree(from, distance), E::new_zeroed);
                self.receive(endpoint, (self.behind(root, from), call), &mut parts[before..])?;
            }
            distance *= 2;
        }
        // From the root on, and around.
        let (front, back) = parts.split_at(len * (size - root) as usize);
        all[len * root as usize..].copy_from_slice(front);
        all[..len * root as usize].copy_from_slice(back);
        Ok(())
    }

    /// Gives each member a part of the root's elements, of the length of `part`. `elements` is of use at the root
    /// alone. Blocks; allocates.
    ///
    /// # Errors
    /// See [`TwoSided`]; [`MessageError::Length`] for `elements` of another length at the root.
    pub fn scatter<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        root: u32,
        elements: &[E],
        part: &mut [E],
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Scatter)?;
        self.check_root(root)?;
        let (place, len, size) = (self.place(root), part.len(), self.size());
        let mut distance = 1;
        while distance < size && place & distance == 0 {
            distance *= 2;
        }
        let parts = if place == 0 {
            self.check_all(len, elements.len())?;
            let (back, front) = elements.split_at(len * root as usize);
            [front, back].concat()
        } else {
            let (from, count) = (self.behind(root, place - distance), len * self.subtree(place, distance));
            let mut parts = zeroes(E::new_zeroed(), count).ok_or(MessageError::NoMemory {
                rank: self.communicator.member(from, call.0)?,
                tag: crate::error::AskedTag(Some(call.0)),
                bytes: (count * size_of::<E>()) as u64,
            })?;
            self.receive(endpoint, (from, call), &mut parts)?;
            parts
        };
        while distance > 1 {
            distance /= 2;
            let to = place + distance;
            if to < size {
                let behind = &parts[len * distance as usize..][..len * self.subtree(to, distance)];
                self.send(endpoint, (self.behind(root, to), call), behind)?;
            }
        }
        part.copy_from_slice(&parts[..len]);
        Ok(())
    }

    /// Gives all members the parts of all, which have the same length, in their order. Blocks; does not allocate.
    ///
    /// # Errors
    /// See [`TwoSided`]; [`MessageError::Length`] for `all` of another length.
    pub fn allgather<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        part: &[E],
        all: &mut [E],
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Allgather)?;
        let (me, size, len) = (self.me(), self.size(), part.len());
        self.check_all(len, all.len())?;
        all[len * me as usize..][..len].copy_from_slice(part);
        let (to, from) = (self.behind(me, 1), self.behind(me, size - 1));
        for step in 0..size - 1 {
            let [sent, received] = [size - step, size - step - 1].map(|distance| self.behind(me, distance % size));
            let [sent, received] = [sent, received].map(|member| len * member as usize);
            // One of them lies before the other, but for the ends of the slice.
            let (outgoing, incoming) = two(all, sent, received, len);
            self.exchange(endpoint, call, (to, outgoing), (from, incoming))?;
        }
        Ok(())
    }

    /// Gives each member a part of the elements of each, all of the same length: `elements` has one for each
    /// member, and `all` gets one of each. Blocks; does not allocate.
    ///
    /// # Errors
    /// See [`TwoSided`]; [`MessageError::Length`] for slices that differ in length, or are no whole number of
    /// parts.
    pub fn alltoall<T: Transport, S: HasLayer<Messages>, E: Element>(
        &self,
        endpoint: &mut Endpoint<T, S>,
        elements: &[E],
        all: &mut [E],
    ) -> Result<(), MessageError> {
        let call = self.begin(endpoint, Operation::Alltoall)?;
        let (me, size) = (self.me(), self.size());
        let len = elements.len() / size as usize;
        self.check_all(len, elements.len())?;
        self.check_all(len, all.len())?;
        let part = |member: u32| len * member as usize..len * (member as usize + 1);
        all[part(me)].copy_from_slice(&elements[part(me)]);
        for distance in 1..size {
            let (to, from) = (self.behind(me, distance), self.behind(me, size - distance));
            let (sent, received) = (&elements[part(to)], &mut all[part(from)]);
            self.exchange(endpoint, call, (to, sent), (from, received))?;
        }
        Ok(())
    }

    /// Whether a slice has room for a part of each member.
    fn check_all(&self, len: usize, given: usize) -> Result<(), MessageError> {
        let needed = (len as u64).saturating_mul(self.size().into());
        let given = given as u64;
        if given == needed { Ok(()) } else { Err(MessageError::Length { given, needed }) }
    }
}

/// Whether a message had all that was waited for.
fn whole<E>(bytes: u64, len: usize) -> Result<(), MessageError> {
    let given = bytes / size_of::<E>().max(1) as u64;
    if given == len as u64 { Ok(()) } else { Err(MessageError::Length { given, needed: len as u64 }) }
}

/// Combines elements with those of others, which stand behind or before.
fn combine<E: Element>(operator: &impl Operator<E>, mine: &mut [E], other: &[E], behind: bool) {
    for (mine, other) in mine.iter_mut().zip(other) {
        *mine = if behind { operator.combine(*mine, *other) } else { operator.combine(*other, *mine) };
    }
}

/// Two parts of a slice that do not overlap, the second one to be changed.
fn two<E>(all: &mut [E], first: usize, second: usize, len: usize) -> (&[E], &mut [E]) {
    if first < second {
        let (before, behind) = all.split_at_mut(second);
        (&before[first..][..len], &mut behind[..len])
    } else {
        let (before, behind) = all.split_at_mut(first);
        (&behind[..len], &mut before[second..][..len])
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{everywhere, run};
    use crate::{ANY_SOURCE, ANY_TAG, MessageConfig, MessageError};
    use am_core::loopback::LoopbackConfig;
    use am_pgas::collectives::{Ordered, Sum};

    /// The digits of one number behind those of another: associative, and it does not commute.
    fn digits(left: u64, right: u64) -> u64 {
        left * 10_u64.pow(right.ilog10() + 1) + right
    }

    #[test]
    fn everybody_gets_what_all_have_given() {
        for ranks in [1, 2, 5] {
            everywhere(ranks, |endpoint, world| {
                let (me, all) = (u64::from(world.rank()), u64::from(ranks));
                let two_sided = world.two_sided();
                // Receives for anything do not meet what the operations send.
                let other = world.immediate_receive::<_, _, u64>(endpoint, ANY_SOURCE, ANY_TAG, 1).unwrap();
                for root in 0..ranks {
                    for len in [0, 40] {
                        let own = vec![me + 1; len];
                        let mut values = own.clone();
                        two_sided.broadcast(endpoint, root, &mut values).unwrap();
                        assert_eq!(values, vec![u64::from(root) + 1; len]);
                        let mut values = own.clone();
                        two_sided.reduce(endpoint, root, &mut values, Ordered(digits)).unwrap();
                        let whole = (2..=all).fold(1, digits);
                        assert_eq!(values, vec![if world.rank() == root { whole } else { me + 1 }; len]);
                        two_sided.reduce(endpoint, root, &mut values, Sum).unwrap();
                        let mut gathered = vec![0; len * ranks as usize];
                        two_sided.gather(endpoint, root, &own, &mut gathered).unwrap();
                        let expected: Vec<u64> = (1..=all).flat_map(|value| vec![value; len]).collect();
                        if world.rank() == root {
                            assert_eq!(gathered, expected);
                        }
                        let mut part = vec![0; len];
                        two_sided.scatter(endpoint, root, &gathered, &mut part).unwrap();
                        assert_eq!(part, own);
                        two_sided.allgather(endpoint, &own, &mut gathered).unwrap();
                        assert_eq!(gathered, expected);
                        let mut values = own.clone();
                        two_sided.allreduce(endpoint, &mut values, Ordered(digits)).unwrap();
                        assert_eq!(values, vec![whole; len]);
                        let given: Vec<u64> = (0..all).flat_map(|to| vec![me * 10 + to; len]).collect();
                        two_sided.alltoall(endpoint, &given, &mut gathered).unwrap();
                        let expected: Vec<u64> = (0..all).flat_map(|from| vec![from * 10 + me; len]).collect();
                        assert_eq!(gathered, expected);
                    }
                    two_sided.barrier(endpoint).unwrap();
                }
                assert!(other.cancel(endpoint).unwrap().is_none());
            });
        }
    }

    #[test]
    fn wrong_calls_are_told() {
        everywhere(2, |endpoint, world| {
            let two_sided = world.two_sided();
            let no_root = MessageError::NoSuchMember { member: 2, size: 2, tag: None };
            assert_eq!(two_sided.broadcast(endpoint, 2, &mut [0u8]).unwrap_err(), no_root);
            let length = MessageError::Length { given: 3, needed: 2 };
            assert_eq!(two_sided.allgather(endpoint, &[0u8], &mut [0; 3]).unwrap_err(), length);
            assert_eq!(two_sided.alltoall(endpoint, &[0u8; 3], &mut [0; 3]).unwrap_err(), length);
            // Members that differ.
            let mut values = vec![0u64; 3 - world.rank() as usize];
            let told = two_sided.broadcast(endpoint, 1, &mut values);
            match world.rank() {
                0 => assert_eq!(told.unwrap_err(), MessageError::Length { given: 2, needed: 3 }),
                _ => told.unwrap(),
            }
            let copy = world.duplicate(endpoint).unwrap();
            let kept = copy.clone();
            copy.free(endpoint).unwrap();
            assert!(matches!(kept.two_sided().barrier(endpoint), Err(MessageError::Freed { .. })));
        });
    }
    #[test]
    fn what_a_failed_call_has_left_behind_meets_no_later_one() {
        run(2, LoopbackConfig::default(), MessageConfig::new().eager(256), &|endpoint, world| {
            let (two_sided, me) = (world.two_sided(), u64::from(world.rank()));
            let mut all = vec![0; 1 + me as usize];
            let told = two_sided.gather(endpoint, 0, &[11 + me], &mut all);
            match me {
                0 => assert_eq!(told.unwrap_err(), MessageError::Length { given: 1, needed: 2 }),
                _ => told.unwrap(),
            }
            let mut all = [0; 2];
            two_sided.gather(endpoint, 0, &[21 + me], &mut all).unwrap();
            assert_eq!(all, if me == 0 { [21, 22] } else { [0; 2] });
            two_sided.barrier(endpoint).unwrap();
        });
    }
}
