//! Which attributes a program gets: its hints where it may choose, the provider's where it does not say, and a refusal where
//! they cannot be had. Rules are those of fi_getinfo(3), fi_domain(3) and fi_endpoint(3).

use crate::boundary::{Errno, Outcome};
use crate::capabilities;
use crate::constants::*;
use crate::hints::{Asked, Bits, refused};
use crate::info::Parts;
use crate::layout::*;
use crate::mr::has_provider_keys;
use srd_net::{accelerator, log};

/// Fills in all attributes but names and addresses.
pub(crate) fn negotiate(asked: &Asked<'_>, parts: Parts<'_>) -> Outcome<()> {
    let caps = capabilities(asked)?;
    parts.info.caps = caps;
    transmit(asked, caps, parts.tx)?;
    receive(asked, caps, parts.rx)?;
    endpoint(asked, parts.ep)?;
    domain(asked, caps, parts.domain)?;
    Ok(())
}

/// Refuses bits beyond those offered.
fn within(what: &str, asked: u64, offered: u64) -> Outcome<()> {
    if asked & !offered == 0 { Ok(()) } else { Err(refused(what, Bits(asked & !offered))) }
}

/// Refuses more than is offered.
fn at_most(what: &str, asked: usize, offered: usize) -> Outcome<()> {
    if asked <= offered { Ok(()) } else { Err(refused(what, asked)) }
}

fn capabilities(asked: &Asked<'_>) -> Outcome<u64> {
    let offered = capabilities::capabilities(asked.api);
    let mut caps = asked.info.map_or(0, |info| info.caps);
    if caps & FI_HMEM != 0 {
        accelerators(asked)?;
    }
    within("capability", caps, offered | capabilities::OF_HOST)?;
    if caps == 0 {
        return Ok(offered & !capabilities::NAMED);
    }
    if caps & capabilities::OPERATIONS == 0 {
        caps |= capabilities::OPERATIONS;
    }
    // fi_getinfo(3): without a direction, all of them.
    if caps & (FI_MSG | FI_TAGGED) != 0 && caps & capabilities::MESSAGE_DIRECTIONS == 0 {
        caps |= capabilities::MESSAGE_DIRECTIONS;
    }
    if caps & (FI_RMA | FI_ATOMIC) != 0 && caps & capabilities::RMA_DIRECTIONS == 0 {
        caps |= capabilities::RMA_DIRECTIONS;
    }
    Ok(caps | capabilities::FREE)
}

/// Whether memory of accelerators can be had: the host has one, and the program registers what it has there (fi_mr(3), FI_MR_HMEM).
fn accelerators(asked: &Asked<'_>) -> Outcome<()> {
    let registers = asked.domain.is_some_and(|domain| domain.mr_mode & FI_MR_HMEM != 0);
    if asked.api < fi_version(1, 10) || !registers {
        return Err(refused(
            "FI_HMEM",
            "without FI_MR_HMEM in the domain's mr_mode, and version 1.10 or newer,",
        ));
    }
    if asked.open.is_some_and(|open| !open.shared.accelerators) {
        return Err(refused("FI_HMEM", "in a domain that was opened without it"));
    }
    accelerator::available().map(|_| ()).map_err(|why| {
        log::info(format_args!("fi_getinfo: FI_HMEM is not possible: {why}"));
        Errno::NO_DATA
    })
}

/// Capabilities of one direction: those of the endpoint, or fewer operations if the program asks for fewer.
fn of_direction(what: &str, asked: u64, caps: u64, offered: u64) -> Outcome<u64> {
    within(what, asked, offered)?;
    let all = caps & offered;
    within(what, asked & capabilities::OPERATIONS, all)?;
    Ok(if asked & capabilities::OPERATIONS == 0 { all } else { all & (asked | !capabilities::OPERATIONS) })
}

