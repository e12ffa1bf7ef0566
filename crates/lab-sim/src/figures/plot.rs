//! Draws curves as SVG text: axes with units, simulated values as lines, published ones as marks; and their points
//! as CSV.

use crate::figures::line::Class;
use lab::bench::svg::{self, text};
use std::fmt::Write as _;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero, in round steps.
    Linear,
    /// In powers of two, written with binary prefixes.
    Binary,
    /// In powers of ten.
    Decimal,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// What it shows, with the unit.
    pub(crate) label: &'static str,
    /// How it is divided.
    pub(crate) scale: Scale,
}

/// How points are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Simulated: joined by a line.
    Line,
    /// Simulated, something to compare with: joined by a dashed line.
    Dashed,
    /// Something to compare with that is not simulated: a mark each. The name of such points begins with their
    /// class, see [`Class`].
    Marks,
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What they are.
    pub(crate) name: &'static str,
    /// How they are shown.
    pub(crate) style: Style,
    /// Which of the colours; a machine part has the same in all of its plots.
    pub(crate) colour: usize,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A picture of curves.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// The name of its file, without the machine's.
    pub(crate) name: &'static str,
    /// Its headline.
    pub(crate) title: &'static str,
    /// The line below.
    pub(crate) subtitle: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

const COLOURS: [&str; 6] = ["#1f6feb", "#cf5a1c", "#2da44e", "#8250df", "#57606a", "#bf8700"];

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 50.0;
const LEGEND_STEP: f64 = 17.0;

/// A divided axis: where it begins and ends, in its own measure, and where its marks are.
struct Divided {
    scale: Scale,
    from: f64,
    to: f64,
    marks: Vec<f64>,
}

impl Divided {
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if least <= most { (least, most) } else { (1.0, 2.0) };
        match scale {
            Scale::Linear => {
                let rough = most.max(f64::MIN_POSITIVE) / 5.0;
                let power = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|part| part * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
                let count = (most / step).ceil().max(1.0);
                Self {
                    scale,
                    from: 0.0,
                    to: count * step,
                    marks: (0..=count as u32).map(|mark| f64::from(mark) * step).collect(),
                }
            }
            Scale::Binary | Scale::Decimal => {
                let base = if scale == Scale::Binary { 2.0_f64 } else { 10.0 };
                let floor = |value: f64| (value.max(f64::MIN_POSITIVE).ln() / base.ln() + 1e-9).floor();
                let ceiling = |value: f64| (value.max(f64::MIN_POSITIVE).ln() / base.ln() - 1e-9).ceil();
                let (from, to) = (floor(least), ceiling(most).max(floor(least) + 1.0));
                // At most about eleven marks.
                let every = ((to - from) / 11.0).ceil().max(1.0) as usize;
                let marks = (from as i32..=to as i32).step_by(every).map(|power| base.powi(power)).collect();
                Self { scale, from: base.powf(from), to: base.powf(to), marks }
            }
        }
    }

    /// Where a value lies between the axis's beginning, 0, and its end, 1.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            _ => (value / self.from).ln() / (self.to / self.from).ln(),
        }
    }

    fn name(&self, value: f64) -> String {
        match self.scale {
            Scale::Binary if value >= 1_048_576.0 => format!("{} Mi", value / 1_048_576.0),
            Scale::Binary if value >= 2048.0 => format!("{} Ki", value / 1024.0),
            _ => {
                let rounded = (value * 1e6).round() / 1e6;
                format!("{rounded}")
            }
        }
    }
}

impl Plot {
    /// Whether readers can tell what is published.
    ///
    /// # Errors
    /// The points that do not say which class they are of.
    pub(crate) fn check(&self) -> Result<(), String> {
        let classes = [Class::Published, Class::Claim, Class::Derived, Class::Model].map(Class::name);
        let unclear = |series: &&Series| {
            let known = classes.iter().any(|class| series.name.starts_with(class));
            series.style == Style::Marks && !known
        };
        match self.series.iter().find(unclear) {
            None => Ok(()),
            Some(series) => Err(format!(
                "in the picture {} the points \"{}\" do not begin with a class",
                self.name, series.name
            )),
        }
    }

    /// The picture as SVG text.
    pub(crate) fn svg(&self) -> String {
        self.svg_with(self.subtitle)
    }

    /// The picture with another line below the headline.
    pub(crate) fn svg_with(&self, subtitle: &str) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Divided::new(self.x.scale, points().map(|point| point.0));
        let y = Divided::new(self.y.scale, points().map(|point| point.1));
        let legend = self.series.len().div_ceil(2) as f64 * LEGEND_STEP;
        let (top, height) = (TOP + legend, HEIGHT + legend);
        let (right, bottom) = (WIDTH - RIGHT, height - BOTTOM);
        let across = |value: f64| LEFT + x.place(value) * (right - LEFT);
        let up = |value: f64| bottom - y.place(value) * (bottom - top);

