//! Commands of the documents work. A block of shell commands (```` ```sh ````) in README.md or docs/ runs as it stands, in a fresh
//! directory that looks like a checkout after `make build`; ```` ```sh root ```` runs where there is root; and ```` ```sh no-run: REASON ````
//! does not run here. Of every command, also of those within a line, what it names must exist: subcommands and options of `srd`,
//! targets of make, packages and tests of cargo, options of our scripts, and variables.
//!
//! Blocks run in namespaces of their own (network, mounts, processes), so that ports, labs and what is left running are theirs.

mod checkout;

use checkout::{repository, text, texts};
use regex_lite::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest that a block may take, on a machine that is busy with something else.
const LIMIT: Duration = Duration::from_secs(60);

/// Blocks that run at once.
const WORKERS: usize = 2;

/// What commands begin with, in blocks that have no mark and should have one.
const COMMANDS: [&str; 10] = [
    "srd",
    "target/srd/bin/srd",
    "make",
    "cargo",
    "sudo",
    "mpirun",
    "mpiexec",
    "export",
    "tshark",
    "tcpdump",
];

/// What follows directories when a block begins: its network, which has an interface with a private address and a default route.
const PRELUDE: &str = "set -e
mount --make-rprivate / && mount -t tmpfs run /run && mount -t tmpfs shm /dev/shm && mkdir -m 700 /run/user
ip link set lo up
ip link add eth0 type veth peer name far0
ip address add 10.0.0.1/24 dev eth0
ip link set eth0 up && ip link set far0 up
ip route add default via 10.0.0.2
exec bash -e -o pipefail \"$1\"";

/// README.md and all below docs/, by their paths.
fn documents() -> BTreeMap<String, String> {
    let mut found = texts("docs", ".md");
    found.insert("README.md".to_string(), text("README.md"));
    found
}

/// How a block of commands is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Runs {
    AsItStands,
    AsRoot,
    No,
}

/// A block of commands, and where it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Block {
    place: String,
    runs: Runs,
    text: String,
}

/// A document's blocks of commands, what stands in code within its lines, and what is wrong with marks.
#[derive(Default)]
struct Shell {
    blocks: Vec<Block>,
    spans: Vec<(String, String)>,
    wrong: Vec<String>,
}

impl Shell {
    fn read(path: &str, text: &str) -> Shell {
        let mut shell = Shell::default();
        let mut lines = text.lines().enumerate();
        let mut before = ""; // the last line that is not empty
        let mut prose = String::new();
        let mut paragraph = 1;
        while let Some((number, line)) = lines.next() {
            let place = format!("{path}:{}", number + 1);
            if let Some(mark) = line.trim_start().strip_prefix("```") {
                let mut block = String::new();
                for (_, line) in lines.by_ref().take_while(|(_, line)| line.trim_start() != "```") {
                    block = block + line + "\n";
                }
                shell.block(place, mark.trim(), block);
            } else if line.starts_with("    ")
                && !before.trim_start().starts_with(['-', '*'])
                && is_command(line)
            {
                shell.wrong.push(format!("{place}: indented commands; write them between ```sh and ```"));
            }
            if line.trim().is_empty() {
                shell.spans(path, paragraph, &std::mem::take(&mut prose));
            } else {
                if prose.is_empty() {
                    paragraph = number + 1;
                }
                if !line.trim_start().starts_with("```") {
                    prose = prose + line.trim() + "\n";
                }
                before = line;
            }
        }
        shell.spans(path, paragraph, &prose);
        shell
    }

    fn block(&mut self, place: String, mark: &str, text: String) {
        let (language, mark) = mark.split_once(' ').unwrap_or((mark, ""));
        let runs = match (language, mark.trim()) {
            ("sh", "") => Runs::AsItStands,
            ("sh", "root") => Runs::AsRoot,
            ("sh", mark) if mark.strip_prefix("no-run:").is_some_and(|reason| reason.trim().len() > 4) => {
                Runs::No
            }
            ("sh" | "bash" | "shell" | "console", _) => {
                self.wrong.push(format!(
                    "{place}: `{language} {mark}`: write `sh`, `sh root` or `sh no-run: REASON`"
                ));
                return;
            }
            ("", _) if text.lines().any(is_command) => {
                self.wrong.push(format!("{place}: commands in a block without a mark; write ```sh"));
                return;
            }
            _ => return,
        };
        self.blocks.push(Block { place, runs, text });
    }