fn transmit(asked: &Asked<'_>, caps: u64, attr: &mut fi_tx_attr) -> Outcome<()> {
    let config = capabilities::config();
    attr.caps = of_direction(
        "transmit capability",
        asked.tx.map_or(0, |tx| tx.caps),
        caps,
        capabilities::TRANSMIT_CAPS,
    )?;
    attr.msg_order = capabilities::ORDER;
    attr.inject_size = config.inject_size as usize;
    attr.size = config.max_outstanding as usize;
    attr.iov_limit = capabilities::IOV;
    attr.rma_iov_limit = capabilities::IOV;
    let Some(tx) = asked.tx else { return Ok(()) };
    within("transmit op_flags", tx.op_flags, capabilities::TRANSMIT_FLAGS)?;
    within("transmit msg_order", tx.msg_order, capabilities::ORDER)?;
    within("transmit comp_order", tx.comp_order, 0)?;
    at_most("inject_size", tx.inject_size, attr.inject_size)?;
    at_most("transmit size", tx.size, attr.size)?;
    at_most("transmit iov_limit", tx.iov_limit, capabilities::IOV)?;
    at_most("rma_iov_limit", tx.rma_iov_limit, capabilities::IOV)?;
    attr.op_flags = tx.op_flags;
    Ok(())
}

fn receive(asked: &Asked<'_>, caps: u64, attr: &mut fi_rx_attr) -> Outcome<()> {
    attr.caps = of_direction(
        "receive capability",
        asked.rx.map_or(0, |rx| rx.caps),
        caps,
        capabilities::RECEIVE_CAPS,
    )?;
    attr.msg_order = capabilities::ORDER;
    attr.total_buffered_recv = capabilities::config().unexpected_bytes as usize;
    attr.size = capabilities::RECEIVES;
    attr.iov_limit = capabilities::IOV;
    let Some(rx) = asked.rx else { return Ok(()) };
    within("receive op_flags", rx.op_flags, capabilities::RECEIVE_FLAGS)?;
    within("receive msg_order", rx.msg_order, capabilities::ORDER)?;
    within("receive comp_order", rx.comp_order, 0)?;
    at_most("receive size", rx.size, capabilities::MOST_RECEIVES)?;
    at_most("receive iov_limit", rx.iov_limit, capabilities::IOV)?;
    at_most("total_buffered_recv", rx.total_buffered_recv, attr.total_buffered_recv)?;
    attr.op_flags = rx.op_flags;
    attr.size = attr.size.max(rx.size);
    Ok(())
}

fn endpoint(asked: &Asked<'_>, attr: &mut fi_ep_attr) -> Outcome<()> {
    attr.r#type = FI_EP_RDM;
    attr.protocol = capabilities::PROTOCOL;
    attr.protocol_version = capabilities::PROTOCOL_VERSION;
    attr.max_msg_size = capabilities::LONGEST_MESSAGE;
    attr.max_order_raw_size = capabilities::LONGEST_MESSAGE;
    attr.max_order_war_size = capabilities::LONGEST_MESSAGE;
    attr.max_order_waw_size = capabilities::LONGEST_MESSAGE;
    attr.mem_tag_format = capabilities::TAG_FORMAT;
    attr.tx_ctx_cnt = 1;
    attr.rx_ctx_cnt = 1;
    let Some(ep) = asked.ep else { return Ok(()) };
    if ![0, capabilities::PROTOCOL].contains(&ep.protocol) {
        return Err(refused("protocol", ep.protocol));
    }
    at_most("protocol_version", ep.protocol_version as usize, capabilities::PROTOCOL_VERSION as usize)?;
    at_most("max_msg_size", ep.max_msg_size, attr.max_msg_size)?;
    at_most("msg_prefix_size", ep.msg_prefix_size, 0)?;
    at_most("max_order_raw_size", ep.max_order_raw_size, attr.max_order_raw_size)?;
    at_most("max_order_war_size", ep.max_order_war_size, attr.max_order_war_size)?;
    at_most("max_order_waw_size", ep.max_order_waw_size, attr.max_order_waw_size)?;
    at_most("tx_ctx_cnt", ep.tx_ctx_cnt, 1)?;
    at_most("rx_ctx_cnt", ep.rx_ctx_cnt, 1)?;
    at_most("auth_key_size", ep.auth_key_size, 0)?;
    if asked.api >= fi_version(2, 7) && !ep.xpu_ctx.is_null() {
        return Err(refused("xpu_ctx", "(any)"));
    }
    if ep.mem_tag_format != 0 {
        attr.mem_tag_format = ep.mem_tag_format;
    }
    Ok(())
}