        let mut page = String::new();
        svg::open(&mut page, WIDTH, height);
        text(&mut page, LEFT, 26.0, r#"font-size="16" font-weight="600""#, self.title);
        text(&mut page, LEFT, 44.0, r##"fill="#57606a""##, subtitle);
        for (number, series) in self.series.iter().enumerate() {
            let at = (LEFT + (number % 2) as f64 * 270.0, 62.0 + (number / 2) as f64 * LEGEND_STEP);
            draw_key(&mut page, series, at);
        }
        for mark in &x.marks {
            let at = across(*mark);
            line(&mut page, (at, top), (at, bottom), "#eaeef2", 1.0);
            text(&mut page, at, bottom + 17.0, r#"text-anchor="middle""#, &x.name(*mark));
        }
        for mark in &y.marks {
            let at = up(*mark);
            line(&mut page, (LEFT, at), (right, at), "#eaeef2", 1.0);
            text(&mut page, LEFT - 7.0, at + 4.0, r#"text-anchor="end""#, &y.name(*mark));
        }
        line(&mut page, (LEFT, bottom), (right, bottom), "#57606a", 1.2);
        line(&mut page, (LEFT, top), (LEFT, bottom), "#57606a", 1.2);
        text(&mut page, LEFT.midpoint(right), height - 12.0, r#"text-anchor="middle""#, self.x.label);
        let middle = top.midpoint(bottom);
        let turned = format!(r#"text-anchor="middle" transform="rotate(-90 17 {middle:.1})""#);
        text(&mut page, 17.0, middle, &turned, self.y.label);
        for series in &self.series {
            let places: Vec<_> = series.points.iter().map(|point| (across(point.0), up(point.1))).collect();
            draw(&mut page, series, &places);
        }
        svg::close(&mut page);
        page
    }

    /// All points, one a line.
    pub(crate) fn csv(&self) -> String {
        let mut csv = format!("series,\"{}\",\"{}\"\n", self.x.label, self.y.label);
        for series in &self.series {
            for (x, y) in &series.points {
                let _ = writeln!(csv, "\"{}\",{x},{y}", series.name);
            }
        }
        csv
    }
}

fn draw(page: &mut String, series: &Series, places: &[(f64, f64)]) {
    let colour = COLOURS[series.colour % COLOURS.len()];
    if series.style == Style::Marks {
        return places.iter().for_each(|place| mark(page, *place, colour));
    }
    let points: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashes = if series.style == Style::Dashed { r#" stroke-dasharray="5 4""# } else { "" };
    let _ = writeln!(
        page,
        r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"{dashes}/>"#,
        points.join(" ")
    );
}

fn draw_key(page: &mut String, series: &Series, (x, y): (f64, f64)) {
    draw(
        page,
        series,
        &match series.style {
            Style::Marks => vec![(x + 11.0, y)],
            _ => vec![(x, y), (x + 22.0, y)],
        },
    );
    text(page, x + 28.0, y + 4.0, "", series.name);
}

fn mark(page: &mut String, (x, y): (f64, f64), colour: &str) {
    let _ = writeln!(
        page,
        r##"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" fill="#ffffff" stroke="{colour}" stroke-width="2"/>"##
    );
}

fn line(page: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        page,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width}"/>"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values_between_round_marks() {
        let linear = Divided::new(Scale::Linear, [3.0, 1760.0].into_iter());
        assert_eq!((linear.from, linear.to, linear.marks.len()), (0.0, 2000.0, 5));
        let binary = Divided::new(Scale::Binary, [8.0, 1_048_576.0].into_iter());
        assert_eq!((binary.from, binary.to), (8.0, 1_048_576.0));
        assert_eq!([binary.place(8.0), binary.place(1_048_576.0)], [0.0, 1.0]);
        assert_eq!([1024.0, 4096.0, 1_048_576.0].map(|value| binary.name(value)), ["1024", "4 Ki", "1 Mi"]);
        let decimal = Divided::new(Scale::Decimal, [0.3, 20.0].into_iter());
        assert!((decimal.from - 0.1).abs() < 1e-12 && (decimal.to - 100.0).abs() < 1e-9);
    }

    #[test]
    fn marks_say_what_they_are() {
        let axis = Axis { label: "x", scale: Scale::Linear };
        let plot = |name, style| {
            let series = vec![Series { name, style, colour: 0, points: vec![(1.0, 2.0)] }];
            Plot { name: "p", title: "t", subtitle: "s", x: axis, y: axis, series }
        };
        assert!(
            plot("VELO", Style::Line).check().is_ok() && plot("published: VELO", Style::Marks).check().is_ok()
        );
        assert!(plot("VELO", Style::Marks).check().unwrap_err().contains("\"VELO\" do not begin with a class"));
    }

    #[test]
    fn points_become_a_picture_and_a_table() {
        let axis = |label| Axis { label, scale: Scale::Linear };
        let series = |style| Series { name: "a < b", style, colour: 0, points: vec![(1.0, 2.0), (2.0, 4.0)] };
        let (x, y) = (axis("x"), axis("y, us"));
        let series = vec![series(Style::Line), series(Style::Marks)];
        let plot = Plot { name: "p", title: "t", subtitle: "s", x, y, series };
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && svg.contains("<polyline") && svg.matches("<circle").count() == 3);
        assert_eq!(plot.csv().lines().nth(1), Some("\"a < b\",1,2"));
        assert_eq!(plot.csv().lines().count(), 5);
    }
}
