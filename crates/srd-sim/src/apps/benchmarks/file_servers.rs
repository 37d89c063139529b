//! A parallel file system with more clients than servers: each client streams blocks to the servers' memory or from there
//! (Sandia's "long-term contention": many flows for one port, much longer than any buffer). Servers are infinitely fast; the
//! data goes by one-sided transfers, as Lustre's and GPFS's bulk data does over RDMA.

use crate::apps::measure::spans;
use crate::apps::script::Script;
use crate::apps::writer::Writer;
use srd_wire::Time;

/// See the module. Servers are the first ranks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FileServers {
    /// Servers.
    pub servers: u32,
    /// Clients.
    pub clients: u32,
    /// Clients write; otherwise they read.
    pub write: bool,
    /// Of a block.
    pub bytes: u64,
    /// Blocks of each client.
    pub blocks: u32,
    /// Servers that each client's blocks go to in turn.
    pub stripes: u32,
    /// Blocks of a client under way at a time.
    pub window: u32,
}

impl FileServers {
    /// The scripts, by rank; a client's stream is a measurement.
    pub fn scripts(&self) -> Vec<Script> {
        let servers = (0..self.servers).map(|_| Script::default());
        servers.chain((0..self.clients).map(|client| self.client(client))).collect()
    }

    fn client(&self, client: u32) -> Script {
        let (servers, window) = (self.servers.max(1), self.window.max(1));
        let stripes = self.stripes.clamp(1, servers);
        let mut writer = Writer::default();
        writer.measured(|writer| {
            let block = |writer: &mut Writer, stripe: u32| {
                let server = (client % servers + stripe) % servers;
                match self.write {
                    true => writer.put(server, self.bytes),
                    false => writer.get(server, self.bytes),
                }
                writer.wait_for(window - 1);
            };
            writer.repeat(self.blocks / stripes, |writer| {
                (0..stripes).for_each(|stripe| block(writer, stripe))
            });
            (0..self.blocks % stripes).for_each(|stripe| block(writer, stripe));
            writer.wait();
        });
        writer.script()
    }

    /// From all ranks' marks, what each client attained, in MB/s (10^6 bytes).
    pub fn rates(&self, marks: &[Vec<Time>]) -> Vec<f64> {
        let bytes = self.bytes as f64 * f64::from(self.blocks);
        let rate = |marks: &Vec<Time>| Some(bytes * 1e3 / spans(marks).next()?.as_f64());
        marks.iter().skip(self.servers as usize).filter_map(rate).collect()
    }
}
