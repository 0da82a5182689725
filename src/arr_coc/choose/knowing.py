"""Knowing: three scorers of the cells of an image, each texture [B, C, H, W] -> relevance [B, H, W].

`InformationScorer` scores what is inside a cell, `PerspectivalScorer` what stands out, `ParticipatoryScorer`
what the question asks for. Each has `logits(...)` and `forward(...) = sigmoid(logits)`, finite for any finite
input and in float32. `preset="linear"` gives weighted sums of channels, some 35 parameters in all.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.choose.filters import unit
from arr_coc.choose.texture import Channels, channel_groups, texture_size

FLOOR = 0.02  # information and saliency live in [FLOOR, 1 - FLOOR], so that their logits are finite
PRESETS: tuple[str, str] = ("net", "linear")
POOLINGS: tuple[str, str, str] = ("mean", "last", "learned")
FOLD = 256  # embeddings wider than this are hashed to it before anything is learned on them, see `fold`
MAX_PROJECTION = 65_536  # parameters of the participatory scorer's two projections, if no rank is given
CELL_NOISE = 0.05  # spread inside a cell that counts as noise

_BUILDING = RLock()  # building modules seeds the random state of the process


@contextmanager
def same_start() -> Generator[None]:
    """A context in which modules are built with the same float32 weights every time.

    It seeds the generator of all threads: use it while a model is loaded, not while it answers.
    """
    with _BUILDING, torch.random.fork_rng(devices=[]):
        dtype = torch.get_default_dtype()
        torch.default_generator.manual_seed(0)
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


def signs(rows: int, columns: int) -> Tensor:
    """Return a fixed matrix [rows, columns] of -1 and 1 by an integer hash, for feature hashing (`fold`).

    The same everywhere; needs neither a seed nor a saved tensor.
    """
    # The multipliers are those of Knuth's hash and of xxHash.
    index = torch.arange(1, rows * columns + 1, dtype=torch.int64)
    mixed = (index * 2654435761) % 2**32
    mixed = ((mixed >> 15 ^ mixed) * 2246822519) % 2**32
    return ((mixed >> 13) % 2 * 2.0 - 1.0).view(rows, columns)


def fold(x: Tensor) -> Tensor:
    """Embeddings [..., D] hashed to [..., min(D, FOLD)], inner products kept on average.

    Feature hashing (Weinberger et al., ICML 2009) keeps the learned part small at any width.
    """
    dim = x.shape[-1]
    return x if dim <= FOLD else _add_folds(x * _fold_signs(dim, x.device).to(x.dtype))


@lru_cache(maxsize=32)
def _fold_signs(dim: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # cached, and a tensor of inference mode may not meet autograd later
        return signs(1, dim)[0].to(device)


def _add_folds(x: Tensor) -> Tensor:
    short = -x.shape[-1] % FOLD
    padded = F.pad(x, (0, short)) if short else x  # padding by nothing would copy
    return padded.unflatten(-1, (-1, FOLD)).sum(-2)


def mirror_(hidden: nn.Module, last: nn.Module) -> None:
    """Make a net's output start at zero, in place, without blocking its gradient as a zeroed layer would."""
    # The second half of the hidden units copies the first, and the last layer takes their difference.
    weight, bias = last.parameters()
    half = weight.shape[1] // 2
    with torch.no_grad():
        for parameter in hidden.parameters():
            parameter[half:] = parameter[:half]
        weight[:, half:] = -weight[:, :half]
        bias.zero_()


def automatic_rank(dim: int, heads: int) -> int:
    """Return the rank over all heads that keeps both projections within MAX_PROJECTION, at most 64 a head."""
    per_head = MAX_PROJECTION // (2 * min(dim, FOLD) * heads)
    return heads * max(1, min(64, per_head))


