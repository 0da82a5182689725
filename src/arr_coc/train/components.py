"""The basis of the channels "components": principal components of what an encoder sees in coarse views.

    layer.basis = fit_coarse_basis(model, pictures)

Training fits one on the first pictures of its run where a layer has none; it is saved with the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.texture import Basis, fit_basis
from arr_coc.model import ARRCOCModel
from arr_coc.modes.scoring import wanted_inputs
from arr_coc.seam.gestalt import coarse_features
from arr_coc.session import Session, VisualSource

PICTURES = 100
"""Pictures of a run that its basis is fitted on."""


def fit_coarse_basis(model: ARRCOCModel, pictures: Iterable[VisualSource]) -> Basis:
    """Fit the basis of a model's encoder on the coarse views that the modes make of pictures.

    Args:
        model: with a processor; its own layer plays no part.
        pictures: some hundred, whatever `open_image` takes.

    Raises:
        ValueError: no picture, or one that can't be read.
    """
    return fit_basis(_views(model, pictures), source=model.base_name)


def needs_basis(layer: ARRCOCLayer) -> bool:
    """Whether a layer's channels need a basis that it has not."""
    return layer.basis is None and "basis" in wanted_inputs(layer.config.channels)


@torch.no_grad()
def _views(model: ARRCOCModel, pictures: Iterable[VisualSource]) -> Iterator[Tensor]:
    """The encoder's features of the coarse view of each picture."""
    for picture in pictures:
        yield from coarse_features(model.adapter, Session(model, picture).inputs("?"))
