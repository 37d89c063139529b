//! What can go wrong, in words that say what to do.

use std::io;

/// Why something could not be done.
#[derive(thiserror::Error, Debug)]
pub enum Error {
    /// Not root, or a container that forbids namespaces.
    #[error("this machine does not let you make network namespaces: {reason}\n  {remedy}")]
    NotPermitted {
        /// What was refused.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A program that the lab needs is missing.
    #[error("{program} not found in PATH, /usr/sbin or /sbin\n  install it: apt-get install {package}")]
    MissingProgram {
        /// Its name.
        program: &'static str,
        /// Debian's package of it.
        package: &'static str,
    },
    /// The kernel refused something that the lab is made of.
    #[error("the kernel cannot do what a lab needs: {what}: {reason}\n  it needs {option}")]
    MissingFeature {
        /// What was tried.
        what: String,
        /// What the kernel said.
        reason: String,
        /// The kernel's option.
        option: &'static str,
    },
    /// A lab of that name exists.
    #[error("a lab named {name} is {state} already; `srd lab down --lab {name}` removes it")]
    Exists {
        /// Its name.
        name: String,
        /// "up", or that it is not yet.
        state: &'static str,
    },
    /// A namespace of a name that this lab would use exists, and no lab's notes tell of it.
    #[error(
        "there is a network namespace {namespace} already, and it is no lab's\n  \
         choose another name with --lab, or remove it: ip netns del {namespace}"
    )]
    ForeignNamespace {
        /// Its name.
        namespace: String,
    },
    /// No lab of that name.
    #[error("no lab named {name} is up{others}\n  `srd lab up --lab {name}` builds one")]
    NoSuchLab {
        /// The name asked for.
        name: String,
        /// Which ones are up, in words.
        others: String,
    },
    /// A lab that was not finished, or is being built at the moment.
    #[error("the lab {name} is half built; `srd lab down --lab {name}` removes what there is of it")]
    HalfBuilt {
        /// Its name.
        name: String,
    },
    /// A lab that is no more, whether or not there is another one of its name.
    #[error("the lab {name} has been removed in the meantime")]
    Removed {
        /// Its name.
        name: String,
    },
    /// A lab's name that cannot be one.
    #[error("{name:?} cannot be a lab's name: 1 to 32 letters, digits, '-' and '_', a letter first")]
    BadName {
        /// The name.
        name: String,
    },
    /// A shape that makes no sense.
    #[error("{0}")]
    BadShape(String),
    /// A host, link or router that does not exist.
    #[error("there is no {what} {name}; there are {there}")]
    NoSuchPart {
        /// Host, link, ...
        what: &'static str,
        /// The name asked for.
        name: String,
        /// Those that exist.
        there: String,
    },
    /// A fault with values that make no sense, or that cannot be had.
    #[error("{0}")]
    BadFault(String),
    /// An MPI job that cannot be.
    #[error("{0}")]
    BadJob(String),
    /// An experiment that cannot be, or that has failed.
    #[error("{0}")]
    BadExperiment(String),
    /// `ip` or `tc` refused a command.
    #[error("{namespace}: `{program} {command}` failed: {reason}")]
    Refused {
        /// Where.
        namespace: String,
        /// ip or tc.
        program: &'static str,
        /// The line that failed.
        command: String,
        /// What the program said.
        reason: String,
    },
    /// A BPF program was refused.
    #[error(
        "the kernel refused the BPF program {program} ({at}): {reason}\n  \
         it needs CONFIG_NET_CLS_BPF, CONFIG_NET_SCH_INGRESS, CONFIG_DEBUG_INFO_BTF and CAP_BPF"
    )]
    Bpf {
        /// Which.
        program: String,
        /// Where.
        at: String,
        /// What the kernel said.
        reason: String,
    },
    /// Something else that the system refused.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        error: io::Error,
    },
}

/// Result of the lab's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An experiment that cannot be, or that has failed, and why.
pub(crate) fn bad(what: String) -> Error {
    Error::BadExperiment(what)
}

/// Puts words before an error of the system.
pub(crate) trait Doing<T> {
    /// `what` is what was tried.
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::System { what: what(), error: error.into() })
    }
}
