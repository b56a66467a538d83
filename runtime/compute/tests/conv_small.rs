//! Convolutions of small pictures: every bit against the chains of multiply-adds that
//! docs/numerics.md promises, and every byte touched between pages nobody may touch.

use tfc_abi::DType;
use tfc_abi::plan::ConvKind;
use tfc_compute::Pool;
use tfc_compute::conv::{ConvArgs, real};
use tfc_compute::gemm::arch;
use tfc_compute::gemm::kernel::Kernels;
use tfc_compute::gemm::prepack::{PackCache, Stays};
use tfc_compute::guard::{self, Guard};
use tfc_compute::mem::Bytes;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// A number of many bits.
    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.below(2001) as f32 - 1000.0) / 777.0).collect()
    }
}

/// A geometry without memory, whose result has the given size. `plain` keeps it from methods
/// with other sums.
fn shape(
    kind: ConvKind,
    [channels, filters, groups]: [usize; 3],
    out: [usize; 2],
    [kernel, stride, dilation, pad]: [usize; 4],
) -> ConvArgs<'static> {
    let size =
        |out: usize| ((out - 1) * stride + (kernel - 1) * dilation + 1).saturating_sub(2 * pad);
    ConvArgs {
        kind,
        dtype: DType::F32,
        lhs: std::ptr::null(),
        rhs: std::ptr::null(),
        out: std::ptr::null_mut(),
        batch: 1,
        in_channels: channels,
        in_h: size(out[0]).max(1),
        in_w: size(out[1]).max(1),
        out_channels: filters,
        out_h: out[0],
        out_w: out[1],
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [dilation; 2],
        pad: [pad; 2],
        groups,
        plain: true,
        rhs_stays: None,
    }
}

/// Elements of the image, of the filters and of the output.
fn sizes(c: &ConvArgs<'_>) -> [usize; 3] {
    [
        c.batch * c.in_channels * c.in_h * c.in_w,
        c.out_channels * (c.in_channels / c.groups) * c.kernel[0] * c.kernel[1],
        c.batch * c.out_channels * c.out_h * c.out_w,
    ]
}

/// The sums as they are documented: chains over channels and taps in blocks of equal length,
/// where padding is zero.
fn chains(c: &ConvArgs<'_>, l: &[f32], w: &[f32]) -> Vec<f32> {
    let forward = c.kind == ConvKind::Forward;
    let (ci, co) = (c.in_channels / c.groups, c.out_channels / c.groups);
    let taps = c.kernel[0] * c.kernel[1];
    let (from, to) = if forward { (ci, co) } else { (co, ci) };
    let (read, made) = ([c.in_h, c.in_w], [c.out_h, c.out_w]);
    let (read, made) = if forward { (read, made) } else { (made, read) };
    let k = from * taps;
    let each = k.div_ceil(k.div_ceil(384).max(1));
    let mut out = vec![];
    for at in 0..c.batch * c.groups * to * made[0] * made[1] {
        let (x, rest) = (at % made[1], at / made[1]);
        let (y, rest) = (rest % made[0], rest / made[0]);
        let (channel, matrix) = (rest % to, rest / to);
        let mut total = None;
        for first in (0..k).step_by(each) {
            let mut sum = 0f32;
            for p in first..(first + each).min(k) {
                let (q, tap) = (p / taps, p % taps);
                let (ky, kx) = (tap / c.kernel[1], tap % c.kernel[1]);
                let place = |o: usize, k: usize, a: usize| {
                    let away = (k * c.dilation[a]) as isize - c.pad[a] as isize;
                    match forward {
                        true => (o * c.stride[a]) as isize + away,
                        false => o as isize - away,
                    }
                };
                let (sy, sx) = (place(y, ky, 0), place(x, kx, 1));
                let inside =
                    (0..read[0] as isize).contains(&sy) && (0..read[1] as isize).contains(&sx);
                let plane = (matrix * from + q) * read[0] * read[1];
                let pixel = match inside {
                    true => l[plane + sy as usize * read[1] + sx as usize],
                    false => 0.0,
                };
                let (o, i) = if forward { (channel, q) } else { (q, channel) };
                let group = matrix % c.groups;
                sum = pixel.mul_add(w[((group * co + o) * ci + i) * taps + tap], sum);
            }
            total = Some(total.map_or(sum, |t: f32| t + sum));
        }
        out.push(total.unwrap_or(0.0));
    }
    out
}

