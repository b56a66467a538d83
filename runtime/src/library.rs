//! Libraries that are loaded when a program runs, if they are there; nothing links them.
//!
//! What is used of one is a table: [`functions`] makes a struct of it, whose fields are the
//! functions, and what fills it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

/// What is missing shows when a library is loaded, and not at a call.
const NOW: c_int = 2;

/// A library, which is never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Library(NonNull<c_void>);

impl Library {
    /// The first of these that there is, or why the first of them cannot be loaded.
    ///
    /// # Safety
    /// What the libraries do when they are loaded does not harm this process.
    pub unsafe fn open(names: &[&str]) -> Result<Library, String> {
        let mut why = None;
        for name in names {
            let Ok(text) = CString::new(*name) else { continue };
            // SAFETY: the name is a C string; the rest is the caller's promise.
            match NonNull::new(unsafe { dlopen(text.as_ptr(), NOW) }) {
                Some(library) => return Ok(Library(library)),
                None => why = why.or_else(said),
            }
        }
        Err(why.unwrap_or_default())
    }

    /// A function or an object of the library.
    pub fn find(self, name: &str) -> Option<NonNull<c_void>> {
        let text = CString::new(name).ok()?;
        // SAFETY: the library is open, and the name is a C string.
        NonNull::new(unsafe { dlsym(self.0.as_ptr(), text.as_ptr()) })
    }
}

/// What the system says of the last call that failed.
fn said() -> Option<String> {
    // SAFETY: it gives a C string of its own, or null.
    let said = unsafe { dlerror() };
    // SAFETY: as above; nothing else is asked before it is copied.
    (!said.is_null()).then(|| unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned())
}

/// Makes a struct of functions, and `FUNCTIONS`, which has the name of each and the sizes of
/// its parameters.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident;
        $($field:ident = $name:literal, fn($($arg:ty),* $(,)?) -> $result:ty;)*
    ) => {
        $(#[$doc])*
        pub struct $table {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        /// Every function: its name and the sizes of its parameters.
        pub const FUNCTIONS: &[(&str, &[usize])] =
            &[$(($name, &[$(std::mem::size_of::<$arg>()),*]),)*];

        impl $table {
            /// All of them, or the name of one that the library does not have.
            ///
            /// # Safety
            /// What the library has by these names are functions with these parameters.
            pub(crate) unsafe fn find(
                library: $crate::library::Library,
            ) -> std::result::Result<$table, &'static str> {
                Ok($table {
                    $(
                        // SAFETY: it is a function with these parameters, as the caller
                        // promises, and a pointer to a function is one to its code.
                        $field: unsafe {
                            std::mem::transmute::<
                                std::ptr::NonNull<std::ffi::c_void>,
                                unsafe extern "C" fn($($arg),*) -> $result,
                            >(library.find($name).ok_or($name)?)
                        },
                    )*
                })
            }
        }
    };
}

pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::Library;

    mod there {
        super::super::functions! {
            /// Of the C library.
            Numbers;
            absolute = "labs", fn(i64) -> i64;
            random = "random", fn() -> i64;
        }
    }

    mod missing {
        super::super::functions! {
            /// What nobody has.
            Nothing;
            missing = "tfc_is_not_there", fn() -> i64;
        }
    }

    /// The C library, as Linux and macOS call it.
    const NAMES: [&str; 3] = ["no-such-library.so", "libc.so.6", "libSystem.dylib"];

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_named() {
        // SAFETY: this process has loaded it already.
        let library = unsafe { Library::open(&NAMES) }.unwrap();
        // SAFETY: `stdlib.h` declares them so, where a long has 64 bits.
        let numbers = unsafe { there::Numbers::find(library) }.unwrap_or_else(|n| panic!("{n}"));
        // SAFETY: it takes any number but the least.
        assert_eq!(unsafe { (numbers.absolute)(-7) }, 7);
        // SAFETY: it takes nothing.
        assert!(unsafe { (numbers.random)() } >= 0);
        assert_eq!(there::FUNCTIONS, [("labs", &[8][..]), ("random", &[])]);
        // SAFETY: there is none.
        let nothing = unsafe { missing::Nothing::find(library) }.map(|n| n.missing);
        assert_eq!(nothing.err(), Some(missing::FUNCTIONS[0].0));
        // SAFETY: there is nothing to be loaded.
        let why = unsafe { Library::open(&NAMES[..1]) }.err().unwrap();
        assert!(why.contains("no-such-library.so"), "{why}");
    }
}
