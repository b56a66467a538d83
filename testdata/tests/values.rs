//! Values that were wrong once, against references of their own.

use half::{bf16, f16};
use tfc::Module;
use tfc_ir::interp::{self, State};
use tfc_ir::{DType, Graph, Tensor};

type Feeds = Vec<(String, Tensor)>;

/// A graph, compiled and for the interpreter.
struct Both {
    module: Module,
    reference: Graph,
}

impl Both {
    fn new(text: &str) -> Both {
        let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let module = tfc::compile(&graph).unwrap_or_else(|e| panic!("{e}"));
        let reference = tfc_passes::pipeline::run_passes(&graph, &["differentiate"])
            .unwrap_or_else(|diags| panic!("{diags:?}"));
        Both { module, reference }
    }

    /// Results by the interpreter, then by compiled code.
    fn run(&self, entry: &str, feeds: &Feeds) -> [Vec<Tensor>; 2] {
        let tensors: Vec<Tensor> = feeds.iter().map(|(_, t)| t.clone()).collect();
        let mut state = State::new(&self.reference).expect("variables");
        let want = interp::run(&self.reference, entry, &tensors, &mut state).expect("interpreted");
        let out = self.module.call(entry, &feeds[..]).unwrap_or_else(|e| panic!("{entry}: {e}"));
        let names: Vec<String> = out.names().map(str::to_string).collect();
        [want, names.iter().map(|n| out.tensor(n).expect("a result")).collect()]
    }
}

fn feed(name: &str, dtype: DType, shape: &[usize], values: &[f64]) -> (String, Tensor) {
    (name.to_string(), Tensor::from_f64(dtype, shape.to_vec(), values.iter().copied()))
}

/// Whole numbers, so that every sum is exact.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed * 3) % 11) as f64 - 5.0).collect()
}

/// One convolution: `[batch, in, h, w]`, `[out, in / groups, kh, kw]` and the rest.
#[derive(Clone, Debug)]
struct Conv {
    image: [usize; 4],
    filter: [usize; 4],
    stride: usize,
    dilation: usize,
    groups: usize,
    /// Top, bottom, left, right.
    pad: [usize; 4],
}

impl Conv {
    fn output(&self) -> [usize; 4] {
        let size = |i: usize| {
            let reach = (self.filter[2 + i] - 1) * self.dilation + 1;
            (self.image[2 + i] + self.pad[2 * i] + self.pad[2 * i + 1] - reach) / self.stride + 1
        };
        [self.image[0], self.filter[0], size(0), size(1)]
    }

    fn fits(&self) -> bool {
        (0..2).all(|i| {
            (self.filter[2 + i] - 1) * self.dilation
                < self.image[2 + i] + self.pad[2 * i] + self.pad[2 * i + 1]
        })
    }

    /// The output, and the gradients of image and filter for the output's
    /// gradient `ct`, all by visiting every pixel and weight that meet.
    fn by_definition(&self, x: &[f64], w: &[f64], ct: &[f64]) -> [Vec<f64>; 3] {
        let [n, ci, h, wd] = self.image;
        let [co, per, kh, kw] = self.filter;
        let [_, _, oh, ow] = self.output();
        let mut out = [vec![0.0; n * co * oh * ow], vec![0.0; x.len()], vec![0.0; w.len()]];
        for flat in 0..n * co * oh * ow * per * kh * kw {
            let (kx, rest) = (flat % kw, flat / kw);
            let (ky, rest) = (rest % kh, rest / kh);
            let (i, pixel) = (rest % per, rest / per);
            let (ox, oy) = (pixel % ow, pixel / ow % oh);
            let (o, b) = (pixel / (ow * oh) % co, pixel / (ow * oh * co));
            let y = (oy * self.stride + ky * self.dilation) as isize - self.pad[0] as isize;
            let z = (ox * self.stride + kx * self.dilation) as isize - self.pad[2] as isize;
            if y < 0 || z < 0 || y >= h as isize || z >= wd as isize {
                continue;
            }
            let channel = o / (co / self.groups) * per + i;
            let at = ((b * ci + channel) * h + y as usize) * wd + z as usize;
            let weight = ((o * per + i) * kh + ky) * kw + kx;
            out[0][pixel] += x[at] * w[weight];
            out[1][at] += ct[pixel] * w[weight];
            out[2][weight] += ct[pixel] * x[at];
        }
        out
    }

