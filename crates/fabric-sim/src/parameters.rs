//! Reading tables of parameters from files, and refusing what is not possible by field and limit: what the
//! configurations of all simulated machines have in common.

use crate::error::ConfigError;
use crate::nic::picos;
use crate::places;
use crate::stage::Stage;
use am_core::Span;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// Reads a table from TOML and checks it.
///
/// # Errors
/// [`ConfigError::File`] names what does not belong into the table; else what `check` finds wrong.
pub fn from_toml<T: DeserializeOwned>(
    text: &str,
    check: impl FnOnce(&T) -> Result<(), ConfigError>,
) -> Result<T, ConfigError> {
    let table = toml::from_str(text).map_err(|error| ConfigError::File(places::describe(text, &error)))?;
    check(&table).map(|()| table)
}

/// Reads a table from a TOML file and checks it. `relative_to` makes the files that it names relative to its
/// folder.
///
/// # Errors
/// [`ConfigError::File`] names the file and why it cannot be read; else [`ConfigError::InFile`] names the line of
/// what `check` finds wrong.
pub fn from_file<T: DeserializeOwned>(
    path: &Path,
    relative_to: impl FnOnce(&mut T, &Path),
    check: impl FnOnce(&T) -> Result<(), ConfigError>,
) -> Result<T, ConfigError> {
    let named = |error: &dyn Display| ConfigError::File(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| named(&error))?;
    let mut table = from_toml(&text, |_| Ok(())).map_err(|error| match error {
        ConfigError::File(error) => named(&error),
        error => error,
    })?;
    if let Some(folder) = path.parent() {
        relative_to(&mut table, folder);
    }
    check(&table).map_err(|error| error.in_file(path, &text))?;
    Ok(table)
}

/// One of the tables of parameters that a crate has built in, by its name.
///
/// ```
/// let found = fabric_sim::parameters::named("two", ["one", "two"], [|| 1, || 2]);
/// assert_eq!(found, Ok(2));
/// let error = fabric_sim::parameters::named("three", ["one", "two"], [|| 1, || 2]).unwrap_err();
/// assert_eq!(error.to_string(), "parameters is three, but must be one of one, two");
/// ```
///
/// # Errors
/// [`ConfigError::OutOfRange`] lists the names that there are.
pub fn named<T, const N: usize>(name: &str, names: [&str; N], tables: [fn() -> T; N]) -> Result<T, ConfigError> {
    let found = names.iter().zip(tables).find(|(known, _)| **known == name);
    let refused = || ConfigError::range("parameters", name, format!("one of {}", names.join(", ")));
    found.map(|(_, make)| make()).ok_or_else(refused)
}

/// Lets the parts of a table default to what they are in the whole's default.
///
/// ```
/// # #[derive(PartialEq, Debug)]
/// struct Link { latency_ns: f64 }
/// struct Engine { link: Link }
///
/// impl Default for Engine {
///     fn default() -> Self {
///         Self { link: Link { latency_ns: 70.0 } }
///     }
/// }
/// fabric_sim::default_parts!(Engine { link: Link });
/// assert_eq!(Link::default(), Link { latency_ns: 70.0 });
/// ```
#[macro_export]
macro_rules! default_parts {
    ($whole:ident { $($field:ident: $part:ident),* $(,)? }) => {$(
        impl ::std::default::Default for $part {
            fn default() -> Self {
                <$whole as ::std::default::Default>::default().$field
            }
        }
    )*};
}

/// What a configuration's fields are when a file leaves them out, for `#[serde(default = "...")]`.
pub mod default {
    /// One rank per node.
    pub const fn ranks_per_node() -> u32 {
        1
    }

    /// Stacks of 256 KiB.
    pub const fn stack_bytes() -> usize {
        256 << 10
    }

    /// Ends are known after a microsecond.
    pub const fn notice_ns() -> f64 {
        1_000.0
    }

    /// Runs are never given up.
    pub const fn deadline_ns() -> f64 {
        f64::INFINITY
    }
}

/// Checks the values of a table, and refuses them by the name that they have in a file.
///
/// ```
/// let table = fabric_sim::parameters::Checker::of("nic");
/// assert_eq!(table.time("tx_ns", 1.5).unwrap().0, 1500);
/// let error = table.within("slots", 0u32, 1..=8).unwrap_err();
/// assert_eq!(error.to_string(), "nic.slots is 0, but must be from 1 to 8");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Checker(&'static str);

impl Checker {
    /// Checks fields that stand outside all tables.
    pub const TOP: Self = Self("");

    /// Checks the fields of a table of this name.
    pub const fn of(table: &'static str) -> Self {
        Self(table)
    }

    fn place(self, field: &str) -> String {
        if self.0.is_empty() { field.into() } else { format!("{}.{field}", self.0) }
    }

    /// The error for a value, in the words of [`ConfigError::OutOfRange`]: it "must be" the limit.
    pub fn refuse(self, field: &str, value: impl Display, limit: impl Into<String>) -> ConfigError {
        ConfigError::range(self.place(field), value, limit)
    }

