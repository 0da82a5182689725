"""The dense loss of the vision tower."""

from __future__ import annotations

import torch

from arr_coc_lab.world import draw_page
from making import bundled, vision
from making.targets import cell_targets
from making.words import ROLES, build_roles


def test_dense_loss_is_small_for_perfect_eyes_only(tokenizer, embeddings):
    roles = build_roles(tokenizer, embeddings)
    words = torch.from_numpy(cell_targets(draw_page(4, (256, 256)))).flatten(1).long()
    perfect = torch.zeros(words.shape[1], bundled.DIM)
    for r, role in enumerate(ROLES):
        there = words[r] >= 0
        perfect[there] += roles.directions[roles.spans[role][0] + words[r][there]]
    good, accuracy = vision.dense_loss(perfect, words, roles)
    bad, _ = vision.dense_loss(torch.zeros_like(perfect), words, roles)
    assert float(good) < 0.2 * float(bad)
    assert min(accuracy.values()) > 0.9
