"""The guide: relevance from pixels and the words of a question, with no base model."""
