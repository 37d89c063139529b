/* Data from process to process: every operation, with its completion on both sides and its bytes. */
#include "two.h"

static uint32_t max_message(struct side *s)
{
	struct ibv_port_attr port;
	CHECK_EQUAL(ibv_query_port(s->context, 1, &port), 0);
	return port.max_msg_sz;
}

/* ---- sends of all lengths ---- */

static const uint32_t lengths[] = { 0, 1, 31, 32, 33, 127, 1000, 4096, 8000, 0 /* the longest */ };
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static uint32_t length_of(struct side *s, unsigned i)
{
	return i + 1 == LENGTHS ? max_message(s) : lengths[i];
}

static void sends_here(struct side *s)
{
	connect_srd(s, 0, 7);
	for (unsigned i = 0; i < LENGTHS; i++) {
		uint32_t len = length_of(s, i);
		fill(s->buffer, len, i);
		send_at(s, 100 + i, 0, len);
		struct done d = next(s);
		expect(d, 100 + i, IBV_WC_SUCCESS, IBV_WC_SEND);
		CHECK_EQUAL(d.qp_num, s->qp->qp_num);
		CHECK_EQUAL(d.vendor_err, 0);
	}
	meet(s);
	tear_down(s);
}

static void sends_there(struct side *s)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	for (unsigned i = 0; i < LENGTHS; i++)
		post_recv_at(s, 200 + i, i * 10000, 10000);
	to_rts(s->qp, 7);
	introduce(s);
	struct efadv_ah_attr ah;
	CHECK_EQUAL(efadv_query_ah(s->ah, &ah, sizeof(ah)), 0);
	for (unsigned i = 0; i < LENGTHS; i++) {
		struct done d = next(s);
		expect(d, 200 + i, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK_EQUAL(d.byte_len, length_of(s, i));
		CHECK_EQUAL(d.src_qp, s->peer.qpn);
		CHECK_EQUAL(d.qp_num, s->qp->qp_num);
		/* We have an address handle for the sender, so its number is reported and its GID is not. */
		CHECK_EQUAL(d.slid, ah.ahn);
		CHECK_EQUAL(d.sgid_error, -ENOENT);
		CHECK_EQUAL(d.wc_flags, 0);
		check_fill(s->buffer + i * 10000, d.byte_len, i);
	}
	meet(s);
	tear_down(s);
}

static void sends(void)
{
	two_processes(sends_here, sends_there);
}

/* ---- immediate data, inline data, two elements, the old way to post ---- */

static void forms_here(struct side *s)
{
	connect_srd(s, 0, 7);
	fill(s->buffer, 4096, 5);

	begin_wr(s, 1);
	ibv_wr_send_imm(s->qpx, htobe32(0xdecade05));
	struct ibv_sge two[2] = {
		{ .addr = (uintptr_t)s->buffer, .length = 1000, .lkey = s->mr->lkey },
		{ .addr = (uintptr_t)s->buffer + 1000, .length = 2000, .lkey = s->mr->lkey },
	};
	ibv_wr_set_sge_list(s->qpx, 2, two);
	set_peer(s);
	/* A second request in the same posting, inline: its bytes may be overwritten at once. */
	char text[32] = "inline data, thirty-two bytes it";
	s->qpx->wr_id = 2;
	s->qpx->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(s->qpx);
	ibv_wr_set_inline_data(s->qpx, text, 32);
	set_peer(s);
	memset(text, 0, sizeof(text));
	/* A third, inline from pieces. */
	char a[] = "abc", b[] = "defgh";
	struct ibv_data_buf pieces[2] = { { a, 3 }, { b, 5 } };
	s->qpx->wr_id = 3;
	ibv_wr_send(s->qpx);
	ibv_wr_set_inline_data_list(s->qpx, 2, pieces);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	int seen = 0;
	for (int i = 0; i < 3; i++) {
		struct done d = next(s);
		CHECK_EQUAL(d.status, IBV_WC_SUCCESS);
		seen |= 1 << d.wr_id;
	}
	CHECK_EQUAL(seen, 0xe);

	/* The old way: a list of two. */
	struct ibv_sge one = { .addr = (uintptr_t)s->buffer + 100, .length = 50, .lkey = s->mr->lkey };
	struct ibv_sge small = { .addr = (uintptr_t)"old inline", .length = 10 };
	struct ibv_send_wr second = {
		.wr_id = 5, .sg_list = &small, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.ud = { .ah = s->ah, .remote_qpn = s->peer.qpn, .remote_qkey = s->peer.qkey },
	};
	struct ibv_send_wr first = {
		.wr_id = 4, .next = &second, .sg_list = &one, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(77),
		.wr.ud = { .ah = s->ah, .remote_qpn = s->peer.qpn, .remote_qkey = s->peer.qkey },
	}, *bad = NULL;
	CHECK_EQUAL(ibv_post_send(s->qp, &first, &bad), 0);
	seen = 0;
	for (int i = 0; i < 2; i++)
		seen |= 1 << next(s).wr_id;
	CHECK_EQUAL(seen, 0x30);
	meet(s);
	tear_down(s);
}