    /// What stands between backticks in a paragraph, which may go over the end of a line.
    fn spans(&mut self, path: &str, paragraph: usize, prose: &str) {
        let mut line = paragraph;
        for (index, part) in prose.split('`').enumerate() {
            if index % 2 == 1 {
                self.spans.push((format!("{path}:{line}"), part.replace('\n', " ").replace("\\|", "|")));
            }
            line += part.matches('\n').count();
        }
    }

    fn all() -> Shell {
        let mut all = Shell::default();
        for (path, text) in documents() {
            let shell = Shell::read(&path, &text);
            all.blocks.extend(shell.blocks);
            all.spans.extend(shell.spans);
            all.wrong.extend(shell.wrong);
        }
        all
    }
}

fn is_command(line: &str) -> bool {
    let words = words(line);
    let Some(first) = words.iter().find(|word| !is_assignment(word)) else { return false };
    let first = first.as_str();
    COMMANDS.contains(&first) && words.len() > 1
        || first.starts_with("scripts/")
        || first.starts_with("tests/")
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    })
}

/// The words of a line as a shell sees them: quoted ones whole, without a comment, and what joins commands as words of its own.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut started = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, started) = (Some(c), true),
            (None, '#') if !started => break,
            (None, c) if c.is_whitespace() || ";|&()".contains(c) => {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
                if !c.is_whitespace() {
                    words.push(c.to_string());
                }
            }
            (_, c) => {
                word.push(c);
                started = true;
            }
        }
    }
    if started {
        words.push(word);
    }
    words
}

/// The commands of a text, each in words: continued lines joined, lists taken apart, assignments in front left out.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in text.replace("\\\n", " ").lines() {
        for command in words(line).split(|word| [";", "|", "&", "(", ")"].contains(&word.as_str())) {
            let from = command.iter().position(|word| !is_assignment(word) && word != "sudo" && word != "$");
            if let Some(from) = from {
                found.push(command[from..].to_vec());
            }
        }
    }
    found
}

/// A word that stands for others: `HOST`, `FILE.cm`, `SEEDS=N`, `...`.
fn stands_for_others(word: &str) -> bool {
    word.contains("...")
        || word.contains('…')
        || word.chars().any(|c| c.is_ascii_uppercase())
            && !word.split('.').next().unwrap().chars().any(|c| c.is_ascii_lowercase())
}

/// What commands may name.
struct Known {
    root: PathBuf,
    makefile: String,
    figures: String,
    /// Answers of `srd`, which is asked the same more than once.
    asked: BTreeMap<Vec<String>, Result<(), String>>,
}

impl Known {
    fn new() -> Known {
        let root = repository();
        let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
        let figures = Command::new(env!("CARGO_BIN_EXE_srd")).args(["figures", "--list"]).output().unwrap();
        let figures = String::from_utf8(figures.stdout).unwrap();
        Known { root, makefile, figures, asked: BTreeMap::new() }
    }

    /// What is wrong with a command, of all commands that stand in it: `mpirun … srd run …` has two.
    fn check(&mut self, command: &[String]) -> Result<(), String> {
        let name = command[0].as_str();
        for (at, word) in command.iter().enumerate() {
            let is_srd = word == "srd" || word.ends_with("/bin/srd");
            if is_srd
                && command.len() > at + 1
                && (at == 0 || ["run", "env"].contains(&command[at + 1].as_str()))
            {
                self.srd(&command[at + 1..])?;
            }
        }
        match name {
            "make" => self.make(&command[1..]),
            "cargo" => self.cargo(&command[1..]),
            _ if name.contains('/')
                && (name.ends_with(".py") || name.ends_with(".sh"))
                && !stands_for_others(name) =>
            {
                self.script(name, &command[1..])
            }
            _ => Ok(()),
        }
    }