    fn entry(&self, name: &str) -> String {
        let [t, b, l, r] = self.pad;
        let (s, d, g) = (self.stride, self.dilation, self.groups);
        format!(
            "entry {name}(x: f32{:?}, w: f32{:?}, c: f32{:?}) -> (y, dx, dw) {{\n  \
             y = conv2d(x, w, stride: [{s}, {s}], pad: [{t}, {b}, {l}, {r}], dilation: [{d}, {d}], \
             groups: {g})\n  (dx, dw) = grad(sum(y * c), wrt: [x, w])\n  return y, dx, dw\n}}\n",
            self.image,
            self.filter,
            self.output()
        )
    }
}

// values 1: 1x1 filters padded only at the bottom or right gave other numbers.
// All small geometries are in the runtime's own tests; here are all paddings.
#[test]
fn convolutions_are_as_defined_whatever_the_padding() {
    let mut convs = vec![];
    for at in 0..3 * 81usize {
        let (k, p) = (1 + at / 81, at % 81);
        let (groups, image, out, per) = [(1, 2, 3, 2), (2, 4, 2, 2), (3, 3, 3, 1)][at % 3];
        let conv = Conv {
            image: [1 + at % 2, image, [1, 3][at / 2 % 2], [2, 4][at / 4 % 2]],
            filter: [out, per, k, if at % 5 == 0 { 1 } else { k }],
            stride: 1 + at / 3 % 2,
            dilation: 1 + at / 7 % 2,
            groups,
            pad: [p / 27, p / 9 % 3, p / 3 % 3, p % 3],
        };
        if conv.fits() {
            convs.push(conv);
        }
    }
    assert!(convs.len() > 180, "{}", convs.len());
    let entries: Vec<String> =
        convs.iter().enumerate().map(|(i, c)| c.entry(&format!("e{i}"))).collect();
    let both = Both::new(&format!("graph g\n{}", entries.concat()));
    for (i, conv) in convs.iter().enumerate() {
        let count = |shape: [usize; 4]| shape.iter().product::<usize>();
        let [x, w, c] = [conv.image, conv.filter, conv.output()].map(|s| numbers(count(s), i));
        let want = conv.by_definition(&x, &w, &c);
        let feeds = vec![
            feed("x", DType::F32, &conv.image, &x),
            feed("w", DType::F32, &conv.filter, &w),
            feed("c", DType::F32, &conv.output(), &c),
        ];
        for (way, got) in ["interpreted", "compiled"].iter().zip(both.run(&format!("e{i}"), &feeds))
        {
            for (what, (want, got)) in ["y", "dx", "dw"].iter().zip(want.iter().zip(got)) {
                assert_eq!(&got.to_f64(), want, "{what} {way}: {conv:?}");
            }
        }
    }
}

// Windows of 3x3 go by tiles, which round differently; `strict` keeps the sums as written.
#[test]
fn strict_convolutions_are_the_sums_as_written() {
    let conv = Conv {
        image: [1, 24, 32, 34],
        filter: [20, 24, 3, 3],
        stride: 1,
        dilation: 1,
        groups: 1,
        pad: [1, 1, 1, 1],
    };
    let count = |shape: [usize; 4]| shape.iter().product::<usize>();
    let [x, w, c] = [conv.image, conv.filter, conv.output()].map(|s| {
        numbers(count(s), 1).iter().map(|v| f64::from(*v as f32 / 3.0)).collect::<Vec<f64>>()
    });
    let want = conv.by_definition(&x, &w, &c);
    let graph = tfc::parse(&format!("graph g\n{}", conv.entry("e"))).expect("a graph");
    let feeds = [
        feed("x", DType::F32, &conv.image, &x),
        feed("w", DType::F32, &conv.filter, &w),
        feed("c", DType::F32, &conv.output(), &c),
    ];
    let run = |math: tfc::Math| {
        let options = tfc::Options::new().math(math);
        let module = tfc::compile_with(&graph, &options).expect("it compiles");
        let out = module.call("e", &feeds[..]).expect("it runs");
        ["y", "dx"].map(|name| out.tensor(name).expect("a result").to_f64())
    };
    let (strict, free) = (run(tfc::Math::Strict), run(tfc::Math::Default));
    for i in 0..2 {
        for (got, want) in [(&strict[i], &want[i]), (&free[i], &want[i])] {
            let near = got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-4 * (1.0 + w.abs()));
            assert!(near, "result {i}");
        }
        assert_ne!(strict[i], free[i], "result {i} went the same way");
    }
    // One chain of multiply-adds: channels, then rows and columns of the filter.
    #[cfg(target_arch = "x86_64")]
    if !std::is_x86_feature_detected!("fma") {
        return;
    }
    let [_, ci, h, wd] = conv.image;
    for (at, got) in strict[0].iter().enumerate() {
        let (ox, oy, o) = (at % wd, at / wd % h, at / (wd * h));
        let mut sum = 0f32;
        for k in 0..ci * 9 {
            let (y, z) = (oy + k / 3 % 3, ox + k % 3);
            if (1..=h).contains(&y) && (1..=wd).contains(&z) {
                let pixel = x[(k / 9 * h + y - 1) * wd + z - 1] as f32;
                sum = pixel.mul_add(w[o * ci * 9 + k] as f32, sum);
            }
        }
        assert_eq!(f64::from(sum), *got, "pixel {at}");
    }
}

