//! The check of an environment: that every variable of this family in it is known, and that those with settings
//! make sense.
//!
//! A launcher makes it before it starts a rank. The variables of transports are known where they are
//! [registered](register): in a program that starts itself, and in ranks, which make the check where the launcher
//! could not, as `amrun`.

use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::env;
use crate::env::error::EnvironmentError;

/// What every variable of this family begins with.
const PREFIX: &str = "AM_";
/// What the variables of this family's own tests begin with.
const TESTS: [&str; 5] = ["AM_CONFORMANCE_", "AM_FAULTY_", "AM_HOSTS_", "AM_TEST_", "AM_UDP_SIM_"];
/// In how many characters a misspelt name differs from the right one.
const MISSPELT: usize = 2;
/// What a time looks like, for messages.
pub(crate) const TIME: &str = "a time such as 500ms, 10s or 2m";

/// Looks a variable up by its name.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The variables that a transport, or another library of this family, reads from the environment.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Their names, which begin with `AM_`.
    pub variables: &'static [&'static str],
    /// Says in one line what is wrong with the values that it looks up, if anything is.
    pub check: fn(Lookup<'_>) -> Result<(), String>,
    /// Says in one line why ranks with these values could not begin on this host and with the limits of this
    /// process, in a job of so many endpoints. A launcher whose ranks are all on its own host asks that.
    pub trial: Option<Trial>,
}

/// Tries what the ranks of a job of so many endpoints will do first.
pub type Trial = fn(Lookup<'_>, u32) -> Result<(), String>;

impl Settings {
    /// Variables and what checks them.
    pub const fn new(variables: &'static [&'static str], check: fn(Lookup<'_>) -> Result<(), String>) -> Self {
        Self { variables, check, trial: None }
    }

    /// Adds a trial that a launcher makes before it starts ranks on its own host.
    #[must_use]
    pub const fn trial(mut self, trial: Trial) -> Self {
        self.trial = Some(trial);
        self
    }
}

static REGISTERED: Mutex<Vec<Settings>> = Mutex::new(Vec::new());

/// Makes variables known to the check of the environment, for the life of the process; once for each list of
/// names, however often it is called. Call it before [`run`](crate::run),
/// [`Launcher::launch`](crate::Launcher::launch) and
/// [`Bootstrap::from_environment`](crate::Bootstrap::from_environment).
pub fn register(settings: Settings) {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.iter().all(|known| known.variables != settings.variables) {
        registered.push(settings);
    }
}

/// Checks the environment of this process with what `more` sets in it.
pub(crate) fn check_own(more: &[(OsString, OsString)]) -> Result<(), EnvironmentError> {
    check(&own(more), &registered())
}

/// Makes the trials of what is registered, for a job of so many endpoints in the environment of this process with
/// what `more` sets in it.
pub(crate) fn try_own(more: &[(OsString, OsString)], endpoints: u32) -> Result<(), EnvironmentError> {
    let variables = own(more);
    let text = |name: &str| value_in(&variables, name).map(|value| value.to_string_lossy().into_owned());
    let mut trials = registered().into_iter().filter_map(|settings| settings.trial);
    trials.try_for_each(|trial| trial(&text, endpoints)).map_err(|reason| EnvironmentError::Setting { reason })
}

fn own(more: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let own = std::env::vars_os().filter(|(key, _)| more.iter().all(|(other, _)| other != key));
    own.chain(more.iter().cloned()).collect()
}

fn registered() -> Vec<Settings> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A variable's value, the last one that was set.
fn value_in<'a>(variables: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsString> {
    variables.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// # Errors
/// A variable with this family's prefix that nobody reads, or one whose value makes no sense. Where nothing is
/// registered, unknown variables pass, unless they look like a launcher's own, misspelt: a transport may read
/// them.
fn check(variables: &[(OsString, OsString)], registered: &[Settings]) -> Result<(), EnvironmentError> {
    let known = || {
        let others = registered.iter().flat_map(|settings| settings.variables.iter().copied());
        env::SET_BY_LAUNCHER.into_iter().chain(env::SETTINGS).chain(others)
    };
    let lookup = |name: &str| value_in(variables, name);
    let ignored = lookup(env::IGNORE).map(|list| list.to_string_lossy()).unwrap_or_default();
    for (key, _) in variables {
        let text = key.to_string_lossy();
        let of_tests = TESTS.iter().any(|prefix| text.starts_with(prefix));
        let others = ignored.split(',').map(str::trim).any(|pattern| fits(&text, pattern));
        if text.starts_with(PREFIX) && !of_tests && !others && !known().any(|name| name == text) {
            let nearest = known().min_by_key(|name| distance(name, &text)).unwrap_or_default();
            if registered.is_empty() && distance(nearest, &text) > MISSPELT {
                continue;
            }
            return Err(EnvironmentError::Unknown { variable: text.into_owned(), nearest });
        }
    }
    timeout_in(lookup(env::TIMEOUT).map(OsString::as_os_str))?;
    let text = |name: &str| lookup(name).map(|value| value.to_string_lossy().into_owned());
    registered
        .iter()
        .try_for_each(|settings| (settings.check)(&text))
        .map_err(|reason| EnvironmentError::Setting { reason })
}

/// Whether a name is the pattern, or begins with what stands before the pattern's final `*`.
fn fits(name: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |start| name.starts_with(start))
}

