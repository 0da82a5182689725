"""Folders, fingerprints and the Hub: base models and what was learned for them, read and written."""
