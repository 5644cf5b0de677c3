//! The functions of the C library that this one stands in front of.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// One function of the C library, looked up at its first call.
pub struct Real {
    name: &'static CStr,
    /// The version to ask for first, where the C library keeps two under one name.
    version: Option<&'static CStr>,
    at: AtomicPtr<c_void>,
}

impl Real {
    /// The function's default version.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, version: None, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function at a version, or its default one where there is no such version.
    pub const fn versioned(name: &'static CStr, version: &'static CStr) -> Self {
        Self { name, version: Some(version), at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. Ends the process if the C library has no such function: whoever calls a
    /// function that is not there would have failed to start.
    pub fn address(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let found = self.look_up();
        if found.is_null() {
            crate::refuse(c"the C library lacks a function that it is asked for");
        }
        self.at.store(found, Ordering::Relaxed);
        found
    }

    fn look_up(&self) -> *mut c_void {
        if let Some(version) = self.version {
            // SAFETY: both names end in a zero byte and live for ever.
            let found =
                unsafe { libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()) };
            if !found.is_null() {
                return found;
            }
        }
        // SAFETY: the name ends in a zero byte and lives for ever.
        unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }
    }
}

/// The C library's own function of that name, with that type.
macro_rules! real {
    ($name:literal as $type:ty) => {
        $crate::real::real!(@ $crate::real::Real::new($name), $type)
    };
    ($name:literal at $version:literal as $type:ty) => {
        $crate::real::real!(@ $crate::real::Real::versioned($name, $version), $type)
    };
    (@ $real:expr, $type:ty) => {{
        static REAL: $crate::real::Real = $real;
        // SAFETY: the address is that of the C function of this name, whose C type this is.
        unsafe { std::mem::transmute::<*mut libc::c_void, $type>(REAL.address()) }
    }};
}
pub(crate) use real;
