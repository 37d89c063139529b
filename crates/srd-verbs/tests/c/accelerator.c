/* A GPU's memory: registered by its address or by a DMA-BUF, sent from, received to, written and read by a peer. The driver is
 * tests/accelerator/libcuda.c, which no load or store of its memory survives. */
#define _GNU_SOURCE
#include "two.h"
#include <dlfcn.h>
#include <sys/mman.h>

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static int (*alloc_device)(uint64_t *, size_t), (*free_device)(uint64_t);
static int (*put)(uint64_t, const void *, size_t), (*get)(uint64_t, void *, size_t);
static uint64_t gpu;

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(library);
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	alloc_device = (int (*)(uint64_t *, size_t))dlsym(library, "cuMemAlloc_v2");
	free_device = (int (*)(uint64_t))dlsym(library, "cuMemFree_v2");
	put = (int (*)(uint64_t, const void *, size_t))dlsym(library, "stub_write");
	get = (int (*)(uint64_t, void *, size_t))dlsym(library, "stub_read");
	CHECK_EQUAL(init(0), 0);
	CHECK_EQUAL(alloc_device(&gpu, BUFFER), 0);
}

/* What is registered for the program is the GPU's memory from now on; `s->buffer` stays for the host's view of it. */
static void be_gpu(struct side *s)
{
	load();
	set_up(s);
	CHECK_EQUAL(ibv_dereg_mr(s->mr), 0);
	s->mr = ibv_reg_mr(s->pd, (void *)gpu, BUFFER, ALL);
	CHECK(s->mr);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	to_rts(s->qp, 7);
	uint8_t *host = s->buffer;
	s->buffer = (uint8_t *)gpu;
	introduce(s);
	s->buffer = host;
}

