"""Sources of relevance, which score how much a question needs each cell, and the decision by their scores."""
