//! Where in a TOML text something stands: for errors that name a line.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

type Place<'a> = Spanned<DeValue<'a>>;

/// The line that a byte of a text is in, from 1 on.
fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
}

/// The line of a field by its name in error messages, such as `faults.links[0].loss`: the line of the field
/// itself, or of the innermost table around it that the text has. `None` if it has none of them.
pub(crate) fn line_of(text: &str, field: &str) -> Option<usize> {
    let whole = DeTable::parse(text).ok()?;
    let mut at = None;
    let mut inside: Option<&Place<'_>> = None;
    for part in field.split('.').flat_map(|part| part.split('[')) {
        let found = match (inside.map(Spanned::get_ref), part.strip_suffix(']')) {
            (Some(DeValue::Array(list)), Some(index)) => {
                let item = index.parse::<usize>().ok().and_then(|index| list.get(index));
                item.map(|item| (item.span().start, item))
            }
            (Some(DeValue::Table(table)), None) => entry(table, part),
            (None, None) => entry(whole.get_ref(), part),
            _ => None,
        };
        let Some((byte, value)) = found else { break };
        (at, inside) = (Some(byte), Some(value));
    }
    at.map(|byte| line_at(text, byte))
}

/// A table's entry: where its key begins, and its value.
fn entry<'a, 'b>(table: &'a DeTable<'b>, name: &str) -> Option<(usize, &'a Place<'b>)> {
    let found = table.iter().find(|(key, _)| key.get_ref() == name);
    found.map(|(key, value)| (key.span().start, value))
}

/// A value of a text, with its name as in error messages.
struct Named<'a> {
    name: String,
    /// Where its key begins, or the value itself where it has none.
    begin: usize,
    value: &'a Place<'a>,
}

impl Named<'_> {
    fn is_within(&self, part: &Range<usize>) -> bool {
        part.start <= self.begin && self.value.span().end <= part.end
    }
}

/// All values of a table, those of inner tables before the table.
fn values<'a>(table: &'a DeTable<'_>, prefix: &str, all: &mut Vec<Named<'a>>) {
    for (key, value) in table {
        let dot = if prefix.is_empty() { "" } else { "." };
        values_of(value, format!("{prefix}{dot}{}", key.get_ref()), key.span().start, all);
    }
}

fn values_of<'a>(value: &'a Place<'_>, name: String, begin: usize, all: &mut Vec<Named<'a>>) {
    match value.get_ref() {
        DeValue::Table(table) => values(table, &name, all),
        DeValue::Array(list) => {
            let items = list.iter().enumerate();
            items.for_each(|(index, item)| values_of(item, format!("{name}[{index}]"), item.span().start, all));
        }
        _ => {}
    }
    all.push(Named { name, begin, value });
}

/// Whether the reader's words for what it found, such as "integer `5`", are for this value.
fn is_found(found: &str, value: &DeValue<'_>) -> bool {
    let quoted = found.split('`').nth(1).unwrap_or_default();
    match value {
        DeValue::Integer(number) => {
            let value = i128::from_str_radix(number.as_str(), number.radix());
            found.starts_with("integer") && value.is_ok_and(|value| quoted.parse() == Ok(value))
        }
        DeValue::Float(number) => {
            let value = number.as_str().parse::<f64>();
            found.starts_with("floating point") && value.is_ok() && value == quoted.parse()
        }
        DeValue::Boolean(value) => found == format!("boolean `{value}`"),
        DeValue::String(text) => found == format!("string {text:?}") || found == format!("variant `{text}`"),
        DeValue::Array(_) => found.starts_with("sequence"),
        DeValue::Table(_) => found.starts_with("map"),
        DeValue::Datetime(_) => false,
    }
}

/// What a value must be of which the reader of the file expects a type.
fn limit(expected: &str) -> String {
    let most = match expected {
        "u8" => u8::MAX.into(),
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX.into(),
        "u64" | "usize" => i64::MAX as u64,
        "f32" | "f64" => return "a number".into(),
        "a boolean" => return "true or false".into(),
        "a sequence" => return "a list".into(),
        "a map" => return "a table".into(),
        "a string" | "path string" => return "text in quotes".into(),
        "variant identifier" | "variant of enum" => return "a name in quotes".into(),
        // What stands behind is the name of a type of this crate.
        other if ["struct ", "enum ", "internally tagged enum "].iter().any(|kind| other.starts_with(kind)) => {
            return "a table".into();
        }
        other => return other.into(),
    };
    format!("a whole number from 0 to {most}")
}

/// What is wrong with a value: what was found, as the reader says it, and what must be there.
fn of_value(message: &str) -> Option<(&str, String)> {
    let (found, expected) = message.split_once(", expected ")?;
    if let Some(found) = found.strip_prefix("unknown ").filter(|found| found.starts_with("variant")) {
        return Some((found, expected.into()));
    }
    let found = found.strip_prefix("invalid type: ").or_else(|| found.strip_prefix("invalid value: "))?;
    Some((found, limit(expected)))
}

/// What is wrong with a text: in one line, that says in which line of the text, and of which field. What is wrong
/// with a value is told in the words of [`ConfigError::OutOfRange`](crate::ConfigError::OutOfRange).
///
/// Of a table in which one value decides how the others are read the reader knows the place as a whole only;
/// there what its message speaks of is looked for.
pub(crate) fn describe(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    let Some(span) = error.span() else { return message };
    let (whole, mut all) = (DeTable::parse(text).ok(), Vec::new());
    if let Some(whole) = &whole {
        values(whole.get_ref(), "", &mut all);
    }
    let line = |byte| line_at(text, byte);
    if let Some((found, limit)) = of_value(&message) {
        let at_it = |named: &&Named<'_>| named.value.span() == span && is_found(found, named.value.get_ref());
        let in_it = |named: &&Named<'_>| named.is_within(&span) && is_found(found, named.value.get_ref());
        if let Some(Named { name, begin, value }) = all.iter().find(in_it).or_else(|| all.iter().find(at_it)) {
            let value = match value.get_ref() {
                DeValue::Table(_) => "a table",
                DeValue::Array(_) => "a list",
                _ => text.get(value.span()).unwrap_or_default(),
            };
            return format!("line {}: {name} is {value}, but must be {limit}", line(*begin));
        }
    }
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let is_key = |named: &&Named<'_>| {
        let last = named.name.rsplit('.').next();
        let at_it = span.contains(&named.begin) || named.value.span() == span;
        at_it && last == Some(quoted) && message.starts_with("unknown field")
    };
    let around = || all.iter().find(|named| named.value.span() == span);
    match all.iter().find(is_key).or_else(around) {
        Some(Named { name, begin, .. }) => format!("line {}: {name}: {message}", line(*begin)),
        None => format!("line {}: {message}", line(span.start)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ranks = 2\ntopology = {\n  kind = 'ring',\n  nodes = 2,\n}\n[faults]\nlinks = [\n  { loss = 0.5 },\n  {\n    loss = 2,\n  },\n]\n";

    #[test]
    fn fields_have_lines() {
        let line = |field| line_of(TEXT, field);
        assert_eq!(line("ranks"), Some(1));
        assert_eq!(line("topology.nodes"), Some(4));
        assert_eq!(line("faults.links[0].loss"), Some(8));
        assert_eq!(line("faults.links[1].loss"), Some(10));
        // What is left out stands nowhere: the table around it does.
        assert_eq!((line("topology.dims"), line("faults.links[7].loss")), (Some(2), Some(7)));
        assert_eq!((line("placement.seed"), line_of("a = ", "a")), (None, None));
    }
}
