//! Where instances offer their counters to `srd top`: Unix sockets in a directory that only their user can enter. A path,
//! not a name of a network namespace, so that `srd top` sees the processes of all of them.

use crate::sys::process;
use crate::sys::unix::{connect, listener_pid};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The request for counters, as a line.
pub(crate) const COUNTERS: &str = "stats";
/// That for what the transport decides.
pub(crate) const DECISIONS: &str = "trace";

/// A socket younger than this may be one that is bound and does not listen yet.
const YOUNG: Duration = Duration::from_secs(10);

/// No answer is longer: 256 peers take less than 200 KB.
const LONGEST_ANSWER: usize = 64 << 20;

/// Sockets of dead processes that an instance which opens clears away at most.
const MOST_CLEARED: usize = 16;

/// Where a process of this user offers its counters, best first: the directory of the user's login, which a process that a
/// daemon has started knows nothing of, and one that is always there.
pub(crate) fn candidates() -> Vec<PathBuf> {
    // After `su` it may be another user's, who would find a directory there that is not his.
    let is_own = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.uid() == process::user());
    let login = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let login = login.filter(|path| path.is_absolute()).filter(is_own);
    let always = PathBuf::from(format!("/tmp/srd-{}", process::user()));
    login.map(|path| path.join("srd")).into_iter().chain([always]).collect()
}

/// Where processes of this user may have offered theirs: with or without a login of their own, and in machines
/// ([`MACHINES`]).
fn all_candidates() -> Vec<PathBuf> {
    let mut all = candidates();
    all.push(PathBuf::from(format!("/run/user/{}/srd", process::user())));
    all.sort();
    all.dedup();
    let machines: Vec<PathBuf> = all.iter().flat_map(|directory| machines(directory)).collect();
    all.extend(machines);
    all
}

/// What the name of a machine's directory begins with (`srd run --machine`). It lies in such a directory as this module's, and
/// takes its place for the processes of the machine, who see one another only.
pub const MACHINES: &str = "machine-";

fn machines(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(MACHINES);
    entries.filter(named).map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// Makes the directory unless it is there. Refuses one that others could change.
pub(crate) fn prepare(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(directory)
}

/// A directory that only this user can enter, for what processes of his on this host keep for a while.
pub fn private() -> io::Result<PathBuf> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for directory in candidates() {
        match prepare(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) => {
                last = io::Error::new(error.kind(), format!("cannot use {}: {error}", directory.display()));
            }
        }
    }
    Err(last)
}

/// Refuses a directory that is not this user's alone.
fn check(directory: &Path) -> io::Result<()> {
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() {
        return refuse("it is no directory");
    }
    if found.uid() != process::user() {
        return refuse("it belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return refuse("others may enter it; `chmod 700` it");
    }
    Ok(())
}

/// The name of the `number`th socket of this process.
pub(crate) fn socket_name(number: u32) -> String {
    format!("{}.{number}.sock", std::process::id())
}

/// The process that a socket's name names, by its number in its own PID namespace.
fn pid_of(name: &OsStr) -> Option<u32> {
    let (pid, number) = name.to_str()?.strip_suffix(".sock")?.split_once('.')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// The sockets in a directory, with the processes that their names name.
fn sockets(directory: &Path) -> impl Iterator<Item = (PathBuf, u32)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), pid_of(&entry.file_name())?)))
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Removes a socket to which nobody listens, unless it may be about to be listened to.
pub(crate) fn clear(socket: &Path, now: SystemTime) {
    let bound = fs::symlink_metadata(socket).and_then(|found| found.modified());
    if bound.is_ok_and(|bound| now.duration_since(bound).is_ok_and(|age| age >= YOUNG)) {
        let _ = fs::remove_file(socket); // somebody else has, if it fails
    }
}

/// Clears away some sockets of processes that have died without doing so. Cheap: of processes that may live nobody is
/// asked.
pub(crate) fn clear_some(directory: &Path, now: SystemTime) {
    for (socket, _) in sockets(directory).filter(|&(_, pid)| !is_running(pid)).take(MOST_CLEARED) {
        if matches!(connect(&socket), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused) {
            clear(&socket, now);
        }
    }
}

/// An instance that has been asked for its counters.
#[derive(Debug)]
pub struct Asked {
    /// The socket.
    pub path: PathBuf,
    /// The process: by its number here, or in a PID namespace that is not ours.
    pub pid: u32,
    /// Where the answer comes. `None`: too many others have asked.
    answer: Option<UnixStream>,
}

impl Asked {
    /// The answer: JSON, in which [`crate::Stats`] are.
    ///
    /// # Errors
    ///
    /// Nothing, or not all of it, has come until then: the process is stopped, its device is held or has failed, or it has
    /// just ended.
    pub fn read(&mut self, until: Instant) -> io::Result<Vec<u8>> {
        let stream = self.answer.as_mut().ok_or(io::ErrorKind::WouldBlock)?;
        let mut got = Vec::new();
        let mut piece = [0; 16 << 10];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match stream.read(&mut piece) {
                Ok(0) if got.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) => return Ok(got),
                Ok(n) => got.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if got.len() > LONGEST_ANSWER {
                return Err(io::Error::other("it never ends"));
            }
        }
    }

    /// The instance does not answer. If its process has died, and only a fork of it keeps the socket, that is cleared away.
    /// Returns whether it was.
    pub fn clear_if_dead(self) -> bool {
        let listener = self.answer.as_ref().and_then(listener_pid);
        let dead = listener.is_some_and(|pid| !is_running(pid));
        if dead {
            let _ = fs::remove_file(&self.path);
        }
        dead
    }
}

