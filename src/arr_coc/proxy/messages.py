"""Requests of chat APIs: where a JSON body has pictures of the user, and what the user asks about each.

    api = api_of("/v1/chat/completions")
    slots = picture_slots(api, body)              each with the picture's base64 and its question
    body = with_parts(api, body, {slots[0]: [("What it shows.", PNG in base64), ...]})

A conversation only grows: what is read of a turn depends on that turn and on those before it, never on a
later one. A body comes from anybody: whatever has another shape than the API's is passed over.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from arr_coc.files.question import questions_after, standing_questions
from arr_coc.proxy.tags import Line, placed

MAX_QUESTION = 2_000  # characters of a turn that count as its question, the last ones
MAX_LATER = 100  # turns behind the first picture that may be about an earlier one
IN_PATH = re.compile(r"/(?:deployments|engines)/([^/]+)/")
DATA_URL = re.compile(
    r"\s*data:(?:image/[\w.+-]{1,40}|application/octet-stream)(;[\w.+-]{1,40}=[^;,\s]{0,80}){0,4}\s*;\s*base64\s*,",
    re.ASCII | re.IGNORECASE,
)
JPEG = "/9j/"  # how the base64 of a JPEG begins
DETAILS = ("auto", "high", "original", None)  # by which a smaller picture costs less
OF_THE_PICTURE = re.compile(
    r"(^|_)(uu|gu)?ids?$|hash|digest|checksum|md5|sha\d|etag|(^|_)key$|pixel|width|height|(^|_)(size|bytes|length)|"
    r"dimension|format|mime|media|(^|_)type$|file|(^|_)(name|path|url|uri|data)$|resol|aspect|ratio|scale|grid|"
    r"(^|_)(crop|box|bbox|region|roi)|thumb|preview|exif|orientation|rotation|(^|_)alt(_|$)|caption"
)
"""Names of fields that say which picture a part holds, how large it is or of what form."""
WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # of a name such as mediaType

Parts = Sequence[tuple[str, str]]
"""What stands in place of a picture: captions, each with a PNG or a JPEG in base64, or "" for none."""


class Api(NamedTuple):
    """A chat API by the shape of its requests."""

    name: str
    path: str  # how the path of its requests ends
    turns: str  # the key of the turns in a body; "": the body is the only turn
    text: str = ""  # the type of a part with words; "": words and pictures are fields of a turn
    picture: str = ""  # the type of a part with a picture


APIS = (
    Api("chat", "/chat/completions", "messages", "text", "image_url"),
    Api("responses", "/responses", "input", "input_text", "input_image"),
    Api("messages", "/messages", "messages", "text", "image"),
    Api("messages", "/messages/count_tokens", "messages", "text", "image"),
    Api("ollama", "/api/chat", "messages"),
    Api("ollama", "/api/generate", ""),
)
"""OpenAI's chat completions and responses, Anthropic's Messages, Ollama's chat and its single prompts."""


class PictureSlot(NamedTuple):
    """A picture in a request."""

    turn: int
    place: int  # in the turn's parts, or in its list of images
    data: str  # base64 of an image file
    question: str  # of the user about it; "": no words came with it or before it
    number: int = 0  # 1 for the first picture of the user's turns, those that can't be packed counted, too
    alone: bool = True  # whether its turn has no other picture


def api_of(path: str) -> Api | None:
    """The API that a request's path is of; None for other paths, which are passed on."""
    return next((api for api in APIS if path.endswith(api.path)), None)


def model_of(body: object) -> str:
    """The name of the model that a body asks; "" if it names none."""
    name = body.get("model") if isinstance(body, dict) else None
    return _sound(name[:200]) if isinstance(name, str) else ""


def model_in_path(path: str) -> str:
    """The name of the model in a path, as Azure has it (/openai/deployments/NAME/...); "" without one."""
    named = IN_PATH.search(path)
    return "" if named is None else _sound(unquote(named[1])[:200])


