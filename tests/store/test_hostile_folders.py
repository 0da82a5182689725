"""Folders from anybody, by the hundred: each loads, or is refused by a ValueError of one line.

Every case spoils one file of a model folder or an allocator folder. Whatever it does, no other error may come
out, no code may run, nothing outside of the folder may be opened and no address may be called.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.files import worker
from arr_coc.files.validation import short
from arr_coc.files.vetting import INDEX, PROCESSOR_FILES, vetted
from arr_coc.model import ARRCOCModel
from arr_coc.seam.tower_compressor import TowerCompressor
from arr_coc.store import checkpoint
from arr_coc.store.allocator import load_learned
from arr_coc.store.checkpoint import try_processor
from hostile import refusal, within_bounds
from tiny import WIDTH, picture, save_tiny, tiny

SEED = 20261122
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 0.5, 10**7, 10**40, float("nan"), float("inf"), "", "no such", "\ud800", "../x"),
    *("someone/some-repo", "a\nb" * 50, [], [None], [1] * 50, {}, {"a": {"b": 1}}, [[[]]]),
)
"""What stands in the place of a setting; one of them, drawn from the seed, for every setting."""
DEEP = "[" * 100_000 + "]" * 100_000
BYTES: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(64),
    "no UTF-8": b'{"a": "\xff\xfe"}',
    "byte order mark": "\ufeff{}".encode(),
    "a list": b"[1, 2]",
    "a number": b"1" * 5000,
    "an empty object": b"{}",
    "too deep": DEEP.encode(),
    "deep objects": b'{"a":' * 500 + b"1" + b"}" * 500,
    "lone surrogate": b'{"\\ud800": "\\udfff"}',
    "another file": b'{"weight_map": {}, "model_type": 3, "chat_template": 7}',
}
INJECTED: dict[str, Any] = {
    "attn_implementation": "someone/some-repo",
    "_attn_implementation": "someone/some-repo@main:attention",
    "experts_implementation": {"text_config": "someone/some-repo"},
    "auto_map": {
        "AutoConfig": "evil.Evil",
        "AutoTokenizer": ["evil.Evil", None],
        "AutoProcessor": "evil.Evil",
    },
    "quantization_config": {"quant_method": "fp8"},
    "configuration_files": ["config.9.0.0.json"],
    "transformers_weights": "adapter_model.bin",
    "audio_tokenizer": {"audio_tokenizer_class": "DacModel", "audio_tokenizer_name_or_path": "a/b"},
    "custom_generate": "someone/some-repo",
    "processor_class": "BertModel",
    "tokenizer_class": "evil.Evil",
    "tokenizer_file": "/etc/passwd",
    "fast_tokenizer_files": ["../elsewhere/tokenizer.9.0.0.json"],
    "base_model_name_or_path": "someone/some-repo",
    "megatron_core": "evil",
    "megatron_config": {"a": 1},
    "layer_replication": [[0, 9]],
    "init_lora_weights": "pissa",
    "target_modules": "(.*)*(.*)*(.*)*x",
    "rank_pattern": {"(a+)+$": 2},
    "num_beams": 10**9,
    "num_hidden_layers": 10**6,
    "depth": 10**6,
    "vocab_size": 10**12,
}
"""Settings that no file of the folder has, and that could reach further than the folder."""

violations: list[str] = []
_watched: list[Path] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """While a case runs: nothing is unpickled, started, called, or opened outside of its folder."""
    if not _watched:
        return
    if event == "subprocess.Popen" and str(worker.__file__) in arguments[1]:  # the trial's own child
        return
    if event in ("pickle.find_class", "subprocess.Popen", "socket.connect", "os.system", "os.exec"):
        violations.append(f"{event} {arguments}")
    elif event == "open" and isinstance(arguments[0], str | bytes):
        path = Path(os.fsdecode(arguments[0]))
        if "elsewhere" in path.parts or "passwd" in path.parts:
            violations.append(f"open {path}")


sys.addaudithook(_audit)


class Evil:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch ran",))


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    _watched.append(folder)
    try:
        yield
    finally:
        _watched.clear()
    assert not violations
    assert not (folder / "ran").exists()


def holds(call: Callable[[], Any], folder: Path, case: Any) -> bool:
    """Whether a call succeeds; anything but that or a short line is a failure of the test."""
    with watched(folder):
        try:
            call()
        except ValueError as error:
            text = str(error)
            assert text.isprintable(), (case, text)
            assert len(text) < 500, (case, text)
            assert "'" in text, (case, text)
            return False
        except Exception as error:
            pytest.fail(f"{case}: {type(error).__name__}: {str(error)[:300]}")
    return True


@contextmanager
def spoilt(path: Path, content: bytes) -> Iterator[None]:
    """The file with another content inside the block."""
    before = path.read_bytes() if path.is_file() else None
    path.write_bytes(content)
    try:
        yield
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)


@contextmanager
def present(path: Path) -> Iterator[None]:
    """A JSON file that is there inside the block, an empty object if the folder has none."""
    if path.exists():
        yield
    else:
        with spoilt(path, b"{}"):
            yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hostile")
    (place / "elsewhere").mkdir()
    save_tiny("qwen3_vl", place / "model")
    shutil.copytree(place / "model", place / "elsewhere", dirs_exist_ok=True)
    (place / "elsewhere" / "pickle.bin").write_bytes(pickle.dumps(Evil()))
    (place / "model" / "evil.py").write_text("open('ran', 'w')\nclass Evil: pass\n")
    return place / "model"


@pytest.fixture(scope="module")
def allocator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "allocator"
    built = ARRCOCModel(
        tiny("qwen3_vl").model,
        layer=ARRCOCLayer(ARRCOCConfig(dim=WIDTH)),
        stem=Stem(WIDTH, width=16, blocks=1),
        compressors={"tower4": TowerCompressor(WIDTH, 4, 1)},
        base_name="bundled",
    )
    built.loras.add("own", 2)
    built.save_pretrained(folder)
    return folder


def load_model(folder: Path, name: str) -> Callable[[], Any]:
    """The part of `load_base` that reads a file of this name, after all of it was vetted."""

    def load() -> None:
        checkpoint.check_model_folder(folder)
        files = vetted(folder)
        if name in ("config.json", "generation_config.json") or "safetensors" in name:
            checkpoint.build_model(str(folder), files)
        else:
            checkpoint.load_processor(str(folder), folder)

    return load


def load_allocator(folder: Path, name: str) -> Callable[[], Any]:
    return lambda: load_learned(folder, tiny("qwen3_vl").model)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every setting, of objects too."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> bytes:
    """A JSON file with another value at a path; no value at all for `leaves` itself."""
    copied = json.loads(json.dumps(value))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    if new is leaves:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return json.dumps(copied).encode()


def settings_cases(path: Path, rng: random.Random) -> Iterator[tuple[Any, bytes]]:
    """Wrong values of every setting of a JSON file, missing ones, and some that it should not have."""
    settings = json.loads(path.read_text())
    for place in leaves(settings):
        for new in (rng.choice(WRONG), *([leaves] if rng.random() < 0.3 else [])):
            yield (path.name, place, "missing" if new is leaves else new), replaced(settings, place, new)
    chosen = ("num_beams", "custom_generate", "attn_implementation")
    for key, new in INJECTED.items():
        if path.name in ("generation_config.json", "arr_coc_config.json") and key not in chosen:
            continue  # read by nothing that would care
        yield (path.name, key, new), replaced(settings, (key,), new)


SETTINGS = ("config.json", "generation_config.json", *PROCESSOR_FILES)


class TestSettings:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", SETTINGS)
    def test_of_a_model(self, model: Path, name: str) -> None:
        results = []
        with present(model / name):
            for case, content in settings_cases(model / name, random.Random(f"{SEED} {name}")):
                with spoilt(model / name, content):
                    results.append(holds(load_model(model, name), model, case))
        assert set(results) == {True, False}

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["arr_coc_config.json", "adapter_config.json"])
    def test_of_an_allocator(self, allocator: Path, name: str) -> None:
        results = []
        for case, content in settings_cases(allocator / name, random.Random(f"{SEED} {name}")):
            with spoilt(allocator / name, content):
                results.append(holds(load_allocator(allocator, name), allocator, case))
        assert set(results) == {True, False}


def first_bytes(path: Path) -> dict[str, bytes]:
    """What a file could begin with, or be cut to."""
    whole = path.read_bytes()
    return BYTES | {
        "half": whole[: len(whole) // 2],
        "all but the end": whole[:-1],
        "more behind": whole + b"x",
        "turned": whole[::-1],
    }


class TestFiles:
    @pytest.mark.parametrize(
        "name", [*SETTINGS[:3], "tokenizer_config.json", "tokenizer.json", "chat_template.jinja", INDEX]
    )
    def test_of_a_model(self, model: Path, name: str) -> None:
        with present(model / name):
            for case, content in first_bytes(model / name).items():
                with spoilt(model / name, content):
                    holds(load_model(model, name), model, (name, case))

    @pytest.mark.slow
    def test_of_an_allocator(self, allocator: Path) -> None:
        for path in sorted(allocator.rglob("*.json")) + sorted(allocator.rglob("*.safetensors")):
            for case, content in first_bytes(path).items():
                with spoilt(path, content):
                    loads = holds(load_allocator(allocator, path.name), allocator, (path.name, case))
                assert not loads or path.suffix == ".json", (path.name, case)

    def test_that_are_missing_or_folders(self, model: Path, allocator: Path) -> None:
        for folder, load in ((model, load_model), (allocator, load_allocator)):
            for path in sorted(folder.iterdir()):
                if path.suffix not in (".json", ".safetensors", ".jinja"):
                    continue
                content = path.read_bytes()
                path.unlink()
                holds(load(folder, path.name), folder, (path.name, "missing"))
                path.mkdir()
                assert not holds(load(folder, path.name), folder, (path.name, "folder"))
                path.rmdir()
                path.write_bytes(content)

    def test_that_are_pipes(self, model: Path, tmp_path: Path) -> None:
        """Reading one would wait for ever."""
        folder = Path(shutil.copytree(model, tmp_path / "model"))
        os.mkfifo(folder / "preprocessor_config.json")
        assert not holds(load_model(folder, "preprocessor_config.json"), folder, "pipe")

    @pytest.mark.slow
    def test_swapped(self, model: Path) -> None:
        names = [path.name for path in sorted(model.glob("*.json"))]
        for name in names:
            for other in names:
                if name != other and name != "tokenizer.json":
                    with spoilt(model / name, (model / other).read_bytes()):
                        holds(load_model(model, name), model, (name, other))


NONSENSE: tuple[Any, ...] = (
    *(
        0,
        -1,
        2**31,
        10**9,
        1e308,
        float("nan"),
        "x",
        "",
        None,
        [],
        {},
        [0] * 100_000,
        [0] * 4000,
        True,
        False,
    ),
    *(1, 3, 17, 1.5, 1000, 100_000, json.loads("[" * 200 + "]" * 200)),
)
"""What stands in the place of a setting where a whole folder is loaded and asked."""
UNSET = {
    "config.json": ("return_dict", "output_attentions", "use_cache", "sliding_window", "pad_token_id"),
    "generation_config.json": (
        *("return_dict_in_generate", "output_attentions", "do_sample", "temperature", "max_new_tokens"),
        *("min_new_tokens", "bad_words_ids", "sequence_bias", "stop_strings", "cache_implementation"),
        *("penalty_alpha", "dola_layers", "compile_config", "eos_token_id", "max_time", "top_k"),
    ),
}
"""Settings that a file may have and the tiny models' haven't."""
QUESTIONS = 12
"""Of a family, drawn from the seed."""


def nonsense(folder: Path, rng: random.Random) -> list[tuple[str, tuple[Any, ...], Any]]:
    """Files of a folder, with the place of a setting in each and what stands there."""
    places = []
    for path in sorted(folder.glob("*.json")):
        settings = json.loads(path.read_text())
        own = [place for place in leaves(settings) if place[0] not in ("model", "added_tokens")]
        places += [(path.name, place) for place in (*own, *((key,) for key in UNSET.get(path.name, ())))]
    return [(*rng.choice(places), rng.choice(NONSENSE)) for _ in range(QUESTIONS)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
class TestQuestions:
    """A whole folder is refused while it is loaded, or answers; nothing fails at the first question."""

    def ask(self, folder: Path) -> None:
        loaded = ARRCOCModel.from_pretrained(folder, device="cpu")
        try:
            loaded.ask(picture(2, (60, 44)), "What is this?", max_new_tokens=2)
        except Exception as error:
            raise AssertionError(f"loaded, and at the first question {error!r}") from error

    def tried(self, folder: Path) -> str:
        """What is said of a folder, whose tokenizer and processor are tried in the worker first."""
        refused = refusal(lambda: (vetted(folder), try_processor(str(folder), folder)))
        return refused or within_bounds(lambda: self.ask(folder))

    @pytest.mark.slow
    @pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "llava_next", "internvl", "gemma3"])
    def test_of_settings_that_make_no_sense(self, family: str, tmp_path: Path) -> None:
        save_tiny(family, tmp_path / family)
        for name, place, value in nonsense(tmp_path / family, random.Random(f"{SEED} {family}")):
            folder = Path(shutil.copytree(tmp_path / family, tmp_path / "case"))
            settings = json.loads((folder / name).read_text())
            (folder / name).write_bytes(replaced(settings, place, value))
            try:
                self.tried(folder)
            except Exception as error:
                pytest.fail(f"{name} {place} {short(value)}: {error!r}")
            shutil.rmtree(folder)

    @pytest.mark.parametrize(
        ("part", "key", "value", "match"),
        [
            pytest.param(None, "return_dict", False, "return_dict is False", marks=pytest.mark.slow),
            pytest.param(
                "text_config", "use_cache", "yes", "use_cache' expected bool", marks=pytest.mark.slow
            ),
            pytest.param(
                "text_config", "num_key_value_heads", 3, "don't fit its config", marks=pytest.mark.slow
            ),
            pytest.param(None, "image_token_id", -5, "can't answer a question about", marks=pytest.mark.slow),
            pytest.param("vision_config", "patch_size", 0, "first: .*patch_embed", marks=pytest.mark.slow),
            pytest.param("vision_config", "num_heads", 5, "can't answer a question", marks=pytest.mark.slow),
        ],
    )
    def test_of_one_setting(
        self, model: Path, tmp_path: Path, part: str | None, key: str, value: Any, match: str
    ) -> None:
        folder = Path(shutil.copytree(model, tmp_path / "model"))
        settings = json.loads((folder / "config.json").read_text())
        (settings if part is None else settings[part])[key] = value
        (folder / "config.json").write_text(json.dumps(settings))
        assert re.search(match, self.tried(folder))


NAMED = (
    *("y.bin", "model.bin", "pytorch_model.bin", "evil.py", "model.safetensors.bin"),
    *("../elsewhere/model.safetensors", "ELSEWHERE/model.safetensors", "..\\elsewhere\\model.safetensors"),
    *("./model.safetensors", "sub/model.safetensors", "link.safetensors", "linked/model.safetensors"),
    *("", ".", "..", ".safetensors", "a\0.safetensors", "a" * 5000 + ".safetensors", "\ud800.safetensors"),
    *(None, 3, ["model.safetensors"], {"a": "model.safetensors"}),
)
"""Names of weights in an index, all but those of the folder's own safetensors."""


