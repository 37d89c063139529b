//! The shortest ways from one switch to all others.

/// Longest cable, plus one: so many lengths are under way at a time.
const WHEEL: usize = super::BETWEEN_GROUPS as usize + 1;

/// Of `switches`, of which `next_to` says the neighbours and how far these are (1 to 3): the length of the shortest way from
/// `from` to each, and all that can be reached, nearest first.
pub(crate) fn distances<I: Iterator<Item = (u32, u32)>>(
    switches: usize,
    from: u32,
    next_to: impl Fn(u32) -> I,
) -> (Vec<Option<u32>>, Vec<u32>) {
    let mut lengths = vec![None; switches];
    lengths[from as usize] = Some(0);
    let mut nearest_first = Vec::with_capacity(switches);
    let mut wheel: [Vec<u32>; WHEEL] = Default::default();
    wheel[0].push(from);
    let mut here = 0;
    while wheel.iter().any(|spoke| !spoke.is_empty()) {
        for switch in std::mem::take(&mut wheel[here as usize % WHEEL]) {
            if lengths[switch as usize] != Some(here) {
                continue; // a shorter way was found
            }
            nearest_first.push(switch);
            for (next, length) in next_to(switch) {
                let known = &mut lengths[next as usize];
                if known.is_none_or(|known| here + length < known) {
                    *known = Some(here + length);
                    wheel[(here + length) as usize % WHEEL].push(next);
                }
            }
        }
        here += 1;
    }
    (lengths, nearest_first)
}

#[cfg(test)]
mod tests {
    use super::distances;

    #[test]
    fn a_way_of_more_but_shorter_cables_wins() {
        // 0 to 1 over a cable of 3, or over 2 with two of 1; 3 is apart.
        let next_to = |switch: u32| {
            let ends: &[(u32, u32)] = match switch {
                0 => &[(1, 3), (2, 1)],
                1 => &[(0, 3), (2, 1)],
                2 => &[(0, 1), (1, 1)],
                _ => &[],
            };
            ends.iter().copied()
        };
        let (lengths, nearest_first) = distances(4, 0, next_to);
        assert_eq!(lengths, [Some(0), Some(2), Some(1), None]);
        assert_eq!(nearest_first, [0, 2, 1]);
    }
}
