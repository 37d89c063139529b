//! What an instance tells of itself, read.

use srd_net::Stats;
use std::borrow::Cow;

/// The counters in an answer.
pub fn read(answer: &str) -> serde_json::Result<Stats> {
    let mut stats: Stats = serde_json::from_str(answer)?;
    let texts = [&mut stats.program, &mut stats.address, &mut stats.interface];
    let peers = stats.peers.iter_mut().map(|peer| &mut peer.address);
    let local = stats.layers.iter_mut().flat_map(|layer| &mut layer.local_peers);
    let local = local.flat_map(|peer| [Some(&mut peer.address), peer.reason.as_mut()]).flatten();
    texts.into_iter().chain(peers).chain(local).for_each(|text| *text = printable(text));
    let paths = stats.peers.iter_mut().flat_map(|peer| &mut peer.path_list);
    paths.for_each(|path| path.state = Cow::Owned(printable(&path.state)));
    Ok(stats)
}

/// A program may call itself what it likes; the terminal must not take it for a command.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_instance_of_another_release_does_not_tell_is_nothing() {
        let stats = read(
            &json!({"pid": 7, "unknown": [1], "peers": [{"address": "a", "later": {}, "rx_bytes": 5}]})
                .to_string(),
        )
        .unwrap();
        assert_eq!((stats.pid, stats.peers.len(), stats.peers[0].counter("tx_bytes")), (7, 1, 0));
        assert_eq!((stats.transport_counter("tx_bytes"), stats.peers[0].counter("rx_bytes")), (0, 5));
        assert!(read(&json!({"peers": 7}).to_string()).is_err());
    }

    #[test]
    fn no_name_reaches_the_terminal_as_a_command() {
        let stats = read(&json!({"program": "a\u{1b}[2Jb"}).to_string()).unwrap();
        assert_eq!(stats.program, "a?[2Jb");
    }
}
