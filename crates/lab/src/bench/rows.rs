//! Rows of a picture as a bench declares them: its own figures by name, their baselines, other libraries' values.

use super::chart::{Column, Kind, Panel};
use super::summary::Summary;

/// A bar of a panel.
#[derive(Clone, Copy, Debug)]
pub enum Row {
    /// A figure of the bench, by its name, and what stands beside it. Its baseline follows it, once in a panel.
    Ours(&'static str, &'static str),
    /// Another library's value.
    Other(&'static str, f64),
}

/// Panels by their titles, with rows from top to bottom. Figures that `summary` lacks are left out, and panels
/// without any.
pub fn panels(summary: &Summary, panels: &[(&str, &[Row])]) -> Vec<Panel> {
    panels.iter().map(|(title, rows)| panel(summary, title, rows)).collect()
}

fn panel(summary: &Summary, title: &str, rows: &[Row]) -> Panel {
    let mut columns: Vec<Column> = Vec::new();
    for row in rows {
        match *row {
            Row::Ours(name, label) => {
                let Some(figure) = summary.find(name) else { continue };
                columns.push(Column { label: label.into(), value: figure.value, kind: Kind::Ours });
                let Some(baseline) = &figure.baseline else { continue };
                let same = |column: &Column| column.kind == Kind::Baseline && column.label == baseline.name;
                if !columns.iter().any(same) {
                    let label = baseline.name.clone();
                    columns.push(Column { label, value: baseline.value, kind: Kind::Baseline });
                }
            }
            Row::Other(label, value) => columns.push(Column { label: label.into(), value, kind: Kind::Reference }),
        }
    }
    if columns.iter().all(|column| column.kind == Kind::Reference) {
        columns.clear();
    }
    Panel { title: title.into(), columns }
}
