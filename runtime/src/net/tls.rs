//! Encryption: OpenSSL, loaded when a program that asks for it runs; nothing links it.
//!
//! Both sides show a certificate, and take the other's only if the job's authority has
//! signed it, it is valid now, and TLS is at least 1.2. Names in certificates are not
//! compared with addresses: who has a certificate of the job's authority belongs to the
//! job, wherever it runs. So the authority should be one that signs for the job alone.

use super::call::wait_until;
use super::door;
use super::mesh::{POLLIN, POLLOUT};
use crate::error::{Error, ErrorCode, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate of this process, and those between it and the authority.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The authority whose certificates are taken.
    pub ca: PathBuf,
}

type Handle = *mut c_void;

macro_rules! library {
    ($($field:ident: $name:literal, fn($($arg:ty),*) $(-> $out:ty)?;)*) => {
        /// The functions of the library that are used.
        struct Library {
            $($field: unsafe extern "C" fn($($arg),*) $(-> $out)?,)*
        }

        impl Library {
            fn load(find: &dyn Fn(&str) -> Result<*mut c_void>) -> Result<Library> {
                Ok(Library {
                    // SAFETY: the functions have these signatures in OpenSSL 1.1 and 3.
                    $($field: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $out)?>(
                            find($name)?,
                        )
                    },)*
                })
            }
        }
    };
}

library! {
    client_method: "TLS_client_method", fn() -> Handle;
    server_method: "TLS_server_method", fn() -> Handle;
    ctx_new: "SSL_CTX_new", fn(Handle) -> Handle;
    ctx_free: "SSL_CTX_free", fn(Handle);
    ctx_ctrl: "SSL_CTX_ctrl", fn(Handle, c_int, c_long, *mut c_void) -> c_long;
    use_chain: "SSL_CTX_use_certificate_chain_file", fn(Handle, *const c_char) -> c_int;
    use_key: "SSL_CTX_use_PrivateKey_file", fn(Handle, *const c_char, c_int) -> c_int;
    check_key: "SSL_CTX_check_private_key", fn(Handle) -> c_int;
    trust: "SSL_CTX_load_verify_locations", fn(Handle, *const c_char, *const c_char) -> c_int;
    set_verify: "SSL_CTX_set_verify", fn(Handle, c_int, *mut c_void);
    set_alpn: "SSL_CTX_set_alpn_protos", fn(Handle, *const c_uchar, c_uint) -> c_int;
    on_alpn: "SSL_CTX_set_alpn_select_cb", fn(Handle, SelectFn, *mut c_void);
    new: "SSL_new", fn(Handle) -> Handle;
    free: "SSL_free", fn(Handle);
    set_fd: "SSL_set_fd", fn(Handle, c_int) -> c_int;
    connect: "SSL_connect", fn(Handle) -> c_int;
    accept: "SSL_accept", fn(Handle) -> c_int;
    read: "SSL_read", fn(Handle, *mut c_void, c_int) -> c_int;
    write: "SSL_write", fn(Handle, *const c_void, c_int) -> c_int;
    shutdown: "SSL_shutdown", fn(Handle) -> c_int;
    get_error: "SSL_get_error", fn(Handle, c_int) -> c_int;
    verify_result: "SSL_get_verify_result", fn(Handle) -> c_long;
    verify_text: "X509_verify_cert_error_string", fn(c_long) -> *const c_char;
    next_error: "ERR_get_error", fn() -> c_ulong;
    clear_errors: "ERR_clear_error", fn();
    reason: "ERR_reason_error_string", fn(c_ulong) -> *const c_char;
}

type SelectFn = unsafe extern "C" fn(
    Handle,
    *mut *const c_uchar,
    *mut c_uchar,
    *const c_uchar,
    c_uint,
    *mut c_void,
) -> c_int;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NOW_AND_GLOBAL: c_int = 0x102;
/// What is needed of each library, the newest first; `TFC_SSL` names another.
const NAMES: [[&str; 2]; 2] =
    [["libcrypto.so.3", "libssl.so.3"], ["libcrypto.so.1.1", "libssl.so.1.1"]];

const PEM: c_int = 1;
const SET_MODE: c_int = 33;
/// Parts of what is written may be taken, and the rest given again from elsewhere.
const PARTIAL_AND_MOVING: c_long = 1 | 2;
const SET_LEAST_VERSION: c_int = 123;
const TLS_1_2: c_long = 0x0303;
/// The other side must show a certificate that is good.
const BOTH_SIDES: c_int = 1 | 2;
/// gRPC's protocol, as it is offered.
const H2: &[u8] = b"\x02h2";
const WANT_READ: c_int = 2;
const WANT_WRITE: c_int = 3;
const SYSCALL: c_int = 5;
const CLOSED: c_int = 6;

