//! Matrix products and convolutions: all are one product of two matrices, whose
//! elements are found in different ways.
//!
//! The matrices of a convolution are never made: the address of an element is
//! computed from its row and column where it is loaded, and what is outside the image
//! is zero.
//!
//! | | rows | columns | sum over | for each |
//! |---|---|---|---|---|
//! | matrix product | rows of a | columns of b | k | batch |
//! | convolution | output channels | output pixels | input channels, window | image, group |
//! | its input's gradient | input channels | input pixels | output channels, window | image, group |
//! | its filter's gradient | output channels | input channels, window | images, output pixels | group |
//!
//! Where a product has few elements and long sums, the sums are cut into [`SPLITS`]
//! parts of sizes that depend on the dims alone, and a second entry adds the parts in
//! order. Where only the dims say whether that is so, the launches and the entry find it
//! out from them ([`cut`]).
//!
//! Parameters of an entry: the two factors in the order of the plan, then the result, or with an epilogue the
//! buffers of its kernel; then the workspace, if there is one; then the dims of the
//! program. Rows, columns and terms of a sum are each fewer than 2^31.

use super::emit::{self, Emit};
use super::func::{Class, V};
use super::sides::area;
use super::{Entry, Launch, depthwise, mma, schedule, tensor, tile};
use std::sync::Arc;
use tfc_abi::plan::ConvKind;
use tfc_kernel::contract::{Conv, Epilogue, MatMul, Product};
use tfc_kernel::{DType, Dim, Kernel, KernelBuf, LoopVar, Reg, ScalarType, Stmt};

/// Parts that long sums are cut into.
pub const SPLITS: i64 = 8;

/// The entries of a contraction, to be launched in order.
#[derive(Clone, Debug)]
pub struct Contracted {
    pub entries: Vec<Entry>,
    /// Bytes of memory between the entries.
    pub workspace: Option<Dim>,
    /// What was chosen, for people.
    pub text: String,
}

/// What a contraction is made of.
pub struct Request<'a> {
    pub name: &'a str,
    pub product: &'a Product,
    /// The epilogue and the kernel whose buffers and registers it names.
    pub epilogue: Option<(&'a Epilogue, &'a Kernel)>,
    /// Run-time dims of the program, in the order of the parameters.
    pub dims: &'a [Arc<str>],
    /// The newest GPU whose instructions may be used, as 80 for `sm_80`.
    pub arch: u32,
    /// Whether the epilogue may use approximate instructions.
    pub fast: bool,
    /// Whether f32 may be rounded to TF32 for tensor cores.
    pub tf32: bool,
}

/// How the product is seen as one of matrices.
pub(super) struct Gemm {
    pub dtype: DType,
    pub m: Dim,
    pub n: Dim,
    pub k: Dim,
    /// Products of the same sizes, and the groups among them.
    pub batch: Dim,
    pub groups: i64,
    pub a: Side,
    pub b: Side,
    /// The parameter that is `a`; `b` is the other.
    pub a_is: u32,
    /// What is done with the sums may be approximate.
    pub fast: bool,
}

/// Where the elements of a factor are.
#[derive(Clone)]
pub(super) enum Side {
    /// `base(batch) + row * by_row + k * by_k`, where `batch` may be split in images
    /// and groups, each with its own distance.
    Linear {
        by_image: Dim,
        by_group: Dim,
        by_row: Dim,
        by_k: Dim,
    },
    /// Element (image, channel, pixel) of a tensor of `channels` by image; the sum
    /// goes over images and pixels, rows are channels.
    OverPixels {
        channels: Dim,
        pixels: Dim,
        per_group: Dim,
    },
    Image(Image, Conv),
}

/// Which pixels of an image a factor is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    /// Rows: output pixels; sum: channel and place in the window.
    Window,
    /// Rows: input pixels; sum: output channel and place in the window.
    Scatter,
    /// Rows: channel and place in the window; sum: images and output pixels.
    Filter,
}

impl Gemm {
    /// Whether elements of the second factor may be padding, which a NaN or an infinity
    /// of the first must not meet.
    pub fn padded(&self) -> bool {
        matches!(self.b, Side::Image(..)) && self.dtype.is_float()
    }
}

impl Side {
    /// Whether neighbours in the sum are neighbours in memory, rather than rows.
    pub fn along_k(&self) -> bool {
        match self {
            Side::Linear { by_k, by_row, .. } => by_k.is_one() || !by_row.is_one(),
            Side::OverPixels { .. } => true,
            Side::Image(Image::Filter, _) => true,
            Side::Image(..) => false,
        }
    }
}

