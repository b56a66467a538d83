//! Lines of numbers.
//!
//! A line holds the numbers of all parts, side by side, separated by commas,
//! semicolons or tabs; numbers may stand in quotes. Empty lines are left out.

use super::Source;
use crate::error::{Error, Result};
use crate::io::cannot_read;
use crate::sandbox::Sandbox;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use tfc_abi::DType;
use tfc_abi::plan::Part;

pub struct Csv {
    files: std::vec::IntoIter<PathBuf>,
    sandbox: Sandbox,
    parts: Vec<Part>,
    /// Lines to leave out at the start of each file.
    skip: u64,
    open: Option<(PathBuf, BufReader<File>)>,
    line: String,
    number: u64,
}

impl Csv {
    pub fn new(files: Vec<PathBuf>, parts: &[Part], skip: u64, sandbox: &Sandbox) -> Csv {
        Csv {
            files: files.into_iter(),
            sandbox: sandbox.clone(),
            parts: parts.to_vec(),
            skip,
            open: None,
            line: String::new(),
            number: 0,
        }
    }

    /// Puts the next line with numbers into `line`; false after the last file.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if self.open.is_none() {
                let Some(path) = self.files.next() else { return Ok(false) };
                let file = self.sandbox.open_stream(&path)?;
                self.open = Some((path, BufReader::with_capacity(1 << 16, file)));
                self.number = 0;
            }
            let Some((path, file)) = &mut self.open else { return Ok(false) };
            self.line.clear();
            let read = file.read_line(&mut self.line).map_err(|e| match e.kind() {
                std::io::ErrorKind::InvalidData => {
                    Error::data("E0564", format!("`{}` is not text", path.display()))
                        .note(format!("in line {}", self.number + 1))
                }
                _ => cannot_read(path, &e),
            })?;
            if read == 0 {
                self.open = None;
                continue;
            }
            self.number += 1;
            if self.number > self.skip && !self.line.trim().is_empty() {
                return Ok(true);
            }
        }
    }

    fn wrong(&self, column: usize, why: String) -> Error {
        let path = self.open.as_ref().map_or_else(String::new, |(p, _)| p.display().to_string());
        let e = Error::data("E0564", format!("{path}:{}: {why}", self.number));
        let e = if column > 0 { e.note(format!("in column {column}")) } else { e };
        match (self.number, self.line.chars().any(char::is_alphabetic)) {
            (1, true) => e.help("if the first line names the columns, write `skip: 1`"),
            _ => e,
        }
    }
}

impl Source for Csv {
    fn next(&mut self, parts: &mut [&mut [u8]]) -> Result<bool> {
        if !self.advance()? {
            return Ok(false);
        }
        let text = self.line.trim_end_matches(['\r', '\n']);
        let separator = [',', ';', '\t'].into_iter().find(|c| text.contains(*c)).unwrap_or(',');
        let mut fields = text.split(separator);
        let wanted: usize = self.parts.iter().map(|p| p.len().unwrap_or(0)).sum();
        let have = text.split(separator).count();
        if have != wanted {
            return Err(self.wrong(
                0,
                format!("this line has {have} columns, but a record has {wanted} numbers"),
            ));
        }
        let mut column = 0;
        let mut bytes = vec![];
        for (part, out) in self.parts.iter().zip(parts) {
            bytes.clear();
            for _ in 0..part.len().unwrap_or(0) {
                column += 1;
                let field = fields.next().unwrap_or("").trim().trim_matches('"').trim();
                if !push_text(&mut bytes, part.dtype, field) {
                    return Err(self.wrong(column, format!("`{field}` is not {}", part.dtype)));
                }
            }
            out.copy_from_slice(&bytes);
        }
        Ok(true)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        for done in 0..count {
            if !self.advance()? {
                return Ok(done);
            }
        }
        Ok(count)
    }
}

/// Adds a number written as text; false if it is none of the type.
fn push_text(out: &mut Vec<u8>, dtype: DType, text: &str) -> bool {
    match dtype {
        DType::Bool => match text {
            "0" | "false" | "False" => out.push(0),
            "1" | "true" | "True" => out.push(1),
            _ => return false,
        },
        d if d.is_float() => match text.parse::<f64>() {
            Ok(v) => push_float(out, d, v, text.parse().unwrap_or(v as f32)),
            Err(_) => return false,
        },
        d => match text.parse::<i64>() {
            Ok(v) if fits(d, v) => push_int(out, d, v),
            // `7.0` is seven.
            _ => match text.parse::<f64>() {
                Ok(v) if v.fract() == 0.0 && v.abs() < 9e15 && fits(d, v as i64) => {
                    push_int(out, d, v as i64);
                }
                _ => return false,
            },
        },
    }
    true
}

fn fits(dtype: DType, v: i64) -> bool {
    match dtype {
        DType::I8 => i8::try_from(v).is_ok(),
        DType::U8 => u8::try_from(v).is_ok(),
        DType::I32 => i32::try_from(v).is_ok(),
        _ => true,
    }
}

/// Adds a float, `single` rounded from the text itself.
pub(super) fn push_float(out: &mut Vec<u8>, dtype: DType, v: f64, single: f32) {
    match dtype {
        DType::F32 => out.extend(single.to_ne_bytes()),
        DType::F16 => out.extend(crate::half::f16::from_f64(v).to_ne_bytes()),
        DType::BF16 => out.extend(crate::half::bf16::from_f64(v).to_ne_bytes()),
        _ => out.extend(v.to_ne_bytes()),
    }
}

/// Adds an integer that fits the type.
pub(super) fn push_int(out: &mut Vec<u8>, dtype: DType, v: i64) {
    match dtype {
        DType::I8 | DType::U8 => out.push(v as u8),
        DType::Bool => out.push(u8::from(v != 0)),
        DType::I32 => out.extend((v as i32).to_ne_bytes()),
        DType::I64 => out.extend(v.to_ne_bytes()),
        d => push_float(out, d, v as f64, v as f32),
    }
}
