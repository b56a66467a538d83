//! Matrix products and convolutions as steps, with what is fused behind them.

use super::{Planner, outputs as written};
use crate::lower::fuse::KernelGroup;
use crate::lower::group;
use crate::lower::operands::contract_operands;
use tfc_abi::plan::{BufId, Conv, ConvKind, Epilogue, MatMul, Step, Steps};
use tfc_ir::kernel::contract::{self, Product};
use tfc_ir::lower::{Contraction, Lower};
use tfc_ir::{Dim, Func, Node, NodeId, RegionId, ValueId};

impl Planner<'_> {
    pub(super) fn contract(
        &mut self,
        g: &KernelGroup,
        id: NodeId,
        region: RegionId,
        steps: &mut Steps,
    ) {
        let func = self.func;
        let node = &func.nodes[id];
        let result = node.results[0];
        let Lower::Contract(kind) = node.op.def().lower else { return };
        let (lhs, rhs) = contract_operands(func, node);
        let (rows, cols, col_axes) = match kind {
            Contraction::MatMul => {
                let shape = &func.ty(result).shape;
                let n = shape.len();
                (Dim::product(&shape[..n - 1]), shape[n - 1].clone(), 1)
            }
            _ => {
                let shape = &func.ty(result).shape;
                (Dim::product(&shape[..2]), Dim::product(&shape[2..]), 2)
            }
        };
        let epilogue = (!g.members.is_empty()).then(|| {
            let outputs: Vec<ValueId> =
                g.outputs.iter().map(|(v, _)| *v).filter(|v| *v != result).collect();
            let name = format!("{}_then_{}", node.op.name(), self.kernel_name(g));
            let lowered = group::epilogue(func, &g.members, &rows, &cols, col_axes, &outputs, name);
            (outputs, lowered)
        });
        let time = self.tick();
        let (a, b) = (self.read(lhs.0, time), self.read(rhs.0, time));
        let c = self.write(result, time, region);
        let c_storage = self.value(result);
        let epilogue = epilogue.map(|(outputs, lowered)| {
            let (bufs, dims) = self.kernel_args(&lowered, time, region, &[lhs.0, rhs.0]);
            // The raw product may be made where the first result that may
            // replace it goes.
            let legal = lowered.in_place();
            if let Some(at) = lowered.bufs.iter().position(|v| *v == result) {
                let mut outs = outputs.iter().enumerate();
                if let Some((o, _)) = outs.find(|(o, _)| legal.contains(&(*o, at))) {
                    let out = self.value(outputs[o]);
                    self.shares.push((c_storage, out, time));
                }
            }
            let product = lowered.bufs.iter().position(|v| *v == result);
            let outputs = written(&lowered.kernel);
            let block = lowered.kernel.clone();
            let kernel = self.build.kernel(lowered.kernel);
            let body = product.and_then(|at| contract::Epilogue::of(&block, kernel, at as u32));
            let Some(body) = body else {
                unreachable!("`{}` is no epilogue", self.build.kernels[kernel as usize].name)
            };
            (Epilogue { kernel, bufs, outputs, dims }, body)
        });
        let (epilogue, body) = epilogue.unzip();
        let product = match kind {
            Contraction::MatMul => Product::MatMul(matmul(func, node, lhs.1, rhs.1)),
            _ => Product::Conv(conv(func, node, kind)),
        };
        let step = match &product {
            Product::MatMul(m) => self.matmul(m, (a, b, c), epilogue),
            Product::Conv(v) => self.conv(v, (a, b, c), epilogue),
        };
        self.contractions.insert(c, contract::Contraction { product, epilogue: body });
        steps.push(step);
    }

    fn matmul(
        &mut self,
        m: &contract::MatMul,
        (a, b, c): (BufId, BufId, BufId),
        epilogue: Option<Epilogue>,
    ) -> Step {
        Step::MatMul(MatMul {
            dtype: m.dtype,
            a,
            b,
            c,
            m: self.dim(&m.m),
            n: self.dim(&m.n),
            k: self.dim(&m.k),
            batch: self.dim(&m.batch),
            a_stride: self.dim(&m.a_stride),
            b_stride: self.dim(&m.b_stride),
            trans_a: m.trans_a,
            trans_b: m.trans_b,
            epilogue,
        })
    }

    fn conv(
        &mut self,
        v: &contract::Conv,
        (lhs, rhs, out): (BufId, BufId, BufId),
        epilogue: Option<Epilogue>,
    ) -> Step {
        Step::Conv(Conv {
            kind: v.kind,
            dtype: v.dtype,
            lhs,
            rhs,
            out,
            batch: self.dim(&v.batch),
            in_channels: self.dim(&v.in_channels),
            in_h: self.dim(&v.in_size[0]),
            in_w: self.dim(&v.in_size[1]),
            out_channels: self.dim(&v.out_channels),
            out_h: self.dim(&v.out_size[0]),
            out_w: self.dim(&v.out_size[1]),
            kernel: v.kernel,
            stride: v.stride,
            dilation: v.dilation,
            pad: v.pad,
            groups: v.groups,
            epilogue,
        })
    }
}

