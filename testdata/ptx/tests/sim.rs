//! What the simulator computes, and what it must refuse.

use tfc_ptx_sim::{Arg, Device, Launch, Module};

/// A module of one entry `k` with pointers `a` and `b` in `%rd0` and `%rd1`, the
/// number of the thread in the grid in `%r0`, that in the block in `%r1`.
fn module(body: &str) -> String {
    format!(
        ".version 6.4\n.target sm_70\n.address_size 64\n\
         .visible .entry k(.param .u64 a, .param .u64 b)\n{{\n\
         .reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<20>;\n.reg .f64 %fd<8>;\n\
         .reg .pred %p<8>;\n.reg .b16 %h<8>;\n.shared .align 16 .b8 sm[256];\n\
         ld.param.u64 %rd0, [a];\nld.param.u64 %rd1, [b];\n\
         mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n\
         mad.lo.u32 %r0, %r2, %r3, %r1;\n{body}\nret;\n}}\n"
    )
}

/// Runs `body` on `input` and gives `out` bytes.
fn run(body: &str, grid: u32, block: u32, input: &[u8], out: usize) -> Result<Vec<u8>, String> {
    let module = Module::parse(&module(body)).map_err(|e| e.to_string())?;
    let mut device = Device::new();
    let (a, b) = (device.upload(input), device.alloc(out));
    let launch = Launch {
        entry: "k",
        grid: [grid, 1, 1],
        block: [block, 1, 1],
        args: &[Arg::Ptr(a), Arg::Ptr(b)],
        limit: 100_000,
    };
    device.launch(&module, &launch).map_err(|e| e.to_string())?;
    device.read(b, out).map_err(|e| e.to_string())
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn refused(body: &str, grid: u32, block: u32, why: &str) {
    let input = words(0..64);
    match run(body, grid, block, &input, 256) {
        Ok(_) => panic!("accepted, though {why}:\n{body}"),
        Err(e) => assert!(e.contains(why), "not `{why}` but: {e}"),
    }
}

const ADDRESS: &str =
    "mul.wide.u32 %rd2, %r0, 4;\nadd.u64 %rd3, %rd0, %rd2;\nadd.u64 %rd4, %rd1, %rd2;\n";

#[test]
fn threads_of_a_grid_add() {
    let body = format!(
        "{ADDRESS}ld.global.f32 %f0, [%rd3];\nadd.rn.f32 %f1, %f0, 0f3F800000;\n\
         st.global.f32 [%rd4], %f1;"
    );
    let input = words((0..64).map(|i| (i as f32).to_bits()));
    let want = words((0..64).map(|i| (i as f32 + 1.0).to_bits()));
    assert_eq!(run(&body, 2, 32, &input, 256), Ok(want));
}

#[test]
fn a_loop_of_different_lengths_meets_again() {
    // Thread i adds 1 to 0 i times; then all shuffle.
    let body = format!(
        "{ADDRESS}mov.u32 %r4, 0;\nL:\nsetp.ge.u32 %p0, %r4, %r1;\n@%p0 bra E;\n\
         add.u32 %r4, %r4, 1;\nbra L;\nE:\nshfl.sync.down.b32 %r5, %r4, 1, 31, -1;\n\
         st.global.u32 [%rd4], %r5;"
    );
    let want = words((0..32).map(|i| (i + 1).min(31)));
    assert_eq!(run(&body, 1, 32, &words(0..32), 128), Ok(want));
}

#[test]
fn a_block_turns_through_shared_memory() {
    let body = format!(
        "{ADDRESS}mov.u32 %r4, sm;\nshl.b32 %r5, %r1, 2;\nadd.u32 %r5, %r4, %r5;\n\
         st.shared.u32 [%r5], %r1;\nbar.sync 0;\nsub.u32 %r6, 63, %r1;\nshl.b32 %r6, %r6, 2;\n\
         add.u32 %r6, %r4, %r6;\nld.shared.u32 %r7, [%r6];\nst.global.u32 [%rd4], %r7;"
    );
    assert_eq!(run(&body, 1, 64, &words(0..64), 256), Ok(words((0..64).rev())));
}

#[test]
fn floats_are_exact() {
    let one = |op: &str, ins: &[f32]| -> u32 {
        let args: Vec<String> = ins.iter().map(|v| format!("0f{:08X}", v.to_bits())).collect();
        let body = format!("{op} %f0, {};\nst.global.f32 [%rd1], %f0;", args.join(", "));
        let out = run(&body, 1, 1, &[0; 4], 4).expect(op);
        u32::from_le_bytes(out.try_into().expect("four bytes"))
    };
    let tiny = f32::from_bits(1);
    assert_eq!(one("add.rn.f32", &[tiny, tiny]), 2, "subnormals are kept");
    assert_eq!(
        one("fma.rn.f32", &[1.0 + 2f32.powi(-23), 1.0 - 2f32.powi(-23), -1.0]),
        (-(2f32.powi(-46))).to_bits()
    );
    assert_eq!(one("div.rn.f32", &[1.0, 3.0]), (1f32 / 3.0).to_bits());
    assert_eq!(one("sqrt.rn.f32", &[2.0]), 2f32.sqrt().to_bits());
    assert_eq!(one("sub.rn.f32", &[f32::INFINITY, f32::INFINITY]), 0x7fff_ffff);
    assert_eq!(one("min.f32", &[0.0, -0.0]), 0x8000_0000);
    assert_eq!(one("max.NaN.f32", &[1.0, f32::NAN]), 0x7fff_ffff);
    assert_eq!(one("max.f32", &[1.0, f32::NAN]), 1f32.to_bits());
    assert_eq!(one("cvt.rni.f32.f32", &[2.5]), 2f32.to_bits());
    assert_eq!(one("cvt.rmi.f32.f32", &[-0.5]), (-1f32).to_bits());
}

#[test]
fn conversions_saturate() {
    let body = "mov.f32 %f0, 0f7F800000;\ncvt.rzi.s32.f32 %r4, %f0;\nst.global.u32 [%rd1], %r4;\n\
                mov.f64 %fd0, 0d7FF8000000000000;\ncvt.rzi.s32.f64 %r5, %fd0;\n\
                st.global.u32 [%rd1+4], %r5;\nmov.f32 %f1, 0f477FF000;\ncvt.rn.f16.f32 %h0, %f1;\n\
                st.global.b16 [%rd1+8], %h0;\nmov.u32 %r6, -3;\ncvt.s64.s32 %rd5, %r6;\n\
                st.global.u64 [%rd1+16], %rd5;\nst.global.b16 [%rd1+10], %h0;\nst.global.u32 [%rd1+12], %r6;";
    let out = run(body, 1, 1, &[0; 4], 24).expect("runs");
    assert_eq!(out[..4], i32::MAX.to_le_bytes());
    assert_eq!(out[4..8], i32::MIN.to_le_bytes());
    assert_eq!(out[8..10], 0x7c00u16.to_le_bytes());
    assert_eq!(out[16..], (-3i64).to_le_bytes());
}

#[test]
fn out_of_bounds() {
    let body = format!("{ADDRESS}ld.global.f32 %f0, [%rd3+4];\nst.global.f32 [%rd4], %f0;");
    refused(&body, 1, 64, "outside an allocation of 256 bytes");
    refused("ld.global.f32 %f0, [%rd0+-4];", 1, 1, "in no allocation");
    refused("ld.shared.f32 %f0, [sm+256];", 1, 1, "outside 256 bytes of shared memory");
}

#[test]
fn misaligned() {
    refused("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd0+4];", 1, 1, "no multiple of 16");
    refused("st.global.f64 [%rd1+4], 0d0000000000000000;", 1, 1, "no multiple of 8");
}

#[test]
fn uninitialised() {
    refused("add.rn.f32 %f1, %f0, %f0;", 1, 1, "uses %f0, which has no value yet");
    refused("ld.global.f32 %f0, [%rd1];", 1, 1, "never written");
    refused("ld.shared.f32 %f0, [sm];", 1, 1, "never written");
    // Only some threads have a value.
    let body = "setp.lt.u32 %p0, %r1, 3;\n@%p0 mov.u32 %r4, 1;\nadd.u32 %r5, %r4, %r4;";
    refused(body, 1, 32, "thread 3 of block (0, 0, 0) uses %r4");
}

#[test]
fn races() {
    // All threads write one place.
    refused("st.global.u32 [%rd1], %r1;", 1, 2, "a race: writes what was written by thread 0");
    refused("st.global.u32 [%rd1], 7;", 2, 1, "a race");
    // A neighbour's element, without a barrier.
    let exchange = |barrier: &str| {
        format!(
            "{ADDRESS}mov.u32 %r4, sm;\nshl.b32 %r5, %r1, 2;\nadd.u32 %r5, %r4, %r5;\n\
             st.shared.u32 [%r5], %r1;\n{barrier}xor.b32 %r6, %r5, 4;\n\
             ld.shared.u32 %r7, [%r6];\nst.global.u32 [%rd4], %r7;"
        )
    };
    refused(&exchange(""), 1, 64, "a race: reads what was written");
    assert!(run(&exchange("bar.sync 0;\n"), 1, 64, &words(0..64), 256).is_ok());
    // A barrier of the warp is enough within it, and not beyond.
    assert!(run(&exchange("bar.warp.sync -1;\n"), 1, 64, &words(0..64), 256).is_ok());
    let beyond = exchange("bar.warp.sync -1;\n").replace("%r5, 4;", "%r5, 128;");
    refused(&beyond, 1, 64, "never written");
    // A read, then a write by another thread.
    let body = format!("{ADDRESS}ld.global.u32 %r4, [%rd0];\nst.global.u32 [%rd3], %r4;");
    refused(&body, 1, 2, "a race: ");
    // All of a warp read, one of it writes.
    let body = |barrier: &str| {
        format!(
            "ld.global.u32 %r4, [%rd0];\n{barrier}setp.eq.u32 %p0, %r1, 3;\n@%p0 st.global.u32 [%rd0], %r4;\nst.global.u32 [%rd4], %r4;"
        )
    };
    refused(&format!("{ADDRESS}{}", body("")), 1, 32, "several threads of warp 0 of block 0");
    let together = format!("{ADDRESS}{}", body("bar.warp.sync -1;\n"));
    assert!(run(&together, 1, 32, &words(0..32), 128).is_ok());
    // A barrier orders nothing between blocks.
    let body = "setp.eq.u32 %p0, %r2, 0;\n@%p0 st.global.u32 [%rd1], 1;\nbar.sync 0;\n\
                setp.eq.u32 %p1, %r2, 1;\n@%p1 ld.global.u32 %r4, [%rd1];";
    refused(body, 2, 1, "a race: reads what was written by thread 0 of block 0");
    // Bytes of one word by different threads are no race.
    let body = "cvt.u64.u32 %rd2, %r1;\nadd.u64 %rd3, %rd1, %rd2;\nst.global.u8 [%rd3], %r1;";
    assert_eq!(run(body, 1, 8, &[0; 4], 8), Ok((0..8).collect()));
}

#[test]
fn divergent_barriers() {
    let part = "setp.lt.u32 %p0, %r1, 5;\n@%p0 bra E;\nbar.sync 0;\nE:";
    refused(part, 1, 32, "at a barrier that others of its warp are not at");
    let warp = "setp.lt.u32 %p0, %r1, 32;\n@%p0 bra E;\nbar.sync 0;\nE:";
    refused(warp, 1, 64, "has ended while others of its block wait");
    let shuffle = "setp.lt.u32 %p0, %r1, 5;\n@%p0 shfl.sync.idx.b32 %r4, %r1, 0, 31, -1;";
    refused(shuffle, 1, 32, "without those it names");
}

#[test]
fn endless_loops_and_division_by_zero() {
    refused("L:\nbra L;", 1, 1, "limit of instructions");
    refused("mov.u32 %r4, 0;\ndiv.s32 %r5, %r1, %r4;", 1, 1, "divides an integer by zero");
}

#[test]
fn what_is_not_known_is_named() {
    for (text, why) in [
        ("sin.approx.f32 %f0, %f1;", "unknown instruction `sin.approx.f32`"),
        ("add.ftz.f32 %f0, %f1, %f2;", "unknown instruction `add.ftz.f32`"),
        ("add.s32 %r4, %r1, %f2;", "`%f2` is F32 where S32"),
        ("add.rn.f32 %f0, %rd1, %f2;", "`%rd1` is B64 where F32"),
        ("add.rn.f32 %f0, %f99, %f2;", "`%f99` is not declared"),
        ("bra NOWHERE;", "there is no label `NOWHERE`"),
        ("ld.global.v4.f32 {%f0, %f1}, [%rd0];", "2 registers for 4 values"),
        ("ld.param.u64 %rd0, [c];", "there is no parameter `c`"),
        ("add.rn.f32 %f0, %f1;", "with 2 operands"),
    ] {
        let e = Module::parse(&module(text)).map(|_| ()).map_err(|e| e.to_string());
        let e = e.expect_err(text);
        assert!(e.contains(why), "{text}: {e}");
        assert!(e.starts_with("line "), "{e}");
    }
}

#[test]
fn memory_is_freed_once() {
    let mut device = Device::new();
    let ptr = device.upload(&[1, 2, 3]);
    assert_eq!(device.live(), 1);
    assert_eq!(device.free(ptr), Ok(()));
    assert!(device.free(ptr).is_err_and(|e| e.message.contains("freed twice")));
    assert_eq!(device.live(), 0);
    assert!(device.write(ptr, &[1]).is_err_and(|e| e.message.contains("freed")));
}

/// A product of small integers, which every order of sums gives alike.
#[test]
fn matrix_instructions() {
    for (kind, k) in [("f16", 16usize), ("bf16", 16), ("tf32", 8)] {
        let value = |row: usize, col: usize| ((row * 7 + col * 3) % 11) as f32 - 5.0;
        let bits = |v: f32| -> u32 {
            match kind {
                "f16" => u32::from(half::f16::from_f32(v).to_bits()),
                "bf16" => u32::from(half::bf16::from_f32(v).to_bits()),
                _ => v.to_bits(),
            }
        };
        // Per lane: four registers of A, two of B.
        let mut input = vec![];
        for lane in 0..32 {
            let (g, m) = (lane / 4, lane % 4);
            let pair = |f: &dyn Fn(usize) -> f32| bits(f(0)) | bits(f(1)) << 16;
            for reg in 0..4 {
                let row = g + 8 * (reg % 2);
                input.push(match k {
                    16 => pair(&|h| value(row, 2 * m + h + 8 * (reg / 2))),
                    _ => bits(value(row, m + 4 * (reg / 2))),
                });
            }
            for reg in 0..2 {
                input.push(match k {
                    16 => pair(&|h| value(2 * m + h + 8 * reg, g + 1)),
                    _ => bits(value(m + 4 * reg, g + 1)),
                });
            }
        }
        let body = format!(
            "mul.wide.u32 %rd2, %r1, 24;\nadd.u64 %rd2, %rd0, %rd2;\n\
             ld.global.v2.b32 {{%r4, %r5}}, [%rd2];\nld.global.v2.b32 {{%r6, %r7}}, [%rd2+8];\n\
             ld.global.v2.b32 {{%r8, %r9}}, [%rd2+16];\nmov.f32 %f0, 0f00000000;\n\
             mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32 {{%f1, %f2, %f3, %f4}}, \
             {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%f0, %f0, %f0, %f0}};\n\
             mul.wide.u32 %rd3, %r1, 16;\nadd.u64 %rd3, %rd1, %rd3;\n\
             st.global.v4.f32 [%rd3], {{%f1, %f2, %f3, %f4}};"
        );
        let out = run(&body, 1, 32, &words(input), 512).expect(kind);
        for (i, word) in out.chunks(4).enumerate() {
            let (lane, reg) = (i / 4, i % 4);
            let (row, col) = (lane / 4 + 8 * (reg / 2), 2 * (lane % 4) + reg % 2);
            let want: f32 = (0..k).map(|i| value(row, i) * value(i, col + 1)).sum();
            let got = f32::from_le_bytes(word.try_into().expect("four bytes"));
            assert_eq!(got, want, "{kind}: row {row}, column {col}");
        }
    }
}

/// A barrier that asks all threads of a block gives each of them the same answer.
#[test]
fn a_barrier_that_asks_is_answered_for_the_block() {
    let body = format!(
        "{ADDRESS}setp.eq.u32 %p0, %r0, 70;\nbar.red.or.pred %p1, 0, %p0;\n\
         selp.b32 %r5, 1, 0, %p1;\nst.global.b32 [%rd4], %r5;"
    );
    let want = words((0..128).map(|i| u32::from(i >= 64)));
    assert_eq!(run(&body, 2, 64, &words(0..128), 512), Ok(want));
    let two_kinds = "setp.lt.u32 %p0, %r1, 32;\n@%p0 bra OTHER;\nbar.red.or.pred %p1, 0, %p0;\n\
                     ret;\nOTHER:\nbar.sync 0;";
    refused(two_kinds, 1, 64, "another kind of barrier");
}

/// Thread `i` copies 16 bytes to shared memory, commits and waits; then `rest`.
fn copied(wait: &str, rest: &str) -> String {
    format!(
        "{ADDRESS}mov.u32 %r4, sm;\nshl.b32 %r5, %r1, 4;\nadd.u32 %r6, %r4, %r5;\n\
         mul.wide.u32 %rd5, %r1, 16;\nadd.u64 %rd5, %rd0, %rd5;\n\
         cp.async.cg.shared.global [%r6], [%rd5], 16;\ncp.async.commit_group;\n{wait}\n{rest}"
    )
}

const WAIT: &str = "cp.async.wait_group 0;";

#[test]
fn copies_are_there_when_they_were_waited_for() {
    // Four threads copy 64 bytes; with a barrier each reads from its neighbour's.
    let read = "xor.b32 %r7, %r5, 16;\nadd.u32 %r7, %r7, %r4;\nld.shared.u32 %r8, [%r7+4];\n\
                st.global.u32 [%rd4], %r8;";
    let body = copied(WAIT, &format!("bar.sync 0;\n{read}"));
    let want = words([5, 1, 13, 9]);
    assert_eq!(run(&body, 1, 4, &words(0..64), 16), Ok(want));
    // Fewer bytes than there is room for: zeros. Of no bytes the address does not matter.
    let body = "mov.u32 %r4, sm;\nmov.u32 %r5, 8;\nmov.u32 %r6, 0;\nmov.u64 %rd5, 16;\n\
                cp.async.cg.shared.global [%r4], [%rd0], 16, %r5;\n\
                cp.async.cg.shared.global [%r4+16], [%rd5], 16, %r6;\n\
                cp.async.commit_group;\ncp.async.wait_group 0;\n\
                ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r4];\n\
                st.global.v4.u32 [%rd1], {%r8, %r9, %r10, %r11};\n\
                ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r4+16];\n\
                st.global.v4.u32 [%rd1+16], {%r8, %r9, %r10, %r11};";
    assert_eq!(run(body, 1, 1, &words(7..71), 32), Ok(words([7, 8, 0, 0, 0, 0, 0, 0])));
}

#[test]
fn copies_that_are_not_waited_for() {
    let own = "ld.shared.u32 %r8, [%r6];\nst.global.u32 [%rd4], %r8;";
    let early = "a copy is still to write";
    refused(&copied("", own), 1, 4, early);
    // One group may be on its way: this one.
    refused(&copied("cp.async.wait_group 1;", own), 1, 4, early);
    refused(&copied("", "st.shared.u32 [%r6], %r1;"), 1, 4, early);
    refused(&copied("", ""), 1, 4, "ends before the copies");
    // Another's copy, with no barrier.
    let other = "xor.b32 %r7, %r5, 16;\nadd.u32 %r7, %r7, %r4;\nld.shared.u32 %r8, [%r7];\n\
                 st.global.u32 [%rd4], %r8;";
    refused(&copied(WAIT, other), 1, 4, "a race");
    // To where others read, with no barrier.
    let over = "bar.sync 0;\nld.shared.u32 %r8, [%r4];\n\
                cp.async.cg.shared.global [%r6], [%rd5], 16;\n\
                cp.async.commit_group;\ncp.async.wait_group 0;";
    refused(&copied(WAIT, over), 1, 4, "a race");
    let crooked = "mov.u32 %r4, sm;\ncp.async.cg.shared.global [%r4], [%rd0+4], 16;\n\
                   cp.async.commit_group;\ncp.async.wait_group 0;";
    refused(crooked, 1, 1, "no multiple of 16");
    let outside = "mov.u32 %r4, sm;\ncp.async.cg.shared.global [%r4], [%rd0+256], 16;\n\
                   cp.async.commit_group;\ncp.async.wait_group 0;";
    refused(outside, 1, 1, "outside an allocation");
}

#[test]
fn a_warp_loads_matrices() {
    // 16 rows of 8 halves, each half its own number.
    let halves: Vec<u8> = (0..128u16).flat_map(u16::to_le_bytes).collect();
    let fill = "mov.u32 %r4, sm;\nand.b32 %r9, %r1, 15;\nshl.b32 %r5, %r9, 4;\n\
                add.u32 %r6, %r4, %r5;\nsetp.lt.u32 %p0, %r1, 16;\nmul.wide.u32 %rd5, %r9, 16;\n\
                add.u64 %rd5, %rd0, %rd5;\n@%p0 cp.async.ca.shared.global [%r6], [%rd5], 16;\n\
                cp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;";
    for turned in [false, true] {
        let trans = if turned { ".trans" } else { "" };
        let body = format!(
            "{fill}\nldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r7, %r8}}, [%r6];\n\
             mul.wide.u32 %rd2, %r0, 8;\nadd.u64 %rd4, %rd1, %rd2;\n\
             st.global.v2.u32 [%rd4], {{%r7, %r8}};"
        );
        let element = |matrix: u32, row: u32, col: u32| 64 * matrix + 8 * row + col;
        let want = (0..32).flat_map(|lane| {
            let (a, b) = (lane / 4, lane % 4 * 2);
            [0, 1].map(|m| match turned {
                false => element(m, a, b) | element(m, a, b + 1) << 16,
                true => element(m, b, a) | element(m, b + 1, a) << 16,
            })
        });
        assert_eq!(run(&body, 1, 32, &halves, 256), Ok(words(want)), "{turned}");
    }
    let alone = format!("{fill}\n@%p0 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r7}}, [%r6];");
    refused(&alone, 1, 32, "without those it names");
    let crooked = format!("{fill}\nldmatrix.sync.aligned.m8n8.x1.shared.b16 %r7, [%r6+8];");
    refused(&crooked, 1, 32, "no multiple of 16");
}

#[test]
fn a_branch_for_all_that_some_take() {
    let body = "setp.lt.u32 %p0, %r1, 3;\n@%p0 bra.uni E;\nE:";
    refused(body, 1, 32, "said to be taken by all or none");
}
