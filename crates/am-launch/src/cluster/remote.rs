//! The command that starts a program on another host: `ssh` unless the user names another one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

/// What starts programs where the user names nothing: never asks for a password, gives up on a dead host in time.
const DEFAULT: [&str; 6] = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"];
/// Where a word of the command has the host's name.
const HOST: &str = "{host}";

/// A command whose arguments are followed by a host's name and a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    words: Vec<String>,
    default: bool,
}

impl Default for Remote {
    fn default() -> Self {
        Self { words: DEFAULT.map(String::from).to_vec(), default: true }
    }
}

/// A remote command makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// There is no word.
    #[error("the remote command is empty")]
    Empty,
    /// A quotation mark has no partner.
    #[error("the remote command has a quotation mark without its partner: {0}")]
    Quote(String),
}

impl FromStr for Remote {
    type Err = RemoteError;

    /// Splits a command into words as a shell does (spaces, quotation marks, backslashes; nothing is expanded).
    /// The host's name takes the place of every `{host}` or, if there is none, follows the last word.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = split(text).ok_or_else(|| RemoteError::Quote(text.into()))?;
        if words.is_empty() { Err(RemoteError::Empty) } else { Ok(Self { words, default: false }) }
    }
}

impl Remote {
    /// Whether the user has not named a command.
    pub(crate) fn is_default(&self) -> bool {
        self.default
    }

    /// The command that runs `program argument` on a host.
    pub(crate) fn command(&self, host: &str, program: &Path, argument: &str) -> Command {
        let mut words = self.words_for(host).into_iter();
        let mut command = Command::new(words.next().expect("a remote command has a word"));
        command.args(words).arg(quoted(program.as_os_str())).arg(argument);
        command
    }

    /// The command up to the program, for messages.
    pub(crate) fn shown(&self, host: &str) -> String {
        self.words_for(host).join(" ")
    }

    fn words_for(&self, host: &str) -> Vec<String> {
        let named = self.words.iter().any(|word| word.contains(HOST));
        let mut words: Vec<String> = self.words.iter().map(|word| word.replace(HOST, host)).collect();
        words.extend((!named).then(|| host.to_owned()));
        words
    }

    /// What may help when the command has failed with this code.
    pub(crate) fn remedy(&self, host: &str, code: Option<i32>) -> String {
        let is_ssh = Path::new(&self.words[0]).file_name().is_some_and(|name| name == "ssh");
        match code {
            Some(255) if is_ssh => {
                format!("the host can't be reached or refuses the login; `{} true` shows it", self.shown(host))
            }
            Some(127) => "amrun is not there: install it under the same path on every host, or name it with \
                          --remote-amrun"
                .into(),
            Some(126) => "amrun can't be executed there: name the right file with --remote-amrun".into(),
            Some(2) => "amrun there is of another version: install one version on every host, or name the right \
                        file with --remote-amrun"
                .into(),
            _ => format!("`{} true` shows whether the remote command works", self.shown(host)),
        }
    }
}

/// A program's path as one word for a shell such as ssh's on the other side. Where all its characters are harmless
/// it stays as it is, so that commands without a shell take it, too.
fn quoted(program: &OsStr) -> OsString {
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@%,:=".contains(byte);
    if program.as_bytes().iter().all(harmless) {
        return program.to_owned();
    }
    let mut word = vec![b'\''];
    for &byte in program.as_bytes() {
        if byte == b'\'' { word.extend_from_slice(b"'\\''") } else { word.push(byte) }
    }
    word.push(b'\'');
    OsString::from_vec(word)
}

/// The words of a line, or nothing if a quotation mark has no partner.
fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            c if c.is_whitespace() => words.extend(word.take()),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next()? {
                        c if c == character => break,
                        '\\' if character == '"' => word.push(characters.next()?),
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(remote: &str, program: &str) -> Vec<String> {
        let remote: Remote = remote.parse().unwrap();
        let command = remote.command("h", Path::new(program), "--agent");
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_host_follows_or_takes_its_place() {
        assert_eq!(
            line("ssh -o BatchMode=yes", "/bin/amrun"),
            "ssh -o BatchMode=yes h /bin/amrun --agent".split(' ').collect::<Vec<_>>()
        );
        assert_eq!(
            line("kubectl exec -i pod-{host} --", "amrun"),
            "kubectl exec -i pod-h -- amrun --agent".split(' ').collect::<Vec<_>>()
        );
        assert_eq!(
            line("sh -c 'exec \"$@\"' {host}", "amrun"),
            ["sh", "-c", "exec \"$@\"", "h", "amrun", "--agent"]
        );
    }

    #[test]
    fn odd_paths_are_quoted() {
        assert_eq!(line("ssh", "/a b/it's"), ["ssh", "h", "'/a b/it'\\''s'", "--agent"]);
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        assert_eq!(split(r#" a "b c" d\ e '' "\"" f'g'h "#).unwrap(), ["a", "b c", "d e", "", "\"", "fgh"]);
        assert_eq!("  ".parse::<Remote>(), Err(RemoteError::Empty));
        assert!(matches!("ssh 'x".parse::<Remote>(), Err(RemoteError::Quote(_))));
    }

    #[test]
    fn the_remedy_fits_the_code() {
        let remote = Remote::default();
        assert!(remote.remedy("b", Some(255)).contains("ssh -T -o BatchMode=yes -o ConnectTimeout=10 b true"));
        assert!(remote.remedy("b", Some(127)).contains("--remote-amrun"));
    }
}
