//! Amounts of resources, such as `500m` or `2Gi`, as Kubernetes' quantity library has them: exact decimals.

use std::any::Any;
use std::cmp::Ordering;

use cel::common::types::{CelBool, CelDouble, CelInt, CelString, Type};
use cel::common::value::{StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError, add_member_overload, add_overload};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

use super::arguments::failed;

pub(super) const FUNCTIONS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "compareTo",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isQuantity",
    "quantity",
    "sign",
    "sub",
];

/// Longest quantity, in bytes.
const MAX_TEXT: usize = 256;
/// Largest power of ten that one is written with: beyond what a double holds.
const MAX_EXPONENT: i32 = 400;
/// Most digits of a number that upstream keeps as an integer with a power of ten.
const SMALL_DIGITS: i32 = 18;
/// The smallest part that a quantity has, a billionth.
const NANO: i32 = -9;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    add_overload!(env, fn quantity: (CelString) -> Result<Quantity>)?;
    add_overload!(env, fn is_quantity: (CelString) -> CelBool)?;
    add_overload!(env, fn sign: (Quantity) -> CelInt)?;
    add_member_overload!(env, fn sign: (Quantity) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (Quantity) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (Quantity) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (Quantity) -> CelDouble)?;
    add_member_overload!(env, fn add: (Quantity, Quantity) -> Quantity)?;
    add_member_overload!(env, fn add_int: (Quantity, CelInt) -> Quantity, name = "add")?;
    add_member_overload!(env, fn sub: (Quantity, Quantity) -> Quantity)?;
    add_member_overload!(env, fn sub_int: (Quantity, CelInt) -> Quantity, name = "sub")?;
    add_member_overload!(env, fn is_less_than: (Quantity, Quantity) -> CelBool)?;
    add_member_overload!(env, fn is_greater_than: (Quantity, Quantity) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Quantity, Quantity) -> CelInt)?;
    env.add_type(QUANTITY.to_owned())
}

static QUANTITY: Type = Type::new_unspecified_type("kubernetes.Quantity");

/// `value` times ten to the power of `exponent`.
#[derive(Debug, Clone)]
struct Quantity {
    value: BigInt,
    exponent: i32,
    /// Whether upstream keeps it as an integer of 64 bits with a power of ten: only such a one can be an integer.
    small: bool,
}

impl Val for Quantity {
    fn get_type(&self) -> &Type {
        &QUANTITY
    }

    fn cel_type() -> &'static Type {
        &QUANTITY
    }

    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self.compare(other).is_eq())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Quantity {}

impl Quantity {
    fn of(value: i64) -> Self {
        Self { value: value.into(), exponent: 0, small: true }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let problem = |what: &str| format!("`{text}` is no quantity: {what}");
        if text.is_empty() || text.len() > MAX_TEXT {
            return Err(format!("a text of {} bytes is no quantity, which has 1 to {MAX_TEXT}", text.len()));
        }
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, rest) = unsigned.split_at(end(unsigned));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(end(rest)),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            // Upstream takes a sign or a point alone for zero.
            return Err(problem("it does not begin with a number"));
        }
        let suffix = Suffix::parse(suffix).ok_or_else(|| {
            problem("its suffix is none of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or e with a power of ten")
        })?;
        let whole = whole.trim_start_matches('0');
        let digits = format!("0{whole}{fraction}");
        let value: BigInt = digits.parse().map_err(|_| problem("its number cannot be read"))?;
        let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let length = i32::try_from(whole.len().max(1) + fraction.len()).unwrap_or(i32::MAX);
        let amount = suffix.amount(value, places, length);
        Ok(if negative { Self { value: -amount.value, ..amount } } else { amount })
    }

    /// The value at a smaller power of ten.
    fn at(&self, exponent: i32) -> BigInt {
        &self.value * power_of_ten(self.exponent.saturating_sub(exponent))
    }

    fn compare(&self, other: &Self) -> Ordering {
        let exponent = self.exponent.min(other.exponent);
        self.at(exponent).cmp(&other.at(exponent))
    }

    fn plus(&self, other: &Self) -> Self {
        let small = self.small && other.small;
        if small && other.value == BigInt::ZERO {
            return self.clone();
        }
        if small && self.value == BigInt::ZERO {
            return other.clone();
        }
        let exponent = self.exponent.min(other.exponent);
        let value = self.at(exponent) + other.at(exponent);
        let fits = [&value, &self.at(exponent), &other.at(exponent)].iter().all(|v| v.to_i64().is_some());
        Self { value, exponent, small: small && fits }
    }

    fn minus(&self, other: &Self) -> Self {
        self.plus(&Self { value: -&other.value, ..other.clone() })
    }

    fn integer(&self) -> Option<i64> {
        if self.small && self.exponent >= 0 { self.at(0).to_i64() } else { None }
    }
}

