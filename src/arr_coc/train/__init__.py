"""The trainer of allocators: recipes, data, losses, and what is written."""
