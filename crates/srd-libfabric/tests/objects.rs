//! Objects: their life, what they are bound to, their addresses and options.

mod rig;

use rig::*;
use srd_libfabric::layout::*;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

/// Words of a table of operations: its size, then functions.
fn slots<T>(table: *const T) -> Vec<usize> {
    // SAFETY: a table of the provider, made of words.
    unsafe { std::slice::from_raw_parts(table.cast::<usize>(), size_of::<T>() / size_of::<usize>()).to_vec() }
}

#[test]
fn no_table_has_an_empty_slot() {
    let rig = Rig::new(0);
    let end = rig.end(0);
    let mr = rig.register(0x1000, 8, SEND, 0).unwrap();
    let counter = rig.counter();
    // SAFETY: live objects.
    let tables = unsafe {
        let ep = &*end.ep.0;
        [
            slots((*rig.fabric).fid.ops),
            slots((*rig.fabric).ops),
            slots((*rig.domain).fid.ops),
            slots((*rig.domain).ops),
            slots((*rig.domain).mr),
            slots(ep.fid.ops),
            slots(ep.ops),
            slots(ep.cm),
            slots(ep.msg),
            slots(ep.rma),
            slots(ep.tagged),
            slots(ep.atomic),
            slots(ep.collective),
            slots((*end.cq.0).fid.ops),
            slots((*end.cq.0).ops),
            slots((*end.av.0).fid.ops),
            slots((*end.av.0).ops),
            slots((*mr.0).fid.ops),
            slots((*counter).fid.ops),
            slots((*counter).ops),
        ]
    };
    for (i, table) in tables.iter().enumerate() {
        assert_eq!(table[0], table.len() * size_of::<usize>(), "table {i}");
        assert!(table.iter().all(|&slot| slot != 0), "table {i}");
    }
    close(mr.0).unwrap();
    close(counter).unwrap();
    end.close();
    rig.close();
}

#[test]
fn what_is_in_use_is_busy() {
    let rig = Rig::new(0);
    let end = rig.end(0);
    assert_eq!(close(end.cq.0), Err(libc::EBUSY));
    assert_eq!(close(end.av.0), Err(libc::EBUSY));
    assert_eq!(close(rig.domain), Err(libc::EBUSY));
    assert_eq!(close(rig.fabric), Err(libc::EBUSY));
    end.close();
    rig.close();
}

#[test]
fn an_endpoint_needs_a_vector_and_queues() {
    const ENOAV: i32 = 267;
    const ENOCQ: i32 = 263;
    let rig = Rig::new(0);
    let (ep, cq, av) = (rig.bare().unwrap(), rig.cq(0, 0), rig.av());
    let enable = || control(ep.0, ENABLE, null_mut::<u8>());
    assert_eq!(enable(), Err(ENOAV));
    bind(ep.0, av.0, 0).unwrap();
    assert_eq!(enable(), Err(ENOCQ));
    bind(ep.0, cq.0, SEND).unwrap();
    assert_eq!(enable(), Err(ENOCQ));
    assert_eq!(bind(ep.0, cq.0, SEND), Err(libc::EINVAL), "it is bound already");
    assert_eq!(ep.send(b"x", 0, 1), -258, "FI_EOPBADSTATE");
    bind(ep.0, cq.0, RECV).unwrap();
    enable().unwrap();
    End { ep, cq, av }.close();
    rig.close();
}

#[test]
fn the_port_asked_for_is_the_endpoints_or_taken() {
    let rig = Rig::new(0);
    rig.info.set_port(9228);
    let first = rig.bare().unwrap();
    assert_eq!(first.address(), sockaddr([127, 0, 0, 1], 9228));
    assert_eq!(rig.bare().map(|_| ()), Err(libc::EADDRINUSE));
    close(first.0).unwrap();
    let again = rig.bare().unwrap();
    assert_eq!(again.port(), 9228);
    rig.info.set_port(0);
    let any = rig.bare().unwrap();
    assert_ne!(any.port(), 9228);
    let wanted = sockaddr([127, 0, 0, 1], 9300);
    // SAFETY: live arguments.
    let set = |addr: [u8; 16]| unsafe {
        check(((*(*any.0).cm).setname)(any.0.cast(), addr.as_ptr().cast_mut().cast(), 16))
    };
    set(wanted).unwrap();
    assert_eq!(any.address(), wanted);
    assert_eq!(set(sockaddr([10, 9, 8, 7], 1)), Err(libc::EADDRNOTAVAIL));
    close(any.0).unwrap();
    close(again.0).unwrap();
    rig.close();
}

#[test]
fn a_name_that_does_not_fit_says_how_long_it_is() {
    let rig = Rig::new(0);
    let ep = rig.bare().unwrap();
    let (mut addr, mut len) = ([0u8; 16], 4);
    // SAFETY: live arguments.
    let code = unsafe { ((*(*ep.0).cm).getname)(ep.0.cast(), addr.as_mut_ptr().cast(), &mut len) };
    assert_eq!((code, len), (-257, 16));
    assert_eq!(addr[4..], [0; 12]);
    close(ep.0).unwrap();
    rig.close();
}

