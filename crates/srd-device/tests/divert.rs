//! Long messages that are told of when they begin, and whose rest goes elsewhere than to their receive.

mod harness;

use harness::*;
use srd_device::*;
use srd_wire::{Body, MrKey, Nanos, Status};

/// Sends 8,000 bytes into a receive at 0 of the other side's memory. Where the receiver is told that they begin, `act` is called.
fn send_told(net: &mut Hosts, sides: [&Side; 2], mut act: impl FnMut(&mut Device<VecMemory>, Begun)) {
    let [a, b] = sides;
    net.devices[1].tell_begun(b.qpn, 4000);
    net.fill(a, 0, 8000, 1);
    net.post_recv(b, 7, 0, 8000);
    net.post(a, b, 3, SendOp::Send { imm: None }, 0, 8000);
    let end = net.now + Nanos::from_millis(500);
    while net.now < end && net.step_with(|_, device, _, begun| act(device, *begun)) {}
}

#[test]
fn what_follows_the_first_packet_goes_where_it_is_diverted() {
    let (mut net, a, b) = two(&DeviceConfig::default());
    let rest = Sge { addr: b.addr + 20_000, len: 7900, lkey: b.key };
    let mut here = 0;
    send_told(&mut net, [&a, &b], |device, begun| {
        here = begun.here as usize;
        assert_eq!((begun.receive.wr_id, begun.receive.byte_len, begun.receive.src_qpn), (7, 8000, a.qpn));
        let short = Sge { len: 7899, ..rest };
        assert!(!device.divert(&begun, 100, &short), "it does not fit");
        assert!(!device.divert(&begun, 8001, &rest), "the receive is shorter than that");
        assert!(!device.divert(&begun, 100, &Sge { lkey: MrKey(b.key.0 ^ 1), ..rest }), "no key");
        assert!(device.divert(&begun, 100, &rest));
    });
    net.expect(&a, 3, Status::Ok);
    assert_eq!(net.expect(&b, 7, Status::Ok).byte_len, 8000);
    assert!(here > 100 && here < 8000);
    let sent = pattern(8000, 1);
    assert_eq!(net.bytes(&b, 0, here), sent[..here]);
    assert_eq!(net.bytes(&b, here as u64, 8000 - here), vec![0; 8000 - here]);
    assert_eq!(net.bytes(&b, 20_000 + here as u64 - 100, 8000 - here), sent[here..]);
}

#[test]
fn what_is_diverted_back_goes_to_the_receive() {
    let (mut net, a, b) = two(&DeviceConfig::default());
    let rest = Sge { addr: b.addr + 20_000, len: 7900, lkey: b.key };
    send_told(&mut net, [&a, &b], |device, begun| {
        assert!(device.divert(&begun, 100, &rest));
        device.divert_back(begun.inbound);
    });
    net.expect(&b, 7, Status::Ok);
    assert_eq!(net.bytes(&b, 0, 8000), pattern(8000, 1));
    assert_eq!(net.bytes(&b, 20_000, 7900), vec![0; 7900]);
}

#[test]
fn a_message_of_which_other_bytes_came_first_is_not_told_of() {
    let (mut net, a, b) = two(&DeviceConfig::default());
    let mut first = true;
    net.judge = Some(Box::new(move |from, transmit| match (&transmit.packet.body, from) {
        (Body::Data(data), 0) if data.offset == 0 && std::mem::take(&mut first) => {
            Fate::Late(Nanos::from_micros(500))
        }
        _ => Fate::Arrives,
    }));
    send_told(&mut net, [&a, &b], |_, begun| panic!("{begun:?}"));
    net.expect(&b, 7, Status::Ok);
    assert_eq!(net.bytes(&b, 0, 8000), pattern(8000, 1));
}

#[test]
fn memory_that_goes_while_a_message_is_diverted_there_ends_the_receive() {
    let (mut net, a, b) = two(&DeviceConfig::default());
    let lkey = net.devices[1].reg_mr(b.pd, b.addr + 20_000, 7900, b.addr + 20_000, ALL).unwrap();
    send_told(&mut net, [&a, &b], |device, begun| {
        assert!(device.divert(&begun, 100, &Sge { addr: b.addr + 20_000, len: 7900, lkey }));
        device.dereg_mr(lkey).unwrap();
    });
    net.expect(&b, 7, Status::LocalInvalidLkey);
    net.expect(&a, 3, Status::RemoteBadAddress);
    assert_eq!(net.bytes(&b, 20_000, 7900), vec![0; 7900]);
}
