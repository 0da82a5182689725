"""From tensors to kept cells: texture, scorers, balancing, budget and choice, without transformers."""
