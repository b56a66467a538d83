//! Two hosts that are not: namespaces of the network, and a cable between them whose
//! packets go through this process, which can lose them, keep them for a while, or let
//! none through.

use std::ffi::{c_int, c_ulong};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the cable does to packets, at present.
#[derive(Default)]
pub(crate) struct Line {
    /// One bit for each direction that is cut.
    cut: AtomicU64,
    /// Microseconds that a packet takes.
    delay: AtomicU64,
    /// Of so many packets one is lost, or of 0 none.
    loss: AtomicU64,
    /// Packets that have come by since that was said.
    passed: AtomicU64,
    /// It is cut in both directions when so many more have come by; 0 if it is not.
    cut_after: AtomicU64,
    /// The next packet with this in it is lost.
    unlucky: Mutex<Option<&'static str>>,
    carried: AtomicU64,
    lost: AtomicU64,
}

impl Line {
    /// Cut in both directions (3), in one (1 or 2), or not at all.
    pub(crate) fn cut(&self, ways: u64) {
        self.cut.store(ways, Ordering::Relaxed);
    }

    /// Cuts itself in both directions when so many packets have come by.
    pub(crate) fn cut_after(&self, packets: u64) {
        self.cut_after.store(packets, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed) != 0
    }

    /// Packets take so long, and of so many one is lost.
    pub(crate) fn worsen(&self, delay: Duration, one_of: u64) {
        self.delay.store(delay.as_micros() as u64, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
        self.loss.store(one_of, Ordering::Relaxed);
    }

    /// Whether the next packet does not arrive, which goes this way.
    fn loses(&self, packet: &[u8], way: u64) -> bool {
        let one_less = |n: u64| n.checked_sub(1);
        if self.cut_after.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) == Ok(1) {
            self.cut(3);
        }
        let (passed, one_of) =
            (self.passed.fetch_add(1, Ordering::Relaxed), self.loss.load(Ordering::Relaxed));
        // Any of them, but exactly one.
        let lossy = one_of > 0 && {
            let round = passed / one_of;
            passed % one_of == (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % one_of
        };
        lossy || self.cut.load(Ordering::Relaxed) & way != 0 || self.is_unlucky(packet)
    }

    /// Loses the next packet with this text in it.
    pub(crate) fn lose(&self, text: &'static str) {
        *self.unlucky.lock().unwrap() = Some(text);
    }

    /// Whether that has come by.
    pub(crate) fn has_lost(&self) -> bool {
        self.unlucky.lock().unwrap().is_none()
    }

    fn is_unlucky(&self, packet: &[u8]) -> bool {
        let found = |text: &mut &str| packet.windows(text.len()).any(|w| w == text.as_bytes());
        self.unlucky.lock().unwrap().take_if(found).is_some()
    }

    /// Packets that went through, and that did not.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.carried.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }
}

pub(crate) struct Hosts {
    pub(crate) names: [String; 2],
    pub(crate) line: Arc<Line>,
}

/// Where the hosts are.
pub(crate) const AT: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Hosts {
    /// None, with a message, where that is not permitted.
    pub(crate) fn new() -> Option<Hosts> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = std::process::id();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("tfc{id}{side}{number}"));
        let hosts = Hosts { names, line: Arc::default() };
        let made = hosts.connect();
        if let Err(why) = &made {
            eprintln!("skipped: hosts of its own are not permitted here ({why})");
        }
        made.ok().map(|()| hosts)
    }

    fn connect(&self) -> Result<(), String> {
        let mut ends = vec![];
        for (name, at) in self.names.iter().zip(AT) {
            ip(&format!("netns add {name}"))?;
            ends.push(tunnel(name).map_err(|e| format!("/dev/net/tun: {e}"))?);
            ip(&format!("link set {name} netns {name}"))?;
            ip(&format!("-n {name} addr add {at}/24 dev {name}"))?;
            ip(&format!("-n {name} link set {name} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        let [a, b] = <[File; 2]>::try_from(ends).map_err(|_| "two ends")?;
        let copies = (a.try_clone(), b.try_clone());
        let (Ok(a2), Ok(b2)) = copies else { return Err("no descriptors".into()) };
        carry(a, b2, 1, self.line.clone());
        carry(b, a2, 2, self.line.clone());
        Ok(())
    }

    /// A program on one of the hosts.
    pub(crate) fn on(&self, host: usize, program: &str) -> String {
        format!("netns exec {} {program}", self.names[host])
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // Its end of the cable goes with it.
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    let out = command.args(line.split_whitespace()).stdin(Stdio::null()).output();
    match out {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
        Err(e) => Err(format!("ip: {e}")),
    }
}

/// One end of a cable: packets of the interface are read from the file, and written to it.
fn tunnel(name: &str) -> std::io::Result<File> {
    const TUNSETIFF: c_ulong = 0x4004_54ca;
    const IFF_TUN: u16 = 1;
    const IFF_NO_PI: u16 = 0x1000;
    unsafe extern "C" {
        fn ioctl(file: c_int, request: c_ulong, ...) -> c_int;
    }
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
    // SAFETY: the request is a structure of 40 bytes: a name that ends with a zero, flags.
    match unsafe { ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) } {
        0 => Ok(file),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Carries packets one way until the interface is gone.
fn carry(mut from: File, mut to: File, way: u64, line: Arc<Line>) {
    let (give, due) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        for (at, packet) in due {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            // The other end may be down.
            let _ = to.write_all(&packet);
        }
    });
    std::thread::spawn(move || {
        let mut packet = vec![0; 1 << 16];
        while let Ok(n) = from.read(&mut packet) {
            if line.loses(&packet[..n], way) {
                line.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            line.carried.fetch_add(1, Ordering::Relaxed);
            let delay = Duration::from_micros(line.delay.load(Ordering::Relaxed));
            if give.send((Instant::now() + delay, packet[..n].to_vec())).is_err() {
                return;
            }
        }
    });
}
