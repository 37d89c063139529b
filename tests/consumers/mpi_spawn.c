/*
 * Checks processes that come and go: spawns a child, exchanges messages with it, disconnects, and does that again. The
 * next child may get the queue pair of the last one, so whatever is still under way with that must not reach it.
 *
 *   mpi_spawn [N]
 *
 * Spawns N children one after the other (10 unless given). Rank 0 prints one summary line and exits 0. The first
 * difference found is told on standard error, and the job aborts with status 1.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By themselves, in several packets, by rendezvous. */
static const int SIZES[] = {8, 20000, 300000};
enum { KINDS = sizeof SIZES / sizeof *SIZES, MOST = 300000 };

static unsigned char out[MOST], in[MOST];

/* A byte of the message of that kind which `from` sends in that turn; parents are 0 and more, the child is -1. */
static unsigned char byte_of(int from, int turn, int kind, int at)
{
    unsigned x = (unsigned)(from + 2) * 2654435761u ^ (unsigned)turn * 40503u ^ (unsigned)kind * 977u ^ (unsigned)at;
    x *= 2246822519u;
    return (unsigned char)(x >> 24);
}

static void fill(int from, int turn, int kind)
{
    for (int at = 0; at < SIZES[kind]; at++)
        out[at] = byte_of(from, turn, kind, at);
}

static void check(int from, int turn, int kind)
{
    for (int at = 0; at < SIZES[kind]; at++) {
        if (in[at] != byte_of(from, turn, kind, at)) {
            fprintf(stderr, "mpi_spawn: turn %d, from %d, %d bytes: byte %d is wrong\n", turn, from, SIZES[kind], at);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void child(MPI_Comm parents, int turn)
{
    int count;
    MPI_Comm_remote_size(parents, &count);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int from = 0; from < count; from++) {
            MPI_Recv(in, SIZES[kind], MPI_BYTE, from, kind, parents, MPI_STATUS_IGNORE);
            check(from, turn, kind);
            fill(-1, turn, kind);
            MPI_Send(out, SIZES[kind], MPI_BYTE, from, kind, parents);
        }
    }
    MPI_Comm_disconnect(&parents);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm parents;
    MPI_Comm_get_parent(&parents);
    if (parents != MPI_COMM_NULL) {
        child(parents, atoi(argv[1]));
        MPI_Finalize();
        return 0;
    }
    int rank, turns = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int turn = 0; turn < turns; turn++) {
        char which[16];
        snprintf(which, sizeof which, "%d", turn);
        char *arguments[] = {which, NULL};
        MPI_Comm children;
        MPI_Comm_spawn(argv[0], arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
        for (int kind = 0; kind < KINDS; kind++) {
            fill(rank, turn, kind);
            MPI_Send(out, SIZES[kind], MPI_BYTE, 0, kind, children);
            MPI_Recv(in, SIZES[kind], MPI_BYTE, 0, kind, children, MPI_STATUS_IGNORE);
            check(-1, turn, kind);
        }
        MPI_Comm_disconnect(&children);
    }
    if (rank == 0)
        printf("mpi_spawn: ok, %d children\n", turns);
    MPI_Finalize();
    return 0;
}
