//! The progress bar of rank 0's own updates, shown on a terminal only and touched once in thousands of them.

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::{IsTerminal, stderr};

/// Updates between two touches of the bar: rare enough to cost nothing, often enough to look smooth.
const STRIDE: u64 = 1 << 18;

/// Shows how far a phase is, or nothing at all.
pub struct Progress {
    bar: ProgressBar,
    done: u64,
    shown: u64,
}

impl Progress {
    /// A bar on the standard error stream when `wanted` and that is a terminal; otherwise silence.
    pub fn new(wanted: bool, phase: &'static str, updates: u64) -> Self {
        let visible = wanted && stderr().is_terminal();
        let bar = if visible { ProgressBar::new(updates) } else { ProgressBar::hidden() };
        let template = "{msg:>10} {wide_bar} {percent:>3} % {rate:>9} {eta:>4}";
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            // A bar that cannot be drawn is no reason to end a run.
            let _ = write!(out, "{:.1} M/s", state.per_sec() * 1e-6);
        };
        bar.set_style(style.with_key("rate", rate));
        bar.set_message(phase);
        Self { bar, done: 0, shown: 0 }
    }

    /// Counts updates; draws at most once in `STRIDE` of them.
    #[inline(always)]
    pub fn advance(&mut self, updates: usize) {
        self.done += updates as u64;
        if self.done - self.shown >= STRIDE {
            self.show();
        }
    }

    #[cold]
    fn show(&mut self) {
        self.shown = self.done;
        self.bar.set_position(self.done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
