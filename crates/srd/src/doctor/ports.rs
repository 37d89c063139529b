//! Whether packets to SRD's UDP ports reach the other host.

use super::finding::Finding;
use super::probe::{
    Prober, Request, SHORTEST, answered, any_address, listening, nonce, unfragmented, wait_readable,
};
use super::system::PORTS;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Most rounds of probes to the ports that have not answered yet, each from another source port: what one path loses
/// must not look like a closed port.
const ROUNDS: u32 = 16;

/// Rounds without any new answer after which the rest is given up.
const FRUITLESS_ROUNDS: u32 = 3;

/// How long each round waits.
const PATIENCE: Duration = Duration::from_millis(200);

/// Asks the host to listen on a sample of the ports, as far as it has them free, and tries each.
pub fn examine(prober: &mut Prober, port_base: u16) -> io::Result<Vec<Finding>> {
    let check = "remote ports";
    let to = prober.to();
    let request = Request { open_ports: true, first_port: port_base, ..Request::default() };
    let Some(answer) = prober.ask(request, SHORTEST)? else {
        return Ok(vec![Finding::skip(check, format!("{} stopped answering", to.ip()))]);
    };
    let open = listening(&answer, port_base);
    let silent = silent(to, &open)?;
    let range = format!("{port_base}-{}", port_base.saturating_add(PORTS - 1));
    let what = format!("UDP ports {range} of {}: of a sample of {}", to.ip(), open.len());
    Ok(vec![match silent.first() {
        None if open.is_empty() => Finding::skip(check, format!("{what}, as all are in use there")),
        None => Finding::ok(check, format!("{what}, all are reached")),
        Some(first) => {
            let what = format!("{what}, {} are not reached, such as {first}", silent.len());
            Finding::fail(check, what).mend(format!(
                "nft insert rule inet filter input udp dport {range} accept, on {} and on every firewall between \
                 (`srd doctor` there names its own chain; a cloud's security group: UDP {range} in and out)",
                to.ip()
            ))
        }
    }])
}

/// Those of the ports that never answer.
fn silent(to: SocketAddr, ports: &[u16]) -> io::Result<Vec<u16>> {
    let mut silent = ports.to_vec();
    let mut fruitless = 0;
    for _ in 0..ROUNDS {
        if silent.is_empty() || fruitless == FRUITLESS_ROUNDS {
            break;
        }
        let before = silent.len();
        probe(to, &mut silent)?;
        fruitless = if silent.len() < before { 0 } else { fruitless + 1 };
    }
    Ok(silent)
}

/// Probes each of the ports once, and takes out those that answer.
fn probe(to: SocketAddr, silent: &mut Vec<u16>) -> io::Result<()> {
    let sockets = [unfragmented(any_address(to.ip()))?];
    sockets[0].set_nonblocking(true)?;
    let nonce = nonce();
    for &port in &*silent {
        let request = Request { nonce, number: port.into(), ..Request::default() };
        // The refusal of an earlier one may be reported here; another round repeats what was not sent.
        let _ = sockets[0].send_to(&request.encode(SHORTEST), SocketAddr::new(to.ip(), port));
    }
    let mut buffer = [0; SHORTEST];
    let deadline = Instant::now() + PATIENCE;
    while !silent.is_empty() && Instant::now() < deadline {
        wait_readable(&sockets, deadline.saturating_duration_since(Instant::now()))?;
        while let Ok(len) = sockets[0].recv(&mut buffer) {
            if let Some((_, number)) = answered(&buffer[..len]).filter(|(theirs, _)| *theirs == nonce) {
                silent.retain(|&port| u32::from(port) != number);
            }
        }
    }
    Ok(())
}
