/* The device's queues, written and read by the program itself as libfabric's direct data path does. Offsets are those of
 * rdma-core's providers/efa/efa_io_defs.h. */
#include "comp_cntr.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* Of newer headers. */
struct wq_attr {
	uint64_t comp_mask;
	uint8_t *buffer;
	uint32_t entry_size, num_entries;
	uint32_t *doorbell;
	uint32_t max_batch;
	uint16_t caps;
	uint8_t reserved[2];
};
struct cq_attr {
	uint64_t comp_mask;
	uint8_t *buffer;
	uint32_t entry_size, num_entries;
	uint32_t *doorbell;
};
int efadv_query_qp_wqs(struct ibv_qp *, struct wq_attr *sq, struct wq_attr *rq, uint32_t len);
int efadv_query_cq(struct ibv_cq *, struct cq_attr *, uint32_t len);

struct queues {
	struct wq_attr sq, rq;
	struct cq_attr cq;
	uint16_t sent, received;
	uint32_t consumed;
	uint16_t ahn;
};

static bool is_strict(void)
{
	const char *set = getenv("SRD_EFA_STRICT");
	return set && strcmp(set, "1") == 0;
}

static struct queues map(struct side *s)
{
	struct queues q = { 0 };
	CHECK_EQUAL(efadv_query_cq(ibv_cq_ex_to_cq(s->cq), &q.cq, sizeof(q.cq)), 0);
	CHECK_EQUAL(efadv_query_qp_wqs(s->qp, &q.sq, &q.rq, sizeof(q.sq)), 0);
	CHECK(q.sq.buffer && q.rq.buffer && q.cq.buffer && q.sq.doorbell && q.rq.doorbell && q.cq.doorbell);
	CHECK_EQUAL(q.sq.entry_size, 64);
	CHECK_EQUAL(q.sq.num_entries, DEPTH);
	CHECK_EQUAL(q.sq.caps, 1);
	CHECK_EQUAL(q.sq.max_batch, is_strict() ? 16 : DEPTH);
	CHECK_EQUAL(q.rq.entry_size, 16);
	CHECK_EQUAL(q.rq.num_entries, 2 * DEPTH); /* a descriptor for each element */
	CHECK_EQUAL(q.cq.entry_size, 32);
	CHECK_EQUAL(q.cq.num_entries, 1024);
	struct efadv_ah_attr ah;
	if (s->ah) {
		CHECK_EQUAL(efadv_query_ah(s->ah, &ah, sizeof(ah)), 0);
		q.ahn = ah.ahn;
	}
	return q;
}

enum { OP_SEND, OP_READ, OP_WRITE };
#define META 0x80
#define INLINE 0x20
#define HAS_IMM 0x10

static uint8_t *begin_entry(struct side *s, struct queues *q, uint64_t request, uint8_t ctrl1)
{
	uint8_t *e = q->sq.buffer + (q->sent & (q->sq.num_entries - 1)) * 64;
	uint16_t qpn = s->peer.qpn, low = request;
	uint64_t high = request >> 16;
	memset(e, 0, 64);
	memcpy(e, &low, 2);
	e[2] = META | ctrl1;
	e[3] = (q->sent / q->sq.num_entries & 1) | 0x1c; /* phase, first, last, completion */
	memcpy(e + 4, &qpn, 2);
	memcpy(e + 12, &q->ahn, 2);
	memcpy(e + 16, &s->peer.qkey, 4);
	memcpy(e + 26, &high, 6);
	q->sent++;
	return e;
}

static void element(struct side *s, uint8_t *at, size_t offset, uint32_t len)
{
	uint64_t addr = (uintptr_t)s->buffer + offset;
	uint32_t lkey = s->mr->lkey & 0xffffff;
	memcpy(at, &len, 4);
	memcpy(at + 4, &lkey, 4);
	memcpy(at + 8, &addr, 8);
}

