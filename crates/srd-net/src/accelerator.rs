//! Memory of accelerators (GPUs): what the driver says of an address, and copies that it makes. Only such memory as the processor must
//! not touch is marked ([`srd_device::accelerator`]); what it may touch is memory like any other. What works and what that costs:
//! `docs/guide/accelerator-memory.md`.

use crate::log;
use crate::sys::cuda::{self, At};
use srd_device::accelerator::{MARK, is_marked, unmarked};

/// How many GPUs there are; or why none can be used, and what to do. Loads the driver.
pub fn available() -> Result<usize, String> {
    const MEND: &str =
        "install the GPU's driver, or have LD_LIBRARY_PATH lead to it; memory of the host needs none";
    let cuda = cuda::open().map_err(|why| format!("no GPU here: {why}; {MEND}"))?;
    match cuda.devices() {
        Ok(count @ 1..) => Ok(count as usize),
        Ok(_) => Err("no GPU here: the driver has no device (CUDA_VISIBLE_DEVICES may hide them)".to_owned()),
        Err(why) => Err(format!("no GPU here: libcuda.so.1 is there, but {why}")),
    }
}

/// The address by which the device is to reach `len` bytes at `addr`: marked if only the driver copies there. If the driver does not
/// know them, or this process has none, why not.
pub fn locate(addr: u64, len: u64) -> Result<u64, String> {
    let cuda = cuda::loaded()?;
    let device_only = |addr: u64| {
        cuda.is_device_only(addr).map_err(|why| {
            format!(
                "{addr:#x} is no memory that the GPU's driver knows ({why}): never allocated by it, or freed"
            )
        })
    };
    let last = addr.checked_add(len.max(1) - 1).filter(|&last| !is_marked(last));
    let Some(last) = last else {
        return Err(format!("{len} bytes at {addr:#x} go beyond the end of a program's addresses"));
    };
    let first = device_only(addr)?;
    let same = device_only(last)
        .map_err(|why| format!("{len} bytes at {addr:#x} go beyond their allocation: {why}"))?
        == first;
    match (first, same) {
        (_, false) => Err(format!("{len} bytes at {addr:#x} are partly the host's, partly the GPU's")),
        (false, true) => Ok(addr),
        (true, true) => {
            cuda.keep_in_step(addr);
            Ok(addr | MARK)
        }
    }
}

/// Copies; addresses of an accelerator are marked, the others are those of a buffer of ours or of registered memory. False, and said
/// once for each reason, if the driver does not.
pub(crate) fn copy(from: u64, to: u64, len: usize) -> bool {
    let at = |addr| if is_marked(addr) { At::Device(unmarked(addr)) } else { At::Host(addr) };
    let copied =
        cuda::loaded().and_then(|cuda| cuda.copy(at(from), at(to), len).map_err(|why| why.to_string()));
    if let Err(why) = &copied {
        let (what, addr) = if is_marked(from) { ("from", from) } else { ("to", to) };
        log::once(
            log::Level::Error,
            why,
            format_args!(
                "{len} bytes could not be copied {what} the GPU's memory at {:#x}: {why}. The operation fails; was the memory \
                 freed before it had completed? (No program has addresses from 2^63 on.)",
                unmarked(addr)
            ),
        );
    }
    copied.is_ok()
}
