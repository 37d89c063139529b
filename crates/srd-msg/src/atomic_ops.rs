//! Atomic operations and the types they work on, with the numbers of fi_atomic(3).

/// An operation (`enum fi_op`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum AtomicOp {
    Min = 0,
    Max = 1,
    Sum = 2,
    Prod = 3,
    LogicalOr = 4,
    LogicalAnd = 5,
    BitOr = 6,
    BitAnd = 7,
    LogicalXor = 8,
    BitXor = 9,
    Read = 10,
    Write = 11,
    CompareSwap = 12,
    CompareSwapNe = 13,
    CompareSwapLe = 14,
    CompareSwapLt = 15,
    CompareSwapGe = 16,
    CompareSwapGt = 17,
    MaskedSwap = 18,
}

/// A type (`enum fi_datatype`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Datatype {
    Int8 = 0,
    Uint8 = 1,
    Int16 = 2,
    Uint16 = 3,
    Int32 = 4,
    Uint32 = 5,
    Int64 = 6,
    Uint64 = 7,
    Float = 8,
    Double = 9,
    FloatComplex = 10,
    DoubleComplex = 11,
    LongDouble = 12,
    LongDoubleComplex = 13,
    Int128 = 14,
    Uint128 = 15,
}

/// How an operation is called: without result, with the values before it, or with values to compare and the values before
/// it (fi_atomic(3): base, fetch, compare).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// Base.
    Base,
    /// Fetch.
    Fetch,
    /// Compare.
    Compare,
}
