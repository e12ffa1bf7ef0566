//! A line of the comparison: what a document says, or what this project's model gives, beside what the simulation
//! gives.
//!
//! A [`Group`] holds what lines have in common: what class their reference is of, where it stands, the sentence,
//! and the tolerance with the rule that it follows from. So a tolerance is the same for a whole group, and it
//! stands in the source before any run.

use serde::Serialize;

/// What a reference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// A number of the document.
    Published,
    /// A sentence of the document, and an inequality that it is read as.
    Claim,
    /// Arithmetic on numbers of the document.
    Derived,
    /// This project's own.
    Model,
}

impl Class {
    /// Its name, which the JSON file and pictures use too.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Claim => "claim",
            Self::Derived => "derived",
            Self::Model => "model",
        }
    }

    /// Whether a document says it: only that may stand in a column called published.
    pub(crate) const fn is_published(self) -> bool {
        matches!(self, Self::Published | Self::Claim)
    }
}

/// Where something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Source {
    /// The document.
    pub(crate) document: &'static str,
    /// The place in it: a table, a figure, what a part of the text is about.
    pub(crate) place: &'static str,
}

/// How far off a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tolerance {
    /// In the value's unit.
    Absolute(f64),
    /// A part of the reference.
    Part(f64),
}

impl Tolerance {
    fn of(self, reference: f64) -> f64 {
        match self {
            Self::Absolute(tolerance) => tolerance,
            Self::Part(part) => part * reference.abs(),
        }
    }
}

/// What lines have in common that are judged alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) class: Class,
    pub(crate) source: Source,
    /// What the document says, in words of ours; of a derived value or one of the model, how it comes about.
    pub(crate) sentence: &'static str,
    /// How far off values may be; inequalities have none.
    pub(crate) tolerance: Tolerance,
    /// Where the tolerance comes from, or how a sentence becomes an inequality.
    pub(crate) rule: &'static str,
}

impl Group {
    /// A value that the simulated one is to be near.
    pub(crate) fn value(
        &'static self,
        name: impl Into<String>,
        unit: &'static str,
        of: f64,
        simulated: f64,
    ) -> Line {
        let (name, tolerance) = (name.into(), self.tolerance.of(of));
        Line { group: self, name, unit, reference: of, simulated, tolerance, test: Test::Within, training: false }
    }

    /// An inequality: at least so much.
    pub(crate) fn at_least(
        &'static self,
        name: impl Into<String>,
        unit: &'static str,
        of: f64,
        found: f64,
    ) -> Line {
        Line { test: Test::AtLeast, tolerance: 0.0, ..self.value(name, unit, of, found) }
    }

    /// An inequality: at most so much.
    pub(crate) fn at_most(
        &'static self,
        name: impl Into<String>,
        unit: &'static str,
        of: f64,
        found: f64,
    ) -> Line {
        Line { test: Test::AtMost, tolerance: 0.0, ..self.value(name, unit, of, found) }
    }

    /// What is missing for the group to be judged by a reader, if anything is.
    fn missing(&self) -> Option<&'static str> {
        let said = |text: &str| text.trim().len() >= 3;
        let tolerance = match self.tolerance {
            Tolerance::Absolute(tolerance) | Tolerance::Part(tolerance) => tolerance,
        };
        match () {
            () if !said(self.source.document) => Some("a document"),
            () if !said(self.source.place) => Some("a place in its document"),
            () if !said(self.sentence) => Some("a sentence"),
            () if !said(self.rule) => Some("the rule of its tolerance"),
            () if !(tolerance >= 0.0 && tolerance.is_finite()) => Some("a tolerance"),
            () => None,
        }
    }
}

/// When a simulated value agrees with its reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Test {
    /// The distance is at most the tolerance.
    Within,
    /// It is at least as large.
    AtLeast,
    /// It is at most as large.
    AtMost,
}

/// A reference beside the simulated value.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    group: &'static Group,
    name: String,
    unit: &'static str,
    reference: f64,
    simulated: f64,
    tolerance: f64,
    test: Test,
    training: bool,
}

/// A line as it stands in the JSON file.
#[derive(Serialize)]
pub(crate) struct Record<'a> {
    name: &'a str,
    class: Class,
    source: Source,
    sentence: &'a str,
    /// The document's number, or the bound that its sentence is read as; nothing of other classes.
    published: Option<f64>,
    /// The same of other classes.
    expected: Option<f64>,
    simulated: f64,
    residual: f64,
    tolerance: f64,
    rule: &'a str,
    /// Whether parameters are fitted to it.
    training: bool,
    /// Whether a document says it and no parameter is fitted to it.
    held_out: bool,
    unit: &'a str,
    test: Test,
    within: bool,
}

impl Line {
    /// The same, in the training set of a fit or not.
    pub(crate) fn trained(self, training: bool) -> Self {
        Self { training, ..self }
    }

    /// Whether a document says it and no parameter is fitted to it.
    fn held_out(&self) -> bool {
        self.group.class.is_published() && !self.training
    }

    /// How much larger the simulated value is.
    fn residual(&self) -> f64 {
        self.simulated - self.reference
    }

    /// Whether the line agrees.
    pub(crate) fn within(&self) -> bool {
        // What is no number agrees with nothing. The allowance is for sums of decimal fractions.
        let slack = 1e-9 * self.reference.abs();
        match self.test {
            Test::Within => self.residual().abs() <= self.tolerance + slack,
            Test::AtLeast => self.residual() >= -slack,
            Test::AtMost => self.residual() <= slack,
        }
    }

