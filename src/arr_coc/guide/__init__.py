"""The guide: relevance from pixels and the words of a question, with no base model."""

GUIDE = "guide"  # name of the guide as a source of relevance
