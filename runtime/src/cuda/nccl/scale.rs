//! A mean over processes is a sum of what each has times its share of the examples. What
//! multiplies is a kernel for each type of floats, with the roundings of the CPU.
//!
//! NCCL could multiply by itself (`ncclRedOpCreatePreMulSum`), but it rounds the share to
//! the type of the elements first: of f16 and bf16, three processes would form a mean whose
//! shares do not add up to one.

use super::super::Gpu;
use super::super::driver::{DevicePtr, Handle};
use crate::error::{Error, Result};
use std::ffi::c_void;
use std::sync::Arc;
use tfc_abi::DType;

/// Threads of a block; each takes one element.
const BLOCK: u32 = 256;

/// An entry that is given the address, the number of elements, and the bits of the share:
/// in `%rd4` is where the thread's element is, in `%fd0` and `%f0` the share.
macro_rules! entry {
    ($name:literal, $shift:literal, $body:literal) => {
        concat!(
            "\n.visible .entry ",
            $name,
            "(.param .u64 at, .param .u64 n, .param .u64 share)\n{\n",
            "  .reg .pred %p<2>;\n  .reg .b16 %h<2>;\n  .reg .b32 %r<10>;\n",
            "  .reg .b64 %rd<5>;\n  .reg .f32 %f<3>;\n  .reg .f64 %fd<3>;\n",
            "  ld.param.u64 %rd0, [at];\n",
            "  ld.param.u64 %rd1, [n];\n",
            "  ld.param.f64 %fd0, [share];\n",
            "  cvt.rn.f32.f64 %f0, %fd0;\n",
            "  mov.u32 %r0, %tid.x;\n",
            "  mov.u32 %r1, %ctaid.x;\n",
            "  mul.wide.u32 %rd2, %r1, 256;\n",
            "  cvt.u64.u32 %rd3, %r0;\n",
            "  add.u64 %rd2, %rd2, %rd3;\n",
            "  setp.ge.u64 %p0, %rd2, %rd1;\n",
            "  @%p0 bra DONE;\n",
            "  shl.b64 %rd4, %rd2, ",
            $shift,
            ";\n  add.u64 %rd4, %rd0, %rd4;\n",
            $body,
            "DONE:\n  ret;\n}\n"
        )
    };
}

/// For every GPU since Volta.
pub const PTX: &str = concat!(
    ".version 6.0\n.target sm_70\n.address_size 64\n",
    entry!(
        "tfc_scale_f64",
        "3",
        "  ld.global.f64 %fd1, [%rd4];
  mul.rn.f64 %fd2, %fd1, %fd0;
  st.global.f64 [%rd4], %fd2;
"
    ),
    entry!(
        "tfc_scale_f32",
        "2",
        "  ld.global.f32 %f1, [%rd4];
  mul.rn.f32 %f2, %f1, %f0;
  st.global.f32 [%rd4], %f2;
"
    ),
    entry!(
        "tfc_scale_f16",
        "1",
        "  ld.global.b16 %h0, [%rd4];
  cvt.f32.f16 %f1, %h0;
  mul.rn.f32 %f2, %f1, %f0;
  cvt.rn.f16.f32 %h1, %f2;
  st.global.b16 [%rd4], %h1;
"
    ),
    // Rounded to the nearest, ties to even: only newer GPUs have an instruction for it.
    entry!(
        "tfc_scale_bf16",
        "1",
        "  ld.global.u16 %r2, [%rd4];
  shl.b32 %r3, %r2, 16;
  mov.b32 %f1, %r3;
  mul.rn.f32 %f2, %f1, %f0;
  mov.b32 %r4, %f2;
  shr.u32 %r5, %r4, 16;
  and.b32 %r6, %r5, 1;
  add.s32 %r7, %r6, 32767;
  add.s32 %r7, %r4, %r7;
  shr.u32 %r7, %r7, 16;
  or.b32 %r8, %r5, 64;
  setp.nan.f32 %p1, %f2, %f2;
  selp.b32 %r9, %r8, %r7, %p1;
  st.global.u16 [%rd4], %r9;
"
    ),
);

/// The entry for a type; whole numbers are not multiplied.
pub fn entry(dtype: DType) -> Option<&'static std::ffi::CStr> {
    match dtype {
        DType::F64 => Some(c"tfc_scale_f64"),
        DType::F32 => Some(c"tfc_scale_f32"),
        DType::F16 => Some(c"tfc_scale_f16"),
        DType::BF16 => Some(c"tfc_scale_bf16"),
        DType::I8 | DType::U8 | DType::I32 | DType::I64 | DType::Bool => None,
    }
}

/// The kernels, on one GPU.
pub(super) struct Scale {
    gpu: Arc<Gpu>,
    module: Handle,
    entries: Vec<(DType, Handle)>,
}

impl Scale {
    pub fn load(gpu: &Arc<Gpu>) -> Result<Scale> {
        gpu.make_current()?;
        let module = gpu.compile(&[PTX.as_bytes(), &[0]].concat())?;
        let mut scale = Scale { gpu: gpu.clone(), module, entries: vec![] };
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let Some(name) = entry(dtype) else { continue };
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, and the name is a C string.
            let status =
                unsafe { (gpu.driver.module_function)(&raw mut function, module, name.as_ptr()) };
            gpu.driver.check(status, "finding a kernel")?;
            scale.entries.push((dtype, function));
        }
        Ok(scale)
    }

    /// Multiplies by a share, in the order of a stream. A share of zero is no value at all,
    /// whatever there is.
    pub fn give(
        &self,
        (dtype, at, bytes): (DType, DevicePtr, usize),
        share: f64,
        stream: Handle,
    ) -> Result<()> {
        let driver = &self.gpu.driver;
        if share == 0.0 && dtype.is_float() {
            // SAFETY: the memory has this many bytes.
            return driver.check(unsafe { (driver.fill)(at, 0, bytes, stream) }, "filling memory");
        }
        let Some((_, function)) = self.entries.iter().find(|(of, _)| *of == dtype) else {
            return Ok(());
        };
        let n = (bytes / dtype.size()) as u64;
        let blocks = u32::try_from(n.div_ceil(u64::from(BLOCK))).ok();
        let blocks = blocks.filter(|b| *b <= i32::MAX as u32);
        let blocks = blocks.ok_or_else(|| Error::bug("a tensor too large for a launch"))?;
        let args = [at, n, share.to_bits()];
        let mut params = args.each_ref().map(|a| std::ptr::from_ref(a).cast_mut().cast::<c_void>());
        // SAFETY: the entry has three parameters of eight bytes, and the memory as many
        // elements.
        let status = unsafe {
            let (params, none) = (params.as_mut_ptr(), std::ptr::null_mut());
            (driver.launch)(*function, blocks, 1, 1, BLOCK, 1, 1, 0, stream, params, none)
        };
        driver.check(status, "a launch")
    }
}

impl Drop for Scale {
    fn drop(&mut self) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: the module is ours, and nothing of it runs.
            unsafe { (self.gpu.driver.module_unload)(self.module) };
        }
    }
}