    /// Checks a number.
    ///
    /// # Errors
    /// It is outside the limits.
    pub fn within(
        self,
        field: &str,
        value: impl Into<u64>,
        limits: RangeInclusive<u64>,
    ) -> Result<(), ConfigError> {
        self.multiple(field, value, limits, 1)
    }

    /// Checks a number that must be a multiple of another.
    ///
    /// # Errors
    /// It is none, or outside the limits.
    pub fn multiple(
        self,
        field: &str,
        value: impl Into<u64>,
        limits: RangeInclusive<u64>,
        of: u64,
    ) -> Result<(), ConfigError> {
        let value = value.into();
        if limits.contains(&value) && value.is_multiple_of(of) {
            return Ok(());
        }
        let limit = format!("from {} to {}", limits.start(), limits.end());
        Err(self.refuse(field, value, if of == 1 { limit } else { format!("{limit}, a multiple of {of}") }))
    }

    /// A number of nanoseconds as the simulation's time.
    ///
    /// # Errors
    /// It is not finite, negative, or above 10^15.
    pub fn time(self, field: &str, nanos: f64) -> Result<Span, ConfigError> {
        picos(nanos, &self.place(field)).map(Span)
    }

    /// Checks several numbers of nanoseconds.
    ///
    /// # Errors
    /// As [`Checker::time`] for the first that is wrong.
    pub fn times<const N: usize>(self, times: [(&str, f64); N]) -> Result<(), ConfigError> {
        times.into_iter().try_for_each(|(field, nanos)| self.time(field, nanos).map(drop))
    }

    /// A number of nanoseconds that is not zero in the simulation's time.
    ///
    /// # Errors
    /// It is not finite, above 10^15, or less than a picosecond.
    pub fn some_time(self, field: &str, nanos: f64) -> Result<Span, ConfigError> {
        match self.time(field, nanos)? {
            Span(0) => Err(self.refuse(field, nanos, "at least 0.001 ns")),
            time => Ok(time),
        }
    }

    /// Checks a bandwidth in MB/s, which may be infinite.
    ///
    /// # Errors
    /// It is not a number, or less than a byte per second.
    pub fn bandwidth(self, field: &str, mb_s: f64) -> Result<(), ConfigError> {
        if mb_s.is_nan() || mb_s < 1e-6 {
            return Err(self.refuse(field, mb_s, "above 0 MB/s (inf: no limit)"));
        }
        Ok(())
    }

    /// Checks a stage; returns for how long a unit occupies it.
    ///
    /// # Errors
    /// It has units of no bytes, room for nobody, or a time that [`Checker::time`] refuses.
    pub fn stage(self, field: &str, stage: &Stage) -> Result<Span, ConfigError> {
        stage.check(&self.place(field))?;
        self.time(&format!("{field}.per_unit_ns"), stage.per_unit_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_belong_to_the_range() {
        let table = Checker::of("t");
        for good in [4u32, 8, 12] {
            table.multiple("n", good, 4..=12, 4).unwrap();
        }
        for bad in [0u32, 3, 6, 13, 16] {
            let error = table.multiple("n", bad, 4..=12, 4).unwrap_err().to_string();
            assert_eq!(error, format!("t.n is {bad}, but must be from 4 to 12, a multiple of 4"));
        }
        assert_eq!(
            Checker::TOP.within("n", 9u64, 1..=8).unwrap_err().to_string(),
            "n is 9, but must be from 1 to 8"
        );
    }

    #[test]
    fn times_are_finite_and_some_are_not_zero() {
        let table = Checker::of("t");
        assert_eq!(table.time("ns", 0.0), Ok(Span(0)));
        assert_eq!(table.some_time("ns", 0.001), Ok(Span(1)));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1.1e15] {
            assert!(table.times([("good", 1.0), ("ns", bad)]).unwrap_err().to_string().starts_with("t.ns is"));
        }
        let zero = table.some_time("ns", 0.0004).unwrap_err().to_string();
        assert_eq!(zero, "t.ns is 0.0004, but must be at least 0.001 ns");
    }

    #[test]
    fn bandwidths_are_above_zero() {
        let table = Checker::of("t");
        assert_eq!(table.bandwidth("b", f64::INFINITY), Ok(()));
        for bad in [0.0, -4.0, f64::NAN] {
            assert!(table.bandwidth("b", bad).unwrap_err().to_string().ends_with("above 0 MB/s (inf: no limit)"));
        }
    }

    #[test]
    fn a_stage_is_refused_by_the_name_of_its_table() {
        let bad = Stage { depth: 0, ..Stage::NONE };
        assert_eq!(
            Checker::of("parameters").stage("velo.tx", &bad).unwrap_err().to_string(),
            "parameters.velo.tx.depth is 0, but must be at least 1"
        );
        let good = Stage { per_unit_ns: 2.5, ..Stage::latency(7.0) };
        assert_eq!(Checker::of("parameters").stage("velo.tx", &good), Ok(Span(2500)));
    }
}
