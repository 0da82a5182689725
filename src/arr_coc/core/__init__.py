"""The ground: from pixels and words to an allocation. torch alone; no model, no transformers."""
