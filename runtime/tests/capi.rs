//! The C interface, called as C would.

mod common;

use common::*;
use std::ffi::{CStr, CString, c_void};
use tfc_runtime::capi::*;

fn last() -> String {
    // SAFETY: a valid string until the next error.
    unsafe { CStr::from_ptr(tfc_last_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn a_model_lives_and_dies() {
    let desc = describe(&small_plan(), &KERNELS, &[]);
    // SAFETY: arguments are as the functions ask, but for nulls, which they
    // must survive.
    unsafe {
        assert!(tfc_model_new(std::ptr::null(), 0).is_null());
        assert!(last().contains("the program is null"));
        let m = tfc_model_new(desc, 2);
        assert!(!m.is_null());
        let name = CString::new("predict").unwrap();
        let entry = tfc_model_entry(m, name.as_ptr());
        assert_eq!(entry, 0);
        let missing = CString::new("nothing").unwrap();
        assert_eq!(tfc_model_entry(m, missing.as_ptr()), -1);
        assert_eq!(CStr::from_ptr(tfc_last_error_code()).to_str(), Ok("E0911"));

        let mut x = [1f32, 2., 3., 4., 0., 0., 0., 0.];
        let mut x_shape = [2i64, 4];
        let mut feed = TfcTensor {
            dtype: 0,
            rank: 2,
            shape: x_shape.as_mut_ptr(),
            data: x.as_mut_ptr().cast::<c_void>(),
            bytes: 32,
        };
        let mut shape = [0i64; 2];
        assert_eq!(tfc_model_result_shape(m, entry, &feed, 1, 0, shape.as_mut_ptr(), 2), 2);
        assert_eq!(shape, [2, 3]);
        let mut y = [0f32; 6];
        let mut y_shape = [0i64; 2];
        let mut result = TfcTensor {
            dtype: 0,
            rank: 2,
            shape: y_shape.as_mut_ptr(),
            data: y.as_mut_ptr().cast::<c_void>(),
            bytes: 24,
        };
        assert_eq!(tfc_model_call(m, entry, &feed, 1, &mut result, 1), 0);
        assert_eq!(y, [11., 11., 11., 1., 1., 1.]);
        assert_eq!(y_shape, [2, 3]);

        result.bytes = 20;
        assert_eq!(tfc_model_call(m, entry, &feed, 1, &mut result, 1), 1);
        assert!(last().contains("result `y` is f32[2, 3] here"));
        feed.bytes = 28;
        assert_eq!(tfc_model_call(m, entry, &feed, 1, &mut result, 1), 1);
        feed.dtype = 77;
        assert_eq!(tfc_model_call(m, entry, &feed, 1, &mut result, 1), 2);
        assert_eq!(tfc_model_call(m, entry, std::ptr::null(), 1, &mut result, 1), 2);
        assert_eq!(tfc_model_call(m, 99, std::ptr::null(), 0, std::ptr::null_mut(), 0), 2);

        assert_eq!(tfc_var_count(m), 2);
        let b = CString::new("b").unwrap();
        let var = tfc_var_index(m, b.as_ptr());
        let mut value = [0f32; 3];
        assert_eq!(tfc_var_get(m, var, value.as_mut_ptr().cast(), 12), 0);
        assert_eq!(value, [1.0; 3]);
        let new = [5f32; 3];
        assert_eq!(tfc_var_set(m, var, new.as_ptr().cast(), 12), 0);
        assert_eq!(tfc_var_set(m, var, new.as_ptr().cast(), 8), 1);
        assert!(last().contains("variable `b` has 12 bytes, but 8 were given"));
        assert_eq!(tfc_var_get(m, 9, value.as_mut_ptr().cast(), 12), 1);
        let dir = tempfile::tempdir().unwrap();
        let path = CString::new(dir.path().join("s.safetensors").to_str().unwrap()).unwrap();
        assert_eq!(tfc_model_save(m, path.as_ptr()), 0);
        assert_eq!(tfc_var_set(m, var, [0f32; 3].as_ptr().cast(), 12), 0);
        assert_eq!(tfc_model_restore(m, path.as_ptr()), 0);
        assert_eq!(tfc_var_get(m, var, value.as_mut_ptr().cast(), 12), 0);
        assert_eq!(value, [5.0; 3]);
        tfc_model_free(m);
        tfc_model_free(std::ptr::null_mut());
    }
}
