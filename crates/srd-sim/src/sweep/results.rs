//! Results in a directory, a file for each run, or each figure: workers share the runs of a sweep, an interrupted one goes on, and a merge
//! needs all of them. docs/OUTPUTS.md is the reference of the files.

use super::Shard;
use crate::record::{explained, program, write_whole};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::fmt::{self, Debug, Write as _};
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

/// Changes when older programs could not read the files any more.
const FORMAT: u32 = 1;
/// Most characters of a file's name that say what the run is called.
const LONGEST_WORDS: usize = 120;
/// Digits of the identity in a file's name.
const DIGITS: usize = 16;

/// A directory of results.
#[derive(Clone, Debug)]
pub struct Results(PathBuf);

/// By what a result is found: what it is called, and a fingerprint of all that decides it.
#[derive(Clone, PartialEq, Debug)]
pub struct Key {
    words: String,
    identity: String,
}

/// What there is under a key.
#[derive(Clone, PartialEq, Debug)]
pub enum Found<T> {
    /// Nothing.
    Missing,
    /// A file that ends too early, or is none of these files; how it is.
    Damaged(&'static str),
    /// The result of another program or run; whose.
    Foreign(String),
    /// The result.
    Whole(T),
}

/// What a file says before its result.
#[derive(Deserialize)]
struct Head {
    format: u32,
    program: String,
    identity: String,
}

#[derive(Deserialize)]
struct Body<T> {
    result: T,
}

#[derive(Serialize)]
struct Whole<'a, T> {
    format: u32,
    program: &'a str,
    identity: &'a str,
    result: &'a T,
}

/// Hashes text as it is written.
struct Digest(SipHasher13);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Key {
    /// Of what is called `words`, and comes out the same if `causes` are the same. Those must show themselves alike on every
    /// machine.
    pub fn of(words: &str, causes: &impl Debug) -> Key {
        let mut digest = Digest(SipHasher13::new());
        let _ = write!(digest, "{causes:?}");
        let identity = format!("{:032x}", u128::from(digest.0.finish128()));
        Key { words: words.to_string(), identity }
    }

    /// The name of its file.
    pub fn file(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { ' ' };
        let words = self.words.chars().map(plain).collect::<String>();
        let mut name = words.split_whitespace().collect::<Vec<_>>().join("-");
        name.truncate(LONGEST_WORDS);
        format!("{}-{}.json", name.trim_start_matches(['.', '-']), &self.identity[..DIGITS])
    }
}

impl Results {
    /// Those in a directory.
    pub fn of(directory: &Path) -> Results {
        Results(directory.to_path_buf())
    }

    /// Makes the directory if it is not there.
    pub fn make(&self) -> io::Result<()> {
        fs::create_dir_all(&self.0)
            .map_err(|error| explained(error, format!("cannot make the directory {}", self.0.display())))
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// The file of a key.
    fn path(&self, key: &Key) -> PathBuf {
        self.0.join(key.file())
    }

    /// What there is under a key.
    pub fn find<T: DeserializeOwned>(&self, key: &Key) -> io::Result<Found<T>> {
        let path = self.path(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) => return Err(explained(error, format!("cannot read {}", path.display()))),
        };
        Ok(read(&bytes, key))
    }

    /// Leaves a result under a key, whole or not at all. `shard` is that of the worker.
    pub fn keep<T: Serialize + DeserializeOwned + Debug>(
        &self,
        key: &Key,
        shard: Shard,
        result: &T,
    ) -> io::Result<()> {
        let path = self.path(key);
        let text = written(key, result)
            .map_err(|why| io::Error::other(format!("cannot write {}: {why}", path.display())))?;
        let part = self.0.join(format!("{}.{}.part", key.file(), shard.stem()));
        write_whole(&path, &part, &text)
    }

    /// Keeps other workers from the same shard for as long as the lock is held, at most as long as this process lives. `None`
    /// where the file system has no locks.
    pub fn lock(&self, shard: Shard) -> io::Result<Option<Flock<File>>> {
        let path = self.0.join(format!("{}.lock", shard.stem()));
        let cannot = |error| explained(error, format!("cannot write {}", path.display()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(cannot)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let host = nix::unistd::gethostname().unwrap_or_default();
                let ours = format!("{}, process {}\n", host.display(), std::process::id());
                lock.set_len(0).map_err(cannot)?;
                io::Seek::rewind(&mut *lock).map_err(cannot)?;
                lock.write_all(ours.as_bytes()).map_err(cannot)?;
                Ok(Some(lock))
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "one that has just begun",
                    holder => holder,
                };
                Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!(
                        "another worker is at shard {shard} of {}: {holder}. Wait for it or end it; then this one does what is left",
                        self.0.display()
                    ),
                ))
            }
            Err(_) => Ok(None),
        }
    }
}

