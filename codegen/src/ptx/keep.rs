//! Rows that stay in registers.
//!
//! Every loop that a team shares gives an element to the same thread. So what a thread
//! has loaded in one loop over a row it need not load in the next, and what it has stored
//! for itself it need not load at all, if its elements are few enough for registers: the
//! loops are then written out, one iteration after the other.
//!
//! A row is kept where all loops of the kernel's body are shared ones of the same known
//! length. An element that is only stored for a later loop, which stores another in its
//! place, is not stored.

use super::schedule::is_shared;
use tfc_kernel::{DType, Dim, GROUP, Ix, Kernel, Loop, LoopKind, LoopVar, Stmt};

/// The most elements of a row in a thread.
const MOST: i64 = 16;

/// An element of a row for each iteration of a loop: a buffer, and its address with the
/// loop's variable apart.
#[derive(Clone, PartialEq)]
struct Place {
    buf: u32,
    offset: Dim,
    terms: Vec<(LoopVar, Dim)>,
    stride: Dim,
}

impl Place {
    fn of(buf: u32, at: &Ix, var: LoopVar) -> Option<Place> {
        let terms = at.terms.iter().filter(|(v, _)| *v != var).cloned().collect();
        let place = Place { buf, offset: at.offset.clone(), terms, stride: at.stride(var) };
        (at.regs.is_empty() && !place.stride.is_zero()).then_some(place)
    }
}

/// What is kept of a kernel's rows.
pub(super) struct Kept {
    places: Vec<Place>,
    /// Stores that are left out: the loop's variable, and the place.
    unneeded: Vec<(LoopVar, usize)>,
    /// Elements of a row.
    pub length: i64,
}

impl Kept {
    /// The number of a place that is kept.
    pub fn place(&self, buf: u32, at: &Ix, var: LoopVar) -> Option<usize> {
        let place = Place::of(buf, at, var)?;
        self.places.iter().position(|p| *p == place)
    }

    pub fn is_unneeded(&self, var: LoopVar, place: usize) -> bool {
        self.unneeded.contains(&(var, place))
    }
}

/// What a team of so many threads keeps of the rows of this body; none if it is nothing.
pub(super) fn keep(kernel: &Kernel, body: &[Stmt], team: u32) -> Option<Kept> {
    let mut loops: Vec<&Loop> = vec![];
    for stmt in body {
        let Stmt::Loop(l) = stmt else { continue };
        let plain = l.body.iter().all(|s| !matches!(s, Stmt::Loop(_)));
        if !is_shared(l) || !plain || l.kind == LoopKind::Scan {
            return None;
        }
        loops.push(l);
    }
    let length = loops.first()?.extent.as_const()?;
    let same = loops.iter().all(|l| l.extent.as_const() == Some(length));
    if !same || length % GROUP != 0 || length > MOST * i64::from(team) {
        return None;
    }
    // Loads and stores in loops: which loop, where, whether it stores.
    let mut uses: Vec<(usize, Option<Place>, u32, bool)> = vec![];
    for (i, l) in loops.iter().enumerate() {
        for stmt in &l.body {
            match stmt {
                Stmt::Load { buf, at, .. } => {
                    uses.push((i, Place::of(*buf, at, l.var), *buf, false));
                }
                Stmt::Store { buf, at, .. } => {
                    uses.push((i, Place::of(*buf, at, l.var), *buf, true));
                }
                _ => {}
            }
        }
    }
    let outside = |buf: u32| {
        let touches = |s: &Stmt| match s {
            Stmt::Load { buf: b, .. } | Stmt::Store { buf: b, .. } => *b == buf,
            _ => false,
        };
        body.iter().chain(&kernel.body).any(touches)
    };
    // All of what is written must be seen here, as it is written.
    let sound = |place: &Place| {
        let buf = &kernel.bufs[place.buf as usize];
        let exact = matches!(buf.dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64);
        let all = || uses.iter().all(|(_, p, b, _)| *b != place.buf || p.as_ref() == Some(place));
        !buf.written || exact && all() && !outside(place.buf)
    };
    let mut places: Vec<Place> = vec![];
    for (_, place, ..) in &uses {
        let Some(place) = place.as_ref().filter(|p| !places.contains(p) && sound(p)) else {
            continue;
        };
        let in_loops =
            |i: usize| uses.iter().any(|(l, p, ..)| *l == i && p.as_ref() == Some(place));
        let loads = uses.iter().any(|(_, p, _, stores)| !stores && p.as_ref() == Some(place));
        if loads && (0..loops.len()).filter(|i| in_loops(*i)).count() > 1 {
            places.push(place.clone());
        }
    }
    if places.is_empty() {
        return None;
    }
    let mut unneeded = vec![];
    for (number, place) in places.iter().enumerate() {
        let stores = |i: usize| {
            uses.iter().any(|(l, p, _, stores)| *l == i && *stores && p.as_ref() == Some(place))
        };
        let storing: Vec<usize> = (0..loops.len()).filter(|i| stores(*i)).collect();
        if let Some((_, earlier)) = storing.split_last() {
            unneeded.extend(earlier.iter().map(|i| (loops[*i].var, number)));
        }
    }
    Some(Kept { places, unneeded, length })
}
