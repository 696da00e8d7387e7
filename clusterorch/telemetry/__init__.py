"""Here live event records and the readers and writers of real log formats."""