/// What a number is multiplied with.
enum Suffix {
    /// A power of ten.
    Decimal(i32),
    /// A power of two.
    Binary(u32),
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|s| *s == text);
        let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|s| *s == text);
        if let Some(position) = decimal.and_then(|n| i32::try_from(n).ok()) {
            return Some(Self::Decimal(3 * position + NANO));
        }
        if let Some(position) = binary.and_then(|n| u32::try_from(n).ok()) {
            return Some(Self::Binary(10 * position));
        }
        let power: i32 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
        (power.abs() <= MAX_EXPONENT).then_some(Self::Decimal(power))
    }

    /// The amount of a number without its point, by how many digits are behind that and how many there are.
    ///
    /// Upstream has two forms of a number. A small one is as it was written; of a large one, what is below a
    /// billionth is rounded up, and a binary one is at most the largest integer.
    fn amount(self, value: BigInt, places: i32, length: i32) -> Quantity {
        let (exponent, digits, factor) = match self {
            Self::Decimal(exponent) => (exponent, SMALL_DIGITS, BigInt::from(1)),
            // A binary digit is three tenths of a decimal one.
            Self::Binary(power) => {
                let digits = if places == 0 { 14 - i32::try_from(power * 3 / 10).unwrap_or(0) } else { -1 };
                (0, digits, BigInt::from(1) << power)
            }
        };
        let is_binary = matches!(self, Self::Binary(_));
        let exponent = exponent - places;
        let value = value * factor;
        if length <= digits && exponent >= NANO && value.to_i64().is_some() {
            return Quantity { value, exponent, small: true };
        }
        let mut amount = Quantity { value, exponent, small: false };
        if amount.exponent < NANO {
            let divisor = power_of_ten(NANO - amount.exponent);
            amount.value = (amount.value + &divisor - 1) / divisor;
            amount.exponent = NANO;
        }
        let largest = Quantity::of(i64::MAX);
        if is_binary && amount.compare(&largest).is_gt() {
            amount = Quantity { small: false, ..largest };
        }
        amount.value = amount.at(NANO);
        amount.exponent = NANO;
        amount
    }
}

fn power_of_ten(exponent: i32) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).unwrap_or(0))
}

fn quantity(text: &CelString<'_>) -> Result<Quantity, ExecutionError> {
    Quantity::parse(text).map_err(|error| failed("quantity", error))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    CelBool::from(Quantity::parse(text).is_ok())
}

fn sign(this: &Quantity) -> CelInt {
    CelInt::from(this.value.signum().to_i64().unwrap_or(0))
}

fn is_integer(this: &Quantity) -> CelBool {
    CelBool::from(this.integer().is_some())
}

fn as_integer(this: &Quantity) -> Result<CelInt, ExecutionError> {
    let integer = this.integer().ok_or_else(|| failed("asInteger", "cannot convert value to integer"))?;
    Ok(CelInt::from(integer))
}

fn as_approximate_float(this: &Quantity) -> CelDouble {
    let value = this.value.to_f64().unwrap_or(f64::NAN);
    // The nearest double of the power: what is read is exact, what is computed is not.
    let power: f64 = format!("1e{}", this.exponent).parse().unwrap_or(f64::NAN);
    CelDouble::from(if this.exponent == 0 { value } else { value * power })
}

fn add(this: &Quantity, other: &Quantity) -> Quantity {
    this.plus(other)
}

fn add_int(this: &Quantity, other: &CelInt) -> Quantity {
    this.plus(&Quantity::of(*other.inner()))
}

fn sub(this: &Quantity, other: &Quantity) -> Quantity {
    this.minus(other)
}

fn sub_int(this: &Quantity, other: &CelInt) -> Quantity {
    this.minus(&Quantity::of(*other.inner()))
}

fn is_less_than(this: &Quantity, other: &Quantity) -> CelBool {
    CelBool::from(this.compare(other).is_lt())
}

fn is_greater_than(this: &Quantity, other: &Quantity) -> CelBool {
    CelBool::from(this.compare(other).is_gt())
}

fn compare_to(this: &Quantity, other: &Quantity) -> CelInt {
    CelInt::from(this.compare(other) as i64)
}
