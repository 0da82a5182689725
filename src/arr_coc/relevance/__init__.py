"""Sources of relevance: what says how much each cell has to do with a question, and deciding by it."""