fn unusable(why: String) -> Error {
    Error::io(ErrorCode::NOT_TRUSTED, why)
}

/// What both sides of connections are made with.
pub(super) struct Tls {
    library: Library,
    client: Handle,
    server: Handle,
}

// SAFETY: contexts may be used by several threads at once, by OpenSSL's documentation;
// ours are not changed once they are made.
unsafe impl Send for Tls {}
// SAFETY: as above.
unsafe impl Sync for Tls {}

impl Drop for Tls {
    fn drop(&mut self) {
        // SAFETY: sessions hold references of their own.
        unsafe {
            (self.library.ctx_free)(self.client);
            (self.library.ctx_free)(self.server);
        }
    }
}

/// Takes gRPC's protocol if it is offered.
unsafe extern "C" fn select(
    _ssl: Handle,
    out: *mut *const c_uchar,
    out_len: *mut c_uchar,
    offered: *const c_uchar,
    len: c_uint,
    _arg: *mut c_void,
) -> c_int {
    // SAFETY: OpenSSL gives the list and its length.
    let mut rest = unsafe { std::slice::from_raw_parts(offered, len as usize) };
    while let Some((n, more)) = rest.split_first() {
        let n = usize::from(*n).min(more.len());
        if &more[..n] == b"h2" {
            // SAFETY: both are places to write to; what is pointed at lives for ever.
            unsafe {
                *out = H2[1..].as_ptr();
                *out_len = 2;
            }
            return 0;
        }
        rest = &more[n..];
    }
    // No protocol in common: go on without.
    3
}

impl Tls {
    pub(super) fn open(files: &Files) -> Result<Arc<Tls>> {
        let library = load()?;
        let mut tls = Tls { library, client: std::ptr::null_mut(), server: std::ptr::null_mut() };
        // SAFETY: the methods are the library's own.
        let methods = unsafe { [(tls.library.client_method)(), (tls.library.server_method)()] };
        tls.client = tls.context(methods[0], files)?;
        tls.server = tls.context(methods[1], files)?;
        // SAFETY: the contexts are valid, and the bytes as many as said.
        unsafe {
            (tls.library.set_alpn)(tls.client, H2.as_ptr(), H2.len() as c_uint);
            (tls.library.on_alpn)(tls.server, select, std::ptr::null_mut());
        }
        Ok(Arc::new(tls))
    }

    fn context(&self, method: Handle, files: &Files) -> Result<Handle> {
        let l = &self.library;
        // SAFETY: the method is the library's.
        let ctx = unsafe { (l.ctx_new)(method) };
        if ctx.is_null() {
            return Err(unusable(format!("OpenSSL cannot be used: {}", self.why())));
        }
        let bad = |what: &str, path: &Path| {
            let message = format!("the {what} `{}` cannot be used: {}", path.display(), self.why());
            // SAFETY: nobody else has the context.
            unsafe { (l.ctx_free)(ctx) };
            unusable(message)
        };
        let path = |path: &Path| {
            use std::os::unix::ffi::OsStrExt;
            CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
        };
        let (cert, key, ca) = (path(&files.cert), path(&files.key), path(&files.ca));
        // SAFETY: the context is valid and the paths are C strings.
        unsafe {
            (l.clear_errors)();
            (l.ctx_ctrl)(ctx, SET_LEAST_VERSION, TLS_1_2, std::ptr::null_mut());
            (l.ctx_ctrl)(ctx, SET_MODE, PARTIAL_AND_MOVING, std::ptr::null_mut());
            if (l.use_chain)(ctx, cert.as_ptr()) != 1 {
                return Err(bad("certificate", &files.cert));
            }
            if (l.use_key)(ctx, key.as_ptr(), PEM) != 1 || (l.check_key)(ctx) != 1 {
                return Err(bad("key", &files.key));
            }
            if (l.trust)(ctx, ca.as_ptr(), std::ptr::null()) != 1 {
                return Err(bad("authority's certificate", &files.ca));
            }
            (l.set_verify)(ctx, BOTH_SIDES, std::ptr::null_mut());
        }
        Ok(ctx)
    }

    /// What the library has to say.
    fn why(&self) -> String {
        // SAFETY: the function takes nothing and gives a number.
        let code = unsafe { (self.library.next_error)() };
        // SAFETY: texts of errors are C strings that live for ever, or null.
        let text = unsafe { (self.library.reason)(code) };
        match text.is_null() {
            true => "no reason was given".to_owned(),
            // SAFETY: as above.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
        }
    }

