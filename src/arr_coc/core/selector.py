"""Selector: from a picture and a question to the cells that matter, with no vision-language model anywhere.

    selector = Selector.from_pretrained()
    selector("page.png", "What is the total?", budget=64) -> Allocation

What a server's front end calls, before any encoder: it needs torch, a tokenizer and a few megabytes of
weights. It decides by what a stem sees in the pixels and by the word embeddings of the question, as mode
"sparse" does, and keeps the same cells.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from arr_coc.core.allocation import Allocation
from arr_coc.core.attending import Budget, budget_of, parse_budget
from arr_coc.core.images import ImageSource, open_image
from arr_coc.core.layer import ARRCOCLayer
from arr_coc.core.location import located
from arr_coc.core.paths import local_path
from arr_coc.core.question import check_question
from arr_coc.core.realizing import Cues, Stopwatch, decide
from arr_coc.core.saved import BUNDLED, one_line, read_layer, read_settings
from arr_coc.core.stem import Stem, load_stem
from arr_coc.core.texture import generate_texture_array

EMBEDDINGS = "embed_tokens.weight"
"""How the name of the word embeddings ends in a model's safetensors."""


class Sizing:
    """How a picture becomes cells: the size in px that the model's image processor gives it.

    Qwen-VL's rule: each side a whole number of cells, the shape kept as far as that allows, and the number of
    pixels within bounds.

    Args:
        cell: px along each side of a cell.
        least: fewest pixels of a picture.
        most: most pixels.
    """

    def __init__(self, cell: int = 32, least: int = 64 * 64, most: int = 2048 * 2048) -> None:
        self.cell, self.least, self.most = cell, least, most

    @classmethod
    def read(cls, folder: Path) -> Sizing:
        """Of the `processor_config.json` or `preprocessor_config.json` of a model folder.

        Raises:
            ValueError: neither is there, or it says nothing of cells.
        """
        for name in ("processor_config.json", "preprocessor_config.json"):
            if (folder / name).is_file():
                break
        else:
            raise ValueError(f"{str(folder)!r} has no processor_config.json: give the folder of a model")
        try:
            settings = json.loads((folder / name).read_text(encoding="utf-8"))
            settings = settings.get("image_processor", settings)
            size = settings["size"]
            cell = int(settings["patch_size"]) * int(settings["merge_size"])
            return cls(cell, int(size["shortest_edge"]), int(size["longest_edge"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{str(folder / name)!r} doesn't say how large cells are ({one_line(error)}); pass `grid`"
            ) from error

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """(H, W) cells of a picture of height x width px."""
        sides = [round(side / self.cell) for side in (height, width)]  # 0 counts as too few pixels
        pixels = sides[0] * sides[1] * self.cell**2
        if self.least <= pixels <= self.most:
            return sides[0], sides[1]
        bound, rounding = (self.most, math.floor) if pixels > self.most else (self.least, math.ceil)
        scale = math.sqrt(bound / (height * width))
        h, w = (max(1, rounding(side * scale / self.cell)) for side in (height, width))
        return h, w


class Selector:
    """Chooses cells of a picture by a question, before any encoder.

    Args:
        layer: trained scorers, balancer and allocator.
        stem: sees the cells in pixels.
        tokenizer: of the model whose word embeddings these are.
        embeddings: [V, D], word embeddings.
        sizing: how a picture becomes cells if a call doesn't say.

    Raises:
        ValueError: parts of different widths.
    """

    def __init__(
        self, layer: ARRCOCLayer, stem: Stem, tokenizer: Tokenizer, embeddings: Tensor, sizing: Sizing
    ) -> None:
        widths = {"layer": layer.config.dim, "stem": stem.dim, "embeddings": embeddings.shape[1]}
        if len(set(widths.values())) > 1:
            raise ValueError(f"the parts of a selector are of different widths ({widths}); use one model's")
        self.layer, self.stem = layer.eval(), stem.eval()
        self.tokenizer, self.embeddings, self.sizing = tokenizer, embeddings, sizing
        added = tokenizer.get_added_tokens_decoder().items()
        self._special = torch.tensor([i for i, token in added if token.special], dtype=torch.long)

    @classmethod
    def from_pretrained(cls, folder: str | Path | None = None, base: str | Path | None = None) -> Selector:
        """Load from an allocator folder with a stem, and from its base model's folder words and sizes alone.

        Args:
            folder: of the allocator; None: the bundled one.
            base: folder of the base model; None: the one the allocator names.

        Raises:
            ValueError: something is missing there or doesn't fit.
        """
        place = BUNDLED / "allocator" if folder is None else local_path(folder)
        layer = read_layer(place)
        stem = load_stem(place, layer.config.dim)
        if stem is None or not layer.trained:
            lacks = "a trained layer" if stem is not None else "a stem (stem.safetensors)"
            raise ValueError(
                f"the allocator {str(place)!r} has not {lacks}, so it can't choose without its model: train "
                "one with `arr-coc train stem`, or use ARRCOCModel"
            )
        settings = read_settings(place)
        name = (settings["base_model"] and located(settings, place)) if base is None else str(base)
        model = BUNDLED / "model" if name == BUNDLED.name else local_path(name or "")
        if not (model / "tokenizer.json").is_file():
            raise ValueError(
                f"the base model {name!r} of the allocator is no folder here with a tokenizer.json: give the "
                "folder of its files as `base`"
            )
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        return cls(layer, stem, tokenizer, _read_embeddings(model), Sizing.read(model))

    @torch.no_grad()
    def __call__(
        self,
        picture: ImageSource,
        question: str,
        budget: Budget = 64,
        grid: tuple[int, int] | None = None,
    ) -> Allocation:
        """Choose the cells that matter to a question.

        Args:
            picture: whatever `open_image` takes: a path, bytes, a file object, pixels, a PIL image.
            question: any text.
            budget: cells to keep: a count (at most all are kept), a fraction or "auto".
            grid: (H, W) cells; None: as the base model's image processor cuts the picture.

        Raises:
            ValueError: a picture that can't be read, a question without words, or a bad budget.
        """
        check_question(question)
        allowed = parse_budget(budget)
        pixels, grid = self.pixels(picture, grid)
        allowed = budget_of(allowed, None, grid[0] * grid[1])
        query = self._query(question)
        mask = torch.ones(query.shape[:2], dtype=torch.bool)
        texture = generate_texture_array(pixels, grid, self.layer.config.channels)
        vision = self.stem(pixels, grid).float()
        watch = Stopwatch(pixels.device)
        cues = [Cues(texture, query, mask, vision)]
        return decide(self.layer, cues, [(1, *grid)], [allowed], watch).allocations[0]

    def pixels(
        self, picture: ImageSource, grid: tuple[int, int] | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        """The picture as the model would see it, float [1, 3, h, w] in [0, 1], and its grid.

        Args:
            picture: as in a call.
            grid: as in a call.
        """
        image = torch.from_numpy(np.asarray(open_image(picture)).copy()).permute(2, 0, 1)[None]
        grid = self.sizing.grid(*image.shape[-2:]) if grid is None else grid
        size = (grid[0] * self.sizing.cell, grid[1] * self.sizing.cell)
        if image.shape[-2:] != size:  # on bytes, as image processors do
            image = F.interpolate(image, size, mode="bicubic", antialias=True, align_corners=False)
        normal = (image.float() / 255 - 0.5) / 0.5  # and back: what a normalised picture is recovered to
        return normal.mul(0.5).add(0.5).clamp(0.0, 1.0), grid

    def _query(self, question: str) -> Tensor:
        """Word embeddings of a question's content tokens, float [1, L, D]."""
        encoding = self.tokenizer.encode(question, add_special_tokens=False)
        ids = torch.tensor(encoding.ids, dtype=torch.long)
        words = torch.tensor([not question[a:b].isspace() for a, b in encoding.offsets], dtype=torch.bool)
        content = words & ~torch.isin(ids, self._special)
        if not bool(content.any()):
            raise ValueError(f"the question {question!r} has no words that the tokenizer knows; rephrase it")
        return self.embeddings[ids[content]][None].float()


def _read_embeddings(model: Path) -> Tensor:
    """The word embeddings [V, D] of a model folder."""
    for path in sorted(model.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.endswith(EMBEDDINGS)]
                if names:
                    return file.get_tensor(names[0])
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{str(path)!r} can't be read ({one_line(error)}); copy it again") from error
    raise ValueError(f"{str(model)!r} has no word embeddings (*.{EMBEDDINGS} in its *.safetensors)")
