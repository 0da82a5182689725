"""The processor's half of the plugin: it asks for the cells of each image and hands on those patches alone.

vLLM keeps what a processor made, what the encoder made of it and the prefixes of prompts under hashes of
images. Here a result depends on the question too, so each image's hash takes in the question that decides
its cells, the settings, and name and version of the source of relevance; nothing of the rest of the prompt,
so that later turns of a conversation still hit. vLLM's own hash of an image is made once for a request, and
names the image in our choices, too. An image is cut into patches once, and only if somebody looks at it or
vLLM has no result for it. It is expanded to as many placeholder tokens as cells are kept. Where the worker
chooses (`worker`), all patches go on, with the question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from transformers import BatchFeature
from vllm.inputs import MultiModalHashes
from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLMultiModalProcessor
from vllm.model_executor.models.qwen2_vl import Qwen2VLMultiModalProcessor
from vllm.model_executor.models.qwen3_vl import Qwen3VLMultiModalProcessor
from vllm.multimodal.hasher import MultiModalHasher
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems
from vllm.multimodal.parse import ImageProcessorItems, MultiModalDataItems
from vllm.multimodal.processing import ProcessorInputs, PromptReplacement, PromptUpdate

from arr_coc.seam.pixels import LEVELS, patch_rows, undo_normalisation
from arr_coc.seam.prompt import special_tokens, template_markers
from arr_coc_vllm import metrics
from arr_coc_vllm.choosing import Chooser, Pictured, Reading, chooser_for
from arr_coc_vllm.conversation import Marks, questions, split
from arr_coc_vllm.settings import KEY, Settings, read_settings
from arr_coc_vllm.worker import (
    COUNT,
    KEEP,
    NAME,
    NAME_BYTES,
    NUMBER,
    QUESTION,
    in_worker,
    name_of,
    picture_of,
)

SHAPES = ("patch_size", "temporal_patch_size", "merge_size", "pooling_kernel_size")
"""Keyword arguments of image processors that a model has in its weights: others end vLLM's engine."""
CHOICE = "arr_coc_choice"
"""Among the keyword arguments of a processor: per image what decides its cells."""
TURN = ("<|im_start|>", "<|im_end|>")
"""The tokens that open and close a turn, of Qwen."""


if TYPE_CHECKING:
    Base = Qwen3VLMultiModalProcessor
else:
    Base = object


class Prepared(NamedTuple):
    """What is handed on of an image: patches, and the fields of `worker`."""

    rows: Tensor
    keep: Tensor  # long [K]; empty where the worker chooses, of all patches
    count: int
    number: int = 0
    question: bytes = b""
    name: bytes = bytes(NAME_BYTES)


class Processed:
    """An image as the model's own processor has it, processed when somebody asks, and once.

    Args:
        process: returns its fields.
    """

    def __init__(self, process: Callable[[], BatchFeature]) -> None:
        self.process = process

    @cached_property
    def fields(self) -> BatchFeature:
        """As the processor returns them, of this image alone."""
        return self.process()

    @property
    def patches(self) -> tuple[int, int]:
        """How many, down and across."""
        _, h, w = self.fields["image_grid_thw"][0].tolist()
        return h, w


class Looked(NamedTuple):
    """An image of a request: by what its cells are chosen, and its patches."""

    reading: Reading
    processed: Processed


class Choices(NamedTuple):
    """What a request's keyword arguments hold of ours: vLLM's own hashes by modality, and its images."""

    hashes: MultiModalHashes
    images: list[Looked]