/// Shapes with rows of four to thirty pixels, ends of panels and of tiles, several blocks of
/// `k`, groups and images.
fn shapes(r: &mut Random) -> Vec<ConvArgs<'static>> {
    let mut out = vec![];
    for (i, width) in (4..=30).chain([7, 7, 14, 14, 28]).enumerate() {
        let groups = [1, 1, 2][i % 3];
        let to = [16, 24, 33, 40, 49, 96, 100][r.below(7)];
        let kernel = [1, 3, 3, 2, 5][r.below(5)];
        // Up to three blocks.
        let from = 1 + (20 + r.below(900)) / (kernel * kernel);
        let (stride, dilation, pad) = (1 + r.below(3), 1 + r.below(2), r.below(kernel.min(3)));
        let height = [1, 2, 3, 7][r.below(4)];
        let channels = [from * groups, to * groups, groups];
        let mut c =
            shape(ConvKind::Forward, channels, [height, width], [kernel, stride, dilation, pad]);
        c.batch = [1, 1, 3][r.below(3)];
        out.push(c);
        if i % 2 == 0 {
            let channels = [to * groups, from * groups, groups];
            let around = [kernel, 1, dilation, pad.min(kernel - 1)];
            let back = shape(ConvKind::GradInput, channels, [height, width], around);
            out.push(ConvArgs { batch: c.batch, ..back });
        }
    }
    out
}

/// One filter for each channel.
fn depthwise(r: &mut Random) -> Vec<ConvArgs<'static>> {
    let mut out = vec![];
    for width in (1..=40).chain([64, 65, 70]) {
        let kernel = [1, 2, 3, 3, 5][r.below(5)];
        let (stride, dilation, pad) = (1 + r.below(2), 1 + r.below(2), r.below(kernel.min(3)));
        let channels = 1 + r.below(9);
        let size = [1 + r.below(9), width];
        let kind =
            if stride == 1 && r.below(3) == 0 { ConvKind::GradInput } else { ConvKind::Forward };
        out.push(shape(kind, [channels; 3], size, [kernel, stride, dilation, pad]));
        // The size stays the same.
        out.push(shape(ConvKind::Forward, [channels; 3], size, [3, 1, 1, 1]));
    }
    out
}

fn run(
    kernels: &'static Kernels<f32>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    (l, w): (*const f32, *const f32),
    out: *mut f32,
) {
    let args = ConvArgs { lhs: l.cast(), rhs: w.cast(), out: out.cast(), ..*c };
    // SAFETY: the memory has the sizes of the geometry; the CPU has the set.
    unsafe { real::<f32>(kernels, pool, &args, None) };
}

/// What is read and what is made.
fn ends(c: &ConvArgs<'_>) -> (usize, usize) {
    let [image, _, output] = sizes(c);
    if c.kind == ConvKind::Forward { (image, output) } else { (output, image) }
}

#[test]
fn sums_are_the_chains_that_are_documented() {
    let mut r = Random(1);
    let pools = [Pool::new(1), Pool::new(2), Pool::new(5)];
    let mut all = shapes(&mut r);
    all.extend(depthwise(&mut r));
    for c in &all {
        let (read, made) = ends(c);
        let (l, w) = (r.values(read), r.values(sizes(c)[1]));
        let want = chains(c, &l, &w);
        let cache = PackCache::new(usize::MAX);
        for kernels in arch::all_f32().into_iter().filter(|k| k.name != "portable") {
            // With five threads filters stay, from the second call on.
            for (pool, calls) in pools.iter().zip([1, 1, 3]) {
                let stays = Stays { cache: &cache, tensor: kernels.nr as u64, version: 1 };
                let rhs_stays = (calls > 1).then_some(stays);
                for _ in 0..calls {
                    let mut got = vec![7f32; made];
                    let c = ConvArgs { rhs_stays, ..*c };
                    run(kernels, pool, &c, (l.as_ptr(), w.as_ptr()), got.as_mut_ptr());
                    for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                        let name = kernels.name;
                        assert!(got == want, "{name} {c:?} at {at}: {got}, not {want}");
                    }
                }
            }
        }
    }
}

/// Every operand, and all memory that is taken meanwhile, ends or starts where nothing else
/// is: touching one element more ends the process.
#[test]
fn nothing_outside_is_touched() {
    let mut r = Random(2);
    let mut all = shapes(&mut r);
    all.extend(depthwise(&mut r));
    let bytes = |values: &[f32]| {
        let bytes = Bytes::zeroed(values.len() * 4).unwrap();
        // SAFETY: they are as many.
        unsafe { bytes.as_ptr().cast::<f32>().copy_from(values.as_ptr(), values.len()) };
        bytes
    };
    for mode in [Guard::End, Guard::Start] {
        guard::set(mode);
        for c in &all {
            let (read, made) = ends(c);
            let (l, w) = (r.values(read), r.values(sizes(c)[1]));
            for kernels in arch::all_f32() {
                // A thread of its own has no memory of earlier calls.
                std::thread::scope(|s| {
                    s.spawn(|| {
                        let (l, w) = (bytes(&l), bytes(&w));
                        let out = Bytes::zeroed(made * 4).unwrap();
                        let (l, w) = (l.as_ptr().cast(), w.as_ptr().cast());
                        run(kernels, &Pool::new(1), c, (l, w), out.as_ptr().cast());
                    });
                });
            }
        }
        guard::set(Guard::Off);
    }
}
