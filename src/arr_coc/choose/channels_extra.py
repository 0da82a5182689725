"""The 27 channels off the default path, by groups."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_grayscale
from torch import Tensor

from arr_coc.choose.basis import COMPONENTS
from arr_coc.choose.channels import ChannelContext, channel_group, lab_hue, saliency_channels
from arr_coc.choose.filters import cell_mean, distance_to, laplacian, position_grid, surround
from arr_coc.choose.motion import CHANGED, OLD


@channel_group(
    "attention_memory", 1, "0.7 old + 0.3 new over questions", "cheap", channels=("attention_history",),
    reads={"attention_history"}, neutral="0 before the first question",
)  # fmt: skip
def attention_memory(context: ChannelContext) -> Tensor:
    """Return the running mean of `attention_history`, 0.7 old and 0.3 new, [B, 1, H, W]."""
    history = context.attention_history
    if history is None:
        return torch.zeros(len(context.image), 1, *context.grid, device=context.image.device)
    mean = history[:, 0]
    for each in history.unbind(1)[1:]:
        mean = OLD * mean + (1 - OLD) * each
    return mean[:, None]


@channel_group("centre_bias", 1, "exp(-4 eccentricity^2)", "free")
def centre_bias(context: ChannelContext) -> Tensor:
    """Gaussian of the eccentricity e, exp(-4 e^2), [B, 1, H, W]."""
    return torch.exp(-4 * context.eccentricity**2)


HALF_AGE = 4.0  # frames after which age is 0.5


@channel_group(
    "change_memory", 2, "Euclidean, to changes over 0.02; frames n / (n + 4)", "cheap",
    channels=("change_distance", "age"), reads={"previous_frames"},
    neutral="distance 1 and age 0 for a still",
)  # fmt: skip
def change_memory(context: ChannelContext) -> Tensor:
    """Distance to the nearest cell that changed since the frame before, and age, [B, 2, H, W].

    Age is n / (n + 4) for content that has stood n of at most 8 frames unchanged.
    """
    if context.clip is None:
        blank = torch.zeros(len(context.image), 1, *context.grid, device=context.image.device)
        return torch.cat((1 - blank, blank), dim=1)
    distance = distance_to(context.clip.changes[:, -1] > CHANGED)
    ages = context.clip.ages
    return torch.stack((distance, ages / (ages + HALF_AGE)), dim=1)


START_SIDE = 4  # k-means starts from START_SIDE x START_SIDE regions, evenly spaced
PLACES_PER_SIDE = 2  # places along each side of a cell, each of which belongs to one region
KMEANS_ROUNDS = 8  # rounds of k-means, a fixed number
PLACE_WEIGHT = 0.5  # weight of the distance across the whole image, relative to that from black to white


def kmeans(places: Tensor, middles: Tensor, rounds: int = KMEANS_ROUNDS) -> tuple[Tensor, Tensor]:
    """K-means (Lloyd, 1982) of places [B, P, c] from middles [B, K, c]: members [B, P, K] and new middles."""
    for _ in range(rounds):
        members = _members(places, middles)
        count = members.sum(1)[..., None]  # (B, K, 1)
        middles = torch.where(count > 0, members.mT @ places / count.clamp_min(1), middles)
    return _members(places, middles), middles


def _members(places: Tensor, middles: Tensor) -> Tensor:
    # The squared distance less |place|^2, which is the same for all middles.
    distance = middles.square().sum(-1)[:, None] - 2 * places @ middles.mT
    nearest = distance.argmin(-1, keepdim=True)
    return torch.zeros_like(distance).scatter_(-1, nearest, 1.0)


@channel_group(
    "clusters", 3, "k-means on colour and place; size, contrast, border", "costly",
    channels=("region_size", "region_contrast", "region_border"),
    price="8 rounds over 4 places a cell: 0.3 x mvp13",
)  # fmt: skip
def clusters(context: ChannelContext) -> Tensor:
    """Size, contrast and border of each cell's region of like colour, [B, 3, H, W].

    Regions are k-means of brightness, hue and place, as in SLIC (Achanta et al., 2012). Size is the region's
    share of the image, contrast the distance of its mean colour from the image's, border the share of a
    place's four neighbours in another region.
    """
    fine = (PLACES_PER_SIDE * context.grid[0], PLACES_PER_SIDE * context.grid[1])
    colour = cell_mean(context.coarse, fine)
    look = torch.cat((rgb_to_grayscale(colour), lab_hue(colour) / 100), 1)  # (B, 3, h, w)
    place = PLACE_WEIGHT * position_grid(fine, colour.device).expand(len(colour), -1, -1, -1)
    maps = torch.cat((look, place), 1)  # (B, 5, h, w)
    # k-means starts from an even grid, so that nothing is drawn and the regions are the same each time.
    start = cell_mean(maps, (min(START_SIDE, fine[0]), min(START_SIDE, fine[1])))
    members, middles = kmeans(maps.flatten(2).mT, start.flatten(2).mT)

    share = members.mean(1)  # (B, K)
    contrast = (middles[..., :3] - look.mean((2, 3))[:, None]).norm(dim=-1)  # (B, K)
    by_place = (members @ torch.stack((share, contrast), -1)).mT.unflatten(-1, fine)  # (B, 2, h, w)
    return cell_mean(torch.cat((by_place, _border(members.argmax(-1).unflatten(-1, fine))), 1), context.grid)


def _border(labels: Tensor) -> Tensor:
    """Return the share of each place's four neighbours that have another label, [B, h, w] -> [B, 1, h, w]."""
    across = (labels[:, :, 1:] != labels[:, :, :-1]).float()
    down = (labels[:, 1:] != labels[:, :-1]).float()
    # A border between two places counts for both of them; places at the rim have fewer neighbours.
    sides = F.pad(across, (0, 1)) + F.pad(across, (1, 0))
    return (sides + F.pad(down, (0, 0, 0, 1)) + F.pad(down, (0, 0, 1, 0)))[:, None] / 4


