"""The user's own pictures in a call, and finer crops of them for families whose tower reads one square view.

    opened(adapter, inputs, pictures, encoded) -> what is known of a call's images, with those pictures
    with_crops(adapter, call) -> the call with crops among its inputs, and why it has none where it should

A session has its pictures; a caller of `generate` or `forward` passes them (`pictures`), for the processor's
pixels are those of the view alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from arr_coc.files.images import ImageSource, open_image
from arr_coc.seam.pixels import reading

if TYPE_CHECKING:
    from arr_coc.modes.call import Call, EncodedImages
    from arr_coc.modes.mode import Mode
    from arr_coc.seam import FamilyAdapter


def looks_at_crops(adapter: FamilyAdapter, mode: Mode) -> bool:
    """Whether a mode chooses cells of crops in this family, beside its view of the whole."""
    return adapter.encodes == "crops" and mode.before_encoder and mode.gestalt


def with_crops(adapter: FamilyAdapter, call: Call) -> tuple[Call, str | None]:
    """A call with the crops of its pictures, made once, where its mode looks at crops.

    Args:
        adapter: of the family.
        call: the call.

    Returns:
        The call, and what hinders crops; None where nothing does, or the mode looks at none.

    Raises:
        ValueError: pictures that aren't those of the prompt.
    """
    if not looks_at_crops(adapter, call.mode):
        return call, None
    with call.watch("prompt"):
        crops, lacks = crops_of(adapter, call.inputs, call.encoded)
    return replace(call, inputs={**call.inputs, **crops}), lacks


def crops_of(
    adapter: FamilyAdapter, inputs: Mapping[str, Any], encoded: EncodedImages
) -> tuple[Mapping[str, Tensor], str | None]:
    """The crops of a call's pictures as inputs, made once; none, and why, where something hinders them.

    Args:
        adapter: of a family that looks at crops.
        inputs: processor inputs.
        encoded: of these images, in a mode that looks at crops; its crops are filled in.

    Raises:
        ValueError: pictures that aren't those of the prompt.
    """
    pictures = encoded.sources
    lacks = adapter.lacks_crops(inputs, pictures)
    if lacks is not None or pictures is None:
        return {}, lacks
    if encoded.crops is None:
        encoded.crops = adapter.crops(inputs, pictures)
    return encoded.crops, None


def opened(
    adapter: FamilyAdapter,
    inputs: Mapping[str, Any],
    pictures: Sequence[ImageSource] | None,
    encoded: EncodedImages,
    frames: Sequence[int] = (),
) -> EncodedImages:
    """What is computed of a call's images already, with the pictures that its caller passes.

    The guide reads them at their own resolution, which the pixels of `inputs` may have lost.

    Raises:
        ValueError: pictures that aren't a list, or of another length than there are images, or one that
            can't be read, or pictures of a prompt with clips.
    """
    if pictures is None:
        return encoded
    if not isinstance(pictures, list | tuple):
        raise ValueError(
            f"pictures is a {type(pictures).__name__}: pass a list of images in the order of the prompt"
        )
    if frames:
        raise ValueError("pictures are passed, and the prompt has clips: leave them out, or ask in a session")
    early = adapter.early_layout
    with reading(adapter.model.config.model_type):
        images = len(adapter.layout(inputs).grids if early else adapter.patches(inputs, encoded.features))
    if len(pictures) != images:
        raise ValueError(f"{len(pictures)} pictures are passed, and the prompt has {images} images")
    return replace(encoded, sources=[open_image(picture) for picture in pictures])
