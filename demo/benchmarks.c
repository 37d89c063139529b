/* What OSU's benchmarks measure, in short: the latency of 8 bytes between the two halves of the ranks, all pairs at once, and of all-reduces. Prints a
 * line for each: its name, and the mean time in microseconds of the rank for which it took the longest. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 10, WARMUP = 3, PAIRS_TIMES = 50 };

static int rank, ranks;

static void tell(const char *name, double began, int times, int parts) {
  double took = (MPI_Wtime() - began) / times / parts, longest;
  MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%s: %.2f us\n", name, longest * 1e6);
}

static void latency(void) {
  char bytes[8] = {0};
  int peer = (rank + ranks / 2) % ranks;
  double began = 0;
  for (int time = -WARMUP; time < PAIRS_TIMES; time++) {
    if (time == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      began = MPI_Wtime();
    }
    if (rank < peer) MPI_Send(bytes, sizeof bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(bytes, sizeof bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank > peer) MPI_Send(bytes, sizeof bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
  }
  tell("latency, 8 bytes", began, PAIRS_TIMES, 2);
}

static void all_reduce(const char *name, int count) {
  double *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out), took = 0;
  if (!in || !out) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int time = -WARMUP; time < TIMES; time++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (time >= 0) took += MPI_Wtime() - began;
  }
  tell(name, MPI_Wtime() - took, TIMES, 1);
  free(in);
  free(out);
}

int main(int count, char **arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  latency();
  all_reduce("all-reduce, 8 bytes", 1);
  all_reduce("all-reduce, 256 KB", 32768);
  MPI_Finalize();
  return 0;
}
