//! `[[program]]` sections: what becomes of them, and what is wrong with them.

use srd_sim::apps::benchmarks::lammps::Benchmark;
use srd_sim::apps::catalogue::Kind;
use srd_sim::input::Scenario;
use std::collections::BTreeSet;
use std::path::Path;

const FABRIC: &str = "[fabric]\nkind = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4\n";

fn parse(programs: &str) -> Result<Scenario, String> {
    let text = format!("{FABRIC}{programs}");
    Scenario::parse(&text, "test.toml", Path::new(""), &[]).map_err(|error| error.to_string())
}

fn program(keys: &str) -> Result<Scenario, String> {
    parse(&format!("[[program]]\n{keys}\n"))
}

#[test]
fn every_kind_is_read() {
    for (keys, ranks) in [
        ("kind = \"barrier\"", 16),
        ("kind = \"all-reduce\"\nsize = \"1MiB\"\nalgorithm = \"ring\"\nper_host = 2", 32),
        ("kind = \"all-to-all\"\nsize = 32\nalgorithm = \"at-once\"\nat_once = 4\nhosts = 3", 3),
        ("kind = \"rotate-bandwidth\"\nsize = \"80KB\"\nrotations = 2\ntests = 1", 16),
        ("kind = \"rotate-latency\"\nmessages = 10", 16),
        ("kind = \"gpcnet\"\ntest = \"latency\"\nrings = 2\nper_host = 2", 32),
        ("kind = \"hpcg\"\ngflops = 1.5\npoints = 16\niterations = 2", 16),
        ("kind = \"lammps\"\nbenchmark = \"eam\"\nsteps = 2", 16),
        ("kind = \"hpl\"\norder = 1000\ngflops = 10\nrows = 2\ncolumns = 3", 6),
        ("kind = \"imb\"\nbenchmark = \"exchange\"\nsize = 0", 16),
        ("kind = \"file-servers\"\nservers = 2\nhosts = 8", 8),
        (
            "kind = \"training\"\nmodel = \"llama3-70b\"\nlayers = 4\ngflops = 4e5\ntensor = 2\npipeline = 2",
            16,
        ),
        (
            "kind = \"training\"\nmodel = \"deepseek-v3\"\nlayers = 4\ngflops = 4e5\nexpert = 8\nskew = 0.5",
            16,
        ),
    ] {
        let scenario = program(keys).unwrap_or_else(|error| panic!("{keys}: {error}"));
        let traffic = &scenario.traffic;
        assert_eq!((traffic.programs.len(), traffic.jobs[0].kind.ranks()), (ranks, ranks as u32), "{keys}");
        let places: BTreeSet<_> = traffic.programs.iter().map(|program| program.at).collect();
        assert_eq!(places.len(), ranks, "{keys}: a process runs one program");
    }
}

#[test]
fn ranks_are_placed_as_the_section_says() {
    let hosts = |placement: &str| {
        let keys = format!(
            "kind = \"barrier\"\nfirst_host = 4\nhosts = 4\nper_host = 2\nplacement = \"{placement}\""
        );
        let programs = program(&keys).unwrap().traffic.programs;
        programs.iter().map(|program| (program.at.host, program.at.process)).collect::<Vec<_>>()
    };
    assert_eq!(hosts("block"), [(4, 0), (4, 1), (5, 0), (5, 1), (6, 0), (6, 1), (7, 0), (7, 1)]);
    assert_eq!(hosts("scattered"), [(4, 0), (5, 0), (6, 0), (7, 0), (4, 1), (5, 1), (6, 1), (7, 1)]);
    let random = hosts("random");
    assert!(random != hosts("block") && random == hosts("random"));
    assert!(random.chunks(2).all(|pair| pair[0].0 == pair[1].0));
}