    /// Shakes hands with who was called; the socket does not block.
    pub(super) fn connect(
        self: &Arc<Tls>,
        stream: TcpStream,
        deadline: Instant,
    ) -> io::Result<Wire> {
        self.shake(stream, deadline, self.client, self.library.connect)
    }

    /// Shakes hands with who calls.
    pub(super) fn accept(
        self: &Arc<Tls>,
        stream: TcpStream,
        deadline: Instant,
    ) -> io::Result<Wire> {
        self.shake(stream, deadline, self.server, self.library.accept)
    }

    fn shake(
        self: &Arc<Tls>,
        stream: TcpStream,
        deadline: Instant,
        ctx: Handle,
        how: unsafe extern "C" fn(Handle) -> c_int,
    ) -> io::Result<Wire> {
        // SAFETY: the context is valid.
        let ssl = unsafe { (self.library.new)(ctx) };
        if ssl.is_null() {
            return Err(failure(self.why()));
        }
        let session = Session { tls: self.clone(), ssl: Mutex::new(Ssl(ssl)), stream };
        // SAFETY: the session is valid, and its socket stays open as long as it.
        unsafe { (self.library.set_fd)(ssl, session.stream.as_raw_fd()) };
        let error = loop {
            // SAFETY: as above.
            let code = unsafe {
                (self.library.clear_errors)();
                how(ssl)
            };
            if code == 1 {
                return Ok(Wire::Tls(Box::new(session)));
            }
            let error = session.error(ssl, code);
            // SAFETY: the session is valid.
            let events = match unsafe { (self.library.get_error)(ssl, code) } {
                WANT_READ => POLLIN,
                WANT_WRITE => POLLOUT,
                _ => break error,
            };
            if let Err(late) = wait_until(&session.stream, events, deadline) {
                break late;
            }
        };
        door::farewell(&session.stream);
        // SAFETY: as above.
        let verified = unsafe { (self.library.verify_result)(ssl) };
        if verified != 0 {
            // SAFETY: the text is a C string that lives for ever.
            let text = unsafe { CStr::from_ptr((self.library.verify_text)(verified)) };
            return Err(failure(text.to_string_lossy().into_owned()));
        }
        Err(error)
    }
}

fn load() -> Result<Library> {
    let own = std::env::var("TFC_SSL").ok();
    let open = |name: &str| {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the name is a C string; the library is never unloaded.
        unsafe { dlopen(text.as_ptr(), NOW_AND_GLOBAL) }
    };
    let found = match &own {
        // Its own companion comes with it.
        Some(ssl) => Some([open(ssl); 2]),
        None => {
            NAMES.iter().map(|names| names.map(open)).find(|l| !l.contains(&std::ptr::null_mut()))
        }
    };
    let Some(libraries) = found.filter(|l| !l[0].is_null()) else {
        return Err(unusable("OpenSSL is not there: messages cannot be encrypted".to_owned())
            .help(
                "install OpenSSL 3 (libssl.so.3), or name it with TFC_SSL=/path/to/libssl.so.3",
            ));
    };
    Library::load(&|name| {
        let text = CString::new(name).unwrap_or_default();
        // SAFETY: the libraries are open, and the name is a C string.
        let found = libraries.iter().map(|l| unsafe { dlsym(*l, text.as_ptr()) });
        found
            .into_iter()
            .find(|at| !at.is_null())
            .ok_or_else(|| unusable(format!("OpenSSL has no `{name}`")))
    })
}

/// What OpenSSL says, told from what the system says.
#[derive(Debug)]
pub(super) struct Failure(pub String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

fn failure(why: String) -> io::Error {
    io::Error::other(Failure(why))
}

/// The reason, if an error is about trust.
pub(super) fn distrust(e: &io::Error) -> Option<&str> {
    e.get_ref()?.downcast_ref::<Failure>().map(|f| f.0.as_str())
}

struct Ssl(Handle);

// SAFETY: a session may be used by any thread, one at a time.
unsafe impl Send for Ssl {}

/// One encrypted connection.
pub(super) struct Session {
    tls: Arc<Tls>,
    ssl: Mutex<Ssl>,
    stream: TcpStream,
}

impl Session {
    fn call(&self, call: impl FnOnce(&Library, Handle) -> c_int) -> io::Result<usize> {
        let ssl = self.ssl.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the function takes nothing.
        unsafe { (self.tls.library.clear_errors)() };
        match call(&self.tls.library, ssl.0) {
            n if n > 0 => Ok(n as usize),
            n => Err(self.error(ssl.0, n)),
        }
    }

    fn error(&self, ssl: Handle, code: c_int) -> io::Error {
        let system = io::Error::last_os_error();
        // SAFETY: the session is valid.
        match unsafe { (self.tls.library.get_error)(ssl, code) } {
            WANT_READ | WANT_WRITE => io::ErrorKind::WouldBlock.into(),
            CLOSED => io::ErrorKind::UnexpectedEof.into(),
            SYSCALL if system.raw_os_error().is_some_and(|n| n != 0) => system,
            SYSCALL => io::ErrorKind::UnexpectedEof.into(),
            _ => failure(self.tls.why()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let ssl = self.ssl.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: nobody else has the session. It says goodbye if the socket lets it.
        unsafe {
            (self.tls.library.shutdown)(ssl.0);
            (self.tls.library.free)(ssl.0);
        }
    }
}

/// A connection, encrypted or not.
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<Session>),
    #[cfg(test)]
    Memory(Mutex<Pipe>),
}

/// What a test gives a link to read, and what the link wrote.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Pipe {
    pub input: std::collections::VecDeque<u8>,
    pub output: Vec<u8>,
    pub pace: Pace,
}

