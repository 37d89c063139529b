//! `srd env`: shell commands that put OpenSRD under an existing program, and the list of all its variables.

use crate::consumer::{self, Variable};
use crate::libraries::Libraries;
use crate::{output, variables};
use anyhow::Context;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  eval \"$(srd env)\"                this shell and what it starts use the software EFA
  eval \"$(srd env --provider)\"     they use the libfabric provider srd
  srd env --shell fish | source    the same in fish
  srd env --list                   every SRD_* variable, its default, what it does and takes
  srd env --json                   the variables for another program to read";

/// Arguments of `srd env`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    layer: Layer,
    /// Syntax of the output; by default that of $SHELL
    #[arg(long, value_enum)]
    shell: Option<Shell>,
    /// List the variables that configure OpenSRD, instead of setting any
    #[arg(long, conflicts_with_all = ["efa", "provider", "as_efa", "preload", "shell"])]
    list: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "shell")]
    json: bool,
}

/// By which of its interfaces a program reaches OpenSRD.
#[derive(clap::Args, Debug)]
pub struct Layer {
    /// The software EFA: libibverbs and libefa (the default)
    #[arg(long, conflicts_with = "provider")]
    efa: bool,
    /// The libfabric provider "srd", for programs that use libfabric
    #[arg(long)]
    provider: bool,
    /// The provider under the name "efa", for programs that take no name they do not know (NIXL)
    #[arg(long, requires = "provider")]
    as_efa: bool,
    /// Also force the libraries in with LD_PRELOAD, for programs that bundle their own libibverbs under another name
    #[arg(long, conflicts_with = "provider")]
    preload: bool,
}

impl Layer {
    /// What the program's environment needs. Says which variables of the user's that replaces.
    pub fn variables(&self) -> anyhow::Result<Vec<Variable>> {
        let (variables, replaced) = match (self.provider, self.as_efa) {
            (false, _) => {
                let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
                let past = !self.preload && consumer::preloads_another(&preloaded);
                let warning = format!(
                    "LD_PRELOAD={preloaded}: programs find no software EFA; unset it, or add --preload"
                );
                (
                    consumer::efa(&Libraries::Efa.locate()?, self.preload),
                    past.then_some(warning).into_iter().collect(),
                )
            }
            (true, false) => consumer::provider(&Libraries::Provider.locate()?),
            (true, true) => consumer::provider_as_efa(&Libraries::ProviderAsEfa.locate()?),
        };
        for what in replaced {
            eprintln!("srd: {what}");
        }
        Ok(variables)
    }
}

/// Whose syntax the exports are in.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Shell {
    /// POSIX: sh, bash, dash, ksh, zsh
    Sh,
    /// csh, tcsh
    Csh,
    /// fish
    Fish,
}

impl Shell {
    fn of_login() -> Shell {
        let path = std::env::var_os("SHELL").unwrap_or_default();
        match Path::new(&path).file_name().and_then(OsStr::to_str) {
            Some("csh" | "tcsh") => Shell::Csh,
            Some("fish") => Shell::Fish,
            _ => Shell::Sh,
        }
    }

    fn export(self, name: &str, value: &str) -> String {
        match self {
            Shell::Sh => format!("export {name}='{}'\n", value.replace('\'', r"'\''")),
            // csh expands history even between single quotes.
            Shell::Csh => format!("setenv {name} '{}';\n", value.replace('\'', r"'\''").replace('!', r"\!")),
            Shell::Fish => {
                format!("set -gx {name} '{}';\n", value.replace('\\', r"\\").replace('\'', r"\'"))
            }
        }
    }
}

/// Prints the exports or the list.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        list(args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let variables = args
        .layer
        .variables()?
        .into_iter()
        .map(|Variable { name, value }| {
            let value = value.into_string().ok().with_context(|| format!("{name} is not valid UTF-8"))?;
            Ok((name, value))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if args.json {
        output::json(&variables.into_iter().collect::<std::collections::BTreeMap<_, _>>())?;
    } else {
        let shell = args.shell.unwrap_or_else(Shell::of_login);
        output::text(&variables.iter().map(|(name, value)| shell.export(name, value)).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(&variables::all().collect::<Vec<_>>());
    }
    let mut text = String::new();
    for variable in variables::all() {
        let now = match std::env::var_os(variable.name) {
            Some(value) => format!("; now {}", value.display()),
            None => String::new(),
        };
        text += &format!(
            "{} (default: {}{now})\n    {}\n    allowed: {}\n",
            variable.name, variable.default, variable.meaning, variable.allowed
        );
    }
    output::text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_survive_every_shell() {
        assert_eq!(Shell::Sh.export("A", "it's"), "export A='it'\\''s'\n");
        assert_eq!(Shell::Csh.export("A", "hey!"), "setenv A 'hey\\!';\n");
        assert_eq!(Shell::Fish.export("A", r"a\'b"), "set -gx A 'a\\\\\\'b';\n");
    }
}
