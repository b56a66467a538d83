//! Windows sliding over images: the geometry of convolution and pooling.
//!
//! Images are `[batch, channels, height, width]`. Output row `y` sees the input
//! rows `y * stride + i * dilation - pad_top` for `i` in `0..size`; columns
//! alike. Rows and columns outside the image are padding.

use super::{pull, sizes};
use crate::attr::AttrKind;
use crate::kernel::{Ix, Reg, ScalarOp};
use crate::lower::Pull;
use crate::op::*;
use crate::{Attr, Attrs, Dim, TensorType};

/// Rows first, then columns.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub size: [i64; 2],
    pub stride: [i64; 2],
    pub dilation: [i64; 2],
    /// Padding before and after.
    pub pad: [[i64; 2]; 2],
}

/// Larger values are mistakes, and would overflow in products.
const LIMIT: i64 = 1 << 24;

pub const STRIDE: AttrSpec = AttrSpec {
    name: "stride",
    kind: AttrKind::Ints,
    default: Some(|| Attr::Ints(vec![1, 1])),
    doc: "rows and columns between neighbouring windows",
};

pub const PAD: AttrSpec = AttrSpec {
    name: "pad",
    kind: AttrKind::Ints,
    default: Some(|| Attr::Ints(vec![0, 0, 0, 0])),
    doc: "rows and columns around the image: top, bottom, left, right",
};

/// Attributes of a convolution and its gradients.
pub const DILATION: AttrSpec = AttrSpec {
    name: "dilation",
    kind: AttrKind::Ints,
    default: Some(|| Attr::Ints(vec![1, 1])),
    doc: "distance between neighbouring rows and columns a window sees",
};

pub const GROUPS: AttrSpec = AttrSpec {
    name: "groups",
    kind: AttrKind::Int,
    default: Some(|| Attr::Int(1)),
    doc: "channels are split into this many groups that do not see each other",
};

/// Attributes of pooling ops.
pub const POOL_ATTRS: &[AttrSpec] = &[POOL_WINDOW, POOL_STRIDE, PAD];

pub const POOL_WINDOW: AttrSpec = AttrSpec {
    name: "window",
    kind: AttrKind::Ints,
    default: None,
    doc: "rows and columns of a window",
};

pub const POOL_STRIDE: AttrSpec = AttrSpec {
    name: "stride",
    kind: AttrKind::Ints,
    default: Some(|| Attr::Ints(vec![])),
    doc: "rows and columns between neighbouring windows; empty for those of the window",
};

/// The image a gradient has the shape of.
pub const IMAGE: AttrSpec =
    AttrSpec { name: "shape", kind: AttrKind::Shape, default: None, doc: "the shape of the image" };

/// Attributes of the gradients of pooling ops.
pub const POOL_GRAD_ATTRS: &[AttrSpec] = &[POOL_WINDOW, POOL_STRIDE, PAD, IMAGE];

fn pair(list: &[i64], default: [i64; 2]) -> [i64; 2] {
    match *list {
        [a, b] => [a, b],
        _ => default,
    }
}

impl Window {
    /// The window of a convolution with a filter of this size.
    pub fn conv(attrs: &Attrs, size: [i64; 2]) -> Window {
        let pad = match *attrs.ints("pad") {
            [a, b, c, d] => [[a, b], [c, d]],
            _ => [[0, 0], [0, 0]],
        };
        Window {
            size,
            stride: pair(attrs.ints("stride"), [1, 1]),
            dilation: pair(attrs.ints("dilation"), [1, 1]),
            pad,
        }
    }

    /// The window of a pooling op.
    pub fn pool(attrs: &Attrs) -> Window {
        let size = pair(attrs.ints("window"), [1, 1]);
        let mut window = Window::conv(attrs, size);
        window.stride = pair(attrs.ints("stride"), size);
        window
    }

    /// Number of windows along an axis of the image.
    pub fn count(&self, axis: usize, image: &Dim) -> Dim {
        self.room(axis, image).floor_div(self.stride[axis]) + Dim::constant(1)
    }

    /// Rows or columns of the image, from the first to the last a window sees.
    pub fn reach(&self, axis: usize) -> i64 {
        self.dilation[axis] * (self.size[axis] - 1) + 1
    }

    /// How far a window can move; negative if it does not fit.
    pub fn room(&self, axis: usize, image: &Dim) -> Dim {
        let [before, after] = self.pad[axis];
        image.clone() + Dim::constant(before + after - self.reach(axis))
    }

    /// Input row or column that output `y` sees at tap `i`, if not padding.
    pub fn at(&self, axis: usize, y: usize, i: usize, image: usize) -> Option<usize> {
        let p = y as i64 * self.stride[axis] + i as i64 * self.dilation[axis] - self.pad[axis][0];
        usize::try_from(p).ok().filter(|p| *p < image)
    }

