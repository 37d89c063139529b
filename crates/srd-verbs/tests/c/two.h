/* Two processes on one host, each with a device of its own, and what tests need to talk between them. Everything goes
 * through the installed headers, as in any program. A check that fails ends the process with its line. */
#ifndef TWO_H
#define TWO_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                    \
	do {                                                                                                \
		if (!(condition)) {                                                                         \
			fprintf(stderr, "%s:%d: %s (process %d, errno %d: %s)\n", __FILE__, __LINE__,       \
				#condition, getpid(), errno, strerror(errno));                              \
			exit(1);                                                                            \
		}                                                                                           \
	} while (0)

#define CHECK_EQUAL(a, b)                                                                                   \
	do {                                                                                                \
		long long a_ = (long long)(a), b_ = (long long)(b);                                         \
		if (a_ != b_) {                                                                             \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld (process %d)\n", __FILE__, __LINE__, #a, a_, b_, getpid()); \
			exit(1);                                                                            \
		}                                                                                           \
	} while (0)

#define QKEY 0x1234567u
#define DEPTH 128
#define BUFFER (1 << 21)
#define PATIENCE_S 20.0

struct address {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t qkey;
	uint64_t buffer;
	uint32_t rkey;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	struct ibv_mr *mr;
	uint8_t *buffer;
	struct ibv_ah *ah;
	struct address mine, peer;
	int socket;
};

struct done {
	uint64_t wr_id;
	int status;
	uint32_t vendor_err;
	int opcode;
	uint32_t byte_len, imm, qp_num, src_qp, slid;
	unsigned wc_flags;
	bool unsolicited;
	int sgid_error;
	union ibv_gid sgid;
};

static inline double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static inline void tell(struct side *s, const void *data, size_t len)
{
	CHECK(write(s->socket, data, len) == (ssize_t)len);
}

static inline void hear(struct side *s, void *data, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(s->socket, (char *)data + got, len - got);
		CHECK(n > 0); /* the other process has ended */
		got += n;
	}
}

/* Both have come this far. */
static inline void meet(struct side *s)
{
	char c = 'x';
	tell(s, &c, 1);
	hear(s, &c, 1);
}

static inline struct ibv_context *open_device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 1 && list[0] && !list[1]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_cq_ex *create_cq(struct ibv_context *context, int depth, struct ibv_comp_channel *channel)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = depth, .channel = channel, .wc_flags = IBV_WC_STANDARD_FLAGS, .cq_context = (void *)0x77,
	};
	struct { uint64_t comp_mask, wc_flags; } efa = { 0, EFADV_WC_EX_WITH_SGID | 2 /* IS_UNSOLICITED */ };
	struct ibv_cq_ex *cq = efadv_create_cq(context, &attr, (struct efadv_cq_init_attr *)&efa, sizeof(efa));
	CHECK(cq);
	return cq;
}

/* The attributes of newer headers. */
struct qp_init_attr {
	uint64_t comp_mask;
	uint32_t driver_qp_type;
	uint16_t flags;
	uint8_t sl, reserved;
	uint64_t wr_flags;
};
#define UNSOLICITED_WRITE_RECV 1

static inline struct ibv_qp *create_srd(struct side *s, uint16_t flags)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_DRIVER,
		.send_cq = ibv_cq_ex_to_cq(s->cq),
		.recv_cq = ibv_cq_ex_to_cq(s->cq),
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	struct qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD, .flags = flags };
	struct ibv_qp *qp = efadv_create_qp_ex(s->context, &attr, (struct efadv_qp_init_attr *)&efa, sizeof(efa));
	CHECK(qp);
	return qp;
}

static inline struct ibv_qp *create_ud(struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.send_cq = ibv_cq_ex_to_cq(s->cq),
		.recv_cq = ibv_cq_ex_to_cq(s->cq),
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(s->pd, &attr);
	CHECK(qp);
	return qp;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1, .qkey = QKEY };
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
}

static inline void to_rts(struct ibv_qp *qp, int rnr_retry)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 7, .rnr_retry = rnr_retry < 0 ? 0 : rnr_retry };
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (rnr_retry < 0 ? 0 : IBV_QP_RNR_RETRY)), 0);
	CHECK_EQUAL(qp->state, IBV_QPS_RTS);
}

static inline struct ibv_ah *create_ah(struct side *s, const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.dgid = *gid };
	struct ibv_ah *ah = ibv_create_ah(s->pd, &attr);
	CHECK(ah);
	return ah;
}

/* Everything but queue pair and peer. */
static inline void set_up(struct side *s)
{
	s->context = open_device();
	s->pd = ibv_alloc_pd(s->context);
	CHECK(s->pd);
	s->channel = ibv_create_comp_channel(s->context);
	CHECK(s->channel && s->channel->fd >= 0);
	s->cq = create_cq(s->context, 1024, s->channel);
	s->buffer = aligned_alloc(4096, BUFFER);
	CHECK(s->buffer);
	memset(s->buffer, 0, BUFFER);
	s->mr = ibv_reg_mr(s->pd, s->buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	CHECK(s->mr && s->mr->length == BUFFER && s->mr->addr == s->buffer && s->mr->pd == s->pd);
}

/* Tells the other process where we are and hears where it is. */
static inline void introduce(struct side *s)
{
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &s->mine.gid), 0);
	s->mine.qpn = s->qp->qp_num;
	s->mine.qkey = QKEY;
	s->mine.buffer = (uintptr_t)s->buffer;
	s->mine.rkey = s->mr->rkey;
	tell(s, &s->mine, sizeof(s->mine));
	hear(s, &s->peer, sizeof(s->peer));
	s->ah = create_ah(s, &s->peer.gid);
	meet(s);
}

