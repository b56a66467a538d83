//! Products with sums: matrix products and convolutions.
//!
//! A contraction is a description, not a loop nest: how the sums are cut into tiles
//! is a target's own affair. CPUs call routines of the runtime, which run a kernel
//! on each finished block ([`Epilogue::kernel`]); a target that makes its own tiles
//! puts the statements of [`Epilogue::body`] behind the sum while it is in a
//! register.
//!
//! Invariant: an epilogue looks at one element of the product only, the one it is
//! run for, and stores one element of each of its results.

use crate::print::block;
use crate::{Dim, Ix, Kernel, Loop, LoopKind, LoopVar, Reg, ScalarType, Stmt};
use std::collections::BTreeSet;
use std::fmt;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;

#[derive(Clone, Debug, PartialEq)]
pub struct Contraction {
    pub product: Product,
    /// Without one the product is stored; with one it need not be.
    pub epilogue: Option<Epilogue>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Product {
    MatMul(MatMul),
    Conv(Conv),
}

/// `c[b] = op(a[b]) · op(b[b])`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    pub dtype: DType,
    pub m: Dim,
    pub n: Dim,
    pub k: Dim,
    pub batch: Dim,
    /// Elements between consecutive matrices; zero broadcasts one matrix.
    pub a_stride: Dim,
    pub b_stride: Dim,
    /// `a` is stored `[k, m]` / `b` is stored `[n, k]`.
    pub trans_a: bool,
    pub trans_b: bool,
}

/// Two-dimensional convolution, NCHW images, OIHW filters. The geometry is always
/// that of the forward convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    pub kind: ConvKind,
    pub dtype: DType,
    pub batch: Dim,
    pub in_channels: Dim,
    pub in_size: [Dim; 2],
    pub out_channels: Dim,
    pub out_size: [Dim; 2],
    pub kernel: [u32; 2],
    pub stride: [u32; 2],
    pub dilation: [u32; 2],
    /// Zero padding before the first row and column.
    pub pad: [u32; 2],
    pub groups: u32,
}

/// What is done with each element of a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    /// Its place among the program's kernels: the same on a block of a stored
    /// product.
    pub kernel: u32,
    /// The buffer of the kernel that holds the product.
    pub product: u32,
    /// The element: its row (of all batches; of a convolution, output channels of all
    /// images) and its column (pixels).
    pub row: LoopVar,
    pub col: LoopVar,
    /// The sum, with the bits the product's element has in memory; none if nothing
    /// looks at it.
    pub acc: Option<Reg>,
    /// Run once for every element. Buffers, dims and registers are the kernel's; the
    /// product's buffer is not touched.
    pub body: Vec<Stmt>,
}

impl Epilogue {
    /// The epilogue that `block`, kernel number `kernel`, runs on a block of the
    /// product in its buffer `product`. None if it is not two ranged loops.
    pub fn of(block: &Kernel, kernel: u32, product: u32) -> Option<Epilogue> {
        let mut body = vec![];
        let row = only_loop(&block.body, &mut body)?;
        let col = only_loop(&row.body, &mut body)?;
        body.extend(col.body.iter().cloned());
        let mut acc = None;
        on_accumulator(&mut body, product, &mut acc);
        Some(Epilogue { kernel, product, row: row.var, col: col.var, acc, body })
    }

    /// The loops over a block again, around the statements: what [`Epilogue::of`] was
    /// given, but for the loops that statements are in.
    pub fn on_block(&self, block: &Kernel) -> Option<Kernel> {
        let row = only_loop(&block.body, &mut vec![])?;
        let (rows, cols) = (&row.extent, &only_loop(&row.body, &mut vec![])?.extent);
        let at = Ix::var(self.row).scale(cols).plus(&Ix::var(self.col));
        let load = self.acc.map(|dst| Stmt::Load { dst, buf: self.product, at });
        let one_loop = |var, extent: &Dim, body| {
            let (kind, extent) = (LoopKind::Parallel, extent.clone());
            Stmt::Loop(Loop { var, extent, kind, ranged: true, carried: vec![], body })
        };
        let inner = one_loop(self.col, cols, load.into_iter().chain(self.body.clone()).collect());
        Some(Kernel { body: vec![one_loop(self.row, rows, vec![inner])], ..block.clone() })
    }
}

