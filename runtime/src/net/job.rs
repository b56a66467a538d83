//! Which process of how many this is.
//!
//! Told by the environment, in the first of these ways that is there:
//!
//! | launcher | variables |
//! |---|---|
//! | `tfc launch`, or by hand | `TFC_RANK`, `TFC_SIZE`, `TFC_COORDINATOR` |
//! | `mpirun` | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`; the messages are MPI's |
//! | torchrun | `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` |
//! | Slurm's `srun` | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`, `SLURM_STEP_NODELIST` |
//! | TensorFlow's | `TF_CONFIG` |
//! | parameter servers | `TFC_ROLE` (`ps` or `worker`) and `TFC_SERVERS`, beside `TFC_RANK` and `TFC_SIZE` |
//! | Kubernetes indexed jobs | `JOB_COMPLETION_INDEX`, with `TFC_SIZE` and `TFC_COORDINATOR` |
//! | PMIx | `PMIX_RANK`, with `TFC_SIZE`; the messages are MPI's, unless `TFC_COORDINATOR` says where to meet |

use super::{JOIN_TIMEOUT, PEER_TIMEOUT};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::io::json::Json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The convention of `tfc launch` itself.
const OWN: &str = "TFC_RANK";
/// Nothing that a process computes is in the way of an answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Port for launchers that name a host alone.
const PORT: u16 = 29_770;

/// What becomes of a job that loses a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    #[default]
    Stop,
    /// Those that are left go on.
    Shrink,
    /// They wait until it is back.
    Wait,
}

