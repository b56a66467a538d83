//! Effects as steps: each op that changes or shows something is one.

use super::{Planner, not_compiled};
use cranelift_entity::EntityRef;
use tfc_abi::plan::{
    BufId, Call, CheckFinite, CheckIndex, Combine, Exchange, Message, Step, Steps,
};
use tfc_ir::diag::Diag;
use tfc_ir::lower::{CallCx, Lower, Routine, StepKind};
use tfc_ir::{Dim, Node, NodeId, RegionId, TensorType};

impl Planner<'_> {
    pub(super) fn effect(
        &mut self,
        id: NodeId,
        region: RegionId,
        steps: &mut Steps,
    ) -> Result<(), Vec<Diag>> {
        let func = self.func;
        let node = &func.nodes[id];
        let kind = match node.op.def().lower {
            Lower::Step(kind) => kind,
            Lower::Call(routine, ints) => {
                steps.push(self.routine(routine, ints, node, region));
                return Ok(());
            }
            Lower::AddRows => {
                self.add_rows(node, region, steps);
                return Ok(());
            }
            _ => return Err(vec![not_compiled(node)]),
        };
        match (kind, node.var) {
            (StepKind::Assign, Some(v)) => {
                let dst = self.variable(v);
                let src = self.value(node.operands[0]);
                let ty = self.graph.vars[v].ty.clone();
                let step = self.copy(src, dst, &ty, region);
                steps.push(step);
            }
            (StepKind::ScatterRows { add }, Some(v)) => {
                let dst = self.variable(v);
                let ty = self.graph.vars[v].ty.clone();
                let routine = match add {
                    true => Routine::ScatterAddRows,
                    false => Routine::ScatterSetRows,
                };
                let (ids, updates) = (node.operands[0], node.operands[1]);
                let step = self.scatter(routine, dst, &ty, (ids, updates), false);
                steps.push(step);
            }
            (StepKind::Restore, Some(v)) => {
                let dst = self.variable(v);
                let ty = self.graph.vars[v].ty.clone();
                let time = self.tick();
                self.storages.touch(dst, time, true);
                let buf = self.buffer(dst, &ty);
                let (path, key) = (node.attrs.str("path"), node.attrs.str("key"));
                let key = if key.is_empty() { self.graph.vars[v].name.as_str() } else { key };
                let (path, key) = (path.to_string(), key.to_string());
                let place = self.build.place(node.span);
                steps.push(Step::Restore { path, key, buf, place });
            }
            (StepKind::Save, _) => {
                let time = self.tick();
                let bufs = node.operands.iter().map(|v| self.read(*v, time)).collect();
                let names = node.attrs.str("names").split(',').map(str::to_string).collect();
                let path = node.attrs.str("path").to_string();
                let place = self.build.place(node.span);
                steps.push(Step::Save { path, names, bufs, place });
            }
            (StepKind::Print, _) => {
                let time = self.tick();
                let buf = self.read(node.operands[0], time);
                steps.push(Step::Print { label: node.attrs.str("label").to_string(), buf });
            }
            (StepKind::Assert, _) => {
                let time = self.tick();
                let cond = self.read(node.operands[0], time);
                let message = node.attrs.str("message").to_string();
                let place = self.build.place(node.span);
                steps.push(Step::Assert { cond, message, place });
            }
            (StepKind::CheckFinite, _) => {
                let time = self.tick();
                let text = |name: &str| node.attrs.str(name).to_string();
                steps.push(Step::CheckFinite(CheckFinite {
                    bufs: node.operands.iter().map(|v| self.read(*v, time)).collect(),
                    name: text("name"),
                    user: text("user"),
                    names: text("names"),
                    place: self.build.place(node.span),
                }));
            }
            (StepKind::CheckIndex, _) => {
                let time = self.tick();
                let ids = self.read(node.operands[0], time);
                let bound = |name: &str| node.attrs.shape(name).first().cloned();
                let bounds = [bound("size"), bound("width")].map(|d| d.unwrap_or(1i64.into()));
                let bounds = self.shape(&bounds);
                steps.push(Step::CheckIndex(CheckIndex {
                    ids,
                    size: bounds[0],
                    width: bounds[1],
                    axis: node.attrs.int("axis") as u32,
                    name: node.attrs.str("name").to_string(),
                    user: node.attrs.str("user").to_string(),
                    place: self.build.place(node.span),
                }));
            }
            (StepKind::Exchange, _) => self.exchange(node, region, steps),
            (StepKind::Send, _) => {
                let time = self.tick();
                let buf = node.operands.first().map(|v| self.read(*v, time));
                steps.push(Step::Send(self.message(node, "to", buf)?));
            }
            (StepKind::Recv, _) => {
                let time = self.tick();
                let buf = node.results.first().map(|v| self.write(*v, time, region));
                steps.push(Step::Recv(self.message(node, "from", buf)?));
            }
            (StepKind::Push, _) => {
                let stack = self.stack(node);
                let time = self.tick();
                let src = self.read(node.operands[0], time);
                steps.push(Step::Push { stack, src });
            }
            (StepKind::Pop, _) => {
                let stack = self.stack(node);
                let time = self.tick();
                let dst = self.write(node.results[0], time, region);
                let name = node.attrs.str("stack").to_string();
                steps.push(Step::Pop { stack, dst, name });
            }
            (StepKind::Queue(action), Some(v)) => {
                steps.push(self.queue_step(action, v, node, region));
            }
            (StepKind::Branch, _) => self.branch(node, region, steps)?,
            (StepKind::Loop, _) => self.repeat(node, region, steps)?,
            (StepKind::Read | StepKind::Update(_), _) => {
                unreachable!("`{}` is no step when plans are made", node.op.name())
            }
            (
                StepKind::Assign
                | StepKind::ScatterRows { .. }
                | StepKind::Restore
                | StepKind::Queue(_),
                None,
            ) => unreachable!("`{}` without a symbol", node.op.name()),
        }
        Ok(())
    }

    /// A routine reads its operands and writes its result.
    fn routine(
        &mut self,
        func: Routine,
        ints: fn(&CallCx<'_>) -> Vec<Dim>,
        node: &Node,
        region: RegionId,
    ) -> Step {
        let operands: Vec<&TensorType> = node.operands.iter().map(|v| self.func.ty(*v)).collect();
        let result = self.func.ty(node.results[0]);
        let ints = ints(&CallCx { attrs: &node.attrs, operands: &operands, result });
        let ints = self.shape(&ints);
        let time = self.tick();
        let reads: Vec<_> = node.operands.iter().map(|v| self.read(*v, time)).collect();
        let mut bufs = vec![self.write(node.results[0], time, region)];
        bufs.extend(reads);
        Step::Call(Call { func, bufs, ints })
    }

    /// The values are brought to the results' places and combined there.
    fn exchange(&mut self, node: &Node, region: RegionId, steps: &mut Steps) {
        for (&from, &to) in node.operands.iter().zip(&node.results) {
            let ty = self.func.ty(to).clone();
            let (src, dst) = (self.value(from), self.value(to));
            self.storages.list[dst.0 as usize].region = region.index() as u32;
            steps.push(self.copy(src, dst, &ty, region));
            self.storages.allow_in_place(self.time, dst, src);
        }
        let time = self.tick();
        let mut bufs = vec![];
        for &to in &node.results {
            let dst = self.value(to);
            self.storages.touch(dst, time, false);
            self.storages.touch(dst, time, true);
            bufs.push(self.buffer(dst, &self.func.ty(to).clone()));
        }
        let combine = match node.attrs.str("op") {
            "sum" => Combine::Sum,
            "max" => Combine::Max,
            "min" => Combine::Min,
            _ => Combine::Mean,
        };
        let name = match node.attrs.str("name") {
            "" if node.results.len() > 1 => format!("{} tensors", node.results.len()),
            name => name.to_string(),
        };
        let place = self.build.place(node.span);
        steps.push(Step::Exchange(Exchange { combine, bufs, name, place }));
    }

    fn message(&self, node: &Node, end: &str, buf: Option<BufId>) -> Result<Message, Vec<Diag>> {
        let name = node.attrs.str(end);
        let tasks = crate::partition::tasks(self.graph);
        let Some(peer) = tasks.iter().position(|t| **t == *name) else {
            let message = format!("no entry of the graph is on the task `{name}`");
            return Err(vec![Diag::error("E0416", message).at(node.span, "no such task")]);
        };
        Ok(Message {
            peer: peer as u32,
            buf,
            name: node.attrs.str("name").to_string(),
            place: self.build.place(node.span),
        })
    }

    fn stack(&mut self, node: &Node) -> u32 {
        let next = self.stacks.len() as u32;
        *self.stacks.entry(node.attrs.str("stack").to_string()).or_insert(next)
    }
}
