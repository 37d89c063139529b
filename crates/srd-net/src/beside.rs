//! What a layer above keeps beside the device, under the device's lock. Who has the lock has [`Locked`], of which there is one at
//! a time for a device: so it opens what lies beside the device, and no second lock is needed.
#![allow(unsafe_code)]

use srd_device::{Device, HostMemory};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// The device, for who has its lock.
pub struct Locked<'a>(&'a mut Device<HostMemory>);

impl<'a> Locked<'a> {
    /// To be made by who has the lock, and once for each time that he takes it.
    #[inline]
    pub(crate) fn new(device: &'a mut Device<HostMemory>) -> Locked<'a> {
        Locked(device)
    }
}

impl Deref for Locked<'_> {
    type Target = Device<HostMemory>;

    #[inline]
    fn deref(&self) -> &Device<HostMemory> {
        self.0
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Device<HostMemory> {
        self.0
    }
}

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
    /// From now on `value` belongs to whoever has `locked`.
    pub fn new(locked: &Locked<'_>, value: T) -> Beside<T> {
        Beside { device: address(locked), value: UnsafeCell::new(value) }
    }

    /// What lies beside the device, and the device. Panics if that is another one.
    #[inline]
    pub fn open<'a>(&'a self, locked: &'a mut Locked<'_>) -> (&'a mut T, &'a mut Device<HostMemory>) {
        assert!(self.device == address(locked), "it lies beside another device");
        // SAFETY: `locked` is borrowed for as long as the results are used, and there is no other for this device.
        (unsafe { &mut *self.value.get() }, locked)
    }
}

#[inline]
fn address(device: &Device<HostMemory>) -> usize {
    std::ptr::from_ref(device).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_device::DeviceConfig;
    use srd_wire::{Gid, Incarnation};

    fn device() -> Device<HostMemory> {
        let gid = Gid::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let config = DeviceConfig::default();
        let port = config.port_base;
        Device::new(config, gid, port, Incarnation(1), 1, crate::sys::memory::host_memory())
    }

    #[test]
    fn who_has_the_device_has_what_lies_beside_it() {
        let mut device = device();
        let locked = &mut Locked::new(&mut device);
        let (one, other) = (Beside::new(locked, 1), Beside::new(locked, 2));
        *one.open(locked).0 = 3;
        assert_eq!((*one.open(locked).0, *other.open(locked).0), (3, 2));
    }

    #[test]
    #[should_panic(expected = "another device")]
    fn another_device_opens_nothing() {
        let (mut here, mut there) = (device(), device());
        Beside::new(&Locked::new(&mut here), ()).open(&mut Locked::new(&mut there));
    }
}
