-- Every statement of the store, by name. A test plans each one and fails on a scan that no row here allows.

-- name: begin
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: data_version
PRAGMA data_version;

-- name: tenant_no
SELECT no FROM tenant WHERE id = ?;

-- name: add_tenant
INSERT INTO tenant (id) VALUES (?);

-- name: tenants
SELECT id, no FROM tenant ORDER BY id;

-- name: last_position
SELECT max(position) FROM leaf WHERE position BETWEEN ? AND ?;

-- name: append_leaf
INSERT INTO leaf (position, request_id, application, kind, data, hash) VALUES (?, ?, ?, ?, ?, ?);

-- name: has_leaf
SELECT 1 FROM leaf WHERE request_id = ? AND kind = ?;

-- name: leaves
SELECT position, data, hash FROM leaf WHERE position BETWEEN ? AND ? ORDER BY position;

-- name: leaves_of_request
SELECT leaf.position, leaf.kind, leaf.data
FROM leaf JOIN tenant ON tenant.no = leaf.position >> 40
WHERE leaf.request_id = ? AND leaf.application = ? AND tenant.id = ?
ORDER BY leaf.position;

-- name: open_request
INSERT INTO open_request (request_id, position) VALUES (?, ?);

-- name: close_request
DELETE FROM open_request WHERE request_id = ?;

-- name: orphaned_requests
SELECT request_id FROM open_request
UNION
SELECT request_id FROM reservation WHERE state = 'reserved'
UNION
SELECT request_id FROM idempotency_key WHERE status IS NULL;

-- name: newest_leaf_of_request
SELECT leaf.position, leaf.kind, leaf.data, leaf.application, tenant.id
FROM leaf JOIN tenant ON tenant.no = leaf.position >> 40
WHERE leaf.request_id = ?
ORDER BY leaf.position DESC LIMIT 1;

-- name: find_counter
SELECT id, reserved, posted FROM counter
WHERE tenant = ? AND level = ? AND of = ? AND window = ? AND window_key = ?;

-- name: add_counter
INSERT INTO counter (tenant, level, of, window, window_key, reserved, posted) VALUES (?, ?, ?, ?, ?, 0, 0);

-- name: write_counter
UPDATE counter SET reserved = ?, posted = ? WHERE id = ?;

-- name: counter_by_id
SELECT tenant, level, of, window, window_key, reserved, posted FROM counter WHERE id = ?;

-- name: counters_of_tenant
SELECT tenant, level, of, window, window_key, reserved, posted FROM counter
WHERE tenant = ? ORDER BY level, of, window, window_key;

-- name: add_reservation
INSERT INTO reservation (id, request_id, tenant, capability, amount, chargeable, lines, state, posted)
VALUES (?, ?, ?, ?, ?, ?, ?, 'reserved', 0);

-- name: find_reservation
SELECT state, amount, lines FROM reservation WHERE id = ?;

-- name: resolve_reservation
UPDATE reservation SET state = ?, posted = ?, resolved_at = ? WHERE id = ? AND state = 'reserved';

-- name: open_reservations_of_request
SELECT id, tenant, capability, amount, chargeable, lines FROM reservation
WHERE request_id = ? AND state = 'reserved' ORDER BY id;

-- name: reservations_of_request
SELECT count(*), coalesce(sum(posted), 0) FROM reservation WHERE id >= ? AND id < ? AND request_id = ?;

-- name: find_claim
SELECT body_digest, request_id, expires_at, status, reason FROM idempotency_key
WHERE tenant = ? AND application = ? AND key = ?;

-- name: take_claim
INSERT OR REPLACE INTO idempotency_key
  (tenant, application, key, body_digest, request_id, expires_at, status, reason)
VALUES (?, ?, ?, ?, ?, ?, NULL, NULL);

-- name: keep_claim
UPDATE idempotency_key SET status = ?, reason = ?
WHERE tenant = ? AND application = ? AND key = ? AND request_id = ? AND status IS NULL;

-- name: free_claim
DELETE FROM idempotency_key
WHERE tenant = ? AND application = ? AND key = ? AND request_id = ? AND status IS NULL;

-- name: running_claim_of_request
SELECT key, tenant, application FROM idempotency_key WHERE request_id = ? AND status IS NULL;

-- name: free_claims_without_request
DELETE FROM idempotency_key
WHERE status IS NULL AND request_id NOT IN (SELECT request_id FROM open_request);

-- name: drop_expired_claims
DELETE FROM idempotency_key WHERE (tenant, application, key) IN
  (SELECT tenant, application, key FROM idempotency_key WHERE expires_at <= ? LIMIT ?);

