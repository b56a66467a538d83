//! Run-time sizes as plan expressions, each stored once per entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use tfc_abi::plan::{Expr, ExprId, ExprOp};
use tfc_ir::Dim;
use tfc_ir::dim::Atom;

/// Names of run-time dims in plan order.
#[derive(Default)]
pub(crate) struct DimTable {
    index: BTreeMap<Arc<str>, u32>,
    pub names: Vec<Arc<str>>,
}

impl DimTable {
    pub fn index(&mut self, name: &Arc<str>) -> u32 {
        if let Some(i) = self.index.get(name) {
            return *i;
        }
        let i = self.names.len() as u32;
        self.names.push(name.clone());
        self.index.insert(name.clone(), i);
        i
    }
}

#[derive(Default)]
pub(crate) struct Exprs {
    pub list: Vec<Expr>,
    ids: BTreeMap<Expr, ExprId>,
    dims: BTreeMap<Dim, ExprId>,
}

impl Exprs {
    pub fn dim(&mut self, dim: &Dim, table: &mut DimTable) -> ExprId {
        if let Some(id) = self.dims.get(dim) {
            return *id;
        }
        let mut ops = vec![];
        write(dim, table, &mut ops);
        let id = self.expr(Expr(ops));
        self.dims.insert(dim.clone(), id);
        id
    }

    pub fn expr(&mut self, expr: Expr) -> ExprId {
        if let Some(id) = self.ids.get(&expr) {
            return *id;
        }
        let id = self.list.len() as ExprId;
        self.list.push(expr.clone());
        self.ids.insert(expr, id);
        id
    }

    /// The largest of several sizes.
    pub fn max(&mut self, dims: &[Dim], table: &mut DimTable) -> ExprId {
        // Of sizes that differ by a factor only, the largest decides.
        let mut best: BTreeMap<Vec<Atom>, i64> = BTreeMap::new();
        let mut list: Vec<Dim> = vec![];
        for d in dims {
            match d.terms().as_slice() {
                [(atoms, c)] => {
                    let most = best.entry(atoms.clone()).or_insert(*c);
                    *most = (*most).max(*c);
                }
                _ => list.push(d.clone()),
            }
        }
        for d in dims {
            if let [(atoms, c)] = d.terms().as_slice()
                && best.get(atoms) == Some(c)
                && !list.contains(d)
            {
                list.push(d.clone());
            }
        }
        let dims = list;
        let largest = dims.iter().filter_map(Dim::as_const).max();
        let mut ops = vec![];
        let mut first = true;
        if let Some(c) = largest {
            ops.push(ExprOp::Const(c));
            first = false;
        }
        for d in dims.iter().filter(|d| d.as_const().is_none()) {
            write(d, table, &mut ops);
            if !first {
                ops.push(ExprOp::Max);
            }
            first = false;
        }
        if first {
            ops.push(ExprOp::Const(0));
        }
        self.expr(Expr(ops))
    }
}

fn write(dim: &Dim, table: &mut DimTable, out: &mut Vec<ExprOp>) {
    let terms = dim.terms();
    if terms.is_empty() {
        out.push(ExprOp::Const(0));
    }
    for (i, (atoms, coefficient)) in terms.iter().enumerate() {
        let mut first = true;
        if *coefficient != 1 || atoms.is_empty() {
            out.push(ExprOp::Const(*coefficient));
            first = false;
        }
        for atom in atoms {
            match atom {
                Atom::Sym(name) => out.push(ExprOp::Dim(table.index(name))),
                Atom::FloorDiv(d, by) => {
                    write(d, table, out);
                    out.push(ExprOp::FloorDiv(*by));
                }
            }
            if !first {
                out.push(ExprOp::Mul);
            }
            first = false;
        }
        if i > 0 {
            out.push(ExprOp::Add);
        }
    }
}
