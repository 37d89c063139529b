//! What `--transport` of `srd sim mpirun` stands for: a transport, and what the fabric's switches do for it.

use clap::ValueEnum;
use srd_sim::figures::{NSCC, NSCC_CUT};

/// A transport under a real program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Rival {
    /// SRD, with the process's own packets
    Srd,
    /// The same, and switches that trim
    SrdTrim,
    /// TCP with CUBIC, as Linux has it
    Tcp,
    /// TCP with BBR
    Bbr,
    /// TCP with DCTCP, and switches that mark
    Dctcp,
    /// iWARP
    Iwarp,
    /// RoCEv2 with PFC and DCQCN
    Roce,
    /// RoCEv2 with PFC alone
    RocePfc,
    /// RoCEv2 with DCQCN alone
    RoceDcqcn,
    /// Ultra Ethernet's NSCC, and switches that mark
    Nscc,
    /// The same, and switches that trim
    NsccTrim,
    /// Ultra Ethernet's RCCC, and switches that trim, and mark but at the last hop
    Rccc,
    /// Multipath Reliable Connection, and the same switches
    Mrc,
}

/// Marks where NSCC's authors have them, with the probability of HPCC's configuration.
const DCQCN: [&str; 5] = [
    "transport.kind=roce",
    "transport.dcqcn=true",
    "queues.ecn_min=0.2bdp",
    "queues.ecn_max=0.8bdp",
    "queues.ecn_probability=0.2",
];
const UNMARKED_LAST: &str = "queues.ecn_last_hop=false";
const PFC: [&str; 2] = ["transport.class=3", "queues.lossless=[3]"];

impl Rival {
    /// What the scenario is changed by.
    pub fn sets(self) -> Vec<&'static str> {
        match self {
            Rival::Srd => vec!["transport.kind=srd"],
            Rival::SrdTrim => vec!["transport.kind=srd", "queues.trim=true"],
            Rival::Tcp => vec!["transport.kind=tcp"],
            Rival::Bbr => vec!["transport.kind=tcp", "transport.congestion=bbr"],
            Rival::Dctcp => {
                vec!["transport.kind=tcp", "transport.congestion=dctcp", "queues.ecn_min=0.17bdp"]
            }
            Rival::Iwarp => vec!["transport.kind=iwarp"],
            Rival::Roce => [&DCQCN[..], &PFC].concat(),
            Rival::RocePfc => [&["transport.kind=roce", "transport.dcqcn=false"][..], &PFC].concat(),
            Rival::RoceDcqcn => DCQCN.to_vec(),
            Rival::Nscc => NSCC.to_vec(),
            Rival::NsccTrim => NSCC_CUT.to_vec(),
            Rival::Rccc => [&NSCC_CUT[..], &["transport.kind=rccc", UNMARKED_LAST]].concat(),
            Rival::Mrc => [&NSCC_CUT[..], &["transport.kind=mrc", UNMARKED_LAST]].concat(),
        }
    }

    /// As the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }
}
