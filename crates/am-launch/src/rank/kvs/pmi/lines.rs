//! Version 1.1: lines of `key=value` with spaces between them, one answer to each.

use std::io::{self, Read, Write};

use zeroize::Zeroizing;

use super::{Server, field, refusal, wrong};
use crate::rank::kvs::KEY;

/// Puts the value there, if it is given, and returns what rank 0 has put there; takes leave.
pub(super) fn exchange<S: Read + Write>(
    server: &mut Server<S>,
    value: Option<&str>,
) -> io::Result<Zeroizing<String>> {
    let name = ask(server, "get_my_kvsname", "my_kvsname")?;
    let name = field(&name, "kvsname").ok_or_else(|| wrong("names no key-value space"))?.to_owned();
    if let Some(value) = value {
        let put = Zeroizing::new(format!("put kvsname={name} key={KEY} value={value}"));
        ask(server, &put, "put_result")?;
    }
    ask(server, "barrier_in", "barrier_out")?;
    let got = ask(server, &format!("get kvsname={name} key={KEY}"), "get_result")?;
    let heard = field(&got, "value").ok_or_else(|| wrong("does not have the value of rank 0"))?;
    let heard = Zeroizing::new(heard.to_owned());
    ask(server, "finalize", "finalize_ack")?;
    Ok(heard)
}

/// Sends a command, and returns the answer, which has to be of this kind.
fn ask<S: Read + Write>(server: &mut Server<S>, command: &str, kind: &str) -> io::Result<Zeroizing<String>> {
    server.send(&Zeroizing::new(format!("cmd={command}\n")))?;
    let line = server.line(kind)?;
    match field(&line, "rc") {
        None | Some("0") => Ok(line),
        Some(code) => {
            let command = command.split(' ').next().unwrap_or_default();
            Err(refusal(command, code, field(&line, "msg")))
        }
    }
}
