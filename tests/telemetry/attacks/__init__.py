"""Files that mean harm, built as they are needed: what an archive or a log can do to whoever reads it."""
