"""The LoRAs beside the layer: they start as nothing, come back as saved, and never touch the base model."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText, PreTrainedModel

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam.loaded import CAPTURING
from arr_coc.seam.lora import COARSE, CONFIG_NAME, KINDS, OWN, PARTIAL, TARGETS, LoRAs, check_patterns
from arr_coc.seam.lora import WEIGHTS_NAME as WEIGHTS
from each import each
from eyes import set_constants
from near import near
from tiny import EVERY, FAMILIES, WIDTH, picture, prompts, tiny

pytestmark = pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
WANTED = {
    "full": (),
    "prune": (OWN,),
    "sparse": (PARTIAL, OWN),
    "saccade": (PARTIAL, COARSE),
    "compress": (OWN,),
    "weight": (OWN,),
}
"""What is at work in each mode, of what there is; in "saccade" `OWN` stands in for a missing `COARSE`."""
SOME = pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
SUBSETS = ((OWN,), (PARTIAL, COARSE), (OWN, PARTIAL), KINDS)


def stock(family: str = "qwen3_vl") -> PreTrainedModel:
    """A tiny model of its own, for tests that change it."""
    return copy.deepcopy(tiny(family).model)


@torch.no_grad()
def logits(model: PreTrainedModel, family: str = "qwen3_vl") -> Tensor:
    return model(**prompts(tiny(family), [("What?", [picture(1)])])).logits


def learn(loras: LoRAs, kinds: Sequence[str] = KINDS, scale: float = 0.3) -> LoRAs:
    """LoRAs that have learned something, the same every time, whatever others there are."""
    for kind in kinds:
        generator = torch.Generator().manual_seed(len(kind))
        with torch.no_grad():
            for parameter in loras.parameters_of(kind):
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return loras


def learned(
    family: str = "qwen3_vl",
    rank: int = 2,
    kinds: Sequence[str] = (OWN,),
    base: PreTrainedModel | None = None,
) -> LoRAs:
    """LoRAs of the shared tiny model that have learned something; they don't learn any more."""
    loras = LoRAs(tiny(family).model if base is None else base)
    for kind in kinds:
        loras.add(kind, rank)
    return learn(loras, kinds).requires_grad_(False)


def ambient(loras: LoRAs, kinds: Sequence[str], family: str = "qwen3_vl") -> PreTrainedModel:
    """The same LoRAs in a copy of the model by transformers' own adapter methods, all at work."""
    model = stock(family)
    for kind in kinds:
        rank = min(loras.parameters_of(kind)[0].shape)
        model.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS[kind]), kind)
        weights = {
            name: parameter for name, parameter in model.named_parameters() if f".{kind}.weight" in name
        }
        ours = {
            f"{path.replace('/', '.')}": part.weight
            for path, part in loras.weights.items()
            if path.startswith(f"{kind}/")
        }
        assert len(weights) == len(ours) > 0
        with torch.no_grad():
            for path, value in ours.items():
                layer, part = path.removeprefix(f"{kind}.").rsplit(".", 1)
                weights[f"{layer}.lora_{part}.{kind}.weight"].copy_(value)
    if kinds:
        model.set_adapter(list(kinds))
    return model


def model_of(loras: LoRAs, mode: str) -> PreTrainedModel:
    return loras.model_for(MODES[mode].kinds(loras.kinds))


def by_mode(loras: LoRAs, family: str = "qwen3_vl") -> dict[str, Tensor]:
    """The logits of one prompt with the LoRAs of each mode at work."""
    return {mode: logits(model_of(loras, mode), family) for mode in MODES}


