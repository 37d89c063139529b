//! Long-term contention: a parallel file system with more clients than servers, and others on the same switch who have nothing to
//! do with it.

use super::super::lab::Run;
use super::super::{Drawn, Figure, Make, finding};
use super::{Lab, Network, SOURCE, Spread, complaints, network, own, scenario};
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static CONTENTION: Figure = Figure {
    name: "sandia-contention",
    title: "96 clients write to 8 servers, and 36 pairs of others transfer beside them",
    source: SOURCE,
    make: Make::Code(contention),
};

fn networks() -> [Network; 9] {
    [
        network("iWARP, ECMP hash"),
        own("iWARP, ECMP hash, pause", &["queues.link_pause=true"]),
        network("iWARP, adaptive"),
        network("iWARP, adaptive, pause"),
        // Marks from one bandwidth-delay product in the queue on, which TCP takes for a loss (RFC 3168).
        own(
            "iWARP, adaptive, pause and ECN",
            &[
                "routing.mode=reroute",
                "queues.link_pause=true",
                "queues.ecn_min=1bdp",
                "queues.ecn_max=1bdp",
                "transport.ecn=true",
            ],
        ),
        network("SDR InfiniBand, static"),
        network("TCP (CUBIC), ECMP hash"),
        network("NSCC, cut packets, ECMP hash"),
        network("SRD, ECMP hash"),
    ]
}

const CARDS: u32 = 12;
const PORTS: u32 = 12;
const SERVERS: u32 = 8;
/// Of a line card: clients, and others.
const CLIENTS_OF_CARD: u32 = 8;
const OTHERS_OF_CARD: u32 = 3;

/// Who sends, and to whom.
type Pairs = Vec<(u32, u32)>;

/// Pairs of clients and servers, and pairs of others. A line card has a server (all but the last four), eight clients and three
/// others, at ports that differ from card to card; others send to those of the next card.
fn pairs() -> (Pairs, Pairs) {
    let host = |card: u32, place: u32| card % CARDS * PORTS + (place + card % CARDS) % PORTS;
    let clients = (0..CARDS).flat_map(|card| (0..CLIENTS_OF_CARD).map(move |place| (card, place)));
    let files = clients.map(|(card, place)| (host(card, 1 + place), host((card + place) % SERVERS, 0)));
    let others = (0..CARDS).flat_map(|card| (0..OTHERS_OF_CARD).map(move |place| (card, 9 + place)));
    let others = others.map(|(card, place)| (host(card, place), host(card + 1, place)));
    (files.collect(), others.collect())
}

fn traffic() -> String {
    let list = |pairs: &[(u32, u32)]| {
        pairs.iter().map(|(from, to)| format!("\"{from}->{to}\"")).collect::<Vec<_>>().join(", ")
    };
    let (files, others) = pairs();
    format!(
        "[[workload]]\nkind = \"background\"\nname = \"files\"\nspread_us = 200\npairs = [{}]\n\
         [[workload]]\nkind = \"background\"\nname = \"others\"\npairs = [{}]\n",
        list(&files),
        list(&others)
    )
}

/// Percent of what there is to be had: servers' links, the slowest client's fair share, others' links, the slowest of these.
fn shares(run: &Run, gbps: f64) -> [f64; 4] {
    let rates = |workload: u16| {
        let of_it = run.flows.iter().filter(move |flow| flow.workload == workload);
        Spread::of(of_it.map(|flow| flow.delivered as f64 * 8.0 / (run.outcome.sim_us * 1e3)))
            .expect("both have flows")
    };
    let (files, others) = (rates(0), rates(1));
    let fair = gbps / f64::from(CARDS * CLIENTS_OF_CARD / SERVERS);
    [files.mean / fair, files.least / fair, others.mean / gbps, others.least / gbps]
        .map(|share| 100.0 * share)
}

