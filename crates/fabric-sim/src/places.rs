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

/// What is wrong with a text, and in which line. Values of several lines, of which one decides how the others are
/// read, are known as a whole only; there the name or value that the message quotes is looked for.
pub(crate) fn describe(text: &str, error: &toml::de::Error) -> String {
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
