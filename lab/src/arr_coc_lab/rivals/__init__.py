"""Rivals: published selection rules on plain tensors, one file per method, and the nulls.

    rule(tensors of one image, k) -> Reduction(keep [k], tokens [k, D] or None)

No model is loaded or changed here; each rule takes the tensors its mathematics needs. All are written
from the papers' formulas. Each file ends by registering its method in `METHODS`, with its kind, needs, label,
paper and plot style; importing the file here is the one line that adds it. `clips` has those
for video, in a table of their own.
"""

from __future__ import annotations

from arr_coc.choose.attending import soft_top_k
from arr_coc_lab.rivals.cdpruner import cdpruner
from arr_coc_lab.rivals.divprune import divprune
from arr_coc_lab.rivals.downsample import smaller_grid
from arr_coc_lab.rivals.fastv import fastv
from arr_coc_lab.rivals.idpruner import idpruner
from arr_coc_lab.rivals.method import METHODS, ImageView, Method, Style, find_method, register
from arr_coc_lab.rivals.mmtok import mmtok
from arr_coc_lab.rivals.nulls import blind_oracle, even, ink_density, oracle, random
from arr_coc_lab.rivals.prumerge import prumerge_plus
from arr_coc_lab.rivals.reduction import Reduction
from arr_coc_lab.rivals.scope import scope
from arr_coc_lab.rivals.visionselector import QueryBlindScorer, visionselector
from arr_coc_lab.rivals.visionzip import visionzip

__all__ = [
    "Reduction", "METHODS", "Method", "ImageView", "Style", "register", "find_method",
    "fastv", "visionzip", "divprune", "cdpruner", "prumerge_plus", "scope", "mmtok", "idpruner",
    "visionselector", "QueryBlindScorer", "soft_top_k",
    "random", "even", "ink_density", "oracle", "blind_oracle", "smaller_grid",
]  # fmt: skip
