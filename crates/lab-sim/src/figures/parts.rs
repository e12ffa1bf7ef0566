//! Which parts of a reproduction are run: all, or those that the command line chooses.

use crate::figures::cli::Cli;
use crate::figures::progress::Progress;
use crate::figures::report::{Failure, Part, Report};

/// The parts of a machine's reproduction: by which name they are chosen, what they are, what runs them.
pub(crate) struct Parts<R: 'static>(pub(crate) &'static [(&'static str, &'static str, R)]);

impl<R> Parts<R> {
    /// Runs all parts, or those that the command line chooses, each by `play`.
    ///
    /// # Errors
    /// [`Failure`]: a part that there is not, or what `play` says.
    pub(crate) fn run(
        &self,
        cli: &Cli,
        report: &mut Report,
        play: impl Fn(&R, &Progress) -> Result<Part, Failure>,
    ) -> Result<(), Failure> {
        if let Some(unknown) = cli.only.iter().find(|only| self.0.iter().all(|(name, ..)| only != name)) {
            let names: Vec<&str> = self.0.iter().map(|(name, ..)| *name).collect();
            return Err(Failure::Usage(format!("--only is '{unknown}', but there are {}", names.join(", "))));
        }
        let chosen = |name: &str| cli.only.is_empty() || cli.only.iter().any(|only| only == name);
        let parts = self.0.iter().filter(|(name, ..)| chosen(name));
        let mut progress = Progress::new(parts.clone().count());
        for (_, what, part) in parts {
            progress.begin(what);
            let part = play(part, &progress)?;
            progress.suspend(|| report.add(part))?;
        }
        Ok(())
    }
}