static void forms_there(struct side *s)
{
	connect_srd(s, 0, 7);
	for (int i = 0; i < 5; i++)
		post_recv_at(s, i, i * 4096, 4096);
	/* Messages arrive in any order; each tells by its length which it is. */
	int seen = 0;
	for (int i = 0; i < 5; i++) {
		struct done d = next(s);
		CHECK_EQUAL(d.status, IBV_WC_SUCCESS);
		uint8_t *at = s->buffer + d.wr_id * 4096;
		switch (d.byte_len) {
		case 3000:
			CHECK(d.wc_flags & IBV_WC_WITH_IMM);
			CHECK_EQUAL(be32toh(d.imm), 0xdecade05);
			check_fill(at, 3000, 5);
			break;
		case 32:
			CHECK_EQUAL(d.wc_flags, 0);
			CHECK(memcmp(at, "inline data, thirty-two bytes it", 32) == 0);
			break;
		case 8:
			CHECK(memcmp(at, "abcdefgh", 8) == 0);
			break;
		case 50:
			CHECK_EQUAL(be32toh(d.imm), 77);
			break;
		case 10:
			CHECK(memcmp(at, "old inline", 10) == 0);
			break;
		default:
			CHECK(!"a message of this length was sent");
		}
		seen += d.byte_len;
	}
	CHECK_EQUAL(seen, 3000 + 32 + 8 + 50 + 10);
	meet(s);
	tear_down(s);
}

static void forms(void)
{
	two_processes(forms_here, forms_there);
}

/* ---- RDMA ---- */

#define FAR (1 << 20)

static void rdma_here(struct side *s)
{
	connect_srd(s, 0, 7);
	static const uint32_t sizes[] = { 1, 128, 5000, 100000, 900000 };
	for (unsigned i = 0; i < 5; i++) {
		uint32_t len = sizes[i];
		/* Write to the peer, read it back to elsewhere, compare. */
		fill(s->buffer, len, 40 + i);
		begin_wr(s, 10 + i);
		ibv_wr_rdma_write(s->qpx, s->peer.rkey, s->peer.buffer + 64);
		ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, len);
		set_peer(s);
		CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
		expect(next(s), 10 + i, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);

		memset(s->buffer + FAR, 0, len);
		begin_wr(s, 20 + i);
		ibv_wr_rdma_read(s->qpx, s->peer.rkey, s->peer.buffer + 64);
		ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer + FAR, len);
		set_peer(s);
		CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
		/* libefa's iterator calls a read a send. */
		expect(next(s), 20 + i, IBV_WC_SUCCESS, IBV_WC_SEND);
		check_fill(s->buffer + FAR, len, 40 + i);
	}

	/* With immediate data: the peer hears of it, and gives a receive for it. */
	fill(s->buffer, 70000, 3);
	begin_wr(s, 30);
	ibv_wr_rdma_write_imm(s->qpx, s->peer.rkey, s->peer.buffer + FAR, htobe32(0xabcd0001));
	ibv_wr_set_sge(s->qpx, s->mr->lkey, (uintptr_t)s->buffer, 70000);
	set_peer(s);
	CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
	expect(next(s), 30, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	meet(s);
	tear_down(s);
}

