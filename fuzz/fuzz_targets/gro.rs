//! Any control messages beside any bytes: the datagrams that a run is split into are all of its bytes, in order, none
//! of them empty or longer than the kernel's length.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use srd_net::udp::Run;
use std::net::SocketAddr;

/// Room for control messages that receive sockets have.
const CONTROL: usize = 128;

/// Control messages: such as the kernel writes, with lengths and contents of any kind, and mere bytes.
fn control(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const KINDS: [(i32, i32); 6] = [
        (libc::SOL_UDP, libc::UDP_GRO),
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        (libc::IPPROTO_IP, libc::IP_TOS),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        (0, 0),
    ];
    let mut control = Vec::new();
    while control.len() < CONTROL && u.ratio(3, 4)? {
        let data: Vec<u8> = match u.int_in_range(0..=3)? {
            0 => u.arbitrary()?,
            1 => u.choose(&[0i32, 1, -1, 2, 9000, 65_535, i32::MAX, i32::MIN])?.to_ne_bytes().to_vec(),
            2 => u.arbitrary::<i32>()?.to_ne_bytes().to_vec(),
            _ => u.arbitrary::<[u64; 2]>()?.iter().flat_map(|word| word.to_ne_bytes()).collect(),
        };
        let right = 16 + data.len();
        let len = match u.int_in_range(0..=4)? {
            0 => u.arbitrary()?,
            1 => *u.choose(&[0, 1, 15, 16, 17, right - 1, right + 1, usize::MAX, usize::MAX - 7])?,
            _ => right,
        };
        let (level, kind) = *u.choose(&KINDS)?;
        control.extend(len.to_ne_bytes());
        control.extend(level.to_ne_bytes());
        control.extend(kind.to_ne_bytes());
        control.extend(data);
        control.resize(control.len().next_multiple_of(8), 0);
    }
    control.truncate(u.int_in_range(0..=CONTROL)?);
    Ok(control)
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let control = if u.arbitrary()? { control(u)? } else { u.arbitrary()? };
    let mut bytes: Vec<u8> = u.arbitrary()?;
    let whole = bytes.clone();
    let run = Run::new(SocketAddr::from(([10, 0, 0, 1], 1)), &mut bytes, &control);
    let segment = run.segment;
    let datagrams: Vec<Vec<u8>> = run.datagrams().map(|datagram| datagram.to_vec()).collect();
    assert_eq!(datagrams.concat(), whole);
    if let Some((last, others)) = datagrams.split_last() {
        assert!((1..=segment).contains(&last.len()) && others.iter().all(|it| it.len() == segment));
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
});
