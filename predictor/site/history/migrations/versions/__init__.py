"""The revisions: one file a step from one schema to the next. None is edited after a release."""
