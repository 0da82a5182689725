"""Saving and loading: what is stored, what is refused, in one line with a remedy."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from arr_coc.choose.basis import Basis
from arr_coc.choose.layer import DIGEST, ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem, save_stem
from arr_coc.files import atomic as whole
from arr_coc.files.atomic import folder_lock
from arr_coc.files.paths import CONFIG_NAME
from arr_coc.guide.guide import Guide, save_guide
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam.gestalt import COMPRESSORS, save_compressors
from arr_coc.seam.lora import COARSE, KINDS, PARTIAL
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor
from arr_coc.store import allocator as store_allocator
from arr_coc.store import checkpoint
from arr_coc.store.checkpoint import WEIGHTS_NAME
from eyes import set_constants
from tiny import WIDTH, picture, save_tiny, tiny

IMAGE = picture(1, (48, 40))


@pytest.fixture(scope="module")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "model"
    save_tiny("qwen3_vl", folder)
    return folder


@pytest.fixture
def folder(base_folder: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(base_folder, tmp_path / "model"))


@pytest.fixture
def allocator(base_folder: Path, tmp_path: Path) -> Path:
    """An allocator folder with weights that differ from the untrained layer's."""
    torch.manual_seed(11)
    layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter))
    layer.trained = True
    built = tiny("qwen3_vl")
    model = ARRCOCModel(built.model, built.processor, layer, base_name=str(base_folder))
    model.save_pretrained(tmp_path / "allocator")
    return tmp_path / "allocator"


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


