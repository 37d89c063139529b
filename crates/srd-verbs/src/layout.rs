//! The C structures of `infiniband/verbs.h` and `infiniband/efadv.h`, under their C names.
//!
//! Written by hand, not generated: one library serves programs compiled against every release of rdma-core from 34
//! to 65, whose headers differ by fields added at the ends of structures, and building it must need neither libclang
//! nor the headers. `tests/layout.rs` compares size and offset of every field here with the installed headers.
//! Structures stand here with the fields of the newest release; who hands a shorter one over is told by its length
//! argument, or does not use the fields that it does not know.
#![allow(missing_docs, non_camel_case_types)]

use libc::{c_char, c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t, size_t};

/// A function pointer of an operations table; NULL where the operation is not supported.
type Op<F> = Option<F>;

/// A function pointer that nothing of ours is ever stored in.
pub type Unused = Option<unsafe extern "C" fn()>;

pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub type ReqNotifyCq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
pub type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type PostSrqRecv = unsafe extern "C" fn(*mut c_void, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type CompatQueryDevice = unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
pub type CompatQueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
pub type QueryPort = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, size_t) -> c_int;
pub type QueryDeviceEx =
    unsafe extern "C" fn(*mut ibv_context, *const c_void, *mut ibv_device_attr_ex, size_t) -> c_int;
pub type CreateCqEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
pub type CreateQpEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
pub type AllocParentDomain =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd;
pub type AllocTd = unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td;
pub type DeallocTd = unsafe extern "C" fn(*mut ibv_td) -> c_int;

/// A field of the CQ iterator.
pub type Read<T> = Op<unsafe extern "C" fn(*mut ibv_cq_ex) -> T>;
/// A step of the work request builder.
pub type Step = Op<unsafe extern "C" fn(*mut ibv_qp_ex)>;
pub type StepImm = Op<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>;
pub type StepRdma = Op<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64)>;
pub type StepRdmaImm = Op<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>;

/// Name and path lengths in `ibv_device`.
pub const IBV_SYSFS_NAME_MAX: usize = 64;
/// See [`IBV_SYSFS_NAME_MAX`].
pub const IBV_SYSFS_PATH_MAX: usize = 256;

