//! What a program prints at its end: a table for people, or one JSON object.

use super::Part;
use crate::Span;
use std::fmt::{self, Display, Write};

/// The outcome of a run: how long it took, how much it did, and how much of that was wrong.
///
/// ```
/// use active_messages::Span;
/// use active_messages::anywhere::Report;
///
/// let report = Report::new("loop", 4, Span::from_millis(500)).work(1e6, "updates/s").with("bins", 1024);
/// assert_eq!(
///     report.json(),
///     r#"{"program":"loop","ranks":4,"seconds":0.5,"rate":2000000,"unit":"updates/s","errors":0,"bins":1024}"#
/// );
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    fields: Vec<(&'static str, Value)>,
    seconds: f64,
    errors: u64,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(f64),
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Rust escapes the characters of a string that JSON does, as long as they are printable.
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) if number.is_finite() => write!(f, "{number}"),
            Self::Number(_) => f.write_str("null"),
        }
    }
}

/// The report was of a run with errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is wrong: {errors} errors")]
struct Wrong {
    errors: u64,
}

impl Report {
    /// A report of what `ranks` ranks did in a time, without errors.
    pub fn new(program: &str, ranks: u32, time: Span) -> Self {
        let seconds = time.picos() as f64 / 1e12;
        let text = |text: &str| Value::Text(text.into());
        let fields = vec![
            ("program", text(program)),
            ("ranks", Value::Number(ranks.into())),
            ("seconds", Value::Number(seconds)),
            ("rate", Value::Number(0.0)),
            ("unit", text("")),
            ("errors", Value::Number(0.0)),
        ];
        Self { fields, seconds, errors: 0 }
    }

    fn set(&mut self, name: &'static str, value: Value) {
        match self.fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name, value)),
        }
    }

    /// Sets how much was done, and what its rate is called: `updates/s`.
    #[must_use]
    pub fn work(mut self, amount: f64, unit: &str) -> Self {
        self.set("rate", Value::Number(amount / self.seconds));
        self.set("unit", Value::Text(unit.into()));
        self
    }

    /// Sets how many errors the check of the answer found.
    #[must_use]
    pub fn errors(mut self, errors: u64) -> Self {
        self.errors = errors;
        self.set("errors", Value::Number(errors as f64));
        self
    }

    /// Adds a number of the program's own.
    #[must_use]
    pub fn with(mut self, name: &'static str, number: impl Into<f64>) -> Self {
        self.set(name, Value::Number(number.into()));
        self
    }

    /// The report as one JSON object.
    pub fn json(&self) -> String {
        let fields: Vec<String> = self.fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
        format!("{{{}}}", fields.join(","))
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut table = String::new();
        let width = self.fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.fields {
            let value = match value {
                Value::Text(text) => text.clone(),
                Value::Number(number) => readable(*number),
            };
            // Writing to a string does not fail.
            let _ = writeln!(table, "{name:>width$}  {value}");
        }
        table
    }

    /// Prints the report, and makes a failure of errors: what a rank's part ends with.
    ///
    /// # Errors
    /// If there were errors.
    pub fn print(&self, json: bool) -> Part {
        if json {
            println!("{}", self.json());
        } else {
            print!("{}", self.table());
        }
        if self.errors == 0 { Ok(()) } else { Err(Wrong { errors: self.errors }.into()) }
    }
}

/// A number as a reader wants it: whole, or with about four digits.
fn readable(number: f64) -> String {
    match number.abs() {
        1e6.. => format!("{:.3} M", number / 1e6),
        _ if number.fract() == 0.0 => number.to_string(),
        1e3.. => format!("{number:.0}"),
        1e-3.. => format!("{number:.4}"),
        _ => format!("{number:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_fail_and_stand_in_the_report() {
        let report = Report::new("a \"b\"", 1, Span::from_millis(1));
        assert!(report.print(false).is_ok());
        let wrong = report.errors(3);
        assert!(
            wrong.json().contains(r#""program":"a \"b\"","ranks":1"#) && wrong.json().contains(r#""errors":3"#)
        );
        assert_eq!(wrong.print(true).unwrap_err().to_string(), "the answer is wrong: 3 errors");
        let numbers = [2.5e6, 7.0, 1234.5, 1.518703, 1.13e-9, 0.0].map(readable);
        assert_eq!(numbers, ["2.500 M", "7", "1234", "1.5187", "1.130e-9", "0"]);
        // Nothing is divided by no time.
        assert!(Report::new("x", 1, Span::ZERO).work(1.0, "u").json().contains(r#""rate":null"#));
    }
}
