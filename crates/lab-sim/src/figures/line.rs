//! A line of the comparison: what was published, what the simulation gives, and whether that is near enough.

use serde::Serialize;

/// When a simulated value agrees with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Test {
    /// The distance is at most the tolerance.
    Within,
    /// It is at least as large, less the tolerance: for claims in words, whose bound is how they are read here.
    AtLeast,
    /// It is at most as large, plus the tolerance.
    AtMost,
}

/// A published figure or claim beside the simulated one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    name: String,
    unit: &'static str,
    source: &'static str,
    published: f64,
    simulated: f64,
    tolerance: f64,
    test: Test,
    held_out: bool,
}

/// A line as it stands in the JSON file.
#[derive(Serialize)]
pub(crate) struct Record<'a> {
    name: &'a str,
    published: f64,
    simulated: f64,
    residual: f64,
    tolerance: f64,
    held_out: bool,
    unit: &'a str,
    test: Test,
    within: bool,
    source: &'a str,
}

impl Line {
    /// A value with its absolute tolerance.
    pub(crate) fn value(
        name: impl Into<String>,
        unit: &'static str,
        published: f64,
        simulated: f64,
        tolerance: f64,
    ) -> Self {
        let source = "";
        Self {
            name: name.into(),
            unit,
            source,
            published,
            simulated,
            tolerance,
            test: Test::Within,
            held_out: false,
        }
    }

    /// A claim, read as a value of at least so much.
    pub(crate) fn at_least(name: impl Into<String>, unit: &'static str, bound: f64, simulated: f64) -> Self {
        Self { test: Test::AtLeast, ..Self::value(name, unit, bound, simulated, 0.0) }
    }

    /// A claim, read as a value of at most so much.
    pub(crate) fn at_most(name: impl Into<String>, unit: &'static str, bound: f64, simulated: f64) -> Self {
        Self { test: Test::AtMost, ..Self::value(name, unit, bound, simulated, 0.0) }
    }

    /// The same, with where the published value comes from and how a claim is read.
    pub(crate) fn from(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    /// The same, marked as one that had no part in fitting the parameters.
    pub(crate) fn held_out(self) -> Self {
        Self { held_out: true, ..self }
    }

    /// The same, marked so or not.
    pub(crate) fn held_out_if(self, held_out: bool) -> Self {
        Self { held_out, ..self }
    }

    /// How much larger the simulated value is.
    pub(crate) fn residual(&self) -> f64 {
        self.simulated - self.published
    }

    /// Whether the line agrees.
    pub(crate) fn within(&self) -> bool {
        // What is no number agrees with nothing. The allowance is for sums of decimal fractions.
        let slack = 1e-9 * self.published.abs();
        match self.test {
            Test::Within => self.residual().abs() <= self.tolerance + slack,
            Test::AtLeast => self.residual() >= -self.tolerance - slack,
            Test::AtMost => self.residual() <= self.tolerance + slack,
        }
    }

    /// What goes into the JSON file.
    pub(crate) fn record(&self) -> Record<'_> {
        Record {
            name: &self.name,
            published: self.published,
            simulated: self.simulated,
            residual: self.residual(),
            tolerance: self.tolerance,
            held_out: self.held_out,
            unit: self.unit,
            test: self.test,
            within: self.within(),
            source: self.source,
        }
    }

    /// The heading of the table that lines make.
    pub(crate) fn heading() -> String {
        format!(
            "{:<50} {:>10} {:>10} {:>9} {:>11}  {:<8} {}",
            "figure", "published", "simulated", "residual", "tolerance", "held out", "within"
        )
    }

    /// The line as a row of the table.
    pub(crate) fn row(&self) -> String {
        let digits = lab::bench::svg::digits;
        let (bound, tolerance) = match self.test {
            Test::Within => (digits(self.published), format!("+- {}", digits(self.tolerance))),
            Test::AtLeast => (digits(self.published), "at least".into()),
            Test::AtMost => (digits(self.published), "at most".into()),
        };
        let name = format!("{}{}{}", self.name, if self.unit.is_empty() { "" } else { ", " }, self.unit);
        format!(
            "{name:<50} {bound:>10} {:>10} {:>+9.3} {tolerance:>11}  {:<8} {}",
            digits(self.simulated),
            self.residual(),
            if self.held_out { "held out" } else { "" },
            if self.within() { "yes" } else { "NO" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_agree_up_to_their_tolerance_and_no_further() {
        let value = |simulated| Line::value("x", "us", 2.8, simulated, 0.05).within();
        assert_eq!([2.75, 2.85, 2.74, 2.86, f64::NAN].map(value), [true, true, false, false, false]);
        assert!(Line::at_least("x", "", 1.3, 1.3).within() && !Line::at_least("x", "", 1.3, 1.29).within());
        assert!(Line::at_most("x", "", 1.3, 1.3).within() && !Line::at_most("x", "", 1.3, 1.31).within());
        assert!(!Line::at_most("x", "", 1.3, f64::NAN).within());
    }

    #[test]
    fn records_have_what_readers_of_the_file_expect() {
        let line = Line::value("x", "us", 2.0, 3.0, 0.5).from("somewhere").held_out();
        let json = serde_json::to_value(line.record()).unwrap();
        assert_eq!(
            (json["residual"].as_f64(), json["held_out"].as_bool(), json["within"].as_bool()),
            (Some(1.0), Some(true), Some(false))
        );
        assert_eq!((json["test"].as_str(), json["tolerance"].as_f64()), (Some("within"), Some(0.5)));
    }
}
