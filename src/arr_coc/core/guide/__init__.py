"""The guide: a small net that reads which cells of a page a question needs."""
