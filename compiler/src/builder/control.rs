//! Branches, loops and functions of one's own.
//!
//! The closures given to these run once, while the graph is built: the nodes they
//! make become the statements of a block. A block may use nodes from around it.

use super::write::needed;
use super::{Function, GraphBuilder, ItemKind, Node, Piece, Shape, Update, site};
use std::collections::BTreeSet;
use std::panic::Location;
use tfc_ir::DType;
use tfc_ir::diag::Diag;

/// The statements of a block, and what it gives.
struct Block {
    text: Vec<Piece>,
    results: Vec<Node>,
}

impl GraphBuilder {
    /// Computes one of two things: `then` if the condition (one bool) holds, else
    /// `otherwise`. Both give as many values, of the same types.
    ///
    /// ```
    /// use tfc::{DType::F32, GraphBuilder};
    /// let g = GraphBuilder::new("abs");
    /// let x = g.input("x", F32, ());
    /// let y = g.if_else(&x.lt(0.0), || vec![-&x], || vec![x.clone()]);
    /// g.entry("abs", &[&x], &[("y", &y[0])]);
    /// let module = g.compile()?;
    /// assert_eq!(module.call("abs", (-2.0f32,))?.scalar::<f32>("y")?, 2.0);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[track_caller]
    pub fn if_else(
        &self,
        condition: &Node,
        then: impl FnOnce() -> Vec<Node>,
        otherwise: impl FnOnce() -> Vec<Node>,
    ) -> Vec<Node> {
        let site = Location::caller();
        let (then, otherwise) = (self.block(&[], then), self.block(&[], otherwise));
        let count = then.results.len();
        if count != otherwise.results.len() || count == 0 {
            let message = format!(
                "the branches of an `if` give {count} and {} values",
                otherwise.results.len()
            );
            let diag = Diag::error("E0433", message)
                .help("both give the same number, at least one; `when` is for effects alone");
            self.fail(diag, site);
            return vec![];
        }
        let mut text = vec![words("if "), self.piece(condition)];
        self.braces(&mut text, then, "yield");
        text.push(words(" else"));
        self.braces(&mut text, otherwise, "yield");
        let types = self.check(&text, count, site);
        self.many(text, types, count, site)
    }

    /// Performs the updates made in `then` when the condition (one bool) holds.
    ///
    /// ```
    /// use tfc::{DType::{F32, I64}, GraphBuilder};
    /// let g = GraphBuilder::new("counted");
    /// let x = g.input("x", F32, ());
    /// let seen = g.var("seen", I64, (), 0);
    /// let count = g.when(&x.gt(0.0), || {
    ///     seen.assign_add(1);
    /// });
    /// g.entry("look", &[&x], &[]).with(&[&count]);
    /// let module = g.compile()?;
    /// module.call("look", (1.0f32,))?;
    /// module.call("look", (-1.0f32,))?;
    /// assert_eq!(module.var::<i64>("seen")?.first(), Some(&1));
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[track_caller]
    pub fn when(&self, condition: &Node, then: impl FnOnce()) -> Update {
        let site = Location::caller();
        let block = self.block(&[], || {
            then();
            vec![]
        });
        let mut text = vec![words("if "), self.piece(condition)];
        self.braces(&mut text, block, "yield");
        self.check(&text, 0, site);
        self.effect(text, site)
    }

