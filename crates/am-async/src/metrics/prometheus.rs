//! Prometheus' text format, version 0.0.4: a family of samples after another, each with its help and type.

use crate::metrics::{BOUNDS, MethodMetrics, Metrics, SideMetrics};
use std::fmt::Write;

/// One family: its name, its type, its help.
type Family = (&'static str, &'static str, &'static str);

const STARTED: Family = ("am_calls_started_total", "counter", "Calls made, and requests received.");
const ENDED: Family = ("am_calls_ended_total", "counter", "Calls that have ended, by outcome.");
const IN_FLIGHT: Family = ("am_calls_in_flight", "gauge", "Calls that have not ended.");
const BUSY: Family = ("am_calls_busy_total", "counter", "Calls not made since they would have had to wait.");
const REQUESTS: Family = ("am_call_request_bytes_total", "counter", "Bytes of requests.");
const ANSWERS: Family = ("am_call_answer_bytes_total", "counter", "Bytes of answers and of methods' errors.");
const LATENCY: Family = ("am_call_seconds", "histogram", "How long calls took.");

/// The value of a label, between quotation marks.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The metrics of some ranks.
pub(crate) fn text(all: &[Metrics]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut family = |(name, kind, help): Family, samples: fn(&mut String, &str, &str, &SideMetrics)| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for metrics in all {
            for MethodMetrics { name: method, caller, callee } in &metrics.methods {
                for (side, counted) in [("caller", caller), ("callee", callee)] {
                    let rank = match metrics.ranks {
                        0 | 1 => metrics.rank.to_string(),
                        _ => "all".to_owned(),
                    };
                    let method = escaped(method);
                    let labels = format!("rank=\"{rank}\",method=\"{method}\",side=\"{side}\"");
                    samples(&mut text, name, &labels, counted);
                }
            }
        }
    };
    family(STARTED, |text, name, labels, side| sample(text, name, labels, side.calls));
    family(ENDED, |text, name, labels, side| {
        for (outcome, count) in side.outcomes.each() {
            sample(text, name, &format!("{labels},outcome=\"{outcome}\""), count);
        }
    });
    family(IN_FLIGHT, |text, name, labels, side| sample(text, name, labels, side.in_flight));
    family(BUSY, |text, name, labels, side| sample(text, name, labels, side.busy));
    family(REQUESTS, |text, name, labels, side| sample(text, name, labels, side.request_bytes));
    family(ANSWERS, |text, name, labels, side| sample(text, name, labels, side.answer_bytes));
    family(LATENCY, |text, name, labels, side| {
        let latency = &side.latency;
        for (bound, count) in BOUNDS.iter().zip(&latency.within) {
            sample(text, &format!("{name}_bucket"), &format!("{labels},le=\"{}\"", bound.as_secs_f64()), *count);
        }
        sample(text, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), latency.count);
        let _ = writeln!(text, "{name}_sum{{{labels}}} {}", latency.sum.as_secs_f64());
        sample(text, &format!("{name}_count"), labels, latency.count);
    });
    text
}

fn sample(text: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(text, "{name}{{{labels}}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