fn gemm(product: &Product) -> Gemm {
    let d = Dim::constant;
    match product {
        Product::MatMul(p) => {
            let MatMul { dtype, m, n, k, batch, .. } = p.clone();
            let (am, ak) = if p.trans_a { (d(1), m.clone()) } else { (k.clone(), d(1)) };
            let (bn, bk) = if p.trans_b { (k.clone(), d(1)) } else { (d(1), n.clone()) };
            let side = |by_image: &Dim, by_row, by_k| Side::Linear {
                by_image: by_image.clone(),
                by_group: d(0),
                by_row,
                by_k,
            };
            let (a, b) = (side(&p.a_stride, am, ak), side(&p.b_stride, bn, bk));
            Gemm { dtype, m, n, k, batch, groups: 1, a, b, a_is: 0, fast: false }
        }
        Product::Conv(c) => {
            let groups = i64::from(c.groups.max(1));
            let per = |d: &Dim| d.div_exact(&Dim::constant(groups)).unwrap_or(d.clone());
            let (ci, co) = (per(&c.in_channels), per(&c.out_channels));
            let window = d(i64::from(c.kernel[0]) * i64::from(c.kernel[1]));
            let (pi, po) = (area(&c.in_size), area(&c.out_size));
            // A window of one pixel: a product of matrices as they are.
            let plain = c.kernel == [1, 1]
                && c.stride == [1, 1]
                && c.pad == [0, 0]
                && c.in_size == c.out_size;
            let pixel = |channels: &Dim, per_group: &Dim| Side::Linear {
                by_image: channels.clone() * pi.clone(),
                by_group: per_group.clone() * pi.clone(),
                by_row: d(1),
                by_k: pi.clone(),
            };
            let all = c.batch.clone() * d(groups);
            let filter = ci.clone() * window.clone();
            match c.kind {
                ConvKind::Forward => Gemm {
                    dtype: c.dtype,
                    m: co.clone(),
                    n: po,
                    k: filter.clone(),
                    batch: all,
                    groups,
                    a: Side::Linear {
                        by_image: d(0),
                        by_group: co * filter.clone(),
                        by_row: filter,
                        by_k: d(1),
                    },
                    b: match plain {
                        true => pixel(&c.in_channels, &ci),
                        false => Side::Image(Image::Window, c.clone()),
                    },
                    a_is: 1,
                    fast: false,
                },
                ConvKind::GradInput => Gemm {
                    dtype: c.dtype,
                    m: ci.clone(),
                    n: pi.clone(),
                    k: co.clone() * window,
                    batch: all,
                    groups,
                    // Its own way through the filter: see `Emit::term`.
                    a: match plain {
                        true => Side::Linear {
                            by_image: d(0),
                            by_group: co.clone() * ci.clone(),
                            by_row: d(1),
                            by_k: ci,
                        },
                        false => Side::Image(Image::Scatter, c.clone()),
                    },
                    b: match plain {
                        true => pixel(&c.out_channels, &co),
                        false => Side::Image(Image::Scatter, c.clone()),
                    },
                    a_is: 1,
                    fast: false,
                },
                ConvKind::GradFilter => Gemm {
                    dtype: c.dtype,
                    m: co.clone(),
                    n: filter,
                    k: c.batch.clone() * po.clone(),
                    batch: d(groups),
                    groups,
                    a: Side::OverPixels {
                        channels: c.out_channels.clone(),
                        pixels: po,
                        per_group: co,
                    },
                    b: match plain {
                        true => Side::OverPixels {
                            channels: c.in_channels.clone(),
                            pixels: pi,
                            per_group: ci,
                        },
                        false => Side::Image(Image::Filter, c.clone()),
                    },
                    a_is: 1,
                    fast: false,
                },
            }
        }
    }
}

/// Sizes that the addresses of a factor need.
fn sizes(gemm: &Gemm) -> Vec<Dim> {
    let mut out = vec![gemm.m.clone(), gemm.n.clone(), gemm.k.clone(), gemm.batch.clone()];
    out.push(gemm.m.clone() * gemm.n.clone());
    for side in [&gemm.a, &gemm.b] {
        match side {
            Side::Linear { by_image, by_group, by_row, by_k } => {
                out.extend([by_image.clone(), by_group.clone(), by_row.clone(), by_k.clone()]);
            }
            Side::OverPixels { channels, pixels, per_group } => {
                out.extend([channels.clone(), pixels.clone(), per_group.clone()]);
            }
            Side::Image(_, c) => {
                out.extend([c.in_channels.clone(), c.out_channels.clone()]);
                out.extend(c.in_size.iter().chain(&c.out_size).cloned());
                out.extend([area(&c.in_size), area(&c.out_size)]);
            }
        }
    }
    out
}

/// The smallest value a size can have where no dim is zero.
pub(super) fn least(dim: &Dim) -> i64 {
    dim.eval(&|_| Some(1)).unwrap_or(1)
}

