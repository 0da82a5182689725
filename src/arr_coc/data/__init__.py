"""Questions about images in files, with their answers and evidence, and the data sets by name.

    data, examples = open_data("folder:my-pages", limit=500)
    next(examples)    # Example(id, image, question, answers, boxes, meta, where)

`record` is what all readers share, `registry` knows the data sets by name and reads your own questions
(`arr-coc-lab` adds the public ones), `evidence` turns boxes and maps into cells, `metrics` compares answers.
"""

from arr_coc.data.record import Box, Example
from arr_coc.data.registry import DataSet, Metric, data_sets, open_data

__all__ = ["Box", "DataSet", "Example", "Metric", "data_sets", "open_data"]
