//! GOAL's text format.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!     l1: calc 100 cpu 0
//!     l2: send 10b to 1 tag 7 nic 0   // a comment
//!     l2 requires l1
//! }
//! ```

use super::{Action, Operation, Schedule};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A text that is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("schedule, line {line}: {problem}")]
#[non_exhaustive]
pub struct ScheduleError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

/// Ranks of a schedule, at most.
const MOST_RANKS: u64 = 1 << 20;

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let mut reader = Reader {
            schedule: Self::default(),
            rank: None,
            labels: BTreeMap::new(),
            pending: Vec::new(),
            seen: Vec::new(),
        };
        let mut comment = false;
        let (mut last, mut begun) = (0, String::new());
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            begun.push_str(&without_comments(line, &mut comment));
            if comment {
                // The comment's end goes on with the line.
                continue;
            }
            let plain = std::mem::take(&mut begun);
            // Brackets and colons are words of their own.
            let spaced = plain.replace('{', " { ").replace('}', " } ").replace(':', " : ");
            let words: Vec<&str> = spaced.split_whitespace().collect();
            reader.line(&words).map_err(|problem| ScheduleError { line: index + 1, problem })?;
        }
        let wrong = |problem: &str| ScheduleError { line: last, problem: problem.into() };
        if comment {
            return Err(wrong("a comment that does not end"));
        }
        if let Some(rank) = reader.rank {
            return Err(wrong(&format!("rank {rank} has no closing bracket")));
        }
        if reader.schedule.ranks.is_empty() {
            return Err(wrong("there is no 'num_ranks'"));
        }
        Ok(reader.schedule)
    }
}

/// A line without its comments; `inside` says whether it begins, and then whether it ends, in one.
fn without_comments(line: &str, inside: &mut bool) -> String {
    let (mut plain, mut rest) = (String::new(), line);
    loop {
        if *inside {
            let Some(end) = rest.find("*/") else { return plain };
            rest = &rest[end + 2..];
            *inside = false;
            plain.push(' ');
        }
        match (rest.find("//"), rest.find("/*")) {
            (Some(line), block) if block.is_none_or(|block| line < block) => return plain + &rest[..line],
            (_, Some(block)) => {
                plain.push_str(&rest[..block]);
                rest = &rest[block + 2..];
                *inside = true;
            }
            _ => return plain + rest,
        }
    }
}

struct Reader {
    schedule: Schedule,
    rank: Option<usize>,
    labels: BTreeMap<String, u32>,
    /// Requirements that name labels which come later: line's words are checked at the end of the rank.
    pending: Vec<(String, String, bool)>,
    seen: Vec<bool>,
}

fn number(word: Option<&&str>, what: &str) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("{what} is missing"))?;
    word.parse().map_err(|_| format!("'{word}' is no {what}"))
}

impl Reader {
    fn line(&mut self, mut words: &[&str]) -> Result<(), String> {
        while !words.is_empty() {
            words = self.item(words)?;
        }
        Ok(())
    }

