"""ARR-COC's modes as methods of an evaluation, with all tokens ("full") and ARR-COC's own nulls and bounds.

"shuffled question" decides by another image's question, "averaged patches" is an untrained coarse view,
"oracle sparse" encodes the evidence cells alone, "coc ..." sends a coarse view in place of the image.
"""

from __future__ import annotations

from arr_coc.choose.layer import ARRCOCLayer
from arr_coc_lab.evaluate.early import averaged_patches, by_mode, encoded_alone, of_another_question
from arr_coc_lab.evaluate.view import View
from arr_coc_lab.results.kinds import FULL, OURS, SACCADE, SPARSE
from arr_coc_lab.results.styles import AVERAGED, SHUFFLED
from arr_coc_lab.rivals.method import Count, Method, Need, register
from arr_coc_lab.rivals.nulls import select_oracle
from arr_coc_lab.rivals.reduction import Reduction


def ours(name: str, layer: ARRCOCLayer | None = None, other: bool = False) -> Method:
    """ARR-COC's mode "prune" as a method, with another allocator `layer` (kind "variant") if given.

    `other` decides by another image's question, which makes it a null.
    """

    def select(view: View, i: int, budget: Count) -> Reduction:
        allocation = view.chosen(layer, i, budget, other)
        return Reduction(allocation.keep, allocation=allocation)

    return Method(
        name,
        "null" if other else "ours" if layer is None else "variant",
        select,
        by_question=True,
        needs=frozenset({"other"} if other else ()),
        auto=not other,
        mode="prune",
    )


def _gestalt(name: str, *needs: Need) -> Method:
    return Method(
        f"coc {name}",
        "coc",
        prepare=by_mode("compress", name),
        needs=frozenset(needs),
        fixed=True,
        mode="compress",
    )


register(Method(FULL, "full"))
register(ours(OURS))
register(
    Method(
        SPARSE,
        "ours",
        prepare=by_mode("sparse"),
        by_question=True,
        needs=frozenset({"sparse"}),
        auto=True,
        mode="sparse",
    )
)
register(
    Method(
        SACCADE,
        "ours",
        prepare=by_mode("saccade"),
        by_question=True,
        needs=frozenset({"sparse"}),
        fixed=True,
        mode="saccade",
    )
)
register(ours(SHUFFLED, other=True))
register(
    Method(
        f"{SHUFFLED} sparse",
        "null",
        prepare=encoded_alone(of_another_question),
        by_question=True,
        needs=frozenset({"sparse", "other"}),
        mode="sparse",
        timed=False,
    )
)
register(
    Method(
        "oracle sparse",
        "bound",
        prepare=encoded_alone(select_oracle),
        by_question=True,
        needs=frozenset({"sparse"}),
        mode="sparse",
    )
)
register(_gestalt("resize", "sparse"))
register(_gestalt("pool4", "encoded"))
register(_gestalt("pool16", "encoded"))
register(_gestalt("tower4", "tower4"))
register(_gestalt("tower16", "tower16"))
_TOWERS: tuple[tuple[Need, int], ...] = (("tower4", 4), ("tower16", 16))
for _name, _factor in _TOWERS:
    register(
        Method(
            f"{AVERAGED} {_factor}",
            "null",
            prepare=averaged_patches(_factor),
            needs=frozenset({"halves"}),
            fixed=True,
        )
    )
    register(
        Method(
            f"{SACCADE} {_name}",
            "ours",
            prepare=by_mode("saccade", _name),
            by_question=True,
            needs=frozenset({"sparse", _name}),
            fixed=True,
            mode="saccade",
        )
    )
