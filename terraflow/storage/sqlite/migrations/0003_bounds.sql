-- What has served its time can be found and removed, and how much is stored of answers is known.
ALTER TABLE reservation ADD COLUMN resolved_at INTEGER;
UPDATE reservation SET resolved_at = unixepoch() * 1000000 WHERE state <> 'reserved';
CREATE INDEX reservation_resolved ON reservation (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX counter_by_window ON counter (window, window_key);

CREATE TABLE answer_bytes (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  total INTEGER NOT NULL
) STRICT;
INSERT INTO answer_bytes (one, total) SELECT 1, coalesce(sum(length(data)), 0) FROM answer;
CREATE TRIGGER answer_added AFTER INSERT ON answer BEGIN
  UPDATE answer_bytes SET total = total + length(new.data) WHERE one = 1;
END;
CREATE TRIGGER answer_removed AFTER DELETE ON answer BEGIN
  UPDATE answer_bytes SET total = total - length(old.data) WHERE one = 1;
END;
