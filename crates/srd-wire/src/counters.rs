//! What the layers count by: structures of numbers that know their names.

/// Declares such a structure. Its names are those of statistics: programs read them.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// Name and value of each counter, in this order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }
    };
}
