//! The slow part of the index: words for full-text search, and keys. It is filled when everything else is up to date.

use rusqlite::params;
use tidegate_domain::Partition;

use super::writer::{ItemRow, Writer, first_id};
use crate::letter::Letter;
use crate::query::key_prefix;

/// How many bytes of a payload's texts are searchable.
const PAYLOAD_BUDGET: usize = 1024;
/// How long a run of text within binary data must be.
const SHORTEST_RUN: usize = 3;

impl Writer {
    /// Makes a letter's words and key findable. Each letter must come once, after [`Writer::letter`].
    pub(crate) fn words(&mut self, letter: &Letter<'_>, words: &mut String) -> rusqlite::Result<()> {
        self.begin()?;
        let item = letter.item();
        // Without a row the letter is gone from the topic already.
        let Some(row) = self.item(item)? else { return Ok(()) };
        if let Some(key) = letter.key() {
            self.lookups.key(key_prefix(&key.0), row.id);
        }
        collect(letter, words);
        let find = if self.is_first(&row)? { row.id } else { self.alias(letter, row.id)? };
        let sql = "INSERT INTO search (rowid, words) VALUES (?1, ?2)";
        self.connection.prepare_cached(sql)?.execute(params![find, words.as_str()])?;
        Ok(())
    }

    /// Whether no words are under the item's own id, and no other letter's may be.
    fn is_first(&self, row: &ItemRow) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM search_aliases WHERE id = ?1";
        Ok(row.letters == 1 && !self.connection.prepare_cached(sql)?.exists([-row.id])?)
    }

    /// The item lost letters, so that its count of them does not tell any more whether there are words under its own id.
    pub(super) fn spend_own_id(&self, item: i64) -> rusqlite::Result<()> {
        let sql = "INSERT OR IGNORE INTO search_aliases (id, item) VALUES (?1, ?2)";
        self.connection.prepare_cached(sql)?.execute(params![-item, item]).map(drop)
    }

    fn alias(&self, letter: &Letter<'_>, item: i64) -> rusqlite::Result<i64> {
        let sql = "INSERT OR IGNORE INTO search_aliases (id, item) VALUES (?1, ?2)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut id = first_id(letter) | 1;
        while statement.execute(params![id, item])? == 0 {
            id += 2;
        }
        Ok(id)
    }

    /// The partitions of the dead-letter topic, each with up to where its letters and its words are in the index.
    pub(crate) fn wordless(&self) -> rusqlite::Result<Vec<(Partition, i64, i64)>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT dlq.partition, coalesce(search.next, 0), dlq.next FROM positions AS dlq
             LEFT JOIN positions AS search ON search.log = 'search' AND search.partition = dlq.partition
             WHERE dlq.log = 'dlq' AND coalesce(search.next, 0) < dlq.next",
        )?;
        let found = statement.query_map([], |row| Ok((Partition(row.get(0)?), row.get(1)?, row.get(2)?)))?;
        found.collect()
    }
}

/// The words of a letter: what its failures say, its code and class, its key, and the texts that stand in its payload. A payload is
/// not decoded for it: Avro has its texts as they are, so runs of text are found without its schema.
fn collect(letter: &Letter<'_>, words: &mut String) {
    words.clear();
    for part in
        [Some(letter.message), letter.first_error, Some(letter.code), letter.class()].into_iter().flatten()
    {
        words.push_str(part);
        words.push(' ');
    }
    if let Some(key) = letter.record.key().and_then(|key| std::str::from_utf8(key).ok()) {
        words.push_str(key);
        words.push(' ');
    }
    if let Some(value) = letter.record.value() {
        texts(value, PAYLOAD_BUDGET, words);
    }
}

/// Appends the runs of text in `bytes`, at most `budget` bytes.
fn texts(bytes: &[u8], budget: usize, words: &mut String) {
    let full = words.len() + budget;
    for chunk in bytes.utf8_chunks() {
        for run in chunk.valid().split(char::is_control) {
            if run.len() < SHORTEST_RUN {
                continue;
            }
            if words.len() + run.len() >= full {
                words.push_str(&tidegate_pipeline::dead_letter::cut(run, full.saturating_sub(words.len())));
                return;
            }
            words.push_str(run);
            words.push(' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: &[u8], budget: usize) -> String {
        let mut words = String::new();
        texts(bytes, budget, &mut words);
        words
    }

    #[test]
    fn texts_are_found_in_binary_data_and_short_runs_are_not() {
        assert_eq!(
            found(b"\x00\x00\x00\x00\x07\x10order-42\x02\x06EUR\xff\xfeab\x01\xc3\xa4pfel", 100),
            "order-42 EUR \u{e4}pfel "
        );
        assert_eq!(found(b"\x00\x01\x02", 100), "");
    }

    #[test]
    fn no_more_is_taken_than_the_budget_and_no_character_is_cut() {
        let text = "\u{e4}".repeat(1000);
        let words = found(text.as_bytes(), 100);
        assert!(words.len() <= 100 && words.len() > 90, "{}", words.len());
    }
}
