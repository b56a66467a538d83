//! Steps on queues.

use super::Planner;
use crate::lower::hazards::waits;
use tfc_abi::plan::{QueueAction, QueueStep, Step};
use tfc_ir::{Dim, Node, RegionId, VarId};

impl Planner<'_> {
    /// Something done with a queue: operands are read, results written.
    pub(super) fn queue_step(
        &mut self,
        action: QueueAction,
        queue: VarId,
        node: &Node,
        region: RegionId,
    ) -> Step {
        if waits(self.graph, node) {
            // Before the step proper, which reads and writes after its waits.
            let wait = self.tick();
            self.waits.push(wait);
        }
        let time = self.tick();
        let mut bufs = vec![];
        for &v in &node.operands {
            bufs.push(self.read(v, time));
        }
        for &v in &node.results {
            bufs.push(self.write(v, time, region));
        }
        let rows = match action {
            QueueAction::EnqueueMany => node.operands.first(),
            QueueAction::DequeueMany => node.results.first(),
            _ => None,
        };
        let count = rows.and_then(|v| self.func.ty(*v).shape.first().cloned());
        let count = self.dim(&count.unwrap_or(Dim::constant(1)));
        let place = self.build.place(node.span);
        Step::Queue(QueueStep { action, queue: self.build.symbol(queue), bufs, count, place })
    }
}
