/* Waiting for completions instead of polling for them. */
#include "two.h"

static void wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	CHECK_EQUAL(poll(&p, 1, 20000), 1);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, 0) == 1;
}

static void take_event(struct side *s)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	CHECK_EQUAL(ibv_get_cq_event(s->channel, &cq, &context), 0);
	CHECK(cq == ibv_cq_ex_to_cq(s->cq));
	CHECK(context == (void *)0x77 || context == NULL);
	ibv_ack_cq_events(cq, 1);
}

/* ---- ping pong of processes that sleep ---- */

#define ROUNDS 50

static void sleeper(struct side *s, bool begins)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	for (int i = 0; i < ROUNDS; i++)
		post_recv_at(s, 1, 0, 64);
	to_rts(s->qp, 7);
	introduce(s);
	int received = 0, sent = 0, completed = 0;
	if (begins)
		send_at(s, 2, 4096, 64), sent++;
	while (received < ROUNDS || completed < ROUNDS) {
		/* The way of the manual page: ask for a notification, look once more, sleep. */
		CHECK_EQUAL(ibv_req_notify_cq(ibv_cq_ex_to_cq(s->cq), 0), 0);
		struct ibv_poll_cq_attr attr = { 0 };
		int found = 0;
		if (ibv_start_poll(s->cq, &attr) == 0) {
			do {
				CHECK_EQUAL(s->cq->status, IBV_WC_SUCCESS);
				if (ibv_wc_read_opcode(s->cq) == IBV_WC_RECV) {
					received++;
					if (sent < ROUNDS)
						send_at(s, 2, 4096, 64), sent++;
				} else {
					completed++;
				}
				found++;
			} while (ibv_next_poll(s->cq) == 0);
			ibv_end_poll(s->cq);
		}
		if (found || (received == ROUNDS && completed == ROUNDS))
			continue;
		wait_readable(s->channel->fd);
		take_event(s);
	}
	meet(s);
	/* What was asked for and has not come goes with the queue. */
	tear_down(s);
}

static void sleeper_here(struct side *s)
{
	sleeper(s, true);
}

static void sleeper_there(struct side *s)
{
	sleeper(s, false);
}

static void sleepers(void)
{
	two_processes(sleeper_here, sleeper_there);
}

/* ---- the rules, on one's own: completions are made by flushing receives ---- */

static struct ibv_qp *fresh(struct side *s)
{
	struct ibv_qp *qp = create_srd(s, 0);
	to_init(qp);
	s->qp = qp;
	return qp;
}

static void complete_some(struct side *s, int count)
{
	for (int i = 0; i < count; i++)
		post_recv_at(s, i, 0, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

static void *acknowledge_later(void *cq)
{
	usleep(50000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void rules(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(s->cq);
	int fd = s->channel->fd;
	CHECK_EQUAL(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
	struct ibv_cq *got;
	void *context;

	/* Nothing waits, and the descriptor does not block. */
	CHECK(!readable(fd));
	CHECK_EQUAL(ibv_get_cq_event(s->channel, &got, &context), -1);
	CHECK_EQUAL(errno, EAGAIN);

	/* Without asking there is no event. */
	struct ibv_qp *qp = fresh(s);
	complete_some(s, 3);
	CHECK(!readable(fd));
	for (int i = 0; i < 3; i++)
		expect(next(s), i, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);

	/* Asked for once, several completions make one. */
	qp = fresh(s);
	CHECK_EQUAL(ibv_req_notify_cq(cq, 0), 0);
	CHECK(!readable(fd));
	complete_some(s, 3);
	wait_readable(fd);
	CHECK_EQUAL(ibv_get_cq_event(s->channel, &got, &context), 0);
	CHECK(got == cq && context == (void *)0x77);
	CHECK(!readable(fd));

	/* Who has not seen all of what is there hears of it again: we may have taken it from the device already. */
	expect(next(s), 0, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK_EQUAL(ibv_req_notify_cq(cq, 0), 0);
	if (readable(fd)) {
		CHECK_EQUAL(ibv_get_cq_event(s->channel, &got, &context), 0);
		ibv_ack_cq_events(cq, 1);
	}
	expect(next(s), 1, IBV_WC_WR_FLUSH_ERR, 0);
	expect(next(s), 2, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);

	/* Destroying the queue waits for the acknowledgement of the event that was taken... */
	pthread_t thread;
	double start = now();
	CHECK_EQUAL(pthread_create(&thread, NULL, acknowledge_later, cq), 0);
	CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	CHECK(now() - start > 0.04);
	pthread_join(thread, NULL);

	/* ...and takes back the one that was not. */
	s->cq = create_cq(s->context, 16, s->channel);
	qp = fresh(s);
	CHECK_EQUAL(ibv_req_notify_cq(ibv_cq_ex_to_cq(s->cq), 0), 0);
	complete_some(s, 1);
	wait_readable(fd);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0);
	CHECK(!readable(fd));

	s->cq = create_cq(s->context, 16, s->channel);
	s->qp = NULL;
	tear_down(s);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = { { "sleepers", sleepers }, { "rules", rules }, { 0 } };
	return run_test(tests, argc, argv);
}
