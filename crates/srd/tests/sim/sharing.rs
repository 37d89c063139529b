//! Runs that many workers share: shards, results in a directory, merges, job files.

use super::*;

/// A directory that is not there yet.
fn fresh(name: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path.display().to_string()
}

/// Files of results in a directory.
fn results(directory: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// A sweep of nine runs over two cases, with names that files cannot have.
fn nine(name: &str, size: &str) -> String {
    written(&format!("{name}-base.toml"), &SMALL.replace("200KB", size));
    let sweep = format!(
        "seeds = \"1..3\"\n[[case]]\nname = \"../it's 6:1\"\nscenario = \"{name}-base.toml\"\n[[axis]]\n\
         key = \"transport.paths\"\nvalues = [1, 16]\n"
    );
    written(&format!("{name}.toml"), &sweep)
}

#[test]
fn shards_merged_are_what_one_process_makes() {
    let (file, directory) = (nine("shards", "200KB"), fresh("shards"));
    let markdown = run(&["sim", "sweep", &file]).stdout;
    for (shard, runs) in [("1/3", 3), ("2/3", 3), ("3/3", 3), ("3/3", 0)] {
        let output = run(&["sim", "sweep", &file, "--results", &directory, "--shard", shard]);
        let said = text(&output.stderr);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(said.contains(&format!("of 3 runs {} were there, {runs} made, 0 left", 3 - runs)), "{said}");
    }
    assert_eq!(results(&directory).len(), 9);
    assert_eq!(run(&["sim", "sweep", &file, "--merge", &directory]).stdout, markdown);
    let written = format!("{directory}/tables.markdown");
    assert!(run(&["sim", "sweep", &file, "--merge", &directory, "--markdown", &written]).stdout.is_empty());
    assert_eq!(std::fs::read(&written).unwrap(), markdown);
    // Cost differs from run to run, and nothing else.
    let rows = |more: &[&str]| {
        let mut rows = json(&[&["sim", "sweep", &file, "--json"], more].concat());
        let outcomes = rows.as_array_mut().unwrap().iter_mut();
        outcomes.for_each(|row| row["outcome"] = without_cost(row["outcome"].take()));
        rows
    };
    assert_eq!(rows(&["--merge", &directory]), rows(&[]));
    // What is there is not run again, whoever has made it.
    let before: Vec<_> = results(&directory).iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(run(&["sim", "sweep", &file, "--results", &directory]).stdout, markdown);
    assert_eq!(
        before,
        results(&directory).iter().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>()
    );
}

#[test]
fn a_merge_says_all_that_is_wrong_and_writes_nothing() {
    let (file, directory) = (nine("wrong", "20KB"), fresh("wrong"));
    let (code, said) = refused(&["sim", "sweep", &file, "--merge", &directory]);
    assert!(code == 1 && said.contains("is no directory"), "{said}");
    std::fs::create_dir(&directory).unwrap();
    let (code, said) = refused(&["sim", "sweep", &file, "--merge", &directory]);
    assert!(
        code == 1 && said.contains("9 missing: it-s-6-1-seed-1-") && said.contains("and 4 more"),
        "{said}"
    );
    assert!(
        said.contains(&format!("made by: srd sim sweep {file} --results {directory} --shard 1/1")),
        "{said}"
    );
    let markdown = run(&["sim", "sweep", &file, "--results", &directory]).stdout;
    let files = results(&directory);
    let change = |file: &Path, change: &dyn Fn(String) -> String| {
        std::fs::write(file, change(std::fs::read_to_string(file).unwrap())).unwrap();
    };
    change(&files[0], &|text| text[..text.len() / 2].to_string());
    change(&files[1], &|text| text.replace("OpenSRD ", "OpenSRD 0.0."));
    std::fs::copy(&files[3], &files[2]).unwrap();
    std::fs::remove_file(&files[4]).unwrap();
    let tables = format!("{directory}/tables.markdown");
    let (code, said) = refused(&["sim", "sweep", &file, "--merge", &directory, "--markdown", &tables]);
    assert!(code == 1 && said.contains("all 9 runs:") && !Path::new(&tables).exists(), "{said}");
    let name = |number: usize| files[number].file_name().unwrap().to_str().unwrap().to_string();
    for expected in [
        format!("1 missing: {}", name(4)),
        format!("1 damaged: {} (cut short)", name(0)),
        format!("2 not this program's: {} (of OpenSRD 0.0.0", name(1)),
        format!("{} (of another run)", name(2)),
    ] {
        assert!(said.contains(&expected), "{expected}: {said}");
    }
    // A worker does not mix either, and makes what it may.
    let (code, said) = refused(&["sim", "sweep", &file, "--results", &directory]);
    assert!(code == 1 && said.contains("Take another directory, or remove them"), "{said}");
    files[1..3].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let output = run(&["sim", "sweep", &file, "--results", &directory]);
    assert_eq!(output.stdout, markdown);
    assert!(text(&output.stderr).contains(&format!("{}: cut short: run again", name(0))), "{output:?}");
}

/// A worker that goes on for long, when it has made its first results.
fn worker(file: &str, directory: &str) -> std::process::Child {
    let child = srd(&["sim", "sweep", file, "--results", directory, "--shard", "1/1", "--threads", "1"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while results(directory).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "no result");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn a_shard_has_one_worker_and_outlives_it() {
    let (file, directory) = (nine("killed", "20MB"), fresh("killed"));
    let mut first = worker(&file, &directory);
    let shard = ["sim", "sweep", &file, "--results", &directory, "--shard", "1/1"];
    let (code, said) = refused(&shard);
    let expected = format!("another worker is at shard 1/1 of {directory}: ");
    assert!(code == 1 && said.contains(&expected), "{said}");
    assert!(said.contains(&format!("process {}.", first.id())), "{said}");
    // It has the lock, and has not said yet who it is.
    let lock = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    std::fs::write(lock.filter(|path| path.extension().is_some_and(|end| end == "lock")).last().unwrap(), "")
        .unwrap();
    let (code, said) = refused(&shard);
    assert!(code == 1 && said.contains(&format!("{expected}one that has just begun.")), "{said}");
    first.kill().unwrap();
    first.wait().unwrap();
    let done = results(&directory).len();
    assert!((1..9).contains(&done), "{done}");
    let output = run(&shard);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("of 9 runs {done} were there, {} made, 0 left", 9 - done)), "{said}");
    let merged = run(&["sim", "sweep", &file, "--merge", &directory]).stdout;
    assert_eq!(merged, run(&["sim", "sweep", &file]).stdout);
}

#[test]
fn a_full_disk_loses_nothing_that_is_finished() {
    let (file, directory) = (nine("full", "20KB"), fresh("full"));
    let arguments = ["sim", "sweep", &file, "--results", &directory, "--threads", "1"];
    // A file system of 16 KB in a mount namespace, as far as this user may; otherwise files that may have no byte.
    let script = "mkdir -p \"$0\" && if mount -t tmpfs -o size=16k,mode=755 none \"$0\"; then \"$@\"; code=$?; cat \"$0\"/*.json | wc -l; \
                  ls \"$0\" | grep -c part; exit $code; else exit 77; fi";
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            script,
            &directory,
            env!("CARGO_BIN_EXE_srd"),
        ])
        .args(arguments)
        .output()
        .unwrap();
    if output.status.code() == Some(77) || text(&output.stderr).contains("unshare: ") {
        println!("SKIPPED a_full_disk_loses_nothing_that_is_finished: no mount namespace");
        return;
    }
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        said.contains("it-s-6-1-") && said.contains("make room, or choose a directory elsewhere"),
        "{said}"
    );
    assert!(said.contains("of 9 runs in ") && said.contains("which stay there"), "{said}");
    let counts: Vec<usize> = text(&output.stdout).lines().map(|line| line.parse().unwrap()).collect();
    assert!(counts[0] > 0 && counts[0] < 9 && counts[1] == 0, "{counts:?}: {said}");

    // A directory that is none.
    let blocked = written("full-blocked", "");
    let (code, said) = refused(&["sim", "sweep", &file, "--results", &blocked]);
    assert!(code == 1 && said.contains("a file is in the way"), "{said}");
}

