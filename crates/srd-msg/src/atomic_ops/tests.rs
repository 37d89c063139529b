use super::*;
use proptest::prelude::*;

const FORMS: [Form; 3] = [Form::Base, Form::Fetch, Form::Compare];

fn valid_in_some_form(op: AtomicOp, datatype: Datatype) -> bool {
    FORMS.iter().any(|&form| valid(form, op, datatype))
}

#[test]
fn numbers_are_those_of_the_header() {
    for (number, op) in AtomicOp::ALL.into_iter().enumerate() {
        assert_eq!(op as usize, number);
        assert_eq!(AtomicOp::from_number(number as u32), Some(op));
    }
    for (number, datatype) in Datatype::ALL.into_iter().enumerate() {
        assert_eq!(datatype as usize, number);
        assert_eq!(Datatype::from_number(number as u32), Some(datatype));
    }
    // `FI_ATOMIC_OP_LAST`, the number behind `FI_UINT128`, and those for collectives only.
    for number in [19, 1 << 16, u32::MAX] {
        assert_eq!(AtomicOp::from_number(number), None);
    }
    for number in [16, 1 << 16, u32::MAX] {
        assert_eq!(Datatype::from_number(number), None);
    }
}

#[test]
fn forms_have_the_operations_that_the_manual_lists() {
    let of = |form| AtomicOp::ALL.into_iter().filter(move |&op| valid(form, op, Datatype::Int32));
    let base: Vec<AtomicOp> = AtomicOp::ALL.into_iter().take(12).filter(|&op| op != AtomicOp::Read).collect();
    assert!(of(Form::Base).eq(base));
    assert!(of(Form::Fetch).eq(AtomicOp::ALL.into_iter().take(12)));
    assert!(of(Form::Compare).eq(AtomicOp::ALL.into_iter().skip(12)));
}

#[test]
fn only_integers_have_bits_and_only_real_numbers_an_order() {
    use AtomicOp::*;
    let lacks = |datatype| {
        AtomicOp::ALL.into_iter().filter(move |&op| !valid_in_some_form(op, datatype)).collect::<Vec<_>>()
    };
    let bits = [BitOr, BitAnd, BitXor, MaskedSwap];
    let unordered = [
        Min,
        Max,
        BitOr,
        BitAnd,
        BitXor,
        CompareSwapLe,
        CompareSwapLt,
        CompareSwapGe,
        CompareSwapGt,
        MaskedSwap,
    ];
    for datatype in Datatype::ALL {
        let lacks = lacks(datatype);
        match datatype {
            Datatype::Float | Datatype::Double => assert_eq!(lacks, bits),
            Datatype::FloatComplex | Datatype::DoubleComplex => assert_eq!(lacks, unordered),
            Datatype::LongDouble | Datatype::LongDoubleComplex => assert_eq!(lacks.len(), 17),
            _ => assert!(lacks.is_empty()),
        }
    }
}

#[test]
fn what_is_valid_can_be_applied_and_what_is_not_cannot() {
    let wrong: Vec<_> = AtomicOp::ALL
        .into_iter()
        .flat_map(|op| Datatype::ALL.map(|datatype| (op, datatype)))
        .filter(|&(op, datatype)| {
            let element = vec![0; datatype.size()];
            // As short as an operation may come.
            let operand = if op == AtomicOp::Read { &[][..] } else { &element };
            let compare = if op.compares() { &element[..] } else { &[] };
            let applied =
                std::panic::catch_unwind(|| apply(op, datatype, &mut element.clone(), operand, compare));
            applied.is_ok() != valid_in_some_form(op, datatype)
        })
        .collect();
    assert_eq!(wrong, []);
}

/// Applies to values of the type, and returns the value after.
macro_rules! applied {
    ($op:expr, $datatype:expr, $type:ident, $target:expr, $operand:expr, $compare:expr) => {{
        let mut bytes = $target.to_ne_bytes();
        apply($op, $datatype, &mut bytes, &$operand.to_ne_bytes(), &$compare.to_ne_bytes());
        $type::from_ne_bytes(bytes)
    }};
}

