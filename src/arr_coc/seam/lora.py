"""LoRAs for a base model that is never changed (Hu et al. 2021, arXiv 2106.09685).

    own      language model; trained with the layer, active in every mode but "full"
    partial  vision tower; for encoding some cells alone ("sparse" and "saccade")
    coarse   language model; for reading a coarse view before fine tokens ("saccade"), in place of `own`
    tower4, tower16   vision tower; for merging patches half-way (`seam.tower_compressor`)

`LoRAs.model_for(kinds)` is a twin of the base (a second tree of modules over its weights) with these active.
"""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from arr_coc.choose.knowing import same_start
from arr_coc.files.atomic import make_folder
from arr_coc.files.saved import MAX_BYTES, check_finite, reading, write_tensors
from arr_coc.seam.loaded import adapter_state, hook_device, refresh, twin, twin_key
from arr_coc.seam.tower_compressor import TOWERS

# ---- files in peft's format, of anybody: read as settings and matrices and as nothing else

CONFIG_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"
FILES = (CONFIG_NAME, WEIGHTS_NAME)
PEFT_PREFIX = "base_model.model."  # before the names of modules in peft's files

PATTERNS = ("target_modules", "exclude_modules", "layers_pattern", "rank_pattern", "alpha_pattern")
# Settings that may differ from peft's defaults; what would load the repositories or modules that some name
# isn't called.
ORDINARY_SETTINGS = (
    *("auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode", "layers_to_transform"),
    *("lora_alpha", "lora_dropout", "megatron_core", "peft_type", "peft_version", "qalora_group_size", "r"),
    *("revision", "runtime_config", "task_type", "use_rslora", *PATTERNS),
)
# Names with a few `.*` and a few choices between names: patterns that take no text long.
PLAIN_PATTERN = re.compile(r"(?:[\w-]|\\?\.(?!\*)|\(|\)|\||\.\*)*")
CHOICE_PATTERN = re.compile(r"\(([^()]*)\)")
MAX_STARS, MAX_CHOICES, MAX_LENGTH = 3, 2, 2000


def read_lora(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    """Reads a LoRA of unknown origin: its `peft.LoraConfig`, and matrices by "layer.lora_A.weight" or B.

    peft's settings can do more than choose layers (import a module, write into the base model, take hours,
    match regular expressions), so all but those of an ordinary LoRA must have their default. Raises a
    ValueError for these, an ImportError without peft, and whatever a damaged file leads to.
    """
    from peft import LoraConfig

    path = folder / CONFIG_NAME
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{CONFIG_NAME} is larger than {MAX_BYTES / 1e6:g} MB")
    settings = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        raise ValueError(f"{CONFIG_NAME} is not of a LoRA")
    stock = LoraConfig().to_dict()
    for name, value in settings.items():
        plain = value in (None, False, "none") or value in ([], {}) or name in ORDINARY_SETTINGS
        if name == "init_lora_weights":
            plain = isinstance(value, bool) or value == "gaussian"
        if not plain and value != stock.get(name):
            raise ValueError(f"{name} is {str(value)[:60]!r}, which an ordinary LoRA hasn't")
    check_patterns(settings)
    weights = {
        key.removeprefix(PEFT_PREFIX): value for key, value in load_file(folder / WEIGHTS_NAME).items()
    }
    check_finite(weights)
    ranks = [settings.get("r", stock["r"]), *(settings.get("rank_pattern") or {}).values()]
    most = max((min(value.shape, default=0) for value in weights.values()), default=0)
    if not all(type(rank) is int and 0 < rank <= most for rank in ranks):
        raise ValueError(f"its ranks are {str(ranks)[:60]}, and its matrices' {most}")
    names = {field.name for field in dataclasses.fields(LoraConfig) if field.init}
    config = LoraConfig(**{name: value for name, value in settings.items() if name in names})
    return config, weights


def check_patterns(settings: dict[str, Any]) -> None:
    """Raises a ValueError for patterns of an adapter_config.json that could take long."""
    for name in PATTERNS:
        value = settings.get(name)
        texts: Iterable[Any] = value if isinstance(value, list | dict) else [value]
        for text in texts:
            if text is None:
                continue
            if not isinstance(text, str) or len(text) > MAX_LENGTH or not PLAIN_PATTERN.fullmatch(text):
                raise ValueError(f"{name} has {str(text)[:60]!r}: list the names of its layers instead")
            choices = [choice.split("|") for choice in CHOICE_PATTERN.findall(text)]
            repeated = any(len(set(names)) < len(names) for names in choices)  # twice the same: backtracking
            if text.count(".*") > MAX_STARS or text.count("(") > MAX_CHOICES or repeated:
                raise ValueError(f"{name} has {text[:60]!r}: list the names of its layers instead")
            re.compile(text)


# ---- kinds of LoRAs

OWN, PARTIAL, COARSE = "own", "partial", "coarse"
KINDS = (OWN, PARTIAL, COARSE, *TOWERS)
# the folder of each kind in an allocator folder
FOLDERS = {OWN: ".", PARTIAL: "partial", COARSE: "coarse"} | {name: name for name in TOWERS}
_TOWER = (
    r".*(visual|vision_tower).*\.(qkv|attn\.proj|q_proj|k_proj|v_proj|out_proj|linear_fc1|linear_fc2"
    r"|fc1|fc2|gate_proj|up_proj|down_proj)"
)
# Which layers a new LoRA of each kind adapts, by their names in the families.
TARGETS = {
    OWN: r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)",
    PARTIAL: _TOWER,
    COARSE: r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)",
} | dict.fromkeys(TOWERS, _TOWER)


