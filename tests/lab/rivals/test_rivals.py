"""Rivals and nulls: the laws of every rule, one example worked by hand for each, and naive twins."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, fields, replace
from functools import cache

import pytest
import torch

from arr_coc.choose.attending import even_grid
from arr_coc_lab.rivals import (
    QueryBlindScorer,
    Reduction,
    blind_oracle,
    cdpruner,
    divprune,
    even,
    fastv,
    idpruner,
    mmtok,
    oracle,
    prumerge_plus,
    random,
    scope,
    soft_top_k,
    visionselector,
    visionzip,
)
from arr_coc_lab.rivals.cdpruner import greedy_map
from arr_coc_lab.rivals.reduction import cosine, min_max, top_k
from each import each
from near import near


@dataclass
class Image:
    """Everything a rule may ask about one image."""

    prompt: torch.Tensor  # (H, L) attention of the last prompt token
    visual: slice | torch.Tensor  # the image within the prompt
    attention: torch.Tensor  # (N,)
    keys: torch.Tensor  # (N, d)
    tokens: torch.Tensor  # (N, D)
    question: torch.Tensor  # (L, D)
    features: torch.Tensor  # (N, d)
    importance: torch.Tensor  # (N,)

    def __len__(self) -> int:
        return len(self.tokens)


def image(n: int, seed: int = 0, width: int = 64) -> Image:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g)

    common = normal(width)  # so that cosines have a mean, as those of real tokens have
    return Image(
        prompt=normal(4, n + 11).softmax(-1),
        visual=slice(5, 5 + n),
        attention=normal(n).softmax(-1),
        keys=normal(n, width // 2),
        tokens=normal(n, width) + 0.5 * common,
        question=normal(6, width) + 0.5 * common,
        features=normal(n, width // 2),
        importance=normal(n),
    )


RULES = {
    "fastv": lambda x, k: fastv(x.prompt, x.visual, k),
    "visionzip": lambda x, k: visionzip(x.attention, x.keys, x.tokens, k),
    "visionzip_half": lambda x, k: visionzip(x.attention, x.keys, x.tokens, k, contextual=0.5),
    "divprune": lambda x, k: divprune(x.tokens, k),
    "cdpruner": lambda x, k: cdpruner(x.tokens, x.question, k),
    "cdpruner_minus": lambda x, k: cdpruner(x.tokens, x.question, k, sign=-1),
    "prumerge_plus": lambda x, k: prumerge_plus(x.attention, x.keys, x.tokens, k),
    "scope": lambda x, k: scope(x.tokens, x.attention, k),
    "mmtok": lambda x, k: mmtok(x.tokens, x.question, x.features, k),
    "mmtok_of_qwen": lambda x, k: mmtok(x.tokens, x.question, x.features, k, temperature=0.01),
    "idpruner": lambda x, k: idpruner(x.importance, x.tokens, k),
    "visionselector": lambda x, k: visionselector(x.importance, k),
}
NULLS = {
    "random": lambda x, k: random(len(x), k, torch.Generator().manual_seed(0)),
    "even": lambda x, k: even((len(x) // 4, 4) if len(x) % 4 == 0 else (1, len(x)), k),
    "oracle": lambda x, k: oracle(x.importance > 1, k),
    "oracle_random": lambda x, k: oracle(x.importance > 1, k, torch.Generator().manual_seed(0)),
    "blind_oracle": lambda x, k: blind_oracle([row[None] > 1.5 for row in (x.tokens @ x.question.T).T], k),
}
ALL = RULES | NULLS
USES = {  # the tensors whose NaN must be noticed
    "fastv": ("prompt",),
    "visionzip": ("attention", "keys", "tokens"),
    "divprune": ("tokens",),
    "cdpruner": ("tokens", "question"),
    "prumerge_plus": ("attention", "keys", "tokens"),
    "scope": ("tokens", "attention"),
    "mmtok": ("tokens", "question", "features"),
    "idpruner": ("importance", "tokens"),
    "visionselector": ("importance",),
}
PER_TOKEN = ("attention", "keys", "tokens", "features", "importance")
EQUIVARIANT = (
    "fastv",
    "divprune",
    "cdpruner",
    "cdpruner_minus",
    "scope",
    "mmtok",
    "idpruner",
    "visionselector",
)


@cache
def seconds_of_passes(n: int, k: int) -> float:
    """What k passes over a table of n x n numbers take here."""
    pairs, best = torch.rand(n, n), torch.rand(n)
    start = time.thread_time()
    for _ in range(k):
        (pairs - best).clamp_(min=0).sum(1)
    return time.thread_time() - start


class TestLaws:
    @each("name", ALL)
    @each("n", [1, 2, 7, 48, 100])
    def test_exactly_k_unique_rising_in_bounds(self, name, n):
        x = image(n)
        for k in sorted({1, min(2, n), n // 4 or 1, n // 2 or 1, n - 1 or 1, n}):
            s = ALL[name](x, k)
            assert s.keep.dtype == torch.long
            assert s.keep.shape == (k,)
            assert (s.keep.diff() > 0).all()
            assert 0 <= s.keep[0] <= s.keep[-1] < n
            assert s.tokens is None or s.tokens.shape == (k, x.tokens.shape[1])

    @each("name", ALL)
    def test_everything(self, name):
        assert ALL[name](image(48), 48).keep.tolist() == list(range(48))

    @each("name", ALL)
    def test_deterministic(self, name):
        first, second = ALL[name](image(48), 13), ALL[name](image(48), 13)
        assert torch.equal(first.keep, second.keep)
        assert (first.tokens is None) == (second.tokens is None)
        assert first.tokens is None or torch.equal(first.tokens, second.tokens)

    @each("name", ALL)
    @each("k", [0, -1, 49, 0.25, 12.0])
    def test_budget_is_named_with_its_remedy(self, name, k):
        with pytest.raises(ValueError, match=f"cannot keep {k} of 48 tokens; use a count from 1 to 48"):
            ALL[name](image(48), k)

    @each(("name", "field"), [(name, field) for name, uses in USES.items() for field in uses])
    @each("bad", [math.nan, math.inf])
    def test_not_a_number_is_named_with_its_remedy(self, name, field, bad):
        x = image(48)
        getattr(x, field).view(-1)[5 if field == "prompt" else 3] = bad
        with pytest.raises(
            ValueError, match=rf"has \d+ NaN or infinite .*first is {bad} at \[.*compute .* again"
        ):
            RULES[name](x, 12)

    @each("name", EQUIVARIANT)
    @each("seed", [1, 2, 3])
    def test_permuting_the_tokens_permutes_the_kept(self, name, seed):
        x = image(48, seed)
        p = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
        shuffled = replace(
            x, visual=torch.arange(48)[p] + 5, **{field: getattr(x, field)[p] for field in PER_TOKEN}
        )
        for k in (3, 12, 40):
            assert p[RULES[name](shuffled, k).keep].sort().values.equal(RULES[name](x, k).keep)

    @each("name", RULES)
    def test_ties_everywhere(self, name):
        """All tokens alike: the first ones, or those of a stride; k all the same."""
        x = image(48)
        for field in PER_TOKEN:
            setattr(x, field, torch.ones_like(getattr(x, field)))
        x.prompt = torch.ones_like(x.prompt)
        assert len(set(RULES[name](x, 12).keep.tolist())) == 12
        if name in ("fastv", "visionselector", "scope", "cdpruner"):
            assert RULES[name](x, 12).keep.tolist() == list(range(12))

    @each("name", ["divprune", "cdpruner", "cdpruner_minus", "scope", "mmtok", "idpruner"])
    def test_rounding_chooses_no_token(self, name):
        """Tokens that differ by the last bits alone, as the kernels of a processor leave them, are alike."""
        x, alike = image(48), image(48)
        for field in (*PER_TOKEN, "question"):
            setattr(alike, field, torch.ones_like(getattr(x, field)))
            setattr(x, field, 1 + 1e-7 * getattr(x, field))
        assert RULES[name](x, 12).keep.equal(RULES[name](alike, 12).keep)

    @each("name", RULES)
    def test_low_precision_and_gradients_in_no_gradient_out(self, name):
        x = image(48)
        for field in fields(x):
            if field.name != "visual":
                setattr(x, field.name, getattr(x, field.name).bfloat16().requires_grad_())
        s = RULES[name](x, 12)
        assert s.keep.shape == (12,)
        assert s.tokens is None or (s.tokens.dtype == torch.bfloat16 and not s.tokens.requires_grad)

    @each("name", RULES)
    def test_inputs_are_left_unchanged(self, name):
        x, same = image(48), image(48)
        RULES[name](x, 12)
        for field in (*PER_TOKEN, "prompt", "question"):
            assert torch.equal(getattr(x, field), getattr(same, field))

    @each("name", ["visionzip", "prumerge_plus", "scope", "mmtok", "idpruner"])
    def test_tensors_of_different_images(self, name):
        x = image(48)
        other = "tokens" if name != "mmtok" else "features"
        setattr(x, other, getattr(x, other)[:40])
        with pytest.raises(ValueError, match=r"numbers of tokens differ: .*48.*pass one row for each token"):
            RULES[name](x, 12)

    @pytest.mark.parametrize("name", ["cdpruner", "mmtok"])
    def test_a_question_that_is_none(self, name):
        for question in (torch.zeros(0, 64), torch.zeros(6, 32), torch.zeros(64)):
            with pytest.raises(ValueError, match=r"question has shape .*pass \[L, 64\]"):
                RULES[name](replace(image(48), question=question), 12)

    @each("name", ALL)
    def test_speed(self, name):
        """The grid of a 1024 x 1024 page at the default budget: a few passes over all pairs for each token.

        The clock counts this thread's CPU only, and a machine is compared with itself.
        """
        x = image(1024, width=256)
        start = time.thread_time()
        assert len(ALL[name](x, 273).keep) == 273
        assert time.thread_time() - start < 6 * seconds_of_passes(1024, 273)

    def test_selection_is_frozen(self):
        with pytest.raises(AttributeError):
            even((2, 2), 1).keep = torch.zeros(1)


class TestShared:
    def test_cosine(self):
        # (3,4)/5 . (1,0) = .6; a zero row is similar to nothing
        rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
        assert torch.allclose(cosine(rows, torch.tensor([[2.0, 0.0]])), torch.tensor([[0.6], [0.0]]))
        assert torch.allclose(cosine(rows), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        assert cosine(rows.half()).dtype == torch.float32

    def test_min_max(self):
        assert min_max(torch.tensor([1.0, 3.0, 5.0])).tolist() == [0, 0.5, 1]
        assert min_max(torch.tensor([1.0, 3.0, 5.0]), floor=0.4).tolist() == pytest.approx([0.1, 0.6, 1.1])
        assert min_max(torch.full((3,), 7.0)).tolist() == [1, 1, 1]

    def test_top_k(self):
        assert top_k(torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0]), 3).tolist() == [1, 3, 2]


class TestFastV:
    # Two heads over a prompt of 6, the image at 1..4; binary fractions, so that sums are exact.
    # mean: (3/8 + 1/8)/2 = 1/4, (1/8 + 1/8)/2 = 1/8, (1/8 + 2/8)/2 = 3/16, (0 + 3/8)/2 = 3/16
    attention = torch.tensor([[2, 3, 1, 1, 0, 1], [1, 1, 1, 2, 3, 0]]) / 8

    def test_feature(self):
        assert fastv(self.attention, slice(1, 5), 1).keep.tolist() == [0]
        assert fastv(self.attention, slice(1, 5), 2).keep.tolist() == [
            0,
            2,
        ]  # the tie goes to the lower index
        assert fastv(self.attention, slice(1, 5), 3).keep.tolist() == [0, 2, 3]

    def test_an_index_tensor_is_the_same(self):
        for k in (1, 2, 3, 4):
            ours = fastv(self.attention, torch.arange(1, 5), k).keep
            assert ours.equal(fastv(self.attention, slice(1, 5), k).keep)

    def test_attention_elsewhere_does_not_matter(self):
        other = self.attention.clone()
        other[:, [0, 5]] = 100
        assert fastv(other, slice(1, 5), 2).keep.tolist() == [0, 2]


class TestVisionZip:
    # k = 4, half contextual: dominant 0 and 3; the rest is 1, 2, 4, 5, a target every floor(4/2) = 2: 1, 4.
    # Cosines of 2 and 5 to the targets 1 = (1,0) and 4 = (0,1): 2 = (.6,.8): .6 and .8, so 4; 5 = (0,2): 4.
    # Token 1 stays (1,1); token 4 is (4,1) + ((2,1) + (5,1))/2 = (7.5, 2).
    attention = torch.tensor([0.5, 0.05, 0.1, 0.2, 0.1, 0.05])
    keys = torch.tensor([[9.0, 9], [1, 0], [0.6, 0.8], [9, 9], [0, 1], [0, 2]])
    tokens = torch.stack((torch.arange(6.0), torch.ones(6)), -1)

    def test_feature(self):
        s = visionzip(self.attention, self.keys, self.tokens, 4, contextual=0.5)
        assert s.keep.tolist() == [0, 1, 3, 4]
        assert torch.equal(s.tokens, torch.tensor([[0.0, 1], [1, 1], [3, 1], [7.5, 2]]))

    def test_no_contextual_token_is_a_top_k(self):
        s = visionzip(self.attention, self.keys, self.tokens, 3, contextual=0)
        assert s.keep.tolist() == [0, 2, 3]  # 2 and 4 tie
        assert torch.equal(s.tokens, self.tokens[s.keep])

    @each(("k", "contextual"), [(4, 0), (5, 1), (14, 1), (15, 2), (40, 4)])
    def test_the_share_is_rounded(self, k, contextual):
        x = image(100)
        s = visionzip(x.attention, x.keys, x.tokens, k)
        assert (s.tokens != x.tokens[s.keep]).any(1).sum() == contextual

    def test_only_contextual_tokens(self):
        # Targets 0 and 3 (every 3rd of 6), keys (9,9): both have cosine 1/sqrt 2 to (1,0): ties go to 0.
        s = visionzip(self.attention, self.keys, self.tokens, 2, contextual=1)
        assert s.keep.tolist() == [0, 3]
        assert torch.allclose(s.tokens, torch.tensor([[0 + (1 + 2 + 4 + 5) / 4, 2.0], [3, 1]]))

    def test_everything_kept_is_the_identity(self):
        x = image(48)
        assert torch.equal(RULES["visionzip"](x, 48).tokens, x.tokens)

    def test_published_counts(self):
        """LLaVA: 64 tokens, 10 contextual, so the 54 most attended are unchanged."""
        x = image(576)
        s = visionzip(x.attention, x.keys, x.tokens, 64, contextual=10 / 64)
        changed = (s.tokens != x.tokens[s.keep]).any(1)
        assert changed.sum() == 10
        assert set(s.keep[~changed].tolist()) == set(x.attention.topk(54).indices.tolist())

    def test_against_the_loop(self):
        x = image(50, 4)
        s = visionzip(x.attention, x.keys, x.tokens, 20, contextual=0.3)
        dominant = sorted(range(50), key=lambda j: -float(x.attention[j]))[:14]
        rest = [j for j in range(50) if j not in dominant]
        targets = rest[:: len(rest) // 6][:6]
        gathered = {t: [] for t in targets}
        for r in rest:
            if r not in targets:
                nearest = max(targets, key=lambda t: float(x.keys[r] @ x.keys[t] / x.keys[t].norm()))
                gathered[nearest].append(x.tokens[r])
        want = [
            x.tokens[j] + (torch.stack(gathered[j]).mean(0) if gathered.get(j) else 0)
            for j in sorted(dominant + targets)
        ]
        assert s.keep.tolist() == sorted(dominant + targets)
        assert near(s.tokens, torch.stack(want))

    @each("share", [-0.1, 1.5, math.nan])
    def test_exception(self, share):
        with pytest.raises(ValueError, match=f"contextual {share} is not a share .*use 0 to 1"):
            visionzip(self.attention, self.keys, self.tokens, 3, contextual=share)


class TestDivPrune:
    # Unit vectors at 0, 60, 90 and 180 degrees. 1 - cos: 0-1 .5, 0-2 1, 0-3 2, 1-2 .134, 1-3 1.5, 2-3 1.
    # Nearest neighbours at .5, .134, .134, 1: first 3. Distances to it 2, 1.5, 1: then 0.
    # min to {3, 0}: token 1 min(1.5, .5) = .5, token 2 min(1, 1) = 1: then 2.
    tokens = torch.tensor(
        [[math.cos(a), math.sin(a)] for a in torch.tensor([0, 60, 90, 180]).deg2rad().tolist()]
    )

    @each(("k", "keep"), [(1, [3]), (2, [0, 3]), (3, [0, 2, 3]), (4, [0, 1, 2, 3])])
    def test_feature(self, k, keep):
        assert divprune(self.tokens, k).keep.tolist() == keep

    def test_length_does_not_matter(self):
        assert divprune(self.tokens * torch.tensor([[1.0], [20], [3], [0.1]]), 3).keep.tolist() == [0, 2, 3]

    def test_duplicates_come_last_and_once(self):
        """Without a mask, rounding may leave a chosen token farther away than its own copy."""
        tokens = image(20, 1).tokens
        doubled = torch.cat((tokens, tokens))
        assert len(set((divprune(doubled, 20).keep % 20).tolist())) == 20
        assert len(set(divprune(doubled, 40).keep.tolist())) == 40

    @each("seed", range(5))
    def test_against_the_loop(self, seed):
        tokens = image(24, seed, 8).tokens.double()
        unit = tokens / tokens.norm(dim=1, keepdim=True)
        d = (1 - unit @ unit.T).tolist()
        chosen = [max(range(24), key=lambda j: min(d[i][j] for i in range(24) if i != j))]
        while len(chosen) < 9:
            free = [j for j in range(24) if j not in chosen]
            chosen.append(max(free, key=lambda j: min(d[i][j] for i in chosen)))
        assert divprune(tokens, 9).keep.tolist() == sorted(chosen)


def kernel(x: Image, sign: int = 1) -> torch.Tensor:
    """The conditional kernel diag(r) S diag(r) in float64, from its definition."""
    v, e = (t.double() / t.double().norm(dim=1, keepdim=True) for t in (x.tokens, x.question))
    r = sign * (v @ e.T).mean(1)
    r = (r - r.min() + 1e-6) / (r.max() - r.min())
    return r[:, None] * (v @ v.T) * r


def by_determinant(full: torch.Tensor, k: int) -> list[int]:
    """Greedy maximum of the determinant, computed anew for each candidate."""
    chosen: list[int] = []
    while len(chosen) < k:
        free = [j for j in range(len(full)) if j not in chosen]
        chosen.append(max(free, key=lambda j: float(torch.linalg.det(full[[*chosen, j]][:, [*chosen, j]]))))
    return chosen


class TestCDPruner:
    # Cosines to the question (1,0): 1, 1, .8, 0. Similar is relevant: r = 1, 1, .8, 0 (+ 1e-6).
    # First 0 (the tie with its copy 1 goes to the lower). What is left of each r^2: copy 1 (1 - 1) = 0,
    # token 2 .64 (1 - .8^2) = .2304, token 3 about 1e-12: then 2.
    # Dissimilar is relevant: r = 0, 0, .2, 1: first 3; then the copies have r^2 = 1e-12 and token 2
    # .04 (1 - .6^2) = .0256: then 2.
    tokens = torch.tensor([[1.0, 0], [2, 0], [0.8, 0.6], [0, 1]])
    question = torch.tensor([[1.0, 0]])

    def test_feature(self):
        assert cdpruner(self.tokens, self.question, 1).keep.tolist() == [0]
        assert cdpruner(self.tokens, self.question, 2).keep.tolist() == [0, 2]
        assert cdpruner(self.tokens, self.question, 1, sign=-1).keep.tolist() == [3]
        assert cdpruner(self.tokens, self.question, 2, sign=-1).keep.tolist() == [2, 3]

    def test_rank_below_k_is_filled_by_relevance(self):
        """The plane is spanned by two tokens; the third is the most relevant of the rest."""
        assert cdpruner(self.tokens, self.question, 3).keep.tolist() == [0, 1, 2]
        assert cdpruner(self.tokens, self.question, 3, sign=-1).keep.tolist() == [0, 2, 3]

    @pytest.mark.parametrize("sign", [1, -1])
    def test_rank_far_below_k(self, sign):
        x = image(100, width=8)
        keep = cdpruner(x.tokens, x.question, 50, sign).keep
        assert len(set(keep.tolist())) == 50
        # Eight tokens span everything; the other 42 places go to the most relevant of the rest.
        span = by_determinant(kernel(x, sign), 8)
        relevance = kernel(x, sign).diagonal()  # squared, which is monotone
        rest = sorted((j for j in range(100) if j not in span), key=lambda j: -float(relevance[j]))
        assert keep.tolist() == sorted(span + rest[:42])

    def test_a_token_of_zeros(self):
        tokens = self.tokens.clone()
        tokens[0] = 0
        assert cdpruner(tokens, self.question, 2).keep.tolist() == [1, 2]
        assert cdpruner(tokens, self.question, 4).keep.tolist() == [0, 1, 2, 3]

    @each("seed", range(5))
    def test_brute_force_where_greedy_is_optimal(self, seed):
        """Three mutually orthogonal planes with two near tokens in each: the determinant of a choice of
        tokens is the product over planes, where one token counts r^2 and a second r^2 (1 - .95^2). Gains
        shrink within a plane and planes do not meet, so the greedy choice is the best of all 20 subsets."""
        g = torch.Generator().manual_seed(seed)
        tokens = torch.zeros(6, 6)
        for plane in range(3):
            tokens[2 * plane, 2 * plane] = 1
            tokens[2 * plane + 1, 2 * plane : 2 * plane + 2] = torch.tensor([0.95, (1 - 0.95**2) ** 0.5])
        x = replace(image(6), tokens=tokens, question=1 + 0.4 * torch.rand(1, 6, generator=g))
        full = kernel(x)
        best = max(
            itertools.combinations(range(6), 3), key=lambda s: float(torch.linalg.det(full[s, :][:, s]))
        )
        assert cdpruner(x.tokens, x.question, 3).keep.tolist() == list(best)

    @each("seed", range(5))
    @each("sign", [1, -1])
    def test_against_the_loop(self, seed, sign):
        x = image(24, seed, 32)
        full = kernel(x, sign)
        chosen = by_determinant(full, 9)
        unit = x.tokens / x.tokens.norm(dim=1, keepdim=True)
        assert greedy_map(unit @ unit.T, full.diagonal().sqrt().float(), 9).tolist() == chosen
        assert cdpruner(x.tokens, x.question, 9, sign).keep.tolist() == sorted(chosen)

    def test_one_image_does_not_scale_another(self):
        """Relevance is min-max within the image, so lengths and an offset common to all do not matter."""
        x = image(48)
        assert cdpruner(7 * x.tokens, x.question, 12).keep.equal(cdpruner(x.tokens, x.question, 12).keep)

    def test_another_question_keeps_others(self):
        x = image(48)
        assert not cdpruner(x.tokens, -x.question, 12).keep.equal(cdpruner(x.tokens, x.question, 12).keep)
        # Negating the question is the other sign.
        assert cdpruner(x.tokens, -x.question, 12).keep.equal(cdpruner(x.tokens, x.question, 12, -1).keep)

    @each("sign", [0, 2, -0.5])
    def test_exception(self, sign):
        with pytest.raises(ValueError, match=rf"sign {sign} must be \+1 .* or -1"):
            cdpruner(self.tokens, self.question, 2, sign=sign)


class TestPruMergePlus:
    # Sorted sixteenths 0 .5 1 1 1 1.5 2 9, quartiles at ranks 1.75 and 5.25: Q1 .5 + .75*.5 = .875,
    # Q3 1.5 + .25*.5 = 1.625, fence 1.625 + 1.5*.75 = 2.75: token 5 is the only outlier. Step
    # floor(floor(8/1)/3) = 2: samples 0 2 4 6. By attention: samples 4 (1.5), 0 and 2 (1 each), 6 (.5);
    # others 7 (2), 1 (1), 3 (0).
    attention = torch.tensor([1, 1, 1, 0, 1.5, 9, 0.5, 2]) / 16
    tokens = torch.stack((torch.arange(8.0), torch.ones(8)), -1)
    keys = image(8).keys

    @each(
        ("k", "keep"),
        [
            (1, [5]),
            (2, [4, 5]),
            (3, [0, 4, 5]),
            (5, [0, 2, 4, 5, 6]),
            (6, [0, 2, 4, 5, 6, 7]),
            (7, [0, 1, 2, 4, 5, 6, 7]),
        ],
    )
    def test_feature(self, k, keep):
        assert prumerge_plus(self.attention, self.keys, self.tokens, k).keep.tolist() == keep

    def test_merging_by_hand(self):
        # With 8 tokens all 7 others are neighbours. Token 5: (5, 1) + sum over the others of s_j (j, 1):
        # (0*1 + 1*1 + 2*1 + 3*0 + 4*1.5 + 6*.5 + 7*2)/16 = 26/16, weights (1+1+1+0+1.5+.5+2)/16 = 7/16.
        s = prumerge_plus(self.attention, self.keys, self.tokens, 1)
        assert torch.allclose(s.tokens, torch.tensor([[5 + 26 / 16, 1 + 7 / 16]]))

    def test_more_outliers_than_places_are_cut_by_attention(self):
        attention = torch.tensor([1.0] * 20 + [5, 9, 7])
        keys, tokens = image(23).keys, image(23).tokens
        assert prumerge_plus(attention, keys, tokens, 2).keep.tolist() == [21, 22]
        # Three outliers; step 23//3//3 = 2; all else is equal, so the first sample follows.
        assert prumerge_plus(attention, keys, tokens, 5).keep.tolist() == [0, 2, 20, 21, 22]

    def test_the_fence(self):
        # Sorted 0 1 2 3 4 5 6 12 13, quartiles at ranks 2 and 6: 2 and 6, fence 6 + 1.5*4 = 12: token 2 is
        # on it and not an outlier, token 1 is. Step 9/3 = 3: samples 0, 3, 6, of which 6 has most attention.
        attention = torch.tensor([0.0, 13, 12, 1, 2, 3, 4, 5, 6])
        assert prumerge_plus(attention, image(9).keys, image(9).tokens, 2).keep.tolist() == [1, 6]
        assert prumerge_plus(attention, image(9).keys, image(9).tokens, 5).keep.tolist() == [0, 1, 2, 3, 6]

    def test_without_outliers(self):
        # Step floor(12/1)/3 = 4: samples 0, 4, 8; then by attention, which rises.
        s = prumerge_plus(torch.arange(12.0), image(12).keys, image(12).tokens, 5)
        assert s.keep.tolist() == [0, 4, 8, 10, 11]

    def test_against_the_loop(self):
        """The 32 nearest of 60, kept ones among them; weights as they are; all from the tokens before."""
        x = image(60, 3)
        s = prumerge_plus(x.attention, x.keys, x.tokens, 12)
        unit = x.keys / x.keys.norm(dim=1, keepdim=True)
        for i, got in zip(s.keep.tolist(), s.tokens, strict=True):
            others = sorted((j for j in range(60) if j != i), key=lambda j: -float(unit[i] @ unit[j]))[:32]
            want = x.tokens[i] + sum(x.attention[j] * x.tokens[j] for j in others)
            assert near(got, want)


class TestScope:
    # Vectors at cosines a-b .8, a-c 0, b-c .6, d opposite to a; negative cosines cover nothing.
    # Sums of cover: a 1.8, b 2.4, c 1.6, d 1; times attention .1 .25 .25 .4: .18, .6, .4, .4: first b.
    # best = .8 1 .6 0; left: a .2*.1 = .02, c .4*.25 = .1, d 1*.4 = .4: then d, then c, then a.
    tokens = torch.tensor([[1.0, 0], [0.8, 0.6], [0, 1], [-1, 0]])
    attention = torch.tensor([0.1, 0.25, 0.25, 0.4])

    @each(("k", "keep"), [(1, [1]), (2, [1, 3]), (3, [1, 2, 3])])
    def test_feature(self, k, keep):
        assert scope(self.tokens, self.attention, k).keep.tolist() == keep

    def test_alpha(self):
        assert scope(self.tokens, self.attention.flip(0), 1, alpha=0).keep.tolist() == [1]
        assert scope(self.tokens, self.attention, 1, alpha=9).keep.tolist() == [3]  # attention alone

    def test_opposites_cover_nothing(self):
        # Sums of positive cosines: 1 for the first, 2 for each of the two opposite pairs. Were m to begin at
        # -1, the sums of cos + 1 would be 6 and 5 and the first would win.
        tokens = torch.tensor([[0.0, 1], [1, 0], [1, 0], [-1, 0], [-1, 0]])
        assert scope(tokens, torch.ones(5), 1).keep.tolist() == [1]

    def test_no_attention_at_all(self):
        assert scope(self.tokens, torch.zeros(4), 3).keep.tolist() == [0, 1, 2]

    @each("seed", range(5))
    def test_against_the_loop(self, seed):
        x = image(24, seed, 8)
        unit = x.tokens.double() / x.tokens.double().norm(dim=1, keepdim=True)
        worth = (unit @ unit.T).tolist()
        chosen = cover(worth, 9, (x.attention.double() ** 0.7).tolist())
        assert scope(x.tokens, x.attention, 9, alpha=0.7).keep.tolist() == sorted(chosen)

    def test_exception(self):
        with pytest.raises(ValueError, match=r"attention -0\.5 is below 0; pass probabilities"):
            scope(self.tokens, self.attention - 0.6, 2)
        with pytest.raises(ValueError, match="alpha -1 is below 0; use 0"):
            scope(self.tokens, self.attention, 2, alpha=-1)


def cover(worth: list[list[float]], k: int, weight: list[float]) -> list[int]:
    """Greedy facility location, candidate by candidate: worth[j][r] is what j gives to r."""
    best, chosen = [0.0] * len(worth[0]), []
    while len(chosen) < k:
        gains = {
            j: weight[j] * sum(max(0.0, a - b) for a, b in zip(row, best, strict=True))
            for j, row in enumerate(worth)
            if j not in chosen
        }
        chosen.append(max(gains, key=gains.__getitem__))
        best = [max(a, b) for a, b in zip(worth[chosen[-1]], best, strict=True)]
    return chosen


class TestMMTok:
    # Orthonormal tokens and a question equal to the first: P = softmax(50, 0, 0) = (1, 0, 0).
    # Features: 0 and 1 the same, 2 orthogonal. e^5 = 148.41. Rows of softmax(cos/.2): twice
    # (.4983, .4983, .0034), once (.0066, .0066, .9867). Gains, P + .5/3 * column sum:
    # 0: 1 + .1672; 1: .1672; 2: .1656: first 0.
    # Then 1 adds nothing, and 2 adds (.9867 - .0066)/6 = .1633: 2.
    features = torch.tensor([[1.0, 0], [1, 0], [0, 1]])

    def test_feature(self):
        assert mmtok(torch.eye(3), torch.eye(3)[:1], self.features, 1).keep.tolist() == [0]
        assert mmtok(torch.eye(3), torch.eye(3)[:1], self.features, 2).keep.tolist() == [0, 2]

    def test_the_question_decides(self):
        # Asked for the second token: its copy on the vision side is then worth nothing.
        assert mmtok(torch.eye(3), torch.eye(3)[1:2], self.features, 2).keep.tolist() == [1, 2]
        # Both asked for, half each: 1/2 outweighs the .1633 of token 2.
        assert mmtok(torch.eye(3), torch.eye(3)[:2], self.features, 2).keep.tolist() == [0, 1]

    @each("temperature", [0.02, 0.01])
    @each("seed", range(5))
    def test_against_the_loop(self, seed, temperature):
        """A question long enough that its tokens and the image's compete; every budget up to 12."""
        x = image(24, seed, 32)
        x.question = torch.randn(40, 32, generator=torch.Generator().manual_seed(seed))
        v, e, c = (
            t.double() / t.double().norm(dim=1, keepdim=True) for t in (x.tokens, x.question, x.features)
        )
        p = ((e @ v.T) / temperature).softmax(1) / 40
        q = ((c @ c.T) / 0.2).softmax(1) / 24
        chosen = cover(torch.cat((p, 0.5 * q)).T.tolist(), 12, [1.0] * 24)
        for k in range(1, 13):
            got = mmtok(x.tokens, x.question, x.features, k, temperature).keep.tolist()
            assert got == sorted(chosen[:k])

    @each("temperature", [0.0, -1.0, math.nan])
    def test_exception(self, temperature):
        x = image(5)
        with pytest.raises(ValueError, match=r"not above 0; the published ones are 0\.02 and 0\.01"):
            mmtok(x.tokens, x.question, x.features, 2, temperature)


