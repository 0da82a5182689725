"""Questions about images in files, with their answers and evidence, and the data sets by name.

data, examples = open_data("folder:my-pages", limit=500)
next(examples)    # Example(id, image, question, answers, boxes, meta, where)
"""

from arr_coc.data.metrics import Metric
from arr_coc.data.record import Box, Example
from arr_coc.data.registry import DataSet, data_sets, open_data

__all__ = ["Box", "DataSet", "Example", "Metric", "data_sets", "open_data"]
