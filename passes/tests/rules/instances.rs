//! Random well-typed instances of left-hand sides.

use super::*;

/// What an input may be told of its magnitude.
const SIZES: &[Magnitude] = &[
    Magnitude::UNIT,
    Magnitude { lo: i16::MIN, hi: 0 },
    Magnitude { lo: -2, hi: 2 },
    Magnitude { lo: 0, hi: 3 },
    Magnitude { lo: -6, hi: -1 },
    Magnitude { lo: i16::MIN, hi: 4 },
];

const SHAPES: &[&[i64]] =
    &[&[], &[1], &[3], &[2, 3], &[3, 2], &[2, 2], &[1, 3], &[2, 1], &[2, 3, 2], &[2, 2, 2]];

fn shape(rng: &mut Rng) -> Vec<Dim> {
    rng.pick(SHAPES).iter().map(|d| Dim::from(*d)).collect()
}

pub fn sizes(shape: &[Dim]) -> Vec<usize> {
    shape.iter().map(|d| d.as_const().unwrap() as usize).collect()
}

/// What a label of the pattern stands for: op, attributes, operand types.
pub type Bound = (Op, Attrs, Vec<TensorType>);

/// One instance of a left-hand side under construction.
pub struct Instance<'a> {
    pub rng: &'a mut Rng,
    pub g: Graph,
    pub vars: Vec<Option<Id>>,
    pub heads: Vec<Option<Bound>>,
    pub inputs: Vec<Input>,
    pub dtype: DType,
    /// Inputs are told how large they are.
    pub bounded: bool,
    /// The last constant, which another may be the opposite of.
    pub constant: f64,
    pub assumed: Option<(usize, Fact)>,
}

#[derive(Clone)]
pub struct Input {
    pub ty: TensorType,
    pub range: Range,
}

