! A ring of messages and a sum, in Fortran: srd sim mpirun notes calls of this language, too.
program ring
  use mpi
  implicit none
  integer, parameter :: n = 1000
  integer :: error, rank, ranks, i
  double precision :: given(n), got(n), total, mean
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  given = rank
  do i = 1, 5
    call MPI_Sendrecv(given, n, MPI_DOUBLE_PRECISION, mod(rank + 1, ranks), 0, got, n, MPI_DOUBLE_PRECISION, &
                      mod(rank + ranks - 1, ranks), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    given = got
  end do
  mean = sum(got) / n
  call MPI_Reduce(mean, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, error)
  if (rank == 0) print '(a, f6.1)', 'sum of a ring: ', total
  call MPI_Finalize(error)
end program ring
