"""Training recipes: the settings of a run, as frozen pydantic models that are read from a TOML file.

    load_recipe("relevance", {"steps": 200})    # a built-in one, of `arr_coc/train/recipes`, with one change
    load_recipe("mine.toml", dict([parse_override("hard.small=3")]))

A recipe's `stage` picks its class, which has the settings of that kind of training alone; see `STAGES`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from arr_coc.choose.layer import ARRCOCConfig
from arr_coc.data import data_sets
from arr_coc.files.paths import input_file, shorten
from arr_coc.files.plugins import check_named, import_modules, plugin, plugins

RECIPES = Path(__file__).parent / "recipes"
WORLD = "world"  # the data set of pages that are drawn, not read
MARKS = ("boxes", "maps")  # targets in the data: boxes of evidence, or relevance maps with values in [0, 1]
MAX_IMAGES = 1_000_000_000  # of a run: beyond it two runs would draw pages from the same seeds
MAX_RANK = 4096  # of a layer's coupling; also the most heads


def check_data(spec: str) -> str:
    """Return `spec` if it names training data, one of `plugins("rows")` or NAME:DIR, or raise ValueError."""
    name, made = spec.partition(":")[0].strip().lower(), tuple(plugins("rows"))
    if spec not in made and (name not in data_sets() or ":" not in spec):
        names, forms = ", ".join(data_sets()), ", ".join(made) + " or " * bool(made) + "NAME:DIR"
        raise ValueError(f"data has {shorten(str(spec))}: use {forms}, where NAME is one of {names}")
    return spec


Whole = Annotated[int, Field(ge=0, le=10_000_000)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
Few = Annotated[int, Field(ge=1, le=1024)]
Rank = Annotated[int, Field(ge=0, le=1024)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
Rate = Annotated[float, Field(gt=0, le=10)]
Pixels = Annotated[int, Field(ge=4096, le=1_000_000_000)]
Listed = Field(min_length=1, strict=False)  # TOML and JSON have lists where a recipe has tuples
Budgets = Annotated[tuple[Count, ...], Listed]


class RunSettings(BaseModel):
    """Settings of every training run: its length, how often it is saved, and its seed.

    Raises:
        ValueError: a setting is unknown, missing, out of range or contradicts another; one line with the
            setting, its value and the remedy.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        str_min_length=1,
        use_attribute_docstrings=True,
    )
    # settings that may change when a run is resumed: they do not affect what was learned
    FREE: ClassVar[frozenset[str]] = frozenset()

    stage: str
    """relevance, answers, hard (both, hard families weighted), or what reads a part"""
    steps: Count
    """steps of the optimizer"""
    batch: Few = 1
    """images at a time"""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """of pages, order and sampling"""
    save_every: Count = 100
    """steps between checkpoints"""
    log_every: Count = 25
    """steps between lines of the log"""
    workers: Annotated[int, Field(ge=0, le=256)] = 1
    """processes that draw or read images"""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ValueError(explain(error, type(self).model_fields, settings.get("stage"))) from error

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the JSON-safe defaults of the fields that have one, by name."""
        fields = cls.model_fields.items()
        return {name: to_jsonable_python(f.default) for name, f in fields if not f.is_required()}


class Recipe(RunSettings):
    """Settings of every recipe that trains part of a model: base model, images and optimizer."""

    model: str = "bundled"
    """base model: bundled, a name or a folder"""
    init: str | None = None
    """allocator folder to start from, bundled for the bundled model's; none: untrained"""
    imports: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """your own modules to import first, such as one with channel groups"""
    data: Annotated[tuple[Annotated[str, AfterValidator(check_data)], ...], Listed] = (WORLD,)
    """world (drawn pages), clips (their frames) or NAME:DIR, in turns; twice is a double share"""
    split: str | None = None
    """split of the data sets on disk; none: that of published results"""
    limit: Count | None = None
    """first questions of each data set on disk; none: all"""
    hold_out: Whole = 0
    """every N-th image of a data set on disk is left for `arr-coc eval --part N/N`; 0: none is"""
    sizes: Annotated[tuple[Annotated[int, Field(ge=128, le=3072)], ...], Listed] = (512, 768, 1024)
    """typical sides in px of drawn pages"""
    questions: Few = 16
    """most questions of an image in a step"""
    max_pixels: Pixels | None = None
    """larger images from files are scaled down to this"""
    lr: Rate = 3e-3
    """learning rate of what learns beside the base model"""
    warmup: Whole = 30
    """steps over which the rate rises"""
    accumulate: Few = 1
    """batches whose gradients make one step"""
    precision: Literal["float32", "bfloat16", "mixed"] = "float32"
    """of the base model; mixed: float32 weights, products in bfloat16"""
    checkpointing: bool = False
    """compute layers again on the way back: less memory, more time"""

    @property
    def weights(self) -> dict[str, float]:
        """Question family -> weight in the loss; 1 for families that are not listed."""
        return {}

    @model_validator(mode="after")
    def _check_images(self) -> Recipe:
        if self.steps * self.batch * self.accumulate > MAX_IMAGES:
            raise ValueError(
                f"steps is {self.steps}, batch {self.batch} and accumulate {self.accumulate}, more than "
                f"{MAX_IMAGES:,} images: use fewer"
            )
        return self


