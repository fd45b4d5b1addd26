-- Lists of an application's files: those uploaded, and the results of its batches.
CREATE INDEX batch_file_by_application ON batch_file (tenant, application, created_at, id);
CREATE INDEX batch_ended ON batch (tenant, application, ended_at, id) WHERE ended_at IS NOT NULL;
