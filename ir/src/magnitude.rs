//! How large the elements of a tensor can be, as powers of two.
//!
//! A rewrite that regroups products or sums rounds differently as long as
//! nothing in between overflows or underflows. Rules that need this ask for the
//! magnitudes of what they matched; an analysis proves them.

use crate::DType;

/// Every element is zero, NaN, or of magnitude `2^lo` to `2^hi`, give or take a
/// few roundings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Magnitude {
    pub lo: i16,
    pub hi: i16,
}

/// Elements of one axis, or of a whole tensor: no machine has memory for more.
const MOST_ELEMENTS: i16 = 48;

impl Magnitude {
    /// Anything, infinities too.
    pub const ANY: Magnitude = Magnitude { lo: i16::MIN, hi: i16::MAX };
    /// Zero, one and minus one.
    pub const UNIT: Magnitude = Magnitude { lo: 0, hi: 0 };

    pub fn of(value: f64) -> Magnitude {
        if value == 0.0 {
            // The empty range: nothing but zero.
            return Magnitude { lo: i16::MAX, hi: i16::MIN };
        }
        if !value.is_finite() {
            return Magnitude::ANY;
        }
        let (lo, exact) = floor_log2(value.abs());
        Magnitude { lo, hi: lo + !exact as i16 }
    }

    pub fn at_most(hi: i16) -> Magnitude {
        Magnitude { lo: i16::MIN, hi }
    }

    /// What is known of a value that has both.
    pub fn and(self, other: Magnitude) -> Magnitude {
        Magnitude { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    /// What is known of a value that is one of the two.
    pub fn or(self, other: Magnitude) -> Magnitude {
        Magnitude { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    pub fn times(self, other: Magnitude) -> Magnitude {
        Magnitude { lo: add(self.lo, other.lo), hi: add(self.hi, other.hi) }
    }

    /// One over the elements, none of which is zero.
    pub fn reciprocal(self) -> Magnitude {
        Magnitude { lo: negate(self.hi), hi: negate(self.lo) }
    }

    pub fn sqrt(self) -> Magnitude {
        let half = |e: i16, up: i16| if known(e) { (e + up).div_euclid(2) } else { e };
        Magnitude { lo: half(self.lo, 0), hi: half(self.hi, 1) }
    }

    /// As large as any sum of `2^bits` of them.
    pub fn summed(self, bits: i16) -> Magnitude {
        Magnitude { lo: i16::MIN, hi: add(self.hi, bits) }
    }

    /// After rounding to a type: what may overflow may be infinite, and what may
    /// be subnormal may be anything small.
    pub fn rounded(self, dtype: DType) -> Magnitude {
        let (lowest, highest) = exponents(dtype);
        let hi = if self.hi < highest { self.hi } else { i16::MAX };
        let lo = if self.lo >= lowest { self.lo } else { i16::MIN };
        Magnitude { lo, hi }
    }

    /// No element overflows in the type.
    pub fn below(self, dtype: DType) -> bool {
        self.hi < exponents(dtype).1
    }

    /// No element is subnormal, or becomes zero, in the type.
    pub fn above(self, dtype: DType) -> bool {
        self.lo >= exponents(dtype).0
    }
}

/// The power of two a count does not exceed.
pub fn bits(count: Option<i64>) -> i16 {
    match count {
        Some(n) if n <= 1 => 0,
        Some(n) => (64 - (n - 1).leading_zeros()) as i16,
        None => MOST_ELEMENTS,
    }
}

/// Whether a constant is of normal size in a type: neither infinite nor
/// subnormal.
pub fn is_normal(value: f64, dtype: DType) -> bool {
    let (lowest, highest) = exponents(dtype);
    // Rounding reaches the next power of two from half a unit below it.
    let largest = match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    };
    let size = value.abs();
    debug_assert!(largest < 2f64.powi(highest as i32) || dtype == DType::F64);
    size >= 2f64.powi(lowest as i32) && size <= largest
}

/// Exponents of the smallest normal number, and the first that is too large.
fn exponents(dtype: DType) -> (i16, i16) {
    match dtype {
        DType::F16 => (-14, 16),
        DType::BF16 | DType::F32 => (-126, 128),
        _ => (-1022, 1024),
    }
}

fn known(e: i16) -> bool {
    e != i16::MIN && e != i16::MAX
}

/// A bound that is not known stays so.
fn add(a: i16, b: i16) -> i16 {
    if !known(a) {
        a
    } else if !known(b) {
        b
    } else {
        (a + b).clamp(-8_000, 8_000)
    }
}

fn negate(e: i16) -> i16 {
    match e {
        i16::MIN => i16::MAX,
        i16::MAX => i16::MIN,
        e => -e,
    }
}

/// The exponent, and whether the value is that power of two.
fn floor_log2(value: f64) -> (i16, bool) {
    // Subnormal numbers are brought up first.
    let (value, down) =
        if value < f64::MIN_POSITIVE { (value * 2f64.powi(64), 64) } else { (value, 0) };
    let bits = value.to_bits();
    ((bits >> 52) as i16 - 1023 - down, bits << 12 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_lie_within_their_powers_of_two() {
        for v in [1.0, 3.0, 0.1, 65504.0, 1e-40, 5e-324, 1e300, -2.5, 1024.0] {
            let m = Magnitude::of(v);
            let size = f64::abs(v);
            assert!(libm::ldexp(1.0, m.hi as i32) >= size, "{v}: {m:?}");
            assert!(m.lo < -1022 || libm::ldexp(1.0, m.lo as i32) <= size, "{v}: {m:?}");
            assert!(m.hi - m.lo <= 1, "{v}: {m:?}");
        }
        assert_eq!(Magnitude::of(1.0), Magnitude::UNIT);
        assert_eq!(Magnitude::of(f64::INFINITY), Magnitude::ANY);
    }

    #[test]
    fn what_may_overflow_is_not_bounded() {
        let large = Magnitude::of(300.0).times(Magnitude::of(300.0));
        assert!(!large.below(DType::F16) && large.below(DType::F32));
        assert_eq!(large.rounded(DType::F16).hi, i16::MAX);
        let small = Magnitude::of(1e-3).times(Magnitude::of(1e-3));
        assert!(!small.above(DType::F16) && small.above(DType::F32));
        assert!(is_normal(6e4, DType::F16) && !is_normal(7e4, DType::F16));
        assert!(!is_normal(1e-5, DType::F16) && !is_normal(1e-40, DType::F32));
        assert!(!is_normal(0.0, DType::F64));
        assert_eq!((bits(Some(1)), bits(Some(2)), bits(Some(3)), bits(None)), (0, 1, 2, 48));
    }

    #[test]
    fn nothing_but_zero_is_neither_large_nor_small() {
        let zero = Magnitude::of(0.0);
        assert!(zero.below(DType::F16) && zero.above(DType::F16));
        assert_eq!(zero.or(Magnitude::UNIT), Magnitude::UNIT);
    }
}