fn domain(asked: &Asked<'_>, caps: u64, attr: &mut fi_domain_attr) -> Outcome<()> {
    attr.threading = FI_THREAD_SAFE;
    attr.control_progress = FI_PROGRESS_AUTO;
    attr.data_progress = FI_PROGRESS_AUTO;
    attr.resource_mgmt = FI_RM_ENABLED;
    attr.av_type = FI_AV_TABLE;
    attr.mr_key_size = capabilities::KEY_BYTES;
    attr.cq_data_size = capabilities::DATA_BYTES;
    attr.cq_cnt = capabilities::OBJECTS;
    attr.ep_cnt = capabilities::ENDPOINTS;
    attr.tx_ctx_cnt = capabilities::ENDPOINTS;
    attr.rx_ctx_cnt = capabilities::ENDPOINTS;
    attr.max_ep_tx_ctx = 1;
    attr.max_ep_rx_ctx = 1;
    attr.cntr_cnt = capabilities::OBJECTS;
    attr.mr_iov_limit = 1;
    attr.caps = capabilities::DOMAIN_CAPS;
    attr.mr_cnt = capabilities::REGIONS;
    attr.max_cntr_value = u64::MAX;
    attr.max_err_cntr_value = u64::MAX;
    attr.mr_mode = mr_mode(asked.api, asked.domain.map(|domain| domain.mr_mode), caps)?;
    if let Some(open) = asked.open.filter(|_| is_one_sided(caps)) {
        attr.mr_mode = as_opened(attr.mr_mode, open.shared.provider_keys)?;
    }
    if caps & FI_HMEM != 0 {
        attr.mr_mode |= FI_MR_HMEM;
    }
    let Some(hint) = asked.domain else { return Ok(()) };
    let limits = [
        ("mr_key_size", hint.mr_key_size, attr.mr_key_size),
        ("cq_data_size", hint.cq_data_size, attr.cq_data_size),
        ("cq_cnt", hint.cq_cnt, attr.cq_cnt),
        ("ep_cnt", hint.ep_cnt, attr.ep_cnt),
        ("tx_ctx_cnt", hint.tx_ctx_cnt, attr.tx_ctx_cnt),
        ("rx_ctx_cnt", hint.rx_ctx_cnt, attr.rx_ctx_cnt),
        ("max_ep_tx_ctx", hint.max_ep_tx_ctx, attr.max_ep_tx_ctx),
        ("max_ep_rx_ctx", hint.max_ep_rx_ctx, attr.max_ep_rx_ctx),
        ("max_ep_stx_ctx", hint.max_ep_stx_ctx, attr.max_ep_stx_ctx),
        ("max_ep_srx_ctx", hint.max_ep_srx_ctx, attr.max_ep_srx_ctx),
        ("cntr_cnt", hint.cntr_cnt, attr.cntr_cnt),
        ("mr_iov_limit", hint.mr_iov_limit, attr.mr_iov_limit),
        ("auth_key_size", hint.auth_key_size, 0),
        ("max_err_data", hint.max_err_data, 0),
        ("mr_cnt", hint.mr_cnt, attr.mr_cnt),
    ];
    limits.iter().try_for_each(|(what, asked, offered)| at_most(what, *asked, *offered))?;
    within("domain capability", hint.caps, attr.caps)?;
    if asked.api >= fi_version(1, 20) {
        at_most("max_ep_auth_key", hint.max_ep_auth_key, 0)?;
    }
    if asked.api >= fi_version(2, 0) {
        at_most("max_group_id", hint.max_group_id as usize, 0)?;
    }
    if asked.api >= fi_version(2, 7) {
        at_most("max_xpu_ctx_cnt", hint.max_xpu_ctx_cnt, 0)?;
    }
    // A program may name what suits it best: all of them do for a provider that is safe whatever threads do, and makes
    // progress whether the program polls or not.
    choose("threading", &mut attr.threading, hint.threading, FI_THREAD_ENDPOINT)?;
    choose(
        "control_progress",
        &mut attr.control_progress,
        hint.control_progress,
        FI_PROGRESS_CONTROL_UNIFIED,
    )?;
    choose("data_progress", &mut attr.data_progress, hint.data_progress, FI_PROGRESS_MANUAL)?;
    choose("av_type", &mut attr.av_type, hint.av_type, FI_AV_TABLE)?;
    at_most("resource_mgmt", hint.resource_mgmt as usize, FI_RM_ENABLED as usize)
}