static void receive(struct side *s, uint64_t wr_id, size_t offset, uint32_t len)
{
	struct ibv_sge sge = { .addr = gpu + offset, .length = len, .lkey = s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;
	CHECK_EQUAL(ibv_post_recv(s->qp, &wr, &bad), 0);
}

static void post_from(struct side *s, uint64_t wr_id, int what, uint32_t lkey, uint64_t here, size_t there, uint32_t len)
{
	begin_wr(s, wr_id);
	if (what == IBV_WC_RDMA_WRITE)
		ibv_wr_rdma_write(s->qpx, s->peer.rkey, s->peer.buffer + there);
	else if (what == IBV_WC_RDMA_READ)
		ibv_wr_rdma_read(s->qpx, s->peer.rkey, s->peer.buffer + there);
	else
		ibv_wr_send(s->qpx);
	ibv_wr_set_sge(s->qpx, lkey, here, len);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
}

static void post(struct side *s, uint64_t wr_id, int what, size_t here, size_t there, uint32_t len)
{
	post_from(s, wr_id, what, s->mr->lkey, gpu + here, there, len);
}

static const uint32_t sends[] = { 1, 100, 1500, 8000 };
static const uint32_t lengths[] = { 1, 128, 5000, 100000, 900000 };

static void data_here(struct side *s)
{
	be_gpu(s);
	for (unsigned i = 0; i < 4; i++) {
		fill(s->buffer, sends[i], i);
		CHECK_EQUAL(put(gpu, s->buffer, sends[i]), 0);
		post(s, i, IBV_WC_SEND, 0, 0, sends[i]);
		expect(next(s), i, IBV_WC_SUCCESS, IBV_WC_SEND);
	}
	meet(s); /* what is written now lies where they have arrived */
	for (unsigned i = 0; i < 5; i++) {
		uint32_t len = lengths[i];
		fill(s->buffer, len, 40 + i);
		CHECK_EQUAL(put(gpu, s->buffer, len), 0);
		post(s, 10 + i, IBV_WC_RDMA_WRITE, 0, 64, len);
		expect(next(s), 10 + i, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		post(s, 20 + i, IBV_WC_RDMA_READ, 1 << 20, 64, len);
		expect(next(s), 20 + i, IBV_WC_SUCCESS, IBV_WC_SEND);
		memset(s->buffer, 0, len);
		CHECK_EQUAL(get(gpu + (1 << 20), s->buffer, len), 0);
		check_fill(s->buffer, len, 40 + i);
	}
	/* Into a DMA-BUF that can be mapped. */
	int fd = memfd_create("dma-buf", 0);
	CHECK(fd >= 0 && ftruncate(fd, 3 * 4096) == 0);
	struct ibv_mr *mapped = ibv_reg_dmabuf_mr(s->pd, 100, 8192, 100, fd, ALL);
	CHECK(mapped);
	post_from(s, 30, IBV_WC_RDMA_READ, mapped->lkey, 100, 64, 8192);
	expect(next(s), 30, IBV_WC_SUCCESS, IBV_WC_SEND);
	CHECK_EQUAL(pread(fd, s->buffer, 8192, 100), 8192);
	check_fill(s->buffer, 8192, 44);
	CHECK_EQUAL(ibv_dereg_mr(mapped), 0);
	close(fd);
	meet(s);
	tear_down(s);
}

static void data_there(struct side *s)
{
	be_gpu(s);
	for (unsigned i = 0; i < 4; i++)
		receive(s, i, 4096 + 9000 * i, 9000);
	for (unsigned i = 0; i < 4; i++) {
		struct done d = next(s);
		expect(d, i, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK_EQUAL(d.byte_len, sends[i]);
		CHECK_EQUAL(get(gpu + 4096 + 9000 * i, s->buffer, sends[i]), 0);
		check_fill(s->buffer, sends[i], i);
	}
	meet(s);
	meet(s);
	uint32_t len = lengths[4];
	CHECK_EQUAL(get(gpu + 64, s->buffer, len), 0);
	check_fill(s->buffer, len, 44);
	tear_down(s);
}

static void data(void)
{
	two_processes(data_here, data_there);
}

/* Memory that is freed while it is registered fails its own requests only. */
static void freed_here(struct side *s)
{
	be_gpu(s);
	meet(s); /* the other has freed its memory */
	post(s, 1, IBV_WC_RDMA_WRITE, 0, 0, 100);
	struct done d = next(s);
	CHECK_EQUAL(d.status, IBV_WC_REM_ACCESS_ERR);
	post(s, 2, IBV_WC_RDMA_READ, 0, 0, 5000);
	d = next(s);
	CHECK_EQUAL(d.status, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQUAL(free_device(gpu), 0);
	post(s, 3, IBV_WC_SEND, 0, 0, 1000);
	d = next(s);
	CHECK_EQUAL(d.status, IBV_WC_LOC_PROT_ERR);
	meet(s);
	tear_down(s);
}

static void freed_there(struct side *s)
{
	be_gpu(s);
	CHECK_EQUAL(free_device(gpu), 0);
	meet(s);
	meet(s);
	tear_down(s);
}

static void freed(void)
{
	two_processes(freed_here, freed_there);
}

/* What can be registered, by which call, and what is said of the rest. */
static void registrations(void)
{
	struct side side = { 0 }, *s = &side;
	load();
	set_up(s);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(s->pd, 0, 4096, gpu, -1, ALL);
	CHECK(mr); /* by its address, as libfabric's efa names it: the descriptor is not needed */
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(!ibv_reg_mr(s->pd, (void *)(gpu + BUFFER - 10), 100, ALL));
	CHECK_EQUAL(errno, EFAULT);
	CHECK(!ibv_reg_mr(s->pd, (void *)(gpu | 1ULL << 63), 4096, ALL)); /* no program has such an address */
	CHECK_EQUAL(errno, EFAULT);
	CHECK_EQUAL(free_device(gpu), 0);
	CHECK(!ibv_reg_mr(s->pd, (void *)gpu, 4096, ALL));
	CHECK_EQUAL(errno, EFAULT);

	int fd = memfd_create("dma-buf", 0);
	CHECK(fd >= 0 && ftruncate(fd, 3 * 4096) == 0);
	mr = ibv_reg_dmabuf_mr(s->pd, 100, 8192, 100, fd, ALL);
	CHECK(mr && mr->length == 8192 && mr->addr == (void *)100); /* it can be mapped */
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(!ibv_reg_dmabuf_mr(s->pd, 0, 0, 0, fd, ALL));
	CHECK_EQUAL(errno, EINVAL);
	CHECK(!ibv_reg_dmabuf_mr(s->pd, 0, 4 * 4096, 0, fd, ALL)); /* beyond its end */
	CHECK_EQUAL(errno, EFAULT);
	close(fd);
	CHECK(!ibv_reg_dmabuf_mr(s->pd, 0, 4096, 0, fd, ALL));
	CHECK_EQUAL(errno, EBADF);
	int ends[2];
	CHECK_EQUAL(pipe(ends), 0);
	CHECK(!ibv_reg_dmabuf_mr(s->pd, 0, 4096, 0, ends[0], ALL));
	CHECK_EQUAL(errno, EOPNOTSUPP);
	tear_down(s);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "data", data },
		{ "freed", freed },
		{ "registrations", registrations },
		{ 0 },
	};
	return run_test(tests, argc, argv);
}
