-- The tables of a cluster, beside those of the journal. `nexo cluster create` makes them; a
-- database that has them is no journal of a broker alone. To change them, see postgresql.sql.

-- secret: by which nodes know each other.
CREATE TABLE cluster (
    shards integer NOT NULL,
    secret text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- run: drawn at each start, so that two nodes of one name are told apart. until: the end of the
-- lease, by the clock of this server alone. Whoever takes a shard from a node locks its row here,
-- so that a renewal comes wholly before or wholly after it.
CREATE TABLE node (
    name text PRIMARY KEY,
    run bigint NOT NULL,
    rpc text NOT NULL,
    http text NOT NULL,
    version text NOT NULL,
    draining boolean NOT NULL DEFAULT false,
    until timestamptz NOT NULL
);

-- Who may open a shard. The commits of the journal are fenced by the epoch in the table shard.
CREATE TABLE owner (shard integer PRIMARY KEY, node text, since timestamptz NOT NULL DEFAULT now());

-- The tokens of all nodes, as the owner of shard 0 has them in its catalog: a copy for the others.
CREATE TABLE tokens (version bigint NOT NULL, data bytea NOT NULL);
INSERT INTO tokens VALUES (0, '');

-- A node renews its lease every second, in place.
ALTER TABLE node SET (fillfactor = 50, autovacuum_vacuum_threshold = 200);
