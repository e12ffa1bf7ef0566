//! A picture of lines, for figures that a test measures.

use std::fmt::Write;

/// A title, and its lines with their names.
pub(crate) type Panel<'a> = (&'a str, Vec<(&'a str, Vec<(f64, f64)>)>);

const COLOURS: [&str; 3] = ["#1f6fb4", "#d1651a", "#3b8a3e"];
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 240.0;

/// Panels side by side whose horizontal axis ends at `most`, and whose vertical ones are logarithmic.
pub(crate) fn lines(axis: &str, most: f64, panels: &[Panel<'_>]) -> String {
    let size = (60.0 + (WIDTH + 80.0) * panels.len() as f64, HEIGHT + 110.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        size.0, size.1
    );
    for (number, (title, curves)) in panels.iter().enumerate() {
        let left = 60.0 + (WIDTH + 80.0) * number as f64;
        let values = || curves.iter().flat_map(|(_, points)| points.iter().map(|(_, value)| value.log10()));
        let (low, high) = (values().fold(f64::MAX, f64::min).floor(), values().fold(f64::MIN, f64::max).ceil());
        let place = |x: f64, y: f64| {
            (left + x / most * WIDTH, 40.0 + HEIGHT * (1.0 - (y.log10() - low) / (high - low).max(1.0)))
        };
        let mut line = |text: std::fmt::Arguments<'_>| writeln!(svg, "{text}").expect("a text grows");
        line(format_args!("<text x=\"{left}\" y=\"24\" font-weight=\"bold\">{title}</text>"));
        for power in low as i32..=high as i32 {
            let (x, y) = place(0.0, 10f64.powi(power));
            line(format_args!(
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
                x + WIDTH
            ));
            let label = 10f64.powi(power);
            line(format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                x - 6.0,
                y + 4.0
            ));
        }
        for tick in 0..=6 {
            let value = most * f64::from(tick) / 6.0;
            let (x, y) = place(value, 10f64.powf(low));
            line(format_args!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>", y + 18.0));
        }
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{axis}</text>",
            left + WIDTH / 2.0,
            HEIGHT + 76.0
        ));
        for (index, (name, points)) in curves.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let places = points.iter().map(|(x, y)| place(*x, *y));
            let path: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            line(format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            ));
            let (x, y) = (left + 120.0 * index as f64, HEIGHT + 98.0);
            line(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{name}</text>"));
        }
    }
    svg + "</svg>\n"
}
