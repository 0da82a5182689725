"""Recording of traces: questions asked in a session, with the answer from all tokens for comparison.

`observe` changes no later answer of the session. The two answers compare: each starts without a cached
encoding. `Trace.again` has the times of a later question of the session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from arr_coc.answer import Answer
from arr_coc.choose.allocation import Allocation
from arr_coc.choose.texture import channel_names
from arr_coc.data.record import Box
from arr_coc.files.paths import local_path
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.trust import blend
from arr_coc.model import ARRCOCModel
from arr_coc.modes import FULL, find_mode
from arr_coc.modes.request import covering, resolve
from arr_coc.modes.route import cues_for
from arr_coc.modes.scoring import POOLED, default_gestalt, pictures
from arr_coc.relevance.deciding import LookedAt, groups
from arr_coc.relevance.source import guide_view
from arr_coc.seam.base import FamilyAdapter, as_frames
from arr_coc.seam.gaze import coupling, gaze_of_words
from arr_coc.seam.gestalt import coarse_features, find_compressor
from arr_coc.seam.prompt import Turn, template_mark
from arr_coc.session import ChoiceOptions, Session, SessionCall
from arr_coc.trace.evidence import Guidance, read_guidance, scaled
from arr_coc.trace.strip import Span, Strip, small_pictures
from arr_coc.trace.trace import FullAnswer, QuestionWord, Trace
from arr_coc.video import FrameSource
from arr_coc.video.opening import Visual
from arr_coc.video.temporal import Changes

CHOICE = frozenset(ChoiceOptions.__annotations__)
MAX_WORDS = 64  # words of a question that are scored; later ones aren't
WORD = re.compile(r"\w(?:\S*\w)?")  # "don't", "INV-2024", "10:30", and any text without spaces


def observe(
    session: Session,
    question: str,
    *,
    compare: bool = True,
    words: bool = True,
    true_answers: Sequence[str] = (),
    evidence: Sequence[Box] = (),
    on_text: Callable[[str], None] | None = None,
    on_full_text: Callable[[str], None] | None = None,
    **how: Any,
) -> Trace:
    """Ask a question and record the answer in a trace.

    In mode "compress" the trace of one image is of the coarse view: grid, picture and texture are its own.
    The picture of a clip's step is the one of its frames that is most like what the model read.

    Args:
        session: of one or more images and clips.
        question: any text.
        compare: answer from all tokens too, and time the kept ones once more (`Trace.again`).
        words: score each word of the question (`word_heat`); for one image only.
        true_answers: known true answers, recorded.
        evidence: boxes (x0, y0, x1, y1) in px of the image that show the answer, recorded.
        on_text: called with the answer so far after each token, and with the complete answer after each token
            of the comparison, so that an exception raised in it ends that as well.
        on_full_text: called in its place with the comparison's answer so far.
        **how: all other arguments of `Session.ask`.

    Raises:
        ValueError: as `Session.ask`, evidence for a clip or several images, or more steps than a trace holds.
    """
    is_image = len(session.images) == 1 and not session.has_clips
    if evidence and not is_image:
        raise ValueError(
            "evidence boxes are of one image, and this session has a clip or several: leave them out"
        )
    session.forget()
    answer = session.ask(question, on_text=on_text, **how)
    full, again = None, None
    if compare:
        repeat = None if on_text is None else lambda _: on_text(answer.text)
        full, again = _for_comparison(session, question, answer, how, repeat, on_full_text or repeat)
    parts: dict[str, Any]
    if is_image:
        parts = _of_image(session, question, answer, how, words)
        parts["evidence"] = scaled(evidence, session.image.size, parts["strips"][0].size)
    else:
        guided = [Guidance.of(coupling) for coupling in answer.couplings]
        parts = {"strips": _strips(session, question, answer.mode, answer.allocations, guided)}
    return Trace(
        question=question,
        answer=answer.text,
        mode=answer.mode,
        budget=answer.budget,
        kept=answer.kept,
        total=answer.total,
        read=answer.read,
        magnified=answer.magnified,
        fallback=answer.fallback,
        note=answer.note,
        ms=answer.ms,
        model=_base_name(session.model),
        machine=machine(session.model),
        full=full,
        again=again,
        true_answers=tuple(true_answers),
        **parts,
    )


def _for_comparison(
    session: Session,
    question: str,
    answer: Answer,
    how: Mapping[str, Any],
    on_text: Callable[[str], None] | None,
    on_full_text: Callable[[str], None] | None,
) -> tuple[FullAnswer, dict[str, float]]:
    """The answer from all tokens, uncached, and the times of the kept ones asked once more."""
    if find_mode(answer.mode).stock:
        later = _without_encoding(answer.ms)
        return FullAnswer(answer.text, answer.ms, later), later
    again = session.ask(question, on_text=on_text, **how)
    others = {name: value for name, value in how.items() if name not in CHOICE}
    whole = session.fresh().ask(question, mode=FULL.name, on_text=on_full_text, **others)
    return FullAnswer(whole.text, whole.ms, _without_encoding(whole.ms)), again.ms


def _without_encoding(ms: Mapping[str, float]) -> dict[str, float]:
    """The stock model's times for a later question, if it kept the encoding."""
    return {**ms, "encode": 0.0, "total": max(0.0, ms["total"] - ms["encode"])}


