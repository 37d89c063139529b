/* What is refused if SRD_EFA_STRICT is set, and taken if not. Each test runs both ways, with `strict` as it is set. */
#define _GNU_SOURCE
#include "two.h"
#include <dlfcn.h>

static bool strict;

/* A queue pair that sends to itself. */
static void be_alone(struct side *s, int rnr_retry)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	to_rts(s->qp, rnr_retry);
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &s->peer.gid), 0);
	s->peer.qpn = s->qp->qp_num;
	s->peer.qkey = QKEY;
	s->ah = create_ah(s, &s->peer.gid);
}

/* An error number, or 0, of a call that makes something. */
static int made(void *object)
{
	return object ? 0 : errno;
}

static void regions(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_mr *mr = ibv_reg_mr_iova(s->pd, s->buffer + 64, 4096, 0, IBV_ACCESS_LOCAL_WRITE);
	CHECK_EQUAL(made(mr), strict ? EINVAL : 0);
	if (mr)
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr_iova(s->pd, s->buffer + 64, 4096, (7 << 20) + 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(s->mr->lkey >> 24 == 0, strict);
	CHECK_EQUAL(s->mr->lkey != s->mr->rkey, strict);
	tear_down(s);
}

static void handles(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_ah_attr right = { .is_global = 1, .port_num = 1 }, wrong[2];
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &right.grh.dgid), 0);
	wrong[0] = wrong[1] = right;
	wrong[0].is_global = 0;
	wrong[1].grh.sgid_index = 3;
	for (int i = 0; i < 2; i++) {
		struct ibv_ah *ah = ibv_create_ah(s->pd, &wrong[i]);
		CHECK_EQUAL(made(ah), strict ? EINVAL : 0);
		if (ah)
			CHECK_EQUAL(ibv_destroy_ah(ah), 0);
	}
	s->ah = ibv_create_ah(s->pd, &right);
	CHECK(s->ah);
	tear_down(s);
}

static void queue_pairs(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	s->qp = create_srd(s, 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x80000001 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, mask), strict ? EPERM : 0);

	/* Entries for inline writes are twice as long. */
	struct {
		uint64_t comp_mask;
		uint32_t flags, max_send_sge, max_rdma_sge, max_inline_data;
	} depth = { .flags = 1 };
	int (*max_depth)(struct ibv_context *, void *, uint32_t);
	*(void **)&max_depth = dlsym(RTLD_DEFAULT, "efadv_get_max_sq_depth");
	CHECK(max_depth);
	int most = max_depth(s->context, &depth, sizeof(depth));
	depth.flags = 0;
	int all = max_depth(s->context, &depth, sizeof(depth));
	CHECK_EQUAL(most, strict ? all / 2 : all);
	for (int flags = 0; flags <= 2; flags += 2) {
		struct ibv_qp_init_attr_ex init = {
			.qp_type = IBV_QPT_DRIVER,
			.send_cq = ibv_cq_ex_to_cq(s->cq),
			.recv_cq = ibv_cq_ex_to_cq(s->cq),
			.cap = { .max_send_wr = all, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
			.comp_mask = IBV_QP_INIT_ATTR_PD,
			.pd = s->pd,
		};
		struct qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD, .flags = flags /* INLINE_WRITE */ };
		struct ibv_qp *qp = efadv_create_qp_ex(s->context, &init, (void *)&efa, sizeof(efa));
		CHECK_EQUAL(made(qp), strict && flags ? EINVAL : 0);
		if (qp)
			CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	}
	tear_down(s);
}

