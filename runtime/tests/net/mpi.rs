//! An MPI library that waits for ever, made by the C compiler: who is waited for is said as
//! far as it is known, and the process ends in time.

use super::*;
use std::process::{Command, Stdio};

/// As much of Open MPI as is looked for. Four processes, of which this is the first; the third
/// sum never comes, or the library never starts.
const LIBRARY: &str = r#"
#include <stdlib.h>
#include <unistd.h>
char ompi_mpi_errors_return, ompi_mpi_comm_world, ompi_mpi_byte, ompi_mpi_float,
    ompi_mpi_double, ompi_mpi_int32_t, ompi_mpi_int64_t, ompi_mpi_op_sum, ompi_mpi_op_max,
    ompi_mpi_op_min;
static void hang(void) { for (;;) sleep(1000); }
int MPI_Init_thread(int *argc, void *argv, int wanted, int *given) {
    if (getenv("FAKE_MPI")[0] == 'i') hang();
    *given = wanted;
    return 0;
}
int MPI_Comm_rank(void *comm, int *rank) { *rank = 0; return 0; }
int MPI_Comm_size(void *comm, int *size) { *size = atoi(getenv("FAKE_MPI") + 1); return 0; }
int MPI_Comm_set_errhandler(void *comm, void *handler) { return 0; }
int MPI_Allreduce(void *a, void *b, int n, void *t, void *op, void *comm) {
    static int sums;
    if (getenv("FAKE_MPI")[0] == 'p') hang();
    if (sums++ == 2) {
        if (getenv("FAKE_MPI")[0] == 'e') return 5;
        hang();
    }
    return 0;
}
int MPI_Sendrecv(void) { hang(); return 0; }
int MPI_Send(void) { hang(); return 0; }
int MPI_Recv(void) { hang(); return 0; }
int MPI_Isend(void) { hang(); return 0; }
int MPI_Wait(void) { hang(); return 0; }
int MPI_Test(void) { hang(); return 0; }
int MPI_Finalize(void) { return 0; }
"#;

/// What the process with the library does.
fn child() {
    let mut job = Job { mpi: true, ..Job::new(0, 4, "") };
    job.timeout = BRIEF;
    job.join_timeout = 2 * BRIEF;
    let group = match Group::join(&job, &[7; 32]) {
        Ok(group) => group,
        Err(e) => panic!("{e}"),
    };
    let e = group.total(1, "workers").unwrap_err();
    eprintln!("{e}");
    std::process::exit(e.exit_code());
}

#[test]
fn who_is_waited_for_is_said_as_far_as_it_is_known() {
    if std::env::var_os("FAKE_MPI").is_some() {
        return child();
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("mpi.c"), dir.path().join("libmpi.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    let mut cc = Command::new("cc");
    let made = cc.args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !made.is_ok_and(|s| s.success()) {
        eprintln!("skipped: there is no `cc` to make a library with");
        return;
    }
    let run = |what: &str| {
        let mut own = Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", "mpi::who_is_waited_for_is_said_as_far_as_it_is_known"]);
        own.arg("--nocapture").env("TFC_MPI", &library).env("FAKE_MPI", what);
        own.env_remove("OMPI_MCA_mpi_ft_enable").stdin(Stdio::null());
        let out = own.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(4), "{what}: {said}");
        said
    };
    let never = "error[E0702]: the workers have not joined by MPI within 2 s";
    let late = "error[E0702]: one of the others did not answer in time";
    let hashes = "while exchanging the programs' hashes";
    for (what, words) in [
        // It does not start.
        ("i4", &[never, "--join-timeout"][..]),
        // Nor does the first sum come, for as long as joining may take.
        ("p4", &[late, hashes, "MPI does not say which"]),
        ("s4", &[late, "while exchanging workers"]),
        ("e4", &["error[E0701]: one of the others is gone: MPI's error 5"]),
        // Of two there is only one other.
        ("s2", &["error[E0702]: worker 1 did not answer in time"]),
        ("e2", &["error[E0701]: worker 1 is gone: MPI's error 5"]),
    ] {
        let said = run(what);
        assert!(words.iter().all(|w| said.contains(w)), "{what}: {said}");
        assert!(what.ends_with('2') || !said.contains("worker 1"), "{what}: {said}");
    }
}
