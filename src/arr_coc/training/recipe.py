"""A recipe: everything that fixes a training run, in one frozen record read from a TOML file.

    load_recipe("relevance", {"steps": 200})    # a built-in one, of `arr_coc/recipes`, with one change
    load_recipe("mine.toml", dict([parse_override("hard.small=3")]))

Laws: what is wrong in a recipe is found before anything is loaded, as a ValueError in one line with the file,
the key, the value and the remedy; `Recipe(**recipe.to_dict()) == recipe`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from arr_coc.data import DATASETS
from arr_coc.layer import ARRCOCConfig
from arr_coc.training.estimators import ESTIMATORS

RECIPES = Path(__file__).parents[1] / "recipes"
WORLD = "world"
"""The name of the drawn pages among data sets."""

STAGES = ("relevance", "answers", "hard")
TARGETS = ("boxes", "attention", "gradient", "layer")
EYES = ("encoded", "stem")


def _setting(default: Any, help: str, **limits: Any) -> Any:
    """A field with its limits: `choices`, or `least`, `above` and `most` of each of its numbers."""
    return dataclasses.field(default=default, metadata={"help": help} | limits)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is learned, from what, and how; the help of each field says what it means.

    Raises:
        ValueError: a field has the wrong type or is out of range, or two fields contradict each other.
    """

    stage: str = _setting(
        MISSING, "relevance, answers, or hard: both, hard families weighted", choices=STAGES
    )
    model: str = _setting("bundled", "base model: bundled, a name or a folder")
    init: str | None = _setting(
        None, "allocator folder to start from, bundled for the bundled model's; none: untrained"
    )
    data: tuple[str, ...] = _setting(
        (WORLD,), "world (drawn pages) or NAME:DIR, in turns; twice is a double share"
    )
    split: str | None = _setting(None, "split of the data sets on disk; none: that of published results")
    limit: int | None = _setting(None, "first questions of each data set on disk; none: all", least=1)
    sizes: tuple[int, ...] = _setting(
        (512, 768, 1024), "typical sides in px of drawn pages", least=128, most=3072
    )
    questions: int = _setting(16, "most questions of an image in a step", least=1)
    max_pixels: int | None = _setting(None, "larger images from files are scaled down to this", least=4096)
    eyes: str = _setting(
        "encoded",
        "what relevance reads: encoded tokens, or a stem that learns to see cells in pixels",
        choices=EYES,
    )
    target: str = _setting(
        "boxes",
        "boxes, what the model used (attention, gradient), or for a stem the trained layer",
        choices=TARGETS,
    )
    estimator: str = _setting(
        "straight-through", "how answers reach the scores through a selection", choices=ESTIMATORS
    )
    temperature: float = _setting(0.5, "of the gumbel estimator", above=0.0)
    budgets: tuple[int, ...] = _setting(
        (64, 128, 273), "tokens kept for an answer, one drawn a step", least=1
    )
    allocator: str = _setting(
        "arr-coc",
        "what learns: arr-coc, or the scorer that never sees the question",
        choices=("arr-coc", "query-blind"),
    )
    layer: dict[str, Any] = dataclasses.field(
        default_factory=dict, hash=False, metadata={"help": "fields of ARRCOCConfig to change"}
    )
    lora: int = _setting(0, "rank of a LoRA of the language model", least=0)
    top_layers: int = _setting(0, "top layers of the language model that learn as well", least=0)
    lr: float = _setting(3e-3, "learning rate of the allocator", above=0.0)
    base_lr: float = _setting(1e-5, "learning rate of what learns of the base model", above=0.0)
    warmup: int = _setting(30, "steps over which the rate rises", least=0)
    steps: int = _setting(MISSING, "steps of the optimizer", least=1)
    batch: int = _setting(1, "images a step", least=1)
    seed: int = _setting(0, "of pages, order and sampling", least=0, most=2**31 - 1)
    relevance: float = _setting(1.0, "weight of the loss of the relevance map", least=0)
    answer: float = _setting(1.0, "weight of the loss of the answer", least=0)
    compress: float = _setting(0.1, "weight of the loss of the automatic budget", least=0)
    hard: dict[str, float] = dataclasses.field(
        default_factory=lambda: dict(small=2.0, gray=2.0, count=2.0),
        hash=False,
        metadata={"help": "weights of families in stage hard", "least": 0},
    )
    save_every: int = _setting(100, "steps between checkpoints", least=1)
    log_every: int = _setting(25, "steps between lines of the log", least=1)
    workers: int = _setting(1, "processes that draw or read images", least=0)
    precision: str = _setting("float32", "of the base model", choices=("float32", "bfloat16"))

    def __post_init__(self) -> None:
        """Check every field, then what they say together; lists become tuples."""
        for field in dataclasses.fields(self):
            value = _fit(field.name, getattr(self, field.name), KINDS[field.name])
            _check_range(field.name, value, field.metadata)
            object.__setattr__(self, field.name, value)
        for spec in self.data:
            name = spec.partition(":")[0].strip().lower()
            if spec != WORLD and (name not in DATASETS or ":" not in spec):
                known = ", ".join(DATASETS)
                raise ValueError(f"data has {spec!r}: use world or NAME:DIR, where NAME is one of {known}")
        self._check_layer()
        self._check_learning()
        self._check_eyes()

    def _check_layer(self) -> None:
        if self.layer and self.allocator != "arr-coc":
            raise ValueError(
                f"layer is {self.layer!r}, but {self.allocator} has no such fields: leave it out"
            )
        known = {field.name for field in dataclasses.fields(ARRCOCConfig)} - {"dim"}  # dim is the model's
        for name in self.layer:
            if name not in known:
                raise ValueError(f"layer has {name!r}, which is unknown: use {', '.join(sorted(known))}")
        try:
            ARRCOCConfig(dim=64, **self.layer)
        except (TypeError, ValueError) as error:
            raise ValueError(f"layer is {self.layer!r}: {error}") from error

    def _check_learning(self) -> None:
        """Refuse what would run and teach nothing."""
        freed = "lora" if self.lora else "top_layers" if self.top_layers else ""
        if self.lora and self.top_layers:
            raise ValueError(
                f"lora is {self.lora} and top_layers {self.top_layers}: choose one, set the other to 0"
            )
        if freed and self.stage == "relevance":
            remedy = 'use stage "answers" or "hard", or set it to 0'
            raise ValueError(
                f"{freed} is {getattr(self, freed)}, but the loss of stage relevance never reaches the "
                f"base model: {remedy}"
            )
        if self.init == "bundled" and self.model != "bundled":
            raise ValueError(
                f"init is 'bundled', the allocator of the bundled model, but model is {self.model!r}: "
                "give an allocator folder of that model, or none"
            )
        of_map = self.relevance + (self.compress if self.allocator == "arr-coc" else 0.0)
        if self.stage == "relevance" and not of_map:
            raise ValueError(
                "relevance and compress are 0, so stage relevance learns nothing: set relevance to 1"
            )
        if self.stage != "relevance" and not of_map + self.answer:
            raise ValueError("relevance, answer and compress are 0, so nothing is learned: set answer to 1")
        if self.stage != "relevance" and self.estimator == "scores-only" and not of_map and not freed:
            raise ValueError(
                "estimator is 'scores-only', which passes nothing from answers to scores, and relevance is "
                "0: set relevance to 1, or use another estimator"
            )

    def _check_eyes(self) -> None:
        """A stem learns where to look and nothing else; a layer can teach nobody but a stem."""
        if self.target == "layer" and self.eyes == "encoded":
            raise ValueError(
                "target is 'layer', but eyes is 'encoded', so the layer would teach itself: set eyes=stem, "
                "or use target=gradient"
            )
        if self.target == "layer" and self.init is None:
            raise ValueError(
                "target is 'layer', but init is none: give the folder of a trained allocator, or use "
                "target=gradient"
            )
        if self.eyes == "encoded":
            return
        if self.stage != "relevance":
            raise ValueError(
                f"eyes is 'stem', which learns where to look, but stage is {self.stage!r}, which teaches by "
                "answers: use stage=relevance"
            )
        if self.allocator != "arr-coc":
            raise ValueError(
                f"eyes is 'stem', but allocator is {self.allocator!r}, which has none: use allocator=arr-coc"
            )
        if not self.relevance:
            raise ValueError("relevance is 0, but nothing else teaches a stem: set relevance to 1")

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary of all fields."""
        return _plain(dataclasses.asdict(self))


def built_in() -> dict[str, Path]:
    """The recipes that come with the package: name -> file."""
    return {path.stem: path for path in sorted(RECIPES.glob("*.toml"))}


def load_recipe(name_or_path: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe.

    Args:
        name_or_path: a built-in name, which comes first, or a TOML file.
        overrides: field -> value in place of the file's; texts are converted to the field's type, and
            "hard.small" or "layer.explore" changes one entry of a table.

    Raises:
        ValueError: no such recipe or field, or what `Recipe` raises; names the file.
    """
    path = built_in().get(str(name_or_path)) or Path(name_or_path).expanduser()
    changes = {key: _change(key, value) for key, value in (overrides or {}).items()}
    settings = _read(path, name_or_path)
    place = str(path)
    if changes:
        place += f" with {', '.join(f'{key}={value}' for key, value in changes.items())}"
    try:
        for key in settings:
            _known(key)
        for key, value in changes.items():
            table, dot, entry = key.partition(".")
            if dot:  # a default stands in for a table that the file leaves out
                value = {**_fit(table, settings.get(table, DEFAULTS.get(table)), KINDS[table]), entry: value}
            settings[table] = value
        for key in ("stage", "steps"):
            if key not in settings:
                raise ValueError(f"{key} is missing: it should be {_wanted(KINDS[key])}")
        return Recipe(**settings)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """Field and value of "steps=200", "sizes=512,768", "init=none" or "hard.small=3".

    Raises:
        ValueError: no "=", an unknown field, or a value of another type.
    """
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is no change of a recipe: write KEY=VALUE, for example steps=200")
    return key.strip(), _change(key.strip(), value.strip())


