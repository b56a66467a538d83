//! The suite for transports, over MPI: each of its processes is this test once more, started
//! by `mpirun`, and does its part of all that the groups of other transports do in threads.

#[path = "../../../compiler/tests/support/mpi.rs"]
mod mpi;

use super::{SOON, floats, value};
use mpi::{MPIRUN, mpirun};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tfc_abi::DType;
use tfc_runtime::net::Group;
use tfc_runtime::net::collective::Reduce;
use tfc_runtime::net::job::Job;

/// What a process of a job is to do.
const PART: &str = "TFC_TEST_PART";

/// The group of this process, which waits as long as said.
fn group(wait: Duration) -> Group {
    let mut job = Job::from_environment().unwrap().unwrap();
    job.timeout = wait;
    Group::join(&job, &[7; 32]).unwrap()
}

/// A job of these processes, each of which is the test of that name.
fn job(mpirun: &str, options: &str, size: usize, test: &str) -> Output {
    let mut command = Command::new(mpirun);
    command.args(MPIRUN.split(' ')).args(options.split_whitespace());
    command.args(["-n", &size.to_string()]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("over_mpi::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(PART, test).stdin(Stdio::null()).output().unwrap()
}

fn said(out: &Output) -> String {
    let [out, err] = [&out.stdout, &out.stderr].map(|s| String::from_utf8_lossy(s));
    format!("{out}{err}")
}

#[test]
fn processes_of_mpi_do_what_threads_do() {
    if std::env::var_os(PART).is_some() {
        return all_of_it(&group(SOON));
    }
    let Some(mpirun) = mpirun("") else { return };
    for size in [2, 3, 5] {
        let out = job(&mpirun, "", size, "processes_of_mpi_do_what_threads_do");
        let said = said(&out);
        assert!(out.status.success(), "{size}: {said}");
        for rank in 0..size {
            assert!(said.contains(&format!("worker {rank} of {size} has done all")), "{said}");
        }
    }
}

fn all_of_it(g: &Group) {
    let (rank, size) = (g.rank(), g.size());
    assert_eq!(g.engine(), "MPI");
    messages(g);
    sums(g);
    element_types(g);
    // The last has no examples: what it computed of none does not count.
    let mine = if rank + 1 < size { 5f32 } else { f32::NAN };
    g.set_share(usize::from(!mine.is_nan()), size - 1);
    let mut data = mine.to_ne_bytes();
    g.all_reduce(&mut [(DType::F32, &mut data)], Reduce::Mean, "x", "").unwrap();
    assert!((f32::from_ne_bytes(data) - 5.0).abs() < 1e-5);
    // The chief tells everybody.
    let mut data = vec![rank as u8 + 1; 3_000_000];
    g.broadcast(&mut data, "the variables").unwrap();
    assert!(data.iter().all(|b| *b == 1));
    assert_eq!(g.agree(rank as i64 * 10, "a number").unwrap(), (size as i64 - 1) * 10);
    assert_eq!(g.total(rank as u64 + 1, "a number").unwrap(), (size * (size + 1) / 2) as u64);
    assert_eq!(g.part(10, 20), (10 + 10 * rank / size, 10 + 10 * (rank + 1) / size));
    eprintln!("worker {rank} of {size} has done all");
}

/// In order, and nobody waits to send.
fn messages(g: &Group) {
    let others = || (0..g.size()).filter(|r| *r != g.rank());
    for round in 0..4u8 {
        for to in others() {
            let data = vec![round * 16 + g.rank() as u8; 3_000_000];
            g.send(to, &data, "a tensor", "").unwrap();
            g.send(to, &[], "a signal", "").unwrap();
        }
    }
    for round in 0..4u8 {
        for from in others() {
            let mut data = vec![0; 3_000_000];
            g.recv(from, &mut data, "a tensor", "").unwrap();
            assert!(data.iter().all(|b| *b == round * 16 + from as u8));
            g.recv(from, &mut [], "a signal", "").unwrap();
        }
    }
    g.flush("the end").unwrap();
}

fn sums(g: &Group) {
    let size = g.size();
    for len in [0, 1, 5, 4099, 300_001] {
        for op in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min] {
            let mut data: Vec<u8> =
                (0..len).flat_map(|i| value(g.rank(), i).to_ne_bytes()).collect();
            g.set_share(1, size);
            g.all_reduce(&mut [(DType::F32, &mut data)], op, "x", "").unwrap();
            for (i, v) in floats(&data).into_iter().enumerate() {
                let all = (0..size).map(|r| f64::from(value(r, i)));
                let want = match op {
                    Reduce::Sum => all.sum(),
                    Reduce::Mean => all.sum::<f64>() / size as f64,
                    Reduce::Max => all.fold(f64::NEG_INFINITY, f64::max),
                    Reduce::Min => all.fold(f64::INFINITY, f64::min),
                };
                assert!((f64::from(v) - want).abs() < 1e-4, "{size} {i}: {v} {want}");
            }
            // All have the same bits.
            let mut chief = data.clone();
            g.broadcast(&mut chief, "the result").unwrap();
            assert!(chief == data, "{size} {len} {op:?}");
        }
    }
}

/// Also those for which MPI has no sums.
fn element_types(g: &Group) {
    // 1.0 as f16 and bf16, which sums of a few ones are exact in.
    let (mut i8s, mut halves, mut brains) =
        ([1u8, 2], 0x3c00u16.to_ne_bytes(), 0x3f80u16.to_ne_bytes());
    let mut i32s: Vec<u8> = [1, i32::MAX].iter().flat_map(|v| v.to_ne_bytes()).collect();
    let mut i64s = (1i64 << 40).to_ne_bytes();
    let mut f64s = 0.25f64.to_ne_bytes();
    let mut parts: Vec<(DType, &mut [u8])> = vec![
        (DType::I8, &mut i8s),
        (DType::I32, &mut i32s),
        (DType::I64, &mut i64s),
        (DType::F64, &mut f64s),
        (DType::F16, &mut halves),
        (DType::BF16, &mut brains),
    ];
    g.all_reduce(&mut parts, Reduce::Sum, "x", "").unwrap();
    let n = g.size();
    assert_eq!(i8s, [n as u8, 2 * n as u8]);
    let wrapped = i32::MAX.wrapping_mul(n as i32);
    let want: Vec<u8> = [n as i32, wrapped].iter().flat_map(|v| v.to_ne_bytes()).collect();
    assert_eq!(i32s, want);
    assert_eq!(i64::from_ne_bytes(i64s), (n as i64) << 40);
    assert_eq!(f64::from_ne_bytes(f64s), 0.25 * n as f64);
    let half = [0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500][n];
    let brain = [0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0][n];
    assert_eq!((u16::from_ne_bytes(halves), u16::from_ne_bytes(brains)), (half, brain));
}

/// MPI cannot be asked to stop waiting: the process ends, and says why.
#[test]
fn a_message_that_never_comes_ends_the_job() {
    if std::env::var_os(PART).is_some() {
        let g = group(if std::env::var("OMPI_COMM_WORLD_RANK").unwrap() == "0" {
            Duration::from_millis(300)
        } else {
            SOON
        });
        let from = 1 - g.rank();
        let place = "m.graph:3:5";
        // Neither sends.
        let came = g.recv(from, &mut [0; 8], "`h`, from /job:a/task:1", place);
        panic!("nothing has been sent: {came:?}");
    }
    let Some(mpirun) = mpirun("") else { return };
    let out = job(&mpirun, "", 2, "a_message_that_never_comes_ends_the_job");
    let said = said(&out);
    assert!(!out.status.success(), "{said}");
    for words in ["E0702", "worker 1", "`h`, from /job:a/task:1", "m.graph:3:5"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Who is gone is named where the library lives on, as `--with-ft ulfm` asks for.
#[test]
fn a_process_that_is_gone_is_named() {
    const ULFM: &str = "--with-ft ulfm";
    if std::env::var_os(PART).is_some() {
        let g = group(SOON);
        if g.rank() == 2 {
            std::process::abort();
        }
        let mut data = vec![0; 400_000];
        let part = &mut [(DType::F32, &mut data[..])];
        let e = g.all_reduce(part, Reduce::Sum, "the gradient of `w`", "m.graph:3:5").unwrap_err();
        eprintln!("worker {}: {e}", g.rank());
        std::process::exit(e.exit_code());
    }
    let Some(mpirun) = mpirun(ULFM) else { return };
    let out = job(&mpirun, ULFM, 3, "a_process_that_is_gone_is_named");
    let said = said(&out);
    assert!(!out.status.success(), "{said}");
    for words in ["E0701", "worker 2", "the gradient of `w`", "m.graph:3:5"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}
