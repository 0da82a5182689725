"""arr-coc as a model of lmms-eval: what it declares, and, where lmms-eval is installed, a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import arr_coc
import arr_coc_lab
from arr_coc_lab.integrations import lmms, pages
from arr_coc_lab.world import draw_page, pages_of

ROOT = Path(__file__).parents[3]
INSTALLED = find_spec("lmms_eval") is not None
"""In .venv-lmms alone."""


class TestDeclared:
    def test_the_entry_point_is_there(self) -> None:
        project = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]
        point = project["entry-points"]["lmms_eval.models"][lmms.MODEL_ID]
        assert point == f"{lmms.manifest.__module__}:{lmms.manifest.__name__}"
        assert any(need.startswith("lmms-eval") for need in project["optional-dependencies"]["lmms"])
        heavy = project["dependencies"] + project["optional-dependencies"]["all"]
        assert not any("lmms" in need for need in heavy)  # its pins want an environment of their own

    def test_the_class_stands_where_the_manifest_says(self) -> None:
        module, _, name = lmms.MODEL_CLASS.rpartition(".")
        source = Path(arr_coc_lab.__file__).parents[1] / (module.replace(".", "/") + ".py")
        assert f"class {name}(lmms):" in source.read_text()

    def test_listing_models_imports_nothing_heavy(self) -> None:
        """lmms-eval loads every entry point at its start, whichever model is wanted."""
        code = (
            "import sys, arr_coc_lab.integrations.lmms\n"
            "assert not {'transformers', 'torch', 'lmms_eval'} & set(sys.modules), sorted(sys.modules)"
        )
        places = (str(Path(package.__file__).parents[1]) for package in (arr_coc, arr_coc_lab))
        own = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=own, check=False
        )
        assert done.returncode == 0, done.stderr


class TestPages:
    def test_the_task_names_functions_that_exist(self) -> None:
        functions = {}

        def function(loader: Any, node: Any) -> str:
            module, _, name = loader.construct_scalar(node).rpartition(".")
            assert module == pages.__name__
            functions[name] = getattr(pages, name)
            return name

        class Loader(yaml.SafeLoader):
            pass

        Loader.add_constructor("!function", function)
        task = yaml.load(pages.TASK.read_text(), Loader)
        assert set(functions) == {"doc_to_visual", "doc_to_text", "process_results"}
        assert task["dataset_kwargs"]["data_files"] == {"test": pages.PAGES}
        assert task["score_key"] == task["metric_list"][0]["metric"] == "exact_match"

    def test_a_document_becomes_a_question_and_a_score(self) -> None:
        page = draw_page(pages_of(0)[0], (256, 256), "test")
        question = page.questions[0]
        doc = {"image": page.image, "question": question.text, "answer": question.answer}
        assert pages.doc_to_visual(doc)[0].size == (256, 256)
        assert pages.doc_to_text(doc) == question.text
        assert pages.process_results(doc, [question.answer]) == {"exact_match": 1}
        assert pages.process_results(doc, ["something else"]) == {"exact_match": 0}

    @pytest.mark.skipif(find_spec("datasets") is not None, reason="datasets is installed here")
    def test_without_datasets_it_says_what_to_install(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"pip install 'datasets>=3'"):
            pages.write_task(tmp_path / "task", 1, 256, 0, "test")
        assert not (tmp_path / "task").exists()


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="lmms-eval is not installed: make test-lmms")
class TestRun:
    def test_lmms_eval_scores_arr_coc(self, tmp_path: Path) -> None:
        """Drawn pages as a local task, 64 of 1,024 visual tokens each: a score, and what it cost."""
        own = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(tmp_path / "hub"),
            "CUDA_VISIBLE_DEVICES": "",
        }

        def run(*words: str) -> None:
            line = [sys.executable, "-m", *words]
            done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=own, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

        run("arr_coc_lab.integrations.pages", "--out", "task", "--questions", "8")
        run(
            *("lmms_eval", "--model", "arr_coc", "--batch_size", "1", "--include_path", "task"),
            *("--model_args", "pretrained=bundled,mode=sparse,budget=64,device=cpu"),
            *("--tasks", "arr_coc_pages", "--output_path", "out", "--log_samples"),
        )
        (file,) = (tmp_path / "out").rglob("*_results.json")
        result = json.loads(file.read_text())
        (score,) = (v for k, v in result["results"]["arr_coc_pages"].items() if k.startswith("exact_match,"))
        assert score >= 0.75
        (file,) = (tmp_path / "out").rglob("*_samples_arr_coc_pages.jsonl")
        samples = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(samples) == 8
        for sample in samples:
            (counts,) = sample["token_counts"]
            assert 64 < counts["input_tokens"] < 64 + 60  # the kept cells and a question, of 1,024 and one
            assert 1 <= counts["output_tokens"] <= 8

    def test_the_model_is_registered_and_refuses_by_name(self) -> None:
        from lmms_eval.models import get_model

        model = get_model("arr_coc")
        with pytest.raises(ValueError, match="batch_size 4 can't be had"):
            model(batch_size=4)
        with pytest.raises(ValueError, match="prine"):
            model(mode="prine")
