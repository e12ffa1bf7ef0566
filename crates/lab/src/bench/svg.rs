//! What all pictures of the project have in common: a page readable on a light and on a dark background, text,
//! numbers.

use std::fmt::Write as _;

/// Begins a picture with its page.
pub fn open(svg: &mut String, width: f64, height: f64) {
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="12">"#
    );
    let _ = writeln!(svg, r##"<rect width="100%" height="100%" rx="8" fill="#ffffff"/>"##);
}

/// Writes words at a place, in the text colour unless the attributes give another.
pub fn text(svg: &mut String, x: f64, y: f64, attributes: &str, words: &str) {
    let fill = if attributes.contains("fill=") { "" } else { r##" fill="#1f2328""## };
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}"{fill} {attributes}>{words}</text>"#);
}

/// Ends a picture.
pub fn close(svg: &mut String) {
    svg.push_str("</svg>\n");
}

/// A number with three significant digits at least, and no more than a reader wants.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}
