/* Calls that do not wait: each of them many times, while the other rank sleeps and nothing comes. They must take next to no time. Then a loop that
 * tests until a message comes, which must end at that moment. And who is on whose host. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { TIMES = 300, SOON_US = 600, SENT_AFTER_US = 20000 };

static int rank, wrong, flag, number, other;
static double began;
static MPI_Request request;
static MPI_Win window;

static void took(const char *what, double least, double most) {
  double us = (MPI_Wtime() - began) * 1e6;
  if (us < least || us > most) fprintf(stderr, "%s: %.1f us\n", what, us), wrong = 1;
}

#define MANY(what)                                    \
  do {                                                \
    began = MPI_Wtime();                              \
    for (int i = 0; i < TIMES; i++) { what; }         \
    took(#what, 0, SOON_US);                          \
  } while (0)

static void poll_in_vain(void) {
  MPI_Irecv(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
  MANY(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
  MANY(MPI_Testall(1, &request, &flag, MPI_STATUSES_IGNORE));
  MANY(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
  MANY(MPI_Iprobe(1, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
  MPI_Cancel(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MANY(MPI_Irecv(&number, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request); MPI_Cancel(&request); MPI_Wait(&request, MPI_STATUS_IGNORE));
  MANY(MPI_Ibarrier(MPI_COMM_SELF, &request); MPI_Wait(&request, MPI_STATUS_IGNORE));
  MANY(MPI_Allreduce(&rank, &other, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  MANY(MPI_Win_flush(1, window));
  MANY(MPI_Win_sync(window));
  MANY(MPI_Put(&number, 0, MPI_INT, 1, 0, 0, MPI_INT, window); MPI_Win_flush(1, window));
  MPI_Win_unlock_all(window);
  /* Some of MPI's own work in these is waited for: a few microseconds each. */
  began = MPI_Wtime();
  for (int i = 0; i < 20; i++) {
    MPI_Comm copy;
    MPI_Win own;
    int *base;
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, copy, &base, &own);
    MPI_Win_free(&own);
    MPI_Comm_free(&copy);
  }
  took("windows of one rank", 0, SOON_US);
}

/* Each rank is the only one of its host, and windows are not in a memory that others have. */
static void look_around(void) {
  MPI_Comm host;
  int here;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &here);
  if (here != 1) fprintf(stderr, "%d ranks on a host\n", here), wrong = 1;
  MPI_Comm_free(&host);
}

int main(int count, char **arguments) {
  int *base;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
  MPI_Barrier(MPI_COMM_WORLD);
  look_around();
  if (rank == 0) poll_in_vain();
  if (rank == 1) sleep(1);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Irecv(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
    began = MPI_Wtime();
    do MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    while (!flag);
    took("testing until a message comes", SENT_AFTER_US, SENT_AFTER_US + 10);
  } else {
    usleep(SENT_AFTER_US);
    MPI_Send(&rank, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
  }
  /* Nothing polls in MPI_Win_sync, and what is written comes all the same. */
  MPI_Win_lock_all(0, window);
  base[0] = 0;
  MPI_Win_sync(window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    number = 42;
    MPI_Put(&number, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
    MPI_Win_flush(1, window);
  } else {
    while (*(volatile int *)base != 42) MPI_Win_sync(window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_unlock_all(window);
  if (rank == 0) printf("polls: %s\n", wrong ? "wrong" : "right");
  MPI_Win_free(&window);
  MPI_Finalize();
  return wrong;
}
