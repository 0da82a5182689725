"""Looking at what was decided: one record of an answer, and pictures of it."""