/// The one ranged loop of a body; what is before it goes to `before`.
fn only_loop<'k>(body: &'k [Stmt], before: &mut Vec<Stmt>) -> Option<&'k Loop> {
    let (last, rest) = body.split_last()?;
    before.extend(rest.iter().cloned());
    match last {
        Stmt::Loop(l) if l.ranged => Some(l),
        _ => None,
    }
}

/// Takes out the loads of the product: whatever their addresses look like, they are
/// of this element.
fn on_accumulator(stmts: &mut Vec<Stmt>, product: u32, acc: &mut Option<Reg>) {
    let mut same = BTreeSet::new();
    stmts.retain(|s| match s {
        Stmt::Load { dst, buf, .. } if *buf == product => {
            same.insert(*dst);
            false
        }
        _ => true,
    });
    if acc.is_none() {
        *acc = same.first().copied();
    }
    for stmt in stmts {
        if let Some(acc) = *acc {
            rename(stmt, &|r: &mut Reg| {
                if same.contains(r) {
                    *r = acc;
                }
            });
        }
        if let Stmt::Loop(l) = stmt {
            on_accumulator(&mut l.body, product, acc);
        }
    }
}

/// Calls `f` on every register a statement uses.
fn rename(stmt: &mut Stmt, f: &dyn Fn(&mut Reg)) {
    match stmt {
        Stmt::Const { .. } => {}
        Stmt::Op { args, .. } => args.iter_mut().for_each(f),
        Stmt::Index { ix, .. } | Stmt::Load { at: ix, .. } => {
            ix.regs.iter_mut().for_each(|(r, _)| f(r));
        }
        Stmt::Store { at, value, .. } => {
            at.regs.iter_mut().for_each(|(r, _)| f(r));
            f(value);
        }
        Stmt::Loop(l) => {
            for c in &mut l.carried {
                f(&mut c.init);
                f(&mut c.next);
            }
            l.body.iter_mut().for_each(|s| rename(s, f));
        }
    }
}

impl Product {
    pub fn dtype(&self) -> DType {
        match self {
            Product::MatMul(m) => m.dtype,
            Product::Conv(c) => c.dtype,
        }
    }

    /// The register type of a sum.
    pub fn accumulator(&self) -> ScalarType {
        ScalarType::of(self.dtype())
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Product::MatMul(m) => {
                let t = |t: bool| if t { "ᵀ" } else { "" };
                write!(f, "matmul {}[{}, {}, {}]", m.dtype, m.batch, m.m, m.n)?;
                write!(f, " over {}, a{} by {}", m.k, t(m.trans_a), m.a_stride)?;
                write!(f, ", b{} by {}", t(m.trans_b), m.b_stride)
            }
            Product::Conv(c) => {
                let name = match c.kind {
                    ConvKind::Forward => "conv",
                    ConvKind::GradInput => "conv_grad_input",
                    ConvKind::GradFilter => "conv_grad_filter",
                };
                let [ih, iw] = &c.in_size;
                let [oh, ow] = &c.out_size;
                write!(f, "{name} {}[{}, {}, {ih}, {iw}]", c.dtype, c.batch, c.in_channels)?;
                write!(f, " to [{}, {oh}, {ow}], window {:?}", c.out_channels, c.kernel)?;
                write!(f, " stride {:?} dilation {:?} pad {:?}", c.stride, c.dilation, c.pad)?;
                write!(f, " groups {}", c.groups)
            }
        }
    }
}

impl Contraction {
    /// As text; `kernels` are the program's.
    pub fn text(&self, kernels: &[Kernel]) -> String {
        let mut out = self.product.to_string();
        if let Some(e) = &self.epilogue
            && let Some(kernel) = kernels.get(e.kernel as usize)
        {
            let name = &kernel.name;
            let acc = e.acc.map_or("nothing".to_string(), |r| r.to_string());
            out += &format!(", then on {acc} at {}, {} as {name} {{\n", e.row, e.col);
            out += &block(kernel, &e.body);
            out += "}";
        }
        out
    }
}
