"""Font families for rendered pages: the installed ones, split into training and held out.

    PACKAGES                  Debian packages with the families that the guide was trained on
    families("train")         names for CSS; "test" adds the held-out ones

A family's split is fixed by a hash of its name, so it is the same wherever it is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import zlib
from functools import lru_cache

PACKAGES: tuple[str, ...] = tuple(
    """
    fonts-3270 fonts-cardo fonts-clear-sans fonts-comic-neue fonts-hermit fonts-dkg-handwriting
    fonts-essays1743 fonts-adf-accanthis fonts-adf-baskervald fonts-adf-berenis fonts-adf-gillius
    fonts-adf-ikarius fonts-adf-irianis fonts-adf-libris fonts-adf-mekanus fonts-adf-oldania
    fonts-adf-romande fonts-adf-switzera fonts-adf-tribun fonts-adf-universalis fonts-adf-verana
    fonts-agave fonts-allerta fonts-anonymous-pro fonts-aoyagi-soseki fonts-arapey fonts-arkpandora
    fonts-averia-gwf fonts-averia-sans-gwf fonts-averia-serif-gwf fonts-b612 fonts-bebas-neue
    fonts-beteckna fonts-breip fonts-cabin fonts-cantarell fonts-century-catalogue fonts-cmu
    fonts-comfortaa fonts-courier-prime fonts-crosextra-caladea fonts-crosextra-carlito
    fonts-dancingscript fonts-dejavu fonts-dejavu-extra fonts-dosis fonts-dustin fonts-ebgaramond
    fonts-ecolier-court fonts-elstob fonts-eurofurence fonts-fantasque-sans fonts-firacode
    fonts-freefont-ttf fonts-gfs-didot fonts-gfs-neohellenic fonts-gnutypewriter fonts-go
    fonts-goudybookletter fonts-hack fonts-havana fonts-humor-sans fonts-inconsolata fonts-inter
    fonts-isabella fonts-jetbrains-mono fonts-junction fonts-junicode fonts-jura fonts-karla
    fonts-kaushanscript fonts-klaudia-berenika fonts-lato fonts-league-mono fonts-league-spartan
    fonts-leckerli-one fonts-levien-museum fonts-liberation fonts-liberation2 fonts-lindenhill fonts-linex
    fonts-linuxlibertine fonts-lobster fonts-lobstertwo fonts-manrope fonts-millimetre fonts-monofur
    fonts-monoid fonts-mononoki fonts-national-park fonts-croscore fonts-noto-core fonts-noto-mono
    fonts-ocr-a fonts-oldstandard fonts-open-sans fonts-opendin fonts-opendyslexic fonts-paratype
    fonts-play fonts-prociono fonts-quattrocento fonts-quicksand fonts-radisnoir fonts-roadgeek
    fonts-roboto fonts-roboto-slab fonts-routed-gothic fonts-rufscript fonts-sil-andika fonts-sil-charis
    fonts-sil-doulos fonts-sil-gentium fonts-sil-gentiumplus fonts-sora fonts-spleen fonts-staypuft
    fonts-stix fonts-summersby fonts-tiresias fonts-tomsontalks fonts-tuffy fonts-ubuntu-title
    fonts-urw-base35 fonts-vollkorn fonts-yanone-kaffeesatz fonts-yrsa-rasa fonts-lmodern fonts-oxygen
    fonts-sjfonts fonts-texgyre fonts-mona fonts-georgewilliams fonts-jsmath
    """.split()
)
"""Debian packages with Latin fonts."""
WRONG: tuple[str, ...] = (
    "symbol", "icon", "emoji", "awesome", "math", "dingbat", "barcode", "music", "braille", "tengwar", "bats",
    "ornament", "webding", "cmex", "cmsy", "esint", "msam", "msbm", "rsfs", "wasy", "stmary", "eufm", "euex",
    "fallback", "initials", "last resort", "keyboard", "circos", "blank", "cmmi", "eusm", "euf", "feta",
    "d050000l", "standard symbols", "unifont upper", "sixel", "outline", "dummy", "signwriting",
    "alfa-beta", "ellhnikh", "museum", "aoyagisoseki", "domestic manners", "dustismo",
    "el abogado loco", "delphine", "elegante", "isabella",
)  # fmt: skip
"""Parts of names of families that lack Latin letters, can't be read when small, or are many of one face."""


FEW = 60
"""Fewer families than this make pages that look alike; PACKAGES bring some 250."""


def held_out(family: str) -> bool:
    """Return whether a font family belongs to the test split alone: one in eight."""
    return zlib.crc32(family.lower().encode()) % 8 == 0


def _ordinary(name: str) -> bool:
    """Return whether a family, its name in lower case, has ordinary Latin letters of its own."""
    another_script = name.startswith("noto ") and name not in ("noto sans", "noto serif", "noto mono")
    return not another_script and not any(part in name for part in WRONG)


@lru_cache(maxsize=1)
def installed() -> tuple[str, ...]:
    """Names of the installed families with Latin letters, in alphabetical order.

    Raises:
        RuntimeError: fontconfig's `fc-list` is not here.
    """
    if shutil.which("fc-list") is None:
        raise RuntimeError(
            "fc-list is not installed: install fontconfig, which lists the fonts of this machine"
        )
    command = ["fc-list", ":lang=en:scalable=true", "family"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    names = {line.split(",")[0].replace("\\", "").strip() for line in lines}
    return tuple(sorted(name for name in names if name and _ordinary(name.lower())))


def families(split: str) -> tuple[str, ...]:
    """Families of a split: of "train" and "validation" those not held out; of "test" all, the held-out twice.

    Raises:
        RuntimeError: as in `installed`, or no family is left.
    """
    kept = [f for f in installed() if not held_out(f)]
    if split == "test":
        out = [f for f in installed() if held_out(f)]
        kept = kept + 6 * out  # most of the test's pages are in faces never trained on
    if not kept:
        raise RuntimeError("no Latin font is installed: install one, for example Debian's fonts-dejavu-core")
    return tuple(kept)


def remark() -> str | None:
    """Return a warning before pages are rendered with few families; None where there are enough."""
    count = len(installed())
    if count >= FEW:
        return None
    return (
        f"only {count} font families are installed here, and pages are drawn in them: for pages like those "
        "the guide was taught, apt-get install the packages in arr_coc_lab.world.browser.fonts.PACKAGES"
    )
