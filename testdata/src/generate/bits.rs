//! Strict mode, to the last bit.
//!
//! An entry that is elementwise throughout returns every value it computes. So each
//! statement can be interpreted alone, on the operands the compiled code itself had:
//! basic arithmetic must give the same bits, an elementary function what
//! `docs/numerics.md` promises of it.

use super::{Entry, Source, list, operands};
use std::fmt::Write;
use tfc_ir::{DType, Graph, Tensor, interp};

/// One graph with an entry for each statement of the given one.
pub(super) fn statements(entry: &Entry) -> Result<Graph, String> {
    let mut text = "graph statements\ndim B\ndim N\n".to_string();
    for (i, stmt) in entry.stmts.iter().enumerate() {
        let Source::Expr(expr) = &stmt.source else { continue };
        let mut params = vec!["dims: i8[B, N]".to_string()];
        let mut used = operands(expr);
        used.sort();
        used.dedup();
        for u in used {
            params.push(format!("{}: {}", entry.value_name(u), entry.stmts[u].value.ty()));
        }
        let params = params.join(", ");
        let _ =
            writeln!(text, "entry c{i}({params}) -> (r) {{ return {} }}", entry.expression(expr));
    }
    tfc::parse(&text).map_err(|e| format!("{e}\n{text}"))
}

/// Units in the last place a statement may be off.
fn allowed(expr: &str, dtype: DType) -> u64 {
    const FUNCTIONS: [&str; 11] = [
        "exp(", "log(", "log1p(", "expm1(", "sin(", "cos(", "tanh(", "sigmoid(", "erf(", "pow(",
        "rsqrt(",
    ];
    if !FUNCTIONS.iter().any(|f| expr.contains(f)) && !expr.contains("**") {
        return 0;
    }
    match dtype {
        // 3e-15 for powers.
        DType::F64 => 16,
        // A product of the function's result may double its error, in units.
        DType::F32 if expr.contains(" * ") => 4,
        DType::F32 => 2,
        _ => 1,
    }
}

/// Compares what compiled code gave for each statement of an elementwise entry.
pub(super) fn check(
    entry: &Entry,
    alone: &Graph,
    feeds: &[(String, Tensor)],
    got: &[(String, Tensor)],
) -> Result<(), String> {
    let find = |i: usize| -> Option<&Tensor> {
        let name = entry.value_name(i);
        let at = entry.results.iter().position(|r| *r == i);
        let result = at.and_then(|at| got.get(at)).map(|(_, t)| t);
        let fed = feeds.iter().find(|(n, _)| *n == name).map(|(_, t)| t);
        result.or(fed)
    };
    let mut state = interp::State::new(alone).map_err(|e| e.to_string())?;
    for (i, stmt) in entry.stmts.iter().enumerate() {
        let Source::Expr(expr) = &stmt.source else { continue };
        let mut used = operands(expr);
        used.sort();
        used.dedup();
        let mut args = vec![feeds[0].1.clone()];
        args.extend(used.iter().filter_map(|u| find(*u).cloned()));
        // What was left out by shrinking cannot be told.
        let (true, Some(got)) = (args.len() == used.len() + 1, find(i)) else { continue };
        let want = interp::run(alone, &format!("c{i}"), &args, &mut state);
        let want = want.map_err(|e| e.to_string())?;
        let want = &want[0];
        let most = allowed(expr, want.dtype());
        if let Some(at) = (0..want.len()).find(|at| units(want, got, *at) > most) {
            let (w, g) = (want.to_f64()[at], got.to_f64()[at]);
            let place = list(want.shape());
            return Err(format!(
                "`{}` is not as the interpreter has it: element {at} of {place} is {g:e}, not {w:e}: \
                 {} units apart, {most} are allowed",
                entry.expression(expr),
                units(want, got, at)
            ));
        }
    }
    Ok(())
}

/// How many numbers of the type lie between two elements.
fn units(want: &Tensor, got: &Tensor, at: usize) -> u64 {
    let dtype = want.dtype();
    let width = want.bytes().len() / want.len().max(1);
    let raw = |t: &Tensor| {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&t.bytes()[at * width..(at + 1) * width]);
        i64::from_le_bytes(bytes)
    };
    let (w, g) = (raw(want), raw(got));
    if !dtype.is_float() {
        return u64::from(w != g);
    }
    let nan = |t: &Tensor| t.to_f64()[at].is_nan();
    match (nan(want), nan(got)) {
        (true, true) => return 0,
        (false, false) => {}
        _ => return u64::MAX,
    }
    // Bits of floats count like integers with a sign of their own.
    let sign = 1i64.wrapping_shl(8 * width as u32 - 1);
    let order = |bits: i64| {
        let magnitude = i128::from(bits & !sign);
        if bits & sign != 0 { -magnitude } else { magnitude }
    };
    u64::try_from((order(w) - order(g)).unsigned_abs()).unwrap_or(u64::MAX)
}