def picture_slots(api: Api, body: object) -> list[PictureSlot]:
    """The pictures of the user's turns in a body, in order.

    A picture's question is the words of its own turn; where that has none, those of the last turn of the user
    before it that has some. What is said later is no question about it, so that a turn is read alike however
    long the conversation becomes. Pictures by address and those of other roles are left out, as are results
    of tools, whose coordinates an agent may answer in, and parts with a number that JSON has not, such as
    1e999, which can't be written anew.
    """
    turns, slots, before = _turns(api, body), [], 0
    questions = standing_questions(_words(api, turn) if _is_users(turn) else "" for turn in turns)
    for number, (turn, question) in enumerate(zip(turns, questions, strict=True)):
        if not _is_users(turn):
            continue
        places = _picture_places(api, turn)
        for place, data in pictures_in(api, turn):
            at = before + 1 + places.index(place)
            slots.append(PictureSlot(number, place, data, question or "", at, len(places) == 1))
        before += len(places)
    return slots


def later_questions(api: Api, body: object, after: int) -> dict[int, str]:
    """What the user's turns behind one say, by their numbers: the first MAX_LATER that have words."""

    def words(turn: Any) -> str:
        able = _is_users(turn) and (api.text or isinstance(turn.get("images") or [], list))
        return _words(api, turn) if able else ""

    return dict(islice(questions_after(map(words, _turns(api, body)), after), MAX_LATER))


def with_parts(
    api: Api, body: Any, parts: Mapping[PictureSlot, Parts], added: Mapping[int, Parts] | None = None
) -> Any:
    """A copy of a body with captions and pictures in place of some of its pictures; all else is as it was.

    `added` are captions and pictures for the ends of turns, by their numbers.
    """
    turns, added = list(_turns(api, body)), added or {}
    for number in dict.fromkeys([*(slot.turn for slot in parts), *added]):
        held = {slot.place: many for slot, many in parts.items() if slot.turn == number}
        change = _with_fields if not api.text else with_list
        turns[number] = change(api, turns[number], held, added.get(number, ()))
    return body | {api.turns: turns} if api.turns else turns[0]


def _turns(api: Api, body: object) -> Sequence[Any]:
    if not isinstance(body, dict):
        return ()
    turns = body.get(api.turns) if api.turns else [body]
    return turns if isinstance(turns, list) else ()


def _is_users(turn: object) -> bool:
    return isinstance(turn, dict) and turn.get("role", "user") == "user"


def _words(api: Api, turn: Mapping[str, Any]) -> str:
    """What a turn says, its last MAX_QUESTION characters."""
    content = turn.get("content" if api.turns else "prompt")
    if isinstance(content, list) and api.text:
        parts = (part for part in content if isinstance(part, dict) and part.get("type") == api.text)
        content = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    if not isinstance(content, str):
        return ""
    return _sound(content[-MAX_QUESTION:]).strip()


def _sound(text: str) -> str:
    """A text without halves of characters, which JSON can write and nothing else can."""
    return text.encode("utf-8", "replace").decode()


def _picture_places(api: Api, turn: Mapping[str, Any]) -> list[int]:
    """Return the places of all pictures of a turn, whether they can be packed or not."""
    content = turn.get("content" if api.text else "images")
    parts = enumerate(content if isinstance(content, list) else ())
    return [
        n for n, part in parts if not api.text or (isinstance(part, dict) and part.get("type") == api.picture)
    ]


