//! Ranks in a box of three dimensions.

/// How many ranks lie in each dimension; the first one's are next to each other in number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Ranks along x, y and z.
    pub ranks: [u32; 3],
}

impl Grid {
    /// So many ranks with as little surface between them as can be; of equals the one that is longest in z. HPCG and LAMMPS
    /// choose so, too (ComputeOptimalShapeXYZ, procs2box for a cube).
    pub fn of(ranks: u32) -> Grid {
        let divisors: Vec<u32> = (1..=ranks).filter(|divisor| ranks.is_multiple_of(*divisor)).collect();
        let mut best = [1, 1, ranks.max(1)];
        let surface = |[x, y, z]: [u32; 3]| {
            let [x, y, z] = [x, y, z].map(u64::from);
            x * y + y * z + x * z
        };
        for &x in &divisors {
            for &y in divisors.iter().filter(|&&y| (ranks / x).is_multiple_of(y)) {
                let grid = [x, y, ranks / x / y];
                if x <= y && y <= grid[2] && surface(grid) < surface(best) {
                    best = grid;
                }
            }
        }
        Grid { ranks: best }
    }

    /// Where a rank lies.
    pub fn place(&self, rank: u32) -> [u32; 3] {
        let [x, y, _] = self.ranks;
        [rank % x, rank / x % y, rank / (x * y)]
    }

    /// Who lies there.
    pub fn rank(&self, [x, y, z]: [u32; 3]) -> u32 {
        x + self.ranks[0] * (y + self.ranks[1] * z)
    }

    /// Who lies so far away (-1, 0 or 1 in each dimension), if the box does not end before.
    pub fn neighbour(&self, rank: u32, step: [i32; 3]) -> Option<u32> {
        let mut place = self.place(rank);
        for dimension in 0..3 {
            let moved = place[dimension].checked_add_signed(step[dimension])?;
            place[dimension] = (moved < self.ranks[dimension]).then_some(moved)?;
        }
        Some(self.rank(place))
    }

    /// The next in a dimension, upwards or downwards, in a box whose ends meet.
    pub fn around(&self, rank: u32, dimension: usize, up: bool) -> u32 {
        let mut place = self.place(rank);
        let size = self.ranks[dimension];
        place[dimension] = (place[dimension] + if up { 1 } else { size - 1 }) % size;
        self.rank(place)
    }
}
