//! An open device: what `ibv_open_device` returns, and what programs ask it. Contexts know nothing of each other: each
//! closes on its own, and what a program forgot to destroy goes with it, as it would in the kernel
//! (docs/design/efa-verbs.md, "Trap 9").

use crate::async_queue::AsyncQueue;
use crate::boundary::{Errno, Outcome, abi, copy_out, object, writable};
use crate::device_list::Device;
use crate::doorbells::{Doorbells, Watch};
use crate::layout::constant::*;
use crate::layout::*;
use crate::objects::Objects;
use crate::profile;
use libc::{c_int, c_void, size_t};
use srd_net::log;
use srd_net::{Instance, Seat, Subscription};
use std::sync::{Arc, Mutex, OnceLock};

#[repr(C)]
pub(crate) struct Context {
    verbs: verbs_context,
    /// The device it was opened on.
    pub device: &'static Device,
    /// The process that opened it.
    pid: u32,
    network: OnceLock<Network>,
    opening: Mutex<()>,
    /// Asynchronous events that wait for the program.
    pub async_events: Arc<AsyncQueue>,
    /// What the program has made and not destroyed yet.
    pub objects: Arc<Objects>,
    /// The queues that the program writes and reads itself.
    pub doorbells: Doorbells,
}

/// The part of a context that needs the network. Opened when the first object needs it: many programs open every
/// device only to look at it.
struct Network {
    instance: Arc<Instance>,
    _seat: Seat,
    _async_events: Subscription,
}

// SAFETY: the C part is written when the context is made; programs may call from any thread, and the rest is Sync.
unsafe impl Sync for Context {}

impl Context {
    /// With the functions that programs call through it.
    pub fn new(device: &'static Device, mut verbs: verbs_context) -> Outcome<Box<Context>> {
        let async_events = Arc::new(AsyncQueue::new()?);
        let cmd_fd = open_null()?;
        verbs.sz = size_of::<verbs_context>();
        let context = &mut verbs.context;
        context.device = device.pointer();
        context.cmd_fd = cmd_fd;
        context.async_fd = async_events.fd();
        context.num_comp_vectors = profile::COMPLETION_VECTORS;
        context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        context.abi_compat = VERBS_ABI_IS_EXTENDED as *mut c_void;
        Ok(Box::new(Context {
            verbs,
            device,
            pid: std::process::id(),
            network: OnceLock::new(),
            opening: Mutex::new(()),
            async_events,
            objects: Arc::default(),
            doorbells: Doorbells::default(),
        }))
    }

    /// What C calls it.
    pub fn pointer(&self) -> *mut ibv_context {
        (&raw const self.verbs.context).cast_mut()
    }

    /// # Safety
    /// The pointer is NULL or points to the C part of a live context.
    pub unsafe fn of<'a>(pointer: *mut ibv_context) -> Outcome<&'a Context> {
        if pointer.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: the C part lies at this distance from the beginning of `Context`.
        unsafe { object(pointer.byte_sub(std::mem::offset_of!(verbs_context, context))) }
    }

    /// The running device, opened now if it is not yet.
    pub fn instance(&self) -> Outcome<&Arc<Instance>> {
        if let Some(network) = self.network.get() {
            return Ok(&network.instance);
        }
        let _one_at_a_time = self.opening.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.network.get().is_none() {
            let (instance, seat) = self.device.open().map_err(|why| {
                log::error(format_args!("{why}"));
                Errno(libc::ENODEV)
            })?;
            let (queue, objects) = (self.async_events.clone(), self.objects.clone());
            let subscription = instance.on_async_event(move |event| queue.deliver(event, &objects));
            let _ = self.network.set(Network { instance, _seat: seat, _async_events: subscription });
        }
        self.network.get().map(|network| &network.instance).ok_or(Errno::IO)
    }

    /// For the thread that looks at queues in memory. EOPNOTSUPP if there are to be none (`SRD_EFA_DIRECT`).
    pub fn watch_queues(&self) -> Outcome<Watch> {
        if self.device.direct { self.watch() } else { Err(Errno::UNSUPPORTED) }
    }

