//! Ports that nobody else is given as long as the tests run.

#[path = "../../src/cli/launch/ports.rs"]
mod reserved;

use reserved::Reserved;
use std::net::SocketAddr;
use std::sync::Mutex;

static KEPT: Mutex<Vec<Reserved>> = Mutex::new(vec![]);

/// An address of this machine where a process may listen.
pub(crate) fn free_address() -> SocketAddr {
    let port = Reserved::any().unwrap();
    let at = port.address();
    KEPT.lock().unwrap().push(port);
    at
}

/// The number of a job of which these are the ports, and that no other test has.
#[allow(dead_code, reason = "most tests take any port")]
pub(crate) fn free_job(ports: impl Fn(u16) -> Vec<u16>) -> u16 {
    // Another run of the tests begins elsewhere.
    let begin = (std::process::id() % 500) as u16;
    let mut kept = KEPT.lock().unwrap();
    let job = (begin..500).chain(0..begin).find(|job| {
        let other = |port: &u16| !kept.iter().any(|k| k.address().port() == *port);
        let reserve = |port: u16| Some(port).filter(&other).and_then(|p| Reserved::at(p).ok());
        let all: Option<Vec<Reserved>> = ports(*job).into_iter().map(reserve).collect();
        all.map(|all| kept.extend(all)).is_some()
    });
    job.unwrap()
}

#[test]
fn nobody_is_given_a_port_that_is_kept() {
    let at = free_address();
    // Once and again, as by a process that is started again.
    for _ in 0..2 {
        let listener = std::net::TcpListener::bind(at).unwrap();
        let call = std::net::TcpStream::connect(at).unwrap();
        assert_eq!(listener.accept().unwrap().1, call.local_addr().unwrap());
    }
    // As a call of a stranger who comes from where it likes.
    if cfg!(target_os = "linux") {
        assert!(taken(at), "{at} is free for anybody");
    }
}

/// Whether who does not know that connections do not matter may not have the port.
fn taken(at: SocketAddr) -> bool {
    let script = "import socket, sys\ns = socket.socket()\ns.bind(('127.0.0.1', int(sys.argv[1])))";
    let mut python = std::process::Command::new("python3");
    match python.args(["-c", script, &at.port().to_string()]).output() {
        Ok(out) => !out.status.success(),
        Err(e) => {
            eprintln!("skipped: python3: {e}");
            true
        }
    }
}
