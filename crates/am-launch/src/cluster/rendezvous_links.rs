//! The connections of ranks that have met at a rendezvous, until all of them have attached.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cluster::channel::{Channel, ChannelError};
use crate::cluster::message::{Answer, FromRank};
use crate::control_links::Allgather;

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
                match channel.wait::<Answer>(until)?.remove(0) {
                    Answer::Gathered(parts) if parts.len() == ranks as usize => Ok(parts),
                    _ => Err(ChannelError::Damaged),
                }
            }
            Self::Root(channels) => {
                let mut exchange = Allgather::new(ranks);
                exchange.note(0, own.to_vec());
                loop {
                    for (rank, channel) in channels.iter_mut() {
                        match channel.pump::<FromRank>() {
                            Ok(words) => words.into_iter().for_each(|word| {
                                if let FromRank::Part(part) = word {
                                    exchange.note(*rank, part);
                                }
                            }),
                            Err(_) => exchange.lose(*rank),
                        }
                    }
                    if let Some(parts) = exchange.complete() {
                        channels
                            .iter_mut()
                            .for_each(|(_, channel)| channel.send(&Answer::Gathered(parts.clone())));
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
            // What a leaf says meanwhile, it says after having heard this.
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
