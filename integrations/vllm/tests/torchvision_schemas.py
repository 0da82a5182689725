"""Schemas of two operators, for a CPU build of vLLM beside which torchvision's compiled ones don't load.

torchvision describes them to torch when it is imported and fails where they aren't there. Nothing here calls
them. `make test-vllm` puts this file into the test environment and has each of its processes import it.
"""

import importlib.abc
import importlib.machinery
import sys

_kept = []


class _Before(importlib.abc.MetaPathFinder):
    """Defines the schemas at the first import of torchvision, once torch is there."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _kept.append(library)
        return None


sys.meta_path.insert(0, _Before())
