"""Features of a vision encoder on a coarse view of a picture, for the texture group "components".

    coarse_features(adapter, inputs) -> per image [1, F, h, w]      the vision-language model's own
    VisionTower.from_pretrained("openai/clip-vit-base-patch32")(pictures [B, 3, h, w]) -> [B, F, h', w']

The basis of either is fitted once, on some hundred pictures, and saved where the user likes:

    fit_basis(tower(picture) for picture in pictures).save("basis.safetensors")
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.files.saved import reading
from arr_coc.seam.base import FamilyAdapter
from arr_coc.seam.features import VisualFeatures
from arr_coc.seam.gestalt import compress


def gestalt_features(gestalt: VisualFeatures) -> list[Tensor]:
    """The tokens of a gestalt as maps: per image [1, D, h, w], in their own dtype.

    Raises:
        ValueError: a clip of more than one frame among the images.
    """
    maps = []
    for image, (t, h, w) in enumerate(gestalt.grids):
        if t != 1:
            raise ValueError(f"image {image} is a clip of {t} merged frames; take the features of one frame")
        maps.append(gestalt.cell_tokens(image).T.unflatten(1, (h, w))[None])
    return maps


@torch.no_grad()
def coarse_features(adapter: FamilyAdapter, inputs: Mapping[str, Any]) -> list[Tensor]:
    """What a vision-language model's own encoder makes of a coarse view of each image of a call.

    The view is the gestalt of mode "saccade": the scaled-down picture of at most 256 cells, or, in a family
    whose tower takes one input size, the encoded cells averaged 2x2. A call that has a gestalt already passes
    it to `gestalt_features` and pays nothing.

    Args:
        adapter: of the model.
        inputs: processor inputs with still images.

    Returns:
        Per image [1, D, h, w], in the dtype of the model.

    Raises:
        ValueError: a clip among the images.
    """
    return gestalt_features(compress("resize" if adapter.sparse else "pool4", adapter, inputs))


class VisionTower:
    """A vision transformer of fixed input size, such as CLIP's or SigLIP's, as an encoder of coarse views.

    Args:
        model: a loaded transformers vision model: pixels in, `last_hidden_state` out, one token a patch in
            raster order, others (a class token, registers) before them.
        mean: per channel, of its image processor's normalisation.
        std: likewise.

    Raises:
        ValueError: its configuration doesn't say the sizes of images and patches.
    """

    def __init__(self, model: Any, mean: list[float], std: list[float]) -> None:
        config = model.config
        size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
        if not isinstance(size, int) or not isinstance(patch, int) or size < patch:
            raise ValueError(
                f"{config.model_type!r} is no vision tower of fixed input size (image_size {size}, "
                f"patch_size {patch}); use one such as CLIP's or SigLIP's"
            )
        self.model, self.size, self.side = model.eval().requires_grad_(False), size, size // patch
        self.mean, self.std = (torch.tensor(x, dtype=torch.float32).view(3, 1, 1) for x in (mean, std))

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str = "cpu") -> VisionTower:
        """Load a tower by its name on the Hub or its folder; of a model with two towers, the vision half.

        Only safetensors are read, and no code of the folder's is run.

        Raises:
            ValueError: no such model, no image processor beside it, or a model without such a tower.
        """
        from transformers import AutoImageProcessor, AutoModel

        with reading(
            f"{str(name)!r} can't be loaded as a vision tower",
            "give the name or the folder of a CLIP or SigLIP checkpoint in safetensors with its processor",
        ):
            processor = AutoImageProcessor.from_pretrained(str(name), trust_remote_code=False)
            model, report = AutoModel.from_pretrained(
                str(name), use_safetensors=True, trust_remote_code=False, output_loading_info=True
            )
            if lacking := sorted(report["missing_keys"]):
                raise ValueError(f"{len(lacking)} weights are missing, first {lacking[0]}")
        tower = getattr(model, "vision_model", model).to(device)
        return cls(tower, list(processor.image_mean), list(processor.image_std))

    @torch.no_grad()
    def __call__(self, pictures: Tensor) -> Tensor:
        """Features of pictures of one size.

        The whole picture is scaled to the tower's input, whatever its shape: the maps cover all of it.

        Args:
            pictures: float [B, 3, h, w] in [0, 1].

        Returns:
            Float32 [B, F, side, side], on the device of the pictures.

        Raises:
            ValueError: the tower gives fewer tokens than patches.
        """
        small = F.interpolate(
            pictures.float(), (self.size, self.size), mode="bilinear", align_corners=False, antialias=True
        )
        pixels = (small - self.mean.to(small)) / self.std.to(small)
        parameter = next(self.model.parameters())
        tokens = self.model(pixel_values=pixels.to(parameter)).last_hidden_state  # (B, n, F)
        patches = self.side**2
        if tokens.shape[1] < patches:
            raise ValueError(
                f"the tower gives {tokens.shape[1]} tokens for {patches} patches; use another one"
            )
        return tokens[:, -patches:].mT.unflatten(2, (self.side, self.side)).float().to(pictures.device)
