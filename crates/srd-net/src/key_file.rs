//! The file with the pre-shared key: who may have access to it, and what is in it.

use crate::open::{OpenError, advice_for};
use crate::sys::process;
use crate::sys::secret::SecretPage;
use srd_wire::seal::{Place, Psk};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

const ADVICE: &str = "SRD_KEY_FILE names a file with 64 hexadecimal digits (`srd key new` makes one)";

/// Key and white space.
const LONGEST: usize = 4096;

/// Whether an instance would take this key file. Says what is wrong with it, and what to do.
pub fn check(path: &Path) -> Result<(), OpenError> {
    read(path).map(drop)
}

/// The key in the file: in one place, where the core dump of a program has a hole.
pub(crate) fn read(path: &Path) -> Result<Psk, OpenError> {
    let failed = |e| OpenError::new(format!("cannot read the key file {}", path.display()), Some(e), ADVICE);
    // Nobody is to wait for a pipe that has been put there. Everything else is asked of the open file, not of its name,
    // behind which another could be by then.
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    permit(path, &file)?;
    let mut content = Zeroizing::new([0; LONGEST + 1]);
    let len = read_all(&mut file, &mut content[..]).map_err(failed)?;
    if len > LONGEST {
        return Err(OpenError::new(format!("{} is no key file", path.display()), None, ADVICE));
    }
    let mut secret = SecretPage::new().map_err(|e| {
        let advice = advice_for(&e);
        OpenError::new("cannot map a page that core dumps leave out", Some(e), advice)
    })?;
    Psk::read(&content[..len], secret.key_mut())
        .map_err(|e| OpenError::new(format!("key file {}: {e}", path.display()), None, ADVICE))?;
    if secret.key() == &[0; Psk::LEN] {
        return Err(OpenError::new(
            format!("key file {}: a key of zeroes only is no secret", path.display()),
            None,
            ADVICE,
        ));
    }
    Ok(Psk::kept_in(secret))
}

/// Refuses what anybody else may read or change: his is the key then, too.
fn permit(path: &Path, file: &File) -> Result<(), OpenError> {
    let found = file.metadata().map_err(|e| {
        OpenError::new(format!("cannot examine the key file {}", path.display()), Some(e), ADVICE)
    })?;
    if !found.is_file() {
        return Err(OpenError::new(format!("{} is no key file", path.display()), None, ADVICE));
    }
    let refuse = |what: String, advice: String| {
        Err(OpenError::new(format!("the key file {} is refused: {what}", path.display()), None, advice))
    };
    let user = process::user();
    if found.uid() != user && found.uid() != 0 {
        return refuse(
            format!("it belongs to user {}, who can read and change it", found.uid()),
            format!("make it the file of user {user} or of root (`chown {user} {}`)", path.display()),
        );
    }
    // Where the file has an access control list, the group's bits are the most that any entry of it grants.
    let who = match (found.mode() & 0o060 != 0, found.mode() & 0o006 != 0) {
        (false, false) => return Ok(()),
        (true, false) => "its group",
        (false, true) => "everybody on this host",
        (true, true) => "its group and everybody else on this host",
    };
    refuse(
        format!("{who} can read or change it (mode {:03o})", found.mode() & 0o777),
        format!(
            "`chmod 600 {0}`; if it has been open for long, make another key (`srd key new`)",
            path.display()
        ),
    )
}

/// Fills `buffer`, as far as there is something, without anything in between that would keep a copy.
fn read_all(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