@channel_group(
    "components", COMPONENTS, "PCA of unit features; +-2.5 deviations", "costly",
    needs={"coarse_features", "basis"},
    price="an encoder's pass over a coarse view, none where a mode makes a gestalt; then 0.02 x mvp13",
)  # fmt: skip
def components(context: ChannelContext) -> Tensor:
    """Principal components of `coarse_features` by `basis`, [B, 16, H, W]; 0.5 is the mean."""
    if context.coarse_features is None or context.basis is None:
        raise ValueError("components needs coarse_features and the basis of their encoder")
    if context.basis.count != COMPONENTS:
        raise ValueError(
            f"components needs a basis of {COMPONENTS} components, got {context.basis.count}; fit one so"
        )
    coarse = context.basis.project(context.coarse_features)
    return F.interpolate(coarse, size=context.grid, mode="bilinear", align_corners=False)


@channel_group("conspicuity", 1, "1 - prod(1 - s) over saliency", "cheap", salient=("conspicuity.0",))
def conspicuity(context: ChannelContext) -> Tensor:
    """1 - prod(1 - s) over the three maps s of the group "saliency", [B, 1, H, W]."""
    return 1 - (1 - saliency_channels(context).clamp(0, 1)).prod(dim=1, keepdim=True)


@channel_group("eccentricity", 1, "distance from the middle; 1 at a corner", "free")
def eccentricity(context: ChannelContext) -> Tensor:
    """Distance of each cell's centre from the image's, [B, 1, H, W]; 1 at a corner of the image."""
    return context.eccentricity


HAS_EDGE = 0.05  # mean Sobel length above which a cell has an edge


@channel_group("edge_distance", 1, "Euclidean, to edges over 0.05", "cheap")
def edge_distance(context: ChannelContext) -> Tensor:
    """Distance to the nearest cell with an edge, [B, 1, H, W], as a share of the grid's diagonal."""
    return distance_to(context.edges[:, 2] > HAS_EDGE).unsqueeze(1)


