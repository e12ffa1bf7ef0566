//! Who is where: the configuration file that maps machines, ranks and SCI node ids, and the job file that picks
//! machines.
//!
//! The interconnect knows nodes by 16-bit ids and no ranks, so that every process reads the same two small files
//! before it opens its first segment. A line of the configuration file is a machine's name, its rank and its node
//! id, separated by blanks; a line of the job file is the name of a machine to use. `#` begins a comment, and
//! empty lines count only as lines.
//!
//! With a job file, the machines that it names are numbered anew from 0, in the order of their ranks in the
//! configuration.
//!
//! ```
//! use sci_sim::conduit::NodeMap;
//!
//! let map = NodeMap::parse("n01 0 4\nn02 1 8\nn03 2 12\n", None)?;
//! assert_eq!((map.ranks(), map.node(2), map.name(2)), (3, Some(12), Some("n03")));
//!
//! let part = NodeMap::parse("n01 0 4\nn02 1 8\nn03 2 12\n", Some("n03\nn01\n"))?;
//! assert_eq!((part.ranks(), part.node(1), part.rank_of("n03")), (2, Some(12), Some(1)));
//!
//! let error = NodeMap::parse("n01 0 4\nn02 one 8\n", None).unwrap_err();
//! let wanted = "line 2 of the configuration file: the rank 'one' is not a number from 0 to 65531";
//! assert_eq!(error.to_string(), wanted);
//! # Ok::<(), sci_sim::conduit::BootstrapError>(())
//! ```

use std::fmt;
use thiserror::Error;

/// The most ranks that segment ids leave room for: the low half of an id counts ranks and four segments more.
pub const MAX_RANKS: u32 = (1 << 16) - 4;

/// The machines of a job, by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMap {
    machines: Vec<Machine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    name: String,
    node: u16,
}

/// Which of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Machines, ranks, node ids.
    Configuration,
    /// The machines to use.
    Job,
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "configuration file",
            Self::Job => "job file",
        })
    }
}

/// Why there is no job in these files.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A line has other than the expected fields.
    #[error("line {line} of the {file}: {found} fields instead of {expected}")]
    Fields {
        /// The file.
        file: File,
        /// The line, counted from 1.
        line: usize,
        /// How many fields it has.
        found: usize,
        /// What it should have.
        expected: &'static str,
    },
    /// A rank or node id that is none.
    #[error("line {line} of the configuration file: the {field} '{found}' is not a number from 0 to {limit}")]
    Number {
        /// The line, counted from 1.
        line: usize,
        /// What the number should be.
        field: &'static str,
        /// What stands there.
        found: String,
        /// The largest such number.
        limit: u32,
    },
    /// Something that an earlier line has as well.
    #[error("line {line} of the {file}: the {field} '{value}' stands in line {first} already")]
    Twice {
        /// The file.
        file: File,
        /// The line, counted from 1.
        line: usize,
        /// What stands twice.
        field: &'static str,
        /// Its value.
        value: String,
        /// The line that has it, too.
        first: usize,
    },
    /// The job file names a machine that the configuration does not have.
    #[error("line {line} of the job file: the machine '{name}' is not in the configuration file")]
    Unknown {
        /// The line, counted from 1.
        line: usize,
        /// The machine.
        name: String,
    },
    /// A rank that no line has, although a higher one is there.
    #[error("the configuration file has {machines} machines, but none of rank {rank}")]
    Missing {
        /// How many machines there are.
        machines: usize,
        /// The first rank that is missing.
        rank: u32,
    },
    /// No machine at all.
    #[error("the {0} names no machine")]
    Empty(File),
}

/// The fields of a file's lines that have any, with the numbers of those lines.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let content = line.split('#').next().unwrap_or_default();
        let fields: Vec<_> = content.split_whitespace().collect();
        (!fields.is_empty()).then_some((index + 1, fields))
    })
}

struct Entry<'t> {
    line: usize,
    name: &'t str,
    rank: u32,
    node: u16,
}

fn number(line: usize, field: &'static str, found: &str, limit: u32) -> Result<u32, BootstrapError> {
    let parsed = found.parse().ok().filter(|number| *number <= limit);
    parsed.ok_or_else(|| BootstrapError::Number { line, field, found: found.into(), limit })
}

fn entries(text: &str) -> Result<Vec<Entry<'_>>, BootstrapError> {
    let file = File::Configuration;
    let mut entries = Vec::<Entry<'_>>::new();
    for (line, fields) in lines(text) {
        let &[name, rank, node] = fields.as_slice() else {
            let expected = "a machine, its rank and its SCI node id";
            return Err(BootstrapError::Fields { file, line, found: fields.len(), expected });
        };
        let rank = number(line, "rank", rank, MAX_RANKS - 1)?;
        let node = number(line, "SCI node id", node, u16::MAX.into())? as u16;
        entries.push(Entry { line, name, rank, node });
    }
    twice(file, "machine", entries.iter().map(|entry| (entry.line, entry.name)))?;
    twice(file, "rank", entries.iter().map(|entry| (entry.line, entry.rank)))?;
    twice(file, "SCI node id", entries.iter().map(|entry| (entry.line, entry.node)))?;
    Ok(entries)
}

/// Fails at the first line that repeats what an earlier one has.
fn twice<V: Ord + Copy + fmt::Display>(
    file: File,
    field: &'static str,
    values: impl Iterator<Item = (usize, V)>,
) -> Result<(), BootstrapError> {
    let mut known = std::collections::BTreeMap::new();
    for (line, value) in values {
        if let Some(first) = known.insert(value, line) {
            return Err(BootstrapError::Twice { file, line, field, value: value.to_string(), first });
        }
    }
    Ok(())
}

