//! `srd sim htsim`: htsim's inputs, with a command line like its own.

use super::scenario::{Runs, run_all};
use anyhow::bail;
use srd_baselines::BASELINES;
use srd_sim::hosts::wire_cost;
use srd_sim::input::htsim::{cm_file, default_tree, topo_file};
use srd_sim::input::{InputError, Scenario, read_text};
use srd_sim::net::{ETHERNET_HEADER, PacketSizes, Topology};
use srd_wire::{BitRate, codec};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  srd sim htsim --cm incast.cm --transport srd --link-gbps 100 --paths 64
  srd sim htsim --cm perm_32n_32c_2MB.cm --topo leaf_spine_tiny.topo --link-gbps 200 --paths 16 --json
  srd sim htsim --cm incast_128.cm --link-gbps 100 --queue-packets 36 --seeds 1..8
  srd sim htsim --cm incast.cm --transport nscc --trim --link-gbps 100 --set transport.selector=mixed

As htsim does it: without --topo the fabric is the k-ary fat tree with exactly as many hosts as the matrix has, 1 us per
cable, switches without latency; frames have no preamble, check sequence or gap; data packets carry 4096 bytes; queues
hold one bandwidth-delay product, which is rounded up to packets of 4150 bytes (43 of them on the default tree at
100 Gb/s). docs/SCENARIOS.md says which files are understood and where this differs.";

/// Bytes of payload in a full packet.
const PAYLOAD: u64 = 4096;
/// htsim's packets and their acknowledgements: what it counts queues in (main_uec.cpp, `packet_size`; uec.cpp, ACK size).
const HTSIM_SIZES: PacketSizes = PacketSizes { data: 4150, ack: 64 };

/// Arguments of `srd sim htsim`.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Connection matrix (htsim's -tm)
    #[arg(long, value_name = "FILE")]
    cm: PathBuf,
    /// Topology [default: the fat tree with as many hosts as the matrix has]
    #[arg(long, value_name = "FILE")]
    topo: Option<PathBuf>,
    /// What the hosts speak: srd, or one of the baselines of docs/SCENARIOS.md, whose keys --set takes (transport.KEY=VALUE)
    #[arg(long, value_name = "T", default_value = SRD, value_parser = transport)]
    transport: String,
    /// Rate of the hosts' links, and of all others unless --topo says otherwise
    #[arg(long, value_name = "N", value_parser = gbps)]
    link_gbps: f64,
    /// Paths to each peer, for transports that have several: srd up to 256, nscc and rccc powers of two up to 4096 [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    paths: Option<u16>,
    /// Capacity of a switch's port in bandwidth-delay products, as htsim counts them
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = multiple)]
    queue_bdp: f64,
    /// Instead: in packets of 4150 bytes (htsim's -q)
    #[arg(long, value_name = "N", conflicts_with = "queue_bdp", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queue_packets: Option<u32>,
    /// Cut packets that find no room down to their headers
    #[arg(long)]
    trim: bool,
    /// Mark packets from so many bandwidth-delay products of queue on, and all from so many on [default: none; nscc and rccc: 0.2,0.8]
    #[arg(long, value_name = "MIN,MAX", value_parser = marks)]
    ecn_bdp: Option<(f64, f64)>,
    /// The run ends here even if flows are unfinished [default: 10 s]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    end_us: Option<u64>,
    #[command(flatten)]
    runs: Runs,
}

/// This project's own transport.
const SRD: &str = "srd";
/// The transports whose simulator htsim is: without marks they are not what they are.
const NSCC: &str = "nscc";
const RCCC: &str = "rccc";
/// Without pauses it is not what its simulator has, either.
const ROCE: &str = "roce";
/// InfiniBand's payloads are powers of two: the least MTU with which a packet of RoCE carries [`PAYLOAD`].
const ROCE_MTU: u16 = 4156;
/// Packets of a port from which on it is paused, and down to which (main_roce.cpp, `high_pfc`, `low_pfc`).
const CSG_PAUSES: (u64, u64) = (15, 12);
/// Where htsim marks, in bandwidth-delay products of queue.
const HTSIM_MARKS: (f64, f64) = (0.2, 0.8);

fn transport(name: &str) -> Result<String, String> {
    let all: Vec<&str> = std::iter::once(SRD).chain(BASELINES.iter().map(|(name, _)| *name)).collect();
    match all.contains(&name) {
        true => Ok(name.to_string()),
        false => Err(format!("there are {}", all.join(", "))),
    }
}

