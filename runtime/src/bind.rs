//! Binding an entry's run-time dims from the shapes of its feeds.
//!
//! Sizes that are a bare dim bind it; every other size is then computed and
//! compared. A dim that appears only inside a compound size (`f32[2*B]`) is
//! solved for when the size is linear in it. Nothing here allocates unless a
//! feed is wrong.

use crate::error::{Error, Result, list};
use crate::tensor::{FeedView, byte_len, type_text};
use tfc_abi::plan::{Condition, Entry, Expr, ExprOp, Plan, Port};

/// What is known about each dim while feeds are looked at.
#[derive(Default)]
pub struct Binding {
    /// By dim; -1 while unknown.
    pub dims: Vec<i64>,
    /// Feed and axis that bound it.
    from: Vec<(u32, u32)>,
}

/// The dims that take part in an entry.
pub fn used_dims(entry: &Entry) -> Vec<u32> {
    let mut used: Vec<u32> = entry
        .exprs
        .iter()
        .flat_map(|e| &e.0)
        .filter_map(|op| if let ExprOp::Dim(d) = op { Some(*d) } else { None })
        .collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// The dim, when an expression is nothing else.
pub fn bare_dim(e: &Expr) -> Option<u32> {
    if let [ExprOp::Dim(d)] = e.0[..] { Some(d) } else { None }
}

impl Binding {
    /// Checks `feeds` against the entry's params and binds every used dim.
    pub fn bind(
        &mut self,
        plan: &Plan,
        entry: &Entry,
        used: &[u32],
        feeds: &[FeedView<'_>],
    ) -> Result<()> {
        if feeds.len() != entry.params.len() {
            return Err(wrong_count(entry, feeds.len()));
        }
        self.dims.clear();
        self.dims.resize(plan.dims.len(), -1);
        self.from.clear();
        self.from.resize(plan.dims.len(), (0, 0));
        for (i, (port, feed)) in entry.params.iter().zip(feeds).enumerate() {
            check_type(port, feed)?;
            for (axis, (id, size)) in port.shape.iter().zip(feed.shape).enumerate() {
                let size = *size as i64;
                if let [ExprOp::Dim(d)] = entry.exprs[*id as usize].0[..] {
                    let d = d as usize;
                    if self.dims[d] < 0 {
                        self.dims[d] = size;
                        self.from[d] = (i as u32, axis as u32);
                    } else if self.dims[d] != size {
                        return Err(self.disagree(plan, entry, feeds, d, i, size));
                    }
                }
            }
        }
        for (i, (port, feed)) in entry.params.iter().zip(feeds).enumerate() {
            for (axis, (id, size)) in port.shape.iter().zip(feed.shape).enumerate() {
                let expr = &entry.exprs[*id as usize];
                if bare_dim(expr).is_none() {
                    self.compound(plan, entry, feeds, expr, (i, axis), *size as i64)?;
                }
            }
        }
        for d in used {
            let (d, info) = (*d as usize, &plan.dims[*d as usize]);
            let value = self.dims[d];
            if value < 0 {
                return Err(Error::data(
                    "E0517",
                    format!("the size of {} cannot be told from the feeds", info.name),
                )
                .note(format!("no feed of entry `{}` has {} as a size", entry.name, info.name)));
            }
            if value < info.min || value > info.max {
                return Err(self.out_of_range(plan, entry, feeds, d));
            }
        }
        Ok(())
    }

    /// A size that is a constant or an expression over dims.
    fn compound(
        &mut self,
        plan: &Plan,
        entry: &Entry,
        feeds: &[FeedView<'_>],
        expr: &Expr,
        (feed, axis): (usize, usize),
        size: i64,
    ) -> Result<()> {
        let mut unknown = None;
        for op in &expr.0 {
            if let ExprOp::Dim(d) = op
                && self.dims[*d as usize] < 0
                && unknown != Some(*d)
            {
                if unknown.is_some() {
                    return Ok(()); // reported as not bound, by the caller
                }
                unknown = Some(*d);
            }
        }
        if let Some(d) = unknown {
            if let Some(value) = self.solve(expr, d as usize, size) {
                self.dims[d as usize] = value;
                self.from[d as usize] = (feed as u32, axis as u32);
                return Ok(());
            }
            self.dims[d as usize] = -1;
            return Err(mismatch(entry, feeds, feed).note(format!(
                "no size of {} makes the {} {size}",
                plan.dims[d as usize].name,
                ordinal_axis(axis)
            )));
        }
        let want = expr.eval(&self.dims);
        if want == Some(size) {
            return Ok(());
        }
        let mut e = mismatch(entry, feeds, feed);
        let must = want.map_or("too large".to_owned(), |w| w.to_string());
        e = e.note(format!("the {} is {size}, but must be {must} here", ordinal_axis(axis)));
        if expr.as_const().is_none() {
            for (d, info) in plan.dims.iter().enumerate() {
                if expr.0.contains(&ExprOp::Dim(d as u32)) {
                    e = e.note(self.origin(&info.name, entry, feeds, d));
                }
            }
        }
        Err(e)
    }

    /// The value of `d` that gives `size`, if the expression is linear in it.
    fn solve(&mut self, expr: &Expr, d: usize, size: i64) -> Option<i64> {
        let mut at = |x| {
            self.dims[d] = x;
            expr.eval(&self.dims)
        };
        let (zero, one) = (at(0)?, at(1)?);
        let slope = one.checked_sub(zero)?;
        let value = size.checked_sub(zero)?.checked_div(slope)?;
        // Not linear after all (or not divisible) when it does not fit.
        (value >= 0 && at(value)? == size && at(2)? - one == slope).then_some(value)
    }

    /// "`x` is f32[B, 784] and was given f32[64, 784], so B = 64".
    fn origin(&self, dim: &str, entry: &Entry, feeds: &[FeedView<'_>], d: usize) -> String {
        let i = self.from[d].0 as usize;
        match (entry.params.get(i), feeds.get(i)) {
            (Some(p), Some(f)) => format!(
                "feed `{}` is {} and was given {}, so {dim} = {}",
                p.name,
                p.text,
                f.type_text(),
                self.dims[d]
            ),
            _ => format!("{dim} = {}", self.dims[d]),
        }
    }

    /// What to say when a condition on the dims does not hold.
    #[cold]
    pub(crate) fn broken(
        &self,
        plan: &Plan,
        entry: &Entry,
        feeds: &[FeedView<'_>],
        c: &Condition,
    ) -> Error {
        let mut e = Error::data("E0518", c.message.clone());
        if !c.place.is_empty() {
            e = e.note(format!("at {}", c.place));
        }
        let expr = &entry.exprs[c.value as usize];
        for (d, info) in plan.dims.iter().enumerate() {
            if expr.0.contains(&ExprOp::Dim(d as u32)) {
                e = e.note(self.origin(&info.name, entry, feeds, d));
            }
        }
        e
    }

    #[cold]
    fn disagree(
        &self,
        plan: &Plan,
        entry: &Entry,
        feeds: &[FeedView<'_>],
        d: usize,
        second: usize,
        size: i64,
    ) -> Error {
        let dim = &plan.dims[d].name;
        let (port, feed) = (&entry.params[second], &feeds[second]);
        let first = self.from[d].0 as usize;
        let message = if first == second {
            format!("feed `{}` has two different sizes for {dim}", port.name)
        } else {
            format!(
                "feeds `{}` and `{}` disagree about {dim}: {} and {size}",
                entry.params[first].name, port.name, self.dims[d]
            )
        };
        Error::data("E0506", message).note(self.origin(dim, entry, feeds, d)).note(format!(
            "feed `{}` is {} and was given {}, so {dim} = {size}",
            port.name,
            port.text,
            feed.type_text()
        ))
    }

    #[cold]
    fn out_of_range(&self, plan: &Plan, entry: &Entry, feeds: &[FeedView<'_>], d: usize) -> Error {
        let info = &plan.dims[d];
        let range = if info.max == i64::MAX {
            format!("at least {}", info.min)
        } else {
            format!("{} to {}", info.min, info.max)
        };
        Error::data(
            "E0507",
            format!("{} is {}, but the graph declares it as {range}", info.name, self.dims[d]),
        )
        .note(self.origin(&info.name, entry, feeds, d))
    }
}

fn ordinal_axis(axis: usize) -> String {
    match axis {
        0 => "first size".into(),
        1 => "second size".into(),
        2 => "third size".into(),
        n => format!("size number {}", n + 1),
    }
}

#[cold]
fn mismatch(entry: &Entry, feeds: &[FeedView<'_>], feed: usize) -> Error {
    let (port, given) = (&entry.params[feed], &feeds[feed]);
    Error::data(
        "E0505",
        format!("feed `{}` must be {}, but was given {}", port.name, port.text, given.type_text()),
    )
}

fn axes_differ(port: &Port, feed: &FeedView<'_>) -> String {
    format!("the number of axes is {} instead of {}", feed.shape.len(), port.shape.len())
}

/// Element type, number of axes, number of bytes.
fn check_type(port: &Port, feed: &FeedView<'_>) -> Result<()> {
    if feed.dtype != port.dtype {
        let mut e = Error::data(
            "E0503",
            format!(
                "feed `{}` must be {}, but was given {}",
                port.name,
                port.text,
                feed.type_text()
            ),
        )
        .note(format!("the elements are {}, not {}", feed.dtype, port.dtype));
        // All that is wrong with it at once.
        if feed.shape.len() != port.shape.len() {
            e = e.note(axes_differ(port, feed));
        }
        return Err(e.help(format!(
            "give {} data; in NumPy, `{}.astype(\"{}\")` converts",
            port.dtype,
            port.name,
            numpy_name(port.dtype)
        )));
    }
    if feed.shape.len() != port.shape.len() {
        let e = Error::data(
            "E0504",
            format!(
                "feed `{}` must be {}, but was given {}",
                port.name,
                port.text,
                feed.type_text()
            ),
        )
        .note(axes_differ(port, feed));
        let one_short = feed.shape.len() + 1 == port.shape.len();
        return Err(if one_short {
            e.help("a single example still needs its batch axis: add one of size 1")
        } else {
            e
        });
    }
    if byte_len(feed.dtype, feed.shape) != Some(feed.data.len()) {
        return Err(Error::data(
            "E0505",
            format!(
                "feed `{}` says it is {} but holds {} bytes",
                port.name,
                type_text(feed.dtype, feed.shape),
                feed.data.len()
            ),
        ));
    }
    Ok(())
}

fn numpy_name(dtype: tfc_abi::DType) -> &'static str {
    use tfc_abi::DType::*;
    match dtype {
        F32 => "float32",
        F64 => "float64",
        F16 => "float16",
        BF16 => "bfloat16",
        I8 => "int8",
        U8 => "uint8",
        I32 => "int32",
        I64 => "int64",
        Bool => "bool",
    }
}

#[cold]
fn wrong_count(entry: &Entry, given: usize) -> Error {
    let names = entry.params.iter().map(|p| p.name.as_str());
    if given < entry.params.len() {
        let missing = list(names.skip(given));
        Error::data("E0501", format!("entry `{}` is missing feed {missing}", entry.name))
    } else {
        Error::data(
            "E0502",
            format!(
                "entry `{}` takes {} feed{} ({}), but was given {given}",
                entry.name,
                entry.params.len(),
                if entry.params.len() == 1 { "" } else { "s" },
                list(names)
            ),
        )
    }
}