class SelectingProcessor(Base):
    """What is mixed in before one of vLLM's processors: of its patches only those of chosen cells go on.

    Attributes:
        turn: the tokens that open and close a turn.
        roles: tokens that open the turn of a role, and that role.
        media: settings of the model that hold the ids of tokens around images and clips.
        switches: what chat templates write beside a user's words, without being special tokens.
    """

    turn: tuple[str, str] | None = TURN
    roles: Mapping[str, str] = {}
    media: tuple[str, ...] = ("video_token_id", "vision_start_token_id", "vision_end_token_id")
    switches: tuple[str, ...] = ()
    processing = threading.Lock()

    @cached_property
    def settings(self) -> Settings:
        """Of the server."""
        return read_settings(getattr(self.info.ctx.model_config.hf_config, KEY, None))

    @property
    def chooser(self) -> Chooser:
        """What chooses, shared by all requests of this process."""
        return chooser_for(self.settings)

    @cached_property
    def in_worker(self) -> bool:
        """Whether cells are chosen by the worker, where the budget of a request allows it."""
        return in_worker(self.settings, self.info.ctx.model_config)

    def apply(self, inputs: ProcessorInputs, *args: Any, **more: Any) -> Any:
        """As vLLM's, after what decides about each image was put among the keyword arguments.

        Raises:
            ValueError: a video, or settings of the request that are wrong or that the model can't follow.
        """
        plain = dict(inputs.hf_processor_mm_kwargs)
        _check_shapes(plain)
        settings = self.settings.merged(plain.pop(KEY, None))
        plain.pop(CHOICE, None)  # is nobody's to ask for
        if inputs.mm_data_items.get("video"):
            raise ValueError("arr-coc can't choose in videos yet: send images, or serve without the plugin")
        images = inputs.mm_data_items.get("image")
        try:
            if isinstance(images, ImageProcessorItems) and len(images):
                if any(image is None for image in images.get_all()):
                    raise ValueError("arr-coc chooses by the image itself: send it along with its uuid")
                hashes = super()._get_mm_hashes(replace(inputs, hf_processor_mm_kwargs=plain))
                looked = self.looked(inputs.prompt, images, hashes["image"], settings, plain)
                plain = {**plain, CHOICE: Choices(hashes, looked)}  # the images keep the one without
            return super().apply(replace(inputs, hf_processor_mm_kwargs=plain), *args, **more)
        except ArithmeticError as error:  # of sizes such as 0, which vLLM would call its own fault
            raise ValueError(
                f"the sizes in mm_processor_kwargs fit no image ({error}): leave them out"
            ) from error

    def looked(
        self,
        prompt: Sequence[int],
        images: ImageProcessorItems,
        names: Sequence[str],
        settings: Settings,
        kwargs: Mapping[str, object],
    ) -> list[Looked]:
        """Per image by what its cells are chosen; `names` are vLLM's own."""
        text = self.info.get_tokenizer().decode(list(prompt), skip_special_tokens=False)
        texts = questions(split(text, self.marks))
        texts += [[] for _ in range(len(images) - len(texts))]  # a prompt without placeholders fails later

        def look(i: int) -> Looked:
            picture, processed = self.pictured(images, i, names[i], kwargs)
            return Looked(self.chooser.reading(picture, texts[i], settings), processed)

        return self.chooser.each(look, range(len(images)))

    def pictured(
        self, images: ImageProcessorItems, i: int, name: str, kwargs: Mapping[str, object]
    ) -> tuple[Pictured, Processed]:
        """What the cells of an image are chosen from, and its patches; neither is made yet."""
        processed = Processed(partial(self._process, images, i, kwargs))
        opening = partial(self.picture, images.get(i), processed)
        return Pictured(name, self._grid(images, i, kwargs), opening), processed

    def _process(self, images: ImageProcessorItems, i: int, kwargs: Mapping[str, object]) -> BatchFeature:
        """The fields of one image of a request, by vLLM's processor, which no two threads may be in."""
        one = MultiModalDataItems({"image": ImageProcessorItems([images.get(i)])})
        with self.processing:
            return super()._apply_hf_processor_main(one, kwargs)

    def picture(self, image: Any, processed: Processed) -> Any:
        """What the cells of an image are chosen from: the picture as the model reads it, uint8 [3, h, w].

        Another source of relevance than the guide has the request's own picture: boxes may be in its pixels.
        """
        if not self.settings.guided:
            return image
        return self.picture_of(processed.fields["pixel_values"], processed.patches)

    def picture_of(self, rows: Tensor, patches: tuple[int, int]) -> Tensor:
        """The picture that the model reads, uint8 [3, h, w], of all patches [h * w, values] of an image."""
        picture = picture_of(rows, patches, self.info.get_hf_config().vision_config)
        if picture.dtype == torch.uint8:  # normalised by the model
            return picture
        processor = self.info.get_image_processor()
        mean, std = (torch.tensor(x).view(3, 1, 1) for x in (processor.image_mean, processor.image_std))
        (levels,) = undo_normalisation([picture.float()], mean, std)
        return levels.mul(LEVELS).round().to(torch.uint8)

    def _grid(self, images: ImageProcessorItems, i: int, kwargs: Mapping[str, object]) -> tuple[int, int]:
        """(H, W) cells of an image after it was resized."""
        width, height = images.get_image_size(i)
        resized, _ = self.info._get_vision_info(
            image_width=width,
            image_height=height,
            image_processor=self.info.get_image_processor(**kwargs),
            mm_kwargs=kwargs,
            modality="image",
        )
        vision = self.info.get_hf_config().vision_config
        cell = vision.patch_size * vision.spatial_merge_size
        return resized.height // cell, resized.width // cell

    @cached_property
    def marks(self) -> Marks:
        """What the structure of a prompt is read by, looked up once, not per request."""
        tokenizer, config = self.info.get_tokenizer(), self.info.get_hf_config()
        names = ("image_token_id", *self.media)
        image, *media = tokenizer.convert_ids_to_tokens([getattr(config, name) for name in names])
        special = {image, *media, *tokenizer.convert_ids_to_tokens(sorted(special_tokens(tokenizer)))}
        start, end = (mark if mark in tokenizer.get_vocab() else None for mark in self.turn or (None, None))
        markers = template_markers(self.info.get_hf_processor())
        return Marks(image, {*special, *self.switches}, start, end, markers, self.roles)

    def _get_mm_hashes(self, inputs: ProcessorInputs) -> MultiModalHashes:
        plain, choices = parted(inputs.hf_processor_mm_kwargs)
        if choices is None:
            return super()._get_mm_hashes(replace(inputs, hf_processor_mm_kwargs=plain))
        algorithm, source = self.info.ctx.get_mm_config().mm_hasher_algorithm, self.chooser.source
        own = [
            MultiModalHasher.hash_kwargs(
                algorithm,
                image=reading.picture.name,
                question=reading.question or "",
                settings=reading.settings.print(),
                source=source,
            )
            for reading, _ in choices.images
        ]
        return {**choices.hashes, "image": own}

    def _get_cache_missing_processor_kwargs(
        self, inputs: ProcessorInputs, mm_is_cached: Mapping[str, list[bool]]
    ) -> Mapping[str, object]:
        plain, choices = parted(inputs.hf_processor_mm_kwargs)
        inner = super()._get_cache_missing_processor_kwargs(
            replace(inputs, hf_processor_mm_kwargs=plain), mm_is_cached
        )
        if choices is None:
            return inner
        hits = mm_is_cached.get("image", [])
        missing = [one for one, hit in zip(choices.images, hits, strict=True) if not hit]
        return {**inner, CHOICE: choices._replace(images=missing)}

    def _looked_at(self, images: ImageProcessorItems, kwargs: Mapping[str, object]) -> list[Looked]:
        """The images of nobody's request, by which a server measures its memory at the start."""
        pairs = [self.pictured(images, i, "", kwargs) for i in range(len(images))]
        return [Looked(Reading(None, self.settings, picture), processed) for picture, processed in pairs]

    def _apply_hf_processor_main(
        self, mm_items: MultiModalDataItems, hf_kwargs: Mapping[str, object]
    ) -> BatchFeature:
        plain, choices = parted(hf_kwargs)
        images = mm_items.get("image")
        if not isinstance(images, ImageProcessorItems) or not len(images):
            return super()._apply_hf_processor_main(mm_items, plain)
        looked = self._looked_at(images, plain) if choices is None else choices.images
        items = self.chooser.each(self._prepared, looked)
        grids = [processed.fields["image_grid_thw"] for _, processed in looked]
        made = BatchFeature({"image_grid_thw": torch.cat(grids)})  # the rest is of a text that nobody wrote
        made["pixel_values"] = torch.cat([item.rows for item in items])
        made[KEEP] = torch.cat([item.keep for item in items])
        made[COUNT] = torch.tensor([item.count for item in items])
        made[NUMBER] = torch.tensor([item.number for item in items])
        made[QUESTION] = [torch.tensor(list(item.question), dtype=torch.uint8) for item in items]
        made[NAME] = torch.tensor([list(item.name) for item in items], dtype=torch.uint8)
        return made

    def _prepared(self, looked: Looked) -> Prepared:
        """What is handed on of an image."""
        (reading, processed), side = looked, self.info.get_hf_config().vision_config.spatial_merge_size
        rows, patches, unit = processed.fields["pixel_values"], processed.patches, side**2
        total = len(rows) // unit
        question, settings, picture, _ = reading
        count = settings.count(total)
        sparse = question is not None and settings.mode == "sparse" and count is not None and count < total
        if self.in_worker and sparse:  # also of a conversation: under one name is what one process chose
            metrics.count_image(total, count)
            name = name_of(picture.name, patches, question, count)
            return Prepared(rows, torch.empty(0, dtype=torch.long), count, 0, question.encode(), name)
        keep, number = self.chooser.choose(reading.on((patches[0] // side, patches[1] // side)))
        return Prepared(rows[patch_rows(keep, unit)], keep, len(keep), number)

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        fields = dict(super()._get_mm_fields_config(hf_inputs, parted(hf_processor_mm_kwargs)[0]))
        if COUNT in hf_inputs:
            unit = self.info.get_hf_config().vision_config.spatial_merge_size ** 2
            counts, grids = hf_inputs[COUNT], hf_inputs["image_grid_thw"]
            open_ = torch.tensor([len(question) > 0 for question in hf_inputs[QUESTION]])
            rows = torch.where(open_, grids.prod(-1), counts * unit)
            fields["pixel_values"] = MultiModalFieldConfig.flat_from_sizes("image", rows)
            kept = counts.masked_fill(open_, 0)
            fields[KEEP] = MultiModalFieldConfig.flat_from_sizes("image", kept, keep_on_cpu=True)
            for name in (COUNT, NUMBER, QUESTION, NAME):
                fields[name] = MultiModalFieldConfig.batched("image", keep_on_cpu=True)
        return fields

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, Any],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        updates = super()._get_prompt_updates(mm_items, parted(hf_processor_mm_kwargs)[0], out_mm_kwargs)
        token = self.info.get_hf_config().image_token_id

        def placeholders(i: int) -> list[int]:
            return [token] * int(out_mm_kwargs["image"][i][COUNT].data)

        items = out_mm_kwargs.get("image") or []
        if not all(COUNT in item for item in items):
            return updates
        others = [update for update in updates if update.modality != "image"]
        return [PromptReplacement(modality="image", target=[token], replacement=placeholders), *others]


def _check_shapes(kwargs: Mapping[str, object]) -> None:
    """Check that a request doesn't ask for patches of another shape than the model's.

    Raises:
        ValueError: it does.
    """
    inner = kwargs.get("images_kwargs")
    names = {*kwargs, *(inner if isinstance(inner, Mapping) else ())}
    if wrong := [name for name in SHAPES if name in names]:
        raise ValueError(f"mm_processor_kwargs has {wrong[0]!r}, which is the model's: leave it out")


class Qwen2Processor(SelectingProcessor, Qwen2VLMultiModalProcessor):
    """For Qwen2-VL."""


class Qwen2_5Processor(SelectingProcessor, Qwen2_5_VLMultiModalProcessor):
    """For Qwen2.5-VL."""


class Qwen3Processor(SelectingProcessor, Qwen3VLMultiModalProcessor):
    """For Qwen3-VL and Qwen3.5."""


def parted(kwargs: Mapping[str, object]) -> tuple[dict[str, object], Choices | None]:
    """Keyword arguments without ours, and ours."""
    plain = dict(kwargs)
    choices: Any = plain.pop(CHOICE, None)
    return plain, choices
