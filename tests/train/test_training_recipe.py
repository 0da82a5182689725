"""Recipes: what is read is what was written; whatever is wrong is found before anything is loaded."""

from __future__ import annotations

import ast
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arr_coc import train as training
from arr_coc.choose import texture
from arr_coc.train.recipe import (
    FIELDS,
    STAGES,
    Recipe,
    RunSettings,
    built_in,
    load_recipe,
    make_recipe,
    parse_override,
)
from each import each

TRAINING = Path(training.__file__).parent


def recipe(**changes: Any) -> Recipe:
    return make_recipe(**{"stage": "answers", "steps": 5} | changes)


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


class TestBuiltIn:
    def test_names(self):
        assert list(built_in()) == [
            "answers",
            "coarse",
            "distill",
            "hard",
            "partial",
            "query-blind",
            "relevance",
            "stem",
            "tower",
        ]

    @each("name", list(built_in()))
    def test_each_loads_and_says_its_cost_and_what_to_expect(self, name):
        loaded = load_recipe(name)
        assert loaded.steps > 0
        header = built_in()[name].read_text().split("\n\nstage")[0].splitlines()
        assert all(line.startswith("#") for line in header if line)
        assert "# Cost " in "\n".join(header)
        assert "# Expected " in "\n".join(header)

    def test_the_rival_is_trained_exactly_as_ours(self):
        ours, rival = load_recipe("relevance").to_dict(), load_recipe("query-blind").to_dict()
        assert {key for key in ours if ours[key] != rival[key]} == {"allocator"}

    def test_only_answers_teach_in_answers(self):
        loaded = load_recipe("answers")
        assert (loaded.stage, loaded.relevance, loaded.compress) == ("answers", 0, 0)
        assert loaded.answer > 0

    def test_distillation_needs_no_boxes_and_no_answers(self):
        loaded = load_recipe("distill", {"data": "folder:/mine"})
        assert loaded.target == "gradient"
        assert loaded.data == ("folder:/mine",)

    def test_a_stem_needs_a_trained_layer_and_no_labels(self):
        loaded = load_recipe("stem", {"data": "folder:/mine", "model": "here", "init": "my-allocator"})
        assert (loaded.stage, loaded.eyes, loaded.target) == ("relevance", "stem", "layer")
        with pytest.raises(ValueError, match="init is 'bundled', the allocator of the bundled model"):
            load_recipe("stem", {"model": "here"})

    def test_an_unknown_name_lists_the_known_ones(self):
        with pytest.raises(
            ValueError,
            match=r"'relevanze' is unknown: use one of answers, .*stem, tower, or a TOML",
        ):
            load_recipe("relevanze")

    def test_a_folder_is_no_recipe(self, tmp_path):
        with pytest.raises(ValueError, match="is a folder: give the path of a file"):
            load_recipe(tmp_path)


