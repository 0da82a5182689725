"""Textures: the channels of each image of a call, from all that the call knows.

    make = TextureMaker(adapter, layer, inputs, encoded, layout, frames)
    make(0) -> [1, C, H, W]

A channel group gets what it needs or reads where a call can know it:

    image, text_evidence    of each picture
    previous_frames         the steps of a clip before it, at most 8; none before its first, or before a still
    relevance_history       of these steps, as the layer itself found it for the same question
    attention_history       where the questions of a conversation's earlier turns looked, of those that the
                            session answered by choosing
    coarse_features, basis  the gestalt of the modes, and the basis that was fitted for the layer
    features                the encoded cells, in modes that encode all of them

What follows from the picture alone is made once, whatever is asked (`TextureCache`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.motion import FRAMES
from arr_coc.choose.texture import Channels, TextureCache, channel_groups, generate_texture_array
from arr_coc.guide.guide import picture_inputs
from arr_coc.seam import FamilyAdapter, Layout
from arr_coc.seam.gestalt import coarse_features

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arr_coc.modes.call import EncodedImages
    from arr_coc.modes.mode import Mode

OF_PICTURE = frozenset({"image", "text_evidence", "previous_frames"})
"""What stays the same of an image of a session, or of a step of its clip, whatever is asked."""
MADE = frozenset({"text_evidence", "previous_frames", "coarse_features", "features"})
"""What a call can always make for a group that can't do without, beside the layer's own basis."""


def wanted_inputs(channels: Channels) -> frozenset[str]:
    """The optional inputs that some group of the channels needs or reads."""
    groups = channel_groups(channels)
    return frozenset(name for group in groups for name in (*group.needs, *group.reads))


def check_layer(layer: ARRCOCLayer) -> None:
    """Raise a ValueError where a channel group of a layer needs what no mode can know.

    A map of earlier relevance or attention is nothing that a first question has; groups that read one where
    it is at hand do without.
    """
    made = MADE if layer.basis is None else MADE | {"basis"}
    for group in channel_groups(layer.config.channels):
        lacking = sorted({*group.needs} - made)
        if lacking == ["basis"]:
            raise ValueError(
                f"channel group {group.name!r} needs a basis of the encoder's features, which the layer has "
                "not: train the layer, which fits one, or set layer.basis to fit_coarse_basis(model, "
                "pictures) of arr_coc.train.learner"
            )
        if lacking:
            raise ValueError(
                f"channel group {group.name!r} needs {' and '.join(lacking)}, which no mode can know of a "
                "first question: let the group read it where it is at hand (`reads`), leave it out of the "
                "layer's channels, or call the layer yourself with texture_inputs"
            )
    if layer.basis is not None and layer.basis.width != layer.config.dim:
        raise ValueError(
            f"the basis is for features {layer.basis.width} wide, but the layer's model makes them "
            f"{layer.config.dim} wide: fit one on that model"
        )


def check_mode(layer: ARRCOCLayer, mode: Mode) -> None:
    """Raise a ValueError where a channel group needs encoded cells in a mode that chooses before encoding."""
    if not mode.before_encoder:
        return
    for group in channel_groups(layer.config.channels):
        if "features" in group.needs:
            raise ValueError(
                f"channel group {group.name!r} needs features, the encoded cells, and mode {mode.name!r} "
                "chooses before any is encoded: use mode 'prune', or leave the group out"
            )


class TextureMaker:
    """Makes the texture arrays of the images of a call, in their order.

    Args:
        adapter: of the model.
        layer: whose channels and basis; everything comes in its dtype and on its device.
        inputs: processor inputs.
        encoded: of these images; caches and what the textures are made of are filled in.
        layout: where the images' tokens stand.
        pictures: per image what the model sees, [3, h, w] in [0, 1].
        frames: how many images in a row each image or clip consists of; empty: all are images.
        coarse: makes per image the encoder's features of a coarse view, [1, F, h, w]; None: made here.
        cells: per image [N, D], encoded cells, where all are encoded.
    """

    def __init__(
        self,
        adapter: FamilyAdapter,
        layer: ARRCOCLayer,
        inputs: Mapping[str, Any],
        encoded: EncodedImages,
        layout: Layout,
        pictures: Sequence[Tensor],
        frames: Sequence[int] = (),
        coarse: Callable[[], Sequence[Tensor]] | None = None,
        cells: Sequence[Tensor] | None = None,
    ) -> None:
        self.adapter, self.inputs, self.encoded, self.layout = adapter, inputs, encoded, layout
        self.layer, self.like, self.pictures = layer, next(layer.parameters()), pictures
        self.channels = layer.config.channels
        self.wanted = wanted_inputs(self.channels)
        self.needed = {name for group in channel_groups(self.channels) for name in group.needs}
        self.coarse, self.cells = coarse, cells
        counts = tuple(frames) or (1,) * len(layout.grids)
        self.places = [place for count in counts for place in range(count)]  # of each image in its clip
        self._before: deque[tuple[int, Tensor]] = deque(maxlen=FRAMES)
        if len(encoded.caches) != len(layout.grids):
            encoded.caches[:] = [TextureCache(OF_PICTURE) for _ in layout.grids]

    @property
    def remembers(self) -> bool:
        """Whether a channel reads the relevance of earlier steps."""
        return not self.wanted.isdisjoint({"relevance_history", "previous_relevance"})

    def __call__(self, image: int, relevance: Sequence[Tensor] = ()) -> Tensor:
        """The texture array of an image, [1, C, H, W].

        Args:
            image: its number; they are made one after another.
            relevance: [1, H, W] each, of the steps of its clip before it, oldest first.
        """
        grid, cache = self.layout.grids[image][1:], self.encoded.caches[image]
        if (ready := cache.ready(channel_groups(self.channels), grid)) is not None:
            return ready.to(self.like)
        picture = self.pictures[image].to(self.like)
        inputs = self._inputs(image, picture, relevance)
        return generate_texture_array(picture[None], grid, self.channels, **inputs, cache=cache)

    def _inputs(self, image: int, picture: Tensor, relevance: Sequence[Tensor]) -> dict[str, Any]:
        """What some group needs or reads, where it is known."""
        own: dict[str, Any] = {"basis": self.layer.basis}
        if "text_evidence" in self.wanted:
            if image not in self.encoded.printed:
                self.encoded.printed[image] = picture_inputs(self.channels, picture)["text_evidence"]
            own["text_evidence"] = self.encoded.printed[image]
        if "previous_frames" in self.wanted and (self.places[image] or "previous_frames" in self.needed):
            # For a group that can't do without, a picture with nothing before it has itself before it.
            own["previous_frames"] = torch.stack(self._earlier(image) or [picture])[None]
        if relevance and self.remembers:
            history = torch.stack(list(relevance)[-FRAMES:], 1).to(self.like).clamp(0, 1)
            own |= {"relevance_history": history, "previous_relevance": history[:, -1]}
        if (attention := self.encoded.attention(image)) is not None:
            own["attention_history"] = attention[None].to(self.like)
        if "coarse_features" in self.wanted:
            own["coarse_features"] = self._coarse(image)
        if "features" in self.wanted and self.cells is not None:
            height, width = self.layout.grids[image][1:]
            own["features"] = self.cells[image].T.unflatten(1, (height, width))[None].to(self.like)
        return {name: value for name, value in own.items() if name in self.wanted}

    def _earlier(self, image: int) -> list[Tensor]:
        """The steps before an image of a clip, at most 8, oldest first; made once each if in order."""
        first = image - min(self.places[image], FRAMES)
        before = [(n, one) for n, one in self._before if first <= n < image]
        made = {n for n, _ in before}
        before += [(n, self.pictures[n].to(self.like)) for n in range(first, image) if n not in made]
        self._before = deque(sorted(before, key=lambda pair: pair[0]), maxlen=FRAMES)
        return [one for _, one in self._before]

    def _coarse(self, image: int) -> Tensor:
        """The encoder's features of a coarse view, made once for all images."""
        views = self.encoded.views
        if not views:
            made = coarse_features(self.adapter, self.inputs) if self.coarse is None else self.coarse()
            views += [one.to(self.like) for one in made]
        return views[image]
