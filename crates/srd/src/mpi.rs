//! Which MPI starts a job, as command lines say it.

use clap::ValueEnum;
use srd_lab::Mpi;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// An MPI, where it lies, and what its launcher is told.
#[derive(clap::Args, Debug)]
pub struct Choice {
    /// Which MPI
    #[arg(long, value_enum, default_value = "ompi")]
    mpi: Stack,
    /// Its directory with bin/ and lib/ [default: what scripts/setup.sh has installed, else PATH]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// An argument for the MPI's launcher; may be given several times
    #[arg(long = "option", value_name = "ARG", allow_hyphen_values = true)]
    pub options: Vec<OsString>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Stack {
    /// Open MPI 5
    Ompi,
    /// Debian's Open MPI 4
    Debian,
    /// MPICH
    Mpich,
    /// Intel MPI
    Impi,
}

impl Choice {
    /// The MPI.
    pub fn mpi(&self) -> Mpi {
        match self.mpi {
            Stack::Ompi => Mpi::OpenMpi5,
            Stack::Debian => Mpi::OpenMpi4,
            Stack::Mpich => Mpi::Mpich,
            Stack::Impi => Mpi::Intel,
        }
    }

    /// Its directory, if one is given or known. `srd`: the path of this command.
    pub fn prefix(&self, srd: &Path) -> std::io::Result<Option<PathBuf>> {
        let given = self.prefix.as_ref().map(std::path::absolute).transpose()?;
        Ok(given.or_else(|| self.mpi().installed(srd)))
    }
}
