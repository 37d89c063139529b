! Co-arrays: puts, strided gets, atomic additions and a sum; contents checked by every image.
program caf_check
  use, intrinsic :: iso_fortran_env
  implicit none
  integer, parameter :: n = 20000, rounds = 20
  integer :: box(n)[*], sums(4)[*]
  integer(atomic_int_kind) :: tally[*]
  integer :: here, all, to, from, r, i, wanted, total, got(n)
  here = this_image(); all = num_images()
  to = mod(here, all) + 1
  from = mod(here + all - 2, all) + 1
  call atomic_define(tally, 0)
  sync all
  do r = 1, rounds
    ! a put of all of it to the next image
    box(:)[to] = [(i * 7 + here * 1000 + r, i = 1, n)]
    sync all
    do i = 1, n
      if (box(i) /= i * 7 + from * 1000 + r) error stop "a put is not there"
    end do
    ! a strided get from the one before
    got(1:n/2) = box(1:n:2)[from]
    wanted = mod(from + all - 2, all) + 1
    do i = 1, n / 2
      if (got(i) /= (2 * i - 1) * 7 + wanted * 1000 + r) error stop "a get brought something else"
    end do
    call atomic_add(tally[1], here)
    sync all
  end do
  call atomic_ref(total, tally[1])
  if (total /= rounds * all * (all + 1) / 2) error stop "atomic additions are missing"
  sums = here
  call co_sum(sums)
  if (any(sums /= all * (all + 1) / 2)) error stop "co_sum"
  sync all
  if (here == 1) print '(a,i0,a)', "caf_check: ok, ", all, " images"
end program