    /// Reads one item; the words behind it.
    fn item<'w, 't>(&mut self, words: &'w [&'t str]) -> Result<&'w [&'t str], String> {
        match (words, self.rank) {
            (["num_ranks", rest @ ..], None) => {
                let ranks = number(rest.first(), "number of ranks")?;
                if !self.schedule.ranks.is_empty() {
                    return Err("a second 'num_ranks'".into());
                }
                if ranks == 0 || ranks > MOST_RANKS {
                    return Err(format!("num_ranks is {ranks}, but must be from 1 to {MOST_RANKS}"));
                }
                self.schedule.ranks = vec![Vec::new(); ranks as usize];
                self.seen = vec![false; ranks as usize];
                Ok(&rest[1..])
            }
            (["rank", rest @ ..], None) => {
                let rank = number(rest.first(), "rank")?;
                if rank >= self.schedule.ranks.len() as u64 {
                    return Err(format!(
                        "rank {rank}, but must be below num_ranks, {}",
                        self.schedule.ranks.len()
                    ));
                }
                if std::mem::replace(&mut self.seen[rank as usize], true) {
                    return Err(format!("rank {rank} for the second time"));
                }
                let ["{", rest @ ..] = &rest[1..] else {
                    return Err(format!("'{{' is missing behind rank {rank}"));
                };
                self.rank = Some(rank as usize);
                Ok(rest)
            }
            (["}", rest @ ..], Some(rank)) => {
                for (one, other, started) in std::mem::take(&mut self.pending) {
                    self.require(rank, &one, &other, started)?;
                }
                self.labels.clear();
                self.rank = None;
                Ok(rest)
            }
            ([one, "requires", other, rest @ ..], Some(_)) => {
                self.pending.push(((*one).into(), (*other).into(), false));
                Ok(rest)
            }
            ([one, "irequires", other, rest @ ..], Some(_)) => {
                self.pending.push(((*one).into(), (*other).into(), true));
                Ok(rest)
            }
            ([label, ":", rest @ ..], Some(rank)) => {
                let place = self.schedule.ranks[rank].len() as u32;
                if self.labels.insert((*label).into(), place).is_some() {
                    return Err(format!("the label '{label}' for the second time"));
                }
                self.operation(rank, rest)
            }
            (_, Some(rank)) => self.operation(rank, words),
            ([word, ..], None) => Err(format!("'{word}' outside of a rank")),
            ([], _) => Ok(words),
        }
    }

    fn require(&mut self, rank: usize, one: &str, other: &str, started: bool) -> Result<(), String> {
        let place = |label: &str| {
            self.labels.get(label).copied().ok_or_else(|| format!("rank {rank} has no label '{label}'"))
        };
        let (one, other) = (place(one)?, place(other)?);
        let operation = &mut self.schedule.ranks[rank][one as usize];
        if started {
            operation.irequires.push(other)
        } else {
            operation.requires.push(other)
        }
        Ok(())
    }

    fn operation<'w, 't>(&mut self, rank: usize, words: &'w [&'t str]) -> Result<&'w [&'t str], String> {
        let ranks = self.schedule.ranks.len() as u64;
        let bytes = |word: Option<&&str>| {
            let word = word.ok_or("the number of bytes is missing")?;
            let number =
                word.strip_suffix('b').ok_or_else(|| format!("'{word}' is no number of bytes, such as 8b"))?;
            number.parse::<u64>().map_err(|_| format!("'{word}' is no number of bytes, such as 8b"))
        };
        let peer = |word: Option<&&str>, any: bool| match word {
            Some(&"-1") if any => Ok(None),
            word => match number(word, "rank")? {
                peer if peer < ranks => Ok(Some(peer as u32)),
                peer => Err(format!("rank {peer}, but must be below num_ranks, {ranks}")),
            },
        };
        let (mut action, mut rest) = match words {
            ["calc", rest @ ..] => (Action::Calc(number(rest.first(), "number of nanoseconds")?), &rest[1..]),
            ["send", size, "to", rest @ ..] => {
                let to = peer(rest.first(), false)?.unwrap_or_default();
                (Action::Send { bytes: bytes(Some(size))?, to, tag: 0 }, &rest[1..])
            }
            ["recv", size, "from", rest @ ..] => {
                let from = peer(rest.first(), true)?;
                (Action::Receive { bytes: bytes(Some(size))?, from, tag: Some(0) }, &rest[1..])
            }
            ["send", ..] => return Err("a send must be 'send SIZEb to RANK'".into()),
            ["recv", ..] => return Err("a receive must be 'recv SIZEb from RANK'".into()),
            [word, ..] => return Err(format!("'{word}', but must be calc, send, recv, a label or '}}'")),
            [] => return Err("an operation is missing behind a label".into()),
        };
        let mut operation = Operation::new(Action::Calc(0));
        loop {
            rest = match rest {
                ["tag", "-1", rest @ ..] => {
                    let Action::Receive { tag, .. } = &mut action else {
                        return Err("only receives take any tag".into());
                    };
                    *tag = None;
                    rest
                }
                ["tag", rest @ ..] => {
                    let given = number(rest.first(), "tag")?;
                    let given =
                        u32::try_from(given).map_err(|_| format!("tag {given}, but must be below 2^32"))?;
                    match &mut action {
                        Action::Send { tag, .. } => *tag = given,
                        Action::Receive { tag, .. } => *tag = Some(given),
                        Action::Calc(_) => return Err("a calc has no tag".into()),
                    }
                    &rest[1..]
                }
                [unit @ ("cpu" | "nic"), rest @ ..] => {
                    let given = number(rest.first(), unit)?;
                    let given =
                        u8::try_from(given).map_err(|_| format!("{unit} {given}, but must be below 256"))?;
                    if *unit == "cpu" {
                        operation.cpu = given
                    } else {
                        operation.nic = given
                    }
                    &rest[1..]
                }
                _ => break self.schedule.ranks[rank].push(Operation { action, ..operation }),
            };
        }
        Ok(rest)
    }
}

