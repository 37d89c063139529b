//! `srd key`: makes the key that the hosts of a cluster share, and says whether a file is one.

use crate::output;
use anyhow::Context;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zeroize::Zeroizing;

const EXAMPLES: &str = "\
Examples:
  srd key new                      a key in ~/.config/srd/key, for you alone to read
  srd key new cluster.key          in this file; one that is there is never overwritten
  srd key check cluster.key        whether SRD would take it, and if not, why
  srd key check                    the file that SRD_KEY_FILE names

With SRD_KEY_FILE every packet is encrypted and authenticated; all hosts need the same key. For a single MPI job on hosts that
share a file system there is `srd run --sealed`, which makes a key and removes it when the job ends.

Exit code: 0 if all is well, otherwise 1.";

/// Arguments of `srd key`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Make a key file
    New {
        /// Where [default: srd/key in $XDG_CONFIG_HOME, or in ~/.config]
        file: Option<PathBuf>,
    },
    /// Say what is wrong with a key file
    Check {
        /// Which [default: that of SRD_KEY_FILE]
        file: Option<PathBuf>,
    },
}

/// Makes or checks.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::New { file } => {
            let file = match file {
                Some(file) => std::path::absolute(file)?,
                None => default_file()?,
            };
            make(&file)?;
            let name = file.display();
            output::text(&format!(
                "{name}: a new key, which only you can read\n\
                 here, and on every other host:   export SRD_KEY_FILE={name}\n\
                 the others need the same file:   scp -p {name} HOST:{name}\n"
            ))?;
        }
        Action::Check { file } => {
            let given = file.clone().or_else(|| std::env::var_os("SRD_KEY_FILE").map(PathBuf::from));
            let file = given.context("which file? SRD_KEY_FILE is not set")?;
            srd_net::key_file::check(&file)?;
            output::text(&format!("{}: a key, and only you or root can read it\n", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn default_file() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let directory = config.context("there is no home directory: name a FILE")?.join("srd");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory.join("key"))
}

/// Makes a key file that was not there, for its owner alone.
pub fn make(path: &Path) -> anyhow::Result<File> {
    const LEN: usize = 32;
    let mut key = Zeroizing::new([0; LEN]);
    OsRng
        .try_fill_bytes(&mut key[..])
        .map_err(anyhow::Error::msg)
        .context("the system gives no random numbers")?;
    let mut text = Zeroizing::new([b'\n'; 2 * LEN + 1]);
    for (digits, byte) in text.chunks_exact_mut(2).zip(key.iter()) {
        digits.copy_from_slice(&[byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot make the key file {}", path.display()))?;
    let written = file.write_all(&text[..]).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(path); // half a key is none
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file)
}
