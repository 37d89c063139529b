/*
 * A steady exchange that shows every stall of the network: rank 0 stamps each iteration.
 *
 *   steady SECONDS BYTES FILE
 *
 * An iteration is a message of BYTES to the next rank and from the previous one, and an allreduce, which also tells
 * everybody when to stop. FILE gets one line per bin of 20 ms: start of the bin in seconds since the first iteration,
 * iterations that ended in it, the longest of them in microseconds. Standard output gets a line when the exchange
 * begins and a line of JSON at the end.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIN_S 0.02

struct bin {
    long iterations;
    double longest_s;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, long count, double q)
{
    return sorted[(long)(q * (double)(count - 1))];
}

static void write_bins(const char *name, const struct bin *bins, long count)
{
    FILE *file = fopen(name, "w");
    if (!file) {
        perror(name);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (long b = 0; b < count; b++)
        fprintf(file, "%.2f %ld %.1f\n", (double)b * BIN_S, bins[b].iterations, bins[b].longest_s * 1e6);
    fclose(file);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) {
        fprintf(stderr, "usage: steady SECONDS BYTES FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    double seconds = atof(argv[1]);
    int bytes = atoi(argv[2]);
    unsigned char *out = malloc((size_t)bytes + 1), *in = malloc((size_t)bytes + 1);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

    /* A stall may outlast the run: room for ten times as long. */
    long bin_count = (long)(seconds * 10 / BIN_S), capacity = 1 << 16, iterations = 0, last_bin = 0;
    struct bin *bins = calloc((size_t)bin_count, sizeof *bins);
    double *durations = malloc(sizeof *durations * (size_t)capacity);

    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("steady: exchanging\n");
        fflush(stdout);
    }
    double start = MPI_Wtime(), begin = start;
    for (int stop = 0; !stop; iterations++) {
        memset(out, (int)(iterations + rank) & 0xFF, (size_t)bytes);
        MPI_Sendrecv(out, bytes, MPI_BYTE, to, 0, in, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 0; k < bytes; k++) {
            if (in[k] != ((iterations + from) & 0xFF)) {
                fprintf(stderr, "steady: rank %d, iteration %ld: byte %d from rank %d is wrong\n", rank, iterations, k, from);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        long vote[2] = {rank == 0 && MPI_Wtime() - start >= seconds, iterations}, sum[2];
        MPI_Allreduce(vote, sum, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (sum[1] != iterations * ranks) {
            fprintf(stderr, "steady: rank %d: the sum of iteration %ld is wrong\n", rank, iterations);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        stop = (int)sum[0];
        double end = MPI_Wtime();
        if (iterations == capacity)
            durations = realloc(durations, sizeof *durations * (size_t)(capacity *= 2));
        durations[iterations] = end - begin;
        long b = (long)((end - start) / BIN_S);
        last_bin = b < bin_count ? b : bin_count - 1;
        bins[last_bin].iterations++;
        if (end - begin > bins[last_bin].longest_s)
            bins[last_bin].longest_s = end - begin;
        begin = end;
    }
    if (rank == 0) {
        write_bins(argv[3], bins, last_bin + 1);
        qsort(durations, (size_t)iterations, sizeof *durations, ascending);
        printf("{\"iterations\": %ld, \"seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"longest_us\": %.1f}\n",
               iterations, begin - start, quantile(durations, iterations, 0.5) * 1e6,
               quantile(durations, iterations, 0.99) * 1e6, durations[iterations - 1] * 1e6);
    }
    MPI_Finalize();
    return 0;
}