class TestIDPruner:
    # Importance 0 2 4 3 scales to 0 .5 1 .75: first 2. Cosines to it: -1, 0, 1, 1.
    # Half and half: 0: 0 + .5 = .5; 1: .25 - 0 = .25; 3: .375 - .5 = -.125: then 0.
    # Then 1: .25 - .5*max(0, 0) = .25; 3: .375 - .5*max(1, -1) = -.125: then 1.
    importance = torch.tensor([0.0, 2, 4, 3])
    tokens = torch.tensor([[-1.0, 0], [0, 1], [1, 0], [1, 0]])

    @each(("k", "keep"), [(1, [2]), (2, [0, 2]), (3, [0, 1, 2])])
    def test_feature(self, k, keep):
        assert idpruner(self.importance, self.tokens, k).keep.tolist() == keep

    def test_importance_alone(self):
        assert idpruner(self.importance, self.tokens, 2, weight=1).keep.tolist() == [2, 3]

    def test_diversity_alone_still_begins_with_the_most_important(self):
        assert idpruner(self.importance, self.tokens, 3, weight=0).keep.tolist() == [0, 1, 2]

    def test_scale_of_importance_does_not_matter(self):
        x = image(48)
        assert idpruner(1000 + 50 * x.importance, x.tokens, 12).keep.equal(RULES["idpruner"](x, 12).keep)

    @each("seed", range(5))
    def test_against_the_loop(self, seed):
        x = image(24, seed, 8)
        unit = x.tokens.double() / x.tokens.double().norm(dim=1, keepdim=True)
        similarity = (unit @ unit.T).tolist()
        low, high = float(x.importance.min()), float(x.importance.max())
        merit = [(float(i) - low) / (high - low) for i in x.importance]
        chosen = [max(range(24), key=merit.__getitem__)]
        while len(chosen) < 9:
            score = {
                i: 0.3 * merit[i] - 0.7 * max(similarity[i][j] for j in chosen)
                for i in range(24)
                if i not in chosen
            }
            chosen.append(max(score, key=score.__getitem__))
        assert idpruner(x.importance, x.tokens, 9, weight=0.3).keep.tolist() == sorted(chosen)

    @each("weight", [-0.1, 1.1, math.nan])
    def test_exception(self, weight):
        with pytest.raises(
            ValueError, match=rf"weight {weight} .*not in \[0, 1\]; the published one is 0\.5"
        ):
            idpruner(self.importance, self.tokens, 2, weight)


