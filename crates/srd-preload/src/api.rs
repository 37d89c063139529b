//! What the provider finds by name.
#![allow(unsafe_code)]

use crate::process::{self, attach, channel, channel_mut};
use crate::thread;
use srd_virtual::api::{Api, VERSION};
use srd_virtual::layout::{Head, Kind, NEVER, Phase, Place};
use std::sync::atomic::Ordering;

/// Bytes that must be free for the device to be asked: a full send.
const ROOM: usize = 72 << 10;

static API: Api = Api {
    version: VERSION,
    attach: take_place,
    now,
    enter: enter_device,
    leave: leave_device,
    set_due,
    set_senders,
    set_more,
    neighbours,
    has_room,
    send,
    receive,
    polled,
    wait,
    wait_as_card,
    close,
};

/// The table of what there is.
#[unsafe(no_mangle)]
pub extern "C" fn srd_virtual_api() -> *const Api {
    &API
}

extern "C" fn take_place(place: *mut Place) -> i32 {
    match attach() {
        Ok(own) => {
            thread::join();
            // SAFETY: the caller gives a place to be written.
            unsafe { place.write(own) };
            0
        }
        Err(errno) => errno,
    }
}

extern "C" fn now() -> u64 {
    process::now()
}

extern "C" fn enter_device() {
    thread::enter();
}

extern "C" fn leave_device() {
    thread::leave();
}

extern "C" fn set_due(span: u64) {
    thread::set_due(span);
}

extern "C" fn set_senders(count: u32) {
    if let Some(channel) = channel() {
        channel.senders.store(count, Ordering::Relaxed);
    }
}

extern "C" fn set_more(more: bool) {
    if let Some(channel) = channel() {
        channel.more.store(more.into(), Ordering::Release);
    }
}

extern "C" fn neighbours() -> u32 {
    channel().map_or(0, |channel| channel.neighbours.load(Ordering::Relaxed))
}

extern "C" fn has_room() -> bool {
    let Some(channel) = channel() else { return false };
    // What carries messages whole holds any number of them.
    let takes = channel.place.carried != 0 || channel.takes.load(Ordering::Relaxed) != 0;
    takes && channel.out.has_room(ROOM)
}

extern "C" fn send(head: *const Head, bytes: *const u8) -> bool {
    let Some(channel) = channel_mut() else { return false };
    // SAFETY: the caller gives a head, and as many bytes as it says.
    let (head, bytes) = unsafe { (&*head, std::slice::from_raw_parts(bytes, (*head).len as usize)) };
    thread::stir(channel);
    if !channel.place.is_near(head.peer) {
        channel.takes.store(0, Ordering::Relaxed);
    }
    channel.out.put(head, |place| place.copy_from_slice(bytes))
}

extern "C" fn receive(head: *mut Head) -> *mut u8 {
    let Some((own, bytes)) = channel_mut().and_then(|channel| channel.inward.take()) else {
        return std::ptr::null_mut();
    };
    if let Some(channel) = channel() {
        thread::stir(channel);
    }
    // SAFETY: the caller gives a head to be written.
    unsafe { head.write(own) };
    bytes.as_mut_ptr()
}

extern "C" fn polled(found: bool) {
    thread::polled(found);
}

extern "C" fn wait(span: u64) {
    thread::wait(span);
}

extern "C" fn wait_as_card() {
    thread::join_as_card();
    thread::park(Kind::Card, NEVER);
}

extern "C" fn close() {
    if let Some(channel) = channel() {
        channel.phase.store(Phase::Ending as u32, Ordering::Release);
        channel.card_called.store(1, Ordering::Release);
    }
}