/// What is true of real numbers whatever they are made of, straight from the manual's C.
macro_rules! expected_of_real {
    ($op:expr, $t:expr, $o:expr, $c:expr, $zero:literal, $one:literal, $otherwise:expr) => {{
        let (t, o, c) = ($t, $o, $c);
        let truth = |value: bool| if value { $one } else { $zero };
        match $op {
            AtomicOp::Min if o < t => o,
            AtomicOp::Max if o > t => o,
            AtomicOp::LogicalOr => truth(t != $zero || o != $zero),
            AtomicOp::LogicalAnd => truth(t != $zero && o != $zero),
            AtomicOp::LogicalXor => truth((t != $zero && o == $zero) || (t == $zero && o != $zero)),
            AtomicOp::Write => o,
            AtomicOp::CompareSwap if c == t => o,
            AtomicOp::CompareSwapNe if c != t => o,
            AtomicOp::CompareSwapLe if c <= t => o,
            AtomicOp::CompareSwapLt if c < t => o,
            AtomicOp::CompareSwapGe if c >= t => o,
            AtomicOp::CompareSwapGt if c > t => o,
            op => $otherwise(op),
        }
    }};
}

macro_rules! integers {
    ($($name:ident $datatype:ident $type:ident;)*) => { $(
        proptest! {
            #[test]
            fn $name(t: $type, o: $type, c: $type, near in 0u8..8, op in 0u32..19) {
                // Equal values, and zeros, are rare among random ones.
                let o = if near & 1 != 0 { t } else { o };
                let c = if near & 2 != 0 { t } else { c };
                let t = if near & 4 != 0 { 0 } else { t };
                let op = AtomicOp::from_number(op).unwrap();
                let expected = expected_of_real!(op, t, o, c, 0, 1, |op| match op {
                    AtomicOp::Sum => (t as i128).wrapping_add(o as i128) as $type,
                    AtomicOp::Prod => (t as i128).wrapping_mul(o as i128) as $type,
                    AtomicOp::BitOr => t | o,
                    AtomicOp::BitAnd => t & o,
                    AtomicOp::BitXor => t ^ o,
                    AtomicOp::MaskedSwap => (0..$type::BITS).fold(0, |value, bit| {
                        let from = if c >> bit & 1 == 1 { o } else { t };
                        value | (from >> bit & 1) << bit
                    }),
                    _ => t,
                });
                prop_assert_eq!(applied!(op, Datatype::$datatype, $type, t, o, c), expected);
            }
        }
    )* };
}

integers! {
    int8 Int8 i8;
    uint8 Uint8 u8;
    int16 Int16 i16;
    uint16 Uint16 u16;
    int32 Int32 i32;
    uint32 Uint32 u32;
    int64 Int64 i64;
    uint64 Uint64 u64;
    int128 Int128 i128;
    uint128 Uint128 u128;
}

