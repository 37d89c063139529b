//! Known programs, one file each: they write scripts and know what the marks of these mean. `all_reduce` and `pairs` are no
//! programs of others but the operations that figures take times of; `grid` is how ranks lie beside each other.

pub mod all_reduce;
pub mod file_servers;
pub mod gpcnet;
pub(crate) mod grid;
pub mod hpcg;
pub mod hpl;
pub mod imb;
pub mod lammps;
pub mod osu;
pub mod pairs;
pub mod rotate;
