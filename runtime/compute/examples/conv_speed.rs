//! Speed of convolutions and their gradients, layer by layer of known networks.
//!
//! `cargo run --release -p tfc-compute --example conv_speed -- [THREADS] [NAME] [kept|walk]`
//!
//! The first column counts images; layers are those of training with small
//! batches, and those of inference ("one", and by network: "rn", "inc", "shuffle").
//! Numbers are GFLOP/s of the best of many calls; "kept" is forward with filters
//! that stay from call to call. "walk" is what a network sees: kept filters that are not in
//! cache, since other layers' came after them, and an epilogue on each finished block.

#[path = "clock/mod.rs"]
mod clock;

use clock::now;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;
use tfc_compute::Pool;
use tfc_compute::conv::{ConvArgs, conv};
use tfc_compute::gemm::BlockFn;
use tfc_compute::gemm::prepack::{PackCache, Stays};

/// Name, images, channels in and out, rows and columns, kernel, stride, padding,
/// groups.
type Layer = (&'static str, usize, [usize; 2], usize, usize, usize, usize, usize);

const LAYERS: [Layer; 93] = [
    ("lenet 1", 64, [1, 32], 28, 5, 1, 2, 1),
    ("lenet 2", 64, [32, 64], 14, 5, 1, 2, 1),
    ("alexnet 1", 4, [3, 64], 224, 11, 4, 2, 1),
    ("alexnet 2", 4, [64, 192], 27, 5, 1, 2, 1),
    ("alexnet 3", 4, [192, 384], 13, 3, 1, 1, 1),
    ("alexnet 2 g2", 4, [96, 256], 26, 5, 1, 2, 2),
    ("alexnet 4 g2", 4, [384, 384], 12, 3, 1, 1, 2),
    ("vgg 1", 1, [3, 64], 224, 3, 1, 1, 1),
    ("vgg 2", 1, [64, 64], 224, 3, 1, 1, 1),
    ("vgg 3", 1, [128, 128], 112, 3, 1, 1, 1),
    ("vgg 8", 1, [512, 512], 28, 3, 1, 1, 1),
    ("resnet stem", 2, [3, 64], 224, 7, 2, 3, 1),
    ("resnet 2a", 2, [64, 64], 56, 1, 1, 0, 1),
    ("resnet 2b", 2, [64, 64], 56, 3, 1, 1, 1),
    ("resnet 2c", 2, [64, 256], 56, 1, 1, 0, 1),
    ("resnet 3 down", 2, [256, 512], 56, 1, 2, 0, 1),
    ("resnet 3b s2", 2, [128, 128], 56, 3, 2, 1, 1),
    ("resnet 4b", 4, [256, 256], 14, 3, 1, 1, 1),
    ("resnet 4c", 4, [256, 1024], 14, 1, 1, 0, 1),
    ("resnet 5b", 8, [512, 512], 7, 3, 1, 1, 1),
    ("resnet 5c", 8, [512, 2048], 7, 1, 1, 0, 1),
    ("googlenet 3a 5x5", 4, [16, 32], 28, 5, 1, 2, 1),
    ("googlenet 4e 3x3", 4, [160, 320], 14, 3, 1, 1, 1),
    ("densenet 3x3", 1, [128, 32], 14, 3, 1, 1, 1),
    ("shufflenet 1x1 g3", 1, [240, 60], 28, 1, 1, 0, 3),
    ("shufflenet dw s1", 1, [240, 240], 28, 3, 1, 1, 240),
    ("shufflenet dw s2", 1, [240, 240], 28, 3, 2, 1, 240),
    ("shufflenet dw @14", 1, [272, 272], 14, 3, 1, 1, 272),
    ("shufflenet dw @7", 1, [544, 544], 7, 3, 1, 1, 544),
    ("one 7x7", 1, [3, 64], 224, 7, 2, 3, 1),
    ("one 256-64 @56", 1, [256, 64], 56, 1, 1, 0, 1),
    ("one 64-64 @56", 1, [64, 64], 56, 1, 1, 0, 1),
    ("one 64-256 @56", 1, [64, 256], 56, 1, 1, 0, 1),
    ("one 256-128 @56", 1, [256, 128], 56, 1, 1, 0, 1),
    ("one 128-512 @28", 1, [128, 512], 28, 1, 1, 0, 1),
    ("one 512-128 @28", 1, [512, 128], 28, 1, 1, 0, 1),
    ("one 256-1024 @14", 1, [256, 1024], 14, 1, 1, 0, 1),
    ("one 1024-256 @14", 1, [1024, 256], 14, 1, 1, 0, 1),
    ("one 512-2048 @7", 1, [512, 2048], 7, 1, 1, 0, 1),
    ("one 2048-512 @7", 1, [2048, 512], 7, 1, 1, 0, 1),
    ("one /2 128 @56", 1, [128, 128], 56, 3, 2, 1, 1),
    ("one /2 256 @28", 1, [256, 256], 28, 3, 2, 1, 1),
    ("one /2 512 @14", 1, [512, 512], 14, 3, 2, 1, 1),
    ("one 1/2 256-512", 1, [256, 512], 56, 1, 2, 0, 1),
    ("one 1/2 1024-2048", 1, [1024, 2048], 14, 1, 2, 0, 1),
    ("one 3x3 64 @56", 1, [64, 64], 56, 3, 1, 1, 1),
    ("one 3x3 128 @28", 1, [128, 128], 28, 3, 1, 1, 1),
    ("one 3x3 256 @14", 1, [256, 256], 14, 3, 1, 1, 1),
    ("one 3x3 512 @7", 1, [512, 512], 7, 3, 1, 1, 1),
    ("one 5x5 32-96 @27", 1, [32, 96], 27, 5, 1, 2, 1),
    ("one 5x5 32-128 @13", 1, [32, 128], 13, 5, 1, 2, 1),
    ("one 5x5 48-128 @6", 1, [48, 128], 6, 5, 1, 2, 1),
    ("one 192-96 @27", 1, [192, 96], 27, 1, 1, 0, 1),
    ("one 512-160 @13", 1, [512, 160], 13, 1, 1, 0, 1),
    ("one 512-64 @13", 1, [512, 64], 13, 1, 1, 0, 1),
    ("one 832-256 @6", 1, [832, 256], 6, 1, 1, 0, 1),
    ("one 512-1000 @13", 1, [512, 1000], 13, 1, 1, 0, 1),
    ("one 128-16 @55", 1, [128, 16], 55, 1, 1, 0, 1),
    ("one 3x3 128-32 @28", 1, [128, 32], 28, 3, 1, 1, 1),
    ("one zf 5x5/2", 1, [96, 256], 54, 5, 2, 0, 1),
    ("mobilenet dw", 1, [96, 96], 112, 3, 2, 1, 96),
    ("rn 1/2 512-1024 @28", 1, [512, 1024], 28, 1, 2, 0, 1),
    ("rn 512-256 @28", 1, [512, 256], 28, 1, 1, 0, 1),
    ("rn 1024-512 @14", 1, [1024, 512], 14, 1, 1, 0, 1),
    ("inc 3x3 64-192 @56", 1, [64, 192], 56, 3, 1, 1, 1),
    ("inc 192-64 @28", 1, [192, 64], 28, 1, 1, 0, 1),
    ("inc 256-64 @28", 1, [256, 64], 28, 1, 1, 0, 1),
    ("inc 192-32 @28", 1, [192, 32], 28, 1, 1, 0, 1),
    ("inc 3x3 64-96 @28", 1, [64, 96], 28, 3, 1, 1, 1),
    ("inc 320-128 @28", 1, [320, 128], 28, 1, 1, 0, 1),
    ("inc /2 128-160 @28", 1, [128, 160], 28, 3, 2, 1, 1),
    ("inc /2 96 @28", 1, [96, 96], 28, 3, 2, 1, 1),
    ("inc 576-224 @14", 1, [576, 224], 14, 1, 1, 0, 1),
    ("inc 576-64 @14", 1, [576, 64], 14, 1, 1, 0, 1),
    ("inc 576-128 @14", 1, [576, 128], 14, 1, 1, 0, 1),
    ("inc 3x3 96-128 @14", 1, [96, 128], 14, 3, 1, 1, 1),
    ("inc /2 128-192 @14", 1, [128, 192], 14, 3, 2, 1, 1),
    ("inc /2 256 @14", 1, [256, 256], 14, 3, 2, 1, 1),
    ("inc 1024-352 @7", 1, [1024, 352], 7, 1, 1, 0, 1),
    ("inc 1024-192 @7", 1, [1024, 192], 7, 1, 1, 0, 1),
    ("inc 3x3 192-320 @7", 1, [192, 320], 7, 3, 1, 1, 1),
    ("inc 3x3 160-224 @7", 1, [160, 224], 7, 3, 1, 1, 1),
    ("shuffle 3x3/2 3-24", 1, [3, 24], 224, 3, 2, 1, 1),
    ("shuffle 24-112 @56", 1, [24, 112], 56, 1, 1, 0, 4),
    ("shuffle 136 @28", 1, [136, 136], 28, 1, 1, 0, 4),
    ("shuffle 272 @14", 1, [272, 272], 14, 1, 1, 0, 4),
    ("shuffle 544 @7", 1, [544, 544], 7, 1, 1, 0, 4),
    ("shuffle dw/2 112 @56", 1, [112, 112], 56, 3, 2, 1, 112),
    ("shuffle dw/2 136 @28", 1, [136, 136], 28, 3, 2, 1, 136),
    ("shuffle dw/2 272 @14", 1, [272, 272], 14, 3, 2, 1, 272),
    ("shuffle dw 136 @28", 1, [136, 136], 28, 3, 1, 1, 136),
    ("shuffle dw 272 @14", 1, [272, 272], 14, 3, 1, 1, 272),
    ("shuffle dw 544 @7", 1, [544, 544], 7, 3, 1, 1, 544),
];

/// What a network does to each finished sum.
fn relu(row: &mut [f32], bias: f32) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        unsafe fn wide(row: &mut [f32], bias: f32) {
            row.iter_mut().for_each(|y| *y = (*y * 0.5 + bias).max(0.0));
        }
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has the feature.
            return unsafe { wide(row, bias) };
        }
    }
    row.iter_mut().for_each(|y| *y = (*y * 0.5 + bias).max(0.0));
}