impl Instance<'_> {
    fn ty(&self, id: Id) -> TensorType {
        (*self.g[id].data.ty).clone()
    }

    fn input(&mut self, var: usize, ty: TensorType) -> Id {
        let number = self.inputs.len() as u32;
        let mut range = Range::NOTHING;
        if self.bounded && ty.dtype.is_float() {
            range.size = self.rng.pick(SIZES);
            range.facts = self.rng.pick(&[0, Fact::NonPos.bit(), Fact::NonNeg.bit()]);
        }
        if let Some((at, fact)) = self.assumed
            && at == var
        {
            range.facts = fact.bit();
        }
        self.inputs.push(Input { ty: ty.clone(), range });
        analysis::add_input_within(&mut self.g, number, &ty, range)
    }

    fn splat(&mut self, value: f64, ty: &TensorType) -> Option<Id> {
        let tensor = Tensor::splat(ty.dtype, vec![], value);
        let attrs = Attrs::none().with("value", Attr::Tensor(tensor.into()));
        let scalar = analysis::add(&mut self.g, Op::Const, attrs, &[]).ok()?;
        if ty.shape.is_empty() {
            return Some(scalar);
        }
        let attrs = Attrs::none()
            .with("shape", Attr::Shape(ty.shape.clone()))
            .with("axes", Attr::Ints(vec![]));
        analysis::add(&mut self.g, Op::Broadcast, attrs, &[scalar]).ok()
    }

    fn random_type(&mut self, kind: ElementKind) -> TensorType {
        let dtype = match kind {
            ElementKind::Bool => DType::Bool,
            ElementKind::Float if !self.dtype.is_float() => DType::F32,
            ElementKind::Num if self.dtype == DType::Bool => DType::I32,
            ElementKind::Int | ElementKind::Index => DType::I32,
            ElementKind::Key => DType::I64,
            _ => self.dtype,
        };
        TensorType::new(dtype, shape(self.rng))
    }

    /// A leaf of the pattern, given the type it should have.
    fn leaf(&mut self, pat: &Pat, ty: TensorType) -> Option<Id> {
        match pat {
            Pat::Var(i) => {
                if self.vars[*i].is_none() {
                    let id = self.input(*i, ty);
                    self.vars[*i] = Some(id);
                }
                self.vars[*i]
            }
            Pat::Splat(i) => {
                if self.vars[*i].is_none() {
                    let value = match ty.dtype {
                        DType::Bool => self.rng.below(2) as f64,
                        d if d.is_float() && self.rng.below(4) == 0 => -self.constant,
                        d if d.is_float() && self.rng.below(3) == 0 => extreme(self.rng, d),
                        d if d.is_float() => self.rng.pick(&[
                            0.5, 2.0, 3.0, -2.0, -1.5, 0.25, 1.0, 0.7, -4.0, 0.0, -0.5, -0.25,
                        ]),
                        _ => self.rng.pick(&[0.0, 1.0, 2.0, -3.0, 5.0]),
                    };
                    self.constant = value;
                    self.vars[*i] = self.splat(value, &ty);
                }
                self.vars[*i]
            }
            Pat::Lit(value) if ty.dtype.is_float() || value.fract() == 0.0 => {
                self.splat(*value, &ty)
            }
            _ => None,
        }
    }

    pub fn build(&mut self, pat: &Pat, hint: Option<TensorType>) -> Option<Id> {
        let Pat::Op { head, label, args } = pat else {
            let ty = hint.unwrap_or_else(|| self.random_type(ElementKind::Any));
            return self.leaf(pat, ty);
        };
        if let PatHead::Vjp(op, wrt) = head {
            return self.build_vjp(*op, *wrt, *label, args);
        }
        let bound = label.and_then(|l| self.heads[l].clone());
        let op = match &bound {
            Some((op, ..)) => *op,
            None => self.rng.pick(&head.ops()),
        };
        let def = op.def();
        let elementwise = matches!(def.lower, Lower::Map(_));
        let keeps_type = elementwise && op != Op::Cast;
        let mut ids: Vec<Option<Id>> = vec![None; args.len()];
        // What is not a leaf first: it decides types.
        for (i, arg) in args.iter().enumerate() {
            ids[i] = match arg {
                Pat::Var(v) | Pat::Splat(v) => self.vars[*v],
                Pat::Lit(_) => None,
                Pat::Op { .. } => {
                    let hint = match &bound {
                        Some((_, _, types)) => types.get(i).cloned(),
                        None => hint.clone().filter(|_| keeps_type),
                    };
                    Some(self.build(arg, hint)?)
                }
            };
        }
        for (i, arg) in args.iter().enumerate() {
            if ids[i].is_some() {
                continue;
            }
            let beside: Vec<TensorType> = ids.iter().flatten().map(|id| self.ty(*id)).collect();
            let kind = def.operands[i.min(def.operands.len() - 1)].kind;
            let like = match &bound {
                Some((_, _, types)) => types.get(i).cloned(),
                None if op == Op::MatMul => self.matrix_beside(beside.first()),
                None if elementwise => {
                    let same = beside.last().cloned().or(hint.clone().filter(|_| keeps_type));
                    same.map(|t| {
                        let wrong =
                            !kind.admits(t.dtype) || op == Op::Select && i > 0 && beside.len() == 1;
                        let dtype = if wrong { self.random_type(kind).dtype } else { t.dtype };
                        TensorType::new(dtype, t.shape)
                    })
                }
                None => None,
            };
            let ty = like.unwrap_or_else(|| self.random_type(kind));
            ids[i] = Some(self.leaf(arg, ty)?);
        }
        let ids: Vec<Id> = ids.into_iter().collect::<Option<_>>()?;
        let types: Vec<TensorType> = ids.iter().map(|id| self.ty(*id)).collect();
        let attrs = match &bound {
            Some((_, attrs, _)) => attrs.clone(),
            None => random_attrs(self.rng, op, &types)?,
        };
        let id = analysis::add(&mut self.g, op, attrs.clone(), &ids).ok()?;
        if let Some(l) = label
            && bound.is_none()
        {
            self.heads[*l] = Some((op, attrs, types));
        }
        Some(id)
    }

    /// A type that can be multiplied with the one on the other side.
    fn matrix_beside(&mut self, other: Option<&TensorType>) -> Option<TensorType> {
        let dims = |rng: &mut Rng| Dim::from(rng.pick(&[1i64, 2, 3]));
        let Some(other) = other else {
            let (r, c) = (dims(self.rng), dims(self.rng));
            return Some(TensorType::new(self.dtype, vec![r, c]));
        };
        let n = other.rank().checked_sub(2)?;
        let mut shape = other.shape[..n].to_vec();
        let free = dims(self.rng);
        let inner = other.shape[n + self.rng.below(2)].clone();
        match self.rng.below(2) {
            0 => shape.extend([inner, free]),
            _ => shape.extend([free, inner]),
        }
        Some(TensorType::new(other.dtype, shape))
    }

    fn build_vjp(&mut self, op: Op, wrt: usize, label: Option<usize>, args: &[Pat]) -> Option<Id> {
        let (operands, rest) = args.split_at(args.len() - 2);
        let mut ids: Vec<Id> = vec![];
        for arg in operands {
            let hint = ids.first().map(|id| self.ty(*id));
            let ty = hint.unwrap_or_else(|| self.random_type(ElementKind::Float));
            ids.push(match arg {
                Pat::Op { .. } => self.build(arg, Some(ty))?,
                _ => self.leaf(arg, ty)?,
            });
        }
        let types: Vec<TensorType> = ids.iter().map(|id| self.ty(*id)).collect();
        let attrs = random_attrs(self.rng, op, &types)?;
        // The result is what the op computes, not just any value.
        let out = analysis::add(&mut self.g, op, attrs.clone(), &ids).ok()?;
        let Pat::Var(i) = &rest[0] else { return None };
        match self.vars[*i] {
            None => self.vars[*i] = Some(out),
            Some(bound) if bound == out => {}
            Some(_) => return None,
        }
        let ty = self.ty(out);
        let ct = match &rest[1] {
            arg @ Pat::Op { .. } => self.build(arg, Some(ty))?,
            arg => self.leaf(arg, ty)?,
        };
        ids.extend([out, ct]);
        let interned = self.g.analysis.attrs.intern(attrs.clone());
        if let Some(l) = label {
            self.heads[l] = Some((op, attrs, types));
        }
        analysis::add_vjp(&mut self.g, op, wrt, interned, &ids)
    }
}

