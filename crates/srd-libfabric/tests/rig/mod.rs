//! Objects of the provider as a program opens them, through its tables of operations: what libfabric's inline wrappers do.
//! Both ends of a test are in one process, on loopback.
#![allow(dead_code)]

use srd_libfabric::layout::*;
use std::ffi::{c_int, c_void};
use std::fs::{OpenOptions, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::time::{Duration, Instant};

pub const API: u32 = 1 << 16 | 20;
pub const UNSPEC: u64 = u64::MAX;

pub const MSG: u64 = 1 << 1;
pub const RMA: u64 = 1 << 2;
pub const TAGGED: u64 = 1 << 3;
pub const ATOMIC: u64 = 1 << 4;
pub const READ: u64 = 1 << 8;
pub const WRITE: u64 = 1 << 9;
pub const RECV: u64 = 1 << 10;
pub const SEND: u64 = 1 << 11;
pub const REMOTE_READ: u64 = 1 << 12;
pub const REMOTE_WRITE: u64 = 1 << 13;
pub const MULTI_RECV: u64 = 1 << 16;
pub const REMOTE_CQ_DATA: u64 = 1 << 17;
pub const PEEK: u64 = 1 << 19;
pub const COMPLETION: u64 = 1 << 24;
pub const INJECT: u64 = 1 << 25;
pub const DELIVERY_COMPLETE: u64 = 1 << 28;
pub const MATCH_COMPLETE: u64 = 1 << 31;
pub const SOURCE: u64 = 1 << 57;
pub const DISCARD: u64 = 1 << 58;
pub const CLAIM: u64 = 1 << 59;
pub const DIRECTED_RECV: u64 = 1 << 59;
pub const SELECTIVE: u64 = 1 << 59;

pub const EAVAIL: isize = -259;
pub const EAGAIN: isize = -(libc::EAGAIN as isize);
pub const ENABLE: c_int = 6;
pub const FORMAT_TAGGED: u32 = 4;
pub const WAIT_UNSPEC: u32 = 1;
pub const WAIT_SET: u32 = 2;
pub const WAIT_FD: u32 = 3;

/// Longest that a test waits for something that must come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The provider, with loopback as its address, and with what this test program is for.
pub fn provider() -> &'static fi_provider {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (address, more) = match env!("CARGO_CRATE_NAME") {
            "ipv6" => ("::1", None),
            "closing" | "network" | "threads_network" => ("127.0.0.1", Some(("SRD_SHM", "off".into()))),
            "engines" | "engines_data" => ("127.0.0.1", Some(("SRD_ENGINES", "4".into()))),
            "sealed" => ("127.0.0.1", Some(("SRD_KEY_FILE", key_file().into_os_string()))),
            _ => ("127.0.0.1", None),
        };
        // SAFETY: before any thread of ours reads the environment.
        unsafe {
            std::env::set_var("SRD_ADDR", address);
            if let Some((name, value)) = more.filter(|(name, _)| std::env::var_os(name).is_none()) {
                std::env::set_var(name, value);
            }
        }
    });
    // SAFETY: a static.
    unsafe { &*srd_libfabric::fi_prov_ini() }
}

/// A file with a key, for this user only.
pub fn key_file() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("key");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
    // One that was there keeps its mode.
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    file.write_all(&[0x5E; 32]).unwrap();
    path
}

/// Hints with all parts, of zeros.
pub struct Hints {
    pub info: Box<fi_info>,
    pub tx: Box<fi_tx_attr>,
    pub rx: Box<fi_rx_attr>,
    pub ep: Box<fi_ep_attr>,
    pub domain: Box<fi_domain_attr>,
    pub fabric: Box<fi_fabric_attr>,
}

pub fn zeroed<T>() -> Box<T> {
    // SAFETY: structures of numbers and pointers.
    Box::new(unsafe { std::mem::zeroed() })
}

impl Hints {
    pub fn new(caps: u64) -> Hints {
        let mut hints = Hints {
            info: zeroed(),
            tx: zeroed(),
            rx: zeroed(),
            ep: zeroed(),
            domain: zeroed(),
            fabric: zeroed(),
        };
        hints.info.tx_attr = &mut *hints.tx;
        hints.info.rx_attr = &mut *hints.rx;
        hints.info.ep_attr = &mut *hints.ep;
        hints.info.domain_attr = &mut *hints.domain;
        hints.info.fabric_attr = &mut *hints.fabric;
        hints.info.caps = caps;
        hints
    }

