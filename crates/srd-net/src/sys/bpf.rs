//! BPF programs and maps (bpf(2); linux/bpf.h).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0; // BPF_MAP_CREATE
const MAP_UPDATE_ELEM: libc::c_long = 2; // BPF_MAP_UPDATE_ELEM
const MAP_DELETE_ELEM: libc::c_long = 3; // BPF_MAP_DELETE_ELEM
const PROG_LOAD: libc::c_long = 5; // BPF_PROG_LOAD
const PROG_GET_FD_BY_ID: libc::c_long = 13; // BPF_PROG_GET_FD_BY_ID
const OBJ_GET_INFO_BY_FD: libc::c_long = 15; // BPF_OBJ_GET_INFO_BY_FD
const PROG_QUERY: libc::c_long = 16; // BPF_PROG_QUERY
const LINK_CREATE: libc::c_long = 28; // BPF_LINK_CREATE

const XDP: u32 = 6; // BPF_PROG_TYPE_XDP
const AT_XDP: u32 = 37; // BPF_XDP
/// The program looks only at the first piece of a packet that lies in several.
const HAS_FRAGS: u32 = 1 << 5; // BPF_F_XDP_HAS_FRAGS

/// BPF_MAP_TYPE_HASH
pub const HASH: u32 = 1;
/// BPF_MAP_TYPE_XSKMAP: AF_XDP sockets by receive queue.
pub const SOCKETS: u32 = 17;

/// BPF_OBJ_NAME_LEN
const NAME: usize = 16;
/// Where `name` lies in `struct bpf_prog_info`.
const NAME_IN_INFO: usize = 64;

/// Makes a call with that part of `union bpf_attr` which the command takes.
///
/// # Safety
/// Pointers in the attributes are such as the command takes.
unsafe fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes no more than the structure and, by the caller's promise, what it points to.
    let returned =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    super::check(returned as libc::c_int)
}

/// As [`call`], for commands that return a descriptor.
///
/// # Safety
/// As of [`call`]; the command is one that does.
unsafe fn open<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's promise; a new descriptor is nobody else's.
    unsafe { Ok(OwnedFd::from_raw_fd(call(command, attributes)?)) }
}

fn name_of(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(NAME - 1)) {
        *to = from;
    }
    bytes
}

/// A table that programs look into.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key: usize,
}

impl Map {
    /// An empty one, whose values have four bytes.
    pub fn new(kind: u32, key: usize, entries: usize, name: &str) -> io::Result<Map> {
        #[repr(C)]
        struct Create {
            map_type: u32,
            key_size: u32,
            value_size: u32,
            max_entries: u32,
            map_flags: u32,
            inner_map_fd: u32,
            numa_node: u32,
            map_name: [u8; NAME],
        }
        let mut create = Create {
            map_type: kind,
            key_size: key as u32,
            value_size: size_of::<u32>() as u32,
            max_entries: entries as u32,
            map_flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            map_name: name_of(name),
        };
        // SAFETY: nothing in it is a pointer.
        let fd = unsafe { open(MAP_CREATE, &mut create) }?;
        Ok(Map { fd, key })
    }

    /// Has this value under that key from now on, or none.
    pub fn set(&self, key: &[u8], value: Option<u32>) -> io::Result<()> {
        #[repr(C)]
        struct Element {
            map_fd: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        if key.len() != self.key {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut element = Element {
            map_fd: self.fd.as_raw_fd() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: value.as_ref().map_or(0, |value| std::ptr::from_ref(value) as u64),
            flags: 0,
        };
        let command = if value.is_some() { MAP_UPDATE_ELEM } else { MAP_DELETE_ELEM };
        // SAFETY: key and value have the sizes that the map was made with.
        unsafe { call(command, &mut element) }.map(drop)
    }

    /// Its number, for instructions that name it.
    pub fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// A program that looks at the packets of an interface, and has not been attached to one.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads it.
    pub fn load(instructions: &[u64], name: &str) -> io::Result<Program> {
        #[repr(C)]
        struct Load {
            prog_type: u32,
            insn_cnt: u32,
            insns: u64,
            license: u64,
            log_level: u32,
            log_size: u32,
            log_buf: u64,
            kern_version: u32,
            prog_flags: u32,
            prog_name: [u8; NAME],
            prog_ifindex: u32,
            expected_attach_type: u32,
        }
        let mut load = Load {
            prog_type: XDP,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: c"MIT".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log_buf: 0,
            kern_version: 0,
            prog_flags: HAS_FRAGS,
            prog_name: name_of(name),
            prog_ifindex: 0,
            expected_attach_type: AT_XDP,
        };
        // SAFETY: as many instructions as it says, and a string that ends in zero.
        unsafe { open(PROG_LOAD, &mut load) }.map(Program)
    }

    /// Attaches it to an interface until the link is dropped. `flags`: XDP_FLAGS_* of linux/if_link.h.
    pub fn attach(&self, interface: u32, flags: u32) -> io::Result<Link> {
        #[repr(C)]
        struct Create {
            prog_fd: u32,
            target_ifindex: u32,
            attach_type: u32,
            flags: u32,
        }
        let mut create = Create {
            prog_fd: self.0.as_raw_fd() as u32,
            target_ifindex: interface,
            attach_type: AT_XDP,
            flags,
        };
        // SAFETY: nothing in it is a pointer.
        unsafe { open(LINK_CREATE, &mut create) }.map(Link)
    }
}

/// What keeps a program attached: it ends with the last process that has it.
#[derive(Debug)]
pub struct Link(#[allow(dead_code)] OwnedFd);

/// How many programs are attached at a place. `target`: a descriptor, or the number of an interface. Takes CAP_NET_ADMIN.
pub fn programs_at(target: u32, attach_type: u32, flags: u32) -> io::Result<u32> {
    #[repr(C)]
    struct Query {
        target: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        prog_cnt: u32,
        end: u32,
    }
    let mut query =
        Query { target, attach_type, query_flags: flags, attach_flags: 0, prog_ids: 0, prog_cnt: 0, end: 0 };
    // SAFETY: without room for numbers of programs none are written.
    unsafe { call(PROG_QUERY, &mut query) }?;
    Ok(query.prog_cnt)
}

/// The name of the program with that number, if we may know it.
pub fn program_name(number: u32) -> io::Result<String> {
    #[repr(C)]
    struct Get {
        prog_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    #[repr(C)]
    struct Info {
        bpf_fd: u32,
        info_len: u32,
        info: u64,
    }
    // SAFETY: nothing in it is a pointer.
    let program =
        unsafe { open(PROG_GET_FD_BY_ID, &mut Get { prog_id: number, next_id: 0, open_flags: 0 }) }?;
    let mut info = [0u64; 32]; // struct bpf_prog_info asks for this alignment
    let mut get = Info {
        bpf_fd: program.as_raw_fd() as u32,
        info_len: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel writes as many bytes as there are at most.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut get) }?;
    let words = info.iter().skip(NAME_IN_INFO / 8).take(NAME / 8);
    let name: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}