static void elements(struct side *s, struct queues *q, uint64_t request, const size_t *offsets, const uint32_t *lens, int n)
{
	uint8_t *e = begin_entry(s, q, request, OP_SEND);
	e[6] = n;
	for (int i = 0; i < n; i++)
		element(s, e + 32 + 16 * i, offsets[i], lens[i]);
}

static void rdma_entry(struct side *s, struct queues *q, uint64_t request, int op, uint32_t imm, size_t here, size_t there, uint32_t len)
{
	uint8_t *e = begin_entry(s, q, request, op | (imm ? HAS_IMM : 0));
	uint64_t addr = s->peer.buffer + there;
	e[6] = 1;
	memcpy(e + 8, &imm, 4);
	memcpy(e + 32, &len, 4);
	memcpy(e + 36, &s->peer.rkey, 4);
	memcpy(e + 40, &addr, 8);
	element(s, e + 48, here, len);
}

static void ring(uint32_t *doorbell, uint16_t count)
{
	__atomic_store_n(doorbell, count, __ATOMIC_RELEASE);
}

static void receive(struct side *s, struct queues *q, uint16_t request, size_t offset, uint16_t len, int parts)
{
	for (int i = 0; i < parts; i++) {
		uint8_t *e = q->rq.buffer + (q->received & (q->rq.num_entries - 1)) * 16;
		uint16_t part = i + 1 < parts ? len / parts : len - len / parts * (parts - 1);
		uint64_t addr = (uintptr_t)s->buffer + offset + len / parts * i;
		uint32_t ctrl = (s->mr->lkey & 0xffffff) | (i == 0) << 30 | (uint32_t)(i + 1 == parts) << 31;
		memcpy(e, &addr, 8);
		memcpy(e + 8, &request, 2);
		memcpy(e + 10, &part, 2);
		memcpy(e + 12, &ctrl, 4);
		q->received++;
	}
}

/* Takes the next entry if it is there. */
static bool consume(struct queues *q, uint8_t out[32])
{
	uint8_t *e = q->cq.buffer + (q->consumed & (q->cq.num_entries - 1)) * 32;
	int phase = 1 ^ (q->consumed / q->cq.num_entries & 1);
	if ((__atomic_load_n(e + 3, __ATOMIC_ACQUIRE) & 1) != phase)
		return false;
	memcpy(out, e, 32);
	q->consumed++;
	/* libfabric rings here only where it stops before the queue is empty: sometimes, or at the beginning and never again. */
	if (q->consumed < 100)
		ring(q->cq.doorbell, q->consumed);
	return true;
}

struct entry {
	uint64_t request;
	uint8_t status, queue, op;
	bool has_imm, unsolicited;
	uint16_t qpn, src_qp, ah;
	uint32_t len, imm;
};

static struct entry next_entry(struct queues *q)
{
	uint8_t e[32];
	double end = now() + PATIENCE_S;
	while (!consume(q, e)) {
		CHECK(now() < end); /* no completion */
		sched_yield();
	}
	struct entry d = { .status = e[2], .queue = e[3] >> 1 & 3, .op = e[3] >> 4 & 7, .has_imm = e[3] >> 3 & 1, .unsolicited = e[3] >> 7 };
	memcpy(&d.qpn, e + 4, 2);
	memcpy(&d.request, e, 2);
	if (d.queue == 1) {
		uint64_t high = 0;
		memcpy(&high, e + 6, 6);
		d.request |= high << 16;
	} else {
		uint16_t low, high = 0;
		memcpy(&low, e + 6, 2);
		if (d.op == OP_WRITE)
			memcpy(&high, e + 16, 2);
		d.len = low | (uint32_t)high << 16;
		memcpy(&d.ah, e + 8, 2);
		memcpy(&d.src_qp, e + 10, 2);
		memcpy(&d.imm, e + 12, 4);
	}
	return d;
}

