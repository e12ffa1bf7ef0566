//! What the command line asks of a bench, in the options of criterion's harness.

/// How a bench runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Measure everything and write the summary.
    Full,
    /// Measure what a filter or another option selects, and leave the summary of the last full run alone.
    Partial,
    /// Run everything once with tiny counts, as `cargo test --benches` does.
    Test,
    /// Leave the work to criterion, which lists the benchmarks or lets a profiler look at one.
    CriterionOnly,
}

/// Options of criterion that take a value, which is no filter.
const WITH_VALUE: [&str; 15] = [
    "--color",
    "--save-baseline",
    "--baseline",
    "--baseline-lenient",
    "--format",
    "--profile-time",
    "--load-baseline",
    "--sample-size",
    "--warm-up-time",
    "--measurement-time",
    "--nresamples",
    "--noise-threshold",
    "--confidence-level",
    "--significance-level",
    "--plotting-backend",
];

/// The command line of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// How to run.
    pub mode: Mode,
    filters: Vec<String>,
}

impl CommandLine {
    /// The command line of this process. A run counts as full only when `cargo bench` started it without further
    /// arguments.
    pub fn of_process() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let given = |option: &str| arguments.iter().any(|argument| argument == option);
        let mode = if given("--list") || given("--profile-time") {
            Mode::CriterionOnly
        } else if given("--test") || !given("--bench") {
            Mode::Test
        } else if arguments.len() > 1 {
            Mode::Partial
        } else {
            Mode::Full
        };
        let follows_option = |place: usize| place > 0 && WITH_VALUE.contains(&arguments[place - 1].as_str());
        let filters = arguments.iter().enumerate();
        let filters = filters.filter(|(place, argument)| !argument.starts_with('-') && !follows_option(*place));
        Self { mode, filters: filters.map(|(_, filter)| filter.clone()).collect() }
    }

    /// Whether a figure of this name, which criterion does not sample, is to be measured. Filters are plain text
    /// here, with or without criterion's name of the group before them.
    pub fn selects(&self, group: &str, name: &str) -> bool {
        let full = format!("{group}/{name}");
        let chosen = self.filters.is_empty() || self.filters.iter().any(|filter| full.contains(filter.as_str()));
        self.mode != Mode::CriterionOnly && chosen
    }
}