/// The matrix product of a node, whose operands may be one matrix for all batches.
fn matmul(func: &Func, node: &Node, one_lhs: bool, one_rhs: bool) -> contract::MatMul {
    let (trans_a, trans_b) = (node.attrs.bool("trans_a"), node.attrs.bool("trans_b"));
    let out = func.ty(node.results[0]);
    let r = out.rank();
    let (mut m, n) = (out.shape[r - 2].clone(), out.shape[r - 1].clone());
    let lt = func.ty(node.operands[0]);
    let k = lt.shape[if trans_a { r - 2 } else { r - 1 }].clone();
    let mut batch = Dim::product(&out.shape[..r - 2]);
    let mut a_stride = if one_lhs { Dim::constant(0) } else { m.clone() * k.clone() };
    let b_stride = if one_rhs { Dim::constant(0) } else { n.clone() * k.clone() };
    // One right-hand side for all batches: the batches are more rows.
    if one_rhs && !one_lhs && !trans_a {
        m = batch * m;
        batch = Dim::constant(1);
        a_stride = m.clone() * k.clone();
    }
    contract::MatMul { dtype: out.dtype, m, n, k, batch, a_stride, b_stride, trans_a, trans_b }
}

fn conv(func: &Func, node: &Node, kind: Contraction) -> contract::Conv {
    let ty = |i: usize| func.ty(node.operands[i]).shape.clone();
    let result = func.ty(node.results[0]).clone();
    // The forward convolution's image, filter and output.
    let (image, filter, output, kind) = match kind {
        Contraction::Conv2dGradInput => (result.shape.clone(), ty(1), ty(0), ConvKind::GradInput),
        Contraction::Conv2dGradFilter => (ty(0), result.shape.clone(), ty(1), ConvKind::GradFilter),
        Contraction::Conv2d => (ty(0), ty(1), result.shape.clone(), ConvKind::Forward),
        Contraction::MatMul => unreachable!("`{}` is no convolution", node.op.name()),
    };
    let pair = |name: &str, at: [usize; 2], default: u32| -> [u32; 2] {
        let list = node.attrs.ints(name);
        at.map(|i| list.get(i).and_then(|v| u32::try_from(*v).ok()).unwrap_or(default))
    };
    let kernel = [2, 3].map(|i| {
        filter.get(i).and_then(Dim::as_const).and_then(|v| u32::try_from(v).ok()).unwrap_or(1)
    });
    contract::Conv {
        kind,
        dtype: result.dtype,
        batch: image[0].clone(),
        in_channels: image[1].clone(),
        in_size: [image[2].clone(), image[3].clone()],
        out_channels: output[1].clone(),
        out_size: [output[2].clone(), output[3].clone()],
        kernel,
        stride: pair("stride", [0, 1], 1),
        dilation: pair("dilation", [0, 1], 1),
        pad: pair("pad", [0, 2], 0),
        groups: u32::try_from(node.attrs.int("groups")).unwrap_or(1).max(1),
    }
}