/// Bytes of the filters that are walked through: more than a last cache holds.
const WALK: usize = 96 << 20;
/// Most of them, where each is small.
const MOST: usize = 256;

fn main() {
    let threads = std::env::args().nth(1).and_then(|t| t.parse().ok()).unwrap_or(1);
    let only = std::env::args().nth(2).unwrap_or_default();
    let walk = std::env::args().any(|a| a == "walk");
    let only_kept = walk || std::env::args().any(|a| a == "kept");
    let pool = Pool::new(threads);
    println!(
        "{:>4} {:<20} {:>9} {:>9} {:>9} {:>9}",
        "n", "layer", "kept", "forward", "input", "filter"
    );
    for (name, batch, [ci, co], size, kernel, stride, pad, groups) in LAYERS {
        if !name.contains(&only) {
            continue;
        }
        let out = (size + 2 * pad - kernel) / stride + 1;
        let image = batch * ci * size * size;
        let filter = co * ci / groups * kernel * kernel;
        let output = batch * co * out * out;
        let fill = |n: usize| (0..n).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<f32>>();
        let (mut x, mut w, mut y) = (fill(image), fill(filter), fill(output));
        let copies = if walk { (WALK / 4 / filter).clamp(2, MOST) } else { 1 };
        let flops = 2.0 * (output * ci / groups * kernel * kernel) as f64 * 1e-9;
        print!("{batch:>4} {name:<20}");
        let cache = PackCache::new(usize::MAX);
        let kept = Stays { cache: &cache, tensor: 1, version: 1 };
        for (kind, rhs_stays) in [
            (ConvKind::Forward, Some(kept)),
            (ConvKind::Forward, None),
            (ConvKind::GradInput, None),
            (ConvKind::GradFilter, None),
        ] {
            if only_kept && rhs_stays.is_none() {
                continue;
            }
            let (lhs, rhs, result) = match kind {
                ConvKind::Forward => (&x, &w, y.as_mut_ptr()),
                ConvKind::GradInput => (&y, &w, x.as_mut_ptr()),
                ConvKind::GradFilter => (&x, &y, w.as_mut_ptr()),
            };
            let args = ConvArgs {
                kind,
                dtype: DType::F32,
                lhs: lhs.as_ptr().cast(),
                rhs: rhs.as_ptr().cast(),
                out: result.cast(),
                batch,
                in_channels: ci,
                in_h: size,
                in_w: size,
                out_channels: co,
                out_h: out,
                out_w: out,
                kernel: [kernel; 2],
                stride: [stride; 2],
                dilation: [1; 2],
                pad: [pad; 2],
                groups,
                plain: false,
                rhs_stays,
            };
            let (pixels, to) = (out * out, result as usize);
            let epilogue = |r0: usize, r1: usize, c0: usize, c1: usize| {
                for r in r0..r1 {
                    let at = (to as *mut f32).wrapping_add(r * pixels + c0);
                    // SAFETY: this block of the result is finished, and this thread's.
                    let row = unsafe { std::slice::from_raw_parts_mut(at, c1 - c0) };
                    relu(row, r as f32);
                }
            };
            let finished: Option<BlockFn<'_>> = if walk { Some(&epilogue) } else { None };
            let (start, mut best) = (now(threads), f64::MAX);
            for round in 0.. {
                for tensor in 0..copies {
                    // Each is packed in its second call, and then stays.
                    let rhs_stays = args.rhs_stays.map(|s| Stays { tensor: tensor as u64, ..s });
                    let t = now(threads);
                    // SAFETY: the memory has the sizes of the geometry.
                    unsafe { conv(&pool, &ConvArgs { rhs_stays, ..args }, finished) };
                    if round >= 2 {
                        best = best.min(now(threads) - t);
                    }
                }
                if round >= 3 && now(threads) - start > 0.3 {
                    break;
                }
            }
            if walk {
                print!(" {:>9.1} us", best * 1e6);
            }
            print!(" {:>9.1}", flops / best);
        }
        println!();
    }
}