def pool_query(query: Tensor, mask: Tensor, how: str = "mean", *, importance: Tensor | None = None) -> Tensor:
    """Return the question as one float32 vector, [B, L, D] -> [B, D]; zeros where a row has no content token.

    `how` is "mean", "last" (the last content token) or "learned" (weighted by `importance` [B, L] >= 0).
    """
    if how not in POOLINGS:
        raise ValueError(f"unknown pooling {how!r}; choose one of {POOLINGS}")
    if (how == "learned") != (importance is not None):
        raise ValueError(f"pooling {how!r}: pass `importance` for 'learned', and for no other pooling")
    weight = mask.float()
    if importance is not None:
        weight = importance.float().masked_fill(~mask, 0.0)
    elif how == "last":
        # The last content token is the one with a single content token from it to the end.
        weight = (mask & (mask.flip(1).cumsum(1).flip(1) == 1)).float()
    # A masked position may hold anything, and 0 * inf is not 0.
    kept = query.float().masked_fill(~mask[..., None], 0.0)
    return (kept * weight[..., None]).sum(1) / weight.sum(1, keepdim=True).clamp_min(1e-6)


def declared_channels(channels: Channels, kind: str) -> list[int]:
    """Return the indices of the channels that their groups declare `spread` or `salient` (`kind`)."""
    groups = channel_groups(channels)
    names = [name for group in groups for name in group.channels]
    declared = {name for group in groups for name in getattr(group, kind)}
    return [i for i, name in enumerate(names) if name in declared]


def _pick(texture: Tensor, index: Sequence[int]) -> Tensor:
    """Return the channels [B, c, H, W] of a texture at an index."""
    if index:
        return texture[:, list(index)].float()
    # Without any: local contrast, the standard deviation over 3x3 cells, blind to variation inside a cell.
    padded = F.pad(texture.float(), (1, 1, 1, 1), mode="replicate")
    mean, square = F.avg_pool2d(padded, 3, 1), F.avg_pool2d(padded**2, 3, 1)
    return 2 * (square - mean**2 - 1e-6).relu().sqrt().clamp(max=0.5)


def cell_information(texture: Tensor, spread: Sequence[int]) -> Tensor:
    """Return the information inside each cell by each of its `spread` channels s, [B, c, H, W] in [0, 1].

    log(1 + s^2 / noise^2), the bits of a Gaussian signal over noise (Shannon 1948), over those of the largest
    spread.
    """
    values = _pick(texture, spread)
    return torch.log1p((values / CELL_NOISE) ** 2) / math.log1p(CELL_NOISE**-2)


def saliency(texture: Tensor, salient: Sequence[int]) -> Tensor:
    """Return a saliency map without parameters: 1 - prod(1 - s) over `salient` channels, [B, H, W] in [0,
    1].
    """
    return 1 - (1 - _pick(texture, salient)).prod(dim=1)


def _floored_logit(score: Tensor) -> Tensor:
    return torch.logit(FLOOR + (1 - 2 * FLOOR) * score)


class InformationScorer(nn.Module):
    """The propositional scorer: Shannon information of what is inside a cell, [B, C, H, W] -> [B, H, W].

    **Law:** a uniform cell scores lowest, a more varied cell higher, for every value of the learned weights:
    the score is a convex combination of `cell_information` over the spread channels.
    """

    def __init__(self, channels: Channels = "mvp13") -> None:
        super().__init__()
        self.spread = declared_channels(channels, "spread")
        self.weight = nn.Parameter(torch.zeros(len(self.spread) or texture_size(channels)))

    def information(self, texture: Tensor) -> Tensor:
        """Return the information inside each cell by each spread channel, as `cell_information`."""
        return cell_information(texture, self.spread)

    def logits(self, texture: Tensor) -> Tensor:
        information = self.information(texture)
        return _floored_logit(torch.einsum("bchw,c->bhw", information, self.weight.softmax(0)))

    def forward(self, texture: Tensor) -> Tensor:
        return self.logits(texture).sigmoid()