/// How many characters have to be put in, left out or replaced to make one text of the other (Levenshtein's
/// distance).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, right) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// The time-out of waits that this process's environment sets, if it does.
///
/// # Errors
/// `AM_TIMEOUT` is no time.
pub(crate) fn timeout() -> Result<Option<Duration>, EnvironmentError> {
    timeout_in(std::env::var_os(env::TIMEOUT).as_deref())
}

fn timeout_in(value: Option<&OsStr>) -> Result<Option<Duration>, EnvironmentError> {
    let Some(value) = value else { return Ok(None) };
    let time = value.to_str().and_then(|text| parse_time(text).ok()).filter(|time| !time.is_zero());
    let (variable, expected) = (env::TIMEOUT, TIME);
    time.map(Some).ok_or(EnvironmentError::Malformed { variable, value: value.to_owned(), expected })
}

/// A time as flags and variables have it: a number, not necessarily whole, and its unit (`us`, `ms`, `s`, `m` or
/// `h`); seconds without one.
///
/// # Errors
/// The text is none; the reason ends "... such as 500ms, 10s or 2m".
pub fn parse_time(text: &str) -> Result<Duration, &'static str> {
    const WRONG: &str = "not a time such as 500ms, 10s or 2m";
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(WRONG),
    };
    let number: f64 = number.trim().parse().map_err(|_| WRONG)?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| WRONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(variables: &[(&str, &str)]) -> Result<(), String> {
        with(&[TEST], variables)
    }

    /// What a transport registers.
    const TEST: Settings =
        Settings::new(&["AM_NET_PROTECTION", "AM_NET_SILENCE"], |lookup| match lookup("AM_NET_SILENCE") {
            Some(value) if value.parse::<f64>().is_err() => Err(format!("AM_NET_SILENCE={value} is no number")),
            _ => Ok(()),
        });

    fn with(registered: &[Settings], variables: &[(&str, &str)]) -> Result<(), String> {
        let variables: Vec<_> = variables.iter().map(|(key, value)| (key.into(), value.into())).collect();
        check(&variables, registered).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_of_transports_pass_where_none_is_registered() {
        for other in ["AM_NET_PROTECTOIN", "AM_NET_SILENCE", "AM_SHM_RING_CELLS"] {
            assert_eq!(with(&[], &[(other, "x")]), Ok(()));
        }
        assert!(with(&[], &[("AM_TIMOUT", "1s")]).unwrap_err().contains("the nearest is AM_TIMEOUT"));
        assert!(with(&[], &[("AM_RANK_S", "1")]).is_err());
    }

    #[test]
    fn lists_are_registered_once() {
        let count = || {
            let registered = REGISTERED.lock().unwrap();
            registered.iter().filter(|settings| settings.variables == TEST.variables).count()
        };
        (0..3).for_each(|_| register(TEST));
        assert_eq!(count(), 1);
    }

    #[test]
    fn unknown_variables_name_the_nearest_known_one() {
        for (unknown, nearest) in [
            ("AM_NET_PROTECTOIN", "AM_NET_PROTECTION"),
            ("AM_RANK_S", "AM_RANKS"),
            ("AM_TIMOUT", "AM_TIMEOUT"),
            ("AM_DEFAULT_RANK", "AM_DEFAULT_RANKS"),
        ] {
            assert_eq!(
                checked(&[("PATH", "/bin"), (unknown, "x")]),
                Err(format!(
                    "{unknown} in the environment is no variable of active messages; the nearest is {nearest} \
                     (AM_IGNORE={unknown} if another program reads it)"
                ))
            );
        }
    }

    #[test]
    fn known_and_ignored_variables_pass() {
        let all: Vec<(&str, &str)> = env::SETTINGS
            .into_iter()
            .chain(env::SET_BY_LAUNCHER)
            .filter(|name| *name != env::TIMEOUT)
            .map(|name| (name, "1"))
            .collect();
        assert_eq!(checked(&all), Ok(()));
        assert_eq!(checked(&[("AM_IGNORE", "AM_X,AM_COLOR*"), ("AM_X", ""), ("AM_COLOR_TESTS", "1")]), Ok(()));
        assert!(checked(&[("AM_IGNORE", "AM_X"), ("AM_XY", "")]).is_err());
        assert_eq!(checked(&[("AMBER", "1"), ("XAM_Y", "")]), Ok(()));
    }

    #[test]
    fn values_without_sense_are_named() {
        let message = "AM_TIMEOUT=soon in the environment is not a time such as 500ms, 10s or 2m";
        assert_eq!(checked(&[("AM_TIMEOUT", "soon")]), Err(message.into()));
        assert!(checked(&[("AM_TIMEOUT", "0")]).is_err());
        assert_eq!(checked(&[("AM_NET_SILENCE", "never")]), Err("AM_NET_SILENCE=never is no number".into()));
    }

    #[test]
    fn times_have_units() {
        for (text, millis) in
            [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1.5", 1500), ("1h", 3_600_000), ("0 s", 0)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "10 sec", "1e400", "ms500", "nan", "inf"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