    /// Asks `srd` itself, which looks at all that stands before `--help` first.
    fn srd(&mut self, arguments: &[String]) -> Result<(), String> {
        let mut asked: Vec<String> = Vec::new();
        for word in arguments {
            // An option that may be left out stands in brackets.
            let bare = word.trim_matches(['[', ']']);
            if word == "--" || [">", "<"].contains(&word.as_str()) {
                break;
            }
            if !(bare.is_empty() || bare == "..." || bare == "…") {
                asked.push(bare.to_string());
            }
        }
        let starts_others = asked.first().is_some_and(|word| word == "run")
            || asked.first().is_some_and(|word| word == "lab")
                && asked.get(1).is_some_and(|word| word == "exec" || word == "mpirun");
        if starts_others
            && asked.len() > 2
            && !arguments.contains(&"--".to_string())
            && asked.iter().skip(2).any(|word| !word.starts_with('-'))
        {
            return Err("write `--` in front of the program that it starts".to_string());
        }
        if asked.first().is_some_and(|word| word == "figures") {
            for name in asked[1..].iter().take_while(|word| !word.starts_with('-')) {
                if !stands_for_others(name)
                    && !self.figures.lines().any(|line| line.split([' ', ':']).next() == Some(name))
                {
                    return Err(format!("there is no figure {name}"));
                }
            }
        }
        if let Some(answer) = self.asked.get(&asked) {
            return answer.clone();
        }
        let answer = ask(&asked);
        self.asked.insert(asked, answer.clone());
        answer
    }

    fn make(&self, arguments: &[String]) -> Result<(), String> {
        for word in arguments {
            let (name, is_variable) =
                word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
            let there = if is_variable {
                self.makefile.contains(&format!("$({name})"))
                    || self.makefile.contains(&format!("{name}=N"))
                    || self.makefile.contains(&format!("[{name}="))
            } else {
                name.starts_with('-')
                    || self.makefile.lines().any(|line| line.starts_with(&format!("{name}:")))
            };
            if !there && !stands_for_others(name) {
                return Err(format!("the Makefile has no `{name}`"));
            }
            if !there && is_variable {
                return Err(format!("the Makefile has no variable {name}"));
            }
        }
        Ok(())
    }

    fn cargo(&self, arguments: &[String]) -> Result<(), String> {
        let value = |option: &str| {
            arguments
                .iter()
                .position(|word| word == option)
                .and_then(|at| arguments.get(at + 1))
                .filter(|it| !stands_for_others(it))
        };
        let Some(package) = value("-p") else { return Ok(()) };
        let home = self.root.join("crates").join(package);
        if !home.is_dir() {
            return Err(format!("there is no crate {package}"));
        }
        for (option, directory) in [("--test", "tests"), ("--bench", "benches"), ("--example", "examples")] {
            let Some(name) = value(option) else { continue };
            let home = home.join(directory);
            let declared =
                fs::read_to_string(self.root.join("crates").join(package).join("Cargo.toml")).unwrap();
            if !home.join(format!("{name}.rs")).exists()
                && !home.join(name).join("main.rs").exists()
                && !declared.contains(&format!("name = \"{name}\""))
            {
                return Err(format!("{package} has no {option} {name}"));
            }
        }
        Ok(())
    }

    /// Options of scripts stand in their sources, or in what these read their options with.
    fn script(&self, name: &str, arguments: &[String]) -> Result<(), String> {
        let Ok(text) = fs::read_to_string(self.root.join(name)) else {
            return Err(format!("there is no {name}"));
        };
        let own = arguments.iter().take_while(|word| *word != "srd" && *word != "--");
        for option in own.filter_map(|word| word.trim_matches(['[', ']']).strip_prefix("--")) {
            let option = option.split('=').next().unwrap();
            if option != "help" && !text.contains(&format!("--{option}")) {
                return Err(format!("{name} has no option --{option}"));
            }
        }
        Ok(())
    }
}

fn ask(arguments: &[String]) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_srd"));
    let answer = command.args(arguments).arg("--help").stdin(Stdio::null()).output().unwrap();
    if answer.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    let said = said.lines().next().unwrap_or_default().to_string();
    // In a line of text an option may stand alone: `srd sim --out`.
    if said.contains("a value is required")
        && arguments.last().is_some_and(|last| last.starts_with("--") && said.contains(last))
    {
        return Ok(());
    }
    // `invalid value 'PID' for …`, `unrecognized subcommand 'KIND'`: all before it was understood.
    let quoted = said.split('\'').nth(1).unwrap_or_default();
    if !said.contains("unexpected argument") && !quoted.starts_with('-') && stands_for_others(quoted) {
        Ok(())
    } else {
        Err(said)
    }
}

