/* docs/design/efa-verbs.md, "Traps": what programs do that a simple device trips over. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

#include "two.h"

/* ---- 1: posting from within start_poll ... end_poll, as libfabric does ---- */

#define ROUNDS 200

static void poster(struct side *s, bool begins)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	post_recv_at(s, 1, 0, 64);
	to_rts(s->qp, 7);
	introduce(s);
	int received = 0, sent = 0;
	if (begins)
		send_at(s, 2, 4096, 64), sent++;
	double end = now() + 60;
	while (received < ROUNDS || sent < ROUNDS) {
		CHECK(now() < end);
		struct ibv_poll_cq_attr attr = { 0 };
		if (ibv_start_poll(s->cq, &attr) != 0) {
			sched_yield();
			continue;
		}
		do {
			CHECK_EQUAL(s->cq->status, IBV_WC_SUCCESS);
			if (ibv_wc_read_opcode(s->cq) == IBV_WC_RECV) {
				received++;
				post_recv_at(s, 1, 0, 64);
				if (sent < ROUNDS)
					send_at(s, 2, 4096, 64), sent++;
			}
		} while (ibv_next_poll(s->cq) == 0);
		ibv_end_poll(s->cq);
	}
	while (!quiet(s, 0.05))
		;
	meet(s);
	tear_down(s);
}

static void poster_here(struct side *s)
{
	poster(s, true);
}

static void poster_there(struct side *s)
{
	poster(s, false);
}

static void posting_while_polling(void)
{
	two_processes(poster_here, poster_there);
}

/* ---- 2: after ibv_destroy_qp nothing of it completes ---- */