fn random_attrs(rng: &mut Rng, op: Op, types: &[TensorType]) -> Option<Attrs> {
    let x = types.first();
    let rank = x.map_or(0, |t| t.rank());
    Some(match op {
        Op::Broadcast => {
            let mut shape = vec![];
            let mut axes = vec![];
            let mut from = x?.shape.iter();
            loop {
                if rng.below(3) == 0 && shape.len() < 4 {
                    shape.push(Dim::from(rng.pick(&[2i64, 3])));
                } else if let Some(d) = from.next() {
                    axes.push(shape.len() as i64);
                    let grow = d.is_one() && rng.below(2) == 0;
                    shape.push(if grow { Dim::from(3i64) } else { d.clone() });
                } else {
                    break;
                }
            }
            Attrs::none().with("shape", Attr::Shape(shape)).with("axes", Attr::Ints(axes))
        }
        Op::Reshape => {
            let n: i64 = x?.shape.iter().map(|d| d.as_const().unwrap()).product();
            let mut shapes: Vec<Vec<i64>> = vec![vec![n], vec![1, n], vec![n, 1]];
            for k in [2, 3, 4] {
                if n % k == 0 {
                    shapes.push(vec![k, n / k]);
                }
            }
            shapes.push(x?.shape.iter().map(|d| d.as_const().unwrap()).collect());
            let mut with_unit = shapes[shapes.len() - 1].clone();
            with_unit.insert(rng.below(rank + 1), 1);
            shapes.push(with_unit);
            let shape = rng.pick(&shapes).into_iter().map(Dim::from).collect();
            Attrs::none().with("shape", Attr::Shape(shape))
        }
        Op::Transpose => {
            let mut perm: Vec<i64> = (0..rank as i64).collect();
            for i in (1..perm.len()).rev() {
                perm.swap(i, rng.below(i + 1));
            }
            Attrs::none().with("perm", Attr::Ints(perm))
        }
        Op::Slice => {
            let (mut starts, mut ends, mut strides) = (vec![], vec![], vec![]);
            for d in &x?.shape {
                let n = d.as_const().unwrap();
                let all = rng.below(2) == 0;
                let start = if all { 0 } else { rng.below(n as usize) as i64 };
                starts.push(Dim::from(start));
                ends.push(d.clone());
                strides.push(if all { 1 } else { rng.pick(&[1i64, 1, 2]) });
            }
            Attrs::none()
                .with("starts", Attr::Shape(starts))
                .with("ends", Attr::Shape(ends))
                .with("strides", Attr::Ints(strides))
        }
        Op::Reverse => {
            let axes = (0..rank as i64).filter(|_| rng.below(2) == 0).collect();
            Attrs::none().with("axes", Attr::Ints(axes))
        }
        Op::MatMul => Attrs::none()
            .with("trans_a", Attr::Bool(rng.below(2) == 0))
            .with("trans_b", Attr::Bool(rng.below(2) == 0)),
        Op::Cast => {
            let to = rng.pick(&[
                DType::F32,
                DType::F64,
                DType::F16,
                DType::BF16,
                DType::I32,
                DType::I64,
                DType::I8,
                DType::U8,
                DType::Bool,
            ]);
            Attrs::none().with("to", Attr::DType(to))
        }
        Op::OneHot => Attrs::none().with("depth", Attr::Int(3)),
        _ if matches!(op.def().lower, Lower::Reduce(_)) || op == Op::Mean => {
            if matches!(op.def().lower, Lower::Reduce(Reduction::ArgMax | Reduction::ArgMin)) {
                return None;
            }
            let axes = (0..rank as i64).filter(|_| rng.below(2) == 0).collect();
            Attrs::none().with("axes", Attr::Ints(axes)).with("keep", Attr::Bool(rng.below(3) == 0))
        }
        _ if op.def().attrs.iter().any(|a| a.default.is_none()) => return None,
        _ => Attrs::none(),
    })
}
