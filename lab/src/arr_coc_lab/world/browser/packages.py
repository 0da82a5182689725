"""Debian packages of HTML documentation, split by package.

    pages("train")              {"git-doc": (Path(...), ...), ...}

Install them all, or unpack them in a folder without root and name that folder's `usr/share` as a root:

    apt-get install --no-install-recommends PACKAGES
    apt-get download PACKAGES && for package in *.deb; do dpkg -x $package FOLDER; done
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from arr_coc_lab.world.page import SPLITS

ROOTS: tuple[Path, ...] = (Path("/usr/share"),)
"""Where documentation is looked for, the first that has a package's folder wins."""
SMALLEST, LARGEST = 2_500, 250_000
"""Bytes of a page: smaller ones are lists of links, larger ones slow the browser."""
SKIPPED = re.compile(
    r"_modules/|/_sources/|_source\.html|genindex|modindex|/search|searchform|class-use|index-files|src-html|/src/"
    r"|package-tree|overview-tree|allclasses|package-frame|-frame\.html|doc-index|/toc\.|_toc\.|contents\.html|sitemap"
    r"|graph_legend|/dir_|inherits|hierarchy|navtree|releaselog|/examples/"
)
"""Parts of the paths of pages that are indexes, frames or listings of source."""


class Package(NamedTuple):
    """A package of documentation.

    Attributes:
        name: as Debian names it.
        split: "train", "validation" or "test".
        look: its generator and theme.
        folder: of its pages below a root.
        pattern: of its pages below the folder, as in `Path.glob`.
    """

    name: str
    split: str
    look: str
    folder: str
    pattern: str = "**/*.html"


PACKAGES: tuple[Package, ...] = tuple(
    Package(*line.split())
    for line in """
    python3.11-doc            train       sphinx-python     doc/python3.11/html
    python-sqlalchemy-doc     train       sphinx-sqlalchemy doc/python-sqlalchemy-doc/html
    python-django-doc         train       sphinx-django     doc/python-django-doc/html
    cmake-doc                 train       sphinx-cmake      doc/cmake-data/html
    debian-policy             train       sphinx-nature     doc/debian-policy
    developers-reference      train       sphinx-rtd        developers-reference             *.html
    krb5-doc                  train       sphinx-agogo      doc/krb5-doc
    python-pygame-doc         train       sphinx-pygame     doc/python-pygame-doc/html
    rsyslog-doc               train       sphinx-classic    doc/rsyslog-doc/html
    ghostscript-doc           train       sphinx-rtd        doc/ghostscript/html
    docutils-doc              train       docutils          doc/docutils-doc
    postgresql-doc-15         train       docbook-postgres  doc/postgresql-doc-15/html
    debian-reference-en       train       docbook-debian    debian-reference                 *.en.html
    abs-guide                 train       docbook-dsssl     doc/abs-guide/html
    libgtk-3-doc              train       gtk-doc           gtk-doc/html/gtk3
    libcairo2-doc             train       gtk-doc           gtk-doc/html/cairo
    libadwaita-1-doc          train       gi-docgen         doc/libadwaita-1
    git-doc                   train       asciidoc          doc/git-doc
    apache2-doc               train       apache            doc/apache2-doc/manual/en
    libhdf5-doc               train       doxygen           doc/libhdf5-doc/html
    ant-doc                   train       javadoc-and-hand  doc/ant
    octave-doc                train       texinfo           doc/octave/octave.html           *.html
    zsh-doc                   train       texinfo           doc/zsh-common/html
    postfix-doc               train       hand-postfix      doc/postfix/html
    gnuplot-doc               train       latex2html        doc/gnuplot/htmldocs
    bird2-doc                 train       linuxdoc          doc/bird2                        *.html
    python-jinja2-doc         validation  sphinx-pallets    doc/python-jinja2-doc/html
    ncurses-doc               validation  man2html          doc/ncurses-doc/html
    graphviz-doc              validation  hand-graphviz     doc/graphviz/html
    sqlite3-doc               test        hand-sqlite       doc/sqlite3
    nodejs-doc                test        node              doc/nodejs/api
    mkdocs-doc                test        mkdocs            doc/mkdocs/html
    libvirt-doc               test        hand-libvirt      doc/libvirt-doc/html
    swi-prolog-doc            test        ltx2htm           swi-prolog/doc
    gap-doc                   test        gapdoc            gap/doc/ref
    haskell98-report          test        tex2html          doc/haskell98-report/html
    newlisp                   test        hand-newlisp      doc/newlisp
    kicad-doc-en              test        asciidoctor       doc/kicad/help/en
    exim4-doc-html            test        hand-exim         doc/exim4-doc-html/spec_html
    libghc-aeson-doc          test        haddock           doc/libghc-aeson-doc/html
    r-doc-html                test        texinfo           R/doc/manual
    geographiclib-doc         test        doxygen           doc/geographiclib/html
    libcommons-lang3-java-doc test        javadoc           doc/libcommons-lang3-java/api
    python-requests-doc       test        sphinx-alabaster  doc/python-requests-doc/html
    python-pil-doc            test        sphinx-furo       doc/python-pil-doc/html
    """.strip().splitlines()
)
"""The packages. Most looks of the test split are its own; texinfo, Doxygen and Javadoc are trained on too."""


def folder(package: Package, roots: Sequence[Path]) -> Path | None:
    """Return where a package's pages are; None if it is not here."""
    return next((root / package.folder for root in roots if (root / package.folder).is_dir()), None)


@lru_cache(maxsize=8)
def pages(
    split: str, roots: tuple[Path, ...] = ROOTS, packages: tuple[Package, ...] = PACKAGES
) -> dict[str, tuple[Path, ...]]:
    """Return the pages of a split by package, in the order of their names.

    Raises:
        ValueError: an unknown split.
        RuntimeError: packages of the split are missing, with the command that installs them.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown; use one of {', '.join(SPLITS)}")
    kept, missing = {}, []
    for package in packages:
        if package.split != split:
            continue
        home = folder(package, roots)
        listed = () if home is None else _listed(home, package.pattern)
        if listed:
            kept[package.name] = listed
        else:
            missing.append(package.name)
    if missing:
        raise RuntimeError(
            f"{len(missing)} packages of documentation are not in {', '.join(map(str, roots))}; "
            f"apt-get install --no-install-recommends {' '.join(missing)}"
        )
    return kept


def _listed(home: Path, pattern: str) -> tuple[Path, ...]:
    """Pages of a folder that may have enough text."""
    paths = (path for path in home.glob(pattern) if not SKIPPED.search(path.as_posix()))
    return tuple(
        sorted(path for path in paths if path.is_file() and SMALLEST <= path.stat().st_size <= LARGEST)
    )