macro_rules! reals {
    ($($name:ident $complex_name:ident $datatype:ident $complex:ident $type:ident;)*) => { $(
        proptest! {
            #[test]
            fn $name(
                t in proptest::num::$type::ANY, o in proptest::num::$type::ANY, c in proptest::num::$type::ANY,
                near in 0u8..8, op in 0u32..19,
            ) {
                let op = AtomicOp::from_number(op).unwrap();
                prop_assume!(valid_in_some_form(op, Datatype::$datatype));
                let o = if near & 1 != 0 { t } else { o };
                let c = if near & 2 != 0 { t } else { c };
                let t = if near & 4 != 0 { -0.0 } else { t };
                let expected = expected_of_real!(op, t, o, c, 0.0, 1.0, |op| match op {
                    AtomicOp::Sum => t + o,
                    AtomicOp::Prod => t * o,
                    _ => t,
                });
                let got = applied!(op, Datatype::$datatype, $type, t, o, c);
                // Which NaN arithmetic gives is not said; a NaN that is not touched stays as it is.
                let computed = matches!(op, AtomicOp::Sum | AtomicOp::Prod);
                prop_assert!(
                    got.to_bits() == expected.to_bits() || computed && got.is_nan() && expected.is_nan(),
                    "{got} {expected}"
                );
            }

            #[test]
            fn $complex_name(a in 0i16..9, b: i16, c in 0i16..9, d: i16, equal: bool, zero: bool, op in 0u32..19) {
                // Small whole numbers, of which the arithmetic is exact, and equal and zero ones.
                let op = AtomicOp::from_number(op).unwrap();
                prop_assume!(valid_in_some_form(op, Datatype::$complex));
                let small = |value: i16| (value % 1000) as $type;
                let (a, b) = if zero { (0.0, 0.0) } else { (small(a), small(b)) };
                let (c, d) = (small(c), small(d));
                let compare = if equal { [a, b] } else { [c, d] };
                let is = |re: $type, im: $type| re != 0.0 || im != 0.0;
                let truth = |value: bool| [value as u8 as $type, 0.0];
                let expected = match op {
                    AtomicOp::Sum => [a + c, b + d],
                    AtomicOp::Prod => [a * c - b * d, a * d + b * c],
                    AtomicOp::LogicalOr => truth(is(a, b) || is(c, d)),
                    AtomicOp::LogicalAnd => truth(is(a, b) && is(c, d)),
                    AtomicOp::LogicalXor => truth(is(a, b) != is(c, d)),
                    AtomicOp::Write => [c, d],
                    AtomicOp::CompareSwap if compare == [a, b] => [c, d],
                    AtomicOp::CompareSwapNe if compare != [a, b] => [c, d],
                    _ => [a, b],
                };
                let bytes = |value: [$type; 2]| value.map(|part| part.to_ne_bytes()).concat();
                let mut target = bytes([a, b]);
                apply(op, Datatype::$complex, &mut target, &bytes([c, d]), &bytes(compare));
                let (re, im) = target.split_at(target.len() / 2);
                let got = [re, im].map(|part| $type::from_ne_bytes(part.try_into().unwrap()));
                prop_assert_eq!(got, expected);
            }
        }
    )* };
}

reals! {
    float float_complex Float FloatComplex f32;
    double double_complex Double DoubleComplex f64;
}

#[test]
fn a_comparison_with_a_nan_does_not_hold() {
    let after = |op, t: f64, o: f64, c: f64| applied!(op, Datatype::Double, f64, t, o, c);
    assert_eq!(after(AtomicOp::Min, 2.0, f64::NAN, 0.0), 2.0);
    assert!(after(AtomicOp::Max, f64::NAN, 2.0, 0.0).is_nan());
    assert_eq!(after(AtomicOp::CompareSwap, 1.0, 2.0, f64::NAN), 1.0);
    assert_eq!(after(AtomicOp::CompareSwapNe, 1.0, 2.0, f64::NAN), 2.0);
    // It is not zero either.
    assert_eq!(after(AtomicOp::LogicalAnd, f64::NAN, 2.0, 0.0), 1.0);
    assert_eq!(after(AtomicOp::LogicalOr, -0.0, 0.0, 0.0), 0.0);
}

#[test]
fn long_doubles_are_written_whole() {
    for datatype in [Datatype::LongDouble, Datatype::LongDoubleComplex] {
        let operand: Vec<u8> = (1..).take(datatype.size()).collect();
        let mut target = vec![0; datatype.size()];
        apply(AtomicOp::Write, datatype, &mut target, &operand, &[]);
        assert_eq!(target, operand);
        apply(AtomicOp::Read, datatype, &mut target, &[], &[]);
        assert_eq!(target, operand);
    }
}
