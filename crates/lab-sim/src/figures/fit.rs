//! The fits: what a machine's parameter table takes from published numbers, computed from the declared training
//! set.

use crate::figures::cli::Machine;
use crate::figures::report::Failure;
use toml::{Table, Value};

/// A machine's fit.
pub(crate) struct Fitting {
    /// What is fitted.
    table_name: &'static str,
    /// Names and units of the training set.
    names: &'static [(&'static str, &'static str)],
    values: Vec<f64>,
    /// The parameters that follow from other values of the training set.
    compute: fn(&[f64]) -> Vec<(&'static str, f64)>,
    /// The table that programs use.
    table: Table,
}

/// How far a value of a table may be from its fit: tables hold three decimals.
const ROUNDING: f64 = 0.0005 + 1e-9;

const LENGTH: &str = "a training set keeps its length";

fn table(parameters: &impl serde::Serialize) -> Table {
    Table::try_from(parameters).expect("parameters are a table")
}

impl Fitting {
    /// The fits of a machine.
    ///
    /// # Errors
    /// [`Failure::Usage`] where nothing is fitted.
    pub(crate) fn of(machine: Machine) -> Result<Vec<Self>, Failure> {
        match machine {
            Machine::Extoll => Ok(extoll()),
            Machine::Sci => Ok(vec![sci()]),
            Machine::Exanet => Ok(vec![exanet()]),
            Machine::Portals => Err(Failure::Usage(
                "nothing of portals is fitted: its paper has plots and no numbers, so its table is assumed".into(),
            )),
            Machine::Collectives => {
                Err(Failure::Usage("nothing of collectives is fitted: they use the machines' tables".into()))
            }
            Machine::Network => {
                Err(Failure::Usage("nothing of networks is fitted: their links are assumed".into()))
            }
        }
    }

    /// The parameters that follow from the training set, with the table's values.
    fn parameters(&self) -> Vec<(&'static str, f64, f64)> {
        let fitted = (self.compute)(&self.values);
        fitted.into_iter().map(|(name, value)| (name, value, self.look_up(name))).collect()
    }

    fn look_up(&self, name: &str) -> f64 {
        let mut parts = name.split('.');
        let first = parts.next().and_then(|part| self.table.get(part));
        let value = parts.try_fold(first, |value, part| value.map(|value| value.get(part)));
        match value.flatten() {
            Some(Value::Float(value)) => *value,
            Some(Value::Integer(value)) => *value as f64,
            _ => f64::NAN,
        }
    }

    /// Whether the table holds what the fit says.
    pub(crate) fn is_kept(&self) -> bool {
        self.parameters().iter().all(|(_, fitted, found)| (fitted - found).abs() <= ROUNDING)
    }

    /// The training set, the parameters that follow, and what the table holds.
    pub(crate) fn print(&self) {
        println!("\n{}: training set", self.table_name);
        for ((name, unit), value) in self.names.iter().zip(&self.values) {
            println!("  {name:<36} {value:>10} {unit}");
        }
        println!("{:<38} {:>12} {:>12}", "parameter", "fitted", "table");
        for (name, fitted, found) in self.parameters() {
            let kept = if (fitted - found).abs() <= ROUNDING { "" } else { "  DIFFERS" };
            println!("{name:<38} {fitted:>12.3} {found:>12.3}{kept}");
        }
    }
}

fn extoll() -> Vec<Fitting> {
    use extoll_sim::model::Parameters;
    use extoll_sim::model::fit::{Given, TRAINING_SET, TrainingSet, fit};
    fn compute(values: &[f64], given: &Given) -> Vec<(&'static str, f64)> {
        let values: [f64; 6] = values.try_into().expect(LENGTH);
        fit(&TrainingSet::from(values), given).parameters().into()
    }
    let fitting = |table_name, parameters, compute| Fitting {
        table_name,
        names: &TrainingSet::NAMES,
        values: TRAINING_SET.values().into(),
        compute,
        table: table(&parameters),
    };
    vec![
        fitting("EXTOLL, DEEP evaluator", Parameters::deep(), |values| compute(values, &Given::evaluator())),
        fitting("EXTOLL, cluster", Parameters::cluster(), |values| compute(values, &Given::cluster())),
    ]
}

fn sci() -> Fitting {
    use sci_sim::model::Parameters;
    use sci_sim::model::fit::{Given, TRAINING_SET, TrainingSet, fit};
    Fitting {
        table_name: "SCI",
        names: &TrainingSet::NAMES,
        values: TRAINING_SET.values().into(),
        compute: |values| {
            let values: [f64; 3] = values.try_into().expect(LENGTH);
            fit(&TrainingSet::from(values), &Given::paper()).parameters().into()
        },
        table: table(&Parameters::paper()),
    }
}

fn exanet() -> Fitting {
    use exanet_sim::model::Parameters;
    use exanet_sim::model::fit::{TRAINING_SET, TrainingSet, fit};
    let training = TRAINING_SET;
    Fitting {
        table_name: "ExaNet",
        names: &[
            ("small MPI message, one hop", "us"),
            ("small MPI message, five hops", "us"),
            ("interface and library in it", "us"),
            ("large writes, part of the link", ""),
        ],
        values: vec![training.one_hop_us, training.five_hops_us, training.interface_us, training.utilisation],
        compute: |values| {
            let [one_hop_us, five_hops_us, interface_us, utilisation] = values.try_into().expect(LENGTH);
            let training = TrainingSet { one_hop_us, five_hops_us, interface_us, utilisation };
            let fit = fit(&training, &Parameters::prototype().given());
            vec![
                ("link.latency_ns", fit.hop_ns),
                ("cell.header_bytes", f64::from(fit.header_bytes)),
                ("mpi.software_ns", fit.software_ns),
                ("rdma.start_ns", fit.start_ns),
            ]
        },
        table: table(&Parameters::prototype()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Fitting> {
        [Machine::Extoll, Machine::Sci, Machine::Exanet]
            .into_iter()
            .flat_map(|machine| Fitting::of(machine).unwrap_or_else(|error| panic!("{error}")))
            .collect()
    }

    #[test]
    fn tables_hold_what_the_fit_says() {
        for fitting in all() {
            assert!(fitting.is_kept(), "{}: {:?}", fitting.table_name, fitting.parameters());
        }
    }

    /// A table that did not follow from the training set would not notice.
    #[test]
    fn each_training_value_moves_a_table() {
        for mut fitting in all() {
            assert_eq!(fitting.names.len(), fitting.values.len());
            for index in 0..fitting.values.len() {
                for factor in [0.95, 1.05] {
                    let value = fitting.values[index];
                    fitting.values[index] = factor * value;
                    let name = fitting.names[index].0;
                    assert!(!fitting.is_kept(), "{}: {name} times {factor}", fitting.table_name);
                    fitting.values[index] = value;
                }
            }
            assert!(fitting.is_kept());
        }
    }

    #[test]
    fn without_numbers_there_is_no_fit() {
        match Fitting::of(Machine::Portals) {
            Err(Failure::Usage(error)) => assert!(error.contains("assumed"), "{error}"),
            _ => panic!("nothing of portals is fitted"),
        }
    }
}