impl NodeMap {
    /// Reads the text of a configuration file, and of a job file if there is one. Allocates.
    ///
    /// # Errors
    /// [`BootstrapError`] names the first bad line with its number.
    pub fn parse(configuration: &str, job: Option<&str>) -> Result<Self, BootstrapError> {
        let mut entries = entries(configuration)?;
        entries.sort_by_key(|entry| entry.rank);
        if entries.is_empty() {
            return Err(BootstrapError::Empty(File::Configuration));
        }
        let gap = (0..).zip(&entries).find(|(rank, entry)| entry.rank != *rank);
        if let Some((rank, _)) = gap {
            return Err(BootstrapError::Missing { machines: entries.len(), rank });
        }
        if let Some(job) = job {
            let wanted = wanted(job, &entries)?;
            entries.retain(|entry| wanted.contains(&entry.name));
        }
        let machines = entries.into_iter().map(|entry| Machine { name: entry.name.into(), node: entry.node });
        Ok(Self { machines: machines.collect() })
    }

    /// So many machines without a file: rank `r` is node `4 (r + 1)`, as the adapters are numbered when nobody
    /// says otherwise.
    ///
    /// # Panics
    /// If there are more ranks than such node ids, 16,383.
    pub fn consecutive(ranks: u32) -> Self {
        let node = |rank: u32| u16::try_from(4 * (rank + 1)).expect("there are node ids for at most 16,383 ranks");
        Self { machines: (0..ranks).map(|rank| Machine { name: format!("n{rank}"), node: node(rank) }).collect() }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.machines.len() as u32
    }

    /// The SCI node id of a rank; `None` if there is no such rank.
    pub fn node(&self, rank: u32) -> Option<u16> {
        self.machines.get(rank as usize).map(|machine| machine.node)
    }

    /// The machine of a rank; `None` if there is no such rank.
    pub fn name(&self, rank: u32) -> Option<&str> {
        self.machines.get(rank as usize).map(|machine| machine.name.as_str())
    }

    /// The rank of a machine; `None` if it takes no part.
    pub fn rank_of(&self, name: &str) -> Option<u32> {
        self.machines.iter().position(|machine| machine.name == name).map(|rank| rank as u32)
    }
}

/// The machines that a job file names.
fn wanted<'t>(job: &'t str, entries: &[Entry<'_>]) -> Result<Vec<&'t str>, BootstrapError> {
    let file = File::Job;
    let mut wanted = Vec::new();
    for (line, fields) in lines(job) {
        let &[name] = fields.as_slice() else {
            return Err(BootstrapError::Fields { file, line, found: fields.len(), expected: "a machine" });
        };
        if entries.iter().all(|entry| entry.name != name) {
            return Err(BootstrapError::Unknown { line, name: name.into() });
        }
        wanted.push((line, name));
    }
    twice(file, "machine", wanted.iter().copied())?;
    if wanted.is_empty() {
        return Err(BootstrapError::Empty(file));
    }
    Ok(wanted.into_iter().map(|(_, name)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(configuration: &str, job: Option<&str>) -> String {
        NodeMap::parse(configuration, job).unwrap_err().to_string()
    }

    #[test]
    fn comments_blank_lines_and_any_order_are_fine() {
        let text = "# machine rank node\n\n  n2\t1 8   # the second\nn1 0 4\n";
        let map = NodeMap::parse(text, None).unwrap();
        assert_eq!((map.name(0), map.node(1), map.node(2)), (Some("n1"), Some(8), None));
        assert_eq!(NodeMap::parse(text, Some("n2 # alone")).unwrap().rank_of("n2"), Some(0));
    }

    #[test]
    fn bad_lines_are_named_by_number() {
        let good = "n1 0 4\n# nothing\n";
        let of = |line: &str| refused(&format!("{good}{line}\n"), None);
        assert_eq!(
            of("n2 1"),
            "line 3 of the configuration file: 2 fields instead of a machine, its rank and its SCI node id"
        );
        assert!(
            of("n2 -1 8")
                .ends_with("line 3 of the configuration file: the rank '-1' is not a number from 0 to 65531")
        );
        assert!(of("n2 1 65536").ends_with("the SCI node id '65536' is not a number from 0 to 65535"));
        assert_eq!(of("n1 1 8"), "line 3 of the configuration file: the machine 'n1' stands in line 1 already");
        assert_eq!(of("n2 0 8"), "line 3 of the configuration file: the rank '0' stands in line 1 already");
        assert_eq!(of("n2 1 4"), "line 3 of the configuration file: the SCI node id '4' stands in line 1 already");
        assert_eq!(of("n2 2 8"), "the configuration file has 2 machines, but none of rank 1");
        assert_eq!(refused("# nobody\n", None), "the configuration file names no machine");
    }

    #[test]
    fn bad_lines_of_the_job_file_are_named_by_number() {
        let job = |text: &str| refused("n1 0 4\nn2 1 8\n", Some(text));
        assert_eq!(job("n1\n\nn3"), "line 3 of the job file: the machine 'n3' is not in the configuration file");
        assert_eq!(job("n1 n2"), "line 1 of the job file: 2 fields instead of a machine");
        assert_eq!(job("n1\nn1"), "line 2 of the job file: the machine 'n1' stands in line 1 already");
        assert_eq!(job("\n"), "the job file names no machine");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[ -~\n\t]{0,200}", job in prop::option::of("[ -~\n]{0,60}")) {
            let _ = NodeMap::parse(&text, job.as_deref());
        }
    }
}
