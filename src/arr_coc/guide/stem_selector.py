"""The selector of an allocator that was trained for one model: the cells of mode "sparse", without the model.

    StemSelector.load("bundled")("page.png", "What is the total?", budget=64) -> Allocation

It decides by what a stem sees in the pixels and by the word embeddings of the question, and needs the model's
tokenizer and embeddings, nothing else of it. Of a picture that is foreign to the stem the guide chooses, as
in mode "sparse".
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from arr_coc.choose.attending import DEFAULT_BUDGET, Budget, parse_budget
from arr_coc.choose.familiarity import GUIDED
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.layer_files import read_layer
from arr_coc.choose.stem import Stem, load_stem
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.atomic import one_line
from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.location import located
from arr_coc.files.paths import local_path
from arr_coc.files.question import check_question
from arr_coc.files.saved import BUNDLED, read_settings, reading
from arr_coc.guide.coupling import couple, view
from arr_coc.guide.print_evidence import check_channels, picture_inputs
from arr_coc.guide.realizing import Cues, Decision
from arr_coc.guide.selector import Selector, Sight, Sizing, checked_grid, image_pixels
from arr_coc.guide.store import load_guide
from arr_coc.guide.trust import is_general

EMBEDDINGS = "embed_tokens.weight"
"""How the name of the word embeddings ends in a model's safetensors."""


class StemSelector(Selector):
    """Chooses cells of a picture by a question, before any encoder, as an allocator learned it.

    Args:
        layer: trained scorers, balancer and allocator.
        stem: sees the cells in pixels.
        tokenizer: of the model whose word embeddings these are.
        embeddings: [V, D], word embeddings.
        sizing: how a picture becomes cells if a call doesn't say.
        relevance: "auto": the guide chooses where a picture is foreign to the stem or a question is about no
            place; "trained": the allocator always does.

    Raises:
        ValueError: parts of different widths, or another relevance.
    """

    def __init__(
        self,
        layer: ARRCOCLayer,
        stem: Stem,
        tokenizer: Tokenizer,
        embeddings: Tensor,
        sizing: Sizing,
        relevance: str = "auto",
    ) -> None:
        if relevance not in ("auto", "trained"):
            raise ValueError(f"relevance {relevance!r} is not of an allocator: use 'auto' or 'trained'")
        widths = {"layer": layer.config.dim, "stem": stem.dim, "embeddings": embeddings.shape[1]}
        if len(set(widths.values())) > 1:
            raise ValueError(f"the parts of a selector are of different widths ({widths}); use one model's")
        check_channels(layer.config.channels)
        self.layer, self.stem = layer.eval(), stem.eval()
        self.tokenizer, self.embeddings, self.sizing = tokenizer, embeddings, sizing
        self.relevance = relevance
        added = tokenizer.get_added_tokens_decoder().items()
        self._special = torch.tensor([i for i, token in added if token.special], dtype=torch.long)

    @classmethod
    def load(
        cls, folder: str | Path | None = None, base: str | Path | None = None, relevance: str = "auto"
    ) -> StemSelector:
        """Load from an allocator folder with a stem, and from its base model's folder words and sizes alone.

        Args:
            folder: of the allocator; "bundled" or None: the bundled one.
            base: folder of the base model; None: the one the allocator names.
            relevance: as of the class.

        Raises:
            ValueError: something is missing there or doesn't fit.
        """
        place = BUNDLED / "allocator" if folder in (None, BUNDLED.name) else local_path(folder)
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
        with reading(f"{str(model / 'tokenizer.json')!r} can't be read", "copy it again"):
            tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        return cls(layer, stem, tokenizer, _read_embeddings(model), Sizing.read(model), relevance)

    def cues(self, picture: ImageSource, question: str, grid: tuple[int, int] | None = None) -> Cues:
        """All that the choice is made by; arguments as in a call."""
        return self._cues(picture, question, grid)[0]

    @torch.no_grad()
    def decide(
        self,
        picture: ImageSource,
        question: str,
        budget: Budget = DEFAULT_BUDGET,
        grid: tuple[int, int] | None = None,
    ) -> Decision:
        """As of `Selector`; of a foreign picture the note says that the guide chose."""
        check_question(question)
        allowed = parse_budget(budget)
        cues, foreign = self._cues(picture, question, grid)
        decision = self._decided(cues, allowed)
        (allocation,) = decision.allocations
        if not foreign or allocation.void or allocation.kept == allocation.total:
            return decision
        note = GUIDED if allocation.note is None else f"{GUIDED}; {allocation.note}"
        return replace(decision, allocations=[replace(allocation, note=note)])

    def _cues(self, picture: ImageSource, question: str, grid: tuple[int, int] | None) -> tuple[Cues, bool]:
        """`cues`, and whether they are the guide's since the picture is foreign to the stem."""
        pixels, grid = self.pixels(picture, grid)
        query = self._query(question)
        mask = torch.ones(query.shape[:2], dtype=torch.bool)
        channels = self.layer.config.channels
        texture = generate_texture_array(pixels, grid, channels, **picture_inputs(channels, pixels[0]))
        cells = self.stem(pixels, grid)
        cues = Cues(texture, query, mask, cells.float())
        if self.relevance == "trained":
            return cues, False
        guide, familiarity = load_guide(), self.stem.familiarity
        foreign = familiarity is not None and bool(familiarity(cells[0]) > 0)
        if not foreign and not is_general(guide, question):
            return cues, False
        coupling = couple(guide, view(guide, image_pixels(picture)[0]), question, grid)
        return cues._replace(coupling=coupling.logits[None], guided=coupling), foreign

    def look(self, picture: ImageSource, grid: tuple[int, int] | None = None) -> Sight:
        """Refused: a stem sees a picture and the guide doesn't, so there is nothing to keep of one.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a selector that was trained for one model keeps nothing of a picture: use "
            "Selector.from_pretrained() to look at one ahead of its questions"
        )

    def pixels(
        self, picture: ImageSource, grid: tuple[int, int] | None = None
    ) -> tuple[Tensor, tuple[int, int]]:
        """The picture as the model would see it, float [1, 3, h, w] in [0, 1], and its grid.

        Args:
            picture: as in a call.
            grid: as in a call.
        """
        image = torch.from_numpy(np.asarray(open_image(picture)).copy()).permute(2, 0, 1)[None]
        grid = self.sizing.grid(*image.shape[-2:]) if grid is None else checked_grid(grid)
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