    /// Repeats `body` while `condition` holds. Both get the values carried, which
    /// begin as `start`; `body` gives the next ones, of the same types. The values
    /// after the last iteration come out.
    ///
    /// ```
    /// use tfc::{DType::I64, GraphBuilder};
    /// let g = GraphBuilder::new("powers");
    /// let limit = g.input("limit", I64, ());
    /// let one = g.constant(1i64);
    /// let out = g.while_loop(&[&one], |v| v[0].lt(&limit), |v| vec![&v[0] * 2]);
    /// g.entry("power", &[&limit], &[("p", &out[0])]);
    /// let module = g.compile()?;
    /// assert_eq!(module.call("power", (100i64,))?.scalar::<i64>("p")?, 128);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    #[track_caller]
    pub fn while_loop(
        &self,
        start: &[&Node],
        condition: impl FnOnce(&[Node]) -> Node,
        body: impl FnOnce(&[Node]) -> Vec<Node>,
    ) -> Vec<Node> {
        let site = Location::caller();
        let carried: Vec<Node> = start
            .iter()
            .map(|n| self.push(ItemKind::Carried, self.fresh(), n.ty(), site))
            .collect();
        let condition = self.block(&carried, || vec![condition(&carried)]);
        let body = self.block(&carried, || body(&carried));
        if body.results.len() != start.len() {
            let message = format!(
                "the body of a loop gives {} values, but it carries {}",
                body.results.len(),
                start.len()
            );
            self.fail(Diag::error("E0435", message), site);
            return vec![];
        }
        let mut text = vec![words("while (")];
        for (i, (to, from)) in carried.iter().zip(start).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            text.push(Piece::Text(format!("{comma}{} = ", to.name())));
            text.push(self.piece(from));
        }
        text.push(words(")"));
        self.braces(&mut text, condition, "yield");
        text.push(words(" do"));
        self.braces(&mut text, body, "yield");
        let types = self.check(&text, start.len(), site);
        self.many(text, types, start.len(), site)
    }

    /// Defines a function, to be called with [`GraphBuilder::op`] by its name. The
    /// types of the parameters are those its body is checked with; it may be
    /// called with others that fit. It sees variables, but no other nodes.
    ///
    /// ```
    /// use tfc::{DType::F32, GraphBuilder};
    /// let g = GraphBuilder::new("calls");
    /// g.func("halfway", &[("a", F32, "N".into()), ("b", F32, "N".into())], |p| {
    ///     vec![(&p[0] + &p[1]) * 0.5]
    /// });
    /// let x = g.input("x", F32, "N");
    /// let y = g.op("halfway", &[&x, &x.exp()], &[]);
    /// g.entry("f", &[&x], &[("y", &y)]);
    /// assert!(g.compile().is_ok());
    /// ```
    #[track_caller]
    pub fn func(
        &self,
        name: &str,
        params: &[(&str, DType, Shape)],
        body: impl FnOnce(&[Node]) -> Vec<Node>,
    ) {
        let site = Location::caller();
        if self.claim(name, site) {
            return;
        }
        let nodes: Vec<Node> = params
            .iter()
            .map(|(param, dtype, shape)| {
                self.expect_name(param, site);
                let ty = self.type_of(*dtype, shape.clone(), site);
                self.push(ItemKind::Carried, self.fresh(), ty, site)
            })
            .collect();
        let block = self.block(&nodes, || body(&nodes));
        let names: Vec<String> = nodes.iter().map(Node::name).collect();
        let mut text = vec![Piece::Text(format!("func {name}({})", names.join(", ")))];
        self.braces(&mut text, block, "return");
        let mut state = self.state.borrow_mut();
        let outside = super::write::operands(&text)
            .find(|i| !matches!(state.items[*i].kind, ItemKind::Var { .. }));
        if let Some(i) = outside {
            let message = format!("`{name}` uses `{}`, which is not its own", state.items[i].name);
            let diag = Diag::error("E0123", message).help("make it a parameter of the function");
            let mut sites = site::Sites::one(site);
            sites.also.push((state.items[i].site, "made here".into()));
            state.errors.push((diag, sites));
            return;
        }
        let vars = super::write::operands(&text).collect();
        // The parameters as the user calls them, to be given by name.
        let own = |t: String| {
            names
                .iter()
                .zip(params)
                .fold(t, |t, (fresh, (name, _, _))| replace_word(&t, fresh, name))
        };
        let text = text.into_iter().map(|piece| match piece {
            Piece::Text(t) => Piece::Text(own(t)),
            other => other,
        });
        let text = text.collect();
        state.functions.push(Function { text, vars, site });
    }

    /// Adds functions written in the graph language: `func square(x) { return x * x }`.
    /// They are called with [`GraphBuilder::op`].
    #[track_caller]
    pub fn define(&self, functions: &str) -> &GraphBuilder {
        let site = Location::caller();
        let function = Function { text: vec![words(functions)], vars: BTreeSet::new(), site };
        self.state.borrow_mut().functions.push(function);
        self.check(&[words("print(0.0, label: \"\")")], 0, site);
        self
    }

    /// Runs `build`, and turns what it makes into statements. `own` are the values
    /// the block is given.
    fn block(&self, own: &[Node], build: impl FnOnce() -> Vec<Node>) -> Block {
        let first = self.state.borrow().items.len();
        let results = build();
        let state = self.state.borrow();
        let made = first..state.items.len();
        // What a block inside this one does, that block does.
        let effects: Vec<usize> = made
            .clone()
            .filter(|i| matches!(state.items[*i].kind, ItemKind::Effect { .. }))
            .filter(|i| !state.inside.contains(i))
            .collect();
        let own_results = results.iter().filter(|n| self.owns(n)).map(|n| n.item);
        let roots: Vec<usize> = own_results.chain(effects.iter().copied()).collect();
        let mut local: BTreeSet<usize> =
            needed(&state, &roots).into_iter().filter(|i| made.contains(i)).collect();
        let statements: Vec<usize> = local.iter().copied().collect();
        local.extend(own.iter().map(|n| n.item));
        let mut text = vec![];
        for i in statements {
            if let Some(pieces) = super::write::statement_pieces(&state, i) {
                text.extend(pieces);
                text.push(words("\n"));
            }
        }
        drop(state);
        self.state.borrow_mut().inside.extend(effects);
        if !results.is_empty() {
            text.push(words("@ "));
            for (i, node) in results.iter().enumerate() {
                text.extend((i > 0).then(|| words(", ")));
                text.push(self.piece(node));
            }
            text.push(words("\n"));
        }
        let state = self.state.borrow();
        let inner = |piece: Piece| match piece {
            Piece::Item(i) if local.contains(&i) => Piece::Text(state.items[i].name.clone()),
            other => other,
        };
        let text = text.into_iter().map(inner).collect();
        drop(state);
        Block { text, results }
    }

    /// A block in braces, giving its values with `word`.
    fn braces(&self, text: &mut Vec<Piece>, block: Block, word: &str) {
        text.push(words(" {\n"));
        text.extend(block.text.into_iter().map(|piece| match piece {
            Piece::Text(t) if t == "@ " => Piece::Text(format!("{word} ")),
            other => other,
        }));
        text.push(words("}"));
    }
}

fn words(text: &str) -> Piece {
    Piece::Text(text.to_string())
}

/// `text` with every whole word `from` replaced.
fn replace_word(text: &str, from: &str, to: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let before = rest[..at].chars().next_back();
        let after = rest[at + from.len()..].chars().next();
        let whole = !before.is_some_and(is_word) && !after.is_some_and(is_word);
        out.push_str(&rest[..at]);
        out.push_str(if whole { to } else { from });
        rest = &rest[at + from.len()..];
    }
    out + rest
}