/// How a pipe takes what is written.
#[cfg(test)]
#[derive(Default)]
pub(super) enum Pace {
    #[default]
    AtOnce,
    /// One byte, and then none; whether it is the next one's turn.
    Bytes(bool),
    /// As OpenSSL does when the socket is full: it has encrypted what it was given, and is to
    /// be given the same again until that is out.
    Encrypted(Option<Vec<u8>>),
}

#[cfg(test)]
impl Pipe {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = match &mut self.pace {
            Pace::AtOnce => bytes,
            Pace::Bytes(turn) => {
                *turn = !*turn;
                if !*turn { &bytes[..bytes.len().min(1)] } else { &[] }
            }
            Pace::Encrypted(pending) => match pending.take() {
                Some(begun) => {
                    assert!(bytes.starts_with(&begun), "bad write retry");
                    &bytes[..begun.len()]
                }
                None => {
                    *pending = Some(bytes.to_vec());
                    &[]
                }
            },
        };
        self.output.extend_from_slice(taken);
        match taken.is_empty() && !bytes.is_empty() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => Ok(taken.len()),
        }
    }
}

#[cfg(test)]
impl Wire {
    pub(super) fn memory(pipe: Pipe) -> Wire {
        Wire::Memory(Mutex::new(pipe))
    }

    pub(super) fn say(&self, bytes: &[u8]) {
        if let Wire::Memory(pipe) = self {
            pipe.lock().unwrap().input.extend(bytes);
        }
    }

    pub(super) fn written(&self) -> Vec<u8> {
        match self {
            Wire::Memory(pipe) => pipe.lock().unwrap().output.clone(),
            _ => vec![],
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        matches!(self, Wire::Memory(pipe) if pipe.lock().unwrap().input.is_empty())
    }
}

impl Wire {
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(session) => &session.stream,
            #[cfg(test)]
            Wire::Memory(_) => unreachable!("there is no socket"),
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        matches!(self, Wire::Tls(_))
    }

    /// Takes in what has come and nobody has asked for, before the connection is closed: one
    /// that is closed with bytes unread is reset, and what was sent last is not sent again
    /// if it is lost on its way.
    pub(super) fn drain(&self) {
        #[cfg(test)]
        if let Wire::Memory(_) = self {
            return;
        }
        let mut tcp = self.tcp();
        let (mut rest, mut turns) = ([0; 4096], 256);
        if tcp.set_nonblocking(true).is_ok() {
            while turns > 0 && tcp.read(&mut rest).is_ok_and(|n| n > 0) {
                turns -= 1;
            }
        }
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.tcp().as_raw_fd()
    }
}

impl Read for &Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => (&mut &*stream).read(into),
            Wire::Tls(session) => {
                let len = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
                // SAFETY: the buffer has at least this many bytes.
                let read =
                    session.call(|l, ssl| unsafe { (l.read)(ssl, into.as_mut_ptr().cast(), len) });
                match read {
                    // As a socket says it.
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                    read => read,
                }
            }
            #[cfg(test)]
            Wire::Memory(pipe) => match pipe.lock().unwrap().input.read(into)? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                n => Ok(n),
            },
        }
    }
}

impl Write for &Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => (&mut &*stream).write(bytes),
            Wire::Tls(_) if bytes.is_empty() => Ok(0),
            Wire::Tls(session) => {
                let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
                // SAFETY: as above.
                session.call(|l, ssl| unsafe { (l.write)(ssl, bytes.as_ptr().cast(), len) })
            }
            #[cfg(test)]
            Wire::Memory(pipe) => pipe.lock().unwrap().take(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => (&mut &*stream).write_vectored(slices),
            _ => {
                let first = slices.iter().find(|s| !s.is_empty());
                first.map_or(Ok(0), |slice| self.write(slice))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