@channel_group(
    "edge_pair", 2, "Sobel length e, and 1 - e", "cheap", channels=("edges", "no_edges"), spread=("edges",),
    salient=("edges",),
)  # fmt: skip
def edge_pair(context: ChannelContext) -> Tensor:
    """Mean Sobel length e of each cell, and 1 - e, [B, 2, H, W]."""
    length = context.edges[:, 2:]
    return torch.cat((length, 1 - length), dim=1)


@channel_group(
    "frame_change", 2, "mean |difference| after the shift; mean |difference| > 0.3", "cheap",
    channels=("frame_difference", "scene_cut"), salient=("frame_difference",), reads={"previous_frames"},
    neutral="0 for a still",
)  # fmt: skip
def frame_change(context: ChannelContext) -> Tensor:
    """Mean |change of brightness| once the picture's shift is undone, and scene-cut flag, [B, 2, H, W]."""
    if context.clip is None:
        return torch.zeros(len(context.image), 2, *context.grid, device=context.image.device)
    cut = context.clip.cuts[:, -1, None, None].expand(-1, *context.grid)
    return torch.stack((context.clip.changes[:, -1], cut.float()), dim=1)


@channel_group(
    "motion", 1, "mean |change of brightness|; 0 for a still", "cheap", salient=("motion.0",),
    reads={"previous_frames"}, neutral="0 for a still",
)  # fmt: skip
def motion(context: ChannelContext) -> Tensor:
    """Mean absolute change of brightness since the latest frame before, [B, 1, H, W]; 0 for a still."""
    if context.previous_luma is None:
        return torch.zeros(len(context.image), 1, *context.grid, device=context.image.device)
    return context.per_cell((context.luma - context.previous_luma).abs_())


@channel_group(
    "passes", 2, "mean |Laplacian|; blurred brightness", "cheap", channels=("high_pass", "low_pass"),
    spread=("high_pass",),
)  # fmt: skip
def passes(context: ChannelContext) -> Tensor:
    """Mean |Laplacian| of each cell, and its brightness blurred over one cell, [B, 2, H, W]."""
    high = context.per_cell(laplacian(context.luma).abs_()) / 8
    return torch.cat((high, surround(context.cell_luma, 1.0)), dim=1)


@channel_group(
    "relevance_memory", 2, "shifted by phase correlation; 0.7 old + 0.3 new until a cut", "cheap",
    channels=("warped_relevance", "smoothed_relevance"),
    reads={"previous_frames", "previous_relevance", "relevance_history"},
    neutral="0 for a still, after a cut and without relevance",
)  # fmt: skip
def relevance_memory(context: ChannelContext) -> Tensor:
    """Previous relevance and smoothed relevance, both moved along with the picture, [B, 2, H, W]."""
    # Where only one of the two inputs is supplied, it stands for the other.
    latest, history = context.previous_relevance, context.relevance_history
    latest = history[:, -1] if latest is None and history is not None else latest
    if context.clip is None or latest is None:
        return torch.zeros(len(context.image), 2, *context.grid, device=context.image.device)
    smoothed = context.clip.smoothed(latest[:, None] if history is None else history)
    return torch.stack((context.clip.followed(latest), smoothed), dim=1)


@channel_group(
    "text_mask", 1, "most likely print, by a detector", "costly", needs={"text_evidence"},
    price="a detector's pass over the pixels, 1.7 x mvp13 with the guide's eyes; the pooling is free",
)  # fmt: skip
def text_mask(context: ChannelContext) -> Tensor:
    """Return the largest evidence of print in each cell, [B, 1, H, W]."""
    if context.text_evidence is None:
        raise ValueError("text_mask needs text_evidence: how likely print stands at each place")
    return F.adaptive_max_pool2d(context.text_evidence[:, None], context.grid)
