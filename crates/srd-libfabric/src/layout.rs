//! The C structures of libfabric's headers, under their C names.
//!
//! Written by hand, not generated: one library serves every libfabric from 1.17 on, whose structures grow at their ends.
//! Structures stand here with the fields of the newest headers; who may have been compiled with older ones is asked by API
//! version before a later field is read or written. `tests/layout.rs` compares size and offset of every field with the
//! installed headers. The tables of operations have no empty slots: libfabric's inline wrappers call most of them without
//! looking.
#![allow(missing_docs, non_camel_case_types)]

use libc::{c_char, c_int, c_void, iovec, size_t, ssize_t};

/// A function of a table of operations.
macro_rules! op {
    ($($arg:ty),* => $ret:ty) => { unsafe extern "C" fn($($arg),*) -> $ret };
}

pub type fi_addr_t = u64;

srd_ffi::c_structs! {
    struct fi_context { internal: [*mut c_void; 4], }

    struct fi_provider {
        version: u32,
        fi_version: u32,
        context: fi_context,
        name: *const c_char,
        getinfo: op!(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info => c_int),
        fabric: op!(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void => c_int),
        cleanup: op!(=> ()),
    }

    struct fi_ops {
        size: size_t,
        close: op!(*mut fid => c_int),
        bind: op!(*mut fid, *mut fid, u64 => c_int),
        control: op!(*mut fid, c_int, *mut c_void => c_int),
        ops_open: op!(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void => c_int),
        tostr: op!(*const fid, *mut c_char, size_t => c_int),
        ops_set: op!(*mut fid, *const c_char, u64, *mut c_void, *mut c_void => c_int),
    }

    struct fid { fclass: size_t, context: *mut c_void, ops: *const fi_ops, }

    struct fi_tx_attr {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        inject_size: size_t,
        size: size_t,
        iov_limit: size_t,
        rma_iov_limit: size_t,
        tclass: u32,
    }

    struct fi_rx_attr {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        total_buffered_recv: size_t,
        size: size_t,
        iov_limit: size_t,
    }

    struct fi_ep_attr {
        r#type: u32,
        protocol: u32,
        protocol_version: u32,
        max_msg_size: size_t,
        msg_prefix_size: size_t,
        max_order_raw_size: size_t,
        max_order_war_size: size_t,
        max_order_waw_size: size_t,
        mem_tag_format: u64,
        tx_ctx_cnt: size_t,
        rx_ctx_cnt: size_t,
        auth_key_size: size_t,
        auth_key: *mut u8,
        xpu_ctx: *mut c_void,
    }

    struct fi_domain_attr {
        domain: *mut fid_domain,
        name: *mut c_char,
        threading: u32,
        control_progress: u32,
        data_progress: u32,
        resource_mgmt: u32,
        av_type: u32,
        mr_mode: c_int,
        mr_key_size: size_t,
        cq_data_size: size_t,
        cq_cnt: size_t,
        ep_cnt: size_t,
        tx_ctx_cnt: size_t,
        rx_ctx_cnt: size_t,
        max_ep_tx_ctx: size_t,
        max_ep_rx_ctx: size_t,
        max_ep_stx_ctx: size_t,
        max_ep_srx_ctx: size_t,
        cntr_cnt: size_t,
        mr_iov_limit: size_t,
        caps: u64,
        mode: u64,
        auth_key: *mut u8,
        auth_key_size: size_t,
        max_err_data: size_t,
        mr_cnt: size_t,
        tclass: u32,
        max_ep_auth_key: size_t,
        max_group_id: u32,
        max_cntr_value: u64,
        max_err_cntr_value: u64,
        max_xpu_ctx_cnt: size_t,
    }

    struct fi_fabric_attr {
        fabric: *mut fid_fabric,
        name: *mut c_char,
        prov_name: *mut c_char,
        prov_version: u32,
        api_version: u32,
    }

    struct fi_info {
        next: *mut fi_info,
        caps: u64,
        mode: u64,
        addr_format: u32,
        src_addrlen: size_t,
        dest_addrlen: size_t,
        src_addr: *mut c_void,
        dest_addr: *mut c_void,
        handle: *mut fid,
        tx_attr: *mut fi_tx_attr,
        rx_attr: *mut fi_rx_attr,
        ep_attr: *mut fi_ep_attr,
        domain_attr: *mut fi_domain_attr,
        fabric_attr: *mut fi_fabric_attr,
        nic: *mut c_void,
    }

    struct fi_ops_fabric {
        size: size_t,
        domain: op!(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void => c_int),
        passive_ep: op!(*mut fid_fabric, *mut fi_info, *mut *mut c_void, *mut c_void => c_int),
        eq_open: op!(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void => c_int),
        wait_open: op!(*mut fid_fabric, *mut fi_wait_attr, *mut *mut fid_wait => c_int),
        trywait: op!(*mut fid_fabric, *mut *mut fid, c_int => c_int),
        domain2: op!(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void => c_int),
    }

    struct fid_fabric { fid: fid, ops: *const fi_ops_fabric, api_version: u32, }

    struct fi_alias { fid: *mut *mut fid, flags: u64, }

    struct fi_ops_domain {
        size: size_t,
        av_open: op!(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void => c_int),
        cq_open: op!(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void => c_int),
        endpoint: op!(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void => c_int),
        scalable_ep: op!(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void => c_int),
        cntr_open: op!(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void => c_int),
        poll_open: op!(*mut fid_domain, *mut fi_poll_attr, *mut *mut fid_poll => c_int),
        stx_ctx: op!(*mut fid_domain, *mut fi_tx_attr, *mut *mut c_void, *mut c_void => c_int),
        srx_ctx: op!(*mut fid_domain, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void => c_int),
        query_atomic: op!(*mut fid_domain, u32, u32, *mut fi_atomic_attr, u64 => c_int),
        query_collective: op!(*mut fid_domain, u32, *mut c_void, u64 => c_int),
        endpoint2: op!(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void => c_int),
        xpu_ctx: op!(*mut fid_domain, *mut c_void, *mut *mut c_void, *mut c_void => c_int),
    }

    struct fi_ops_mr {
        size: size_t,
        reg: op!(*mut fid, *const c_void, size_t, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void => c_int),
        regv: op!(*mut fid, *const iovec, size_t, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void => c_int),
        regattr: op!(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr => c_int),
    }

    struct fid_domain { fid: fid, ops: *const fi_ops_domain, mr: *const fi_ops_mr, }

    struct fi_av_attr {
        r#type: u32,
        rx_ctx_bits: c_int,
        count: size_t,
        ep_per_node: size_t,
        name: *const c_char,
        map_addr: *mut c_void,
        flags: u64,
    }

    struct fi_ops_av {
        size: size_t,
        insert: op!(*mut fid_av, *const c_void, size_t, *mut fi_addr_t, u64, *mut c_void => c_int),
        insertsvc: op!(*mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void => c_int),
        insertsym: op!(
            *mut fid_av,
            *const c_char,
            size_t,
            *const c_char,
            size_t,
            *mut fi_addr_t,
            u64,
            *mut c_void
            => c_int
        ),
        remove: op!(*mut fid_av, *mut fi_addr_t, size_t, u64 => c_int),
        lookup: op!(*mut fid_av, fi_addr_t, *mut c_void, *mut size_t => c_int),
        straddr: op!(*mut fid_av, *const c_void, *mut c_char, *mut size_t => *const c_char),
        av_set: op!(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void => c_int),
        insert_auth_key: op!(*mut fid_av, *const c_void, size_t, *mut fi_addr_t, u64 => c_int),
        lookup_auth_key: op!(*mut fid_av, fi_addr_t, *mut c_void, *mut size_t => c_int),
        set_user_id: op!(*mut fid_av, fi_addr_t, fi_addr_t, u64 => c_int),
        lookup2: op!(*mut fid_av, fi_addr_t, *mut c_void, *mut size_t, u64, *mut c_void => c_int),
    }

    struct fid_av { fid: fid, ops: *const fi_ops_av, }

    struct fid_mr { fid: fid, mem_desc: *mut c_void, key: u64, }

    struct fi_mr_attr {
        mr_iov: *const iovec,
        iov_count: size_t,
        access: u64,
        offset: u64,
        requested_key: u64,
        context: *mut c_void,
        auth_key_size: size_t,
        auth_key: *mut u8,
        iface: u32,
        device: u64,
        hmem_data: *mut c_void,
        page_size: size_t,
        base_mr: *const fid_mr,
        sub_mr_cnt: size_t,
    }

    struct fi_wait_attr { wait_obj: u32, flags: u64, }

    struct fi_ops_wait { size: size_t, wait: op!(*mut fid_wait, c_int => c_int), }

    struct fid_wait { fid: fid, ops: *const fi_ops_wait, }

    struct fi_poll_attr { flags: u64, }

    struct fi_ops_poll {
        size: size_t,
        poll: op!(*mut fid_poll, *mut *mut c_void, c_int => c_int),
        poll_add: op!(*mut fid_poll, *mut fid, u64 => c_int),
        poll_del: op!(*mut fid_poll, *mut fid, u64 => c_int),
    }

    struct fid_poll { fid: fid, ops: *const fi_ops_poll, }

    struct fi_eq_attr {
        size: size_t,
        flags: u64,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_set: *mut fid_wait,
    }

    struct fi_eq_entry { fid: *mut fid, context: *mut c_void, data: u64, }

    struct fi_eq_err_entry {
        fid: *mut fid,
        context: *mut c_void,
        data: u64,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: size_t,
    }

    struct fi_ops_eq {
        size: size_t,
        read: op!(*mut fid_eq, *mut u32, *mut c_void, size_t, u64 => ssize_t),
        readerr: op!(*mut fid_eq, *mut fi_eq_err_entry, u64 => ssize_t),
        write: op!(*mut fid_eq, u32, *const c_void, size_t, u64 => ssize_t),
        sread: op!(*mut fid_eq, *mut u32, *mut c_void, size_t, c_int, u64 => ssize_t),
        strerror: op!(*mut fid_eq, c_int, *const c_void, *mut c_char, size_t => *const c_char),
    }

    struct fid_eq { fid: fid, ops: *const fi_ops_eq, }

    #[derive(Clone, Copy)]
    struct fi_cq_tagged_entry {
        op_context: *mut c_void,
        flags: u64,
        len: size_t,
        buf: *mut c_void,
        data: u64,
        tag: u64,
    }

    struct fi_cq_err_entry {
        op_context: *mut c_void,
        flags: u64,
        len: size_t,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: size_t,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: size_t,
        src_addr: fi_addr_t,
    }

    struct fi_cq_attr {
        size: size_t,
        flags: u64,
        format: u32,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_cond: u32,
        wait_set: *mut fid_wait,
        xpu_ctx: *mut c_void,
    }

    struct fi_ops_cq {
        size: size_t,
        read: op!(*mut fid_cq, *mut c_void, size_t => ssize_t),
        readfrom: op!(*mut fid_cq, *mut c_void, size_t, *mut fi_addr_t => ssize_t),
        readerr: op!(*mut fid_cq, *mut fi_cq_err_entry, u64 => ssize_t),
        sread: op!(*mut fid_cq, *mut c_void, size_t, *const c_void, c_int => ssize_t),
        sreadfrom: op!(*mut fid_cq, *mut c_void, size_t, *mut fi_addr_t, *const c_void, c_int => ssize_t),
        signal: op!(*mut fid_cq => c_int),
        strerror: op!(*mut fid_cq, c_int, *const c_void, *mut c_char, size_t => *const c_char),
        export_xpu: op!(*mut fid_cq, u64, *mut c_void => c_int),
    }

    struct fid_cq { fid: fid, ops: *const fi_ops_cq, }

    struct fi_cntr_attr {
        events: u32,
        wait_obj: u32,
        wait_set: *mut fid_wait,
        flags: u64,
        xpu_ctx: *mut c_void,
    }

    struct fi_ops_cntr {
        size: size_t,
        read: op!(*mut fid_cntr => u64),
        readerr: op!(*mut fid_cntr => u64),
        add: op!(*mut fid_cntr, u64 => c_int),
        set: op!(*mut fid_cntr, u64 => c_int),
        wait: op!(*mut fid_cntr, u64, c_int => c_int),
        adderr: op!(*mut fid_cntr, u64 => c_int),
        seterr: op!(*mut fid_cntr, u64 => c_int),
        export_xpu: op!(*mut fid_cntr, u64, *mut c_void => c_int),
    }

    struct fid_cntr { fid: fid, ops: *const fi_ops_cntr, }

    struct fi_ops_ep {
        size: size_t,
        cancel: op!(*mut fid, *mut c_void => ssize_t),
        getopt: op!(*mut fid, c_int, c_int, *mut c_void, *mut size_t => c_int),
        setopt: op!(*mut fid, c_int, c_int, *const c_void, size_t => c_int),
        tx_ctx: op!(*mut fid_ep, c_int, *mut fi_tx_attr, *mut *mut fid_ep, *mut c_void => c_int),
        rx_ctx: op!(*mut fid_ep, c_int, *mut fi_rx_attr, *mut *mut fid_ep, *mut c_void => c_int),
        rx_size_left: op!(*mut fid_ep => ssize_t),
        tx_size_left: op!(*mut fid_ep => ssize_t),
        export_xpu: op!(*mut fid_ep, u64, *mut c_void => c_int),
    }

    struct fi_ops_cm {
        size: size_t,
        setname: op!(*mut fid, *mut c_void, size_t => c_int),
        getname: op!(*mut fid, *mut c_void, *mut size_t => c_int),
        getpeer: op!(*mut fid_ep, *mut c_void, *mut size_t => c_int),
        connect: op!(*mut fid_ep, *const c_void, *const c_void, size_t => c_int),
        listen: op!(*mut c_void => c_int),
        accept: op!(*mut fid_ep, *const c_void, size_t => c_int),
        reject: op!(*mut c_void, *mut fid, *const c_void, size_t => c_int),
        shutdown: op!(*mut fid_ep, u64 => c_int),
        join: op!(*mut fid_ep, *const c_void, u64, *mut *mut c_void, *mut c_void => c_int),
    }

    struct fi_msg {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: size_t,
        addr: fi_addr_t,
        context: *mut c_void,
        data: u64,
    }

    struct fi_ops_msg {
        size: size_t,
        recv: op!(*mut fid_ep, *mut c_void, size_t, *mut c_void, fi_addr_t, *mut c_void => ssize_t),
        recvv: op!(*mut fid_ep, *const iovec, *mut *mut c_void, size_t, fi_addr_t, *mut c_void => ssize_t),
        recvmsg: op!(*mut fid_ep, *const fi_msg, u64 => ssize_t),
        send: op!(*mut fid_ep, *const c_void, size_t, *mut c_void, fi_addr_t, *mut c_void => ssize_t),
        sendv: op!(*mut fid_ep, *const iovec, *mut *mut c_void, size_t, fi_addr_t, *mut c_void => ssize_t),
        sendmsg: op!(*mut fid_ep, *const fi_msg, u64 => ssize_t),
        inject: op!(*mut fid_ep, *const c_void, size_t, fi_addr_t => ssize_t),
        senddata: op!(*mut fid_ep, *const c_void, size_t, *mut c_void, u64, fi_addr_t, *mut c_void => ssize_t),
        injectdata: op!(*mut fid_ep, *const c_void, size_t, u64, fi_addr_t => ssize_t),
    }

    struct fi_msg_tagged {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: size_t,
        addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
        data: u64,
    }

    struct fi_ops_tagged {
        size: size_t,
        recv: op!(*mut fid_ep, *mut c_void, size_t, *mut c_void, fi_addr_t, u64, u64, *mut c_void => ssize_t),
        recvv: op!(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            size_t,
            fi_addr_t,
            u64,
            u64,
            *mut c_void
            => ssize_t
        ),
        recvmsg: op!(*mut fid_ep, *const fi_msg_tagged, u64 => ssize_t),
        send: op!(*mut fid_ep, *const c_void, size_t, *mut c_void, fi_addr_t, u64, *mut c_void => ssize_t),
        sendv: op!(*mut fid_ep, *const iovec, *mut *mut c_void, size_t, fi_addr_t, u64, *mut c_void => ssize_t),
        sendmsg: op!(*mut fid_ep, *const fi_msg_tagged, u64 => ssize_t),
        inject: op!(*mut fid_ep, *const c_void, size_t, fi_addr_t, u64 => ssize_t),
        senddata: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            u64,
            fi_addr_t,
            u64,
            *mut c_void
            => ssize_t
        ),
        injectdata: op!(*mut fid_ep, *const c_void, size_t, u64, fi_addr_t, u64 => ssize_t),
    }

    struct fi_rma_iov { addr: u64, len: size_t, key: u64, }

    struct fi_msg_rma {
        msg_iov: *const iovec,
        desc: *mut *mut c_void,
        iov_count: size_t,
        addr: fi_addr_t,
        rma_iov: *const fi_rma_iov,
        rma_iov_count: size_t,
        context: *mut c_void,
        data: u64,
    }

    struct fi_ops_rma {
        size: size_t,
        read: op!(*mut fid_ep, *mut c_void, size_t, *mut c_void, fi_addr_t, u64, u64, *mut c_void => ssize_t),
        readv: op!(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            size_t,
            fi_addr_t,
            u64,
            u64,
            *mut c_void
            => ssize_t
        ),
        readmsg: op!(*mut fid_ep, *const fi_msg_rma, u64 => ssize_t),
        write: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            fi_addr_t,
            u64,
            u64,
            *mut c_void
            => ssize_t
        ),
        writev: op!(
            *mut fid_ep,
            *const iovec,
            *mut *mut c_void,
            size_t,
            fi_addr_t,
            u64,
            u64,
            *mut c_void
            => ssize_t
        ),
        writemsg: op!(*mut fid_ep, *const fi_msg_rma, u64 => ssize_t),
        inject: op!(*mut fid_ep, *const c_void, size_t, fi_addr_t, u64, u64 => ssize_t),
        writedata: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            u64,
            fi_addr_t,
            u64,
            u64,
            *mut c_void
            => ssize_t
        ),
        injectdata: op!(*mut fid_ep, *const c_void, size_t, u64, fi_addr_t, u64, u64 => ssize_t),
    }

    struct fi_ioc { addr: *mut c_void, count: size_t, }

    struct fi_rma_ioc { addr: u64, count: size_t, key: u64, }

    struct fi_atomic_attr { count: size_t, size: size_t, }

    struct fi_msg_atomic {
        msg_iov: *const fi_ioc,
        desc: *mut *mut c_void,
        iov_count: size_t,
        addr: fi_addr_t,
        rma_iov: *const fi_rma_ioc,
        rma_iov_count: size_t,
        datatype: u32,
        op: u32,
        context: *mut c_void,
        data: u64,
    }

    struct fi_ops_atomic {
        size: size_t,
        write: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            fi_addr_t,
            u64,
            u64,
            u32,
            u32,
            *mut c_void
            => ssize_t
        ),
        writev: op!(
            *mut fid_ep,
            *const fi_ioc,
            *mut *mut c_void,
            size_t,
            fi_addr_t,
            u64,
            u64,
            u32,
            u32,
            *mut c_void
            => ssize_t
        ),
        writemsg: op!(*mut fid_ep, *const fi_msg_atomic, u64 => ssize_t),
        inject: op!(*mut fid_ep, *const c_void, size_t, fi_addr_t, u64, u64, u32, u32 => ssize_t),
        readwrite: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            *mut c_void,
            *mut c_void,
            fi_addr_t,
            u64,
            u64,
            u32,
            u32,
            *mut c_void
            => ssize_t
        ),
        readwritev: op!(
            *mut fid_ep,
            *const fi_ioc,
            *mut *mut c_void,
            size_t,
            *mut fi_ioc,
            *mut *mut c_void,
            size_t,
            fi_addr_t,
            u64,
            u64,
            u32,
            u32,
            *mut c_void
            => ssize_t
        ),
        readwritemsg: op!(
            *mut fid_ep,
            *const fi_msg_atomic,
            *mut fi_ioc,
            *mut *mut c_void,
            size_t,
            u64
            => ssize_t
        ),
        compwrite: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            *const c_void,
            *mut c_void,
            *mut c_void,
            *mut c_void,
            fi_addr_t,
            u64,
            u64,
            u32,
            u32,
            *mut c_void
            => ssize_t
        ),
        compwritev: op!(
            *mut fid_ep,
            *const fi_ioc,
            *mut *mut c_void,
            size_t,
            *const fi_ioc,
            *mut *mut c_void,
            size_t,
            *mut fi_ioc,
            *mut *mut c_void,
            size_t,
            fi_addr_t,
            u64,
            u64,
            u32,
            u32,
            *mut c_void
            => ssize_t
        ),
        compwritemsg: op!(
            *mut fid_ep,
            *const fi_msg_atomic,
            *const fi_ioc,
            *mut *mut c_void,
            size_t,
            *mut fi_ioc,
            *mut *mut c_void,
            size_t,
            u64
            => ssize_t
        ),
        writevalid: op!(*mut fid_ep, u32, u32, *mut size_t => c_int),
        readwritevalid: op!(*mut fid_ep, u32, u32, *mut size_t => c_int),
        compwritevalid: op!(*mut fid_ep, u32, u32, *mut size_t => c_int),
    }

    struct fi_ops_collective {
        size: size_t,
        barrier: op!(*mut fid_ep, fi_addr_t, *mut c_void => ssize_t),
        broadcast: op!(
            *mut fid_ep,
            *mut c_void,
            size_t,
            *mut c_void,
            fi_addr_t,
            fi_addr_t,
            u32,
            u64,
            *mut c_void
            => ssize_t
        ),
        alltoall: Collective,
        allreduce: CollectiveOp,
        allgather: Collective,
        reduce_scatter: CollectiveOp,
        reduce: op!(
            *mut fid_ep,
            *const c_void,
            size_t,
            *mut c_void,
            *mut c_void,
            *mut c_void,
            fi_addr_t,
            fi_addr_t,
            u32,
            u32,
            u64,
            *mut c_void
            => ssize_t
        ),
        scatter: CollectiveRooted,
        gather: CollectiveRooted,
        msg: op!(*mut fid_ep, *const c_void, *mut *mut c_void, *mut fi_ioc, *mut *mut c_void, size_t, u64 => ssize_t),
        barrier2: op!(*mut fid_ep, fi_addr_t, u64, *mut c_void => ssize_t),
    }

    struct fid_ep {
        fid: fid,
        ops: *const fi_ops_ep,
        cm: *const fi_ops_cm,
        msg: *const fi_ops_msg,
        rma: *const fi_ops_rma,
        tagged: *const fi_ops_tagged,
        atomic: *const fi_ops_atomic,
        collective: *const fi_ops_collective,
    }
}

pub type Collective = op!(
    *mut fid_ep,
    *const c_void,
    size_t,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    fi_addr_t,
    u32,
    u64,
    *mut c_void
    => ssize_t
);
pub type CollectiveOp = op!(
    *mut fid_ep,
    *const c_void,
    size_t,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    fi_addr_t,
    u32,
    u32,
    u64,
    *mut c_void
    => ssize_t
);
pub type CollectiveRooted = op!(
    *mut fid_ep,
    *const c_void,
    size_t,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    fi_addr_t,
    fi_addr_t,
    u32,
    u64,
    *mut c_void
    => ssize_t
);
