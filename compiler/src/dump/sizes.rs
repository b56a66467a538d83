//! Size expressions of a plan.

use tfc_abi::plan::{Expr, ExprOp};

/// An expression in infix.
pub fn expr(e: &Expr, dims: &[String]) -> String {
    let mut stack: Vec<(String, bool)> = vec![];
    let pop = |stack: &mut Vec<(String, bool)>| stack.pop().unwrap_or(("?".into(), false));
    for op in &e.0 {
        match *op {
            ExprOp::Const(c) => stack.push((c.to_string(), false)),
            ExprOp::Dim(i) => {
                let name = dims.get(i as usize).cloned().unwrap_or_else(|| "?".into());
                stack.push((name, false));
            }
            ExprOp::Add => {
                let (b, a) = (pop(&mut stack).0, pop(&mut stack).0);
                stack.push((format!("{a} + {b}"), true));
            }
            ExprOp::Mul => {
                let (b, a) = (wrap(pop(&mut stack)), wrap(pop(&mut stack)));
                stack.push((format!("{a} * {b}"), false));
            }
            ExprOp::FloorDiv(d) => {
                let a = wrap(pop(&mut stack));
                stack.push((format!("({a} / {d})"), false));
            }
            ExprOp::Max => {
                let (b, a) = (pop(&mut stack).0, pop(&mut stack).0);
                stack.push((format!("max({a}, {b})"), false));
            }
        }
    }
    pop(&mut stack).0
}

fn wrap((text, sum): (String, bool)) -> String {
    if sum { format!("({text})") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_read_as_arithmetic() {
        let e = Expr(vec![
            ExprOp::Dim(0),
            ExprOp::Const(1),
            ExprOp::Add,
            ExprOp::Const(4),
            ExprOp::Mul,
        ]);
        assert_eq!(expr(&e, &["B".into()]), "(B + 1) * 4");
        assert_eq!(expr(&Expr(vec![ExprOp::Add]), &[]), "? + ?");
    }
}
