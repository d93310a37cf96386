//! Original records written to files: as JSON lines, or the events as Avro container files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_codec::{ContainerWriter, wire};
use tidegate_pipeline::Record;
use tidegate_pipeline::dead_letter::STUB;
use tokio::runtime::Handle;

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::replay::{Original, Selected, Snapshot};

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// How many records.
    pub records: u64,
    /// How many items have no record any more.
    pub gone: u64,
    /// The files, each with how many records it holds.
    pub files: BTreeMap<PathBuf, u64>,
}

/// How many records are read at a time.
const SLICE: usize = 10_000;

impl Inbox {
    /// Writes the latest record of each item of a snapshot to `out`, one JSON object a line, with its bytes in base64.
    pub fn export_lines(&self, snapshot: &Snapshot, out: &mut dyn Write) -> Result<Exported, OperatorError> {
        let mut exported = Exported::default();
        self.each_original(snapshot, &mut exported, &mut |item, original| {
            serde_json::to_writer(&mut *out, &line(item, original)).map_err(std::io::Error::from)?;
            out.write_all(b"\n")
        })?;
        out.flush().map_err(unwritable)?;
        Ok(exported)
    }

    /// Writes the latest event of each item of a snapshot to container files in `dir`, one for each schema, byte for byte. What names
    /// no schema that the registry knows goes to `others.jsonl`, as lines. Schemas are fetched on `runtime`, which this thread must not
    /// be a worker of.
    pub fn export_containers(
        &self,
        snapshot: &Snapshot,
        dir: &Path,
        runtime: &Handle,
    ) -> Result<Exported, OperatorError> {
        std::fs::create_dir_all(dir).map_err(unwritable)?;
        let registry = self.registry()?;
        let mut exported = Exported::default();
        let mut files: FxHashMap<u32, Option<ContainerWriter<BufWriter<File>>>> = FxHashMap::default();
        let mut others: Option<BufWriter<File>> = None;
        let mut counts: BTreeMap<PathBuf, u64> = BTreeMap::new();
        self.each_original(snapshot, &mut exported, &mut |item, original| {
            if let Ok(framed) = wire::parse(original.record.value().unwrap_or_default()) {
                let id = framed.schema_id;
                let path = dir.join(format!("schema-{id}.avro"));
                if let std::collections::hash_map::Entry::Vacant(vacant) = files.entry(id) {
                    vacant.insert(match runtime.block_on(registry.fetch(id)) {
                        Ok(schema) => Some(ContainerWriter::begin(
                            BufWriter::new(create(&path)?),
                            &schema,
                            rand::random(),
                        )?),
                        Err(_) => None,
                    });
                }
                if let Some(Some(file)) = files.get_mut(&id) {
                    *counts.entry(path).or_default() += 1;
                    return file.append(framed.body);
                }
            }
            let path = dir.join("others.jsonl");
            let out = match &mut others {
                Some(out) => out,
                None => others.insert(BufWriter::new(create(&path)?)),
            };
            *counts.entry(path).or_default() += 1;
            serde_json::to_writer(&mut *out, &line(item, original)).map_err(std::io::Error::from)?;
            out.write_all(b"\n")
        })?;
        for file in files.into_values().flatten() {
            file.finish().map_err(unwritable)?;
        }
        if let Some(mut others) = others {
            others.flush().map_err(unwritable)?;
        }
        exported.files = counts;
        Ok(exported)
    }

    fn each_original(
        &self,
        snapshot: &Snapshot,
        exported: &mut Exported,
        each: &mut dyn FnMut(&Selected, &Original) -> std::io::Result<()>,
    ) -> Result<(), OperatorError> {
        for slice in snapshot.items.chunks(SLICE) {
            let places: Vec<(i32, i64)> = slice.iter().map(|item| item.letter).collect();
            let mut stubs: FxHashMap<(i32, i64), Original> = FxHashMap::default();
            let mut left: FxHashMap<(i32, i64), &Selected> =
                slice.iter().map(|item| (item.letter, item)).collect();
            self.originals(&places, &mut |original| {
                let place = (original.partition.0, original.record.offset().0);
                // A record that was too large to be dead-lettered is a stub; an older letter may still have the event.
                if original.record.value().is_none() && original.record.header(STUB).is_some() {
                    stubs.insert(place, original);
                } else if let Some(item) = left.remove(&place) {
                    exported.records += 1;
                    each(item, &original).map_err(unwritable)?;
                }
                Ok(())
            })?;
            for (place, item) in left {
                match self.original_of(item.item)?.or_else(|| stubs.remove(&place)) {
                    Some(original) => {
                        exported.records += 1;
                        each(item, &original).map_err(unwritable)?;
                    }
                    None => exported.gone += 1,
                }
            }
        }
        Ok(())
    }
}

/// What an earlier export saved may be all that is left of it, so nothing is replaced.
fn create(path: &Path) -> std::io::Result<File> {
    File::create_new(path).map_err(|error| {
        let advice = if error.kind() == std::io::ErrorKind::AlreadyExists {
            "; an export replaces nothing: name another folder"
        } else {
            ""
        };
        std::io::Error::new(error.kind(), format!("{}: {error}{advice}", path.display()))
    })
}

fn unwritable(error: std::io::Error) -> OperatorError {
    OperatorError::Failed(format!("the export can't be written: {error}"))
}

fn line(item: &Selected, original: &Original) -> Value {
    let record: &Record = &original.record;
    let base64 = |bytes: Option<&[u8]>| bytes.map(|bytes| STANDARD.encode(bytes));
    let headers: Vec<Value> = record
        .headers()
        .map(|(name, value)| json!({ "name": String::from_utf8_lossy(name), "value": base64(value) }))
        .collect();
    json!({
        "item": item.item,
        "id": item.id().to_string(),
        "record": format!("{}/{}", original.partition, record.offset()),
        "at": record.timestamp().map(|at| at.0),
        "key": base64(record.key()),
        "value": base64(record.value()),
        "headers": headers,
    })
}
