"""The ground: from pixels and words to an allocation, with no model and nothing of transformers."""