class TestVisionSelector:
    def test_feature(self):
        # q is the first coordinate (1, 3), k the second (2, 4): mean k = 3, s = (3, 9).
        # Averaging over the queries instead would give k_i * 2 = (4, 8).
        scorer = QueryBlindScorer(2, 1, bias=False)
        scorer.query.weight.data = torch.tensor([[1.0, 0]])
        scorer.key.weight.data = torch.tensor([[0.0, 1]])
        assert scorer(torch.tensor([[1.0, 2], [3, 4]])).tolist() == [3, 9]
        assert visionselector(scorer(torch.tensor([[1.0, 2], [3, 4]])), 1).keep.tolist() == [1]

    @pytest.mark.parametrize("bias", [True, False])
    def test_against_the_whole_attention_matrix(self, bias):
        tokens = image(30).tokens
        scorer = QueryBlindScorer(64, 16, bias)
        assert (scorer.key.bias is not None) is bias
        a = scorer.query(tokens) @ scorer.key(tokens).T / 16**0.5
        assert near(scorer(tokens), a.mean(1))
        assert not torch.allclose(scorer(tokens), a.mean(0), atol=1e-2)

    def test_batch(self):
        scorer = QueryBlindScorer(64, 32)
        both = torch.stack((image(30).tokens, image(30, 1).tokens))
        assert scorer(both).shape == (2, 30)
        for one, scores in zip(both, scorer(both), strict=True):
            assert near(scorer(one), scores)

    def test_published_size(self):
        scorer = QueryBlindScorer(3584, 1792).to("meta")
        assert sum(p.numel() for p in scorer.parameters()) == 12_848_640  # "12.85 M"

    def test_a_bias_of_the_keys_changes_the_order(self):
        """It adds (q_i . bk) to each score; that of the queries adds the same to all."""
        tokens = image(30).tokens
        scorer = QueryBlindScorer(64, 16)
        before = scorer(tokens)
        scorer.query.bias.data += 1
        after = scorer(tokens) - before
        assert near(after, after[0].expand(30))
        scorer.key.bias.data += 1
        assert (scorer(tokens) - before - after).std() > 0.1

    def test_gradient_reaches_both_projections(self):
        scorer = QueryBlindScorer(64, 32)
        (soft_top_k(scorer(image(30).tokens), 9) * torch.arange(30)).sum().backward()
        assert scorer.query.weight.grad.abs().sum() > 0
        assert scorer.key.weight.grad.abs().sum() > 0


