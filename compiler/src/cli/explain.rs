//! `tfc explain`: what an error code means.

use super::args;
use crate::error::Result;
use std::fmt::Write;
use tfc_ir::codes;
use tfc_ir::diag::Diag;

pub fn run(args: &args::Explain) -> Result<String> {
    let Some(code) = &args.code else { return Ok(list()) };
    match codes::find(code) {
        Some(entry) => Ok(codes::explain(entry)),
        None => {
            let message = format!("there is no error code `{code}`");
            Err(Diag::error("E0902", message).help("`tfc explain` lists them all").into())
        }
    }
}

fn list() -> String {
    let mut out = String::new();
    for code in codes::all() {
        let _ = writeln!(out, "{}  {}", code.code, code.title);
    }
    out
}