class LayerRecipe(Recipe):
    """Settings of recipes that train a relevance layer or its stem."""

    target: Literal["boxes", "maps", "attention", "gradient", "layer"] = "boxes"
    """boxes or maps of the data, what the model used (attention, gradient), or the layer (stem)"""
    allocator: Literal["arr-coc", "query-blind"] = "arr-coc"
    """what learns: arr-coc, or the scorer that never sees the question"""
    layer: dict[str, Any] = {}
    """fields of ARRCOCConfig to change"""
    relevance: Weight = 1.0
    """weight of the loss of the relevance map"""
    compress: Weight = 0.1
    """weight of the loss of the automatic budget"""

    @property
    def map_weight(self) -> float:
        return self.relevance + (self.compress if self.allocator == "arr-coc" else 0.0)

    @field_validator("layer")
    @classmethod
    def _check_layer_fields(cls, layer: dict[str, Any]) -> dict[str, Any]:
        names = {field.name for field in dataclasses.fields(ARRCOCConfig)} - {"dim"}  # dim is the model's
        for name in layer:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1) or sorted(names)
                raise ValueError(f"layer has {name!r}, which is unknown: use {', '.join(near)}")
        for name in ("rank", "heads"):
            if isinstance(layer.get(name), int) and layer[name] > MAX_RANK:
                raise ValueError(f"layer.{name} is {layer[name]}: use at most {MAX_RANK:,}")
        try:
            ARRCOCConfig(dim=64, **layer)
        except (TypeError, ValueError) as error:
            raise ValueError(f"layer is {layer!r}: {error}") from error
        return {name: _immutable(value) for name, value in layer.items()}

    @model_validator(mode="after")
    def _check_layer(self) -> LayerRecipe:
        if self.layer and self.allocator != "arr-coc":
            raise ValueError(
                f"layer is {self.layer!r}, but {self.allocator} has no such fields: leave it out"
            )
        if self.init == "bundled" and self.model != "bundled":
            raise ValueError(
                f"init is 'bundled', the allocator of the bundled model, but model is {self.model!r}: "
                "give an allocator folder of that model, or none"
            )
        return self


class RelevanceRecipe(LayerRecipe):
    """Trains the layer or its stem on maps: of the data, of the model's own use, or of another layer."""

    stage: Literal["relevance"] = "relevance"
    """relevance: maps teach the layer, or its stem"""
    eyes: Literal["encoded", "stem"] = "encoded"
    """what relevance reads: encoded tokens, or a stem that learns to see cells in pixels"""

    @model_validator(mode="after")
    def _check_maps(self) -> RelevanceRecipe:
        if not self.map_weight:
            raise ValueError(
                "relevance and compress are 0, so stage relevance learns nothing: set relevance to 1"
            )
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
        if self.eyes == "stem" and self.allocator != "arr-coc":
            raise ValueError(
                f"eyes is 'stem', but allocator is {self.allocator!r}, which has none: use allocator=arr-coc"
            )
        if self.eyes == "stem" and not self.relevance:
            raise ValueError("relevance is 0, but nothing else teaches a stem: set relevance to 1")
        return self


