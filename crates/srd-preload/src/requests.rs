//! In which call the end is seen of what another one has begun: requests are compared before and after, since a call that sees the end of one
//! puts `MPI_REQUEST_NULL` in its place.
#![allow(unsafe_code)]

use crate::calls::{Words, is_open_mpi};
use crate::process;
use libc::c_int;
use srd_virtual::calls::Form;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The calls that have begun what has not ended, by request. An MPI may give the same one to all that was over at once.
static OPEN: Mutex<BTreeMap<usize, Vec<usize>>> = Mutex::new(BTreeMap::new());

/// So many requests that lie there.
fn read(at: usize, count: usize) -> Vec<usize> {
    // SAFETY: the program gives so many to a function of MPI's, which are addresses with Open MPI and numbers with others.
    let one = |number: usize| unsafe {
        match is_open_mpi() {
            true => (at as *const usize).add(number).read_unaligned(),
            false => (at as *const u32).add(number).read_unaligned() as usize,
        }
    };
    if at == 0 { Vec::new() } else { (0..count).map(one).collect() }
}

/// The requests whose end a call may see, as they are now.
pub fn given(form: &Form, words: &Words) -> Vec<usize> {
    let Some((count, at)) = form.ends else { return Vec::new() };
    let count = count.map_or(1, |count| words[usize::from(count)] as c_int);
    read(words[usize::from(at)], count.max(0) as usize)
}

/// A call that is noted at that place has returned, which was given these.
pub fn ended(form: &Form, words: &Words, given: &[usize], place: usize) {
    let now = self::given(form, words);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for (request, _) in given.iter().zip(&now).filter(|(then, now)| then != now) {
        if let Some(begun_by) = open.get_mut(request).and_then(Vec::pop) {
            process::note_end(begun_by, place);
        }
        if open.get(request).is_some_and(Vec::is_empty) {
            open.remove(request);
        }
    }
}

/// The same; it has perhaps begun something.
pub fn begun(form: &Form, words: &Words, place: usize) {
    let Some(&request) = form.begins.and_then(|at| read(words[usize::from(at)], 1).first().copied()).as_ref()
    else {
        return;
    };
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).entry(request).or_default().push(place);
}