static void expect_sent(struct queues *q, uint64_t request, int op, int status)
{
	struct entry d = next_entry(q);
	CHECK_EQUAL(d.request, request);
	CHECK_EQUAL(d.queue, 1);
	CHECK_EQUAL(d.op, op);
	CHECK_EQUAL(d.status, status);
}

/* ---- every operation ---- */

#define AT_PEER 500000
#define WIDE 0xfedcba9876543210ull

static void operations_here(struct side *s)
{
	connect_srd(s, UNSOLICITED_WRITE_RECV, 7);
	struct queues q = map(s);
	fill(s->buffer, 100000, 3);
	meet(s);
	/* Two elements, then inline data, by one doorbell. */
	elements(s, &q, WIDE, (size_t[]){ 0, 2000 }, (uint32_t[]){ 1000, 500 }, 2);
	uint8_t *e = begin_entry(s, &q, 2, OP_SEND | INLINE | HAS_IMM);
	uint32_t imm = 0xabcd0123;
	e[6] = 11;
	memcpy(e + 8, &imm, 4);
	memcpy(e + 32, "hello there", 11);
	ring(q.sq.doorbell, q.sent);
	uint64_t seen[2] = { next_entry(&q).request, next_entry(&q).request };
	CHECK((seen[0] == WIDE && seen[1] == 2) || (seen[0] == 2 && seen[1] == WIDE));
	/* A write, one with immediate data, and a read of what they have written. */
	rdma_entry(s, &q, 3, OP_WRITE, 0, 0, AT_PEER, 70000);
	ring(q.sq.doorbell, q.sent);
	expect_sent(&q, 3, OP_WRITE, 0);
	rdma_entry(s, &q, 4, OP_WRITE, 0x77, 70000, AT_PEER + 70000, 30000);
	ring(q.sq.doorbell, q.sent);
	expect_sent(&q, 4, OP_WRITE, 0);
	rdma_entry(s, &q, 5, OP_READ, 0, 200000, AT_PEER, 100000);
	ring(q.sq.doorbell, q.sent);
	expect_sent(&q, 5, OP_READ, 0);
	check_fill(s->buffer + 200000, 100000, 3);
	/* What a peer refuses. */
	rdma_entry(s, &q, 6, OP_WRITE, 0, 0, BUFFER - 10, 11);
	ring(q.sq.doorbell, q.sent);
	expect_sent(&q, 6, OP_WRITE, 7);
	meet(s);
	tear_down(s);
}

static void operations_there(struct side *s)
{
	connect_srd(s, UNSOLICITED_WRITE_RECV, 7);
	struct queues q = map(s);
	receive(s, &q, 40, 0, 3000, 2);
	receive(s, &q, 41, 4000, 3000, 1);
	ring(q.rq.doorbell, q.received);
	meet(s);
	for (int i = 0; i < 2; i++) {
		struct entry d = next_entry(&q);
		uint8_t *at = s->buffer + (d.request == 40 ? 0 : 4000);
		CHECK(d.request == 40 || d.request == 41);
		CHECK_EQUAL(d.queue, 2);
		CHECK_EQUAL(d.status, 0);
		CHECK_EQUAL(d.qpn, s->qp->qp_num);
		CHECK_EQUAL(d.src_qp, s->peer.qpn);
		CHECK_EQUAL(d.ah, q.ahn);
		if (d.has_imm) {
			CHECK_EQUAL(d.imm, 0xabcd0123);
			CHECK_EQUAL(d.len, 11);
			CHECK(memcmp(at, "hello there", 11) == 0);
		} else {
			CHECK_EQUAL(d.len, 1500);
			check_fill(at, 1000, 3);
		}
	}
	struct entry d = next_entry(&q);
	CHECK(d.unsolicited && d.has_imm);
	CHECK_EQUAL(d.op, OP_WRITE);
	CHECK_EQUAL(d.imm, 0x77);
	CHECK_EQUAL(d.len, 30000);
	check_fill(s->buffer + AT_PEER, 100000, 3);
	meet(s);
	tear_down(s);
}

