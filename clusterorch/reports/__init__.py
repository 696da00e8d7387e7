"""Here live reports for people; they arrange results and compute none."""
