-- Batches: files, batches, items.
-- Uploaded files. A part is sealed like an answer; `name` too. `whole` 0: it has not arrived yet.
CREATE TABLE batch_file (
  id          TEXT PRIMARY KEY,
  tenant      TEXT NOT NULL,
  application TEXT NOT NULL,
  sealed      INTEGER NOT NULL,
  name        BLOB NOT NULL,
  size_bytes  INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  whole       INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX batch_file_by_expiry ON batch_file (expires_at);
CREATE INDEX batch_file_by_age ON batch_file (created_at);

CREATE TABLE batch_file_part (
  id     INTEGER PRIMARY KEY,
  file   TEXT NOT NULL,
  no     INTEGER NOT NULL,
  data   BLOB NOT NULL,
  UNIQUE (file, no)
) STRICT;

CREATE TABLE batch (
  id              TEXT PRIMARY KEY,
  tenant          TEXT NOT NULL,
  application     TEXT NOT NULL,
  key_id          TEXT NOT NULL,
  endpoint        TEXT NOT NULL,
  input_file      TEXT,
  workload        TEXT,
  data_class      TEXT,
  sensitive_types TEXT NOT NULL,
  window          TEXT NOT NULL,
  sealed          INTEGER NOT NULL,
  metadata        BLOB NOT NULL,
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER NOT NULL,
  status          TEXT NOT NULL,
  in_progress_at  INTEGER,
  cancelling_at   INTEGER,
  finalizing_at   INTEGER,
  ended_at        INTEGER,
  erase_at        INTEGER,
  total           INTEGER NOT NULL,
  completed       INTEGER NOT NULL,
  failed          INTEGER NOT NULL,
  output_bytes    INTEGER NOT NULL,
  error_bytes     INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX batch_by_application ON batch (tenant, application, created_at, id);
CREATE INDEX batch_open ON batch (tenant, created_at) WHERE ended_at IS NULL;
CREATE INDEX batch_by_erasure ON batch (erase_at) WHERE erase_at IS NOT NULL;
CREATE INDEX batch_by_end ON batch (ended_at) WHERE ended_at IS NOT NULL;

-- `data`: the request until the item has ended, then the line of its result; empty when that was erased.
CREATE TABLE batch_item (
  id         INTEGER PRIMARY KEY,
  batch      TEXT NOT NULL,
  no         INTEGER NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'failed')),
  request_id TEXT,
  sealed     INTEGER NOT NULL,
  data       BLOB NOT NULL,
  ended_at   INTEGER,
  UNIQUE (batch, no)
) STRICT;
CREATE INDEX batch_item_by_state ON batch_item (batch, state, no);
CREATE INDEX batch_item_by_request ON batch_item (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX batch_item_by_end ON batch_item (ended_at) WHERE ended_at IS NOT NULL;

-- The bytes of all files and items, in one row.
CREATE TABLE batch_bytes (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  total INTEGER NOT NULL
) STRICT;
INSERT INTO batch_bytes (one, total) VALUES (1, 0);
CREATE TRIGGER batch_file_part_added AFTER INSERT ON batch_file_part BEGIN
  UPDATE batch_bytes SET total = total + length(new.data) WHERE one = 1;
END;
CREATE TRIGGER batch_file_part_removed AFTER DELETE ON batch_file_part BEGIN
  UPDATE batch_bytes SET total = total - length(old.data) WHERE one = 1;
END;
CREATE TRIGGER batch_item_added AFTER INSERT ON batch_item BEGIN
  UPDATE batch_bytes SET total = total + length(new.data) WHERE one = 1;
END;
CREATE TRIGGER batch_item_changed AFTER UPDATE OF data ON batch_item BEGIN
  UPDATE batch_bytes SET total = total + length(new.data) - length(old.data) WHERE one = 1;
END;
CREATE TRIGGER batch_item_removed AFTER DELETE ON batch_item BEGIN
  UPDATE batch_bytes SET total = total - length(old.data) WHERE one = 1;
END;