class AnswerRecipe(LayerRecipe):
    """Trains the layer on answers through the frozen model, and on relevance maps as a second loss."""

    stage: Literal["answers", "hard"] = "answers"
    """answers: what to keep, taught by answers; hard: the same, hard families weighted"""
    estimator: Literal["straight-through", "gumbel", "reinforce", "scores-only"] = "straight-through"
    """how answers reach the scores through a selection"""
    reward: Literal["likelihood", "exact_match", "anls", "f1"] = "likelihood"
    """of reinforce: the right answer's likelihood, or the metric of sampled answers"""
    temperature: Rate = 0.5
    """of the gumbel estimator"""
    mode: Literal["prune", "saccade"] = "prune"
    """what an answer is read from: the kept cells alone, or a coarse view and the kept cells"""
    budgets: Budgets = (64, 128, 273)
    """tokens kept for an answer, one drawn a step"""
    lora: Rank = 0
    """rank of a LoRA of the language model"""
    top_layers: Rank = 0
    """top layers of the language model that learn as well"""
    base_lr: Rate = 1e-5
    """learning rate of what learns of the base model"""
    answer: Weight = 1.0
    """weight of the loss of the answer"""
    hard: dict[str, Weight] = {"small": 2.0, "gray": 2.0, "count": 2.0}
    """weights of families in stage hard"""

    @property
    def weights(self) -> dict[str, float]:
        return self.hard if self.stage == "hard" else {}

    @model_validator(mode="after")
    def _check_answers(self) -> AnswerRecipe:
        if self.target == "layer":
            raise ValueError(
                f"target is 'layer', but stage {self.stage!r} teaches the layer itself: use target=gradient"
            )
        if self.reward != "likelihood" and self.estimator != "reinforce":
            raise ValueError(f"reward is {self.reward!r}: use estimator=reinforce")
        if self.reward != "likelihood" and self.mode != "prune":
            raise ValueError(f"mode is {self.mode!r}, and answers are sampled in prune: use prune")
        if self.lora and self.top_layers:
            raise ValueError(
                f"lora is {self.lora} and top_layers {self.top_layers}: choose one, set the other to 0"
            )
        if not self.map_weight + self.answer:
            raise ValueError("relevance, answer and compress are 0, so nothing is learned: set answer to 1")
        if self.estimator == "scores-only" and not (self.map_weight or self.lora or self.top_layers):
            raise ValueError(
                "estimator is 'scores-only', which passes nothing from answers to scores, and relevance is "
                "0: set relevance to 1, or use another estimator"
            )
        return self


class LoraRecipe(Recipe):
    """Trains LoRAs for partly encoded images: of the vision tower for cells encoded alone (partial), of the
    language model for a coarse view followed by fine cells (coarse).
    """

    stage: Literal["partial", "coarse"] = "partial"
    """partial: a LoRA of the vision tower; coarse: of the language model"""
    lora: Rank = 0
    """rank of the LoRA"""
    budgets: Budgets = (64, 128, 273)
    """cells of a kept set, fewer than half of the image's; one drawn an image"""
    answer: Weight = 1.0
    """weight of the loss of the answer"""
    hint: Weight = 0.0
    """weight of the answer's first token where the question ends"""
    echo: Weight = 1.0
    """weight of being what the whole tower makes of a cell (partial; with together, coarse)"""
    echo_pixels: Pixels | None = None
    """pixels of the largest image that the whole tower teaches; none: any"""
    gestalts: Annotated[tuple[Literal["resize", "pool4", "pool16", "tower4", "tower16"], ...], Listed] = (
        "resize",
    )
    """compressors of the coarse view in stage coarse, one drawn an image"""
    together: bool = False
    """the LoRA of the tower learns as well in stage coarse, from answers with and without gestalt"""

    @model_validator(mode="after")
    def _check_loras(self) -> LoraRecipe:
        if self.gestalts != ("resize",) and self.stage != "coarse":
            raise ValueError(
                f"gestalts is {', '.join(self.gestalts)}, but stage {self.stage!r} reads no coarse view: "
                "use stage=coarse"
            )
        if self.together and self.stage != "coarse":
            raise ValueError(f"together is true, but stage {self.stage!r} teaches one LoRA: use stage=coarse")
        _check_rank(self.stage, self.lora)
        if not self.answer and not (self.stage == "partial" and self.echo):
            raise ValueError(f"answer is 0, so stage {self.stage!r} learns nothing: set answer to 1")
        return self


