/* Threads of a rank that call MPI at once (MPI_THREAD_MULTIPLE): threads THREADS ROUNDS. Each plays ping-pong with its like on the other rank;
 * another waits on a condition for the last of them, and one waits in vain for three milliseconds. Prints how long the game took. */
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LENGTH = 5000 };

static int rank, rounds, playing;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;

static void fail(const char *what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void *play(void *given) {
  int tag = (int)(long)given;
  unsigned char bytes[LENGTH];
  for (int round = 0; round < rounds; round++) {
    if (rank == 0) {
      memset(bytes, tag + round, LENGTH);
      MPI_Send(bytes, LENGTH, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
    }
    MPI_Recv(bytes, LENGTH, MPI_BYTE, 1 - rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < LENGTH; i++)
      if (bytes[i] != (unsigned char)(tag + round)) fail("wrong content");
    if (rank == 1) MPI_Send(bytes, LENGTH, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
  }
  pthread_mutex_lock(&lock);
  if (--playing == 0) pthread_cond_broadcast(&over);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void *wait_in_vain(void *given) {
  double began = MPI_Wtime();
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 3000000;
  if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
  pthread_mutex_lock(&lock);
  while (pthread_cond_timedwait(&never, &lock, &until) != ETIMEDOUT) continue;
  pthread_mutex_unlock(&lock);
  double waited = (MPI_Wtime() - began) * 1e6;
  if (waited < 2999 || waited > 3010) fprintf(stderr, "%.1f us\n", waited), fail("a timed wait took another time than 3 ms");
  return given;
}

int main(int count, char **arguments) {
  int provided, threads = count > 1 ? atoi(arguments[1]) : 4;
  rounds = count > 2 ? atoi(arguments[2]) : 10;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (provided != MPI_THREAD_MULTIPLE) fail("this MPI has no MPI_THREAD_MULTIPLE");
  pthread_t player[threads], waiter;
  double began = MPI_Wtime();
  playing = threads;
  for (long tag = 0; tag < threads; tag++) pthread_create(&player[tag], NULL, play, (void *)tag);
  pthread_create(&waiter, NULL, wait_in_vain, NULL);
  pthread_mutex_lock(&lock);
  while (playing > 0) pthread_cond_wait(&over, &lock);
  pthread_mutex_unlock(&lock);
  double took = (MPI_Wtime() - began) * 1e6;
  for (int tag = 0; tag < threads; tag++) pthread_join(player[tag], NULL);
  pthread_join(waiter, NULL);
  if (rank == 0) printf("threads %d, %d rounds: %.4f us\n", threads, rounds, took);
  MPI_Finalize();
  return 0;
}
