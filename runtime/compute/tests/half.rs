//! The 16-bit floats against the `half` crate, and against the definition.

use tfc_compute::half::{bf16, f16};

#[test]
fn every_half_widens() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (f16::from_bits(bits).to_f32(), half::f16::from_bits(bits).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:x}");
        assert_eq!(ours.is_sign_negative(), bits >> 15 == 1);
        let (ours, theirs) = (bf16::from_bits(bits).to_f32(), half::bf16::from_bits(bits).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:x}");
    }
}

/// Each half comes back, and so does what lies between it and the next: the
/// nearer one, of two equally near the even one.
fn rounds(
    widen: impl Fn(u16) -> f64,
    narrow: impl Fn(f64) -> u16,
    narrow32: impl Fn(f32) -> u16,
    infinity: u16,
) {
    for low in 0..infinity {
        let (a, high) = (widen(low), low + 1);
        // The next step where the next is infinity.
        let b = if high == infinity { a + (a - widen(low - 1)) } else { widen(high) };
        let even = if low % 2 == 0 { low } else { high };
        let middle = (a + b) / 2.0;
        let cases = [
            (a, low),
            (middle.next_down(), low),
            (middle, even),
            (middle.next_up(), high),
            (a + (b - a) * 0.25, low),
            (a + (b - a) * 0.75, high),
        ];
        for (value, want) in cases {
            assert_eq!(narrow(value), want, "{value:e}");
            assert_eq!(narrow(-value), want | 0x8000, "{value:e}");
            let single = value as f32;
            if f64::from(single) == value {
                assert_eq!(narrow32(single), want, "{value:e}");
                assert_eq!(narrow32(-single), want | 0x8000, "{value:e}");
            }
        }
    }
    for huge in [f64::MAX, f64::INFINITY, 1e39] {
        assert_eq!(narrow(huge), infinity);
        assert_eq!(narrow(-huge), infinity | 0x8000);
    }
    assert!(widen(narrow(f64::NAN)).is_nan());
    assert!(widen(narrow32(f32::from_bits(0x7f80_0001))).is_nan());
}

#[test]
fn halves_round_to_the_nearest() {
    rounds(
        |bits| f16::from_bits(bits).into(),
        |v| f16::from_f64(v).to_bits(),
        |v| f16::from_f32(v).to_bits(),
        0x7c00,
    );
    rounds(
        |bits| bf16::from_bits(bits).into(),
        |v| bf16::from_f64(v).to_bits(),
        |v| bf16::from_f32(v).to_bits(),
        0x7f80,
    );
}

#[test]
fn singles_narrow_as_elsewhere() {
    let mut bits = 12345u32;
    for _ in 0..2_000_000 {
        bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let v = f32::from_bits(bits);
        let pairs = [
            (f16::from_f32(v).to_bits(), half::f16::from_f32(v).to_bits()),
            (bf16::from_f32(v).to_bits(), half::bf16::from_f32(v).to_bits()),
        ];
        for (ours, theirs) in pairs {
            assert!(ours == theirs || v.is_nan(), "{v:e}: {ours:x} {theirs:x}");
        }
    }
}
