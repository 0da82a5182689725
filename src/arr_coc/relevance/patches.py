"""Relevance "retriever", "dense" and "index": compare vectors of patches with those of a question.

    open_relevance("retriever:vidore/colqwen2-v1.0-hf")       ColPali, ColQwen2, ColModernVBERT: one per token
    open_relevance("dense:google/siglip2-base-patch16-224")   CLIP, SigLIP, SigLIP 2, TIPSv2: one per question
    open_relevance("index:page.safetensors")                  vectors that a store of pages holds already
    IndexSource(vectors, questions)                           the same from Python

All three score a patch by the mean cosine of the question's vectors with it. None of them is calibrated:
their logits are cosines, good for ranking cells. `source.calibrate` finds the scale and bias with which they
can be added to those of other sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from arr_coc.files.paths import input_file, shorten
from arr_coc.files.saved import reading
from arr_coc.guide.coupling import Calibration, Coupling, sigmoid
from arr_coc.relevance.native import load_native, model_place, native_version, tensors_crc, to_image
from arr_coc.relevance.source import PictureView, cells_from_map

RETRIEVERS = {  # by model type, the classes of transformers with late interaction
    "colmodernvbert": "ColModernVBertForRetrieval",
    "colpali": "ColPaliForRetrieval",
    "colqwen2": "ColQwen2ForRetrieval",
}
PATCHES = "patches"  # the tensor of an index file that holds the picture's vectors; others bear questions


class Sureness(NamedTuple):
    """How a late-interaction score becomes a confidence that a picture holds what a question needs.

    The confidence is sigmoid(slope * (score - middle)); the score is that of `late_interaction`.
    """

    slope: float
    middle: float


TOKENS = Sureness(16.0, 0.6)  # of late interaction; a guess, which nobody has fitted
TEXTS = Sureness(40.0, 0.25)  # of dual encoders; a guess as well


class PatchView(NamedTuple):
    """The patch vectors of one picture."""

    size: tuple[int, int]  # (height, width) of the picture in px
    vectors: Tensor  # [h, w, D] of unit length; the patches divide the picture evenly

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes


class IndexSource:
    """Scores cells by patch vectors that you have already, such as those of a store for retrieval.

    Nothing is normalised over a picture or over questions, so a score doesn't depend on what else is scored.

    Args:
        vectors: patch vectors of the picture, [h, w, D], in rows from its top left; or a function from a
            picture, float [3, h, w] in [0, 1], to them. Leave out patches of a border that the model saw
            around it.
        questions: a function from a question to its vectors, [T, D], without those of a prefix or padding.
        name: shown in traces and tables.
        version: changes whenever the vectors may; None: a digest of the vectors, "1" for a function.
        sureness: how a score becomes the confidence.
        calibration: of the logits, from `source.calibrate`; None: not known.
    """

    def __init__(
        self,
        vectors: Tensor | Callable[[Tensor], Tensor],
        questions: Callable[[str], Tensor],
        name: str = "index",
        version: str | None = None,
        sureness: Sureness = TOKENS,
        calibration: Calibration | None = None,
    ) -> None:
        if version is None:
            version = f"{tensors_crc([vectors]):08x}" if isinstance(vectors, Tensor) else "1"
        self.vectors, self.questions = vectors, questions
        self.name, self.version, self.sureness = name, version, sureness
        self.calibration: Calibration | None = calibration

    @torch.no_grad()
    def view(self, picture: Tensor) -> PictureView:
        vectors = self.vectors if isinstance(self.vectors, Tensor) else self.vectors(picture)
        return PatchView((picture.shape[-2], picture.shape[-1]), self._units(vectors, "patches", "[h, w, D]"))

    @torch.no_grad()
    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, PatchView)
        vectors = self.questions(question)
        if vectors.ndim == 2 and not len(vectors):  # no word of its own
            return Coupling(torch.zeros(grid), 0.0)
        words = self._units(vectors, "a question", "[T, D]")
        if words.shape[-1] != view.vectors.shape[-1]:
            raise ValueError(
                f"relevance {self.name!r} has vectors of {view.vectors.shape[-1]} numbers for patches and of "
                f"{words.shape[-1]} for a question: take both from one model"
            )
        cosines = view.vectors @ words.T  # [h, w, T]
        logit = self.sureness.slope * (late_interaction(cosines) - self.sureness.middle)
        return Coupling(cells_from_map(cosines.mean(-1), grid), sigmoid(logit))

    def _units(self, vectors: Tensor, what: str, shape: str) -> Tensor:
        """Return vectors of unit length, float32 on the CPU; raise ValueError for a bad shape or value."""
        if vectors.ndim != shape.count(",") + 1 or not vectors.numel() or not is_finite(vectors):
            raise ValueError(
                f"relevance {self.name!r} has vectors {list(vectors.shape)} for {what}: give finite {shape}"
            )
        return F.normalize(vectors.detach().float().cpu(), dim=-1)


def is_finite(vectors: Tensor) -> bool:
    """Return whether all numbers are finite, in any format: torch can't tell for some of 8 bits."""
    return bool(vectors.float().isfinite().all())


