"""Data sets of questions about images, read from their official files on disk; nothing is downloaded.

    data, examples = open_data("textvqa:/data/textvqa", limit=500)
    next(examples)    # Example(id, image, question, answers, boxes, meta, where)

One file per format, all without torch: `vqav2`, `textvqa`, `docvqa`, `chartqa`, `gqa`, `pope`; of
clips `videomme`, `mvbench`, `longvideobench`; `parquet` for any with its images inside; `rendered` for what
`arr-coc world` renders; `lines` and `coco` for your own questions, `maps` for their relevance maps; `record`
and `clips` for what they share, `registry` for their names, metrics and prompts; `tracks` for evidence in
clips.
"""

from __future__ import annotations

from arr_coc.data.chartqa import read_chartqa
from arr_coc.data.coco import read_coco
from arr_coc.data.docvqa import read_docvqa
from arr_coc.data.gqa import read_gqa
from arr_coc.data.lines import read_folder, read_jsonl
from arr_coc.data.longvideobench import read_longvideobench
from arr_coc.data.mvbench import read_mvbench
from arr_coc.data.parquet import read_parquet
from arr_coc.data.pope import read_pope
from arr_coc.data.record import Box, Example
from arr_coc.data.registry import DATASETS, DataSet, Metric, open_data
from arr_coc.data.rendered import read_rendered
from arr_coc.data.textvqa import read_textvqa
from arr_coc.data.tracks import Evidence
from arr_coc.data.videomme import read_videomme
from arr_coc.data.vqav2 import read_vqav2

__all__ = [
    "Box", "Evidence", "Example", "DataSet", "Metric", "DATASETS", "open_data",
    "read_vqav2", "read_textvqa", "read_docvqa", "read_chartqa", "read_gqa", "read_pope",
    "read_jsonl", "read_coco", "read_folder", "read_parquet", "read_rendered",
    "read_videomme", "read_mvbench", "read_longvideobench",
]  # fmt: skip