static void flushed_qp(struct side *s, int receives)
{
	s->qp = create_srd(s, 0);
	to_init(s->qp);
	for (int i = 0; i < receives; i++)
		post_recv_at(s, i, 0, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

static void silence_after_destroy(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	/* Completed and not polled. */
	flushed_qp(s, 5);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	CHECK(quiet(s, 0.02));

	/* One seen, the others perhaps already on their way to us. */
	flushed_qp(s, 5);
	expect(next(s), 0, IBV_WC_WR_FLUSH_ERR, 0);
	struct ibv_qp *doomed = s->qp;
	flushed_qp(s, 2);
	struct ibv_qp *other = s->qp;
	CHECK_EQUAL(ibv_destroy_qp(doomed), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(next(s).qp_num, other->qp_num);
	CHECK(quiet(s, 0.02));
	CHECK_EQUAL(ibv_destroy_qp(other), 0);

	/* From within the iteration. */
	flushed_qp(s, 5);
	struct ibv_poll_cq_attr attr = { 0 };
	CHECK_EQUAL(ibv_start_poll(s->cq, &attr), 0);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	CHECK_EQUAL(ibv_next_poll(s->cq), ENOENT);
	ibv_end_poll(s->cq);
	CHECK(quiet(s, 0.02));
	s->qp = NULL;
	tear_down(s);
}

/* ---- 3: queue pair numbers have 16 bits and are unique modulo max_qp rounded up ---- */

static void queue_pair_numbers(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_device_attr device;
	CHECK_EQUAL(ibv_query_device(s->context, &device), 0);
	unsigned table = 1;
	while (table < (unsigned)device.max_qp)
		table *= 2;
	char *used = calloc(table, 1);
	/* More than one port has numbers for. */
	enum { MANY = 300 };
	struct ibv_qp *qps[MANY];
	for (int i = 0; i < MANY; i++) {
		qps[i] = create_srd(s, 0);
		CHECK(qps[i]->qp_num <= 0xFFFF);
		CHECK(!used[qps[i]->qp_num & (table - 1)]);
		used[qps[i]->qp_num & (table - 1)] = 1;
	}
	for (int i = 0; i < MANY; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	free(used);
	tear_down(s);
}

/* ---- 4: completion queues are deep ---- */

static void deep_queues(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_device_attr device;
	CHECK_EQUAL(ibv_query_device(s->context, &device), 0);
	CHECK(device.max_cqe >= 32768 + 4096);
	static const int depths[] = { 1, 20000, 32768, 32768 + 4096 };
	for (int i = 0; i < 4; i++) {
		struct ibv_cq_ex *cq = create_cq(s->context, depths[i], NULL);
		CHECK(cq->cqe >= depths[i]);
		CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	}
	errno = 0;
	CHECK(!ibv_create_cq(s->context, device.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(s->context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(s->context, 1, NULL, NULL, s->context->num_comp_vectors) && errno == EINVAL);
	/* libfabric waits on completion queues only where there is more than one vector. */
	CHECK(s->context->num_comp_vectors > 1);

	/* A queue of send and receive depth together holds all that both can give. */
	struct ibv_cq_ex *first = s->cq;
	s->cq = create_cq(s->context, DEPTH, NULL);
	s->qp = create_srd(s, 0);
	to_init(s->qp);
	for (int i = 0; i < DEPTH; i++)
		post_recv_at(s, i, 0, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	for (int i = 0; i < DEPTH; i++)
		expect(next(s), i, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK_EQUAL(ibv_destroy_qp(s->qp), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(s->cq)), 0);
	s->cq = first;
	s->qp = NULL;
	tear_down(s);
}

/* ---- 5: the PCI address that is reported ---- */

static void name_at_end_of(const char *ibdev_path, const char *what, char *name)
{
	char path[PATH_MAX], real[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", ibdev_path, what);
	CHECK(realpath(path, real));
	strcpy(name, strrchr(real, '/') + 1);
}

static void pci_address(void)
{
	struct ibv_context *context = open_device();
	char name[PATH_MAX];
	/* As libfabric asks: efa_device_get_driver, efa_device_get_pci_attr, efa_device_get_version. */
	name_at_end_of(context->device->ibdev_path, "/device/driver", name);
	CHECK(strcmp(name, "efa") == 0);
	name_at_end_of(context->device->ibdev_path, "/device", name);
	const char *wanted = getenv("SRD_EFA_PCI") ? getenv("SRD_EFA_PCI") : "0000:00:00.0";
	CHECK(strcmp(name, wanted) == 0);
	char path[PATH_MAX], version[8] = "";
	snprintf(path, sizeof(path), "%s/class/infiniband_verbs/abi_version", getenv("SYSFS_PATH"));
	FILE *file = fopen(path, "r");
	CHECK(file && fgets(version, sizeof(version), file));
	CHECK(strcmp(version, "6\n") == 0);
	fclose(file);
	/* The tree is nobody else's business. */
	struct stat st;
	CHECK(stat(getenv("SYSFS_PATH"), &st) == 0 && (st.st_mode & 0777) == 0700);
	CHECK_EQUAL(ibv_close_device(context), 0);
}

/* ---- 6: names ---- */

static void names(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 1);
	/* UCCL looks for this beginning; UCX for /dev/infiniband/<dev_name>. */
	CHECK(strncmp(ibv_get_device_name(list[0]), "rdmap", 5) == 0);
	CHECK(strcmp(list[0]->dev_name, list[0]->name) == 0);
	CHECK_EQUAL(list[0]->node_type, IBV_NODE_UNSPECIFIED);
	CHECK_EQUAL(list[0]->transport_type, IBV_TRANSPORT_UNSPECIFIED);
	CHECK(ibv_get_device_guid(list[0]) != 0);
	/* UCX asks the kernel about devices that have an index. */
	CHECK_EQUAL(ibv_get_device_index(list[0]), -1);
	CHECK_EQUAL(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	CHECK_EQUAL(ibv_fork_init(), 0);
	/* A pointer to a device stays good after the list has gone, and is the same in the next list. */
	struct ibv_device *device = list[0];
	ibv_free_device_list(list);
	list = ibv_get_device_list(NULL);
	CHECK(list[0] == device);
	ibv_free_device_list(list);
	CHECK(strncmp(device->name, "rdmap", 5) == 0);
	/* Shared memory does not carry what should pass the device. */
	CHECK(strcmp(getenv("FI_EFA_ENABLE_SHM_TRANSFER"), "0") == 0);
}

/* ---- 7: other queue pairs ---- */

static void other_queue_pairs(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	static const int types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER };
	for (int i = 0; i < 5; i++) {
		struct ibv_qp_init_attr attr = {
			.qp_type = types[i], .send_cq = ibv_cq_ex_to_cq(s->cq), .recv_cq = ibv_cq_ex_to_cq(s->cq),
			.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		errno = 0;
		CHECK(!ibv_create_qp(s->pd, &attr) && errno == EOPNOTSUPP);
		struct ibv_qp_init_attr_ex ex = {
			.qp_type = types[i], .send_cq = attr.send_cq, .recv_cq = attr.recv_cq, .cap = attr.cap, .pd = s->pd,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		};
		errno = 0;
		CHECK(!ibv_create_qp_ex(s->context, &ex) && errno == EOPNOTSUPP);
	}
	tear_down(s);
}

/* ---- 8: structures of other releases ---- */

static void other_structures(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	/* What efadv_query_device fills: no more than it was told there is, and zeros after what it knows. */
	for (uint32_t len = 22; len <= 48; len++) {
		uint8_t attr[64];
		memset(attr, 0xAA, sizeof(attr));
		CHECK_EQUAL(efadv_query_device(s->context, (struct efadv_device_attr *)attr, len), 0);
		for (uint32_t i = len; i < sizeof(attr); i++)
			CHECK_EQUAL(attr[i], 0xAA);
		for (uint32_t i = 32; i < len; i++)
			CHECK_EQUAL(attr[i], 0);
	}
	struct efadv_device_attr device;
	CHECK_EQUAL(efadv_query_device(s->context, &device, 8), EINVAL);
	CHECK_EQUAL(efadv_query_device(s->context, &device, sizeof(device)), 0);
	CHECK(device.max_sq_wr >= 1024 && device.max_rq_wr >= 1024 && device.inline_buf_size == 32);
	CHECK(device.device_caps & EFADV_DEVICE_ATTR_CAPS_RNR_RETRY);
	CHECK(device.device_caps & EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID);

	/* Queue pair attributes of 16 and of 24 bytes, and longer ones that say nothing there or something. */
	for (uint32_t len = 16; len <= 40; len += 8)
		for (int tail = 0; tail < 2; tail++) {
			uint64_t efa[8] = { 0 };
			if (len > 24)
				efa[len / 8 - 1] = tail;
			struct ibv_qp_init_attr_ex attr = {
				.qp_type = IBV_QPT_DRIVER, .send_cq = ibv_cq_ex_to_cq(s->cq), .recv_cq = ibv_cq_ex_to_cq(s->cq),
				.cap = { .max_send_wr = 10, .max_recv_wr = 10, .max_send_sge = 1, .max_recv_sge = 1 },
				.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = s->pd,
			};
			errno = 0;
			struct ibv_qp *qp = efadv_create_qp_ex(s->context, &attr, (struct efadv_qp_init_attr *)efa, len);
			if (len > 24 && tail) {
				CHECK(!qp && errno == EINVAL);
				continue;
			}
			CHECK(qp);
			CHECK(attr.cap.max_send_wr >= 10 && attr.cap.max_recv_wr >= 10);
			CHECK_EQUAL(ibv_destroy_qp(qp), 0);
		}

	/* Completion queue attributes of 16 and of 56 bytes. */
	for (uint32_t len = 16; len <= 56; len += 40) {
		uint64_t efa[8] = { 0, EFADV_WC_EX_WITH_SGID };
		struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
		struct ibv_cq_ex *cq = efadv_create_cq(s->context, &attr, (struct efadv_cq_init_attr *)efa, len);
		CHECK(cq);
		CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	}

	/* Port attributes of programs that know only the first of them: the symbol, not the header's macro. */
	struct ibv_port_attr port;
	memset(&port, 0xAA, sizeof(port));
	CHECK_EQUAL((ibv_query_port)(s->context, 1, (struct _compat_ibv_port_attr *)&port), 0);
	CHECK_EQUAL(port.state, IBV_PORT_ACTIVE);
	CHECK_EQUAL(port.port_cap_flags2, 0xAAAA);
	CHECK_EQUAL(ibv_query_port(s->context, 1, &port), 0);
	CHECK_EQUAL(port.port_cap_flags2, 0);
	CHECK_EQUAL(port.link_layer, IBV_LINK_LAYER_UNSPECIFIED);
	CHECK_EQUAL(port.gid_tbl_len, 1);
	CHECK(port.max_msg_sz >= 4096 && port.active_speed && port.active_width);
	struct ibv_device_attr_ex ex;
	CHECK_EQUAL(ibv_query_device_ex(s->context, NULL, &ex), 0);
	CHECK_EQUAL(ex.orig_attr.vendor_id, 0x1d0f);
	CHECK_EQUAL(ex.phys_port_cnt_ex, 1);
	tear_down(s);
}

/* ---- 9: contexts are independent, and so is a forked child ---- */

static void contexts(void)
{
	for (int i = 0; i < 50; i++)
		CHECK_EQUAL(ibv_close_device(open_device()), 0);
	for (int i = 0; i < 5; i++) {
		struct side passing = { 0 };
		set_up(&passing);
		tear_down(&passing);
	}

	/* Two with objects: what one leaves behind does not keep it from closing, and does not hurt the other. */
	struct side a = { 0 }, b = { 0 };
	set_up(&a);
	set_up(&b);
	a.qp = create_srd(&a, 0);
	b.qp = create_srd(&b, 0);
	CHECK(a.qp->qp_num != b.qp->qp_num);
	to_init(b.qp);
	post_recv_at(&b, 5, 0, 64);
	CHECK_EQUAL(ibv_close_device(a.context), 0);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK_EQUAL(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
	expect(next(&b), 5, IBV_WC_WR_FLUSH_ERR, 0);
	/* A program that destroys in the wrong order is told so or not, but does not crash. */
	CHECK(ibv_post_recv(a.qp, NULL, NULL) != 0);
	CHECK_EQUAL(ibv_destroy_qp(a.qp), 0);
	CHECK_EQUAL(ibv_dereg_mr(a.mr), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(a.cq)), 0);
	CHECK_EQUAL(ibv_dealloc_pd(a.pd), 0);
	tear_down(&b);
}

static int exit_status(pid_t child)
{
	int status = -1;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void forker_here(struct side *s)
{
	connect_srd(s, 0, 7);
	char tree[PATH_MAX];
	snprintf(tree, sizeof(tree), "%s", getenv("SYSFS_PATH"));
	struct stat st;
	CHECK_EQUAL(stat(tree, &st), 0);
	fflush(NULL);

	/* A child that ends at once, in order. */
	pid_t child = fork();
	if (child == 0)
		exit(0);
	CHECK_EQUAL(exit_status(child), 0);
	CHECK(stat(tree, &st) == 0);

	/* A child that takes its parent's objects down, and opens a device of its own. */
	child = fork();
	if (child == 0) {
		struct ibv_poll_cq_attr attr = { 0 };
		CHECK(ibv_start_poll(s->cq, &attr) != 0);
		tear_down(s);
		struct side own = { 0 };
		set_up(&own);
		own.qp = create_srd(&own, 0);
		/* Its files are its own: they stay when the parent ends. */
		CHECK(strstr(getenv("SYSFS_PATH"), tree) == NULL);
		tear_down(&own);
		exit(0);
	}
	CHECK_EQUAL(exit_status(child), 0);

	/* The parent has not noticed. */
	CHECK(stat(s->context->device->ibdev_path, &st) == 0);
	for (int i = 0; i < 20; i++) {
		send_at(s, i, 0, 4096);
		expect(next(s), i, IBV_WC_SUCCESS, IBV_WC_SEND);
	}
	meet(s);
	tear_down(s);
}

static void forker_there(struct side *s)
{
	connect_srd(s, 0, 7);
	for (int i = 0; i < 20; i++)
		post_recv_at(s, i, i * 4096, 4096);
	for (int i = 0; i < 20; i++)
		CHECK_EQUAL(next(s).status, IBV_WC_SUCCESS);
	meet(s);
	tear_down(s);
}

static void forked_children(void)
{
	two_processes(forker_here, forker_there);
}

/* ---- the direct data path stays off, and what is said of data order is true ---- */

static void direct_path_is_off(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	s->qp = create_srd(s, 0);
	uint8_t attr[40];
	/* Only newer headers declare it. */
	int (*query_cq)(struct ibv_cq *, void *, uint32_t) = (int (*)(struct ibv_cq *, void *, uint32_t))dlsym(RTLD_DEFAULT, "efadv_query_cq");
	CHECK(query_cq);
	CHECK_EQUAL(query_cq(ibv_cq_ex_to_cq(s->cq), attr, sizeof(attr)), EOPNOTSUPP);
	/* No operation is in order as a whole; writes are in blocks of 128 bytes. */
	CHECK_EQUAL(ibv_query_qp_data_in_order(s->qp, IBV_WR_RDMA_WRITE, 0), 0);
#ifdef __x86_64__
	CHECK_EQUAL(ibv_query_qp_data_in_order(s->qp, IBV_WR_RDMA_WRITE, 1), 2);
#endif
	CHECK_EQUAL(ibv_query_qp_data_in_order(s->qp, IBV_WR_SEND, 1), 0);
	CHECK_EQUAL(ibv_query_qp_data_in_order(s->qp, IBV_WR_RDMA_READ, 1), 0);
	tear_down(s);
}

/* ---- thread and parent domains, which UCX uses ---- */

static void domains(void)
{
	struct side side = { 0 }, *s = &side;
	set_up(s);
	struct ibv_td_init_attr td_attr = { 0 };
	struct ibv_td *td = ibv_alloc_td(s->context, &td_attr);
	CHECK(td);
	struct ibv_parent_domain_init_attr attr = { .pd = s->pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(s->context, &attr);
	CHECK(parent && parent != s->pd);
	CHECK_EQUAL(ibv_dealloc_td(td), EBUSY);
	CHECK_EQUAL(ibv_dealloc_pd(s->pd), EBUSY);
	attr.pd = parent;
	CHECK(!ibv_alloc_parent_domain(s->context, &attr) && errno == EINVAL);
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(s->context, &cq_attr);
	CHECK(cq);
	CHECK_EQUAL(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	struct ibv_mr *mr = ibv_reg_mr(parent, s->buffer, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(ibv_dealloc_pd(parent), 0);
	CHECK_EQUAL(ibv_dealloc_td(td), 0);
	tear_down(s);
}

/* ---- profiles ---- */

static void profile(void)
{
	struct side side = { 0 }, *s = &side;
	s->context = open_device();
	struct ibv_device_attr device;
	struct efadv_device_attr efa;
	CHECK_EQUAL(ibv_query_device(s->context, &device), 0);
	CHECK_EQUAL(efadv_query_device(s->context, &efa, sizeof(efa)), 0);
	int generation = getenv("SRD_EFA_PROFILE")[3] - '0';
	CHECK_EQUAL(device.vendor_part_id, 0xefa0 + generation - 1);
	CHECK_EQUAL(!!(efa.device_caps & EFADV_DEVICE_ATTR_CAPS_RDMA_READ), generation >= 2);
	CHECK_EQUAL(!!(efa.device_caps & (1 << 3)), generation >= 3); /* RDMA write */
	CHECK_EQUAL(!!(efa.device_caps & (1 << 4)), generation >= 3); /* unsolicited writes */
	CHECK_EQUAL(!!efa.max_rdma_size, generation >= 2);
	/* What is not offered is refused. */
	s->pd = ibv_alloc_pd(s->context);
	static char memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(s->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK_EQUAL(!!mr, generation >= 2);
	if (mr)
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(s->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK_EQUAL(!!mr, generation >= 3);
	if (mr)
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(ibv_dealloc_pd(s->pd), 0);
	CHECK_EQUAL(ibv_close_device(s->context), 0);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "posting_while_polling", posting_while_polling },
		{ "silence_after_destroy", silence_after_destroy },
		{ "queue_pair_numbers", queue_pair_numbers },
		{ "deep_queues", deep_queues },
		{ "pci_address", pci_address },
		{ "names", names },
		{ "other_queue_pairs", other_queue_pairs },
		{ "other_structures", other_structures },
		{ "contexts", contexts },
		{ "forked_children", forked_children },
		{ "direct_path_is_off", direct_path_is_off },
		{ "domains", domains },
		{ "profile", profile },
		{ 0 },
	};
	return run_test(tests, argc, argv);
}