impl fmt::Display for Schedule {
    /// In the format that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "num_ranks {}", self.ranks.len())?;
        for (rank, operations) in self.ranks.iter().enumerate() {
            writeln!(f, "\nrank {rank} {{")?;
            for (place, Operation { action, cpu, nic, requires, irequires }) in operations.iter().enumerate() {
                let any = |of: Option<u32>| of.map_or_else(|| "-1".into(), |of| of.to_string());
                match *action {
                    Action::Calc(nanos) => write!(f, "l{place}: calc {nanos}")?,
                    Action::Send { bytes, to, tag } => write!(f, "l{place}: send {bytes}b to {to} tag {tag}")?,
                    Action::Receive { bytes, from, tag } => {
                        write!(f, "l{place}: recv {bytes}b from {} tag {}", any(from), any(tag))?;
                    }
                }
                for (name, unit) in [("cpu", cpu), ("nic", nic)] {
                    if *unit != 0 {
                        write!(f, " {name} {unit}")?;
                    }
                }
                writeln!(f)?;
                for (word, others) in [("requires", requires), ("irequires", irequires)] {
                    for other in others {
                        writeln!(f, "l{place} {word} l{other}")?;
                    }
                }
            }
            writeln!(f, "}}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_as_written() {
        let text = "num_ranks 2 // ranks\nrank 1 {\nb: calc 5 cpu 1\na: recv 8b from -1 tag -1 /* a long\n comment */ nic 2\n\
                    b irequires a }\nrank 0 {\n send 9b to 1 }";
        let schedule: Schedule = text.parse().unwrap();
        let receive = Operation { nic: 2, ..Operation::new(Action::Receive { bytes: 8, from: None, tag: None }) };
        let calc = Operation { cpu: 1, irequires: vec![1], ..Operation::new(Action::Calc(5)) };
        assert_eq!(schedule.ranks[1], [calc, receive]);
        assert_eq!(schedule.ranks[0], [Operation::new(Action::Send { bytes: 9, to: 1, tag: 0 })]);
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }

    #[test]
    fn what_is_wrong_names_its_line() {
        for (text, line, problem) in [
            ("", 0, "there is no 'num_ranks'"),
            ("rank 0 {", 1, "rank 0, but must be below num_ranks, 0"),
            ("num_ranks 0", 1, "num_ranks is 0, but must be from 1"),
            ("num_ranks 1\nnum_ranks 1", 2, "a second 'num_ranks'"),
            ("num_ranks 1\nrank 0 {\n", 2, "rank 0 has no closing bracket"),
            ("num_ranks 1\nrank 0\n", 2, "'{' is missing behind rank 0"),
            ("num_ranks 1\nrank 0 {}\nrank 0 {}", 3, "rank 0 for the second time"),
            ("num_ranks 1\ncalc 5", 2, "'calc' outside of a rank"),
            ("num_ranks 1\nrank 0 {\n a: calc 1\n a: calc 2 }", 4, "the label 'a' for the second time"),
            ("num_ranks 1\nrank 0 {\n a: calc 1\n a requires b\n}", 5, "rank 0 has no label 'b'"),
            ("num_ranks 1\nrank 0 { send 8 to 0 }", 2, "'8' is no number of bytes, such as 8b"),
            ("num_ranks 1\nrank 0 { send 8b to 1 }", 2, "rank 1, but must be below num_ranks, 1"),
            ("num_ranks 1\nrank 0 { send 8b 0 }", 2, "a send must be 'send SIZEb to RANK'"),
            ("num_ranks 1\nrank 0 { calc 1 tag 3 }", 2, "a calc has no tag"),
            ("num_ranks 1\nrank 0 { calc 1 cpu 256 }", 2, "cpu 256, but must be below 256"),
            ("num_ranks 1\nrank 0 { calc x }", 2, "'x' is no number of nanoseconds"),
            ("num_ranks 1\nrank 0 { jump }", 2, "'jump', but must be calc, send, recv, a label or '}'"),
            ("num_ranks 1 /*", 1, "a comment that does not end"),
            ("num_ranks 1\nrank 0 { send 1b to 0 tag -1 }", 2, "only receives take any tag"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err();
            assert!(error.line == line && error.problem.starts_with(problem), "{text:?}: {error}");
        }
    }
}
