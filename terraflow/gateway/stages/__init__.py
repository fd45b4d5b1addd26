"""One file a step of the pipeline, each named for its verb."""
