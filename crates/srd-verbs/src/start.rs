//! What happens when the library is loaded.

/// libfabric's efa provider sends to processes of its own host through shared memory, past the device. Whoever puts a
/// software EFA under a program wants to see its traffic there, so that is off unless somebody has said otherwise
/// (docs/design/efa-verbs.md, "Lookups outside verbs"). libfabric reads the variable after its libraries, and so this one, have
/// been loaded.
extern "C" fn on_load() {
    // SAFETY: C strings. Where the library is loaded with the program there is one thread; where it is loaded later,
    // a thread that reads the environment at this very moment sees the old block, which glibc keeps.
    unsafe { libc::setenv(c"FI_EFA_ENABLE_SHM_TRANSFER".as_ptr(), c"0".as_ptr(), 0) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