static void operations(void)
{
	two_processes(operations_here, operations_there);
}

/* ---- messages both ways, across wrap-arounds of all queues, each checked ---- */

static uint32_t mix(uint32_t n)
{
	return n * 2654435761u ^ n >> 7;
}

static void flow(struct side *s)
{
	const char *wanted = getenv("MESSAGES");
	uint32_t many = wanted ? atoi(wanted) : 20000, room = 64;
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	uint8_t *seen = calloc(many, 1);
	for (uint32_t i = 0; i < room; i++)
		receive(s, &q, i, i * 256, 256, 1 + i % 2);
	ring(q.rq.doorbell, q.received);
	meet(s);
	uint32_t sent = 0, done = 0, got = 0;
	double end = now() + 600;
	while (done < many || got < many) {
		CHECK(now() < end);
		uint32_t before = sent;
		for (; sent < many && sent - done < room; sent++) {
			if (sent != before && (sent - before) % q.sq.max_batch == 0)
				ring(q.sq.doorbell, q.sent);
			uint32_t words[8] = { sent, mix(sent) };
			uint8_t *e = begin_entry(s, &q, sent, OP_SEND | INLINE);
			for (int i = 2; i < 8; i++)
				words[i] = mix(words[i - 1]);
			e[6] = 8 + sent % 7 * 4;
			memcpy(e + 32, words, 32);
		}
		if (sent != before)
			ring(q.sq.doorbell, q.sent);
		uint8_t e[32];
		bool any = false, posted = false;
		while (consume(&q, e)) {
			any = true;
			CHECK_EQUAL(e[2], 0);
			if ((e[3] >> 1 & 3) == 1) {
				done++;
				continue;
			}
			uint16_t request, len;
			uint32_t words[8];
			memcpy(&request, e, 2);
			memcpy(&len, e + 6, 2);
			CHECK(request < room);
			memcpy(words, s->buffer + request * 256, sizeof(words));
			CHECK(words[0] < many && !seen[words[0]]);
			seen[words[0]] = 1;
			CHECK_EQUAL(len, 8 + words[0] % 7 * 4);
			CHECK_EQUAL(words[1], mix(words[0]));
			for (int i = 2; i < len / 4; i++)
				CHECK_EQUAL(words[i], mix(words[i - 1]));
			got++;
			receive(s, &q, request, request * 256, 256, 1 + got % 2);
			posted = true;
		}
		if (posted)
			ring(q.rq.doorbell, q.received);
		if (!any)
			sched_yield();
	}
	meet(s);
	free(seen);
	tear_down(s);
}

static void flows(void)
{
	two_processes(flow, flow);
}

/* ---- rubbish ---- */

static bool back;

