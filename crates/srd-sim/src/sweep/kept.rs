//! What a run of a sweep leaves in a file for a later merge.

use super::Row;
use serde::{Deserialize, Serialize};

/// A row with its warnings, which JSON leaves out.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Kept {
    row: Row,
    warnings: Vec<String>,
}

impl From<Row> for Kept {
    fn from(mut row: Row) -> Kept {
        Kept { warnings: std::mem::take(&mut row.warnings), row }
    }
}

impl From<Kept> for Row {
    fn from(kept: Kept) -> Row {
        Row { warnings: kept.warnings, ..kept.row }
    }
}
