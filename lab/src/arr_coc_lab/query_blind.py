"""The query-blind scorer (a rival) with the interface of a relevance layer, for the same training.

It reads the encoded tokens alone. Gain and bias serve the losses; a ranking needs neither, so only the
scorer is saved.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from arr_coc.choose.knowing import same_start
from arr_coc.choose.layer import ARRCOCConfig, Relevance
from arr_coc.files.saved import write_tensors
from arr_coc.train.folder import QUERY_BLIND as WEIGHTS
from arr_coc_lab.rivals import QueryBlindScorer


class QueryBlindLayer(nn.Module):
    """`QueryBlindScorer` (VisionSelector, arXiv 2510.16598) with the interface of `ARRCOCLayer.relevance`.

    `dim` is D, the width of the language model; queries and keys have D // 2, as published.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.config = ARRCOCConfig(dim=dim)
        self.wanted_inputs: frozenset[str] = frozenset()  # no channel is read
        with same_start():
            self.scorer = QueryBlindScorer(dim, dim // 2)
        self.gain, self.bias = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))
        self.trained = False

    def relevance(
        self, texture: Tensor, query: Tensor, query_mask: Tensor, vision: Tensor | None
    ) -> Relevance:
        """Four equal maps [Q, H, W] from `vision` [Q, N, D] alone; ValueError without encoded tokens."""
        if vision is None:
            raise ValueError("the query-blind scorer reads encoded tokens; use it with mode prune")
        rows, _, h, w = texture.shape
        scores = self.scorer(vision.detach().float()) * self.gain + self.bias  # (Q, N)
        logits = scores.view(rows, h, w)
        even = torch.full((rows, 3), 0.5, device=logits.device)
        return Relevance(*[logits.sigmoid()] * 4, weights=even, tensions=even, logits=logits)

    def load(self, folder: Path | None = None) -> None:
        """Load the weights of `save` from a folder (None: the bundled model's), or raise ValueError."""
        path = (folder or Path(__file__).parent) / WEIGHTS
        try:
            weights = load_file(path)
            for name in ("query.bias", "key.bias"):  # learned by version 0.1: none is a bias of 0
                weights.setdefault(name, torch.zeros_like(self.scorer.query.bias))
            self.scorer.load_state_dict(weights)
        except (OSError, RuntimeError, SafetensorError) as error:
            detail = " ".join(str(error).split())[:200]
            raise ValueError(
                f"init {str(path)!r} is no scorer for this model ({detail}); train it first"
            ) from error

    def save(self, folder: Path) -> None:
        """Write `query_blind.safetensors`: weights and biases of query and key."""
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(self.scorer.state_dict(), folder / WEIGHTS)