fn contention(lab: &mut Lab<'_>) -> Option<Drawn> {
    let (end_us, seeds) = lab.pick((8_000, 1), (50_000, 3));
    let networks = networks();
    lab.plan(networks.len() * seeds);
    let traffic = traffic();
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for network in &networks {
        let mut of_network: [Vec<f64>; 5] = Default::default();
        // TCP waits for timeouts of 200 ms.
        let end_us = if network.may_fail { 10 * end_us } else { end_us };
        for seed in 1..=seeds as u64 {
            let scenario = scenario(network, &traffic, seed, &[format!("end_us={end_us}")]);
            let gbps = scenario.topology.fastest_host().0 as f64 / 1e9;
            let run = lab.run(&scenario)?;
            wrong.extend(complaints(network, &run));
            let dropped = 100.0 * run.outcome.packets_dropped as f64 / run.outcome.packets_new as f64;
            for (values, value) in of_network.iter_mut().zip(shares(&run, gbps).into_iter().chain([dropped]))
            {
                values.push(value);
            }
        }
        all.push(of_network.map(|values| Spread::of(values).expect("there are seeds")));
    }
    let x = Axis::of_names("", ["servers' links", "slowest client", "others", "slowest other"]);
    let mut chart = Chart::new(CONTENTION.title, x, Axis::new("% of what is theirs", 0.0, 100.0));
    for (n, (network, of)) in networks.iter().zip(&all).enumerate() {
        let values: Vec<Option<f64>> = of[..4].iter().map(|spread| Some(spread.mean)).collect();
        chart.grouped_bars(&network.label, (n, networks.len()), &values);
    }
    let words = |of: &[Spread; 5]| {
        let range = format!("{} to {}", plain(of[2].least), plain(of[2].most));
        format!(
            "servers {} %, slowest client {} % of its part, others {} % ({range}), slowest of them {} %; {} % dropped",
            plain(of[0].mean),
            plain(of[1].mean),
            plain(of[2].mean),
            plain(of[3].mean),
            plain(of[4].mean)
        )
    };
    let published = |label: &str| match label {
        "iWARP, adaptive" => "dropped packets can be recovered via TCP fast retransmit",
        "iWARP, adaptive, pause" | "iWARP, ECMP hash, pause" => "pause results in head-of-line blocking",
        "iWARP, adaptive, pause and ECN" => "need both pause and per-flow congestion events; ECN might help",
        _ => "",
    };
    let rows = networks.iter().zip(&all);
    Some(Drawn {
        chart,
        caption: format!(
            "Twelve clients write to each server for {} ms (TCP: ten times as long) without a pause; 36 others send to one other each, whose links nobody \
             else uses. Bars: what the servers' links carry; the slowest client by a twelfth of a link; the others by their \
             links; the slowest of these. Means of three placements of the hashes.",
            plain(f64::from(end_us) / 1e3)
        ),
        findings: rows
            .map(|(network, of)| finding(&network.label, published(&network.label), words(of)))
            .collect(),
        complaints: wrong,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_as_many_clients_and_others_have_links_of_their_own() {
        let (files, others) = pairs();
        assert_eq!((files.len(), others.len()), (96, 36));
        let mut servers: Vec<u32> = files.iter().map(|pair| pair.1).collect();
        servers.sort_unstable();
        assert!(servers.chunks(12).all(|of| of.iter().all(|&server| server == of[0])), "{servers:?}");
        let mut busy: Vec<u32> =
            files.iter().map(|pair| pair.0).chain(others.iter().map(|pair| pair.0)).collect();
        servers.dedup();
        busy.extend(servers);
        busy.sort_unstable();
        let all = busy.len();
        busy.dedup();
        assert_eq!(busy.len(), all, "nobody is two of these");
        let mut to: Vec<u32> = others.iter().map(|pair| pair.1).collect();
        to.sort_unstable();
        to.dedup();
        assert_eq!(to.len(), 36);
    }
}