static void rubbish_here(struct side *s)
{
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	/* Entries of which each is wrong in a way of its own complete with what EFA says of it. */
	uint8_t *e = begin_entry(s, &q, 1, OP_SEND);
	memset(e + 2, 0xff, 62);
	e = begin_entry(s, &q, 2, 9);
	elements(s, &q, 3, (size_t[]){ BUFFER - 1 }, (uint32_t[]){ 2 }, 1);
	q.ahn += 1000;
	elements(s, &q, 4, (size_t[]){ 0 }, (uint32_t[]){ 8 }, 1);
	q.ahn -= 1000;
	elements(s, &q, 5, (size_t[]){ 0, 0 }, (uint32_t[]){ 8, 1 << 20 }, 2);
	e = begin_entry(s, &q, 6, OP_SEND);
	e[3] ^= 1; /* of another round */
	ring(q.sq.doorbell, q.sent);
	int statuses[7] = { 0 };
	for (int i = 0; i < 6; i++) {
		struct entry d = next_entry(&q);
		CHECK((d.request & 0xffff) >= 1 && (d.request & 0xffff) <= 6);
		statuses[d.request & 0xffff] = d.status;
	}
	static const int expected[7] = { 0, 2, 3, 5, 4, 6, 2 };
	for (int i = 1; i < 7; i++)
		CHECK_EQUAL(statuses[i], expected[i]);
	/* A receive without end, and one without beginning. */
	receive(s, &q, 7, 0, 100, 1);
	q.rq.buffer[15] &= 0x7f;
	ring(q.rq.doorbell, q.received);
	struct entry d = next_entry(&q);
	CHECK_EQUAL(d.request, 7);
	CHECK_EQUAL(d.queue, 2);
	CHECK_EQUAL(d.status, 2);
	/* The queue pair still works. */
	meet(s);
	e = begin_entry(s, &q, 8, OP_SEND | INLINE);
	e[6] = 4;
	ring(q.sq.doorbell, q.sent);
	expect_sent(&q, 8, OP_SEND, 0);
	/* A doorbell beyond the queue, or back, ends it: an event, and what is rung for later is flushed or ignored, but nothing hangs. */
	ring(q.sq.doorbell, q.sent + (back ? -8u : q.sq.num_entries + 1)); /* back by more than a ring that was foreseen */
	struct ibv_async_event event;
	CHECK_EQUAL(ibv_get_async_event(s->context, &event), 0);
	CHECK_EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
	CHECK(event.element.qp == s->qp);
	ibv_ack_async_event(&event);
	ring(q.sq.doorbell, q.sent);
	meet(s);
	tear_down(s);
}

static void rubbish_there(struct side *s)
{
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	receive(s, &q, 1, 0, 100, 1);
	ring(q.rq.doorbell, q.received);
	meet(s);
	CHECK_EQUAL(next_entry(&q).status, 0);
	meet(s);
	tear_down(s);
}

static void rubbish(void)
{
	two_processes(rubbish_here, rubbish_there);
	back = true;
	two_processes(rubbish_here, rubbish_there);
}

/* ---- a channel's descriptor, read as libfabric reads it, and a doorbell that asks for a notice ---- */

static void notices_here(struct side *s)
{
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	for (int i = 0; i < 3; i++) {
		hear(s, &(char){ 0 }, 1);
		uint8_t *e = begin_entry(s, &q, i, OP_SEND | INLINE);
		e[6] = 4;
		ring(q.sq.doorbell, q.sent);
		expect_sent(&q, i, OP_SEND, 0);
	}
	meet(s);
	tear_down(s);
}

static void notices_there(struct side *s)
{
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	for (uint32_t i = 0; i < 3; i++) {
		receive(s, &q, i, 0, 100, 1);
		ring(q.rq.doorbell, q.received);
		__atomic_store_n(q.cq.doorbell, 1u << 31 | i << 29 | (q.consumed & 0xffff), __ATOMIC_RELEASE);
		tell(s, "x", 1);
		uint64_t cq;
		CHECK_EQUAL(read(s->channel->fd, &cq, sizeof(cq)), 8);
		CHECK(cq == (uintptr_t)s->cq);
		uint8_t e[32];
		CHECK(consume(&q, e)); /* it is there before the notice */
		CHECK_EQUAL(e[0], i);
	}
	ibv_ack_cq_events(ibv_cq_ex_to_cq(s->cq), 3);
	meet(s);
	tear_down(s);
}

static void notices(void)
{
	two_processes(notices_here, notices_there);
}

/* ---- queues that are written to when they are gone, and beyond their end ---- */

static void gone_there(struct side *s)
{
	connect_srd(s, 0, 7);
	meet(s);
	tear_down(s);
}