/// What is done with the sums.
pub(super) struct Finish {
    /// Row, column, the sum's register, and whether there are statements to run.
    pub epilogue: Option<(LoopVar, LoopVar, Option<Reg>)>,
    /// The buffer sums are stored to when there is no epilogue.
    pub out: u32,
    /// The workspace, when sums are cut.
    pub workspace: Option<u32>,
    /// One if they are, else zero.
    pub cut: Dim,
}

/// Elements of a product that are few, and terms of a sum that are many.
const FEW: i64 = 64 * 64 * 32;
const MANY: i64 = 2048;
/// More than there are elements in memory.
const BEYOND: i64 = 1 << 40;

/// One where a size is at least so much, else zero.
fn at_least(size: &Dim, much: i64) -> Dim {
    match size.as_const() {
        Some(n) => Dim::constant((n >= much).into()),
        None if least(size) >= much => Dim::constant(1),
        None => (size.clone() + Dim::constant(BEYOND - much)).floor_div(BEYOND),
    }
}

/// One where sums are cut: few of them with many terms.
fn cut(gemm: &Gemm) -> Dim {
    let elements = gemm.m.clone() * gemm.n.clone() * gemm.batch.clone();
    let few = Dim::constant(1) - at_least(&elements, FEW + 1);
    few * at_least(&gemm.k, MANY)
}

pub fn contraction(request: &Request) -> Contracted {
    let mut gemm = gemm(request.product);
    gemm.fast = request.fast;
    let dtype = gemm.dtype;
    let plain = |written| KernelBuf::new(dtype, Dim::constant(0), written);
    let mut kernel = Kernel {
        name: request.name.to_string(),
        bufs: vec![plain(false), plain(false)],
        locals: vec![],
        dims: request.dims.to_vec(),
        regs: Default::default(),
        loops: 0,
        body: vec![],
    };
    let mut finish = Finish { epilogue: None, out: 2, workspace: None, cut: Dim::constant(0) };
    match request.epilogue {
        None => kernel.bufs.push(plain(true)),
        Some((e, of)) => {
            kernel.bufs.extend(of.bufs.iter().cloned());
            kernel.regs = of.regs.clone();
            kernel.body = e.body.clone();
            renumber(&mut kernel.body, 2);
            finish.epilogue = Some((e.row, e.col, e.acc));
            finish.out = e.product + 2;
        }
    }
    let approximate = |op, ty| request.fast && super::ops::approximate(op, ty);
    tfc_kernel::math::expand_but(&mut kernel, &approximate);
    let direct = match request.product {
        Product::Conv(c) => Some(c).filter(|c| depthwise::is_direct(c)),
        Product::MatMul(_) => None,
    };
    // Few tiles and long sums: more blocks, each with a part of every sum.
    if direct.is_none() {
        finish.cut = cut(&gemm);
    }
    let split = !finish.cut.is_zero();
    let mut workspace = None;
    if split {
        finish.workspace = Some(kernel.bufs.len() as u32);
        let sum = match ScalarType::of(dtype) {
            ScalarType::F64 => DType::F64,
            ScalarType::I64 => DType::I64,
            ScalarType::I32 => DType::I32,
            ScalarType::F32 | ScalarType::Bool => DType::F32,
        };
        kernel.bufs.push(KernelBuf::new(sum, Dim::constant(0), true));
        let bytes = Dim::constant(SPLITS * sum.size() as i64) * finish.cut.clone();
        workspace = Some(gemm.m.clone() * gemm.n.clone() * gemm.batch.clone() * bytes);
    }
    let name = schedule::entry_name(request.name);
    let fits = match dtype {
        DType::F16 | DType::BF16 => true,
        DType::F32 => request.tf32,
        _ => false,
    };
    let tensor_cores = fits && request.arch >= super::AMPERE.arch;
    let (entry, how) = match direct {
        Some(c) => depthwise::entry(&kernel, &gemm, c, &finish, &name),
        None if tensor_cores && tensor::is_plain(&gemm) => {
            tensor::entry(&kernel, &gemm, &finish, &name)
        }
        None if tensor_cores => mma::entry(&kernel, &gemm, &finish, &name),
        None => tile::entry(&kernel, &gemm, &finish, &name),
    };
    let mut text = format!("{}: {}\n  {}\n  {how}\n", request.name, request.product, entry.launch);
    let mut entries = vec![entry];
    if split {
        entries.push(join(&kernel, &gemm, &finish, &format!("{name}_join")));
        let when = if finish.cut.is_one() {
            String::new()
        } else {
            format!(" if there are at most {FEW}, of {MANY} terms or more")
        };
        text += &format!("  sums in {SPLITS} parts, added in order{when}\n");
    }
    Contracted { entries, workspace, text }
}

