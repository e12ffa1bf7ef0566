//! The fit: what the parameter table takes from stated totals is computed here, from a declared training set and
//! nothing else. A test compares the table with it.

/// The totals of the paper that the table is fitted to. Whatever else it says is held out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingSet {
    /// \[S\] 80 bytes stored until the last has landed, in microseconds.
    pub stores_80_us: f64,
    /// \[S\] A Short active message one way, in microseconds.
    pub short_us: f64,
    /// \[S\] The same on MPI: "about".
    pub short_on_mpi_us: f64,
}

/// The training set.
pub const TRAINING_SET: TrainingSet = TrainingSet { stores_80_us: 3.16, short_us: 5.0, short_on_mpi_us: 15.0 };

impl TrainingSet {
    /// Names and units of the values, in the order of [`TrainingSet::values`].
    pub const NAMES: [(&'static str, &'static str); 3] =
        [("stores, 80 B", "us"), ("Short, two lines, one-way", "us"), ("Short on MPI, one-way", "us")];

    /// The values.
    pub const fn values(&self) -> [f64; 3] {
        [self.stores_80_us, self.short_us, self.short_on_mpi_us]
    }
}

impl From<[f64; 3]> for TrainingSet {
    fn from([stores_80_us, short_us, short_on_mpi_us]: [f64; 3]) -> Self {
        Self { stores_80_us, short_us, short_on_mpi_us }
    }
}

/// What is assumed beforehand. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Given {
    /// \[A\] What a line occupies the processor: 64 bytes at 278 MB/s.
    pub line_ns: f64,
    /// \[A\] Constructing a command.
    pub construct_ns: f64,
    /// \[A\] Waiting for the answer of the last store.
    pub answer_ns: f64,
    /// \[A\] Looking at a flag and entering its handler.
    pub poll_ns: f64,
}

impl Given {
    /// What is assumed of the paper's machine.
    pub const fn paper() -> Self {
        Self { line_ns: 230.0, construct_ns: 350.0, answer_ns: 700.0, poll_ns: 30.0 }
    }
}

/// What follows from both, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// From leaving the processor until a line has landed.
    pub fixed_ns: f64,
    /// A remote read of a line.
    pub read_ns: f64,
    /// Looking at the adapter's error state.
    pub check_ns: f64,
    /// What MPI adds to a message.
    pub mpi_ns: f64,
}

/// Fits the parameters to the training set.
///
/// 80 bytes are two lines. A read is a way there and one back, each as long as a stored line. A Short message is
/// two lines with arguments, a check, and two flags, each of which occupies the processor as a line does. What it
/// takes more on MPI is MPI's.
pub fn fit(training: &TrainingSet, given: &Given) -> Fit {
    let [stores, short, on_mpi] = training.values().map(|us| us * 1e3);
    let fixed_ns = stores - 2.0 * given.line_ns;
    let software = short - stores;
    let known = given.construct_ns + given.answer_ns + 2.0 * given.line_ns + given.poll_ns;
    Fit { fixed_ns, read_ns: 2.0 * (fixed_ns + given.line_ns), check_ns: software - known, mpi_ns: on_mpi - short }
}

impl Fit {
    /// The parameters with their names in a [`Parameters`](super::Parameters) table.
    pub const fn parameters(&self) -> [(&'static str, f64); 4] {
        [
            ("pio.fixed_ns", self.fixed_ns),
            ("pio.read_ns", self.read_ns),
            ("pio.check_ns", self.check_ns),
            ("conduit.mpi_ns", self.mpi_ns),
        ]
    }
}
