//! PMI's wire protocol, version 1.1, which the servers of MPICH, Intel MPI and Slurm's plugin `pmi2` speak over
//! the socket `PMI_FD`: lines of `key=value`, one answer to each. ("PMI v2 and Slurm",
//! slurm.schedmd.com/mpi_guide.html; MPICH's `src/pmi/src/pmi_v1.c`.)

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use zeroize::Zeroizing;

use super::KEY;
use crate::descriptors::{FileKind, claim};

/// Bytes of the longest answer that is read.
const LONGEST: u64 = 4096;

/// Has every rank know the value that rank 0 gives. Takes over the socket, and takes leave of the server.
///
/// # Errors
/// Those of the socket, and what the server says.
pub(super) fn share(number: u32, value: Option<&str>, limit: Duration) -> io::Result<Zeroizing<String>> {
    let socket = UnixStream::from(claim(number, FileKind::Server)?);
    // The barrier waits for all ranks.
    socket.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
    talk(socket, value)
}

fn talk(stream: impl Read + Write, value: Option<&str>) -> io::Result<Zeroizing<String>> {
    let mut server = Server(BufReader::new(stream));
    server.ask("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
    let name = server.ask("get_my_kvsname", "my_kvsname")?;
    let name = field(&name, "kvsname").ok_or_else(|| wrong("names no key-value space"))?.to_owned();
    if let Some(value) = value {
        let put = Zeroizing::new(format!("put kvsname={name} key={KEY} value={value}"));
        server.ask(&put, "put_result")?;
    }
    server.ask("barrier_in", "barrier_out")?;
    let got = server.ask(&format!("get kvsname={name} key={KEY}"), "get_result")?;
    let heard = field(&got, "value").ok_or_else(|| wrong("does not have the value of rank 0"))?;
    let heard = Zeroizing::new(heard.to_owned());
    server.ask("finalize", "finalize_ack")?;
    Ok(heard)
}

struct Server<S>(BufReader<S>);

impl<S: Read + Write> Server<S> {
    /// Sends a command, and returns the answer, which has to be of this kind.
    fn ask(&mut self, command: &str, answer: &str) -> io::Result<Zeroizing<String>> {
        let line = Zeroizing::new(format!("cmd={command}\n"));
        let stream = self.0.get_mut();
        stream.write_all(line.as_bytes())?;
        stream.flush()?;
        let mut line = Zeroizing::new(String::with_capacity(LONGEST as usize));
        let read = (&mut self.0).take(LONGEST).read_line(&mut line).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "not all ranks take part"),
            _ => error,
        })?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if field(&line, "cmd") != Some(answer) {
            return Err(wrong("gives an answer of another kind"));
        }
        match field(&line, "rc") {
            None | Some("0") => Ok(line),
            Some(code) => {
                let reason = field(&line, "msg").unwrap_or("for no reason that it tells");
                let command = command.split(' ').next().unwrap_or_default();
                Err(io::Error::other(format!("the server refuses {command} with {code}: {reason}")))
            }
        }
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server {what}"))
}

/// The value of a key in an answer.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Barrier, Mutex};
    use std::thread;

    /// A server for one rank, which spoils one kind of answer.
    fn serve(stream: UnixStream, values: &Mutex<BTreeMap<String, String>>, barrier: &Barrier, spoil: &str) {
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read != 0) {
            let command = field(&line, "cmd").unwrap().to_owned();
            let key = || field(&line, "key").unwrap().to_owned();
            let answer = match &*command {
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_17_0".into(),
                "put" => {
                    assert_eq!(field(&line, "kvsname"), Some("kvs_17_0"));
                    values.lock().unwrap().insert(key(), field(&line, "value").unwrap().to_owned());
                    "cmd=put_result rc=0 msg=success".into()
                }
                "barrier_in" => {
                    barrier.wait();
                    "cmd=barrier_out".into()
                }
                "get" => match values.lock().unwrap().get(&key()) {
                    Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                    None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
                },
                _ => "cmd=finalize_ack".into(),
            };
            let answer = if command == spoil { "cmd=what rc=0".into() } else { answer };
            if (&stream).write_all(format!("{answer}\n").as_bytes()).is_err() || command == "finalize" {
                return;
            }
            line.clear();
        }
    }

    /// What ranks hear of which rank 0 gives this.
    fn shared(ranks: usize, value: Option<&str>, spoil: &'static str) -> Vec<Result<String, String>> {
        let (values, barrier) = (Arc::default(), Arc::new(Barrier::new(ranks)));
        let ends: Vec<UnixStream> = (0..ranks)
            .map(|_| {
                let (end, other) = UnixStream::pair().unwrap();
                let (values, barrier) = (Arc::clone(&values), Arc::clone(&barrier));
                thread::spawn(move || serve(other, &values, &barrier, spoil));
                end
            })
            .collect();
        thread::scope(|scope| {
            let play = |(rank, end)| {
                let value = if rank == 0 { value } else { None };
                scope.spawn(move || talk(end, value).map(|heard| heard.to_string()).map_err(|e| e.to_string()))
            };
            let ranks: Vec<_> = ends.into_iter().enumerate().map(play).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_hear_rank_0() {
        assert_eq!(shared(3, Some("am1/00ff/10.0.0.1:1"), ""), vec![Ok("am1/00ff/10.0.0.1:1".to_owned()); 3]);
    }

    #[test]
    fn servers_that_refuse_are_named() {
        let refused = "the server refuses get with -1: key_not_found".to_owned();
        assert_eq!(shared(2, None, ""), vec![Err(refused); 2]);
        for spoil in ["init", "get_my_kvsname", "barrier_in", "get", "finalize"] {
            let error = shared(1, Some("a"), spoil).remove(0).unwrap_err();
            assert_eq!(error, "the server gives an answer of another kind", "{spoil}");
        }
    }

    #[test]
    fn a_server_that_ends_is_an_error() {
        let (end, other) = UnixStream::pair().unwrap();
        drop(other);
        assert!(talk(end, None).is_err());
    }
}