class TestRoundTrip:
    def test_base_folder(self, base_folder: Path) -> None:
        model = ARRCOCModel.from_pretrained(base_folder, budget=9)
        assert not model.layer.trained
        assert model.ask(IMAGE, "What?", max_new_tokens=1).kept == 9
        expected = tiny("qwen3_vl").model.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in model.base.state_dict().items())

    def test_only_the_learned_part_is_stored(self, allocator: Path, base_folder: Path) -> None:
        assert {file.name for file in allocator.iterdir()} == {CONFIG_NAME, WEIGHTS_NAME, "README.md"}
        settings = json.loads((allocator / CONFIG_NAME).read_text())
        assert settings["base_model"] == str(base_folder)
        assert settings["base_revision"] is None  # a folder has none
        assert (settings["base_model_type"], settings["base_dim"]) == ("qwen3_vl", WIDTH)
        assert not any(name.startswith("base") for name in load_file(allocator / WEIGHTS_NAME))

    def test_an_allocator_folder_loads_its_base_by_name(self, allocator: Path, base_folder: Path) -> None:
        model = ARRCOCModel.from_pretrained(allocator, budget=9)
        assert model.layer.trained
        assert model.base_name == str(base_folder)
        stored = load_file(allocator / WEIGHTS_NAME)
        assert all(torch.equal(value, stored[name]) for name, value in model.layer.state_dict().items())
        given = ARRCOCModel.from_pretrained(base_folder, allocator=allocator, budget=9)
        wrapped = ARRCOCModel.wrap(
            tiny("qwen3_vl").model, tiny("qwen3_vl").processor, allocator=allocator, budget=9
        )
        looks = [m.look(IMAGE, "What?") for m in (model, given, wrapped)]
        assert all(torch.equal(look.balanced, looks[0].balanced) for look in looks)

    @pytest.mark.slow
    def test_an_allocator_that_was_moved(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ARRCOCModel.from_pretrained("./model").save_pretrained("mine")
        other = tmp_path / "another place"
        other.mkdir()
        monkeypatch.chdir(other)
        assert ARRCOCModel.from_pretrained("../mine").base_name == str(folder)
        shutil.move(tmp_path / "mine", other)
        assert ARRCOCModel.from_pretrained("mine").base_name == str(folder)
        shutil.move(folder, other)
        assert ARRCOCModel.from_pretrained("mine").base_name == str(other / "model")
        (other / "model").rename(other / "renamed")
        match = (
            r"model', named in .*arr_coc_config\.json', is not there; name its folder as the model, and this"
        )
        with pytest.raises(ValueError, match=match) as error:
            ARRCOCModel.from_pretrained("mine")
        one_line(error)
        assert ARRCOCModel.from_pretrained("renamed", allocator="mine").base_name == "renamed"

    @pytest.mark.slow
    @torch.no_grad()
    def test_all_that_was_learned(
        self, base_folder: Path, allocator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Layer, stem, compressors and every LoRA: the same answers in every mode."""
        set_constants(monkeypatch, total=20)  # so that the image has a gestalt
        model = ARRCOCModel.from_pretrained(base_folder, allocator=allocator, budget=9, strict=True)
        generator = torch.Generator().manual_seed(2)

        def learned(module: nn.Module) -> Any:
            """Another start, in numbers that bfloat16 has."""
            for parameter in module.parameters():
                moved = parameter + 0.2 * torch.randn(parameter.shape, generator=generator)
                parameter.copy_(moved.bfloat16().float())
            return module

        for kind in KINDS:
            model.loras.add(kind, 2)
        for parameter in model.loras.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        model.layer.basis = Basis(torch.zeros(WIDTH), torch.eye(16, WIDTH), torch.ones(16))
        save_guide(Guide(), tmp_path / "mine")
        full = ARRCOCModel(
            model.base,
            model.processor,
            model.layer,
            stem=learned(Stem(WIDTH, width=16, blocks=1)),
            compressors={name: learned(TowerCompressor(32, factor, 1)) for name, factor in TOWERS.items()},
            loras=model.loras,
            budget=9,
            strict=True,
            base_name=str(base_folder),
            guide=tmp_path / "mine",
        )
        calls: list[dict[str, str]] = [{"mode": mode} for mode in MODES]
        calls += [{"mode": "compress", "gestalt": name} for name in COMPRESSORS]

        def results(model: ARRCOCModel) -> list[Tensor]:
            inputs = model.session(IMAGE).inputs("What?")
            found = []
            for call in calls:
                prepared = model.prepare(inputs, **call)
                found.append(prepared.model(**prepared.compacted.kwargs).logits)
            return found

        expected = results(full)
        full.save_pretrained(tmp_path / "all")
        files = {str(path.relative_to(tmp_path / "all")) for path in (tmp_path / "all").rglob("*.*")}
        loras = ("adapter_config.json", "adapter_model.safetensors")
        assert files == {
            *("README.md", CONFIG_NAME, WEIGHTS_NAME),
            *("guide/guide.safetensors", "basis.safetensors", "stem.safetensors"),
            *(f"{name}.safetensors" for name in TOWERS),
            *(*loras, *(f"{place}/{name}" for place in ("partial", "coarse", *TOWERS) for name in loras)),
        }
        assert files == {*checkpoint.ALLOCATOR_FILES, "README.md"}
        again = ARRCOCModel.from_pretrained(tmp_path / "all", budget=9, strict=True)
        assert not any(
            p.requires_grad for part in (again.base, again.stem, again.loras) for p in part.parameters()
        )
        for call, one, other in zip(calls, expected, results(again), strict=True):
            assert torch.equal(one, other), call
        assert len({tuple(logits[:, -1].flatten().tolist()) for logits in expected}) == len(calls) - 1

    def test_saved_again(self, allocator: Path, tmp_path: Path) -> None:
        ARRCOCModel.from_pretrained(allocator).save_pretrained(tmp_path / "again")
        assert (tmp_path / "again" / CONFIG_NAME).read_text() == (allocator / CONFIG_NAME).read_text()

    def test_saved_over_itself(self, tmp_path: Path, base_folder: Path) -> None:
        """What was read from the files that are replaced is written back, LoRAs too."""
        model = ARRCOCModel.from_pretrained(base_folder)
        for kind in (PARTIAL, COARSE):
            model.loras.add(kind, 2)
        model.save_pretrained(tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
        ARRCOCModel.from_pretrained(tmp_path).save_pretrained(tmp_path)
        assert len(before) == 3
        assert all(path.read_bytes() == content for path, content in before.items())

    def test_saved_over_another(self, allocator: Path, base_folder: Path) -> None:
        """Nothing of the older allocator stays, and a card that somebody wrote does."""
        for name in (*checkpoint.ALLOCATOR_FILES[2:5], "notes.txt"):
            (allocator / name).write_bytes(b"old")
        (allocator / "README.md").write_text("# My own words\n")
        ARRCOCModel.from_pretrained(base_folder).save_pretrained(allocator)
        files = {file.name for file in allocator.iterdir()}
        assert files == {CONFIG_NAME, WEIGHTS_NAME, "README.md", "notes.txt"}
        assert (allocator / "README.md").read_text() == "# My own words\n"

    def test_saved_to_what_cannot_be_a_folder(self, base_folder: Path, tmp_path: Path) -> None:
        model = ARRCOCModel.from_pretrained(base_folder)
        (tmp_path / "file").write_bytes(b"mine")
        for place in (tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(ValueError, match=f"{place.name}' can't be made a folder") as error:
                model.save_pretrained(place)
            one_line(error)
        assert (tmp_path / "file").read_bytes() == b"mine"
        (tmp_path / "taken" / WEIGHTS_NAME).mkdir(parents=True)
        with pytest.raises(ValueError, match=r"can't be written into .*taken'.*name another folder") as error:
            model.save_pretrained(tmp_path / "taken")
        one_line(error)

    def test_one_folder_may_hold_both(self, folder: Path, allocator: Path) -> None:
        for name in (CONFIG_NAME, WEIGHTS_NAME):
            shutil.copy(allocator / name, folder)
        model = ARRCOCModel.from_pretrained(folder)
        assert model.layer.trained
        assert model.base_name == str(folder)

    @pytest.mark.slow
    def test_bundled(
        self, base_folder: Path, allocator: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(checkpoint, "BUNDLED_MODEL", base_folder)
        monkeypatch.setattr(checkpoint, "BUNDLED_ALLOCATOR", tmp_path / "none")
        assert not ARRCOCModel.from_pretrained().layer.trained
        monkeypatch.setattr(checkpoint, "BUNDLED_ALLOCATOR", allocator)
        model = ARRCOCModel.from_pretrained()
        assert model.layer.trained
        assert ARRCOCModel.from_pretrained("bundled").layer.trained
        model.save_pretrained(tmp_path / "saved")
        assert json.loads((tmp_path / "saved" / CONFIG_NAME).read_text())["base_model"] == "bundled"
        assert ARRCOCModel.from_pretrained(tmp_path / "saved").base_name == "bundled"
        monkeypatch.setattr(checkpoint, "BUNDLED_MODEL", tmp_path / "none")
        with pytest.raises(ValueError, match="bundled model is missing") as error:
            ARRCOCModel.from_pretrained()
        one_line(error)

    @pytest.mark.slow
    def test_threads_may_load_at_once(self) -> None:
        ready = Barrier(4)

        def loaded(_: int) -> dict[str, Tensor]:
            ready.wait()
            return ARRCOCModel.from_pretrained().base.state_dict()

        with ThreadPoolExecutor(4) as pool:
            first, *others = pool.map(loaded, range(4))
        assert all(torch.equal(value, other[name]) for other in others for name, value in first.items())

    def test_dtype_and_device(self, base_folder: Path) -> None:
        model = ARRCOCModel.from_pretrained(base_folder, dtype=torch.bfloat16, device="cpu")
        assert model.base.dtype == torch.bfloat16


class TestBaseRefusals:
    def refused(self, folder: Path | str, match: str) -> None:
        with pytest.raises(ValueError, match=match) as error:
            ARRCOCModel.from_pretrained(folder)
        one_line(error)

    def test_no_folder(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "nowhere", "nowhere' doesn't exist; give a folder")

    def test_no_config(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        self.refused(folder, r"it has no config\.json; give the folder")

    def test_no_weights(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        self.refused(folder, r"has no weights \(\*\.safetensors\): model\.safetensors is missing; copy")

    def test_pickle(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save(tiny("qwen3_vl").model.state_dict(), folder / "pytorch_model.bin")
        self.refused(folder, r"only pickled weights \(pytorch_model\.bin\).*convert them to safetensors")

    @pytest.mark.parametrize("spoil", ["shape", "missing"])
    def test_other_shapes(self, folder: Path, spoil: str) -> None:
        weights = load_file(folder / "model.safetensors")
        name = "model.language_model.layers.0.mlp.up_proj.weight"
        weights[name] = weights[name][:-1].contiguous()
        if spoil == "missing":
            del weights[name]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        self.refused(folder, r"don't fit its config\.json.*save_pretrained")

    def test_damaged(self, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"no safetensors at all")
        self.refused(folder, r"model\.safetensors' can't be read .*save")

    @pytest.mark.parametrize("model_type", ["gpt2", "made_up", None])
    def test_unknown_model_type(self, folder: Path, model_type: str | None) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["model_type"] = model_type
        (folder / "config.json").write_text(json.dumps(config))
        self.refused(folder, f"model type '{model_type}' is not supported; supported are .*qwen3_vl")

    def test_no_processor(self, folder: Path) -> None:
        for file in folder.iterdir():
            if file.name not in ("config.json", "generation_config.json", "model.safetensors"):
                file.unlink()
        self.refused(folder, "the processor of .*save it beside the model")

    def test_damaged_tokenizer(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}")
        self.refused(folder, "the tokenizer.json of .*save it again with the tokenizer's save_pretrained")

    def test_hub_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        self.refused(
            "nobody/no-such-model", "can't be reached .*local model folder.*or bundled for the bundled"
        )
        self.refused("not a name!", "can't be reached .*local model folder")

    def test_code_of_a_repository_is_never_run(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForImageTextToText": "evil.Model"}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "evil.py").write_text("raise SystemExit('ran')")
        assert ARRCOCModel.from_pretrained(folder).config.model_type == "qwen3_vl"

    def test_bad_arguments_cost_no_loading(self) -> None:
        with pytest.raises(ValueError, match="abc"):
            ARRCOCModel.from_pretrained("nobody/no-such-model", budget="abc")
        with pytest.raises(ValueError, match="mode 'x'"):
            ARRCOCModel.from_pretrained("nobody/no-such-model", mode="x")


class TestAllocatorRefusals:
    def test_no_base_is_named(self, allocator: Path) -> None:
        settings = json.loads((allocator / CONFIG_NAME).read_text()) | {"base_model": ""}
        (allocator / CONFIG_NAME).write_text(json.dumps(settings))
        with pytest.raises(
            ValueError, match="doesn't say which base model it is for: name that one"
        ) as error:
            ARRCOCModel.from_pretrained(allocator)
        one_line(error)

    def refused(self, allocator: Path, base: Path, match: str) -> None:
        with pytest.raises(ValueError, match=match) as error:
            ARRCOCModel.from_pretrained(base, allocator=allocator)
        one_line(error)

    @pytest.mark.parametrize(("key", "value"), [("base_dim", 64), ("base_model_type", "llava")])
    def test_another_base_model(self, allocator: Path, base_folder: Path, key: str, value: Any) -> None:
        settings = json.loads((allocator / CONFIG_NAME).read_text()) | {
            key: value,
            "base_model": "some/other",
        }
        (allocator / CONFIG_NAME).write_text(json.dumps(settings))
        self.refused(
            allocator, base_folder, rf"saved for 'some/other' \(.*doesn't fit '{base_folder}' \('qwen3_vl'"
        )

    def test_pickle(self, allocator: Path, base_folder: Path) -> None:
        weights = load_file(allocator / WEIGHTS_NAME)
        (allocator / WEIGHTS_NAME).unlink()
        self.refused(allocator, base_folder, f"has no {WEIGHTS_NAME}; save it again")
        torch.save(weights, allocator / "arr_coc.bin")
        self.refused(allocator, base_folder, r"it has arr_coc\.bin, but pickles are never loaded: convert")

    def test_a_stem_of_another_model(self, allocator: Path, base_folder: Path) -> None:
        save_stem(Stem(WIDTH + 4, width=16, blocks=1), allocator)
        self.refused(
            allocator, base_folder, rf"stem\.safetensors' is {WIDTH + 4} wide but the base model {WIDTH}"
        )
        (allocator / "stem.safetensors").write_bytes(b"damaged")
        self.refused(allocator, base_folder, r"stem\.safetensors' is not a saved stem .*save_pretrained")

    @pytest.mark.parametrize("spoil", ["shape", "missing", "left over", "damaged"])
    def test_strict(self, allocator: Path, base_folder: Path, spoil: str) -> None:
        weights = load_file(allocator / WEIGHTS_NAME)
        name = max(weights, key=lambda key: weights[key].numel())
        if spoil == "missing":
            del weights[name]
        elif spoil == "shape":
            weights[name] = weights[name].flatten()[:-1].contiguous()
        elif spoil == "left over":
            weights["something.else"] = torch.zeros(2)
        save_file(weights, allocator / WEIGHTS_NAME)
        if spoil == "damaged":
            (allocator / WEIGHTS_NAME).write_bytes(b"damaged")
        self.refused(allocator, base_folder, rf"{WEIGHTS_NAME}' don't fit {CONFIG_NAME} \(.+\); save")

    def test_settings(self, allocator: Path, base_folder: Path) -> None:
        settings = json.loads((allocator / CONFIG_NAME).read_text())
        for broken, match in (
            ("{", "is not an allocator folder: .* can't be read"),
            ("[]", "lacks base_dim"),
            (json.dumps({k: v for k, v in settings.items() if k != "base_dim"}), "lacks base_dim"),
            (json.dumps(settings | {"layer": {"dim": WIDTH, "channels": "nonsense"}}), "nonsense"),
            (json.dumps(settings | {"base_revision": 7}), "base_revision in .* is 7 and not a name"),
            (json.dumps(settings | {"base_model": ["a"]}), "base_model in .* is .'a'. and not a name"),
        ):
            (allocator / CONFIG_NAME).write_text(broken)
            self.refused(allocator, base_folder, match)
        (allocator / CONFIG_NAME).unlink()
        self.refused(allocator, base_folder, f"is not an allocator: it has no {CONFIG_NAME}; give a folder")


class TestParts:
    """What belongs together, and what no part may hold."""

    def refused(self, folder: Path, match: str) -> None:
        with pytest.raises(ValueError, match=match) as error:
            store_allocator.load_learned(folder, tiny("qwen3_vl").model)
        one_line(error)

    def test_weights_of_another_save(self, allocator: Path, tmp_path: Path) -> None:
        """As a reader finds them while somebody saves there."""
        layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH))
        ARRCOCModel(tiny("qwen3_vl").model, layer=layer).save_pretrained(tmp_path / "other")
        mine = (allocator / WEIGHTS_NAME).read_bytes()
        shutil.copy(tmp_path / "other" / WEIGHTS_NAME, allocator)
        self.refused(allocator, rf"{WEIGHTS_NAME}' don't fit {CONFIG_NAME} \(they are of another save")
        settings = json.loads((allocator / CONFIG_NAME).read_text())
        del settings[DIGEST]  # as folders of earlier versions
        (allocator / CONFIG_NAME).write_text(json.dumps(settings))
        store_allocator.load_learned(allocator, tiny("qwen3_vl").model)
        (allocator / WEIGHTS_NAME).write_bytes(mine)
        store_allocator.load_learned(allocator, tiny("qwen3_vl").model)

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_numbers_that_are_not_finite(self, allocator: Path, number: float) -> None:
        save_stem(Stem(WIDTH, width=16, blocks=1), allocator)
        save_compressors({"tower4": TowerCompressor(WIDTH, 4, 1)}, allocator)
        for path in sorted(allocator.glob("*.safetensors")):
            before = path.read_bytes()
            with safe_open(path, framework="pt") as file:
                about, weights = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
            next(iter(weights.values())).view(-1)[-1] = number
            save_file(weights, path, metadata=about)
            self.refused(allocator, rf"{path.name}'.* has values that aren't finite\)")
            path.write_bytes(before)
        store_allocator.load_learned(allocator, tiny("qwen3_vl").model)


class TestSavedOver:
    """What a folder held is lost to nothing but a whole new allocator."""

    def contents(self, folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_a_disk_that_is_full_leaves_the_older_one(
        self, allocator: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_stem(Stem(WIDTH), allocator)
        model, before = ARRCOCModel.from_pretrained(allocator, device="cpu"), self.contents(allocator)
        monkeypatch.setattr(store_allocator, "save_stem", full_disk)
        with pytest.raises(ValueError, match="No space left"):
            model.save_pretrained(allocator)
        assert self.contents(allocator) == before
        assert not [path for path in allocator.iterdir() if path.name.startswith(".")]

    @pytest.mark.slow
    @pytest.mark.parametrize("call", range(2, 9))  # the first one names the new folder's owner
    def test_a_kill_at_any_moment_leaves_the_older_one_or_none(self, call: int, allocator: Path) -> None:
        """Killed at a renaming: before the first of the moves the older one is read, after it a mixture is
        never taken for an allocator; the next save sweeps what was left."""
        pytest.importorskip("fcntl")
        (allocator / "README.md").unlink()
        model = ARRCOCModel.from_pretrained(allocator, device="cpu")
        older = load_file(allocator / WEIGHTS_NAME)
        with torch.no_grad():
            for parameter in model.layer.parameters():
                parameter.add_(1)
        number = os.fork()
        if number == 0:
            kill_at_renaming(call)
            model.save_pretrained(allocator)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(number, 0)[1])
        hidden = [path for path in allocator.iterdir() if path.name.startswith(".")]
        assert bool(hidden) == killed
        layer: ARRCOCLayer | None = None
        with contextlib.suppress(ValueError):
            layer = ARRCOCModel.from_pretrained(allocator, device="cpu").layer
        read = None if layer is None else layer.state_dict()
        expected = [older, model.layer.state_dict()]
        assert read is None or any(equal(read, one) for one in expected)
        if call <= 4:  # of the part of each file that is written beside, none of which was moved yet
            assert read is not None
            assert equal(read, older)
        model.save_pretrained(allocator)
        assert not [path for path in allocator.iterdir() if path.name.startswith(".")]
        assert equal(
            ARRCOCModel.from_pretrained(allocator, device="cpu").layer.state_dict(), model.layer.state_dict()
        )

    def test_a_reader_waits_until_a_save_is_over(self, allocator: Path) -> None:
        pytest.importorskip("fcntl")
        with ThreadPoolExecutor(1) as pool:
            with folder_lock(allocator):
                reading = pool.submit(ARRCOCModel.from_pretrained, allocator, device="cpu")
                with pytest.raises(TimeoutError):
                    reading.result(timeout=0.2)
            assert reading.result().layer.trained

    def test_who_never_ends_is_not_waited_for_without_end(
        self, allocator: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("fcntl")
        model, before = ARRCOCModel.from_pretrained(allocator, device="cpu"), self.contents(allocator)
        monkeypatch.setattr(whole, "LOCK_SECONDS", 0.01)
        with (
            folder_lock(allocator),
            pytest.raises(ValueError, match="another process has been reading or saving"),
        ):
            model.save_pretrained(allocator)
        with folder_lock(allocator), pytest.raises(ValueError, match=r"can't be read .*: try again later"):
            ARRCOCModel.from_pretrained(allocator, device="cpu")
        assert self.contents(allocator) == before

    def test_parts_that_are_no_more_are_removed(self, allocator: Path) -> None:
        model = ARRCOCModel.from_pretrained(allocator, device="cpu")
        save_stem(Stem(WIDTH), allocator)
        model.save_pretrained(allocator)
        assert not (allocator / "stem.safetensors").exists()

    def test_an_adapter_of_the_user_is_no_older_one(self, allocator: Path, tmp_path: Path) -> None:
        model, mine = ARRCOCModel.from_pretrained(allocator, device="cpu"), tmp_path / "mine"
        mine.mkdir()
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            (mine / name).write_text("mine")
        before = self.contents(mine)
        with pytest.raises(ValueError, match=r"has an adapter of its own \(adapter_\w+"):
            model.save_pretrained(mine)
        assert self.contents(mine) == before
        (mine / WEIGHTS_NAME).write_text("of a save that was cut off")
        model.save_pretrained(mine)
        assert ARRCOCModel.from_pretrained(mine, device="cpu").layer.trained


def full_disk(*of: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill_at_renaming(call: int) -> None:
    """Kill this process when a file is renamed for that many times."""
    calls = count(1)

    def watch(event: str, _: Any) -> None:
        if event == "os.rename" and next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def equal(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> bool:
    """Whether tensors are the same ones by name."""
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)
