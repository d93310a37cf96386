//! Avro container files of data that are at hand as bytes: nothing is decoded, so nothing can be lost.
//!
//! See the Avro specification, "Object Container Files".

use std::io::{self, Write};

use crate::schema::CompiledSchema;

const MAGIC: &[u8; 4] = b"Obj\x01";
/// How many bytes of data a block gathers.
const BLOCK: usize = 64 << 10;

/// Writes data of one schema to a container file.
#[derive(Debug)]
pub struct ContainerWriter<W: Write> {
    out: W,
    sync: [u8; 16],
    block: Vec<u8>,
    count: i64,
}

impl<W: Write> ContainerWriter<W> {
    /// Begins a file of `schema`'s data. `sync` marks the ends of blocks: any bytes that are not likely to stand in the data.
    pub fn begin(mut out: W, schema: &CompiledSchema, sync: [u8; 16]) -> io::Result<Self> {
        let mut head = MAGIC.to_vec();
        put_long(2, &mut head);
        for (name, value) in [("avro.schema", schema.raw()), ("avro.codec", "null")] {
            put_bytes(name.as_bytes(), &mut head);
            put_bytes(value.as_bytes(), &mut head);
        }
        put_long(0, &mut head);
        head.extend_from_slice(&sync);
        out.write_all(&head)?;
        Ok(Self { out, sync, block: Vec::new(), count: 0 })
    }

    /// Appends a datum of the schema, without a frame.
    pub fn append(&mut self, datum: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(datum);
        self.count += 1;
        if self.block.len() >= BLOCK { self.end_block() } else { Ok(()) }
    }

    /// Ends the file. Without it, what was appended last may be missing.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_block()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let mut head = Vec::new();
        put_long(self.count, &mut head);
        put_long(i64::try_from(self.block.len()).unwrap_or(i64::MAX), &mut head);
        self.out.write_all(&head)?;
        self.out.write_all(&self.block)?;
        self.out.write_all(&self.sync)?;
        self.block.clear();
        self.count = 0;
        Ok(())
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_long(i64::try_from(bytes.len()).unwrap_or(i64::MAX), out);
    out.extend_from_slice(bytes);
}

fn put_long(value: i64, out: &mut Vec<u8>) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag >= 0x80 {
        out.push((zigzag & 0x7f) as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

#[cfg(test)]
mod tests {
    use apache_avro::types::Value;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_by_the_avro_crate_across_many_blocks() {
        let raw = r#"{"type":"record","name":"E","fields":[{"name":"n","type":"long"},{"name":"s","type":"string"}]}"#;
        let schema = CompiledSchema::parse(1, raw, &[]).unwrap();
        let mut writer = ContainerWriter::begin(Vec::new(), &schema, *b"0123456789abcdef").unwrap();
        let text = "x".repeat(100);
        for n in 0..2000 {
            let datum = schema.encode_json(&serde_json::json!({ "n": n, "s": text })).unwrap();
            writer.append(&datum).unwrap();
        }
        let file = writer.finish().unwrap();
        let read = apache_avro::Reader::new(&file[..]).unwrap();
        let numbers: Vec<i64> = read
            .map(|value| match value.unwrap() {
                Value::Record(fields) => match &fields[0].1 {
                    Value::Long(n) => *n,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_without_data_is_a_file() {
        let schema = CompiledSchema::parse(1, "\"long\"", &[]).unwrap();
        let file = ContainerWriter::begin(Vec::new(), &schema, [7; 16]).unwrap().finish().unwrap();
        assert_eq!(apache_avro::Reader::new(&file[..]).unwrap().count(), 0);
    }
}
