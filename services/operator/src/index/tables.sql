-- The whole index. It is a cache: another version of it is dropped and made anew.
-- Times are milliseconds since the epoch.

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Everything below `next` is in the tables. `log`: 'dlq', 'journal', or 'search' (the dead-letter topic again, for full text).
CREATE TABLE positions (
    log TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL,
    PRIMARY KEY (log, partition)
) WITHOUT ROWID;

-- Everything that letters are grouped by. There are few of them, so any grouping, count or filter begins here.
CREATE TABLE causes (
    id INTEGER PRIMARY KEY,
    hash INTEGER NOT NULL UNIQUE,
    fingerprint INTEGER NOT NULL,
    class TEXT, tier TEXT, kind TEXT, code TEXT NOT NULL, schema_id INTEGER, source TEXT NOT NULL,
    message TEXT NOT NULL,
    first_dead INTEGER NOT NULL, last_dead INTEGER NOT NULL,
    letters INTEGER NOT NULL,
    -- All causes of one class, kind and code. Merged: it has very many, and this one stands for all that differ in nothing else.
    family INTEGER NOT NULL, merged INTEGER NOT NULL
);
CREATE INDEX causes_by_fingerprint ON causes (fingerprint);
CREATE INDEX causes_by_family ON causes (family);

-- How many items there are of each cause in each state; `newest` is at least the greatest id of them.
CREATE TABLE tallies (
    cause INTEGER NOT NULL, state INTEGER NOT NULL, items INTEGER NOT NULL, newest INTEGER NOT NULL,
    PRIMARY KEY (cause, state)
) WITHOUT ROWID;

-- Letters by quarter of an hour; cause 0 counts all.
CREATE TABLE trend (
    cause INTEGER NOT NULL, quarter INTEGER NOT NULL, letters INTEGER NOT NULL,
    PRIMARY KEY (cause, quarter)
) WITHOUT ROWID;

-- `id` begins with the time of the letter that was indexed first, so ids are in the order of lists and never change.
-- `heap` is cause << 4 | state << 1 | moved: items of one heap are an index range in the order of ids. Moved: it began to be of its
-- group at another time than its id says.
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    hash INTEGER NOT NULL,
    heap INTEGER NOT NULL,
    source_partition INTEGER NOT NULL, source_offset INTEGER NOT NULL,
    key BLOB,
    letters INTEGER NOT NULL,
    -- When it began to be of its group, or was so again after it was done or discarded; none where no life of it is open and it has not ended.
    failed_at INTEGER,
    -- Its latest letter, which is of its cause:
    round INTEGER NOT NULL, dead_at INTEGER NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    attempt INTEGER, forced INTEGER NOT NULL, first_seen INTEGER, key_bytes INTEGER, value_bytes INTEGER,
    message TEXT NOT NULL, first_error TEXT, stub TEXT, trace TEXT,
    -- The hash of the cause that it would have, were that not merged with others.
    own INTEGER
);
CREATE INDEX items_by_heap ON items (heap);
CREATE INDEX items_by_failure ON items (heap, failed_at) WHERE heap & 1;
-- Items by what they are called. Apart from them, so that a batch may be written in its own order.
CREATE TABLE names (hash INTEGER PRIMARY KEY, item INTEGER NOT NULL);

-- Lives of items that ended: whether a group was closed once is told from these.
CREATE TABLE lives (
    cause INTEGER NOT NULL, failed_at INTEGER NOT NULL, item INTEGER NOT NULL, ended_at INTEGER NOT NULL,
    PRIMARY KEY (cause, failed_at, item)
) WITHOUT ROWID;
CREATE INDEX lives_by_item ON lives (item);
CREATE INDEX lives_by_end ON lives (cause, ended_at, failed_at);
-- Items that were dead-lettered again after they were done or discarded, and are it still: no list of those that wait has them.
CREATE TABLE late (item INTEGER PRIMARY KEY, cause INTEGER NOT NULL, failed_at INTEGER NOT NULL);
CREATE INDEX late_by_cause ON late (cause);

-- The letters of an item but for its latest.
CREATE TABLE letters (
    item INTEGER NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
    cause INTEGER NOT NULL,
    round INTEGER NOT NULL, attempt INTEGER, forced INTEGER NOT NULL,
    dead_at INTEGER NOT NULL, first_seen INTEGER,
    key_bytes INTEGER, value_bytes INTEGER,
    message TEXT NOT NULL, first_error TEXT, stub TEXT, trace TEXT, own INTEGER,
    PRIMARY KEY (item, partition, "offset")
) WITHOUT ROWID;
CREATE VIEW all_letters AS
    SELECT id AS item, partition, "offset", heap >> 4 AS cause, round, attempt, forced, dead_at, first_seen,
    key_bytes, value_bytes, message, first_error, stub, trace, own FROM items
    UNION ALL
    SELECT item, partition, "offset", cause, round, attempt, forced, dead_at, first_seen,
    key_bytes, value_bytes, message, first_error, stub, trace, own FROM letters;

