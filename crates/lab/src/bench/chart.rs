//! Draws bar charts as SVG text, without a dependency: panels of horizontal bars, each with its value, in the
//! project's few colours, readable on a light and on a dark page.

use std::fmt::Write as _;

use super::svg::{self, digits, text};

/// Whose value a bar shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This project.
    Ours,
    /// The raw baseline of the same run.
    Baseline,
    /// A published or separately measured figure, from another machine.
    Reference,
}

impl Kind {
    fn colour(self) -> &'static str {
        match self {
            Self::Ours => "#1f6feb",
            Self::Baseline => "#8b949e",
            Self::Reference => "#d8b4a0",
        }
    }
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Column {
    /// What stands left of it.
    pub label: String,
    /// Its value in the panel's unit.
    pub value: f64,
    /// Whose value it is.
    pub kind: Kind,
}

/// One group of bars with a common scale. A bar of more than four times the median is cut, and drawn so, or the
/// others would be too short to compare.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What the bars compare, with the unit and which end is better.
    pub title: String,
    /// The bars from top to bottom.
    pub columns: Vec<Column>,
}

/// A whole picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The headline.
    pub title: String,
    /// A line below it: machine, command, what the references are.
    pub subtitle: String,
    /// The words of the legend for [`Kind::Ours`], [`Kind::Baseline`] and [`Kind::Reference`].
    pub legend: [String; 3],
    /// The groups, drawn in two columns, each in the one that is shorter so far.
    pub panels: Vec<Panel>,
}

const PANEL_WIDTH: f64 = 490.0;
const LABEL_WIDTH: f64 = 205.0;
const VALUE_WIDTH: f64 = 60.0;
const BAR_HEIGHT: f64 = 16.0;
const BAR_STEP: f64 = 22.0;
const MARGIN: f64 = 24.0;
const HEAD: f64 = 92.0;
const PANEL_HEAD: f64 = 30.0;
const PANEL_GAP: f64 = 22.0;

/// How many times the median of its panel a bar shows.
const CUT: f64 = 4.0;

impl Chart {
    /// The picture as SVG text. Panels without bars are left out.
    pub fn svg(&self) -> String {
        let mut body = String::new();
        let mut bottoms = [HEAD; 2];
        for panel in self.panels.iter().filter(|panel| !panel.columns.is_empty()) {
            let side = usize::from(bottoms[1] < bottoms[0]);
            let left = MARGIN + side as f64 * (PANEL_WIDTH + MARGIN);
            draw_panel(&mut body, panel, left, bottoms[side]);
            bottoms[side] += PANEL_HEAD + panel.columns.len() as f64 * BAR_STEP + PANEL_GAP;
        }
        let width = 2.0 * PANEL_WIDTH + 3.0 * MARGIN;
        let height = bottoms[0].max(bottoms[1]);
        let mut page = String::new();
        svg::open(&mut page, width, height);
        text(&mut page, MARGIN, 32.0, r#"font-size="18" font-weight="600""#, &self.title);
        text(&mut page, MARGIN, 52.0, r##"fill="#57606a""##, &self.subtitle);
        let mut at = MARGIN;
        for (kind, words) in [Kind::Ours, Kind::Baseline, Kind::Reference].into_iter().zip(&self.legend) {
            let _ = writeln!(
                page,
                r#"<rect x="{at}" y="64" width="12" height="12" rx="2" fill="{}"/>"#,
                kind.colour()
            );
            text(&mut page, at + 18.0, 74.5, "", words);
            at += 40.0 + words.len() as f64 * 6.6;
        }
        page.push_str(&body);
        svg::close(&mut page);
        page
    }
}

fn draw_panel(svg: &mut String, panel: &Panel, left: f64, top: f64) {
    text(svg, left, top + 16.0, r#"font-size="13" font-weight="600""#, &panel.title);
    let most = longest(panel);
    let room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH;
    for (number, column) in panel.columns.iter().enumerate() {
        let y = top + PANEL_HEAD + number as f64 * BAR_STEP;
        let (x, length) = (left + LABEL_WIDTH, (column.value.min(most) / most * room).max(1.0));
        let weight = if column.kind == Kind::Ours {
            r#"text-anchor="end" font-weight="600""#
        } else {
            r#"text-anchor="end""#
        };
        text(svg, x - 8.0, y + 12.5, weight, &column.label);
        let _ = writeln!(
            svg,
            r#"<rect x="{x}" y="{y}" width="{length:.1}" height="{BAR_HEIGHT}" rx="2" fill="{}"/>"#,
            column.kind.colour()
        );
        if column.value > most {
            let (from, to) = (x + length - 18.0, x + length - 12.0);
            let (low, high) = (y + BAR_HEIGHT + 1.0, y - 1.0);
            let _ = writeln!(
                svg,
                r##"<path d="M{from:.1} {low}L{to:.1} {high}" stroke="#ffffff" stroke-width="3"/>"##
            );
        }
        text(svg, x + length + 6.0, y + 12.5, "", &digits(column.value));
    }
}

/// The value that fills a panel's room.
fn longest(panel: &Panel) -> f64 {
    let mut values: Vec<f64> = panel.columns.iter().map(|column| column.value).collect();
    values.sort_by(f64::total_cmp);
    let [Some(median), Some(most)] = [values.get(values.len() / 2), values.last()] else {
        return f64::MIN_POSITIVE;
    };
    most.min(CUT * median).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bar that is a thousand times as long as the others leaves them their lengths, and is drawn as cut.
    #[test]
    fn a_bar_far_beyond_the_others_is_cut() {
        let panel = |values: &[f64]| Panel {
            title: String::new(),
            columns: values
                .iter()
                .map(|value| Column { label: String::new(), value: *value, kind: Kind::Ours })
                .collect(),
        };
        let drawn = |values: &[f64]| {
            let mut svg = String::new();
            draw_panel(&mut svg, &panel(values), 0.0, 0.0);
            svg
        };
        assert_eq!(longest(&panel(&[1.0, 2.0, 3.0])), 3.0);
        assert_eq!(longest(&panel(&[1.0, 2.0, 3000.0])), 8.0);
        assert_eq!(longest(&panel(&[])), f64::MIN_POSITIVE);
        assert_eq!(drawn(&[1.0, 2.0, 8.0]).matches("<path").count(), 0);
        let cut = drawn(&[1.0, 2.0, 3000.0]);
        assert_eq!(cut.matches("<path").count(), 1);
        assert!(cut.contains(">3000<"), "{cut}");
    }
}
