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

-- name: batch_bytes
SELECT total FROM batch_bytes WHERE one = 1;

-- name: add_batch_file
INSERT INTO batch_file (id, tenant, application, sealed, name, size_bytes, created_at, expires_at, whole)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0);

-- name: add_batch_file_part
INSERT INTO batch_file_part (file, no, data) SELECT id, ?, ? FROM batch_file WHERE id = ?;

-- name: complete_batch_file
UPDATE batch_file SET whole = 1, expires_at = ?
WHERE id = ? AND (SELECT count(*) FROM batch_file_part WHERE file = batch_file.id) = ?;

-- name: find_batch_file
SELECT sealed, name, size_bytes, created_at, expires_at FROM batch_file
WHERE id = ? AND tenant = ? AND application = ? AND expires_at > ? AND whole = 1;

-- name: files_newest_first
SELECT id, sealed, name, size_bytes, created_at, expires_at FROM batch_file
WHERE tenant = ? AND application = ? AND (created_at, id) < (?, ?) AND expires_at > ? AND whole = 1
ORDER BY created_at DESC, id DESC LIMIT ?;

-- name: files_oldest_first
SELECT id, sealed, name, size_bytes, created_at, expires_at FROM batch_file
WHERE tenant = ? AND application = ? AND (created_at, id) > (?, ?) AND expires_at > ? AND whole = 1
ORDER BY created_at, id LIMIT ?;

-- name: batch_file_part
SELECT batch_file.sealed, batch_file_part.data
FROM batch_file JOIN batch_file_part ON batch_file_part.file = batch_file.id
WHERE batch_file.id = ? AND batch_file.tenant = ? AND batch_file_part.no = ?;

-- name: expire_batch_file
UPDATE batch_file SET expires_at = 0 WHERE id = ? AND tenant = ? AND application = ? AND expires_at > ? AND whole = 1;

-- name: expire_batch_files_before
UPDATE batch_file SET expires_at = 0 WHERE created_at < ? AND expires_at > 0 AND (tenant = ? OR ? IS NULL);

-- name: erase_batch_file_parts
DELETE FROM batch_file_part WHERE id IN
  (SELECT part.id FROM batch_file JOIN batch_file_part part ON part.file = batch_file.id
   WHERE batch_file.expires_at <= ? AND (batch_file.tenant = ? OR ? IS NULL) LIMIT ?);

-- name: erase_batch_files
DELETE FROM batch_file WHERE expires_at <= ? AND (tenant = ? OR ? IS NULL)
AND NOT EXISTS (SELECT 1 FROM batch_file_part WHERE file = batch_file.id);

-- name: add_batch
INSERT INTO batch (id, tenant, application, key_id, endpoint, input_file, workload, data_class, sensitive_types, window,
  sealed, metadata, created_at, expires_at, status, total, completed, failed, output_bytes, error_bytes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0);

-- name: count_open_batches
SELECT count(*) FROM batch WHERE tenant = ? AND ended_at IS NULL;

-- name: find_batch
SELECT * FROM batch WHERE id = ? AND tenant = ? AND application = ? AND (erase_at IS NULL OR erase_at > ?);

-- name: batches_of_application
SELECT * FROM batch WHERE tenant = ? AND application = ? AND (created_at, id) < (?, ?)
AND (erase_at IS NULL OR erase_at > ?) ORDER BY created_at DESC, id DESC LIMIT ?;

-- name: results_newest_first
SELECT * FROM batch WHERE tenant = ? AND application = ? AND ended_at IS NOT NULL AND (ended_at, id) <= (?, ?)
AND erase_at > ? AND completed + failed > 0 ORDER BY ended_at DESC, id DESC LIMIT ?;

-- name: results_oldest_first
SELECT * FROM batch WHERE tenant = ? AND application = ? AND ended_at IS NOT NULL AND (ended_at, id) >= (?, ?)
AND erase_at > ? AND completed + failed > 0 ORDER BY ended_at, id LIMIT ?;

-- name: open_batches
SELECT * FROM batch WHERE ended_at IS NULL ORDER BY created_at;

