"""Here lives diagnosis: from readings of real logs to a posterior over modes and places, with its evidence."""