/// The text of a file. What cannot be read again as it was is refused here, not in a merge.
fn written<T: Serialize + DeserializeOwned + Debug>(key: &Key, result: &T) -> Result<String, String> {
    let whole = Whole { format: FORMAT, program: &program(), identity: &key.identity, result };
    let text = serde_json::to_string(&whole).map_err(|error| error.to_string())? + "\n";
    match read::<T>(text.as_bytes(), key) {
        Found::Whole(again) if format!("{again:?}") == format!("{result:?}") => Ok(text),
        _ => Err("a number of the result is infinite or none, which JSON has no word for".to_string()),
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8], key: &Key) -> Found<T> {
    // An object has its last brace at its end, so that one cut short is none.
    let ends_early = bytes.starts_with(b"{") && !bytes.trim_ascii_end().ends_with(b"}");
    let damage = |error: serde_json::Error| match error.is_eof() || ends_early {
        true => "cut short",
        false => "no result of a run",
    };
    let head: Head = match serde_json::from_slice(bytes) {
        Ok(head) => head,
        Err(error) => return Found::Damaged(damage(error)),
    };
    if head.program != program() || head.format != FORMAT {
        return Found::Foreign(format!("of {}", head.program));
    }
    if head.identity != key.identity {
        return Found::Foreign("of another run".to_string());
    }
    match serde_json::from_slice::<Body<T>>(bytes) {
        Ok(body) => Found::Whole(body.result),
        Err(error) => Found::Damaged(damage(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Outcome, Times};
    use crate::sweep::{Change, Kept, Row, Sweep};

    fn row() -> Row {
        let times = Times { min: f64::MIN_POSITIVE, p50: 0.1 + 0.2, mean: 5e-324, p99: 1e300, max: f64::MAX };
        let change = Change { axis: "a \"b\"".to_string(), value: "ü\n".to_string() };
        Row {
            case: "15:1".to_string(),
            changes: vec![change],
            seed: u64::MAX,
            sets: vec!["seed=1".to_string()],
            complaints: vec![],
            warnings: vec!["beware".to_string()],
            outcome: Outcome {
                fct_us: Some(times),
                spread: Some(1.0 / 3.0),
                sim_us: -0.0,
                ..Outcome::default()
            },
        }
    }

    fn key() -> Key {
        Key::of("15:1, law.slope 0, seed 2", &1)
    }

    #[test]
    fn what_is_kept_is_found_to_the_bit() {
        let text = written(&key(), &Kept::from(row())).unwrap();
        let Found::Whole(kept) = read::<Kept>(text.as_bytes(), &key()) else { panic!("{text}") };
        assert_eq!(format!("{:?}", Row::from(kept)), format!("{:?}", row()));
    }

    #[test]
    fn what_json_cannot_say_is_refused_when_it_is_written() {
        for bad in [f64::NAN, f64::INFINITY] {
            let of = |outcome| written(&key(), &Kept::from(Row { outcome, ..row() }));
            assert!(of(Outcome { sim_us: bad, ..Outcome::default() }).is_err());
            assert!(of(Outcome { spread: Some(bad), ..Outcome::default() }).is_err());
        }
    }

    #[test]
    fn a_file_cut_short_anywhere_is_told() {
        let text = written(&key(), &Kept::from(row())).unwrap();
        for len in 0..text.trim_end().len() {
            assert_eq!(read::<Kept>(&text.as_bytes()[..len], &key()), Found::Damaged("cut short"), "{len}");
        }
        assert_eq!(read::<Kept>(b"# tables\n", &key()), Found::Damaged("no result of a run"));
        assert_eq!(read::<Kept>(&[0; 100], &key()), Found::Damaged("no result of a run"));
    }

    #[test]
    fn results_of_others_are_told() {
        let text = written(&key(), &Kept::from(row())).unwrap();
        let other = text.replace("OpenSRD ", "OpenSRD 0.0.");
        assert!(
            matches!(read::<Kept>(other.as_bytes(), &key()), Found::Foreign(whose) if whose.contains(" 0.0."))
        );
        let other = Key::of("15:1, law.slope 0, seed 2", &2);
        assert_eq!(read::<Kept>(text.as_bytes(), &other), Found::Foreign("of another run".to_string()));
    }

    #[test]
    fn names_are_those_of_plain_files() {
        let name = |words: &str| Key::of(words, &1).file();
        let tail = name("");
        assert!(tail.len() == "-.json".len() + DIGITS, "{tail}");
        assert_eq!(name("15:1, law.slope 0, seed 2"), format!("15-1-law.slope-0-seed-2{tail}"));
        assert_eq!(name("../../etc/ü x\0"), format!("etc-x{tail}"));
        assert_eq!(name(&"x".repeat(1000)).len(), LONGEST_WORDS + tail.len());
        assert_ne!(name("a"), Key::of("a", &2).file());
    }

    #[test]
    fn everything_that_decides_a_result_is_in_its_key() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let sweep = |more: &str| {
            let text = format!("seeds = \"1..2\"\n[[case]]\nscenario = \"htsim-incast.toml\"\n{more}");
            Sweep::parse(&text, "s.toml", &directory, &[]).unwrap()
        };
        let keys = |sweep: &Sweep| -> Vec<Key> {
            sweep.jobs().iter().map(|job| sweep.key(job, &sweep.scenario(job).unwrap())).collect()
        };
        let plain = keys(&sweep(""));
        assert_eq!(plain, keys(&sweep("")));
        assert_ne!(plain[0], plain[1], "seeds");
        for set in ["transport.paths=3", "law.slope=0.125", "queues.capacity=1MB", "fabric.cable_us=0.25"] {
            let changed = keys(&sweep(&format!("set = [\"{set}\"]\n")));
            assert!(
                plain.iter().zip(&changed).all(|(plain, changed)| plain.file() != changed.file()),
                "{set}"
            );
        }
    }

    #[test]
    fn one_worker_has_a_shard() {
        let directory = std::env::temp_dir().join(format!("srd-results-{}", std::process::id()));
        let results = Results::of(&directory);
        results.make().unwrap();
        let [first, second] = ["1/2", "2/2"].map(|text| text.parse::<Shard>().unwrap());
        let held = results.lock(first).unwrap().unwrap();
        let refusal = results.lock(first).unwrap_err().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        assert!(results.lock(second).unwrap().is_some());
        drop(held);
        assert!(results.lock(first).unwrap().is_some());
        fs::remove_dir_all(&directory).unwrap();
    }
}
