-- Copies of answers are told from their originals, so that they are erased with them.
ALTER TABLE answer ADD COLUMN original TEXT;
CREATE INDEX answer_by_original ON answer (original) WHERE original IS NOT NULL;
