//! What is written by habit from other languages, and what it is here.
//!
//! Nothing here decides what the language means: these are the hints of
//! messages. The parser asks [`Parser::habit`] before it says what it expected;
//! names are looked up in the tables below when nothing else has that name.

use super::ast::{Call, Expr, ExprKind};
use super::lexer::Tok;
use super::parse::{Parser, Reported};
use crate::DType;
use crate::diag::{Diag, Span};

/// A word that starts a declaration elsewhere: what to write instead, and why.
pub(super) fn declaration(word: &str) -> Option<(Option<&'static str>, &'static str)> {
    Some(match word {
        "def" | "fn" | "function" | "fun" | "proc" => {
            (Some("func"), "a function is declared with `func name(x) { return .. }`")
        }
        "import" | "include" | "require" | "using" => {
            (None, "a library is used with `use nn`, a file with `use \"layers.graph\" as layers`")
        }
        "from" => {
            (None, "a library is used with `use nn`, and its functions are called `nn.softmax(x)`")
        }
        "const" | "static" | "final" | "constexpr" | "define" | "val" => {
            (Some("let"), "a number or list gets a name with `let NAME = ..`")
        }
        "class" | "struct" | "trait" | "object" => (
            None,
            "there are no classes: a network is `model net(x) { .. }`, a part of one `layer block(x) { .. }`",
        ),
        "param" | "parameter" | "weight" | "variable" | "tensor" => {
            (Some("var"), "what is trained or kept is declared with `var w: f32[2, 3] = zeros`")
        }
        "input" | "placeholder" => {
            (None, "inputs are the parameters of an entry: `entry predict(x: f32[B, 4]) { .. }`")
        }
        "pub" | "public" | "export" | "extern" | "async" | "inline" => {
            (None, "leave it out: every `entry` can be called from outside, and nothing else")
        }
        "main" => (Some("entry main"), "what a program runs is an `entry`"),
        _ => return None,
    })
}

/// The element type that other systems call by this name.
pub(super) fn element_type(word: &str) -> Option<&'static str> {
    Some(match word {
        "float" | "float32" | "single" => "f32",
        "double" | "float64" => "f64",
        "half" | "float16" => "f16",
        "bfloat16" => "bf16",
        "int" | "int32" => "i32",
        "long" | "int64" => "i64",
        "int8" => "i8",
        "uint8" | "byte" => "u8",
        "boolean" => "bool",
        _ => return None,
    })
}

/// A value that other languages have under this name.
pub(super) fn value(name: &str) -> Option<(Option<&'static str>, &'static str)> {
    Some(match name {
        "True" | "TRUE" => (Some("true"), "truth values are written in lower case"),
        "False" | "FALSE" => (Some("false"), "truth values are written in lower case"),
        "None" | "null" | "nil" | "NULL" | "nullptr" | "undefined" => (
            None,
            "there is no empty value; a parameter that may be left out has a default: \
             `func f(x, scale = 1)`",
        ),
        "NaN" | "NAN" => (Some("nan"), "it is written small"),
        "Inf" | "INFINITY" | "Infinity" | "infinity" => (Some("inf"), "infinity is `inf`"),
        "PI" | "Pi" => (Some("pi"), "it is written small"),
        "self" | "this" => (None, "there are no objects; a function is given what it works on"),
        "pass" => (None, "an empty block is `{ }`"),
        "break" | "continue" => (
            None,
            "a loop goes on while its condition holds: `while (i = 0) i < n { yield i + 1 }`",
        ),
        _ => return None,
    })
}

