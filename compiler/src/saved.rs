//! Compiled modules as files: machine code, plan, constants and code for GPUs.
//!
//! ```text
//! magic, format number, tfc's version, code, plan, constants, code for GPUs if there is
//! any, hash of all that
//! ```
//! Each piece is its length in eight bytes, little-endian, and its bytes.

use crate::driver::Options;
use crate::error::reason;
use crate::error::{Error, Result};
use crate::module::Module;
use std::path::Path;
use tfc_codegen::Code;
use tfc_ir::diag::Diag;
use tfc_runtime::hash::hash;

const MAGIC: &[u8; 8] = b"TFCMODUL";
const FORMAT: u64 = 2;
const HASH: usize = 32;

impl Module {
    /// Writes the compiled module to a file, from which [`Module::load`] makes it
    /// again without compiling anything. The file is for CPUs like this one, for GPUs too
    /// if the module runs on one, and for this version of tfc. Variables are not in it: they begin with their
    /// initial values, and checkpoints hold others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("double.tfcm");
    /// let graph = tfc::parse("graph g\nentry double(x: f32[2]) -> (y: f32[2]) { return x * 2.0 }")?;
    /// tfc::compile(&graph)?.save(&path)?;
    /// // Later, or in another process:
    /// // SAFETY: nobody else can write the file.
    /// let module = unsafe { tfc::Module::load(&path) }?;
    /// let y: Vec<f32> = module.call("double", (&[1.0f32, 2.0],))?.into_arrays()?;
    /// assert_eq!(y, [2.0, 4.0]);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut out = MAGIC.to_vec();
        out.extend(FORMAT.to_le_bytes());
        let code = self.code.code().encode();
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        for piece in [version, &code, self.code.plan(), self.code.consts(), self.code.gpu()] {
            out.extend((piece.len() as u64).to_le_bytes());
            out.extend(piece);
        }
        let sum = hash(&out);
        out.extend(sum);
        Ok(tfc_runtime::files::replace(path.as_ref(), |file| file.write_all(&out))?)
    }

    /// Reads a module that [`Module::save`] wrote, and initialises its variables.
    /// A file that is damaged, of another version of tfc (E0820) or for another
    /// CPU (E0805) is an error.
    ///
    /// # Safety
    /// The file holds machine code, which calls will run. Damage is found, but
    /// not malice: it must come from [`Module::save`], and from somebody who may
    /// run code here.
    pub unsafe fn load(path: impl AsRef<Path>) -> Result<Module> {
        // SAFETY: the caller's promise.
        unsafe { Module::load_with(path, &Options::new()) }
    }

    /// As [`Module::load`], with threads of its own, a place for what it prints, or a GPU,
    /// if the module was saved with code for one (E0840).
    ///
    /// # Safety
    /// As [`Module::load`].
    pub unsafe fn load_with(path: impl AsRef<Path>, options: &Options) -> Result<Module> {
        let path = path.as_ref();
        let name = path.display();
        let bytes = std::fs::read(path)
            .map_err(|e| Diag::error("E0804", format!("cannot read `{name}`: {}", reason(&e))))?;
        let [code, plan, consts, gpu] = pieces(&bytes).map_err(|why| {
            let message = format!("`{name}` is not a compiled module that can be used here");
            let diag = Diag::error("E0820", message).note(why);
            Error::from(diag.help("compile the graph and save it again"))
        })?;
        let bug = |e: tfc_codegen::CodegenError| Error::bug(e.to_string());
        let Some(code) = Code::decode(code) else {
            return Err(Diag::error("E0820", format!("`{name}` is damaged")).into());
        };
        let host = tfc_codegen::host().map_err(bug)?;
        if code.target != host {
            let message = format!("`{name}` was compiled for {}, this is {host}", code.target);
            return Err(Diag::error("E0805", message)
                .help("compile the graph on this machine")
                .into());
        }
        tfc_runtime::model::check_cpu(code.features)?;
        // SAFETY: the caller promises that `save` wrote the file, the hash that it
        // is as it was written; the CPU has what the code needs.
        unsafe {
            let mut code = tfc_codegen::load(code, plan.to_vec(), consts).map_err(bug)?;
            if !gpu.is_empty() {
                code.set_gpu(gpu.to_vec(), crate::module::gpu_driver());
            }
            Module::from_code(code, options)
        }
    }
}

/// Code, plan, constants and code for GPUs, or what is wrong.
fn pieces(bytes: &[u8]) -> std::result::Result<[&[u8]; 4], String> {
    let split = bytes.len().checked_sub(HASH).filter(|at| *at >= MAGIC.len() + 8);
    let Some((body, sum)) = split.map(|at| bytes.split_at(at)) else {
        return Err("it is too short".into());
    };
    let Some(rest) = body.strip_prefix(MAGIC) else {
        return Err("it does not begin as one does".into());
    };
    if hash(body) != *sum {
        return Err("it was cut short or changed after it was written".into());
    }
    let (format, mut rest) = rest.split_at(8);
    let mut piece = || {
        let (len, tail) = rest.split_at_checked(8)?;
        let len = usize::try_from(u64::from_le_bytes(len.try_into().ok()?)).ok()?;
        let (piece, tail) = tail.split_at_checked(len)?;
        rest = tail;
        Some(piece)
    };
    let here = env!("CARGO_PKG_VERSION");
    let version = piece().unwrap_or_default();
    if format != FORMAT.to_le_bytes() || version != here.as_bytes() {
        let version = String::from_utf8_lossy(version);
        return Err(format!("tfc {version} wrote it, this is tfc {here}"));
    }
    match [piece(), piece(), piece(), piece()] {
        [Some(code), Some(plan), Some(consts), Some(gpu)] => Ok([code, plan, consts, gpu]),
        _ => Err("a part is missing".into()),
    }
}