srd_ffi::c_structs! {
    /// In C a union with 64-bit members, hence the alignment.
    #[derive(Clone, Copy)]
    #[repr(align(8))]
    struct ibv_gid { raw: [u8; 16], }

    struct ibv_gid_entry {
        gid: ibv_gid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    struct ibv_device {
        _ops: [usize; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; IBV_SYSFS_NAME_MAX],
        dev_name: [c_char; IBV_SYSFS_NAME_MAX],
        dev_path: [c_char; IBV_SYSFS_PATH_MAX],
        ibdev_path: [c_char; IBV_SYSFS_PATH_MAX],
    }

    struct ibv_context_ops {
        _compat_query_device: Op<CompatQueryDevice>,
        _compat_query_port: Op<CompatQueryPort>,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: Unused,
        bind_mw: Unused,
        dealloc_mw: Unused,
        _compat_create_cq: Unused,
        poll_cq: Op<PollCq>,
        req_notify_cq: Op<ReqNotifyCq>,
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: Op<PostSrqRecv>,
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: Op<PostSend>,
        post_recv: Op<PostRecv>,
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }

    struct ibv_context {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// Grows at its beginning; `sz` tells programs how much of it is there.
    struct verbs_context {
        free_buf: Unused,
        alloc_buf: Unused,
        dm_export_dmabuf_fd: Unused,
        reg_mr_ex: Unused,
        dealloc_dmah: Unused,
        alloc_dmah: Unused,
        query_port: Op<QueryPort>,
        advise_mr: Unused,
        alloc_null_mr: Unused,
        read_counters: Unused,
        attach_counters_point_flow: Unused,
        create_counters: Unused,
        destroy_counters: Unused,
        reg_dm_mr: Unused,
        alloc_dm: Unused,
        free_dm: Unused,
        modify_flow_action_esp: Unused,
        destroy_flow_action: Unused,
        create_flow_action_esp: Unused,
        modify_qp_rate_limit: Unused,
        alloc_parent_domain: Op<AllocParentDomain>,
        dealloc_td: Op<DeallocTd>,
        alloc_td: Op<AllocTd>,
        modify_cq: Unused,
        post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused,
        create_rwq_ind_table: Unused,
        destroy_wq: Unused,
        modify_wq: Unused,
        create_wq: Unused,
        query_rt_values: Unused,
        create_cq_ex: Op<CreateCqEx>,
        private: *mut c_void,
        query_device_ex: Op<QueryDeviceEx>,
        ibv_destroy_flow: Unused,
        _abi_placeholder2: Unused,
        ibv_create_flow: Unused,
        _abi_placeholder1: Unused,
        open_qp: Unused,
        create_qp_ex: Op<CreateQpEx>,
        get_srq_num: Unused,
        create_srq_ex: Unused,
        open_xrcd: Unused,
        close_xrcd: Unused,
        _abi_placeholder3: u64,
        sz: size_t,
        context: ibv_context,
    }

    #[derive(Clone, Copy)]
    struct ibv_device_attr {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// The parts between `orig_attr` and `phys_port_cnt_ex` describe what no EFA has: all zero.
    #[derive(Clone, Copy)]
    struct ibv_device_attr_ex {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: [u64; 3],
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: [u32; 2],
        rss_caps: [u64; 4],
        max_wq_type_rq: u32,
        packet_pacing_caps: [u32; 3],
        raw_packet_caps: u32,
        tm_caps: [u32; 5],
        cq_mod_caps: [u16; 2],
        max_dm_size: u64,
        pci_atomic_caps: [u16; 3],
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    #[derive(Clone, Copy, Default)]
    struct ibv_port_attr {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
        active_speed_ex: u32,
    }

    struct ibv_pd { context: *mut ibv_context, handle: u32, }

    struct ibv_td_init_attr { comp_mask: u32, }

    struct ibv_td { context: *mut ibv_context, }

    struct ibv_parent_domain_init_attr {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Unused,
        free: Unused,
        pd_context: *mut c_void,
    }

    struct ibv_mr {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    struct ibv_mr_init_attr {
        length: size_t,
        access: c_int,
        comp_mask: u64,
        iova: u64,
        addr: *mut c_void,
        fd: c_int,
        fd_offset: u64,
        dmah: *mut c_void,
        buf: *mut c_void,
    }

    #[derive(Clone, Copy)]
    struct ibv_global_route {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    #[derive(Clone, Copy)]
    struct ibv_ah_attr {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    struct ibv_ah { context: *mut ibv_context, pd: *mut ibv_pd, handle: u32, }

    struct ibv_comp_channel { context: *mut ibv_context, fd: c_int, refcnt: c_int, }

    struct ibv_cq {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    struct ibv_poll_cq_attr { comp_mask: u32, }

    /// Begins like `ibv_cq`.
    struct ibv_cq_ex {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        start_poll: Op<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
        next_poll: Read<c_int>,
        end_poll: Read<()>,
        read_opcode: Read<c_int>,
        read_vendor_err: Read<u32>,
        read_byte_len: Read<u32>,
        read_imm_data: Read<u32>,
        read_qp_num: Read<u32>,
        read_src_qp: Read<u32>,
        read_wc_flags: Read<c_uint>,
        read_slid: Read<u32>,
        read_sl: Read<u8>,
        read_dlid_path_bits: Read<u8>,
        read_completion_ts: Read<u64>,
        read_cvlan: Read<u16>,
        read_flow_tag: Read<u32>,
        read_tm_info: Unused,
        read_completion_wallclock_ns: Read<u64>,
    }

    #[derive(Clone, Copy)]
    struct ibv_cq_init_attr_ex {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    #[derive(Clone, Copy)]
    struct ibv_wc {
        wr_id: u64,
        status: c_int,
        opcode: c_int,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }

    #[derive(Clone, Copy, Default)]
    struct ibv_qp_cap {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_init_attr {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut c_void,
        cap: ibv_qp_cap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }

    /// Begins like `ibv_qp_init_attr`.
    #[derive(Clone, Copy)]
    struct ibv_qp_init_attr_ex {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut c_void,
        cap: ibv_qp_cap,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut c_void,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: [usize; 3],
        source_qpn: u32,
        send_ops_flags: u64,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_attr {
        qp_state: c_int,
        cur_qp_state: c_int,
        path_mtu: c_int,
        path_mig_state: c_int,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    struct ibv_qp {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut c_void,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: pthread_mutex_t,
        cond: pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_qp_ex {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: Unused,
        wr_atomic_fetch_add: Unused,
        wr_bind_mw: Unused,
        wr_local_inv: Unused,
        wr_rdma_read: StepRdma,
        wr_rdma_write: StepRdma,
        wr_rdma_write_imm: StepRdmaImm,
        wr_send: Step,
        wr_send_imm: StepImm,
        wr_send_inv: Unused,
        wr_send_tso: Unused,
        wr_set_ud_addr: Op<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Unused,
        wr_set_inline_data: Op<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, size_t)>,
        wr_set_inline_data_list: Op<unsafe extern "C" fn(*mut ibv_qp_ex, size_t, *const ibv_data_buf)>,
        wr_set_sge: Op<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_set_sge_list: Op<unsafe extern "C" fn(*mut ibv_qp_ex, size_t, *const ibv_sge)>,
        wr_start: Step,
        wr_complete: Op<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        wr_abort: Step,
        wr_atomic_write: Unused,
        wr_flush: Unused,
    }

    #[derive(Clone, Copy)]
    struct ibv_sge { addr: u64, length: u32, lkey: u32, }

    #[derive(Clone, Copy)]
    struct ibv_data_buf { addr: *mut c_void, length: size_t, }

    /// Of the unions, the members that datagram queue pairs use.
    struct ibv_send_wr {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: c_int,
        send_flags: c_uint,
        imm_data: u32,
        wr: send_target,
        qp_type: u32,
        bind_mw: [u64; 6],
    }

    struct ibv_recv_wr {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    struct ibv_async_event { element: async_element, event_type: c_int, }

    struct efadv_device_attr {
        comp_mask: u64,
        max_sq_wr: u32,
        max_rq_wr: u32,
        max_sq_sge: u16,
        max_rq_sge: u16,
        inline_buf_size: u16,
        inline_buf_size_ex: u16,
        device_caps: u32,
        max_rdma_size: u32,
    }

    struct efadv_ah_attr { comp_mask: u64, ahn: u16, reserved: [u8; 6], }

    struct efadv_qp_init_attr {
        comp_mask: u64,
        driver_qp_type: u32,
        flags: u16,
        sl: u8,
        reserved: u8,
        wr_flags: u64,
    }

    struct efadv_qp {
        comp_mask: u64,
        wr_set_processing_hints: Op<unsafe extern "C" fn(*mut efadv_qp, u32)>,
    }

    struct efadv_cq {
        comp_mask: u64,
        wc_read_sgid: Op<unsafe extern "C" fn(*mut efadv_cq, *mut ibv_gid) -> c_int>,
        wc_is_unsolicited: Op<unsafe extern "C" fn(*mut efadv_cq) -> bool>,
    }

    /// The fields after `wc_flags` belong to completion queues in memory of the program's, which are refused.
    struct efadv_cq_init_attr { comp_mask: u64, wc_flags: u64, flags: u64, ext_mem_dmabuf: [u64; 4], }

    struct efadv_wq_attr {
        comp_mask: u64,
        buffer: *mut u8,
        entry_size: u32,
        num_entries: u32,
        doorbell: *mut u32,
        max_batch: u32,
        caps: u16,
        reserved: [u8; 2],
    }

    struct efadv_cq_attr {
        comp_mask: u64,
        buffer: *mut u8,
        entry_size: u32,
        num_entries: u32,
        doorbell: *mut u32,
    }

    struct efadv_sq_depth_attr {
        comp_mask: u64,
        flags: u32,
        max_send_sge: u32,
        max_rdma_sge: u32,
        max_inline_data: u32,
    }

    struct efadv_rq_depth_attr { comp_mask: u64, max_recv_sge: u32, }

    struct ibv_comp_cntr { context: *mut ibv_context, handle: u32, }

    struct ibv_comp_cntr_init_attr { comp_mask: u32, kind: c_int, flags: u32, }

    struct ibv_comp_cntr_caps { max_value: u64, max_counters: u32, supported_qp_attach_ops: u32, }

    struct ibv_qp_attach_comp_cntr_attr { comp_mask: u32, op_mask: u32, }

    struct efadv_memory_location {
        ptr: *mut u8,
        dmabuf_offset: u64,
        dmabuf_fd: c_int,
        dmabuf_reserved: u32,
        kind: u8,
        reserved: [u8; 7],
    }

    struct efadv_comp_cntr_init_attr {
        comp_mask: u64,
        flags: u32,
        reserved: u32,
        comp_cntr_ext_mem: efadv_memory_location,
        err_cntr_ext_mem: efadv_memory_location,
    }

    struct efadv_mr_attr {
        comp_mask: u64,
        ic_id_validity: u16,
        recv_ic_id: u16,
        rdma_read_ic_id: u16,
        rdma_recv_ic_id: u16,
    }
}

/// `ibv_send_wr.wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union send_target {
    pub ud: send_target_ud,
    pub atomic: [u64; 4],
}

/// `ibv_send_wr.wr.ud`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct send_target_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `ibv_async_event.element`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union async_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub port_num: c_int,
}

/// Numbers of the headers' enumerations, under their C names.
pub mod constant {
    use libc::c_int;

    /// `context.abi_compat` of an extended context.
    pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

    pub const IBV_NODE_UNSPECIFIED: c_int = 7;
    pub const IBV_TRANSPORT_UNSPECIFIED: c_int = 4;
    pub const IBV_PORT_ACTIVE: c_int = 4;
    pub const IBV_MTU_4096: c_int = 5;

    pub const IBV_FORK_UNNEEDED: c_int = 2;

    pub const IBV_ACCESS_LOCAL_WRITE: u32 = 1;
    pub const IBV_ACCESS_REMOTE_WRITE: u32 = 1 << 1;
    pub const IBV_ACCESS_REMOTE_READ: u32 = 1 << 2;
    /// A device may ignore the flags of this range.
    pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = 0x3ff0_0000;

    pub const IBV_REG_MR_MASK_IOVA: u64 = 1 << 0;
    pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;

    pub const IBV_QPT_UD: c_int = 4;
    pub const IBV_QPT_DRIVER: c_int = 0xff;

    pub const IBV_QP_INIT_ATTR_PD: u32 = 1 << 0;
    pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
    pub const IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1 << 0;
    pub const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
    pub const IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
    pub const IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
    pub const IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;

    pub const IBV_QPS_RESET: c_int = 0;
    pub const IBV_QPS_INIT: c_int = 1;
    pub const IBV_QPS_RTR: c_int = 2;
    pub const IBV_QPS_RTS: c_int = 3;
    pub const IBV_QPS_SQD: c_int = 4;
    pub const IBV_QPS_SQE: c_int = 5;
    pub const IBV_QPS_ERR: c_int = 6;

    pub const IBV_QP_STATE: c_int = 1 << 0;
    pub const IBV_QP_CUR_STATE: c_int = 1 << 1;
    pub const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
    pub const IBV_QP_PKEY_INDEX: c_int = 1 << 4;
    pub const IBV_QP_PORT: c_int = 1 << 5;
    pub const IBV_QP_QKEY: c_int = 1 << 6;
    pub const IBV_QP_RNR_RETRY: c_int = 1 << 11;
    pub const IBV_QP_SQ_PSN: c_int = 1 << 16;
    pub const IBV_QP_CAP: c_int = 1 << 19;

    pub const IBV_WR_RDMA_WRITE: c_int = 0;
    pub const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
    pub const IBV_WR_SEND: c_int = 2;
    pub const IBV_WR_SEND_WITH_IMM: c_int = 3;

    pub const IBV_SEND_SIGNALED: u32 = 1 << 1;
    pub const IBV_SEND_INLINE: u32 = 1 << 3;

    pub const IBV_WC_SEND: c_int = 0;
    pub const IBV_WC_RDMA_WRITE: c_int = 1;
    pub const IBV_WC_RECV: c_int = 1 << 7;
    pub const IBV_WC_RECV_RDMA_WITH_IMM: c_int = IBV_WC_RECV + 1;
    pub const IBV_WC_WITH_IMM: u32 = 1 << 1;

    pub const IBV_WC_EX_WITH_BYTE_LEN: u64 = 1 << 0;
    pub const IBV_WC_EX_WITH_IMM: u64 = 1 << 1;
    pub const IBV_WC_EX_WITH_QP_NUM: u64 = 1 << 2;
    pub const IBV_WC_EX_WITH_SRC_QP: u64 = 1 << 3;
    pub const IBV_WC_EX_WITH_SLID: u64 = 1 << 4;
    pub const IBV_WC_EX_WITH_SL: u64 = 1 << 5;
    pub const IBV_WC_EX_WITH_DLID_PATH_BITS: u64 = 1 << 6;
    pub const IBV_WC_STANDARD_FLAGS: u64 = (1 << 7) - 1;

    pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1 << 0;
    pub const IBV_CQ_INIT_ATTR_MASK_PD: u32 = 1 << 1;
    pub const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1 << 0;

    pub const IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT: u32 = 1 << 1;

    pub const IBV_WC_SUCCESS: c_int = 0;
    pub const IBV_WC_LOC_LEN_ERR: c_int = 1;
    pub const IBV_WC_LOC_QP_OP_ERR: c_int = 2;
    pub const IBV_WC_LOC_PROT_ERR: c_int = 4;
    pub const IBV_WC_WR_FLUSH_ERR: c_int = 5;
    pub const IBV_WC_BAD_RESP_ERR: c_int = 7;
    pub const IBV_WC_REM_INV_REQ_ERR: c_int = 9;
    pub const IBV_WC_REM_ACCESS_ERR: c_int = 10;
    pub const IBV_WC_REM_OP_ERR: c_int = 11;
    pub const IBV_WC_RNR_RETRY_EXC_ERR: c_int = 13;
    pub const IBV_WC_REM_INV_RD_REQ_ERR: c_int = 15;
    pub const IBV_WC_REM_ABORT_ERR: c_int = 16;
    pub const IBV_WC_RESP_TIMEOUT_ERR: c_int = 20;

    pub const IBV_EVENT_CQ_ERR: c_int = 0;
    pub const IBV_EVENT_QP_FATAL: c_int = 1;
    pub const IBV_EVENT_DEVICE_FATAL: c_int = 8;
    /// SRD's "Remote Unresponsive Event" (SRD.txt, section 3.3.2.1). Verbs never gave it a number; this one is ours, out of
    /// the way of theirs. Unaffiliated, with the port in `element.port_num`.
    pub const IBV_EVENT_SRD_REMOTE_UNRESPONSIVE: c_int = 0x5344;

    pub const IBV_COMP_CNTR_TYPE_WRS: c_int = 0;
    pub const IBV_COMP_CNTR_TYPE_BYTES: c_int = 1;
    pub const IBV_QP_ATTACH_COMP_CNTR_OP_SEND: u32 = 1 << 0;
    pub const IBV_QP_ATTACH_COMP_CNTR_OP_RECV: u32 = 1 << 1;
    pub const IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ: u32 = 1 << 2;
    pub const IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ: u32 = 1 << 3;
    pub const IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE: u32 = 1 << 4;
    pub const IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE: u32 = 1 << 5;

    pub const IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS: u32 = 1 << 0;
    pub const IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY: u32 = 1 << 1;
    pub const IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES: c_int = 1 << 1;

    pub const EFADV_QP_DRIVER_TYPE_SRD: u32 = 0;
    pub const EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV: u16 = 1 << 0;
    pub const EFADV_QP_FLAGS_INLINE_WRITE: u16 = 1 << 1;
    pub const EFADV_WR_EX_WITH_PROCESSING_HINTS: u64 = 1 << 0;
    pub const EFADV_WQ_CAPS_64_BIT_REQ_ID: u16 = 1 << 0;
    pub const EFADV_WC_EX_WITH_SGID: u64 = 1 << 0;
    pub const EFADV_WC_EX_WITH_IS_UNSOLICITED: u64 = 1 << 1;
    pub const EFADV_SQ_DEPTH_ATTR_INLINE_WRITE: u32 = 1 << 0;
    pub const EFADV_DEVICE_ATTR_CAPS_RDMA_READ: u32 = 1 << 0;
    pub const EFADV_DEVICE_ATTR_CAPS_RNR_RETRY: u32 = 1 << 1;
    pub const EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID: u32 = 1 << 2;
    pub const EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE: u32 = 1 << 3;
    pub const EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV: u32 = 1 << 4;
    pub const EFADV_DEVICE_ATTR_CAPS_COMP_CNTR: u32 = 1 << 6;
    pub const EFADV_MEMORY_LOCATION_VA: u8 = 0;
    pub const EFADV_MEMORY_LOCATION_DMABUF: u8 = 1;
    pub const EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM: u32 = 1 << 0;
    pub const EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM: u32 = 1 << 1;
}
