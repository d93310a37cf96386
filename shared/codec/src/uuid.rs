//! UUIDs, which Avro writes as text or as 16 bytes.

/// Reads the form with hyphens, in either case.
pub(crate) fn parse(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let mut uuid = [0; 16];
    let mut digits = text.iter().enumerate().filter(|(index, _)| !is_hyphen(*index)).map(|(_, digit)| *digit);
    if !text.iter().enumerate().all(|(index, byte)| is_hyphen(index) == (*byte == b'-')) {
        return None;
    }
    for byte in &mut uuid {
        *byte = hex(digits.next()?)? << 4 | hex(digits.next()?)?;
    }
    Some(uuid)
}

/// Writes the form with hyphens, in lower case.
pub(crate) fn format(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for byte in uuid {
        if is_hyphen(text.len()) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

fn is_hyphen(index: usize) -> bool {
    matches!(index, 8 | 13 | 18 | 23)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0189f7e8-3b1c-7abc-9def-00112233aaff";

    #[test]
    fn text_and_bytes_are_one_uuid() {
        let uuid = parse(TEXT).expect("a uuid");
        assert_eq!(parse(&TEXT.to_uppercase()), Some(uuid));
        assert_eq!(format(uuid), TEXT);
    }

    #[test]
    fn text_of_another_shape_is_no_uuid() {
        for text in ["", "0189f7e83b1c7abc9def00112233aaff", "0189f7e8-3b1c-7abc-9def-00112233aafg"] {
            assert_eq!(parse(text), None);
        }
        assert_eq!(parse(&TEXT.replace('-', "0")), None);
        assert_eq!(parse("-189f7e8-3b1c-7abc-9def-00112233aaff"), None);
    }
}
