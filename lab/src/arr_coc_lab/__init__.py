"""Research around arr-coc: benchmarks, rivals, evaluation, the drawn world, and teaching the guide."""
