//! Lists by words, and by a key.

use rusqlite::{OptionalExtension, params};

use super::filter::Term;
use super::list::{Cursor, Order, bounds};
use super::pick::Picked;
use super::{View, of_heap};
use crate::error::OperatorError;

/// So many finds are looked at for one page: a word that many items have, of which the filter leaves few, must not hold up a page.
const MOST_FINDS: usize = 10_000;

/// So many words that begin alike are looked for one by one: each is read in the order of ids, so few of its finds are read. More of
/// them have to be merged before the first one is known.
const MOST_WORDS: usize = 48;
/// How long the beginning of more words than that must be.
const SHORTEST_BEGINNING: usize = 3;

impl View<'_> {
    /// Words in the syntax of the full-text table: each quoted, so that nothing of what a person writes is syntax.
    pub(super) fn expression(&self, terms: &[Term]) -> Result<String, OperatorError> {
        let mut parts = Vec::with_capacity(terms.len());
        for Term { word, is_beginning } in terms {
            if !is_beginning {
                parts.push(format!("\"{word}\""));
                continue;
            }
            match self.words_with(word)? {
                Some(words) if !words.is_empty() => {
                    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
                    parts.push(format!("({})", words.join(" OR ")));
                }
                None if word.chars().count() < SHORTEST_BEGINNING => {
                    return Err(OperatorError::Request(format!(
                        "too many words begin with `{word}`: write at least {SHORTEST_BEGINNING} letters before the star"
                    )));
                }
                _ => parts.push(format!("\"{word}\"*")),
            }
        }
        Ok(parts.join(" AND "))
    }

    /// The words that begin with this; none where they are too many.
    fn words_with(&self, beginning: &str) -> Result<Option<Vec<String>>, OperatorError> {
        // How others are folded is the table's own affair.
        if !beginning.is_ascii() {
            return Ok(Some(Vec::new()));
        }
        let beginning = beginning.to_ascii_lowercase();
        let mut statement =
            self.connection.prepare_cached("SELECT term FROM search_words WHERE term >= ?1 LIMIT 1")?;
        let (mut words, mut from) = (Vec::new(), beginning.clone());
        loop {
            let next: Option<String> = statement.query_row([&from], |row| row.get(0)).optional()?;
            let Some(next) = next.filter(|word| word.starts_with(&beginning)) else { return Ok(Some(words)) };
            if words.len() == MOST_WORDS {
                return Ok(None);
            }
            // No word has this character, so the next word is the first one behind it.
            from = format!("{next}\u{1}");
            words.push(next);
        }
    }

    /// A page of the items that have the words. A find stands at the place of the letter whose words they are.
    pub(super) fn ids_of_text(
        &self,
        picked: &Picked,
        order: Order,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<i64>, Option<Cursor>), OperatorError> {
        let words = picked.text.as_deref().unwrap_or_default();
        let (from, until) = bounds(picked, order, after);
        let direction = if order == Order::NewestFirst { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT rowid FROM search WHERE search MATCH ?1 AND rowid >= ?2 AND rowid < ?3 ORDER BY rowid {direction}"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        // The table knows its own bounds, but none of 64 bits.
        let mut rows = statement.query(params![words, from.max(0), until.min(i64::MAX - 1)])?;
        let (mut ids, mut finds) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let find: i64 = row.get(0)?;
            finds += 1;
            if let Some(id) = self.item_of_find(find, words)?
                && self.is_picked(picked, id)?
            {
                ids.push(id);
            }
            if ids.len() >= limit || finds >= MOST_FINDS {
                return Ok((ids, Some(Cursor(find))));
            }
        }
        Ok((ids, None))
    }

    /// The item that a find leads to; none where the item is found by its first letter anyway, or is gone.
    fn item_of_find(&self, find: i64, words: &str) -> rusqlite::Result<Option<i64>> {
        let mut statement =
            self.connection.prepare_cached("SELECT item FROM search_aliases WHERE id = ?1")?;
        let mut rows = statement.query([find])?;
        let Some(row) = rows.next()? else { return Ok(Some(find)) };
        let item: i64 = row.get(0)?;
        let sql = "SELECT 1 FROM search WHERE search MATCH ?1 AND rowid = ?2";
        let by_itself = self.connection.prepare_cached(sql)?.exists(params![words, item])?;
        Ok((!by_itself).then_some(item))
    }

    fn is_picked(&self, picked: &Picked, id: i64) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT heap FROM items WHERE id = ?1")?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        let (cause, state) = of_heap(row.get(0)?);
        Ok(picked.has(id, cause, state))
    }

    /// Whether the item's first letter has the words, if there are any to have.
    fn has_words(&self, picked: &Picked, id: i64) -> rusqlite::Result<bool> {
        let Some(words) = &picked.text else { return Ok(true) };
        let sql = "SELECT 1 FROM search WHERE search MATCH ?1 AND rowid = ?2";
        self.connection.prepare_cached(sql)?.exists(params![words, id])
    }

    /// A page of the items of a key: few, so they are read at once.
    pub(super) fn ids_of_key(
        &self,
        picked: &Picked,
        order: Order,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<i64>, Option<Cursor>), OperatorError> {
        let Some(key) = picked.wanted.key else { return Ok((Vec::new(), None)) };
        let (from, until) = bounds(picked, order, after);
        let sql = "SELECT search_keys.item FROM search_keys JOIN items ON items.id = search_keys.item
                   WHERE search_keys.key = ?1 AND items.key = ?2 AND item >= ?3 AND item < ?4 ORDER BY item";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found =
            statement.query_map(params![key_prefix(&key), &key[..], from, until], |row| row.get(0))?;
        let mut ids = Vec::new();
        for id in found.collect::<rusqlite::Result<Vec<i64>>>()? {
            if self.is_picked(picked, id)? && self.has_words(picked, id)? {
                ids.push(id);
            }
        }
        if order == Order::NewestFirst {
            ids.reverse();
        }
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| more).map(|id| Cursor(*id));
        Ok((ids, next))
    }
}

/// What the index of keys holds of a key.
pub(crate) fn key_prefix(key: &[u8; 16]) -> i64 {
    key.first_chunk().map_or(0, |first| i64::from_be_bytes(*first))
}