    pub fn get(&self) -> Result<Info, c_int> {
        getinfo(API, None, 0, &*self.info)
    }
}

/// An answer of getinfo. Leaked, as its pieces are: tests are short.
#[derive(Clone, Copy)]
pub struct Info(pub *mut fi_info);

impl Info {
    pub fn get(&self) -> &fi_info {
        // SAFETY: made by the provider and never freed.
        unsafe { &*self.0 }
    }
    pub fn tx(&self) -> &fi_tx_attr {
        // SAFETY: as above.
        unsafe { &*self.get().tx_attr }
    }
    pub fn rx(&self) -> &fi_rx_attr {
        // SAFETY: as above.
        unsafe { &*self.get().rx_attr }
    }
    pub fn ep(&self) -> &fi_ep_attr {
        // SAFETY: as above.
        unsafe { &*self.get().ep_attr }
    }
    pub fn domain(&self) -> &fi_domain_attr {
        // SAFETY: as above.
        unsafe { &*self.get().domain_attr }
    }
    /// The address that endpoints opened with it get.
    pub fn set_port(&self, port: u16) {
        // SAFETY: a sockaddr_in of the provider's.
        unsafe { *self.get().src_addr.cast::<[u8; 2]>().byte_add(2) = port.to_be_bytes() };
    }
}

pub fn getinfo(
    api: u32,
    at: Option<(&std::ffi::CStr, &std::ffi::CStr)>,
    flags: u64,
    hints: *const fi_info,
) -> Result<Info, c_int> {
    let mut info = null_mut();
    let (node, service) = at.map_or((null(), null()), |(node, service)| (node.as_ptr(), service.as_ptr()));
    // SAFETY: live arguments.
    match unsafe { (provider().getinfo)(api, node, service, flags, hints, &mut info) } {
        0 => Ok(Info(info)),
        errno => Err(-errno),
    }
}

/// The answer's code as a `Result`.
pub fn check(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(-code) }
}

pub fn close<T>(object: *mut T) -> Result<(), c_int> {
    // SAFETY: a live object of the provider, which begins with `fid`.
    unsafe {
        let fid = object.cast::<fid>();
        check(((*(*fid).ops).close)(fid))
    }
}

pub fn bind<A, B>(object: *mut A, other: *mut B, flags: u64) -> Result<(), c_int> {
    // SAFETY: live objects of the provider, which begin with `fid`.
    unsafe {
        let fid = object.cast::<fid>();
        check(((*(*fid).ops).bind)(fid, other.cast(), flags))
    }
}

pub fn control<T, A>(object: *mut T, command: c_int, arg: *mut A) -> Result<(), c_int> {
    // SAFETY: a live object of the provider, which begins with `fid`.
    unsafe {
        let fid = object.cast::<fid>();
        check(((*(*fid).ops).control)(fid, command, arg.cast()))
    }
}

/// A fabric with a domain.
pub struct Rig {
    pub info: Info,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
}

impl Rig {
    pub fn new(caps: u64) -> Rig {
        Rig::of(Hints::new(caps).get().unwrap())
    }

    pub fn of(info: Info) -> Rig {
        let (mut fabric, mut domain) = (null_mut(), null_mut());
        // SAFETY: live arguments.
        unsafe {
            check((provider().fabric)(info.get().fabric_attr, &mut fabric, null_mut())).unwrap();
            check(((*(*fabric).ops).domain)(fabric, info.0, &mut domain, null_mut())).unwrap();
        }
        Rig { info, fabric, domain }
    }

    pub fn cq(&self, size: usize, wait_obj: u32) -> Cq {
        let mut attr = *zeroed::<fi_cq_attr>();
        (attr.size, attr.format, attr.wait_obj) = (size, FORMAT_TAGGED, wait_obj);
        self.cq_of(attr)
    }

