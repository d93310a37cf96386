use super::*;

fn cursor(bytes: &[u8]) -> Cursor<'_> {
    Cursor::new(bytes, &Limits::default()).expect("within the limit")
}

#[test]
fn longs_are_read_at_both_ends_of_their_range() {
    let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let most = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(cursor(&least).long(), Ok(i64::MIN));
    assert_eq!(cursor(&most).long(), Ok(i64::MAX));
    assert_eq!(cursor(&[0x01]).long(), Ok(-1));
    assert_eq!(cursor(&[0x80, 0x01]).long(), Ok(64));
}

#[test]
fn a_long_beyond_64_bits_is_refused() {
    let mut bytes = [0xff; 10];
    bytes[9] = 0x02;
    assert_eq!(cursor(&bytes).long(), Err(DecodeError::VarintOverflow { offset: 0 }));
    assert_eq!(cursor(&[0x80; 11]).long(), Err(DecodeError::VarintOverflow { offset: 0 }));
}

#[test]
fn an_int_keeps_to_32_bits() {
    assert_eq!(cursor(&[0xff, 0xff, 0xff, 0xff, 0x0f]).int(), Ok(i32::MIN));
    assert_eq!(cursor(&[0x80, 0x80, 0x80, 0x80, 0x10]).int(), Err(DecodeError::VarintOverflow { offset: 0 }));
}

#[test]
fn a_cut_number_is_refused() {
    assert_eq!(cursor(&[]).long(), Err(DecodeError::Truncated { offset: 0 }));
    assert_eq!(cursor(&[0x80]).long(), Err(DecodeError::Truncated { offset: 0 }));
    assert_eq!(cursor(&[1, 2, 3]).float(), Err(DecodeError::Truncated { offset: 0 }));
    assert_eq!(cursor(&[1, 2, 3, 4, 5, 6, 7]).double(), Err(DecodeError::Truncated { offset: 0 }));
}

#[test]
fn a_boolean_is_zero_or_one() {
    assert_eq!(cursor(&[0]).boolean(), Ok(false));
    assert_eq!(cursor(&[1]).boolean(), Ok(true));
    assert_eq!(cursor(&[2]).boolean(), Err(DecodeError::BadBoolean { offset: 0, found: 2 }));
}

#[test]
fn a_truncated_string_is_refused() {
    assert_eq!(cursor(&[0x06, b'a', b'b']).string(), Err(DecodeError::Truncated { offset: 1 }));
}

#[test]
fn a_negative_length_is_refused() {
    assert_eq!(cursor(&[0x01]).string(), Err(DecodeError::NegativeLength { offset: 0 }));
}

#[test]
fn a_length_near_the_largest_number_is_refused() {
    let most = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(cursor(&most).bytes(), Err(DecodeError::Truncated { offset: 10 }));
}

#[test]
fn a_string_that_is_not_utf_8_is_refused() {
    assert_eq!(cursor(&[0x02, 0xff]).string(), Err(DecodeError::InvalidUtf8 { offset: 1 }));
}

fn count_nulls(bytes: &[u8]) -> Result<usize, DecodeError> {
    let (mut cursor, mut blocks, mut count) = (cursor(bytes), Blocks::default(), 0);
    while cursor.next_item(&mut blocks)? {
        count += 1;
    }
    cursor.finish().map(|()| count)
}

#[test]
fn blocks_add_up() {
    assert_eq!(count_nulls(&[0]), Ok(0));
    assert_eq!(count_nulls(&[6, 4, 0]), Ok(5));
}

#[test]
fn a_negative_count_is_followed_by_the_blocks_size() {
    assert_eq!(count_nulls(&[5, 0, 0]), Ok(3));
    assert_eq!(count_nulls(&[5, 2, 0]), Err(DecodeError::BlockSize { offset: 0 }));
    assert_eq!(count_nulls(&[5, 1, 0]), Err(DecodeError::BlockSize { offset: 0 }));
    assert_eq!(count_nulls(&[5, 100, 0]), Err(DecodeError::BlockSize { offset: 0 }));
}

#[test]
fn a_huge_count_is_refused_before_its_items_are_read() {
    let two_to_the_60 = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0];
    assert_eq!(count_nulls(&two_to_the_60), Err(DecodeError::TooManyItems { limit: 1 << 20 }));
    let least = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0, 0];
    assert_eq!(count_nulls(&least), Err(DecodeError::TooManyItems { limit: 1 << 20 }));
}

#[test]
fn blocks_without_an_end_are_refused() {
    assert_eq!(count_nulls(&[4]), Err(DecodeError::Truncated { offset: 1 }));
}
