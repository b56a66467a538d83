//! Rows of arrays: .npy, .npz and IDX files.
//!
//! A column is what one part is read from: files, one after the other, whose
//! arrays have the records along their first axis. A row may have another shape
//! than the part as long as it has as many elements.

use super::Source;
use super::idx::IdxFile;
use crate::error::{Error, Result};
use crate::io::{self, ArrayRows};
use crate::sandbox::Sandbox;
use crate::tensor::type_text;
use std::path::{Path, PathBuf};
use tfc_abi::plan::{Format, Part};

pub struct Rows {
    format: Format,
    sandbox: Sandbox,
    columns: Vec<Column>,
}

struct Column {
    files: Vec<PathBuf>,
    key: Option<String>,
    part: Part,
    /// The file after the one in `array`.
    next_file: usize,
    array: Option<Data>,
}

/// What a file holds.
enum Data {
    Array(ArrayRows, io::Format),
    Idx(IdxFile),
}

impl Data {
    fn left(&self) -> usize {
        match self {
            Data::Array(rows, _) => rows.left(),
            Data::Idx(file) => file.left(),
        }
    }
}

impl Rows {
    pub fn new(
        format: Format,
        columns: Vec<(Vec<PathBuf>, Option<String>)>,
        parts: &[Part],
        sandbox: &Sandbox,
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
            })
            .collect();
        Rows { format, sandbox: sandbox.clone(), columns }
    }
}

impl Source for Rows {
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool> {
        if !self.advance()? {
            return Ok(false);
        }
        for (column, out) in self.columns.iter_mut().zip(parts) {
            column.copy(out)?;
        }
        Ok(true)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut done = 0;
        while done < count && self.advance()? {
            let left = self.columns.iter().filter_map(|c| c.array.as_ref()).map(Data::left);
            let rows = usize::try_from(count - done).unwrap_or(usize::MAX);
            let rows = rows.min(left.min().unwrap_or(0));
            for column in &mut self.columns {
                column.skip(rows)?;
            }
            done += rows as u64;
        }
        Ok(done)
    }
}

impl Rows {
    /// Makes the next row of every column the current one; false after the last.
    fn advance(&mut self) -> Result<bool> {
        let mut ended = None;
        for (i, column) in self.columns.iter_mut().enumerate() {
            let more = column.advance(self.format, &self.sandbox)?;
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
        Ok(ended.is_none())
    }
}

impl Column {
    fn name(&self) -> String {
        let file = self.at().display();
        match &self.key {
            Some(key) => format!("`{key}` of `{file}`"),
            None => format!("`{file}`"),
        }
    }

    /// Makes the next row the current one; false after the last.
    fn advance(&mut self, format: Format, sandbox: &Sandbox) -> Result<bool> {
        loop {
            if self.array.as_ref().is_some_and(|a| a.left() > 0) {
                return Ok(true);
            }
            self.array = None;
            let Some(file) = self.files.get(self.next_file) else { return Ok(false) };
            let array = self.load(format, file, sandbox)?;
            self.array = Some(array);
            self.next_file += 1;
        }
    }

    fn load(&self, format: Format, file: &Path, sandbox: &Sandbox) -> Result<Data> {
        let data = match format {
            Format::Idx => Data::Idx(IdxFile::open(file, self.part.dtype, sandbox)?),
            _ => {
                let key = self.key.as_deref();
                let name = key.unwrap_or("");
                let opened = sandbox.open(file)?;
                let (rows, kind) = io::rows_in(file, opened, key, name, self.part.dtype)?;
                Data::Array(rows, kind)
            }
        };
        let (dtype, shape) = match &data {
            Data::Array(rows, _) => (rows.dtype, &rows.shape),
            Data::Idx(f) => (self.part.dtype, &f.shape),
        };
        let row = shape.get(1..).unwrap_or_default();
        let fits = row.iter().product::<usize>() == self.part.len().unwrap_or(0);
        if shape.is_empty() || dtype != self.part.dtype || !fits {
            let want: Vec<usize> =
                self.part.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
            let what = match shape.is_empty() {
                true => "one number, not rows".to_string(),
                false => format!("rows of {}", type_text(dtype, row)),
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
        Ok(data)
    }

    /// The file that `array` is.
    fn at(&self) -> &Path {
        self.files.get(self.next_file.saturating_sub(1)).map_or(Path::new(""), PathBuf::as_path)
    }

    fn copy(&mut self, out: &mut [u8]) -> Result<()> {
        match &mut self.array {
            Some(Data::Array(rows, kind)) => {
                let (read, kind) = (rows.next(out), *kind);
                read.map_err(|fault| fault.about(self.at(), kind))
            }
            Some(Data::Idx(file)) => file.next(out),
            None => Ok(()),
        }
    }

    /// Leaves out rows, of those the file at hand has left.
    fn skip(&mut self, rows: usize) -> Result<()> {
        match &mut self.array {
            Some(Data::Array(array, kind)) => {
                let (skipped, kind) = (array.skip(rows), *kind);
                skipped.map_err(|fault| fault.about(self.at(), kind))
            }
            Some(Data::Idx(file)) => file.skip(rows),
            None => Ok(()),
        }
    }
}