    /// A queue of a wait set.
    pub fn cq_in(&self, wait_set: *mut fid_wait) -> Cq {
        let mut attr = *zeroed::<fi_cq_attr>();
        (attr.format, attr.wait_obj, attr.wait_set) = (FORMAT_TAGGED, WAIT_SET, wait_set);
        self.cq_of(attr)
    }

    /// A queue with a descriptor of its own, though a wait set is named.
    pub fn cq_beside(&self, wait_set: *mut fid_wait) -> Cq {
        let mut attr = *zeroed::<fi_cq_attr>();
        (attr.format, attr.wait_obj, attr.wait_set) = (FORMAT_TAGGED, WAIT_FD, wait_set);
        self.cq_of(attr)
    }

    fn cq_of(&self, mut attr: fi_cq_attr) -> Cq {
        let mut cq = null_mut();
        // SAFETY: live arguments.
        unsafe {
            check(((*(*self.domain).ops).cq_open)(self.domain, &mut attr, &mut cq, null_mut())).unwrap()
        };
        Cq(cq)
    }

    pub fn av(&self) -> Av {
        let mut attr = *zeroed::<fi_av_attr>();
        let mut av = null_mut();
        // SAFETY: live arguments.
        unsafe {
            check(((*(*self.domain).ops).av_open)(self.domain, &mut attr, &mut av, null_mut())).unwrap()
        };
        Av(av)
    }

    pub fn counter(&self) -> *mut fid_cntr {
        let mut attr = *zeroed::<fi_cntr_attr>();
        attr.wait_obj = WAIT_UNSPEC;
        self.counter_of(attr)
    }

    /// A counter of a wait set.
    pub fn counter_in(&self, wait_set: *mut fid_wait) -> *mut fid_cntr {
        let mut attr = *zeroed::<fi_cntr_attr>();
        (attr.wait_obj, attr.wait_set) = (WAIT_SET, wait_set);
        self.counter_of(attr)
    }

    fn counter_of(&self, mut attr: fi_cntr_attr) -> *mut fid_cntr {
        let mut cntr = null_mut();
        // SAFETY: live arguments.
        unsafe {
            check(((*(*self.domain).ops).cntr_open)(self.domain, &mut attr, &mut cntr, null_mut())).unwrap();
        }
        cntr
    }

    /// An endpoint that is bound to nothing.
    pub fn bare(&self) -> Result<Ep, c_int> {
        let mut ep = null_mut();
        // SAFETY: live arguments.
        unsafe { check(((*(*self.domain).ops).endpoint)(self.domain, self.info.0, &mut ep, null_mut()))? };
        Ok(Ep(ep))
    }

    /// An endpoint with a queue for everything, and a vector.
    pub fn end(&self, flags: u64) -> End {
        self.end_with(self.cq(0, WAIT_UNSPEC), self.av(), flags)
    }

    pub fn end_with(&self, cq: Cq, av: Av, flags: u64) -> End {
        let ep = self.bare().unwrap();
        bind(ep.0, cq.0, SEND | RECV | flags).unwrap();
        bind(ep.0, av.0, 0).unwrap();
        control(ep.0, ENABLE, null_mut::<u8>()).unwrap();
        End { ep, cq, av }
    }

    /// Two endpoints, and their addresses for each other.
    pub fn pair(&self, flags: u64) -> (End, End, u64, u64) {
        let (a, b) = (self.end(flags), self.end(flags));
        let (to_b, to_a) = (a.av.insert(b.ep.address()), b.av.insert(a.ep.address()));
        (a, b, to_b, to_a)
    }

    pub fn register(&self, addr: u64, len: usize, access: u64, key: u64) -> Result<Mr, c_int> {
        let mut mr = null_mut();
        let addr = addr as *const c_void;
        let domain = self.domain.cast();
        // SAFETY: live arguments.
        unsafe {
            check(((*(*self.domain).mr).reg)(domain, addr, len, access, 0, key, 0, &mut mr, null_mut()))?;
        }
        Ok(Mr(mr))
    }

    pub fn close(self) {
        close(self.domain).unwrap();
        close(self.fabric).unwrap();
    }
}

#[derive(Clone, Copy)]
pub struct Mr(pub *mut fid_mr);