// A weight that is NaN or infinite, over padding, met a zero there and made NaN in
// compiled code alone.
#[test]
fn padding_meets_no_weight() {
    let base = Conv {
        image: [2, 2, 4, 5],
        filter: [3, 2, 3, 3],
        stride: 1,
        dilation: 1,
        groups: 1,
        pad: [1, 1, 1, 1],
    };
    let convs = [
        base.clone(),
        Conv { stride: 2, ..base.clone() },
        Conv { dilation: 2, pad: [2, 2, 2, 2], ..base.clone() },
        Conv { pad: [0, 1, 0, 2], ..base.clone() },
        Conv { image: [1, 4, 4, 4], filter: [4, 2, 2, 3], groups: 2, ..base.clone() },
        Conv { image: [1, 3, 4, 4], filter: [3, 1, 3, 3], groups: 3, ..base },
    ];
    for dtype in ["f32", "f64", "f16", "bf16"] {
        let entries = convs.iter().enumerate();
        let entries: String =
            entries.map(|(i, c)| c.entry(&format!("e{i}")).replace("f32", dtype)).collect();
        let both = Both::new(&format!("graph g\n{entries}"));
        let element = DType::from_name(dtype).unwrap();
        for (i, conv) in convs.iter().enumerate() {
            let count = |shape: [usize; 4]| shape.iter().product::<usize>();
            let [x, mut w, c] =
                [conv.image, conv.filter, conv.output()].map(|s| numbers(count(s), i));
            // A corner of the first filter, and the middle of an edge of the last.
            w[0] = f64::NAN;
            let last = w.len() - 2;
            w[last] = f64::INFINITY;
            let want = conv.by_definition(&x, &w, &c);
            assert!(want[0].iter().any(|v| v.is_nan()) && want[0].iter().any(|v| v.is_finite()));
            let feeds = vec![
                feed("x", element, &conv.image, &x),
                feed("w", element, &conv.filter, &w),
                feed("c", element, &conv.output(), &c),
            ];
            let ways = ["interpreted", "compiled"];
            for (way, got) in ways.iter().zip(both.run(&format!("e{i}"), &feeds)) {
                for (what, (want, got)) in ["y", "dx", "dw"].iter().zip(want.iter().zip(got)) {
                    for (at, (want, got)) in want.iter().zip(got.to_f64()).enumerate() {
                        let same = got == *want || got.is_nan() && want.is_nan();
                        // Sums of whole numbers up to a few hundred; bf16 has 8 bits.
                        let near = (got - want).abs() <= 0.01 * want.abs();
                        assert!(
                            same || dtype == "bf16" && near,
                            "{dtype} {what}[{at}] {way}: {got}, {want}; {conv:?}"
                        );
                    }
                }
            }
        }
    }
}

