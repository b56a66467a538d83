//! Kernel IR to CLIF.
//!
//! One function per kernel, with the signature of `tfc_abi::KernelFn`. The
//! pieces:
//! - this file: the function's frame, statements, loops;
//! - [`value`]: what a register is in CLIF, scalar or in lanes;
//! - [`ops`]: scalar operations on values;
//! - [`constants`]: constants of long loops, in memory;
//! - [`convert`]: conversions between register types;
//! - [`memory`]: addresses, loads and stores of every element type;
//! - [`divergence`]: which registers differ between the lanes of a loop.
//!
//! Invariants
//! - A vector loop (see [`Schedule`]) runs in groups of [`LANES`] iterations,
//!   whatever the types: four-byte values take one 128-bit vector, eight-byte
//!   values two. Uniform values stay scalar and are splatted on use.
//! - Every value is computed by the same operations in vector, tail and serial
//!   code, so an element's bits do not depend on where a range was cut.
//! - A reduction has the partial results of [`tfc_kernel::PARTIALS`], however
//!   many groups run side by side.
//! - A loop's body is entered only if it runs at least once, so a load that does
//!   not depend on the loop may be done before it.

mod constants;
mod convert;
pub(crate) mod divergence;
mod memory;
mod ops;
mod value;

use crate::schedule::{Schedule, Vector};
use constants::Table;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, BlockArg, Function, InstBuilder, MemFlagsData, Signature, Type, UserFuncName,
    Value, types,
};
use cranelift_codegen::isa::{CallConv, TargetFrontendConfig};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::collections::{BTreeMap, BTreeSet};
use tfc_kernel::Dim;
use tfc_kernel::dim::Atom;
use tfc_kernel::{Carried, Combine, GROUP, Ix, Kernel, Loop, LoopVar, PARTIALS};
use tfc_kernel::{Reg, Scalar, ScalarType, Stmt};
use value::Val;

/// Iterations a vector loop runs side by side, before unrolling.
pub(crate) const LANES: u32 = GROUP as u32;

/// Groups of lanes that hold the partial results of a reduction.
const INSTANCES: usize = PARTIALS as usize / LANES as usize;

/// What the code may assume about the machine.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub fma: bool,
    /// Instructions on vectors read memory wherever it is.
    pub memory_operands: bool,
    pub config: TargetFrontendConfig,
}

/// The signature of `tfc_abi::KernelFn`.
pub(crate) fn signature(call_conv: CallConv) -> Signature {
    let mut sig = Signature::new(call_conv);
    sig.params = vec![AbiParam::new(types::I64); 3];
    sig
}

/// Builds the CLIF of `kernel`, which must be as [`crate::prepare`] leaves it.
pub(crate) fn function(kernel: &Kernel, name: UserFuncName, target: Target) -> Function {
    let mut func = Function::with_name_signature(name, signature(target.config.default_call_conv));
    let mut ctx = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut func, &mut ctx);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let params = b.block_params(entry).to_vec();
    let flags = MemFlagsData::trusted();
    let word = |b: &mut FunctionBuilder, base: Value, i: usize| {
        b.ins().load(types::I64, flags, base, 8 * i as i32)
    };
    let bufs = (0..kernel.bufs.len()).map(|i| word(&mut b, params[0], i)).collect();
    let syms = kernel
        .dims
        .iter()
        .enumerate()
        .map(|(i, name)| (Dim::sym(name), word(&mut b, params[1], i)))
        .collect();
    let mut emit = Emit {
        b,
        kernel,
        schedule: Schedule::new(kernel, LANES),
        target,
        bufs,
        dims: syms,
        range: params[2],
        ranged: 0,
        regs: BTreeMap::new(),
        vars: BTreeMap::new(),
        nest: vec![],
        indices: BTreeMap::new(),
        group: None,
        constants: BTreeMap::new(),
        table: Table::default(),
    };
    emit.all_dims();
    emit.stmts(&kernel.body);
    emit.b.ins().return_(&[]);
    emit.b.seal_all_blocks();
    let table = std::mem::take(&mut emit.table);
    emit.b.finalize(target.config);
    table.write(&mut func, entry);
    func
}

/// The group of iterations a vector loop is running.
#[derive(Clone)]
struct Group {
    var: LoopVar,
    unroll: u32,
    varying: BTreeSet<Reg>,
    /// Constants to load from the table, and where that is, in the body.
    once: BTreeSet<Scalar>,
    table: Option<Value>,
}

