//! Memory of a GPU (FI_HMEM), over a driver that stands in for one: `tests/accelerator/libcuda.c`, whose memory a load or store of ours
//! would end the process for.

mod rig;
#[path = "../../../tests/accelerator/stub.rs"]
mod stub;

use rig::*;
use srd_libfabric::layout::*;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::sync::OnceLock;

const HMEM: u64 = 1 << 47;
const MR_HMEM: i32 = 1 << 10;
const OURS: i32 = 1 << 4 | 1 << 5 | 1 << 6; // FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY
const CUDA: u32 = 1;
/// One packet, several, more than one message of the device, and long enough to be asked for in pieces.
const LENGTHS: [usize; 6] = [1, 100, 5_000, 60_000, 70_000, 3_000_001];

/// What a process is to test; without it the tests start processes.
const PART: &str = "TEST_ACCELERATOR";

// ---- the driver ----

struct Stub {
    alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    alloc_managed: unsafe extern "C" fn(*mut u64, usize, u32) -> c_int,
    host_alloc: unsafe extern "C" fn(*mut u64, usize, u32) -> c_int,
    alloc_without_context: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    write: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int,
    read: unsafe extern "C" fn(u64, *mut c_void, usize) -> c_int,
    copies: unsafe extern "C" fn(*mut c_long),
}

/// The driver, loaded as a program's own runtime has it: the provider finds it by its name.
#[allow(clippy::missing_transmute_annotations)] // the fields say of what type
fn driver() -> &'static Stub {
    static STUB: OnceLock<Stub> = OnceLock::new();
    STUB.get_or_init(|| {
        // SAFETY: a library of ours; its functions are of these types.
        unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "LD_LIBRARY_PATH leads to it");
            let find = |name: &CStr| {
                let at = libc::dlsym(library, name.as_ptr());
                assert!(!at.is_null(), "{name:?}");
                at
            };
            let init: unsafe extern "C" fn(u32) -> c_int = std::mem::transmute(find(c"cuInit"));
            assert_eq!(init(0), 0);
            Stub {
                alloc: std::mem::transmute::<*mut c_void, _>(find(c"cuMemAlloc_v2")),
                alloc_managed: std::mem::transmute::<*mut c_void, _>(find(c"cuMemAllocManaged")),
                host_alloc: std::mem::transmute::<*mut c_void, _>(find(c"cuMemHostAlloc")),
                alloc_without_context: std::mem::transmute::<*mut c_void, _>(find(
                    c"stub_alloc_without_context",
                )),
                free: std::mem::transmute::<*mut c_void, _>(find(c"cuMemFree_v2")),
                write: std::mem::transmute::<*mut c_void, _>(find(c"stub_write")),
                read: std::mem::transmute::<*mut c_void, _>(find(c"stub_read")),
                copies: std::mem::transmute::<*mut c_void, _>(find(c"stub_copies")),
            }
        }
    })
}

/// Copies since the last time: to the host, to the GPU, within it.
fn copies() -> [c_long; 3] {
    let mut counted = [0; 3];
    // SAFETY: room for three.
    unsafe { (driver().copies)(counted.as_mut_ptr()) };
    counted
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Host,
    Gpu,
    WithoutContext,
    Pinned,
    Managed,
}

/// A buffer of some kind, registered for everything.
struct Buffer {
    kind: Kind,
    addr: u64,
    len: usize,
    mr: Mr,
}

fn allocate(kind: Kind, len: usize) -> u64 {
    let mut addr = 0;
    // SAFETY: `addr` can be written.
    let result = unsafe {
        match kind {
            Kind::Host => {
                addr = Box::leak(vec![0u8; len].into_boxed_slice()).as_mut_ptr() as u64;
                0
            }
            Kind::Gpu => (driver().alloc)(&mut addr, len),
            Kind::WithoutContext => (driver().alloc_without_context)(&mut addr, len),
            Kind::Pinned => (driver().host_alloc)(&mut addr, len, 0),
            Kind::Managed => (driver().alloc_managed)(&mut addr, len, 1),
        }
    };
    assert_eq!(result, 0);
    addr
}

