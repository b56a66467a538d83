//! Whole files, one record each: arrays (.npy) or raw elements.

use super::Source;
use crate::error::{Error, Result};
use crate::io;
use crate::sandbox::Sandbox;
use crate::tensor::type_text;
use std::io::Read;
use std::path::{Path, PathBuf};
use tfc_abi::plan::Part;

pub struct Files {
    files: std::vec::IntoIter<PathBuf>,
    sandbox: Sandbox,
    part: Part,
}

impl Files {
    pub fn new(files: Vec<PathBuf>, parts: &[Part], sandbox: &Sandbox) -> Result<Files> {
        let [part] = parts else {
            return Err(Error::data("E0567", "a file is one part")
                .help("read other parts with a reader of their own"));
        };
        Ok(Files { files: files.into_iter(), sandbox: sandbox.clone(), part: part.clone() })
    }
}

impl Source for Files {
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool> {
        let (Some(path), Some(out)) = (self.files.next(), parts.first_mut()) else {
            return Ok(false);
        };
        let shape: Vec<usize> =
            self.part.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
        let want = type_text(self.part.dtype, &shape);
        let differs = |path: &Path, have: String| {
            let what = format!("`{}` holds {have}, but {want} is wanted", path.display());
            Error::data("E0567", what)
        };
        let mut file = self.sandbox.open(&path)?;
        if io::Format::of_path(&path) == Some(io::Format::Npy) {
            let t = io::tensor_in(&path, file, None, "", Some(self.part.dtype))?;
            if t.dtype != self.part.dtype || t.bytes().len() != out.len() {
                return Err(differs(&path, t.type_text()));
            }
            out.copy_from_slice(t.bytes());
            return Ok(true);
        }
        let mut bytes = vec![];
        file.read_to_end(&mut bytes).map_err(|e| io::cannot_read(&path, &e))?;
        if bytes.len() != out.len() {
            let have = format!("{} bytes", bytes.len());
            return Err(differs(&path, have).note(format!("{want} is {} bytes", out.len())));
        }
        out.copy_from_slice(&bytes);
        io::fix_order(out, self.part.dtype.size(), true);
        io::normalise_bools(self.part.dtype, out);
        Ok(true)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.files.len());
        if let Some(last) = count.checked_sub(1) {
            self.files.nth(last);
        }
        Ok(count as u64)
    }
}
