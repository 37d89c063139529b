//! Lists of algorithms that do the same: what each is called in files and settings, and how it is made.

/// Makes the enumeration `$kinds`, and the function `$make`, which makes the one of a kind from the configuration and something
/// more. To add one: its file, and a line in the list.
macro_rules! kinds {
    (
        $(#[$about:meta])*
        pub enum $kinds:ident;
        pub(crate) fn $make:ident($config:ident.$field:ident, $more:ident: $more_type:ty) -> dyn $algorithm:ident;
        $($(#[$doc:meta])* $kind:ident = $name:literal: $made:expr;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $kinds {
            $($(#[$doc])* $kind,)*
        }

        impl $kinds {
            /// All of them, by name.
            pub const ALL: &[(&str, $kinds)] = &[$(($name, $kinds::$kind)),*];
        }

        /// The one that the configuration names.
        pub(crate) fn $make($config: &$crate::Config, $more: $more_type) -> Box<dyn $algorithm> {
            match $config.$field {
                $($kinds::$kind => Box::new($made),)*
            }
        }
    };
}
pub(crate) use kinds;
