"""Training recipes: every setting of a run, as a frozen pydantic model that is read from a TOML file.

    load_recipe("relevance", {"steps": 200})    # a built-in one, of `arr_coc/recipes`, with one change
    load_recipe("mine.toml", dict([parse_override("hard.small=3")]))

Bad input is refused before anything is loaded, by a ValueError of one line that names the file, the setting,
its value and the remedy. `Recipe(**recipe.to_dict()) == recipe`.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from arr_coc.choose.layer import ARRCOCConfig
from arr_coc.files.paths import input_file
from arr_coc.files.plugins import import_modules, plugin, plugins
from arr_coc.train.complaints import explain, short, unknown
from arr_coc.train.estimators import ESTIMATORS
from arr_coc.train.fields import (
    MOST_ITEMS,
    MOST_RANK,
    PARTS,
    WORLD,
    Count,
    DataSpec,
    Few,
    Gestalts,
    Listed,
    Rank,
    Rate,
    Side,
    Towers,
    Weight,
    Whole,
    immutable,
)

RECIPES = Path(__file__).parent / "recipes"


class Recipe(BaseModel):
    """All settings of a training run; the text under each field says what it means.

    Raises:
        ValueError: a setting is unknown or missing, has the wrong type or is out of range, or two settings
            contradict each other.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        str_min_length=1,
        use_attribute_docstrings=True,
    )

    stage: Literal["relevance", "answers", "hard", "partial", "coarse", "compressor", "tower"]
    """relevance, answers, hard (both, hard families weighted), or what reads a part"""
    model: str = "bundled"
    """base model: bundled, a name or a folder"""
    init: str | None = None
    """allocator folder to start from, bundled for the bundled model's; none: untrained"""
    imports: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """your own modules to import first, such as one with channel groups"""
    data: Annotated[tuple[DataSpec, ...], Listed] = (WORLD,)
    """world (drawn pages), clips (their frames) or NAME:DIR, in turns; twice is a double share"""
    split: str | None = None
    """split of the data sets on disk; none: that of published results"""
    limit: Count | None = None
    """first questions of each data set on disk; none: all"""
    hold_out: Whole = 0
    """every N-th image of a data set on disk is left for `arr-coc eval --part N/N`; 0: none is"""
    sizes: Annotated[tuple[Side, ...], Listed] = (512, 768, 1024)
    """typical sides in px of drawn pages"""
    questions: Few = 16
    """most questions of an image in a step"""
    max_pixels: Annotated[int, Field(ge=4096, le=1_000_000_000)] | None = None
    """larger images from files are scaled down to this"""
    eyes: Literal["encoded", "stem"] = "encoded"
    """what relevance reads: encoded tokens, or a stem that learns to see cells in pixels"""
    target: Literal["boxes", "maps", "attention", "gradient", "layer"] = "boxes"
    """boxes or maps of the data, what the model used (attention, gradient), or the layer (stem)"""
    estimator: Literal[ESTIMATORS] = "straight-through"  # ty: ignore[invalid-type-form]
    """how answers reach the scores through a selection"""
    reward: Literal["likelihood", "exact_match", "anls", "f1"] = "likelihood"
    """of reinforce: the right answer's likelihood, or the metric of sampled answers"""
    temperature: Rate = 0.5
    """of the gumbel estimator"""
    budgets: Annotated[tuple[Count, ...], Listed] = (64, 128, 273)
    """tokens kept for an answer, one drawn a step"""
    allocator: Literal["arr-coc", "query-blind"] = "arr-coc"
    """what learns: arr-coc, or the scorer that never sees the question"""
    layer: dict[str, Any] = {}
    """fields of ARRCOCConfig to change"""
    lora: Rank = 0
    """rank of a LoRA of the language model"""
    top_layers: Rank = 0
    """top layers of the language model that learn as well"""
    lr: Rate = 3e-3
    """learning rate of the allocator"""
    base_lr: Rate = 1e-5
    """learning rate of what learns of the base model"""
    warmup: Whole = 30
    """steps over which the rate rises"""
    steps: Count
    """steps of the optimizer"""
    batch: Few = 1
    """images at a time"""
    accumulate: Few = 1
    """batches whose gradients make one step"""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """of pages, order and sampling"""
    relevance: Weight = 1.0
    """weight of the loss of the relevance map"""
    answer: Weight = 1.0
    """weight of the loss of the answer"""
    echo: Weight = 1.0
    """weight of the whole tower's lesson, in stages partial, tower and, with together, coarse"""
    echo_pixels: Annotated[int, Field(ge=4096, le=1_000_000_000)] | None = None
    """pixels of the largest image that the whole tower teaches (partial, coarse); none: any"""
    compressors: Towers = ("tower4", "tower16")
    """compressors inside the tower that learn, in stage tower"""
    gestalts: Gestalts = ("resize",)
    """compressors of the coarse view in stage coarse, one drawn an image"""
    together: bool = False
    """the LoRA of the tower learns as well in stage coarse, from answers with and without gestalt"""
    hint: Weight = 0.0
    """weight of the answer's first token where the question ends (partial, coarse)"""
    lessons: dict[str, Weight] = {}
    """weights of further losses of kept tokens (the tower's LoRA), by modules of `imports`"""
    compress: Weight = 0.1
    """weight of the loss of the automatic budget"""
    hard: dict[str, Weight] = {"small": 2.0, "gray": 2.0, "count": 2.0}
    """weights of families in stage hard"""
    save_every: Count = 100
    """steps between checkpoints"""
    log_every: Count = 25
    """steps between lines of the log"""
    workers: Annotated[int, Field(ge=0, le=256)] = 1
    """processes that draw or read images"""
    precision: Literal["float32", "bfloat16", "mixed"] = "float32"
    """of the base model; mixed: float32 weights, products in bfloat16"""
    checkpointing: bool = False
    """compute layers again on the way back: less memory, more time"""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ValueError(explain(error, type(self).model_fields)) from error

    def __hash__(self) -> int:
        """Of all fields but the tables."""
        return hash(tuple(value for value in self.__dict__.values() if not isinstance(value, dict)))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary of all fields."""
        return self.model_dump(mode="json")

    @field_validator("layer")
    @classmethod
    def _check_layer_fields(cls, layer: dict[str, Any]) -> dict[str, Any]:
        names = {field.name for field in dataclasses.fields(ARRCOCConfig)} - {"dim"}  # dim is the model's
        for name in layer:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1) or sorted(names)
                raise ValueError(f"layer has {name!r}, which is unknown: use {', '.join(near)}")
        for name in ("rank", "heads"):
            if isinstance(layer.get(name), int) and layer[name] > MOST_RANK:
                raise ValueError(f"layer.{name} is {layer[name]}: use at most {MOST_RANK:,}")
        try:
            ARRCOCConfig(dim=64, **layer)
        except (TypeError, ValueError) as error:
            raise ValueError(f"layer is {layer!r}: {error}") from error
        return {name: immutable(value) for name, value in layer.items()}

    @property
    def weights(self) -> dict[str, float]:
        """Family -> weight of its questions in a loss; 1 for the others."""
        return self.hard if self.stage == "hard" else {}

    @model_validator(mode="after")
    def _check_learning(self) -> Recipe:
        """Refuse settings that contradict each other, or would run and teach nothing."""
        if self.steps * self.batch * self.accumulate > MOST_ITEMS:
            raise ValueError(
                f"steps is {self.steps}, batch {self.batch} and accumulate {self.accumulate}, more than "
                f"{MOST_ITEMS:,} images: use fewer"
            )
        if self.layer and self.allocator != "arr-coc":
            raise ValueError(
                f"layer is {self.layer!r}, but {self.allocator} has no such fields: leave it out"
            )
        if self.gestalts != ("resize",) and self.stage != "coarse":
            raise ValueError(
                f"gestalts is {', '.join(self.gestalts)}, but stage {self.stage!r} reads no coarse view: "
                "use stage=coarse"
            )
        if self.together and self.stage != "coarse":
            raise ValueError(
                f"together is true, but stage {self.stage!r} teaches one LoRA at most: use stage=coarse"
            )
        if self.stage in PARTS:
            return self._check_parts()
        if self.reward != "likelihood" and (self.stage == "relevance" or self.estimator != "reinforce"):
            raise ValueError(f"reward is {self.reward!r}: use estimator=reinforce in stage answers or hard")
        unfrozen = "lora" if self.lora else "top_layers" if self.top_layers else ""
        if self.lora and self.top_layers:
            raise ValueError(
                f"lora is {self.lora} and top_layers {self.top_layers}: choose one, set the other to 0"
            )
        if unfrozen and self.stage == "relevance":
            remedy = 'use stage "answers" or "hard", or set it to 0'
            raise ValueError(
                f"{unfrozen} is {getattr(self, unfrozen)}, but the loss of stage relevance never reaches the "
                f"base model: {remedy}"
            )
        if self.init == "bundled" and self.model != "bundled":
            raise ValueError(
                f"init is 'bundled', the allocator of the bundled model, but model is {self.model!r}: "
                "give an allocator folder of that model, or none"
            )
        map_weight = self.relevance + (self.compress if self.allocator == "arr-coc" else 0.0)
        if self.stage == "relevance" and not map_weight:
            raise ValueError(
                "relevance and compress are 0, so stage relevance learns nothing: set relevance to 1"
            )
        if self.stage != "relevance" and not map_weight + self.answer:
            raise ValueError("relevance, answer and compress are 0, so nothing is learned: set answer to 1")
        if self.stage != "relevance" and self.estimator == "scores-only" and not map_weight and not unfrozen:
            raise ValueError(
                "estimator is 'scores-only', which passes nothing from answers to scores, and relevance is "
                "0: set relevance to 1, or use another estimator"
            )
        return self

    def _check_parts(self) -> Recipe:
        """Refuse settings that mean nothing to what reads an image in part."""
        if self.eyes != "encoded" or self.allocator != "arr-coc" or self.top_layers:
            raise ValueError(
                f"stage is {self.stage!r}, which teaches no eyes, allocator or top layers: leave them out"
            )
        if self.stage != "compressor" and not self.lora:
            raise ValueError(
                f"lora is 0, but stage {self.stage!r} teaches one: set lora to its rank, such as 16"
            )
        if not self.answer and not (self.stage in ("partial", "tower") and self.echo):
            raise ValueError(f"answer is 0, so stage {self.stage!r} learns nothing: set answer to 1")
        return self

    @model_validator(mode="after")
    def _check_eyes(self) -> Recipe:
        """A stem learns where to look and nothing else; a layer can teach nothing but a stem."""
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
            return self
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
        return self


DEFAULTS: dict[str, Any] = Recipe(stage="relevance", steps=1).to_dict()
"""Field -> default; stage and steps have none and stand for any."""


def built_in() -> dict[str, Path]:
    """The recipes that come with the package and its plugins: name -> file."""
    own = {path.stem: path for path in sorted(RECIPES.glob("*.toml"))}
    return dict(sorted((own | {name: plugin("recipes", name) for name in plugins("recipes")}).items()))


def load_recipe(name_or_path: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe, and import the modules that it names in `imports`.

    Args:
        name_or_path: a built-in name, which comes first, or a TOML file.
        overrides: setting -> value in place of the file's; texts are converted to the setting's type, and
            "hard.small" or "layer.explore" changes one entry of a table.

    Raises:
        ValueError: no such recipe, setting or module, or what `Recipe` raises; names the file.
    """
    file = built_in().get(str(name_or_path))
    path = file or input_file(name_or_path)
    changes = {key: _override(key, value) for key, value in (overrides or {}).items()}
    settings = _read(path, name_or_path)
    place = str(path)
    if changes:
        place += f" with {', '.join(f'{key}={short(str(value))}' for key, value in changes.items())}"
    try:
        for key, value in changes.items():
            name, dot, entry = key.partition(".")
            table = settings.get(name, DEFAULTS[name])  # a default stands in for a table the file leaves out
            if not dot:
                settings[name] = value
            elif isinstance(table, dict):
                settings[name] = {**table, entry: value}
        # First of all: a channel group has to be registered before `layer.channels` may name it.
        modules = _validated("imports", tuple[str, ...], settings.get("imports", ()))
        import_modules(modules, [] if file else [path.parent])
        return Recipe(**settings)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """Setting and value of "steps=200", "sizes=512,768", "init=none" or "hard.small=3".

    Raises:
        ValueError: no "=", an unknown setting, or a value of another type.
    """
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is no change of a recipe: write KEY=VALUE, for example steps=200")
    return key.strip(), _override(key.strip(), value.strip())


