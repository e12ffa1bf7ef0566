//! Version 2.0: `key=value;` after `key=value;`, and in front of all of them their length in bytes, in six
//! characters. A semicolon within a value is written twice.

use std::io::{self, Read, Write};

use zeroize::Zeroizing;

use super::{LONGEST, Member, Server, refusal, wrong};
use crate::rank::kvs::KEY;

/// Characters of a length.
const LENGTH: usize = 6;

/// As [`lines::exchange`](super::lines::exchange). The server has to take this process for the rank that it is.
pub(super) fn exchange<S: Read + Write>(
    server: &mut Server<S>,
    me: Member<'_>,
    value: Option<&str>,
) -> io::Result<Zeroizing<String>> {
    let (rank, ranks) = (me.rank.to_string(), me.ranks.to_string());
    let begun = ask(server, "fullinit", &[("pmijobid", me.job), ("pmirank", &rank), ("threaded", "FALSE")])?;
    if let (Some(theirs), Some(size)) = (begun.field("rank"), begun.field("size"))
        && (theirs.as_str(), size.as_str()) != (&*rank, &*ranks)
    {
        return Err(wrong(&format!("takes rank {} of {} for {} of {}", me.rank, me.ranks, *theirs, *size)));
    }
    if let Some(value) = value {
        ask(server, "kvs-put", &[("key", KEY), ("value", value)])?;
    }
    ask(server, "kvs-fence", &[])?;
    let got = ask(server, "kvs-get", &[("key", KEY)])?;
    let found = got.field("found").is_none_or(|found| found.eq_ignore_ascii_case("TRUE"));
    let heard = got.field("value").filter(|_| found);
    let heard = heard.ok_or_else(|| wrong("does not have the value of rank 0"))?;
    ask(server, "finalize", &[])?;
    Ok(heard)
}

/// Sends a command, and returns the answer to it.
fn ask<S: Read + Write>(server: &mut Server<S>, command: &str, fields: &[(&str, &str)]) -> io::Result<Answer> {
    let mut body = Zeroizing::new(String::with_capacity(LONGEST));
    body.push_str(&format!("cmd={command};"));
    for (key, value) in fields {
        // Not every server knows semicolons within values, and nothing that is said here has any.
        let value = Zeroizing::new(value.replace(';', "_"));
        body.extend([key, "=", &**value, ";"]);
    }
    server.send(&Zeroizing::new(format!("{:LENGTH$}{}", body.len(), *body)))?;
    let answer = Answer::read(server)?;
    if answer.field("cmd").is_none_or(|kind| kind.strip_suffix("-response") != Some(command)) {
        return Err(wrong("gives an answer of another kind"));
    }
    match answer.field("rc") {
        Some(code) if *code != "0" => {
            let reason = answer.field("errmsg");
            Err(refusal(command, &code, reason.as_ref().map(|reason| reason.as_str())))
        }
        _ => Ok(answer),
    }
}

/// The fields of an answer.
struct Answer(Zeroizing<String>);

impl Answer {
    fn read<S: Read + Write>(server: &mut Server<S>) -> io::Result<Self> {
        let mut length = [0; LENGTH];
        server.bytes(&mut length)?;
        let text = std::str::from_utf8(&length).map(str::trim).unwrap_or_default();
        let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let length = digits.then(|| text.parse().ok()).flatten();
        let length = length.ok_or_else(|| wrong("gives an answer without a length"))?;
        if length > LONGEST {
            return Err(wrong(&format!("gives an answer of {length} bytes, more than {LONGEST}")));
        }
        let mut bytes = Zeroizing::new(vec![0; length]);
        server.bytes(&mut bytes)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("gives an answer that is no text"))?;
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// The value of a key: of the first field with it.
    fn field(&self, key: &str) -> Option<Zeroizing<String>> {
        let mut rest = self.0.as_str();
        while !rest.is_empty() {
            let mut field = Zeroizing::new(String::with_capacity(rest.len()));
            loop {
                let end = rest.find(';').unwrap_or(rest.len());
                field.push_str(&rest[..end]);
                rest = rest.get(end + 1..).unwrap_or_default();
                match rest.strip_prefix(';') {
                    // Two of them within a value.
                    Some(after) if field.contains('=') => {
                        field.push(';');
                        rest = after;
                    }
                    _ => break,
                }
            }
            if let Some(value) = field.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')) {
                return Some(Zeroizing::new(value.to_owned()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_semicolons_within_them() {
        let answer = Answer(Zeroizing::new("cmd=kvs-get-response;rc=0;empty=;value=a;;b=c;;;found=TRUE".into()));
        let field = |key: &str| answer.field(key).map(|value| value.to_string());
        assert_eq!(field("cmd").as_deref(), Some("kvs-get-response"));
        assert_eq!(field("empty").as_deref(), Some(""));
        assert_eq!(field("value").as_deref(), Some("a;b=c;"));
        assert_eq!(field("found").as_deref(), Some("TRUE"));
        assert_eq!((field("b"), field(""), field("val")), (None, None, None));
    }
}
