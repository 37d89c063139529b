/* What goes wrong, and what each side is told. */
#include "two.h"

#define ELSEWHERE (1 << 20)

/* An error fails its own request only: the queue pair goes on. */
static void still_works(struct side *s, uint64_t wr_id)
{
	send_at(s, wr_id, 0, 64);
	expect(next(s), wr_id, IBV_WC_SUCCESS, IBV_WC_SEND);
}

static void expect_error(struct side *s, uint64_t wr_id, int status, unsigned vendor_err)
{
	struct done d = next(s);
	expect(d, wr_id, status, 0);
	CHECK_EQUAL(d.vendor_err, vendor_err);
	CHECK_EQUAL(s->qp->state, IBV_QPS_RTS);
}

static void here(struct side *s)
{
	connect_srd(s, 0, 0 /* no retries where there is no receive */);
	uint32_t qpn = s->peer.qpn, qkey = s->peer.qkey, rkey = s->peer.rkey;

	/* 9: no such queue pair. */
	s->peer.qpn = qpn + 1;
	send_at(s, 1, 0, 64);
	expect_error(s, 1, IBV_WC_REM_INV_RD_REQ_ERR, 9);
	s->peer.qpn = qpn;

	/* 10: no receive. */
	send_at(s, 3, 0, 64);
	expect_error(s, 3, IBV_WC_RNR_RETRY_EXC_ERR, 10);
	meet(s);
	meet(s);
	still_works(s, 4);

	/* 11: the receive is too short. */
	send_at(s, 5, 0, 1000);
	expect_error(s, 5, IBV_WC_REM_INV_REQ_ERR, 11);
	meet(s);
	meet(s);

	/* 6: longer than the port's longest message. */
	struct ibv_port_attr port;
	CHECK_EQUAL(ibv_query_port(s->context, 1, &port), 0);
	send_at(s, 6, 0, port.max_msg_sz + 1);
	expect_error(s, 6, IBV_WC_LOC_LEN_ERR, 6);

	/* 5: the local key does not cover the bytes. */
	send_at(s, 7, BUFFER - 10, 64);
	expect_error(s, 7, IBV_WC_LOC_PROT_ERR, 5);

	/* 7: the remote key is wrong; the address is outside of its region. */
	begin_wr(s, 8);
	ibv_wr_rdma_write(s->qpx, rkey + 77, s->peer.buffer);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	expect_error(s, 8, IBV_WC_REM_ACCESS_ERR, 7);
	begin_wr(s, 9);
	ibv_wr_rdma_read(s->qpx, rkey, s->peer.buffer + BUFFER - 10);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	expect_error(s, 9, IBV_WC_REM_ACCESS_ERR, 7);

	/* The wrong key of the queue pair is an error, whichever. */
	s->peer.qkey = qkey + 1;
	send_at(s, 10, 0, 64);
	CHECK(next(s).status != IBV_WC_SUCCESS);
	s->peer.qkey = qkey;

	still_works(s, 11);

	/* 1: what is posted when the queue pair goes to the error state comes back flushed. */
	post_recv_at(s, 12, ELSEWHERE, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	struct done d = next(s);
	expect(d, 12, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK_EQUAL(d.vendor_err, 1);
	meet(s);
	tear_down(s);
}

static void there(struct side *s)
{
	connect_srd(s, 0, 0);
	meet(s); /* RNR has been seen */
	post_recv_at(s, 1, 0, 4096);
	post_recv_at(s, 2, 4096, 512);
	meet(s);
	expect(next(s), 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	meet(s); /* so has the short receive; whether it was used up is not said */
	for (int i = 0; i < 8; i++)
		post_recv_at(s, 10 + i, 8192, 4096);
	meet(s);
	/* Of the rest only the last arrives here. */
	struct done d;
	do
		d = next(s);
	while (d.status != IBV_WC_SUCCESS);
	CHECK_EQUAL(d.byte_len, 64);
	meet(s);
	tear_down(s);
}

static void statuses(void)
{
	two_processes(here, there);
}

/* ---- the responder of RDMA must know the requester ---- */

static void unknown_here(struct side *s)
{
	connect_srd(s, 0, 7);
	meet(s); /* the peer has destroyed its handle */
	begin_wr(s, 1);
	ibv_wr_rdma_write(s->qpx, s->peer.rkey, s->peer.buffer);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	expect_error(s, 1, IBV_WC_REM_OP_ERR, 14);
	meet(s);
	tear_down(s);
}

static void unknown_there(struct side *s)
{
	connect_srd(s, 0, 7);
	CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	s->ah = NULL;
	meet(s);
	meet(s);
	tear_down(s);
}

static void unknown_requester(void)
{
	two_processes(unknown_here, unknown_there);
}

/* ---- memory that the program unmaps while it is registered ---- */

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define MAPPED 65536

static uint8_t *map(int protection)
{
	void *at = mmap(NULL, MAPPED, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

struct region {
	uint64_t addr;
	uint32_t key;
};

static struct region unmapped_region(struct side *s, struct ibv_mr **mr)
{
	uint8_t *at = map(PROT_READ | PROT_WRITE);
	*mr = ibv_reg_mr(s->pd, at, MAPPED, ALL_ACCESS);
	CHECK(*mr);
	CHECK_EQUAL(munmap(at, MAPPED), 0);
	return (struct region){ .addr = (uintptr_t)at, .key = (*mr)->lkey };
}

/* One request between `local` and `remote`; a send if that is NULL. */
static void request(struct side *s, uint64_t wr_id, bool read, struct region local, const struct region *remote)
{
	begin_wr(s, wr_id);
	if (!remote)
		ibv_wr_send(s->qpx);
	else if (read)
		ibv_wr_rdma_read(s->qpx, remote->key, remote->addr);
	else
		ibv_wr_rdma_write(s->qpx, remote->key, remote->addr);
	ibv_wr_set_sge(s->qpx, local.key, local.addr, remote ? 50000 : 2000);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
}

static void unmapped_here(struct side *s)
{
	connect_srd(s, 0, 7);
	struct region here = { (uintptr_t)s->buffer, s->mr->lkey }, there = { s->peer.buffer, s->peer.rkey };
	struct region remote_gone, local_gone;
	struct ibv_mr *mr;
	local_gone = unmapped_region(s, &mr);
	hear(s, &remote_gone, sizeof(remote_gone));

	/* 7: a peer's memory, 5: our own. */
	request(s, 1, false, here, &remote_gone);
	expect_error(s, 1, IBV_WC_REM_ACCESS_ERR, 7);
	request(s, 2, true, here, &remote_gone);
	expect_error(s, 2, IBV_WC_REM_ACCESS_ERR, 7);
	request(s, 3, true, local_gone, &there);
	expect_error(s, 3, IBV_WC_LOC_PROT_ERR, 5);
	request(s, 4, false, local_gone, &there);
	expect_error(s, 4, IBV_WC_LOC_PROT_ERR, 5);
	request(s, 5, false, local_gone, NULL);
	expect_error(s, 5, IBV_WC_LOC_PROT_ERR, 5);
	still_works(s, 6);
	meet(s);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	tear_down(s);
}

static void unmapped_there(struct side *s)
{
	connect_srd(s, 0, 7);
	struct ibv_mr *mr;
	struct region gone = unmapped_region(s, &mr);
	post_recv_at(s, 1, 0, 4096);
	tell(s, &gone, sizeof(gone));
	struct done d = next(s);
	expect(d, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK_EQUAL(d.byte_len, 64);
	meet(s);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	tear_down(s);
}

static void unmapped(void)
{
	two_processes(unmapped_here, unmapped_there);
}

static void protected(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	uint8_t *at = map(PROT_READ | PROT_WRITE), *second = at + MAPPED / 2;
	memset(at, 7, MAPPED);
	CHECK_EQUAL(mprotect(second, MAPPED / 2, PROT_READ), 0);
	if (madvise(NULL, 0, 23 /* MADV_POPULATE_WRITE, Linux 5.14 */) == 0) {
		static const int writing[] = { IBV_ACCESS_LOCAL_WRITE, ALL_ACCESS };
		for (int i = 0; i < 2; i++) {
			errno = 0;
			CHECK(!ibv_reg_mr(s->pd, at, MAPPED, writing[i]) && errno == EFAULT);
		}
		CHECK_EQUAL(mprotect(second, MAPPED / 2, PROT_NONE), 0);
		errno = 0;
		CHECK(!ibv_reg_mr(s->pd, at, MAPPED, 0) && errno == EFAULT);
		CHECK_EQUAL(mprotect(second, MAPPED / 2, PROT_READ), 0);
	}
	/* What it permits is registered, and nothing of it is lost. */
	struct ibv_mr *reading = ibv_reg_mr(s->pd, at, MAPPED, IBV_ACCESS_REMOTE_READ);
	struct ibv_mr *writing = ibv_reg_mr(s->pd, at, MAPPED / 2, ALL_ACCESS);
	CHECK(reading && writing);
	for (int i = 0; i < MAPPED; i++)
		CHECK_EQUAL(at[i], 7);
	CHECK_EQUAL(ibv_dereg_mr(reading), 0);
	CHECK_EQUAL(ibv_dereg_mr(writing), 0);
	munmap(at, MAPPED);
	tear_down(s);
}

/* ---- a peer that dies ---- */

static void death_here(struct side *s)
{
	connect_srd(s, 0, 7);
	send_at(s, 1, 0, 64);
	expect(next(s), 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	pid_t pid;
	hear(s, &pid, sizeof(pid));
	kill(pid, SIGKILL);
	usleep(20000);
	send_at(s, 2, 0, 64);
	struct done d = next(s);
	CHECK(d.status == IBV_WC_RESP_TIMEOUT_ERR || d.status == IBV_WC_REM_ABORT_ERR || d.status == IBV_WC_REM_INV_RD_REQ_ERR);
	if (d.status == IBV_WC_RESP_TIMEOUT_ERR) {
		CHECK_EQUAL(d.vendor_err, 13);
		/* The descriptor of asynchronous events is readable, and the event says what it is. */
		struct pollfd p = { .fd = s->context->async_fd, .events = POLLIN };
		CHECK_EQUAL(poll(&p, 1, 5000), 1);
		struct ibv_async_event event;
		CHECK_EQUAL(ibv_get_async_event(s->context, &event), 0);
		CHECK_EQUAL(event.element.port_num, 1);
		CHECK(strcmp(ibv_event_type_str(event.event_type), "SRD remote host unresponsive") == 0);
		ibv_ack_async_event(&event);
		fcntl(s->context->async_fd, F_SETFL, O_NONBLOCK);
		CHECK_EQUAL(ibv_get_async_event(s->context, &event), -1);
		CHECK_EQUAL(errno, EAGAIN);
	}
	CHECK_EQUAL(s->qp->state, IBV_QPS_RTS);
	tear_down(s);
	_exit(0); /* the other process did not end well, as it should */
}

static void death_there(struct side *s)
{
	connect_srd(s, 0, 7);
	post_recv_at(s, 1, 0, 4096);
	expect(next(s), 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	pid_t pid = getpid();
	tell(s, &pid, sizeof(pid));
	pause();
}

static void death(void)
{
	two_processes(death_here, death_there);
}

/* ---- calls that are refused ---- */

static void refusals(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);

	/* Before RTS nothing may be sent, in RESET nothing received. */
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	struct ibv_sge sge = { .addr = (uintptr_t)s->buffer, .length = 64, .lkey = s->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	CHECK_EQUAL(ibv_post_recv(s->qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &s->peer.gid), 0);
	s->ah = create_ah(s, &s->peer.gid);
	s->peer.qpn = s->qp->qp_num;
	begin_wr(s, 1);
	ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, sge.lkey, sge.addr, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), EINVAL);

	/* The wrong state, the wrong attributes. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .sq_psn = 1 };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY), EINVAL);
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), EOPNOTSUPP);
	CHECK_EQUAL(s->qp->state, IBV_QPS_RESET);
	to_init(s->qp);
	to_rts(s->qp, 3);

	/* Three elements in a receive of two; a request that is not signalled, is fenced, has too much inline data; RDMA of
	 * two elements; a read inline; what may only be posted through the builder. */
	struct ibv_sge three[3] = { sge, sge, sge };
	struct ibv_recv_wr long_recv = { .sg_list = three, .num_sge = 3 };
	recv.next = &long_recv;
	CHECK_EQUAL(ibv_post_recv(s->qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &long_recv);
	static const unsigned flags[] = { 0, IBV_SEND_SIGNALED | IBV_SEND_FENCE, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED };
	for (int i = 0; i < 3; i++) {
		begin_wr(s, 1);
		s->qpx->wr_flags = flags[i];
		ibv_wr_send(s->qpx);
		ibv_wr_set_sge(s->qpx, sge.lkey, sge.addr, 64);
		set_peer(s);
		CHECK_EQUAL(ibv_wr_complete(s->qpx), EINVAL);
	}
	begin_wr(s, 1);
	ibv_wr_send(s->qpx);
	ibv_wr_set_inline_data(s->qpx, s->buffer, 33);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), EINVAL);
	begin_wr(s, 1);
	ibv_wr_rdma_write(s->qpx, 1, 0);
	ibv_wr_set_sge_list(s->qpx, 2, three);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), EINVAL);
	begin_wr(s, 1);
	ibv_wr_rdma_read(s->qpx, 1, 0);
	ibv_wr_set_inline_data(s->qpx, s->buffer, 8);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), EINVAL);
	struct ibv_send_wr write = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
	}, *bad = NULL;
	CHECK_EQUAL(ibv_post_send(s->qp, &write, &bad), EINVAL);
	CHECK(bad == &write);
	/* What was begun and then aborted leaves no trace. */
	begin_wr(s, 1);
	ibv_wr_send(s->qpx);
	ibv_wr_abort(s->qpx);
	/* One more than the queue holds: all are refused. */
	ibv_wr_start(s->qpx);
	for (int i = 0; i <= DEPTH; i++) {
		s->qpx->wr_id = i;
		s->qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(s->qpx);
		ibv_wr_set_sge(s->qpx, sge.lkey, sge.addr, 64);
		set_peer(s);
	}
	CHECK_EQUAL(ibv_wr_complete(s->qpx), ENOMEM);
	/* The one good receive of the list above is the only thing posted. */
	CHECK(quiet(s, 0.05));

	/* Queues are as deep as they say. */
	struct ibv_qp_init_attr init;
	CHECK_EQUAL(ibv_query_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_CAP | IBV_QP_QKEY, &init), 0);
	CHECK_EQUAL(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQUAL(attr.qkey, QKEY);
	CHECK_EQUAL(init.qp_type, IBV_QPT_DRIVER);
	CHECK_EQUAL(attr.cap.max_recv_wr, DEPTH);
	recv.next = NULL;
	for (int i = 1; i < DEPTH; i++)
		CHECK_EQUAL(ibv_post_recv(s->qp, &recv, &bad_recv), 0);
	CHECK_EQUAL(ibv_post_recv(s->qp, &recv, &bad_recv), ENOMEM);
	CHECK_EQUAL(ibv_query_qp(s->qp, &attr, IBV_QP_TIMEOUT, &init), EOPNOTSUPP);

	/* What is in use cannot go. */
	CHECK_EQUAL(ibv_dealloc_pd(s->pd), EBUSY);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), EBUSY);
	CHECK_EQUAL(ibv_destroy_comp_channel(s->channel), EBUSY);

	/* Memory: what is not there, and rights that make no sense. */
	errno = 0;
	CHECK(!ibv_reg_mr(s->pd, (void *)0x1000, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!ibv_reg_mr(s->pd, s->buffer, 4096, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_mr(s->pd, s->buffer, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && errno == EOPNOTSUPP);
	CHECK(!ibv_reg_mr(s->pd, s->buffer, 0, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	CHECK(!ibv_reg_dmabuf_mr(s->pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE) && errno == EBADF);
	/* Rights that a device may ignore are ignored. */
	struct ibv_mr *relaxed = ibv_reg_mr(s->pd, s->buffer, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(relaxed);
	CHECK_EQUAL(ibv_dereg_mr(relaxed), 0);

	/* Ports, GIDs and keys that there are not. */
	union ibv_gid gid;
	__be16 pkey;
	struct ibv_port_attr port;
	CHECK_EQUAL(ibv_query_gid(s->context, 2, 0, &gid), -1);
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 1, &gid), -1);
	CHECK_EQUAL(ibv_query_pkey(s->context, 1, 0, &pkey), 0);
	CHECK_EQUAL(pkey, 0xffff);
	CHECK_EQUAL(ibv_query_pkey(s->context, 1, 1, &pkey), -1);
	CHECK_EQUAL(ibv_query_port(s->context, 2, &port), EINVAL);

	/* What EFA does not have. */
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 1, .max_sge = 1 } };
	errno = 0;
	CHECK(!ibv_create_srq(s->pd, &srq) && errno == EOPNOTSUPP);
	CHECK_EQUAL(ibv_resize_cq(ibv_cq_ex_to_cq(s->cq), 10), EOPNOTSUPP);
	struct ibv_ece ece;
	CHECK_EQUAL(ibv_query_ece(s->qp, &ece), EOPNOTSUPP);
	CHECK_EQUAL(ibv_req_notify_cq(ibv_cq_ex_to_cq(s->cq), 1), EOPNOTSUPP);
	CHECK(!ibv_alloc_mw(s->pd, IBV_MW_TYPE_1) && errno == EOPNOTSUPP);
	CHECK_EQUAL(ibv_attach_mcast(s->qp, &gid, 0), EOPNOTSUPP);
	tear_down(s);
}

/* ---- NULL ---- */

static void nulls(void)
{
	errno = 0;
	CHECK(!ibv_open_device(NULL) && errno == EINVAL);
	errno = 0;
	CHECK(!ibv_alloc_pd(NULL) && errno == EINVAL);
	CHECK(!ibv_create_ah(NULL, NULL) && !ibv_create_qp(NULL, NULL) && !ibv_create_cq(NULL, 1, NULL, NULL, 0));
	CHECK_EQUAL(ibv_close_device(NULL), EINVAL);
	CHECK_EQUAL(ibv_dealloc_pd(NULL), EINVAL);
	CHECK_EQUAL(ibv_dereg_mr(NULL), EINVAL);
	CHECK_EQUAL(ibv_destroy_qp(NULL), EINVAL);
	CHECK_EQUAL(ibv_destroy_cq(NULL), EINVAL);
	CHECK_EQUAL(ibv_destroy_ah(NULL), EINVAL);
	CHECK_EQUAL(ibv_modify_qp(NULL, NULL, 0), EINVAL);
	CHECK_EQUAL(efadv_query_device(NULL, NULL, 0), EINVAL);
	CHECK_EQUAL(efadv_query_ah(NULL, NULL, 0), EINVAL);
	CHECK(!efadv_cq_from_ibv_cq_ex(NULL) && !ibv_qp_to_qp_ex(NULL));
	CHECK_EQUAL(ibv_get_device_guid(NULL), 0);
}

/* ---- a completion queue that is too short ---- */

static void overrun(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_cq_ex *long_cq = s->cq;
	s->cq = create_cq(s->context, 2, NULL);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	for (int i = 0; i < 8; i++)
		post_recv_at(s, i, 0, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	struct pollfd p = { .fd = s->context->async_fd, .events = POLLIN };
	CHECK_EQUAL(poll(&p, 1, 5000), 1);
	bool overrun = false;
	fcntl(s->context->async_fd, F_SETFL, O_NONBLOCK);
	for (struct ibv_async_event event; ibv_get_async_event(s->context, &event) == 0; ibv_ack_async_event(&event)) {
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			overrun = true;
			CHECK(event.element.cq == ibv_cq_ex_to_cq(s->cq));
		}
	}
	CHECK(overrun);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	s->qp = NULL;
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0);
	s->cq = long_cq;
	tear_down(s);
}

/* A setting that makes no sense: no device, and that for every caller. */
static void no_device(void)
{
	for (int i = 0; i < 2; i++) {
		int count = -1;
		errno = 0;
		CHECK(!ibv_get_device_list(&count) && errno == ENODEV);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "statuses", statuses }, { "unknown_requester", unknown_requester }, { "death", death },
		{ "unmapped", unmapped }, { "protected", protected },
		{ "refusals", refusals }, { "nulls", nulls }, { "overrun", overrun },
		{ "no_device", no_device }, { 0 },
	};
	return run_test(tests, argc, argv);
}