#[test]
fn programs_and_flows_have_processes_of_their_own() {
    let scenario = parse(
        "[[workload]]\nkind = \"flows\"\npairs = [\"0.1->5\"]\nsize = 1000\n\
         [[program]]\nkind = \"barrier\"\nhosts = 2\n\
         [[program]]\nkind = \"lammps\"\nbenchmark = \"lj\"\nhosts = 2\nforever = true\n\
         [[program]]\nkind = \"barrier\"\nhosts = 2\n",
    )
    .unwrap();
    let traffic = &scenario.traffic;
    let processes: Vec<_> =
        traffic.programs.iter().map(|program| (program.at.host, program.at.process)).collect();
    assert_eq!(processes, [(0, 2), (1, 0), (0, 3), (1, 1), (0, 4), (1, 2)]);
    let names: Vec<_> = traffic.jobs.iter().map(|job| (job.name.as_str(), job.first)).collect();
    assert_eq!(names, [("barrier", 0), ("lammps", 2), ("barrier-2", 4)]);
    assert!(matches!(&traffic.jobs[1].kind, Kind::Lammps(lammps) if lammps.benchmark == Benchmark::Lj));
    let endless: Vec<_> = traffic.programs.iter().map(|program| program.forever).collect();
    assert_eq!(endless, [false, false, true, true, false, false]);
}

#[test]
fn faults_of_programs_are_told() {
    for (keys, message) in [
        ("", "`kind` is missing"),
        ("kind = \"linpack\"", "one of \"barrier\", "),
        ("kind = \"barrier\"\nsize = 3", "[[program]] 0 (barrier) has no key `size`"),
        ("kind = \"barrier\"\nhosts = 17", "17 are too many: this fabric has 16 from host 0 on"),
        ("kind = \"barrier\"\nfirst_host = 16", "this fabric has hosts 0 to 15"),
        ("kind = \"barrier\"\nper_host = 513", "a whole number from 1 to 512"),
        ("kind = \"barrier\"\nforever = true", "the run would never end"),
        ("kind = \"all-to-all\"", "`size` is missing"),
        ("kind = \"all-to-all\"\nsize = 8\nat_once = 3", "goes with `algorithm = \"at-once\"`"),
        ("kind = \"gpcnet\"\ntest = \"latency\"\nhosts = 9", "GPCNeT needs 10 hosts, and has 9"),
        ("kind = \"hpcg\"\ngflops = 1\npoints = 20", "20 cannot be: write a multiple of 8"),
        ("kind = \"hpcg\"\ngflops = 0", "a number from 0.001 to"),
        (
            "kind = \"hpl\"\norder = 100\ngflops = 1\nrows = 4\ncolumns = 5",
            "20 ranks, and there are 16 processes",
        ),
        ("kind = \"hpl\"\norder = 100\ngflops = 1\nrows = 4", "`rows` and `columns` go together"),
        ("kind = \"hpl\"\norder = 60000000\ngflops = 1\nblock = 1", "too much memory"),
        ("kind = \"file-servers\"\nservers = 16", "leave none of 16 processes for clients"),
        ("kind = \"file-servers\"\nservers = 2\nstripes = 3", "3 are too many: there are 2 servers"),
        ("kind = \"training\"\ngflops = 1", "`model` is missing"),
        ("kind = \"training\"\nmodel = \"llama3-8b\"", "`gflops` is missing"),
        (
            "kind = \"training\"\nmodel = \"llama3-8b\"\ngflops = 1\ntensor = 3",
            "16 processes are no multiple",
        ),
        ("kind = \"training\"\nmodel = \"llama3-8b\"\ngflops = 1\ntokens = 10_000_000", "so write fewer"),
        (
            "kind = \"training\"\nmodel = \"llama3-8b\"\ngflops = 1\nlayers = 33",
            "a whole number from 1 to 32",
        ),
        (
            "kind = \"training\"\nmodel = \"llama3-8b\"\ngflops = 1\nlayers = 3\npipeline = 2",
            "2 ranks cannot share 3 layers",
        ),
        ("kind = \"training\"\nmodel = \"llama3-8b\"\ngflops = 1\nexpert = 2", "llama3-8b has no experts"),
        (
            "kind = \"training\"\nmodel = \"mixtral-8x7b\"\ngflops = 1\nexpert = 16",
            "16 ranks cannot share 8 experts",
        ),
        ("kind = \"training\"\nmodel = \"mixtral-8x7b\"\ngflops = 1\nskew = 1", "goes with `expert`"),
        ("kind = \"rotate-latency\"\nhosts = 1", "pairs need two processes"),
        ("kind = \"goal\"\nfile = \"nothing.goal\"", "nothing.goal: there is no such file"),
    ] {
        let error = program(keys).expect_err(keys);
        assert!(error.contains(message), "{keys}: {error}");
    }
}
