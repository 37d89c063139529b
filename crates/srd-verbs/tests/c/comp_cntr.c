/* Completion counters. Nobody polls a completion queue here, but where it says so. */
#define _GNU_SOURCE
#include "comp_cntr.h"
#include <sched.h>

/* A side whose queue pair has the counters, the i-th for the operation of bit i. */
static void connect_counted(struct side *s, struct comp_cntr **cntrs, int type)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	for (int i = 0; i < KINDS; i++) {
		cntrs[i] = create_cntr(s->context, type);
		CHECK_EQUAL(attach(s->qp, cntrs[i], 1 << i), 0);
	}
	to_init(s->qp);
	to_rts(s->qp, 7);
	introduce(s);
}

static void end_counted(struct side *s, struct comp_cntr **cntrs)
{
	CHECK_EQUAL(ibv_destroy_comp_cntr(cntrs[0]), EBUSY);
	CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	s->ah = NULL;
	s->qp = NULL;
	for (int i = 0; i < KINDS; i++)
		CHECK_EQUAL(ibv_destroy_comp_cntr(cntrs[i]), 0);
	tear_down(s);
}

static void rdma_at(struct side *s, uint64_t wr_id, int op, uint64_t there, uint32_t len)
{
	begin_wr(s, wr_id);
	if (op == READ)
		ibv_wr_rdma_read(s->qpx, s->peer.rkey, there);
	else if (op == WRITE)
		ibv_wr_rdma_write(s->qpx, s->peer.rkey, there);
	else
		ibv_wr_rdma_write_imm(s->qpx, s->peer.rkey, there, 0x55);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, len);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
}

/* ---- each kind, in work requests and in bytes ---- */

static int type;

static void expect_counts(struct comp_cntr **cntrs, const uint64_t *wrs, const uint64_t *bytes)
{
	for (int i = 0; i < KINDS; i++) {
		wait_completed(cntrs[i], type == WRS ? wrs[i] : bytes[i]);
		CHECK_EQUAL(failed(cntrs[i]), 0);
	}
}

static void kinds_here(struct side *s)
{
	struct comp_cntr *cntrs[KINDS];
	connect_counted(s, cntrs, type);
	send_at(s, 1, 0, 1500);
	send_at(s, 2, 0, 0);
	rdma_at(s, 3, WRITE, s->peer.buffer, 70000);
	rdma_at(s, 4, WRITE + 1, s->peer.buffer, 300);
	rdma_at(s, 5, READ, s->peer.buffer, 100000);
	expect_counts(cntrs, (uint64_t[]){ 2, 0, 1, 0, 2, 0 }, (uint64_t[]){ 1500, 0, 100000, 0, 70300, 0 });
	/* The completion queue has them all, too. */
	for (int i = 0; i < 5; i++)
		CHECK_EQUAL(next(s).status, IBV_WC_SUCCESS);
	meet(s);
	end_counted(s, cntrs);
}

static void kinds_there(struct side *s)
{
	struct comp_cntr *cntrs[KINDS];
	connect_counted(s, cntrs, type);
	for (int i = 0; i < 3; i++)
		post_recv_at(s, i, 4096 * i, 4096);
	expect_counts(cntrs, (uint64_t[]){ 0, 2, 0, 1, 0, 2 }, (uint64_t[]){ 0, 1500, 0, 100000, 0, 70300 });
	meet(s);
	end_counted(s, cntrs);
}

static void work_requests(void)
{
	type = WRS;
	two_processes(kinds_here, kinds_there);
}

static void bytes(void)
{
	type = BYTES;
	two_processes(kinds_here, kinds_there);
}

/* ---- errors ---- */

static void errors_here(struct side *s)
{
	struct comp_cntr *cntrs[KINDS];
	connect_counted(s, cntrs, WRS);
	begin_wr(s, 1);
	ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, s->mr->lkey + 1, (uintptr_t)s->buffer, 8);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	rdma_at(s, 2, WRITE, s->peer.buffer + BUFFER - 4, 8);
	rdma_at(s, 3, READ, s->peer.buffer + BUFFER - 4, 8);
	wait_failed(cntrs[0], 1);
	wait_failed(cntrs[2], 1);
	wait_failed(cntrs[4], 1);
	post_recv_at(s, 4, 0, 100);
	post_recv_at(s, 5, 0, 100);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	wait_failed(cntrs[1], 2);
	for (int i = 0; i < KINDS; i++)
		CHECK_EQUAL(completed(cntrs[i]), 0);
	meet(s);
	end_counted(s, cntrs);
}