def decoder_name(base: Any) -> str:
    """Return the name of the language model among the modules of a base model: "language_model" in most."""
    decoder = base.get_decoder()
    names = (name.rpartition(".")[2] for name, module in base.named_modules() if module is decoder)
    return next(names, "") or "language_model"


_MAKING = threading.Lock()  # held while a twin is made, so that it is made once


@contextmanager
def _unchanged_flags(*modules: nn.Module) -> Generator[None, None, None]:
    """Keeps which parameters learn while peft works inside the block, and silences its warning."""
    flags = [(p, p.requires_grad) for module in modules for p in module.parameters()]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")
            yield
    finally:
        for parameter, learns in flags:
            parameter.requires_grad_(learns)


class LoRAs(nn.Module):
    """The LoRAs trained for one base model, which is not changed, and twins of the base with them put in.

    A module, so that their weights are moved, cast, trained and saved with the model they belong to; the base
    model is not among its submodules. The user's own adapters stay active. Threads may use any combinations
    at once.
    """

    def __init__(self, base: PreTrainedModel) -> None:
        super().__init__()
        self.weights = nn.ModuleDict()  # matrices by "kind/path of the layer/A or B" (slashes for dots)
        self._base = (base,)  # in a tuple, so that it is no submodule
        self._configs: dict[str, Any] = {}
        self._twins: dict[Any, PreTrainedModel] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: without the twins, which it makes for its own base."""
        return vars(self) | {"_twins": {}}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind in KINDS if kind in self._configs)

    def __contains__(self, kind: str) -> bool:
        return kind in self._configs

    def parameters_of(self, kind: str) -> list[nn.Parameter]:
        return [part.weight for part in self._matrices(kind).values()]

    def model_for(self, kinds: Sequence[str]) -> PreTrainedModel:
        """Return a twin of the base model with some kinds active, those that exist; the base if none does."""
        base = self._base[0]
        active = tuple(kind for kind in kinds if kind in self)
        if not active:
            return base
        key = twin_key(base)
        with _MAKING:
            if (active, key) not in self._twins:
                if not any(other == key for _, other in self._twins):  # the user has changed the base
                    self._twins.clear()
                self._twins[active, key] = self._combined(active)
            return refresh(self._twins[active, key])

    def _combined(self, kinds: tuple[str, ...]) -> PreTrainedModel:
        """Return a twin of the base with some kinds put in beside the user's own adapters, all of them
        active.
        """
        from peft.tuners.tuners_utils import BaseTunerLayer

        model: Any = twin(self._base[0])
        state = adapter_state(self._base[0])
        own = [] if len(state) < 4 or state[2] else [name for name in state[1] if name not in state[3]]
        _settle_merged(model)
        with _unchanged_flags(model, self), same_start():
            for kind in kinds:
                matrices = self._matrices(kind)
                for key, place in _inject(model, kind, self._configs[kind]).items():
                    place[_name(kind)] = matrices[key]
            for module in model.modules():
                if isinstance(module, BaseTunerLayer):
                    module.enable_adapters(True)
                    module.set_adapter([*own, *map(_name, kinds)])
                    module.train(self._base[0].training)  # no dropout of new modules where the base has none
        return model

    def _matrices(self, kind: str) -> dict[str, Any]:
        """Return the matrices of one kind by "path of the layer/A or B"."""
        names = [name for name in self.weights if name.startswith(f"{kind}/")]
        return {name.removeprefix(f"{kind}/"): self.weights[name] for name in names}

    def add(self, kind: str, rank: int) -> None:
        """Adds a new LoRA of this rank, which leaves the model's outputs as they are until trained."""
        if kind not in KINDS or kind in self:
            reason = "there already" if kind in self else f"none of {', '.join(KINDS)}"
            raise ValueError(f"LoRA {kind!r} is {reason}")
        from peft import LoraConfig

        layers = TARGETS[kind].replace("language_model", decoder_name(self._base[0]))
        self._put(kind, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=layers))

    def _put(self, kind: str, config: Any, weights: dict[str, Tensor] | None = None) -> None:
        """Makes the matrices of one kind as peft would put them into the base; `weights` None: its initial.

        A ValueError where weights are missing, left over or of another shape, or others are made.
        """
        model: Any = twin(self._base[0])
        _settle_merged(model)
        before = {id(parameter) for parameter in model.parameters()}
        config.inference_mode = False
        with _unchanged_flags(model):
            places = _inject(model, kind, config)
            _fetch(model, kind, config)
        matrices: dict[str, Any] = {key: place[_name(kind)] for key, place in places.items()}
        ours = {id(matrix.weight) for matrix in matrices.values()} | before
        more = [key for key, parameter in model.named_parameters() if id(parameter) not in ours]
        if more:
            raise ValueError(f"it has more than the two matrices of a layer, first {more[0]}")
        if weights is not None:
            _fill({_file_key(key): matrix for key, matrix in matrices.items()}, weights)
        self.weights.update({f"{kind}/{key}": matrix for key, matrix in matrices.items()})
        self._configs[kind] = config
        self._twins.clear()

    def save(self, folder: Path) -> None:
        """Writes each kind into its folder in peft's format, safetensors and `adapter_config.json`."""
        for kind in self.kinds:
            place = make_folder(folder / FOLDERS[kind])
            weights = {
                PEFT_PREFIX + _file_key(key): matrix.weight for key, matrix in self._matrices(kind).items()
            }
            write_tensors(weights, place / WEIGHTS_NAME, {"format": "pt"})
            config = self._configs[kind]
            config.base_model_name_or_path = None  # a path on this disk stays private
            config.inference_mode = True
            try:
                config.save_pretrained(str(place))
            finally:
                config.inference_mode = False

    def load(self, folder: Path) -> None:
        """Reads the LoRAs of an allocator folder, if there are any, frozen.

        A ValueError if peft is missing, or a LoRA can't be read or doesn't fit. Earlier ones are kept.
        """
        for kind in KINDS:
            place = folder / FOLDERS[kind]
            if (place / CONFIG_NAME).is_file():
                self._load(kind, place)
        self.requires_grad_(False)

    def _load(self, kind: str, folder: Path) -> None:
        with reading(
            f"the LoRA in {str(folder)!r} can't be loaded", "use the base model that it was trained for"
        ):
            self._put(kind, *read_lora(folder))


