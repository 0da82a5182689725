"""Ten questions about two drawn pages, written as each public set's authors publish theirs."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc_lab.world import draw_page

SIDE = 192  # px of a page
LETTERS = "ABCD"
Rows = list[tuple[int, str, str]]  # number of the page, question, answer


def pages() -> tuple[list[Image.Image], Rows]:
    """Two pages and five questions about each."""
    drawn = [draw_page(number, (SIDE, SIDE), "test") for number in range(2)]
    rows = []
    for number, page in enumerate(drawn):
        some = [page.questions[i % len(page.questions)] for i in range(5)]
        rows += [(number, f"{one.text} ({i})", one.answer) for i, one in enumerate(some)]
    return [page.image for page in drawn], rows


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def write_lines(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def save(images: list[Image.Image], folder: Path, ending: str = "png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        image.save(folder / f"{number}.{ending}")


def textvqa(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "train_images", "jpg")
    data = [
        {"question_id": i, "image_id": str(page), "question": text, "answers": [answer] * 10}
        for i, (page, text, answer) in enumerate(rows)
    ]
    write(folder / "TextVQA_0.5.1_val.json", {"data": data})


def docvqa(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "documents")
    data = [
        {"questionId": i, "image": f"documents/{page}.png", "question": text, "answers": [answer]}
        for i, (page, text, answer) in enumerate(rows)
    ]
    write(folder / "val_v1.0_withQT.json", {"data": data})


def infovqa(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "infographicsvqa_images", "jpeg")
    data = [
        {
            "questionId": i, "image_local_name": f"{page}.jpeg", "question": text, "answers": [answer],
            "answer_type": ["single span"],
        }
        for i, (page, text, answer) in enumerate(rows)
    ]  # fmt: skip
    write(folder / "infographicsVQA_val_v1.0_withQT.json", {"data": data})


def chartqa(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "png")
    data = [{"imgname": f"{page}.png", "query": text, "label": answer} for page, text, answer in rows]
    write(folder / "test_human.json", data[:5])
    write(folder / "test_augmented.json", data[5:])


def ocrbench(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "OCRBench_Images" / "set")
    data = [
        {
            "dataset_name": "set", "id": i, "image_path": f"set/{page}.png", "question": text,
            "answers": [answer], "type": "Scene Text-centric VQA",
        }
        for i, (page, text, answer) in enumerate(rows)
    ]  # fmt: skip
    write(folder / "OCRBench.json", data)


def pope(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "val2014")
    parts = {"random": rows[:4], "popular": rows[4:7], "adversarial": rows[7:]}
    for category, part in parts.items():
        lines = [
            {
                "question_id": i,
                "image": f"{page}.png",
                "text": f"Is it so: {text}",
                "label": ("yes", "no")[i % 2],
            }
            for i, (page, text, _) in enumerate(part)
        ]
        write_lines(folder / f"coco_pope_{category}.json", lines)


def vstar(folder: Path) -> None:
    images, rows = pages()
    save(images, folder / "direct_attributes", "jpg")
    lines = [
        {
            "image": f"direct_attributes/{page}.jpg", "text": f"{text}\n(A) {answer}\n(B) nothing of it",
            "category": "direct_attributes", "label": "A", "question_id": i,
        }
        for i, (page, text, answer) in enumerate(rows)
    ]  # fmt: skip
    write_lines(folder / "test_questions.jsonl", lines)


def hrbench(folder: Path) -> None:
    images, rows = pages()
    folder.mkdir(parents=True, exist_ok=True)
    names = ["index", "question", "answer", *LETTERS, "category", "cycle_category", "image"]
    for split in ("4k", "8k"):
        lines = ["\t".join(names)]
        for i, (page, text, answer) in enumerate(rows):
            picture = base64.b64encode(encoded(images[page])).decode()
            options = [answer, "nothing", "a tree", "a ship"]
            lines.append("\t".join([str(i), text, "A", *options, "single", "0", picture]))
        (folder / f"hr_bench_{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def zoombench(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    images, rows = pages()
    data = [
        {
            "prompt": f"{text}\n(A) {answer}\n(B) nothing of it", "answer": "A",
            "image": {"bytes": encoded(images[page]), "path": None},
        }
        for page, text, answer in rows
    ]  # fmt: skip
    path = folder / "data" / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(data), path)


def encoded(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


WRITERS: dict[str, Callable[[Path], None]] = {
    "textvqa": textvqa,
    "docvqa": docvqa,
    "infovqa": infovqa,
    "chartqa": chartqa,
    "ocrbench": ocrbench,
    "pope": pope,
    "vstar": vstar,
    "hrbench": hrbench,
    "zoombench": zoombench,
}
"""By the data set's name: writes its files into a folder."""
