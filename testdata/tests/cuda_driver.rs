//! The functions of the driver and of NCCL that the runtime calls, against the bindings of
//! `cudarc`, which are generated from NVIDIA's headers: each must be there, under that name,
//! with as many parameters of the same sizes. Nothing is called, and neither a driver nor a
//! library or a toolkit is needed.

use cudarc::driver::sys;
use cudarc::nccl::sys as nccl;
use std::mem::{offset_of, size_of};
use tfc_runtime::cuda::driver::{FUNCTIONS, value};
use tfc_runtime::cuda::nccl::library;

/// Sizes of the parameters of a function.
trait Params {
    fn sizes(&self) -> Vec<usize>;
}

macro_rules! functions {
    ($($($name:ident)*;)*) => {
        $(impl<R, $($name),*> Params for unsafe fn($($name),*) -> R {
            fn sizes(&self) -> Vec<usize> {
                vec![$(size_of::<$name>()),*]
            }
        })*
    };
}

functions! {
    ; A; A B; A B C; A B C D; A B C D E; A B C D E F; A B C D E F G; A B C D E F G H I J K;
}

macro_rules! bindings {
    ($sys:ident: $($name:ident($($any:tt)*),)*) => {
        [$((stringify!($name), {
            let function: unsafe fn($($any)*) -> _ = $sys::$name;
            function.sizes()
        }),)*]
    };
}

