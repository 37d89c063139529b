//! How long a packet may be between here and there, each way, and whether longer ones vanish without a word.

use super::finding::Finding;
use super::header_bytes;
use super::probe::{Prober, Request};
use super::programs::{Program, Stranger};
use super::system::address_towards;
use crate::host::interfaces;
use srd_net::Options;
use srd_net::udp::path_mtu;
use std::io;
use std::net::SocketAddr;

/// Longest packets that SRD sends without being told to, IP header included.
const LONGEST_BY_DEFAULT: u16 = 9216;

/// What every IP host takes (IPv4) or forwards (IPv6: 1280).
const SHORTEST: u16 = 576;

/// Tries the size that SRD would use, each way; if it does not pass, finds the one that does.
pub fn examine(prober: &mut Prober, options: &Options) -> io::Result<Finding> {
    let to = prober.to();
    let wanted = wanted(to, options)?;
    let mut passes = |size: u16, both_ways: bool| -> io::Result<bool> {
        let len = size - header_bytes(to.ip());
        let answer_len = if both_ways { len } else { 0 };
        Ok(prober.ask(Request { answer_len, ..Request::default() }, len.into())?.is_some())
    };
    let there = longest(wanted, |size| passes(size, false))?;
    let back = longest(there, |size| passes(size, true))?;
    Ok(judge(to, wanted, there, Some(back), path_mtu(to).ok()))
}

/// The same towards an SRD program, which answers shortly whatever it is asked: one way only.
pub fn examine_one_way(
    stranger: &Stranger,
    to: SocketAddr,
    program: Program,
    options: &Options,
) -> io::Result<Finding> {
    let wanted = wanted(to, options)?;
    let header = header_bytes(to.ip());
    let there = longest(wanted, |size| stranger.reaches(to.ip(), program, (size - header).into()))?;
    Ok(judge(to, wanted, there, None, path_mtu(to).ok()))
}

/// The longest packet that SRD would send.
fn wanted(to: SocketAddr, options: &Options) -> io::Result<u16> {
    let interface = interfaces::of_address(address_towards(to)?).and_then(|interface| interface.mtu);
    let interface = interface.map_or(1500, |mtu| mtu.min(u16::MAX.into()) as u16);
    Ok(options.mtu.unwrap_or(LONGEST_BY_DEFAULT.min(interface)))
}

fn judge(to: SocketAddr, wanted: u16, there: u16, back: Option<u16>, known: Option<u16>) -> Finding {
    let check = "path MTU";
    let host = to.ip();
    let and_back = if back.is_some() { " and back" } else { " (the way back was not tried)" };
    let back = back.unwrap_or(there);
    if there >= wanted && back >= wanted {
        return Finding::ok(check, format!("packets of {wanted} bytes pass to {host}{and_back}"));
    }
    let fits = there.min(back);
    let mend = format!("export SRD_MTU={fits}, on both hosts; or give the whole path an MTU of {wanted}");
    if known.is_some_and(|known| known <= there) && back >= there {
        let what =
            format!("packets of up to {fits} bytes pass to {host}, fewer than the {wanted} of the interface");
        return Finding::warn(check, what).mend(mend);
    }
    let direction =
        if back < there { format!("from {host} to here") } else { format!("from here to {host}") };
    Finding::fail(
        check,
        format!("packets of more than {fits} bytes vanish {direction}, and no router says so (a black hole)"),
    )
    .mend(mend)
}

/// The longest packet up to `most` that passes.
fn longest(most: u16, mut passes: impl FnMut(u16) -> io::Result<bool>) -> io::Result<u16> {
    if passes(most)? {
        return Ok(most);
    }
    let (mut good, mut bad) = (SHORTEST.min(most), most);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if passes(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn the_longest_packet_that_passes_is_found() {
        for limit in [576, 577, 1499, 1500, 8999, 9000] {
            assert_eq!(longest(9000, |size| Ok(size <= limit)).unwrap(), limit);
        }
    }

    #[test]
    fn a_black_hole_is_worse_than_a_narrow_path() {
        let to = "192.0.2.1:17407".parse().unwrap();
        let level = |there, back, known| judge(to, 9000, there, Some(back), known).level;
        assert_eq!(level(9000, 9000, Some(9000)), Level::Ok);
        assert_eq!(level(1500, 1500, Some(1500)), Level::Warn);
        assert_eq!(level(1500, 1500, Some(9000)), Level::Fail);
        assert_eq!(level(9000, 1500, Some(9000)), Level::Fail);
        assert_eq!(judge(to, 9000, 1500, None, Some(9000)).level, Level::Fail);
        assert!(judge(to, 9000, 9000, Some(1500), None).mend.unwrap().contains("SRD_MTU=1500"));
    }
}
