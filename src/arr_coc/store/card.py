"""The model card of an allocator: README.md with the Hub's metadata, from the model and result files.

Laws: every figure comes from a result file of `arr-coc eval` measured with these very weights; without one
the card states that nothing was measured. It holds no path of this disk.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from huggingface_hub import ModelCard, ModelCardData

from arr_coc.files.hub import check_shared, upload
from arr_coc.files.paths import BUNDLED_NAME, is_local
from arr_coc.files.plugins import plugin
from arr_coc.guide.guide import load_guide
from arr_coc.seam.lora import COARSE, FOLDERS, OWN, PARTIAL
from arr_coc.seam.lora import WEIGHTS_NAME as LORA_WEIGHTS
from arr_coc.seam.tower_compressor import TOWERS
from arr_coc.store.allocator import fingerprint, save_learned
from arr_coc.store.checkpoint import (
    ALLOCATOR_FILES,
    BUNDLED_ABOUT,
    GUIDE,
    WEIGHTS_NAME,
    base_revision,
)

CARD = "README.md"
SHARED = (*ALLOCATOR_FILES, CARD)  # all files that may go to the Hub
MADE = "<!-- Made by arr-coc. Without this line the file is yours, and saving again leaves it as it is. -->"
TAGS = ("arr-coc", "visual-token-pruning", "relevance-realization", "vision-language-model")
LORAS = {
    OWN: "LoRA of the language model, for pruned prompts",
    PARTIAL: "LoRA of the vision tower, for encoding some cells alone",
    COARSE: "LoRA of the language model, for reading a gestalt before fine tokens",
    **{name: f"LoRA of the vision tower, for gestalt `{name}`" for name in TOWERS},
}

logger = logging.getLogger(__name__)


class CardOptions(TypedDict, total=False):
    """Keyword arguments of `model_card`, as `save_pretrained` passes them on."""

    name: str
    results: Sequence[str | Path]
    data: str | None
    license: str


def model_card(
    model: Shareable,
    *,
    name: str,
    results: Sequence[str | Path] = (),
    data: str | None = None,
    license: str = "apache-2.0",
) -> ModelCard:
    """Return the card of an allocator; figures are in its text, not in the Hub's tables of benchmarks.

    Args:
        model: the base model with everything trained for it.
        name: on the Hub, or of the folder.
        results: files of `arr-coc eval` (.jsonl, .jsonl.gz or .json), measured with these weights.
        data: the training data in words; None: the records of `arr-coc train`, if any.
        license: of the weights, in the Hub's abbreviation.

    Raises:
        ValueError: a result that is unreadable or of other weights.
    """
    figures = [plugin("cards", "results")(path, fingerprint(model.layer)) for path in results]
    on_hub = model.base_name != BUNDLED_NAME and not is_local(model.base_name)
    metadata = ModelCardData(
        base_model=model.base_name if on_hub else None,
        library_name="arr-coc",
        license=license,
        pipeline_tag="image-text-to-text",
        tags=[*TAGS, model.config.model_type],
        base_model_relation="adapter" if on_hub else None,
    )
    sections = {
        "Use": _use(model, name),
        "What is in it": _parts(model),
        "Data": _data(model, data),
        "Figures": "\n\n".join(figures)
        or "Nothing was measured with these weights. Figures of other allocators or base models say nothing "
        "about this one; `arr-coc eval` measures it.",
        "Limits": _limits(model),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    opening = (
        f"For each question about an image it chooses the visual tokens that {_base(model)} reads: "
        f"{_budget(model)}, each at its own place. The base model is not in here, and it is not changed."
    )
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n{MADE}\n\n# {name}\n\n{opening}\n\n{body}\n")


def card_file(card: ModelCard, folder: Path) -> dict[str, bytes]:
    """Return the card as a file of an allocator folder; {} if a card written by hand is there."""
    path = folder / CARD
    if path.is_file() and MADE not in path.read_text(encoding="utf-8"):
        logger.warning("%s is not of arr-coc's making and stays as it is", path)
        return {}
    return {CARD: str(card).encode()}


def _base(model: Shareable) -> str:
    """Return the base model in words, without a path of this disk."""
    if model.base_name == BUNDLED_NAME:
        return "the small model that ships inside the package"
    if is_local(model.base_name):
        return f"a {model.config.model_type} model of the author's"
    commit = base_revision(model.base)
    return f"[{model.base_name}](https://huggingface.co/{model.base_name})" + (
        f" (commit `{commit[:12]}`)" if commit else ""
    )


def _budget(model: Shareable) -> str:
    """Return the default budget in words."""
    if model.budget == "auto":
        return "64 to 400 of them, as many as the question needs"
    if isinstance(model.budget, str):
        return f"as many of them as the question needs ({model.budget})"
    return f"{model.budget:.0%} of them" if isinstance(model.budget, float) else f"{model.budget} of them"


def _use(model: Shareable, name: str) -> str:
    """Markdown code that loads the allocator and asks a question."""
    commit = " at the commit it was trained for" if base_revision(model.base) else ""
    return (
        f"""```python
from arr_coc import ARRCOCModel  # of the package arr-coc

model = ARRCOCModel.from_pretrained({json.dumps(name, ensure_ascii=False)})
print(model.ask("page.png", "What is the invoice number?", budget=64).text)
```