-- name: add_answer
INSERT INTO answer (tenant, request_id, sealed, data, created_at, expires_at, cache_key, producer, original)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: answer_bytes
SELECT total FROM answer_bytes WHERE one = 1;

-- name: drop_oldest_answer
DELETE FROM answer WHERE id = (SELECT id FROM answer ORDER BY created_at LIMIT 1);

-- name: age_of_answer
SELECT created_at FROM answer WHERE request_id = ? AND tenant = ?;

-- name: answer_of_request
SELECT request_id, sealed, data, expires_at, cache_key, producer, original FROM answer
WHERE tenant = ? AND request_id = ? AND expires_at > ?;

-- name: answer_of_cache_key
SELECT request_id, sealed, data, expires_at, cache_key, producer, original FROM answer
WHERE tenant = ? AND cache_key = ? AND expires_at > ?
ORDER BY created_at DESC LIMIT 1;

-- name: erase_request
DELETE FROM answer WHERE (request_id = ? OR original = ?) AND (tenant = ? OR ? IS NULL);

-- name: erase_before
DELETE FROM answer WHERE id IN
  (SELECT id FROM answer WHERE created_at < ? AND (tenant = ? OR ? IS NULL) LIMIT ?);

-- name: erase_expired
DELETE FROM answer WHERE id IN
  (SELECT id FROM answer WHERE expires_at <= ? AND (tenant = ? OR ? IS NULL) LIMIT ?);

-- name: count_answers
SELECT tenant, count(*) FROM answer WHERE expires_at > ? GROUP BY tenant;

-- name: count_open_requests
SELECT count(*) FROM open_request;

-- name: find_api_key
SELECT tenant, application, id FROM api_key WHERE digest = ? AND revoked_at IS NULL;

-- name: add_api_key
INSERT INTO api_key (id, tenant, application, digest, created_at) VALUES (?, ?, ?, ?, ?);

-- name: revoke_api_key
UPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL;

-- name: live_api_keys
SELECT id, tenant, application, digest, created_at FROM api_key
WHERE tenant = ? AND revoked_at IS NULL ORDER BY created_at, id;

-- name: live_api_key
SELECT id, tenant, application, digest, created_at FROM api_key WHERE id = ? AND revoked_at IS NULL;

-- name: count_live_api_keys
SELECT tenant, count(*) FROM api_key WHERE revoked_at IS NULL GROUP BY tenant;

-- name: active_sequence
SELECT sequence FROM bundle ORDER BY sequence DESC LIMIT 1;

-- name: active_bundle
SELECT envelope FROM bundle ORDER BY sequence DESC LIMIT 1;

-- name: add_bundle
INSERT INTO bundle (sequence, envelope, activated_at) VALUES (?, ?, ?);

-- name: prune_bundles
DELETE FROM bundle WHERE sequence < (SELECT sequence FROM bundle ORDER BY sequence DESC LIMIT 1 OFFSET ?);

-- name: prune_reservations
DELETE FROM reservation WHERE id IN
  (SELECT id FROM reservation WHERE resolved_at < ? AND request_id NOT IN (SELECT request_id FROM open_request) LIMIT ?);

-- name: prune_hours
DELETE FROM counter WHERE id IN
  (SELECT id FROM counter WHERE window = 'hour' AND window_key < ? AND reserved = 0 LIMIT ?);

-- name: find_tile
SELECT hashes FROM tile WHERE tenant_no = ? AND level = ? AND tile_index = ?;

-- name: write_tile
INSERT INTO tile (tenant_no, level, tile_index, hashes) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET hashes = excluded.hashes;

-- name: last_checkpoint
SELECT note, size FROM checkpoint WHERE tenant_no = ? ORDER BY size DESC LIMIT 1;

-- name: checkpoints
SELECT note, size FROM checkpoint WHERE tenant_no = ? AND size > ? ORDER BY size LIMIT ?;

-- name: add_checkpoint
INSERT INTO checkpoint (tenant_no, size, note) VALUES (?, ?, ?);

-- The checkpoint that so many newer ones follow, and the size of the one before it.
-- name: aged_checkpoint
SELECT c.size, (SELECT max(size) FROM checkpoint WHERE tenant_no = c.tenant_no AND size < c.size)
FROM checkpoint c WHERE c.tenant_no = ? ORDER BY c.size DESC LIMIT 1 OFFSET ?;

-- name: drop_checkpoint
DELETE FROM checkpoint WHERE tenant_no = ? AND size = ?;