impl OnLoss {
    pub fn name(self) -> &'static str {
        match self {
            OnLoss::Stop => "stop",
            OnLoss::Shrink => "shrink",
            OnLoss::Wait => "wait",
        }
    }

    pub fn from_name(name: &str) -> Option<OnLoss> {
        [OnLoss::Stop, OnLoss::Shrink, OnLoss::Wait].into_iter().find(|o| o.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub rank: usize,
    pub size: usize,
    /// `HOST:PORT` where process 0 listens.
    pub coordinator: String,
    /// This process is a parameter server: `rank` is its number among those, and
    /// `size` the number of workers.
    pub server: bool,
    /// Where the parameter servers listen; none in a job without.
    pub servers: Vec<String>,
    /// The launcher's own library carries the messages.
    pub mpi: bool,
    /// Which convention said so, for people.
    pub found: &'static str,
    /// Who does not have it may not join.
    pub token: String,
    /// Text may cross a network as it is.
    pub plain: bool,
    /// What messages are encrypted with, and members known by.
    pub tls: Option<super::tls::Files>,
    pub timeout: Duration,
    pub join_timeout: Duration,
    /// How long a process that is there may take to say so, if a step may take as long.
    #[doc(hidden)]
    pub answer: Duration,
    pub on_loss: OnLoss,
    /// The directory of checkpoints, for parameter servers: all of them must see it.
    pub checkpoints: Option<PathBuf>,
}

impl Job {
    pub fn new(rank: usize, size: usize, coordinator: impl Into<String>) -> Job {
        Job {
            rank,
            size,
            coordinator: coordinator.into(),
            server: false,
            servers: vec![],
            mpi: false,
            found: OWN,
            token: String::new(),
            plain: false,
            tls: None,
            timeout: PEER_TIMEOUT,
            join_timeout: JOIN_TIMEOUT,
            answer: ANSWER,
            on_loss: OnLoss::Stop,
            checkpoints: None,
        }
    }

    /// One task of a cluster, with what the environment says about messages.
    pub fn of_task(rank: usize, size: usize, coordinator: String) -> Result<Job> {
        let mut job = Job { found: "--role", ..Job::new(rank, size, coordinator) };
        job.secure(&|name| std::env::var(name).ok().filter(|v| !v.is_empty()))?;
        Ok(job)
    }

    fn secure(&mut self, set: Env<'_>) -> Result<()> {
        self.token = set("TFC_TOKEN").unwrap_or_default();
        self.plain = set("TFC_PLAINTEXT").is_some_and(|v| v == "1");
        let [cert, key, ca] =
            ["TFC_TLS_CERT", "TFC_TLS_KEY", "TFC_TLS_CA"].map(|name| set(name).map(PathBuf::from));
        self.use_tls(cert, key, ca)
    }

    /// Encrypts messages with these files, if any is given; then all must be.
    pub fn use_tls(
        &mut self,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        ca: Option<PathBuf>,
    ) -> Result<()> {
        match (cert, key, ca) {
            (None, None, None) => Ok(()),
            (Some(cert), Some(key), Some(ca)) => {
                self.tls = Some(super::tls::Files { cert, key, ca });
                Ok(())
            }
            _ => Err(Error::usage(
                ErrorCode::NOT_TRUSTED,
                "a certificate, its key and the authority's certificate go together",
            )
            .help("give all of `--tls-cert`, `--tls-key` and `--tls-ca`")),
        }
    }

    /// What the environment says; none if it says nothing of other processes.
    pub fn detect(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Job>> {
        let set = |name: &str| env(name).filter(|v| !v.is_empty());
        let found = [tfc, mpirun, pmix, torchrun, slurm, tf_config]
            .into_iter()
            .find_map(|convention| convention(&set).transpose())
            .transpose()?;
        let Some(mut job) = found else { return Ok(None) };
        if let Some(list) = set("TFC_SERVERS") {
            job.servers = list.split(',').map(|at| at.trim().to_owned()).collect();
        }
        match set("TFC_ROLE").as_deref() {
            Some("ps") => job.server = true,
            Some("worker") | None => {}
            Some(other) => {
                return Err(wrong("TFC_ROLE", &format!("`{other}` is neither `ps` nor `worker`")));
            }
        }
        let ranks = if job.server { job.servers.len() } else { job.size };
        if job.rank >= ranks {
            return Err(wrong(
                job.found,
                &format!("rank {} of {ranks} does not exist: ranks begin with 0", job.rank),
            ));
        }
        job.secure(&set)?;
        Ok(Some(job).filter(|j| j.size > 1 || !j.servers.is_empty()))
    }

    /// What was found, for people; nothing where tfc itself has said it.
    pub fn introduction(&self) -> Option<String> {
        if [OWN, "--role"].contains(&self.found) {
            return None;
        }
        let place = match (self.servers.is_empty(), self.mpi) {
            (false, _) => format!("with parameter servers at {}", self.servers.join(", ")),
            (true, true) => "with messages of MPI".to_owned(),
            (true, false) => format!("which meet at {}", self.coordinator),
        };
        let (found, rank, size) = (self.found, self.rank, self.size);
        Some(format!("found by {found}: this is worker {rank} of {size}, {place}"))
    }

    /// As [`Job::detect`], from this process's environment.
    pub fn from_environment() -> Result<Option<Job>> {
        Job::detect(&|name| std::env::var(name).ok())
    }

    /// Where process 0 listens. Other hosts are let in only when that was asked for:
    /// nothing on the wire is encrypted.
    pub(super) fn listener(&self) -> Result<TcpListener> {
        match self.on_loss {
            OnLoss::Wait => self.listen_again_at(&self.coordinator),
            _ => self.listen_at(&self.coordinator),
        }
    }

    /// Where this process listens, as a parameter server.
    pub(super) fn server_listener(&self) -> Result<TcpListener> {
        self.listen_again_at(self.servers.get(self.rank).map_or("", String::as_str))
    }

    fn listen_again_at(&self, at: &str) -> Result<TcpListener> {
        // The one before it may not be quite gone.
        let until = Instant::now() + self.join_timeout.min(Duration::from_secs(10));
        loop {
            match self.listen_at(at) {
                Err(e) if e.kind() == ErrorKind::Io && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }

    fn listen_at(&self, at: &str) -> Result<TcpListener> {
        self.check_plain_to(at)?;
        let bound = match self.open_port(at) {
            Some(port) => listen_everywhere(port),
            None => TcpListener::bind(at),
        };
        bound.map_err(|e| {
            Error::io(
                ErrorCode::BAD_JOB,
                format!("cannot listen at {at}: {}", crate::io::io_reason(&e)),
            )
        })
    }

    /// The port of an address that processes of other hosts are to find, if the address has
    /// a name and they may talk to this one. On the host itself its name often is that of the
    /// loopback interface, so who listens there listens at all interfaces.
    fn open_port(&self, at: &str) -> Option<u16> {
        let (host, port) = at.rsplit_once(':')?;
        let local = host.to_ascii_lowercase();
        let local = local == "localhost" || local.ends_with(".localhost");
        // An address of IPv6 stands in brackets.
        let number = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
        let named = !host.is_empty() && !number && !local;
        port.parse().ok().filter(|_| named && (self.plain || self.tls.is_some()))
    }

    /// Where a worker listens that reaches the chief from this address of its own.
    pub(super) fn worker_listener(&self, own: IpAddr) -> std::io::Result<TcpListener> {
        match self.open_port(&self.coordinator) {
            Some(_) if own.to_canonical().is_loopback() => listen_everywhere(0),
            _ => TcpListener::bind((own, 0)),
        }
    }

    pub(super) fn check_plain(&self) -> Result<()> {
        self.check_plain_to(&self.coordinator)
    }

    pub(super) fn check_plain_to(&self, address: &str) -> Result<()> {
        let local = address.to_socket_addrs().is_ok_and(|mut all| {
            all.all(|at| match at.ip() {
                IpAddr::V4(ip) => ip.is_loopback(),
                IpAddr::V6(ip) => ip.is_loopback(),
            })
        });
        if local || self.plain || self.tls.is_some() {
            return Ok(());
        }
        Err(Error::usage(
            ErrorCode::PLAINTEXT,
            format!("the workers would talk to {address} in plain text"),
        )
        .note("weights, gradients and the job's token could be read and changed on the way")
        .help(
            "encrypt it with `--tls-cert`, `--tls-key` and `--tls-ca`; on a network where nobody \
             else listens, allow it with TFC_PLAINTEXT=1; or let `mpirun` carry the messages",
        ))
    }
}

fn listen_everywhere(port: u16) -> std::io::Result<TcpListener> {
    // That is IPv4, too; without IPv6 there is only that.
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

fn wrong(convention: &str, what: &str) -> Error {
    Error::usage(ErrorCode::BAD_JOB, format!("{convention}: {what}"))
        .note("the environment says that this process is one of several")
        .help("`--mode local` ignores it")
}

fn count(env: Env<'_>, name: &'static str) -> Result<Option<usize>> {
    let Some(text) = env(name) else { return Ok(None) };
    match text.trim().parse() {
        Ok(n) => Ok(Some(n)),
        Err(_) => Err(wrong(name, &format!("`{text}` is not a number"))),
    }
}

fn tfc(env: Env<'_>) -> Result<Option<Job>> {
    let own = count(env, "TFC_RANK")?;
    let index = count(env, "JOB_COMPLETION_INDEX")?.filter(|_| env("TFC_SIZE").is_some());
    let Some(rank) = own.or(index) else { return Ok(None) };
    let found = if own.is_some() { OWN } else { "Kubernetes" };
    let size = count(env, "TFC_SIZE")?
        .ok_or_else(|| wrong("TFC_RANK", "TFC_SIZE, the number of processes, is missing"))?;
    let coordinator = match env("TFC_COORDINATOR") {
        Some(at) => at,
        None if size <= 1 || env("TFC_SERVERS").is_some() => String::new(),
        None => {
            return Err(wrong(
                "TFC_RANK",
                "TFC_COORDINATOR=HOST:PORT, where worker 0 listens, is missing",
            ));
        }
    };
    Ok(Some(Job { found, ..Job::new(rank, size, coordinator) }))
}

fn pmix(env: Env<'_>) -> Result<Option<Job>> {
    let (Some(rank), Some(size)) = (count(env, "PMIX_RANK")?, count(env, "TFC_SIZE")?) else {
        return Ok(None);
    };
    let at = env("TFC_COORDINATOR");
    let mpi = at.is_none();
    Ok(Some(Job { mpi, found: "PMIx", ..Job::new(rank, size, at.unwrap_or_default()) }))
}

fn mpirun(env: Env<'_>) -> Result<Option<Job>> {
    let rank = count(env, "OMPI_COMM_WORLD_RANK")?;
    let size = count(env, "OMPI_COMM_WORLD_SIZE")?;
    let (Some(rank), Some(size)) = (rank, size) else { return Ok(None) };
    Ok(Some(Job { mpi: true, found: "mpirun", ..Job::new(rank, size, "") }))
}

fn torchrun(env: Env<'_>) -> Result<Option<Job>> {
    let (Some(host), Some(port)) = (env("MASTER_ADDR"), env("MASTER_PORT")) else {
        return Ok(None);
    };
    let (Some(rank), Some(size)) = (count(env, "RANK")?, count(env, "WORLD_SIZE")?) else {
        return Ok(None);
    };
    let port: u16 = port.parse().map_err(|_| wrong("MASTER_PORT", "it is not a port"))?;
    // The launcher itself listens at the port it names.
    let port = port.checked_add(1).unwrap_or(PORT);
    Ok(Some(Job { found: "torchrun", ..Job::new(rank, size, address(&host, port)) }))
}

fn slurm(env: Env<'_>) -> Result<Option<Job>> {
    let (Some(rank), Some(size)) =
        (count(env, "SLURM_PROCID")?, count(env, "SLURM_STEP_NUM_TASKS")?)
    else {
        return Ok(None);
    };
    let nodes = env("SLURM_STEP_NODELIST").or_else(|| env("SLURM_JOB_NODELIST"));
    let Some(host) = nodes.as_deref().and_then(first_host) else { return Ok(None) };
    let id = count(env, "SLURM_JOB_ID")?.unwrap_or(0);
    let coordinator = address(&host, PORT + (id % 1000) as u16);
    Ok(Some(Job { found: "Slurm", ..Job::new(rank, size, coordinator) }))
}

/// The first of `node[003-007,9],other`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else {
        return Some(name.to_owned()).filter(|n| !n.is_empty());
    };
    let close = inside.find(']')?;
    let first = inside[..close].split([',', '-']).next()?;
    let after = &inside[close + 1..];
    let tail = &after[..after.find(',').unwrap_or(after.len())];
    Some(format!("{name}{first}{tail}"))
}

fn tf_config(env: Env<'_>) -> Result<Option<Job>> {
    let Some(text) = env("TF_CONFIG") else { return Ok(None) };
    let bad = |what: &str| wrong("TF_CONFIG", what);
    let config = Json::parse(&text).map_err(|_| bad("it is not JSON"))?;
    let task = config.get("task").ok_or_else(|| bad("it has no `task`"))?;
    let kind =
        task.get("type").and_then(Json::as_str).ok_or_else(|| bad("the task has no type"))?;
    let index =
        task.get("index").and_then(Json::as_u64).ok_or_else(|| bad("the task has no index"))?;
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    let cluster = config.get("cluster").ok_or_else(|| bad("it has no `cluster`"))?;
    let mut addresses: Vec<String> = vec![];
    let mut rank = None;
    let of = |role: &str| cluster.get(role).and_then(Json::as_array).unwrap_or(&[]);
    let servers: Vec<String> =
        of("ps").iter().filter_map(Json::as_str).map(str::to_owned).collect();
    for role in ["chief", "master", "worker"] {
        let list = of(role);
        if role == kind && index < list.len() {
            rank = Some(addresses.len() + index);
        }
        addresses.extend(list.iter().filter_map(Json::as_str).map(str::to_owned));
    }
    let server = kind == "ps" && index < servers.len();
    let rank = rank.or(server.then_some(index));
    let rank = rank.ok_or_else(|| bad(&format!("the cluster has no {kind} number {index}")))?;
    let coordinator = addresses.first().cloned().unwrap_or_default();
    let found = "TF_CONFIG";
    Ok(Some(Job { found, server, servers, ..Job::new(rank, addresses.len(), coordinator) }))
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(vars: &[(&str, &str)]) -> Result<Option<Job>> {
        Job::detect(&|name| vars.iter().find(|v| v.0 == name).map(|v| v.1.to_owned()))
    }

    #[test]
    fn conventions_of_launchers() {
        assert_eq!(detect(&[]).unwrap(), None);
        let own = detect(&[("TFC_RANK", "1"), ("TFC_SIZE", "4"), ("TFC_COORDINATOR", "a:1")]);
        let own = own.unwrap().unwrap();
        assert_eq!((own.rank, own.size, own.coordinator.as_str()), (1, 4, "a:1"));
        let mpi = detect(&[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3")]);
        assert!(mpi.unwrap().unwrap().mpi);
        let torch = detect(&[
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "::1"),
            ("MASTER_PORT", "29500"),
        ]);
        assert_eq!(torch.unwrap().unwrap().coordinator, "[::1]:29501");
        let slurm = detect(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_STEP_NODELIST", "gpu[007-009,12]-ib,login"),
            ("SLURM_JOB_ID", "41002"),
        ]);
        let slurm = slurm.unwrap().unwrap();
        assert_eq!((slurm.rank, slurm.coordinator.as_str()), (3, "gpu007-ib:29772"));
        let tf = detect(&[(
            "TF_CONFIG",
            r#"{"cluster": {"chief": ["c:1"], "worker": ["w:1", "w:2"], "ps": ["p:1"]},
                "task": {"type": "worker", "index": 1}}"#,
        )]);
        let tf = tf.unwrap().unwrap();
        assert_eq!((tf.rank, tf.size, tf.coordinator.as_str()), (2, 3, "c:1"));
        let servers = detect(&[(
            "TF_CONFIG",
            r#"{"cluster": {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1", "p:2"]},
                "task": {"type": "ps", "index": 1}}"#,
        )]);
        let servers = servers.unwrap().unwrap();
        assert_eq!((servers.rank, servers.size, servers.server), (1, 2, true));
        assert_eq!(servers.servers, ["p:1", "p:2"]);
        let meet = [("TFC_SIZE", "3"), ("TFC_COORDINATOR", "a:1")];
        let pod = detect(&[&[("JOB_COMPLETION_INDEX", "2")][..], &meet].concat());
        let pod = pod.unwrap().unwrap();
        let said = "found by Kubernetes: this is worker 2 of 3, which meet at a:1";
        assert_eq!((pod.rank, pod.introduction().as_deref()), (2, Some(said)));
        let pmix = detect(&[("PMIX_RANK", "1"), ("TFC_SIZE", "2")]).unwrap().unwrap();
        assert_eq!((pmix.rank, pmix.size, pmix.mpi), (1, 2, true));
        let said = "found by PMIx: this is worker 1 of 2, with messages of MPI";
        assert_eq!(pmix.introduction().as_deref(), Some(said));
        let pmix = detect(&[&[("PMIX_RANK", "1")][..], &meet].concat()).unwrap().unwrap();
        assert_eq!((pmix.mpi, pmix.coordinator.as_str()), (false, "a:1"));
        assert_eq!(own.introduction(), None);
        // One process is no job.
        assert_eq!(detect(&[("TFC_RANK", "0"), ("TFC_SIZE", "1")]).unwrap(), None);
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let e = |vars: &[(&str, &str)]| detect(vars).unwrap_err().to_string();
        assert!(e(&[("TFC_RANK", "x")]).contains("`x` is not a number"));
        assert!(e(&[("TFC_RANK", "0")]).contains("TFC_SIZE"));
        assert!(e(&[("TFC_RANK", "0"), ("TFC_SIZE", "2")]).contains("TFC_COORDINATOR"));
        let beyond = [("TFC_RANK", "2"), ("TFC_SIZE", "2"), ("TFC_COORDINATOR", "a:1")];
        assert!(e(&beyond).contains("rank 2 of 2 does not exist"));
        assert!(e(&[("TF_CONFIG", "{")]).contains("not JSON"));
    }

    #[test]
    fn a_name_is_for_other_hosts_and_a_number_is_that_of_an_interface() {
        let listens = |at: &str, plain: bool| {
            let job = Job { plain, join_timeout: Duration::ZERO, ..Job::new(0, 2, at) };
            job.listener().map(|l| l.local_addr().unwrap().ip())
        };
        // Whatever the name is on this host.
        assert!(listens("gpu007.invalid:0", true).unwrap().is_unspecified());
        assert!(listens("gpu007.invalid:0", false).is_err());
        for at in ["localhost:0", "127.0.0.1:0"] {
            for plain in [false, true] {
                assert!(listens(at, plain).unwrap().is_loopback(), "{at}");
            }
        }
        let job = Job { plain: true, ..Job::new(1, 2, "gpu007.invalid:7") };
        assert_eq!(job.open_port("[::1]:7"), None);
        let own = |own: &str| {
            let listener = job.worker_listener(own.parse().unwrap()).unwrap();
            listener.local_addr().unwrap().ip().is_unspecified()
        };
        assert!(own("127.0.1.1") && own("127.0.0.1"));
        let job = Job::new(1, 2, "127.0.0.1:7");
        let listener = job.worker_listener("127.0.0.1".parse().unwrap()).unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }

    #[test]
    fn other_hosts_are_let_in_when_asked_for() {
        let mut job = Job::new(0, 2, "192.0.2.1:7");
        assert_eq!(job.check_plain().unwrap_err().code(), ErrorCode::PLAINTEXT);
        job.plain = true;
        assert!(job.check_plain().is_ok());
        assert!(Job::new(0, 2, "127.0.0.1:7").check_plain().is_ok());
    }
}
