//! Item 14: arguments and variables that a careless launcher would break, and the check that they reached a rank
//! unharmed.

use crate::world::{Verdict, ensure, equal};
use std::ffi::{OsStr, OsString};

/// Text that is not valid Unicode, where the system has such.
#[cfg(unix)]
fn malformed() -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(vec![b'a', 0xff, 0xfe, b' ', 0x80, b'"'])
}

/// Text that is not valid Unicode, where the system has such.
#[cfg(not(unix))]
fn malformed() -> OsString {
    "a \"".into()
}

/// Arguments with all that shells and launchers stumble over, in this order.
pub fn difficult_arguments() -> Vec<OsString> {
    let mut all: Vec<OsString> = [
        "plain",
        "",
        " leading and trailing ",
        "two  spaces",
        "\"double quoted\"",
        "'single quoted'",
        "it's \"both\"",
        "tab\tand\nnewline",
        "$HOME ${PATH} `id` $(id) %PATH%",
        "* ? [a-z] ~ # ; & | < > ( ) !",
        "back\\slash \\\" \\n",
        "--flag=a value = with more",
        "--",
        "-n",
        "ünïcödé 消息 🚀",
    ]
    .map(OsString::from)
    .into();
    all.push(malformed());
    all.push("x".repeat(20_000).into());
    all
}

/// Variables with such values.
pub fn difficult_variables() -> Vec<(OsString, OsString)> {
    let values = difficult_arguments().into_iter().enumerate();
    values.map(|(index, value)| (format!("AM_CONFORMANCE_VARIABLE_{index}").into(), value)).collect()
}

/// Checks what reached a rank: its arguments without the program's name, and a look-up of its variables.
///
/// # Errors
/// Names the first argument or variable that is not as it was.
pub fn check_surroundings(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&OsStr) -> Option<OsString>,
) -> Verdict {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let expected = difficult_arguments();
    equal("number of arguments", arguments.len(), expected.len())?;
    for (index, (found, expected)) in arguments.iter().zip(&expected).enumerate() {
        equal(&format!("argument {index}"), found, expected)?;
    }
    for (name, expected) in difficult_variables() {
        let found = variable(&name);
        ensure(found.as_ref() == Some(&expected), || {
            format!("variable {}: found {found:?}, expected {expected:?}", name.display())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &OsStr) -> Option<OsString> {
        difficult_variables().into_iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    #[test]
    fn only_unharmed_surroundings_pass() {
        assert!(check_surroundings(difficult_arguments(), variable).is_ok());
        assert!(check_surroundings(difficult_arguments().into_iter().skip(1), variable).is_err());
        let mut changed = difficult_arguments();
        changed[3] = "two spaces".into();
        let error = check_surroundings(changed, variable).unwrap_err().to_string();
        assert!(error.starts_with("argument 3"), "{error}");
        let error = check_surroundings(difficult_arguments(), |_| Some("".into())).unwrap_err().to_string();
        assert!(error.starts_with("variable AM_CONFORMANCE_VARIABLE_0"), "{error}");
    }
}
