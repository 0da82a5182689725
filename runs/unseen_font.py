"""`arr-coc eval` on validation pages in fonts that nobody was taught: what chooses between LoRAs, as test pages may not.

    python runs/unseen_font.py --allocator FOLDER --methods "arr-coc sparse,arr-coc saccade" --out unseen

All options are those of `arr-coc eval`; `arr-coc eval --split validation`, the command that a result file of either
names, asks in fonts of training. These fonts are neither taught nor tested: two oblique cuts of the monospaced one,
two of the sans, one with serifs. A part of a page encoded alone loses more in them, and LoRAs differ more.
"""

import sys
from unittest.mock import patch

from arr_coc.cli import main

FONTS = (
    "DejaVuSansMono-Oblique.ttf",
    "DejaVuSansMono-BoldOblique.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSans-BoldOblique.ttf",
    "DejaVuSerif.ttf",
)

if __name__ == "__main__":
    with patch("arr_coc_lab.world.page.TRAIN_FONTS", FONTS):
        sys.exit(main(["eval", "--split", "validation", *sys.argv[1:]]))
