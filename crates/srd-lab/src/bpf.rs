//! The BPF programs of `bpf/`: loaded with their numbers, hung on a device, counted, taken off.
//!
//! Each hangs as a filter of its own whose priority is the number of its fault, so that faults overlap and go one by one. Filters
//! stay when this process has gone; what they have counted is read by the number of their map.

use crate::error::{Error, Result};
use crate::iproute::{Program, batch};
use aya::maps::{Array, Map, MapData};
use aya::programs::tc::{NlOptions, SchedClassifier, TcAttachOptions, TcAttachType, qdisc_add_clsact};
use aya::{Ebpf, EbpfLoader};
use std::io;

static WIRE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/wire.o"));

/// Numbers that a program gets when it is loaded; each program reads those it needs.
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

/// A program that the kernel has taken, and not hung up yet.
pub(crate) struct Loaded {
    programs: Ebpf,
    name: &'static str,
}

/// Which way packets pass a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Arriving,
}

impl Loaded {
    /// Loads one of the programs of `wire.c`.
    pub(crate) fn wire(name: &'static str, numbers: Numbers) -> Result<Loaded> {
        let refused = |reason: String| refused("", name, reason);
        let mut programs = EbpfLoader::new()
            .set_global("chance", &numbers.chance, true)
            .set_global("period_ns", &numbers.period_ns.max(1), true)
            .set_global("down_ns", &numbers.down_ns, true)
            .set_global("device", &numbers.device, true)
            .load(WIRE)
            .map_err(|error| refused(chain(&error)))?;
        let program: &mut SchedClassifier =
            programs.program_mut(name).expect("it is in the object").try_into().expect("all are classifiers");
        program.load().map_err(|error| refused(chain(&error)))?;
        Ok(Loaded { programs, name })
    }

    /// Hangs it on a device of the calling thread's namespace, where it stays.
    pub(crate) fn attach(&mut self, namespace: &str, device: &str, side: Side, priority: u16) -> Result<()> {
        let refused = |reason: String| refused(namespace, self.name, format!("{device}: {reason}"));
        match qdisc_add_clsact(device) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(chain(&error))),
            _ => {}
        }
        let kind = match side {
            Side::Arriving => TcAttachType::Ingress,
        };
        let program: &mut SchedClassifier = self
            .programs
            .program_mut(self.name)
            .expect("it is in the object")
            .try_into()
            .expect("all are classifiers");
        let options = TcAttachOptions::Netlink(NlOptions { priority, handle: 1 });
        let link = program
            .attach_with_options(device, kind, options)
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

/// Takes the filter of a priority off a device of the calling thread's namespace. It is no error if there is none.
pub(crate) fn detach(namespace: &str, device: &str, side: Side, priority: u16) -> Result<()> {
    let way = match side {
        Side::Arriving => "ingress",
    };
    match batch(Program::Tc, namespace, &format!("filter del dev {device} {way} priority {priority}\n")) {
        // What tc says where there is no such filter, no such queueing discipline, no such device.
        Err(Error::Refused { reason, .. })
            if [
                "not find",
                "No such",
                "not found",
                "Invalid handle",
                "Cannot find device",
                "Parent Qdisc",
            ]
            .iter()
            .any(|none| reason.contains(none)) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// What the program of a map has counted; nothing if it has gone.
pub(crate) fn count(map: u32) -> Option<u64> {
    let data = MapData::from_id(map).ok()?;
    let array: Array<_, u64> = Map::Array(data).try_into().ok()?;
    array.get(&0, 0).ok()
}

fn refused(namespace: &str, program: &str, reason: String) -> Error {
    let namespace = if namespace.is_empty() { "loading" } else { namespace };
    Error::Bpf { namespace: namespace.into(), program: program.into(), reason }
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
