//! The header's text as [`JobHeader::write`](super::JobHeader::write) writes it, read in one pass: every record of a job topic is read
//! this way. What stands in another order, or has other fields, is left to the general reader.

use super::{Attempt, Hop, JobHeader, Round};
use crate::key::{IdempotencyKey, Lane};
use crate::position::{Offset, Partition, UnixMillis};

/// Reads the fields in the order that they are written in; `None`: the general reader decides.
pub(super) fn parse(text: &str) -> Option<JobHeader<'_>> {
    let mut rest = Rest(text);
    rest.expect("v=1 class=")?;
    let class = rest.word()?;
    rest.expect(" tier=")?;
    let tier = rest.word()?;
    rest.expect(" topic=")?;
    let topic = rest.word()?;
    let mut header = JobHeader {
        class,
        tier,
        topic,
        partition: Partition(i32::try_from(rest.number(" partition=")?).ok()?),
        offset: Offset(rest.number(" offset=")?),
        key: IdempotencyKey(rest.hex::<16>(" key=")?),
        lane: Lane(u64::from_be_bytes(rest.hex::<8>(" lane=")?)),
        round: Round(u32::try_from(rest.number(" round=")?).ok()?),
        hop: Hop(u32::try_from(rest.number(" hop=")?).ok()?),
        attempt: Attempt(u32::try_from(rest.number(" attempt=")?).ok().filter(|&n| n > 0)?),
        due: UnixMillis(rest.number(" due=")?),
        first_seen: UnixMillis(rest.number(" first-seen=")?),
        origin: None,
        forced: false,
    };
    if rest.0.starts_with(" origin=") {
        header.origin = Some(UnixMillis(rest.number(" origin=")?));
    }
    if rest.0 == " forced=true" {
        header.forced = true;
        rest.0 = "";
    }
    rest.0.is_empty().then_some(header)
}

struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn expect(&mut self, prefix: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(prefix)?;
        Some(())
    }

    /// A name: everything up to the next space.
    fn word(&mut self) -> Option<&'a str> {
        let end = self.0.bytes().position(|b| matches!(b, b' ' | b'"' | b'=')).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        // A quote or a second `=` does not begin the next field, and so is refused there.
        (!word.is_empty()).then_some(word)
    }

    /// A number of at most 18 digits, which can't overflow. Negative and longer ones are left to the general reader.
    fn number(&mut self, prefix: &str) -> Option<i64> {
        self.expect(prefix)?;
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || digits > 18 {
            return None;
        }
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        Some(number.bytes().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    }

    /// `N` bytes as `2 * N` lower-case hex digits.
    fn hex<const N: usize>(&mut self, prefix: &str) -> Option<[u8; N]> {
        self.expect(prefix)?;
        let (digits, rest) = self.0.split_at_checked(2 * N)?;
        let mut bytes = [0; N];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        self.0 = rest;
        Some(bytes)
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
