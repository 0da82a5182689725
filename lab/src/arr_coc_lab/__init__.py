"""Research around arr-coc: benchmarks, rivals, evaluation, drawn pages, and training of the guide."""
