-- The journal's tables in PostgreSQL, format version 1, in a schema of their own.
--
-- To change the format:
--   1. change the tables here, so that a new schema is born in the new format;
--   2. raise FORMAT_VERSION in postgresql.py, and add to MIGRATIONS, under the OLD version, the
--      statements that turn an old schema into a new one (one transaction with the new number);
--   3. say so in CHANGELOG.md: an older Nexo will refuse the schema from then on.
-- Never change the meaning of a column without a new version.

CREATE TABLE format (version integer NOT NULL);

-- A shard is a whole broker's state; a broker alone is shard 0. Whoever opens a shard raises its
-- epoch, and every commit names the epoch that it was opened with: so one who was overtaken cannot
-- write any more. last_row: the highest row number ever used, kept here only while no stored row
-- says it.
CREATE TABLE shard (
    id integer PRIMARY KEY,
    epoch bigint NOT NULL,
    last_row bigint NOT NULL
);

-- One batch a row. Bodies are not compressed: most are small, or compressed already.
CREATE TABLE payload (
    shard integer NOT NULL,
    row bigint NOT NULL,
    count integer NOT NULL,
    checksum bigint NOT NULL,
    offsets bytea NOT NULL,
    extras bytea,
    payload bytea NOT NULL,
    PRIMARY KEY (shard, row)
);

-- One row an owner a commit. Numbers of an owner run without a gap from its snapshot's on.
CREATE TABLE record (
    shard integer NOT NULL,
    owner bigint NOT NULL,
    number bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (shard, owner, number)
);

-- The state of an owner up to and with record `number`; those records are gone.
CREATE TABLE snapshot (
    shard integer NOT NULL,
    owner bigint NOT NULL,
    number bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (shard, owner)
);

ALTER TABLE payload ALTER offsets SET STORAGE EXTERNAL;
ALTER TABLE payload ALTER extras SET STORAGE EXTERNAL;
ALTER TABLE payload ALTER payload SET STORAGE EXTERNAL;
ALTER TABLE record ALTER data SET STORAGE EXTERNAL;
ALTER TABLE snapshot ALTER data SET STORAGE EXTERNAL;

-- Rows come and go within seconds. Without these a table is vacuumed when a fifth of it is dead,
-- which for a queue that was once long is never; and slowly, so that it grows meanwhile.
ALTER TABLE payload SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE record SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE snapshot SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0
);
