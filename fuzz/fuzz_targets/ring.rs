//! A post of shared memory into which one sender writes in order, while another process of the user writes anything
//! anywhere: control words, slots, words of records. The owner never reads beyond a ring, hands over no more than a ring
//! holds, and comes to an end with every look; the honest sender is refused or served, and no more.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use srd_shm::{Address, Inbox, Options};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LANES: u16 = 3;
const RING: u64 = 4096;
/// Where what lies in a segment (`layout.rs`); spoiling another place would be no error, only of little use.
const SIGNALS: u64 = 512;
const SLOTS: u64 = 20_480;
const SLOT: u64 = 128;
const RINGS: u64 = 1 << 16;
const RING_APART: u64 = 1 << 16;
const LINE: u64 = 64;
const HEADER: u64 = 120;

const OPTIONS: Options =
    Options { lanes: LANES, ring_bytes: RING as u32, permit_copies: false, well_known: false };

/// A directory of this process's own, that runs side by side do not meet.
fn directory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("srd-fuzz-ring-{}", std::process::id()))
}

fn address(qpn: u16) -> Address {
    Address { ip: Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(), port: 21_000, qpn }
}

/// A number such as a control word holds, or one that none does.
fn number(u: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match u.int_in_range(0..=4)? {
        0 => 0,
        1 => u64::MAX,
        2 => u.int_in_range(0..=2 * RING)?,
        3 => u64::from(std::process::id()),
        _ => u.arbitrary()?,
    })
}

/// The word of a record or pad that begins at `position`, often of a length at an edge.
fn word(u: &mut Unstructured<'_>, position: u64) -> Result<u64> {
    let to_end = RING - position % RING;
    let len = match u.int_in_range(0..=5)? {
        0 => u.int_in_range(0..=RING)?,
        1 => to_end - 8,
        2 => to_end,
        3 => RING / 4 - 8,
        4 => u64::from(u.arbitrary::<u32>()?),
        _ => 3,
    };
    Ok((position / LINE) << 32 | (len << 2 & 0xffff_ffff) | u.int_in_range(0..=3)?)
}

fn spoil(u: &mut Unstructured<'_>, file: &File) -> Result<()> {
    let lane = u64::from(u.int_in_range(0..=LANES - 1)?);
    let (at, value) = match u.int_in_range(0..=5)? {
        0 => (SIGNALS + 8 * u.int_in_range(0..=4)?, number(u)?),
        // The state of a lane is the lower half of its first word.
        1 => (SLOTS + lane * SLOT, u.int_in_range(0..=15)?),
        2 => (SLOTS + lane * SLOT + 8 * u.int_in_range(0..=15)?, number(u)?),
        3 => (8 * u.int_in_range(0..=HEADER / 8 - 1)?, number(u)?),
        _ => {
            let position = LINE * u.int_in_range(0..=3 * RING / LINE)?;
            (RINGS + lane * RING_APART + position % RING, word(u, position)?)
        }
    };
    file.write_all_at(&value.to_ne_bytes(), at).expect("a segment has room for its own words");
    Ok(())
}

/// Looks until nothing comes; no look gives more than the rings hold.
fn take_all(post: &mut Inbox) {
    let mut all = 0;
    let most = u64::from(LANES) * (RING / LINE + 1);
    let (bottom, top) = (std::cell::Cell::new(u64::MAX), std::cell::Cell::new(0));
    loop {
        let got = post.receive(64, |sender, bytes| {
            assert!(sender.lane < LANES && bytes.len() <= OPTIONS.max_record());
            // Read, so that a byte beyond the mapping is found out.
            std::hint::black_box(bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
            let range = bytes.as_ptr_range();
            bottom.set(bottom.get().min(range.start as u64));
            top.set(top.get().max(range.end as u64));
        });
        all += got.records as u64;
        if got.records == 0 {
            break;
        }
        assert!(all <= most, "more records than rings hold");
    }
    assert!(all == 0 || top.get() - bottom.get() <= u64::from(LANES) * RING_APART, "all within the rings");
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let dir = directory();
    fs::create_dir_all(&dir).expect("a directory for the segment");
    let mut post = Inbox::open(&dir, address(1), 7, OPTIONS).expect("a post of its own");
    let from = Inbox::open(&dir, address(2), 8, OPTIONS).expect("another");
    let named = fs::read_dir(&dir).expect("the directory").flatten().map(|entry| entry.path());
    let path = named.into_iter().find(|path| path.to_string_lossy().ends_with("-0001")).expect("its file");
    let file = File::options().write(true).open(path).expect("the file of this user");
    let mut lane = from.connect(address(1)).ok();
    while !u.is_empty() {
        match u.int_in_range(0..=9)? {
            0..=3 => spoil(u, &file)?,
            4 | 5 => {
                if let Some(lane) = &mut lane {
                    let _ = lane.send(&[&[5; 1100][..u.int_in_range(0..=1100)?]]);
                }
            }
            6 => post.sweep(),
            7 => {
                if post.fall_asleep() {
                    post.wake_up();
                }
                while post.next_ended().is_some() {}
            }
            8 => {
                // Drop first: the lock on its lane is this process's.
                drop(lane.take());
                lane = from.connect(address(1)).ok();
            }
            _ => take_all(&mut post),
        }
    }
    take_all(&mut post);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = run(&mut Unstructured::new(bytes));
    // Empty now: the segments go with their owners.
    let _ = fs::remove_dir(directory());
});
