//! The configuration of a job: how many ranks, and how large the rings between them are.

use crate::ring::GRANULE;

/// A size of a job's configuration is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobConfigError {
    /// A job has 1 to 4096 ranks.
    #[error("{ranks} ranks are not between 1 and 4096")]
    Ranks {
        /// Ranks asked for.
        ranks: u32,
    },
    /// A rank has 1 to 64 endpoints, and a job at most 4096.
    #[error("{endpoints} endpoints for each of {ranks} ranks are not between 1 and 64 each and 4096 together")]
    Endpoints {
        /// Ranks asked for.
        ranks: u32,
        /// Endpoints asked for.
        endpoints: u16,
    },
    /// Rings are a power of two within limits.
    #[error("{what} of {given} is not a power of two from {least} to {most}")]
    Ring {
        /// Which size.
        what: &'static str,
        /// Size asked for.
        given: usize,
        /// Smallest size.
        least: usize,
        /// Largest size.
        most: usize,
    },
}

/// Ring sizes in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) request_cells: usize,
    pub(crate) request_bytes: usize,
    pub(crate) reply_cells: usize,
    pub(crate) reply_bytes: usize,
}

/// How large a job is. Ring sizes are per ordered pair of endpoints; unset ones follow from the number of
/// endpoints, so that memory per rank stays bounded (see the crate's documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobConfig {
    pub(crate) ranks: u32,
    pub(crate) endpoints: u16,
    request_cells: Option<usize>,
    request_bytes: Option<usize>,
    reply_cells: Option<usize>,
    reply_bytes: Option<usize>,
}

const CELLS: (usize, usize) = (4, 1 << 20);
const BYTES: (usize, usize) = (4 * GRANULE, 1 << 30);

impl JobConfig {
    /// A job of `ranks` ranks with one endpoint each and default ring sizes.
    pub const fn new(ranks: u32) -> Self {
        Self {
            ranks,
            endpoints: 1,
            request_cells: None,
            request_bytes: None,
            reply_cells: None,
            reply_bytes: None,
        }
    }

    /// The smallest rings that carry every kind of message, for tests of flow control.
    pub const fn smallest(ranks: u32) -> Self {
        Self::new(ranks).request_cells(CELLS.0).reply_cells(CELLS.0).request_bytes(BYTES.0).reply_bytes(BYTES.0)
    }

    /// Sets the number of endpoints (threads that communicate) of every rank.
    #[must_use]
    pub const fn endpoints(self, endpoints: u16) -> Self {
        Self { endpoints, ..self }
    }

    /// Sets the number of 64-byte cells of every request lane: a power of two from 4.
    #[must_use]
    pub const fn request_cells(self, cells: usize) -> Self {
        Self { request_cells: Some(cells), ..self }
    }

    /// Sets the payload bytes of every request lane: a power of two from 256. A quarter of it, at most 64 KiB, is
    /// the largest Medium request.
    #[must_use]
    pub const fn request_bytes(self, bytes: usize) -> Self {
        Self { request_bytes: Some(bytes), ..self }
    }

    /// Sets the number of 64-byte cells of every reply lane: a power of two from 4.
    #[must_use]
    pub const fn reply_cells(self, cells: usize) -> Self {
        Self { reply_cells: Some(cells), ..self }
    }

    /// Sets the payload bytes of every reply lane: a power of two from 256. A quarter of it, at most 64 KiB, is
    /// the largest Medium reply.
    #[must_use]
    pub const fn reply_bytes(self, bytes: usize) -> Self {
        Self { reply_bytes: Some(bytes), ..self }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let (cells, bytes) = match self.ranks as usize * usize::from(self.endpoints) {
            0..=8 => (1024, 1 << 18),
            9..=16 => (512, 1 << 17),
            17..=64 => (256, 1 << 16),
            _ => (64, 1 << 14),
        };
        Sizes {
            request_cells: self.request_cells.unwrap_or(cells),
            request_bytes: self.request_bytes.unwrap_or(bytes),
            reply_cells: self.reply_cells.unwrap_or(cells),
            reply_bytes: self.reply_bytes.unwrap_or(bytes),
        }
    }

    pub(crate) fn check(&self) -> Result<(), JobConfigError> {
        if !(1..=4096).contains(&self.ranks) {
            return Err(JobConfigError::Ranks { ranks: self.ranks });
        }
        let (ranks, endpoints) = (self.ranks, self.endpoints);
        if !(1..=64).contains(&endpoints) || ranks * u32::from(endpoints) > 4096 {
            return Err(JobConfigError::Endpoints { ranks, endpoints });
        }
        let sizes = self.sizes();
        for (what, given, (least, most)) in [
            ("a request lane's number of cells", sizes.request_cells, CELLS),
            ("a reply lane's number of cells", sizes.reply_cells, CELLS),
            ("a request lane's number of payload bytes", sizes.request_bytes, BYTES),
            ("a reply lane's number of payload bytes", sizes.reply_bytes, BYTES),
        ] {
            if !given.is_power_of_two() || !(least..=most).contains(&given) {
                return Err(JobConfigError::Ring { what, given, least, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_sizes_are_named() {
        assert_eq!(JobConfig::new(0).check(), Err(JobConfigError::Ranks { ranks: 0 }));
        assert!(JobConfig::new(100).endpoints(64).check().is_err());
        assert!(JobConfig::new(2).endpoints(0).check().is_err());
        let error = JobConfig::new(2).request_cells(100).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "a request lane's number of cells of 100 is not a power of two from 4 to 1048576"
        );
        assert!(JobConfig::new(2).reply_bytes(128).check().is_err());
        assert_eq!(JobConfig::smallest(64).check(), Ok(()));
    }
}
