//! The declarations of `abi` beside the headers that are installed: a C program prints sizes, offsets and
//! constants, and a test compares them. Without a C compiler or headers the test says so and is skipped.

use super::abi;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// What C is asked, and what this crate believes.
fn expectations() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    macro_rules! constants {
        ($($name:ident)*) => { $(all.push((stringify!($name).to_owned(), i128::from(abi::$name) as u64));)* };
    }
    macro_rules! offsets {
        ($($kind:ident: $($field:ident)*;)*) => {
            $($(all.push((
                format!("offsetof(struct {}, {})", stringify!($kind), stringify!($field)),
                offset_of!(abi::$kind, $field) as u64,
            ));)*)*
        };
    }
    macro_rules! sizes {
        ($($kind:ident)*) => {
            $(all.push((format!("sizeof(struct {})", stringify!($kind)), size_of::<abi::$kind>() as u64));)*
        };
    }
    constants! {
        FI_MSG FI_RMA FI_READ FI_WRITE FI_RECV FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_MULTI_RECV FI_COMPLETION
        FI_DELIVERY_COMPLETE FI_CONTEXT FI_CONTEXT2 FI_ORDER_SAS FI_MR_LOCAL FI_MR_VIRT_ADDR FI_MR_ALLOCATED
        FI_MR_PROV_KEY FI_MR_ENDPOINT FI_EP_RDM FI_AV_TABLE FI_THREAD_DOMAIN
        FI_RM_ENABLED FI_WAIT_NONE FI_WAIT_FD FI_CQ_FORMAT_DATA FI_OPT_ENDPOINT FI_OPT_MIN_MULTI_RECV
        FI_GETWAIT FI_ENABLE FI_ENODATA
    }
    all.push(("FI_EAGAIN".into(), abi::FI_EAGAIN as u64));
    all.push(("FI_EAVAIL".into(), abi::FI_EAVAIL as u64));
    all.push(("FI_VERSION(1, 14)".into(), abi::API_VERSION.into()));
    // What this crate makes itself: of the size that the library believes, or longer.
    sizes! { fi_av_attr fi_cq_attr fi_cq_data_entry fi_msg fi_msg_rma fi_rma_iov fid fid_mr }
    all.push(("sizeof(struct fi_context2)".into(), crate::memory::Contexts::BYTES as u64));
    offsets! {
        fid: fclass context ops;
        fi_ops: size close bind control;
        fi_tx_attr: caps mode op_flags msg_order comp_order inject_size size iov_limit rma_iov_limit tclass;
        fi_rx_attr: caps mode op_flags msg_order comp_order total_buffered_recv size iov_limit;
        fi_ep_attr: protocol protocol_version max_msg_size;
        fi_domain_attr: domain name threading control_progress data_progress resource_mgmt av_type mr_mode
            mr_key_size cq_data_size cq_cnt ep_cnt;
        fi_fabric_attr: fabric name prov_name prov_version api_version;
        fi_info: next caps mode addr_format src_addrlen dest_addrlen src_addr dest_addr handle tx_attr rx_attr
            ep_attr domain_attr fabric_attr nic;
        fi_ops_fabric: size domain passive_ep eq_open wait_open trywait;
        fid_fabric: fid ops api_version;
        fi_av_attr: rx_ctx_bits count ep_per_node name map_addr flags;
        fi_ops_av: size insert;
        fid_av: fid ops;
        fid_mr: fid mem_desc key;
        fi_ops_domain: size av_open cq_open endpoint;
        fi_ops_mr: size reg;
        fid_domain: fid ops mr;
        fi_ops_cm: size setname getname;
        fi_ops_msg: size recv recvv recvmsg send sendv sendmsg inject;
        fi_rma_iov: addr len key;
        fi_msg_rma: msg_iov desc iov_count addr rma_iov rma_iov_count context data;
        fi_ops_rma: size read readv readmsg write writev writemsg;
        fi_ops_ep: size cancel getopt setopt;
        fi_msg: msg_iov desc iov_count addr context data;
        fid_ep: fid ops cm msg rma;
        fi_cq_attr: size flags format wait_obj signaling_vector wait_cond wait_set;
        fi_cq_data_entry: op_context flags len buf data;
        fi_cq_err_entry: op_context flags len buf data tag olen err prov_errno err_data err_data_size;
        fi_ops_cq: size read readfrom readerr sread sreadfrom signal strerror;
        fid_cq: fid ops;
    }
    all
}

