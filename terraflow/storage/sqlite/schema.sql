-- The schema as it stands: the sum of migrations/, which a test compares.
-- Amounts are micro-dollars; instants are microseconds since the epoch, UTC.

CREATE TABLE tenant (
  no INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE
) STRICT;

-- `position` is tenant.no << 40 | index: every tenant's leaves lie together, in order, in one b-tree.
CREATE TABLE leaf (
  position    INTEGER PRIMARY KEY,
  request_id  TEXT NOT NULL,
  application TEXT NOT NULL,
  kind        TEXT NOT NULL,
  data        BLOB NOT NULL,
  hash        BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE INDEX leaf_by_request ON leaf (request_id);

-- Requests whose intent is in the log and whose outcome is not yet.
CREATE TABLE open_request (
  request_id TEXT PRIMARY KEY,
  position   INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE counter (
  id         INTEGER PRIMARY KEY,
  tenant     TEXT NOT NULL,
  level      TEXT NOT NULL,
  of         TEXT NOT NULL,
  window     TEXT NOT NULL,
  window_key TEXT NOT NULL,
  reserved   INTEGER NOT NULL CHECK (reserved >= 0),
  posted     INTEGER NOT NULL CHECK (posted >= 0),
  UNIQUE (tenant, level, of, window, window_key)
) STRICT;
CREATE INDEX counter_by_window ON counter (window, window_key);

-- `lines` is a JSON array of [counter id, limit or null], as the limits stood when it was reserved.
CREATE TABLE reservation (
  id         TEXT PRIMARY KEY,
  request_id TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  capability TEXT NOT NULL,
  amount     INTEGER NOT NULL CHECK (amount >= 0),
  chargeable INTEGER NOT NULL,
  lines      TEXT NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('reserved', 'posted', 'voided')),
  posted     INTEGER NOT NULL CHECK (posted >= 0),
  resolved_at INTEGER
) WITHOUT ROWID, STRICT;
CREATE INDEX reservation_open ON reservation (request_id) WHERE state = 'reserved';
CREATE INDEX reservation_resolved ON reservation (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE TABLE idempotency_key (
  tenant      TEXT NOT NULL,
  application TEXT NOT NULL,
  key         TEXT NOT NULL,
  body_digest TEXT NOT NULL,
  request_id  TEXT NOT NULL,
  expires_at  INTEGER NOT NULL,
  status      INTEGER,
  reason      TEXT,
  PRIMARY KEY (tenant, application, key)
) WITHOUT ROWID, STRICT;
CREATE INDEX idempotency_key_running ON idempotency_key (request_id) WHERE status IS NULL;
CREATE INDEX idempotency_key_by_expiry ON idempotency_key (expires_at);

-- `sealed` 1: `data` is a nonce of 12 bytes and an AES-256-GCM ciphertext; 0: the answer itself.
-- `original`: the request whose stored answer this is a copy of.
CREATE TABLE answer (
  id         INTEGER PRIMARY KEY,
  tenant     TEXT NOT NULL,
  request_id TEXT NOT NULL,
  sealed     INTEGER NOT NULL,
  data       BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  cache_key  TEXT,
  producer   TEXT NOT NULL,
  original   TEXT,
  UNIQUE (request_id, tenant)
) STRICT;
CREATE INDEX answer_by_cache_key ON answer (tenant, cache_key, created_at) WHERE cache_key IS NOT NULL;
CREATE INDEX answer_by_expiry ON answer (expires_at);
CREATE INDEX answer_by_age ON answer (created_at);
CREATE INDEX answer_by_original ON answer (original) WHERE original IS NOT NULL;

-- The bytes of all stored answers, in one row.
CREATE TABLE answer_bytes (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  total INTEGER NOT NULL
) STRICT;
INSERT INTO answer_bytes (one, total) VALUES (1, 0);
CREATE TRIGGER answer_added AFTER INSERT ON answer BEGIN
  UPDATE answer_bytes SET total = total + length(new.data) WHERE one = 1;
END;
CREATE TRIGGER answer_removed AFTER DELETE ON answer BEGIN
  UPDATE answer_bytes SET total = total - length(old.data) WHERE one = 1;
END;

CREATE TABLE api_key (
  id          TEXT PRIMARY KEY,
  tenant      TEXT NOT NULL,
  application TEXT NOT NULL,
  digest      TEXT NOT NULL UNIQUE,
  created_at  INTEGER NOT NULL,
  revoked_at  INTEGER
) STRICT;
CREATE INDEX api_key_live ON api_key (tenant, created_at) WHERE revoked_at IS NULL;

-- Every envelope ever activated; the active one has the greatest sequence.
CREATE TABLE bundle (
  sequence     INTEGER PRIMARY KEY,
  envelope     BLOB NOT NULL,
  activated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tile (
  tenant_no  INTEGER NOT NULL REFERENCES tenant (no),
  level      INTEGER NOT NULL,
  tile_index INTEGER NOT NULL,
  hashes     BLOB NOT NULL,
  PRIMARY KEY (tenant_no, level, tile_index)
) STRICT;

CREATE TABLE checkpoint (
  tenant_no INTEGER NOT NULL REFERENCES tenant (no),
  size      INTEGER NOT NULL,
  note      BLOB NOT NULL,
  PRIMARY KEY (tenant_no, size)
) STRICT;

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
CREATE INDEX batch_file_by_application ON batch_file (tenant, application, created_at, id);

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
CREATE INDEX batch_ended ON batch (tenant, application, ended_at, id) WHERE ended_at IS NOT NULL;

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
