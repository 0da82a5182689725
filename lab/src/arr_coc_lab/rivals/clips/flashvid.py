"""FlashVID (Fan et al. 2026, arXiv 2602.08024): attended and different cells, and peaks of what merges.

    segments: cut between frames whose mean cells have cos < 0.9, at least 8 segments
    of each frame 70 %: first argmax_j a_j min_i d_ij, then always argmax_j a_j min over the chosen i of d_ij
        d = 1 - cos, a = attention received
    of the others: a cell joins its most similar one of the frame before in its segment if cos > 0.8; trees
        are averaged; of each frame's roots those of the highest density times distance to a denser one stay

Only its selection: in the paper the kept roots also carry the average of their tree.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc_lab.rivals.clips.keeping import apart, apportion, check_clip, equal_counts
from arr_coc_lab.rivals.clips.method import ClipMethod, register_clip_method
from arr_coc_lab.rivals.method import Style
from arr_coc_lab.rivals.reduction import cosine, top_k

CUT = 0.9  # cosine of neighbouring frames' mean cells below which a segment ends
SEGMENTS = 8  # the fewest segments of a clip that has as many frames
SELECTED = 0.7  # share of a frame's cells that is selected by attention and distance
JOINED = 0.8  # cosine above which a cell joins one of the frame before
SAME = 1e-6  # cosine distance of equal cells, at most
NEIGHBOURS = 7  # nearest cells of a density, at most


@torch.no_grad()
def flashvid(features: Tensor, attention: Tensor | None, budget: int) -> Tensor:
    """Selected cells of each frame, and density peaks of the trees that the others form over time: Bool [T,
    N].

    `features` [T, N, D] are the encoded cells; `attention` [T, N], at least 0, is received in the encoder
    (None: distance alone). The budget enters the language model: the paper's r times 1.25. Each frame gets an
    equal share and selects 70 % of it, rounded up; the rest of a segment's budget is shared among its frames
    by their roots, by the largest remainder. Where too few roots would be left, the least similar cells do
    not join.
    """
    steps, cells = check_clip(features, budget, attention)
    x = features.float()
    weight = torch.ones(steps, cells, device=x.device) if attention is None else attention.float()
    counts = equal_counts(steps, min(budget, steps * cells)).tolist()
    keep = torch.zeros(steps, cells, dtype=torch.bool, device=x.device)
    for t, count in enumerate(counts):
        keep[t, distant(x[t], weight[t], math.ceil(SELECTED * count - 1e-9))] = True
    start = 0
    for length in segment_lengths(x.mean(1)):
        part = slice(start, start + length)
        rest = sum(counts[part]) - int(keep[part].sum())
        if rest:
            keep[part] |= tree_peaks(x[part], ~keep[part], rest)
        start += length
    return keep


def segment_lengths(means: Tensor) -> list[int]:
    """Return the lengths of a clip's segments, of its frames' mean cells [T, D]."""
    distance = apart(means[:-1], means[1:])
    cut = 1 - distance < CUT
    missing = min(SEGMENTS - 1, len(distance)) - int(cut.sum())  # cut where neighbours are least similar
    if missing > 0:
        cut[top_k(distance.masked_fill(cut, -torch.inf), missing)] = True
    ends = [-1, *cut.nonzero().flatten().tolist(), len(means) - 1]
    return [after - before for before, after in pairwise(ends)]


def distant(cells: Tensor, attention: Tensor, count: int) -> Tensor:
    """Greedy max-min distance times attention, cells [N, D] and attention [N] -> Long [count], best first."""
    if count == 0:
        return torch.zeros(0, dtype=torch.long, device=cells.device)
    distance = 1 - cosine(cells)
    distance[distance < SAME] = 0  # equal cells are a tie, not an order of rounding errors
    nearest = distance.fill_diagonal_(torch.inf).amin(0)
    if len(cells) == 1:
        nearest = torch.ones_like(nearest)  # a single cell: inf * 0 would be NaN
    pick = int((nearest * attention).argmax())
    order = [pick]
    reach = torch.full_like(nearest, torch.finfo(nearest.dtype).max)  # to the nearest chosen cell
    taken = torch.zeros(len(cells), dtype=torch.bool, device=cells.device)
    while len(order) < count:
        taken[pick] = True
        reach = torch.minimum(reach, distance[pick])
        pick = int((reach * attention).masked_fill(taken, -1).argmax())
        order.append(pick)
    return torch.tensor(order, device=cells.device)


def tree_peaks(features: Tensor, free: Tensor, count: int) -> Tensor:
    """Density peaks of each frame's roots: `count` of the `free` cells [F, N], of features [F, N, D]."""
    similar, parent = _parents(features, free)
    joins = similar > JOINED
    most = int(free.sum()) - count
    if int(joins.sum()) > most:
        best = similar.masked_fill(~joins, -torch.inf).flatten().argsort(descending=True, stable=True)[:most]
        joins = torch.zeros_like(joins).flatten().index_fill_(0, best, True).view(joins.shape)
    trees = _averaged(features, parent, joins)
    roots = free & ~joins  # (F, N)
    shares = apportion(roots.sum(1), count, most=roots.sum(1)).tolist()
    keep = torch.zeros_like(free)
    for t, share in enumerate(shares):
        places = roots[t].nonzero().flatten()
        if share:
            keep[t, places[density_peaks(trees[t, places], share)]] = True
    return keep


