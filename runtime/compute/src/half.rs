//! The 16-bit floats, as memory holds them.
//!
//! They are stored and converted, never computed with: sums and products are
//! taken in `f32`. The names are those of the types they stand for.
//!
//! Invariant: conversions round once, to the nearest, ties to even; NaN stays
//! NaN, and its sign is kept.

#![allow(non_camel_case_types)]

/// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct f16(u16);

/// The upper half of an `f32`.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct bf16(u16);

impl f16 {
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let (sign, rest) = (u32::from(self.0 & 0x8000) << 16, u32::from(self.0 & 0x7fff));
        // The exponent of an f32 is 112 larger; a product is exact also where
        // the half is subnormal.
        let scaled = f32::from_bits(rest << 13) * f32::from_bits(0x7780_0000);
        let special = match rest {
            0x7c00 => 0x7f80_0000,
            0x7c01.. => 0x7fc0_0000,
            _ => 0,
        };
        f32::from_bits(scaled.to_bits() | special | sign)
    }

    #[inline(always)]
    pub fn from_f32(value: f32) -> f16 {
        let bits = value.to_bits();
        let (sign, rest) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
        f16(sign
            | match rest {
                // NaN, then what is at least 65536.
                0x7f80_0001.. => 0x7e00 | (rest >> 13 & 0x3ff) as u16,
                0x4780_0000.. => 0x7c00,
                // Normal: a carry goes into the exponent, up to infinity.
                0x3880_0000.. => {
                    let shifted = rest - 0x3800_0000;
                    ((shifted + 0xfff + (shifted >> 13 & 1)) >> 13) as u16
                }
                // Subnormal: next to 0.5, an f32 has steps of the smallest half.
                _ => ((f32::from_bits(rest) + 0.5).to_bits() - 0.5f32.to_bits()) as u16,
            })
    }
}

impl bf16 {
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    pub fn from_f32(value: f32) -> bf16 {
        let bits = value.to_bits();
        if value.is_nan() {
            return bf16((bits >> 16) as u16 | 0x40);
        }
        bf16(((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}

macro_rules! half {
    ($($t:ident, $one:expr;)*) => {$(
        impl $t {
            pub const ONE: $t = $t($one);

            pub fn from_f64(value: f64) -> $t {
                <$t>::from_f32(tfc_abi::float::round_to_odd(value))
            }

            pub fn from_bits(bits: u16) -> $t {
                $t(bits)
            }

            pub fn to_bits(self) -> u16 {
                self.0
            }

            pub fn from_ne_bytes(bytes: [u8; 2]) -> $t {
                $t(u16::from_ne_bytes(bytes))
            }

            pub fn to_ne_bytes(self) -> [u8; 2] {
                self.0.to_ne_bytes()
            }
        }

        impl From<$t> for f32 {
            #[inline(always)]
            fn from(value: $t) -> f32 {
                value.to_f32()
            }
        }

        impl From<$t> for f64 {
            fn from(value: $t) -> f64 {
                value.to_f32().into()
            }
        }

        impl std::ops::Add for $t {
            type Output = $t;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                <$t>::from_f32(self.to_f32() + other.to_f32())
            }
        }

        impl PartialEq for $t {
            fn eq(&self, other: &$t) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl std::fmt::Debug for $t {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.to_f32().fmt(f)
            }
        }
    )*};
}

half! {
    f16, 0x3c00;
    bf16, 0x3f80;
}
