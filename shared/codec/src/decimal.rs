//! Decimal numbers as text, and back. The arithmetic is on bytes, so no precision is lost.

use crate::cursor::Cursor;
use crate::error::Limits;

/// Beyond this many bytes (some 600 digits) the conversion, which takes quadratic time, is not done.
const MAX_BYTES: usize = 256;
const MAX_SCALE: i64 = 1000;

/// Two's complement, big-endian → "-12.34".
pub(crate) fn format(unscaled: &[u8], scale: u32) -> Option<String> {
    if unscaled.len() > MAX_BYTES || i64::from(scale) > MAX_SCALE {
        return None;
    }
    let negative = unscaled.first().is_some_and(|byte| *byte >= 0x80);
    let mut magnitude = unscaled.to_vec();
    if negative {
        negate(&mut magnitude);
    }
    let mut digits = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        digits.push(char::from(b'0' + divide_by_ten(&mut magnitude)));
    }
    let scale = scale as usize;
    while digits.len() <= scale {
        digits.push('0');
    }
    if scale > 0 {
        digits.insert(scale, '.');
    }
    if negative {
        digits.push('-');
    }
    Some(digits.into_iter().rev().collect())
}

/// "-12.34" → two's complement, big-endian, as short as it goes. `None`: not a decimal, more digits than
/// `precision`, or more digits after the point than `scale`.
pub(crate) fn parse(text: &str, precision: u32, scale: u32) -> Option<Vec<u8>> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let sound = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || !sound(whole) || !sound(fraction) {
        return None;
    }
    let (kept, cut) = fraction.split_at_checked(scale as usize).unwrap_or((fraction, ""));
    let zeros = (scale as usize).checked_sub(kept.len())?;
    let whole = whole.trim_start_matches('0');
    let significant = [whole, kept].concat();
    let significant = significant.trim_start_matches('0').len();
    if cut.bytes().any(|digit| digit != b'0') || significant + zeros > precision as usize && significant > 0 {
        return None;
    }
    let mut magnitude = vec![0];
    for digit in whole.bytes().chain(kept.bytes()).chain(std::iter::repeat_n(b'0', zeros)) {
        multiply_by_ten_and_add(&mut magnitude, digit - b'0');
    }
    // A leading zero byte makes room for the sign.
    magnitude.insert(0, 0);
    if negative {
        negate(&mut magnitude);
    }
    Some(shorten(magnitude))
}

/// Widens two's complement to a fixed size.
pub(crate) fn widen(unscaled: &[u8], size: usize) -> Option<Vec<u8>> {
    let padding = size.checked_sub(unscaled.len())?;
    let sign = if unscaled.first().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let mut wide = vec![sign; padding];
    wide.extend_from_slice(unscaled);
    Some(wide)
}

/// A big-decimal holds its own scale behind the unscaled number: both as Avro bytes and long.
pub(crate) fn split_big(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let mut cursor = Cursor::new(bytes, &Limits::default()).ok()?;
    let unscaled = cursor.bytes().ok()?;
    let scale = cursor.long().ok().filter(|scale| (0..=MAX_SCALE).contains(scale))?;
    cursor.finish().ok()?;
    Some((unscaled, u32::try_from(scale).ok()?))
}

fn negate(number: &mut [u8]) {
    let mut carry = true;
    for byte in number.iter_mut().rev() {
        let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
        (*byte, carry) = (sum, overflow);
    }
}

/// Divides in place; returns the remainder.
fn divide_by_ten(number: &mut [u8]) -> u8 {
    let mut rest = 0_u16;
    for byte in number {
        let value = rest << 8 | u16::from(*byte);
        *byte = (value / 10) as u8;
        rest = value % 10;
    }
    rest as u8
}

fn multiply_by_ten_and_add(number: &mut Vec<u8>, digit: u8) {
    let mut carry = u16::from(digit);
    for byte in number.iter_mut().rev() {
        let value = u16::from(*byte) * 10 + carry;
        *byte = value as u8;
        carry = value >> 8;
    }
    if carry > 0 {
        number.insert(0, carry as u8);
    }
}

/// Drops leading bytes that only repeat the sign.
fn shorten(number: Vec<u8>) -> Vec<u8> {
    let redundant = number
        .windows(2)
        .take_while(|pair| matches!((pair[0], pair[1] >= 0x80), (0, false) | (0xff, true)))
        .count();
    number[redundant..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_with_all_their_digits() {
        for (unscaled, scale, text) in [
            (vec![], 0, "0"),
            (vec![0], 2, "0.00"),
            (vec![0x04, 0xd2], 2, "12.34"),
            (vec![0xfb, 0x2e], 2, "-12.34"),
            (vec![0xff], 3, "-0.001"),
            (vec![0x80], 0, "-128"),
            (vec![0, 0x80], 0, "128"),
        ] {
            assert_eq!(format(&unscaled, scale).as_deref(), Some(text));
        }
    }

    #[test]
    fn decimals_are_read_back() {
        for text in ["0.00", "12.34", "-12.34", "-0.01", "-1.28", "1.28", "99999999999999999999.99"] {
            let unscaled = parse(text, 30, 2).expect("a decimal");
            assert_eq!(format(&unscaled, 2).as_deref(), Some(text));
        }
        assert_eq!(parse("7", 5, 2), parse("7.000", 5, 2));
        assert_eq!(parse("-1.28", 5, 2), Some(vec![0x80]));
    }

    #[test]
    fn digits_are_not_dropped() {
        assert_eq!(parse("1.234", 9, 2), None);
        assert_eq!(parse("1234", 5, 2), None);
        assert!(parse("123", 5, 2).is_some());
        for text in ["", "-", ".5", "1e3", "1.2.3", "NaN", "１"] {
            assert_eq!(parse(text, 9, 2), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_widened_with_its_sign() {
        assert_eq!(widen(&[0x80], 3), Some(vec![0xff, 0xff, 0x80]));
        assert_eq!(widen(&[0x7f], 2), Some(vec![0, 0x7f]));
        assert_eq!(widen(&[1, 2], 1), None);
    }

    #[test]
    fn a_number_of_absurd_size_is_not_converted() {
        assert_eq!(format(&[1; MAX_BYTES + 1], 0), None);
        assert_eq!(format(&[1], u32::MAX), None);
    }

    #[test]
    fn a_big_decimal_brings_its_scale() {
        assert_eq!(split_big(&[4, 0x04, 0xd2, 4]), Some((&[0x04, 0xd2][..], 2)));
        assert_eq!(split_big(&[4, 0x04, 0xd2, 3]), None);
        assert_eq!(split_big(&[4, 0x04, 0xd2, 4, 0]), None);
        assert_eq!(split_big(&[4]), None);
    }
}
