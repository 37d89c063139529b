//! Events of an object that a program was given: it says when it has done with them, and who destroys the object waits for
//! that.

/// Counts events that the program has done with, for those who wait for it.
///
/// # Safety
/// The pointers lead to the fields of a live object of ours.
pub(crate) unsafe fn acknowledge(
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *mut u32,
    count: u32,
) {
    // SAFETY: as the caller says; mutex and condition were initialised with the object.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        *completed = (*completed).wrapping_add(count);
        libc::pthread_cond_broadcast(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Waits until the program has acknowledged all that it was given: `ibv_ack_cq_events(3)`, `ibv_ack_async_event(3)`,
/// "to avoid races, destroying … will wait for all … events to be acknowledged".
///
/// # Safety
/// As [`acknowledge`].
pub(crate) unsafe fn wait_for_acknowledgements(
    mutex: *mut libc::pthread_mutex_t,
    cond: *mut libc::pthread_cond_t,
    completed: *const u32,
    reported: u32,
) {
    // SAFETY: as the caller says.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while completed.read_volatile() != reported {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}