-- Filled after everything else, because it costs the most: words of messages, keys and payloads.
CREATE VIRTUAL TABLE search USING fts5 (words, content = '', columnsize = 0, detail = none);
-- So many bytes of words are gathered in memory before they are written: merging what was written costs more than all else.
INSERT INTO search (search, rank) VALUES ('hashsize', 33554432);
-- The words that there are.
CREATE VIRTUAL TABLE search_words USING fts5vocab (search, instance);
-- A later letter of an item has words of its own: under an id of its own, which leads to the item.
CREATE TABLE search_aliases (id INTEGER PRIMARY KEY, item INTEGER NOT NULL);
-- Items by the first 8 bytes of their idempotency key.
CREATE TABLE search_keys (key INTEGER NOT NULL, item INTEGER NOT NULL, PRIMARY KEY (key, item)) WITHOUT ROWID;

-- What the journal says of an item: the domain's `Item`, field by field.
CREATE TABLE folded (
    hash INTEGER PRIMARY KEY, id TEXT NOT NULL, state INTEGER NOT NULL, round INTEGER NOT NULL, seen INTEGER,
    replay_at INTEGER, replay_run INTEGER, replay_round INTEGER, replay_forced INTEGER, replay_edited INTEGER,
    done INTEGER, waiting_until INTEGER, answer TEXT, answer_round INTEGER, answer_until INTEGER,
    ended_at INTEGER, replay_before INTEGER, released INTEGER NOT NULL
);

-- When items were done or discarded, but for the last time of those that still are: what is run again although it is done, and discards
-- that were taken back.
CREATE TABLE endings (
    hash INTEGER NOT NULL, at INTEGER NOT NULL, taken_back_at INTEGER, PRIMARY KEY (hash, at)
) WITHOUT ROWID;

-- Entries of the journal about items. `place`: which item of its record.
CREATE TABLE entries (
    hash INTEGER NOT NULL, at INTEGER NOT NULL, place INTEGER NOT NULL,
    run INTEGER, what TEXT NOT NULL, void TEXT, round INTEGER, time INTEGER NOT NULL, author TEXT, detail TEXT,
    PRIMARY KEY (hash, at, place)
) WITHOUT ROWID;
CREATE INDEX entries_by_run ON entries (run, at, place) WHERE run IS NOT NULL;
-- Orders of others that ended a replay of a run: whoever carries that run out must hear of them.
CREATE TABLE interruptions (run INTEGER NOT NULL, at INTEGER NOT NULL, hash INTEGER NOT NULL, PRIMARY KEY (run, at, hash)) WITHOUT ROWID;
-- What an operator made of a value: the journal has it, and a replay carries it.
CREATE TABLE edits (at INTEGER NOT NULL, place INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (at, place)) WITHOUT ROWID;

-- What operators did: records of the journal, but for outcomes.
CREATE TABLE history (
    at INTEGER PRIMARY KEY, time INTEGER NOT NULL, author TEXT NOT NULL, what TEXT NOT NULL, run INTEGER,
    reason TEXT, items INTEGER NOT NULL, accepted INTEGER NOT NULL, id TEXT
);

CREATE TABLE runs (
    run INTEGER PRIMARY KEY, begun INTEGER NOT NULL, time INTEGER NOT NULL, author TEXT NOT NULL,
    what TEXT NOT NULL, forced INTEGER NOT NULL, selection TEXT NOT NULL, total INTEGER NOT NULL, chunks INTEGER NOT NULL,
    rate REAL, ramp TEXT, status TEXT NOT NULL, why TEXT, changed_at INTEGER NOT NULL, changed_by TEXT NOT NULL,
    -- The journal's offset of the last begin, or resume after a stop: a ramp begins anew there.
    from_at INTEGER NOT NULL,
    -- The domain's `RunState`, with `chunks` and `status`.
    read INTEGER NOT NULL DEFAULT 0, closed INTEGER NOT NULL DEFAULT 0, climbed INTEGER NOT NULL DEFAULT 0,
    -- The offset of the step by which it climbed last.
    climbed_at INTEGER NOT NULL DEFAULT -1,
    -- How its orders and replays stand.
    accepted INTEGER NOT NULL DEFAULT 0, refused INTEGER NOT NULL DEFAULT 0,
    passed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, pending INTEGER NOT NULL DEFAULT 0,
    released INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX runs_by_begin ON runs (begun);