    /// For the thread that moves packets for a program which only looks at memory.
    pub fn watch(&self) -> Outcome<Watch> {
        Ok(Watch {
            instance: self.instance()?.clone(),
            async_events: self.async_events.clone(),
            objects: self.objects.clone(),
        })
    }

    /// Lets go of the running device.
    pub fn disconnect(&mut self) {
        self.network.take();
    }

    /// Whether this process is a fork of the one that opened it.
    pub fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::close(self.verbs.context.cmd_fd) };
    }
}

/// Something for `cmd_fd`, which nobody may use, to be: programs set flags on it.
fn open_null() -> Outcome<c_int> {
    // SAFETY: a C string.
    let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(Errno::last()) } else { Ok(fd) }
}

abi! {
    exported status fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) {
        *writable(attr)? = device_attributes(Context::of(context)?.device);
        Ok(())
    }

    status fn query_device_ex(
        context: *mut ibv_context,
        _input: *const c_void,
        attr: *mut ibv_device_attr_ex,
        len: size_t,
    ) {
        let context = Context::of(context)?;
        if attr.is_null() || len < size_of::<ibv_device_attr>() {
            return Err(Errno::INVALID);
        }
        let mut all: ibv_device_attr_ex = std::mem::zeroed();
        all.orig_attr = device_attributes(context.device);
        all.phys_port_cnt_ex = 1;
        copy_out(&all, attr, len);
        Ok(())
    }

    /// The structure of programs that know nothing after `flags`.
    exported status fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) {
        fill_port(Context::of(context)?, port, attr, std::mem::offset_of!(ibv_port_attr, flags) + 1)
    }

    status fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, len: size_t) {
        fill_port(Context::of(context)?, port, attr, len)
    }

    exported status fn ibv_query_port_speed(context: *mut ibv_context, port: u32, speed: *mut u64) {
        let context = Context::of(context)?;
        if port != 1 {
            return Err(Errno::INVALID);
        }
        // In units of 100 Mb/s.
        *writable(speed)? = context.device.address.gbps * 10;
        Ok(())
    }

    exported minus_one fn ibv_query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) {
        let context = Context::of(context)?;
        if port != 1 || index != 0 || gid.is_null() {
            return Err(Errno::INVALID);
        }
        copy_out(&ibv_gid { raw: context.device.gid().0 }, gid, size_of::<ibv_gid>());
        Ok(0)
    }

    exported status fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        len: size_t,
    ) {
        let context = Context::of(context)?;
        if flags != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        if port != 1 || index != 0 || entry.is_null() {
            return Err(Errno::INVALID);
        }
        copy_out(&gid_entry(context.device), entry, len);
        Ok(())
    }

    /// Returns how many there are, or the negative error number.
    exported value fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max: size_t,
        flags: u32,
        len: size_t,
    ) -> libc::ssize_t {
        let Ok(context) = Context::of(context) else { return -(libc::EINVAL as libc::ssize_t) };
        if flags != 0 {
            return -(libc::EOPNOTSUPP as libc::ssize_t);
        }
        if max == 0 || entries.is_null() {
            return -(libc::EINVAL as libc::ssize_t);
        }
        copy_out(&gid_entry(context.device), entries, len);
        1
    }

    /// `ibv_query_gid_type`, which rdma-core keeps to its own tools (link.sh exports it): 0 is "IB or RoCE v1".
    exported minus_one fn srd_query_gid_type(_context: *mut ibv_context, port: u8, index: u32, kind: *mut c_int) {
        if port != 1 || index != 0 {
            return Err(Errno::INVALID);
        }
        *writable(kind)? = 0;
        Ok(0)
    }

    exported minus_one fn ibv_query_pkey(_context: *mut ibv_context, port: u8, index: c_int, pkey: *mut u16) {
        if port != 1 || index != 0 {
            return Err(Errno::INVALID);
        }
        *writable(pkey)? = DEFAULT_PKEY;
        Ok(0)
    }

    exported minus_one fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) {
        if port == 1 && pkey == DEFAULT_PKEY { Ok(0) } else { Err(Errno::INVALID) }
    }
}

