"""Training of the guide: word spotting, then relevance."""
