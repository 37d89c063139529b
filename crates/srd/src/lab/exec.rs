//! `srd lab exec`: replaces itself with a program in a host.

use srd_lab::Lab;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

/// Arguments of `srd lab exec`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Host or router: host0, h0, leaf1, spine2
    #[arg(value_name = "HOST")]
    node: String,
    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Replaces this process; comes back only if that fails.
pub fn run(lab: &Lab, args: &Args) -> anyhow::Result<ExitCode> {
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let mut command = lab.command_in(&args.node, program)?;
    // ip(8), which runs it, would end as if the program had failed.
    if which::which(program).is_err() {
        let path = Path::new(program);
        // A name without a slash is looked for in PATH only.
        let (why, code) = match path.components().count() > 1 && path.exists() {
            true => ("it may not be executed", 126),
            false => ("there is no such program", 127),
        };
        eprintln!("srd: cannot run {}: {why}", program.display());
        return Ok(ExitCode::from(code));
    }
    let error = command.args(arguments).exec();
    Err(anyhow::Error::new(error).context(format!("cannot run {} in {}", program.display(), args.node)))
}
