//! Captures of cables in a run of real programs, whose packets are what would be on a wire. Such a run happens once.

use super::capture::{Captures, chosen};
use super::folder::Folder;
use crate::hosts::Datagram;
use crate::input::Scenario;
use crate::net::{Fabric, FrameHead, PortId, Sight, Watcher};
use crate::run::Onlooker;
use srd_baselines::units::Ps;
use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

/// Captures into a directory.
pub struct Capture {
    dir: PathBuf,
    cables: Vec<String>,
    snap_len: Option<u32>,
    captures: Rc<RefCell<Captures>>,
    files: Vec<String>,
}

/// What looks at the fabric.
struct Seen(Rc<RefCell<Captures>>);

impl Watcher<Datagram> for Seen {
    fn see(&mut self, now: Ps, port: PortId, head: &FrameHead, seen: &Datagram, sight: Sight) {
        self.0.borrow_mut().add(now, port, head, seen, sight);
    }
}

impl Capture {
    /// Of these cables, as [`crate::net::Topology::cables_named`] understands them, into this directory, which is made if it is not there; so many
    /// bytes of each frame are kept, or its headers.
    pub fn new(dir: PathBuf, cables: Vec<String>, snap_len: Option<u32>) -> Capture {
        Capture { dir, cables, snap_len, captures: Rc::default(), files: Vec::new() }
    }
}

impl Onlooker for Capture {
    fn begin(&mut self, scenario: &Scenario, fabric: &mut Fabric<Datagram>) -> io::Result<()> {
        let cables = chosen(scenario, &self.cables)?;
        let captures = Captures::create(&Folder::open(&self.dir)?, &cables, self.snap_len)?;
        captures.ports().for_each(|port| fabric.watch(port));
        self.captures.replace(captures);
        self.files = cables.into_iter().map(|(_, file)| file).collect();
        fabric.watcher = Some(Box::new(Seen(Rc::clone(&self.captures))));
        Ok(())
    }

    fn end(&mut self, now: Ps) -> io::Result<Vec<String>> {
        let mut notes = self.captures.take().finish(now)?;
        notes.push(format!("{} has {}", self.dir.display(), self.files.join(", ")));
        Ok(notes)
    }
}
