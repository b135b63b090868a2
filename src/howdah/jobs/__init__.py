"""The job queue in Howdah's own tables."""
