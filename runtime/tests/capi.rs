//! The C interface, called as C would.

mod common;

use common::*;
use std::ffi::{CStr, CString, c_void};
use tfc_abi::{ABI_VERSION, LibraryDesc, ProgramDesc};
use tfc_runtime::capi::{Feed, LoadOptions, Tensor, tfc_runtime as c};

fn library(program: &'static ProgramDesc) -> &'static LibraryDesc {
    let runtime = (&raw const c).cast();
    let (version, interface) = (ABI_VERSION, 7);
    Box::leak(Box::new(LibraryDesc { version, reserved: 0, interface, runtime, program }))
}

fn last() -> String {
    // SAFETY: a valid string until the next error.
    unsafe { CStr::from_ptr((c.last_error)()) }.to_str().unwrap().to_owned()
}

#[test]
fn a_model_lives_and_dies() {
    let desc = describe(&small_plan(), &KERNELS, &[]);
    // SAFETY: arguments are as the functions ask, but for nulls, which they
    // must survive.
    unsafe {
        assert!((c.load)(std::ptr::null(), 7, std::ptr::null()).is_null());
        assert!(last().contains("the library is null"));
        // embedding 5: a header of another graph.
        assert!((c.load)(library(desc), 8, std::ptr::null()).is_null());
        assert!(last().contains("E0807"), "{}", last());
        let options = LoadOptions {
            threads: 2,
            allow_nan: 0,
            directory: std::ptr::null(),
            sandbox: std::ptr::null(),
            print: None,
            print_data: std::ptr::null_mut(),
            device: std::ptr::null(),
        };
        let m = (c.load)(library(desc), 7, &options);
        assert!(!m.is_null());
        let name = CString::new("predict").unwrap();
        let entry = (c.entry)(m, name.as_ptr());
        assert_eq!(entry, 0);
        let missing = CString::new("nothing").unwrap();
        assert_eq!((c.entry)(m, missing.as_ptr()), -1);
        assert_eq!(CStr::from_ptr((c.last_error_code)()).to_str(), Ok("E0911"));

        let x = [1f32, 2., 3., 4., 0., 0., 0., 0.];
        let x_shape = [2i64, 4];
        let mut feed = Feed {
            dtype: 0,
            rank: 2,
            shape: x_shape.as_ptr(),
            data: x.as_ptr().cast::<c_void>(),
            bytes: 32,
        };
        let mut shape = [0i64; 2];
        assert_eq!((c.result_shape)(m, entry, &feed, 1, 0, shape.as_mut_ptr(), 2), 2);
        assert_eq!(shape, [2, 3]);
        let mut y = [0f32; 6];
        let mut y_shape = [0i64; 2];
        let mut result = Tensor {
            dtype: 0,
            rank: 2,
            shape: y_shape.as_mut_ptr(),
            data: y.as_mut_ptr().cast::<c_void>(),
            bytes: 24,
        };
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 0);
        assert_eq!(y, [11., 11., 11., 1., 1., 1.]);
        assert_eq!(y_shape, [2, 3]);

        // embedding 15: memory for another type, and memory that is shared.
        result.dtype = 1;
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 1);
        assert!(last().contains("result `y` is f32, but the memory for it is f64"), "{}", last());
        result.dtype = 0;
        let own = result.data;
        result.data = feed.data.cast_mut();
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 1);
        assert!(last().contains("result `y` and feed `x` share memory"), "{}", last());
        result.data = own;
        // embedding 15: a size that cannot be counted, as headers say it.
        let huge = [i64::MIN, 4];
        let counted = std::mem::replace(&mut feed.shape, huge.as_ptr());
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 3);
        assert!(last().contains("E0516"), "{}", last());
        feed.shape = counted;

        result.bytes = 20;
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 1);
        assert!(last().contains("result `y` is f32[2, 3] here"));
        feed.bytes = 28;
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 1);
        feed.dtype = 77;
        assert_eq!((c.call)(m, entry, &feed, 1, &mut result, 1), 2);
        assert_eq!((c.call)(m, entry, std::ptr::null(), 1, &mut result, 1), 2);
        assert_eq!((c.call)(m, 99, std::ptr::null(), 0, std::ptr::null_mut(), 0), 2);

        // What is there, without asking by name.
        let signature = &*(c.signature)(m);
        assert_eq!((signature.entry_count, signature.var_count), (2, 2));
        let entries = std::slice::from_raw_parts(signature.entries, 2);
        assert_eq!(CStr::from_ptr(entries[0].name).to_str(), Ok("predict"));
        let x = &*entries[0].params;
        assert_eq!(std::slice::from_raw_parts(x.shape, x.rank as usize), [-1, 4]);
        assert_eq!((c.signature)(m), signature as *const _);

        let b = CString::new("b").unwrap();
        let var = (c.var_index)(m, b.as_ptr());
        let mut value = [0f32; 3];
        assert_eq!((c.var_get)(m, var, value.as_mut_ptr().cast(), 12), 0);
        assert_eq!(value, [1.0; 3]);
        // embedding 15: no memory at all.
        assert_eq!((c.var_get)(m, var, std::ptr::null_mut(), 12), 2);
        assert_eq!((c.var_set)(m, var, std::ptr::null(), 12), 2);
        assert!(last().contains("the memory for variable `b` is null"), "{}", last());
        let new = [5f32; 3];
        assert_eq!((c.var_set)(m, var, new.as_ptr().cast(), 12), 0);
        assert_eq!((c.var_set)(m, var, new.as_ptr().cast(), 8), 1);
        assert!(last().contains("variable `b` has 12 bytes, but 8 were given"));
        assert_eq!((c.var_get)(m, 9, value.as_mut_ptr().cast(), 12), 1);
        let dir = tempfile::tempdir().unwrap();
        let path = CString::new(dir.path().join("s.safetensors").to_str().unwrap()).unwrap();
        assert_eq!((c.save)(m, path.as_ptr()), 0);
        assert_eq!((c.var_set)(m, var, [0f32; 3].as_ptr().cast(), 12), 0);
        assert_eq!((c.restore)(m, path.as_ptr()), 0);
        assert_eq!((c.var_get)(m, var, value.as_mut_ptr().cast(), 12), 0);
        assert_eq!(value, [5.0; 3]);
        (c.free)(m);
        (c.free)(std::ptr::null_mut());
    }
}