class TestSoftTopK:
    def test_feature(self):
        # Equal scores share k; scores a and -a with k = 1 have t = 0; log 3 gives 3/4 and 1/4.
        assert torch.allclose(soft_top_k(torch.full((8,), 5.0), 2), torch.full((8,), 0.25))
        a = math.log(3.0)
        assert torch.allclose(soft_top_k(torch.tensor([a, -a]), 1), torch.tensor([0.75, 0.25]))

    def test_gradient_by_hand(self):
        # v = 3/16 each; J = v I - v^2/(2v) = [[3/32, -3/32], [-3/32, 3/32]].
        s = torch.tensor([math.log(3.0), -math.log(3.0)], requires_grad=True)
        soft_top_k(s, 1)[0].backward()
        assert torch.allclose(s.grad, torch.tensor([3 / 32, -3 / 32]))

    @each("scale", [1e-3, 1.0, 30.0, 1e4])
    def test_sums_to_k_in_order(self, scale):
        s = scale * torch.randn(3, 1024, generator=torch.Generator().manual_seed(0))
        for k in (1, 2, 273, 1023, 1024):
            p = soft_top_k(s, k)
            assert torch.allclose(
                p.double().sum(-1), torch.full((3,), float(k), dtype=torch.double), rtol=1e-5
            )
            assert ((p >= 0) & (p <= 1)).all()
            assert (p.gather(1, s.argsort(dim=1)).diff(dim=1) >= 0).all()

    def test_becomes_hard(self):
        s = torch.tensor([0.0, 3, 1, 2]) * 1000
        assert torch.allclose(soft_top_k(s, 2), torch.tensor([0.0, 1, 0, 1]))

    def test_an_offset_does_not_matter(self):
        s = torch.randn(20, generator=torch.Generator().manual_seed(0), dtype=torch.double)
        assert torch.allclose(soft_top_k(s, 5), soft_top_k(s + 7, 5))

    @each(("shape", "k"), [((7,), 3), ((2, 6), 1), ((2, 3, 5), 4), ((4,), 4), ((1,), 1)])
    def test_gradcheck(self, shape, k):
        s = torch.randn(
            shape, generator=torch.Generator().manual_seed(1), dtype=torch.double, requires_grad=True
        )
        assert torch.autograd.gradcheck(lambda x: soft_top_k(x, k), s)

    def test_saturated_scores_have_a_finite_gradient(self):
        s = (torch.tensor([0.0, 3, 1, 2]) * 1e5).requires_grad_()
        (soft_top_k(s, 2) * torch.arange(4)).sum().backward()
        assert s.grad.isfinite().all()

    def test_exception(self):
        with pytest.raises(ValueError, match="cannot keep 9 of 8 tokens; use a count from 1 to 8"):
            soft_top_k(torch.zeros(2, 8), 9)
        with pytest.raises(ValueError, match=r"scores has 1 NaN .*compute scores again"):
            soft_top_k(torch.tensor([[0.0, math.nan]]), 1)