    /// Whether a reader can judge it.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if let Some(missing) = self.group.missing() {
            return Err(format!("the line \"{name}\" ({}) is without {missing}", self.group.class.name()));
        }
        if name.is_empty() || !self.reference.is_finite() {
            return Err(format!("the line \"{name}\" has no name or no reference"));
        }
        if self.group.class == Class::Published && self.test != Test::Within {
            return Err(format!("the line \"{name}\" is an inequality, so a claim and no published number"));
        }
        Ok(())
    }

    /// What goes into the JSON file.
    pub(crate) fn record(&self) -> Record<'_> {
        let Group { class, source, sentence, rule, .. } = *self.group;
        let published = class.is_published();
        Record {
            name: &self.name,
            class,
            source,
            sentence,
            published: published.then_some(self.reference),
            expected: (!published).then_some(self.reference),
            simulated: self.simulated,
            residual: self.residual(),
            tolerance: self.tolerance,
            rule,
            training: self.training,
            held_out: self.held_out(),
            unit: self.unit,
            test: self.test,
            within: self.within(),
        }
    }

    /// The heading of the table that lines make.
    pub(crate) fn heading() -> String {
        format!(
            "{:<50} {:<9} {:>10} {:>10} {:>10} {:>9} {:>11}  {:<8} {}",
            "figure", "class", "published", "expected", "simulated", "residual", "tolerance", "fit", "within"
        )
    }

    /// The line as a row of the table.
    pub(crate) fn row(&self) -> String {
        let digits = lab::bench::svg::digits;
        let tolerance = match self.test {
            Test::Within => format!("+- {}", digits(self.tolerance)),
            Test::AtLeast => "at least".into(),
            Test::AtMost => "at most".into(),
        };
        let class = self.group.class;
        let reference = digits(self.reference);
        let (published, expected) = if class.is_published() { (&*reference, "") } else { ("", &*reference) };
        let name = format!("{}{}{}", self.name, if self.unit.is_empty() { "" } else { ", " }, self.unit);
        let fit = match (self.training, self.held_out()) {
            (true, _) => "training",
            (_, true) => "held out",
            _ => "",
        };
        format!(
            "{name:<50} {:<9} {published:>10} {expected:>10} {:>10} {:>+9.3} {tolerance:>11}  {fit:<8} {}",
            class.name(),
            digits(self.simulated),
            self.residual(),
            if self.within() { "yes" } else { "NO" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source { document: "a document", place: "table 1" };
    const PUBLISHED: Group = Group {
        class: Class::Published,
        source: SOURCE,
        sentence: "the table has it",
        tolerance: Tolerance::Absolute(0.05),
        rule: "rounded to 0.1",
    };
    static TABLE: Group = PUBLISHED;
    static CLAIM: Group = Group { class: Class::Claim, ..PUBLISHED };
    static MODEL: Group = Group { class: Class::Model, tolerance: Tolerance::Part(0.1), ..PUBLISHED };
    static NOWHERE: Group = Group { source: Source { document: "a document", place: "" }, ..PUBLISHED };

    #[test]
    fn lines_agree_up_to_their_tolerance() {
        let value = |simulated| TABLE.value("x", "us", 2.8, simulated).within();
        assert_eq!([2.75, 2.85, 2.74, 2.86, f64::NAN].map(value), [true, true, false, false, false]);
        assert!(MODEL.value("x", "", 10.0, 10.9).within() && !MODEL.value("x", "", 10.0, 11.1).within());
        assert!(CLAIM.at_least("x", "", 1.3, 1.3).within() && !CLAIM.at_least("x", "", 1.3, 1.29).within());
        assert!(CLAIM.at_most("x", "", 1.3, 1.3).within() && !CLAIM.at_most("x", "", 1.3, 1.31).within());
        assert!(!CLAIM.at_most("x", "", 1.3, f64::NAN).within());
    }

    #[test]
    fn only_documents_stand_under_published() {
        let json = |line: Line| serde_json::to_value(line.record()).unwrap();
        let published = json(TABLE.value("x", "us", 2.0, 3.0));
        assert_eq!((published["published"].as_f64(), published["expected"].as_f64()), (Some(2.0), None));
        assert_eq!((published["held_out"].as_bool(), published["within"].as_bool()), (Some(true), Some(false)));
        let trained = json(TABLE.value("x", "us", 2.0, 2.0).trained(true));
        assert_eq!((trained["training"].as_bool(), trained["held_out"].as_bool()), (Some(true), Some(false)));
        let model = json(MODEL.value("x", "us", 2.0, 2.0));
        assert_eq!((model["published"].as_f64(), model["expected"].as_f64()), (None, Some(2.0)));
        assert_eq!((model["class"].as_str(), model["held_out"].as_bool()), (Some("model"), Some(false)));
    }

    #[test]
    fn lines_without_a_place_are_refused() {
        assert!(TABLE.value("x", "us", 2.0, 2.0).check().is_ok());
        let error = NOWHERE.value("x", "us", 2.0, 2.0).check().unwrap_err();
        assert_eq!(error, "the line \"x\" (published) is without a place in its document");
        assert!(TABLE.at_least("x", "us", 2.0, 2.0).check().unwrap_err().contains("a claim"));
        assert!(MODEL.value("x", "us", f64::NAN, 2.0).check().is_err());
    }
}