def machine(model: ARRCOCModel) -> str:
    """What a model's times were taken on: device, dtype and, on a CPU, the number of threads."""
    device, dtype = model.device, str(model.base.dtype).removeprefix("torch.")
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, {dtype}"
    threads = torch.get_num_threads()
    return f"{device.type}, {dtype}" + (f", {threads} threads" if device.type == "cpu" else "")


def _base_name(model: ARRCOCModel) -> str:
    """The base model's name; for a folder the last part, since a trace holds no path of the machine."""
    folder = local_path(model.base_name)
    return folder.name if folder.is_dir() else model.base_name


# ---- one image ----------------------------------------------------------------------------------------


def _of_image(
    session: Session, question: str, answer: Answer, how: Mapping[str, Any], words: bool
) -> dict[str, Any]:
    """The fields of `Trace` for one image: strip, texture, channels and words."""
    pieces = _pieces(question) if words else ()
    ran = find_mode(answer.mode)
    too_small = ran.gestalt and answer.read == answer.kept  # the coarse view holds no further cells
    if words and ran.scores and not answer.fallback and not too_small:
        choice = {name: how[name] for name in how if name in CHOICE and name != "mode"}
        history = how.get("history", ())
        pieces = word_heat(session, question, answer.mode, kept=answer.kept, history=history, **choice)
    view, texture = _view_and_texture(session, question, answer, how.get("gestalt"))
    picture = _fitted(view, answer.grid[1:])
    return {
        "strips": (Strip.of_image(picture, answer.allocation.cpu(), _guidance(session, question, answer)),),
        "texture": texture,
        "channels": channel_names(session.model.layer.config.channels),
        "words": pieces,
    }


def _guidance(session: Session, question: str, answer: Answer) -> Guidance | None:
    """The guide's record for an answer; None if the guide wasn't used."""
    views = [one.view for one in session.encoded(answer.mode).looked if one.view is not None]
    chooser = session.model.chooser
    source = chooser.source if answer.couplings else None
    if source is None or not views:
        return None
    page = guide_view(source, views[0])
    return read_guidance(chooser.guide, page, question, answer.couplings[0], answer.grid[1:])


@torch.no_grad()
def _view_and_texture(
    session: Session, question: str, answer: Answer, gestalt: str | None
) -> tuple[Tensor, Tensor]:
    """The picture that the model read [3, h, w], and its texture [C, H, W] on the answer's grid."""
    adapter, layer = session.model.adapter, session.model.layer
    inputs, encoded = session.inputs(question), session.encoded(answer.mode)
    view, (looked,) = pictures(adapter, inputs, encoded)[0], encoded.looked
    if find_mode(answer.mode).coarse:  # the coarse view has a texture of its own
        looked = LookedAt()
        if find_compressor(gestalt or default_gestalt(adapter)).factor is None:
            view = adapter.images(adapter.coarse(inputs, cells=answer.kept))[0]
    grid, like = answer.grid[1:], next(layer.parameters())
    texture = looked.textures.get((layer.config.channels, grid))
    if texture is None:
        more: dict[str, Tensor] = {}
        if "coarse_features" in layer.wanted_inputs:
            more["coarse_features"] = coarse_features(adapter, inputs)[0].to(like)
        texture = looked.texture(layer, grid, lambda: view.to(like), lambda: more)
    return view.float().cpu(), texture[0].float().cpu()


