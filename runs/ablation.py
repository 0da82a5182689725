"""Ablations: layers with one part left out, trained as the whole layer is and saved as ordinary allocators.

    python runs/ablation.py NAME RECIPE [KEY=VALUE ...] --out FOLDER          NAME is one of `ABLATIONS`

An ablation is a subclass of `ARRCOCLayer` with the same parameters, names and start; what is left out gets no gradient.
`ordinary()` writes what was left out into the weights of an ordinary layer (a gate at 0, weights at 0), so that the
folder is an allocator like any other: `arr-coc eval --allocator NAME=FOLDER` measures it.

Cost: that of the recipe. Killed at any point, the same command goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor

from arr_coc.choose.balancing import AdaptiveTensionBalancer
from arr_coc.choose.knowing import same_start
from arr_coc.choose.layer import WEIGHTS_NAME, ARRCOCConfig, ARRCOCLayer, Relevance, save_layer
from arr_coc.files.saved import read_settings

SCORERS = ("information", "perspectival", "participatory")
CLOSED = -1e4
"""A gate before the sigmoid that is exactly 0 after it, whatever the policy net adds."""


class Ablation(ARRCOCLayer):
    """A layer with one part left out."""

    def use_balancer(self, balancer_class: type[AdaptiveTensionBalancer], **options: Any) -> None:
        """Put a balancer of another class in place, with the parameters of the one that is there."""
        with same_start():
            balancer = balancer_class(self.config.dim, preset=self.config.preset, **options)
        balancer.load_state_dict(self.balancer.state_dict())
        self.balancer = balancer

    def silence(self, layer: ARRCOCLayer) -> None:
        """Change the weights of an ordinary layer so that the part has no effect."""
        raise NotImplementedError(f"{type(self).__name__} must say which weights its part is")

    @torch.no_grad()
    def ordinary(self) -> ARRCOCLayer:
        """An ordinary layer that keeps the same cells."""
        layer = ARRCOCLayer(self.config)
        layer.load_state_dict(self.state_dict())
        self.silence(layer)
        layer.trained = self.trained
        return layer


def policy_inputs(balancer: AdaptiveTensionBalancer) -> tuple[Tensor, Tensor]:
    """Views of the policy net's first weights: those that read the gestalt, and those of the 9 statistics."""
    policy: Any = balancer.policy
    weight = policy.weight if balancer.linear else policy[0].weight
    width = 0 if balancer.linear else balancer.project.out_features
    return weight[:, width : 2 * width], weight[:, 2 * width :]


class FixedBalancer(AdaptiveTensionBalancer):
    """A balancer without a policy net: gates and tensions are learnable constants."""

    def decide(
        self, query: Tensor, gestalt: Tensor | None, statistics: Tensor, start: Tensor | None = None
    ) -> Tensor:
        return self.start.expand(len(statistics), 6)


class FixedMixture(Ablation):
    """A layer whose gates and tensions are learnable constants; the law of weak saliency still holds."""

    def __init__(self, config: ARRCOCConfig) -> None:
        super().__init__(config)
        self.use_balancer(FixedBalancer)

    def silence(self, layer: ARRCOCLayer) -> None:
        policy: Any = layer.balancer.policy
        for parameter in (policy if layer.balancer.linear else policy[2]).parameters():
            parameter.zero_()


class BlindBalancer(AdaptiveTensionBalancer):
    """A balancer whose policy net reads the question alone, neither gestalt nor statistics of the maps."""

    def decide(
        self, query: Tensor, gestalt: Tensor | None, statistics: Tensor, start: Tensor | None = None
    ) -> Tensor:
        return super().decide(query, None, torch.zeros_like(statistics))


class BalancerWithoutImage(Ablation):
    """A layer whose balancer reads the question alone; the law of weak saliency still holds."""

    def __init__(self, config: ARRCOCConfig) -> None:
        super().__init__(config)
        self.use_balancer(BlindBalancer)

    def silence(self, layer: ARRCOCLayer) -> None:
        for weights in policy_inputs(layer.balancer):
            weights.zero_()


class PartialBalancer(AdaptiveTensionBalancer):
    """A balancer that closes the gates of some maps and does not read their statistics.

    Args:
        without: The scorers whose maps are left out.
    """

    def __init__(self, dim: int, width: int = 16, preset: str = "net", *, without: tuple[str, ...]) -> None:
        super().__init__(dim, width, preset)
        self.absent: Tensor
        absent = torch.tensor([name in without for name in SCORERS])
        self.register_buffer("absent", absent, persistent=False)

    def decide(
        self, query: Tensor, gestalt: Tensor | None, statistics: Tensor, start: Tensor | None = None
    ) -> Tensor:
        decided = super().decide(query, gestalt, statistics.masked_fill(self.absent.repeat(3), 0.0))
        closed = torch.cat((self.absent, torch.zeros_like(self.absent)))
        return decided.masked_fill(closed, CLOSED)