class TestFile:
    def test_every_field_comes_from_the_file(self, tmp_path):
        path = written(tmp_path, 'stage = "hard"\nsteps = 7\nlr = 1\nsizes = [256]\n[hard]\nnote = 3\n')
        loaded = load_recipe(path)
        assert loaded == recipe(stage="hard", steps=7, lr=1.0, sizes=(256,), hard={"note": 3.0})
        assert isinstance(loaded.lr, float)

    def test_a_mark_at_the_start_of_the_file_is_no_key(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_bytes(b'\xef\xbb\xbfstage = "relevance"\nsteps = 1\n')
        assert load_recipe(path).stage == "relevance"

    @each(
        ("text", "message"),
        [
            ('stage = "relevance"', r"mine.toml: steps is missing: set it \(steps of the optimizer\)"),
            ("steps = 3", r"mine.toml: stage is missing: set it \(relevance, answers, hard"),
            ('stage = "x"\nsteps = 3', r"mine.toml: stage is 'x': use one of relevance, answers, hard"),
            ('stage = "hard"\nstepz = 3', r"mine.toml: stepz is unknown: use steps"),
            ('stage = "hard"\nsteps = "3"', r"mine.toml: steps is '3': input should be a valid integer"),
            ('stage = "hard"\nsteps = true', r"mine.toml: steps is True: input should be a valid integer"),
            ('stage = "hard"\nsteps = 3.0', r"mine.toml: steps is 3.0: input should be a valid integer"),
            ('stage = "hard"\nsteps = 3\nlr = nan', r"mine.toml: lr is nan: input should be a finite number"),
            ('stage = "hard"\nsteps = 3\nsizes = 512', r"sizes is 512: input should be a valid list"),
            ('stage = "hard"\nsteps = 3\ndata = [1]', r"data has 1: input should be a valid string"),
            (
                'stage = "hard"\nsteps = 3\n[hard]\nsmall = "x"',
                r"hard.small is 'x': input should be a valid number",
            ),
            ("stage = hard", r"mine.toml is not TOML \(.*line 1"),
        ],
    )
    def test_refusals_name_file_key_value_and_remedy(self, tmp_path, text, message):
        with pytest.raises(ValueError, match=message) as refused:
            load_recipe(written(tmp_path, text))
        assert "\n" not in str(refused.value)

    def test_a_file_of_another_encoding(self, tmp_path):
        path = tmp_path / "mine.toml"
        path.write_bytes('stage = "é"'.encode("latin-1"))
        with pytest.raises(ValueError, match=r"mine.toml is not UTF-8 text \(byte 9\)"):
            load_recipe(path)


class TestOverrides:
    @each(
        ("text", "key", "value"),
        [
            ("steps=200", "steps", 200),
            (" lr = 1e-3 ", "lr", 1e-3),
            ("sizes=512, 768", "sizes", (512, 768)),
            ("sizes=[512]", "sizes", (512,)),
            ("data=jsonl:/a=b,world", "data", ("jsonl:/a=b", "world")),
            ("init=none", "init", None),
            ("init=some/folder", "init", "some/folder"),
            ("limit=10", "limit", 10),
            ("hard={small=3.0}", "hard", {"small": 3.0}),
            ("hard.small=3", "hard.small", 3.0),
            ("layer.explore=0.1", "layer.explore", 0.1),
            ("layer.preset=linear", "layer.preset", "linear"),
            ("layer.void=false", "layer.void", False),
        ],
    )
    def test_parse(self, text, key, value):
        parsed = parse_override(text)
        assert parsed == (key, value)
        assert type(parsed[1]) is type(value)

    @each(
        ("text", "message"),
        [
            ("steps", "'steps' is no change of a recipe: write KEY=VALUE"),
            ("stepz=3", "stepz is unknown: use steps"),
            ("zzz=3", "zzz is unknown: use one of stage, steps"),
            ("channels=full40", r"channels is unknown: use layer\.channels$"),
            ("budget=3", r"budget is unknown: use layer\.budget or budgets"),
            ("dim=3", r"dim is unknown: use one of stage, steps"),
            ("steps=many", "steps is 'many': input should be a valid integer"),
            ("steps.most=3", "steps.most is no entry of a table: use steps"),
            ("hard=small", "hard is 'small': input should be a valid dictionary"),
            ("hard.small=x", "hard.small is 'x': input should be a valid number"),
        ],
    )
    def test_refusals(self, text, message):
        with pytest.raises(ValueError, match=message):
            parse_override(text)

    def test_texts_are_converted_and_stand_before_the_file(self):
        changes = {"steps": "9", "lr": "0.5", "budgets": "32", "init": "none", "model": "here"}
        loaded = load_recipe("answers", changes)
        assert (loaded.steps, loaded.lr, loaded.budgets, loaded.init) == (9, 0.5, (32,), None)
        assert loaded.estimator == load_recipe("answers").estimator

    def test_an_entry_changes_its_table_and_leaves_the_rest(self, tmp_path):
        assert load_recipe("hard", {"hard.small": 5}).hard == {"small": 5.0, "gray": 2.0, "count": 2.0}
        path = written(tmp_path, 'stage = "hard"\nsteps = 7\n')  # the table is the default's
        assert load_recipe(path, {"hard.note": "4"}).hard == {"small": 2, "gray": 2, "count": 2, "note": 4}
        assert load_recipe(path, {"hard": {"note": 4}}).hard == {"note": 4}

    def test_a_bad_value_names_the_override(self):
        with pytest.raises(
            ValueError,
            match=r"toml with batch=0: batch is 0: input should be greater than or equal to 1",
        ):
            load_recipe("relevance", {"batch": 0})


class TestRanges:
    @each(
        ("changes", "message"),
        [
            ({"sizes": (64,)}, "sizes has 64: input should be greater than or equal to 128"),
            ({"sizes": (512, 4096)}, "sizes has 4096: input should be less than or equal to 3072"),
            ({"budgets": (64, 0)}, "budgets has 0: input should be greater than or equal to 1"),
            ({"budgets": ()}, "budgets is \\(\\): list should have at least 1 item"),
            ({"lr": 0}, "lr is 0: input should be greater than 0"),
            ({"temperature": -1}, "temperature is -1: input should be greater than 0"),
            ({"seed": -1}, "seed is -1: input should be greater than or equal to 0"),
            ({"hard": {"small": -2}}, "hard.small is -2: input should be greater than or equal to 0"),
            ({"max_pixels": 10}, "max_pixels is 10: input should be greater than or equal to 4096"),
            ({"target": "box"}, "target is 'box': input should be 'boxes', 'maps', 'attention', 'gradient'"),
            (
                {"stage": "relevance", "eyes": "retina"},
                "eyes is 'retina': input should be 'encoded'",
            ),
            ({"estimator": "st"}, "estimator is 'st': input should be 'straight-through', 'gumbel'"),
            ({"precision": "float16"}, "precision is 'float16': input should be 'float32', 'bfloat16'"),
            ({"data": ("images",)}, "data has 'images': use clips, world or NAME:DIR"),
            ({"data": ("foo:/x",)}, "data has 'foo:/x': use clips, world or NAME:DIR"),
            ({"layer": {"dim": 3}}, "layer has 'dim', which is unknown: use .*explore"),
            ({"layer": {"explore": 2}}, "layer is {'explore': 2}: explore 2 must be"),
            ({"model": ""}, "model is '': string should have at least 1 character"),
        ],
    )
    def test_a_field_alone(self, changes, message):
        with pytest.raises(ValueError, match=message):
            recipe(**changes)

    @each(
        ("changes", "message"),
        [
            ({"target": "layer", "init": "a/folder"}, "stage 'answers' teaches the layer itself"),
            ({"lora": 8, "top_layers": 4}, "lora is 8 and top_layers 4: choose one"),
            ({"init": "bundled", "model": "other"}, "init is 'bundled', .* but model is 'other'"),
            ({"stage": "relevance", "relevance": 0, "compress": 0}, "stage relevance learns nothing"),
            ({"relevance": 0, "compress": 0, "answer": 0}, "nothing is learned"),
            (
                {"reward": "anls", "estimator": "reinforce", "mode": "saccade"},
                "mode is 'saccade', and answers are sampled in prune",
            ),
            ({"estimator": "scores-only", "relevance": 0, "compress": 0}, "passes nothing from answers"),
            ({"allocator": "query-blind", "layer": {"explore": 0.1}}, "query-blind has no such fields"),
            ({"eyes": "stem", "stage": "relevance", "allocator": "query-blind"}, "use allocator=arr-coc"),
            ({"eyes": "stem", "stage": "relevance", "relevance": 0}, "nothing else teaches a stem"),
            (
                {"eyes": "stem", "stage": "relevance", "target": "layer"},
                "target is 'layer', but init is none",
            ),
            (
                {"stage": "relevance", "target": "layer", "init": "a/folder"},
                "the layer would teach itself: set eyes=stem",
            ),
            (
                {
                    "allocator": "query-blind",
                    "stage": "relevance",
                    "relevance": 0,
                },  # it has no budget to learn
                "stage relevance learns nothing",
            ),
        ],
    )
    def test_fields_that_contradict_each_other(self, changes, message):
        with pytest.raises(ValueError, match=message):
            recipe(**changes)

    @each(
        ("changes", "message"),
        [
            (
                {"stage": "relevance", "lora": 8},
                "lora is no setting of stage 'relevance', but of answers",
            ),
            ({"stage": "relevance", "top_layers": 4}, "leave it out, or use stage=answers"),
            ({"eyes": "stem"}, "eyes is no setting of stage 'answers', but of relevance: leave it out"),
            ({"eyes": "stem", "stage": "hard"}, "or use stage=relevance"),
            ({"stage": "partial", "lora": 2, "target": "boxes"}, "target is no setting of stage 'partial'"),
            ({"stage": "tower", "lora": 2, "hint": 0.2}, "but of partial, coarse: leave it out"),
        ],
    )
    def test_what_another_stage_has(self, changes, message):
        with pytest.raises(ValueError, match=message):
            recipe(**changes)

    def test_what_teaches_something_is_let_through(self):
        recipe(estimator="scores-only")
        recipe(estimator="scores-only", relevance=0, compress=0, lora=4)
        recipe(lora=8)
        recipe(stage="hard", top_layers=4)
        recipe(init="bundled")
        recipe(init="a/folder", model="other")
        recipe(stage="relevance", eyes="stem")
        recipe(stage="relevance", eyes="stem", target="layer", init="a/folder")


class TestRecord:
    @each("name", list(built_in()))
    def test_a_recipe_survives_json_and_pickle(self, name):
        loaded = load_recipe(name, {"layer": {"channels": ["rgb", "position"]}} if name == "hard" else {})
        assert make_recipe(**json.loads(json.dumps(loaded.to_dict()))) == loaded
        assert pickle.loads(pickle.dumps(loaded)) == loaded

    def test_two_recipes_share_no_table(self):
        first, second = recipe(), recipe()
        first.hard["small"] = 9.0
        assert second.hard["small"] == 2.0
        second.to_dict()["hard"]["gray"] = 9.0
        assert second.hard["gray"] == 2.0

    def test_every_field_says_what_it_means(self):
        for name, field in FIELDS.items():
            assert re.fullmatch(r"\S.{9,90}", field.description), name

    def test_a_class_has_the_settings_of_its_stages_alone(self):
        for kind in {*STAGES.values(), Recipe, RunSettings}:
            assert len(kind.__annotations__) <= 15, kind

    def test_it_is_frozen(self):
        with pytest.raises(ValueError, match="frozen"):
            recipe().steps = 9


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's own that registers a channel group called tinted."""
    name = "tinted_channels"
    path = tmp_path / "mine" / f"{name}.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    groups = dict(texture.CHANNEL_GROUPS)
    monkeypatch.chdir(tmp_path)
    yield path
    sys.modules.pop(name, None)
    texture.CHANNEL_GROUPS.clear()
    texture.CHANNEL_GROUPS.update(groups)


MODULE = """
from arr_coc.choose.channels import CHANNEL_GROUPS

CHANNEL_GROUPS["tinted"] = CHANNEL_GROUPS["rgb"]
"""
MINE = 'stage = "relevance"\nsteps = 1\nimports = ["tinted_channels"]\nlayer.channels = ["rgb", "tinted"]\n'


class TestImports:
    def test_a_module_beside_the_recipe_registers_the_channels_that_it_names(self, module):
        path = written(module.parent, MINE)
        with pytest.raises(ValueError, match="tinted"):
            load_recipe(path, {"imports": []})
        loaded = load_recipe(path)
        assert loaded.imports == ("tinted_channels",)
        assert loaded.layer == {"channels": ("rgb", "tinted")}
        assert make_recipe(**loaded.to_dict()) == loaded

    def test_the_remedy_of_a_layers_setting_works(self):
        assert load_recipe("relevance", dict([parse_override("layer.channels=full40")])).layer == {
            "channels": "full40"
        }

    def test_the_command_line_names_a_module_of_the_current_folder(self, module, monkeypatch):
        changes = dict(map(parse_override, ("imports=tinted_channels", "layer.channels=rgb,tinted")))
        with pytest.raises(ValueError, match="does not exist: put it into"):
            load_recipe("relevance", changes)
        monkeypatch.chdir(module.parent)
        paths = list(sys.path)
        assert load_recipe("relevance", changes).layer == {"channels": ("rgb", "tinted")}
        assert sys.path == paths

    @each("name", ["antigravity", "xmlrpc.server", "pip"])
    def test_a_recipe_runs_no_module_from_elsewhere(self, tmp_path, name):
        """A recipe may come from anybody: of what is installed it may name only what adds to arr-coc."""
        path = written(tmp_path, f'stage = "relevance"\nsteps = 1\nimports = ["{name}"]\n')
        with pytest.raises(ValueError, match=f"mine.toml: module '{name}' is neither .*--import {name}"):
            load_recipe(path)
        assert name not in sys.modules
        for own in ("math", "arr_coc_lab"):  # imported already; of a distribution with entry points
            load_recipe(written(tmp_path, f'stage = "relevance"\nsteps = 1\nimports = ["{own}"]\n'))

    def test_no_record_imports_anything(self, module, monkeypatch):
        """`Recipe` is what the file of a run is read back into; only `load_recipe` runs a user's code."""
        monkeypatch.chdir(module.parent)
        make_recipe(stage="relevance", steps=1, imports=["tinted_channels"])
        assert "tinted_channels" not in sys.modules

    @each(
        ("name", "text", "message"),
        [
            (
                "no_such_module",
                "",
                "module 'no_such_module' does not exist: put it into the current folder",
            ),
            ("no_such.part", "", "module 'no_such.part' does not exist"),
            ("my_channels.py", "", "'my_channels.py' is no module name"),
            ("a-b", "", "'a-b' is no module name: write x for a file x.py"),
            (
                "broken_one",
                "import no_such_module",
                "module 'broken_one' needs 'no_such_module', which is not installed",
            ),
            ("broken_two", "1 / 0", r"'broken_two' can't be imported \(ZeroDivisionError: division"),
            ("broken_three", "x =", r"'broken_three' can't be imported \(SyntaxError"),
        ],
    )
    def test_refusals_are_one_line(self, tmp_path, name, text, message):
        if text:
            (tmp_path / f"{name}.py").write_text(text)
        path = written(tmp_path, f'stage = "relevance"\nsteps = 1\nimports = ["{name}"]\n')
        with pytest.raises(ValueError, match=f"mine.toml: .*(?:{message})") as refused:
            load_recipe(path)
        assert "\n" not in str(refused.value)

    @each("value", ["3", "[3]", '"x"'])
    def test_only_a_list_of_names(self, tmp_path, value):
        path = written(tmp_path, f'stage = "relevance"\nsteps = 1\nimports = {value}\n')
        with pytest.raises(ValueError, match=r"mine.toml: imports (is|has) .*: input should be a valid"):
            load_recipe(path)


class TestWithoutTheWorld:
    """A run on files of one's own imports neither the drawing code nor how the bundled model was made."""

    def test_no_module_imports_them_at_its_start(self):
        for path in TRAINING.glob("*.py"):
            modules = {
                name
                for node in ast.parse(path.read_text(encoding="utf-8")).body
                if isinstance(node, (ast.Import, ast.ImportFrom))
                for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            }
            assert not {name for name in modules if name.split(".")[0] in ("making", "arr_coc_lab")}, path

    @pytest.mark.slow
    def test_drawn_pages_are_imported_where_the_recipe_asks_for_them(self, tmp_path):
        (tmp_path / "questions.jsonl").write_text('{"image": "a.png", "question": "What?"}\n')
        Image.new("RGB", (96, 64)).save(tmp_path / "a.png")
        code = (
            "import sys\n"
            "from arr_coc.train.recipe import make_recipe\n"
            "from arr_coc.train.trainer import open_rows\n"
            "settings = {'stage': 'relevance', 'steps': 1, 'target': 'gradient'}\n"
            f"open_rows(make_recipe(**settings, data=['folder:{tmp_path}']))[0]\n"
            "print(*sorted(name for name in sys.modules if name.startswith(('arr_coc_lab.w', 'making'))))\n"
            "open_rows(make_recipe(**settings))\n"
            "print('arr_coc_lab.world' in sys.modules)\n"
        )
        line = [sys.executable, "-c", code]
        out = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        assert out.splitlines() == ["", "True"]
