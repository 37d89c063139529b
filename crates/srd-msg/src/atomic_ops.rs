//! Atomic operations and the types they work on, with the numbers of fi_atomic(3): which operation there is on which type,
//! and what it makes of one element. Values are of this machine's byte order; whose memory they lie in, and that nothing
//! comes between, is decided elsewhere.
//!
//! Of the `long double` types there are only reading and writing: their arithmetic is no part of Rust.

use std::ops::{Add, BitAnd, BitOr, BitXor, Mul, Not, Sub};

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

impl AtomicOp {
    /// All operations, by number.
    pub const ALL: [AtomicOp; 19] = {
        use AtomicOp::*;
        [
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
        ]
    };

    /// The operation with that number.
    pub fn from_number(number: u32) -> Option<AtomicOp> {
        AtomicOp::ALL.get(number as usize).copied()
    }

    /// Whether it takes values to compare with: it is then of the compare form, and of no other.
    pub fn compares(self) -> bool {
        self as u8 >= AtomicOp::CompareSwap as u8
    }
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

impl Datatype {
    /// All types, by number.
    pub const ALL: [Datatype; 16] = {
        use Datatype::*;
        [
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
        ]
    };

    /// The type with that number.
    pub fn from_number(number: u32) -> Option<Datatype> {
        Datatype::ALL.get(number as usize).copied()
    }