def _fitted(view: Tensor, grid: tuple[int, int]) -> Image.Image:
    """A picture [3, h, w] in [0, 1] as an image, enlarged to multiples of the grid's (H, W)."""
    pixels = (255 * view).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(np.ascontiguousarray(pixels))
    # -(-a // b) is ceil(a / b)
    height, width = (-(-side // cells) * cells for side, cells in zip(view.shape[1:], grid, strict=True))
    return image.resize((width, height), Image.Resampling.BICUBIC)


# ---- the words ----------------------------------------------------------------------------------------


@torch.no_grad()
def word_heat(
    session: Session, question: str, mode: str, *, kept: int, history: Sequence[Turn] = (), **choice: Any
) -> tuple[QuestionWord, ...]:
    """The heat and pull of each word of a question, by masking its tokens.

    Heat is the participatory map of the word's own tokens in place: from a trained layer with all other
    tokens masked, from an untrained one the guide's or the base model's attention for them; for a coverage
    from what is calibrated for it. Pull is 1 - IoU of the `kept` best cells with and without the word: of as
    many cells, also where a coverage or "auto" would count others without it. It is 0 if all cells are kept,
    or if they were named, which no word can change. Magnified cells are those of the model's own grid.

    Args:
        session: of the image; its encodings are reused.
        question: any text.
        mode: a mode that scores cells.
        kept: number of cells to keep.
        history: as in `Session.ask`.
        **choice: all other `ChoiceOptions`.

    Returns:
        Pieces that join to the question. Not scored are text between words, words after `MAX_WORDS`, and all
        words if the tokenizer gives no offsets.

    Raises:
        ValueError: as `Session.ask`, or a mode without scores.
    """
    words = _pieces(question)
    with session.call(question, mode=mode, history=history, **choice) as request:
        ids = request.inputs["input_ids"]
        content = session.model.adapter.question_mask(ids)[0]
        columns = _columns(session, question, words, ids[0], history) & content
        scored = [WORD.fullmatch(word.text) and columns[i].any() for i, word in enumerate(words)]
        spots = [i for i, one in enumerate(scored) if one][:MAX_WORDS]
        alone = columns[spots]
        # (1 + 2W, S) for W scored words: the question, each word, all but each word
        sets = torch.cat([content[None], alone, content & ~alone])
        whole, *others = _allocate_sets(request, sets, content, kept)
    heats, without = others[: len(spots)], others[len(spots) :]
    pulls = [0.0 if request.call.keep else 1 - whole.iou(other) for other in without]
    of_spot = {
        i: QuestionWord(words[i].text, pull, only.participatory[0])
        for i, pull, only in zip(spots, pulls, heats, strict=True)
    }
    return tuple(of_spot.get(i, word) for i, word in enumerate(words))


def _pieces(question: str) -> tuple[QuestionWord, ...]:
    """The words of a question and the text between them, not scored."""
    return tuple(QuestionWord(text) for text in re.split(f"({WORD.pattern})", question) if text)


def _columns(
    session: Session, question: str, words: Sequence[QuestionWord], ids: Tensor, history: Sequence[Turn]
) -> Tensor:
    """Which tokens of the prompt `ids` [S] belong to each piece of the question: bool [pieces, S]."""
    processor = session.model.processor
    belong = torch.zeros(len(words), len(ids), dtype=torch.bool, device=ids.device)
    text, mark = session.prompt(question, history), template_mark(processor, "image") or ""
    start = end = text.find(mark)
    for part in (*chain.from_iterable(history), question):  # each stands behind the ones before
        start = -1 if start < 0 else text.find(part, end)
        end = start + len(part)
    if start < 0 or not processor.tokenizer.is_fast:
        return belong
    read = processor.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    image = processor.tokenizer.convert_tokens_to_ids(mark)
    if image not in read["input_ids"]:
        return belong
    # Both prompts agree only in the tokens behind the image.
    behind = len(read["input_ids"]) - read["input_ids"].index(image) - 1
    if read["input_ids"][-behind:] != ids[-behind:].tolist():
        return belong
    offsets = list(enumerate(read["offset_mapping"][-behind:], start=len(ids) - behind))
    for columns, word in zip(belong, words, strict=True):
        end = start + len(word.text)
        columns[[column for column, (left, right) in offsets if left < end and right > start]] = True
        start = end
    return belong


def _allocate_sets(request: SessionCall, sets: Tensor, content: Tensor, kept: int) -> list[Allocation]:
    """The allocations of `kept` cells for `sets` of a question's words, made as for all of them, `content`.

    `sets` bool [W, S] and `content` bool [S] mark tokens of the prompt; the call's mode must score cells.
    """
    chooser, call = covering(request.chooser, request.call)
    call, _ = resolve(chooser, call)
    cues, encoded = cues_for(chooser, call)[0], call.encoded
    looked = encoded.looked[0]
    ids = request.inputs["input_ids"][0]
    guided: list[Coupling | None] = [None] * len(sets)
    looks: list[Tensor | None] = [None] * len(sets)
    source, (height, width) = chooser.source_of(call), cues.texture.shape[-2:]
    if source is not None and cues.guided is not None and looked.view is not None:
        texts = [_text(chooser.adapter, ids, words, content) for words in sets]
        couplings = [source.couple(looked.view, text, (height, width)) for text in texts]
        guided = [*couplings]
        looks = [*(one.logits for one in couplings)]
    name = call.gestalt if call.mode.before_encoder else POOLED
    if cues.coupling is not None and name in encoded.neutral:  # attention of the model's first layers
        view, neutral = encoded.gestalts[name], encoded.neutral[name][0]
        maps = gaze_of_words(call.adapter, request.inputs, sets, view, neutral, features=encoded.features)
        height, width = cues.coupling.shape[1:]
        gazes = [coupling(look, (height, width)) for look in maps]
        looks = [gaze if g is None else blend(g, gaze) for g, gaze in zip(guided, gazes, strict=True)]
    best_alone = call.rule is not None and call.rule.doubt(cues.guided) is None  # as a coverage is calibrated
    records = []
    # The layer masks all tokens of the question (Q) but `words`, bool [Q].
    for words, look, says in zip(sets[:, content], looks, guided, strict=True):
        own = None if look is None else look[None].to(cues.texture)
        part = cues._replace(query_mask=words[None], coupling=own, guided=says).relevance(chooser.layer)
        part = part._replace(explore=torch.zeros(1)) if best_alone else part
        records += chooser.layer.allocate(part, kept)
    return [record.cpu() for record in records]


def _text(adapter: FamilyAdapter, ids: Tensor, words: Tensor, content: Tensor) -> str:
    """The words of a set, bool [S], as text with the spaces between them."""
    places = content.nonzero().flatten()
    spaces = torch.zeros_like(content)
    spaces[places[0] : places[-1]] = True
    return adapter.processor.tokenizer.decode(ids[words | (spaces & ~content)].tolist())


# ---- clips, or several images ----------------------------------------------------------------------------


@torch.no_grad()
def _strips(
    session: Session,
    question: str,
    mode: str,
    allocations: Sequence[Allocation],
    guided: Sequence[Guidance],
) -> tuple[Strip, ...]:
    """The strips of a session, from an answer's allocations and guide records."""
    adapter, encoded = session.model.adapter, session.encoded(mode)
    inputs, frames = as_frames(adapter, session.inputs(question))
    read = groups(pictures(adapter, inputs, encoded), frames or (1,) * len(allocations))
    visuals = zip(session.images, read, allocations, strict=True)
    sources = [
        (
            [_picture(views[0])] if isinstance(visual, Image.Image) else _looked_at(visual, views),
            _picture_size(visual, views[0]),
            record.grid,
        )
        for visual, views, record in visuals
    ]
    strips = []
    for i, made in enumerate(small_pictures(sources)):
        visual, views, record = session.images[i], read[i], allocations[i].cpu()
        cuts: tuple[int, ...] = ()
        if isinstance(visual, FrameSource):
            compared = encoded.changes[i] if encoded.changes else None
            changes = compared or Changes.of(views, record.grid[1:])
            cuts = tuple(changes.cuts.nonzero().flatten().tolist())
        height, width = views[0].shape[-2:]
        strips.append(
            Strip(
                pictures=made,
                allocation=record,
                side=(width, height),
                spans=_spans(visual, len(views)),
                cuts=cuts,
                guidance=guided[i] if guided else None,
            )
        )
    return tuple(strips)


def _spans(visual: Visual, steps: int) -> tuple[Span, ...]:
    """The seconds of each step's first and last frame; () for an image."""
    if isinstance(visual, Image.Image):
        return ()
    each = -(-len(visual) // steps)  # frames per step, rounded up
    parts = [visual.times[start : start + each] for start in range(0, len(visual), each)]
    return tuple((part[0], part[-1]) for part in parts)


def _looked_at(clip: FrameSource, views: Sequence[Tensor]) -> Iterator[Image.Image]:
    """For each step of a clip, the frame most like what the model read of it, [3, h, w] in [0, 1]."""
    each, rest = -(-len(clip) // len(views)), iter(clip)
    for view in views:
        yield min(islice(rest, each), key=partial(_difference, view=view))


def _difference(frame: Image.Image, view: Tensor) -> float:
    """Mean absolute difference of a frame and a picture [3, h, w] in [0, 1], in levels of 255."""
    small = np.asarray(frame.resize((view.shape[2], view.shape[1])), dtype=np.float32)
    # (3, h, w) -> (h, w, 3)
    return float(np.abs(small - 255 * view.float().cpu().permute(1, 2, 0).numpy()).mean())


def _picture_size(visual: Visual, view: Tensor) -> tuple[int, int]:
    """(width, height) of an image as the model read it, or of a clip's own frames."""
    return (view.shape[2], view.shape[1]) if isinstance(visual, Image.Image) else visual.size


def _picture(view: Tensor) -> Image.Image:
    """A picture [3, h, w] in [0, 1] as an image."""
    return Image.fromarray((255 * view).round().byte().permute(1, 2, 0).cpu().contiguous().numpy())
