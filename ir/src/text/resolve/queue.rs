//! Queues and readers: their declarations, and what ops do with them.
//!
//! A queue is a symbol in the table of variables, so effects on it keep text
//! order as those on a variable do; it has no value of its own.

use super::Resolver;
use super::ops::{AttrArg, count};
use super::scope::{Bound, Spanned, Val};
use crate::build::NodeSpec;
use crate::diag::{Diag, Span};
use crate::graph::{Symbol, Var};
use crate::ops::queue::{fills, is_queue_op};
use crate::text::ast::{Arg, EntryItem, Expr, ExprKind, Name, QueueItem};
use crate::text::names::nearest;
use crate::{DType, Op, OpDef, TensorType, VarId};
use tfc_abi::plan::{Format, Part, QueueInfo, QueueKind, ReaderInfo};

/// Kinds of queues, and the options each takes.
const KINDS: &[(&str, &[&str])] = &[
    ("fifo", &["capacity"]),
    ("shuffle", &["capacity", "min", "seed"]),
    ("priority", &["capacity"]),
];

/// More elements than this in one queue is a mistake.
const MAX_CAPACITY: i64 = 1 << 32;

impl Resolver<'_> {
    pub(super) fn top_queue(&mut self, item: &QueueItem) {
        if self.modules[0].vars.contains_key(&item.name.text) {
            return;
        }
        let before = self.diags.len();
        let device = self.declared_device(&item.device);
        let info = match item.reader {
            true => self.reader_info(item),
            false => self.queue_info(item),
        };
        let (Some(info), Ok(device), true) = (info, device, self.diags.len() == before) else {
            let bound = Bound { val: Val::Poison, span: item.name.span, build: self.build.id };
            self.poisoned_vars.insert(item.name.text.clone(), bound);
            return;
        };
        let id = self.graph.vars.push(Var {
            name: info.name.clone(),
            ty: TensorType::scalar(DType::I64),
            symbol: Symbol::holding(info),
            user: true,
            device,
            span: item.name.span,
        });
        self.var_names.insert(item.name.text.to_string(), id);
        self.modules[0].vars.insert(item.name.text.clone(), id);
    }

    fn queue_info(&mut self, item: &QueueItem) -> Option<QueueInfo> {
        let kind = &item.kind.callee;
        let Some((word, options)) = KINDS.iter().find(|(name, _)| **name == *kind.text) else {
            self.unknown_kind("queue", kind, KINDS.iter().map(|(name, _)| *name));
            return None;
        };
        let (parts, options) = self.declaration(item, options)?;
        let Some(capacity) = options.int("capacity", 1, MAX_CAPACITY, self)? else {
            self.error(
                Diag::error("E0443", format!("the queue `{}` needs a capacity", item.name.text))
                    .at(kind.span, "how many elements may wait in it?")
                    .help("add `capacity: 64`: a full queue makes its producers wait"),
            );
            return None;
        };
        let kind = match *word {
            "fifo" => QueueKind::Fifo { capacity: capacity as u64 },
            "shuffle" => {
                let min = options.int("min", 1, capacity, self)?.unwrap_or(capacity);
                let seed = options.int("seed", i64::MIN, i64::MAX, self)?.unwrap_or(0);
                QueueKind::Shuffle { capacity: capacity as u64, min: min as u64, seed }
            }
            _ => {
                if parts.first() != Some(&Part { dtype: DType::I64, shape: vec![] }) {
                    self.error(
                        Diag::error("E0449", "the first part of a priority queue is its priority")
                            .at(options.first_type.unwrap_or(kind.span), "expected `i64[]`")
                            .help(format!("write `{}(i64[], ...)`", word)),
                    );
                    return None;
                }
                QueueKind::Priority { capacity: capacity as u64 }
            }
        };
        Some(QueueInfo { name: item.name.text.to_string(), kind, parts })
    }

    fn reader_info(&mut self, item: &QueueItem) -> Option<QueueInfo> {
        let kind = &item.kind.callee;
        let Some(format) = Format::ALL.into_iter().find(|f| *f.name() == *kind.text) else {
            self.unknown_kind("reader", kind, Format::ALL.into_iter().map(Format::name));
            return None;
        };
        let known: &[&str] = match format {
            Format::Csv => &["epochs", "skip"],
            Format::Npz | Format::TfRecord => &["epochs", "keys"],
            Format::Npy | Format::Idx | Format::Files => &["epochs"],
        };
        let (parts, options) = self.declaration(item, known)?;
        let epochs = options.int("epochs", 0, i64::MAX, self)?.unwrap_or(1);
        let skip = options.int("skip", 0, i64::MAX, self)?.unwrap_or(0);
        let paths = options.paths.clone();
        if paths.is_empty() {
            self.error(
                Diag::error("E0443", format!("the reader `{}` needs files", item.name.text))
                    .at(kind.span, "which files?")
                    .help(format!(
                        "give a path or a pattern first: `{}(\"data/*\", ...)`",
                        kind.text
                    )),
            );
            return None;
        }
        if format.path_per_part() && paths.len() != parts.len() {
            self.error(
                Diag::error(
                    "E0443",
                    format!(
                        "`{}` reads one file for each part, but {} and {} are given",
                        kind.text,
                        count(paths.len(), "path"),
                        count(parts.len(), "type")
                    ),
                )
                .at(kind.span, "this reader")
                .help("give several paths as a list: `[\"x.npy\", \"y.npy\"]`"),
            );
            return None;
        }
        let keys = match options.find("keys") {
            None => vec![],
            Some(value) => self.strings(value, "keys")?,
        };
        let wants_keys = format == Format::Npz || format == Format::TfRecord && parts.len() != 1;
        if !keys.is_empty() && keys.len() != parts.len() || keys.is_empty() && wants_keys {
            self.error(
                Diag::error(
                    "E0443",
                    format!(
                        "`{}` needs a key for each of its {}, but {} given",
                        kind.text,
                        count(parts.len(), "part"),
                        if keys.len() == 1 { "1 is".into() } else { format!("{} are", keys.len()) }
                    ),
                )
                .at(options.find("keys").map_or(kind.span, |e| e.span), "one name for each type")
                .help("keys name the arrays or features: `keys: [\"image\", \"label\"]`"),
            );
            return None;
        }
        let (epochs, skip) = (epochs as u64, skip as u64);
        let kind = QueueKind::Reader(ReaderInfo { format, paths, keys, epochs, skip });
        Some(QueueInfo { name: item.name.text.to_string(), kind, parts })
    }

    fn unknown_kind(
        &mut self,
        word: &str,
        kind: &Name,
        known: impl Iterator<Item = &'static str> + Clone,
    ) {
        let diag = Diag::error("E0442", format!("there is no {word} of kind `{}`", kind.text))
            .at(kind.span, "not a kind");
        let list: Vec<&str> = known.clone().collect();
        let diag = match nearest(&kind.text, known) {
            Some(near) => diag.fix(format!("did you mean `{near}`?"), kind.span, near),
            None => diag.help(format!("the kinds are {}", list.join(", "))),
        };
        self.error(diag);
    }

    /// The types of the parts, the paths, and the options of a declaration.
    fn declaration<'e>(
        &mut self,
        item: &'e QueueItem,
        known: &[&str],
    ) -> Option<(Vec<Part>, Options<'e>)> {
        let mut options = Options { named: vec![], paths: vec![], first_type: None };
        let mut parts = vec![];
        let mut ok = true;
        for Arg { name, value } in &item.kind.args {
            match (name, &value.kind) {
                (Some(name), _) => {
                    let kind = &item.kind.callee.text;
                    if !known.contains(&&*name.text) {
                        let diag =
                            Diag::error("E0443", format!("`{kind}` has no option `{}`", name.text))
                                .at(name.span, "unknown");
                        let diag = match nearest(&name.text, known.iter().copied()) {
                            Some(n) => diag.fix(format!("did you mean `{n}`?"), name.span, n),
                            None => diag.help(format!("its options are {}", known.join(", "))),
                        };
                        self.error(diag);
                        ok = false;
                    } else if options.find(&name.text).is_some() {
                        self.error(
                            Diag::error("E0130", format!("`{}` is given twice", name.text))
                                .at(name.span, "the second time"),
                        );
                        ok = false;
                    } else {
                        options.named.push((name, value));
                    }
                }
                (None, ExprKind::Type(ty, _)) => {
                    options.first_type.get_or_insert(value.span);
                    match self.concrete_type(ty).map(|t| (t.static_shape(), t)) {
                        Some((Some(shape), ty)) => parts.push(Part {
                            dtype: ty.dtype,
                            shape: shape.into_iter().map(|d| d as i64).collect(),
                        }),
                        Some((None, ty)) => {
                            self.error(
                                Diag::error("E0444", "the elements of a queue have fixed shapes")
                                    .at(value.span, format!("{ty} depends on a run-time size"))
                                    .help(
                                        "an element is one example; batches are made by \
                                         `dequeue_many(q, count: B)`",
                                    ),
                            );
                            ok = false;
                        }
                        None => ok = false,
                    }
                }
                (None, _) if item.reader && options.paths.is_empty() && parts.is_empty() => {
                    match self.strings(value, "the files of a reader") {
                        Some(paths) => options.paths = paths,
                        None => ok = false,
                    }
                }
                (None, _) => {
                    self.error(
                        Diag::error("E0443", "expected the type of a part")
                            .at(value.span, "such as `f32[784]` or `i32[]`"),
                    );
                    ok = false;
                }
            }
        }
        if parts.is_empty() && ok {
            let word = if item.reader { "reader" } else { "queue" };
            self.error(
                Diag::error("E0444", format!("the {word} `{}` gives no types", item.name.text))
                    .at(item.kind.callee.span, "what is one element?")
                    .help("give the types of its parts: `fifo(f32[784], i32[], capacity: 64)`"),
            );
            ok = false;
        }
        ok.then_some((parts, options))
    }

    /// One string, or a list of them.
    fn strings(&mut self, value: &Expr, what: &str) -> Option<Vec<String>> {
        let val = self.expr(value, None);
        let all = match &val {
            Val::Str(s) => Some(vec![s.to_string()]),
            Val::List(items) if !items.is_empty() => items
                .iter()
                .map(|i| if let Val::Str(s) = &i.val { Some(s.to_string()) } else { None })
                .collect(),
            _ => None,
        };
        if all.is_none() && !val.is_poison() {
            self.error(
                Diag::error("E0443", format!("{what} must be a string or a list of strings"))
                    .at(value.span, format!("this is {}", val.describe())),
            );
        }
        all
    }

    // Uses.

    /// Whether an op on a symbol gets the kind of symbol it works on.
    pub(super) fn fits_symbol(&mut self, def: &OpDef, var: VarId, span: Span) -> bool {
        let symbol = &self.graph.vars[var];
        let (name, declared) = (symbol.name.clone(), symbol.span);
        let wants = Op::from_name(def.name).is_some_and(is_queue_op);
        match (&symbol.symbol, wants) {
            (Symbol::Variable, true) => {
                self.error(
                    Diag::error("E0440", format!("`{name}` is not a queue"))
                        .at(span, format!("`{}` works on queues and readers", def.name))
                        .also(declared, "declared as a variable"),
                );
                false
            }
            (Symbol::Queue(_) | Symbol::Reader(_), false) => {
                self.queue_as_value(var, span);
                false
            }
            (Symbol::Variable, false) | (Symbol::Queue(_) | Symbol::Reader(_), true) => true,
        }
    }

    /// A queue where a value or a variable is wanted.
    pub(super) fn queue_as_value(&mut self, var: VarId, span: Span) {
        let symbol = &self.graph.vars[var];
        let word = if let Symbol::Reader(_) = symbol.symbol { "reader" } else { "queue" };
        let diag = Diag::error("E0441", format!("`{}` is a {word}, not a tensor", symbol.name))
            .at(span, "it has no value of its own")
            .also(symbol.span, "declared here")
            .help(format!("take an element out: `dequeue({})`", symbol.name));
        self.error(diag);
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn apply_to_queue(
        &mut self,
        op: Op,
        var: VarId,
        info: &QueueInfo,
        operands: Vec<Spanned>,
        attrs: Vec<AttrArg>,
        op_span: Span,
        span: Span,
    ) -> Val {
        if !is_queue_op(op) {
            self.queue_as_value(var, op_span);
            return Val::Poison;
        }
        let mut values = vec![];
        for (i, o) in operands.iter().enumerate() {
            // A number takes the element type of its part.
            let dtype = info.parts.get(i).map(|p| p.dtype);
            match self.tensor(&o.val, o.span, dtype) {
                Some(v) => values.push(v),
                None => return Val::Poison,
            }
        }
        let spans: Vec<Span> = operands.iter().map(|o| o.span).collect();
        let Some((attrs, attr_spans)) = self.attributes(op, attrs, None, span) else {
            return Val::Poison;
        };
        let mut spec = NodeSpec::new(op, &values, attrs, span);
        spec.var = Some(var);
        let val = self.finish(spec, &spans, &attr_spans, op_span);
        self.build.wrote(var);
        val
    }

    // Runners.

    /// A runner is called by nobody: it takes and gives nothing.
    pub(super) fn check_runner(&mut self, item: &EntryItem) -> bool {
        let at = match (item.params.first(), item.results.given) {
            (Some(param), _) => param.name.span,
            (None, true) => item.results.span,
            (None, false) => return true,
        };
        self.error(
            Diag::error(
                "E0448",
                format!("the runner `{}` takes and returns nothing", item.name.text),
            )
            .at(at, "nobody calls a runner, so nobody gives or gets this")
            .help("use `entry` for what a user calls; a runner talks through queues"),
        );
        false
    }

    /// A runner that puts nothing into a queue would never be started.
    pub(super) fn check_filled(&mut self, item: &EntryItem) {
        let mut filled = false;
        self.build.func.walk(&mut |_, node| filled |= fills(node.op));
        if item.runner && !filled {
            self.error(
                Diag::error("E0450", format!("the runner `{}` fills no queue", item.name.text))
                    .at(item.name.span, "it would never be started")
                    .help("a runner starts when an entry takes from a queue it fills: `enqueue(q, ..)`"),
            );
        }
    }
}