    pub fn extents(&self) -> [Dim; 2] {
        self.size.map(Dim::constant)
    }

    /// What window `at` of operand 0, an image, sees at `tap`, and whether that
    /// is not padding, where it is not certain.
    pub fn tap(&self, k: &mut dyn Pull, at: &[Ix], tap: &[Ix]) -> (Reg, Option<Reg>) {
        let image = k.operand_type(0).shape;
        let mut inside = None;
        let mut from = at[..2].to_vec();
        let mut guarded = vec![];
        for axis in 0..2 {
            let p = self.position(axis, &at[2 + axis], &tap[axis]);
            if self.pad[axis] == [0, 0] {
                from.push(p);
                continue;
            }
            let p = k.index(&p);
            let real = pull::inside(k, p, &image[2 + axis]);
            inside = Some(pull::and(k, inside, real));
            let p = pull::clamp(k, p, &image[2 + axis]);
            from.push(k.dynamic(p));
            guarded.push(image[2 + axis].clone());
        }
        (k.guarded(0, &from, &guarded), inside)
    }

    /// Row or column of tap `i` of window `y`, possibly in the padding.
    pub fn position(&self, axis: usize, y: &Ix, i: &Ix) -> Ix {
        let p = y
            .scale(&Dim::constant(self.stride[axis]))
            .plus(&i.scale(&Dim::constant(self.dilation[axis])));
        pull::minus(&p, &Dim::constant(self.pad[axis][0]))
    }

    /// How many windows can contain one row or column (without dilation).
    pub fn cover(&self, axis: usize) -> i64 {
        (self.size[axis] + self.stride[axis] - 1) / self.stride[axis]
    }

    /// The `t`-th window (counted from the last) that contains pixel `at` of the
    /// image, as an index into the results of `windows` that is always in bounds
    /// if there are any, and whether there is such a window.
    pub fn covering(
        &self,
        k: &mut dyn Pull,
        at: &[Ix],
        t: &[Ix],
        windows: &[Dim],
    ) -> (Vec<Ix>, Reg) {
        let (y, some_y) = self.covering_axis(k, 0, &at[2], &t[0], &windows[2]);
        let (x, some_x) = self.covering_axis(k, 1, &at[3], &t[1], &windows[3]);
        let some = k.op(ScalarOp::And, &[some_y, some_x]);
        (vec![at[0].clone(), at[1].clone(), k.dynamic(y), k.dynamic(x)], some)
    }

    fn covering_axis(
        &self,
        k: &mut dyn Pull,
        axis: usize,
        p: &Ix,
        t: &Ix,
        windows: &Dim,
    ) -> (Reg, Reg) {
        let padded = p.plus(&Ix::constant(self.pad[axis][0]));
        let padded = k.index(&padded);
        let stride = pull::int(k, self.stride[axis]);
        let last = k.op(ScalarOp::Div, &[padded, stride]);
        let t = k.index(t);
        let y = k.op(ScalarOp::Sub, &[last, t]);
        let mut real = pull::inside(k, y, windows);
        if self.size[axis] % self.stride[axis] != 0 {
            let first = k.op(ScalarOp::Mul, &[y, stride]);
            let tap = k.op(ScalarOp::Sub, &[padded, first]);
            let size = pull::int(k, self.size[axis]);
            let near = k.op(ScalarOp::Lt, &[tap, size]);
            real = k.op(ScalarOp::And, &[real, near]);
        }
        (pull::clamp(k, y, windows), real)
    }

    /// How many rows or columns of window `y` lie in the image, at least one.
    pub fn overlap(&self, k: &mut dyn Pull, axis: usize, y: &Ix, image: &Dim) -> Reg {
        if self.pad[axis] == [0, 0] {
            return pull::int(k, self.size[axis]);
        }
        let first = self.position(axis, y, &Ix::constant(0));
        let end = first.plus(&Ix::constant(self.size[axis]));
        let (first, end) = (k.index(&first), k.index(&end));
        let (zero, one, size) = (pull::int(k, 0), pull::int(k, 1), k.index(&pull::ix(image)));
        let first = k.op(ScalarOp::Max, &[first, zero]);
        let end = k.op(ScalarOp::Min, &[end, size]);
        let count = k.op(ScalarOp::Sub, &[end, first]);
        k.op(ScalarOp::Max, &[count, one])
    }

    /// As [`Window::overlap`], for the oracle.
    pub fn overlap_at(&self, axis: usize, y: usize, image: usize) -> usize {
        let first = y as i64 * self.stride[axis] - self.pad[axis][0];
        let end = (first + self.size[axis]).min(image as i64);
        (end - first.max(0)).max(1) as usize
    }
}