The base model is loaded with it, by its name"""
        + commit
        + "."
    )


def _parts(model: Shareable) -> str:
    """Return a Markdown table of the weights: file, purpose, number of parameters."""
    rows = [(WEIGHTS_NAME, "scorers, balancer, allocator", model.layer.parameters())]
    if model.stem is not None:
        purpose = "sees cells before they are encoded, for modes `sparse` and `saccade`"
        rows.append(("stem.safetensors", purpose, model.stem.parameters()))
    if model.guide is not None:
        weights = load_guide(model.guide).parameters()
        rows.append((GUIDE, "where the words of a question point, with no model's help", weights))
    purpose = "learned compressor, a gestalt of modes `compress` and `saccade`"
    rows += [(f"{name}.safetensors", purpose, made.parameters()) for name, made in model.compressors.items()]
    for adapter, what in LORAS.items():
        if adapter in model.loras:
            file = (Path(FOLDERS[adapter]) / LORA_WEIGHTS).as_posix()
            rows.append((file, what, model.loras.parameters_of(adapter)))
    lines = [f"| `{file}` | {what} | {_count(weights):,} |" for file, what, weights in rows]
    return "\n".join(
        ["| file | what | parameters |", "|---|---|--:|", *lines, "", "Safetensors only, and no code."]
    )


def _count(parameters: Iterable[Any]) -> int:
    return sum(p.numel() for p in parameters)


def _data(model: Shareable, data: str | None) -> str:
    """Return the training data in words."""
    if data is not None:
        return data
    if not model.layer.trained and not model.layer.trained_on:
        guide = "bundled guide" if model.guide is None else "guide in this folder"
        return f"None: nobody has trained it. The {guide} finds the question's words on the page."
    runs = [_run(record) for record in model.layer.trained_on]
    if not runs:
        return "It was trained; on what, its author has not said."
    return runs[0] if len(runs) == 1 else "\n".join(f"{i}. {run}" for i, run in enumerate(runs, 1))


def _run(record: Mapping[str, Any]) -> str:
    """Return a training record of `files.saved.check_records` in words."""
    kinds = {"world": "drawn pages"}
    names = {"recipe": "recipe", "target": "taught by", "eyes": "eyes", "base": "base model", "seed": "seed"}
    images = record.get("images", {}).items()
    parts = [
        ", ".join(f"at most {count:,} {kinds.get(kind, f'images of `{kind}`')}" for kind, count in images)
    ]
    if "steps" in record:
        parts.append(f"{record['steps']:,} steps")
    parts += [f"{name} `{record[key]}`" for key, name in names.items() if key in record]
    return "; ".join(part for part in parts if part) + "."


def _limits(model: Shareable) -> str:
    """Return a Markdown list of limits."""
    lines = [
        "What is not chosen is not read. Questions that need the whole image, such as counts, suffer first; "
        "compare with `mode='full'`, which reads all tokens and is the stock model.",
        "It fits this base model alone, and inherits what that model gets wrong.",
        "Figures hold for the questions they were measured on. Measure on your own before you rely on it.",
    ]
    if model.base_name == BUNDLED_NAME:
        lines.append(
            "The bundled model is a small one that has seen drawn pages only. It is no general VLM and will "
            "be wrong about photographs."
        )
    return "\n".join(f"- {line}" for line in lines)


class Shareable:
    """A base class of models that saves and uploads what was trained, never the base model."""

    base: Any
    layer: Any
    stem: Any
    compressors: Any
    loras: Any
    guide: Path | None
    budget: Any
    config: Any
    base_name: str

    @property
    def about(self) -> str | None:
        """What the bundled base model can do, in one line; None for others."""
        return BUNDLED_ABOUT if self.base_name == BUNDLED_NAME else None

    def save_pretrained(self, folder: str | Path, **card: Unpack[CardOptions]) -> None:
        """Write what was trained (layer, stem, compressors, LoRAs, an own guide), the name and commit of the
        base model, and a model card with `results`, `data` and `license` of `model_card`; never the base
        model.

        Raises:
            ValueError: unreadable results, or results of other weights; nothing is written then.
        """
        text = model_card(self, **({"name": Path(folder).resolve().name} | card))
        parts = (self.layer, self.stem, dict(self.compressors), self.loras)
        card_text = card_file(text, Path(folder))
        save_learned(*parts, self.base, Path(folder), self.base_name, self.guide, card_text)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        **card: Unpack[CardOptions],
    ) -> str:
        """Upload what `save_pretrained` writes; returns the address of the commit.

        Raises:
            ValueError: a base model that only this disk has, or a failed upload.
        """
        check_shared(self.base_name)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, **({"name": repo_id} | card))
            return upload(Path(folder), repo_id, SHARED, private=private, token=token)
