//! Atomic operations and types by their numbers, and which go together (fi_atomic(3)).

use srd_msg::atomic_ops::{AtomicOp, Datatype, Form};

pub(crate) fn operation(number: u32) -> Option<AtomicOp> {
    use AtomicOp::*;
    const ALL: [AtomicOp; 19] = [
        Min,
        Max,
        Sum,
        Prod,
        LogicalOr,
        LogicalAnd,
        BitOr,
        BitAnd,
        LogicalXor,
        BitXor,
        Read,
        Write,
        CompareSwap,
        CompareSwapNe,
        CompareSwapLe,
        CompareSwapLt,
        CompareSwapGe,
        CompareSwapGt,
        MaskedSwap,
    ];
    ALL.get(number as usize).copied()
}

pub(crate) fn datatype(number: u32) -> Option<Datatype> {
    use Datatype::*;
    const ALL: [Datatype; 16] = [
        Int8,
        Uint8,
        Int16,
        Uint16,
        Int32,
        Uint32,
        Int64,
        Uint64,
        Float,
        Double,
        FloatComplex,
        DoubleComplex,
        LongDouble,
        LongDoubleComplex,
        Int128,
        Uint128,
    ];
    ALL.get(number as usize).copied()
}

/// Bytes of an element.
pub(crate) fn size(datatype: Datatype) -> usize {
    use Datatype::*;
    match datatype {
        Int8 | Uint8 => 1,
        Int16 | Uint16 => 2,
        Int32 | Uint32 | Float => 4,
        Int64 | Uint64 | Double | FloatComplex => 8,
        DoubleComplex | LongDouble | Int128 | Uint128 => 16,
        LongDoubleComplex => 32,
    }
}

pub(crate) fn is_valid(form: Form, op: AtomicOp, datatype: Datatype) -> bool {
    use AtomicOp::*;
    use Datatype::{DoubleComplex, FloatComplex, LongDoubleComplex};
    let complex = matches!(datatype, FloatComplex | DoubleComplex | LongDoubleComplex);
    let integer = !complex && !matches!(datatype, Datatype::Float | Datatype::Double | Datatype::LongDouble);
    let of_type = match op {
        Sum | Prod | LogicalOr | LogicalAnd | LogicalXor | Read | Write | CompareSwap | CompareSwapNe => true,
        Min | Max | CompareSwapLe | CompareSwapLt | CompareSwapGe | CompareSwapGt => !complex,
        BitOr | BitAnd | BitXor | MaskedSwap => integer,
    };
    let of_form = match op {
        Read => form == Form::Fetch,
        CompareSwap | CompareSwapNe | CompareSwapLe | CompareSwapLt | CompareSwapGe | CompareSwapGt
        | MaskedSwap => form == Form::Compare,
        _ => form != Form::Compare,
    };
    of_type && of_form
}
