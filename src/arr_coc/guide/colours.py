"""Colours by their names: which places of a picture show the colour that a word of the question names.

    shares = colour_maps(picture)                        once per picture
    shares[list(colours_of("violet"))].amax(0)           where something violet stands

Twelve basic colours (Berlin & Kay 1969, and cyan), by the nearest prototype in OKLab (Ottosson 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from arr_coc.guide.compiling import constant_result
from arr_coc.guide.lexicon import STOP_WORDS
from arr_coc.guide.print_encoder import PLACE
from arr_coc.guide.question import normal
from arr_coc.guide.wording import ODD_FILLERS

# Basic colours as sRGB; cyan is one as well, since pages have it and call it so.
PROTOTYPES: dict[str, str] = {
    "black": "000000 212121 1a1a2e 2b2b2b",
    "white": "ffffff f5f5f5 fafafa f0f4f8",
    "grey": "808080 616161 9e9e9e bdbdbd 607080 455060",
    "red": "ff0000 c80000 e53935 b71c1c d32f2f ef5350 800000",
    "orange": "ff8c00 ffa500 f57c00 ff7043 e65100 ffb74d",
    "yellow": "ffff00 ffeb3b fdd835 fff176 f0d000 fff59d",
    "green": "008000 2e7d32 4caf50 81c784 00c853 1b5e20 9ccc65 00ff00 6b8e23",
    "cyan": "00ffff 00bcd4 26a69a 008080 80deea 4dd0e1 00796b",
    "blue": "0000ff 1565c0 2196f3 64b5f6 1a237e 3f51b5 90caf9 1e3a8a",
    "purple": "800080 7b1fa2 9c27b0 673ab7 9575cd ba68c8 4a148c",
    "pink": "ff69b4 f48fb1 e91e63 ffc0cb ec407a f8bbd0 ff00ff",
    "brown": "8b4513 5d4037 795548 6d4c41 a0522d 4e342e 8d6e63",
}
NAMES = tuple(PROTOTYPES)
# Further words for each, some of them for two, with their forms in Romance languages and Dutch.
WORDS: dict[str, str] = {
    "black": "noir noire nero negro zwart preto noirs noires negra negros negras nera neri nere zwarte "
             "preta pretos pretas",
    "white": "blanc blanche bianco blanco wit branco ivory cream blancs blanches blanca blancos "
             "blancas bianca bianchi bianche witte branca brancos brancas",
    "grey": "gray silver charcoal gris grigio grijs cinza grise grises grigia grigi grigie grijze "
            "cinzas",
    "red": "crimson scarlet maroon burgundy ruby reddish rouge rosso rojo rood vermelho rouges roja "
           "rojos rojas rossa rossi rosse rode vermelha vermelhos vermelhas",
    "orange": "amber coral peach salmon arancione naranja oranje laranja orangefarbene orangefarbenen "
              "oranges naranjas",
    "yellow": "gold golden lemon yellowish jaune giallo amarillo geel amarelo jaunes amarilla amarillos "
              "amarillas gialla gialli gialle gele amarela amarelos amarelas",
    "green": "lime olive emerald mint greenish teal vert verte verde groen verts vertes verdes verdi "
             "groene",
    "cyan": "turquoise teal aqua",
    "blue": "navy azure indigo bluish turquoise bleu bleue blu azul blauw bleus bleues azules blauwe "
            "azuis",
    "purple": "violet lilac lavender mauve magenta indigo lila viola morado paars roxo violette violets "
              "violettes morada moradas morados paarse roxa roxos roxas",
    "pink": "rose magenta fuchsia coral salmon rosa roses",
    "brown": "tan beige bronze chocolate copper brun marron marrone bruin castanho brune bruns brunes "
             "marrones marroni bruine castanha castanhos castanhas",
}  # fmt: skip
# German adjectives, which take ENDINGS.
GERMAN: dict[str, str] = {
    "black": "schwarz", "white": "weiß weiss", "grey": "grau", "red": "rot", "yellow": "gelb",
    "green": "grün", "blue": "blau", "brown": "braun", "purple": "violett", "cyan": "türkis",
}  # fmt: skip
ENDINGS = ("", "e", "en", "er", "es", "em")
# What a coloured place may be called: shapes that are drawn, and parts of charts and screens.
SHAPES = frozenset(
    "arc area areas arrow arrows background band bands bar bars block blocks border box boxes cell "
    "cells circle circles colour colours color colors column columns cross crosses curve curves diamond "
    "diamonds disc discs disk disks dot dots ellipse ellipses field fields figure form frame graph "
    "heart hearts hexagon hexagons item items line lines mark marker markers marks object objects "
    "octagon outline oval ovals part parts patch pentagon pentagons piece pieces place point points "
    "polygon print rectangle rectangles region rhombus ring rings row rows section sector segment "
    "segments series shape shapes slice slices sphere spot spots square squares star stars strip stripe "
    "stripes symbol symbols text thing things trace trapezoid triangle triangles wedge word words zone "
    "kreis kreise punkt punkte quadrat dreieck stern linie balken flache rechteck cercle carre ligne "
    "etoile barre rond circulo cuadrado punto linea estrella triangulo cerchio quadrato stella "
    "triangolo quadrado ponto cirkel vierkant driehoek ster lijn balk".split()
)
# Words beside a colour that say how large, how bright or where, and not what.
MANNER = frozenset(
    "called mean means named say says stand stands big bigger biggest bold bottom bright center centre "
    "closed corner dark darker dashed dotted drawn empty filled find first highlighted huge large "
    "larger largest last left light lighter little locate located long lower main marked middle open "
    "painted pale picture right round second shown single small smaller smallest solid thick thin third "
    "tiny top upper vivid coloured colored image screen page painting photo".split()
)
STEP = 2  # every second pixel along a side is read
FULL_SHARE = 0.25  # share of a place that has a colour from which it shows it in full: thin rings count
# Shares of a picture from which a colour is partly, and wholly, the ground that things stand on.
GROUND: tuple[float, float] = (0.15, 0.5)


@lru_cache(maxsize=1)
def colour_words() -> dict[str, tuple[int, ...]]:
    """Return every normal word that names colours, with their numbers in NAMES."""
    table: dict[str, tuple[int, ...]] = {}
    for number, name in enumerate(NAMES):
        german = [stem + ending for stem in GERMAN.get(name, "").split() for ending in ENDINGS]
        for word in (name, *WORDS[name].split(), *german):
            table[normal(word)] = (*table.get(normal(word), ()), number)
    return table


def colours_of(word: str) -> tuple[int, ...]:
    """Return the numbers in NAMES of the colours that a normal word names; () for any other word."""
    return colour_words().get(word, ())


def unnamed_by_colour(words: Sequence[str]) -> tuple[str, ...]:
    """Return the content words of a question that say what the thing is of which it names the colour; () if
    none.

    "bicycle" of "where is the red bicycle"; none of "where is the red dot", for a dot is no more than that.
    Those next to the colour, where there are some, else all others: "which bicycle is red".
    """
    content = [(i, word) for i, word in enumerate(words) if word not in STOP_WORDS]
    painted = [i for i, word in content if colours_of(word)]
    if not painted:
        return ()
    there = {i for i, _ in content}
    beside: set[int] = set()
    for start in painted:
        for step in (-1, 1):
            at = start + step
            while at in there:
                beside.add(at)
                at += step
    beside -= {i for i in beside if words[i] in MANNER or colours_of(words[i])}
    things = beside or there
    return tuple(
        word
        for i, word in content
        if i in things and not (word in SHAPES or word in MANNER or word in ODD_FILLERS or colours_of(word))
    )


def _oklab(rgb: Tensor) -> Tensor:
    """Return the OKLab values [N, 3] of sRGB colours [N, 3] in [0, 1]."""
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = linear @ torch.tensor(
        [[0.4122214708, 0.2119034982, 0.0883024619],
         [0.5363325363, 0.6806995451, 0.2817188376],
         [0.0514459929, 0.1073969566, 0.6299787005]]
    )  # fmt: skip
    return cones.clamp_min(0) ** (1 / 3) @ torch.tensor(
        [[0.2104542553, 1.9779984951, 0.0259040371],
         [0.7936177850, -2.4285922050, 0.7827717662],
         [-0.0040720468, 0.4505937099, -0.8086757660]]
    )  # fmt: skip


@lru_cache(maxsize=8)
@constant_result
def _table(device: torch.device) -> Tensor:
    """Return the colour of every sRGB value of five bits a channel: long [32768]."""
    with torch.inference_mode(False):
        each = [bytes.fromhex(code) for codes in PROTOTYPES.values() for code in codes.split()]
        owners = torch.tensor([i for i, codes in enumerate(PROTOTYPES.values()) for _ in codes.split()])
        levels = (torch.arange(32) + 0.5) / 32
        grid = torch.cartesian_prod(levels, levels, levels)
        weight = torch.tensor([0.5, 1.0, 1.0])  # hue tells colours apart, lightness less so
        prototypes = torch.tensor([list(code) for code in each]) / 255
        near = torch.cdist(_oklab(grid) * weight, _oklab(prototypes) * weight).argmin(1)
        return owners[near].to(device)


@torch.no_grad()
def colour_maps(pictures: Tensor) -> Tensor:
    """Return how far each place shows each colour, float [B, len(NAMES), h / 16, w / 32] in [0, 1].

    Of pictures [B, 3, h, w] in [0, 1], h a multiple of 16 and w of 32. A colour that most of a picture has is
    its ground and shows nowhere.
    """
    levels = (pictures[..., ::STEP, ::STEP] * 32).long().clamp_(0, 31)
    colours = _table(pictures.device)[(levels[:, 0] * 32 + levels[:, 1]) * 32 + levels[:, 2]]
    size, height, width = len(pictures), pictures.shape[-2] // PLACE[0], pictures.shape[-1] // PLACE[1]
    blocks = colours.view(size, height, PLACE[0] // STEP, width, PLACE[1] // STEP)
    place = torch.arange(height * width, device=pictures.device).view(height, 1, width, 1)
    # One count of pixels for each place and colour at once.
    index = (place * len(NAMES) + blocks).flatten(1)
    counts = index.new_zeros(size, height * width * len(NAMES))
    counts.scatter_add_(1, index, torch.ones_like(index))
    shares = counts.view(size, height, width, -1).movedim(-1, 1) / (PLACE[0] * PLACE[1] // STEP**2)
    low, high = GROUND
    ground = ((shares.mean((2, 3)) - low) / (high - low)).clamp(0, 1)
    return (shares / FULL_SHARE).clamp(max=1) * (1 - ground)[..., None, None]