class WithoutScorers(Ablation):
    """A layer in which some scorers have no part: gate 0, no statistics.

    Their maps stay in the record, untrained, until `ordinary`, which makes that of the participatory scorer flat.
    """

    without: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: ARRCOCConfig) -> None:
        if config.pooling == "learned" and "participatory" in self.without:
            raise ValueError(
                "pooling 'learned' is by the participatory scorer; leave another out, or choose mean"
            )
        super().__init__(config)
        self.use_balancer(PartialBalancer, without=self.without)

    def scores(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        information, perspectival, participatory = (
            logits.detach() if name in self.without else logits
            for name, logits in zip(SCORERS, super().scores(*args, **options), strict=True)
        )
        return information, perspectival, participatory

    def silence(self, layer: ARRCOCLayer) -> None:
        _, statistics = policy_inputs(layer.balancer)
        for i, name in enumerate(SCORERS):
            if name in self.without:
                layer.balancer.start[i] = CLOSED
                statistics[:, i::3] = 0
        if "participatory" in self.without:
            scorer = layer.participatory
            last = () if scorer.linear else scorer.correction[2].parameters()
            for parameter in (scorer.mix, scorer.bias, *last):
                parameter.zero_()


class NoInformation(WithoutScorers):
    """A layer without the information scorer."""

    without = ("information",)


class NoPerspectival(WithoutScorers):
    """A layer without the saliency scorer."""

    without = ("perspectival",)


class NoParticipatory(WithoutScorers):
    """A layer without the coupling with the question."""

    without = ("participatory",)


class TextureAlone(Ablation):
    """A layer that scores by texture and question alone; encoded tokens and the gestalt are not read."""

    def __init__(self, config: ARRCOCConfig) -> None:
        if config.preset == "linear":
            raise ValueError(
                "texture-alone is of preset 'net': in 'linear' no weight stands for the encoded tokens"
            )
        super().__init__(config)

    def relevance(
        self,
        texture: Tensor,
        query: Tensor,
        query_mask: Tensor,
        vision: Tensor | None = None,
        gestalt: Tensor | None = None,
        coupling: Tensor | None = None,
    ) -> Relevance:
        return super().relevance(texture, query, query_mask, None, None, coupling)

    def silence(self, layer: ARRCOCLayer) -> None:
        layer.participatory.cell.zero_()
        policy_inputs(layer.balancer)[0].zero_()


ABLATIONS: dict[str, type[Ablation]] = {
    "no-information": NoInformation,
    "no-perspectival": NoPerspectival,
    "no-participatory": NoParticipatory,
    "fixed-mixture": FixedMixture,
    "balancer-without-image": BalancerWithoutImage,
    "texture-alone": TextureAlone,
}


def make_ordinary(folder: Path, ablation: type[Ablation]) -> None:
    """Rewrite a trained ablation's folder as an ordinary allocator; a second time changes nothing."""
    settings = read_settings(folder)
    layer = ablation(ARRCOCConfig.from_dict(settings.pop("layer")))
    layer.load_state_dict(load_file(folder / WEIGHTS_NAME))
    layer.trained = settings.pop("trained")
    save_layer(layer.ordinary(), folder, settings)


def main(arguments: list[str] | None = None) -> None:
    """Train one ablation, or go on, and write its allocator."""
    from arr_coc.train.recipe import load_recipe, parse_override
    from arr_coc.train.trainer import train

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=ABLATIONS)
    parser.add_argument("recipe", help="a built-in recipe or a .toml file")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="settings that replace the recipe's")
    parser.add_argument("--out", type=Path, required=True, help="where the allocator goes")
    chosen = parser.parse_args(arguments)
    try:
        recipe = load_recipe(chosen.recipe, dict(parse_override(change) for change in chosen.changes))
        facts = recipe.to_dict()
        if facts.get("allocator") != "arr-coc" or facts.get("eyes", "encoded") != "encoded":
            raise ValueError("an ablation is of the layer itself: use allocator=arr-coc and eyes=encoded")
        if not (chosen.out / "curve.png").is_file():  # written last
            train(recipe, chosen.out, layer_class=ABLATIONS[chosen.name])
        make_ordinary(chosen.out, ABLATIONS[chosen.name])
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