fn marks(text: &str) -> Result<(f64, f64), String> {
    let form = "two numbers of bandwidth-delay products, such as 0.2,0.8";
    let (min, max) = text.split_once(',').ok_or(form)?;
    let (min, max) = (multiple(min).map_err(|_| form)?, multiple(max).map_err(|_| form)?);
    if min <= max { Ok((min, max)) } else { Err(format!("{form}: the first not above the second")) }
}

fn gbps(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gbps) if (0.001..=16_000.0).contains(&gbps) => Ok(gbps),
        _ => Err("a number of Gb/s, above 0 and up to 16000".into()),
    }
}

fn multiple(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if (0.001..=1e6).contains(&times) => Ok(times),
        _ => Err("a number above 0, such as 1 or 0.5".into()),
    }
}

/// Runs and prints.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let inputs = Inputs::read(args)?;
    run_all(&args.runs, &|sets| inputs.scenario(args, sets))
}

/// What the files say that the scenario depends on.
struct Inputs {
    /// `[fabric]`, but for what does not depend on files.
    fabric: String,
    /// Capacity of a port.
    queue_bytes: u64,
    /// The bandwidth-delay product as htsim counts it.
    bdp_bytes: u64,
    /// The topology file has capacities of its own.
    overrides_queues: bool,
}

impl Inputs {
    fn read(args: &Args) -> anyhow::Result<Inputs> {
        let rate = BitRate((args.link_gbps * 1e9).round() as u64);
        let cm = read_text(&args.cm)?;
        let name = args.cm.display().to_string();
        let (fabric, topology) = match &args.topo {
            Some(path) => {
                let file = topo_file::parse(&read_text(path)?, &path.display().to_string())?;
                cm_file::parse(&cm, &name, Some(file.topology.hosts))?;
                (format!("kind = \"topo\"\nfile = {}\n", quoted(path)?), file.topology)
            }
            None => {
                let hosts = cm_file::parse(&cm, &name, None)?.hosts;
                let topology = default_tree(hosts, rate).map_err(|message| InputError::of(&name, message))?;
                let k = (4.0 * hosts as f64).cbrt().round();
                (format!("kind = \"fat-tree\"\nk = {k}\nhost_gbps = {}\n", args.link_gbps), topology)
            }
        };
        let queue_bytes = queue_bytes(args, &topology, rate);
        let frame = mtu(&args.transport) as u64 + ETHERNET_HEADER as u64;
        if queue_bytes < frame {
            bail!(
                "queues of {queue_bytes} bytes hold no full packet of {}, whose frames have {frame} bytes: nothing would ever \
                 come through. Write --queue-packets 2 or more, or a larger --queue-bdp",
                args.transport
            );
        }
        let own = topology.cables.iter().any(|cable| cable.queue_bytes != [None; 2]);
        let bdp_bytes = bdp_packets(&topology, rate) * HTSIM_SIZES.data;
        Ok(Inputs { fabric, queue_bytes, bdp_bytes, overrides_queues: own })
    }