-- name: start_batch
UPDATE batch SET status = 'in_progress', in_progress_at = ? WHERE id = ? AND status = 'validating';

-- name: cancel_batch
UPDATE batch SET status = 'cancelling', cancelling_at = ? WHERE id = ? AND status = 'in_progress';

-- name: finalize_batch
UPDATE batch SET status = 'finalizing', finalizing_at = ? WHERE id = ? AND status = 'in_progress';

-- name: fail_batch
UPDATE batch SET status = 'failed' WHERE id = ? AND status IN ('validating', 'in_progress');

-- name: end_batch
UPDATE batch SET status = ?, ended_at = ?, erase_at = ? WHERE id = ? AND ended_at IS NULL;

-- name: count_batch_item
UPDATE batch SET completed = completed + ?, failed = failed + ?, output_bytes = output_bytes + ?,
  error_bytes = error_bytes + ? WHERE id = ?;

-- name: add_batch_item
INSERT INTO batch_item (batch, no, state, sealed, data) VALUES (?, ?, 'queued', ?, ?);

-- name: take_batch_item
UPDATE batch_item SET state = 'running', request_id = ?
WHERE id = (SELECT id FROM batch_item WHERE batch = ? AND state = 'queued' AND no > ? ORDER BY no LIMIT 1)
RETURNING no, request_id, sealed, data;

-- name: return_batch_item
UPDATE batch_item SET state = 'queued', request_id = NULL
WHERE batch = ? AND no = ? AND request_id = ? AND state = 'running';

-- name: end_batch_item
UPDATE batch_item SET state = ?, sealed = ?, data = ?, ended_at = ?
WHERE batch = ? AND no = ? AND request_id = ? AND state = 'running';

-- name: queued_batch_item
SELECT 1 FROM batch_item WHERE batch = ? AND no = ? AND state = 'queued';

-- name: end_queued_batch_item
UPDATE batch_item SET state = 'failed', sealed = ?, data = ?, ended_at = ?
WHERE batch = ? AND no = ? AND state = 'queued';

-- name: batch_items_in
SELECT no, request_id, sealed, data FROM batch_item WHERE batch = ? AND state = ? ORDER BY no LIMIT ?;

-- name: batch_results
SELECT no, sealed, data FROM batch_item WHERE batch = ? AND state = ? AND no > ? ORDER BY no LIMIT ?;

-- name: drop_answer_of_item
DELETE FROM answer WHERE tenant = ? AND request_id = ? AND cache_key IS NULL;

-- name: drop_claim_of_item
DELETE FROM idempotency_key WHERE tenant = ? AND application = ? AND key = ? AND request_id = ?;

-- name: erase_batch_item_of_request
UPDATE batch_item SET data = x'', ended_at = NULL
WHERE request_id = ? AND ended_at IS NOT NULL
AND EXISTS (SELECT 1 FROM batch WHERE id = batch_item.batch AND (tenant = ? OR ? IS NULL));

-- name: erase_batch_items_before
UPDATE batch_item SET data = x'', ended_at = NULL WHERE id IN
  (SELECT item.id FROM batch_item item JOIN batch ON batch.id = item.batch
   WHERE item.ended_at < ? AND (batch.tenant = ? OR ? IS NULL) LIMIT ?);

-- name: erase_batch_metadata_before
UPDATE batch SET metadata = x'' WHERE ended_at < ? AND length(metadata) > 0 AND (tenant = ? OR ? IS NULL);

-- name: erase_batch_items
DELETE FROM batch_item WHERE id IN
  (SELECT item.id FROM batch JOIN batch_item item ON item.batch = batch.id
   WHERE batch.erase_at <= ? AND (batch.tenant = ? OR ? IS NULL) LIMIT ?);

-- name: drop_batch_items
DELETE FROM batch_item WHERE id IN (SELECT id FROM batch_item WHERE batch = ? LIMIT ?);

-- name: erase_batches
DELETE FROM batch WHERE erase_at <= ? AND (tenant = ? OR ? IS NULL)
AND NOT EXISTS (SELECT 1 FROM batch_item WHERE batch = batch.id);