/* One request of 64 bytes to itself with these keys. */
static struct done with_keys(struct side *s, int op, uint32_t lkey, uint32_t rkey)
{
	begin_wr(s, 1);
	if (op == IBV_WR_SEND)
		ibv_wr_send(s->qpx);
	else if (op == IBV_WR_RDMA_READ)
		ibv_wr_rdma_read(s->qpx, rkey, (uintptr_t)s->buffer);
	else
		ibv_wr_rdma_write(s->qpx, rkey, (uintptr_t)s->buffer);
	ibv_wr_set_sge(s->qpx, lkey, (uintptr_t)s->buffer + 4096, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	return next(s);
}

static void keys(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s, 7);
	uint32_t lkey = s->mr->lkey, rkey = s->mr->rkey;
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_READ, lkey, rkey).vendor_err, 0);
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_READ, rkey, rkey).vendor_err, strict ? 5 : 0);
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_WRITE, lkey, lkey).vendor_err, strict ? 7 : 0);
	struct ibv_sge sge = { .addr = (uintptr_t)s->buffer, .length = 64, .lkey = rkey };
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	CHECK_EQUAL(ibv_post_recv(s->qp, &recv, &bad), 0);
	if (strict)
		post_recv_at(s, 3, 0, 64);
	struct ibv_sge from = { .addr = (uintptr_t)s->buffer, .length = 64, .lkey = lkey };
	struct ibv_send_wr send = { .wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad_send = NULL;
	send.wr.ud.ah = s->ah;
	send.wr.ud.remote_qpn = s->peer.qpn;
	send.wr.ud.remote_qkey = QKEY;
	CHECK_EQUAL(ibv_post_send(s->qp, &send, &bad_send), 0);
	int failed = 0;
	for (int i = 0; i < (strict ? 3 : 2); i++) {
		struct done d = next(s);
		failed += d.vendor_err == 5 && d.wr_id == 2;
		CHECK(d.vendor_err == 0 || d.wr_id == 2);
	}
	CHECK_EQUAL(failed, strict);
	tear_down(s);
}

/* Access rights are looked at whether it is set or not. */
static void rights(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s, 7);
	struct ibv_mr *none = ibv_reg_mr(s->pd, s->buffer, BUFFER, 0), *all = s->mr;
	CHECK(none);
	/* Neither what a read brings nor what a peer sends goes to memory without LOCAL_WRITE; it may be sent and written from. */
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_READ, none->lkey, all->rkey).vendor_err, 5);
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_WRITE, none->lkey, all->rkey).vendor_err, 0);
	/* Peers need rights of their own. */
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_READ, all->lkey, none->rkey).vendor_err, 7);
	CHECK_EQUAL(with_keys(s, IBV_WR_RDMA_WRITE, all->lkey, none->rkey).vendor_err, 7);
	s->mr = none;
	post_recv_at(s, 2, 0, 64);
	s->mr = all;
	post_recv_at(s, 3, 0, 64);
	begin_wr(s, 1);
	ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, none->lkey, (uintptr_t)s->buffer, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	for (int i = 0; i < 3; i++) {
		struct done d = next(s);
		CHECK_EQUAL(d.vendor_err, d.wr_id == 2 ? 5 : 0);
	}
	CHECK_EQUAL(ibv_dereg_mr(none), 0);
	tear_down(s);
}

static int try_send(struct side *s)
{
	begin_wr(s, 1);
	ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, 64);
	set_peer(s);
	return ibv_wr_complete(s->qpx);
}

/* A slot of the send queue is free when its completion has been polled, one by one. */
static void slots(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s, 0);
	for (int i = 0; i < DEPTH; i++)
		CHECK_EQUAL(try_send(s), 0);
	CHECK_EQUAL(try_send(s), ENOMEM);
	/* No receive: all of them complete soon, and then the queue is drained. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr init;
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	double end = now() + PATIENCE_S;
	do {
		CHECK(now() < end);
		CHECK_EQUAL(ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init), 0);
		usleep(1000);
	} while (attr.sq_draining);
	CHECK_EQUAL(try_send(s), ENOMEM);
	CHECK_EQUAL(next(s).vendor_err, 10);
	CHECK_EQUAL(try_send(s), 0);
	CHECK_EQUAL(try_send(s), strict ? ENOMEM : 0);
	tear_down(s);
}

/* Where nobody has posted a receive a message is refused again and again; counted by the caller. */
static void retries(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s, 2);
	CHECK_EQUAL(try_send(s), 0);
	CHECK_EQUAL(next(s).vendor_err, 10);
	tear_down(s);
}

/* SRD_EFA_LOOPBACK=off: what goes to the device's own address never completes. */
static void no_loopback(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s, 7);
	post_recv_at(s, 2, 0, 64);
	CHECK_EQUAL(try_send(s), 0);
	CHECK(quiet(s, 0.3));
	CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	s->ah = NULL;
	CHECK_EQUAL(next(s).vendor_err, 1);
	CHECK(quiet(s, 0.05));
	tear_down(s);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "regions", regions }, { "handles", handles }, { "queue_pairs", queue_pairs }, { "keys", keys },
		{ "rights", rights },	{ "slots", slots },	{ "retries", retries },	      { "no_loopback", no_loopback },
		{ 0 },
	};
	const char *set = getenv("SRD_EFA_STRICT");
	strict = set && strcmp(set, "1") == 0;
	return run_test(tests, argc, argv);
}