/// What to do where another library would have this op. Names that are plainly
/// another word for an op of ours are aliases instead (`resolve::expr`).
pub(super) fn op(name: &str) -> Option<&'static str> {
    Some(match name {
        "std" | "stddev" | "var" | "variance" => {
            "with `m = mean(x)`, the variance is `mean((x - m) * (x - m))`, and its `sqrt` the \
             standard deviation"
        }
        "median" | "quantile" | "percentile" => {
            "`sort(x, axis: 0)` puts a quantile at a fixed place of its axis; take it with a slice"
        }
        "einsum" | "tensordot" | "outer" | "inner" | "kron" => {
            "write it with `@`, `transpose`, `reshape` and `sum(a * b, axis: ..)`"
        }
        "norm" => "it is `sqrt(sum(x * x))`",
        "square" => "it is `x * x`",
        "log2" | "log10" => "it is `log(x) / log(2.0)`, or of another base",
        "floor_divide" | "floordiv" => "it is `floor(a / b)`; integer tensors divide with `/`",
        "nonzero" | "unique" | "boolean_mask" | "masked_select" => {
            "shapes are known before a call: keep all elements and mask them, `select(mask, x, 0)`"
        }
        "masked_fill" => "it is `select(mask, value, x)`",
        "tile" | "repeat" => "`broadcast(x, shape: [..])` repeats along new axes, `concat` joins",
        "shape" | "size" | "ndim" | "rank" | "numel" => {
            "sizes have names in types: in `func f(x: T[N, D])`, `N` and `D` are numbers"
        }
        "tensor" | "array" | "constant" => {
            "a list is a tensor, `[1, 2, 3]`; `f32[3](1, 2, 3)` also says its type"
        }
        "rand" | "uniform_random" => "`random_uniform(key, shape: [..])`, with a key as its seed",
        "randn" => "`random_normal(key, shape: [..])`, with a key as its seed",
        "eye" => "it is `one_hot(iota([n]), depth: n)`",
        "cross_entropy" | "crossentropy" | "nll_loss" => {
            "add `use nn`; `nn.softmax_xent(logits, labels)` takes logits and class numbers"
        }
        "mse_loss" => "add `use nn` and call `nn.mse(x, y)`",
        "Linear" | "linear" | "Dense" => {
            "add `use layer` and call `layer.dense(x, units: 64)`, which has its own weights"
        }
        "Conv2d" | "Conv2D" => {
            "add `use layer` and call `layer.conv(x, filters: 32, kernel: 3)`, which has its own \
             weights"
        }
        "relu6" => "it is `clamp(x, 0, 6)`",
        "for" => "a loop over numbers is `for i in 0..3 { .. }`",
        "enumerate" => "count beside a list with an open range: `for x in list, i in 0.. { .. }`",
        "zip" => "go over several lists at once: `for x in a, y in b { .. }`",
        "map" | "filter" | "reduce" => "a list is made with `[f(x) for x in list]`",
        "list" | "tuple" | "dict" | "set" => "lists are written in brackets, `[a, b]`",
        "type" | "isinstance" => {
            "types are known when the graph is compiled; nothing asks for them"
        }
        "open" | "load" => "`file(\"w.npy\")` is the array in a file",
        "item" | "numpy" => "a scalar is a tensor of shape `[]`; entries return it as it is",
        "range" => "`for` counts with `0..3`; the numbers as a tensor are `iota([3])`",
        "backward" => "`grad(y, wrt: [a, b])` gives gradients, `minimize loss with ..` trains",
        _ => return None,
    })
}

