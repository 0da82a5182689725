"""Regions of like colour: how large a cell's region is, how it differs from the image, and where it ends."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kornia.color import rgb_to_grayscale
from torch import Tensor

from arr_coc.choose.texture.context import ChannelContext, position_grid
from arr_coc.choose.texture.filters import cell_mean
from arr_coc.choose.texture.groups.saliency import lab_hue
from arr_coc.choose.texture.registry import ChannelGroup, register_channel_group

SIDE = 4
"""Regions at the start are SIDE x SIDE, evenly spaced."""
FINE = 2
"""Places along each side of a cell that are put into regions."""
ROUNDS = 8
"""Rounds of k-means, always as many."""
PLACE = 0.5
"""Weight of a distance of the whole image beside that from black to white."""


def regions(places: Tensor, middles: Tensor, rounds: int = ROUNDS) -> tuple[Tensor, Tensor]:
    """Regions by k-means (Lloyd, 1982) with a fixed number of rounds.

    Deterministic: sums are matrix products, ties go to the first region, an empty region stays where it was.

    Args:
        places: [B, P, c].
        middles: [B, K, c], at the start.
        rounds: how often middles and members follow from each other.

    Returns:
        Membership [B, P, K] of 0 and 1, and the middles [B, K, c].
    """
    for _ in range(rounds):
        members = _members(places, middles)
        count = members.sum(1)[..., None]  # (B, K, 1)
        middles = torch.where(count > 0, members.mT @ places / count.clamp_min(1), middles)
    return _members(places, middles), middles


def _members(places: Tensor, middles: Tensor) -> Tensor:
    """To which middle each place is nearest, [B, P, K] of 0 and 1."""
    # The squared distance less |place|^2, which is the same for all middles.
    distance = middles.square().sum(-1)[:, None] - 2 * places @ middles.mT
    nearest = distance.argmin(-1, keepdim=True)
    return torch.zeros_like(distance).scatter_(-1, nearest, 1.0)


def clusters(context: ChannelContext) -> Tensor:
    """Size, contrast and border of each cell's region, [B, 3, H, W].

    Places are 2 x 2 to a cell, of brightness, hue (CIELAB a, b) and place in the image, in the manner of SLIC
    (Achanta et al., 2012) with a search over all regions. Size is the region's share of the image, contrast
    the distance of its mean colour from the image's, border the share of a place's four neighbours in
    another region; a cell has the mean of its places.
    """
    fine = (FINE * context.grid[0], FINE * context.grid[1])
    colour = cell_mean(context.coarse, fine)
    look = torch.cat((rgb_to_grayscale(colour), lab_hue(colour) / 100), 1)  # (B, 3, h, w)
    place = PLACE * position_grid(fine, colour.device).expand(len(colour), -1, -1, -1)
    maps = torch.cat((look, place), 1)  # (B, 5, h, w)
    start = cell_mean(maps, (min(SIDE, fine[0]), min(SIDE, fine[1])))
    members, middles = regions(maps.flatten(2).mT, start.flatten(2).mT)

    share = members.mean(1)  # (B, K)
    contrast = (middles[..., :3] - look.mean((2, 3))[:, None]).norm(dim=-1)  # (B, K)
    by_place = (members @ torch.stack((share, contrast), -1)).mT.unflatten(-1, fine)  # (B, 2, h, w)
    return cell_mean(torch.cat((by_place, _border(members.argmax(-1).unflatten(-1, fine))), 1), context.grid)


def _border(labels: Tensor) -> Tensor:
    """The share of each place's four neighbours that have another label, [B, h, w] -> [B, 1, h, w]."""
    across = (labels[:, :, 1:] != labels[:, :, :-1]).float()
    down = (labels[:, 1:] != labels[:, :-1]).float()
    sides = F.pad(across, (0, 1)) + F.pad(across, (1, 0))
    return (sides + F.pad(down, (0, 0, 0, 1)) + F.pad(down, (0, 0, 1, 0)))[:, None] / 4


register_channel_group(
    ChannelGroup(
        "clusters", 3, "k-means on colour and place; size, contrast, border", "costly", clusters,
        channels=("region_size", "region_contrast", "region_border"),
        price="8 rounds over 4 places a cell: 0.3 x mvp13",
    )
)  # fmt: skip