/// The nearest of all values of a half-precision type, ties to even; `infinity` is
/// its bits of that, next to those of the largest finite value.
fn nearest(x: f64, infinity: u16, value: impl Fn(u16) -> f64) -> f64 {
    // Beyond the largest value one more step stands for infinity.
    let top = value(infinity - 1);
    let end = top + (top - value(infinity - 2));
    let at = |bits: u16| if bits == infinity { end } else { value(bits) };
    // Magnitudes grow with their bits: the last one that is not larger.
    let (mut low, mut high) = (0u16, infinity);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if at(middle) <= x.abs() { low = middle } else { high = middle - 1 }
    }
    if low == infinity {
        return f64::INFINITY.copysign(x);
    }
    let up = match (x.abs() - at(low)).total_cmp(&(at(low + 1) - x.abs())) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => low & 1 == 1,
    };
    value(if up { low + 1 } else { low }).copysign(x)
}

// values 7: f64 went to f16 and bf16 by way of f32, and was rounded twice.
#[test]
fn casts_to_half_precision_round_once() {
    let mut values = vec![0.0, -0.0, 65504.0, 65519.999999, 65520.0, 1e300, -1e300, 1e-300, 1e-40];
    for (exponent, last) in
        [(0, -11), (0, -8), (-14, -25), (-15, -25), (-3, -14), (15, 4), (90, 82)]
    {
        let (base, tie) = (2f64.powi(exponent), 2f64.powi(last));
        for steps in [1.0, 2.0, 3.0, 5.0] {
            for nudge in [0.0, 2f64.powi(last - 29), -(2f64.powi(last - 29))] {
                values.extend([base + steps * tie + nudge, -(base + steps * tie + nudge)]);
            }
        }
    }
    assert!(values.contains(&(1.0 + 2f64.powi(-11) + 2f64.powi(-40))));
    let n = values.len();
    let list: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
    let both = Both::new(&format!(
        "graph g\nentry e(x: f64[{n}]) -> (a: f16[{n}], b: bf16[{n}], c: f16[{n}], d: bf16[{n}]) {{\n  \
         k = const(value: f64[{n}]({}))\n  \
         return cast(x, to: f16), cast(x, to: bf16), cast(k, to: f16), cast(k, to: bf16)\n}}\n",
        list.join(", ")
    ));
    let whole: Vec<f64> = values
        .iter()
        .map(|v| nearest(*v, f16::INFINITY.to_bits(), |b| f16::from_bits(b).to_f64()))
        .collect();
    let brain: Vec<f64> = values
        .iter()
        .map(|v| nearest(*v, bf16::INFINITY.to_bits(), |b| bf16::from_bits(b).to_f64()))
        .collect();
    for got in both.run("e", &vec![feed("x", DType::F64, &[n], &values)]) {
        for (want, got) in [&whole, &brain, &whole, &brain].iter().zip(got) {
            for (i, (w, g)) in want.iter().zip(got.to_f64()).enumerate() {
                assert_eq!(
                    w.to_bits(),
                    g.to_bits(),
                    "{:?} to {}: {g}, not {w}",
                    values[i],
                    got.dtype()
                );
            }
        }
    }
    // Literals of the command line, as they are read by programs.
    for (dtype, want) in [(DType::F16, &whole), (DType::BF16, &brain)] {
        for (value, want) in values.iter().zip(want) {
            assert_eq!(
                Tensor::from_f64(dtype, vec![1], [*value]).to_f64()[0].to_bits(),
                want.to_bits()
            );
        }
    }
}