#[test]
fn the_one_option_can_be_set_at_any_time_and_others_are_no_options() {
    let rig = Rig::new(0);
    let end = rig.end(0);
    let ep = end.ep.0;
    let bytes = 16_384usize;
    // SAFETY: live arguments.
    let set = |name| unsafe { ((*(*ep).ops).setopt)(ep.cast(), 0, name, (&raw const bytes).cast(), 8) };
    assert_eq!((set(0), set(8)), (0, -libc::ENOPROTOOPT));
    let (mut value, mut len) = (0usize, 8);
    // SAFETY: live arguments.
    let code = unsafe { ((*(*ep).ops).getopt)(ep.cast(), 0, 0, (&raw mut value).cast(), &mut len) };
    assert_eq!((code, value), (0, bytes));
    end.close();
    rig.close();
}

#[test]
fn flags_of_an_endpoint_can_be_changed_and_an_alias_has_its_own() {
    const GETOPSFLAG: i32 = 2;
    const SETOPSFLAG: i32 = 3;
    const ALIAS: i32 = 4;
    let rig = Rig::new(0);
    let end = rig.end(0);
    let flags_of = |ep: *mut fid_ep| {
        let mut flags = SEND;
        control(ep, GETOPSFLAG, &mut flags).unwrap();
        flags
    };
    let mut flags = SEND | DELIVERY_COMPLETE;
    control(end.ep.0, SETOPSFLAG, &mut flags).unwrap();
    assert_eq!(flags_of(end.ep.0), DELIVERY_COMPLETE);
    let mut fid = null_mut();
    let mut alias = fi_alias { fid: &mut fid, flags: SEND | COMPLETION };
    control(end.ep.0, ALIAS, &mut alias).unwrap();
    assert_eq!((flags_of(fid.cast()), flags_of(end.ep.0)), (COMPLETION, DELIVERY_COMPLETE));
    assert_eq!(close(end.ep.0), Err(libc::EBUSY));
    close(fid).unwrap();
    end.close();
    rig.close();
}

#[test]
fn addresses_go_in_and_out_of_a_vector() {
    let rig = Rig::new(0);
    let av = rig.av();
    let addr = |port| sockaddr([127, 0, 0, 9], port);
    let (a, b) = (av.insert(addr(500)), av.insert(addr(501)));
    assert_ne!(a, b);
    let (mut out, mut len) = ([0u8; 16], 16);
    // SAFETY: live arguments.
    let mut lookup = |fi_addr| unsafe {
        check(((*(*av.0).ops).lookup)(av.0, fi_addr, out.as_mut_ptr().cast(), &mut len)).map(|()| out)
    };
    assert_eq!(lookup(b), Ok(addr(501)));
    av.remove(b).unwrap();
    assert_eq!(lookup(b), Err(libc::EINVAL));
    assert_eq!(av.remove(b), Err(libc::EINVAL));
    let mut fi_addr = [0u64; 3];
    let bad = [addr(502), [0; 16], addr(503)].concat();
    // SAFETY: live arguments.
    let n =
        unsafe { ((*(*av.0).ops).insert)(av.0, bad.as_ptr().cast(), 3, fi_addr.as_mut_ptr(), 0, null_mut()) };
    assert_eq!((n, fi_addr[1]), (2, UNSPEC));
    close(av.0).unwrap();
    rig.close();
}

#[test]
fn names_and_services_are_inserted_too() {
    let rig = Rig::new(0);
    let av = rig.av();
    let mut fi_addr = [0u64; 4];
    let (node, service) = (c"127.0.0.1".as_ptr(), c"700".as_ptr());
    // SAFETY: live arguments.
    let (one, four) = unsafe {
        let ops = &*(*av.0).ops;
        let one = (ops.insertsvc)(av.0, node, service, &mut fi_addr[0], 0, null_mut());
        (one, (ops.insertsym)(av.0, node, 2, service, 2, fi_addr.as_mut_ptr(), 0, null_mut()))
    };
    assert_eq!((one, four), (1, 4));
    let (mut text, mut len) = ([0 as c_char; 64], 64);
    let addr = sockaddr([127, 0, 0, 2], 701);
    // SAFETY: live arguments.
    let words = unsafe {
        CStr::from_ptr(((*(*av.0).ops).straddr)(av.0, addr.as_ptr().cast(), text.as_mut_ptr(), &mut len))
    };
    assert_eq!(words, c"fi_sockaddr_in://127.0.0.2:701");
    close(av.0).unwrap();
    rig.close();
}