def late_interaction(cosines: Tensor) -> float:
    """Return a picture's score, in [-1, 1], from cosines [h, w, T] of its patches with a question's vectors.

    It is the mean over the question's vectors of each one's best cosine with a patch.
    """
    return float(cosines.flatten(0, 1).amax(0).mean())


class RetrieverSource(IndexSource):
    """Scores cells by a late-interaction model of transformers: ColPali, ColQwen2 or ColModernVBERT.

    Only the question's own tokens count: begin tokens, the prompt's "Query: " and the tokens that expand it
    are as much about any other question.

    Args:
        model: a `...ForRetrieval` model, on any device.
        processor: its processor.
        name: shown in traces and tables.
        sureness: how a score becomes the confidence.
        calibration: of the logits, from `source.calibrate`; None: not known.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        name: str = "retriever",
        sureness: Sureness = TOKENS,
        calibration: Calibration | None = None,
    ) -> None:
        self.model, self.processor = model.eval(), processor
        super().__init__(
            self._patches, self._tokens, name, native_version(model, processor), sureness, calibration
        )

    def _patches(self, picture: Tensor) -> Tensor:
        image = to_image(picture)
        inputs = self.processor.process_images(images=[image], return_tensors="pt")
        inputs.pop("labels", None)  # ColPali's, of no suffix
        places = inputs["input_ids"][0] == self.processor.image_token_id  # before the inputs change devices
        vectors = self._embed(inputs)[places]
        if "image_grid_thw" in inputs:  # Qwen's: one token for each square of patches
            merged = self.processor.image_processor.merge_size
            _, rows, columns = inputs["image_grid_thw"][0].tolist()
            return vectors.view(rows // merged, columns // merged, -1)
        if inputs["pixel_values"].ndim == 5 and inputs["pixel_values"].shape[1] > 1:  # Idefics3's tiles
            tiles = self.processor.image_processor(
                images=[image], return_row_col_info=True, return_tensors="pt"
            )
            return join_tiles(vectors, int(tiles["rows"][0][0]), int(tiles["cols"][0][0]))
        return vectors.view(side := math.isqrt(len(vectors)), side, -1)

    def _tokens(self, question: str) -> Tensor:
        for mark in self.processor.tokenizer.all_special_tokens:  # an image's, for one, would want an image
            question = question.replace(mark, " ")
        bare = self.processor.process_queries([""], return_tensors="pt")["input_ids"][0].tolist()
        inputs = self.processor.process_queries([question], return_tensors="pt")
        return self._embed(inputs)[own_tokens(bare, inputs["input_ids"][0].tolist())]

    def _embed(self, inputs: Any) -> Tensor:
        return self.model(**inputs.to(self.model.device)).embeddings[0].cpu()


def own_tokens(bare: Sequence[int], whole: Sequence[int]) -> slice:
    """Return where a question's tokens are in a prompt, by its ids without (`bare`) and with the question."""
    least = min(len(bare), len(whole))
    first = next((i for i in range(least) if bare[i] != whole[i]), least)
    last = next((i for i in range(least - first) if bare[-1 - i] != whole[-1 - i]), least - first)
    return slice(first, len(whole) - last)