class TowerRecipe(Recipe):
    """Trains compressors of an image inside the vision tower."""

    stage: Literal["tower"] = "tower"
    """tower: tower4 and tower16"""
    lora: Rank = 0
    """rank of the tower's LoRA for each compressor"""
    answer: Weight = 1.0
    """weight of the loss of the answer"""
    echo: Weight = 1.0
    """weight of being what averages of the whole tower's tokens are"""
    compressors: Annotated[tuple[Literal["tower4", "tower16"], ...], Listed] = ("tower4", "tower16")
    """compressors that learn"""

    @model_validator(mode="after")
    def _check_compressors(self) -> TowerRecipe:
        _check_rank(self.stage, self.lora)
        if not self.answer and not self.echo:
            raise ValueError(f"answer is 0, so stage {self.stage!r} learns nothing: set answer to 1")
        return self


def _check_rank(stage: str, lora: int) -> None:
    if not lora:
        raise ValueError(f"lora is 0, but stage {stage!r} teaches one: set lora to its rank, such as 16")


def _immutable(value: Any) -> Any:
    return tuple(map(_immutable, value)) if isinstance(value, (list, tuple)) else value


# stage -> the class of its settings
STAGES: dict[str, type[Recipe]] = {
    stage: kind
    for kind in (RelevanceRecipe, AnswerRecipe, LoraRecipe, TowerRecipe)
    for stage in get_args(kind.model_fields["stage"].annotation)
}
# every setting of any stage
FIELDS: dict[str, FieldInfo] = {
    name: field for kind in (*STAGES.values(), Recipe) for name, field in kind.model_fields.items()
}


def make_recipe(**settings: Any) -> Recipe:
    """Build a recipe in the class of its stage; `make_recipe(**recipe.to_dict()) == recipe`.

    Raises ValueError for an unknown stage, or as `RunSettings`.
    """
    if "stage" not in settings:
        raise ValueError(f"stage is missing: set it ({FIELDS['stage'].description})")
    stage = settings["stage"]
    if not isinstance(stage, str) or stage not in STAGES:
        raise ValueError(f"stage is {_short(repr(stage))}: use one of {', '.join(STAGES)}")
    return STAGES[stage](**settings)


def built_in() -> dict[str, Path]:
    """Return the recipes of the package and of its plugins: name -> file."""
    own = {path.stem: path for path in sorted(RECIPES.glob("*.toml"))}
    return dict(sorted((own | {name: plugin("recipes", name) for name in plugins("recipes")}).items()))