impl Mr {
    pub fn key(&self) -> u64 {
        // SAFETY: live.
        unsafe { (*self.0).key }
    }
}

/// An endpoint with what it is bound to.
pub struct End {
    pub ep: Ep,
    pub cq: Cq,
    pub av: Av,
}

impl End {
    pub fn close(self) {
        close(self.ep.0).unwrap();
        close(self.cq.0).unwrap();
        close(self.av.0).unwrap();
    }
}

#[derive(Clone, Copy)]
pub struct Ep(pub *mut fid_ep);

impl Ep {
    pub fn address(&self) -> Vec<u8> {
        let (mut addr, mut len) = (vec![0; 28], 28);
        // SAFETY: live arguments.
        unsafe {
            check(((*(*self.0).cm).getname)(self.0.cast(), addr.as_mut_ptr().cast(), &mut len)).unwrap();
        }
        addr.truncate(len);
        addr
    }

    pub fn port(&self) -> u16 {
        let addr = self.address();
        u16::from_be_bytes([addr[2], addr[3]])
    }

    pub fn send(&self, buf: &[u8], to: u64, context: u64) -> isize {
        // SAFETY: live until the test has seen it complete.
        unsafe {
            ((*(*self.0).msg).send)(self.0, buf.as_ptr().cast(), buf.len(), null_mut(), to, context as _)
        }
    }

    pub fn recv(&self, buf: &mut [u8], context: u64) -> isize {
        let (at, len) = (buf.as_mut_ptr().cast(), buf.len());
        // SAFETY: as above.
        unsafe { ((*(*self.0).msg).recv)(self.0, at, len, null_mut(), UNSPEC, context as _) }
    }

    pub fn tsend(&self, buf: &[u8], to: u64, tag: u64, context: u64) -> isize {
        let (at, len) = (buf.as_ptr().cast(), buf.len());
        // SAFETY: as above.
        unsafe { ((*(*self.0).tagged).send)(self.0, at, len, null_mut(), to, tag, context as _) }
    }

    pub fn trecv(&self, buf: &mut [u8], from: u64, tag: u64, ignore: u64, context: u64) -> isize {
        let (at, len) = (buf.as_mut_ptr().cast(), buf.len());
        // SAFETY: as above.
        unsafe { ((*(*self.0).tagged).recv)(self.0, at, len, null_mut(), from, tag, ignore, context as _) }
    }

    pub fn trecvmsg(&self, buf: &mut [u8], tag: u64, ignore: u64, context: u64, flags: u64) -> isize {
        let iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let msg = fi_msg_tagged {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: UNSPEC,
            tag,
            ignore,
            context: context as _,
            data: 0,
        };
        // SAFETY: as above.
        unsafe { ((*(*self.0).tagged).recvmsg)(self.0, &msg, flags) }
    }

    /// fi_sendmsg, or fi_recvmsg with `receive`.
    pub fn message(&self, receive: bool, buf: &[u8], to: u64, data: u64, context: u64, flags: u64) -> isize {
        let iov = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
        let context = context as _;
        let msg = fi_msg { msg_iov: &iov, desc: null_mut(), iov_count: 1, addr: to, context, data };
        // SAFETY: as above.
        unsafe {
            let ops = &*(*self.0).msg;
            if receive { (ops.recvmsg)(self.0, &msg, flags) } else { (ops.sendmsg)(self.0, &msg, flags) }
        }
    }

    /// fi_writemsg, or fi_readmsg with `read`.
    #[allow(clippy::too_many_arguments)]
    pub fn rma(
        &self,
        read: bool,
        buf: &[u8],
        to: u64,
        addr: u64,
        key: u64,
        data: u64,
        context: u64,
        flags: u64,
    ) -> isize {
        let iov = libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() };
        let there = fi_rma_iov { addr, len: buf.len(), key };
        let msg = fi_msg_rma {
            msg_iov: &iov,
            desc: null_mut(),
            iov_count: 1,
            addr: to,
            rma_iov: &there,
            rma_iov_count: 1,
            context: context as _,
            data,
        };
        // SAFETY: as above.
        unsafe {
            let ops = &*(*self.0).rma;
            if read { (ops.readmsg)(self.0, &msg, flags) } else { (ops.writemsg)(self.0, &msg, flags) }
        }
    }

    pub fn cancel(&self, context: u64) -> isize {
        // SAFETY: live arguments.
        unsafe { ((*(*self.0).ops).cancel)(self.0.cast(), context as _) }
    }
}

