use super::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// What the servers of a job's ranks share.
struct Job {
    values: Mutex<BTreeMap<String, String>>,
    barrier: Barrier,
    /// Versions that they speak.
    speaks: &'static [Version],
    ranks: u32,
    /// The command whose answer is spoilt, and what is said instead.
    spoilt: Option<(&'static str, &'static str)>,
}

/// A server for one rank, which goes by the descriptions of MPICH and Slurm.
fn serve(stream: UnixStream, rank: u32, job: &Job) {
    let mut spoken = None;
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut said = String::new();
        let separator = match spoken {
            Some(Version::Two) => {
                let mut length = [0; 6];
                if lines.read_exact(&mut length).is_err() {
                    return;
                }
                let length: usize = std::str::from_utf8(&length).unwrap().trim().parse().unwrap();
                (&mut lines).take(length as u64).read_to_string(&mut said).unwrap();
                assert!(said.len() == length && said.ends_with(';'), "{said}");
                ';'
            }
            _ if !lines.read_line(&mut said).is_ok_and(|read| read != 0) => return,
            _ => ' ',
        };
        let fields: BTreeMap<&str, &str> =
            said.trim_end().split(separator).filter_map(|field| field.split_once('=')).collect();
        let key = || fields["key"].to_owned();
        let command = fields["cmd"];
        let answer = match command {
            "init" => {
                let asked = [Version::One, Version::Two]
                    .into_iter()
                    .find(|version| version.numbers() == (fields["pmi_version"], fields["pmi_subversion"]));
                spoken = asked.filter(|asked| job.speaks.contains(asked));
                let (number, behind) = spoken.or(job.speaks.first().copied()).unwrap().numbers();
                let code = if spoken.is_some() { "0" } else { "-1" };
                format!("cmd=response_to_init rc={code} pmi_version={number} pmi_subversion={behind}")
            }
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_17_0".into(),
            "fullinit" => {
                assert_eq!((fields["pmijobid"], fields["threaded"]), ("7.0", "FALSE"));
                assert_eq!(fields["pmirank"], rank.to_string());
                format!(
                    "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank={rank};size={};appnum=-1;",
                    job.ranks
                )
            }
            "put" | "kvs-put" => {
                assert!(command == "kvs-put" || fields["kvsname"] == "kvs_17_0");
                job.values.lock().unwrap().insert(key(), fields["value"].to_owned());
                if command == "put" { "cmd=put_result rc=0 msg=success" } else { "cmd=kvs-put-response;rc=0;" }
                    .into()
            }
            "barrier_in" | "kvs-fence" => {
                job.barrier.wait();
                if command == "kvs-fence" { "cmd=kvs-fence-response;rc=0;" } else { "cmd=barrier_out" }.into()
            }
            "get" => match job.values.lock().unwrap().get(&key()) {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".into(),
            },
            "kvs-get" => match job.values.lock().unwrap().get(&key()) {
                Some(value) => format!("cmd=kvs-get-response;rc=0;found=TRUE;value={value};"),
                None => "cmd=kvs-get-response;rc=0;found=FALSE;".into(),
            },
            "finalize" if spoken == Some(Version::Two) => "cmd=finalize-response;rc=0;".into(),
            _ => "cmd=finalize_ack".into(),
        };
        let framed = spoken == Some(Version::Two) && command != "init";
        let answer = match job.spoilt {
            Some((spoilt, instead)) if spoilt == command => instead.to_owned(),
            // As Slurm and MPICH write lengths.
            _ if framed && rank.is_multiple_of(2) => format!("{:<6}{answer}", answer.len()),
            _ if framed => format!("{:>6}{answer}", answer.len()),
            _ => format!("{answer}\n"),
        };
        if (&stream).write_all(answer.as_bytes()).is_err() || command == "finalize" {
            return;
        }
    }
}

