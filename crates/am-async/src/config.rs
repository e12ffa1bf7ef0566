//! The settings of calls.

/// The settings of [`Calls`](crate::Calls). They are a rank's own: ranks may differ in them, except for `tracing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallConfig {
    /// Calls of this rank under way to one peer, at least 1. More wait in the order in which they were made.
    pub calls_per_peer: u32,
    /// Calls of this rank under way to all peers together, at least 1. Those of methods are among them: methods of
    /// different ranks that call each other need as many as may wait for one another.
    pub calls: u32,
    /// Requests that this rank works on at a time, or whose answer it has not sent yet: those of `async` methods
    /// and streams, and those whose request or answer is longer than one message. More are answered with
    /// [`CallError::Refused`](crate::CallError::Refused).
    pub tasks: u32,
    /// The longest request or answer, in bytes.
    pub max_bytes: u32,
    /// Memory for long requests and long answers on their way to this rank, in bytes: one limit for both. Those
    /// for which there is no room wait at their sender, in the order in which they were announced. A peer has room
    /// for one of them, and for more as long as it has at most half of what the others leave; what others have
    /// announced goes before what is beyond that.
    pub receive_bytes: u64,
    /// Answers of a stream that may be under way to this rank before the first of them has been taken, at least 1;
    /// and answers of a stream that may wait here for the network.
    pub stream_window: u32,
    /// Requests at least so long, in bytes, that [`Caller::call_each`](crate::Caller::call_each) has for five
    /// ranks or more go along a tree.
    pub tree_bytes: u32,
    /// Whether calls are counted and timed: [`Caller::metrics`](crate::Caller::metrics). Of the feature `metrics`.
    #[cfg(feature = "metrics")]
    pub metrics: bool,
    /// Whether calls have spans that cross ranks: 32 bytes before each request say which call it belongs to. All
    /// ranks have the same; those that differ fail to attach. Of the feature `tracing`.
    #[cfg(feature = "tracing")]
    pub tracing: bool,
}

impl CallConfig {
    /// 1024 calls per peer, 8192 in all, 4096 tasks, requests and answers of up to 64 MiB, of which 128 MiB may be
    /// on their way, 32 answers of a stream, and trees for requests of 64 KiB.
    pub const fn new() -> Self {
        Self {
            calls_per_peer: 1024,
            calls: 8192,
            tasks: 4096,
            max_bytes: 64 << 20,
            receive_bytes: 128 << 20,
            stream_window: 32,
            tree_bytes: 64 << 10,
            #[cfg(feature = "metrics")]
            metrics: false,
            #[cfg(feature = "tracing")]
            tracing: false,
        }
    }

    /// Sets the calls under way to one peer, at least 1.
    #[must_use]
    pub const fn calls_per_peer(mut self, calls: u32) -> Self {
        self.calls_per_peer = calls;
        self
    }

    /// Sets the calls under way to all peers together, at least 1. Where calls wait for it, peers take turns: one
    /// call to each of those that have some waiting.
    #[must_use]
    pub const fn calls(mut self, calls: u32) -> Self {
        self.calls = calls;
        self
    }

    /// Sets the requests that this rank works on at a time.
    #[must_use]
    pub const fn tasks(mut self, tasks: u32) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the longest request or answer, in bytes.
    #[must_use]
    pub const fn max_bytes(mut self, bytes: u32) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the memory for long requests and answers on their way to this rank, in bytes; one of them always has
    /// room.
    #[must_use]
    pub const fn receive_bytes(mut self, bytes: u64) -> Self {
        self.receive_bytes = bytes;
        self
    }

    /// Sets the answers of a stream that may be under way before the first of them has been taken, at least 1.
    #[must_use]
    pub const fn stream_window(mut self, answers: u32) -> Self {
        self.stream_window = answers;
        self
    }

    /// Sets the length in bytes from which on a request to many ranks goes along a tree.
    #[must_use]
    pub const fn tree_bytes(mut self, bytes: u32) -> Self {
        self.tree_bytes = bytes;
        self
    }

    /// Sets whether calls have spans that cross ranks, on all ranks alike.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub const fn tracing(mut self, tracing: bool) -> Self {
        self.tracing = tracing;
        self
    }

    /// Sets whether calls are counted and timed.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn metrics(mut self, metrics: bool) -> Self {
        self.metrics = metrics;
        self
    }
}

impl Default for CallConfig {
    fn default() -> Self {
        Self::new()
    }
}
