//! What libfabric finds in the library.

use crate::layout::{fi_context, fi_provider};
use crate::{capabilities, engine, environment, getinfo, open};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::Once;

/// In memory that can be written: libfabric keeps notes in `context`.
struct Provider(UnsafeCell<fi_provider>);

// SAFETY: written under `Once` here, and afterwards by libfabric alone.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(UnsafeCell::new(fi_provider {
    version: capabilities::PROVIDER_VERSION,
    fi_version: capabilities::NEWEST_API,
    context: fi_context { internal: [null_mut(); 4] },
    name: null_mut(),
    getinfo: getinfo::getinfo,
    fabric: open::open_fabric,
    cleanup,
}));

/// The provider.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    static NAMED: Once = Once::new();
    let provider = PROVIDER.0.get();
    // SAFETY: nobody has the provider before this has returned once.
    NAMED.call_once(|| unsafe {
        (*provider).name = capabilities::name().as_ptr();
        environment::set_log_level();
    });
    provider
}

unsafe extern "C" fn cleanup() {
    crate::boundary::value_or("cleanup", (), engine::end_all);
}
