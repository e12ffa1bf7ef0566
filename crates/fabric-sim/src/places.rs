//! Where in a TOML text something stands: for errors that name a line.

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

/// The first key or value in a part of a text that is written so.
fn find(table: &DeTable<'_>, within: &std::ops::Range<usize>, wanted: &str) -> Option<usize> {
    let of_entry = |(key, value): (&Spanned<_>, &Place<'_>)| {
        let key: &Spanned<std::borrow::Cow<'_, str>> = key;
        let begin = key.span().start;
        let here = key.get_ref() == wanted && within.contains(&begin);
        if here { Some(begin) } else { find_in(value, within, wanted) }
    };
    table.iter().filter_map(of_entry).min()
}

fn find_in(value: &Place<'_>, within: &std::ops::Range<usize>, wanted: &str) -> Option<usize> {
    let begin = value.span().start;
    let here = |is: bool| (is && within.contains(&begin)).then_some(begin);
    match value.get_ref() {
        DeValue::Table(table) => find(table, within, wanted),
        DeValue::Array(list) => list.iter().filter_map(|item| find_in(item, within, wanted)).min(),
        DeValue::String(text) => here(text == wanted),
        DeValue::Integer(number) => here(number.as_str() == wanted),
        _ => None,
    }
}

/// All values of a table, with their names as in error messages.
fn values<'a>(table: &'a DeTable<'_>, prefix: &str, all: &mut Vec<(String, &'a Place<'a>)>) {
    for (key, value) in table {
        let dot = if prefix.is_empty() { "" } else { "." };
        values_of(value, format!("{prefix}{dot}{}", key.get_ref()), all);
    }
}

fn values_of<'a>(value: &'a Place<'_>, name: String, all: &mut Vec<(String, &'a Place<'a>)>) {
    match value.get_ref() {
        DeValue::Table(table) => values(table, &name, all),
        DeValue::Array(list) => {
            list.iter().enumerate().for_each(|(index, item)| values_of(item, format!("{name}[{index}]"), all));
        }
        _ => {}
    }
    all.push((name, value));
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
        // What stands behind is the name of a type of this crate.
        other if other.starts_with("struct ") || other.starts_with("enum ") => return "a table".into(),
        other => return other.into(),
    };
    format!("a whole number from 0 to {most}")
}

/// A value of the wrong type, or a number that its type does not have: in the words of
/// [`ConfigError::OutOfRange`](crate::ConfigError::OutOfRange), behind its line.
fn of_wrong_type(text: &str, error: &toml::de::Error) -> Option<String> {
    let (found, expected) = error.message().split_once(", expected ")?;
    let found = found.strip_prefix("invalid type: ").or_else(|| found.strip_prefix("invalid value: "))?;
    let (span, whole, mut all) = (error.span()?, DeTable::parse(text).ok()?, Vec::new());
    values(whole.get_ref(), "", &mut all);
    let written = |place: &Place<'_>| text.get(place.span()).unwrap_or_default().to_owned();
    // The error is at the value, or at a table that is read as a whole; then what the message quotes is in there.
    let quoted = found.split(['`', '"']).nth(1);
    let is_quoted = |place: &Place<'_>| {
        let inside = span.start <= place.span().start && place.span().end <= span.end;
        inside && quoted == Some(written(place).replace('_', "").trim_matches(['"', '\'']))
    };
    let at_it = all.iter().find(|(_, place)| place.span() == span && !place.get_ref().is_table());
    let (name, place) = at_it.or_else(|| all.iter().find(|(_, place)| is_quoted(place)))?;
    let value = match place.get_ref() {
        DeValue::Table(_) => "a table".into(),
        DeValue::Array(_) => "a list".into(),
        _ => written(place),
    };
    Some(format!("line {}: {name} is {value}, but must be {}", line_at(text, place.span().start), limit(expected)))
}

/// What is wrong with a text, and in which line. Values of several lines, of which one decides how the others are
/// read, are known as a whole only; there the name or value that the message quotes is looked for.
pub(crate) fn describe(text: &str, error: &toml::de::Error) -> String {
    if let Some(told) = of_wrong_type(text, error) {
        return told;
    }
    let told = || error.to_string().trim_end().to_owned();
    let Some(span) = error.span().filter(|span| text.get(span.clone()).is_some_and(|part| part.contains('\n')))
    else {
        return told();
    };
    let message = error.message();
    let quoted = ['`', '"'].into_iter().find_map(|quote| message.split(quote).nth(1));
    let found = quoted.zip(DeTable::parse(text).ok());
    match found.and_then(|(wanted, whole)| find(whole.get_ref(), &span, wanted)) {
        Some(byte) => format!("TOML parse error at line {}\n{message}", line_at(text, byte)),
        None => told(),
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