#[test]
fn every_block_of_commands_says_whether_it_runs() {
    let shell = Shell::all();
    assert!(shell.wrong.is_empty(), "{}", shell.wrong.join("\n"));
    let runs = shell.blocks.iter().filter(|block| block.runs != Runs::No).count();
    assert!(runs >= 15, "only {runs} of {} blocks run", shell.blocks.len());
}

#[test]
fn what_commands_name_exists() {
    let shell = Shell::all();
    let mut known = Known::new();
    let mut wrong = Vec::new();
    let blocks = shell.blocks.iter().map(|block| (&block.place, &block.text));
    let spans = shell.spans.iter().map(|(place, text)| (place, text));
    for (place, text) in blocks.chain(spans) {
        for command in commands(text) {
            if let Err(what) = known.check(&command) {
                wrong.push(format!("{place}: `{}`: {what}", command.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(known.asked.len() > 40, "only {} commands of srd were found", known.asked.len());
}

#[test]
fn blocks_that_do_not_run_are_at_least_shell() {
    for block in Shell::all().blocks {
        let shell = Command::new("bash").args(["-n", "-c", &block.text]).output().unwrap();
        assert!(shell.status.success(), "{}: {}", block.place, String::from_utf8_lossy(&shell.stderr));
    }
}

#[test]
fn variables_that_documents_name_are_known() {
    let list = Command::new(env!("CARGO_BIN_EXE_srd")).args(["env", "--list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let variable = Regex::new(r"\bSRD_[A-Z0-9_]*[A-Z0-9]\b").unwrap();
    let known: BTreeSet<&str> = variable.find_iter(&list).map(|found| found.as_str()).collect();
    assert!(known.len() > 15, "{known:?}");
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (number, line) in text.lines().enumerate() {
            for found in variable.find_iter(line).filter(|found| !known.contains(found.as_str())) {
                wrong.push(format!(
                    "{path}:{}: `srd env --list` does not name {}",
                    number + 1,
                    found.as_str()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_run_as_they_stand() {
    let root = nix::unistd::geteuid().is_root();
    let stage = repository().join("target/srd/lib/srd");
    let staged = stage.join("efa/libibverbs.so.1").exists() && stage.join("fi/libsrd-fi.so").exists();
    assert!(
        staged || std::env::var_os("OPENSRD_TEST_ROOT").is_none(),
        "no libraries in {}: `make build`",
        stage.display()
    );
    if let Err(said) = namespaces() {
        assert!(!root, "root of this machine must be able to have namespaces: {said}");
        eprintln!("SKIPPED: no namespaces: {said}");
        return;
    }
    let blocks: Vec<Block> = Shell::all().blocks.into_iter().filter(|block| block.runs != Runs::No).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some((number, block)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            blocks.get(at).map(|block| (at, block))
        } {
            let began = Instant::now();
            if block.runs == Runs::AsRoot && !root {
                eprintln!("SKIPPED: {}: needs root", block.place);
            } else if !staged && (block.text.contains("srd run") || block.text.contains("srd env")) {
                eprintln!("SKIPPED: {}: no libraries in {}: `make build`", block.place, stage.display());
            } else if let Err(said) = Checkout::new(number, &stage).run(&block.text) {
                failed.push(format!("==== {}\n{}\n---- {said}", block.place, block.text));
            } else {
                println!("{}: {:.1} s", block.place, began.elapsed().as_secs_f64());
            }
        }
        failed
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{} blocks fail\n{}", failed.len(), failed.join("\n"));
}

/// A command in namespaces of its own: what it starts ends with it.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
}

fn namespaces() -> Result<(), String> {
    let output = apart().arg("true").output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A fresh directory that looks like a checkout in which `make build` has run; removed when dropped.
struct Checkout(PathBuf);

impl Checkout {
    fn new(number: usize, stage: &Path) -> Checkout {
        let checkout =
            Checkout(std::env::temp_dir().join(format!("srd-docs-{}-{number}", std::process::id())));
        let own = &checkout.0;
        for directory in ["target/srd/bin", "target/srd/lib", "home"] {
            fs::create_dir_all(own.join(directory)).unwrap();
        }
        for entry in fs::read_dir(repository()).unwrap().map(Result::unwrap) {
            let name = entry.file_name();
            if name != "target" && name != ".git" {
                symlink(entry.path(), own.join(name)).unwrap();
            }
        }
        // Not a link to it: the command looks for its libraries beside itself.
        let (built, srd) = (env!("CARGO_BIN_EXE_srd"), own.join("target/srd/bin/srd"));
        if fs::hard_link(built, &srd).is_err() {
            fs::copy(built, &srd).unwrap();
        }
        symlink(stage, own.join("target/srd/lib/srd")).unwrap();
        checkout
    }

    fn run(&self, text: &str) -> Result<(), String> {
        let script = self.0.join("home/block");
        fs::write(&script, text).unwrap();
        let said = fs::File::create(self.0.join("home/said")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}:/usr/sbin:/sbin", self.0.join("target/srd/bin").display());
        let mut child = apart()
            .args(["bash", "-c", PRELUDE, "prelude"])
            .arg(&script)
            .current_dir(&self.0)
            .env_clear()
            .envs([("PATH", path.as_str()), ("LANG", "C.UTF-8"), ("XDG_RUNTIME_DIR", "/run/user")])
            .env("HOME", self.0.join("home"))
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .process_group(0)
            .spawn()
            .unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if began.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let said = fs::read(self.0.join("home/said")).unwrap();
        let said = String::from_utf8_lossy(&said);
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{status}\n{said}")),
            None => Err(format!("has not ended after {} s\n{said}", LIMIT.as_secs())),
        }
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn marks_say_how_a_block_runs() {
    let text = "a `srd top\n--once` b\n\n```sh\nsrd top\n```\n```sh root\nsrd lab up\n```\n```sh no-run: several hosts\nsrd doctor HOST\n```\n```toml\nx = 1\n```\n";
    let shell = Shell::read("README.md", text);
    let runs: Vec<_> =
        shell.blocks.iter().map(|block| (block.place.as_str(), block.runs, block.text.as_str())).collect();
    let expected = [
        ("README.md:4", Runs::AsItStands, "srd top\n"),
        ("README.md:7", Runs::AsRoot, "srd lab up\n"),
        ("README.md:10", Runs::No, "srd doctor HOST\n"),
    ];
    assert_eq!(runs, expected);
    assert_eq!(shell.spans, [("README.md:1".to_string(), "srd top --once".to_string())]);
    assert_eq!(shell.wrong, [""; 0]);
}

#[test]
fn commands_without_a_mark_or_without_a_reason_are_found() {
    let text = "text\n\n    srd top --once\n\n```\nSRD_MTU=1500 srd doctor\n```\n```sh no-run:\ntrue\n```\n```bash\ntrue\n```\n";
    let wrong = Shell::read("README.md", text).wrong;
    let places: Vec<_> = wrong.iter().map(|what| what.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["README.md:3", "README.md:5", "README.md:8", "README.md:11"], "{wrong:?}");
}

#[test]
fn commands_are_taken_apart_as_a_shell_does() {
    let text =
        "SRD_MTU=1500 srd run -- \\\n  prog 'a b' # why\nsrd perf server & (srd top; make \"build\")\n";
    let expected: [&[&str]; 4] = [
        &["srd", "run", "--", "prog", "a b"],
        &["srd", "perf", "server"],
        &["srd", "top"],
        &["make", "build"],
    ];
    assert_eq!(commands(text), expected);
}

#[test]
fn what_does_not_exist_is_found() {
    let mut known = Known::new();
    let mut check =
        |command: &str| commands(command).iter().try_for_each(|command| known.check(command)).is_ok();
    for right in [
        "srd top --once",
        "srd trace --record PID --for 2 --out FILE",
        "srd lab fault KIND AT ...",
        "make build",
        "make campaign SEEDS=5",
        "mpirun -np 2 srd run --efa -- ./prog --bogus",
        "cargo test -p srd --test citations",
        "srd figures dead-link --out DIR",
        "demo/demo.py --steps 3",
        "srd lab fault [--for-ms MS] blackhole spine1",
    ] {
        assert!(check(right), "{right}");
    }
    for wrong in [
        "srd tops",
        "srd top --twice",
        "mpirun -np 2 srd run --bogus -- ./prog",
        "make bild",
        "make campaign SEED=5",
        "srd figures dead-links",
        "cargo test -p srd --test citation",
        "cargo test -p srd-x",
        "demo/demo.py --step-count 3",
        "demo/demos.py",
        "srd perf --test latency",
        "srd run ./prog",
        "srd lab fault blackholes spine1",
    ] {
        assert!(!check(wrong), "{wrong}");
    }
}
