/* Completion counters, as newer headers declare them. */
#ifndef COMP_CNTR_H
#define COMP_CNTR_H

#include "two.h"

struct comp_cntr {
	struct ibv_context *context;
	uint32_t handle;
};
struct comp_cntr_init {
	uint32_t comp_mask;
	int type;
	uint32_t flags;
};
struct comp_cntr_caps {
	uint64_t max_value;
	uint32_t max_counters, ops;
};
struct attach_attr {
	uint32_t comp_mask, op_mask;
};
struct memory_location {
	uint8_t *ptr;
	uint64_t offset;
	int32_t fd;
	uint32_t reserved0;
	uint8_t type, reserved[7];
};
struct efa_comp_cntr_init {
	uint64_t comp_mask;
	uint32_t flags, reserved;
	struct memory_location comp, err;
};
enum { WRS, BYTES };
enum { VA, DMABUF };
enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32, KINDS = 6 };
enum { COMP_MEMORY = 1, ERR_MEMORY = 2 };

int _ibv_query_comp_cntr_caps(struct ibv_context *, struct comp_cntr_caps *, size_t);
struct comp_cntr *ibv_create_comp_cntr(struct ibv_context *, struct comp_cntr_init *);
struct comp_cntr *efadv_create_comp_cntr(struct ibv_context *, struct comp_cntr_init *, struct efa_comp_cntr_init *, uint32_t len);
int ibv_destroy_comp_cntr(struct comp_cntr *);
int ibv_set_comp_cntr(struct comp_cntr *, uint64_t);
int ibv_set_err_comp_cntr(struct comp_cntr *, uint64_t);
int ibv_inc_comp_cntr(struct comp_cntr *, uint64_t);
int ibv_inc_err_comp_cntr(struct comp_cntr *, uint64_t);
int ibv_read_comp_cntr(struct comp_cntr *, uint64_t *);
int ibv_read_err_comp_cntr(struct comp_cntr *, uint64_t *);
int ibv_qp_attach_comp_cntr(struct ibv_qp *, struct comp_cntr *, struct attach_attr *);

static inline struct comp_cntr *create_cntr(struct ibv_context *context, int type)
{
	struct comp_cntr_init attr = { .type = type };
	struct comp_cntr *cntr = ibv_create_comp_cntr(context, &attr);
	CHECK(cntr && cntr->context == context);
	return cntr;
}

static inline int attach(struct ibv_qp *qp, struct comp_cntr *cntr, uint32_t ops)
{
	return ibv_qp_attach_comp_cntr(qp, cntr, &(struct attach_attr){ .op_mask = ops });
}

static inline uint64_t completed(struct comp_cntr *cntr)
{
	uint64_t value = 0x77;
	CHECK_EQUAL(ibv_read_comp_cntr(cntr, &value), 0);
	return value;
}

static inline uint64_t failed(struct comp_cntr *cntr)
{
	uint64_t value = 0x77;
	CHECK_EQUAL(ibv_read_err_comp_cntr(cntr, &value), 0);
	return value;
}

/* Waits by looking at memory alone. */
static inline void wait_for(const uint64_t *count, uint64_t value)
{
	for (double end = now() + PATIENCE_S; __atomic_load_n(count, __ATOMIC_ACQUIRE) != value; sched_yield())
		CHECK(now() < end); /* it does not count */
}

/* The same by the function, which looks at memory and does nothing else. */
static inline void wait_completed(struct comp_cntr *cntr, uint64_t value)
{
	for (double end = now() + PATIENCE_S; completed(cntr) != value; sched_yield())
		CHECK(now() < end); /* it does not count */
}

static inline void wait_failed(struct comp_cntr *cntr, uint64_t value)
{
	for (double end = now() + PATIENCE_S; failed(cntr) != value; sched_yield())
		CHECK(now() < end); /* it does not count */
}

#endif
