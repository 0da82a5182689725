"""Readers of public data sets of questions about images and clips, from their official files on disk.

Without torch. `published` has a row for each set that is a list of questions, which `listed` reads; other
formats have a file each. `parquet` reads any set with its images inside, `coco` COCO's annotations,
`rendered` the pages of `arr-coc world`; `clips` is shared by the sets of clips, `tracks` is their evidence.
"""

from __future__ import annotations

from arr_coc.data.metrics import anls, exact_match, loose_match
from arr_coc.data.registry import DataSet
from arr_coc_lab.data.chartqa import read_chartqa
from arr_coc_lab.data.clips import LETTER
from arr_coc_lab.data.coco import read_coco
from arr_coc_lab.data.gqa import read_gqa
from arr_coc_lab.data.longvideobench import read_longvideobench
from arr_coc_lab.data.metrics import (
    choice_accuracy,
    click_accuracy,
    contains_answer,
    relaxed_accuracy,
    vqa_accuracy,
    yes_no_match,
)
from arr_coc_lab.data.mvbench import read_mvbench
from arr_coc_lab.data.parquet import read_parquet, read_zoombench
from arr_coc_lab.data.pope import read_pope
from arr_coc_lab.data.published import (
    read_bbox_docvqa,
    read_docvqa,
    read_hrbench,
    read_infovqa,
    read_mme_realworld,
    read_ocrbench,
    read_ocrbench_v2,
    read_screenspot,
    read_screenspot_pro,
    read_textvqa,
    read_vstar,
)
from arr_coc_lab.data.rendered import read_rendered
from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.data.videomme import read_videomme
from arr_coc_lab.data.vidore import read_vidore
from arr_coc_lab.data.vqav2 import read_vqav2

__all__ = [
    "DATA_SETS", "Evidence",
    "read_vqav2", "read_textvqa", "read_docvqa", "read_chartqa", "read_gqa", "read_pope",
    "read_coco", "read_parquet", "read_rendered", "read_videomme", "read_mvbench", "read_longvideobench",
    "read_infovqa", "read_vstar", "read_hrbench", "read_mme_realworld", "read_ocrbench", "read_ocrbench_v2",
    "read_screenspot", "read_screenspot_pro", "read_bbox_docvqa",
    "read_zoombench", "read_vidore",
]  # fmt: skip

# appended to image questions by LLaVA and lmms-eval
SHORT = "\nAnswer the question using a single word or phrase."

# asks for a place, as `metrics.click_accuracy` reads it
CLICK = "\nAnswer with the point to click as [x, y], from 0 to 1000 across and down the image."

# found by `arr-coc` through the entry point `arr_coc.data`
DATA_SETS = (
    DataSet("vqav2", read_vqav2, vqa_accuracy, SHORT),
    DataSet("textvqa", read_textvqa, vqa_accuracy, SHORT),
    DataSet("docvqa", read_docvqa, anls, SHORT),
    DataSet("chartqa", read_chartqa, relaxed_accuracy, SHORT),
    DataSet("gqa", read_gqa, loose_match, SHORT),
    DataSet("pope", read_pope, yes_no_match, SHORT, classes=("category",)),
    DataSet("infovqa", read_infovqa, anls, SHORT, classes=("answer_type",)),
    DataSet("bbox-docvqa", read_bbox_docvqa, anls, SHORT, classes=("category",)),
    DataSet("vstar", read_vstar, choice_accuracy, LETTER, classes=("category",)),
    DataSet("zoombench", read_zoombench, choice_accuracy, ""),
    DataSet("hrbench", read_hrbench, choice_accuracy, LETTER, classes=("category", "cycle_category")),
    DataSet("mme-realworld", read_mme_realworld, choice_accuracy, LETTER, classes=("Task", "Subtask")),
    DataSet("ocrbench", read_ocrbench, contains_answer, "", classes=("type",)),
    DataSet("ocrbench-v2", read_ocrbench_v2, contains_answer, "", classes=("type",)),
    DataSet("screenspot", read_screenspot, click_accuracy, CLICK, classes=("data_type",)),
    DataSet("screenspot-pro", read_screenspot_pro, click_accuracy, CLICK, classes=("group", "ui_type")),
    DataSet("vidore", read_vidore, None, "", classes=("language",)),
    DataSet("videomme", read_videomme, choice_accuracy, LETTER, True, ("duration", "task_type")),
    DataSet("mvbench", read_mvbench, choice_accuracy, LETTER, True, ("task",)),
    DataSet("longvideobench", read_longvideobench, choice_accuracy, LETTER, True, ("duration_group",)),
    DataSet("coco", read_coco, loose_match, ""),
    DataSet("parquet", read_parquet, loose_match, SHORT),
    DataSet("rendered", read_rendered, exact_match, ""),
)