static void rdma_there_with(struct side *s, bool unsolicited)
{
	connect_srd(s, unsolicited ? UNSOLICITED_WRITE_RECV : 0, 7);
	if (!unsolicited)
		post_recv_at(s, 99, 0, 16);
	struct done d = next(s);
	expect(d, unsolicited ? 0 : 99, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(d.wc_flags & IBV_WC_WITH_IMM);
	CHECK_EQUAL(be32toh(d.imm), 0xabcd0001);
	CHECK_EQUAL(d.byte_len, 70000);
	CHECK_EQUAL(d.src_qp, s->peer.qpn);
	CHECK_EQUAL(d.unsolicited, unsolicited);
	check_fill(s->buffer + FAR, 70000, 3);
	meet(s);
	tear_down(s);
}

static void rdma_there(struct side *s)
{
	rdma_there_with(s, false);
}

static void rdma_there_unsolicited(struct side *s)
{
	rdma_there_with(s, true);
}

static void rdma(void)
{
	two_processes(rdma_here, rdma_there);
}

static void rdma_unsolicited(void)
{
	two_processes(rdma_here, rdma_there_unsolicited);
}

/* ---- a sender for which there is no address handle ---- */

static void stranger_here(struct side *s)
{
	connect_srd(s, 0, 7);
	send_at(s, 1, 0, 100);
	expect(next(s), 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	meet(s);
	tear_down(s);
}

static void stranger_there(struct side *s)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	post_recv_at(s, 2, 0, 4096);
	to_rts(s->qp, 7);
	CHECK_EQUAL(ibv_query_gid(s->context, 1, 0, &s->mine.gid), 0);
	s->mine.qpn = s->qp->qp_num;
	s->mine.qkey = QKEY;
	tell(s, &s->mine, sizeof(s->mine));
	hear(s, &s->peer, sizeof(s->peer));
	meet(s);
	struct done d = next(s);
	expect(d, 2, IBV_WC_SUCCESS, IBV_WC_RECV);
	CHECK_EQUAL(d.slid, 0xFFFF);
	CHECK_EQUAL(d.sgid_error, 0);
	CHECK(memcmp(&d.sgid, &s->peer.gid, 16) == 0);
	meet(s);
	tear_down(s);
}

static void stranger(void)
{
	two_processes(stranger_here, stranger_there);
}

/* ---- unreliable datagrams: the first 40 bytes of a receive belong to the routing header ---- */

static void datagram(struct side *s, bool sender)
{
	set_up(s);
	s->qp = create_ud(s);
	CHECK(!ibv_qp_to_qp_ex(s->qp));
	to_init(s->qp);
	memset(s->buffer, 0xEE, 8192);
	if (!sender)
		post_recv_at(s, 8, 0, 4096);
	to_rts(s->qp, -1);
	introduce(s);
	if (sender) {
		fill(s->buffer + 8192, 1000, 9);
		struct ibv_sge sge = { .addr = (uintptr_t)s->buffer + 8192, .length = 1000, .lkey = s->mr->lkey };
		struct ibv_send_wr wr = {
			.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
			.wr.ud = { .ah = s->ah, .remote_qpn = s->peer.qpn, .remote_qkey = s->peer.qkey },
		}, *bad;
		/* It has been taken when this returns: its memory may go, as UCX's does. */
		CHECK_EQUAL(ibv_post_send(s->qp, &wr, &bad), 0);
		CHECK_EQUAL(ibv_dereg_mr(s->mr), 0);
		memset(s->buffer, 0, BUFFER);
		expect(next(s), 7, IBV_WC_SUCCESS, IBV_WC_SEND);
		CHECK(quiet(s, 0.01));
		s->mr = ibv_reg_mr(s->pd, s->buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
		CHECK(s->mr);
	} else {
		struct done d = next(s);
		expect(d, 8, IBV_WC_SUCCESS, IBV_WC_RECV);
		CHECK_EQUAL(d.byte_len, 1040);
		check_fill(s->buffer + 40, 1000, 9);
		CHECK_EQUAL(s->buffer[1040], 0xEE);
	}
	meet(s);
	tear_down(s);
}

static void datagram_here(struct side *s)
{
	datagram(s, true);
}

static void datagram_there(struct side *s)
{
	datagram(s, false);
}

static void datagrams(void)
{
	two_processes(datagram_here, datagram_there);
}

/* ---- many messages both ways, polled the old way ---- */

#define MANY 3000

static void flood(struct side *s)
{
	set_up(s);
	s->qp = create_srd(s, 0);
	s->qpx = ibv_qp_to_qp_ex(s->qp);
	to_init(s->qp);
	for (int i = 0; i < DEPTH; i++)
		post_recv_at(s, i, i * 256, 256);
	to_rts(s->qp, 7);
	introduce(s);
	int sent = 0, received = 0, completed = 0;
	uint64_t sum = 0;
	double end = now() + 60;
	while (received < MANY || completed < MANY) {
		CHECK(now() < end);
		for (; sent < MANY && sent - completed < DEPTH; sent++) {
			uint64_t number = sent + 1;
			begin_wr(s, 1000);
			ibv_wr_send(s->qpx);
			ibv_wr_set_inline_data(s->qpx, &number, sizeof(number));
			set_peer(s);
			CHECK_EQUAL(ibv_wr_complete(s->qpx), 0);
		}
		struct ibv_wc wc[16];
		int n = ibv_poll_cq(ibv_cq_ex_to_cq(s->cq), 16, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++) {
			CHECK_EQUAL(wc[i].status, IBV_WC_SUCCESS);
			CHECK_EQUAL(wc[i].qp_num, s->qp->qp_num);
			if (wc[i].opcode == IBV_WC_RECV) {
				uint64_t number;
				memcpy(&number, s->buffer + wc[i].wr_id * 256, sizeof(number));
				sum += number;
				received++;
				CHECK_EQUAL(wc[i].byte_len, sizeof(number));
				CHECK_EQUAL(wc[i].src_qp, s->peer.qpn);
				post_recv_at(s, wc[i].wr_id, wc[i].wr_id * 256, 256);
			} else {
				CHECK_EQUAL(wc[i].wr_id, 1000);
				completed++;
			}
		}
		if (n == 0)
			sched_yield();
	}
	/* Each exactly once. */
	CHECK_EQUAL(sum, (uint64_t)MANY * (MANY + 1) / 2);
	meet(s);
	tear_down(s);
}

static void floods(void)
{
	two_processes(flood, flood);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "sends", sends }, { "forms", forms }, { "rdma", rdma }, { "rdma_unsolicited", rdma_unsolicited },
		{ "stranger", stranger }, { "datagrams", datagrams }, { "floods", floods }, { 0 },
	};
	return run_test(tests, argc, argv);
}
