//! The BPF programs of `bpf/`: loaded with their numbers, hung on a device, counted, taken off.
//!
//! Each hangs as a filter of its own whose priority is the number of its fault, so that faults overlap, act in the order in which
//! they were made, and go one by one. Filters stay when this process has gone; what they have counted is read by the number of
//! their map.

use crate::error::{Error, Result};
use crate::iproute::{Program, batch};
use aya::maps::{Array, Map, MapData};
use aya::programs::tc::{NlOptions, SchedClassifier, TcAttachOptions, TcAttachType, qdisc_add_clsact};
use aya::{Ebpf, EbpfLoader};
use std::io;

static WIRE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/wire.o"));
static QUEUE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/queue.o"));

/// Before all faults' numbers begin; those are on the other side of a device anyway.
const QUEUE_PRIORITY: u16 = 1;

/// Numbers that a program of `wire.c` gets when it is loaded; each reads those it needs.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Numbers {
    /// Of 2^32, how often it strikes.
    pub chance: u64,
    /// Length of a period.
    pub period_ns: u64,
    /// How long of it nothing passes.
    pub down_ns: u64,
    /// Index of another device.
    pub device: u32,
}

impl Numbers {
    /// Of a share in percent.
    pub(crate) fn percent(percent: f64) -> Numbers {
        Numbers { chance: (percent / 100.0 * (1_u64 << 32) as f64).round() as u64, ..Numbers::default() }
    }
}

/// A program that the kernel has taken.
pub(crate) struct Loaded {
    programs: Ebpf,
    name: &'static str,
    way: TcAttachType,
    priority: u16,
}

impl Loaded {
    /// Loads one of the programs of `wire.c`, for packets that arrive.
    pub(crate) fn wire(name: &'static str, fault: u32, numbers: Numbers) -> Result<Loaded> {
        let (fault, period_ns) = (fault & 0xffff, numbers.period_ns.max(1));
        let mut loader = EbpfLoader::new();
        loader
            .set_global("fault", &fault, true)
            .set_global("chance", &numbers.chance, true)
            .set_global("period_ns", &period_ns, true)
            .set_global("down_ns", &numbers.down_ns, true)
            .set_global("device", &numbers.device, true);
        Loaded::load(&mut loader, WIRE, name, TcAttachType::Ingress, priority(fault))
    }

    /// Loads the program of `queue.c`, for packets that leave.
    pub(crate) fn queue(mark_above_bytes: Option<u32>, cut_above_bytes: Option<u32>) -> Result<Loaded> {
        let (mark, cut) = (mark_above_bytes.unwrap_or(u32::MAX), cut_above_bytes.unwrap_or(u32::MAX));
        let mut loader = EbpfLoader::new();
        loader.set_global("mark_above_bytes", &mark, true).set_global("cut_above_bytes", &cut, true);
        Loaded::load(&mut loader, QUEUE, "queue", TcAttachType::Egress, QUEUE_PRIORITY)
    }

    fn load(
        loader: &mut EbpfLoader,
        object: &[u8],
        name: &'static str,
        way: TcAttachType,
        priority: u16,
    ) -> Result<Loaded> {
        let refused = |reason: String| Error::Bpf { program: name.into(), at: "loading".into(), reason };
        let programs = loader.load(object).map_err(|error| refused(chain(&error)))?;
        let mut loaded = Loaded { programs, name, way, priority };
        loaded.program().load().map_err(|error| refused(chain(&error)))?;
        Ok(loaded)
    }

    fn program(&mut self) -> &mut SchedClassifier {
        let program = self.programs.program_mut(self.name).expect("it is in the object");
        program.try_into().expect("all are classifiers")
    }

    /// Hangs it on a device of the calling thread's namespace, where it stays.
    pub(crate) fn attach(&mut self, namespace: &str, device: &str) -> Result<()> {
        let (way, priority, name) = (self.way, self.priority, self.name);
        let refused = |reason: String| Error::Bpf {
            program: name.into(),
            at: format!("{namespace}, device {device}"),
            reason,
        };
        match qdisc_add_clsact(device) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(chain(&error))),
            _ => {}
        }
        let options = TcAttachOptions::Netlink(NlOptions { priority, handle: 1 });
        let program = self.program();
        let link = program
            .attach_with_options(device, way, options)
            .and_then(|link| program.take_link(link))
            .map_err(|error| refused(chain(&error)))?;
        // Dropping it would take the filter off.
        std::mem::forget(link);
        Ok(())
    }

    /// The number of the map in which it counts.
    pub(crate) fn counter(&self) -> Option<u32> {
        match self.programs.map("met")? {
            Map::Array(data) => data.info().ok().map(|info| info.id()),
            _ => None,
        }
    }
}

/// Filters of a device are asked in the order of their priorities.
fn priority(fault: u32) -> u16 {
    fault as u16
}

/// Takes the filter of a fault off a device of the calling thread's namespace. It is no error if there is none.
pub(crate) fn detach(namespace: &str, device: &str, fault: u32) -> Result<()> {
    let command = format!("filter del dev {device} ingress priority {}\n", priority(fault));
    match batch(Program::Tc, namespace, &command) {
        // What the kernel says where there is no such filter, no queueing discipline that could have one, no such device.
        Err(Error::Refused { reason, .. })
            if ["not find", "not found", "No such", "Invalid handle", "Parent Qdisc"]
                .iter()
                .any(|none| reason.contains(none)) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// What the program of a map has counted, by index; nothing if it has gone.
pub(crate) struct Counts(Array<MapData, u64>);

impl Counts {
    pub(crate) fn open(map: u32) -> Option<Counts> {
        let data = MapData::from_id(map).ok()?;
        Map::Array(data).try_into().ok().map(Counts)
    }

    pub(crate) fn get(&self, index: u32) -> u64 {
        self.0.get(&index, 0).unwrap_or(0)
    }
}

/// An error with all that led to it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}