/// What the headers say; an error is why they cannot be asked.
fn ask_headers(questions: &[String]) -> Result<Vec<u64>, String> {
    let mut source = "#include <stdio.h>\n#include <stddef.h>\n".to_owned();
    for header in ["fabric", "fi_cm", "fi_domain", "fi_endpoint", "fi_eq", "fi_errno", "fi_rma"] {
        writeln!(source, "#include <rdma/{header}.h>").expect("text grows");
    }
    source += "int main(void) {\n";
    for question in questions {
        writeln!(source, "printf(\"%llu\\n\", (unsigned long long)({question}));").expect("text grows");
    }
    writeln!(source, "return sizeof(struct fi_cq_err_entry) > {};\n}}", size_of::<abi::fi_cq_err_entry>())
        .expect("text grows");
    let stem = std::env::temp_dir().join(format!("am-ofi-abi-{}", std::process::id()));
    let (file, program) = (stem.with_extension("c"), stem.with_extension("out"));
    std::fs::write(&file, source).map_err(|error| error.to_string())?;
    let result = compile_and_run(&file, &program);
    // Leaving a file behind in the temporary directory is no failure of the test.
    let _ = (std::fs::remove_file(&file), std::fs::remove_file(&program));
    let answers = result?;
    answers.lines().map(|line| line.parse().map_err(|_| format!("the C program says {line}"))).collect()
}

/// The compiler, whose messages are read and therefore asked for in the language of programs.
fn compiler(file: &Path, program: &Path) -> Command {
    let mut compiler = Command::new("cc");
    compiler.env("LC_ALL", "C").env_remove("LANGUAGE").arg("-w").arg("-o").arg(program).arg(file);
    compiler
}

#[test]
fn compilers_are_asked_in_one_language() {
    let compiler = compiler(Path::new("a.c"), Path::new("a.out"));
    let set: Vec<_> = compiler.get_envs().collect();
    assert!(set.contains(&("LC_ALL".as_ref(), Some("C".as_ref()))) && set.contains(&("LANGUAGE".as_ref(), None)));
}

fn compile_and_run(file: &Path, program: &Path) -> Result<String, String> {
    let built = compiler(file, program).output();
    let built = built.map_err(|error| format!("there is no C compiler: {error}"))?;
    if !built.status.success() {
        let text = String::from_utf8_lossy(&built.stderr).into_owned();
        let missing = text.contains("rdma/fabric.h") && text.contains("No such file");
        // Headers that are there and lack something are a failure.
        assert!(missing, "the headers of libfabric do not have what is declared: {text}");
        return Err("the headers of libfabric are not installed (apt-get install libfabric-dev)".into());
    }
    let ran = Command::new(program).output().map_err(|error| error.to_string())?;
    assert!(ran.status.success(), "an error's entry is longer than this crate's");
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

#[test]
fn declarations_are_those_of_the_headers() {
    let (questions, beliefs): (Vec<String>, Vec<u64>) = expectations().into_iter().unzip();
    match ask_headers(&questions) {
        // Past the test runner, which shows nothing of tests that pass.
        Err(reason) => {
            if let Ok(mut out) = std::fs::OpenOptions::new().append(true).open("/dev/stderr") {
                let line = format!("SKIPPED: declarations beside libfabric's headers: {reason}\n");
                let _ = out.write_all(line.as_bytes());
            }
        }
        Ok(answers) => {
            assert_eq!(answers.len(), beliefs.len());
            for ((question, belief), answer) in questions.iter().zip(beliefs).zip(answers) {
                assert_eq!(belief, answer, "{question}");
            }
        }
    }
}