// values 3: a masked class made the loss NaN.
#[test]
fn masked_logits_have_finite_losses() {
    let both = Both::new(
        "graph g\nuse nn\n\
         entry xent(z: f32[2, 3], t: i64[2]) -> (loss, dz) {\n  loss = nn.softmax_xent(z, t)\n\
         \x20 return loss, grad(sum(loss), wrt: z)\n}\n\
         entry with(z: f32[2, 3], p: f32[2, 3]) -> (loss, dz, dp) {\n\
         \x20 loss = nn.softmax_xent_with(z, p)\n\
         \x20 (dz, dp) = grad(sum(loss), wrt: [z, p])\n  return loss, dz, dp\n}\n\
         entry binary(z: f32[5], t: f32[5]) -> (loss, dz) {\n  loss = nn.sigmoid_xent(z, t)\n\
         \x20 return loss, grad(sum(loss), wrt: z)\n}\n\
         entry kl(z: f32[1, 3], y: f32[1, 3]) -> (loss, dz, dy) {\n\
         \x20 loss = nn.kl_divergence(z, y)\n\
         \x20 (dz, dy) = grad(sum(loss), wrt: [z, y])\n  return loss, dz, dy\n}\n\
         entry lse(z: f32[4, 2]) -> (y) { return nn.logsumexp(z) }\n\
         entry soft(z: f32[1, 3]) -> (y) { return nn.softmax(z) }\n\
         entry plus(x: f32[3]) -> (y, dx) {\n  y = nn.softplus(x)\n\
         \x20 return y, grad(sum(y), wrt: x)\n}\n",
    );
    let inf = f64::INFINITY;
    let check = |entry: &str, feeds: Feeds, want: &[&[f64]]| {
        for got in both.run(entry, &feeds) {
            assert_eq!(got.len(), want.len());
            for (got, want) in got.iter().zip(want) {
                let got = got.to_f64();
                let close = |(g, w): (&f64, &f64)| g == w || (g - w).abs() < 1e-5;
                assert!(
                    got.len() == want.len() && got.iter().zip(*want).all(close),
                    "{entry}: {got:?}, not {want:?}"
                );
            }
        }
    };
    // Two classes are left: exp(0.3) and exp(1).
    let p = 0.3f64.exp() / (0.3f64.exp() + 1f64.exp());
    let z = feed("z", DType::F32, &[2, 3], &[0.3, -inf, 1.0, 0.3, -inf, 1.0]);
    let t = ("t".to_string(), Tensor::from_i64(DType::I64, vec![2], [0, 1]));
    let dz = [p - 1.0, 0.0, 1.0 - p, p, -1.0, 1.0 - p];
    check("xent", vec![z.clone(), t], &[&[-p.ln(), inf], &dz]);
    let targets = feed("p", DType::F32, &[2, 3], &[1.0, 0.0, 0.0, 0.5, 0.0, 0.5]);
    let second = -0.5 * p.ln() - 0.5 * (1.0 - p).ln();
    let dz = [p - 1.0, 0.0, 1.0 - p, p - 0.5, 0.0, 0.5 - p];
    let dp = [-p.ln(), 0.0, -(1.0 - p).ln(), -p.ln(), 0.0, -(1.0 - p).ln()];
    check("with", vec![z, targets], &[&[-p.ln(), second], &dz, &dp]);
    let z = feed("z", DType::F32, &[5], &[-inf, inf, 0.0, inf, 30.0]);
    let t = feed("t", DType::F32, &[5], &[0.0, 1.0, 1.0, 0.0, 1.0]);
    check("binary", vec![z, t], &[&[0.0, 0.0, 2f64.ln(), inf, 0.0], &[0.0, 0.0, -0.5, 1.0, 0.0]]);
    let z = feed("z", DType::F32, &[1, 3], &[0.3, -inf, 1.0]);
    let y = feed("y", DType::F32, &[1, 3], &[0.0, -inf, 0.0]);
    let kl = p * (2.0 * p).ln() + (1.0 - p) * (2.0 * (1.0 - p)).ln();
    let slope = p * ((2.0 * p).ln() - kl);
    check("kl", vec![z.clone(), y], &[&[kl], &[slope, 0.0, -slope], &[0.5 - p, 0.0, p - 0.5]]);
    check("soft", vec![z], &[&[p, 0.0, 1.0 - p]]);
    let z = feed("z", DType::F32, &[4, 2], &[-inf, -inf, inf, 1.0, -inf, 2.0, -inf, inf]);
    check("lse", vec![z], &[&[-inf, inf, 2.0, inf]]);
    let x = feed("x", DType::F32, &[3], &[0.0, -inf, inf]);
    check("plus", vec![x], &[&[2f64.ln(), 0.0, inf], &[0.5, 0.0, 1.0]]);
}