class TestWeights:
    @pytest.fixture
    def sharded(self, model: Path, tmp_path: Path) -> Path:
        """A folder whose weights are in two files, beside pickles and links to elsewhere."""
        folder = Path(shutil.copytree(model, tmp_path / "model"))
        shutil.copytree(model.parent / "elsewhere", tmp_path / "elsewhere")
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        table = {}
        for number, name in enumerate(sorted(weights)):
            table[name] = f"model-{number % 2}.safetensors"
        for shard in set(table.values()):
            part = {name: weights[name] for name in weights if table[name] == shard}
            save_file(part, folder / shard, metadata={"format": "pt"})
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": table}))
        for name in ("y.bin", "model.bin", "pytorch_model.bin", "model.safetensors.bin"):
            (folder / name).write_bytes(pickle.dumps(Evil()))
        return folder

    def test_shards(self, sharded: Path) -> None:
        loaded, _ = checkpoint.load_base(sharded)
        expected = tiny("qwen3_vl").model.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())

    @pytest.mark.parametrize("file", [INDEX, "pytorch_model.bin.index.json", "other.safetensors.index.json"])
    def test_names_in_an_index(self, sharded: Path, file: str) -> None:
        elsewhere = sharded.parent / "elsewhere"
        (sharded / "link.safetensors").symlink_to(elsewhere / "model.safetensors")
        (sharded / "linked").symlink_to(elsewhere)
        table = json.loads((sharded / INDEX).read_text())["weight_map"]
        for name in NAMED:
            text = name.replace("ELSEWHERE", str(elsewhere)) if isinstance(name, str) else name
            index = {"metadata": {}, "weight_map": table | {next(iter(table)): text}}
            with spoilt(sharded / file, json.dumps(index).encode()):
                assert not holds(lambda: checkpoint.load_base(sharded), sharded, (file, name))

    def test_other_tables(self, sharded: Path) -> None:
        for table in (None, 3, [], "model.safetensors", ["model-0.safetensors"]):
            with spoilt(sharded / INDEX, json.dumps({"metadata": {}, "weight_map": table}).encode()):
                assert not holds(lambda: checkpoint.load_base(sharded), sharded, table)

    @pytest.mark.parametrize("file", ["config.json", "model-0.safetensors", "tokenizer.json", INDEX])
    def test_links_out_of_the_folder(self, sharded: Path, file: str) -> None:
        """Also to a file that would do."""
        place = sharded.parent / "elsewhere" / file
        shutil.move(sharded / file, place)
        (sharded / file).symlink_to(place)
        with pytest.raises(ValueError, match=f"{file}' is not loaded: it is a link to a file outside"):
            checkpoint.load_base(sharded)
        (sharded / file).unlink()
        (sharded / file).symlink_to(sharded / file)  # to itself
        assert not holds(lambda: checkpoint.load_base(sharded), sharded, (file, "circle"))

    def test_links_within_it_and_within_the_cache_of_the_hub(self, sharded: Path, tmp_path: Path) -> None:
        inner = sharded / "files"
        inner.mkdir()
        for file in ("config.json", "model-0.safetensors"):
            shutil.move(sharded / file, inner / file)
            (sharded / file).symlink_to(inner / file)
        assert checkpoint.load_base(sharded)
        repository = tmp_path / "hub" / "models--someone--tiny"
        shutil.copytree(sharded, repository / "blobs")
        snapshot = repository / "snapshots" / "0123"
        snapshot.mkdir(parents=True)
        for path in (repository / "blobs").iterdir():
            if path.is_file():
                (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
        assert checkpoint.load_base(snapshot)

    def test_an_allocator_with_links(self, allocator: Path, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(allocator, tmp_path / "allocator"))
        for name in ("arr_coc.safetensors", "stem.safetensors", "adapter_config.json"):
            shutil.move(folder / name, tmp_path / name)
            (folder / name).symlink_to(tmp_path / name)
            with pytest.raises(ValueError, match=f"{name}' is not loaded: it is a link to a file outside"):
                load_learned(folder, tiny("qwen3_vl").model)
            (folder / name).unlink()
            shutil.move(tmp_path / name, folder / name)

    def test_headers(self, model: Path) -> None:
        path = model / "model.safetensors"
        whole = path.read_bytes()
        size = struct.unpack("<Q", whole[:8])[0]
        header, data = json.loads(whole[8 : 8 + size]), whole[8 + size :]
        name = next(key for key in header if key != "__metadata__")
        changes: list[Any] = [
            *({"dtype": "F999"}, {"dtype": 3}, {"shape": [10**12, 10**12]}, {"shape": [-1]}, {"shape": None}),
            *({"shape": []}, {"data_offsets": [0, 10**15]}, {"data_offsets": [5, 1]}, {"data_offsets": "a"}),
        ]
        headers = [{**header, name: header[name] | change} for change in changes]
        headers += [{}, {"__metadata__": 3}, {key: 3 for key in header}, {"\ud800": header[name]}]
        texts = [json.dumps(changed).encode() for changed in headers]
        files = [struct.pack("<Q", len(text)) + text + data for text in texts]
        files += [struct.pack("<Q", number) + whole[8:] for number in (0, 2**40, 2**64 - 1, size - 1)]
        for case, content in enumerate(files):
            with spoilt(path, content):
                assert not holds(load_model(model, path.name), model, ("header", case))

    def test_an_adapter_beside_the_model_is_not_looked_at(self, sharded: Path) -> None:
        """transformers would put it into the base model, and load the base model that it names."""
        (sharded / "adapter_config.json").write_text(
            json.dumps({"peft_type": "LORA", "base_model_name_or_path": "someone/some-repo"})
        )
        (sharded / "adapter_model.bin").write_bytes(pickle.dumps(Evil()))
        loaded: Any = None

        def load() -> None:
            nonlocal loaded
            loaded, _ = checkpoint.load_base(sharded)

        assert holds(load, sharded, "adapter")
        assert not getattr(loaded, "_hf_peft_config_loaded", False)


def test_the_watch_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the laws above rest on: each of these is noticed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("a")
    for act in (
        lambda: (tmp_path / "elsewhere" / "file").read_text(),
        lambda: pickle.loads(pickle.dumps(Evil())),
    ):
        with pytest.raises(AssertionError), watched(tmp_path):
            act()
        assert violations
        violations.clear()
    (tmp_path / "ran").unlink()
