//! Communicators: a connection to the [`hub`] each, and a thread that talks to it.

use crate::hub::{self, Hello, Message};
use crate::{IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, SYSTEM_ERROR, driver};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub type Status = i32;

pub fn complain(what: &str) {
    eprintln!("simulated NCCL: {what}");
}

/// Whether a word is in `TFC_NCCL_SIM`.
pub fn config(word: &str) -> bool {
    std::env::var("TFC_NCCL_SIM").is_ok_and(|all| all.split(',').any(|w| w == word))
}

fn number(name: &str) -> Option<u64> {
    let all = std::env::var("TFC_NCCL_SIM").ok()?;
    all.split(',').filter_map(|w| w.split_once('=')).find(|(n, _)| *n == name)?.1.parse().ok()
}

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = 19;

unsafe extern "C" {
    fn raise(signal: i32) -> i32;
}

/// Of [`crate::ncclAllReduce`].
#[derive(Clone, Copy)]
pub struct Tensor {
    pub at: u64,
    pub count: usize,
    pub kind: i32,
    pub op: i32,
}

/// Times that a call is said to be in progress though it is done.
const SLOW: u32 = 3;

struct State {
    /// Of what is in progress; 0 if nothing is.
    status: Status,
    slow: u32,
    stream: Option<TcpStream>,
    /// To the thread that talks to the hub.
    post: Option<Sender<Letter>>,
    begun: u64,
    finalized: bool,
    aborted: bool,
}

pub struct Comm {
    pub device: i32,
    state: Mutex<State>,
}

/// One exchange on its way.
struct Exchange {
    comm: Arc<Comm>,
    sizes: Vec<usize>,
    tensors: Vec<(u64, i32, i32)>,
    /// What was sent, once it was; and what it came to.
    sent: Mutex<Option<Message>>,
    came: Mutex<Option<Vec<u8>>>,
}

/// What is sent to the hub: an exchange, or that this rank is connecting.
type Letter = Option<Arc<Exchange>>;

static COMMS: Mutex<BTreeMap<usize, Arc<Comm>>> = Mutex::new(BTreeMap::new());

fn comms() -> MutexGuard<'static, BTreeMap<usize, Arc<Comm>>> {
    COMMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The communicator of a handle.
pub fn with(handle: *mut c_void) -> Option<Arc<Comm>> {
    comms().get(&handle.addr()).cloned()
}

impl Comm {
    /// Begins to join; gives the handle.
    pub fn join(id: [u8; 128], ranks: u32, rank: u32, device: i32) -> *mut c_void {
        let state = State {
            status: IN_PROGRESS,
            slow: SLOW,
            stream: None,
            post: None,
            begun: 0,
            finalized: false,
            aborted: false,
        };
        let comm = Arc::new(Comm { device, state: Mutex::new(state) });
        let handle = Arc::as_ptr(&comm).addr();
        comms().insert(handle, comm.clone());
        std::thread::spawn(move || {
            let met =
                if config("no-start") { Err(SYSTEM_ERROR) } else { comm.meet(id, ranks, rank) };
            let (post, letters) = channel();
            let mut state = comm.state();
            match met {
                Ok(stream) => {
                    let own = stream.try_clone();
                    (state.status, state.stream, state.post) = (0, Some(stream), Some(post));
                    drop(state);
                    if let Ok(stream) = own {
                        talk(&comm, stream, &letters);
                    }
                }
                Err(status) => state.status = status,
            }
        });
        std::ptr::without_provenance_mut(handle)
    }

