//! Numbers on the command line: what is none, or out of range, is refused with the range.

use std::ops::RangeInclusive;

/// A whole number of this range.
pub(crate) fn within<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("write a whole number from {} to {}", range.start(), range.end()))
}

/// A whole number above 0.
pub(crate) fn some<T>(text: &str) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + From<u8>,
{
    let number = text.parse().ok().filter(|number| *number > T::from(0));
    number.ok_or_else(|| "write a whole number, 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_the_range_is_refused_with_the_range() {
        for text in ["abc", "", "0", "501", "-1", "1.5", "99999999999999999999"] {
            let refused = within::<u32>(text, 1..=500).unwrap_err();
            assert_eq!(refused, "write a whole number from 1 to 500", "{text}");
        }
        assert_eq!((within::<u32>("1", 1..=500), within::<u32>("500", 1..=500)), (Ok(1), Ok(500)));
        assert_eq!(some::<u64>("0"), Err("write a whole number, 1 or more".to_owned()));
        assert_eq!(some("7"), Ok(7_u32));
    }
}
