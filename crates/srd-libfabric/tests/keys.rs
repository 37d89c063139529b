//! The keys in addresses: without its key nobody reaches an endpoint whose port the provider has chosen.

mod rig;

use rig::*;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

/// Where in a sockaddr_in the key is.
const KEY: std::ops::Range<usize> = 8..12;

#[test]
fn an_address_has_a_key_that_stays_in_it() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let (first, second) = (a.ep.address(), b.ep.address());
    assert_ne!(first[KEY], [0; 4]);
    assert_ne!(first[KEY], second[KEY]);
    assert_eq!(second[12..], [0; 4]);
    let (mut out, mut len) = ([0u8; 16], 16);
    let (mut text, mut size) = ([0 as c_char; 64], 64);
    // SAFETY: live arguments.
    let words = unsafe {
        let ops = &*(*a.av.0).ops;
        check((ops.lookup)(a.av.0, to_b, out.as_mut_ptr().cast(), &mut len)).unwrap();
        CStr::from_ptr((ops.straddr)(a.av.0, second.as_ptr().cast(), text.as_mut_ptr(), &mut size))
    };
    assert_eq!(out, *second);
    let key = u32::from_be_bytes(second[KEY].try_into().unwrap());
    let expected = format!("fi_sockaddr_in://127.0.0.1:{}?key={key:08x}", b.ep.port());
    assert_eq!(words.to_str(), Ok(&*expected));
    // Hints keep it, too.
    let mut hints = Hints::new(0);
    let mut name = second.clone();
    (hints.info.dest_addr, hints.info.dest_addrlen) = (name.as_mut_ptr().cast(), name.len());
    let info = hints.get().unwrap();
    // SAFETY: a sockaddr_in, as the length says.
    assert_eq!(unsafe { *info.get().dest_addr.cast::<[u8; 16]>() }, *second);
    a.close();
    b.close();
    rig.close();
}

#[test]
fn without_the_key_nothing_arrives() {
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    let (mut word, mut tagged) = ([0u8; 64], [0u8; 64]);
    assert_eq!(b.ep.recv(&mut word, 1), 0);
    assert_eq!(b.ep.trecv(&mut tagged, UNSPEC, 0, u64::MAX, 2), 0);
    let right: [u8; 4] = b.ep.address()[KEY].try_into().unwrap();
    let other = (u32::from_be_bytes(right) ^ 1).to_be_bytes();
    // None, that of well-known endpoints' queue pairs, the sender's own, one that is nearly right.
    for key in [[0; 4], 0x5352_446D_u32.to_be_bytes(), a.ep.address()[KEY].try_into().unwrap(), other] {
        let mut addr = b.ep.address();
        addr[KEY].copy_from_slice(&key);
        let nowhere = a.av.insert(addr);
        assert_ne!(nowhere, to_b);
        assert_eq!(a.ep.send(&[9; 64], nowhere, 3), 0);
        assert_eq!(a.cq.next_error().op_context as u64, 3);
        assert_eq!(a.ep.tsend(&[9; 64], nowhere, 7, 4), 0);
        assert_eq!(a.cq.next_error().op_context as u64, 4);
    }
    b.cq.stays_empty();
    // Those with the key do, whatever became of the others.
    assert_eq!(a.ep.send(&[5; 64], to_b, 5), 0);
    assert_eq!(a.ep.tsend(&[6; 64], to_b, 7, 6), 0);
    a.cq.skip(2);
    let mut contexts = [b.cq.next().op_context as u64, b.cq.next().op_context as u64];
    contexts.sort();
    assert_eq!((contexts, word, tagged), ([1, 2], [5; 64], [6; 64]));
    a.close();
    b.close();
    rig.close();
}

#[test]
fn an_endpoint_whose_port_the_program_has_chosen_is_reached_by_that_alone() {
    let rig = Rig::new(0);
    let a = rig.end(0);
    rig.info.set_port(9229);
    let b = rig.end(0);
    assert_eq!(b.ep.address(), sockaddr([127, 0, 0, 1], 9229));
    let mut word = [0u8; 64];
    assert_eq!(b.ep.recv(&mut word, 1), 0);
    let mut to_b = 0;
    let (node, service) = (c"127.0.0.1".as_ptr(), c"9229".as_ptr());
    // SAFETY: live arguments.
    let n = unsafe { ((*(*a.av.0).ops).insertsvc)(a.av.0, node, service, &mut to_b, 0, null_mut()) };
    assert_eq!(n, 1);
    assert_eq!(a.ep.send(&[5; 64], to_b, 2), 0);
    assert_eq!((a.cq.next().op_context as u64, b.cq.next().op_context as u64, word), (2, 1, [5; 64]));
    // It answers at the address with the key that it has been told.
    let to_a = b.av.insert(a.ep.address());
    assert_eq!(a.ep.recv(&mut word, 3), 0);
    assert_eq!(b.ep.send(&[6; 64], to_a, 4), 0);
    assert_eq!((b.cq.next().op_context as u64, a.cq.next().op_context as u64, word), (4, 3, [6; 64]));
    a.close();
    b.close();
    rig.close();
}