static void errors_there(struct side *s)
{
	struct comp_cntr *cntrs[KINDS];
	connect_counted(s, cntrs, WRS);
	meet(s);
	for (int i = 0; i < KINDS; i++)
		CHECK(completed(cntrs[i]) == 0 && failed(cntrs[i]) == 0);
	end_counted(s, cntrs);
}

static void errors(void)
{
	two_processes(errors_here, errors_there);
}

/* ---- memory of the program's, which is all that either side looks at ---- */

#define ROUNDS 2000

static void memory_side(struct side *s, bool first)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	page[0] = page[1] = 99;
	struct comp_cntr_init attr = { 0 };
	struct efa_comp_cntr_init efa = {
		.flags = COMP_MEMORY | ERR_MEMORY,
		.comp.ptr = (uint8_t *)&page[0],
		.err.ptr = (uint8_t *)&page[1],
	};
	struct comp_cntr *received = efadv_create_comp_cntr(s->context, &attr, &efa, sizeof(efa));
	efa.flags = COMP_MEMORY;
	/* One side by a DMA-BUF, which it has mapped, too. */
	int fd = memfd_create("dma-buf", 0);
	CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
	uint64_t *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	uint64_t *count = first ? &shared[515] : &page[2];
	*count = 99;
	efa.comp = (struct memory_location){ .ptr = (uint8_t *)count, .offset = 515 * 8, .fd = fd, .type = first ? DMABUF : VA };
	struct comp_cntr *sent = efadv_create_comp_cntr(s->context, &attr, &efa, sizeof(efa));
	CHECK(received && sent);
	CHECK_EQUAL(page[0] + page[1] + *count, 0);
	CHECK_EQUAL(attach(s->qp, received, RECV), 0);
	CHECK_EQUAL(attach(s->qp, sent, SEND), 0);
	to_init(s->qp);
	for (int i = 0; i < DEPTH; i++)
		post_recv_at(s, i, 4096 + 64 * i, 64);
	to_rts(s->qp, 7);
	introduce(s);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		if (!first)
			wait_for(&page[0], i + 1);
		send_at(s, i, 0, 32);
		wait_for(count, i + 1);
		if (first)
			wait_for(&page[0], i + 1);
		if (i % 64 == 63) /* slots of queues are free when completions have been polled */
			for (int k = 0; k < 128; k++) {
				struct done d = next(s);
				CHECK_EQUAL(d.status, IBV_WC_SUCCESS);
				if (d.opcode == IBV_WC_RECV)
					post_recv_at(s, d.wr_id, 4096 + 64 * d.wr_id, 64);
			}
	}
	/* What is set shows, and what is written to the memory does not count. */
	meet(s);
	CHECK_EQUAL(ibv_set_comp_cntr(sent, 5), 0);
	wait_for(count, 5);
	*count = 1000;
	CHECK_EQUAL(completed(sent), 1000); /* libefa reads the memory */
	CHECK_EQUAL(ibv_inc_comp_cntr(sent, 3), 0);
	wait_for(count, 8);
	CHECK_EQUAL(ibv_set_err_comp_cntr(received, 1), 0);
	CHECK_EQUAL(ibv_inc_err_comp_cntr(received, 1), 0);
	wait_for(&page[1], 2);
	CHECK_EQUAL(failed(received), 2);
	CHECK_EQUAL(failed(sent), 0);
	CHECK_EQUAL(ibv_inc_err_comp_cntr(sent, 4), 0);
	CHECK_EQUAL(failed(sent), 4);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	s->qp = NULL;
	CHECK_EQUAL(ibv_destroy_comp_cntr(received), 0);
	CHECK_EQUAL(ibv_destroy_comp_cntr(sent), 0);
	CHECK(munmap(page, 4096) == 0 && munmap(shared, 8192) == 0 && close(fd) == 0);
	tear_down(s);
}

