//! Numbers, times and bytes as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

/// `4812` as `4,812`.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 item`, `4,812 items`.
pub(super) fn count(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(value), if value == 1 { one } else { many })
}

/// A rate or a share with few digits: `0.4`, `12`, `1,204`.
pub(super) fn rough(value: f64) -> String {
    if !value.is_finite() || value <= 0.0 {
        return "0".to_owned();
    }
    if value < 10.0 {
        return format!("{value:.1}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is finite and above 0")]
    number(value.round() as u64)
}

/// A share of 1 as percent: `0.4 %`, `12 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", rough(share * 100.0))
}

/// How long ago: `just now`, `4 min ago`, `3 h ago`, `12 d ago`.
pub(super) fn ago(time: i64, now: i64) -> String {
    let seconds = (now - time).max(0) / 1000;
    match seconds {
        0..=9 => "just now".to_owned(),
        10..=89 => format!("{seconds} s ago"),
        90..=5399 => format!("{} min ago", seconds / 60),
        5400..=129_599 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

fn parts(time: i64) -> Option<jiff::Zoned> {
    Some(Timestamp::from_millisecond(time).ok()?.to_zoned(TimeZone::UTC))
}

/// The clock of today, the day of anything else: `02:14`, `27 Nov 02:14`, `2024-11-27 02:14`. In UTC.
pub(super) fn clock(time: i64, now: i64) -> String {
    let (Some(then), Some(today)) = (parts(time), parts(now)) else { return "–".to_owned() };
    let form = if then.date() == today.date() {
        "%H:%M"
    } else if then.year() == today.year() {
        "%-d %b %H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    then.strftime(form).to_string()
}

/// A time to the second, in UTC: `2026-11-29 02:14:05 UTC`.
pub(super) fn exact(time: i64) -> String {
    parts(time).map_or_else(|| "–".to_owned(), |then| then.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// A time as programs read it.
pub(super) fn machine(time: i64) -> String {
    Timestamp::from_millisecond(time).map_or_else(|_| String::new(), |time| time.to_string())
}

/// A clock, whose title is exact and which the script keeps fresh.
pub(super) fn when(time: i64, now: i64) -> Markup {
    html! { time datetime=(machine(time)) title=(exact(time)) { (clock(time, now)) } }
}

/// How long ago, whose title is exact and which the script keeps fresh.
pub(super) fn since(time: i64, now: i64) -> Markup {
    html! { time datetime=(machine(time)) title=(exact(time)) data-ago { (ago(time, now)) } }
}

/// `1 KiB`, `12 MiB`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// So many bytes of a record are shown; a page is no place for megabytes.
const MOST_HEX: usize = 4096;

/// Bytes as a hex dump: offset, sixteen bytes, and what is readable of them.
pub(super) fn hex_dump(bytes: &[u8]) -> String {
    let mut dump = String::new();
    for (line, chunk) in bytes[..bytes.len().min(MOST_HEX)].chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let readable: String = chunk
            .iter()
            .map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '·' })
            .collect();
        let (left, right) = hex.split_at(hex.len().min(8));
        dump.push_str(&format!(
            "{:06x}  {:<23}  {:<23}  {readable}\n",
            line * 16,
            left.join(" "),
            right.join(" ")
        ));
    }
    if bytes.len() > MOST_HEX {
        dump.push_str(&format!("… and {} more bytes\n", number((bytes.len() - MOST_HEX) as u64)));
    }
    dump
}

/// Bytes as text, if they are text that can be shown.
pub(super) fn readable(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')))
}

/// A selection as the journal keeps it, without the marks of its lists: `states ["open","failed-again"]` as `states open or
/// failed-again`.
pub(super) fn selection(text: &str) -> String {
    text.replace("\",\"", " or ").replace("[\"", "").replace("\"]", "").replace("fingerprints ", "group ")
}

/// The beginning of a text, cut between characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", text[..cut].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!([0, 999, 4812, 1_000_000].map(number), ["0", "999", "4,812", "1,000,000"]);
        assert_eq!([0.0, 0.04, 9.96, 1204.4].map(rough), ["0", "0.0", "10.0", "1,204"]);
        let now = 1_764_382_445_000;
        assert_eq!(exact(now), "2025-11-29 02:14:05 UTC");
        assert_eq!(
            [now, now - 40_000, now - 300_000, now - 7_200_000, now - 864_000_000].map(|t| ago(t, now)),
            ["just now", "40 s ago", "5 min ago", "2 h ago", "10 d ago"]
        );
        assert_eq!(clock(now - 60_000, now), "02:13");
        assert_eq!(clock(now - 86_400_000, now), "28 Nov 02:14");
        assert_eq!(clock(i64::MAX, now), "–");
    }

    #[test]
    fn a_selection_reads_as_words() {
        let kept = r#"fingerprints ["5f0c"], states ["open","failed-again"], text "refused""#;
        assert_eq!(selection(kept), r#"group 5f0c, states open or failed-again, text "refused""#);
    }

    #[test]
    fn a_dump_shows_offset_bytes_and_what_is_readable() {
        let dump = hex_dump(b"\0<script>alert(1)</script>");
        assert!(
            dump.starts_with(
                "000000  00 3c 73 63 72 69 70 74  3e 61 6c 65 72 74 28 31  ·<script>alert(1\n000010  "
            ),
            "{dump}"
        );
        assert!(hex_dump(&[0; 5000]).ends_with("… and 904 more bytes\n"));
        assert_eq!(readable(b"a\0"), None);
        assert_eq!(shortened("äöü", 2), "äö…");
    }
}