/// Asks all instances of this user for their counters. Sockets of those that have died are cleared away.
pub fn ask_all() -> Vec<Asked> {
    all_candidates().iter().flat_map(|directory| ask_in(directory, SystemTime::now())).collect()
}

/// Asks the instance at a socket ([`Asked::path`]) to tell what its transport decides: lines of JSON, until this side closes
/// its writing half (and reads what is left) or goes away. The first line names the recorded process, or is
/// `{"error": "why not"}`; one of an earlier release answers with its counters.
///
/// # Errors
///
/// The process has ended, or as many others are asking as have room.
pub fn record(socket: &Path) -> io::Result<UnixStream> {
    let stream = connect(socket)?;
    say(&stream, DECISIONS)?;
    Ok(stream)
}

/// A request.
fn say(mut stream: &UnixStream, request: &str) -> io::Result<()> {
    stream.write_all(format!("{request}\n").as_bytes())
}

/// Directories in which processes of this user would offer their counters, and in which nobody looks, with the reason.
pub fn unusable() -> Vec<String> {
    let is_there = |directory: &PathBuf| fs::symlink_metadata(directory).is_ok();
    let all = all_candidates().into_iter().filter(is_there);
    all.filter_map(|directory| {
        let why = check(&directory).err()?;
        Some(format!("processes that would offer their counters in {} cannot: {why}", directory.display()))
    })
    .collect()
}

fn ask_in(directory: &Path, now: SystemTime) -> Vec<Asked> {
    if check(directory).is_err() {
        return Vec::new();
    }
    let ask = |(path, pid): (PathBuf, u32)| match connect(&path) {
        Ok(stream) => {
            let pid = listener_pid(&stream).unwrap_or(pid);
            let _ = say(&stream, COUNTERS); // it has just gone, which reading will tell
            Some(Asked { path, pid, answer: Some(stream) })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Asked { path, pid, answer: None }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            clear(&path, now);
            None
        }
        Err(_) => None, // it has just gone
    };
    sockets(directory).filter_map(ask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    /// A directory of the test's own. (Paths of sockets are short, so it cannot be in the build's.)
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("srd-test-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn later() -> SystemTime {
        SystemTime::now() + 2 * YOUNG
    }

    #[test]
    fn a_directory_is_made_for_its_user_alone() {
        let scratch = Scratch::new("made");
        let directory = scratch.0.join("srd");
        prepare(&directory).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        prepare(&directory).unwrap();
    }

    #[test]
    fn a_directory_that_others_could_change_is_refused() {
        let scratch = Scratch::new("refused");
        let open = scratch.0.join("open");
        prepare(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(prepare(&open).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let own = scratch.0.join("own");
        prepare(&own).unwrap();
        let link = scratch.0.join("link");
        symlink(&own, &link).unwrap();
        assert_eq!(prepare(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::write(scratch.0.join("file"), "").unwrap();
        assert_eq!(prepare(&scratch.0.join("file")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        // Another user's: root's, or for root one that is given away.
        let theirs = scratch.0.join("theirs");
        prepare(&theirs).unwrap();
        let theirs = if process::user() == 0 {
            std::os::unix::fs::chown(&theirs, Some(12345), None).unwrap();
            theirs
        } else {
            PathBuf::from("/")
        };
        assert!(prepare(&theirs).unwrap_err().to_string().contains("another user"));
    }

    #[test]
    fn sockets_that_nobody_listens_to_go_and_others_stay() {
        let scratch = Scratch::new("stale");
        let directory = scratch.0.join("srd");
        prepare(&directory).unwrap();
        // No process has a number above the kernel's limit of 2^22.
        let path = |name: &str| directory.join(name);
        drop(UnixListener::bind(path("4194305.0.sock")).unwrap());
        let _fork = UnixListener::bind(path("4194306.0.sock")).unwrap();
        drop(UnixListener::bind(path(&socket_name(7))).unwrap());
        drop(UnixListener::bind(path("another")).unwrap());

        clear_some(&directory, SystemTime::now());
        assert!(path("4194305.0.sock").exists(), "it may be about to be listened to");
        clear_some(&directory, later());
        assert!(!path("4194305.0.sock").exists());
        assert!(path(&socket_name(7)).exists(), "of a process that runs");

        let asked = ask_in(&directory, later());
        assert!(!path(&socket_name(7)).exists());
        assert!(path("another").exists(), "not a name of ours");
        let [asked] = <[Asked; 1]>::try_from(asked).unwrap();
        assert_eq!((asked.path.as_path(), asked.pid), (path("4194306.0.sock").as_path(), std::process::id()));
        assert!(!asked.clear_if_dead(), "this process listens");
        assert!(path("4194306.0.sock").exists());
    }

    #[test]
    fn only_names_of_sockets_are_taken_for_sockets() {
        let name = |text: &str| pid_of(OsStr::new(text));
        assert_eq!(name("12.0.sock"), Some(12));
        for text in ["12.sock", "12.0", "x.0.sock", "12.x.sock", "12.0.sock.tmp", ".sock"] {
            assert_eq!(name(text), None, "{text}");
        }
    }
}