// review 3: sharing a loop with something heavy changed the bits of a sum.
#[test]
fn a_sum_has_the_same_bits_alone_and_in_company() {
    let text = "graph g\ndim N\n\
                entry alone(x: f32[N]) -> (s: f32[]) { return sum(x) }\n\
                entry light(x: f32[N]) -> (s: f32[], t: f32[]) { return sum(x), sum(x * x) }\n\
                entry heavy(x: f32[N]) -> (s: f32[], t: f32[]) {\n\
                \x20 return sum(x), sum(sin(x) * exp(x) + erf(x))\n}\n\
                entry rows(x: f32[3, N]) -> (s: f32[3]) { return sum(x, axes: [1]) }\n";
    let module = tfc::compile(&tfc::parse(text).expect("a graph")).expect("a module");
    for n in (0..70).chain([255, 1000, 4099]) {
        let values: Vec<f64> = (0..n).map(|i| 1.0 / (i as f64 + 1.7)).collect();
        let sum = |entry: &str, shape: &[usize], values: &[f64]| {
            let feeds = [feed("x", DType::F32, shape, values)];
            module.call(entry, &feeds[..]).expect("a call").tensor("s").expect("a sum").to_f64()
        };
        let want = sum("alone", &[n], &values)[0];
        assert_eq!(sum("light", &[n], &values)[0].to_bits(), want.to_bits(), "{n}");
        assert_eq!(sum("heavy", &[n], &values)[0].to_bits(), want.to_bits(), "{n}");
        for row in sum("rows", &[3, n], &values.repeat(3)) {
            // Threads share the whole sum of a tensor, in rows of 4096.
            assert!(n > 4096 || row.to_bits() == want.to_bits(), "{n}");
        }
    }
}

/// Bytes of working memory of an entry, with every run-time dim at `size`.
fn working_memory(module: &Module, entry: &str, size: i64) -> i64 {
    let plan = module.model().plan();
    let entry = plan.entries.iter().find(|e| e.name == entry).expect("an entry");
    let dims = vec![size; plan.dims.len()];
    entry.slots.iter().map(|s| entry.exprs[*s as usize].eval(&dims).expect("a size")).sum()
}

// user 9: adagrad on rows compared every id with every other.
#[test]
fn adagrad_on_rows_takes_memory_for_its_rows_alone() {
    let text = "graph g\nuse optim\ndim N\n\
                var table: f32[1000, 8] = zeros\n\
                entry step(ids: i64[N], g: f32[N, 8]) {\n  optim.sparse_adagrad(table, ids, g)\n}\n";
    let module = tfc::compile(&tfc::parse(text).expect("a graph")).expect("a module");
    let rows = |n: i64| n * 8 * 4;
    // Neither the table, of 32,000 bytes, nor anything quadratic.
    assert!(working_memory(&module, "step", 1) < 4 * 64, "{}", working_memory(&module, "step", 1));
    assert!(working_memory(&module, "step", 16_384) <= 4 * rows(16_384));
    // Ids that repeat are added up first, whatever stood in the table before.
    let (mut sum, mut row) = (0f64, 0f64);
    for round in 1..4 {
        let g: Vec<f64> = (0..24).map(|i| f64::from(round * (i % 8)) - 1.0).collect();
        let feeds = [
            ("ids".to_string(), Tensor::from_i64(DType::I64, vec![3], [7, 2, 7])),
            feed("g", DType::F32, &[3, 8], &g),
        ];
        module.call("step", &feeds[..]).expect("a step");
        // Column 5 of row 7, which is named twice.
        let total = g[5] + g[21];
        sum += total * total;
        row -= 0.01 * total / ((sum + 0.1).sqrt() + 1e-8);
        let table = module.var_tensor("table").expect("the table").to_f64();
        assert!((table[7 * 8 + 5] - row).abs() < 1e-6, "{} {row}", table[7 * 8 + 5]);
        let touched = table.chunks(8).filter(|r| r.iter().any(|v| *v != 0.0)).count();
        assert_eq!(touched, 2);
    }
}

/// The extents of the kernels an entry launches, with no run-time dims.
fn launches(module: &Module, entry: &str) -> Vec<i64> {
    let plan = module.model().plan();
    let entry = plan.entries.iter().find(|e| e.name == entry).expect("an entry");
    let launches = entry.steps.iter().filter_map(|step| match step {
        tfc_abi::plan::Step::Launch(l) => entry.exprs[l.extent as usize].eval(&[]),
        _ => None,
    });
    launches.collect()
}

