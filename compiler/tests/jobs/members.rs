//! Who belongs to a job: found by the conventions of launchers, come late, or wrong.

use super::ports::{free_address, free_job};
use super::project::GRAPH;
use super::{TRAIN, close, command, ok, project, run, saved, tfc, until, variables};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

fn free() -> u16 {
    free_address().port()
}

/// What tells a process who it is.
type Environment = Vec<(&'static str, String)>;
/// The same for a rank, and the port where processes meet.
type Convention<'a> = &'a dyn Fn(usize, u16) -> Environment;

/// A process of a job that is started by hand.
fn member(dir: &Path, program: &str, more: &str, env: &Environment) -> Command {
    let line = TRAIN.trim_start_matches("./m ");
    let mut c = command(dir, program, &format!("{line} {more}"));
    c.envs(env.iter().map(|(k, v)| (k, v)));
    c.stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

/// A process of a job with one parameter server.
fn served(at: u16, role: &str, rank: usize, size: usize) -> Environment {
    vec![
        ("TFC_SERVERS", format!("127.0.0.1:{at}")),
        ("TFC_ROLE", role.to_owned()),
        ("TFC_RANK", rank.to_string()),
        ("TFC_SIZE", size.to_string()),
    ]
}

fn torchrun(rank: usize, port: u16) -> Environment {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".into()),
        ("MASTER_ADDR", "127.0.0.1".into()),
        ("MASTER_PORT", (port - 1).to_string()),
    ]
}

/// The port is that of the job's number.
fn slurm(rank: usize, _: u16) -> Environment {
    static JOB: LazyLock<u16> = LazyLock::new(|| free_job(|id| vec![29770 + id]));
    vec![
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_STEP_NUM_TASKS", "2".into()),
        ("SLURM_STEP_NODELIST", "localhost".into()),
        ("SLURM_JOB_ID", JOB.to_string()),
    ]
}

fn tensorflow(rank: usize, port: u16) -> Environment {
    let role = if rank == 0 { "chief" } else { "worker" };
    let config = format!(
        "{{\"cluster\": {{\"chief\": [\"127.0.0.1:{port}\"], \"worker\": [\"127.0.0.1:1\"]}}, \
         \"task\": {{\"type\": \"{role}\", \"index\": 0}}}}"
    );
    vec![("TF_CONFIG", config)]
}

fn meeting(name: &'static str, rank: usize, port: u16) -> Environment {
    vec![
        (name, rank.to_string()),
        ("TFC_SIZE", "2".into()),
        ("TFC_COORDINATOR", format!("127.0.0.1:{port}")),
    ]
}

/// Each convention in its own words: two processes find each other, and say how.
#[test]
fn launchers_are_known_by_what_they_set() {
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    let kubernetes = |rank, port| meeting("JOB_COMPLETION_INDEX", rank, port);
    let pmix = |rank, port| meeting("PMIX_RANK", rank, port);
    let conventions: [(&str, Convention<'_>); 5] = [
        ("torchrun", &torchrun),
        ("Slurm", &slurm),
        ("TF_CONFIG", &tensorflow),
        ("Kubernetes", &kubernetes),
        ("PMIx", &pmix),
    ];
    for (name, environment) in conventions {
        let (port, state) = (free(), format!("{}.safetensors", name.to_lowercase()));
        let mut chief = member(dir, "./m", &format!("--state {state}"), &environment(0, port));
        let chief = chief.spawn().unwrap();
        ok(member(dir, "./m", "", &environment(1, port)).output().unwrap());
        let out = chief.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ok(out);
        let words = format!("note: found by {name}: this is worker 0 of 2, which meet at ");
        assert!(said.contains(&words), "{name}: {said}");
        close(&one, &variables(dir.join(state)));
    }
}

/// In whatever order processes come: servers first, the chief last, a worker when others
/// are in the middle of it.
#[test]
fn who_comes_late_takes_the_variables_and_goes_on() {
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let at = free();
    let start = |more: &str, env: &Environment| member(dir, "./m", more, env).spawn().unwrap();
    let last = |more: &str, env: &Environment| ok(member(dir, "./m", more, env).output().unwrap());
    // The chief last of all.
    let other = start("", &served(at, "worker", 1, 2));
    let server = start("", &served(at, "ps", 0, 2));
    std::thread::sleep(std::time::Duration::from_millis(300));
    last("--state late.safetensors", &served(at, "worker", 0, 2));
    ok(other.wait_with_output().unwrap());
    ok(server.wait_with_output().unwrap());
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("late.safetensors")));
    // A worker when the others have saved.
    let at = free();
    let long = "--mode ps-async --epochs 500 --checkpoint-dir ck --save-every 20";
    let server = start(long, &served(at, "ps", 0, 3));
    let mut chief = start(long, &served(at, "worker", 0, 3));
    let other = start(long, &served(at, "worker", 1, 3));
    until(&mut chief, || saved(&dir.join("ck"), 4));
    last(long, &served(at, "worker", 2, 3));
    let out = chief.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ok(out);
    ok(other.wait_with_output().unwrap());
    ok(server.wait_with_output().unwrap());
    // All three have done their 2000 steps.
    assert!(said.contains("6000 updates"), "{said}");
}

/// Another program may not join servers either; it is told both hashes, and the job goes on
/// waiting.
#[test]
fn servers_refuse_another_program() {
    let dir = project();
    let dir = dir.path();
    std::fs::write(dir.join("n.graph"), GRAPH.replace("1e-2", "1e-3")).unwrap();
    ok(tfc(dir, "compile n.graph -o n"));
    let at = free();
    let server = member(dir, "./m", "", &served(at, "ps", 0, 1)).spawn().unwrap();
    let wrong = member(dir, "./n", "", &served(at, "worker", 0, 1)).output().unwrap();
    let err = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(4), "{err}");
    assert!(err.contains("E0703") && err.contains("parameter server 0 refused"), "{err}");
    let hashes = err.split([' ', ',', '\n']).filter(|w| w.len() == 64);
    let hashes: std::collections::BTreeSet<&str> = hashes.collect();
    assert_eq!(hashes.len(), 2, "{err}");
    ok(member(dir, "./m", "", &served(at, "worker", 0, 1)).output().unwrap());
    ok(server.wait_with_output().unwrap());
}

/// A server that nobody calls does not wait for ever.
#[test]
fn a_server_without_workers_ends() {
    let dir = project();
    let brief = "--peer-timeout 1s --join-timeout 1s";
    let out = member(dir.path(), "./m", brief, &served(free(), "ps", 0, 2)).output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(4), "{err}");
    for words in ["E0702", "no worker has called", "worker 0, worker 1"] {
        assert!(err.contains(words), "{words}: {err}");
    }
}