def _read(path: Path, name: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        names = ", ".join(built_in())
        raise ValueError(f"recipe {str(name)!r} is unknown: use one of {names}, or a TOML file") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f'{path} is not TOML ({error}): write lines such as stage = "relevance"') from error


def _override(key: str, value: Any) -> Any:
    """The value of an override; a text is converted to the type of the setting or of the table's entry."""
    name, dot, entry = key.partition(".")
    if name not in Recipe.model_fields:
        raise ValueError(unknown(name, Recipe.model_fields))
    kind: Any = Recipe.model_fields[name].annotation
    if dot and (get_origin(kind) is not dict or not entry):
        raise ValueError(f"{key} is no entry of a table: use {name}")
    if not isinstance(value, str):
        return value
    kind = get_args(kind)[1] if dot else kind
    if NoneType in get_args(kind) and value.lower() in ("", "none"):
        return None
    if get_origin(kind) is tuple and not value.startswith("["):
        return _validated(key, kind, [part.strip() for part in value.split(",") if part.strip()])
    if get_origin(kind) in (tuple, dict) or kind is Any:
        return _validated(key, kind, _toml(value))
    return _validated(key, kind, value)


def _toml(text: str) -> Any:
    """A TOML value; what is none is a text without its quotes, or with commas a list of such texts."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in text.split(",")] if "," in text else text


def _validated(key: str, kind: Any, value: Any) -> Any:
    """`value` as `kind`, where texts may stand for numbers."""
    config = ConfigDict(allow_inf_nan=False, str_min_length=1)
    try:
        return TypeAdapter(kind, config=config).validate_python(value)
    except ValidationError as error:
        raise ValueError(explain(error, Recipe.model_fields, key)) from error
