//! What a command brings: lines and plots, on the terminal and as files.

use crate::figures::line::{Line, Source};
use crate::figures::plot::Plot;
use fabric_sim::RunError;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a command brought nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// The command line or the parameters make no sense.
    #[error("{0}")]
    Usage(String),
    /// A simulation ended early.
    #[error("{what}: {source}")]
    Simulation {
        /// What was being simulated.
        what: &'static str,
        /// Why it ended.
        source: RunError,
    },
    /// A line or a picture does not say what a reader needs to judge it.
    #[error("{0}")]
    Schema(String),
    /// A rank's program failed.
    #[error("{what}: {error}")]
    Program {
        /// What was being simulated.
        what: &'static str,
        /// What the rank says.
        error: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Failure {
    /// Names what was being simulated.
    pub(crate) fn of(what: &'static str) -> impl Fn(RunError) -> Self {
        move |source| Self::Simulation { what, source }
    }
}

/// What a document claims and the simulation does not show.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NotReproduced {
    /// Where it stands.
    pub(crate) source: Source,
    /// What the document says, in words of ours.
    pub(crate) sentence: &'static str,
    /// What was tried, and what came of it.
    pub(crate) tried: String,
}

/// The lines and plots of a machine.
pub(crate) struct Report {
    machine: &'static str,
    lines: Vec<Line>,
    not_reproduced: Vec<NotReproduced>,
    plots: Vec<Plot>,
}

impl Report {
    /// Nothing yet.
    pub(crate) fn new(machine: &'static str) -> Self {
        Self { machine, lines: Vec::new(), not_reproduced: Vec::new(), plots: Vec::new() }
    }

    /// Takes in what a part brought, and prints its lines under their heading.
    ///
    /// # Errors
    /// [`Failure::Schema`]: a line or a picture that does not say what its reference is.
    pub(crate) fn add(&mut self, part: Part) -> Result<(), Failure> {
        let checks = part.lines.iter().map(Line::check).chain(part.plots.iter().map(Plot::check));
        checks.collect::<Result<(), _>>().map_err(Failure::Schema)?;
        println!("\n{}", part.title);
        if !part.lines.is_empty() {
            println!("{}", Line::heading());
        }
        for line in &part.lines {
            println!("{}", line.row());
        }
        for note in &part.notes {
            println!("  {note}");
        }
        for missing in &part.not_reproduced {
            let NotReproduced { source: Source { document, place }, sentence, tried } = missing;
            println!("  not reproduced: {sentence} ({document}, {place}); {tried}");
        }
        self.lines.extend(part.lines);
        self.not_reproduced.extend(part.not_reproduced);
        self.plots.extend(part.plots);
        Ok(())
    }

    /// Whether every line is within its tolerance; without lines nothing has been shown.
    pub(crate) fn all_within(&self) -> bool {
        !self.lines.is_empty() && self.lines.iter().all(Line::within)
    }

    /// Says in one line how it went.
    pub(crate) fn conclude(&self) {
        let outside = self.lines.iter().filter(|line| !line.within()).count();
        match outside {
            0 => println!("all {} lines are within their tolerances", self.lines.len()),
            _ => println!("{outside} of {} lines are outside their tolerances", self.lines.len()),
        }
    }

    /// Writes lines, plots and points to a folder. Returns the path of the lines.
    ///
    /// # Errors
    /// [`Failure::Write`].
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        self.write_pictures(folder)?;
        for plot in &self.plots {
            write(&folder.join(format!("{}-{}.csv", self.machine, plot.name)), &plot.csv())?;
        }
        let records: Vec<_> = self.lines.iter().map(Line::record).collect();
        let path = folder.join(format!("{}.json", self.machine));
        write(&path, &json(&records))?;
        let path_of_missing = folder.join(format!("{}-not-reproduced.json", self.machine));
        write(&path_of_missing, &json(&self.not_reproduced))?;
        Ok(path)
    }

    /// Writes the plots to a folder.
    ///
    /// # Errors
    /// [`Failure::Write`].
    pub(crate) fn write_pictures(&self, folder: &Path) -> Result<(), Failure> {
        fs::create_dir_all(folder).map_err(|source| Failure::Write { path: folder.into(), source })?;
        self.plots
            .iter()
            .try_for_each(|plot| write(&folder.join(format!("{}-{}.svg", self.machine, plot.name)), &plot.svg()))
    }
}

/// What a part of a command brings.
#[derive(Default)]
pub(crate) struct Part {
    /// Its heading.
    pub(crate) title: &'static str,
    /// Its lines.
    pub(crate) lines: Vec<Line>,
    /// What readers should know besides.
    pub(crate) notes: Vec<String>,
    /// What it tried in vain.
    pub(crate) not_reproduced: Vec<NotReproduced>,
    /// Its plots.
    pub(crate) plots: Vec<Plot>,
}

fn json(records: &[impl Serialize]) -> String {
    let mut json = serde_json::to_string_pretty(records).expect("records are plain data");
    json.push('\n');
    json
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|source| Failure::Write { path: path.into(), source })
}
