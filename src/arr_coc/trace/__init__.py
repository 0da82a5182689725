"""Traces (records of one answer), how to record them, and pictures of allocations."""