/// The program's choice among 1 to `last`; the provider's if it is 0.
fn choose(what: &str, ours: &mut u32, asked: u32, last: u32) -> Outcome<()> {
    at_most(what, asked as usize, last as usize)?;
    if asked != 0 {
        *ours = asked;
    }
    Ok(())
}

const PROVIDER_KEYS: i32 = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

/// How memory is registered (fi_mr(3)). We can do either: keys of ours and virtual addresses, where the program can do with
/// all of that, which is what programs for RDMA cards expect; else keys of the program's and offsets, which asks for
/// nothing. Before 1.5 these were two numbers.
fn mr_mode(api: u32, asked: Option<i32>, caps: u64) -> Outcome<i32> {
    let Some(asked) = asked else {
        return Ok(if api < fi_version(1, 5) { FI_MR_SCALABLE } else { 0 });
    };
    if api < fi_version(1, 5) {
        return match asked {
            0 | FI_MR_SCALABLE => Ok(FI_MR_SCALABLE),
            FI_MR_BASIC => Ok(FI_MR_BASIC),
            // A set of modes after all: some programs give no version.
            _ => Ok(modes(asked, caps)),
        };
    }
    Ok(match asked {
        FI_MR_BASIC | FI_MR_SCALABLE => asked,
        _ => modes(asked, caps),
    })
}

fn modes(asked: i32, caps: u64) -> i32 {
    if is_one_sided(caps) && asked & PROVIDER_KEYS == PROVIDER_KEYS { PROVIDER_KEYS } else { 0 }
}

fn is_one_sided(caps: u64) -> bool {
    caps & (FI_RMA | FI_ATOMIC) != 0
}

/// A domain that is open registers memory as it was opened to, whatever the program could do with besides.
fn as_opened(ours: i32, provider_keys: bool) -> Outcome<i32> {
    match (ours, provider_keys) {
        (PROVIDER_KEYS, false) => Ok(0),
        _ if has_provider_keys(ours) == provider_keys => Ok(ours),
        _ => Err(refused("mr_mode", "of another kind than the open domain's")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ours_only_where_the_program_can_do_with_all_that_goes_with_it() {
        let new = fi_version(1, 18);
        let others = 1 << 2 | 1 << 9 | 1 << 10; // LOCAL, ENDPOINT, HMEM
        for (asked, caps, answer) in [
            (PROVIDER_KEYS, FI_RMA, PROVIDER_KEYS),
            (PROVIDER_KEYS | others, FI_ATOMIC | FI_MSG, PROVIDER_KEYS),
            (PROVIDER_KEYS, FI_MSG | FI_TAGGED, 0),
            (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED, FI_RMA, 0),
            (0, FI_RMA, 0),
            (FI_MR_BASIC, FI_RMA, FI_MR_BASIC),
        ] {
            assert_eq!(mr_mode(new, Some(asked), caps), Ok(answer), "{asked:#x} {caps:#x}");
        }
    }

    #[test]
    fn an_open_domain_stays_as_it_is() {
        assert_eq!(as_opened(PROVIDER_KEYS, true), Ok(PROVIDER_KEYS));
        assert_eq!(as_opened(PROVIDER_KEYS, false), Ok(0), "offsets and any key ask for nothing");
        assert_eq!(as_opened(0, false), Ok(0));
        assert!(as_opened(0, true).is_err(), "the program must name bytes by address, and does not offer to");
        assert!(as_opened(FI_MR_BASIC, false).is_err());
    }

    #[test]
    fn before_1_5_there_were_two_numbers() {
        for api in [0, fi_version(1, 4)] {
            assert_eq!(mr_mode(api, None, FI_RMA), Ok(FI_MR_SCALABLE));
            assert_eq!(mr_mode(api, Some(0), FI_RMA), Ok(FI_MR_SCALABLE));
            assert_eq!(mr_mode(api, Some(FI_MR_BASIC), FI_RMA), Ok(FI_MR_BASIC));
        }
    }
}
