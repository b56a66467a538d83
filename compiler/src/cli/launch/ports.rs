//! Ports of this machine that are kept for a process that will listen there.
//!
//! A port that was free a moment ago may be somebody else's when the process comes to listen.
//! On Linux a connection of ours is held open on it: as long as it is there, the system gives
//! the port to nobody who asks for any, but whoever asks for this one may listen (as
//! `SO_REUSEADDR`, which listeners in Rust have, says that connections do not matter).

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A port that is kept as long as this value is there.
pub(crate) struct Reserved {
    at: SocketAddr,
    _held: Option<[TcpStream; 2]>,
}

impl Reserved {
    /// Some port.
    pub(crate) fn any() -> io::Result<Reserved> {
        Reserved::at(0)
    }

    /// This one, if nobody listens there.
    pub(crate) fn at(port: u16) -> io::Result<Reserved> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let at = listener.local_addr()?;
        if !cfg!(target_os = "linux") {
            return Ok(Reserved { at, _held: None });
        }
        let own = TcpStream::connect(at)?;
        let from = own.local_addr()?;
        loop {
            let (other, by) = listener.accept()?;
            // Somebody else may have called, too.
            if by == from {
                return Ok(Reserved { at, _held: Some([own, other]) });
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }
}