def _parents(features: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
    """Of each free cell the cosine to the best free one of the frame before, and which one, [F, N] each."""
    similar = torch.full(free.shape, -torch.inf, device=features.device)
    parent = torch.zeros_like(free, dtype=torch.long)
    for t in range(1, len(features)):
        table = cosine(features[t], features[t - 1]).masked_fill(~free[t - 1], -torch.inf)
        similar[t], parent[t] = table.max(1).values, table.argmax(1)  # over the frame before
    return similar.masked_fill(~free, -torch.inf), parent


def _averaged(features: Tensor, parent: Tensor, joins: Tensor) -> Tensor:
    """Return the mean of each root's tree, [F, N, D]; without meaning for cells that join another."""
    sums, sizes = features.clone(), torch.ones_like(joins, dtype=features.dtype)
    for t in range(len(features) - 1, 0, -1):  # backwards: a tree sums into its root
        # A product with the assignment, not index_add_, whose order of summation varies on a GPU.
        member = (F.one_hot(parent[t], features.shape[1]) * joins[t][:, None]).T.float()
        sums[t - 1] += member @ sums[t]
        sizes[t - 1] += member @ sizes[t]
    return sums / sizes[..., None]


def density_peaks(cells: Tensor, count: int) -> Tensor:
    """Density peaks (Rodriguez and Laio 2014) of cells [M, D]: Long [count], best first."""
    distance = torch.cdist(cells, cells, compute_mode="donot_use_mm_for_euclid_dist") / cells.shape[1] ** 0.5
    near = distance.sort(1).values[:, : min(count, NEIGHBOURS)]  # (M, 7), itself among them
    density = (-near.square().mean(1)).exp()
    denser = density[None] > density[:, None]
    # to the nearest denser cell, or the farthest of all
    gap = torch.where(denser, distance, distance.max()).amin(1)
    return top_k(density * gap, count)


register_clip_method(
    ClipMethod(
        "flashvid",
        "rival",
        lambda view, k: flashvid(view.read("features"), view.read("attention"), k),
        "after",
        needs=frozenset({"features", "attention"}),
        label="FlashVID, its selection",
        paper="Fan et al. 2026, arXiv 2602.08024",
        title="FlashVID: Efficient Video Large Language Models via Training-free Tree-based Spatiotemporal "
        "Token Merging",
        style=Style("#7a5195", "P"),
    )
)
