//! An event as an entry of a trace, the same for simulated and for real hosts (`docs/EVENTS.md`).

use crate::{Event, Value};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// What the process at `src` has decided about its context with `dst`.
#[derive(Clone, PartialEq, Debug)]
pub struct EventLine<S> {
    /// When, in microseconds since the trace's zero.
    pub t_us: f64,
    /// Whose decision it is.
    pub src: S,
    /// Whom it concerns.
    pub dst: S,
    /// What was decided.
    pub event: Event,
}

impl<S: AsRef<str>> Serialize for EventLine<S> {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", self.event.schema().name)?;
        map.serialize_entry("t_us", &self.t_us)?;
        map.serialize_entry("src", self.src.as_ref())?;
        map.serialize_entry("dst", self.dst.as_ref())?;
        let mut result = Ok(());
        self.event.each_field(|field, value| {
            if result.is_ok() {
                result = match value {
                    Value::Count(n) => map.serialize_entry(field.name, &n),
                    Value::Real(x) => map.serialize_entry(field.name, &x), // null where there is no limit
                    Value::Flag(flag) => map.serialize_entry(field.name, &flag),
                    Value::Word(word) => map.serialize_entry(field.name, word),
                    Value::Missing => map.serialize_entry(field.name, &()),
                };
            }
        });
        result?;
        map.end()
    }
}