/* A side with an SRD queue pair that is ready to send, and knows its peer. */
static inline void connect_srd(struct side *s, uint16_t flags, int rnr_retry)
{
	set_up(s);
	s->qp = create_srd(s, flags);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	CHECK(s->qpx);
	to_init(s->qp);
	to_rts(s->qp, rnr_retry);
	introduce(s);
}

static inline void tear_down(struct side *s)
{
	if (s->ah)
		CHECK_EQUAL(ibv_destroy_ah(s->ah), 0);
	if (s->qp)
		CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0);
	CHECK_EQUAL(ibv_destroy_comp_channel(s->channel), 0);
	CHECK_EQUAL(ibv_dereg_mr(s->mr), 0);
	CHECK_EQUAL(ibv_dealloc_pd(s->pd), 0);
	CHECK_EQUAL(ibv_close_device(s->context), 0);
	free(s->buffer);
}

static inline void read_done(struct ibv_cq_ex *cq, struct done *d)
{
	struct efadv_cq *dv = efadv_cq_from_ibv_cq_ex(cq);
	*d = (struct done){
		.wr_id = cq->wr_id,
		.status = cq->status,
		.vendor_err = ibv_wc_read_vendor_err(cq),
		.opcode = ibv_wc_read_opcode(cq),
		.byte_len = ibv_wc_read_byte_len(cq),
		.imm = ibv_wc_read_imm_data(cq),
		.qp_num = ibv_wc_read_qp_num(cq),
		.src_qp = ibv_wc_read_src_qp(cq),
		.slid = ibv_wc_read_slid(cq),
		.wc_flags = ibv_wc_read_wc_flags(cq),
		/* The second function of newer headers' structure. */
		.unsolicited = ((bool(**)(struct efadv_cq *))(&dv->wc_read_sgid))[1](dv),
	};
	d->sgid_error = efadv_wc_read_sgid(dv, &d->sgid);
}

/* The next completion; waits for it. */
static inline struct done next(struct side *s)
{
	struct ibv_poll_cq_attr attr = { 0 };
	double end = now() + PATIENCE_S;
	for (;;) {
		int result = ibv_start_poll(s->cq, &attr);
		if (result == 0)
			break;
		CHECK_EQUAL(result, ENOENT);
		CHECK(now() < end); /* no completion */
		sched_yield();
	}
	struct done d;
	read_done(s->cq, &d);
	ibv_end_poll(s->cq);
	return d;
}

/* Whether there is nothing to poll for a while, in which packets move. */
static inline bool quiet(struct side *s, double seconds)
{
	struct ibv_poll_cq_attr attr = { 0 };
	for (double end = now() + seconds; now() < end; sched_yield()) {
		int result = ibv_start_poll(s->cq, &attr);
		if (result == 0) {
			ibv_end_poll(s->cq);
			return false;
		}
		CHECK_EQUAL(result, ENOENT);
	}
	return true;
}

static inline void post_recv_at(struct side *s, uint64_t wr_id, size_t offset, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)s->buffer + offset, .length = len, .lkey = s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	CHECK_EQUAL(ibv_post_recv(s->qp, &wr, &bad), 0);
}

static inline void set_peer(struct side *s)
{
	ibv_wr_set_ud_addr(s->qpx, s->ah, s->peer.qpn, s->peer.qkey);
}

static inline void begin_wr(struct side *s, uint64_t wr_id)
{
	ibv_wr_start(s->qpx);
	s->qpx->wr_id = wr_id;
	s->qpx->wr_flags = IBV_SEND_SIGNALED;
}

/* Sends `len` bytes at `offset` of our buffer. */
static inline void send_at(struct side *s, uint64_t wr_id, size_t offset, uint32_t len)
{
	begin_wr(s, wr_id);
	ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer + offset, len);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
}

static inline void expect(struct done d, uint64_t wr_id, int status, int opcode)
{
	if (d.wr_id != wr_id || d.status != status || (status == IBV_WC_SUCCESS && d.opcode != opcode)) {
		fprintf(stderr, "completion of %llu with status %d (%s, EFA %u) opcode %d; expected %llu, %d (%s), %d (process %d)\n",
			(unsigned long long)d.wr_id, d.status, ibv_wc_status_str(d.status), d.vendor_err, d.opcode,
			(unsigned long long)wr_id, status, ibv_wc_status_str(status), opcode, getpid());
		exit(1);
	}
}

static inline void fill(uint8_t *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (uint8_t)(seed * 131 + i * 7 + (i >> 8) * 13);
}

static inline void check_fill(const uint8_t *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != (uint8_t)(seed * 131 + i * 7 + (i >> 8) * 13)) {
			fprintf(stderr, "byte %zu of %zu (seed %u) is wrong\n", i, len, seed);
			exit(1);
		}
}

/* Runs one function in each of two processes. Neither has touched the device before. */
static inline void two_processes(void (*here)(struct side *), void (*there)(struct side *))
{
	int sockets[2];
	CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	struct side side = { 0 };
	fflush(NULL);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(sockets[0]);
		side.socket = sockets[1];
		there(&side);
		exit(0);
	}
	close(sockets[1]);
	side.socket = sockets[0];
	here(&side);
	int status = -1;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(sockets[0]);
}

/* Runs the test of that name. */
struct test {
	const char *name;
	void (*run)(void);
};

static inline int run_test(const struct test *tests, int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	for (const struct test *t = tests; t->name; t++)
		if (argc > 1 && strcmp(argv[1], t->name) == 0) {
			t->run();
			return 0;
		}
	fprintf(stderr, "no such test\n");
	return 2;
}

#endif