def join_tiles(vectors: Tensor, rows: int, columns: int) -> Tensor:
    """Put the patches [N, D] of a picture's square tiles, one tile after another, in their places: [h, w, D].

    Idefics3's processor adds a smaller picture of the whole at the end, which is left out. Tiles divide the
    picture evenly: the processor stretches it to whole ones and adds no border.
    """
    side = math.isqrt(len(vectors) // (rows * columns + 1))
    tiles = vectors[: rows * columns * side**2].view(rows, columns, side, side, -1)
    return tiles.transpose(1, 2).reshape(rows * side, columns * side, -1)


class DenseSource(IndexSource):
    """Scores cells by a dual encoder of transformers: CLIP, SigLIP, SigLIP 2 or TIPSv2, patch by text.

    Its patches live in the space of texts: CLIP's by the value path of the last layer's attention (MaskCLIP,
    Zhou et al. 2022, arXiv 2112.01071), SigLIP's by its pooling head, which sees each patch alone, TIPSv2's
    as they are. Only pictures as a whole have learned beside texts, and of some models the patches that show
    what a text says have the lowest cosines (CDPruner, arXiv 2506.10967, negates them): so the calibration is
    None until `source.calibrate` has found that the sign is right.

    Pictures are stretched to a square, except by SigLIP 2, which keeps their shape. Questions are cut to what
    the text encoder takes: 64 tokens, or CLIP's 77.

    Args:
        model: a `CLIPModel`, `SiglipModel`, `Siglip2Model` or `Tipsv2Model`, on any device.
        processor: its processor.
        name: in traces and tables.
        sureness: of the confidence; None: SigLIP's own scale and bias, `TEXTS` for others.
        calibration: of the logits, from `source.calibrate`; None: not known.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        name: str = "dense",
        sureness: Sureness | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.kind = model.config.model_type
        if self.kind not in ENCODERS:
            raise ValueError(
                f"model {type(model).__name__!r} is no dual encoder for 'dense': use {', '.join(ENCODERS)}"
            )
        self.model, self.processor = model.eval(), processor
        super().__init__(
            self._patches,
            self._text,
            name,
            native_version(model, processor),
            sureness or _own_sureness(model),
            calibration,
        )

    def _patches(self, picture: Tensor) -> Tensor:
        side = self.model.config.vision_config.image_size if self.kind == "clip" else 0
        whole = {"do_center_crop": False, "size": {"height": side, "width": side}} if side else {}
        inputs = self.processor.image_processor(images=[to_image(picture)], return_tensors="pt", **whole)
        return ENCODERS[self.kind](self.model, inputs.to(self.model.device)).cpu()

    def _text(self, question: str) -> Tensor:
        most = self.model.config.text_config.max_position_embeddings
        inputs = self.processor.tokenizer(
            [question], padding="max_length", truncation=True, max_length=most, return_tensors="pt"
        ).to(self.model.device)
        # SigLIP learned with padding that is attended to.
        masked = {} if self.kind.startswith("siglip") else {"attention_mask": inputs["attention_mask"]}
        return self.model.get_text_features(input_ids=inputs["input_ids"], **masked).pooler_output.cpu()


def _clip_patches(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    tower = model.vision_model
    states = tower(pixel_values=inputs["pixel_values"], output_hidden_states=True).hidden_states[-2]
    last = tower.encoder.layers[-1]
    states = states + last.self_attn.out_proj(last.self_attn.v_proj(last.layer_norm1(states)))
    states = states + last.mlp(last.layer_norm2(states))
    return _on_grid(model, inputs, model.visual_projection(tower.post_layernorm(states))[0, 1:])


def _siglip_patches(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    states = model.vision_model(pixel_values=inputs["pixel_values"]).last_hidden_state[0]
    return _on_grid(model, inputs, model.vision_model.head(states[:, None]))


def _siglip2_patches(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    rows, columns = inputs["spatial_shapes"][0].tolist()  # padding comes after them
    states = model.vision_model(**inputs).last_hidden_state[0, : rows * columns]
    return model.vision_model.head(states[:, None]).view(rows, columns, -1)


def _tips_patches(model: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    states = model.vision_model(pixel_values=inputs["pixel_values"]).last_hidden_state[0]
    return _on_grid(model, inputs, states[1 + model.config.vision_config.num_register_tokens :])


def _on_grid(model: Any, inputs: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
    patch = model.config.vision_config.patch_size
    height, width = (patch, patch) if isinstance(patch, int) else patch
    pixels = inputs["pixel_values"].shape[-2:]
    return vectors.view(pixels[0] // height, pixels[1] // width, -1)


# By model type, the function that encodes a picture's patches, [h, w, D], in the space of texts.
ENCODERS: dict[str, Callable[[Any, Mapping[str, Tensor]], Tensor]] = {
    "clip": _clip_patches,
    "siglip": _siglip_patches,
    "siglip2": _siglip2_patches,
    "tipsv2": _tips_patches,
}


DUAL = dict.fromkeys(ENCODERS, "AutoModel")  # by model type, the class of transformers


def _own_sureness(model: Any) -> Sureness:
    """Return the sureness of a dual encoder: SigLIP's own scale and bias, for other models `TEXTS`."""
    if not hasattr(model, "logit_bias"):
        return TEXTS
    slope = float(model.logit_scale.detach().exp())
    return Sureness(slope, -float(model.logit_bias.detach()) / slope)


# By name.


def open_retriever(argument: str = "") -> RetrieverSource:
    """Open the source "retriever:NAME", a model folder or a name on the Hub."""
    return RetrieverSource(
        *load_native(*model_place("retriever", argument, "vidore/colqwen2-v1.0-hf"), RETRIEVERS)
    )


def open_dense(argument: str = "") -> DenseSource:
    """Open the source "dense:NAME", a model folder or a name on the Hub."""
    return DenseSource(*load_native(*model_place("dense", argument, "google/siglip2-base-patch16-224"), DUAL))


def open_index(argument: str = "") -> IndexSource:
    """Open the source "index:FILE.safetensors": the vectors of one picture and of questions about it.

    The tensor "patches", [h, w, D], is the picture's; every other, [T, D], belongs to the question that is
    its name. A file can't encode other questions, so those are refused.
    """
    remedy = 'save {"patches": [h, w, D], "What is the total?": [T, D]}, float, as FILE.safetensors'
    if not argument:
        raise ValueError(f"relevance 'index' needs a file, index:FILE.safetensors: {remedy}")
    path = input_file(argument)
    with reading(f"index {shorten(path)} can't be read", remedy):
        tensors = load_file(path)
    patches = tensors.pop(PATCHES, None)
    if patches is None or patches.ndim != 3:
        raise ValueError(f"index {shorten(path)} has no tensor 'patches' of [h, w, D]: {remedy}")
    return IndexSource(
        patches, _Questions(path, tensors), version=f"{tensors_crc([patches, *tensors.values()]):08x}"
    )


class _Questions:
    """A function from a question to its stored vectors."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path, self.tensors = path, {name.strip(): tensor for name, tensor in tensors.items()}

    def __call__(self, question: str) -> Tensor:
        try:
            return self.tensors[question.strip()]
        except KeyError:
            raise ValueError(
                f"index {shorten(self.path)} has no vectors of the question {shorten(question)}: "
                "add a tensor [T, D] of that name"
            ) from None
