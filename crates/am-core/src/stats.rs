//! What an endpoint counts: messages, bytes, credits and stalls.

use crate::transport::{Category, Resource};

/// Messages and payload bytes of one category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Number of messages.
    pub messages: u64,
    /// Sum of their payloads in bytes.
    pub bytes: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// Counters of one endpoint since it was attached. Indexed by category as in [`Category::ALL`] and by resource as
/// in [`Resource::ALL`]; the methods name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub(crate) requests_sent: [Traffic; 3],
    pub(crate) requests_received: [Traffic; 3],
    pub(crate) replies_received: [Traffic; 3],
    pub(crate) native: Traffic,
    pub(crate) stalls: [u64; Resource::ALL.len()],
    /// Replies sent, of every category.
    pub replies_sent: u64,
    /// Requests whose handler did not reply; their credits went back bare.
    pub bare_credits: u64,
    /// Tokens turned into pending replies.
    pub detached: u64,
    /// Messages whose handler returned an error, unless it only said that the requester is gone.
    pub failed: u64,
    /// Messages dropped because they did not fit the handler table.
    pub bad_messages: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Times the endpoint went idle while it waited.
    pub idles: u64,
    /// Barriers passed.
    pub barriers: u64,
}

impl Statistics {
    /// Requests sent of a category.
    pub fn requests_sent(&self, category: Category) -> Traffic {
        self.requests_sent[category as usize]
    }

    /// Requests received of a category.
    pub fn requests_received(&self, category: Category) -> Traffic {
        self.requests_received[category as usize]
    }

    /// Replies received of a category.
    pub fn replies_received(&self, category: Category) -> Traffic {
        self.replies_received[category as usize]
    }

    /// One-sided operations that the network did by itself
    /// ([`transport::NativeOneSided`](crate::transport::NativeOneSided)), by their parts, with the bytes that they
    /// moved. Others were loads and stores, or are among the requests.
    pub fn native(&self) -> Traffic {
        self.native
    }

    /// How often sending found this resource used up.
    pub fn stalls(&self, resource: Resource) -> u64 {
        Resource::ALL.iter().position(|r| *r == resource).map_or(0, |index| self.stalls[index])
    }

    /// Requests sent, all categories together.
    pub fn total_sent(&self) -> u64 {
        self.requests_sent.iter().map(|traffic| traffic.messages).sum()
    }

    /// Requests received, all categories together.
    pub fn total_received(&self) -> u64 {
        self.requests_received.iter().map(|traffic| traffic.messages).sum()
    }

    pub(crate) fn stall(&mut self, resource: Resource) {
        if let Some(index) = Resource::ALL.iter().position(|r| *r == resource) {
            self.stalls[index] += 1;
        }
    }
}