fn register(rig: &Rig, kind: Kind, addr: u64, len: usize) -> Result<Mr, c_int> {
    let iov = libc::iovec { iov_base: addr as *mut c_void, iov_len: len };
    let mut attr = *zeroed::<fi_mr_attr>();
    (attr.mr_iov, attr.iov_count) = (&iov, 1);
    attr.access = SEND | RECV | READ | WRITE | REMOTE_READ | REMOTE_WRITE;
    attr.iface = if kind == Kind::Host { 0 } else { CUDA };
    let mut mr = null_mut();
    // SAFETY: live arguments.
    check(unsafe { ((*(*rig.domain).mr).regattr)(rig.domain.cast(), &attr, 0, &mut mr) })?;
    Ok(Mr(mr))
}

impl Buffer {
    fn new(rig: &Rig, kind: Kind, len: usize) -> Buffer {
        let addr = allocate(kind, len);
        Buffer { kind, addr, len, mr: register(rig, kind, addr, len).unwrap() }
    }

    fn desc(&self) -> *mut c_void {
        // SAFETY: live.
        unsafe { (*self.mr.0).mem_desc }
    }

    fn fill(&self, bytes: &[u8]) {
        // SAFETY: as long as the buffer, and of its kind.
        unsafe {
            match self.kind {
                Kind::Host => bytes.as_ptr().copy_to(self.addr as *mut u8, bytes.len()),
                _ => assert_eq!((driver().write)(self.addr, bytes.as_ptr().cast(), bytes.len()), 0),
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: as above.
        unsafe {
            match self.kind {
                Kind::Host => bytes.as_mut_ptr().copy_from(self.addr as *const u8, self.len),
                _ => assert_eq!((driver().read)(self.addr, bytes.as_mut_ptr().cast(), self.len), 0),
            }
        }
        bytes
    }

    fn close(self) {
        close(self.mr.0).unwrap();
    }
}

/// How a message goes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Send,
    Tagged,
    Vector,
}

fn send(ep: Ep, from: &Buffer, to: u64, how: How) -> isize {
    let (at, len) = (from.addr as *const c_void, from.len);
    // SAFETY: live until the test has seen it complete.
    unsafe {
        match how {
            How::Send => ((*(*ep.0).msg).send)(ep.0, at, len, from.desc(), to, null_mut()),
            How::Tagged => ((*(*ep.0).tagged).send)(ep.0, at, len, from.desc(), to, 7, null_mut()),
            How::Vector => {
                let halves = halves(from);
                let mut descs = [from.desc(); 2];
                ((*(*ep.0).msg).sendv)(ep.0, halves.as_ptr(), descs.as_mut_ptr(), 2, to, null_mut())
            }
        }
    }
}

fn recv(ep: Ep, to: &Buffer, how: How) -> isize {
    let (at, len) = (to.addr as *mut c_void, to.len);
    // SAFETY: as above.
    unsafe {
        match how {
            How::Send => ((*(*ep.0).msg).recv)(ep.0, at, len, to.desc(), UNSPEC, null_mut()),
            How::Tagged => ((*(*ep.0).tagged).recv)(ep.0, at, len, to.desc(), UNSPEC, 7, 0, null_mut()),
            How::Vector => {
                let halves = halves(to);
                let mut descs = [to.desc(); 2];
                ((*(*ep.0).msg).recvv)(ep.0, halves.as_ptr(), descs.as_mut_ptr(), 2, UNSPEC, null_mut())
            }
        }
    }
}

fn halves(buffer: &Buffer) -> [libc::iovec; 2] {
    let first = buffer.len / 2;
    [(0, first), (first, buffer.len - first)]
        .map(|(skip, len)| libc::iovec { iov_base: (buffer.addr + skip as u64) as *mut c_void, iov_len: len })
}

fn hints(mr_mode: i32) -> Hints {
    let mut hints = Hints::new(HMEM | MSG | TAGGED | RMA | ATOMIC);
    hints.domain.mr_mode = mr_mode;
    hints
}

fn open() -> Rig {
    let info = hints(MR_HMEM | OURS).get().expect("the stub has a device");
    assert_ne!(info.get().caps & HMEM, 0);
    assert_eq!(info.domain().mr_mode, MR_HMEM | OURS);
    Rig::of(info)
}

const PAIRS: [(Kind, Kind); 6] = [
    (Kind::Gpu, Kind::Gpu),
    (Kind::Host, Kind::Gpu),
    (Kind::Gpu, Kind::Host),
    (Kind::WithoutContext, Kind::Gpu),
    (Kind::Pinned, Kind::Managed),
    (Kind::Managed, Kind::Gpu),
];

// ---- what the processes do ----

/// Messages of all lengths between all kinds of memory, and their contents; the receive is there first, or the message.
fn messages(rig: &Rig) {
    let (a, b, to_b, _) = rig.pair(0);
    for (from, to) in PAIRS {
        for (round, len) in LENGTHS.into_iter().enumerate() {
            for how in [How::Send, How::Tagged, How::Vector] {
                for expected in [true, false] {
                    let (source, target) = (Buffer::new(rig, from, len), Buffer::new(rig, to, len));
                    let bytes = pattern(round + how as usize, len);
                    source.fill(&bytes);
                    if expected {
                        assert_eq!(recv(b.ep, &target, how), 0);
                    }
                    assert_eq!(send(a.ep, &source, to_b, how), 0);
                    if !expected {
                        b.cq.stays_empty();
                        assert_eq!(recv(b.ep, &target, how), 0);
                    }
                    b.cq.next();
                    a.cq.next();
                    assert!(target.bytes() == bytes, "{len} bytes, {from:?} to {to:?}, {how:?}, {expected}");
                    source.close();
                    target.close();
                }
            }
        }
    }
    a.close();
    b.close();
}

/// Writes, reads and an atomic operation.
fn one_sided(rig: &Rig) {
    let (a, b, to_b, _) = rig.pair(0);
    for (from, to) in PAIRS {
        for (round, len) in LENGTHS.into_iter().enumerate() {
            let (here, there) = (Buffer::new(rig, from, len), Buffer::new(rig, to, len));
            let bytes = pattern(round, len);
            here.fill(&bytes);
            let (at, key) = (here.addr as *mut c_void, there.mr.key());
            // SAFETY: live until it has completed.
            let rma = unsafe { &*(*a.ep.0).rma };
            // SAFETY: as above.
            unsafe {
                assert_eq!((rma.write)(a.ep.0, at, len, here.desc(), to_b, there.addr, key, null_mut()), 0);
            }
            complete(&a, &b);
            assert!(there.bytes() == bytes, "{len} bytes written, {from:?} to {to:?}");
            let other = pattern(round + 100, len);
            there.fill(&other);
            // SAFETY: as above.
            unsafe {
                assert_eq!((rma.read)(a.ep.0, at, len, here.desc(), to_b, there.addr, key, null_mut()), 0);
            }
            complete(&a, &b);
            assert!(here.bytes() == other, "{len} bytes read, {to:?} to {from:?}");
            here.close();
            there.close();
        }
        let (here, there, before) =
            (Buffer::new(rig, from, 8), Buffer::new(rig, to, 8), Buffer::new(rig, from, 8));
        here.fill(&5u64.to_ne_bytes());
        there.fill(&70u64.to_ne_bytes());
        // SAFETY: as above.
        unsafe {
            let fetch = (*(*a.ep.0).atomic).readwrite;
            let (operand, result) = (here.addr as *const c_void, before.addr as *mut c_void);
            let (sum, uint64) = (2, 7);
            let posted = fetch(
                a.ep.0,
                operand,
                1,
                here.desc(),
                result,
                before.desc(),
                to_b,
                there.addr,
                there.mr.key(),
                uint64,
                sum,
                null_mut(),
            );
            assert_eq!(posted, 0);
        }
        complete(&a, &b);
        assert_eq!(
            (there.bytes(), before.bytes()),
            (75u64.to_ne_bytes().to_vec(), 70u64.to_ne_bytes().to_vec())
        );
    }
    a.close();
    b.close();
}

/// Waits for what one end has begun, while the other is looked at, too.
fn complete(a: &End, b: &End) {
    let start = std::time::Instant::now();
    loop {
        match a.cq.read() {
            Ok(_) => return,
            Err(code) => assert_eq!(code, EAGAIN),
        }
        assert_eq!(b.cq.read().map(|_| ()), Err(EAGAIN));
        assert!(start.elapsed() < PATIENCE, "nothing completes");
    }
}

/// What is no memory of the driver's is named when it is registered; what is freed later, when it is used.
fn errors(rig: &Rig) {
    let addr = allocate(Kind::Gpu, 8192);
    let errno = |result: Result<Mr, c_int>| result.map(|_| ()).unwrap_err();
    assert_eq!(errno(register(rig, Kind::Gpu, 0x1000, 8)), libc::EINVAL);
    assert_eq!(errno(register(rig, Kind::Gpu, addr, 8193)), libc::EINVAL);
    assert_eq!(errno(register(rig, Kind::Gpu, u64::MAX - 10, 100)), libc::EINVAL);
    assert_eq!(errno(register(rig, Kind::Gpu, 1 << 63, 100)), libc::EINVAL);
    // SAFETY: an address of the driver's.
    assert_eq!(unsafe { (driver().free)(addr) }, 0);
    assert_eq!(errno(register(rig, Kind::Gpu, addr, 8)), libc::EINVAL);

    let (a, b, to_b, _) = rig.pair(0);
    let warm = [1u8; 8];
    let mut room = [0u8; 8];
    assert_eq!(b.ep.recv(&mut room, 0), 0);
    assert_eq!(a.ep.send(&warm, to_b, 0), 0);
    a.cq.next();
    b.cq.next();
    for len in LENGTHS {
        let freed = |kind| {
            let buffer = Buffer::new(rig, kind, len);
            // SAFETY: as above.
            assert_eq!(unsafe { (driver().free)(buffer.addr) }, 0);
            buffer
        };
        let good = Buffer::new(rig, Kind::Gpu, len);
        // A receive.
        let gone = freed(Kind::Gpu);
        assert_eq!(recv(b.ep, &gone, How::Send), 0);
        assert_eq!(send(a.ep, &good, to_b, How::Send), 0);
        assert_eq!(b.cq.next_error().err, libc::EFAULT, "{len}");
        let _ = a.cq.next_outcome();
        // A send: short ones are looked at when they are posted, long ones when they are asked for.
        let gone = freed(Kind::Gpu);
        match send(a.ep, &gone, to_b, How::Send) {
            0 => {
                assert_eq!(recv(b.ep, &good, How::Send), 0);
                assert_eq!(a.cq.next_error().err, libc::EFAULT, "{len}");
                b.cq.next_error();
            }
            code => assert_eq!(code, -(libc::EFAULT as isize), "{len}"),
        }
        // A write to memory that has gone over there.
        let gone = freed(Kind::Gpu);
        let at = good.addr as *mut c_void;
        // SAFETY: live until it has completed.
        let rma = unsafe { &*(*a.ep.0).rma };
        // SAFETY: as above.
        let posted =
            unsafe { (rma.write)(a.ep.0, at, len, good.desc(), to_b, gone.addr, gone.mr.key(), null_mut()) };
        assert_eq!(posted, 0);
        assert_eq!(a.cq.next_error().err, libc::EACCES, "{len}");
        // SAFETY: as above.
        let posted =
            unsafe { (rma.read)(a.ep.0, at, len, good.desc(), to_b, gone.addr, gone.mr.key(), null_mut()) };
        assert_eq!(posted, 0);
        assert_eq!(a.cq.next_error().err, libc::EACCES, "{len}");
    }
    // An address that no program has.
    let wild = (1 << 63 | 0x1000u64) as *const c_void;
    // SAFETY: refused.
    let posted = unsafe { ((*(*a.ep.0).msg).send)(a.ep.0, wild, 8, null_mut(), to_b, null_mut()) };
    assert_eq!(posted, -(libc::EFAULT as isize));
    // Everything else goes on.
    assert_eq!(b.ep.recv(&mut room, 0), 0);
    assert_eq!(a.ep.send(&warm, to_b, 0), 0);
    a.cq.next();
    b.cq.next();
    a.close();
    b.close();
}

/// A message takes few copies, whatever its length.
fn cost(rig: &Rig) {
    let (a, b, to_b, _) = rig.pair(0);
    for round in 0..2 {
        for (len, most) in [(100, 1), (60_000, 2), (3_000_000, 120)] {
            let (source, target) = (Buffer::new(rig, Kind::Gpu, len), Buffer::new(rig, Kind::Gpu, len));
            copies();
            assert_eq!(recv(b.ep, &target, How::Send), 0);
            assert_eq!(send(a.ep, &source, to_b, How::Send), 0);
            b.cq.next();
            a.cq.next();
            let [to_host, to_gpu, within] = copies();
            if round > 0 {
                assert!(
                    to_host <= most && to_gpu <= most && within == 0,
                    "{len}: {to_host}, {to_gpu}, {within}"
                );
            }
        }
    }
    a.close();
    b.close();
}

/// One of two processes: it says its address, is told the other's, and sends or receives.
fn process(rig: &Rig, sends: bool) {
    let end = rig.end(0);
    let text: Vec<String> = end.ep.address().iter().map(|byte| byte.to_string()).collect();
    println!("\naddress {}", text.join(" "));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let address: Vec<u8> = line.split_whitespace().map(|byte| byte.parse().unwrap()).collect();
    let to = end.av.insert(address);
    for (from, into) in PAIRS {
        for (round, len) in LENGTHS.into_iter().enumerate() {
            let buffer = Buffer::new(rig, if sends { from } else { into }, len);
            let bytes = pattern(round, len);
            if sends {
                buffer.fill(&bytes);
                assert_eq!(send(end.ep, &buffer, to, How::Tagged), 0);
                end.cq.next();
            } else {
                assert_eq!(recv(end.ep, &buffer, How::Tagged), 0);
                end.cq.next();
                assert!(buffer.bytes() == bytes, "{len} bytes, {from:?} to {into:?}");
            }
        }
    }
    // The other may still be at it.
    println!("\ndone");
    std::io::stdin().read_line(&mut line).unwrap();
    end.close();
}

#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else { return };
    if part == "without" {
        assert_eq!(hints(MR_HMEM | OURS).get().map(|_| ()), Err(libc::ENODATA));
        let host = Hints::new(MSG).get().expect("memory of the host needs no GPU");
        assert_eq!(host.get().caps & HMEM, 0);
        return;
    }
    driver();
    let rig = open();
    match part.as_str() {
        "messages" => messages(&rig),
        "one_sided" => one_sided(&rig),
        "errors" => errors(&rig),
        "cost" => cost(&rig),
        "sends" => process(&rig, true),
        "receives" => process(&rig, false),
        "negotiation" => {
            // Without the promise to register, or for a version that knows none, there is none.
            assert!(hints(OURS).get().is_err());
            assert!(getinfo(1 << 16 | 9, None, 0, &*hints(MR_HMEM | OURS).info).is_err());
            assert_eq!(hints(MR_HMEM).get().unwrap().domain().mr_mode, MR_HMEM);
            // Nor in a domain that was opened without.
            let plain = Rig::new(0);
            let addr = allocate(Kind::Gpu, 100);
            assert_eq!(register(&plain, Kind::Gpu, addr, 100).map(|_| ()), Err(libc::ENOSYS));
        }
        other => panic!("no part is called {other}"),
    }
}