#[test]
fn the_table_of_the_driver_is_that_of_its_headers() {
    let theirs: Vec<(&str, Vec<usize>)> = bindings! {
        sys:
        cuInit(_),
        cuDriverGetVersion(_),
        cuGetErrorName(_, _),
        cuDeviceGetCount(_),
        cuDeviceGet(_, _),
        cuDeviceGetName(_, _, _),
        cuDeviceGetAttribute(_, _, _),
        cuDeviceTotalMem_v2(_, _),
        cuDevicePrimaryCtxRetain(_, _),
        cuDevicePrimaryCtxRelease_v2(_),
        cuCtxSetCurrent(_),
        cuModuleLoadDataEx(_, _, _, _, _),
        cuModuleUnload(_),
        cuModuleGetFunction(_, _, _),
        cuMemAlloc_v2(_, _),
        cuMemFree_v2(_),
        cuMemGetInfo_v2(_, _),
        cuMemAllocHost_v2(_, _),
        cuMemFreeHost(_),
        cuMemcpyHtoDAsync_v2(_, _, _, _),
        cuMemcpyDtoHAsync_v2(_, _, _, _),
        cuMemcpyDtoDAsync_v2(_, _, _, _),
        cuMemcpyPeerAsync(_, _, _, _, _, _),
        cuMemsetD8Async(_, _, _, _),
        cuStreamCreate(_, _),
        cuStreamDestroy_v2(_),
        cuStreamSynchronize(_),
        cuStreamWaitEvent(_, _, _),
        cuEventCreate(_, _),
        cuEventDestroy_v2(_),
        cuEventRecord(_, _),
        cuEventQuery(_),
        cuLaunchKernel(_, _, _, _, _, _, _, _, _, _, _),
        cuStreamBeginCapture_v2(_, _),
        cuStreamEndCapture(_, _),
        cuGraphInstantiateWithFlags(_, _, _),
        cuGraphLaunch(_, _),
        cuGraphExecDestroy(_),
        cuGraphDestroy(_),
    }
    .into();
    let ours: Vec<(&str, Vec<usize>)> =
        FUNCTIONS.iter().map(|(name, sizes)| (*name, sizes.to_vec())).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn values_are_those_of_the_headers() {
    use sys::CUdevice_attribute_enum as attribute;
    use sys::cudaError_enum as error;
    for (ours, theirs) in [
        (value::INVALID_VALUE, error::CUDA_ERROR_INVALID_VALUE as i32),
        (value::OUT_OF_MEMORY, error::CUDA_ERROR_OUT_OF_MEMORY as i32),
        (value::NO_DEVICE, error::CUDA_ERROR_NO_DEVICE as i32),
        (value::NO_BINARY_FOR_GPU, error::CUDA_ERROR_NO_BINARY_FOR_GPU as i32),
        (value::INVALID_PTX, error::CUDA_ERROR_INVALID_PTX as i32),
        (value::UNSUPPORTED_PTX_VERSION, error::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as i32),
        (value::NOT_READY, error::CUDA_ERROR_NOT_READY as i32),
        (value::SYSTEM_DRIVER_MISMATCH, error::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as i32),
        (value::ATTRIBUTE_PROCESSORS, attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as i32),
        (value::ATTRIBUTE_MAJOR, attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as i32),
        (value::ATTRIBUTE_MINOR, attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as i32),
        (value::STREAM_NON_BLOCKING, sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as i32),
        (value::EVENT_DISABLE_TIMING, sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as i32),
        (
            value::CAPTURE_THREAD_LOCAL,
            sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as i32,
        ),
        (value::JIT_ERROR_LOG, sys::CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER as i32),
        (
            value::JIT_ERROR_LOG_BYTES,
            sys::CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as i32,
        ),
    ] {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn the_table_of_nccl_is_that_of_its_headers() {
    let theirs: Vec<(&str, Vec<usize>)> = bindings! {
        nccl:
        ncclGetVersion(_),
        ncclGetUniqueId(_),
        ncclCommInitRankConfig(_, _, _, _, _),
        ncclCommFinalize(_),
        ncclCommDestroy(_),
        ncclCommAbort(_),
        ncclCommGetAsyncError(_, _),
        ncclGetErrorString(_),
        ncclGetLastError(_),
        ncclAllReduce(_, _, _, _, _, _, _),
        ncclGroupStart(),
        ncclGroupEnd(),
    }
    .into();
    let ours: Vec<(&str, Vec<usize>)> = [library::version::FUNCTIONS, library::FUNCTIONS]
        .concat()
        .into_iter()
        .map(|(name, sizes)| (name, sizes.to_vec()))
        .collect();
    assert_eq!(ours, theirs);
    // A configuration begins as that of newer libraries, which read as much as there is.
    type Theirs = nccl::ncclConfig_v22800;
    assert_eq!(offset_of!(library::Config, size), offset_of!(Theirs, size));
    assert_eq!(offset_of!(library::Config, magic), offset_of!(Theirs, magic));
    assert_eq!(offset_of!(library::Config, version), offset_of!(Theirs, version));
    assert_eq!(offset_of!(library::Config, blocking), offset_of!(Theirs, blocking));
    assert_eq!(offset_of!(library::Config, rest), offset_of!(Theirs, cgaClusterSize));
    assert_eq!(size_of::<library::UniqueId>(), size_of::<nccl::ncclUniqueId>());
}

#[test]
fn values_are_those_of_the_headers_of_nccl() {
    use library::value;
    use nccl::ncclDataType_t as kind;
    use nccl::ncclRedOp_t as op;
    for (ours, theirs) in [
        (0, nccl::ncclResult_t::ncclSuccess as i32),
        (value::IN_PROGRESS, nccl::ncclResult_t::ncclInProgress as i32),
        (value::INT8, kind::ncclInt8 as i32),
        (value::UINT8, kind::ncclUint8 as i32),
        (value::INT32, kind::ncclInt32 as i32),
        (value::INT64, kind::ncclInt64 as i32),
        (value::FLOAT16, kind::ncclFloat16 as i32),
        (value::FLOAT32, kind::ncclFloat32 as i32),
        (value::FLOAT64, kind::ncclFloat64 as i32),
        (value::BFLOAT16, kind::ncclBfloat16 as i32),
        (value::SUM, op::ncclSum as i32),
        (value::MAX, op::ncclMax as i32),
        (value::MIN, op::ncclMin as i32),
    ] {
        assert_eq!(ours, theirs);
    }
}