#[test]
fn others_run_the_shards() {
    let (file, directory) = (nine("others", "20KB"), fresh("oth ers"));
    let emit = |kind: &str| {
        let output = run(&["sim", "sweep", &file, "--results", &directory, "--emit", kind, "--shards", "3"]);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let shell = |script: &str, rank: Option<(&str, &str)>| {
        let output = Command::new("sh").args(["-ec", script]).envs(rank).output().unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let merged = || run(&["sim", "sweep", &file, "--merge", &directory]).stdout;
    let markdown = run(&["sim", "sweep", &file]).stdout;
    assert!(shell(&emit("parallel"), None).0);
    assert_eq!(merged(), markdown);

    std::fs::remove_dir_all(&directory).unwrap();
    let script = emit("mpi");
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
    for (rank, variable) in ranks.iter().enumerate() {
        let (succeeded, _, said) = shell(&script, Some((*variable, &rank.to_string())));
        assert!(succeeded && said.contains(&format!("shard {}/3", rank + 1)), "{said}");
    }
    assert_eq!(merged(), markdown);
    for rank in [None, Some(("PMI_RANK", "3"))] {
        let (succeeded, _, said) = shell(&script, rank);
        assert!(!succeeded && said.contains("start this with mpirun -n 3"), "{said}");
    }

    std::fs::remove_dir_all(&directory).unwrap();
    let script = emit("slurm");
    assert!(script.contains("#SBATCH --array=1-3\n") && script.contains("#SBATCH --time="), "{script}");
    for task in ["1", "2", "3"] {
        assert!(shell(&script, Some(("SLURM_ARRAY_TASK_ID", task))).0);
    }
    assert_eq!(merged(), markdown);

    let few = ["--emit", "mpi", "--shards", "10", "--results", &directory];
    let (code, said) = refused(&[&["sim", "sweep", &file], &few[..]].concat());
    assert!(code == 1 && said.contains("9 runs make no more than 9 shards"), "{said}");
}

#[test]
fn options_of_sharing_that_make_no_sense_are_refused() {
    let file = nine("senseless", "20KB");
    for (options, expected) in [
        (&["--shard", "1/2"][..], "--results <DIR>"),
        (&["--shard", "0/2", "--results", "d"], "write which part of how many, counted from 1"),
        (&["--shard", "1/2", "--results", "d", "--json"], "cannot be used with"),
        (&["--merge", "d", "--results", "d"], "cannot be used with"),
        (&["--merge", "d", "--threads", "2"], "cannot be used with"),
        (&["--merge", "d", "--shard", "1/2"], "cannot be used with"),
        (&["--emit", "slurm", "--results", "d"], "--shards <N>"),
        (&["--emit", "slurm", "--shards", "2"], "--results <DIR>"),
        (&["--emit", "pbs", "--shards", "2", "--results", "d"], "slurm, parallel, mpi"),
        (&["--shards", "2", "--results", "d"], "--emit <KIND>"),
    ] {
        let (code, said) = refused(&[&["sim", "sweep", &file], options].concat());
        assert!(code == 2 && said.contains(expected), "{options:?}: {said}");
    }
}

#[test]
fn figures_in_shards_come_as_the_same_page() {
    let (kept, one, merged) = (fresh("figure-results"), fresh("figures-one"), fresh("figures-merged"));
    let figures = ["figures", "incast-by-size", "data-ahead", "--quick"];
    let ended = |more: &[&str]| {
        let output = run(&[&figures[..], more].concat());
        assert!(output.status.success(), "{output:?}");
    };
    ended(&["--out", &one]);
    ended(&["--results", &kept, "--shard", "2/2"]);
    let (code, said) = refused(&[&figures[..], &["--merge", &kept, "--out", &merged]].concat());
    assert!(code == 1 && said.contains("1 missing: ") && !Path::new(&merged).exists(), "{said}");
    ended(&["--results", &kept, "--shard", "1/2"]);
    ended(&["--merge", &kept, "--out", &merged]);
    for file in ["index.html", "figures.json"] {
        let read = |directory: &str, command: &str| {
            let page = std::fs::read_to_string(format!("{directory}/{file}")).unwrap();
            assert!(page.contains(command), "{page}");
            page.replace(command, "")
        };
        assert_eq!(
            read(&one, &format!(" --out {one}")),
            read(&merged, &format!(" --merge {kept} --out {merged}"))
        );
    }
    let output = run(&[&figures[..], &["--results", &kept, "--emit", "slurm", "--shards", "2"]].concat());
    let script = text(&output.stdout);
    for needed in
        ["#SBATCH --mem=", "#SBATCH --time=", "# 2 figures in 2 shards, ", "the longest shard takes about "]
    {
        assert!(output.status.success() && script.contains(needed), "{needed}: {output:?}");
    }
    let task = Command::new("sh").args(["-ec", &script]).env("SLURM_ARRAY_TASK_ID", "2").output().unwrap();
    assert!(text(&task.stderr).contains("shard 2/2: of 1 runs 1 were there, 0 made"), "{task:?}");
    let (code, said) =
        refused(&[&figures[..], &["--results", &kept, "--emit", "mpi", "--shards", "3"]].concat());
    assert!(code == 1 && said.contains("2 figures make no more than 2 shards"), "{said}");
}
