//! `srd lab ssh`: stands in for ssh where an MPI's launcher starts its helpers in hosts.

use srd_lab::Lab;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Arguments of `srd lab ssh`: those of ssh, of which options are passed over.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Options, host, command
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by the command, in the host.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<ExitCode> {
    let mut words = args.arguments.iter().skip_while({
        // ssh(1): these options have a value of their own.
        let mut is_value = false;
        move |word: &&OsString| {
            let is_option = word.to_string_lossy().starts_with('-');
            let passes = is_option || is_value;
            is_value = is_option && !is_value && ["-l", "-o", "-p", "-i"].contains(&&*word.to_string_lossy());
            passes
        }
    });
    let host = words.next().ok_or_else(|| anyhow::anyhow!("srd lab ssh needs a host"))?;
    let host = lab.host(&host.to_string_lossy())?;
    lab.become_host(host.index)?;
    // ssh hands its arguments, joined by blanks, to a shell; launchers quote for that.
    let mut line = OsString::new();
    for word in words {
        line.push(word);
        line.push(" ");
    }
    let error = Command::new("bash").arg("-c").arg(line).exec();
    Err(anyhow::Error::new(error).context(format!("cannot run a shell in {}", host.name)))
}
