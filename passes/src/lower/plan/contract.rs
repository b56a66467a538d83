//! Matrix products and convolutions as steps, with what is fused behind them.

use super::{Planner, outputs as written};
use crate::lower::fuse::Group;
use crate::lower::group;
use crate::lower::operands::contract_operands;
use tfc_abi::plan::{BufId, Conv, ConvKind, Epilogue, MatMul, Step};
use tfc_ir::lower::{Contraction, Lower};
use tfc_ir::{Dim, Node, NodeId, RegionId, ValueId};

impl Planner<'_> {
    pub(super) fn contract(
        &mut self,
        g: &Group,
        id: NodeId,
        region: RegionId,
        steps: &mut Vec<Step>,
    ) {
        let func = self.func;
        let node = &func.nodes[id];
        let result = node.results[0];
        let Lower::Contract(kind) = node.op.def().lower else { return };
        if kind == Contraction::ScatterAdd {
            return self.scatter_add(node, region, steps);
        }
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
            let outputs = written(&lowered.kernel);
            let kernel = self.build.kernel(lowered.kernel);
            Epilogue { kernel, bufs, outputs, dims }
        });
        let step = match kind {
            Contraction::MatMul => self.matmul(node, lhs, rhs, (a, b, c), epilogue),
            Contraction::Conv2d | Contraction::Conv2dGradInput | Contraction::Conv2dGradFilter => {
                self.conv(node, kind, (a, b, c), epilogue)
            }
            Contraction::ScatterAdd => unreachable!("`scatter_add` is a step of its own"),
        };
        steps.push(step);
    }

    fn matmul(
        &mut self,
        node: &Node,
        lhs: (ValueId, bool),
        rhs: (ValueId, bool),
        (a, b, c): (BufId, BufId, BufId),
        epilogue: Option<Epilogue>,
    ) -> Step {
        let func = self.func;
        let (trans_a, trans_b) = (node.attrs.bool("trans_a"), node.attrs.bool("trans_b"));
        let out = func.ty(node.results[0]);
        let r = out.rank();
        let (mut m, n) = (out.shape[r - 2].clone(), out.shape[r - 1].clone());
        let lt = func.ty(node.operands[0]);
        let k = lt.shape[if trans_a { r - 2 } else { r - 1 }].clone();
        let mut batch = Dim::product(&out.shape[..r - 2]);
        let mut a_stride = if lhs.1 { Dim::constant(0) } else { m.clone() * k.clone() };
        let b_stride = if rhs.1 { Dim::constant(0) } else { n.clone() * k.clone() };
        // One right-hand side for all batches: the batches are more rows.
        if rhs.1 && !lhs.1 && !trans_a {
            m = batch * m;
            batch = Dim::constant(1);
            a_stride = m.clone() * k.clone();
        }
        Step::MatMul(MatMul {
            dtype: out.dtype,
            a,
            b,
            c,
            m: self.dim(&m),
            n: self.dim(&n),
            k: self.dim(&k),
            batch: self.dim(&batch),
            a_stride: self.dim(&a_stride),
            b_stride: self.dim(&b_stride),
            trans_a,
            trans_b,
            epilogue,
        })
    }

    fn conv(
        &mut self,
        node: &Node,
        kind: Contraction,
        (lhs, rhs, out): (BufId, BufId, BufId),
        epilogue: Option<Epilogue>,
    ) -> Step {
        let func = self.func;
        let ty = |i: usize| func.ty(node.operands[i]).shape.clone();
        let result = func.ty(node.results[0]).clone();
        // The forward convolution's image, filter and output.
        let (image, filter, output, kind) = match kind {
            Contraction::Conv2dGradInput => {
                (result.shape.clone(), ty(1), ty(0), ConvKind::GradInput)
            }
            Contraction::Conv2dGradFilter => {
                (ty(0), result.shape.clone(), ty(1), ConvKind::GradFilter)
            }
            Contraction::Conv2d => (ty(0), ty(1), result.shape.clone(), ConvKind::Forward),
            Contraction::MatMul | Contraction::ScatterAdd => {
                unreachable!("`{}` is no convolution", node.op.name())
            }
        };
        let pair = |name: &str, at: [usize; 2], default: u32| -> [u32; 2] {
            let list = node.attrs.ints(name);
            at.map(|i| list.get(i).and_then(|v| u32::try_from(*v).ok()).unwrap_or(default))
        };
        let kernel = [2, 3].map(|i| {
            filter.get(i).and_then(Dim::as_const).and_then(|v| u32::try_from(v).ok()).unwrap_or(1)
        });
        Step::Conv(Conv {
            kind,
            dtype: result.dtype,
            lhs,
            rhs,
            out,
            batch: self.dim(&image[0]),
            in_channels: self.dim(&image[1]),
            in_h: self.dim(&image[2]),
            in_w: self.dim(&image[3]),
            out_channels: self.dim(&output[1]),
            out_h: self.dim(&output[2]),
            out_w: self.dim(&output[3]),
            kernel,
            stride: pair("stride", [0, 1], 1),
            dilation: pair("dilation", [0, 1], 1),
            pad: pair("pad", [0, 2], 0),
            groups: u32::try_from(node.attrs.int("groups")).unwrap_or(1).max(1),
            epilogue,
        })
    }
}