class TestNulls:
    def test_random_is_drawn_from_its_generator(self):
        g = torch.Generator().manual_seed(0)
        first, second = random(100, 20, g).keep, random(100, 20, g).keep
        assert not first.equal(second)
        assert first.equal(random(100, 20, torch.Generator().manual_seed(0)).keep)

    def test_random_is_fair(self):
        # Each of 10 tokens is kept in 3/10 of 2000 draws: 600, standard deviation sqrt(2000*.3*.7) = 20.5.
        g = torch.Generator().manual_seed(0)
        counts = torch.cat([random(10, 3, g).keep for _ in range(2000)]).bincount(minlength=10)
        assert ((counts - 600).abs() < 100).all()

    def test_even(self):
        # Two rows of two in a 4 x 4 grid: y = 1, 3 and x = 1, 3, so 4y + x = 5, 7, 13, 15.
        assert even((4, 4), 4).keep.tolist() == [5, 7, 13, 15]
        assert even((32, 32), 273).keep.equal(even_grid((32, 32), 273))

    def test_oracle_by_hand(self):
        # The even grid of 4 cells is 5, 7, 13, 15. Evidence 0 leaves them free, and k = 5 keeps all of them.
        evidence = torch.zeros(4, 4, dtype=torch.bool)
        evidence[0, 0] = True
        assert oracle(evidence, 5).keep.tolist() == [0, 5, 7, 13, 15]

    def test_a_grid_that_meets_the_evidence_grows(self):
        # 3 others are missing. The even grid of 3 is 5, 7, 14, of which 5 is evidence; that of 4 is
        # 5, 7, 13, 15 and leaves 3.
        evidence = torch.zeros(4, 4, dtype=torch.bool)
        evidence[1, 1] = True
        assert oracle(evidence, 4).keep.tolist() == [5, 7, 13, 15]

    def test_oracle_with_more_evidence_than_places(self):
        # Evidence 2..9; 2 of 8 evenly are the 3rd and the 7th: 4 and 8.
        evidence = torch.zeros(12, dtype=torch.bool)
        evidence[2:10] = True
        assert oracle(evidence, 2).keep.tolist() == [4, 8]
        assert oracle(evidence, 8).keep.tolist() == list(range(2, 10))

    @each("generator", [None, 3])
    @each("seed", range(4))
    def test_oracle_keeps_all_evidence(self, seed, generator):
        g = torch.Generator().manual_seed(seed)
        evidence = torch.rand(12, 9, generator=g) < 0.1 * (seed + 1)
        for k in range(int(evidence.sum()), 109):
            if k:
                s = oracle(evidence, k, generator and torch.Generator().manual_seed(generator))
                assert len(set(s.keep.tolist())) == k
                assert set(evidence.flatten().nonzero().flatten().tolist()) <= set(s.keep.tolist())

    def test_oracle_without_evidence_is_the_even_grid(self):
        assert oracle(torch.zeros(16, 16, dtype=torch.bool), 40).keep.equal(even_grid((16, 16), 40))

    def test_the_fill_of_an_oracle_is_spread(self):
        """Evidence in one corner; every quarter of the page still gets its part of the fill."""
        evidence = torch.zeros(32, 32, dtype=torch.bool)
        evidence[:6, :8] = True
        keep = oracle(evidence, 148).keep
        fill = keep[~evidence.flatten()[keep]]
        assert len(fill) == 100
        quarters = ((fill // 32 >= 16) * 2 + (fill % 32 >= 16)).bincount(minlength=4)
        assert quarters[1:].min() >= 23
        assert quarters[0] >= 15  # 208 of 256 cells are left there

    def test_exception(self):
        with pytest.raises(
            ValueError, match=r"evidence is torch\.float32; pass booleans, such as evidence > 0\.5"
        ):
            oracle(torch.rand(4, 4), 2)


class TestBlindOracle:
    def test_by_hand(self):
        # Cells 0 1 answer a; 1 2 3 b; 8..13 c. With 2 places only a fits. With 4: b costs 3 and makes itself
        # whole (1/3), a costs 2 (1/2); after a, b lacks 2 3 and fits: both.
        a, b, c = (torch.zeros(4, 4, dtype=torch.bool) for _ in range(3))
        a.view(-1)[[0, 1]] = b.view(-1)[[1, 2, 3]] = c.view(-1)[list(range(8, 14))] = True
        assert blind_oracle([a, b, c], 2).keep.tolist() == [0, 1]
        assert blind_oracle([a, b, c], 4).keep.tolist() == [0, 1, 2, 3]
        assert set(range(8, 14)) <= set(blind_oracle([a, b, c], 10).keep.tolist())

    def test_one_choice_may_complete_many(self):
        # c is the larger, but its cells hold d, e and f as well: 4 questions for 3 cells, against 1 for 2.
        a, c = torch.zeros(4, 4, dtype=torch.bool), torch.zeros(4, 4, dtype=torch.bool)
        a.view(-1)[[0, 1]] = c.view(-1)[[5, 6, 7]] = True
        parts = [torch.zeros(4, 4, dtype=torch.bool) for _ in range(3)]
        for part, cell in zip(parts, (5, 6, 7), strict=True):
            part.view(-1)[cell] = True
        assert blind_oracle([a, c, *parts], 3).keep.tolist() == [5, 6, 7]

    @each("seed", range(6))
    def test_near_the_best_of_all_choices(self, seed):
        """By trying all sets of questions: never above the best, and at least the greedy guarantee below."""
        g = torch.Generator().manual_seed(seed)
        evidences = [torch.rand(4, 5, generator=g) < 0.15 for _ in range(9)]
        evidences = [one for one in evidences if one.any()]
        sets = [set(one.flatten().nonzero().flatten().tolist()) for one in evidences]
        for k in (2, 5, 9):
            keep = set(blind_oracle(evidences, k).keep.tolist())
            own = sum(one <= keep for one in sets)
            best = 0
            for size in range(len(sets) + 1):
                for some in itertools.combinations(sets, size):
                    union = set().union(*some)
                    best = max(best, sum(one <= union for one in sets) if len(union) <= k else 0)
            assert 0.6 * best <= own <= best + 1  # an even fill may complete one by chance

    def test_everything_fits(self):
        g = torch.Generator().manual_seed(0)
        evidences = [torch.rand(6, 6, generator=g) < 0.1 for _ in range(5)]
        union = torch.stack(evidences).any(0).flatten().nonzero().flatten()
        assert set(union.tolist()) <= set(blind_oracle(evidences, 30).keep.tolist())

    def test_exception(self):
        mask = torch.zeros(4, 4, dtype=torch.bool)
        for wrong in ([], [mask.float()], [mask, mask[:2]]):
            with pytest.raises(
                ValueError, match="at least one question's evidence, all boolean and of one shape"
            ):
                blind_oracle(wrong, 2)
        with pytest.raises(ValueError, match="cannot keep 17 of 16 tokens"):
            blind_oracle([mask], 17)


def test_every_rule_returns_a_selection():
    for name, rule in ALL.items():
        assert isinstance(rule(image(12), 5), Reduction), name
