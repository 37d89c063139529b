/* A panic inside the device, on purpose (SRD_FAULT). The device is gone then, and says so in every way that verbs have. */
#include "two.h"

#define RECEIVES 8

/* A queue pair that sends to itself. */
static void be_alone(struct side *s)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	to_rts(s->qp, 7);
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &s->peer.gid), 0);
	s->peer.qpn = s->qp->qp_num;
	s->peer.qkey = QKEY;
	s->ah = create_ah(s, &s->peer.gid);
	for (int i = 0; i < RECEIVES; i++)
		post_recv_at(s, i, 0, 64);
}

/* Which of the receives, and of one send, have ended, and how. */
static bool ended[RECEIVES + 1];
static int count, flushed;

static void note(uint64_t wr_id, int status)
{
	CHECK(wr_id <= RECEIVES && !ended[wr_id]);
	ended[wr_id] = true;
	count++;
	if (status != IBV_WC_SUCCESS) {
		CHECK_EQUAL(status, IBV_WC_WR_FLUSH_ERR);
		flushed++;
	}
}

/* What was posted has an end each, and what nobody knows the outcome of has failed. Then there is nothing any more. */
static void everything_ends(struct side *s)
{
	double end = now() + PATIENCE_S;
	while (count < RECEIVES + 1) {
		struct ibv_wc wc[4];
		int n = ibv_poll_cq(ibv_cq_ex_to_cq(s->cq), 4, wc);
		CHECK(now() < end);
		for (int i = 0; i < n; i++)
			note(wc[i].wr_id, wc[i].status);
	}
	CHECK(flushed >= RECEIVES - 1);
	struct ibv_wc wc;
	struct ibv_poll_cq_attr attr = { 0 };
	for (int i = 0; i < 3; i++) {
		CHECK_EQUAL(ibv_poll_cq(ibv_cq_ex_to_cq(s->cq), 1, &wc), -EIO);
		CHECK_EQUAL(ibv_start_poll(s->cq, &attr), EIO);
	}
}

static void nothing_begins(struct side *s)
{
	struct ibv_sge sge = { .addr = (uintptr_t)s->buffer, .length = 64, .lkey = s->mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	CHECK_EQUAL(ibv_post_recv(s->qp, &recv, &bad_recv), EIO);
	CHECK(bad_recv == &recv);
	for (int i = 0; i < 2; i++) { /* the second one finds the builder unlocked */
		begin_wr(s, 100);
		ibv_wr_send(s->qpx);
		ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, 64);
		set_peer(s);
		CHECK_EQUAL(ibv_wr_complete(s->qpx), EIO);
	}
	CHECK_EQUAL(ibv_req_notify_cq(ibv_cq_ex_to_cq(s->cq), 0), EIO);
	CHECK(!ibv_alloc_pd(s->context));
	CHECK_EQUAL(errno, EIO);
	struct ibv_context *another = open_device();
	CHECK(!ibv_alloc_pd(another));
	CHECK_EQUAL(ibv_close_device(another), 0);
}

static void is_told(struct side *s)
{
	struct ibv_async_event event;
	CHECK_EQUAL(ibv_get_async_event(s->context, &event), 0);
	CHECK_EQUAL(event.event_type, IBV_EVENT_DEVICE_FATAL);
	ibv_ack_async_event(&event);
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	CHECK_EQUAL(ibv_get_cq_event(s->channel, &cq, &context), 0);
	CHECK(cq == ibv_cq_ex_to_cq(s->cq));
	ibv_ack_cq_events(cq, 1);
}

/* The call after the first packet has left fails. */
static void call(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s);
	send_at(s, RECEIVES, 4096, 64);
	struct ibv_poll_cq_attr attr = { 0 };
	int result;
	do {
		result = ibv_start_poll(s->cq, &attr);
		CHECK(result == ENOENT || result == EIO || result == 0);
		if (result == 0) { /* it had arrived before */
			note(s->cq->wr_id, s->cq->status);
			ibv_end_poll(s->cq);
		}
	} while (result != EIO);
	is_told(s);
	everything_ends(s);
	nothing_begins(s);
	tear_down(s);
}

/* The same in a call that posts. Nobody knows how far it came: it fails, and so may what it has posted. */
static void post(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s);
	send_at(s, RECEIVES, 4096, 64);
	struct ibv_sge sge = { .addr = (uintptr_t)s->buffer, .length = 64, .lkey = s->mr->lkey };
	begin_wr(s, RECEIVES + 1);
	ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, sge.lkey, sge.addr, 64);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), EIO);
	is_told(s);
	nothing_begins(s);
	tear_down(s);
}

static void *wait_for_event(void *side)
{
	is_told(side);
	return NULL;
}

/* The progress thread fails while the program sleeps. */
static void thread(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s);
	pthread_t waiter;
	CHECK_EQUAL(pthread_create(&waiter, NULL, wait_for_event, s), 0);
	send_at(s, RECEIVES, 4096, 64);
	CHECK_EQUAL(pthread_join(waiter, NULL), 0);
	everything_ends(s);
	nothing_begins(s);
	tear_down(s);
}

/* The device is reset with the first request that is posted to it (SRD_FAULT=reset=1). It is gone for who has it open; who opens it
 * anew has it again, though the first has not let go of it, and is not reset. */
static void reset(void)
{
	struct side first = { 0 }, second = { 0 };
	be_alone(&first);
	send_at(&first, RECEIVES, 4096, 64);
	is_told(&first);
	everything_ends(&first);
	CHECK(!ibv_alloc_pd(first.context));
	CHECK_EQUAL(errno, EIO);
	be_alone(&second);
	for (int i = 0; i < RECEIVES; i++) {
		send_at(&second, RECEIVES, 4096, 64);
		for (int j = 0; j < 2; j++)
			CHECK_EQUAL(next(&second).status, IBV_WC_SUCCESS);
	}
	tear_down(&first);
	tear_down(&second);
}

static void expect_end(struct side *s, uint64_t wr_id, int status, unsigned vendor_err)
{
	struct done d = next(s);
	expect(d, wr_id, status, IBV_WC_SEND);
	CHECK_EQUAL(d.vendor_err, vendor_err);
}

/* SRD_FAULT=fail=13@1,stale=3: the first request fails; the address handle of the third is stale until there is another. */
static void staged(void)
{
	struct side side = { 0 }, *s = &side;
	be_alone(s);
	send_at(s, 100, 4096, 64);
	expect_end(s, 100, IBV_WC_RESP_TIMEOUT_ERR, 13);
	send_at(s, 101, 4096, 64);
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(next(s).status, IBV_WC_SUCCESS);
	for (int i = 102; i < 104; i++) {
		send_at(s, i, 4096, 64);
		expect_end(s, i, IBV_WC_LOC_QP_OP_ERR, 4);
	}
	struct ibv_ah *second = create_ah(s, &s->peer.gid); /* has the same number */
	CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	s->ah = second;
	send_at(s, 104, 4096, 64);
	expect_end(s, 104, IBV_WC_LOC_QP_OP_ERR, 4);
	CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	s->ah = create_ah(s, &s->peer.gid);
	send_at(s, 105, 4096, 64);
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(next(s).status, IBV_WC_SUCCESS);
	CHECK_EQUAL(s->qp->state, IBV_QPS_RTS);
	tear_down(s);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "call", call },
		{ "post", post },
		{ "thread", thread },
		{ "reset", reset },
		{ "staged", staged },
		{ 0 },
	};
	return run_test(tests, argc, argv);
}
