/* What scripts of the simulator do ([[program]] of docs/SCENARIOS.md), as a program of MPI: the same messages in the same order, so that
 * the times can be compared. patterns OPERATION BYTES TIMES: prints the mean time of an operation over ranks and times, in
 * microseconds; of ping-pong half the round trip of ranks 0 and 1, and so on. Contents are checked. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static size_t bytes;
static unsigned char *out, *in;

static void fail(const char *what) {
  fprintf(stderr, "rank %d: wrong content: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static unsigned char mark(int from, int to, int round) { return (unsigned char)(from * 31 + to * 7 + round); }

static void fill(unsigned char *place, int to, int round) {
  memset(place, mark(rank, to, round), bytes);
}

static void check(const unsigned char *place, int from, int round) {
  unsigned char expected = mark(from, rank, round);
  for (size_t i = 0; i < bytes; i++)
    if (place[i] != expected) fail("message");
}

static void exchange(int to, int from, size_t length) {
  MPI_Request both[2];
  MPI_Irecv(in, (int)length, MPI_BYTE, from, 1, MPI_COMM_WORLD, &both[0]);
  MPI_Isend(out, (int)length, MPI_BYTE, to, 1, MPI_COMM_WORLD, &both[1]);
  MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
}

static void barrier(void) {
  for (int step = 1; step < ranks; step *= 2) exchange((rank + step) % ranks, (rank + ranks - step) % ranks, 0);
}

static void ping_pong(int round) {
  int peer = rank ^ 1;
  if (peer >= ranks) return;
  MPI_Request request;
  MPI_Irecv(in, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &request);
  if (rank & 1) MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request sent;
  MPI_Isend(out, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &sent);
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  if (!(rank & 1)) MPI_Wait(&request, MPI_STATUS_IGNORE);
  (void)round;
}

static void all_reduce(void) {
  for (int step = 1; step < ranks; step *= 2) exchange(rank ^ step, rank ^ step, bytes);
}

static void all_to_all(int round) {
  for (int other = 1; other < ranks; other++) {
    fill(out, rank ^ other, round);
    exchange(rank ^ other, rank ^ other, bytes);
    check(in, rank ^ other, round);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4 || (ranks & (ranks - 1))) {
    fprintf(stderr, "usage: patterns ping-pong|all-reduce|all-to-all BYTES TIMES, on a power of two of ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  bytes = (size_t)atoll(argv[2]);
  int times = atoi(argv[3]);
  out = malloc(bytes + 1), in = malloc(bytes + 1);
  memset(out, rank, bytes);
  double sum = 0;
  for (int round = -2; round < times; round++) {
    barrier();
    double began = MPI_Wtime();
    switch (argv[1][4]) {
    case '-': /* ping- */
      ping_pong(round);
      break;
    case 'r': /* all-r */
    default:
      if (strcmp(argv[1], "all-reduce") == 0)
        all_reduce();
      else
        all_to_all(round);
    }
    double took = MPI_Wtime() - began;
    if (round >= 0) sum += took;
  }
  double mean = sum / times * 1e6, all;
  MPI_Reduce(&mean, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (strcmp(argv[1], "ping-pong") == 0) mean = mean / 2; else mean = all / ranks;
  if (rank == 0) printf("%s of %zu bytes: %.4f us\n", argv[1], bytes, mean);
  MPI_Finalize();
  return 0;
}
