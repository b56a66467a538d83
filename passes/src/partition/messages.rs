//! What travels between the parts of an entry, from where and until when.

use crate::place::{is_everywhere, uses};
use std::collections::BTreeMap;
use tfc_ir::diag::Span;
use tfc_ir::op::Effect;
use tfc_ir::{Func, Node, NodeId, ValueId, verify};

/// A tensor, or the news that something has happened, on its way to another task.
/// Places are positions among the top-level nodes of the entry.
pub(super) struct Message {
    pub value: Option<ValueId>,
    pub from: usize,
    pub to: usize,
    /// Sent behind the node before this place.
    pub sent: usize,
    /// Received in front of the node at this place.
    pub received: usize,
    /// Effects that have happened when it is sent.
    pub after: Vec<NodeId>,
    pub name: String,
    pub span: Span,
}

pub(super) struct Messages(Vec<Message>);

impl Messages {
    pub fn of(func: &Func, homes: &BTreeMap<NodeId, usize>, tasks: usize) -> Messages {
        let nodes = &func.regions[func.body].nodes;
        // Where each value is, and from which place on.
        let mut made: BTreeMap<ValueId, (usize, usize)> = BTreeMap::new();
        made.extend(func.params().iter().map(|p| (*p, (0, 0))));
        for (at, id) in nodes.iter().enumerate() {
            if let Some(task) = homes.get(id) {
                made.extend(func.nodes[*id].results.iter().map(|v| (*v, (*task, at + 1))));
            }
        }
        let mut list: BTreeMap<(ValueId, usize), Message> = BTreeMap::new();
        let mut need = |value: ValueId, to: usize, at: usize| {
            let Some(&(from, sent)) = made.get(&value).filter(|m| m.0 != to) else { return };
            list.entry((value, to)).or_insert_with(|| Message {
                value: Some(value),
                from,
                to,
                sent,
                received: at,
                after: vec![],
                name: describe(func, value),
                span: func.def(value).map_or(func.span, |id| func.nodes[id].place()),
            });
        };
        for (at, id) in nodes.iter().enumerate() {
            let Some(&task) = homes.get(id) else { continue };
            for value in uses(func, &func.nodes[*id]) {
                need(value, task, at);
            }
        }
        for &value in func.results() {
            need(value, 0, nodes.len());
        }
        let mut out = Messages(list.into_values().collect());
        out.arrange(tasks);
        out.keep_order(func, homes);
        out.arrange(tasks);
        out
    }

    pub fn sent_at(&self, task: usize, at: usize) -> impl Iterator<Item = &Message> {
        self.0.iter().filter(move |m| m.from == task && m.sent == at)
    }

    pub fn received_at(&self, task: usize, at: usize) -> impl Iterator<Item = &Message> {
        self.0.iter().filter(move |m| m.to == task && m.received == at)
    }

    /// In the order they are sent in. Between two tasks they are received in that order
    /// too: each no later than those sent after it.
    fn arrange(&mut self, tasks: usize) {
        self.0.sort_by_key(|m| (m.sent, m.value.is_none(), m.value, m.to, m.received));
        let mut next = vec![usize::MAX; tasks * tasks];
        for m in self.0.iter_mut().rev() {
            let next = &mut next[m.from * tasks + m.to];
            *next = m.received.min(*next);
            m.received = *next;
        }
    }

    /// Empty messages, where the order of effects on two tasks matters and nothing else
    /// that is sent keeps it.
    fn keep_order(&mut self, func: &Func, homes: &BTreeMap<NodeId, usize>) {
        let nodes = &func.regions[func.body].nodes;
        let places: BTreeMap<NodeId, usize> = nodes.iter().copied().zip(0..).collect();
        // The last thing each task may fail at, show or wait for.
        let mut last: BTreeMap<usize, (usize, NodeId)> = BTreeMap::new();
        for (at, &id) in nodes.iter().enumerate() {
            let Some(&task) = homes.get(&id) else { continue };
            let node = &func.nodes[id];
            let mut before: Vec<(usize, NodeId, usize)> = vec![];
            for n in &node.after {
                if let (Some(place), Some(from)) = (places.get(n), homes.get(n)) {
                    before.push((*place, *n, *from));
                }
            }
            if acts(func, node, Effect::Write) {
                before.extend(last.iter().map(|(from, (place, n))| (*place, *n, *from)));
            }
            for (place, effect, from) in before.into_iter().filter(|b| b.2 != task) {
                let kept = |m: &Message| {
                    (m.from, m.to) == (from, task) && m.sent > place && m.received <= at
                };
                if self.0.iter().any(kept) {
                    continue;
                }
                self.0.push(Message {
                    value: None,
                    from,
                    to: task,
                    sent: place + 1,
                    received: at,
                    after: vec![effect],
                    name: format!("the news of a `{}`", func.nodes[effect].op.name()),
                    span: func.nodes[effect].place(),
                });
            }
            if acts(func, node, Effect::Io) {
                last.insert(task, (at, id));
            }
        }
    }
}

/// Whether a node, or something in it, has such an effect.
fn acts(func: &Func, node: &Node, effect: Effect) -> bool {
    node.op.def().effect == effect
        || verify::effectful(func, node)
            && node
                .regions
                .iter()
                .any(|r| func.regions[*r].nodes.iter().any(|n| acts(func, &func.nodes[*n], effect)))
}

fn describe(func: &Func, value: ValueId) -> String {
    match (&func.values[value].name, func.def(value)) {
        (Some(name), _) => format!("`{name}`"),
        (None, Some(id)) if !is_everywhere(func, &func.nodes[id]) => {
            format!("the result of a `{}`", func.nodes[id].op.name())
        }
        _ => "a value".to_string(),
    }
}
