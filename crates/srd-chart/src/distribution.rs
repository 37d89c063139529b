//! Which share of many values is not above which value.

/// Most points of a line.
const POINTS: usize = 400;

/// Which of so many values make each point of a line of at most so many points: from where, to before where.
pub fn buckets(values: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let points = values.min(most);
    (0..points).map(move |n| (n * values / points, (n + 1) * values / points))
}

/// Which share of the values is at most so large: a staircase from 0 to 1.
pub fn distribution(mut values: Vec<f64>) -> Vec<(f64, Option<f64>)> {
    values.sort_unstable_by(f64::total_cmp);
    let count = values.len();
    let mut points = Vec::new();
    let mut reached = 0.0;
    for (from, to) in buckets(count, POINTS) {
        let x = values[to - 1];
        // Where several values make a step, it is drawn at the last of them: never better than it was.
        debug_assert!(from < to, "each point has a value");
        points.push((x, Some(reached)));
        reached = to as f64 / count as f64;
        points.push((x, Some(reached)));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_goes_from_nothing_to_everything() {
        let points = distribution(vec![3.0, 1.0]);
        assert_eq!(points, [(1.0, Some(0.0)), (1.0, Some(0.5)), (3.0, Some(0.5)), (3.0, Some(1.0))]);
    }

    #[test]
    fn every_value_is_in_one_point() {
        for values in [0, 1, 399, 400, 401, 5000] {
            let all: Vec<_> = buckets(values, POINTS).collect();
            assert!(all.len() <= POINTS);
            assert_eq!(all.iter().map(|(from, to)| to - from).sum::<usize>(), values);
        }
    }
}
