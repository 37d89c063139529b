//! HP Linpack's efficiency.

use super::super::{Drawn, Figure, finding};
use super::{
    INFINIBAND, LAG, Lab, MOVED_PAUSE, NODES, NSCC, Network, SOURCE, SRD, TCP, complaints, said, scenario,
};
use srd_chart::{Axis, Chart, plain};

pub(in super::super) static LINPACK: Figure = Figure {
    name: "sandia-linpack",
    title: "Linpack's efficiency on 128 nodes, by the order of the matrix",
    source: SOURCE,
    make: linpack,
};

const NETWORKS: [Network; 6] = [LAG, MOVED_PAUSE, INFINIBAND, TCP, NSCC, SRD];
const ORDERS: [u32; 4] = [10_000, 20_000, 40_000, 80_000];
/// Of a node: two processors of 3.6 GHz with 7.2 GFLOP/s each, of which a matrix product gets five sixths.
const GFLOPS: f64 = 12.0;

const PROGRAM: &str = r#"
[[program]]
kind = "hpl"
placement = "random"
"#;

fn linpack(lab: &mut Lab<'_>) -> Option<Drawn> {
    let orders = lab.pick(&ORDERS[..2], &ORDERS[..]);
    let panels = lab.pick(1, 3);
    lab.plan(NETWORKS.len() * orders.len());
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for network in &NETWORKS {
        let mut of_network = Vec::new();
        for order in orders {
            let more = [
                format!("program.hosts={NODES}"),
                format!("program.order={order}"),
                format!("program.panels={panels}"),
                format!("program.gflops={GFLOPS:?}"),
                "end_us=60000000".into(),
            ];
            let scenario = scenario(network, PROGRAM, 1, &more);
            let run = lab.run(&scenario)?;
            wrong.extend(complaints(network, &run));
            // The catalogue's second figure is the rate of all ranks.
            let gflops = said(&scenario, &run).get(1).map(|figure| figure.values.mean);
            of_network.push(gflops.map(|gflops| 100.0 * gflops / (GFLOPS * f64::from(NODES))));
        }
        all.push(of_network);
    }
    let x = Axis::new("order of the matrix", orders[0] as f64, orders[orders.len() - 1] as f64).logarithmic();
    let mut chart = Chart::new(LINPACK.title, x, Axis::new("efficiency (%)", 0.0, 100.0));
    for (network, of_network) in NETWORKS.iter().zip(&all) {
        chart.line(
            network.label,
            orders.iter().zip(of_network).map(|(&order, &percent)| (order as f64, percent)),
        );
    }
    let words = |of_network: &Vec<Option<f64>>| {
        let one = |(order, percent): (&u32, &Option<f64>)| match percent {
            Some(percent) => format!("{order}: {} %", plain(*percent)),
            None => format!("{order}: did not end"),
        };
        orders.iter().zip(of_network).map(one).collect::<Vec<_>>().join(", ")
    };
    let published = |label: &str| {
        if label == MOVED_PAUSE.label { "in the same efficiency range as InfiniBand" } else { "" }
    };
    let rows = NETWORKS.iter().zip(&all);
    Some(Drawn {
        chart,
        caption: format!(
            "The first {panels} panels of 192 columns, 8 by 16 ranks, without look-ahead, so that nothing of the network's time is \
             hidden; by 12 GFLOP/s of a node, what a matrix product alone would get. Jobs that fill the nodes' memory have \
             orders of 200,000 and more, where networks differ less still."
        ),
        findings: rows
            .map(|(network, of)| finding(network.label, published(network.label), words(of)))
            .collect(),
        complaints: wrong,
    })
}