struct Emit<'a> {
    b: FunctionBuilder<'a>,
    kernel: &'a Kernel,
    schedule: Schedule,
    target: Target,
    bufs: Vec<Value>,
    /// Sizes that are already in a register; filled at entry.
    dims: BTreeMap<Dim, Value>,
    range: Value,
    /// Ranged loops around the current place.
    ranged: u32,
    regs: BTreeMap<Reg, Val>,
    /// The value of each loop variable; in a vector loop that of the first lane.
    vars: BTreeMap<LoopVar, Value>,
    /// Loops around the current place, outermost first.
    nest: Vec<LoopVar>,
    /// Registers made by `Index`, so that addresses see through them.
    indices: BTreeMap<Reg, Ix>,
    group: Option<Group>,
    /// What is known of scalars.
    constants: BTreeMap<Value, Scalar>,
    table: Table,
}

impl Emit<'_> {
    fn iconst(&mut self, value: i64) -> Value {
        self.b.ins().iconst(types::I64, value)
    }

    /// Computes every run-time size the kernel mentions, once, at entry.
    fn all_dims(&mut self) {
        fn ix(at: &Ix, out: &mut BTreeSet<Dim>) {
            out.insert(at.offset.clone());
            out.extend(at.terms.iter().map(|(_, d)| d.clone()));
            out.extend(at.regs.iter().map(|(_, d)| d.clone()));
        }
        fn walk(stmts: &[Stmt], out: &mut BTreeSet<Dim>) {
            for stmt in stmts {
                match stmt {
                    Stmt::Index { ix: at, .. } | Stmt::Load { at, .. } | Stmt::Store { at, .. } => {
                        ix(at, out)
                    }
                    Stmt::Loop(l) => {
                        out.insert(l.extent.clone());
                        walk(&l.body, out);
                    }
                    Stmt::Const { .. } | Stmt::Op { .. } => {}
                }
            }
        }
        let mut dims = BTreeSet::new();
        walk(&self.kernel.body, &mut dims);
        for dim in dims {
            if dim.as_const().is_none() {
                self.dim(&dim);
            }
        }
    }

    fn dim(&mut self, dim: &Dim) -> Value {
        if let Some(c) = dim.as_const() {
            return self.iconst(c);
        }
        if let Some(v) = self.dims.get(dim) {
            return *v;
        }
        let mut sum: Option<Value> = None;
        for (atoms, coef) in dim.terms() {
            let mut term: Option<Value> = None;
            for atom in atoms {
                let v = match &atom {
                    Atom::Sym(name) => self.dim(&Dim::sym(name)),
                    Atom::FloorDiv(d, by) => self.floor_div(d, *by),
                };
                term = Some(match term {
                    Some(t) => self.b.ins().imul(t, v),
                    None => v,
                });
            }
            let term = match term {
                None => self.iconst(coef),
                Some(t) if coef == 1 => t,
                Some(t) => {
                    let c = self.iconst(coef);
                    self.b.ins().imul(t, c)
                }
            };
            sum = Some(match sum {
                Some(s) => self.b.ins().iadd(s, term),
                None => term,
            });
        }
        let value = match sum {
            Some(v) => v,
            None => self.iconst(0),
        };
        self.dims.insert(dim.clone(), value);
        value
    }

    fn floor_div(&mut self, d: &Dim, by: i64) -> Value {
        let x = self.dim(d);
        let by = self.iconst(by.max(1));
        let q = self.b.ins().sdiv(x, by);
        let back = self.b.ins().imul(q, by);
        // Truncation rounds a negative inexact quotient up: one less then.
        let up = self.b.ins().icmp(IntCC::SignedGreaterThan, back, x);
        let up = self.b.ins().uextend(types::I64, up);
        self.b.ins().isub(q, up)
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Const { dst, value } => {
                let v = self.scalar_const(*value);
                self.regs.insert(*dst, Val::Uniform(v));
            }
            Stmt::Op { dst, op, args } => {
                let ty = self.kernel.regs[*dst];
                let tys: Vec<ScalarType> = args.iter().map(|a| self.kernel.regs[*a]).collect();
                let vals: Vec<Val> = args.iter().map(|a| self.reg(*a)).collect();
                let v = self.op(*op, ty, &tys, &vals);
                self.regs.insert(*dst, v);
            }
            Stmt::Index { dst, ix } => {
                let ix = self.see_through(ix);
                let v = self.index_value(&ix);
                self.indices.insert(*dst, ix);
                self.regs.insert(*dst, v);
            }
            Stmt::Load { dst, buf, at } => {
                let v = self.load(*buf, at);
                self.regs.insert(*dst, v);
            }
            Stmt::Store { buf, at, value } => {
                let v = self.reg(*value);
                self.store(*buf, at, v);
            }
            Stmt::Loop(l) => self.emit_loop(l),
        }
    }

    fn reg(&self, reg: Reg) -> Val {
        self.regs[&reg].clone()
    }

    fn scalar_const(&mut self, value: Scalar) -> Value {
        let v = match value {
            Scalar::F32(bits) => {
                self.b.ins().f32const(cranelift_codegen::ir::immediates::Ieee32::with_bits(bits))
            }
            Scalar::F64(bits) => {
                self.b.ins().f64const(cranelift_codegen::ir::immediates::Ieee64::with_bits(bits))
            }
            Scalar::I32(v) => self.b.ins().iconst(types::I32, i64::from(v)),
            Scalar::I64(v) => self.iconst(v),
            Scalar::Bool(v) => self.b.ins().iconst(types::I8, i64::from(v)),
        };
        self.constants.insert(v, value);
        v
    }

    fn emit_loop(&mut self, l: &Loop) {
        let (lo, hi) = self.bounds(l);
        let inits: Vec<Val> = l.carried.iter().map(|c| self.carried_value(c, c.init)).collect();
        let never_empty = !l.ranged && l.extent.as_const().is_some_and(|n| n > 0);
        let exit = self.b.create_block();
        let results = self.params(exit, &inits);
        if !never_empty {
            let inside = self.b.create_block();
            let some = self.b.ins().icmp(IntCC::SignedLessThan, lo, hi);
            let args = flat(&inits);
            self.b.ins().brif(some, inside, &[], exit, &args);
            self.b.switch_to_block(inside);
        }
        self.nest.push(l.var);
        self.ranged += u32::from(l.ranged);
        let hoisted = divergence::invariant(self.kernel, l);
        for (stmt, hoist) in l.body.iter().zip(&hoisted) {
            if *hoist {
                self.stmt(stmt);
            }
        }
        let vector = self.schedule.vector(l.var);
        let mut at = Segment { next: lo, carried: inits };
        if let Some(vector) = vector {
            at = self.vector_segments(l, &hoisted, at, hi, vector);
        }
        self.serial_segment(l, &hoisted, at, hi, exit, vector.is_some());
        self.nest.pop();
        self.ranged -= u32::from(l.ranged);
        self.b.switch_to_block(exit);
        for (c, v) in l.carried.iter().zip(results) {
            self.regs.insert(c.result, v);
        }
    }

    fn bounds(&mut self, l: &Loop) -> (Value, Value) {
        if !l.ranged {
            return (self.iconst(0), self.dim(&l.extent));
        }
        let at = 16 * self.ranged.min(1) as i32;
        let flags = MemFlagsData::trusted();
        let lo = self.b.ins().load(types::I64, flags, self.range, at);
        let hi = self.b.ins().load(types::I64, flags, self.range, at + 8);
        (lo, hi)
    }

    /// Runs the rest of the iterations one at a time and jumps to `exit`.
    fn serial_segment(
        &mut self,
        l: &Loop,
        hoisted: &[bool],
        from: Segment,
        hi: Value,
        exit: Block,
        maybe_done: bool,
    ) {
        let header = self.b.create_block();
        let i = self.b.append_block_param(header, types::I64);
        let accs = self.params(header, &from.carried);
        let args = flat_with(from.next, &from.carried);
        if maybe_done {
            let left = self.b.ins().icmp(IntCC::SignedLessThan, from.next, hi);
            let out = flat(&from.carried);
            self.b.ins().brif(left, header, &args, exit, &out);
        } else {
            self.b.ins().jump(header, &args);
        }
        self.b.switch_to_block(header);
        let nexts = self.run_body(l, hoisted, i, accs);
        let next = self.b.ins().iadd_imm_s(i, 1);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, next, hi);
        let (again, out) = (flat_with(next, &nexts), flat(&nexts));
        self.b.ins().brif(more, header, &again, exit, &out);
    }

    /// Runs whole groups, as many at once as `vector` says, then single ones; what is
    /// left starts at the returned segment.
    ///
    /// Each reduction has [`PARTIALS`] partial results, as [`INSTANCES`] groups of
    /// lanes. Those whose turn it is stand first; however many groups run at
    /// once, they are combined with the same iterations.
    fn vector_segments(
        &mut self,
        l: &Loop,
        hoisted: &[bool],
        from: Segment,
        hi: Value,
        vector: Vector,
    ) -> Segment {
        let mut few = Group::new(l, 1);
        if self.target.memory_operands && vector.unroll == 1 && vector.long {
            few.once = constants::used_once(self.kernel, l);
        }
        let mut groups = vec![few.clone()];
        if vector.unroll > 1 {
            groups.insert(0, Group { unroll: vector.unroll, ..few.clone() });
        }
        let (setup, after) = (self.b.create_block(), self.b.create_block());
        let next_after = self.b.append_block_param(after, types::I64);
        let carried_after = self.params(after, &from.carried);
        let last = self.b.ins().iadd_imm_s(hi, -i64::from(LANES));
        let some = self.b.ins().icmp(IntCC::SignedLessThanOrEqual, from.next, last);
        let skip = flat_with(from.next, &from.carried);
        self.b.ins().brif(some, setup, &[], after, &skip);

        self.b.switch_to_block(setup);
        self.group = Some(few.clone());
        // A short loop has no use for all of them: to combine with an identity
        // changes nothing.
        let used = vector.accumulators as usize;
        let mut instances = vec![];
        for c in &l.carried {
            let identity = self.identity(c);
            instances.push(vec![identity; used]);
        }
        let mut next = from.next;
        for (i, group) in groups.iter().enumerate() {
            // The first loop of all is entered if it has but one group.
            let runs = i == 0 && group.unroll == 1;
            (next, instances) =
                self.vector_segment(l, hoisted, next, hi, instances, group.clone(), runs);
        }
        self.group = Some(few);
        let mut totals = vec![];
        for ((c, instances), before) in l.carried.iter().zip(instances).zip(&from.carried) {
            let instances = match (c.combine, self.kernel.regs[c.acc].is_float()) {
                // Of two zeros or two NaN the second is taken: their order counts.
                (Combine::Max | Combine::Min, true) if used == INSTANCES => {
                    self.in_order(instances, from.next, next)
                }
                _ => instances,
            };
            totals.push(self.combine_lanes(c, instances, before.clone()));
        }
        self.group = None;
        let args = flat_with(next, &totals);
        self.b.ins().jump(after, &args);
        self.b.switch_to_block(after);
        Segment { next: next_after, carried: carried_after }
    }

    /// Runs whole groups of one size from `next` on. `runs` says that there is one.
    #[expect(clippy::too_many_arguments)]
    fn vector_segment(
        &mut self,
        l: &Loop,
        hoisted: &[bool],
        next: Value,
        hi: Value,
        instances: Vec<Vec<Val>>,
        group: Group,
        runs: bool,
    ) -> (Value, Vec<Vec<Val>>) {
        let unroll = group.unroll as usize;
        let step = i64::from(group.unroll * LANES);
        let (header, done) = (self.b.create_block(), self.b.create_block());
        let next_done = self.b.append_block_param(done, types::I64);
        let instances_done = self.all_params(done, &instances);
        let last = self.b.ins().iadd_imm_s(hi, -step);
        let args = flat_with(next, &instances.concat());
        if runs {
            self.b.ins().jump(header, &args);
        } else {
            let fits = self.b.ins().icmp(IntCC::SignedLessThanOrEqual, next, last);
            self.b.ins().brif(fits, header, &args, done, &args);
        }
        let i = self.b.append_block_param(header, types::I64);
        let instances = self.all_params(header, &instances);
        self.b.switch_to_block(header);
        self.group = Some(group.clone());
        if !group.once.is_empty() {
            let table = Some(self.table_base(i));
            self.group = Some(Group { table, ..group });
        }
        let accs = instances.iter().map(|of| joined(&of[..unroll])).collect();
        let nexts = self.run_body(l, hoisted, i, accs);
        // Those that had their turn go to the end.
        let turned: Vec<Vec<Val>> = instances
            .iter()
            .zip(nexts)
            .map(|(of, new)| {
                let per = new.parts().len() / unroll;
                let new = new.parts().chunks(per).map(|parts| Val::Lanes(parts.to_vec()));
                of[unroll..].iter().cloned().chain(new).collect()
            })
            .collect();
        let next = self.b.ins().iadd_imm_s(i, step);
        let more = self.b.ins().icmp(IntCC::SignedLessThanOrEqual, next, last);
        let args = flat_with(next, &turned.concat());
        self.b.ins().brif(more, header, &args, done, &args);
        self.b.switch_to_block(done);
        (next_done, instances_done)
    }

    fn all_params(&mut self, block: Block, like: &[Vec<Val>]) -> Vec<Vec<Val>> {
        like.iter().map(|of| self.params(block, of)).collect()
    }

    /// The instances of a reduction, the first one first again, after the groups
    /// from `lo` to `next`.
    fn in_order(&mut self, mut instances: Vec<Val>, lo: Value, next: Value) -> Vec<Val> {
        let count = self.b.ins().isub(next, lo);
        for turn in [1, INSTANCES / 2] {
            let bit = self.b.ins().band_imm_u(count, i64::from(LANES) * turn as i64);
            let mut turned = instances.clone();
            turned.rotate_right(turn);
            instances = instances
                .iter()
                .zip(&turned)
                .map(|(same, turned)| {
                    let pairs = same.parts().iter().zip(turned.parts());
                    Val::Lanes(pairs.map(|(s, t)| self.b.ins().select(bit, *t, *s)).collect())
                })
                .collect();
        }
        instances
    }

    /// One iteration (or group of iterations); gives the next carried values.
    fn run_body(&mut self, l: &Loop, hoisted: &[bool], i: Value, accs: Vec<Val>) -> Vec<Val> {
        self.vars.insert(l.var, i);
        for (c, v) in l.carried.iter().zip(accs) {
            self.regs.insert(c.acc, v);
        }
        for (stmt, hoisted) in l.body.iter().zip(hoisted) {
            if !hoisted {
                self.stmt(stmt);
            }
        }
        l.carried.iter().map(|c| self.carried_value(c, c.next)).collect()
    }

    /// The value of `reg` in the form `c` has at the loop's header.
    fn carried_value(&mut self, c: &Carried, reg: Reg) -> Val {
        let value = self.reg(reg);
        let varying = self.group.as_ref().is_some_and(|g| g.varying.contains(&c.acc));
        let ty = self.kernel.regs[c.acc];
        if varying { self.in_lanes(ty, &value) } else { value }
    }

    /// Block parameters of the same form as `like`.
    fn params(&mut self, block: Block, like: &[Val]) -> Vec<Val> {
        like.iter()
            .map(|v| {
                let tys: Vec<Type> =
                    v.parts().iter().map(|p| self.b.func.dfg.value_type(*p)).collect();
                let parts: Vec<Value> =
                    tys.into_iter().map(|t| self.b.append_block_param(block, t)).collect();
                match v {
                    Val::Uniform(_) => Val::Uniform(parts[0]),
                    Val::Lanes(_) => Val::Lanes(parts),
                }
            })
            .collect()
    }

    /// Lanes that change nothing when combined.
    fn identity(&mut self, c: &Carried) -> Val {
        let ty = self.kernel.regs[c.acc];
        let scalar = c.combine.identity(ty);
        let v = self.scalar_const(scalar);
        self.in_lanes(ty, &Val::Uniform(v))
    }

    /// `before` combined with all partial results: instances in pairs, then the
    /// lanes of what is left, in pairs too.
    fn combine_lanes(&mut self, c: &Carried, mut instances: Vec<Val>, before: Val) -> Val {
        let ty = self.kernel.regs[c.acc];
        let mut half = INSTANCES / 2;
        while half > 0 {
            let high = instances.split_off(half.min(instances.len()));
            for (a, b) in instances.iter_mut().zip(&high) {
                *a = self.combine(c.combine, ty, a, b);
            }
            half /= 2;
        }
        let one = instances[0].parts().to_vec();
        let lanes: Vec<Val> =
            (0..LANES as usize).map(|lane| Val::Uniform(self.extract(ty, &one, lane))).collect();
        let a = self.combine(c.combine, ty, &lanes[0], &lanes[2]);
        let b = self.combine(c.combine, ty, &lanes[1], &lanes[3]);
        let all = self.combine(c.combine, ty, &a, &b);
        self.combine(c.combine, ty, &before, &all)
    }

    fn combine(&mut self, combine: Combine, ty: ScalarType, a: &Val, b: &Val) -> Val {
        self.op(combine.op(), ty, &[ty, ty], &[a.clone(), b.clone()])
    }
}

struct Segment {
    next: Value,
    carried: Vec<Val>,
}

impl Group {
    fn new(l: &Loop, unroll: u32) -> Group {
        Group {
            var: l.var,
            unroll,
            varying: divergence::varying(l),
            once: BTreeSet::new(),
            table: None,
        }
    }
}

fn flat(vals: &[Val]) -> Vec<BlockArg> {
    vals.iter().flat_map(|v| v.parts().to_vec()).map(BlockArg::Value).collect()
}

fn flat_with(first: Value, vals: &[Val]) -> Vec<BlockArg> {
    [vec![BlockArg::Value(first)], flat(vals)].concat()
}

/// Neighbouring groups as one value.
fn joined(vals: &[Val]) -> Val {
    Val::Lanes(vals.iter().flat_map(|v| v.parts().to_vec()).collect())
}