#[test]
fn insertions_complete_through_an_event_queue_if_the_program_wants_that() {
    const AV_COMPLETE: u32 = 5;
    let rig = Rig::new(0);
    let (mut eq, mut av) = (null_mut(), null_mut());
    // SAFETY: live arguments; structures of numbers and pointers.
    unsafe {
        let mut attr: fi_eq_attr = std::mem::zeroed();
        check(((*(*rig.fabric).ops).eq_open)(rig.fabric, &mut attr, &mut eq, null_mut())).unwrap();
        let mut attr: fi_av_attr = std::mem::zeroed();
        attr.flags = COMPLETION;
        check(((*(*rig.domain).ops).av_open)(rig.domain, &mut attr, &mut av, null_mut())).unwrap();
    }
    bind(av, eq, 0).unwrap();
    let addrs = [sockaddr([127, 0, 0, 1], 900), [0; 16]].concat();
    let mut fi_addr = [0u64; 2];
    // SAFETY: live arguments.
    let code =
        unsafe { ((*(*av).ops).insert)(av, addrs.as_ptr().cast(), 2, fi_addr.as_mut_ptr(), 0, 77 as *mut _) };
    assert_eq!(code, 0);
    // SAFETY: live arguments; structures of numbers and pointers.
    unsafe {
        let ops = &*(*eq).ops;
        let (mut event, mut entry) = (0, std::mem::zeroed::<fi_eq_entry>());
        let mut read =
            |event: &mut u32| (ops.read)(eq, event, (&raw mut entry).cast(), size_of::<fi_eq_entry>(), 0);
        assert_eq!(read(&mut event), EAVAIL);
        let mut error: fi_eq_err_entry = std::mem::zeroed();
        assert!((ops.readerr)(eq, &mut error, 0) > 0);
        assert_eq!((error.data, error.err), (1, libc::EINVAL));
        assert_eq!(read(&mut event), size_of::<fi_eq_entry>() as isize);
        assert_eq!(read(&mut event), EAGAIN);
        assert_eq!((event, entry.data, entry.context as u64), (AV_COMPLETE, 1, 77));
    }
    close(av).unwrap();
    close(eq).unwrap();
    rig.close();
}

#[test]
fn memory_is_registered_by_key_or_for_nobody() {
    let rig = Rig::new(RMA);
    let page = vec![0u8; 4096];
    let at = page.as_ptr() as u64;
    // Local registrations need no key of their own (docs/design/libfabric-provider.md, "Data path", rule 9).
    let locals: Vec<Mr> = (0..3).map(|_| rig.register(at, 4096, SEND | RECV, 0).unwrap()).collect();
    let remote = rig.register(at, 4096, REMOTE_READ | REMOTE_WRITE, 1 << 63 | 5).unwrap();
    assert_eq!(remote.key(), 1 << 63 | 5);
    assert_eq!(rig.register(at, 64, REMOTE_READ, 1 << 63 | 5).map(|_| ()), Err(266), "FI_ENOKEY");
    let all = rig.register(0, usize::MAX, REMOTE_READ | REMOTE_WRITE, 9).unwrap();
    assert_eq!(rig.register(at, usize::MAX, REMOTE_READ, 10).map(|_| ()), Err(libc::EINVAL));
    assert_eq!(rig.register(at, 8, 1 << 40, 11).map(|_| ()), Err(libc::EINVAL));
    for mr in locals.into_iter().chain([remote, all]) {
        close(mr.0).unwrap();
    }
    rig.close();
}

#[test]
fn the_provider_chooses_keys_where_the_program_wants_that() {
    let mut hints = Hints::new(RMA);
    hints.domain.mr_mode = 1 << 4 | 1 << 5 | 1 << 6;
    let rig = Rig::of(hints.get().unwrap());
    let page = vec![0u8; 4096];
    let keys = [0, 1].map(|_| rig.register(page.as_ptr() as u64, 4096, REMOTE_READ, 0).unwrap());
    assert_ne!(keys[0].key(), keys[1].key());
    keys.into_iter().for_each(|mr| close(mr.0).unwrap());
    rig.close();
}

#[test]
fn an_atomic_operation_that_there_is_not_is_not_supported() {
    let rig = Rig::new(0);
    let mut attr = fi_atomic_attr { count: 0, size: 0 };
    // SAFETY: live arguments.
    let mut query = |datatype, op, flags| unsafe {
        let code = ((*(*rig.domain).ops).query_atomic)(rig.domain, datatype, op, &mut attr, flags);
        check(code).map(|()| attr.size)
    };
    const UINT64: u32 = 7;
    const DOUBLE: u32 = 9;
    const SUM: u32 = 2;
    const BXOR: u32 = 9;
    const CSWAP: u32 = 12;
    assert_eq!(query(UINT64, SUM, 0), Ok(8));
    assert_eq!(query(UINT64, SUM, 1 << 58), Ok(8));
    assert_eq!(query(UINT64, CSWAP, 1 << 59), Ok(8));
    assert_eq!(query(UINT64, CSWAP, 0), Err(libc::EOPNOTSUPP));
    assert_eq!(query(DOUBLE, BXOR, 0), Err(libc::EOPNOTSUPP));
    assert_eq!(query(99, SUM, 0), Err(libc::EOPNOTSUPP));
    assert!(attr.count > 0);
    rig.close();
}
