//! The same data with `SRD_ENGINES=4`: between endpoints of different engines.

#[path = "data.rs"]
mod data;
