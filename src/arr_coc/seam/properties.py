"""Properties of a wrapped base model that other libraries read of a model object."""

from __future__ import annotations

from typing import Any

import torch

from arr_coc.seam.loaded import execution_device


class BaseProperties:
    """Properties of the base model that `transformers.pipeline` and training loops read of a model.

    For a class that holds its base model as `base`.
    """

    base: Any

    @property
    def config(self) -> Any:
        """The base model's configuration."""
        return self.base.config

    @property
    def generation_config(self) -> Any:
        """The base model's settings of `generate`."""
        return self.base.generation_config

    @property
    def device(self) -> torch.device:
        """The device of the base model's calls, also where its weights are offloaded."""
        return execution_device(self.base)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the base model's weights."""
        return self.base.dtype

    @property
    def hf_device_map(self) -> Any:
        """The devices of a base model that is spread over several; others don't have this attribute."""
        return self.base.hf_device_map

    @property
    def input_modalities(self) -> Any:
        """The kinds of input of the base model, such as ("image", "text")."""
        return self.base.input_modalities

    @property
    def output_modalities(self) -> Any:
        """The kinds of output of the base model."""
        return self.base.output_modalities

    def can_generate(self) -> bool:
        """Always: a model without a generation head isn't wrapped."""
        return True

    def activation_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the base model stays in evaluation mode, in which transformers keeps every activation.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "gradient_checkpointing has no effect on a frozen base model: leave it out, or train with "
            "`arr-coc train ... checkpointing=true`"
        )

    gradient_checkpointing_enable = activation_checkpointing_enable