class PerspectivalScorer(nn.Module):
    """The perspectival scorer: what stands out, [B, C, H, W] -> [B, H, W].

    **Law:** untrained it is `saliency` exactly, or the map that a call gives in its place (`choose.rarity`);
    its small net (C -> 32 -> 16 -> 1) starts at zero.
    """

    def __init__(self, channels: Channels = "mvp13", preset: str = "net") -> None:
        super().__init__()
        self.salient = declared_channels(channels, "salient")
        size = texture_size(channels)
        if preset == "linear":
            self.net = nn.Sequential(nn.Conv2d(size, 1, 1))
            for parameter in self.net.parameters():
                nn.init.zeros_(parameter)
            return
        self.net = nn.Sequential(
            nn.Conv2d(size, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 1, 3, padding=1),
        )  # fmt: skip
        mirror_(self.net[2], self.net[4])

    def logits(self, texture: Tensor, salient: Tensor | None = None) -> Tensor:
        """Return the map before the sigmoid, [B, H, W]; `salient` [B, H, W] in [0, 1] stands for
        `saliency`.
        """
        base = saliency(texture, self.salient) if salient is None else salient
        return _floored_logit(base) + self.net(texture.float()).squeeze(1)

    def forward(self, texture: Tensor, salient: Tensor | None = None) -> Tensor:
        return self.logits(texture, salient).sigmoid()