impl Parser<'_> {
    /// What a habit of another language has written here, if it is one.
    pub fn habit(&self) -> Option<Diag> {
        let here = self.token();
        let span = here.span;
        let (before, word_before) = match self.at.checked_sub(1) {
            Some(at) => {
                let token = self.tokens[at];
                (token, if token.tok == Tok::Ident { self.text_of(token.span) } else { "" })
            }
            None => (here, ""),
        };
        let error = |message: &str| Diag::error("E0104", message.to_string());
        if here.newline {
            return None;
        }
        match self.word() {
            "and" => {
                return Some(error("`and` is not an operator").at(span, "`&&` is meant").fix(
                    "true where both are: `a && b`",
                    span,
                    "&&",
                ));
            }
            "or" => {
                return Some(error("`or` is not an operator").at(span, "`||` is meant").fix(
                    "true where one of them is: `a || b`",
                    span,
                    "||",
                ));
            }
            "is" => {
                return Some(error("`is` is not an operator").at(span, "`==` is meant").fix(
                    "values are compared with `==`",
                    span,
                    "==",
                ));
            }
            "if" => return Some(self.ternary(span)),
            "elif" | "elsif" | "elseif" => return Some(self.else_if(span)),
            _ => {}
        }
        match here.tok {
            Tok::Dot => {
                let name = self.text_of(self.peek(1).span);
                return Some(
                    error("values have no methods and no fields")
                        .at(span.to(self.peek(1).span), "nothing follows a value with a dot")
                        .help(format!("ops are called with the tensor first: `{name}(x)`")),
                );
            }
            Tok::Assign if before.tok == Tok::RBracket => {
                return Some(
                    error("a part of a tensor cannot be assigned to")
                        .at(span, "values do not change")
                        .help(
                            "rows of a variable are written with `scatter_assign(w, ids, rows)`; \
                             of a value, `dynamic_update_slice(x, part, i)` makes a new one",
                        ),
                );
            }
            Tok::Str if before.tok == Tok::Str && before.span.hi == span.lo => {
                return Some(
                    error("a string follows a string")
                        .at(span, "`\"\"\"` does not quote several lines")
                        .help("what an entry or a function does is said in `///` lines before it"),
                );
            }
            Tok::Str
                if matches!(word_before, "f" | "r" | "b" | "u") && before.span.hi == span.lo =>
            {
                let message = format!("a string has no `{word_before}` before it");
                return Some(error(&message).at(before.span, "not part of a string").help(
                    "strings are plain text; `print(x, label: \"loss\")` writes a tensor after a \
                     label",
                ));
            }
            Tok::Plus | Tok::Minus if before.tok == here.tok && before.span.hi == span.lo => {
                let op = self.text_of(span);
                return Some(
                    error(&format!("there is no `{op}{op}`"))
                        .at(before.span.to(span), "not an operator")
                        .help(format!("a variable is changed with `v {op}= 1`")),
                );
            }
            Tok::Colon if matches!(self.peek(1).tok, Tok::Eof) || self.peek(1).newline => {
                return Some(error("a block goes in braces").at(span, "`:` opens no block").fix(
                    "open it with `{` and close it with `}`",
                    span,
                    " {",
                ));
            }
            _ => {}
        }
        match word_before {
            "not" => Some(error("`not` is not an operator").at(before.span, "`!` is meant").fix(
                "true where `a` is not: `!a`",
                up_to(before.span, span),
                "!",
            )),
            "lambda" => Some(
                error("there are no functions without a name")
                    .at(before.span, "expected a value")
                    .help(
                        "declare it at the top level, `func f(x) { return .. }`; lists are made \
                         with `[f(x) for x in list]`",
                    ),
            ),
            "elif" | "elsif" | "elseif" => Some(self.else_if(before.span)),
            "print" | "assert" => Some(
                error(&format!("`{word_before}` is called like an op"))
                    .at(span, "expected `(`")
                    .help(match word_before {
                        "print" => "write `print(x, label: \"loss\")`",
                        _ => "write `assert(all(x > 0), message: \"..\")`",
                    }),
            ),
            "raise" | "throw" => Some(
                error(&format!("there is no `{word_before}`")).at(before.span, "unknown").help(
                    "a call fails with `assert(cond, message: \"..\")` where `cond` is false",
                ),
            ),
            "let" | "const" | "val" | "final" | "auto" | "mut" | "static"
                if self.tok() == Tok::Ident =>
            {
                Some(self.needless(before.span, span))
            }
            word if self.tok() == Tok::Ident
                && (element_type(word).is_some() || DType::from_name(word).is_some()) =>
            {
                Some(self.needless(before.span, span))
            }
            word => {
                let (instead, help) = declaration(word).filter(|_| self.tok() == Tok::Ident)?;
                let diag = error(&format!("there is no `{word}`")).at(before.span, "unknown");
                let top = instead.is_some() || help.starts_with("a library");
                Some(match top {
                    true => diag.help(format!("{help}, at the top level of the file")),
                    false => diag.help(help),
                })
            }
        }
    }

    fn needless(&self, word: Span, name: Span) -> Diag {
        let what = self.text_of(word);
        // `let mut y`
        let name = if self.is_word("mut") { self.peek(1).span } else { name };
        Diag::error("E0104", format!("a statement needs no `{what}`"))
            .at(word, "expected a statement")
            .fix("a value is named by `name = ..` alone", up_to(word, name), "")
    }

    fn else_if(&self, span: Span) -> Diag {
        Diag::error("E0104", format!("there is no `{}`", self.text_of(span)))
            .at(span, "`else if` is meant")
            .fix("write it as two words, on the line of the `}`", span, "else if")
    }

    fn ternary(&self, span: Span) -> Diag {
        Diag::error("E0104", "`if` comes before the values it chooses between")
            .at(span, "this does not continue the value before it")
            .help(CHOOSE)
    }

    /// `axis=1` in a call: said, and read as `axis: 1`.
    pub fn named_with_equals(&mut self) {
        let (name, equals, value) = (self.peek(0).span, self.peek(1).span, self.peek(2).span);
        let text = self.text_of(name).to_string();
        let between = Span { lo: name.hi, hi: value.lo.max(equals.hi), ..name };
        self.report(
            Diag::error("E0104", "an argument is named with `:`, not with `=`")
                .at(equals, "expected `:`")
                .fix(format!("write `{text}: ..`"), between, ": "),
        );
    }

    /// `for i in range(3)`, `for i, x in enumerate(list)`.
    pub fn python_loop(&mut self, list: &Expr) -> Option<Reported> {
        let ExprKind::Call(call) = &list.kind else { return None };
        let Call { callee, args, .. } = &**call;
        let text = |e: &Expr| self.text_of(e.span).to_string();
        let diag = match (&*callee.text, args.as_slice()) {
            ("range", [end]) => {
                let range = format!("0..{}", text(&end.value));
                Diag::error("E0104", "`for` counts with a range")
                    .at(list.span, "`range` is not a function")
                    .fix(format!("write `{range}`"), list.span, range)
            }
            ("range", [start, end]) => {
                let range = format!("{}..{}", text(&start.value), text(&end.value));
                Diag::error("E0104", "`for` counts with a range")
                    .at(list.span, "`range` is not a function")
                    .fix(format!("write `{range}`"), list.span, range)
            }
            ("range", _) => Diag::error("E0104", "`for` counts with a range, one by one")
                .at(list.span, "`range` is not a function")
                .help("write `for i in 0..3 { j = i * 2 .. }`"),
            ("enumerate" | "zip", _) => {
                Diag::error("E0104", format!("`for` needs no `{}`", callee.text))
                    .at(list.span, "not a function")
                    .help(op(&callee.text).unwrap_or_default())
            }
            _ => return None,
        };
        // At the place of the list, wherever the parser is now.
        self.diags.push(diag);
        self.last_error = self.at;
        Some(Reported)
    }
}

/// How a value is chosen.
pub(super) const CHOOSE: &str = "write `if cond { yield a } else { yield b }`, or \
                                 `select(cond, a, b)` to choose for each element";

/// From the start of one to the start of the next.
fn up_to(from: Span, next: Span) -> Span {
    Span { hi: next.lo.max(from.hi), ..from }
}