def _change(key: str, value: Any) -> Any:
    """The value of an override, converted where it is a text."""
    table, dot, entry = key.partition(".")
    kind = _known(table)
    if dot and (get_origin(kind) is not dict or not entry):
        raise ValueError(f"{key} is no entry of a table: use {table}")
    if not isinstance(value, str):
        return value
    return _parse(key, value, get_args(kind)[1] if dot else kind)


def _read(path: Path, asked: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        known = ", ".join(built_in())
        raise ValueError(f"recipe {str(asked)!r} is unknown: use one of {known}, or a TOML file") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f'{path} is not TOML ({error}): write lines such as stage = "relevance"') from error


def _known(key: str) -> Any:
    """The type of a field."""
    if key not in KINDS:
        near = difflib.get_close_matches(key, KINDS, 1)
        raise ValueError(f"{key} is unknown: use {near[0] if near else 'one of ' + ', '.join(KINDS)}")
    return KINDS[key]


def _fit(key: str, value: Any, kind: Any) -> Any:
    """`value` as `kind`: whole numbers may stand for numbers, lists for tuples."""
    wrong = ValueError(f"{key} is {value!r}: it should be {_wanted(kind)}")
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return _frozen(value)
    if origin is tuple:
        if not isinstance(value, (list, tuple)) or not value:
            raise wrong
        return tuple(_fit(key, each, args[0]) for each in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise wrong
        return {str(name): _fit(f"{key}.{name}", each, args[1]) for name, each in value.items()}
    if NoneType in args:
        return None if value is None else _fit(key, value, args[0])
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is float and number and math.isfinite(value):
        return float(value)
    if kind is int and number and isinstance(value, int):
        return value
    if kind is str and isinstance(value, str) and value:
        return value
    raise wrong


def _parse(key: str, text: str, kind: Any) -> Any:
    """A text as `kind`, to be checked by `_fit`."""
    origin, args = get_origin(kind), get_args(kind)
    try:
        if NoneType in args:
            return None if text.lower() in ("", "none") else _parse(key, text, args[0])
        if origin is dict or text.startswith("["):
            return tomllib.loads(f"value = {text}")["value"]
        if origin is tuple:
            return tuple(_parse(key, each.strip(), args[0]) for each in text.split(",") if each.strip())
        if kind is Any:
            return _toml(text)
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{key} is {text!r}: it should be {_wanted(kind)}") from error


def _toml(text: str) -> Any:
    """A TOML value; what is none is a text without its quotes, or with commas a list of such texts."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in text.split(",")] if "," in text else text


def _check_range(key: str, value: Any, limits: Mapping[str, Any]) -> None:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
    for each in values:
        if each is None:
            continue
        if "choices" in limits and each not in limits["choices"]:
            raise ValueError(f"{key} is {each!r}: use one of {', '.join(limits['choices'])}")
        if "least" in limits and each < limits["least"]:
            raise ValueError(f"{key} has {each}: use at least {limits['least']}")
        if "above" in limits and each <= limits["above"]:
            raise ValueError(f"{key} is {each}: use more than {limits['above']:g}")
        if "most" in limits and each > limits["most"]:
            raise ValueError(f"{key} has {each}: use at most {limits['most']}")


def _wanted(kind: Any) -> str:
    """A type in words."""
    args = get_args(kind)
    if get_origin(kind) is tuple:
        return f"a list of {'whole numbers' if args[0] is int else 'texts'}, not empty"
    if get_origin(kind) is dict:
        return "a table such as { small = 2.0 }"
    if NoneType in args:
        return f"{_wanted(args[0])}, or none"
    return {int: "a whole number", float: "a finite number", str: "a text"}.get(kind, "a value")


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


KINDS: dict[str, Any] = get_type_hints(Recipe)
"""Field -> type, in the order of the fields."""

DEFAULTS: dict[str, Any] = Recipe(stage="relevance", steps=1).to_dict()
"""Field -> default; stage and steps have none and stand for any."""
