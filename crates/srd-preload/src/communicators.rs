//! Who is in a communicator, by rank in `MPI_COMM_WORLD`, which its handle does not say.
#![allow(unsafe_code)]

use crate::calls::{Found, is_open_mpi};
use crate::mpi;
use libc::{c_int, c_void};
use srd_virtual::calls::OTHER;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Those that have been asked for, by handle, until one is freed.
static KNOWN: Mutex<BTreeMap<usize, Arc<Members>>> = Mutex::new(BTreeMap::new());

/// MPICH's `MPI_COMM_WORLD`.
const MPICH_WORLD: usize = 0x4400_0000;

/// See the module. None of a communicator between two groups.
pub struct Members {
    ranks: Vec<u32>,
    /// What it is called in a [`srd_virtual::Call`].
    pub number: u32,
}

impl Members {
    pub fn count(&self) -> usize {
        self.ranks.len()
    }

    /// The rank in `MPI_COMM_WORLD` of one in the communicator.
    pub fn in_world(&self, rank: u32) -> u32 {
        self.ranks.get(rank as usize).copied().unwrap_or(rank)
    }
}

/// FNV-1a of ranks in the order of the world: other numbers for others.
fn number(ranks: &[u32]) -> u32 {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    let bytes = ranks.iter().flat_map(|rank| rank.to_le_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.clamp(1, OTHER - 1)
}

/// Of a communicator.
pub fn members(comm: usize) -> Arc<Members> {
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(members) = known().get(&comm) {
        return members.clone();
    }
    let members = Arc::new(ask(comm).unwrap_or(Members { ranks: Vec::new(), number: OTHER }));
    known().insert(comm, members.clone());
    members
}

/// A communicator was freed; another one may have its handle.
pub fn forget() {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

type Ask = unsafe extern "C-unwind" fn(usize, *mut c_void) -> c_int;
type Translate = unsafe extern "C-unwind" fn(usize, c_int, *const c_int, usize, *mut c_int) -> c_int;
type Free = unsafe extern "C-unwind" fn(*mut usize) -> c_int;

fn ask(comm: usize) -> Option<Members> {
    static INTER: Found = Found::new();
    static GROUP: Found = Found::new();
    static SIZE: Found = Found::new();
    static TRANSLATE: Found = Found::new();
    static FREE: Found = Found::new();
    let names = [
        c"PMPI_Comm_test_inter",
        c"PMPI_Comm_group",
        c"PMPI_Group_size",
        c"PMPI_Group_translate_ranks",
        c"PMPI_Group_free",
    ];
    let found: Vec<*mut c_void> = [&INTER, &GROUP, &SIZE, &TRANSLATE, &FREE]
        .into_iter()
        .zip(names)
        .map(|(found, name)| found.get(name))
        .collect();
    if found.contains(&std::ptr::null_mut()) {
        return None;
    }
    let world = if is_open_mpi() { mpi::variable(c"ompi_mpi_comm_world") as usize } else { MPICH_WORLD };
    // SAFETY: these are the functions of these names. The communicator is what the program gives to a function of MPI's now; where a handle is
    // written there is room for an address.
    unsafe {
        let [inter, of, size] =
            [found[0], found[1], found[2]].map(|ask| std::mem::transmute::<*mut c_void, Ask>(ask));
        let translate = std::mem::transmute::<*mut c_void, Translate>(found[3]);
        let free = std::mem::transmute::<*mut c_void, Free>(found[4]);
        let mut is_inter: c_int = 0;
        inter(comm, (&raw mut is_inter).cast());
        if is_inter != 0 {
            return None;
        }
        let (mut group, mut all, mut count, mut of_all): (usize, usize, c_int, c_int) = (0, 0, 0, 0);
        of(comm, (&raw mut group).cast());
        of(world, (&raw mut all).cast());
        size(group, (&raw mut count).cast());
        size(all, (&raw mut of_all).cast());
        let own: Vec<c_int> = (0..count).collect();
        let mut ranks: Vec<c_int> = vec![-1; own.len()];
        translate(group, count, own.as_ptr(), all, ranks.as_mut_ptr());
        free(&raw mut group);
        free(&raw mut all);
        let ranks: Vec<u32> = ranks.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
        let number = if count == of_all { 0 } else { number(&ranks) };
        Some(Members { ranks, number })
    }
}