// ---- the tests ----

fn part_of(part: &str, variables: &[(&str, &str)]) -> Command {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stub-{}", std::process::id()));
    stub::make(&directory);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["part", "--exact", "--nocapture"]).env(PART, part);
    command.env("LD_LIBRARY_PATH", directory).stdin(Stdio::null());
    command.envs(variables.iter().copied());
    command
}

/// Runs a part to its end, and returns what it has said on standard error.
fn run(part: &str, variables: &[(&str, &str)]) -> String {
    let output = part_of(part, variables).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{part} {variables:?}: {}\n{said}", output.status);
    said
}

const NETWORK: (&str, &str) = ("SRD_SHM", "off");
const LOSS: (&str, &str) = ("SRD_FAULT", "loss=0.02,seed=7");

#[test]
fn messages_to_and_from_a_gpu_arrive_whole() {
    run("messages", &[NETWORK]);
    run("messages", &[]);
}

#[test]
fn so_they_do_with_two_percent_of_loss() {
    run("messages", &[NETWORK, LOSS]);
    run("one_sided", &[NETWORK, LOSS]);
}

#[test]
fn so_they_do_sealed() {
    let key = key_file();
    let key = ("SRD_KEY_FILE", key.to_str().unwrap());
    run("messages", &[NETWORK, key]);
    run("one_sided", &[NETWORK, key, LOSS]);
}

