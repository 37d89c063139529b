//! The provider of `srd-libfabric` under another name. Some programs (NIXL) accept only providers whose names they know.
//! `fi_prov_ini` comes with that crate; all that is decided here is what it calls itself.

extern "C" fn on_load() {
    srd_libfabric::call_it(c"efa");
}

// SAFETY: the loader calls it before anybody can ask for the provider.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
