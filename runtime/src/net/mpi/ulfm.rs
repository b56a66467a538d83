//! Processes that are lost, where the library can live with it ("user-level failure
//! mitigation"; `mpirun --with-ft ulfm`).
//!
//! Whoever finds that a process is gone *revokes* the communicator: calls of all others
//! that use it end with an error, too, however they wait. Then those that are left may
//! *shrink* it to themselves and go on.

use super::{Handle, World};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

type Revoke = unsafe extern "C" fn(Handle) -> c_int;
type Derive = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;
type Count = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Translate = unsafe extern "C" fn(Handle, c_int, *const c_int, Handle, *mut c_int) -> c_int;

/// What the library has for it.
pub(super) struct Ulfm {
    revoke: Revoke,
    shrink: Derive,
    failed: Derive,
    group: Derive,
    group_size: Count,
    translate: Translate,
}

impl Ulfm {
    /// None if the library has it not, or was not started with it.
    pub(super) fn find(find: &dyn Fn(&str) -> Option<*mut c_void>) -> Option<Ulfm> {
        let on = std::env::var("OMPI_MCA_mpi_ft_enable").is_ok_and(|v| v == "1" || v == "true");
        macro_rules! function {
            ($name:literal, $t:ty) => {
                // SAFETY: the functions of MPI and of its extension have these signatures.
                unsafe { std::mem::transmute::<*mut c_void, $t>(find($name)?) }
            };
        }
        let found = Ulfm {
            revoke: function!("MPIX_Comm_revoke", Revoke),
            shrink: function!("MPIX_Comm_shrink", Derive),
            failed: function!("MPIX_Comm_get_failed", Derive),
            group: function!("MPI_Comm_group", Derive),
            group_size: function!("MPI_Group_size", Count),
            translate: function!("MPI_Group_translate_ranks", Translate),
        };
        on.then_some(found)
    }

    /// Ends the calls of all others, and says which process is gone, if that is known.
    pub(super) fn revoke(&self, world: &World) -> Option<usize> {
        let (mut failed, mut all, mut count, mut rank) = (null_mut(), null_mut(), 0, -1);
        // SAFETY: the communicator is one of the library's; the rest are places to write
        // to. Groups are small, and there are as many as losses: they are not freed.
        unsafe {
            (self.revoke)(world.comm);
            let known = (self.failed)(world.comm, &mut failed) == 0
                && (self.group)(world.comm, &mut all) == 0
                && (self.group_size)(failed, &mut count) == 0
                && count > 0
                && (self.translate)(failed, 1, &0, all, &mut rank) == 0;
            usize::try_from(rank).ok().filter(|r| known && *r < world.size)
        }
    }

    /// Those that are left, as a communicator of their own.
    pub(super) fn shrink(&self, world: &World) -> Result<Handle, c_int> {
        let mut comm = null_mut();
        // SAFETY: as above.
        match unsafe { (self.shrink)(world.comm, &mut comm) } {
            0 => Ok(comm),
            code => Err(code),
        }
    }
}