static bool ends_by_sigsegv(uint8_t *at)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		*(volatile uint8_t *)at = 1;
		_exit(0);
	}
	int status;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void gone_here(struct side *s)
{
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	size_t page = sysconf(_SC_PAGESIZE);
	size_t sends = (q.sq.num_entries * 64 + page - 1) / page * page;
	CHECK(!ends_by_sigsegv(q.sq.buffer + sends - 1));
	CHECK(ends_by_sigsegv(q.sq.buffer + sends));
	uint8_t *places[] = { q.sq.buffer, (uint8_t *)q.sq.doorbell, q.rq.buffer, (uint8_t *)q.rq.doorbell };
	for (int i = 0; i < 4; i++)
		CHECK(!ends_by_sigsegv(places[i]));
	meet(s);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	s->qp = NULL;
	for (int i = 0; i < 4; i++)
		CHECK(ends_by_sigsegv(places[i]));
	tear_down(s);
}

static void gone(void)
{
	two_processes(gone_here, gone_there);
}

/* ---- SRD_EFA_STRICT ---- */

static void strict_here(struct side *s)
{
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	meet(s);
	/* One that does not ask for a completion. */
	uint8_t *e = begin_entry(s, &q, 1, OP_SEND | INLINE);
	e[6] = 4;
	e[3] &= ~0x10;
	ring(q.sq.doorbell, q.sent);
	expect_sent(&q, 1, OP_SEND, is_strict() ? 3 : 0);
	/* As many as may be, and one more. */
	for (int i = 0; i < 16; i++)
		begin_entry(s, &q, i, OP_SEND | INLINE)[6] = 4;
	fcntl(s->context->async_fd, F_SETFL, O_NONBLOCK);
	struct pollfd p = { .fd = s->context->async_fd, .events = POLLIN };
	CHECK_EQUAL(poll(&p, 1, 100), 0);
	begin_entry(s, &q, 16, OP_SEND | INLINE)[6] = 4;
	if (is_strict()) {
		CHECK_EQUAL(poll(&p, 1, 20000), 1);
		struct ibv_async_event event;
		CHECK_EQUAL(ibv_get_async_event(s->context, &event), 0);
		CHECK_EQUAL(event.event_type, IBV_EVENT_QP_FATAL);
		ibv_ack_async_event(&event);
	} else {
		CHECK_EQUAL(poll(&p, 1, 100), 0);
		ring(q.sq.doorbell, q.sent);
		for (int i = 0; i < 17; i++)
			CHECK_EQUAL(next_entry(&q).status, 0);
	}
	meet(s);
	tear_down(s);
}

static void strict_there(struct side *s)
{
	connect_srd(s, 0, 7);
	for (int i = 0; i < 18; i++)
		post_recv_at(s, i, i * 64, 64);
	meet(s);
	meet(s);
	tear_down(s);
}

static void strict(void)
{
	two_processes(strict_here, strict_there);
}

/* ---- pauses: the device sleeps, and notices what is rung for then ---- */

/* How often the thread that looks at doorbells has slept. */
static long naps(void)
{
	char path[64], line[128], name[32];
	long count = -1;
	for (int tid = getpid(); tid < getpid() + 64 && count < 0; tid++) {
		snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
		FILE *f = fopen(path, "r");
		bool is_it = false;
		while (f && fgets(line, sizeof(line), f)) {
			if (sscanf(line, "Name: %31s", name) == 1)
				is_it = !strcmp(name, "srd-doorbells");
			if (is_it)
				sscanf(line, "voluntary_ctxt_switches: %ld", &count);
		}
		if (f)
			fclose(f);
	}
	return count;
}

static void pauses_here(struct side *s)
{
	static const int pauses_ms[] = { 0, 1, 20, 300, 0, 5, 250 };
	connect_srd(s, 0, 7);
	struct queues q = map(s);
	for (int i = 0; i < 7; i++) {
		usleep(pauses_ms[i] * 1000);
		elements(s, &q, i, (size_t[]){ 0 }, (uint32_t[]){ 64 }, 1);
		ring(q.sq.doorbell, q.sent);
		expect_sent(&q, i, OP_SEND, 0);
	}
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */);
	usleep(500000);
	long before = naps();
	CHECK(before > 0);
	usleep(1000000);
	long after = naps();
	/* A hundred times a second it looks without being woken; a thousand times where writes are not told of. */
	if (fd >= 0)
		CHECK(after - before < 500);
	meet(s);
	tear_down(s);
}

