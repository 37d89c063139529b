//! What a layer above keeps beside the device, under the device's lock. Whoever has the device exclusively has the lock:
//! so a reference to the device opens what lies beside it, and no second lock is needed.
#![allow(unsafe_code)]

use srd_device::{Device, HostMemory};
use std::cell::UnsafeCell;

/// See the module. An instance may have several: one for each layer that uses it.
pub struct Beside<T> {
    /// Where the device is: as long as it is there, that is its identity.
    device: usize,
    value: UnsafeCell<T>,
}

// SAFETY: whoever comes to the value has an exclusive reference to what is at the address of the device for as long. Of such
// there is one at a time, whatever is there, so that one thread at a time has the value, and none twice.
unsafe impl<T: Send> Sync for Beside<T> {}

impl<T> Beside<T> {
    /// From now on `value` belongs to whoever has `device`.
    pub fn new(device: &Device<HostMemory>, value: T) -> Beside<T> {
        Beside { device: address(device), value: UnsafeCell::new(value) }
    }

    /// What lies beside the device, and the device again. Panics if that is another one.
    #[inline]
    pub fn open<'a>(&'a self, device: &'a mut Device<HostMemory>) -> (&'a mut T, &'a mut Device<HostMemory>) {
        assert!(self.device == address(device), "it lies beside another device");
        // SAFETY: nobody else can have the device as long as the results are used.
        (unsafe { &mut *self.value.get() }, device)
    }
}

#[inline]
fn address(device: &Device<HostMemory>) -> usize {
    std::ptr::from_ref(device).addr()
}
