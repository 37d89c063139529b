//! What `--transport` of `srd sim mpirun` stands for: a transport, and what the fabric's switches do for it.

use clap::ValueEnum;

/// A transport under a real program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Rival {
    /// SRD, with the process's own packets
    Srd,
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
}

/// Marks as NSCC's authors have them; DCQCN's probability is that of HPCC's configuration.
const MARKS: [&str; 2] = ["queues.ecn_min=0.2bdp", "queues.ecn_max=0.8bdp"];
const LOSSLESS: [&str; 2] = ["transport.class=3", "queues.lossless=[3]"];
const NSCC: [&str; 5] = [
    "transport.kind=nscc",
    "transport.class=1",
    "transport.control_class=0",
    "queues.classes=strict",
    "queues.ecn_at=leaving",
];

impl Rival {
    /// What the scenario is changed by.
    pub fn sets(self) -> Vec<&'static str> {
        match self {
            Rival::Srd => vec!["transport.kind=srd"],
            Rival::Tcp => vec!["transport.kind=tcp"],
            Rival::Bbr => vec!["transport.kind=tcp", "transport.congestion=bbr"],
            Rival::Dctcp => {
                vec!["transport.kind=tcp", "transport.congestion=dctcp", "queues.ecn_min=0.17bdp"]
            }
            Rival::Iwarp => vec!["transport.kind=iwarp"],
            Rival::Roce => {
                let marks = ["transport.kind=roce", "transport.dcqcn=true", "queues.ecn_probability=0.2"];
                marks.into_iter().chain(MARKS).chain(LOSSLESS).collect()
            }
            Rival::RocePfc => {
                ["transport.kind=roce", "transport.dcqcn=false"].into_iter().chain(LOSSLESS).collect()
            }
            Rival::RoceDcqcn => {
                let marks = ["transport.kind=roce", "transport.dcqcn=true", "queues.ecn_probability=0.2"];
                marks.into_iter().chain(MARKS).collect()
            }
            Rival::Nscc => NSCC.into_iter().chain(MARKS).collect(),
            Rival::NsccTrim => NSCC.into_iter().chain(MARKS).chain(["queues.trim=true"]).collect(),
        }
    }

    /// As the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }
}
