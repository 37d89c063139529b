/* MPI with OpenMP: the threads compute, the main one calls MPI. Prints the sum that all ranks have come to, and how long it took. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1 << 16 };

int main(int count, char **arguments) {
  int provided, rank, ranks, steps = count > 1 ? atoi(arguments[1]) : 10;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  double *own = malloc(LENGTH * sizeof *own), *next = malloc(LENGTH * sizeof *next), sum = 0;
  for (int i = 0; i < LENGTH; i++) own[i] = rank + i % 7;
  MPI_Barrier(MPI_COMM_WORLD);
  double began = MPI_Wtime();
  for (int step = 0; step < steps; step++) {
    double part = 0, all;
#pragma omp parallel for reduction(+ : part) num_threads(4)
    for (int i = 0; i < LENGTH; i++) {
      own[i] = own[i] * 0.5 + step;
      part += own[i];
    }
    MPI_Sendrecv(own, LENGTH, MPI_DOUBLE, (rank + 1) % ranks, 0, next, LENGTH, MPI_DOUBLE, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Allreduce(&part, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    sum += all;
    double *swapped = own;
    own = next, next = swapped;
  }
  double took = (MPI_Wtime() - began) * 1e6;
  if (rank == 0) printf("openmp, %d steps: sum %.3f\nopenmp: %.4f us\n", steps, sum, took);
  MPI_Finalize();
  return 0;
}
