//! Queues in built graphs.
//!
//! The types of what is taken out are those the queue was declared with, so
//! taking needs no check of its own; putting is checked with the whole graph,
//! where the queue's declaration is.

use super::{
    Arg, EntryBuilder, EntryDecl, GraphBuilder, ItemKind, Node, Piece, Shape, Size, Update,
};
use std::panic::Location;
use tfc_ir::diag::Diag;
use tfc_ir::{DType, TensorType};

/// A queue of the graph under construction: elements of one tensor for each part.
#[derive(Clone)]
pub struct QueueNode {
    graph: GraphBuilder,
    item: usize,
    /// One for each part; none after a mistake.
    parts: Vec<Option<TensorType>>,
}

impl GraphBuilder {
    /// A queue of a kind of the language (`fifo`, `shuffle`, `priority`), the
    /// element type and shape of each part, and options such as `capacity`.
    ///
    /// ```
    /// use tfc::{DType::F32, GraphBuilder};
    /// let g = GraphBuilder::new("rows");
    /// let rows = g.queue("rows", "fifo", &[(F32, 2.into())], &[("capacity", 8.into())]);
    /// let x = rows.dequeue_many(3);
    /// g.entry("next", &[], &[("sums", &x[0].sum_over(&[1]))]);
    ///
    /// let module = g.compile()?;
    /// let queue = module.queue("rows")?;
    /// for i in 0..3 {
    ///     queue.enqueue((&ndarray::array![i as f32, 1.0],))?;
    /// }
    /// let sums = module.call("next", ())?.array::<f32>("sums")?;
    /// assert_eq!(sums, ndarray::array![1.0, 2.0, 3.0].into_dyn());
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[track_caller]
    pub fn queue(
        &self,
        name: &str,
        kind: &str,
        parts: &[(DType, Shape)],
        options: &[(&str, Arg)],
    ) -> QueueNode {
        let site = Location::caller();
        let parts: Vec<Option<TensorType>> =
            parts.iter().map(|(dtype, shape)| self.type_of(*dtype, shape.clone(), site)).collect();
        let mut words: Vec<String> = parts.iter().flatten().map(|t| t.to_string()).collect();
        words.extend(options.iter().map(|(name, value)| format!("{name}: {value}")));
        let decl = format!("{kind}({})", words.join(", "));
        let node = self.named_item(ItemKind::Queue { decl }, name, None, site);
        QueueNode { graph: self.clone(), item: node.item, parts }
    }

    /// An entry nobody calls: it runs again and again on a thread of its own
    /// while an entry takes from the queues it fills. Its updates are given by
    /// [`EntryBuilder::with`].
    #[track_caller]
    pub fn runner(&self, name: &str) -> EntryBuilder {
        let site = Location::caller();
        self.expect_name(name, site);
        let mut state = self.state.borrow_mut();
        state.entries.push(EntryDecl {
            name: name.to_string(),
            doc: String::new(),
            inputs: vec![],
            outputs: vec![],
            updates: vec![],
            runner: true,
            site,
        });
        EntryBuilder { graph: self.clone(), index: state.entries.len() - 1 }
    }
}

impl QueueNode {
    /// Puts in one element, a node for each part; waits while the queue is full.
    #[track_caller]
    pub fn enqueue(&self, element: &[&Node]) -> Update {
        self.put("enqueue", element, Location::caller())
    }

    /// Puts in an element for each row of the nodes.
    #[track_caller]
    pub fn enqueue_many(&self, rows: &[&Node]) -> Update {
        self.put("enqueue_many", rows, Location::caller())
    }

    /// Takes out an element: a node for each part.
    #[track_caller]
    pub fn dequeue(&self) -> Vec<Node> {
        let types: Option<Vec<TensorType>> = self.parts.iter().cloned().collect();
        self.take("dequeue", vec![], types, Location::caller())
    }

    /// Takes out `count` elements, a number or a run-time dim, each part stacked
    /// along a new first axis.
    #[track_caller]
    pub fn dequeue_many(&self, count: impl Into<Size>) -> Vec<Node> {
        let site = Location::caller();
        let count = match count.into().dim() {
            Ok(count) => count,
            Err(message) => {
                self.graph.fail(Diag::error("E0104", message), site);
                return self.take("dequeue_many", vec![], None, site);
            }
        };
        let stacked = |t: &TensorType| {
            let shape = std::iter::once(count.clone()).chain(t.shape.iter().cloned());
            TensorType::new(t.dtype, shape.collect::<Vec<_>>())
        };
        let types: Option<Vec<TensorType>> =
            self.parts.iter().map(|t| t.as_ref().map(stacked)).collect();
        let option = vec![Piece::Text(format!(", count: {count}"))];
        self.take("dequeue_many", option, types, site)
    }

    /// How many elements wait.
    #[track_caller]
    pub fn size(&self) -> Node {
        let text = self.call("queue_size", vec![]);
        let name = self.graph.fresh();
        let ty = TensorType::new(DType::I64, vec![]);
        self.graph.push(ItemKind::Call { text }, name, Some(ty), Location::caller())
    }

    /// Says that nothing more is put in.
    #[track_caller]
    pub fn close(&self) -> Update {
        self.graph.effect(self.call("close", vec![]), Location::caller())
    }

    fn put(&self, op: &str, parts: &[&Node], site: super::Site) -> Update {
        let mut rest = vec![];
        for part in parts {
            rest.push(Piece::Text(", ".into()));
            rest.push(self.graph.piece(part));
        }
        self.graph.effect(self.call(op, rest), site)
    }

    fn take(
        &self,
        op: &str,
        rest: Vec<Piece>,
        types: Option<Vec<TensorType>>,
        site: super::Site,
    ) -> Vec<Node> {
        self.graph.many(self.call(op, rest), types, self.parts.len(), site)
    }

    /// `op(queue rest)`.
    fn call(&self, op: &str, rest: Vec<Piece>) -> Vec<Piece> {
        let mut text = vec![Piece::Text(format!("{op}(")), Piece::Item(self.item)];
        text.extend(rest);
        text.push(Piece::Text(")".into()));
        text
    }
}