class ParticipatoryScorer(nn.Module):
    """The participatory scorer: coupling between cells and the tokens of a question.

        s[h, n, l] = g_l * <A_h cell_n, B_h question_l>          heads h, cells n, question tokens l
        logit[n]   = sum_h (max_l, mean_l, sum_l of s[h, n, l]) . mix_h + correction[n] + bias

    **Law:** another question moves the map; a permutation of padding does not.

    A cell is its texture and its vision token; `g_l` is a learned importance; each question token also reads
    its two neighbours ("red circle" is one thing). Untrained, A and B are one shared orthonormal projection
    and the map is a soft cosine. `preset="linear"` has neither projections nor importance: the cosine plus
    texture channels weighted by a fixed sign hash of the question.
    """

    def __init__(
        self,
        channels: Channels = "mvp13",
        dim: int = 192,
        rank: int | None = None,
        heads: int = 4,
        preset: str = "net",
    ) -> None:
        super().__init__()
        self.hash: Tensor
        rank = automatic_rank(dim, heads) if rank is None else rank
        if rank < 1 or rank % heads:
            raise ValueError(f"rank {rank} must be a positive multiple of heads {heads}")
        size = texture_size(channels)
        dim = min(dim, FOLD)
        self.linear, self.heads = preset == "linear", 1 if preset == "linear" else heads
        self.mix = nn.Parameter(torch.tensor([2.0, 2.0, 0.0]).expand(self.heads, 3) / self.heads)
        self.bias = nn.Parameter(torch.zeros(()))
        if self.linear:
            self.channel_weight = nn.Parameter(torch.full((size,), 0.1))
            self.register_buffer("hash", signs(size, dim), persistent=False)
            return
        # At rank < dim the expectation of <Ax, Ay> is that of x and y times rank / dim, and each head
        # sees its share of it.
        shared = nn.init.orthogonal_(torch.empty(rank, dim)) * (max(1.0, dim / rank) * heads) ** 0.5
        self.cell, self.question = nn.Parameter(shared.clone()), nn.Parameter(shared.clone())
        self.paint = nn.Parameter(torch.randn(rank, size) * 0.2)
        self.neighbours = nn.Parameter(torch.zeros(2, rank))
        self.importance = nn.Linear(dim, 1)
        nn.init.zeros_(self.importance.weight)
        nn.init.constant_(self.importance.bias, 2.0)
        self.correction = nn.Sequential(
            nn.Conv2d(3 * heads + size, 32, 3, padding=1), nn.GELU(), nn.Conv2d(32, 1, 1)
        )
        mirror_(self.correction[0], self.correction[2])

    def importances(self, query: Tensor) -> Tensor:
        """Return the importance of each question token, [B, L, D] -> [B, L] in (0, 1); 1 if linear."""
        if self.linear:
            return torch.ones(query.shape[:2], dtype=torch.float32, device=query.device)
        return self.importance(fold(unit(query))).squeeze(-1).sigmoid()

    def _couple(self, texture: Tensor, query: Tensor, mask: Tensor, vision: Tensor | None) -> Tensor:
        """Max, mean and sum over the question's tokens of each head's scores, [B, N, 3 * heads]."""
        # Content tokens are moved to the front, in order, so that the place of padding changes nothing; one
        # place of padding is added for a batch without any content token.
        query, mask = F.pad(query, (0, 0, 0, 1)), F.pad(mask, (0, 1))
        front = (~mask).to(torch.uint8).argsort(dim=1, stable=True)
        length = max(1, int(mask.sum(1).max()))
        front, mask = front[:, :length], mask.gather(1, front)[:, :length]
        query = query.gather(1, front[..., None].expand(-1, -1, query.shape[-1]))
        query = query.masked_fill(~mask[..., None], 0.0)
        gate = self.importances(query) * mask  # (B, L)
        cells, words = self._project(texture.float(), fold(unit(query)), vision)  # (B, N, R), (B, L, R)
        cells, words = (x.unflatten(-1, (self.heads, -1)) for x in (cells, words * gate[..., None]))
        score = torch.einsum("bmhr,blhr->bmhl", cells, words)
        # Padding adds nothing to a sum but could be the largest of negative scores, so the max leaves it out.
        top = score.masked_fill(~mask[:, None, None], torch.finfo(score.dtype).min).amax(-1)
        total = score.sum(-1)
        mean = total / gate.sum(1).clamp_min(1e-6)[:, None, None]
        pooled = torch.stack((top, mean, total), dim=-1).flatten(2)
        return pooled.where(mask.any(1)[:, None, None], torch.zeros_like(pooled))

    def _project(self, texture: Tensor, query: Tensor, vision: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cells [B, N, R] and question tokens [B, L, R] whose products are scores."""
        if self.linear:
            cells, words = texture * self.channel_weight, F.linear(query, self.hash)
            if vision is None:
                return cells, words
            return torch.cat((vision, cells), -1), torch.cat((query, words), -1)
        cells = F.linear(texture - 0.5, self.paint)
        if vision is not None:
            cells = cells + F.linear(vision, self.cell)
        words = F.linear(query, self.question)
        before, after = F.pad(words, (0, 0, 1, 0))[:, :-1], F.pad(words, (0, 0, 0, 1))[:, 1:]
        return cells, words + before * self.neighbours[0] + after * self.neighbours[1]

    def logits(
        self, texture: Tensor, query: Tensor, query_mask: Tensor, vision: Tensor | None = None
    ) -> Tensor:
        """Return the map before the sigmoid, [B, H, W]; arguments as of `forward`."""
        rows = texture.flatten(2).transpose(1, 2)  # (B, N, C)
        scaled = None if vision is None else scale_tokens(vision)
        coupling = self._couple(rows, query, query_mask, scaled).transpose(1, 2)
        coupling = coupling.unflatten(2, texture.shape[-2:])  # (B, 3 * heads, H, W)
        logits = torch.einsum("bphw,p->bhw", coupling, self.mix.flatten()) + self.bias
        if not self.linear:
            logits = logits + self.correction(torch.cat((coupling, texture.float()), dim=1)).squeeze(1)
        return logits * query_mask.any(1)[:, None, None]  # without a question every cell is at 0.5

    def forward(
        self, texture: Tensor, query: Tensor, query_mask: Tensor, vision: Tensor | None = None
    ) -> Tensor:
        """Return the relevance of each cell to the question, [B, H, W] in [0, 1].

        `texture` [B, C, H, W] in [0, 1], `query` [B, L, D], `query_mask` bool [B, L], True at content tokens
        (a row without any scores 0.5), `vision` [B, H*W, D] or None before encoding.
        """
        return self.logits(texture, query, query_mask, vision).sigmoid()


def scale_tokens(vision: Tensor) -> Tensor:
    """Vision tokens [B, N, D] divided by their image's mean norm and folded, float32 [B, N, min(D, FOLD)]."""
    vision = vision.float()
    flat, dim = vision.flatten(1), vision.shape[-1]
    peak = torch.maximum(-flat.amin(1), flat.amax(1)).clamp_min(1e-12)[:, None, None]  # norms may overflow
    folded = dim > FOLD
    # `fold` multiplies by signs, which change no norm: one pass over all of D serves both.
    small = vision * (_fold_signs(dim, vision.device) / peak) if folded else vision / peak
    norm = small.norm(dim=-1, keepdim=True).mean(1, keepdim=True).clamp_min(1e-12)
    return (_add_folds(small) if folded else small) / norm
