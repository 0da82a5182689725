"""What later questions need of earlier pictures: parts of them, to be sent with the question.

    recalled = await recall_all(packer, slots, pictures, outcomes, {4: "Who teaches Chemistry?"}, dial)
    recalled[4].outcome.parts        captions and pictures for the end of turn 4

Law: what a turn gets depends on that turn and those before it, so that it gets the same whenever it is sent
again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arr_coc.guide.question import terms
from arr_coc.proxy.coordinates import asks_for_coordinates
from arr_coc.proxy.earlier import Shown, named_things
from arr_coc.proxy.messages import PictureSlot
from arr_coc.proxy.packing import Dial, Outcome, Packer, Picture, captioned

MAX_BEFORE = 10  # earlier pictures, the last ones, of which one may be what a question is about


class Recalled(NamedTuple):
    """Parts of an earlier picture that a turn's question needs."""

    picture: int  # index of the picture that they are of
    outcome: Outcome  # captions name the picture


async def recall_all(
    packer: Packer,
    slots: Sequence[PictureSlot],
    pictures: Sequence[Picture],
    outcomes: Sequence[Outcome],
    questions: Mapping[int, str],
    dial: Dial,
) -> dict[int, Recalled]:
    """Return what the turns of a conversation need of earlier pictures; turns that need nothing are left out.

    Args:
        packer: That judges and cuts the pictures.
        slots: Where they are.
        pictures: The same pictures, for the packer.
        outcomes: What became of each in its own turn.
        questions: What turns of the user say, by their numbers.
        dial: The settings.
    """
    places: dict[bytes, list[Shown]] = defaultdict(list)  # places of each picture in the turns so far
    whole: set[bytes] = set()  # pictures all of which was sent as it came
    recalled: dict[int, Recalled] = {}
    passed = 0
    for turn in sorted(questions):
        while passed < len(slots) and slots[passed].turn < turn:
            places[pictures[passed].digest] += outcomes[passed].places
            if not outcomes[passed].parts:
                whole.add(pictures[passed].digest)
            passed += 1
        own = [number for number, slot in enumerate(slots) if slot.turn == turn]
        if not _may_be_about_others(questions[turn], [outcomes[number] for number in own], packer.sure):
            continue
        left_out = {pictures[number].digest for number in own}
        before = {
            one.digest: number for number, one in enumerate(pictures[:passed]) if one.digest not in left_out
        }
        last = sorted(before.values())[-MAX_BEFORE:]
        abouts = [pictures[number]._replace(question=questions[turn]) for number in last]
        beliefs = await packer.judge_all(abouts)
        candidates = [
            (one.confidence, number, about)
            for one, number, about in zip(beliefs, last, abouts, strict=True)
            if one.confidence
        ]
        if not candidates:
            continue
        _, number, about = max(candidates, key=lambda one: one[:2])
        if about.digest in whole:
            continue
        outcome = await packer.cut(about, dial, tuple(places[about.digest]))
        if outcome.parts:
            places[about.digest] += outcome.places
            source = f"From picture {slots[number].number}, sent earlier: "
            recalled[turn] = Recalled(number, captioned(outcome, source))
    return recalled


def _may_be_about_others(question: str, own: Sequence[Outcome], sure: float) -> bool:
    """Return whether a question may be about an earlier picture rather than those that came with it."""
    if not named_things(terms(question).words) or asks_for_coordinates(question):
        return False
    return all(
        one.reason in ("unsure", "small") and one.confidence is not None and one.confidence < sure
        for one in own
    )
