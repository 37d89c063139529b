/* Messages to and fro between two SRD queue pairs of one process, polled by one thread: post, post, poll, poll.
 *
 *   verbs LENGTH...     what is longer than a message of the device goes by RDMA writes
 */
#include "../../crates/srd-verbs/tests/c/two.h"

#define WARM_UP 300
#define MESSAGES 600
#define ROOM (1 << 20)

struct end {
	struct side side;
	struct end *other;
	uint32_t longest;
};

/* Takes what has completed: how many requests of that number were among it. */
static int complete(struct end *end, uint64_t wr_id)
{
	struct ibv_wc done[8];
	int count = ibv_poll_cq(ibv_cq_ex_to_cq(end->side.cq), 8, done), found = 0;
	CHECK(count >= 0);
	for (int i = 0; i < count; i++) {
		CHECK_EQUAL(done[i].status, IBV_WC_SUCCESS);
		found += done[i].wr_id == wr_id;
	}
	return found;
}

static void post_send(struct end *end, size_t at, uint32_t len, bool write)
{
	struct side *s = &end->side, *peer = &end->other->side;
	ibv_wr_start(s->qpx);
	s->qpx->wr_id = 2;
	s->qpx->wr_flags = IBV_SEND_SIGNALED;
	if (write)
		ibv_wr_rdma_write(s->qpx, peer->mr->rkey, (uintptr_t)peer->buffer + ROOM + at);
	else
		ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer + at, len);
	ibv_wr_set_ud_addr(s->qpx, s->ah, peer->qp->qp_num, QKEY);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
}

static void post_receive(struct end *end, uint32_t len)
{
	struct side *s = &end->side;
	struct ibv_sge piece = { .addr = (uintptr_t)s->buffer + ROOM, .length = len, .lkey = s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &piece, .num_sge = 1 }, *bad;
	CHECK_EQUAL(ibv_post_recv(s->qp, &wr, &bad), 0);
}

/* A message until its receive, or its writes, have completed. */
static __attribute__((noinline)) void one_message(struct end *from, struct end *to, size_t len)
{
	bool write = len > from->longest;
	int missing = 0;
	if (!write)
		post_receive(to, len);
	for (size_t at = 0; at < len; at += from->longest, missing++)
		post_send(from, at, len - at < from->longest ? len - at : from->longest, write);
	while (missing > 0) {
		missing -= complete(write ? from : to, write ? 2 : 1);
		if (missing > 0)
			complete(write ? to : from, 0);
	}
}

static __attribute__((noinline)) void idle_poll(struct end *end)
{
	complete(end, 0);
}

static __attribute__((noinline)) void next_length(size_t len)
{
	__asm__ volatile("" : : "r"(len) : "memory");
}

int main(int argc, char **argv)
{
	struct end ends[2] = { { .other = &ends[1] }, { .other = &ends[0] } };
	union ibv_gid gid;
	for (int i = 0; i < 2; i++) {
		struct side *s = &ends[i].side;
		set_up(s);
		s->qp = create_srd(s, 0);
		s->qpx = ibv_qp_to_qp_ex(s->qp);
		to_init(s->qp);
		to_rts(s->qp, 7);
		CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &gid), 0);
		s->ah = create_ah(s, &gid);
		struct ibv_port_attr port;
		CHECK_EQUAL(ibv_query_port(s->context, 1, &port), 0);
		ends[i].longest = port.max_msg_sz & ~63u;
	}
	for (int i = 1; i < argc; i++) {
		size_t len = strtoul(argv[i], NULL, 10);
		CHECK(len > 0 && len <= ROOM);
		for (int message = 0; message < MESSAGES; message++) {
			if (message == WARM_UP)
				next_length(len);
			one_message(&ends[message % 2], &ends[1 - message % 2], len);
		}
		next_length(0);
	}
	usleep(2000);
	for (int poll = 0; poll < 600; poll++) {
		if (poll == 300)
			next_length(0);
		idle_poll(&ends[0]);
	}
	next_length(0);
	fflush(stdout);
	_exit(0);
}