static void pauses_there(struct side *s)
{
	connect_srd(s, 0, 7);
	for (int i = 0; i < 7; i++)
		post_recv_at(s, i, i * 64, 64);
	for (int i = 0; i < 7; i++)
		expect(next(s), i, IBV_WC_SUCCESS, IBV_WC_RECV);
	meet(s);
	tear_down(s);
}

static void pauses(void)
{
	two_processes(pauses_here, pauses_there);
}

/* ---- counters of queue pairs whose queues are in memory, and nobody reads completions ---- */

static void counted_side(struct side *s, bool first)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	uint64_t counts[3] = { 0 };
	struct comp_cntr *cntrs[3];
	for (int i = 0; i < 3; i++) {
		struct comp_cntr_init attr = { .type = WRS };
		struct efa_comp_cntr_init efa = { .flags = COMP_MEMORY, .comp.ptr = (uint8_t *)&counts[i] };
		cntrs[i] = efadv_create_comp_cntr(s->context, &attr, &efa, sizeof(efa));
		CHECK(cntrs[i]);
		CHECK_EQUAL(attach(s->qp, cntrs[i], (uint32_t[]){ SEND, RECV, WRITE | REMOTE_WRITE }[i]), 0);
	}
	to_init(s->qp);
	to_rts(s->qp, 7);
	introduce(s);
	struct queues q = map(s);
	for (int i = 0; i < DEPTH; i++)
		receive(s, &q, i, 64 * i, 64, 1);
	ring(q.rq.doorbell, q.received);
	meet(s);
	for (uint64_t i = 1; i <= DEPTH / 2; i++) {
		if (!first)
			wait_for(&counts[1], i);
		uint8_t *e = begin_entry(s, &q, i, OP_SEND | INLINE);
		e[6] = 4;
		ring(q.sq.doorbell, q.sent);
		wait_for(&counts[0], i);
		if (first)
			wait_for(&counts[1], i);
	}
	rdma_entry(s, &q, 1, OP_WRITE, 0, 0, AT_PEER, 70000);
	ring(q.sq.doorbell, q.sent);
	wait_for(&counts[2], 2);
	/* What is refused before it is sent. */
	elements(s, &q, 3, (size_t[]){ BUFFER - 1 }, (uint32_t[]){ 2 }, 1);
	ring(q.sq.doorbell, q.sent);
	wait_failed(cntrs[0], 1);
	begin_entry(s, &q, 4, OP_SEND)[3] ^= 1; /* of another round */
	ring(q.sq.doorbell, q.sent);
	wait_failed(cntrs[0], 2);
	meet(s);
	CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	s->ah = NULL;
	s->qp = NULL;
	for (int i = 0; i < 3; i++)
		CHECK_EQUAL(ibv_destroy_comp_cntr(cntrs[i]), 0);
	tear_down(s);
}

static void counted_here(struct side *s)
{
	counted_side(s, true);
}

static void counted_there(struct side *s)
{
	counted_side(s, false);
}

static void counted(void)
{
	two_processes(counted_here, counted_there);
}

/* Like a container that refuses userfaultfd(2). */
static void refuse_userfaultfd(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = 4, .filter = filter };
	CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

int main(int argc, char **argv)
{
	if (getenv("REFUSE_USERFAULTFD"))
		refuse_userfaultfd();
	static const struct test tests[] = {
		{ "operations", operations }, { "flows", flows }, { "rubbish", rubbish }, { "notices", notices },
		{ "gone", gone },	  { "strict", strict },	  { "pauses", pauses },
		{ "counted", counted },     { 0 },
	};
	return run_test(tests, argc, argv);
}