/// The operand is `[batch, channels, height, width]`.
pub fn image(cx: &InferCx<'_>, i: usize, ty: &TensorType) -> Result<(), InferError> {
    if ty.rank() == 4 {
        return Ok(());
    }
    Err(InferError::new(
        "E0239",
        format!("`{}` works on images: [batch, channels, height, width]", cx.op),
    )
    .at(Blame::Operand(i), format!("this is {ty}, rank {}", ty.rank()))
    .help("give it the missing axes with `reshape`"))
}

/// The attributes of a window are possible ones.
pub fn check(cx: &InferCx<'_>, window: &Window, pool: bool) -> Result<(), InferError> {
    sizes::entries(cx, "pad", 4)?;
    if !(pool && cx.attrs.ints("stride").is_empty()) {
        sizes::entries(cx, "stride", 2)?;
    }
    sizes::entries(cx, if pool { "window" } else { "dilation" }, 2)?;
    let bad = |name: &'static str, least: i64, values: [i64; 2]| {
        let place = if cx.attrs.get(name).is_some() { Blame::Attr(name) } else { Blame::Op };
        let wrong = values.into_iter().find(|v| !(least..=LIMIT).contains(v))?;
        Some(
            InferError::new("E0241", format!("`{name}` of `{}` cannot be {wrong}", cx.op))
                .at(place, format!("expected whole numbers from {least} to {LIMIT}")),
        )
    };
    let size = if pool { "window" } else { "kernel" };
    // The size first: the stride of a pooling op is its window unless told.
    let found = bad(size, 1, window.size)
        .or_else(|| bad("stride", 1, window.stride))
        .or_else(|| bad("dilation", 1, window.dilation))
        .or_else(|| bad("pad", 0, window.pad[0]))
        .or_else(|| bad("pad", 0, window.pad[1]));
    if let Some(err) = found {
        return Err(err);
    }
    let too_much = |a: usize| window.pad[a].iter().any(|p| *p >= window.size[a]);
    if pool && (too_much(0) || too_much(1)) {
        return Err(InferError::new(
            "E0241",
            format!("the padding of `{}` must be smaller than its window", cx.op),
        )
        .at(Blame::Attr("pad"), "some windows would see nothing but padding")
        .at(Blame::Attr("window"), format!("this is {:?}", window.size)));
    }
    Ok(())
}

/// Height and width of the result, for an image of this shape.
pub fn output(cx: &InferCx<'_>, window: &Window, image: &[Dim]) -> Result<[Dim; 2], InferError> {
    let mut out = [Dim::constant(0), Dim::constant(0)];
    for axis in 0..2 {
        let size = &image[2 + axis];
        out[axis] = window.count(axis, size);
        if (out[axis].clone() - Dim::constant(1)).is_always_negative() {
            let what = ["height", "width"][axis];
            let reach = window.reach(axis);
            let padded = size.clone() + Dim::constant(window.pad[axis].iter().sum());
            return Err(InferError::new(
                "E0242",
                format!("a window of {what} {reach} does not fit the {what} {padded} of the image, padding included"),
            )
            .at(Blame::Operand(0), format!("this is {}", cx.operands[0]))
            .help("use a smaller window, or pad the image"));
        }
    }
    Ok(out)
}

/// Result type of a pooling op on an image.
pub fn pooled(cx: &InferCx<'_>, image_ty: &TensorType) -> Result<TensorType, InferError> {
    image(cx, 0, image_ty)?;
    let window = Window::pool(cx.attrs);
    check(cx, &window, true)?;
    let [h, w] = output(cx, &window, &image_ty.shape)?;
    let shape = vec![image_ty.shape[0].clone(), image_ty.shape[1].clone(), h, w];
    Ok(TensorType::new(image_ty.dtype, shape))
}

/// The operand has the shape an op's forward result has.
pub fn matches(cx: &InferCx<'_>, i: usize, expected: &[Dim]) -> Result<(), InferError> {
    let ty = &cx.operands[i];
    if ty.shape == expected {
        return Ok(());
    }
    let expected = TensorType::new(ty.dtype, expected.to_vec());
    Err(InferError::new("E0243", format!("`{}` got an operand of the wrong shape", cx.op))
        .at(Blame::Operand(i), format!("this is {ty}, but {expected} is needed")))
}

/// The pooling attributes of `attrs`, for the op's relatives.
pub fn pool_attrs(attrs: &Attrs) -> Attrs {
    ["window", "stride", "pad"].into_iter().fold(Attrs::none(), |out, name| match attrs.get(name) {
        Some(value) => out.with(name, value.clone()),
        None => out,
    })
}

/// As [`pool_attrs`], with the shape of the image.
pub fn pool_grad_attrs(attrs: &Attrs, image: &TensorType) -> Attrs {
    pool_attrs(attrs).with("shape", Attr::Shape(image.shape.clone()))
}
