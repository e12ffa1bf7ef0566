//! What the command line wants different about a machine: a file of parameters, and single ones.

use crate::figures::cli::Cli;
use crate::figures::report::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::fs;
use toml::{Table, Value};

/// Changes to a machine's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Settings(Table);

impl Settings {
    /// Those of the command line.
    ///
    /// # Errors
    /// [`Failure::Usage`] names what makes no sense.
    pub(crate) fn new(cli: &Cli) -> Result<Self, Failure> {
        let mut changes = Table::new();
        if let Some(path) = &cli.parameters {
            let wrong = |error: String| Failure::Usage(format!("{}: {error}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            merge(&mut changes, text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?);
        }
        for setting in &cli.set {
            merge(&mut changes, parse(setting)?);
        }
        Ok(Self(changes))
    }

    /// Changes parameters; `read` reads and checks their text.
    ///
    /// # Errors
    /// [`Failure::Usage`]: what `read` says.
    pub(crate) fn change<P: Serialize, E: Display>(
        &self,
        parameters: P,
        read: impl FnOnce(&str) -> Result<P, E>,
    ) -> Result<P, Failure> {
        let mut table = Table::try_from(parameters).expect("parameters are a table");
        merge(&mut table, self.0.clone());
        let text = toml::to_string(&table).expect("a table can be written");
        read(&text).map_err(|error| Failure::Usage(error.to_string()))
    }
}

/// Reads `velo.send_ns=200` as a table.
fn parse(setting: &str) -> Result<Table, Failure> {
    let wrong = || {
        let form = "must be a parameter's name and its value, such as velo.send_ns=200";
        Failure::Usage(format!("--set is '{setting}', but {form}"))
    };
    let (name, value) = setting.split_once('=').ok_or_else(wrong)?;
    format!("{} = {}", name.trim(), value.trim()).parse().map_err(|_: toml::de::Error| wrong())
}

/// Puts the values of a table over those of another, table by table.
fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
