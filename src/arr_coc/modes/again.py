"""A second look: more cells, where the model looked for them while it answered (iterative saccades).

    look_again(chooser, call, prepared, gestalt, answer_ids) -> the call with more cells, or None
    directed(chooser, question, mode, looks, free)           -> the mode in which to look for a question

The first answer is made from a gestalt and the cells that the question chose. The attention that its tokens
paid to the gestalt, relative to a neutral question's, says which coarse cells were read although nothing fine
stood for them: what is under these is added, at most MORE cells. None where it stays within what is kept.

Law: the second answer is that of a call which keeps all of these cells from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import torch

from arr_coc.guide.trust import is_transcription
from arr_coc.modes import FULL, SACCADE, find_mode
from arr_coc.modes.call import Call, Chooser, Prepared, guarded
from arr_coc.modes.whole import gazed
from arr_coc.seam import VisualFeatures
from arr_coc.seam.gaze import STEEPNESS, coupling, gaze_of_answer

MORE = 64
"""The most cells that one further look adds."""
DRAWN = 2 * STEEPNESS
"""The least logit of a cell that is asked for: two standard deviations above the mean of the picture."""

WHOLE = (
    "the question is about all that is printed, so all tokens were read; transcribe() reads part after part"
)
PART = "the question is about all that is printed, and only a part was read: name neither mode nor budget"


def directed(
    chooser: Chooser, question: str, mode: str | None, looks: int, free: bool
) -> tuple[str | None, str | None]:
    """The mode that a question calls for, and what is to be said of it.

    Args:
        chooser: whose guide knows questions about all that is printed.
        question: any text; what is none is left to be refused elsewhere.
        mode: that the caller names, or None.
        looks: how often the model may look.
        free: the caller leaves open what is kept.

    Returns:
        None as a mode: that of the model.

    Raises:
        ValueError: a number of looks below 1, or more than one in a mode that can't look again.
    """
    if isinstance(looks, bool) or not isinstance(looks, int) or looks < 1:
        raise ValueError(f"looks {looks!r} is no number of looks: use 1, 2, ...")
    if looks > 1 and mode is None:
        mode = SACCADE.name
    if looks > 1 and not (find_mode(mode or "").gestalt and find_mode(mode or "").chooses):
        raise ValueError(
            f"mode {mode!r} looks once: it has no coarse view in which to miss something; use mode 'saccade'"
        )
    guide = chooser.guide if isinstance(question, str) and question.strip() else None
    if guide is None or not is_transcription(guide, question):
        return mode, None
    if mode is None and free:
        return FULL.name, WHOLE
    chooses = mode is None or find_mode(mode).chooses or find_mode(mode).coarse
    return mode, PART if chooses and not free else None


def rising(cells: Sequence[int] | torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """Named cells of one image as a `Call` takes them; none for None.

    Raises:
        ValueError: they are no whole numbers, such as a mask.
    """
    if cells is None:
        return ()
    with suppress(TypeError, ValueError, RuntimeError):  # of what no tensor can be made
        named = torch.as_tensor(cells)
        fractions = named.numel() > 0 and (named.is_floating_point() or named.is_complex())
        if named.dtype != torch.bool and not fractions:
            return (named.long().unique(),)
    text = " ".join(repr(cells).split())[:60]
    raise ValueError(
        f"cells are {text}: give their numbers in raster order, such as `allocation.keep` or "
        "mask.flatten().nonzero()"
    )


def once(prepared: Prepared, looks: int) -> str | None:
    """Why a call that may look `looks` times could look once alone; None where it could again."""
    if looks == 1 or prepared.again is not None:
        return None
    whole = all(allocation.kept == allocation.total for allocation in prepared.allocations)
    why = "all cells were kept" if whole else f"{prepared.mode} of these images has no coarse view"
    return f"the model looked once: {why}"


def look_again(
    chooser: Chooser, call: Call, prepared: Prepared, gestalt: VisualFeatures, answer_ids: Sequence[int]
) -> Prepared | None:
    """The same call with the cells added that the answer asked for.

    Args:
        chooser: what decides.
        call: of one image.
        prepared: what the answer was made from.
        gestalt: the coarse view in it.
        answer_ids: the tokens of the answer.

    Returns:
        None: nothing new was asked for, or it can't be said what was.
    """
    adapter = chooser.adapter_for(call.mode)
    allocation = prepared.allocations[0]
    fine, coarse = allocation.grid, gestalt.grids[0]

    def asked_for() -> torch.Tensor:
        layout = adapter.layout(call.inputs)
        if call.gestalt not in call.encoded.neutral:
            gazed(adapter, call, call.gestalt, gestalt, layout.grids)
        neutral = call.encoded.neutral[call.gestalt][0]
        with call.watch("scoring"):
            look = gaze_of_answer(adapter, prepared.compacted, answer_ids, neutral, coarse)
            logits = coupling(look, fine[1:]).flatten().cpu()
        logits[allocation.keep] = -torch.inf
        best = logits.argsort(descending=True, stable=True)[:MORE]
        return best[logits[best] >= DRAWN]

    new = guarded(chooser, asked_for, "nobody can say where the model would look again")
    if new is None or not len(new):
        return None
    more = replace(call, keep=(torch.cat([allocation.order, new]),))
    again = call.mode.prepare(chooser, more)
    if again.fallback:
        return None
    cells = again.allocations[0]  # the maps stay those of the first look, whose decision it was
    parts = {name: getattr(cells, name) for name in ("keep", "order", "positions", "reasons")}
    record = replace(allocation, **parts)
    return replace(again, allocations=[record], couplings=prepared.couplings)
