//! Rows of arrays: .npy, .npz and IDX files.
//!
//! A column is what one part is read from: files, one after the other, whose
//! arrays have the records along their first axis. A row may have another shape
//! than the part as long as it has as many elements.

use super::{Source, idx};
use crate::error::{Error, Result};
use crate::io;
use crate::tensor::{TensorBuf, type_text};
use std::path::{Path, PathBuf};
use tfc_abi::plan::{Format, Part};

pub struct Rows {
    format: Format,
    columns: Vec<Column>,
}

struct Column {
    files: Vec<PathBuf>,
    key: Option<String>,
    part: Part,
    /// The file after the one in `array`.
    next_file: usize,
    array: Option<TensorBuf>,
    row: usize,
}

impl Rows {
    pub fn new(
        format: Format,
        columns: Vec<(Vec<PathBuf>, Option<String>)>,
        parts: &[Part],
    ) -> Rows {
        let columns = columns
            .into_iter()
            .zip(parts)
            .map(|((files, key), part)| Column {
                files,
                key,
                part: part.clone(),
                next_file: 0,
                array: None,
                row: 0,
            })
            .collect();
        Rows { format, columns }
    }
}

impl Source for Rows {
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool> {
        let mut ended = None;
        for (i, column) in self.columns.iter_mut().enumerate() {
            let more = column.advance(self.format)?;
            if i > 0 && ended.is_some() == more {
                // One column is at its end, another is not.
                let short = if more { ended.unwrap_or(0) } else { i };
                let other = if more { i } else { 0 };
                let (a, b) = (self.columns[short].name(), self.columns[other].name());
                return Err(Error::data("E0567", "these files hold different numbers of records")
                    .note(format!("{a} ends before {b}")));
            }
            if !more {
                ended = Some(i);
            }
        }
        if ended.is_some() {
            return Ok(false);
        }
        for (column, out) in self.columns.iter_mut().zip(parts) {
            column.copy(out);
        }
        Ok(true)
    }
}

impl Column {
    fn name(&self) -> String {
        let file = self.files.get(self.next_file.saturating_sub(1));
        let file = file.map_or_else(String::new, |f| f.display().to_string());
        match &self.key {
            Some(key) => format!("`{key}` of `{file}`"),
            None => format!("`{file}`"),
        }
    }

    /// Makes the next row the current one; false after the last.
    fn advance(&mut self, format: Format) -> Result<bool> {
        loop {
            if let Some(array) = &self.array
                && self.row < array.shape.first().copied().unwrap_or(0)
            {
                return Ok(true);
            }
            self.array = None;
            let Some(file) = self.files.get(self.next_file) else { return Ok(false) };
            let array = self.load(format, file)?;
            self.array = Some(array);
            self.next_file += 1;
            self.row = 0;
        }
    }

    fn load(&self, format: Format, file: &Path) -> Result<TensorBuf> {
        let array = match format {
            Format::Idx => idx::read(file, self.part.dtype)?,
            _ => {
                let key = self.key.as_deref();
                io::tensor_file(file, key, key.unwrap_or(""), Some(self.part.dtype))?
            }
        };
        let row = array.shape.get(1..).unwrap_or_default();
        let fits = row.iter().product::<usize>() == self.part.len().unwrap_or(0);
        if array.shape.is_empty() || array.dtype != self.part.dtype || !fits {
            let want: Vec<usize> =
                self.part.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
            let what = match array.shape.is_empty() {
                true => "one number, not rows".to_string(),
                false => format!("rows of {}", type_text(array.dtype, row)),
            };
            return Err(Error::data(
                "E0567",
                format!(
                    "`{}` holds {what}, but records of {} are wanted",
                    file.display(),
                    type_text(self.part.dtype, &want)
                ),
            )
            .help("declare the reader with the type of the file, and `cast` in the graph"));
        }
        Ok(array)
    }

    fn copy(&mut self, out: &mut [u8]) {
        let Some(array) = &self.array else { return };
        let at = self.row * out.len();
        if let Some(bytes) = array.bytes().get(at..at + out.len()) {
            out.copy_from_slice(bytes);
        }
        self.row += 1;
    }
}
