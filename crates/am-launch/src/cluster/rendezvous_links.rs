//! The connections of ranks that have met at a rendezvous, until all of them have attached.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cluster::channel::{Channel, ChannelError};
use crate::cluster::message::{Answer, FromRank};
use crate::control_links::Segments;

/// The connections that stay open until all ranks have attached.
#[derive(Debug)]
pub(crate) enum RendezvousLinks {
    /// Rank 0's, to each of the others.
    Root(Vec<(u32, Channel)>),
    /// Another rank's, to rank 0.
    Leaf(Box<Channel>),
}

impl RendezvousLinks {
    /// Tells the others the size of this rank's segment in bytes and learns theirs. Collective; blocks until everyone has
    /// attached or gone, at most for `limit`.
    ///
    /// # Errors
    /// Rank 0 is gone, or somebody did not attach in time.
    pub(crate) fn exchange_segment_sizes(
        mut self,
        bytes: u64,
        ranks: u32,
        limit: Duration,
    ) -> Result<Vec<u64>, ChannelError> {
        let until = Instant::now() + limit;
        match &mut self {
            Self::Leaf(channel) => {
                channel.send(&FromRank::Segment(bytes));
                match channel.wait::<Answer>(until)?.remove(0) {
                    Answer::Segments(sizes) if sizes.len() == ranks as usize => Ok(sizes),
                    _ => Err(ChannelError::Damaged),
                }
            }
            Self::Root(channels) => {
                let mut segments = Segments::new(ranks);
                segments.note(0, bytes);
                loop {
                    for (rank, channel) in channels.iter_mut() {
                        match channel.pump::<FromRank>() {
                            Ok(words) => words.iter().for_each(|word| {
                                if let FromRank::Segment(bytes) = word {
                                    segments.note(*rank, *bytes);
                                }
                            }),
                            // Nobody has to wait for the dead: that they are lost shows later.
                            Err(_) => segments.note(*rank, 0),
                        }
                    }
                    if let Some(sizes) = segments.complete() {
                        channels
                            .iter_mut()
                            .for_each(|(_, channel)| channel.send(&Answer::Segments(sizes.clone())));
                        self.flush(until);
                        return Ok(sizes);
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
