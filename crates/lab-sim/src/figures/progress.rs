//! How far the command is: a bar on a terminal, otherwise a line for every part, and now and then one for what of
//! it is being done.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often a line says what is being done, where there is no terminal.
const PAUSE: Duration = Duration::from_secs(20);

/// The parts of a command, one after the other.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    parts: usize,
    part: usize,
    /// When there was last a line.
    told: Mutex<Instant>,
}

impl Progress {
    /// Progress over so many parts, on the standard error stream.
    pub(crate) fn new(parts: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(parts as u64);
            let style = ProgressStyle::with_template("{spinner} {pos}/{len} {elapsed:>4} {wide_msg}");
            bar.set_style(style.expect("the template is well formed"));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar, parts, part: 0, told: Mutex::new(Instant::now()) }
    }

    /// Begins the next part.
    pub(crate) fn begin(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.part as u64);
                bar.set_message(what.to_owned());
            }
            None => eprintln!("[{}/{}] {what}", self.part + 1, self.parts),
        }
        self.part += 1;
    }

    /// Says what of the part is being done. Any thread may call it.
    pub(crate) fn detail(&self, what: String) {
        if let Some(bar) = &self.bar {
            return bar.set_message(what);
        }
        let mut told = self.told.lock().expect("nothing panics while it holds the lock");
        if told.elapsed() >= PAUSE {
            *told = Instant::now();
            eprintln!("      {what}");
        }
    }

    /// Prints while the bar is out of the way.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