#[test]
fn a_peer_reads_and_writes_a_gpus_memory() {
    run("one_sided", &[NETWORK]);
    run("one_sided", &[]);
}

#[test]
fn two_processes_of_a_host_exchange_a_gpus_memory() {
    use std::io::{BufRead, BufReader, Write};
    let start = |part| part_of(part, &[]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut sides = [start("sends"), start("receives")];
    let mut lines = sides.each_mut().map(|side| BufReader::new(side.stdout.take().unwrap()).lines());
    let mut next = |side: usize, what: &str| {
        let found = lines[side].by_ref().map_while(Result::ok).find(|line| line.starts_with(what));
        found.unwrap_or_else(|| panic!("process {side} ends before it says {what}"))
    };
    let addresses = [0, 1].map(|side| next(side, "address ").replace("address ", ""));
    for (side, other) in [(0, 1), (1, 0)] {
        writeln!(sides[side].stdin.as_mut().unwrap(), "{}", addresses[other]).unwrap();
    }
    [0, 1].into_iter().for_each(|side| _ = next(side, "done"));
    for mut side in sides {
        writeln!(side.stdin.as_mut().unwrap()).unwrap();
        assert!(side.wait().unwrap().success());
    }
}

#[test]
fn memory_that_is_not_there_is_named() {
    for variables in [&[NETWORK][..], &[]] {
        let said = run("errors", variables);
        for reason in [
            "0x1000 is no memory that the GPU's driver knows (cuPointerGetAttribute: CUDA_ERROR_INVALID_VALUE)",
            "go beyond their allocation",
            "never allocated by it, or freed",
            "was the memory freed before it had completed?",
        ] {
            assert!(said.contains(reason), "{reason}\n{said}");
        }
    }
}

#[test]
fn a_message_takes_few_copies() {
    run("cost", &[NETWORK]);
    run("cost", &[]);
}

#[test]
fn who_does_not_register_does_not_get_it() {
    run("negotiation", &[]);
}

#[test]
fn without_a_gpu_that_is_said() {
    let nowhere = [("LD_LIBRARY_PATH", "/nonexistent"), ("SRD_LOG", "info")];
    assert!(run("without", &nowhere).contains("no GPU here: libcuda.so.1 not found"));
    let none = [("STUB_CUDA_NO_DEVICE", "1"), ("SRD_LOG", "info")];
    assert!(run("without", &none).contains("libcuda.so.1 is there, but cuInit: CUDA_ERROR_NO_DEVICE"));
}