def learning(module: torch.nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def fingerprint(model: PreTrainedModel) -> dict[str, Any]:
    """Everything by which a change of a model would show.

    The first call that records hidden states installs transformers' own hooks and a flag, which is none.
    """

    def hooks(module: nn.Module) -> int:
        installed = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        return sum(hook.__module__ != CAPTURING for hook in installed)

    return {
        "class": type(model),
        "modules": [(name, type(module), id(module)) for name, module in model.named_modules()],
        "attributes": [
            sorted(vars(m).keys() - {"_output_capturing_hooks_installed"}) for m in model.modules()
        ],
        "training": [module.training for module in model.modules()],
        "learning": learning(model),
        "hooks": [hooks(module) for module in model.modules()],
        "config": model.config.to_dict(),
        "attention": [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")],
        "weights": {
            name: hashlib.sha256(
                value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            ).hexdigest()
            for name, value in model.state_dict().items()
        },
    }


@pytest.fixture(autouse=True)
def base_is_never_changed() -> Iterator[None]:
    """The law above all, held to in every test of this file: nothing done with LoRAs changes their base."""
    was = {family: untouched(family) for family in ("qwen3_vl", "llava")}
    yield
    assert {family: fingerprint(tiny(family).model) for family in was} == was


@cache
def untouched(family: str) -> dict[str, Any]:
    """What a family's model was before the first test."""
    return fingerprint(tiny(family).model)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    learned().save(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    def test_a_new_lora_changes_nothing_and_alone_learns(self, family: str) -> None:
        base = tiny(family).model
        before, plain, loras = fingerprint(base), logits(base, family), LoRAs(base)
        loras.add(OWN, 2)
        assert OWN in loras
        model = loras.model_for([OWN])
        assert model is not base
        assert torch.equal(logits(model, family), plain)
        free = learning(model)
        assert free == {name for name, _ in model.named_parameters() if "lora_" in name}
        assert free
        assert all("language_model" in name for name in free)  # never the vision tower
        assert learning(loras) == {name for name, _ in loras.named_parameters()}
        assert fingerprint(base) == before

    def test_the_base_is_stock_to_the_last_bit(self, family: str) -> None:
        base = tiny(family).model
        before, plain = fingerprint(base), logits(base, family)
        loras = learned(family)
        assert (logits(loras.model_for([OWN]), family) - plain).abs().max() > 0.01
        assert torch.equal(logits(base, family), plain)
        assert loras.model_for([]) is base
        assert loras.model_for([PARTIAL, COARSE]) is base  # there are none
        with pytest.raises(TypeError):
            loras.model_for([OWN])(input_ids="no ids")
        assert torch.equal(logits(base, family), plain)
        assert fingerprint(base) == before

    def test_it_comes_back_as_saved(self, family: str, tmp_path: Path) -> None:
        loras, again = learned(family), LoRAs(tiny(family).model)
        loras.save(tmp_path)
        again.load(tmp_path)
        assert torch.equal(logits(again.model_for([OWN]), family), logits(loras.model_for([OWN]), family))
        assert not learning(again)
        assert not learning(again.model_for([OWN]))
        weights = load_file(tmp_path / WEIGHTS)
        assert sum(w.numel() for w in weights.values()) == sum(p.numel() for p in loras.parameters())
        assert all("lora_" in name for name in weights)  # never the base

    @pytest.mark.slow
    def test_it_computes_what_peft_computes(self, family: str) -> None:
        for kinds in ((OWN,), (PARTIAL,), (PARTIAL, COARSE)):
            loras = learned(family, kinds=kinds)
            expected = logits(ambient(loras, kinds, family), family)
            assert torch.equal(logits(loras.model_for(kinds), family), expected), kinds


@pytest.mark.parametrize("family", [name for name in ("qwen3_vl", "smolvlm", "gemma3") if name in EVERY])
def test_the_language_model_is_adapted_whatever_its_name(family: str) -> None:
    loras = LoRAs(tiny(family).model)
    loras.add(OWN, 2)
    name = "text_model" if family == "smolvlm" else "language_model"
    assert len(loras.weights) == 2 * 4 * 2  # matrices, layers of attention, layers
    assert all(f"/{name}/layers/" in place for place in loras.weights)


class TestSeveral:
    @pytest.mark.slow
    @pytest.mark.parametrize("family", FAMILIES)
    def test_each_adapts_its_half(self, family: str) -> None:
        loras = LoRAs(tiny(family).model)
        for kind in (PARTIAL, COARSE):
            loras.add(kind, 2)
        assert loras.kinds == (PARTIAL, COARSE)
        assert [kind for kind in KINDS if kind in loras] == [PARTIAL, COARSE]
        tower = "visual" if "qwen" in family else "vision_tower"
        for kind, half in ((PARTIAL, tower), (COARSE, "language_model")):
            places = [name for name in loras.weights if name.startswith(f"{kind}/")]
            assert len(loras.parameters_of(kind)) == len(places)
            assert all(half in place for place in places)
            assert {"mlp", "attn"} <= {
                part.removeprefix("self_") for place in places for part in place.split("/")
            }
        for mode, found in by_mode(loras, family).items():
            assert torch.equal(found, logits(tiny(family).model, family)), mode  # nothing was learned yet

    @pytest.mark.slow
    @SOME
    def test_each_mode_has_its_loras(self, family: str) -> None:
        plain = logits(tiny(family).model, family)
        for kinds in SUBSETS:
            loras = learned(family, kinds=kinds)
            found = by_mode(loras, family)
            for mode, wanted in WANTED.items():
                chosen = [kind for kind in wanted if kind in kinds]
                if mode == "saccade" and COARSE not in kinds:
                    chosen.append(OWN)
                expected = logits(ambient(loras, chosen, family), family)
                assert torch.equal(found[mode], expected), (kinds, mode)
                assert (not chosen) == torch.equal(found[mode], plain), (kinds, mode)
                assert (not chosen) == (model_of(loras, mode) is tiny(family).model), (kinds, mode)

    @pytest.mark.slow
    @SOME
    def test_all_come_back_as_saved(self, family: str, tmp_path: Path) -> None:
        for kinds in ((PARTIAL, COARSE), KINDS):
            folder = tmp_path / str(len(kinds))
            loras, again = learned(family, kinds=kinds), LoRAs(tiny(family).model)
            expected = by_mode(loras, family)
            loras.save(folder)
            places = {folder if kind == OWN else folder / kind for kind in kinds}
            assert {path.parent for path in folder.rglob(WEIGHTS)} == places
            assert {path.name for path in folder.rglob("*.*")} == {WEIGHTS, CONFIG_NAME}
            again.load(folder)
            assert again.kinds == tuple(kind for kind in KINDS if kind in kinds)
            for mode, found in by_mode(again, family).items():
                assert torch.equal(found, expected[mode]), (kinds, mode)
            assert not learning(again)
            for path in folder.rglob(CONFIG_NAME):
                settings = json.loads(path.read_text())
                assert settings["base_model_name_or_path"] is None
                assert settings["inference_mode"] is True
                assert "/" not in json.dumps(settings)  # nobody's disk

    @pytest.mark.slow
    def test_saving_changes_nothing(self, tmp_path: Path) -> None:
        for kinds in ((OWN,), (PARTIAL, COARSE), KINDS):
            loras = learned(kinds=kinds)
            before = by_mode(loras)
            loras.save(tmp_path / "-".join(kinds))
            assert not learning(loras)
            for mode, found in by_mode(loras).items():
                assert torch.equal(found, before[mode]), (kinds, mode)

    def test_one_twin_for_each_combination(self) -> None:
        loras = learned(kinds=KINDS)
        assert loras.model_for([OWN]) is loras.model_for([OWN])
        assert model_of(loras, "prune") is model_of(loras, "weight")
        assert len({id(model_of(loras, mode)) for mode in MODES}) == 4
        base = tiny("qwen3_vl").model
        own = {parameter.data_ptr() for parameter in base.parameters()}
        twins = {parameter.data_ptr() for parameter in model_of(loras, "saccade").parameters()}
        assert own < twins  # no weight of the base was copied
        assert len(twins) - len(own) == len(loras.parameters_of(PARTIAL)) + len(loras.parameters_of(COARSE))


class TestFilesOfPeft:
    """The files are peft's own: those saved by its methods load here, and those saved here load there."""

    @SOME
    @pytest.mark.parametrize("kind", KINDS)
    def test_saved_by_transformers(self, family: str, kind: str, tmp_path: Path) -> None:
        """As this library did it before its LoRAs worked in twins: put into the model, saved by the model."""
        model, name = stock(family), "default" if kind == OWN else kind
        model.add_adapter(LoraConfig(r=3, lora_alpha=6, target_modules=TARGETS[kind]), name)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for path, parameter in model.named_parameters():
                if "lora_" in path:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        folder = tmp_path if kind == OWN else tmp_path / kind
        model.save_pretrained(folder)
        loras = LoRAs(tiny(family).model)
        loras.load(tmp_path)
        assert loras.kinds == (kind,)
        assert torch.equal(logits(loras.model_for([kind]), family), logits(model, family))
        loras.save(tmp_path / "again")
        again = tmp_path / "again" / folder.relative_to(tmp_path)
        before, after = (load_file(place / WEIGHTS) for place in (folder, again))
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)
        one, other = (json.loads((place / CONFIG_NAME).read_text()) for place in (folder, again))
        assert one | {"base_model_name_or_path": None, "inference_mode": True} == other

    @SOME
    @pytest.mark.parametrize("kind", KINDS)
    def test_loaded_by_transformers(self, family: str, kind: str, tmp_path: Path) -> None:
        loras, model = learned(family, 3, (kind,)), stock(family)
        loras.save(tmp_path)
        model.load_adapter(str(tmp_path if kind == OWN else tmp_path / kind))
        assert torch.equal(logits(model, family), logits(loras.model_for([kind]), family))


class TestWhatLearns:
    def test_what_does_not_learn_does_not_in_any_mode(self) -> None:
        loras = learned(kinds=KINDS)
        for mode in MODES:
            assert not learning(model_of(loras, mode)), mode
            assert not learning(loras), mode

    @pytest.mark.parametrize("kinds", [(OWN,), (PARTIAL, COARSE)])
    def test_what_learns_goes_on_learning(self, kinds: tuple[str, ...]) -> None:
        loras = LoRAs(tiny("qwen3_vl").model)
        for kind in kinds:
            loras.add(kind, 2)
        before = learning(loras)
        assert all(any(f"{kind}/" in place for place in before) for kind in kinds)
        for mode in ("full", "sparse", "prune"):
            model_of(loras, mode)
            assert learning(loras) == before, mode
            assert not learning(tiny("qwen3_vl").model)

    @pytest.mark.slow
    def test_a_step_of_one_kind_is_seen_by_every_twin_and_by_no_other_kind(self) -> None:
        loras = learned(kinds=KINDS)
        plain, before = logits(tiny("qwen3_vl").model), by_mode(loras)
        for parameter in loras.parameters_of(OWN):
            parameter.requires_grad_(True)
        inputs = prompts(tiny("qwen3_vl"), [("What?", [picture(1)])])
        model_of(loras, "sparse")(**inputs).logits.square().mean().backward()
        assert all(p.grad is None for kind in (PARTIAL, COARSE) for p in loras.parameters_of(kind))
        with torch.no_grad():
            for parameter in loras.parameters_of(OWN):
                assert parameter.grad is not None
                parameter -= parameter.grad
        after = by_mode(loras)
        for mode, wanted in WANTED.items():
            assert torch.equal(after[mode], before[mode]) == (OWN not in wanted), mode
        assert torch.equal(logits(tiny("qwen3_vl").model), plain)

    def test_parameters_of_the_base_that_learn_go_on(self) -> None:
        base = stock()
        base.get_input_embeddings().requires_grad_(True)
        before = learning(base)
        assert before
        loras = learned(kinds=KINDS, base=base)
        for mode in MODES:
            model_of(loras, mode)
            assert learning(base) == before, mode


class TestThreads:
    """Nothing about the base depends on what is at work, so calls with other LoRAs may run beside it."""

    @pytest.mark.slow
    @SOME
    def test_every_mode_at_once(self, family: str) -> None:
        expected = by_mode(learned(family, kinds=KINDS), family)
        loras, modes = learned(family, kinds=KINDS), list(MODES)  # whose twins are not made yet
        together = threading.Barrier(len(modes), timeout=60)

        def run(mode: str) -> None:
            for _ in range(3):
                together.wait()
                assert torch.equal(logits(model_of(loras, mode), family), expected[mode]), mode

        with ThreadPoolExecutor(len(modes)) as pool:
            list(pool.map(run, modes))


class TestAdaptersOfTheUser:
    """Adapters that the base came with stay at work, and stay the user's."""

    @staticmethod
    def adapted(name: str = "mine", targets: str = TARGETS[OWN]) -> PreTrainedModel:
        model = stock()
        model.add_adapter(LoraConfig(r=2, target_modules=targets), name)
        generator = torch.Generator().manual_seed(9)
        with torch.no_grad():
            for path, parameter in model.named_parameters():
                if "lora_" in path:
                    parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        return model

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "targets"), [("mine", TARGETS[OWN]), ("default", TARGETS[PARTIAL])])
    def test_ours_work_beside_them(self, name: str, targets: str) -> None:
        base = self.adapted(name, targets)
        before, plain = fingerprint(base), logits(base)
        assert (plain - logits(tiny("qwen3_vl").model)).abs().max() > 0.01
        loras = learned(kinds=KINDS, base=base)
        found = by_mode(loras)
        assert torch.equal(found["full"], plain)
        for mode, wanted in WANTED.items():
            both = self.adapted(name, targets)
            reference = ambient(learned(kinds=KINDS), wanted)
            for kind in wanted:
                rank = 2
                both.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS[kind]), kind)
                values = dict(reference.named_parameters())
                with torch.no_grad():
                    for path, parameter in both.named_parameters():
                        if f".{kind}.weight" in path:
                            parameter.copy_(values[path])
            both.set_adapter([name, *wanted])
            assert near(found[mode], logits(both)), mode
        assert fingerprint(base) == before
        assert torch.equal(logits(base), plain)

    @pytest.mark.parametrize("name", ["mine", "default"])
    def test_they_are_not_saved_as_ours(self, name: str, tmp_path: Path) -> None:
        base = self.adapted(name)
        LoRAs(base).save(tmp_path / "none")
        assert not (tmp_path / "none").exists()
        learned(kinds=(PARTIAL,), base=base).save(tmp_path / "partial only")
        assert {path.parent.name for path in (tmp_path / "partial only").rglob("*.*")} == {PARTIAL}
        learned(base=base).save(tmp_path / "own")
        plain = tmp_path / "plain"
        learned().save(plain)
        ours, alone = (load_file(place / WEIGHTS) for place in (tmp_path / "own", plain))
        assert ours.keys() == alone.keys()
        assert all(torch.equal(ours[key], alone[key]) for key in ours)

    def test_they_come_and_go(self) -> None:
        """Twins follow what the user does to the adapters of the base."""
        base = stock()
        loras = learned(base=base)
        alone = logits(loras.model_for([OWN]))
        added = self.adapted()
        base.add_adapter(LoraConfig(r=2, target_modules=TARGETS[OWN]), "mine")
        with torch.no_grad():
            values = dict(added.named_parameters())
            for path, parameter in base.named_parameters():
                if "lora_" in path:
                    parameter.copy_(values[path])
        beside = logits(loras.model_for([OWN]))
        assert (beside - alone).abs().max() > 0.01
        base.disable_adapters()
        assert torch.equal(logits(loras.model_for([OWN])), alone)
        base.enable_adapters()
        assert torch.equal(logits(loras.model_for([OWN])), beside)

    @pytest.mark.slow
    def test_they_learn_as_before(self) -> None:
        base = self.adapted()
        before = learning(base)
        assert before
        loras = learned(kinds=KINDS, base=base)
        for mode in MODES:
            model_of(loras, mode)
            assert learning(base) == before, mode
        base.requires_grad_(False)
        for mode in MODES:
            model_of(loras, mode)
            assert not learning(base), mode


