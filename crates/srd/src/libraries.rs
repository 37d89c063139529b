//! Where the libraries that go under other programs lie: beside this command, or where `SRD_LIB_DIR` says.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// Overrides the directory that is looked in.
pub const DIRECTORY_VARIABLE: &str = "SRD_LIB_DIR";

/// Libraries that serve one interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Libraries {
    /// The software EFA.
    Efa,
    /// The libfabric provider `srd`.
    Provider,
    /// The same provider under the name `efa`.
    ProviderAsEfa,
    /// The clock of a process in a simulated fabric.
    Clock,
}

use Libraries::{Clock, Efa, Provider, ProviderAsEfa};

impl Libraries {
    /// What programs or libfabric load, under the names that they ask for.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Efa => &["libibverbs.so.1", "libefa.so.1"],
            Provider => &["libsrd-fi.so"],
            ProviderAsEfa => &["libefa-fi.so"],
            Clock => &["libsrd-time.so"],
        }
    }

    /// Each in a directory of its own, under the one that all have in common: `LD_LIBRARY_PATH` would otherwise hand out
    /// more than was asked for, and libfabric loads whatever ends in `fi.so`.
    fn subdirectory(self) -> &'static str {
        match self {
            Efa => "efa",
            Provider => "fi",
            ProviderAsEfa => "fi-efa",
            Clock => "sim",
        }
    }

    /// The directory that should hold them, whether or not it does: below `SRD_LIB_DIR`, or `SRD_LIB_DIR` itself if they lie
    /// there; without it, below `../lib/srd` from the directory of this executable.
    pub fn directory(self) -> anyhow::Result<PathBuf> {
        let directory = match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) if directory.is_empty() => {
                bail!(
                    "{DIRECTORY_VARIABLE} is set to nothing; set it to the directory that holds the libraries, or unset it"
                )
            }
            Some(directory) => self.within(Path::new(&directory)),
            None => {
                let executable = std::env::current_exe().context("the path of this executable is unknown")?;
                let bin = executable.parent().context("this executable lies in no directory")?;
                bin.parent().unwrap_or(bin).join("lib/srd").join(self.subdirectory())
            }
        };
        // Programs may change their working directory, so the loader needs an absolute path.
        std::path::absolute(&directory).with_context(|| format!("{} names no directory", directory.display()))
    }

    fn within(self, directory: &Path) -> PathBuf {
        let own = directory.join(self.subdirectory());
        if own.is_dir() { own } else { directory.to_owned() }
    }

    /// Those that are missing in `directory`.
    pub fn missing(self, directory: &Path) -> Vec<&'static str> {
        self.names().iter().copied().filter(|name| !directory.join(name).is_file()).collect()
    }

    /// The directory that holds them, or a message that says where they were looked for and how to come by them.
    pub fn locate(self) -> anyhow::Result<PathBuf> {
        let directory = self.directory()?;
        let missing = self.missing(&directory);
        if directory.as_os_str().as_encoded_bytes().contains(&b':') {
            bail!(
                "{}: the loader takes a colon for the end of a directory (ld.so(8)); install OpenSRD where the path has none",
                directory.display()
            );
        }
        if missing.is_empty() {
            return Ok(directory);
        }
        let missing = missing.join(" and ");
        match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(given) => bail!(
                "{missing} not found in {}, by {DIRECTORY_VARIABLE}={}\n  \
                 set {DIRECTORY_VARIABLE} to the directory that holds {}/{}, or unset it to use those beside srd",
                directory.display(),
                given.display(),
                self.subdirectory(),
                self.names()[0],
            ),
            None => bail!(
                "{missing} not found in {}\n  \
                 build them: run `make build` in the OpenSRD source tree, then use its target/srd/bin/srd\n  \
                 or set {DIRECTORY_VARIABLE} to the directory that holds {}/{}",
                directory.display(),
                self.subdirectory(),
                self.names()[0],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_serves_all_and_so_does_that_of_one() {
        let all = std::env::temp_dir().join(format!("srd-libraries-{}", std::process::id()));
        std::fs::create_dir_all(all.join("fi")).unwrap();
        assert_eq!(Provider.within(&all), all.join("fi"));
        assert_eq!(Provider.within(&all.join("fi")), all.join("fi"));
        assert_eq!(Efa.within(&all), all, "nothing of it there");
        std::fs::remove_dir_all(&all).unwrap();
    }
}