#[derive(Clone, Copy)]
pub struct Cq(pub *mut fid_cq);

impl Cq {
    pub fn read(&self) -> Result<fi_cq_tagged_entry, isize> {
        self.read_from().map(|(entry, _)| entry)
    }

    pub fn read_from(&self) -> Result<(fi_cq_tagged_entry, u64), isize> {
        let (mut entry, mut source) = (*zeroed::<fi_cq_tagged_entry>(), 0);
        // SAFETY: live arguments.
        match unsafe { ((*(*self.0).ops).readfrom)(self.0, (&raw mut entry).cast(), 1, &mut source) } {
            1 => Ok((entry, source)),
            code => Err(code),
        }
    }

    /// The next entry, for as long as one may have to wait for it.
    pub fn next(&self) -> fi_cq_tagged_entry {
        self.next_from().0
    }

    /// Reads that many entries.
    pub fn skip(&self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    pub fn next_from(&self) -> (fi_cq_tagged_entry, u64) {
        self.next_outcome().unwrap_or_else(|error| panic!("error {}", error.err))
    }

    /// The next entry, which must be an error.
    pub fn next_error(&self) -> fi_cq_err_entry {
        self.next_outcome().map(|(entry, _)| entry.op_context).expect_err("an error")
    }

    pub fn next_outcome(&self) -> Result<(fi_cq_tagged_entry, u64), fi_cq_err_entry> {
        let start = Instant::now();
        loop {
            match self.read_from() {
                Ok(entry) => return Ok(entry),
                Err(EAGAIN) => assert!(start.elapsed() < PATIENCE, "nothing completes"),
                Err(EAVAIL) => return Err(self.error()),
                Err(code) => panic!("fi_cq_read: {code}"),
            }
        }
    }

    fn error(&self) -> fi_cq_err_entry {
        let mut entry = *zeroed::<fi_cq_err_entry>();
        assert_eq!(self.readerr(&mut entry), 1);
        entry
    }

    pub fn readerr(&self, entry: &mut fi_cq_err_entry) -> isize {
        // SAFETY: live arguments.
        unsafe { ((*(*self.0).ops).readerr)(self.0, entry, 0) }
    }

    /// Nothing is there, nor comes within a moment.
    pub fn stays_empty(&self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            assert_eq!(self.read().map(|entry| entry.op_context), Err(EAGAIN));
        }
    }

    pub fn wait(&self, milliseconds: c_int) -> Result<fi_cq_tagged_entry, isize> {
        let mut entry = *zeroed::<fi_cq_tagged_entry>();
        // SAFETY: live arguments.
        match unsafe { ((*(*self.0).ops).sread)(self.0, (&raw mut entry).cast(), 1, null(), milliseconds) } {
            1 => Ok(entry),
            code => Err(code),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Av(pub *mut fid_av);

impl Av {
    pub fn insert(&self, addr: impl AsRef<[u8]>) -> u64 {
        let (addr, mut fi_addr) = (addr.as_ref(), 0);
        // SAFETY: live arguments.
        let n = unsafe {
            ((*(*self.0).ops).insert)(self.0, addr.as_ptr().cast(), 1, &mut fi_addr, 0, null_mut())
        };
        assert_eq!(n, 1);
        fi_addr
    }

    pub fn remove(&self, mut fi_addr: u64) -> Result<(), c_int> {
        // SAFETY: live arguments.
        check(unsafe { ((*(*self.0).ops).remove)(self.0, &mut fi_addr, 1, 0) })
    }
}

/// A sockaddr_in.
pub fn sockaddr(ip: [u8; 4], port: u16) -> [u8; 16] {
    let addr = SocketAddrV4::new(Ipv4Addr::from(ip), port);
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
    bytes[4..8].copy_from_slice(&addr.ip().octets());
    bytes
}

/// Bytes that a mistake would change.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 17 + i / 251) as u8).collect()
}