/// What a declaration says besides its types.
struct Options<'e> {
    named: Vec<(&'e Name, &'e Expr)>,
    paths: Vec<String>,
    first_type: Option<Span>,
}

impl<'e> Options<'e> {
    fn find(&self, name: &str) -> Option<&'e Expr> {
        self.named.iter().find(|(n, _)| &*n.text == name).map(|(_, value)| *value)
    }

    /// An option that is a number; the outer `None` says that it was reported.
    fn int(&self, name: &str, min: i64, max: i64, r: &mut Resolver<'_>) -> Option<Option<i64>> {
        let Some(value) = self.find(name) else { return Some(None) };
        let val = r.expr(value, None);
        let number = match val {
            Val::Poison => return None,
            Val::Int(v) => i64::try_from(v).ok().filter(|v| (min..=max).contains(v)),
            _ => None,
        };
        if number.is_none() {
            let range = match (min, max) {
                (i64::MIN, i64::MAX) => "a whole number".to_string(),
                (min, i64::MAX) => format!("a whole number from {min}"),
                (min, max) => format!("a whole number from {min} to {max}"),
            };
            let diag = Diag::error("E0443", format!("`{name}` must be {range}"))
                .at(value.span, format!("this is {}", val.describe()));
            let diag = r.round_it(diag, &val, value.span);
            r.error(diag);
            return None;
        }
        Some(number)
    }
}
