use apache_avro::Schema;
use apache_avro::rabin::Rabin;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const OPENER: OpenerId = OpenerId([7; 16]);

fn schema() -> Schema {
    Schema::parse_str(include_str!("../../../../../schemas/changelog_entry.avsc")).expect("a schema")
}

fn a_step() -> impl Strategy<Value = Step> {
    let phases = prop::sample::select(vec![Phase::Scheduled, Phase::Tried, Phase::Started, Phase::Dead]);
    let count = 0..=i32::MAX.unsigned_abs();
    (count.clone(), count.clone(), phases, count, any::<(u32, u32, i64)>()).prop_map(
        |(round, hop, phase, n, (job, payload, written_at))| Step {
            round: Round(round),
            hop: Hop(hop),
            phase,
            n,
            job: JobHash(job),
            payload: PayloadHash(payload),
            written_at: UnixMillis(written_at),
        },
    )
}

fn a_mark() -> impl Strategy<Value = MarkEntry> {
    let count = 0..=i32::MAX.unsigned_abs();
    let done = (count.clone(), count).prop_map(|(round, hop)| DoneAt { round: Round(round), hop: Hop(hop) });
    (any::<[u8; 16]>(), option::of(done), option::of(a_step()))
        .prop_map(|(key, done, step)| MarkEntry { key: IdempotencyKey(key), mark: Mark { done, step } })
}

fn usual(n: u32) -> MarkEntry {
    let step = Step {
        round: Round(0),
        hop: Hop(0),
        phase: Phase::Tried,
        n: 1,
        job: JobHash(n),
        payload: PayloadHash(n),
        written_at: UnixMillis(1_764_000_000_000 + i64::from(n % 5)),
    };
    MarkEntry { key: IdempotencyKey([n as u8; 16]), mark: Mark::done(step) }
}

#[test]
fn the_fingerprint_is_that_of_the_schema() {
    let fingerprint = schema().fingerprint::<Rabin>().bytes;
    let fingerprint = u64::from_le_bytes(*fingerprint.first_chunk().expect("eight bytes"));
    assert_eq!(FINGERPRINT, fingerprint, "{fingerprint:#018x}");
}

#[test]
fn a_usual_mark_takes_about_thirty_bytes() {
    let entries: Vec<MarkEntry> = (0..256).map(usual).collect();
    let mut bytes = Vec::new();
    write_marks(OPENER, &entries, &mut bytes);
    let each = bytes.len() as f64 / 256.0;
    assert!(each < 36.0, "{each}");
}

#[test]
fn what_any_avro_library_reads_is_what_was_written() {
    let entries = [usual(1), MarkEntry { key: IdempotencyKey([9; 16]), mark: Mark::default() }];
    let mut bytes = Vec::new();
    write_marks(OPENER, &entries, &mut bytes);
    let schema = schema();
    let read_all = |bytes: &[u8]| {
        let mut body = &bytes[10..];
        let reader = GenericDatumReader::builder(&schema).build().expect("a reader");
        let value = reader.read_value(&mut body).expect("a datum of the schema");
        assert!(body.is_empty());
        value
    };
    let value = read_all(&bytes);
    let Value::Record(fields) = &value else { panic!("{value:?}") };
    assert_eq!(fields[0], ("opener".to_owned(), Value::Fixed(16, vec![7; 16])));
    let writer = GenericDatumWriter::builder(&schema).build().expect("a writer");
    assert_eq!(writer.write_value_to_vec(value).expect("it is of the schema"), bytes[10..]);
    let (mut opened, mut closed) = (Vec::new(), Vec::new());
    write_opened(OPENER, 10_000, &mut opened);
    write_closed(OPENER, &mut closed);
    read_all(&opened);
    read_all(&closed);
}

#[test]
fn foreign_bytes_and_later_schemas_are_told_apart() {
    assert_eq!(read(b""), Err(FormatError::Foreign));
    assert_eq!(read(b"\0\0\0\0\x01abcdefgh"), Err(FormatError::Foreign));
    let mut bytes = Vec::new();
    write_closed(OPENER, &mut bytes);
    assert_eq!(read(&bytes), Ok((OPENER, Entry::Closed)));
    bytes[2] ^= 1;
    assert_eq!(read(&bytes), Err(FormatError::Schema(FINGERPRINT ^ 1)));
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(entries in vec(a_mark(), 0..20), window in 0..=i32::MAX.unsigned_abs()) {
        let mut bytes = Vec::new();
        write_marks(OPENER, &entries, &mut bytes);
        prop_assert_eq!(read(&bytes), Ok((OPENER, Entry::Marks(entries))));
        bytes.clear();
        write_opened(OPENER, window, &mut bytes);
        prop_assert_eq!(read(&bytes), Ok((OPENER, Entry::Opened { window })));
    }

    #[test]
    fn a_cut_or_lengthened_record_is_refused(entries in vec(a_mark(), 1..5), cut in 1..40_usize) {
        let mut bytes = Vec::new();
        write_marks(OPENER, &entries, &mut bytes);
        let cut = cut.min(bytes.len() - 10);
        prop_assert!(read(&bytes[..bytes.len() - cut]).is_err());
        bytes.push(0);
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn garbage_is_refused_without_a_panic_or_a_large_allocation(garbage in vec(any::<u8>(), 0..200)) {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FINGERPRINT.to_le_bytes());
        bytes.extend_from_slice(&garbage);
        if let Ok((_, Entry::Marks(entries))) = read(&bytes) {
            prop_assert!(entries.len() <= garbage.len());
        }
    }
}
