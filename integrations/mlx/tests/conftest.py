"""Tests on a CPU, without a network."""

from __future__ import annotations

import os

os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

import mlx.core as mx

from arr_coc.relevance import sums

mx.set_default_device(mx.cpu)
sums.ocr_installed = lambda: False  # reading a picture takes a second, and MLX has no part in it