def load_recipe(name_or_path: str | Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read a recipe, a built-in name or a TOML file, and import the modules it names in `imports`.

    `overrides` are setting -> value; texts are converted to the setting's type, and "hard.small" or
    "layer.explore" changes one entry of a table.

    Raises:
        ValueError: no such recipe, setting or module, or as `make_recipe`; names the file.
    """
    file = built_in().get(str(name_or_path))
    path = file or input_file(name_or_path)
    changes = {key: converted(key, value, FIELDS) for key, value in (overrides or {}).items()}
    settings = read_toml(path, name_or_path)
    place = str(path)
    if changes:
        place += f" with {', '.join(f'{key}={_short(str(value))}' for key, value in changes.items())}"
    try:
        for key, value in changes.items():
            name, dot, entry = key.partition(".")
            table = settings.get(name, FIELDS[name].default)  # stands in for a table the file leaves out
            if not dot:
                settings[name] = value
            elif isinstance(table, dict):
                settings[name] = {**table, entry: value}
        # First of all: a channel group has to be registered before `layer.channels` may name it.
        modules = _validated("imports", tuple[str, ...], settings.get("imports", ()), FIELDS)
        if not file and "imports" not in changes:
            check_named(modules, path.parent)
        import_modules(modules, [] if file else [path.parent])
        return make_recipe(**settings)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def read_toml(path: Path, name: str | Path) -> dict[str, Any]:
    """Read the settings in a recipe file; ValueError if it is missing, unreadable or not TOML."""
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


def parse_override(text: str, fields: Mapping[str, FieldInfo] = FIELDS) -> tuple[str, Any]:
    """Parse "steps=200", "sizes=512,768", "init=none" or "hard.small=3" into setting and value.

    Raises ValueError for no "=", an unknown setting, or a value of the wrong type.
    """
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r} is no change of a recipe: write KEY=VALUE, for example steps=200")
    return key.strip(), converted(key.strip(), value.strip(), fields)


def converted(key: str, value: Any, fields: Mapping[str, FieldInfo]) -> Any:
    """Convert an override from text to the type of its setting or table entry, or raise ValueError."""
    name, dot, entry = key.partition(".")
    if name not in fields:
        raise ValueError(unknown(name, fields))
    kind: Any = str if name == "stage" else fields[name].annotation
    if dot and (get_origin(kind) is not dict or not entry):
        raise ValueError(f"{key} is no entry of a table: use {name}")
    if not isinstance(value, str):
        return value
    kind = get_args(kind)[1] if dot else kind
    if NoneType in get_args(kind) and value.lower() in ("", "none"):
        return None
    if get_origin(kind) is tuple and not value.startswith("["):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return _validated(key, kind, parts, fields)
    if get_origin(kind) in (tuple, dict) or kind is Any:
        return _validated(key, kind, _toml(value), fields)
    return _validated(key, kind, value, fields)


def _toml(text: str) -> Any:
    """Parse a TOML value; anything else is an unquoted text, or with commas a list of texts."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return [part.strip() for part in text.split(",")] if "," in text else text


def _validated(key: str, kind: Any, value: Any, fields: Mapping[str, FieldInfo]) -> Any:
    """`value` as type `kind`; texts may stand for numbers."""
    config = ConfigDict(allow_inf_nan=False, str_min_length=1)
    try:
        return TypeAdapter(kind, config=config).validate_python(value)
    except ValidationError as error:
        raise ValueError(explain(error, fields, key=key)) from error


def explain(
    error: ValidationError,
    fields: Mapping[str, FieldInfo],
    stage: Any = None,
    key: str | None = None,
) -> str:
    """Return the first problem of a pydantic error in one line: the setting, its value and the remedy."""
    # Unknown settings first: a misspelt name is also reported as a missing one.
    problem = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    place = [*([key] if key else []), *problem["loc"]]
    if problem["type"] == "value_error":  # of a validator of ours, whose message says it all
        return str(problem["ctx"]["error"])
    name = ".".join(part for part in place if isinstance(part, str))
    field = fields.get(name.partition(".")[0])
    if problem["type"] == "extra_forbidden":
        stages = [each for each, kind in STAGES.items() if stage in STAGES and name in kind.model_fields]
        if stages:
            return (
                f"{name} is no setting of stage {stage!r}, but of {', '.join(stages)}: leave it out, or use "
                f"stage={stages[0]}"
            )
        return unknown(name, fields)
    if field is None or problem["type"] == "missing":
        return f"{name} is missing: set it ({field.description if field else problem['msg']})"
    message = problem["msg"].replace("tuple", "list").replace("Tuple", "List")  # as TOML has it
    holds = "has" if any(isinstance(part, int) for part in place) else "is"  # an item of a list
    return f"{name} {holds} {_short(repr(problem['input']))}: {message[0].lower()}{message[1:]}"


def _short(text: str) -> str:
    """Return a value in a message: one line of at most 80 characters."""
    return " ".join(text.split()) if len(text) <= 80 else f"{' '.join(text[:77].split())}..."


def unknown(name: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return the message for an unknown setting, with the closest names; a field of the layer is
    `layer.NAME`.
    """
    names = {each: each for each in fields}
    if "layer" in fields:
        names = {each.name: f"layer.{each.name}" for each in dataclasses.fields(ARRCOCConfig)} | names
        names.pop("dim")  # the base model's
    near = difflib.get_close_matches(name, names, 3, 0.6)
    remedy = " or ".join(names[each] for each in near) or f"one of {', '.join(fields)}"
    return f"{name} is unknown: use {remedy}"


def recipes() -> dict[str, Path]:
    """Return all recipes that `arr-coc train` accepts: name -> file."""
    return built_in() | {name: plugin("teachers", name).FILE for name in plugins("teachers")}


def describe(name: str) -> list[str]:
    """Return the paragraphs of the comment at the start of a built-in recipe, each as one line.

    A line that is indented, or begins with a word and two spaces ("Cost      11 minutes"), starts a new one.
    """
    paragraphs: list[str] = [""]
    for line in recipes()[name].read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.removeprefix("#").removeprefix(" ")
        if not text.strip():
            paragraphs.append("")
        elif re.match(r" {2,8}\S|\w+ {2,}\S", text):
            paragraphs.append(text.strip())
        else:
            paragraphs[-1] = f"{paragraphs[-1]} {text.strip()}".strip()
    return [paragraph for paragraph in paragraphs if paragraph]


def summary(name: str) -> str:
    """Return the first sentence of a built-in recipe's description."""
    return re.split(r"(?<=\.)\s", describe(name)[0], maxsplit=1)[0]