    fn meet(&self, id: [u8; 128], ranks: u32, rank: u32) -> Result<TcpStream, Status> {
        let hello = |nonce| Hello { nonce, rank, ranks, device: self.device };
        let mut stream = hub::dial(&id, hello).map_err(|_| SYSTEM_ERROR)?;
        let mut status = [0; 4];
        std::io::Read::read_exact(&mut stream, &mut status).map_err(|_| REMOTE_ERROR)?;
        match Status::from_le_bytes(status) {
            0 => Ok(stream),
            status => Err(status),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in progress, or has failed.
    pub fn status(&self) -> Status {
        let mut state = self.state();
        if state.status == 0 && state.slow > 0 {
            state.slow -= 1;
            return IN_PROGRESS;
        }
        state.status
    }

    /// Has an exchange follow what is on a stream.
    pub fn exchange(self: &Arc<Self>, tensors: Vec<Tensor>, stream: *mut c_void) -> Status {
        let size = |t: &Tensor| t.count * hub::size(t.kind).unwrap_or(1);
        let mut state = self.state();
        if state.finalized || state.aborted {
            complain("an exchange after the end");
            return INVALID_USAGE;
        }
        state.begun += 1;
        if number("fail") == Some(state.begun) {
            state.status = REMOTE_ERROR;
        }
        for (word, signal) in [("dies", SIGKILL), ("stops", SIGSTOP)] {
            if number(word) == Some(state.begun) {
                // SAFETY: it takes a number.
                unsafe { raise(signal) };
            }
        }
        // Connections are made when they are needed first, which takes all ranks.
        if let (1, 0, Some(post)) = (state.begun, state.status, &state.post)
            && post.send(None).is_ok()
        {
            state.status = IN_PROGRESS;
        }
        state.slow = SLOW;
        drop(state);
        let exchange = Arc::new(Exchange {
            comm: self.clone(),
            sizes: tensors.iter().map(size).collect(),
            tensors: tensors.iter().map(|t| (t.count as u64, t.kind, t.op)).collect(),
            sent: Mutex::default(),
            came: Mutex::default(),
        });
        let blocks: Vec<(u64, usize)> = tensors.iter().map(|t| (t.at, size(t))).collect();
        let data = Arc::into_raw(exchange).cast_mut().cast();
        match driver::together(stream, &blocks, work, data) {
            0 => IN_PROGRESS,
            _ => {
                complain("a stream that takes no exchange");
                INVALID_ARGUMENT
            }
        }
    }

    pub fn finalize(&self) -> Status {
        if self.status_now() != 0 {
            complain("a communicator is finalized while it is busy");
            return INVALID_USAGE;
        }
        let mut state = self.state();
        if state.finalized {
            complain("a communicator is finalized twice");
            return INVALID_USAGE;
        }
        (state.finalized, state.slow) = (true, SLOW);
        IN_PROGRESS
    }

    /// Without taking it for slow: between two calls time has passed.
    fn status_now(&self) -> Status {
        self.state().status
    }

    fn end(&self) {
        let mut state = self.state();
        state.post = None;
        if let Some(stream) = state.stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub fn destroy(handle: *mut c_void) -> Status {
    let Some(comm) = comms().remove(&handle.addr()) else { return INVALID_ARGUMENT };
    if !comm.state().finalized {
        complain("a communicator is destroyed that was not finalized");
        return INVALID_USAGE;
    }
    let stream = comm.state().stream.take();
    // The thread that talks ends with its letters.
    comm.state().post = None;
    if let Some(mut stream) = stream {
        let _ = hub::write(&mut stream, None);
    }
    0
}

pub fn abort(handle: *mut c_void) -> Status {
    let Some(comm) = comms().remove(&handle.addr()) else { return INVALID_ARGUMENT };
    comm.state().aborted = true;
    comm.end();
    0
}

fn talk(comm: &Comm, mut stream: TcpStream, letters: &Receiver<Letter>) {
    for letter in letters {
        let message = match &letter {
            Some(x) => x.sent.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            None => Some(Message::default()),
        };
        let answer =
            hub::write(&mut stream, message.as_ref()).and_then(|()| hub::answer(&mut stream));
        match (answer, &letter) {
            (Ok(Ok(bytes)), Some(x)) => {
                *x.came.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
            }
            (Ok(Ok(_)), None) => comm.state().status = 0,
            (Ok(Err(status)), _) => comm.state().status = status,
            // Who has the hub is gone.
            (Err(_), _) if config("notices") => comm.state().status = REMOTE_ERROR,
            (Err(_), _) => {}
        }
    }
}

/// What the GPU does in its turn: see [`driver::Work`].
unsafe extern "C" fn work(data: *mut c_void, blocks: *const *mut u8) -> Status {
    let exchange = data.cast::<Exchange>().cast_const();
    // SAFETY: it is alive until this gives 0.
    let x = unsafe { &*exchange };
    // SAFETY: there is a block for each tensor, of its size.
    let block =
        |i: usize| unsafe { std::slice::from_raw_parts_mut(blocks.add(i).read(), x.sizes[i]) };
    let all = || (0..x.sizes.len()).flat_map(|i| block(i).to_vec()).collect::<Vec<u8>>();
    // SAFETY: it was made by `into_raw`, and is not used after this.
    let over = || drop(unsafe { Arc::from_raw(exchange) });
    if x.comm.state().aborted {
        (0..x.sizes.len()).for_each(|i| block(i).fill(0xff));
        over();
        return 0;
    }
    let mut sent = x.sent.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(message) = &*sent else {
        *sent = Some(Message { tensors: x.tensors.clone(), bytes: all() });
        drop(sent);
        // SAFETY: as above: one more of it.
        let own = unsafe {
            Arc::increment_strong_count(exchange);
            Arc::from_raw(exchange)
        };
        let state = x.comm.state();
        // One that is said to have failed is never sent.
        if [0, IN_PROGRESS].contains(&state.status)
            && let Some(post) = &state.post
        {
            let _ = post.send(Some(own));
        }
        return 1;
    };
    let came = x.came.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(bytes) = &*came else { return 1 };
    if all() != message.bytes {
        complain("a tensor was written while it was exchanged");
        return INVALID_USAGE;
    }
    let mut at = 0;
    for i in 0..x.sizes.len() {
        block(i).copy_from_slice(&bytes[at..at + x.sizes[i]]);
        at += x.sizes[i];
    }
    drop((came, sent));
    over();
    0
}