static void memory_here(struct side *s)
{
	memory_side(s, true);
}

static void memory_there(struct side *s)
{
	memory_side(s, false);
}

static void memory(void)
{
	two_processes(memory_here, memory_there);
}

/* ---- refusals ---- */

static void refused_cntr(struct ibv_context *context, struct comp_cntr_init attr, struct efa_comp_cntr_init efa, uint32_t len, int wanted)
{
	errno = 0;
	CHECK(!efadv_create_comp_cntr(context, &attr, &efa, len));
	CHECK_EQUAL(errno, wanted);
}

static void refusals(void)
{
	/* Without RDMA, which not every generation has. */
	struct side s = { .context = open_device() };
	s.pd = ibv_alloc_pd(s.context);
	s.cq = (struct ibv_cq_ex *)ibv_create_cq(s.context, 16, NULL, NULL, 0);
	CHECK(s.pd && s.cq);
	const char *generation = getenv("SRD_EFA_PROFILE");
	bool rdma = !generation || strcmp(generation, "gen1") != 0;
	struct comp_cntr_caps caps;
	CHECK_EQUAL(_ibv_query_comp_cntr_caps(s.context, &caps, sizeof(caps) - 1), EINVAL);
	CHECK_EQUAL(_ibv_query_comp_cntr_caps(s.context, &caps, sizeof(caps)), 0);
	CHECK_EQUAL(caps.max_value, INT64_MAX);
	CHECK_EQUAL(caps.ops, rdma ? SEND | RECV | READ | REMOTE_READ | WRITE | REMOTE_WRITE : SEND | RECV);
	struct efadv_device_attr device;
	CHECK_EQUAL(efadv_query_device(s.context, &device, sizeof(device)), 0);
	CHECK(device.device_caps & 1 << 6);

	uint64_t words[2];
	struct efa_comp_cntr_init none = { 0 }, odd = { .flags = COMP_MEMORY, .comp.ptr = (uint8_t *)words + 4 };
	struct efa_comp_cntr_init nowhere = { .flags = ERR_MEMORY }, fd = { .flags = COMP_MEMORY, .comp.type = DMABUF };
	int ends[2];
	CHECK_EQUAL(pipe(ends), 0);
	struct comp_cntr_init plain = { 0 };
	refused_cntr(s.context, (struct comp_cntr_init){ .comp_mask = 1 }, none, sizeof(none), EOPNOTSUPP);
	refused_cntr(s.context, (struct comp_cntr_init){ .flags = 1 }, none, sizeof(none), EOPNOTSUPP);
	refused_cntr(s.context, (struct comp_cntr_init){ .type = 2 }, none, sizeof(none), EOPNOTSUPP);
	refused_cntr(s.context, plain, (struct efa_comp_cntr_init){ .comp_mask = 1 }, sizeof(none), EOPNOTSUPP);
	refused_cntr(s.context, plain, (struct efa_comp_cntr_init){ .flags = 4 }, sizeof(none), EOPNOTSUPP);
	refused_cntr(s.context, plain, (struct efa_comp_cntr_init){ .err.type = 2 }, sizeof(none), EOPNOTSUPP);
	refused_cntr(s.context, plain, none, offsetof(struct efa_comp_cntr_init, err), EINVAL);
	refused_cntr(s.context, plain, odd, sizeof(none), EINVAL);
	refused_cntr(s.context, plain, nowhere, sizeof(none), EFAULT);
	fd.comp.fd = ends[0]; /* as one whose exporter lets nobody map it */
	refused_cntr(s.context, plain, fd, sizeof(none), EOPNOTSUPP);
	fd.comp.fd = -1;
	refused_cntr(s.context, plain, fd, sizeof(none), EBADF);
	fd.comp.fd = memfd_create("dma-buf", 0);
	CHECK_EQUAL(ftruncate(fd.comp.fd, 4096), 0);
	fd.comp.offset = 4096; /* beyond its end */
	refused_cntr(s.context, plain, fd, sizeof(none), EFAULT);
	fd.comp.offset = 12;
	refused_cntr(s.context, plain, fd, sizeof(none), EINVAL);
	/* One that the program has not mapped counts, and cannot be read. */
	fd.comp.offset = 8;
	struct comp_cntr *unseen = efadv_create_comp_cntr(s.context, &plain, &fd, sizeof(fd));
	CHECK(unseen);
	CHECK_EQUAL(ibv_inc_comp_cntr(unseen, 7), 0);
	uint64_t seen = 0;
	CHECK_EQUAL(ibv_read_comp_cntr(unseen, &seen), EOPNOTSUPP);
	CHECK_EQUAL(pread(fd.comp.fd, &seen, 8, 8), 8);
	CHECK_EQUAL(seen, 7);
	CHECK_EQUAL(failed(unseen), 0);
	CHECK_EQUAL(ibv_destroy_comp_cntr(unseen), 0);
	CHECK(close(fd.comp.fd) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
	const char *strict = getenv("SRD_EFA_STRICT");
	if (strict && strcmp(strict, "1") == 0)
		refused_cntr(s.context, (struct comp_cntr_init){ .type = BYTES }, none, sizeof(none), EOPNOTSUPP);

	/* As many as there may be, and one more. */
	struct comp_cntr **many = calloc(caps.max_counters, sizeof(*many));
	for (uint32_t i = 0; i < caps.max_counters; i++)
		many[i] = create_cntr(s.context, WRS);
	refused_cntr(s.context, plain, none, sizeof(none), ENOMEM);
	CHECK_EQUAL(ibv_set_comp_cntr(many[0], caps.max_value), 0);
	CHECK_EQUAL(completed(many[0]), caps.max_value);
	CHECK_EQUAL(ibv_inc_comp_cntr(many[0], 2), 0);
	CHECK_EQUAL(completed(many[0]), 1);
	for (uint32_t i = 2; i < caps.max_counters; i++)
		CHECK_EQUAL(ibv_destroy_comp_cntr(many[i]), 0);

	/* Of several queue pairs, and each kind of a queue pair with one counter. */
	struct ibv_qp *one = create_ud(&s), *other = create_ud(&s);
	CHECK_EQUAL(attach(one, many[0], 0), EINVAL);
	CHECK_EQUAL(attach(one, many[0], 1 << 6), EOPNOTSUPP);
	CHECK_EQUAL(attach(one, many[0], READ), rdma ? 0 : EOPNOTSUPP);
	CHECK_EQUAL(ibv_qp_attach_comp_cntr(one, many[0], &(struct attach_attr){ .comp_mask = 1, .op_mask = SEND }), EINVAL);
	CHECK_EQUAL(attach(one, many[0], SEND | RECV), 0);
	CHECK_EQUAL(attach(one, many[1], RECV), EBUSY);
	to_init(other);
	CHECK_EQUAL(attach(other, many[0], SEND), 0);
	CHECK_EQUAL(attach(other, many[1], RECV), 0);
	to_rts(other, -1);
	if (rdma)
		CHECK_EQUAL(attach(other, many[1], WRITE), EINVAL);
	struct ibv_context *elsewhere = open_device();
	struct comp_cntr *foreign = create_cntr(elsewhere, WRS);
	CHECK_EQUAL(attach(one, foreign, WRITE), EINVAL);
	CHECK_EQUAL(ibv_destroy_comp_cntr(many[0]), EBUSY);
	CHECK_EQUAL(ibv_destroy_qp(one), 0);
	CHECK_EQUAL(ibv_destroy_comp_cntr(many[0]), EBUSY);
	CHECK_EQUAL(ibv_destroy_qp(other), 0);
	CHECK_EQUAL(ibv_destroy_comp_cntr(many[0]), 0);
	CHECK_EQUAL(ibv_destroy_comp_cntr(many[1]), 0);
	free(many);
	/* One that is forgotten goes with its context. */
	CHECK_EQUAL(ibv_close_device(elsewhere), 0);
	CHECK_EQUAL(ibv_set_comp_cntr(foreign, 1), EIO);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(s.cq)), 0);
	CHECK_EQUAL(ibv_dealloc_pd(s.pd), 0);
	CHECK_EQUAL(ibv_close_device(s.context), 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "work_requests", work_requests },
		{ "bytes", bytes },
		{ "errors", errors },
		{ "memory", memory },
		{ "refusals", refusals },
		{ NULL, NULL },
	};
	return run_test(tests, argc, argv);
}