def _name(kind: str) -> str:
    return f"arr_coc_{kind}"


def _file_key(key: str) -> str:
    """Return the name of a matrix in peft's files, without its prefix, by "path of the layer/A or B"."""
    path, part = key.rsplit("/", 1)
    return f"{path.replace('/', '.')}.lora_{part}.weight"


def _inject(model: nn.Module, kind: str, config: Any) -> dict[str, nn.ModuleDict]:
    """Lets peft put a LoRA into a twin: by "path of the layer/A or B", where the layer holds its matrices."""
    from peft import inject_adapter_in_model
    from peft.tuners.lora import LoraLayer

    inject_adapter_in_model(config, model, _name(kind))
    return {
        f"{path.replace('.', '/')}/{part}": getattr(module, f"lora_{part}")
        for path, module in model.named_modules()
        if isinstance(module, LoraLayer) and _name(kind) in module.lora_A
        for part in ("A", "B")
    }


def _settle_merged(model: nn.Module) -> None:
    """Lets a twin treat adapters that the user has merged into the weights as part of them.

    Else peft would take them out, of the base as well, before it puts another in. Disabled ones are taken
    out, which the base's own next call would do.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    for module in model.modules():
        if isinstance(module, BaseTunerLayer) and module.merged:
            if module.disable_adapters:
                module.unmerge()
            module.merged_adapters = []


def _fetch(model: nn.Module, kind: str, config: Any) -> None:
    """Gives matrices of layers whose weights accelerate keeps elsewhere device and initial values."""
    from peft.tuners.lora import LoraLayer

    for module in model.modules():
        if not isinstance(module, LoraLayer) or _name(kind) not in module.lora_A:
            continue
        device = hook_device(module.get_base_layer())
        if device is not None and module.lora_A[_name(kind)].weight.is_meta:
            for matrices in (module.lora_A, module.lora_B):
                matrices[_name(kind)].to_empty(device=device)
            module.reset_lora_parameters(_name(kind), config.init_lora_weights)


def _fill(matrices: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Copies weights into matrices of the same names; a ValueError where names or shapes differ."""
    unfit = sorted(set(matrices) ^ set(weights))
    unfit += [key for key in set(matrices) & set(weights)
              if matrices[key].weight.shape != weights[key].shape]  # fmt: skip
    if unfit:
        raise ValueError(f"{len(unfit)} weights are missing, left over or of another shape, first {unfit[0]}")
    with torch.no_grad():
        for key, matrix in matrices.items():
            matrix.weight.copy_(weights[key])
