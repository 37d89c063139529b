//! The process that plays a host's programs: takes orders from its standard input, answers on its standard output.

use super::clock::now_ns;
use super::protocol::{Command, Inbound, ListenAddr, Outbound, Received, Reply, Sent, Transport};
use super::{srd, tcp};
use anyhow::{anyhow, bail};
use std::io::{BufRead, Write};
use std::net::IpAddr;
use std::thread;

/// Obeys until the input ends. What goes wrong is an answer.
pub fn run(orders: impl BufRead, mut answers: impl Write) -> anyhow::Result<()> {
    let mut worker = None;
    for line in orders.lines() {
        let command: Command = serde_json::from_str(&line?)?;
        let answer = execute(&mut worker, command).unwrap_or_else(|error| {
            worker = None;
            Reply::Failed { error: format!("{error:#}") }
        });
        serde_json::to_writer(&mut answers, &answer)?;
        answers.write_all(b"\n")?;
        answers.flush()?;
    }
    Ok(())
}

/// What is ready to run.
struct Worker {
    transport: Transport,
    address: IpAddr,
    bin_ns: u64,
    receivers: Receivers,
    senders: Senders,
}

enum Receivers {
    Srd(Option<srd::Receivers>),
    Tcp(Vec<tcp::Receiver>),
}

enum Senders {
    Srd(Vec<srd::Sender>),
    Tcp(Vec<tcp::Sender>),
}

fn execute(worker: &mut Option<Worker>, command: Command) -> anyhow::Result<Reply> {
    match command {
        Command::Open { transport, address, inbound, bin_ns } => {
            let (opened, listening) = Worker::open(transport, address, inbound, bin_ns)?;
            *worker = Some(opened);
            Ok(Reply::Opened { listening })
        }
        Command::Connect { outbound } => {
            worker.as_mut().ok_or_else(|| anyhow!("nothing is open"))?.connect(outbound)?;
            Ok(Reply::Connected)
        }
        Command::Go { at_ns, until_ns } => {
            worker.take().ok_or_else(|| anyhow!("nothing is open"))?.go(at_ns, until_ns)
        }
    }
}

impl Worker {
    fn open(
        transport: Transport,
        address: IpAddr,
        inbound: Vec<Inbound>,
        bin_ns: u64,
    ) -> anyhow::Result<(Worker, Vec<ListenAddr>)> {
        let (receivers, senders, listening) = match &transport {
            Transport::Srd => {
                let receivers = match inbound.is_empty() {
                    true => None,
                    false => Some(srd::Receivers::open(address, inbound)?),
                };
                let listening = receivers.as_ref().map_or(Vec::new(), srd::Receivers::listening);
                (Receivers::Srd(receivers), Senders::Srd(Vec::new()), listening)
            }
            Transport::Tcp { congestion, .. } => {
                let receivers: Vec<tcp::Receiver> = inbound
                    .into_iter()
                    .map(|flow| tcp::Receiver::open(address, flow, congestion))
                    .collect::<Result<_, _>>()?;
                let listening = receivers.iter().map(tcp::Receiver::listen_addr).collect::<Result<_, _>>()?;
                (Receivers::Tcp(receivers), Senders::Tcp(Vec::new()), listening)
            }
        };
        Ok((Worker { transport, address, bin_ns, receivers, senders }, listening))
    }

    fn connect(&mut self, outbound: Vec<Outbound>) -> anyhow::Result<()> {
        let address = self.address;
        match (&mut self.senders, &self.transport) {
            (Senders::Srd(senders), _) => {
                for flow in outbound {
                    senders.push(srd::Sender::open(address, flow)?);
                }
            }
            (Senders::Tcp(senders), Transport::Tcp { congestion, .. }) => {
                for flow in outbound {
                    senders.push(tcp::Sender::open(address, flow, congestion)?);
                }
            }
            (Senders::Tcp(_), Transport::Srd) => unreachable!("senders are of the worker's transport"),
        }
        Ok(())
    }

    fn go(self, start_ns: u64, until_ns: u64) -> anyhow::Result<Reply> {
        if now_ns() >= start_ns {
            bail!("the start is over: this host is {} us late", (now_ns() - start_ns) / 1000);
        }
        let bin_ns = self.bin_ns;
        let (received, sent) = thread::scope(|scope| {
            let receiving: Vec<_> = match self.receivers {
                Receivers::Srd(None) => Vec::new(),
                Receivers::Srd(Some(receivers)) => {
                    vec![scope.spawn(move || receivers.run(start_ns, until_ns, bin_ns))]
                }
                Receivers::Tcp(receivers) => receivers
                    .into_iter()
                    .map(|receiver| {
                        scope.spawn(move || {
                            receiver.run(start_ns, until_ns, bin_ns).map(|received| vec![received])
                        })
                    })
                    .collect(),
            };
            let sending: Vec<_> = match self.senders {
                Senders::Srd(senders) => senders
                    .into_iter()
                    .map(|sender| scope.spawn(move || sender.run(start_ns, until_ns)))
                    .collect(),
                Senders::Tcp(senders) => senders
                    .into_iter()
                    .map(|sender| scope.spawn(move || sender.run(start_ns, until_ns)))
                    .collect(),
            };
            let sent: Vec<Sent> =
                sending.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            let received: anyhow::Result<Vec<Vec<Received>>> =
                receiving.into_iter().map(|thread| thread.join().expect("no panic")).collect();
            received.map(|received| (received.concat(), sent))
        })?;
        Ok(Reply::Done { received, sent })
    }
}