    fn scenario(&self, args: &Args, sets: &[String]) -> Result<Scenario, InputError> {
        let cm = quoted(&args.cm).map_err(|error| InputError::of("--cm", error.to_string()))?;
        let stem =
            args.cm.file_stem().map_or_else(Default::default, |stem| stem.to_string_lossy().into_owned());
        let paths = match (args.paths, args.transport.as_str()) {
            (None, SRD | NSCC | RCCC) => "paths = 64\n".to_string(),
            (None, _) => String::new(),
            (Some(paths), _) => format!("paths = {paths}\n"),
        };
        let marks = args.ecn_bdp.or([NSCC, RCCC].contains(&args.transport.as_str()).then_some(HTSIM_MARKS));
        let marks = marks.map_or_else(String::new, |(min, max)| {
            let of_queue = self.bdp_bytes as f64;
            let (min, max) = ((min * of_queue) as u64, (max * of_queue) as u64);
            // Where receivers grant credit their own port is theirs to keep: marks tell of the fabric (main_uec.cpp).
            let last_hop = args.transport != RCCC;
            format!("ecn_min = {min}\necn_max = {max}\necn_at = \"leaving\"\necn_last_hop = {last_hop}\n")
        });
        // csg-htsim's RoCE runs over lossless queues, which pause what comes by a port (main_roce.cpp, `LOSSLESS_INPUT`).
        // Whoever says which classes are lossless has the thresholds that scenarios have.
        let own = sets
            .iter()
            .any(|set| set.starts_with("queues.lossless=") || set.starts_with("queues.link_pause="));
        let lossless = match args.transport.as_str() {
            ROCE if !own => format!(
                "lossless = [0]\npfc_xoff = {}\npfc_xon = {}\n",
                CSG_PAUSES.0 * HTSIM_SIZES.data,
                CSG_PAUSES.1 * HTSIM_SIZES.data
            ),
            _ => String::new(),
        };
        // In htsim packets without data do not wait for those with data (compositequeue.cpp).
        let (classes, class) = match args.transport.as_str() {
            NSCC | RCCC => ("classes = \"strict\"\n", "class = 1\ncontrol_class = 0\n"),
            _ => ("", ""),
        };
        let text = format!(
            "name = {}\nend_us = {}\n[fabric]\n{}frame_overhead = 0\n[queues]\ncapacity = {}\ntrim = {}\n{marks}{lossless}{classes}\
             [transport]\nkind = \"{}\"\nmtu = {}\n{class}{paths}line_rate_gbps = {}\n[[workload]]\nkind = \"cm\"\n\
             file = {cm}\n",
            toml_text(&stem),
            args.end_us.unwrap_or(10_000_000),
            self.fabric,
            self.queue_bytes,
            args.trim,
            args.transport,
            mtu(&args.transport),
            args.link_gbps,
        );
        let mut scenario =
            Scenario::parse(&text, "srd sim htsim", Path::new(""), sets).map_err(|mut error| {
                if error.place == "srd sim htsim" {
                    error.line = None; // of a text that nobody has seen
                }
                error
            })?;
        if args.transport == ROCE && scenario.settings.queues.pause.is_some() {
            let what = "roce runs in a lossless class here, as csg-htsim's does: switches pause a port from 15 packets of it on. \
                        Without pauses: --set queues.lossless=[]";
            scenario.notes.push(what.to_string());
        }
        if self.overrides_queues {
            scenario.topology.cables.iter_mut().for_each(|cable| cable.queue_bytes = [None; 2]);
            let what = "Queue_Down and Queue_Up of the topology give way to --queue-bdp or --queue-packets, as in htsim";
            scenario.notes.push(what.to_string());
        }
        Ok(scenario)
    }
}

/// A path as TOML.
fn quoted(path: &Path) -> anyhow::Result<String> {
    match path.to_str() {
        Some(text) => Ok(toml_text(text)),
        None => bail!("{}: names of files must be UTF-8", path.display()),
    }
}

/// Text as TOML. JSON's way of writing it is one of TOML's.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The MTU. SRD and RoCE: that with which full packets carry [`PAYLOAD`], SRD's also those that introduce their sender: the smallest, so
/// that round trips are those of these packets. Others: that of htsim's packets.
fn mtu(transport: &str) -> u16 {
    if transport == ROCE {
        return ROCE_MTU;
    }
    if transport != SRD {
        return HTSIM_SIZES.data as u16 - ETHERNET_HEADER as u16;
    }
    let hello = codec::HELLO_LEN as u16;
    let fits = |&mtu: &u16| wire_cost(mtu - hello, 0).payload == PAYLOAD;
    (4096..=4600).find(fits).expect("headers are shorter than 500 bytes")
}

/// Capacity of a port: so many bandwidth-delay products, each rounded up to whole packets as `calculate_bdp_pkt` of
/// main_uec.cpp does.
fn queue_bytes(args: &Args, topology: &Topology, rate: BitRate) -> u64 {
    if let Some(packets) = args.queue_packets {
        return packets as u64 * HTSIM_SIZES.data;
    }
    let bytes = bdp_packets(topology, rate) * HTSIM_SIZES.data;
    ((bytes as f64 * args.queue_bdp).round() as u64).max(1)
}

/// The bandwidth-delay product in packets, rounded up.
fn bdp_packets(topology: &Topology, rate: BitRate) -> u64 {
    let rtt_s = topology.longest_base_rtt(HTSIM_SIZES).as_micros() / 1e6;
    (rtt_s * rate.0 as f64 / 8.0 / HTSIM_SIZES.data as f64).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_packets_carry_htsims_payload() {
        let cost = wire_cost(mtu(SRD), 0);
        assert_eq!(cost.payload, 4096);
        let introduction = codec::HELLO_LEN as u64;
        assert_eq!(
            cost.headers + cost.payload + introduction,
            mtu(SRD) as u64 + 14,
            "no byte of the MTU is unused"
        );
    }
}