/// What ranks hear that ask for a version first, of which rank 0 gives this.
fn shared(
    ranks: u32,
    first: Version,
    speaks: &'static [Version],
    value: Option<&str>,
    spoilt: Option<(&'static str, &'static str)>,
) -> Vec<Result<String, String>> {
    let job =
        Arc::new(Job { values: Mutex::default(), barrier: Barrier::new(ranks as usize), ranks, speaks, spoilt });
    let ends: Vec<UnixStream> = (0..ranks)
        .map(|rank| {
            let (end, other) = UnixStream::pair().unwrap();
            let job = Arc::clone(&job);
            thread::spawn(move || serve(other, rank, &job));
            end
        })
        .collect();
    thread::scope(|scope| {
        let play = |(rank, end)| {
            let value = if rank == 0 { value } else { None };
            let me = Member { rank, ranks, job: "7.0" };
            scope.spawn(move || {
                talk(end, first, me, value).map(|heard| heard.to_string()).map_err(|e| e.to_string())
            })
        };
        let ranks: Vec<_> = (0..).zip(ends).map(play).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

const BOTH: [Version; 2] = [Version::One, Version::Two];

#[test]
fn all_ranks_hear_rank_0() {
    let value = "am1/00ff/10.0.0.1:1";
    let all = vec![Ok(value.to_owned()); 3];
    for first in BOTH {
        for speaks in [&BOTH[..], &BOTH[..1], &BOTH[1..]] {
            assert_eq!(shared(3, first, speaks, Some(value), None), all, "{first:?} {speaks:?}");
        }
    }
}

#[test]
fn a_value_that_is_not_there_is_an_error() {
    let refused = "the server refuses get with -1: key_not_found".to_owned();
    assert_eq!(shared(3, Version::One, &BOTH, None, None), vec![Err(refused); 3]);
    let missing = "the server does not have the value of rank 0".to_owned();
    assert_eq!(shared(3, Version::Two, &BOTH, None, None), vec![Err(missing); 3]);
}

#[test]
fn answers_that_are_spoilt_are_named() {
    const KIND: &str = "gives an answer of another kind";
    for (first, command, instead, said) in [
        (Version::One, "init", "cmd=what rc=0\n", KIND),
        (Version::One, "init", "cmd=response_to_init rc=1\n", "refuses init with 1: for no reason that it tells"),
        (Version::One, "init", "cmd=response_to_init pmi_version=3\n", "speaks a version that is neither 1 nor 2"),
        (Version::One, "get_my_kvsname", "cmd=what\n", KIND),
        (Version::One, "get_my_kvsname", "cmd=my_kvsname\n", "names no key-value space"),
        (Version::One, "barrier_in", "cmd=what\n", KIND),
        (Version::One, "get", "cmd=get_result rc=0\n", "does not have the value of rank 0"),
        (Version::One, "finalize", "cmd=what\n", KIND),
        (Version::Two, "fullinit", "9     cmd=what;", KIND),
        (Version::Two, "fullinit", "25    cmd=fullinit;rc=0;size=3;", KIND),
        (Version::Two, "fullinit", "     0", KIND),
        (Version::Two, "fullinit", "four  cmd=", "gives an answer without a length"),
        (Version::Two, "fullinit", "      cmd=", "gives an answer without a length"),
        (Version::Two, "fullinit", "-5    cmd=", "gives an answer without a length"),
        (Version::Two, "fullinit", "+5    cmd=", "gives an answer without a length"),
        (Version::Two, "fullinit", "1e3   cmd=", "gives an answer without a length"),
        (Version::Two, "fullinit", "999999cmd=", "gives an answer of 999999 bytes, more than 4096"),
        (Version::Two, "fullinit", "  4097cmd=", "gives an answer of 4097 bytes, more than 4096"),
        (Version::Two, "fullinit", "36    cmd=fullinit-response;rank=7;size=3;", "takes rank 0 of 1 for 7 of 3"),
        (
            Version::Two,
            "kvs-put",
            "43    cmd=kvs-put-response;rc=6;errmsg=too;;long;",
            "refuses kvs-put with 6: too;long",
        ),
        (
            Version::Two,
            "kvs-fence",
            "28    cmd=kvs-fence-response;rc=1;",
            "refuses kvs-fence with 1: for no reason that it tells",
        ),
        (Version::Two, "kvs-get", "26    cmd=kvs-get-response;rc=0;", "does not have the value of rank 0"),
        (Version::Two, "finalize", "17    cmd=finalize_ack;", KIND),
    ] {
        let heard = shared(1, first, &BOTH, Some("a"), Some((command, instead))).remove(0);
        assert_eq!(heard, Err(format!("the server {said}")), "{command}: {instead:?}");
    }
}

/// A conversation in version 2.0 of a rank that gives a value and hears one that makes the answer so long.
fn said(length: usize) -> Vec<u8> {
    let mut said = b"6cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n".to_vec();
    let mut answer = |body: &str| said.extend(format!("{:<6}{body}", body.len()).as_bytes());
    answer("cmd=fullinit-response;rc=0;rank=1;size=2;");
    answer("cmd=kvs-put-response;rc=0;");
    answer("cmd=kvs-fence-response;rc=0;");
    let head = "cmd=kvs-get-response;rc=0;found=TRUE;value=";
    answer(&format!("{head}{}", "x".repeat(length - head.len())));
    answer("cmd=finalize-response;rc=0;");
    said
}

#[test]
fn answers_have_a_longest_length() {
    for (length, taken) in [(LONGEST - 1, true), (LONGEST, true), (LONGEST + 1, false)] {
        let script = said(length);
        assert_eq!(conversation(&script), taken, "{length}");
        // Whatever is missing at its end, it is no answer.
        for cut in [1, 27, 28, 33, 34, 4000] {
            assert!(!conversation(&script[..script.len() - cut]), "{length} without {cut}");
        }
    }
    let mut line = b"1cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\ncmd=my_kvsname kvsname=".to_vec();
    line.resize(3 * LONGEST, b'k');
    assert!(!conversation(&line));
}

#[test]
fn a_server_that_ends_is_an_error() {
    for first in BOTH {
        let (end, other) = UnixStream::pair().unwrap();
        drop(other);
        let me = Member { rank: 0, ranks: 1, job: "" };
        assert!(talk(end, first, me, None).is_err());
    }
}
