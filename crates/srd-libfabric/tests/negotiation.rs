//! What fi_getinfo(3) answers, and what it refuses: docs/design/libfabric-provider.md, "Selection" and "Negotiation".

mod built;
mod rig;

use rig::*;
use srd_libfabric::layout::*;
use std::ptr::null;

const ENODATA: i32 = libc::ENODATA;
const PROVIDER_KEYS: i32 = 1 << 4 | 1 << 5 | 1 << 6;

#[test]
fn without_hints_everything_is_offered_for_any_version() {
    for api in [0, 1 << 16 | 5, API, 2 << 16 | 6] {
        let info = getinfo(api, None, 0, null()).unwrap();
        assert!(info.get().next.is_null(), "one info only");
        let all = MSG | TAGGED | RMA | ATOMIC | SOURCE | DIRECTED_RECV | MULTI_RECV;
        assert_eq!(info.get().caps & all, all);
        assert_eq!((info.get().mode, info.ep().r#type), (0, 3));
        assert_eq!((info.domain().mr_key_size, info.domain().cq_data_size), (8, 8));
        assert_eq!((info.domain().max_ep_tx_ctx, info.domain().max_ep_rx_ctx), (1, 1));
        assert!(info.tx().inject_size >= 1024 && info.tx().iov_limit >= 4 && info.tx().rma_iov_limit >= 4);
    }
}

#[test]
fn the_first_answer_asked_for_again_is_the_same() {
    for api in [1 << 16 | 5, API, 2 << 16 | 5] {
        let first = getinfo(api, None, 0, null()).unwrap();
        let again = getinfo(api, None, 0, first.0).unwrap();
        assert_eq!(first.get().caps, again.get().caps);
        assert_eq!(first.tx().caps, again.tx().caps);
        assert_eq!(first.rx().caps, again.rx().caps);
        assert_eq!(first.domain().mr_mode, again.domain().mr_mode);
    }
}

#[test]
fn only_reliable_datagram_endpoints() {
    for (kind, answer) in [(0, Ok(())), (3, Ok(())), (1, Err(ENODATA)), (2, Err(ENODATA))] {
        let mut hints = Hints::new(MSG);
        hints.ep.r#type = kind;
        assert_eq!(hints.get().map(|_| ()), answer, "type {kind}");
    }
}

#[test]
fn a_capability_that_is_not_there_is_refused() {
    const HMEM: u64 = 1 << 47;
    const MULTICAST: u64 = 1 << 5;
    const NAMED_RX_CTX: u64 = 1 << 58;
    for caps in [HMEM, MULTICAST, NAMED_RX_CTX] {
        assert_eq!(Hints::new(MSG | caps).get().map(|_| ()), Err(ENODATA), "{caps:#x}");
    }
}

/// What costs something: programs that take all that they are offered, as MPIs do, do not get it.
#[test]
fn only_who_names_it_has_peers_counted() {
    const RMA_EVENT: u64 = 1 << 56;
    for (caps, given) in [(0, 0), (RMA, 0), (RMA | RMA_EVENT, RMA_EVENT)] {
        let info = Hints::new(caps).get().unwrap();
        assert_eq!(info.get().caps & RMA_EVENT, given, "{caps:#x}");
        assert_eq!(info.rx().caps & RMA_EVENT, given, "{caps:#x}");
    }
}

/// In headers before 2.0, bit 48 is FI_VARIABLE_MSG.
#[test]
fn capabilities_that_are_new_in_2_0_are_refused_to_older_programs() {
    const EXACT_DIRECTED_RECV: u64 = 1 << 48;
    let hints = Hints::new(TAGGED | DIRECTED_RECV | EXACT_DIRECTED_RECV);
    assert_eq!(getinfo(API, None, 0, &*hints.info).map(|_| ()), Err(ENODATA));
    let info = getinfo(2 << 16, None, 0, &*hints.info).unwrap();
    assert_ne!(info.get().caps & EXACT_DIRECTED_RECV, 0);
}

#[test]
fn an_operation_without_a_direction_goes_in_all() {
    let info = Hints::new(RMA).get().unwrap();
    let directions = READ | WRITE | REMOTE_READ | REMOTE_WRITE;
    let operations = MSG | TAGGED | RMA | ATOMIC;
    assert_eq!(info.get().caps & (directions | operations), directions | RMA);
    let info = Hints::new(MSG | SEND).get().unwrap();
    assert_eq!(info.get().caps & (SEND | RECV), SEND);
}

#[test]
fn the_program_chooses_threading_progress_and_kind_of_vector() {
    for (threading, progress, av) in [(0, 0, 0), (3, 2, 1), (4, 1, 2), (1, 2, 2), (5, 1, 1)] {
        let mut hints = Hints::new(0);
        (hints.domain.threading, hints.domain.data_progress, hints.domain.av_type) =
            (threading, progress, av);
        hints.domain.control_progress = progress;
        let info = hints.get().unwrap();
        let domain = info.domain();
        assert_eq!(domain.threading, threading.max(1));
        assert_eq!((domain.data_progress, domain.control_progress), (progress.max(1), progress.max(1)));
        assert_eq!(domain.av_type, if av == 0 { 2 } else { av });
    }
}

#[test]
fn orders_and_flags_within_what_is_kept_are_granted() {
    const SAS: u64 = 1 << 8;
    const ATOMIC_ORDERS: u64 = 0xF << 36;
    let mut hints = Hints::new(0);
    hints.tx.msg_order = SAS | ATOMIC_ORDERS;
    hints.rx.msg_order = SAS;
    hints.tx.op_flags = DELIVERY_COMPLETE | COMPLETION;
    let info = hints.get().unwrap();
    assert_eq!(info.tx().msg_order & (SAS | ATOMIC_ORDERS), SAS | ATOMIC_ORDERS);
    assert_eq!(info.tx().op_flags, DELIVERY_COMPLETE | COMPLETION);
    assert!(info.ep().max_order_waw_size > 0);
    hints.tx.msg_order = 1 << 4; // FI_ORDER_WAW: of writes, too
    assert_eq!(hints.get().map(|_| ()), Err(ENODATA));
}

#[test]
fn more_than_the_limits_is_refused() {
    let change: [fn(&mut Hints); 8] = [
        |hints| hints.tx.inject_size = 1 << 20,
        |hints| hints.tx.iov_limit = 5,
        |hints| hints.rx.iov_limit = 5,
        |hints| hints.ep.max_msg_size = usize::MAX,
        |hints| hints.ep.tx_ctx_cnt = usize::MAX, // FI_SHARED_CONTEXT
        |hints| hints.ep.msg_prefix_size = 8,
        |hints| hints.domain.max_ep_rx_ctx = 2,
        |hints| hints.domain.cq_data_size = 16,
    ];
    for (i, change) in change.iter().enumerate() {
        let mut hints = Hints::new(MSG);
        change(&mut hints);
        assert_eq!(hints.get().map(|_| ()), Err(ENODATA), "change {i}");
    }
}

#[test]
fn registration_follows_what_the_program_can_do() {
    for (caps, asked, answer) in
        [(RMA, PROVIDER_KEYS | 1 << 2, PROVIDER_KEYS), (TAGGED, PROVIDER_KEYS, 0), (RMA, 1 << 5, 0)]
    {
        let mut hints = Hints::new(caps);
        hints.domain.mr_mode = asked;
        assert_eq!(hints.get().unwrap().domain().mr_mode, answer);
    }
}

#[test]
fn names_of_others_are_refused() {
    let name = c"tcp".as_ptr().cast_mut();
    let change: [fn(&mut Hints, *mut libc::c_char); 3] = [
        |hints, name| hints.fabric.prov_name = name,
        |hints, name| hints.fabric.name = name,
        |hints, name| hints.domain.name = name,
    ];
    for change in change {
        let mut hints = Hints::new(0);
        change(&mut hints, name);
        assert_eq!(hints.get().map(|_| ()), Err(ENODATA));
    }
    let mut hints = Hints::new(0);
    hints.fabric.prov_name = c"srd".as_ptr().cast_mut();
    hints.domain.name = c"lo".as_ptr().cast_mut();
    hints.get().unwrap();
}

#[test]
fn a_source_becomes_the_own_address_and_any_other_node_the_peers() {
    let at = Some((c"127.0.0.1", c"9228"));
    let info = getinfo(API, at, SOURCE, null()).unwrap();
    // SAFETY: a sockaddr_in.
    let bytes = |pointer: *mut libc::c_void| unsafe { *pointer.cast::<[u8; 16]>() };
    assert_eq!(bytes(info.get().src_addr), sockaddr([127, 0, 0, 1], 9228));
    assert!(info.get().dest_addr.is_null());
    let info = getinfo(API, at, 0, null()).unwrap();
    assert_eq!(bytes(info.get().src_addr), sockaddr([127, 0, 0, 1], 0));
    assert_eq!(bytes(info.get().dest_addr), sockaddr([127, 0, 0, 1], 9228));
    assert_eq!(info.get().addr_format, 2);
    let elsewhere = Some((c"192.0.2.77", c"9228"));
    assert_eq!(getinfo(API, elsewhere, SOURCE, null()).map(|_| ()), Err(ENODATA));
}

#[test]
fn an_open_domain_is_found_again() {
    let rig = Rig::new(0);
    let mut hints = Hints::new(0);
    (hints.domain.domain, hints.fabric.fabric) = (rig.domain, rig.fabric);
    assert_eq!(hints.get().unwrap().domain().domain, rig.domain);
    // SAFETY: structures of numbers and pointers.
    let mut stranger: fid_domain = unsafe { std::mem::zeroed() };
    hints.domain.domain = &mut stranger;
    assert_eq!(hints.get().map(|_| ()), Err(ENODATA));
    rig.close();
}

/// Open MPI registers windows in the domain that it has opened for messages.
#[test]
fn an_open_domain_registers_as_it_was_opened_to() {
    let hints = |caps, mr_mode| {
        let mut hints = Hints::new(caps);
        hints.domain.mr_mode = mr_mode;
        hints
    };
    for (opened, caps, asked, answer) in [
        (0, RMA, PROVIDER_KEYS, Ok(0)),
        (0, RMA, 0, Ok(0)),
        (PROVIDER_KEYS, RMA, PROVIDER_KEYS, Ok(PROVIDER_KEYS)),
        (PROVIDER_KEYS, RMA, 0, Err(ENODATA)),
        (PROVIDER_KEYS, TAGGED, 0, Ok(0)),
    ] {
        let rig = Rig::of(hints(RMA, opened).get().unwrap());
        let mut again = hints(caps, asked);
        again.domain.domain = rig.domain;
        let found = again.get().map(|info| info.domain().mr_mode);
        assert_eq!(found, answer, "{opened:#x} {caps:#x} {asked:#x}");
        rig.close();
    }
}

/// Through the installed libfabric: found, listed, copied and freed by its core.
#[test]
fn the_installed_libfabric_lists_it() {
    if !built::has_program("fi_info") {
        return;
    }
    let run = |args: &[&str]| {
        let output = built::command("fi_info").args(args).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (found, text) = run(&["-p", "srd", "-v"]);
    assert!(found && text.contains("prov_name: srd") && text.contains("FI_EP_RDM"), "{text}");
    assert!(run(&["-p", "srd", "-c", "FI_TAGGED|FI_RMA"]).0);
    assert!(!run(&["-p", "srd", "-c", "FI_HMEM"]).0);
    assert!(!run(&["-p", "srd", "-t", "FI_EP_MSG"]).0);
}