/// The only partition key; the same in either byte order.
const DEFAULT_PKEY: u16 = 0xFFFF;

fn gid_entry(device: &Device) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: device.gid().0 },
        gid_index: 0,
        port_num: 1,
        gid_type: 0,
        ndev_ifindex: 0,
    }
}

/// As the kernel driver's `efa_query_device` fills it.
fn device_attributes(device: &Device) -> ibv_device_attr {
    // SAFETY: numbers, for which zero is valid.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    attr.fw_ver.iter_mut().zip(version).for_each(|(to, from)| *to = *from as libc::c_char);
    attr.node_guid = device.guid.to_be();
    attr.max_mr_size = profile::MAX_MR_SIZE;
    attr.page_size_cap = 0xFFFF_FFFF_FFFF_F000;
    attr.vendor_id = profile::VENDOR_ID;
    attr.vendor_part_id = device.profile.part_id;
    attr.hw_ver = device.profile.part_id;
    attr.max_qp = profile::MAX_QP as c_int;
    attr.max_qp_wr = profile::MAX_SQ_WR.min(profile::MAX_RQ_WR) as c_int;
    attr.max_sge = profile::MAX_SQ_SGE.min(profile::MAX_RQ_SGE) as c_int;
    attr.max_sge_rd = profile::MAX_RDMA_SGE as c_int;
    attr.max_cq = profile::MAX_CQ as c_int;
    attr.max_cqe = profile::MAX_CQE as c_int;
    attr.max_mr = profile::MAX_MR as c_int;
    attr.max_pd = profile::MAX_PD as c_int;
    attr.max_ah = profile::MAX_AH as c_int;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    attr
}

/// Fills `len` bytes of a port's attributes as the kernel driver's `efa_query_port` does.
///
/// # Safety
/// `attr` is NULL or `len` bytes there may be written.
unsafe fn fill_port(context: &Context, port: u8, attr: *mut ibv_port_attr, len: usize) -> Outcome<()> {
    if port != 1 || attr.is_null() {
        return Err(Errno::INVALID);
    }
    let address = &context.device.address;
    let (active_speed, active_width) = speed_and_width(address.gbps);
    let all = ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        // No number stands for the real one, which is `max_msg_sz`.
        max_mtu: IBV_MTU_4096,
        active_mtu: IBV_MTU_4096,
        gid_tbl_len: 1,
        max_msg_sz: address.max_message(),
        pkey_tbl_len: 1,
        lmc: 1,
        max_vl_num: 1,
        active_speed,
        active_width,
        phys_state: LINK_UP,
        ..ibv_port_attr::default()
    };
    // SAFETY: as the caller says.
    unsafe { copy_out(&all, attr, len) };
    Ok(())
}

/// `phys_state` (IB specification, PortInfo.PortPhysicalState).
const LINK_UP: u8 = 5;

/// The kernel driver's choice among the rates that verbs can express (`efa_link_gbps_to_speed_and_width`), as
/// `ib_port_speed` and `ib_port_width`.
fn speed_and_width(gbps: u64) -> (u8, u8) {
    const SDR: u8 = 1;
    const DDR: u8 = 2;
    const FDR10: u8 = 8;
    const EDR: u8 = 32;
    const HDR: u8 = 64;
    const X1: u8 = 1;
    const X4: u8 = 2;
    const X8: u8 = 4;
    const X12: u8 = 8;
    match gbps {
        400.. => (HDR, X8),
        200.. => (HDR, X4),
        120.. => (FDR10, X12),
        100.. => (EDR, X4),
        60.. => (DDR, X12),
        50.. => (HDR, X1),
        40.. => (FDR10, X4),
        30.. => (SDR, X12),
        _ => (EDR, X1),
    }
}
