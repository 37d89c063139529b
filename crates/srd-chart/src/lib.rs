//! Pages that need nothing but themselves: charts as SVG text, the frame they stand in, and its style, for a screen of any
//! width, light or dark, or paper. What is drawn, and in which units, is for those who know what it means: the simulator's
//! pages (`srd-sim`) and those of experiments in the lab (`srd-lab`).
#![forbid(unsafe_code)]

mod axis;
mod chart;
mod distribution;
mod page;

pub use axis::{Axis, plain};
pub use chart::{Chart, MAX_LINES};
pub use distribution::{buckets, distribution};
pub use page::{END, beginning, escape, figure};