    /// Bytes of an element. A `long double` has 16: the System V ABIs of x86-64 and AArch64 both say so.
    pub fn size(self) -> usize {
        use Datatype::*;
        match self {
            Int8 | Uint8 => 1,
            Int16 | Uint16 => 2,
            Int32 | Uint32 | Float => 4,
            Int64 | Uint64 | Double | FloatComplex => 8,
            Int128 | Uint128 | DoubleComplex | LongDouble => 16,
            LongDoubleComplex => 32,
        }
    }
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

/// Whether there is that operation, in that form, on that type. Complex numbers have no order, and only integers have bits
/// (where fi_atomic(3) leaves that open, this is what libfabric's software providers do).
pub fn valid(form: Form, op: AtomicOp, datatype: Datatype) -> bool {
    use AtomicOp::*;
    use Datatype::*;
    let in_form = match op {
        Read => form == Form::Fetch,
        op if op.compares() => form == Form::Compare,
        _ => form != Form::Compare,
    };
    let of_bits = matches!(op, BitOr | BitAnd | BitXor | MaskedSwap);
    let of_order = matches!(op, Min | Max | CompareSwapLe | CompareSwapLt | CompareSwapGe | CompareSwapGt);
    let on_type = match datatype {
        Int8 | Uint8 | Int16 | Uint16 | Int32 | Uint32 | Int64 | Uint64 | Int128 | Uint128 => true,
        Float | Double => !of_bits,
        FloatComplex | DoubleComplex => !of_bits && !of_order,
        LongDouble | LongDoubleComplex => matches!(op, Read | Write),
    };
    in_form && on_type
}

/// Changes one element in place. Sums and products of integers wrap; a comparison with a NaN does not hold, as in C;
/// logical operations give 1 or 0 of the type; products of complex numbers are by the textbook's formula, without C's
/// recovery of infinities (C17, annex G.5.1). `operand` is not looked at by [`AtomicOp::Read`], `compare` only by
/// operations that compare.
///
/// # Panics
/// If the operation is not [`valid`] on the type in any form, or a slice is not an element long.
pub fn apply(op: AtomicOp, datatype: Datatype, target: &mut [u8], operand: &[u8], compare: &[u8]) {
    use Datatype::*;
    assert_eq!(target.len(), datatype.size(), "one element is changed at a time");
    match op {
        AtomicOp::Read => return,
        AtomicOp::Write => return target.copy_from_slice(operand),
        _ => {}
    }
    // Who compares nothing does not look at the third value.
    let compare = if op.compares() { compare } else { operand };
    let bytes = (target, operand, compare);
    match datatype {
        Int8 => change(bytes, |t, o, c| of_integers::<i8>(op, t, o, c)),
        Uint8 => change(bytes, |t, o, c| of_integers::<u8>(op, t, o, c)),
        Int16 => change(bytes, |t, o, c| of_integers::<i16>(op, t, o, c)),
        Uint16 => change(bytes, |t, o, c| of_integers::<u16>(op, t, o, c)),
        Int32 => change(bytes, |t, o, c| of_integers::<i32>(op, t, o, c)),
        Uint32 => change(bytes, |t, o, c| of_integers::<u32>(op, t, o, c)),
        Int64 => change(bytes, |t, o, c| of_integers::<i64>(op, t, o, c)),
        Uint64 => change(bytes, |t, o, c| of_integers::<u64>(op, t, o, c)),
        Int128 => change(bytes, |t, o, c| of_integers::<i128>(op, t, o, c)),
        Uint128 => change(bytes, |t, o, c| of_integers::<u128>(op, t, o, c)),
        Float => change(bytes, |t, o, c| of_ordered::<f32>(op, t, o, c)),
        Double => change(bytes, |t, o, c| of_ordered::<f64>(op, t, o, c)),
        FloatComplex => change(bytes, |t, o, c| of_numbers::<Complex<f32>>(op, t, o, c)),
        DoubleComplex => change(bytes, |t, o, c| of_numbers::<Complex<f64>>(op, t, o, c)),
        LongDouble | LongDoubleComplex => None,
    }
    .expect("the caller has asked whether there is this operation on this type");
}

/// Target, operand, and what is compared with.
type Bytes<'a> = (&'a mut [u8], &'a [u8], &'a [u8]);

/// Replaces the target by what `f` makes of the three values.
fn change<T: Number>(bytes: Bytes<'_>, f: impl Fn(T, T, T) -> Option<T>) -> Option<()> {
    let (target, operand, compare) = bytes;
    f(T::load(target), T::load(operand), T::load(compare))?.store(target);
    Some(())
}

/// What an operation makes of integers.
fn of_integers<T: Integer>(op: AtomicOp, target: T, operand: T, compare: T) -> Option<T> {
    Some(match op {
        AtomicOp::BitOr => target | operand,
        AtomicOp::BitAnd => target & operand,
        AtomicOp::BitXor => target ^ operand,
        AtomicOp::MaskedSwap => operand & compare | target & !compare,
        _ => return of_ordered(op, target, operand, compare),
    })
}

/// What an operation makes of numbers that have an order.
fn of_ordered<T: Number + PartialOrd>(op: AtomicOp, target: T, operand: T, compare: T) -> Option<T> {
    let replaced = match op {
        AtomicOp::Min => operand < target,
        AtomicOp::Max => operand > target,
        AtomicOp::CompareSwapLe => compare <= target,
        AtomicOp::CompareSwapLt => compare < target,
        AtomicOp::CompareSwapGe => compare >= target,
        AtomicOp::CompareSwapGt => compare > target,
        _ => return of_numbers(op, target, operand, compare),
    };
    Some(if replaced { operand } else { target })
}

/// What an operation makes of numbers of any kind; `None` if it is not for all kinds.
fn of_numbers<T: Number>(op: AtomicOp, target: T, operand: T, compare: T) -> Option<T> {
    let truth = |value: bool| if value { T::ONE } else { T::ZERO };
    let (is_target, is_operand) = (target != T::ZERO, operand != T::ZERO);
    Some(match op {
        AtomicOp::Sum => target.plus(operand),
        AtomicOp::Prod => target.times(operand),
        AtomicOp::LogicalOr => truth(is_target || is_operand),
        AtomicOp::LogicalAnd => truth(is_target && is_operand),
        AtomicOp::LogicalXor => truth(is_target != is_operand),
        AtomicOp::CompareSwap if compare == target => operand,
        AtomicOp::CompareSwapNe if compare != target => operand,
        AtomicOp::CompareSwap | AtomicOp::CompareSwapNe => target,
        _ => return None,
    })
}

/// A number in memory, with its arithmetic.
trait Number: Copy + PartialEq {
    const ZERO: Self;
    const ONE: Self;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

trait Integer:
    Number
    + PartialOrd
    + BitOr<Output = Self>
    + BitAnd<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
{
}

macro_rules! number {
    ($zero:literal, $one:literal, $plus:ident, $times:ident: $($type:ident)*) => { $(
        impl Number for $type {
            const ZERO: $type = $zero;
            const ONE: $type = $one;

            fn load(bytes: &[u8]) -> $type {
                $type::from_ne_bytes(bytes.try_into().expect("an element is as long as its type"))
            }

            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }

            fn plus(self, other: $type) -> $type {
                self.$plus(other)
            }

            fn times(self, other: $type) -> $type {
                self.$times(other)
            }
        }
    )* };
}

macro_rules! integer {
    ($($type:ident)*) => {
        number!(0, 1, wrapping_add, wrapping_mul: $($type)*);
        $( impl Integer for $type {} )*
    };
}

integer!(i8 u8 i16 u16 i32 u32 i64 u64 i128 u128);
number!(0.0, 1.0, add, mul: f32 f64);

/// A complex number: real part, imaginary part.
#[derive(Clone, Copy, PartialEq)]
struct Complex<T>(T, T);

impl<T: Number + Sub<Output = T>> Number for Complex<T> {
    const ZERO: Complex<T> = Complex(T::ZERO, T::ZERO);
    const ONE: Complex<T> = Complex(T::ONE, T::ZERO);

    fn load(bytes: &[u8]) -> Complex<T> {
        let (re, im) = bytes.split_at(bytes.len() / 2);
        Complex(T::load(re), T::load(im))
    }

    fn store(self, bytes: &mut [u8]) {
        let (re, im) = bytes.split_at_mut(bytes.len() / 2);
        self.0.store(re);
        self.1.store(im);
    }

    fn plus(self, other: Complex<T>) -> Complex<T> {
        Complex(self.0.plus(other.0), self.1.plus(other.1))
    }

    fn times(self, other: Complex<T>) -> Complex<T> {
        let (Complex(a, b), Complex(c, d)) = (self, other);
        Complex(a.times(c) - b.times(d), a.times(d).plus(b.times(c)))
    }
}

#[cfg(test)]
mod tests;
