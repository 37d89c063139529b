//! C structures that know their own layout.

/// Size and fields of a C structure.
pub struct StructLayout {
    /// Its name after `struct` (or `union`).
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// Declares the C structures of a file, and `LAYOUT`, for a test that compares them with the installed headers.
#[macro_export]
macro_rules! c_structs {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub struct $name { $(pub $field: $type,)* }
        )*
        /// Every structure of this file.
        pub const LAYOUT: &[$crate::StructLayout] = &[$(
            $crate::StructLayout {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$((stringify!($field), core::mem::offset_of!($name, $field), size_of::<$type>()),)*],
            },
        )*];
    };
}