class TestInTheModel:
    """Which LoRAs are at work in a call, whatever ran before."""

    IMAGE = picture(1, (72, 56))

    @pytest.fixture(autouse=True)
    def coarsely(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gestalts of at most 9 tokens, and images that are large enough to have one."""
        set_constants(monkeypatch)

    @staticmethod
    def around(
        kinds: Sequence[str] = (), family: str = "qwen3_vl", base: PreTrainedModel | None = None
    ) -> ARRCOCModel:
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH))
        layer.trained = True
        with torch.random.fork_rng():
            torch.manual_seed(0)
            stem = Stem(WIDTH, width=16, blocks=1)
        base = tiny(family).model if base is None else base
        loras = learned(family, kinds=kinds, base=base)
        return ARRCOCModel(base, tiny(family).processor, layer, stem=stem, loras=loras, budget=9, strict=True)

    def answers(self, model: ARRCOCModel, modes: Sequence[str] = tuple(MODES)) -> list[str]:
        session = model.session(self.IMAGE)
        return [session.ask("What?", mode=mode, max_new_tokens=5).text for mode in modes]

    @pytest.mark.slow
    def test_full_is_stock_and_the_others_have_their_loras(self) -> None:
        full, plain = self.around(KINDS), self.around()
        inputs = prompts(tiny("qwen3_vl"), [("What?", [self.IMAGE])])
        for mode, kinds in WANTED.items():
            like = self.around(kinds) if kinds else plain
            with torch.no_grad():
                found, expected = (model(**inputs, mode=mode).logits for model in (full, like))
                assert torch.equal(found, expected), mode
                assert (mode == "full") == torch.equal(found, plain(**inputs, mode=mode).logits), mode

    @pytest.mark.slow
    @torch.no_grad()
    def test_the_base_stays_stock_after_every_mode_and_after_errors(self, tmp_path: Path) -> None:
        base = stock()
        model = self.around(KINDS, base=base)
        before, plain = fingerprint(base), logits(base)

        def interrupt(_: str) -> None:
            raise KeyboardInterrupt

        for mode in MODES:
            model.ask(self.IMAGE, "What?", mode=mode, max_new_tokens=2)
            with pytest.raises(KeyboardInterrupt):
                model.session(self.IMAGE).ask("What?", mode=mode, on_text=interrupt)
            assert torch.equal(logits(model.base), plain), mode
            assert fingerprint(base) == before, mode
        model.base.save_pretrained(tmp_path)
        assert not list(tmp_path.glob("adapter*"))
        assert load_file(tmp_path / "model.safetensors").keys() <= base.state_dict().keys()
        assert model.unwrap() is base
        assert torch.equal(logits(base), plain)

    @pytest.mark.slow
    def test_wrapped_twice_is_wrapped_once(self, tmp_path: Path) -> None:
        self.around(KINDS).save_pretrained(tmp_path)
        base, processor = tiny("qwen3_vl").model, tiny("qwen3_vl").processor
        wraps = [ARRCOCModel.wrap(base, processor, allocator=tmp_path, budget=9) for _ in range(2)]
        wraps.append(ARRCOCModel.wrap(wraps[0], processor, allocator=tmp_path, budget=9))
        assert all(wrap.base is base for wrap in wraps)
        assert self.answers(wraps[0]) == self.answers(wraps[1]) == self.answers(wraps[2])

    @pytest.mark.slow
    def test_a_session_does_not_mix_what_loras_let_it_see(self) -> None:
        """What the tower encoded with one LoRA is not what it would encode with another."""
        model, modes = self.around(KINDS), tuple(MODES)
        alone = {mode: self.answers(model, (mode,))[0] for mode in modes}
        for order in (modes, modes[::-1]):
            assert dict(zip(order, self.answers(model, order), strict=True)) == alone
        session = model.session(self.IMAGE)
        for mode in ("saccade", "compress", "prune", "full", "saccade"):
            name = None if mode in ("prune", "full") else "pool4"
            shared = session.ask("What?", mode=mode, gestalt=name, max_new_tokens=5)
            fresh = model.ask(self.IMAGE, "What?", mode=mode, gestalt=name, max_new_tokens=5)
            assert shared.text == fresh.text, mode

    @pytest.mark.slow
    def test_threads_that_ask_in_other_modes(self) -> None:
        model, modes = self.around(KINDS), list(MODES)
        expected = dict(zip(modes, self.answers(self.around(KINDS)), strict=True))
        together = threading.Barrier(len(modes), timeout=60)

        def run(mode: str) -> None:
            for _ in range(2):
                together.wait()
                assert model.ask(self.IMAGE, "What?", mode=mode, max_new_tokens=5).text == expected[mode]

        with ThreadPoolExecutor(len(modes)) as pool:
            list(pool.map(run, modes))

    @pytest.mark.slow
    @torch.no_grad()
    def test_from_half_of_the_cells_on_the_lora_for_parts_is_not_at_work(self) -> None:
        """With all of them: to the last bit what mode "prune" gives, stock but for a LoRA of its own."""
        model, plain = self.around(KINDS), self.around((OWN,))
        inputs = prompts(tiny("qwen3_vl"), [("What?", [self.IMAGE])])
        everything = model(**inputs, mode="prune", budget=1.0).logits
        assert torch.equal(model(**inputs, mode="sparse", budget=1.0).logits, everything)
        for kept, same in ((31, False), (32, True), (62, True)):  # of 63
            found, expected = (m(**inputs, mode="sparse", budget=kept).logits for m in (model, plain))
            assert torch.equal(found, expected) == same, kept

    @pytest.mark.slow
    @torch.no_grad()
    def test_each_image_goes_by_its_own_share_whatever_else_is_in_the_batch(self) -> None:
        model = self.around(KINDS)
        small, large = picture(3, (24, 24)), self.IMAGE  # 9 of 9 cells kept, 9 of 63
        rows = [("What?", [small]), ("What?", [large])]
        alone = [model(**prompts(tiny("qwen3_vl"), [row]), mode="sparse").logits[0, -1] for row in rows]
        both = model(**prompts(tiny("qwen3_vl"), rows), mode="sparse").logits[:, -1]
        for found, expected in zip(both, alone, strict=True):
            assert near(found, expected)

    @torch.no_grad()
    def test_families_that_prune_instead_do_so_as_in_prune(self) -> None:
        model = self.around(KINDS, "llava")
        inputs = prompts(tiny("llava"), [("What?", [self.IMAGE])])
        pruned = model(**inputs, mode="prune").logits
        for mode in ("sparse", "saccade"):
            assert torch.equal(model(**inputs, mode=mode).logits, pruned)

    @pytest.mark.slow
    @torch.no_grad()
    def test_after_a_failure_all_tokens_are_encoded_and_read_as_in_prune(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = self.around(KINDS)
        model.strict = False
        inputs = prompts(tiny("qwen3_vl"), [("What?", [self.IMAGE])])
        everything = model(**inputs, mode="prune", budget=1.0).logits
        monkeypatch.setattr(model.stem, "forward", None)
        session = model.session(self.IMAGE)
        for mode in ("sparse", "saccade"):
            out = model(**inputs, mode=mode)
            assert out.fallback
            assert torch.equal(out.logits, everything)
            answer = session.ask("What?", mode=mode, max_new_tokens=5)
            whole = session.ask("What?", mode="prune", budget=1.0, max_new_tokens=5)
            assert (answer.fallback, answer.mode, answer.text) == (True, "prune", whole.text)

    @pytest.mark.slow
    def test_everything_learned_comes_back(self, tmp_path: Path) -> None:
        model = self.around(KINDS)
        expected = self.answers(model)
        model.save_pretrained(tmp_path)
        assert self.answers(model) == expected
        again = ARRCOCModel.wrap(
            tiny("qwen3_vl").model, tiny("qwen3_vl").processor, allocator=tmp_path, budget=9, strict=True
        )
        assert again.stem is not None
        assert again.loras.kinds == KINDS
        assert not learning(again.base)
        assert not learning(again.loras)
        looks = [m.look(self.IMAGE, "What?", mode="prune") for m in (model, again)]
        assert torch.equal(looks[0].balanced, looks[1].balanced)
        assert self.answers(again) == expected

    def test_they_are_cast_and_moved_with_the_model(self) -> None:
        base, processor = stock(), tiny("qwen3_vl").processor
        model = ARRCOCModel(base, processor, loras=learned(kinds=KINDS, base=base), budget=9)
        twins = [model_of(model.loras, mode) for mode in MODES]
        assert set(map(id, model.loras.parameters())) <= set(map(id, model.parameters()))
        model.to(torch.float64)
        for twin in twins:
            assert {parameter.dtype for parameter in twin.parameters()} == {torch.float64}


def test_rank_is_as_asked() -> None:
    for rank, kind in ((1, OWN), (4, OWN), (3, PARTIAL), (3, COARSE)):
        loras = LoRAs(tiny("qwen3_vl").model)
        loras.add(kind, rank)
        assert loras.parameters_of(kind)
        assert all(rank in p.shape and p.numel() == rank * max(p.shape) for p in loras.parameters())


class TestWithoutAny:
    def test_nothing_is_saved(self, tmp_path: Path) -> None:
        LoRAs(tiny("qwen3_vl").model).save(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_loaded_from_a_folder_that_has_none(self, tmp_path: Path) -> None:
        base = tiny("qwen3_vl").model
        loras = LoRAs(base)
        loras.load(tmp_path)
        loras.load(tmp_path / "no such folder")
        assert loras.kinds == ()
        assert not list(loras.parameters())
        assert all(model_of(loras, mode) is base for mode in MODES)


class TestRefusals:
    @staticmethod
    def refused(base: PreTrainedModel, folder: Path, message: str) -> None:
        loras = LoRAs(base)
        before, modules = learning(base), dict(base.named_modules())
        with pytest.raises(ValueError, match=rf"{folder.name}' can't be loaded .*{message}") as caught:
            loras.load(folder)
        assert "\n" not in str(caught.value)
        assert "use the base model that it was trained for" in str(caught.value)
        assert loras.kinds == ()
        assert loras.model_for(KINDS) is base
        assert dict(base.named_modules()) == modules  # no half of it stays
        assert learning(base) == before

    @each(
        ("changes", "message"),
        [
            ({"hidden_size": 64}, "8 weights are missing, left over or of another shape, first .*lora_"),
            ({"num_hidden_layers": 1}, "8 weights are missing, left over .*first .*layers.1.self_attn"),
            ({"num_hidden_layers": 3}, "8 weights are missing, left over .*first .*layers.2.self_attn"),
        ],
    )
    def test_another_base_model(self, saved: Path, changes: dict[str, int], message: str) -> None:
        config = copy.deepcopy(tiny("qwen3_vl").model.config)
        for name, value in changes.items():
            setattr(config.text_config, name, value)
        config.vision_config.out_hidden_size = config.text_config.hidden_size
        self.refused(AutoModelForImageTextToText.from_config(config), saved, message)

    def test_broken_weights(self, saved: Path, tmp_path: Path) -> None:
        base = tiny("qwen3_vl").model
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        self.refused(base, tmp_path, WEIGHTS)
        whole = (saved / WEIGHTS).read_bytes()
        (tmp_path / WEIGHTS).write_bytes(whole[: len(whole) // 2])
        self.refused(base, tmp_path, "incomplete")

    def test_pickled_weights_are_never_loaded(self, saved: Path, tmp_path: Path) -> None:
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        torch.save(load_file(saved / WEIGHTS), tmp_path / "adapter_model.bin")
        self.refused(tiny("qwen3_vl").model, tmp_path, WEIGHTS)

    def test_a_broken_partial_lora_is_refused_by_its_folder(self, tmp_path: Path) -> None:
        learned(kinds=KINDS).save(tmp_path)
        (tmp_path / PARTIAL / WEIGHTS).write_bytes(b"no safetensors at all")
        loras = LoRAs(tiny("qwen3_vl").model)
        with pytest.raises(ValueError, match=rf"{PARTIAL}' can't be loaded .*use the base model") as caught:
            loras.load(tmp_path)
        assert "\n" not in str(caught.value)
        assert loras.kinds == (OWN,)
        weights = load_file(tmp_path / WEIGHTS)  # those of the other LoRA
        save_file(weights, tmp_path / PARTIAL / WEIGHTS)
        self.refused(tiny("qwen3_vl").model, tmp_path / PARTIAL, "weights are missing, left over")

    @pytest.mark.parametrize("lack", [1, 3])
    def test_weights_that_lack_some(self, saved: Path, tmp_path: Path, lack: int) -> None:
        (tmp_path / CONFIG_NAME).write_bytes((saved / CONFIG_NAME).read_bytes())
        weights = dict(list(load_file(saved / WEIGHTS).items())[lack:])
        save_file(weights, tmp_path / WEIGHTS)
        self.refused(tiny("qwen3_vl").model, tmp_path, f"{lack} weights are missing")

    @each(
        "change",
        [
            None,
            [],
            {},
            {"peft_type": "WHAT"},
            {"peft_type": "LOHA"},
            {"target_modules": "nothing"},
            {"r": 3},
            {"r": 0},
            {"use_dora": True},
            {"lora_bias": True},
            {"modules_to_save": ["lm_head"]},
            {"r": 10**9},
            {"rank_pattern": {"q_proj": 10**9}},
            {"init_lora_weights": "pissa"},  # writes into the base model's weights
            {"init_lora_weights": "eva"},
            {"megatron_config": {"a": 1}, "megatron_core": "os"},  # imports a module
            {"layer_replication": [[0, 2], [0, 2]]},
            {"trainable_token_indices": [1, 2]},
            {"target_parameters": ["lm_head"]},
            {"bias": "all"},
            {"alora_invocation_tokens": [1]},
            {"something_of_tomorrow": "on"},
            {"target_modules": "(.*)*(.*)*(.*)*q_proj"},
            {"target_modules": ".*" * 12 + "q_proj"},
            {"target_modules": "(a|a)" * 30 + "q_proj"},
            {"target_modules": "(q|q)_proj"},
            {"target_modules": ["(a+)+$"]},
            {"target_modules": "q_proj("},
            {"target_modules": 3},
            {"exclude_modules": "(a+)+$"},
            {"rank_pattern": {"(a+)+$": 2}},
            {"alpha_pattern": {"(a+)+$": 2}},
            {"layers_to_transform": [0], "layers_pattern": "(a+)+$"},
        ],
    )
    def test_broken_settings(self, saved: Path, tmp_path: Path, change: object) -> None:
        settings = json.loads((saved / CONFIG_NAME).read_text())
        broken = "{" if change is None else json.dumps(settings | change if change else change)
        (tmp_path / CONFIG_NAME).write_text(broken)
        (tmp_path / WEIGHTS).write_bytes((saved / WEIGHTS).read_bytes())
        self.refused(tiny("qwen3_vl").model, tmp_path, "")

    @each(
        "change",
        [
            {"target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "exclude_modules": r".*visual.*"},
            {"target_modules": r"model.language_model.layers.*\.self_attn\.(q_proj|k_proj|v_proj|o_proj)"},
            {"megatron_core": "os", "base_model_name_or_path": "someone/some-repo", "revision": "main"},
            {"init_lora_weights": "gaussian", "lora_dropout": 0.1, "task_type": "CAUSAL_LM"},
            {"something_of_tomorrow": None, "another": False},
        ],
    )
    def test_ordinary_settings(self, saved: Path, tmp_path: Path, change: dict[str, Any]) -> None:
        settings = json.loads((saved / CONFIG_NAME).read_text())
        (tmp_path / CONFIG_NAME).write_text(json.dumps(settings | change))
        (tmp_path / WEIGHTS).write_bytes((saved / WEIGHTS).read_bytes())
        loras = LoRAs(tiny("qwen3_vl").model)
        loras.load(tmp_path)
        assert torch.equal(logits(loras.model_for([OWN])), logits(learned().model_for([OWN])))

    def test_every_pattern_of_ours_is_allowed(self) -> None:
        """Also those of adapters that were saved by earlier versions."""
        for pattern in TARGETS.values():
            check_patterns({"target_modules": pattern})

    def test_kinds_are_added_once_and_by_name(self) -> None:
        loras = learned()
        with pytest.raises(ValueError, match="LoRA 'own' is there already"):
            loras.add(OWN, 2)
        with pytest.raises(ValueError, match="LoRA 'mine' is none of own, partial, coarse"):
            loras.add("mine", 2)
        assert loras.kinds == (OWN,)