def pictures_in(api: Api, turn: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the place and the base64 of each picture in a turn that can be changed."""
    content = turn.get("content" if api.text else "images")
    for place, part in enumerate(content if isinstance(content, list) else ()):
        data = _base64_of(api, part) if api.text else part if isinstance(part, str) else None
        if data is not None and (prefix := DATA_URL.match(data)):
            data = data[prefix.end() :]
        if data and (not api.text or _can_be_written(part)):
            yield place, data


def _base64_of(api: Api, part: Any) -> str | None:
    """The picture of a part, as a data URL or bare base64; None where there is none that can be packed."""
    if not isinstance(part, dict) or part.get("type") != api.picture:
        return None
    if api.picture == "image":  # Anthropic's
        source = part.get("source")
        inside = isinstance(source, dict) and source.get("type") == "base64"
        data = source.get("data") if inside else None
        return data if isinstance(data, str) else None
    held = part.get("image_url")
    url, detail = (held.get("url"), held.get("detail")) if isinstance(held, dict) else (held, None)
    if any(
        one not in DETAILS for one in (detail, part.get("detail"))
    ):  # "low" costs the same whatever is sent
        return None
    return url if isinstance(url, str) and DATA_URL.match(url) else None


def _can_be_written(part: dict[str, Any]) -> bool:
    """Whether what stays of a picture's part is JSON."""
    try:
        json.dumps([_for_any(part), part_with(part, "")], allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True


def with_list(api: Api, turn: dict[str, Any], held: Mapping[int, Parts], added: Parts = ()) -> dict[str, Any]:
    """Return a turn, with its parts in a list, that has others in place of some; "" is no picture.

    `added` are captions and pictures for its end.
    """
    words = turn["content"]
    content: list[Any] = []
    for place, part in enumerate(words if isinstance(words, list) else [{"type": api.text, "text": words}]):
        if place not in held:
            content.append(part)
            continue
        # A mark for a cache stands behind all that came of the picture.
        marks = {name: value for name, value in _for_any(part).items() if "cache" in name}
        made = []
        for caption, data in held[place]:
            made += [{"type": api.text, "text": caption}, *([part_with(part, data)] if data else ())]
        made[-1] |= marks
        content += made
    for caption, data in added:
        new = {"type": api.picture, "image_url": {} if api.name == "chat" else ""}
        content += [{"type": api.text, "text": caption}, part_with(new, data)]
    return turn | {"content": content}


def part_with(part: dict[str, Any], data: str) -> dict[str, Any]:
    """A part with another picture, a PNG or a JPEG in base64, without what is said of the one that came;
    marks for a cache are the caller's.
    """
    kept = {name: value for name, value in _for_any(part).items() if "cache" not in name}
    kept["type"] = part["type"]
    if isinstance(name := part.get("uuid"), str):  # vLLM's key to what it keeps of a picture
        kept["uuid"] = f"{name}-{hashlib.blake2b(data.encode(), digest_size=8).hexdigest()}"
    media = "image/jpeg" if data.startswith(JPEG) else "image/png"
    if part["type"] == "image":
        return kept | {"source": {"type": "base64", "media_type": media, "data": data}}
    url, held = f"data:{media};base64,{data}", part["image_url"]
    return kept | {"image_url": _for_any(held) | {"url": url} if isinstance(held, dict) else url}


def _for_any(fields: dict[str, Any]) -> dict[str, Any]:
    """Those of a part's fields that hold for any picture, such as for how large it is to be read."""
    return {
        name: _for_any(value) if isinstance(value, dict) and "cache" not in name else value
        for name, value in fields.items()
        if not OF_THE_PICTURE.search(WORD_START.sub("_", name).replace("-", "_").lower())
    }


def _with_fields(api: Api, turn: dict[str, Any], held: Mapping[int, Parts], added: Parts) -> dict[str, Any]:
    """A turn of Ollama's, with its words in one field and its pictures in another."""
    images: list[Any] = []
    lines: list[list[Line]] = []
    for place, image in enumerate(turn.get("images") or ()):
        images += [data for _, data in held[place]] if place in held else [image]
        lines.append([(caption, True) for caption, _ in held[place]] if place in held else [("", True)])
    images += [data for _, data in added]
    name = "content" if api.turns else "prompt"
    words = turn.get(name)
    text = placed(words if isinstance(words, str) else "", lines, numbered=not api.turns)
    return turn | {"images": images, name: "\n".join([text, *(caption for caption, _ in added)])}