// review 4: a reduction to a scalar was one thread's work, however large.
#[test]
fn large_reductions_are_shared_by_threads_and_give_the_same_bits() {
    let text = "graph g\n\
                entry loss(x: f32[600, 700], y: f32[600, 700]) -> (s: f32[]) {\n\
                \x20 d = x - y\n  return mean(d * d)\n}\n\
                entry flat(x: f32[200003], y: f32[1]) -> (s: f32[]) { return sum(x) + sum(y) }\n\
                entry half(x: f16[70000], y: f16[1]) -> (s: f16[]) { return sum(x) + sum(y) }\n\
                entry most(x: f32[3, 70001], y: f32[1]) -> (s: f32[1, 1]) {\n\
                \x20 return max(x, axes: [0, 1], keep: true) + y\n}\n\
                entry small(x: f32[100, 100], y: f32[1]) -> (s: f32[]) { return sum(x) + sum(y) }\n";
    let graph = tfc::parse(text).expect("a graph");
    let modules = [1, 2, 5]
        .map(|n| tfc::compile_with(&graph, &tfc::Options::new().threads(n)).expect("a module"));
    assert!(launches(&modules[0], "loss").contains(&600));
    assert!(launches(&modules[0], "flat").contains(&(200_003 / 4096)));
    assert!(launches(&modules[0], "half").contains(&(70_000 / 4096)));
    assert!(launches(&modules[0], "small").iter().all(|n| *n == 1));
    let cases: [(&str, DType, &[usize], &[usize]); 5] = [
        ("loss", DType::F32, &[600, 700], &[600, 700]),
        ("flat", DType::F32, &[200_003], &[1]),
        ("half", DType::F16, &[70_000], &[1]),
        ("most", DType::F32, &[3, 70_001], &[1]),
        ("small", DType::F32, &[100, 100], &[1]),
    ];
    for (entry, dtype, x, y) in cases {
        let value = |i: usize| (i * 7919 % 1013) as f64 / 1013.0 - 0.3;
        let values = |shape: &[usize], by: f64| -> Vec<f64> {
            (0..shape.iter().product()).map(|i| value(i) * by).collect()
        };
        let (xs, ys) = (values(x, 1.0), values(y, 0.5));
        let feeds = [feed("x", dtype, x, &xs), feed("y", dtype, y, &ys)];
        let results = modules.each_ref().map(|m| {
            m.call(entry, &feeds[..]).expect("a call").tensor("s").expect("a result").to_f64()
        });
        assert!(results.iter().all(|r| r == &results[0]), "{entry}: {results:?}");
        let pairs = xs.iter().zip(&ys);
        let want = match entry {
            "loss" => pairs.map(|(x, y)| (x - y).powi(2)).sum::<f64>() / xs.len() as f64,
            "most" => xs.iter().copied().fold(f64::MIN, f64::max) + ys[0],
            _ => xs.iter().sum::<f64>() + ys[0],
        };
        let tolerance = if dtype == DType::F16 { 1e-3 } else { 1e-5 };
        let (got, want) = (results[0][0], want);
        assert!((got - want).abs() <= tolerance * want.abs(), "{entry}: {got}, not {want}");
    }
}

/// A weight that is used at every step has a sum of products for its gradient, which become one.
/// Whole numbers: in any order the sum is the same.
#[test]
fn the_gradient_of_a_shared_weight_is_one_product() {
    let steps: String =
        (0..20).map(|t| format!("  total = total + sum(x[{t}] @ w * y[{t}])\n")).collect();
    let both = Both::new(&format!(
        "graph g\nvar w: f32[40, 48] = zeros\n\
         entry f(x: f32[20, 3, 40], y: f32[20, 3, 48]) -> (d: f32[40, 48]) {{\n\
         total = 0.0\n{steps}  return grad(total, w)\n}}\n"
    ));
    let feeds = vec![
        feed("x", DType::F32, &[20, 3, 40], &numbers(2400, 1)),
        feed("y", DType::F32, &[20, 3, 48], &numbers(2880, 2)),
    ];
    let [want, got] = both.run("f", &feeds);
    assert_eq!(want, got);
    let options = tfc_passes::PassOptions::default();
    let graph = tfc_passes::optimize(&both.reference, &options).unwrap();
    let mut products = 0;
    graph.entries[0].walk(&mut |_, node| products += usize::from(node.op.name() == "matmul"));
    assert_eq!(products, 1);
}
