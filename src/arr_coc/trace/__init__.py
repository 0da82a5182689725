"""Inspection of answers: traces (records of one answer), how to make them, and pictures of allocations."""
