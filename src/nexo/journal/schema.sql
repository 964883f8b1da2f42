-- The journal's file, format version 1.
--
-- To change the format:
--   1. change the tables here, so that a new file is born in the new format;
--   2. raise FORMAT_VERSION in layout.py, and add to MIGRATIONS, under the OLD version, the
--      statements that turn an old file into a new one (they run in one transaction with the new
--      version number: a crash in between leaves the old file);
--   3. if what a checksum covers changes, the migration must rewrite those checksums;
--   4. keep a file of the old format under tests/journal/ and a test that opens it;
--   5. say so in CHANGELOG.md: an older Nexo will refuse the file from then on.
-- Never change the meaning of a column without a new version.

-- One batch a row. The payload stands last: other columns are read without walking through it.
CREATE TABLE payload (
    row INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    offsets BLOB NOT NULL,
    extras BLOB,
    payload BLOB NOT NULL
) STRICT;

-- One row an owner a commit. Numbers of an owner run without a gap from its snapshot's on.
CREATE TABLE record (
    owner INTEGER NOT NULL,
    number INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (owner, number)
) STRICT, WITHOUT ROWID;

-- The state of an owner up to and with record `number`; those records are gone.
CREATE TABLE snapshot (
    owner INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- boot_epoch: how often the journal was opened. last_row: the highest row number ever used, kept
-- here only while no stored row says it.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