fn renumber(stmts: &mut [Stmt], by: u32) {
    for s in stmts {
        match s {
            Stmt::Load { buf, .. } | Stmt::Store { buf, .. } => *buf += by,
            Stmt::Loop(l) => renumber(&mut l.body, by),
            _ => {}
        }
    }
}

/// Starts an entry with every size it needs.
pub(super) fn begin<'a>(kernel: &'a Kernel, gemm: &Gemm, more: &[Dim]) -> Emit<'a> {
    let mut all = sizes(gemm);
    all.extend(more.iter().cloned());
    let mut e = emit::start(kernel, &all);
    e.fast = gemm.fast;
    e
}

/// Adds the parts of each sum in order, and finishes it.
fn join(kernel: &Kernel, gemm: &Gemm, finish: &Finish, name: &str) -> Entry {
    let total = gemm.m.clone() * gemm.n.clone() * gemm.batch.clone();
    let mut e = begin(kernel, gemm, std::slice::from_ref(&total));
    let i = e.thread();
    e.leave_unless_below(i, &total);
    let n = e.dim(&gemm.n);
    let row = e.f.op(Class::B64, "div.u64", &[&i, &n]);
    let back = e.f.op(Class::B64, "mul.lo.s64", &[&row, &n]);
    let col = e.f.op(Class::B64, "sub.s64", &[&i, &back]);
    let workspace = finish.workspace.unwrap_or(0);
    let dtype = kernel.bufs[workspace as usize].dtype;
    let size = dtype.size();
    let mut at = e.f.op(Class::B64, "mad.lo.s64", &[&i, &size, &e.bufs[workspace as usize]]);
    let count = e.dim(&total);
    let step = e.f.op(Class::B64, "mul.lo.s64", &[&count, &size]);
    let mut sum: Option<V> = None;
    for _ in 0..SPLITS {
        let part = e.load_from("global", dtype, &[format!("[{at}]")], 1)[0];
        let ty = ScalarType::of(dtype);
        sum = Some(match sum {
            None => part,
            Some(s) => e.scalar_op(tfc_kernel::ScalarOp::Add, ty, ty, &[s, part], &[]),
        });
        at = e.f.op(Class::B64, "add.s64", &[&at, &step]);
    }
    if let Some(sum) = sum {
        e.finish_element(finish, row, col, &n, vec![sum]);
    }
    let blocks = total.ceil_div(i64::from(schedule::BLOCK)) * finish.cut.clone();
    let grid = [blocks, Dim::constant(1), Dim::constant(1)];
    let launch = Launch { entry: name.into(), grid, block: schedule::BLOCK, shared: 0 };
    e.f.finish(name, &emit::params(kernel), launch)
}

impl Emit<'_> {
    /// A size in 32 bits.
    pub(super) fn dim32(&mut self, dim: &Dim) -> V {
        let v = self.dim(dim);
        self.f.op(Class::B32, "cvt.u32.u64", &[&v])
    }

    /// Runs the epilogue on sums of one row and neighbouring columns, or stores them.
    /// `row` counts the rows of all batches; `n` is their length.
    pub(super) fn finish_element(&mut self, finish: &Finish, row: V, col: V, n: &V, sums: Vec<V>) {
        let dtype = self.kernel.bufs[0].dtype;
        match finish.epilogue {
            Some((row_var, col_var, acc)) => {
                self.vars.insert(row_var, row);
                self.vars.insert(col_var, col);
                (self.lanes, self.lane_var) = (sums.len(), Some(col_var));
                if let Some(acc) = acc {
                    let sums = sums.into_iter().map(|s| self.as_stored(dtype, s)).collect();
                    self.regs.insert(acc, sums);
                }
                let kernel = self.kernel;
                self.stmts(&kernel.body);
                (self.lanes, self.lane_var) = (1, None);
            }
            None => {
                let at = self.f.op(Class::B64, "mad.lo.s64", &[&row, n, &col]);
                let half = if sums.len() * dtype.size() > 16 { sums.len() / 2 } else { sums.len() };
                for (i, sums) in sums.chunks(half).enumerate() {
                    let at = super::memory::At { reg: Some(at), plus: (i * half) as i64 };
                    let place = self.address(finish.out, at);
                    self.store_to("global", dtype, &[place], sums);
                }
            }
        }
    }

    /// A sum with the bits it would have in memory.
    fn as_stored(&mut self, dtype: DType, v: V) -> V {
        let v = self.narrow(dtype, v);
        let v = match dtype {
            DType::I8 => self.f.op(Class::B32, "cvt.s32.s8", &[&v]),
            DType::U8 => self.f.op(Class::B32, "cvt.u32.u8", &[&v]),
            _ => v,
        };
        self.widen(dtype, v)
    }
}
