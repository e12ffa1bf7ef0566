//! Item 23, collective operations as two-sided messages: random ones on two communicators by each protocol,
//! against models.

use super::messages::{Ranks, attach};
use crate::random::{Random, mix};
use crate::world::{Verdict, World, equal};
use am_core::Transport;
use am_p2p::{ANY_SOURCE, ANY_TAG, Communicator, MessageConfig, Protocol};
use am_pgas::collectives::{Ordered, Sum};

/// An operator that does not commute: the composition of two affine maps modulo 2^32, packed as factor and term.
fn compose(f: u64, g: u64) -> u64 {
    let ((a, b), (c, d)) = ((f as u32, (f >> 32) as u32), (g as u32, (g >> 32) as u32));
    u64::from(a.wrapping_mul(c)) | u64::from(b.wrapping_mul(c).wrapping_add(d)) << 32
}

/// One rank in the case. `shared` draws the same on all ranks.
struct Player<'w> {
    world: &'w World,
    shared: Random,
    step: u64,
}

impl Player<'_> {
    /// What a member gives in this step.
    fn operands(&self, member: u32, count: usize) -> Vec<u64> {
        (0..count).map(|index| mix(&[self.world.seed, self.step, u64::from(member), index as u64])).collect()
    }

    fn all(&self, members: u32, count: usize) -> Vec<u64> {
        (0..members).flat_map(|member| self.operands(member, count)).collect()
    }

    fn combined(&self, members: u32, count: usize, operator: fn(u64, u64) -> u64) -> Vec<u64> {
        let all = (0..members).map(|member| self.operands(member, count));
        let fold = |a: Vec<u64>, b: Vec<u64>| a.into_iter().zip(b).map(|(a, b)| operator(a, b)).collect();
        all.reduce(fold).unwrap_or_default()
    }

    fn play<T: Transport>(&mut self, endpoint: &mut Ranks<T>, team: &Communicator) -> Verdict {
        self.step += 1;
        let (size, me) = (team.size(), team.rank());
        let (kind, root) = (self.shared.below(9), self.shared.below(u64::from(size)) as u32);
        let most = [3, 40, 600][self.shared.below(3) as usize];
        let count = self.shared.length(most);
        let (mine, two_sided) = (self.operands(me, count), team.two_sided());
        let what = format!("step {}, kind {kind} of {count}, root {root}, {size} members", self.step);
        let mut values = mine.clone();
        match kind {
            0 => Ok(two_sided.barrier(endpoint)?),
            1 => {
                two_sided.broadcast(endpoint, root, &mut values)?;
                equal(&what, values, self.operands(root, count))
            }
            2 | 3 => {
                let ordered = kind == 2;
                if ordered {
                    two_sided.reduce(endpoint, root, &mut values, Ordered(compose))?;
                } else {
                    two_sided.reduce(endpoint, root, &mut values, Sum)?;
                }
                let whole = self.combined(size, count, if ordered { compose } else { u64::wrapping_add });
                equal(&what, values, if me == root { whole } else { mine })
            }
            4 => {
                two_sided.allreduce(endpoint, &mut values, Ordered(compose))?;
                equal(&what, values, self.combined(size, count, compose))
            }
            5 => {
                let mut all = vec![0; if me == root { count * size as usize } else { 0 }];
                two_sided.gather(endpoint, root, &mine, &mut all)?;
                equal(&what, all, if me == root { self.all(size, count) } else { Vec::new() })
            }
            6 => {
                let all = if me == root { self.all(size, count) } else { Vec::new() };
                values.fill(0);
                two_sided.scatter(endpoint, root, &all, &mut values)?;
                equal(&what, values, mine)
            }
            7 => {
                let mut all = vec![0; count * size as usize];
                two_sided.allgather(endpoint, &mine, &mut all)?;
                equal(&what, all, self.all(size, count))
            }
            _ => {
                let many = count.min(40);
                let given = |member: u32| self.operands(member, many * size as usize);
                let mut all = vec![0; many * size as usize];
                two_sided.alltoall(endpoint, &given(me), &mut all)?;
                let part = |member: u32| given(member)[many * me as usize..][..many].to_vec();
                equal(&what, all, (0..size).flat_map(part).collect())
            }
        }
    }
}

/// Collective operations by each protocol, while a receive for anything is posted.
pub(super) fn collectives<T: Transport>(world: &World, transport: T) -> Verdict {
    let mut endpoint = attach(world, transport, MessageConfig::default().unexpected(16 << 10))?;
    let all = Communicator::world(&mut endpoint)?;
    let backwards: Vec<u32> = (0..all.size()).rev().collect();
    let other = all.group(&mut endpoint, &backwards)?.expect("all members are in it");
    let mut player = Player { world, shared: world.random(2350), step: 0 };
    for (index, protocol) in (0..).zip(Protocol::ALL) {
        let eager = [0, 64, 4000][(index + world.seed as u32) as usize % 3];
        all.choose(&mut endpoint, protocol, eager)?;
        let untouched = all.immediate_receive::<_, _, u8>(&mut endpoint, ANY_SOURCE, ANY_TAG, usize::MAX)?;
        for step in 0..world.count(5, 60) {
            player.play(&mut endpoint, if step % 3 == 2 { &other } else { &all })?;
        }
        let cancelled = untouched.cancel(&mut endpoint)?;
        equal("receives that a collective operation has met", usize::from(cancelled.is_some()), 0)?;
    }
    equal("ignored messages", all.counts(&endpoint).ignored, 0)?;
    endpoint.finish()?;
    Ok(())
}
