//! The connections of ranks that have met at a rendezvous, until all of them have attached.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cluster::channel::{Channel, ChannelError};
use crate::cluster::message::{Answer, FromRank, in_messages};
use crate::control_links::{Allgather, LONGEST_PART};

/// The connections that stay open until all ranks have attached.
#[derive(Debug)]
pub(crate) enum RendezvousLinks {
    /// Rank 0's, to each of the others.
    Root(Vec<(u32, Channel)>),
    /// Another rank's, to rank 0.
    Leaf(Box<Channel>),
}

impl RendezvousLinks {
    /// Hands this rank's bytes to the others and returns everybody's, by rank; none of those that are gone.
    /// Collective; blocks until everyone takes part or is gone, at most for `limit`.
    ///
    /// # Errors
    /// Rank 0 is gone, or somebody did not take part in time.
    pub(crate) fn allgather(
        &mut self,
        own: &[u8],
        ranks: u32,
        limit: Duration,
    ) -> Result<Vec<Vec<u8>>, ChannelError> {
        let until = Instant::now() + limit;
        match self {
            Self::Leaf(channel) => {
                channel.send(&FromRank::Part(own.to_vec()));
                let mut all = Vec::with_capacity(ranks as usize);
                loop {
                    for answer in channel.wait::<Answer>(until)? {
                        let Answer::Gathered { parts, more } = answer else { return Err(ChannelError::Damaged) };
                        all.extend(parts.0);
                        if more && all.len() < ranks as usize {
                            continue;
                        }
                        return if all.len() == ranks as usize { Ok(all) } else { Err(ChannelError::Damaged) };
                    }
                }
            }
            Self::Root(channels) => {
                let mut exchange = Allgather::new(ranks);
                exchange.note(0, own.to_vec());
                // Those whose channels have been dropped before.
                let there = |rank: &u32| channels.iter().any(|(whose, _)| whose == rank);
                (1..ranks).filter(|rank| !there(rank)).for_each(|rank| exchange.lose(rank));
                loop {
                    // A channel that has ended is always ready, and so would leave no rest.
                    channels.retain_mut(|(rank, channel)| {
                        let Ok(words) = channel.pump::<FromRank>() else {
                            exchange.lose(*rank);
                            return false;
                        };
                        for word in words {
                            if let FromRank::Part(part) = word {
                                if part.len() > LONGEST_PART {
                                    exchange.lose(*rank);
                                    return false;
                                }
                                exchange.note(*rank, part);
                            }
                        }
                        true
                    });
                    if let Some(parts) = exchange.complete() {
                        for (parts, more) in in_messages(&parts) {
                            let answer = Answer::Gathered { parts, more };
                            channels.iter_mut().for_each(|(_, channel)| channel.send(&answer));
                        }
                        self.flush(until);
                        return Ok(parts);
                    }
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ChannelError::TimedOut);
                    }
                    let mut ends: Vec<PollFd<'_>> = channels
                        .iter()
                        .map(|(_, channel)| PollFd::new(channel.as_fd(), channel.interest()))
                        .collect();
                    let nap = left.min(Duration::from_millis(200));
                    let _ = poll(&mut ends, PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO));
                }
            }
        }
    }

    /// Sends what is queued to everyone who takes it.
    pub(crate) fn flush(&mut self, until: Instant) {
        let Self::Root(channels) = self else { return };
        for (_, channel) in channels {
            // What a leaf says meanwhile, it says after having received this.
            while channel.queued() > 0 && channel.push().is_ok() {
                if channel.queued() > 0 && (poll_out(channel, until) || Instant::now() >= until) {
                    break;
                }
            }
        }
    }
}

/// Waits until a channel can be written to; returns whether that took too long.
fn poll_out(channel: &Channel, until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(5));
    let mut ends = [PollFd::new(channel.as_fd(), PollFlags::POLLOUT)];
    matches!(poll(&mut ends, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)), Ok(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::channel::Side;
    use crate::secret::Secret;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Rank 0's end and another rank's.
    fn pair() -> (Channel, RendezvousLinks) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let leaf = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (root, _) = listener.accept().unwrap();
        let channel = |stream, side| Channel::new(stream, side, &Secret::none()).unwrap();
        (channel(root, Side::Server), RendezvousLinks::Leaf(Box::new(channel(leaf, Side::Client))))
    }

    #[test]
    fn more_parts_than_one_message_holds() {
        let (mut root, mut leaf) = pair();
        let parts: Vec<Vec<u8>> = (0..300).map(|rank| vec![rank as u8; LONGEST_PART]).collect();
        thread::scope(|scope| {
            let gathered = scope.spawn(move || leaf.allgather(b"mine", 300, PATIENCE).unwrap());
            let until = Instant::now() + PATIENCE;
            let said = root.wait::<FromRank>(until).unwrap();
            assert!(matches!(&said[..], [FromRank::Part(part)] if part == b"mine"), "{said:?}");
            for (parts, more) in in_messages(&parts) {
                root.send(&Answer::Gathered { parts, more });
            }
            while root.queued() > 0 {
                root.push().unwrap();
                root.rest(until).unwrap();
            }
            assert!(gathered.join().unwrap() == parts);
        });
    }

    #[test]
    fn a_rank_that_hung_up_is_dropped_and_remembered() {
        let (first, leaf) = pair();
        let (second, gone) = pair();
        let mut root = RendezvousLinks::Root(vec![(1, first), (2, second)]);
        drop(gone);
        let leaf = thread::spawn(move || {
            let mut leaf = leaf;
            [b"one", b"two"].map(|part| leaf.allgather(part, 3, PATIENCE).unwrap())
        });
        let own = [b"own", b"ewn"].map(|part| root.allgather(part, 3, PATIENCE).unwrap());
        assert_eq!(own[0], [&b"own"[..], b"one", b""]);
        assert_eq!(own[1], [&b"ewn"[..], b"two", b""]);
        assert_eq!(leaf.join().unwrap(), own);
        let RendezvousLinks::Root(channels) = &root else { panic!("it is still the root") };
        assert_eq!(channels.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1]);
    }
}
